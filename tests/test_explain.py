"""`mingce explain`: every number is the twin's, every code reference right, every mistake one sentence."""

from __future__ import annotations

import importlib
import inspect
import io
import json
import math
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

from mingce.algorithms import reference
from mingce.base.errors import MingceError
from mingce.base.numbers import number as shown
from mingce.cli import app
from mingce.commands.explain import explain
from mingce.explain.account_texts import LEVELS, Section
from mingce.explain.code_refs import ROOT, resolve
from mingce.explain.example import Rollout, changed, completed, recorded, typed, worked
from mingce.explain.markdown import as_json, markdown
from mingce.explain.stages import STAGES
from mingce.explain.terminal import rendered
from mingce.explain.walk import Stage, Walk, telling_slots, walk
from mingce.explain.walk_texts import SCORES, SHORT, VALUES, labels
from mingce.explain.wrapping import wrapped
from mingce.training import start

SEEDS = json.loads(Path(__file__).with_name("seed_examples.json").read_text(encoding="utf-8"))
EXAMPLES = {example["id"]: example for example in SEEDS["examples"]}
LANGS = ("zh", "en")
TEXTS = ("是", "的", "，", "等于", "2", "！", "the", " cat", "\n", "|", "`", "<b>", "数", "x_1", "*")
NUMBER = re.compile(r"(?<![\w.^_])−?\d+(?:\.\d+)?(?:×10[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)?(?![\w.]*\w)")
CONSTANTS = {"0", "1", "2"}


