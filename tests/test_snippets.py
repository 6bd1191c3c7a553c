"""Pasted code and formulas: recognised, run on the example, its bugs named; and nothing of it executed."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from answer_numbers import random_rollout

from mingce.algorithms import reference
from mingce.base.lang import LANGS
from mingce.base.numbers import number as shown
from mingce.base.texts import named, texts
from mingce.explain import example, peer_code
from mingce.explain.answer import Answer
from mingce.explain.answer_view import markdown
from mingce.explain.code_refs import resolve
from mingce.explain.conversation import Conversation
from mingce.explain.peer_code import known_names, peers_of
from mingce.explain.snippets import read_snippet, snippet_answer
from mingce.explain.snippets.answering import phrase
from mingce.explain.snippets.formulas import FORMULAS, find_formula
from mingce.explain.snippets.judging import judged
from mingce.explain.snippets.kinds import ALL_BUGS, ALL_IDS, BUGS, BY_ID, KINDS
from mingce.explain.snippets.matching import Reading, read_lines
from mingce.explain.snippets.reading import statements
from mingce.explain.snippets.running import MOVES, OTHER_TOTALS, SHIFT, results, scene
from mingce.explain.topics import TOPICS
from mingce.record.rollout import Rollout

FILES = Path(__file__).parent
CASES: dict[str, list[dict[str, Any]]] = json.loads((FILES / "snippet_cases.json").read_text(encoding="utf-8"))
RIGHT = CASES["first_right"] + CASES["right"] + CASES["later_right"]
WRONG = CASES["first_wrong"] + CASES["wrong"] + CASES["later_wrong"]
"""The first were written before there was a matcher, the later ones when it was done."""


def reading_of(text: str) -> Reading:
    snippet = read_snippet(text)
    assert snippet is not None
    return judged(read_lines(statements(snippet.code)))


def answered(text: str, lang: str = "zh", rollout: Rollout | None = None) -> Answer:
    answer = snippet_answer(text, rollout or example.worked(), lang)
    assert answer is not None
    return answer


def brief(case: dict[str, Any]) -> str:
    return " ".join(case["text"].split())[:50]


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_code_is_found_fenced_between_backticks_and_bare() -> None:
    fenced = read_snippet("这是什么？\n```python\nx = a + b\n```\n谢谢")
    assert fenced is not None
    assert (fenced.code, fenced.question, fenced.fenced) == ("x = a + b", "这是什么？ 谢谢", True)
    ticks = read_snippet("why is `ratio = torch.exp(a - b)` so?")
    assert ticks is not None
    assert (ticks.code, ticks.question) == ("ratio = torch.exp(a - b)", "why is so?")
    bare = read_snippet("values[:, -response_length-1:-1] 为什么要这样切片？")
    assert bare is not None
    assert (bare.code, bare.question) == ("values[:, -response_length-1:-1]", "为什么要这样切片？")
    behind = read_snippet("ratio = torch.exp(new - old)  why exp?")
    assert behind is not None
    assert (behind.code, behind.question) == ("ratio = torch.exp(new - old)", "why exp?")


def test_code_that_does_not_parse_as_a_whole_is_read_line_by_line() -> None:
    lines = statements("delta = r + gamma * v\n  )(\nreturns = advantages + values")
    assert [line.text for line in lines] == ["delta = r + gamma * v", "returns = advantages + values"]


@pytest.mark.parametrize("text", CASES["not_code"])
def test_a_question_without_such_code_is_left_to_the_topics(text: Any) -> None:
    assert snippet_answer(text, example.worked(), "zh") is None


def test_the_questions_of_the_topics_are_left_to_them() -> None:
    asked = json.loads((FILES / "ask_questions.json").read_text(encoding="utf-8"))
    questions = [*strings(asked), *(one for topic in TOPICS.values() for both in topic.asked for one in both)]
    without_code = [one for one in questions if not re.search(r"\w[\[(]|[=*\\^]|γ", one)]
    assert len(without_code) > 0.8 * len(questions)
    assert not [one for one in without_code if snippet_answer(one, example.worked(), "zh")]


def strings(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        for value in data.values():
            yield from strings(value)
    elif isinstance(data, list):
        for value in data:
            yield from strings(value)


# ── kinds and bugs ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("case", RIGHT, ids=brief)
def test_right_code_is_recognised_and_no_bug_is_named(case: dict[str, Any]) -> None:
    reading = reading_of(case["text"])
    assert [match.kind for match in reading.matches] == case["kinds"]
    assert not [match.bug for match in reading.matches if match.bug]


@pytest.mark.parametrize("case", WRONG + CASES["written_wrong"], ids=brief)
def test_a_bug_is_named(case: dict[str, Any]) -> None:
    reading = reading_of(case["text"])
    assert [match.kind for match in reading.matches] == case["kinds"]
    assert [match.bug for match in reading.matches if match.bug] == [case["bug"]]


@pytest.mark.parametrize("lang", LANGS)
@pytest.mark.parametrize("case", WRONG, ids=brief)
def test_a_bug_is_shown_with_its_number_and_the_right_one(case: dict[str, Any], lang: str) -> None:
    answer = answered(case["text"], lang)
    said = named(texts("snippets", lang)["line_bugs"])[case["bug"]]
    assert said in answer.text
    if case["bug"] in ("slice_length", "std_without_epsilon"):  # no number: a shape, and 0/0
        return
    pairs = []
    for key in ("numbers", "slopes", "slice_numbers"):
        pattern = re.escape(phrase(key, lang, wrong="WRONG", right="RIGHT"))
        pattern = pattern.replace("WRONG", r"(?P<wrong>[^;；，]+?|\[.*?\])").replace(
            "RIGHT", r"(?P<right>[^;；，]+?|\[.*?\])"
        )
        pairs += [(one["wrong"], one["right"]) for one in re.finditer(pattern, answer.text)]
    assert pairs or phrase("same", lang) in answer.text
    assert all(wrong != right for wrong, right in pairs)


def test_most_bugs_show_a_difference_on_the_example() -> None:
    same = [case["bug"] for case in WRONG if phrase("same", "zh") in answered(case["text"]).text]
    # the example's γ is 1, and it has neither entropies nor an engine's log-probs
    assert set(same) <= {"gamma_missing", "gamma_twice", "entropy_sign", "weight_inverted"}


def test_there_are_enough_cases_and_every_bug_by_value_is_a_bug() -> None:
    assert len(RIGHT) >= 60
    assert len(WRONG) >= 25
    assert {case["bug"] for case in WRONG} <= set(ALL_BUGS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.id)
def test_every_form_of_a_kind_is_recognised_as_right(kind: Any) -> None:
    target = kind.targets[0] if kind.targets and kind.targets[0] else kind.role
    for form in kind.forms:
        reading = judged(read_lines(statements(f"{target} = {form}")))
        assert not reading.matches[0].bug, form


@pytest.mark.parametrize(("old", "new"), [
    ("token_level_rewards", "rews"), ("values", "V"), ("lastgaelam", "gae"), ("response_mask", "loss_mask"),
    ("gamma", "discount"), ("lam", "gae_lambda"), ("delta", "td_error"), ("nextvalues", "v_next"),
    ("response_mask", "eos_mask"), ("response_mask", "action_mask"),
])  # fmt: skip
def test_other_names_are_understood(old: str, new: str) -> None:
    text = next(case["text"] for case in RIGHT if "lastgaelam_" in case["text"])
    code = re.sub(rf"\b{old}\b", new, text)
    if old == "lastgaelam":
        code = code.replace("lastgaelam_", "gae_")
    reading = reading_of(code)
    assert [match.kind for match in reading.matches] == [match.kind for match in reading_of(text).matches]
    assert not [match.bug for match in reading.matches if match.bug]


# ── numbers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def numbers_of(text: str, rollout: Rollout, moved: bool = False, grouped: bool = False) -> dict[str, list[float]]:
    """By kind what the line gives, of the last line of that kind."""
    reading = reading_of(text)
    found = results(reading, scene(rollout, moved, False, grouped, reading.flat and not grouped))
    pairs = zip(reading.matches, found, strict=True)
    return {match.kind: value.numbers() for match, value in pairs if match.kind and value is not None}


def close(ours: list[float], theirs: list[float]) -> None:
    assert ours == pytest.approx(theirs, abs=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_verls_gae_loop_gives_the_twins_numbers(seed: int) -> None:
    rollout = random_rollout(seed)
    text = next(case["text"] for case in RIGHT if "lastgaelam_" in case["text"])
    code = text.replace("advantages = verl_F.masked_whiten(advantages, response_mask)", "")
    mask = rollout.mask
    columns = {name: [0.0 if x is None else float(x) for x in rollout.columns[name]] for name in ("rewards", "values")}
    gamma, lam = rollout.settings.gamma, rollout.settings.lam
    assert gamma is not None
    assert lam is not None
    credit = reference.gae([columns["rewards"]], [columns["values"]], [mask], gamma, lam)
    found = numbers_of(code, rollout)
    slots = reference.chosen(mask)
    close([found["returns"][t] for t in slots], [credit.returns[0][t] for t in slots])
    close([found["stack_reversed"][t] for t in slots], [credit.advantages[0][t] for t in slots])


@pytest.mark.parametrize(
    "which", ["TRL 为什么", "if action_mask is not None", "for step in range(T - 1", "for t in reversed(range(len(r)"]
)
def test_every_gae_loop_gives_the_same_numbers(which: str) -> None:
    rollout = example.worked()
    text = next(case["text"] for case in RIGHT if which in case["text"])
    found = numbers_of(text, rollout)
    close(found["gae_step"], list(rollout.columns["advantages"])[::-1])
    close(found["delta"], list(rollout.columns["deltas"])[::-1])


def test_policy_lines_give_the_twins_numbers() -> None:
    rollout = example.worked()
    text = next(case["text"] for case in RIGHT if "clip_pg_losses2" in case["text"])
    found = numbers_of(text, rollout, moved=True)
    old = [x - SHIFT for x in example.OLD_LOG_PROBS]
    new = [x + MOVES[t % 3] for t, x in enumerate(old)]
    rows = list(zip(old, new, rollout.columns["advantages"], strict=True))
    close(found["pg_max"], [reference.policy_term(*row, dual_clip=None).loss for row in rows])
    close(found["dual_where"], [reference.policy_term(*row).loss for row in rows])
    close(found["ratio"], [reference.policy_term(*row).ratio for row in rows])


def test_value_lines_give_the_twins_numbers() -> None:
    rollout = replace(example.worked(), settings=replace(example.SETTINGS, value_clip=0.5))
    text = next(case["text"] for case in RIGHT if "vf_loss_max = torch.max" in case["text"])
    found = numbers_of(text, rollout, moved=True)
    new = scene(rollout, True, False, False).environment["new_values"].numbers()
    rows = zip(new, rollout.columns["returns"], rollout.columns["values"], strict=True)
    terms = [reference.value_term(*row, 0.5).loss for row in rows]
    close([x / 2 for x in found["vf_max"]], terms)
    close(found["vf_loss"], [reference.masked_mean([terms], [[1] * 6])])


@pytest.mark.parametrize(("code", "name"), [
    ("kl = old_log_probs - ref_log_probs", "k1"), ("kl = (old_log_probs - ref_log_probs).abs()", "abs"),
    ("kl = 0.5 * (old_log_probs - ref_log_probs) ** 2", "k2"),
    ("y = ref_log_probs - old_log_probs\nkl = y.exp() - y - 1", "k3"),
    ("kl = kl_penalty(old_log_probs, ref_log_probs, 'low_var_kl')", "k3"),
])  # fmt: skip
def test_kl_lines_give_the_twins_numbers(code: str, name: str) -> None:
    rollout = example.worked()
    found = numbers_of(code, rollout)[f"kl_{name}"]
    pairs = zip(rollout.columns["old_log_probs"], rollout.columns["ref_log_probs"], strict=True)
    close(found, [reference.kl_penalty(old, ref, name) for old, ref in pairs])


@pytest.mark.parametrize(("mode", "kind", "code"), [
    ("token-mean", "token_mean", "loss = (loss_mat * mask).sum() / mask.sum()"),
    ("seq-mean-token-mean", "seq_mean_token_mean", "loss = ((loss_mat * mask).sum(-1) / mask.sum(-1)).mean()"),
    ("seq-mean-token-sum", "seq_mean_token_sum", "loss = (loss_mat * mask).sum(-1).mean()"),
])  # fmt: skip
def test_aggregations_give_the_twins_numbers(mode: str, kind: str, code: str) -> None:
    rollout = example.worked()
    losses = scene(rollout, False, False, False).environment["pg_max"].numbers()
    close(numbers_of(code, rollout)[kind], [reference.agg_loss([losses], [rollout.mask], mode)])


@pytest.mark.parametrize(("code", "kind"), [
    ("advantages = (scores - scores.mean()) / (scores.std() + 1e-6)", "grpo"),
    ("scores[i] = scores[i] - id2mean[index[i]]", "dr_grpo"),
    ("baseline = (rewards.sum(-1, keepdim=True) - rewards) / (num_generations - 1)\nrewards = rewards - baseline",
    "rloo"),
])  # fmt: skip
def test_group_lines_give_the_twins_numbers(code: str, kind: str) -> None:
    rollout = example.worked()
    totals = [sum(rollout.columns["rewards"]), *OTHER_TOTALS]
    rows, mask = [[x] for x in totals], [[1]] * len(totals)
    wanted = getattr(reference, kind)(rows, mask, ["g"] * len(totals))
    found = list(numbers_of(code, rollout, grouped=True).values())[-1]
    close(found, [row[0] for row in wanted])


def test_the_numbers_stand_beside_the_line() -> None:
    text = next(case["text"] for case in RIGHT if "lastgaelam_" in case["text"])
    answer = answered(text)
    assert (
        "lastgaelam_ = delta + gamma * lam * lastgaelam → 0.395, 0.5053, 0.57, 0.5965, 0.6117, 0.6211" in answer.lines
    )
    assert "(B, T)" in answer.text
    assert resolve("mingce.algorithms.advantage.gae") in answer.code


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("lang", LANGS)
def test_every_case_is_answered_on_any_rollout(seed: int, lang: str) -> None:
    rollout = random_rollout(seed)
    for case in (*RIGHT, *WRONG):
        said = markdown(answered(case["text"], lang, rollout))
        assert not re.search(r"\{[a-z_]+\}", said)
        assert "nan" not in re.sub(r"nan(?:std|mean)|NaN", "", said)


def test_a_rollout_that_lacks_columns_is_answered_with_the_built_in_example() -> None:
    rollout = example.typed({"rewards": [0.0, 1.0], "values": [0.1, 0.2]})
    assert "old_log_probs" in answered("returns = advantages + values", "en", rollout).about


# ── why ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("lang", LANGS)
@pytest.mark.parametrize("case", CASES["why"], ids=brief)
def test_why_is_answered_first(case: dict[str, Any], lang: str) -> None:
    assert answered(case["text"], lang).text.startswith(named(texts("snippets", lang)["line_why"])[case["kind"]])


# ── formulas ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("case", CASES["formulas"], ids=brief)
def test_a_formula_is_recognised(case: dict[str, Any]) -> None:
    formula = find_formula(case["text"])
    assert formula is not None
    assert formula.id == case["formula"]
    for lang in LANGS:
        assert named(texts("snippets", lang)["formulas"])[formula.id].rstrip("。.") in answered(case["text"], lang).text


def test_a_formulas_symbols_have_the_examples_numbers() -> None:
    rollout = example.worked()
    said = answered(r"\delta_t = r_t + \gamma V(s_{t+1}) - V(s_t)", "en").text
    for column in ("deltas", "rewards", "values"):
        assert re.search(rf"`{column}`: .* it is {re.escape(shown(rollout.columns[column][0]))}\.", said)
    assert "`γ = 1`" in said
    assert f"it is {shown(rollout.columns['values'][1])}." in said  # V(s_{t+1})


# ── texts and references ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("lang", LANGS)
def test_everything_has_its_words_and_there_are_no_others(lang: str) -> None:
    known = texts("snippets", lang)
    assert set(named(known["line_what"])) == set(ALL_IDS) == set(named(known["line_why"]))
    assert set(named(known["line_bugs"])) == set(ALL_BUGS)
    assert set(named(known["formulas"])) == {formula.id for formula in FORMULAS}
    assert set(named(known["symbols"])) == {one.key for formula in FORMULAS for one in formula.symbols}
    notes = {note for kind in KINDS for _, note in kind.notes}
    assert set(named(known["line_notes"])) == notes | {"already_shifted", "mask_of_states", "score_place", "dense_gae"}


def test_kinds_bugs_and_references_fit_together() -> None:
    assert {bug.kind for bug in BUGS} <= set(BY_ID)
    assert {formula.kind for formula in FORMULAS} <= set(BY_ID)
    for name in {kind.code for kind in KINDS if kind.code} | set(known_names()):
        resolve(name)


def test_peers_are_named_under_an_answer() -> None:
    peer = peers_of("mingce.algorithms.advantage.gae")[0]
    assert (peer.title, peer.short) == ("verl 0.9.1", "core_algos.compute_gae_advantage_return")
    assert peers_of("mingce.base.atomic.atomic_write") == ()
    said = markdown(answered("returns = advantages + values", "en"))
    assert said.endswith("\nIn verl 0.9.1: `core_algos.compute_gae_advantage_return`")


# ── against the trainers' own source ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, zipfile.ZipFile]:
    folder = tmp_path_factory.mktemp("peers")
    found = {}
    for package, version in peer_code.VERSIONS.items():
        words = [
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--dest",
            str(folder),
            f"{package}=={version}",
        ]
        if subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True).returncode:
            pytest.skip(f"{package} {version} cannot be downloaded")
        found[package] = zipfile.ZipFile(next(folder.glob(f"{package}-*.whl")))
    return found


def source_of(archive: zipfile.ZipFile, file: str) -> ast.Module:
    """A file of a wheel, which may keep its code in `….data/purelib`."""
    name = next(one for one in archive.namelist() if one == file or one.endswith(f".data/purelib/{file}"))
    return ast.parse(archive.read(name))


def definition(tree: ast.Module, name: str) -> ast.stmt | None:
    body, found = tree.body, None
    for part in name.split("."):
        kinds = (ast.FunctionDef, ast.ClassDef)
        found = next((node for node in body if isinstance(node, kinds) and node.name == part), None)
        body = [] if found is None else found.body
    return found


@pytest.mark.slow
def test_peers_exist_in_their_packages(sources: dict[str, zipfile.ZipFile]) -> None:
    for name in known_names():
        for peer in peers_of(name):
            assert definition(source_of(sources[peer.package], peer.file), peer.name), peer


@pytest.mark.slow
def test_the_trainers_own_code_is_not_called_wrong(sources: dict[str, zipfile.ZipFile]) -> None:
    """Whole functions and every one of their lines by itself."""
    lines = 0
    for peer in {peer for name in known_names() for peer in peers_of(name)}:
        node = definition(source_of(sources[peer.package], peer.file), peer.name)
        assert node is not None
        reading = judged(read_lines(statements(ast.unparse(node))))
        assert not [(match.bug, match.line.text) for match in reading.matches if match.bug], peer.name
        for match in reading.matches:
            alone = judged(read_lines(statements(match.line.text)))
            assert not [(one.bug, one.line.text) for one in alone.matches if one.bug], peer.name
        lines += len(reading.matches)
    assert lines > 500


# ── hostile text ─────────────────────────────────────────────────────────────────────────────────────────────────────

HOSTILE = [
    "x = " + "(" * 100_000 + "1" + ")" * 100_000,
    "```\nx = " + "[" * 50_000 + "]" * 50_000 + "\n```",
    "```python\nratio = __import__('os').system('exit 3')\nx = ().__class__.__bases__[0].__subclasses__()\n```",
    "```\nfor t in range(10**9):\n    lastgaelam = delta + gamma * lam * lastgaelam\n```",
    "```\n" + "".join("  " * k + f"for t{k} in range(500):\n" for k in range(10)) + "  " * 10 + "delta = r - v\n```",
    "```\na = [1]\nfor t in range(500):\n    a = a + a\n    returns = advantages + values\n```",
    "```\nfor t in range(500):\n    values = torch.cat([values, values])\n    returns = advantages + values\n```",
    "```\nreturns = advantages + " + "+".join(["values"] * 20_000) + "\n```",
    "a." * 50_000, "`" * 100_000, "```" * 33_000, " " * 100_000 + "x", "," * 90_000 + "=", "a[b[c[d(" * 8_000,
    "a = b = " * 12_000, "\\frac{\\pi}{\\sum " * 8_000 + "=", "δ_t = γ" * 20_000,
    "```\nratio = 9**9**9**9**9\n```", "```\nratio = ratio" + "**2" * 200 + "\n```",
    "```\nx = " + "-" * 50_000 + "1\n```",
    "\n".join(f"v{k} = a{k} + b{k} * ratio - values + rewards + kl + loss" for k in range(2_000)),
    "\n".join(" " * k + "for t in range(3):" for k in range(390)),
    "ratio = torch.exp(\x00log_prob - old_log_prob)", "ratio = \ud800 + x",
    "```\nratio = (lambda f: f(f))(lambda f: f(f))\n```",
    "```\nx = [a for a in range(10**9) for b in range(10**9)]\nratio = torch.exp(log_prob - old_log_prob)\n```",
    "```\nx = f'{__import__(\"os\").getcwd()}'\n```", "```\nratio = " + "9" * 5_000 + "\n```",
    "```\nx = torch.zeros(10**9)\nvalues = values.repeat_interleave(10**6)\nreturns = advantages[10**30] + values\n```",
    "```\nfor t in range(500):\n    values = values.unsqueeze(0)\n    returns = advantages + values\n```",
    "```\nratio = getattr(torch, 'exp')(log_prob)\nratio = eval('1')\nratio = exec('import os')\n```",
    "```\nratio = open('/etc/passwd')\nreturns = advantages + values\n```",
]  # fmt: skip


def test_hostile_text_ends_and_nothing_of_it_is_executed() -> None:
    """In a process of its own whose audit hook sees every import, call to the system and file that is opened.

    `<unknown>` is what the parser looks for when it reports a syntax error: its name for text that is no file.
    """
    code = (
        "import json, sys\n"
        "from mingce.explain import example\n"
        "from mingce.explain.snippets import snippet_answer\n"
        "rollout = example.worked()\n"
        "[snippet_answer('returns = advantages + values', rollout, lang) for lang in ('zh', 'en')]\n"
        "seen = []\n"
        "bad = ('exec', 'import', 'open', 'os.', 'subprocess.', 'socket.', 'ctypes.')\n"
        "home = example.__file__.partition('explain')[0]\n"
        "def hook(event, args):\n"
        "    if event.startswith(bad) and not (event == 'open' and str(args[0]).startswith((home, '<unknown>'))):\n"
        "        seen.append((event, str(args[0])))\n"
        "sys.addaudithook(hook)\n"
        "for text in json.loads(sys.stdin.read()):\n"
        "    snippet_answer(text, rollout, 'zh')\n"
        "print('SEEN', seen, [name for name in ('torch', 'numpy') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(HOSTILE), capture_output=True, text=True, timeout=300
    )
    assert done.stdout.splitlines()[-1:] == ["SEEN [] []"], done.stderr[-2000:]


def test_a_bug_is_told_before_anything_else_and_numbers_of_code_are_no_lists() -> None:
    code = """```python
pg_losses1 = -advantages * ratio
pg_losses2 = -advantages * torch.clamp(ratio, 1-0.2, 1+0.2)
pg_loss = masked_mean(torch.min(pg_losses1, pg_losses2), response_mask)
```
"""
    for question in (
        code + "is this why my loss explodes?",
        "ratio = torch.exp(logp - logp)\nis the ratio clamped right?",
    ):
        text = Conversation().ask(question).text
        assert "**is wrong.**" in text.splitlines()[0]


def test_a_remark_behind_a_line_cuts_nothing_off() -> None:
    answer = Conversation().ask("nextvalues = values[:, t + 1] if t < gen_len - 1 else 0.0  这句讲一下")
    assert "有错" not in answer.text
    assert answer.lines == (
        "nextvalues = values[:, t + 1] if t < gen_len - 1 else 0.0 → 0.25, 0.3, 0.35, 0.45, 0.6, 0",
    )
