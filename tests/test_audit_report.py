"""Reports of an audit as people and programs read them: verdict first, both languages, any width, nothing hostile."""

from __future__ import annotations

import ast
import importlib
import io
import json
import math
import pkgutil
import re
import string
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

import mingce.audit
from mingce.audit.catalogue import CLASSES
from mingce.audit.finding import AREAS, FAULTS, Check, Fault, Finding, Place, Report, Severity, Skipped
from mingce.audit.report import Audited, as_json, as_markdown, audited_json, audited_markdown, show
from mingce.audit.terminal import wrapped
from mingce.audit.wording import lacking, place_numbers, settings_words, title, verdict
from mingce.specs.settings import DumpSettings

CHINESE = re.compile(r"[\u4e00-\u9fff]")


def fault(code: str, severity: Severity = "bug", classes: tuple[int, ...] = (23,), link: str = "") -> Fault:
    """A fault that is not left in the table of the real ones."""
    made = Fault(
        code, severity, classes,
        (f"{code} 的 KL 惩罚符号反了：拟合出 β = {{beta}}。",
         f"The KL penalty of {code} has the wrong sign: β fits to {{beta}}."),
        "r_t = s_t − β·k_t",
        ("少了一个负号，奖励里的惩罚被加上了。", "A minus sign is missing."),
        ("改为减去。", "Subtract it."),
        link,
    )  # fmt: skip
    del FAULTS[code]
    return made


def check(name: str, *needs: str) -> Check:
    return Check(name, ("检查", "a check"), needs, lambda e: ())


BUG = fault("kl-turned", link="https://github.com/qiancheng0/ToolRL/issues/52")
OTHER = fault("gae-end", classes=(16, 34))
DOUBT = fault("drift", "suspicious", (6, 41))
CUSTOM = fault("score-last", "convention", ())
PLACES = (Place(0, 3, -0.01, 0.01), Place(12, 120, 0.0100001, 0.0100007), Place(2, None, 1.0, math.nan))


def report(*findings: Finding, step: int | None = None) -> Report:
    lacks = [("K11 entropy", "entropy"), ("K10 shift", "rollout_log_probs"), ("K10 ratio", "rollout_log_probs")]
    return Report(
        path="dumps/step_12.pt",
        source="verl",
        rows=512,
        tokens=83021,
        findings=list(findings),
        ran=[check("K3 score"), check("K4 kl")],
        skipped=[
            *(Skipped(check(name, needs), (needs,)) for name, needs in lacks),
            Skipped(check("K12 loss"), ("new_log_probs|ratio", "pg_loss")),
        ],
        remarks=[("缺少 rank 3 的分片", "the shard of rank 3 is missing")],
        settings=DumpSettings(gamma=1.0, lam=0.95, beta=0.001),
        inferred={"beta"},
        step=step,
        labels={(0, 3): "的", (12, 120): "\x1b[31m"},
    )


def bad(step: int | None = None) -> Report:
    return report(
        Finding(BUG, "rewards", {"beta": -0.00123456}, PLACES, 0.125),
        Finding(OTHER, "advantages", {"beta": 2}),
        Finding(DOUBT, "old_log_probs", {"beta": 1}),
        Finding(CUSTOM, "scores", {"beta": 1}),
        step=step,
    )


