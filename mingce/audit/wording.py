"""What an audit's findings say in words: verdicts, classes, shares, numbers; shared by terminal, JSON and Markdown."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mingce.audit.catalogue import CLASSES
from mingce.audit.finding import AREAS, Finding, Report, Severity
from mingce.base.lang import LANGS
from mingce.base.texts import sentence
from mingce.specs.settings import SYMBOLS

SEVERITY_WORDS: dict[Severity, str] = {
    "bug": "audit.bug", "suspicious": "audit.suspicious", "convention": "audit.convention", "note": "audit.note",
}  # fmt: skip
COMMA, SEMICOLON, COLON = {"zh": "，", "en": ", "}, {"zh": "；", "en": "; "}, {"zh": "：", "en": ": "}
MOST_DIGITS = 9
LONGEST_VALUE = 40


class _Filling(string.Formatter):
    """Fills {names}: a float without a format gets four digits, a name without a value an ellipsis."""

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return kwargs.get(str(key), _Missing())

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, float) and not format_spec:
            return f"{value:.4g}"
        try:
            return format(value, format_spec)
        except (TypeError, ValueError):
            return str(value)


class _Missing:
    """A value that a finding did not bring; an unfilled text is better than no report."""

    def __format__(self, format_spec: str) -> str:
        return "…"


_FILLING = _Filling()


def pick(pair: tuple[str, str], lang: str) -> str:
    """The text of a (中文, English) pair."""
    return pair[LANGS.index(lang)]


def filled(pair: tuple[str, str], finding: Finding, lang: str) -> str:
    """A fault's text with the finding's numbers put in."""
    return printable(_FILLING.vformat(pick(pair, lang), (), finding.values))


def unfilled(text: str) -> str:
    """A fault's text where there is no finding: an ellipsis for each number."""
    return _FILLING.vformat(text, (), {})


def title(finding: Finding, lang: str) -> str:
    """The sentence that names a finding."""
    return filled(finding.fault.title, finding, lang)


def printable(text: str) -> str:
    """The text without control characters: names and texts of a dump are a stranger's."""
    return "".join(c if c.isprintable() or c == " " else c.encode("unicode_escape").decode() for c in text)


# ── verdicts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def verdict(report: Report, lang: str) -> str:
    """One line: clean, or the worst bug and how many more there are."""
    bugs = report.of("bug")
    if bugs:
        return bug_line(bugs, lang)
    return clean_line([report], lang) + doubts(len(report.of("suspicious")), lang)


def clean_line(reports: Sequence[Report], lang: str) -> str:
    """What was looked at and found right, and what was not looked at: of dumps without a bug."""
    least = min(reports, key=lambda report: len(report.ran))
    dumps = [counted("audit.dumps", len(reports), lang)] if len(reports) > 1 else []
    size = {
        "size": COMMA[lang].join([*dumps, counted("audit.tokens", sum(report.tokens for report in reports), lang)]),
        "ran": len(least.ran),
        "all": len(least.ran) + len(least.skipped),
    }
    judged = set[str].intersection(*(report.judged for report in reports))
    missing = COMMA[lang].join(area_words(area, lang) for area in AREAS if area not in judged)
    if "credit" not in judged:
        return sentence("audit.hollow", lang, **size, missing=missing)
    return sentence("audit.clean", lang, **size) + (
        sentence("audit.unjudged", lang, missing=missing) if missing else ""
    )


def area_words(area: str, lang: str) -> str:
    """An area as people call it."""
    return sentence(f"audit.area_{area}", lang)


def bug_line(bugs: Sequence[Finding], lang: str) -> str:
    """`BUG: the worst (and 2 more)`."""
    more = len(bugs) - 1
    rest = sentence("audit.more_bugs", lang, count=more) if more else ""
    return sentence("audit.bug_line", lang, title=title(bugs[0], lang).rstrip("。."), rest=rest)


def doubts(count: int, lang: str) -> str:
    """`, but 2 suspicious` or nothing."""
    return sentence("audit.doubts", lang, count=count) if count else ""


def counted(key: str, count: int, lang: str) -> str:
    """`1 token`, `2,000 tokens`."""
    said = sentence(key, lang, count=count)
    return said.removesuffix("s") if count == 1 else said


# ── parts of a finding ───────────────────────────────────────────────────────────────────────────────────────────────


def class_words(finding: Finding, lang: str) -> str:
    """The finding's class of the catalogue, or the classes between which this batch cannot decide."""
    named = [f"{number} {getattr(CLASSES[number], lang)}" for number in finding.named]
    if len(named) < 2:
        return "".join(named)
    return sentence("audit.one_of", lang, names=SEMICOLON[lang].join(named))


def share_words(finding: Finding, lang: str) -> str:
    """How many of the rows that could show it do."""
    share = 100 * finding.share
    shown = f"{share:.0f}" if share >= 10 or share == 0 else f"{share:.2g}"
    return sentence("audit.share", lang, share=shown)


def place_numbers(expected: float, found: float) -> tuple[str, str]:
    """Both numbers with as many digits as it takes to tell them apart, four at least."""
    for digits in range(4, MOST_DIGITS + 1):
        shown = tuple(f"{x + 0.0:.{digits}g}" for x in (expected, found))
        if shown[0] != shown[1]:
            break
    return shown[0], shown[1]


# ── parts of a report ────────────────────────────────────────────────────────────────────────────────────────────────


def settings_words(report: Report, lang: str) -> str:
    """`γ = 1, λ = 0.95 (inferred)`: those given and those that the numbers gave away."""
    parts = []
    for name, value in report.settings.known().items():
        shown = setting_value(value)
        if shown is None:
            continue
        inferred = sentence("audit.inferred", lang) if name in report.inferred else ""
        parts.append(f"{SYMBOLS.get(name, name)} = {shown}{inferred}")
    return COMMA[lang].join(parts)


def setting_value(value: Any) -> str | None:
    """A setting as it is shown; None for what fits in no line."""
    if isinstance(value, float):
        return f"{value:.6g}"
    shown = printable(str(value))
    return None if isinstance(value, list) and len(shown) > LONGEST_VALUE else shown[:LONGEST_VALUE]


def lacking(report: Report) -> list[tuple[tuple[str, ...], list[str]]]:
    """What the dump lacks, and the checks which that alone keeps from running; the most useful addition first."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for skipped in report.skipped:
        if skipped.missing:
            groups.setdefault(skipped.missing, []).append(skipped.check.name)
    return sorted(groups.items(), key=lambda group: (len(group[0]), -len(group[1])))


def columns_words(missing: Iterable[str], lang: str) -> str:
    """`entropy and old_log_probs`; `a|b` is `a or b`."""
    either, both = sentence("audit.or", lang), sentence("audit.and", lang)
    return f" {both} ".join(name.replace("|", f" {either} ") for name in missing)
