"""The audit: every check that the dump's columns allow, in the order in which a batch is made."""

from __future__ import annotations

from collections.abc import Callable

from mingce.audit.edges import row_major
from mingce.audit.evidence import Evidence
from mingce.audit.finding import Check, Finding, Report, Skipped
from mingce.record.dump import LOSS, Dump
from mingce.specs.comparisons import WITHIN_PROMPT


def checks() -> list[Check]:
    """All checks of one dump, in the order in which a trainer makes its columns."""
    from mingce.audit import (
        agents,
        credit,
        derived,
        edges,
        geometry,
        groups,
        kl_places,
        lone_rows,
        losses,
        policy,
        precision,
        rewards,
        scores,
        trajectories,
        whitening,
    )

    families = (
        geometry, edges, precision, rewards, scores, credit, derived, whitening, groups, policy, losses, kl_places,
        agents, trajectories, lone_rows,
    )  # fmt: skip
    return [check for family in families for check in family.CHECKS]


def audit(dump: Dump, watch: Callable[[str], None] | None = None) -> Report:
    """Everything that can be said about one dump. `watch` receives each check's name as it begins."""
    dump, turned = row_major(dump)
    evidence = Evidence(dump)
    evidence.memo["turned"] = turned
    report = Report(
        dump.path, dump.source, dump.shape[0], int(dump.mask.sum()), remarks=list(dump.remarks), step=dump.step
    )
    for check in checks():
        if dump.partial and _takes_all_rows(check, dump):
            report.skipped.append(Skipped(check, ()))
            continue
        missing = tuple(name.replace(LOSS, "advantages") for name in check.needs if not evidence.has(name))
        if missing:
            report.skipped.append(Skipped(check, missing))
            continue
        if watch:
            watch(check.name)
        findings = check.findings(evidence)
        if findings is None:
            report.skipped.append(Skipped(check, ()))
        else:
            report.add(check, findings)
    report.settings, report.inferred = evidence.settings, evidence.inferred
    report.labels = token_ids(dump, report.findings)
    return report


def _takes_all_rows(check: Check, dump: Dump) -> bool:
    """Whether a check holds numbers against statistics of the whole batch, of which the dump has some rows."""
    if check.name in ("K8 groups", "K8 trajectories"):
        return dump.settings.estimator not in WITHIN_PROMPT
    if check.name.startswith("K4 ") or check.name.startswith("K5 "):
        return bool(dump.settings.whiten_rewards)
    return check.name == "K7 whitening"


def token_ids(dump: Dump, findings: list[Finding]) -> dict[tuple[int, int], str]:
    """The id of the token at each place, where the dump has ids."""
    ids = dump.columns.get("token_ids")
    places = (place for finding in findings for place in finding.places)
    return {
        (place.row, place.token): f"{float(ids[place.row, place.token]):.0f}"
        for place in places
        if ids is not None and place.row is not None and place.token is not None and place.token < ids.shape[1]
    }