def shown(audited: Audited, lang: str, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    show(console, audited, lang)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


# ── the verdict ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("width", [20, 80])
def test_the_first_line_is_the_verdict_whole(width: int) -> None:
    en = shown(Audited([bad()]), "en", width).splitlines()[0]
    assert en == "BUG: The KL penalty of kl-turned has the wrong sign: β fits to -0.001235 (and 1 more)"
    zh = shown(Audited([bad()]), "zh", width).splitlines()[0]
    assert zh == "BUG：kl-turned 的 KL 惩罚符号反了：拟合出 β = -0.001235（另有 1 个）"


def test_a_clean_verdict_counts_what_was_looked_at_and_what_is_doubtful() -> None:
    whole = report()
    whole.ran = [check(name) for names in AREAS.values() for name in names]
    count = len(whole.ran)
    assert verdict(whole, "en") == f"clean: 83,021 tokens, {count} of {count + 4} checks, no bug"
    assert verdict(whole, "zh") == f"干净：83,021 个 token，做了 {count + 4} 项检查中的 {count} 项，没有发现 bug"
    whole.findings.append(Finding(DOUBT, "x"))
    assert verdict(whole, "en").endswith("no bug, but 1 suspicious")
    whole.ran = [one for one in whole.ran if one.name not in AREAS["losses"]]
    assert verdict(whole, "en").endswith("no bug; not judged: losses, but 1 suspicious")


def test_where_credit_was_not_judged_nothing_is_called_clean() -> None:
    assert verdict(report(), "en") == (
        "nothing wrong in the 2 of 6 checks that this dump allows (83,021 tokens); not judged: masks, token ids and "
        "texts, credit (advantages and returns), whitening, log-probs, losses"
    )
    assert verdict(report(), "zh").startswith(
        "这份数据（83,021 个 token）只够做 6 项检查中的 2 项，没有发现问题；未检查："
    )


def test_a_convention_is_no_bug() -> None:
    assert report(Finding(CUSTOM, "scores")).exit_code == 0
    assert Audited([report(Finding(CUSTOM, "scores", severity="bug"))]).exit_code == 1


# ── the terminal ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("lang", ["zh", "en"])
@pytest.mark.parametrize("width", [60, 80, 140])
def test_it_fits_the_terminal(lang: str, width: int) -> None:
    lines = shown(Audited([bad()]), lang, width).splitlines()
    too_wide = [line for line in lines[1:] if cell_len(line.rstrip()) > width and "https://" not in line]
    assert not too_wide


def test_a_finding_has_all_its_parts() -> None:
    text = shown(Audited([bad()]), "en")
    for part in (
        "r_t = s_t − β·k_t",
        "23 KL sign flipped",
        "12% of the rows that could show it",
        "A minus sign is missing.",
        "Subtract it.",
        "https://github.com/qiancheng0/ToolRL/issues/52",
        "one of these, this batch cannot tell: 16 padded values bootstrap the last real token; 34",
        "conventions recognised",
        "γ = 1, λ = 0.95, β = 0.001 (inferred)",
        "! the shard of rank 3 is missing",
        "rollout_log_probs                   K10 shift, K10 ratio",
        "new_log_probs or ratio and pg_loss  K12 loss",
    ):
        assert part in text
    assert re.search(r"0 +3 +的 +-0\.01 +0\.01\n", text)
    assert re.search(r"2 +1 +nan\n", text)


def test_chinese_says_nothing_in_english_but_names() -> None:
    text = shown(Audited([bad()]), "zh")
    for part in (
        "以下之一，这一批数据分不出",
        "相关行中的 12%",
        "识别出的约定",
        "β = 0.001（推断）",
        "补上左边，就能做右边",
    ):
        assert part in text
    for english in ("expected", "found", "cause", "likely", "would run", "settings"):
        assert english not in text


def test_numbers_side_by_side_differ_to_the_eye() -> None:
    assert place_numbers(-0.01, 0.01) == ("-0.01", "0.01")
    left, right = place_numbers(0.0100001, 0.0100007)
    assert left != right
    assert place_numbers(1.0, 1.0) == ("1", "1")
    assert place_numbers(-0.0, math.inf) == ("0", "inf")


def test_control_characters_of_a_dump_do_not_reach_the_terminal() -> None:
    hostile = bad()
    hostile.path, hostile.remarks = "a\x1b]0;x\x07.pt", [("\x1b[2J", "\x1b[2J")]
    hostile.settings = replace(hostile.settings, estimator="gae\r\x1b[1A")
    for text in (shown(Audited([hostile]), "en"), as_markdown(hostile, "zh")):
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)


