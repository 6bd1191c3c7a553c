"""Every report of the catalogue has its class, its words and its plant, and the audit answers the plant as it says."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

import pytest
from audit_bugs import findings_of, text_of
from audit_plants import Plant, load, planted

import mingce.audit.replay
import mingce.audit.steps  # noqa: F401  registers its faults, as the import above does
from mingce.audit.audit import checks
from mingce.audit.catalogue import CLASSES, KNOWN_REPORTS, Report, github
from mingce.audit.finding import FAULTS
from mingce.base.lang import LANGS
from mingce.base.texts import named, texts

checks()  # registers the other faults
PLANTS = {(plant.number, plant.flavour): plant for plant in load()}
SEEN = sorted((report for report in KNOWN_REPORTS if report.plant), key=lambda report: (report.number, report.plant))
BY_PLANT = {key: list(reports) for key, reports in groupby(SEEN, lambda report: (report.number, report.plant))}
PAGES = [Path(__file__).parent.parent / f"docs/{lang}/reference/audit.md" for lang in LANGS]


def test_addresses_are_public_and_stand_once() -> None:
    places = [report.place for report in KNOWN_REPORTS]
    assert len(places) == len(set(places)) >= 36
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+/(issues|pull)/\d+", place) for place in places)
    assert not {github(place) for place in places} & {known.link for known in CLASSES.values()}
    assert {report.year for report in KNOWN_REPORTS} == {2025, 2026}


@pytest.mark.parametrize("report", KNOWN_REPORTS, ids=lambda report: report.place)
def test_a_report_has_a_class_and_a_plant_or_a_reason(report: Report) -> None:
    assert report.number in CLASSES
    assert bool(report.plant) == bool(report.codes)
    assert set(report.codes) <= set(FAULTS)
    if report.plant:
        assert (report.number, report.plant) in PLANTS
    for lang in LANGS:
        said = texts("reports", lang)
        assert named(said["wrong"])[report.place]
        assert (report.place in named(said["unseen"])) == (not report.plant)


@pytest.mark.parametrize("lang", LANGS)
def test_the_words_are_about_the_reports(lang: str) -> None:
    said = texts("reports", lang)
    assert list(named(said["wrong"])) == [report.place for report in KNOWN_REPORTS]
    assert set(named(said["unseen"])) <= {report.place for report in KNOWN_REPORTS}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parts[-3])
def test_the_page_counts_them(page: Path) -> None:
    said = page.read_text("utf-8").partition("<!-- reports: ")[0].rpartition("\n## ")[2]
    numbers = [int(number) for number in re.findall(r"\b\d{1,3}\b", re.sub(r"20\d\d", "", said), re.ASCII)]
    assert numbers == [len(KNOWN_REPORTS), len(SEEN), len(KNOWN_REPORTS) - len(SEEN)]


@pytest.mark.parametrize("key", BY_PLANT, ids=lambda key: key[1])
def test_the_audit_answers_as_the_report_says(key: tuple[int, str]) -> None:
    plant: Plant = PLANTS[key]
    dumps = planted(plant, 0, "own", plant.holes is not False)
    assert dumps, "the bug was planted in no batch"
    found = findings_of(dumps)
    told = [finding for finding in found if plant.choice or finding.level in ("bug", "suspicious")]
    codes, classes = {finding.fault.code for finding in told}, {number for finding in told for number in finding.named}
    for report in BY_PLANT[key]:
        answered = codes & set(report.codes) or report.number in classes
        assert answered, "\n".join([report.place, *(text_of(finding) for finding in found)])