def terminal(found: Walk, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    for part in rendered(found, width):
        console.print(part, soft_wrap=True, highlight=False)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def told(*words: str, width: int = 100, **options: Any) -> str:
    """What the command prints in a terminal."""
    console = Console(file=io.StringIO(), width=width)
    explain(console, words, **options)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def stage(found: Walk, name: str) -> Stage:
    return next(one for one in found.stages if one.id == name)


def random_rollout(seed: int) -> Rollout:
    """1–12 tokens, holes, sometimes a bootstrap, any of the estimators, an update that has moved."""
    chance = random.Random(seed)
    length = chance.randint(1, 12)
    mask = [int(chance.random() > 0.2) for _ in range(length)]
    mask[chance.randrange(length)] = 1

    def column(low: float, high: float) -> list[float | None]:
        return [round(chance.uniform(low, high), chance.choice((2, 4, 6))) if m else None for m in mask]

    old, values = column(-3, 0), column(-1, 2)
    columns: dict[str, list[Any]] = {
        "response_mask": mask,
        "scores": [None if not m else float(chance.choice((0, 0, 1, -0.5))) for m in mask],
        "old_log_probs": old,
        "ref_log_probs": [None if x is None else x + chance.uniform(-0.5, 0.5) for x in old],
        "new_log_probs": [None if x is None else x + chance.uniform(-0.6, 0.6) for x in old],
        "values": values,
        "new_values": [None if x is None else x + chance.uniform(-1.5, 1.5) for x in values],
    }
    estimator = chance.choice(("gae", "gae", "gae", "monte_carlo", "td0", "n_step", "uniform", "last_k"))
    settings: dict[str, Any] = {
        "gamma": chance.choice((1.0, 0.99, 0.9)), "lam": chance.choice((0.0, 0.5, 0.95, 1.0)), "beta": 0.1,
        "estimator": estimator, "n": 3, "k": 2, "dual_clip": chance.choice((None, 1.5)),
        "kl_estimator": chance.choice(("k1", "k2", "k3", "abs")), "value_clip": chance.choice((None, 0.5)),
        "policy_loss": chance.choice(("ppo", "ppo", "cpi")), "whiten": chance.random() < 0.8,
    }  # fmt: skip
    blank = typed({"values": [0.0] * length}, tokens=[chance.choice(TEXTS) for _ in range(length)], **settings)
    after = chance.choice((0.0, 0.0, 0.37))
    return completed(replace(blank, columns=columns, prompt="请问1+1=2？", bootstrap=after))


def twin_columns(rollout: Rollout) -> dict[str, list[float]]:
    """What the twins make of the measured columns, written out here once more from the definitions."""
    columns, settings = rollout.columns, rollout.settings.as_dict()
    mask = columns["response_mask"]
    slots = reference.chosen(mask)
    given = {
        name: [0.0 if x is None else float(x) for x in columns[name]]
        for name in ("scores", "old_log_probs", "ref_log_probs", "new_log_probs", "values", "new_values")
    }
    found = dict(given)
    found["kl"] = [
        reference.kl_penalty(old, ref, settings["kl_estimator"])
        for old, ref in zip(given["old_log_probs"], given["ref_log_probs"], strict=True)
    ]
    found["rewards"] = [s - settings["beta"] * k for s, k in zip(given["scores"], found["kl"], strict=True)]
    rows, values, after = [found["rewards"]], [given["values"]], [rollout.bootstrap]
    gamma, lam, name = settings["gamma"], settings["lam"], settings["estimator"]
    found["deltas"] = reference.gae(rows, values, [mask], gamma, 0.0, after).deltas[0]
    if name in ("uniform", "last_k"):
        shares = reference.uniform(rows, [mask]) if name == "uniform" else reference.last_k(rows, [mask], 2)
        found["advantages"] = shares[0]
    else:
        credit = {
            "gae": lambda: reference.gae(rows, values, [mask], gamma, lam, after),
            "monte_carlo": lambda: reference.monte_carlo(rows, values, [mask], gamma, after),
            "td0": lambda: reference.td0(rows, values, [mask], gamma, after),
            "n_step": lambda: reference.n_step(rows, values, [mask], gamma, 3, after),
        }[name]()
        found["advantages"], found["returns"] = credit.advantages[0], credit.returns[0]
    used = found["advantages"]
    if settings["whiten"] and len(slots) > 1:
        used = found["whitened_advantages"] = reference.masked_whiten([used], [mask])[0]
    found["ratio"] = [math.exp(n - o) for n, o in zip(given["new_log_probs"], given["old_log_probs"], strict=True)]
    terms = [
        reference.policy_term(o, n, a, 0.2, 0.2, settings["dual_clip"])
        for o, n, a in zip(given["old_log_probs"], given["new_log_probs"], used, strict=True)
    ]
    cpi = settings["policy_loss"] == "cpi"
    found["policy_loss"] = (
        [-r * a for r, a in zip(found["ratio"], used, strict=True)] if cpi else [t.loss for t in terms]
    )
    if "returns" in found:
        found["value_loss"] = [
            reference.value_term(n, r, v, settings["value_clip"]).loss
            for n, r, v in zip(given["new_values"], found["returns"], given["values"], strict=True)
        ]
    return found


def sayable(rollout: Rollout, twins: dict[str, list[float]]) -> set[str]:
    """Every number that an account of this rollout may mention, as it is written."""
    settings, mask = rollout.settings.as_dict(), rollout.columns["response_mask"]
    slots = reference.chosen(mask)
    numbers: list[float | int] = [*range(len(mask) + 1), rollout.bootstrap]
    numbers += [x for x in settings.values() if isinstance(x, int | float) and not isinstance(x, bool)]
    numbers += [settings["gamma"] * settings["lam"], 1 - settings["clip_low"], 1 + settings["clip_high"], 3, 0.0]
    numbers += [column[t] for column in twins.values() for t in slots]
    raw = [twins["advantages"]]
    numbers += [reference.masked_mean(raw, [mask]), math.sqrt(reference.masked_var(raw, [mask]) + 1e-8)]
    total = math.fsum(twins["rewards"][t] for t in slots)
    numbers.append(total)
    used = twins.get("whitened_advantages", twins["advantages"])
    for t in slots:
        held = min(max(twins["ratio"][t], 0.8), 1.2)
        numbers += [held, held * used[t], twins["ratio"][t] * used[t]]
        if settings["policy_loss"] == "cpi":
            numbers.append(-twins["ratio"][t])  # −ρ·Â
        reach = settings["value_clip"]
        if reach is not None:
            near = min(max(twins["new_values"][t], twins["values"][t] - reach), twins["values"][t] + reach)
            numbers.append(near)
        numbers.append(twins["advantages"][t] / total if total else 1 / len(slots))
    return {shown(x, powers=p) for x in numbers for p in (True, False)} | CONSTANTS


# ── numbers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(50))
def test_every_number_is_the_twins_to_the_digits_shown(seed: int) -> None:
    rollout = random_rollout(seed)
    twins, slots = twin_columns(rollout), reference.chosen(rollout.columns["response_mask"])
    allowed, level, lang = sayable(rollout, twins), LEVELS[seed % 3], LANGS[seed % 2]
    found = walk(rollout, level, lang)
    assert found.wrongs == 0
    assert [one.id for one in found.stages] == list(STAGES)
    for one in found.stages:
        for name, column in one.columns.items():
            for t in found.slots:
                assert (column[t] is None) == (t not in slots)
                if t in slots:
                    assert column[t] == pytest.approx(twins[name][t], rel=1e-9, abs=1e-12)
        assert one.skipped or [line.t for line in one.lines] == slots
        for line in one.lines:
            assert line.computed == pytest.approx(twins[one.id][line.t], rel=1e-9, abs=1e-12)
            assert line.substituted.endswith(f"= {shown(twins[one.id][line.t])}")
    said = [line.substituted for one in found.stages for line in one.lines]
    said += [re.sub(r"“[^”]*”", "", line.meaning) for one in found.stages for line in one.lines]
    if level != "proof":  # whose derivations have constants of their own
        said += [re.sub(r"`[^`]*`|“[^”]*”", "", one.words) for one in found.stages]
    for text in said:
        for number in NUMBER.findall(text):
            assert number in allowed, text
    printed, written, kept = terminal(found, 1000), markdown(found), json.loads(as_json(found))
    for one, saved in zip(found.stages, kept["stages"], strict=True):
        assert saved["columns"].keys() == one.columns.keys()
        for name, column in saved["columns"].items():
            assert column["numbers"] == [one.columns[name][t] for t in found.slots]
        for line in one.lines:
            assert line.substituted in printed
            assert f"`{line.substituted}`".replace("|", "\\|") in written


@pytest.mark.parametrize("lang", LANGS)
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_seeds_examples_in_three_formats(name: str, lang: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = dict(EXAMPLES[name]["given"])
    given["ref_log_probs"] = given.pop("ref_log_prob", None)
    settings = {key: given.pop(key) for key in ("gamma", "lam", "beta") if key in given}
    if name == "002-q5-monte-carlo":
        settings["estimator"] = "reinforce_plus_plus"
    numbers = {key: " ".join(map(str, row)) for key, row in given.items() if row is not None}
    printed = told(numbers=numbers, settings=settings, lang=lang)
    explain(Console(), numbers=numbers, settings=settings, lang=lang, form="markdown")
    written = capsys.readouterr().out
    explain(Console(), numbers=numbers, settings=settings, lang=lang, form="json")
    saved = {one["id"]: one for one in json.loads(capsys.readouterr().out)["stages"]}
    renamed = {"monte_carlo_returns": "advantages", "kl_k1": "kl"}
    for column, right in EXAMPLES[name]["expect"].items():
        if column in ("cpi_objective", "old_probs"):
            continue
        stage_id = renamed.get(column, column)
        got = saved[stage_id]["columns"][stage_id]["numbers"]
        assert got == pytest.approx(right, abs=EXAMPLES[name].get("tol", 6e-4))
        for line in saved[stage_id]["lines"]:
            assert line["substituted"] in printed
            assert f"`{line['substituted']}`" in written
    if name == "003-q3-cpi-objective":  # the first update: every ratio is 1
        assert saved["ratio"]["columns"]["ratio"]["numbers"] == [1.0] * 6
        assert sum(given["advantages"]) / 6 == pytest.approx(EXAMPLES[name]["expect"]["cpi_objective"][0], abs=1e-4)


def test_one_tokens_account_in_depth_is_that_of_the_page() -> None:
    from mingce.explain.account import account

    for level in LEVELS:
        for lang in LANGS:
            found = walk(worked(), level, lang, token=3)
            for entry in account(worked(), 3, level, lang):
                assert any(entry.meaning in text for text in (found.opening, *(one.words for one in found.stages))), (
                    entry.id
                )
            assert all([line.t for line in one.lines] == [3] for one in found.stages)


def test_a_number_that_the_twin_does_not_confirm_is_told_in_red() -> None:
    rollout = worked()
    advantages = [*rollout.columns["advantages"]]
    advantages[2] += 0.1
    rollout = replace(rollout, columns={**rollout.columns, "advantages": advantages})
    found = walk(rollout, "engineer", "zh")
    assert [line.t for line in stage(found, "advantages").lines if not line.agrees] == [2]
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system="standard")
    for part in rendered(found, 100):
        console.print(part, soft_wrap=True, highlight=False)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b[1;31m✗ t = 2 “，”：账本记 0.6965，按公式是 0.5965\x1b[0m" in printed
    assert "账本记 0.6965" in markdown(found)
    assert json.loads(as_json(found))["disagreements"] == found.wrongs >= 1
    assert not walk(worked(), "engineer", "zh").wrongs


def test_what_if_changes_the_numbers_and_says_so() -> None:
    assert "A_0 = 0.04 + 0.5·" in told(settings={"lam": 0.5})
    found = changed(worked(), lam=0.5)
    assert found.columns["advantages"][0] == pytest.approx(
        reference.gae([worked().columns["rewards"]], [worked().columns["values"]], [[1] * 6], 1.0, 0.5).advantages[0][0]
    )


ROW = ("--rewards", "-0.01 -0.005 0.005 -0.01 -0.02 0.995", "--values", "0.2 0.25 0.3 0.35 0.45 0.6")
NOTES = "With δ_4 = 0.13 and A_5 = 0.395: A_4 = 0.13 + 0.95·0.395 = 0.52, R_4 = A_4 + V_4 = 0.5053 + 0.45 = 0.96."


@pytest.mark.parametrize(
    "words",
    [
        ("example",), ("explain",), ("explain", "--format", "markdown"), ("explain", "--format", "json"),
        ("explain", "--level", "child"), ("explain", "--level", "proof", "--token", "4"), ("explain", *ROW),
        ("explain", "请问1+1=2？", "是的，等于2！"), ("credit", *(word.replace(" ", ", ") for word in ROW)),
        ("ask", "GAE 怎么递推？"), ("ask", "What is A_4?"), ("check-log", "NOTES"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_tie_is_rounded_the_same_way_by_every_command(words: tuple[str, ...], tmp_path: Path) -> None:
    """A_4 = 0.50525 and R_4 = 0.95525: as float64 one lies below the tie, as float32 another."""
    notes = tmp_path / "notes.md"
    notes.write_text(NOTES, encoding="utf-8")
    said = [str(notes) if word == "NOTES" else word for word in words]
    for lang in LANGS:
        done = CliRunner().invoke(app, [*said, "--lang", lang], env={"COLUMNS": "200"})
        assert done.exit_code in (0, 1), done.output
        assert "0.5053" in done.output
        assert not re.search(r"0\.(5052|9552)(?!\d)", done.output)


def dump_of(path: Path, **settings: Any) -> Path:
    """One response in another trainer's dump, its KL of no known kind and its rewards priced at no known β."""
    columns = {
        "response_mask": [1, 1, 1], "scores": [0.0, 0.0, 1.0], "values": [0.2, 0.4, 0.6], "kl": [0.3, 0.1, 0.2],
        "old_log_probs": [-1.0, -0.5, -0.2], "ref_log_probs": [-1.2, -0.6, -0.1], "new_log_probs": [-0.5, -0.5, -0.4],
        "rewards": [-0.03, -0.01, 0.98], "advantages": [0.1, 0.2, 0.3], "token_ids": [5, 6, 7],
    }  # fmt: skip
    path.write_text(json.dumps({"prompt": "1+1?", "response": "= 2", **columns}) + "\n", encoding="utf-8")
    mapping = path.with_suffix(".yaml")
    mapping.write_text(json.dumps({"settings": settings}), encoding="utf-8")
    return mapping


CLIPS = {"clip_low": 0.2, "clip_high": 0.2}


@pytest.mark.parametrize(
    ("settings", "from_log_probs", "from_kl", "with_loss"),
    [
        ({}, False, False, False),
        ({"beta": 0.1}, False, True, False),
        ({"kl_estimator": "k1"}, True, False, False),
        ({"clip_low": 0.2}, False, False, False),
        ({"kl_estimator": "k1", "beta": 0.1, **CLIPS}, True, True, True),
        ({"kl_estimator": "full", "beta": 0.5, **CLIPS}, False, True, True),
    ],
)
def test_what_if_over_a_dump_keeps_what_its_unknown_settings_made(
    tmp_path: Path, settings: dict[str, Any], from_log_probs: bool, from_kl: bool, with_loss: bool
) -> None:
    mapping = dump_of(tmp_path / "d.jsonl", **settings)
    kept = recorded(tmp_path / "d.jsonl", None, 0, mapping)
    assert {name: getattr(kept.settings, name) for name in settings} == settings
    found = changed(kept, estimator="td0", gamma=1.0).columns
    kl = [0.2, 0.1, -0.1] if from_log_probs else [0.3, 0.1, 0.2]
    beta = settings.get("beta", 0.0)
    rewards = [s - beta * k for s, k in zip((0, 0, 1), kl, strict=True)] if from_kl else [-0.03, -0.01, 0.98]
    assert found["kl"] == pytest.approx(kl)
    assert found["rewards"] == pytest.approx(rewards)
    assert found["advantages"] == pytest.approx([rewards[0] + 0.2, rewards[1] + 0.2, rewards[2] - 0.6])
    assert found["ratio"] == pytest.approx([math.exp(0.5), 1.0, math.exp(-0.2)])
    assert ("policy_loss" in found) == with_loss
    assert "policy_loss" in changed(kept, policy_loss="cpi").columns  # which reads no clip
    printed = told(str(tmp_path / "d.jsonl"), settings={"estimator": "td0"}, mapping=mapping, lang="en")
    assert "as if estimator = td0" in printed


def test_without_a_known_kl_rewards_are_not_made_up(tmp_path: Path) -> None:
    """A KL of unknown kind that was not recorded either: the rewards stay, whatever β is."""
    kept = recorded(tmp_path / "d.jsonl", None, 0, dump_of(tmp_path / "d.jsonl", beta=0.1))
    kept = replace(kept, columns={name: column for name, column in kept.columns.items() if name != "kl"})
    assert changed(kept, estimator="td0").columns["rewards"] == pytest.approx([-0.03, -0.01, 0.98])
    assert changed(kept, beta=0.0).columns["rewards"] == [0.0, 0.0, 1.0]


def test_what_if_reads_whatever_was_recorded_of_the_response() -> None:
    plain = worked()
    greedy = replace(plain, row_inputs={"greedy_score": 0.25})
    rewards = plain.columns["rewards"]
    remax = changed(greedy, estimator="remax", whiten=False).columns["advantages"]
    assert remax == pytest.approx([sum(rewards[t:]) - 0.25 for t in range(6)])
    weights = [0.1, 0.2, 0.0, 0.3, 0.3, 0.1]
    attended = replace(plain, columns={**plain.columns, "attention_weights": weights})
    shares = changed(attended, estimator="attention", whiten=False).columns["advantages"]
    assert shares == pytest.approx(reference.attention([rewards], [[1] * 6], [weights])[0])
    for rollout, name in ((plain, "remax"), (plain, "attention"), (greedy, "attention"), (attended, "remax")):
        with pytest.raises(MingceError, match=f"'{name}' needs more than the numbers of one response"):
            changed(rollout, estimator=name)
    with pytest.raises(MingceError, match=r"needs the other answers to the prompt; choose .*, remax\."):
        changed(greedy, estimator="grpo")


# ── what is skipped, and how it is laid out ──────────────────────────────────────────────────────────────────────────


def test_a_stage_without_its_columns_is_skipped_with_the_reason() -> None:
    found = walk(typed({"rewards": [0, 0, 1], "values": [0.3, 0.4, 0.6]}), "engineer", "en")
    assert {one.id: one.skipped for one in found.stages if one.skipped} == {
        "scores": "no scores",
        "kl": "no old_log_probs, ref_log_probs",
        "ratio": "no new_log_probs, old_log_probs",
        "policy_loss": "no ratio",
    }
    assert stage(found, "rewards").remark == "no scores: these numbers are given as they are"
    bare = walk(typed({"rewards": [0, 1]}), "engineer", "zh")
    assert stage(bare, "advantages").skipped == "没有 values"


def test_one_token_alone_is_not_whitened() -> None:
    found = walk(typed({"rewards": [1], "values": [0.3], "old_log_probs": [-0.1]}), "child", "en")
    assert stage(found, "whitened_advantages").skipped == "the advantages are not whitened here"
    assert stage(found, "policy_loss").lines[0].substituted.endswith("= −0.7")
    assert list(stage(found, "policy_loss").columns) == ["ratio", "advantages", "policy_loss"]


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("lang", LANGS)
def test_no_line_is_wider_than_the_terminal_and_numbers_stand_under_their_tokens(width: int, lang: str) -> None:
    for rollout in (worked(), *(random_rollout(seed) for seed in range(8))):
        found = walk(rollout, "engineer", lang)
        lines = terminal(found, width).splitlines()
        assert max(map(cell_len, lines)) <= width
        for place, line in enumerate(lines):
            if line.startswith("t  ") and lines[place + 1].startswith("token"):
                block = [cell_len(one.rstrip()) for one in (line, *_block(lines, place))]
                assert len(set(block)) == 1, lines[place : place + 5]  # right edges of the last column


def _block(lines: Sequence[str], place: int) -> list[str]:
    rows = []
    for line in lines[place + 1 :]:
        if not line:
            break
        rows.append(line)
        if len(rows) > 1 and not re.match(r".*(动作|状态|action|state)\s", line):
            return rows[:-1]
    return rows


def test_a_long_response_shows_its_ends_and_where_most_credit_is() -> None:
    chance = random.Random(5)
    length = 300
    rollout = typed(
        {"rewards": [chance.gauss(0, 1) for _ in range(length)], "values": [chance.gauss(0, 1) for _ in range(length)]}
    )
    slots = telling_slots(rollout)
    assert len(slots) == 24
    assert {*range(8), *range(292, 300)} <= set(slots)
    middle = sorted(range(8, 292), key=lambda t: -abs(rollout.columns["advantages"][t]))[:8]
    assert set(middle) <= set(slots)
    numbers = {name: " ".join(map(str, rollout.columns[name])) for name in ("rewards", "values")}
    printed = told(numbers=numbers, lang="en")
    assert "24 of 300 tokens are walked here" in printed
    assert "δ_299 =" in printed
    assert f"δ_{next(t for t in range(300) if t not in slots)} =" not in printed
    assert f"δ_{next(t for t in range(300) if t not in slots)} =" in markdown(walk(rollout))


def test_what_a_model_said_cannot_harm_the_terminal_or_the_markdown() -> None:
    rollout = typed({"rewards": [0, 1], "values": [0.1, 0.2]}, tokens=["\x1b[31mred\x07", "</td><script>|`*"])
    found = walk(rollout, "engineer", "en")
    assert "\x1b" not in terminal(found)
    assert "\x07" not in terminal(found)
    written = markdown(found)
    assert "<script>" not in written
    assert "\x1b" not in written


@pytest.mark.parametrize("width", [8, 13, 30, 79])
def test_wrapping_keeps_every_character_and_breaks_well(width: int) -> None:
    text = "以“！”为例：在整批进入损失的 6 个 token 上，μ = 0.5499（Bessel）。A pleasantly long sentence, too."
    lines = wrapped(text, width)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(cell_len(line) <= max(width, 8) + 2 for line in lines)
    if width >= 13:
        assert not any(line[0] in "，。）！、" for line in lines[1:])
        assert "0.5499" in " ".join(lines)


def test_wrapping_does_not_join_words_that_several_spaces_part() -> None:
    assert wrapped("abcdefg   h", 8) == ["abcdefg", "h"]
    assert wrapped("abcdefgh   ", 8) == ["abcdefgh"]


def test_both_languages_have_every_text() -> None:
    def pairs(section: Section) -> list[tuple[str, str]]:
        return [section.title, *section.words, *section.cases.values()]

    assert list(labels("zh")) == list(labels("en"))
    every = [*pairs(SCORES), *pairs(VALUES), *zip(labels("zh").values(), labels("en").values(), strict=True)]
    every += [pair for _, cases in SHORT.values() for pair in cases.values()]
    for zh, en in every:
        assert re.search(r"[一-鿿]", zh), zh
        assert not re.search(r"[一-鿿]", en), en
        assert set(re.findall(r"\{[a-z_]+\}", zh)) == set(re.findall(r"\{[a-z_]+\}", en)), en
    given = {"scores": [0, 1], "old_log_probs": [-1, -2], "ref_log_probs": [-1, -1], "values": [0, 1]}
    english = terminal(walk(typed(given), "proof", "en"))
    assert not re.search(r"[一-鿿]", english)


# ── code references ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "estimator", ["gae", "monte_carlo", "td0", "n_step", "uniform", "last_k", "reinforce_plus_plus"]
)
def test_every_code_reference_is_to_the_function_it_names(estimator: str) -> None:
    rollout = changed(worked(), estimator=estimator, n=2, k=2)
    refs = {ref for one in walk(rollout).stages for ref in one.code}
    assert len(refs) >= 8
    for ref in refs:
        module = importlib.import_module(ref.file.removesuffix(".py").replace("/", "."))
        found: Any = module
        for part in ref.short.split("."):
            found = getattr(found, part)
        lines, first = inspect.getsourcelines(inspect.unwrap(found))
        assert Path(inspect.getfile(inspect.unwrap(found))) == ROOT / ref.file
        assert first <= ref.line < first + len(lines)
        assert lines[ref.line - first].lstrip().startswith(f"def {ref.short.split('.')[-1]}(")


def test_a_wrong_reference_is_a_programmers_mistake() -> None:
    for name in ("mingce.algorithms.advantage.gea", "mingce.nowhere.gae"):
        with pytest.raises(AssertionError):
            resolve(name)


# ── runs, pairs, mistakes ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    small = ("steps=2", "prompts_per_step=4", "samples_per_prompt=2", "minibatch_rollouts=8", "validation.examples=4",
             "threads=1")  # fmt: skip
    for name, *overrides in (
        ("plain", "validation.every=1", "keep.checkpoint_every=1"),
        ("cut", "task=counting", "lang=en", "credit.truncation=bootstrap", "max_new_tokens=8", "validation.every=0"),
        ("group", "estimator=grpo", "actor.loss=cpi", "kl.estimator=k3", "validation.every=0"),
    ):
        start.train(Console(file=io.StringIO()), None, [f"root={root}", f"name={name}", *small, *overrides])
    return root


@pytest.mark.parametrize("name", ["plain", "cut", "group"])
def test_a_runs_rollout_is_walked_and_the_ledger_confirmed(runs: Path, name: str) -> None:
    for row in range(8):
        rollout = recorded(runs / name, 2, row)
        found = walk(rollout)
        assert found.wrongs == 0
        skipped = {one.id for one in found.stages if one.skipped}
        group = {"values", "deltas", "returns", "whitened_advantages", "value_loss"}
        assert skipped == (group if name == "group" else set())
        for one in found.stages:
            assert one.skipped or [line.t for line in one.lines] == reference.chosen(rollout.columns["response_mask"])
    printed = told(str(runs / name), step=1, rollout=3, token=2, lang="en")
    assert printed.startswith("step 1, rollout 3")


def test_what_if_over_a_runs_rollout(runs: Path) -> None:
    printed = told(str(runs / "plain"), settings={"lam": 0.5}, lang="en")
    assert "as if lam = 0.5" in printed
    same = told(str(runs / "plain"), settings={"lam": 0.95}, lang="en")
    assert "as if" not in same


@pytest.mark.usefixtures("one_thread")
def test_a_pair_is_scored_as_training_would_score_it(runs: Path) -> None:
    from mingce.explain.scored import scored

    rollout, notes = scored("请问1+1=2？", "是的，等于2！", lang="zh")
    assert [token.text for token in rollout.tokens] == [*"是的，等于2！", "<eos>"]
    assert rollout.columns["scores"] == [0.0] * 7 + [1.0]
    assert rollout.columns["kl"] == [0.0] * 8
    assert set(rollout.columns["values"]) == {0.0}
    assert any("没有训练过" in note for note in notes)
    assert walk(rollout).wrongs == 0
    wrong, _ = scored("请问1+1=3？", "是的，等于3！", lang="zh")
    assert wrong.columns["scores"][-1] == 0.0
    dense, _ = scored("Count from 3 to 5:", "3, 4.", lang="en")
    assert sum(dense.columns["scores"]) == pytest.approx(0.5)
    other, notes = scored("是的？", "不对！", lang="en")
    assert other.columns["scores"][-1] == 1.0
    assert any("1 is assumed" in note for note in notes)
    mine, _ = scored("是的？", "不对！", score=-2.5)
    assert mine.columns["scores"][-1] == -2.5

    trained, notes = scored("请问1+1=2？", "是的，等于2！", where=str(runs / "plain"))
    assert any(trained.columns["kl"])
    assert len(set(trained.columns["values"])) > 1
    assert not any("没有训练过" in note for note in notes)
    assert walk(trained).wrongs == 0
    assert trained.columns["ref_log_probs"] == rollout.columns["old_log_probs"]


def as_data(capsys: pytest.CaptureFixture[str], *words: str, **options: Any) -> tuple[list[str], Any]:
    """The notes and the stages that the command gives as JSON."""
    explain(Console(), words, form="json", **options)
    found = json.loads(capsys.readouterr().out)
    return found["notes"], found["stages"]


@pytest.mark.parametrize("lang", LANGS)
def test_the_worked_examples_own_pair_shows_its_numbers_and_says_so(
    lang: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for settings in ({}, {"lam": 0.5}):
        (note,), stages = as_data(capsys, "请问1+1=2？", "是的，等于2！", lang=lang, settings=settings)
        assert "`--run tiny`" in note
        assert ("内置例子" if lang == "zh" else "built-in example") in note
        assert stages == as_data(capsys, lang=lang, settings=settings)[1]


@pytest.mark.parametrize("lang", LANGS)
def test_a_pair_beyond_the_embedded_vocabulary_shows_the_example_and_says_whose_numbers_these_are(
    lang: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (note,), stages = as_data(capsys, "你知道1+1=2吗？", "是的，1+1=2", lang=lang)
    assert "你 知 道 吗" in note
    assert "请问1+1=2？ → 是的，等于2！" in note
    assert ("不是你这一对的" if lang == "zh" else "not of your pair") in note
    assert "--run MODEL" in note
    assert "--rewards" in note
    assert stages == as_data(capsys, lang=lang)[1]


def flat_rollouts() -> list[Rollout]:
    """A critic that says one number everywhere: 0 as a new head does, or another, or up to where it was cut."""
    rewards, old = [0.1, -0.3, 0.0, 1.0], [-0.5, -0.4, -0.3, -0.2]
    settings: dict[str, Any] = {"gamma": 0.9, "lam": 0.8}
    return [
        typed(
            {"rewards": rewards, "values": [v] * 4, "old_log_probs": old}, after=after, estimator=name, n=2, **settings
        )
        for v, after in ((0.0, 0.0), (0.37, 0.0), (0.37, 0.37))
        for name in ("gae", "monte_carlo", "td0", "n_step")
    ]


JUDGING = re.compile(
    "better than|worse than|neither better|比这个位置|不如这个位置|和这个位置|pleasant|disappointment|惊喜|失望|"
    "正如所料|just as expected|encouraged|discouraged|会被鼓励|会被抑制|expects more|更看好|hardly moves|几乎不变"
)


@pytest.mark.parametrize("lang", LANGS)
@pytest.mark.parametrize("level", LEVELS)
def test_no_token_is_judged_by_a_critic_that_says_one_number_everywhere(level: str, lang: str) -> None:
    from mingce.explain.account import account

    told_not = "does not tell whether" if lang == "en" else "看不出"
    whose = ("coach guesses", "教练每次都猜") if level == "child" else ("critic says", "critic 处处都估")
    for rollout in flat_rollouts():
        found = walk(rollout, level, lang)
        for name in ("values", "deltas", "whitened_advantages"):
            assert not [line for line in stage(found, name).lines if JUDGING.search(line.meaning)]
        assert told_not in stage(found, "advantages").words
        for line in stage(found, "advantages").lines:
            assert told_not in line.meaning
            assert whose[LANGS[::-1].index(lang)] in line.meaning
        for t in range(4):
            entries = {entry.id: entry.meaning for entry in account(rollout, t, level, lang)}
            assert told_not in entries["advantage"]
            assert not JUDGING.search(entries["delta"] + entries["whitening"])


def test_only_a_critic_that_is_asked_and_says_one_number_is_called_so() -> None:
    def flat(name: str, rollout: Rollout) -> bool:
        return any("everywhere" in line.meaning for line in stage(walk(rollout, lang="en"), name).lines)

    given = {"rewards": [0, 0, 1.0], "values": [0.2, 0.2, 0.2]}
    for name in ("values", "deltas", "advantages", "whitened_advantages"):
        assert flat(name, typed(given))
        assert not flat(name, typed({**given, "values": [0.2, 0.2, 0.21]}))
        assert not flat(name, typed(given, after=0.5))  # which the same critic says of another state
        assert not flat(name, typed({"rewards": [1.0], "values": [0.2]}))  # one state tells nothing
        assert not flat(name, worked())
    without_critic = changed(typed(given), estimator="reinforce_plus_plus")
    assert not flat("advantages", without_critic)
    assert not flat("whitened_advantages", without_critic)


def test_waiting_is_told_on_stderr_where_a_person_sits_before_it(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told(str(runs / "plain"), lang="en")
    assert "reading" not in capsys.readouterr().err
    monkeypatch.setenv("FORCE_COLOR", "1")
    told(str(runs / "plain"), lang="en")
    assert "reading" in capsys.readouterr().err


def test_the_recorded_log_probs_of_a_run_come_out_of_scoring_its_own_answer(runs: Path) -> None:
    """The first step's rollouts were drawn by the base model, so scoring them with it must give the same numbers."""
    from mingce.explain.scored import scored

    for row in range(8):
        kept = recorded(runs / "plain", 1, row)
        if kept.tokens[-1].special and kept.info.finish_reason == "stop":
            rollout, _ = scored(kept.prompt.removeprefix("<bos>"), kept.response)
            for name in ("old_log_probs", "ref_log_probs", "scores"):
                assert rollout.columns[name] == pytest.approx(list(kept.columns[name]), abs=1e-5)
            return
    raise AssertionError("no rollout of the first step has ended")


@pytest.mark.parametrize(
    ("words", "options", "says"),
    [
        ((), {"numbers": {"rewards": "0, 0", "values": "1"}}, "rewards has 2, values has 1"),
        ((), {"numbers": {"rewards": "0, nan", "values": "1, 2"}}, "rewards has nan for token 1"),
        ((), {"numbers": {"rewards": "0, x", "values": "1, 2"}}, "--rewards must be numbers"),
        ((), {"numbers": {"old_log_probs": " "}}, "--old-log-probs has no numbers"),
        ((), {"numbers": {"rewards": "1"}, "tokens": "是 的"}, "rewards has 1, tokens has 2"),
        ((), {"numbers": {"rewards": "1", "values": "1"}, "after": math.inf}, "the value after the last token is inf"),
        ((), {"settings": {"lam": 3.0}}, "lam must lie between 0 and 1, but is 3.0"),
        ((), {"settings": {"gamma": math.nan}}, "gamma must lie between 0 and 1"),
        ((), {"settings": {"beta": math.inf}}, "beta must be a finite number"),
        ((), {"settings": {"estimator": "gea"}}, "did you mean 'gae'?"),
        ((), {"settings": {"estimator": "grpo"}}, "needs the other answers"),
        ((), {"settings": {"estimator": "n_step"}}, "n_step needs n"),
        ((), {"token": 6}, "--token 6 is not there: the response has 6 tokens, 0 to 5"),
        ((), {"step": 2}, "give its path first"),
        ((), {"score": 1.0}, "--run and --score go with"),
        ((), {"level": "expert"}, "unknown level 'expert'"),
        ((), {"plot": Path("x.gif")}, "must end in"),
        ((), {"form": "terminal", "out": Path("x.md")}, "leave --format terminal out"),
        ((), {"out": Path("nowhere/x.md")}, "cannot be written"),
        (("a", "b", "c"), {}, "give a run, or a prompt and a response"),
        (("runs/none",), {}, "there is nothing at runs/none"),
        (("runs/none",), {"numbers": {"rewards": "1"}}, "leave out the run"),
        (("a", ""), {}, "at least one character"),
        (("a", "b"), {"score": math.nan}, "--score must be a finite number"),
        (("请问1+1=2？", "没错！"), {"run": "tiny"}, "has no token for 没 错 in the response"),
        (("请问1+1=2？", "没错！"), {"score": 1.0}, "has no token for 没 错 in the response"),
        (("a", "b"), {"run": "runs/none"}, "runs/none"),
    ],
)
def test_a_mistake_is_one_sentence(words: tuple[str, ...], options: dict[str, Any], says: str) -> None:
    with pytest.raises(MingceError) as caught:
        told(*words, **options)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_steps_and_rollouts_that_are_not_there(runs: Path, tmp_path: Path) -> None:
    for options, says in (({"step": 9}, "no ledger of step 9"), ({"rollout": 99}, "no row 99")):
        with pytest.raises(MingceError, match=says):
            told(str(runs / "plain"), **options)
    with pytest.raises(MingceError, match="empty"):
        told(str(tmp_path))
    with pytest.raises(MingceError, match="give --estimator gae"):
        told("请问1+1=2？", "是的，等于2！", run=str(runs / "group"))


def test_files_are_written_in_the_format_of_their_name(tmp_path: Path) -> None:
    told(out=tmp_path / "walk.md", lang="en")
    assert (tmp_path / "walk.md").read_text(encoding="utf-8").startswith("# 请问1+1=2？ → 是的，等于2！")
    told(out=tmp_path / "walk.json")
    assert json.loads((tmp_path / "walk.json").read_text(encoding="utf-8"))["stages"][5]["id"] == "advantages"


def test_numbers_and_the_worked_example_need_no_torch() -> None:
    code = (
        "import sys, io; from rich.console import Console; from mingce.commands.explain import explain\n"
        "explain(Console(file=io.StringIO()))\n"
        "explain(Console(file=io.StringIO()), numbers={'rewards': '0 1', 'values': '0 1'})\n"
        "explain(Console(file=io.StringIO()), ('请问1+1=2？', '是的，等于2！'))\n"
        "explain(Console(file=io.StringIO()), ('你知道吗？', '是的'))\n"
        "assert not {'torch', 'transformers', 'numpy', 'pyarrow', 'matplotlib'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
