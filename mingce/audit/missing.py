"""What to record so that the checks that could not run would: for each missing column the line in the dump's trainer.

The lines are in mingce/texts/recording.*.md, by trainer and as of a release named there.
"""

from __future__ import annotations

from dataclasses import dataclass

from mingce.audit.finding import Report
from mingce.base import texts

GENERIC, ANY, RELEASE = "generic", "any", "release"


@dataclass(frozen=True)
class Missing:
    """A column or setting that a dump lacks, how to record it, and the checks that wait for it."""

    name: str
    line: str
    checks: tuple[str, ...]


def release(report: Report, lang: str) -> str:
    """The trainer and release that the lines are about."""
    return _lines(report.source, lang)[RELEASE]


def missing(report: Report, lang: str) -> list[Missing]:
    """What the dump lacks, the most useful first; of `a|b` the first that its trainer is known to have."""
    known = _lines(report.source, lang)
    waiting: dict[str, list[str]] = {}
    for skipped in report.skipped:
        for needed in skipped.missing:
            options = needed.split("|")
            name = next((one for one in options if one in known), options[0])
            waiting.setdefault(name, []).append(skipped.check.name)
    found = [Missing(name, line(report.source, name, lang), tuple(checks)) for name, checks in waiting.items()]
    return sorted(found, key=lambda one: -len(one.checks))


def line(source: str, name: str, lang: str) -> str:
    """How a trainer's user records a column or setting."""
    known, generic = _lines(source, lang), _lines(GENERIC, lang)
    found = known.get(name) or known.get(ANY) or generic.get(name) or generic[ANY]
    return found.replace("{name}", name)


def _lines(source: str, lang: str) -> dict[str, str]:
    """The lines of a trainer; those of no known one are for any."""
    sections = texts.texts("recording", lang)
    return texts.named(sections[source if source in sections else GENERIC])