@given(st.text(alphabet="ab 的，。（）“”β·= 1", max_size=80), st.integers(4, 30))
def test_wrapping_loses_nothing_and_fits_where_it_can(text: str, width: int) -> None:
    lines = wrapped(text, width).split("\n")
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    for line in lines:
        stops = re.fullmatch(r"[，。）”“（ ]*", line)  # which no line may begin or end with, however many there are
        assert cell_len(line) <= width or stops or len(re.findall(r"[的β·=1ab]", line)) >= 1


def test_chinese_breaks_inside_a_sentence_but_not_before_a_stop() -> None:
    assert wrapped("优势属于别的行，掩码后面。", 10).split("\n") == ["优势属于别", "的行，掩码", "后面。"]
    assert wrapped("价值错位。", 8).split("\n") == ["价值错", "位。"]


# ── several dumps ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_of_several_steps_each_has_a_line_and_the_worst_its_report() -> None:
    audited = Audited([report(step=1), bad(2), bad(3)], [Finding(DOUBT, "values", {"beta": 0})])
    lines = shown(audited, "en", 200).splitlines()
    assert lines[0].endswith("(and 1 more); bugs in 2 of 3 dumps, first in step 2")
    assert lines[1].startswith("✓ step 1  nothing wrong in the 2 of 6 checks")
    assert lines[2].startswith("✗ step 2  BUG: The KL penalty of kl-turned")
    assert "the worst: step 2" in lines
    assert audited.worst.step == 2
    assert audited.exit_code == 1


def test_of_many_steps_only_those_with_something_are_listed() -> None:
    lines = shown(Audited([report(step=i) for i in range(99)] + [bad(99)]), "en").splitlines()
    assert [line for line in lines if line.startswith(("✓", "✗"))] == [lines[1]]
    assert lines[2].strip() == "and 99 more"


def test_a_bug_across_steps_is_a_bug() -> None:
    audited = Audited([report(step=1), report(step=2)], [Finding(BUG, "prompt_ids", {"beta": 1})])
    assert audited.exit_code == 1
    assert audited.verdict("en") == "BUG: The KL penalty of kl-turned has the wrong sign: β fits to 1"


# ── JSON and Markdown ────────────────────────────────────────────────────────────────────────────────────────────────


def test_json_has_its_keys_and_reads_back() -> None:
    found = json.loads(json.dumps(as_json(bad(7)), allow_nan=False))
    assert list(found) == [
        "schema", "path", "source", "step", "rows", "tokens", "exit_code", "verdict", "counts", "findings", "settings",
        "checks", "skipped", "judged", "unjudged", "to_record", "remarks",
    ]  # fmt: skip
    assert list(found["findings"][0]) == [
        "code", "severity", "classes", "column", "title", "cause", "change", "formula", "link", "share", "values",
        "places",
    ]  # fmt: skip
    assert found["counts"] == {"bug": 2, "suspicious": 1, "convention": 1, "note": 0}
    assert found["findings"][0]["places"][0] == {"row": 0, "token": 3, "label": "的", "expected": -0.01, "found": 0.01}
    assert found["findings"][0]["places"][2]["found"] == "NaN"
    assert found["settings"]["beta"] == {"value": 0.001, "inferred": True}
    assert found["skipped"][3]["missing"] == ["new_log_probs|ratio", "pg_loss"]
    both = [found["verdict"], *(found["findings"][0][name] for name in ("title", "cause", "change"))]
    assert all(CHINESE.search(text["zh"]) and not CHINESE.search(text["en"]) for text in both)


