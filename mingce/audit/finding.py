"""What an audit says: faults it knows, findings it makes, and the report that carries them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from mingce.audit.catalogue import CLASSES, github
from mingce.base import texts
from mingce.base.lang import LANGS
from mingce.specs.settings import DumpSettings

if TYPE_CHECKING:
    from mingce.audit.evidence import Evidence

Severity = Literal["bug", "suspicious", "convention", "note"]
SEVERITIES: tuple[Severity, ...] = ("bug", "suspicious", "convention", "note")

AREAS: dict[str, tuple[str, ...]] = {
    "masks": ("K1 masks", "K2 ends"),
    "tokens": ("K16 positions", "K16 ids", "K16 prompts", "K16 texts"),
    "rewards": ("K4 reward", "K3 score", "K6 kl"),
    "credit": ("K5 gae", "K5 sums", "K6 returns", "K6 td errors", "K8 groups"),
    "whitening": ("K7 whitening",),
    "log_probs": ("K10 rollout", "K11 entropy", "K10 first ratio", "K10 weights", "K10 reference", "K6 ratio"),
    "losses": ("K12 policy loss", "K12 value loss", "K12 KL loss"),
}
"""What a dump is judged on, and the checks one of which must have run for it to count as judged."""

FAULTS: dict[str, Fault] = {}


@dataclass(frozen=True)
class Fault:
    """One thing that can be wrong or particular: its name, its classes in the catalogue, its texts in 中文 and English.

    Texts may hold {names} that the finding's `values` fill in. Those of the audit's own faults are in
    mingce/texts/audit.zh.md and audit.en.md.
    """

    code: str  # stable, e.g. "kl-sign"
    severity: Severity
    classes: tuple[int, ...]  # of the catalogue in docs/en/reference/audit.md; several when they cannot be told apart
    title: tuple[str, str]  # one sentence that names it
    formula: str  # the identity that fails, in the symbols of the column table
    cause: tuple[str, str] = ("", "")  # the likely cause
    change: tuple[str, str] = ("", "")  # what to change
    link: str = ""  # a public report of the same bug

    @classmethod
    def of(
        cls, code: str, severity: Severity, classes: tuple[int, ...], formula: str = "", report: str | None = None
    ) -> Fault:
        """The fault whose texts stand under its code; `report` is that of its first class, unless another is given."""
        parts = texts.parts("audit", code)
        cause, change = (parts.get(name, ("", "")) for name in ("cause", "change"))
        link = CLASSES[classes[0]].link if report is None and classes else github(report)
        return cls(code, severity, classes, texts.pair("audit", code), formula, cause, change, link)

    def __post_init__(self) -> None:
        assert self.code not in FAULTS, f"two faults are called {self.code}"
        FAULTS[self.code] = self


def phrase(name: str, key: str, /, **values: object) -> dict[str, str]:
    """A sentence as the values that a fault's texts call {name_zh} and {name}."""
    zh, en = texts.sentence_pair(key, **values)
    return {f"{name}_zh": zh, name: en}


@dataclass(frozen=True)
class Place:
    """A token (a row if token is None, the batch if both are) with the number expected and the one found."""

    row: int | None
    token: int | None
    expected: float
    found: float


@dataclass(frozen=True)
class Finding:
    """A fault seen in a dump."""

    fault: Fault
    column: str
    values: Mapping[str, Any] = field(default_factory=dict)  # numbers for the texts
    places: tuple[Place, ...] = ()  # the first few
    share: float = 1.0  # of the rows that could show it
    severity: Severity | None = None  # another one than the fault's own
    classes: tuple[int, ...] | None = None  # another equivalence class than the fault's own, on this batch

    @property
    def level(self) -> Severity:
        return self.severity or self.fault.severity

    @property
    def named(self) -> tuple[int, ...]:
        return self.fault.classes if self.classes is None else self.classes


class NotJudged(Exception):
    """Raised by a check whose columns are there and say nothing: too few tokens, an estimator that it does not fit."""


@dataclass(frozen=True)
class Check:
    """One family of checks and what a dump must hold for it; `a|b` in `needs` means either."""

    name: str  # K1 … K16 with a word: "K5 gae"
    title: tuple[str, str]
    needs: tuple[str, ...]
    run: Callable[[Evidence], Iterable[Finding]]

    def findings(self, evidence: Evidence) -> list[Finding] | None:
        """What it finds; None where its columns are there and say nothing."""
        try:
            return list(self.run(evidence))
        except NotJudged:
            return None

    @classmethod
    def of(cls, name: str, needs: tuple[str, ...], run: Callable[[Evidence], Iterable[Finding]]) -> Check:
        """The check whose title stands under its name in the list of the texts' `checks`."""
        zh, en = (texts.named(texts.texts("audit", lang)["checks"])[name] for lang in LANGS)
        return cls(name, (zh, en), needs, run)


@dataclass(frozen=True)
class Skipped:
    """A check that could not run, and what the dump lacks for it; nothing where its columns say nothing."""

    check: Check
    missing: tuple[str, ...]


@dataclass
class Report:
    """The whole answer about one dump."""

    path: str
    source: str
    rows: int
    tokens: int
    findings: list[Finding] = field(default_factory=list)  # worst first
    ran: list[Check] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    remarks: list[tuple[str, str]] = field(default_factory=list)
    settings: DumpSettings = field(default_factory=DumpSettings)  # given, or inferred from the numbers
    inferred: set[str] = field(default_factory=set)  # names of the settings that were inferred
    step: int | None = None
    labels: dict[tuple[int, int], str] = field(default_factory=dict)  # (row, token) of a place: its id or text
    by_check: dict[str, list[Finding]] = field(default_factory=dict)  # the same findings by the check that made them

    def add(self, check: Check, findings: Iterable[Finding]) -> None:
        """A check has run; its findings take their place: the worst first, of those the named ones, then by check."""
        self.ran.append(check)
        self.by_check[check.name] = list(findings)
        self.findings.extend(self.by_check[check.name])
        self.findings.sort(key=lambda finding: (SEVERITIES.index(finding.level), not finding.named))

    def of(self, severity: Severity) -> list[Finding]:
        return [finding for finding in self.findings if finding.level == severity]

    @property
    def judged(self) -> set[str]:
        """The areas of which at least one check ran."""
        ran = {check.name for check in self.ran}
        return {area for area, names in AREAS.items() if ran & set(names)}

    @property
    def exit_code(self) -> int:
        """0 without a bug, 1 with one."""
        return 1 if self.of("bug") else 0