def test_json_of_several_dumps_holds_every_report() -> None:
    found = audited_json(Audited([report(step=1), bad(2)], [Finding(BUG, "prompt_ids")]))
    assert [one["exit_code"] for one in found["reports"]] == [0, 1]
    assert found["across_steps"][0]["code"] == "kl-turned"


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_markdown_has_the_verdict_for_a_heading_and_a_table_of_tokens(lang: str) -> None:
    text = as_markdown(bad(), lang)
    assert text.startswith("# BUG")
    assert "| 0 | 3 | `的` | -0.01 | 0.01 |" in text
    assert "<https://github.com/qiancheng0/ToolRL/issues/52>" in text
    several = audited_markdown(Audited([report(step=1), bad(2)]), lang)
    assert several.count("\n# ") == 0
    assert several.startswith("# BUG")


def test_markdown_takes_no_tags_from_a_dump() -> None:
    hostile = report(Finding(BUG, "x", {"beta": "<script>alert(1)</script>"}))
    assert "<script>" not in as_markdown(hostile, "en")


# ── the parts ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_text_without_its_number_is_better_than_no_report() -> None:
    assert title(Finding(BUG, "rewards"), "en").endswith("β fits to ….")


def test_what_would_help_most_comes_first() -> None:
    assert [missing for missing, _ in lacking(report())] == [
        ("rollout_log_probs",),
        ("entropy",),
        ("new_log_probs|ratio", "pg_loss"),
    ]


def test_settings_that_fit_in_no_line_are_left_out() -> None:
    crowded = report()
    crowded.settings = replace(crowded.settings, eos_id=2, stop_ids=list(range(1000)))
    assert settings_words(crowded, "en") == "γ = 1, λ = 0.95, β = 0.001 (inferred), eos_id = 2"


# ── the real faults ──────────────────────────────────────────────────────────────────────────────────────────────────

for family in pkgutil.iter_modules(mingce.audit.__path__):
    importlib.import_module(f"mingce.audit.{family.name}")
SOURCES = [path.read_text(encoding="utf-8") for path in Path(mingce.audit.__path__[0]).glob("*.py")]
NODES = [node for source in SOURCES for node in ast.walk(ast.parse(source))]
GIVEN = {node.value for node in NODES if isinstance(node, ast.Constant)}
GIVEN |= {word.arg for node in NODES if isinstance(node, ast.Call) for word in node.keywords}


@pytest.mark.parametrize("known", FAULTS.values(), ids=lambda known: known.code)
def test_every_fault_is_complete_in_both_languages(known: Fault) -> None:
    texts = {"title": known.title, "cause": known.cause, "change": known.change}
    needed = ["title"] if known.severity in ("convention", "note") else list(texts)
    for name, (zh, en) in texts.items():
        assert bool(zh) == bool(en), f"{name} is there in one language only"
        assert zh or name not in needed, f"{name} is missing"
        assert not CHINESE.search(en), f"{name} has Chinese in its English"
        assert not zh or CHINESE.search(zh)
    assert set(known.classes) <= set(CLASSES)
    assert known.formula or known.severity in ("convention", "note")
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", known.code)
    assert not known.link or known.link.startswith("https://")


def names_in(text: str) -> set[str]:
    """The {names} of a text; an error if its braces are wrong."""
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("known", FAULTS.values(), ids=lambda known: known.code)
def test_every_name_in_a_faults_texts_is_given_a_value_where_it_is_found(known: Fault) -> None:
    (defined,) = [
        found for source in SOURCES for found in re.findall(rf'(\w+) = Fault\.of\(\s*"{known.code}",', source)
    ]
    assert any(re.search(rf"\b{defined}\b(?! = Fault\.)", source) for source in SOURCES), "nothing finds it"
    for text in (*known.title, *known.cause, *known.change):
        assert {name.removesuffix("_zh") for name in names_in(text)} <= GIVEN


def test_the_catalogue_has_48_classes_in_two_languages() -> None:
    assert list(CLASSES) == list(range(1, 49))
    decidable = [known.decidable for known in CLASSES.values()]
    assert (decidable.count("yes"), decidable.count("partly"), decidable.count("no")) == (27, 18, 3)
    assert all(CHINESE.search(known.zh) and not CHINESE.search(known.en) for known in CLASSES.values())
