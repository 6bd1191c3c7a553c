"""What came of an audit in the shapes that CI systems read: JUnit XML and SARIF.

In JUnit a dump is a suite and a check is a case, so that a check which the dump does not allow counts as skipped and
not as passed. In SARIF a finding is a result of the rule named by its fault.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from mingce import __version__
from mingce.audit.finding import Fault, Finding, Report
from mingce.audit.report import Audited, name_of
from mingce.audit.wording import columns_words, filled, pick, place_numbers, title, unfilled
from mingce.base.texts import sentence

_LEVELS = {"bug": "error", "suspicious": "warning", "convention": "note", "note": "note"}
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold: a dump's names may be anything."""


def as_junit(audited: Audited, lang: str) -> str:
    """A suite per dump; a bug fails its case, a doubt is written to the case's output."""
    root = ElementTree.Element("testsuites", name="mingce audit")
    for report in audited.reports:
        _suite(root, report, lang)
    if audited.across:
        suite = ElementTree.SubElement(root, "testsuite", name=_xml(sentence("audit.across", lang)))
        for finding in audited.across:
            _verdicts(ElementTree.SubElement(suite, "testcase", name=finding.fault.code), [finding], lang)
    for suite in root:
        for attribute, tag in (("tests", "testcase"), ("failures", "failure"), ("skipped", "skipped")):
            suite.set(attribute, str(len(list(suite.iter(tag)))))
        suite.set("errors", "0")
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(root: ElementTree.Element, report: Report, lang: str) -> None:
    suite = ElementTree.SubElement(root, "testsuite", name=_xml(report.path or name_of(report, lang)))
    for check in report.ran:
        case = _case(suite, check.name, pick(check.title, lang), report)
        _verdicts(case, report.by_check.get(check.name, []), lang)
    for skipped in report.skipped:
        case = _case(suite, skipped.check.name, pick(skipped.check.title, lang), report)
        ElementTree.SubElement(case, "skipped", message=_xml(columns_words(skipped.missing, lang)))


def _case(suite: ElementTree.Element, name: str, words: str, report: Report) -> ElementTree.Element:
    step = "" if report.step is None else f".step_{report.step}"
    return ElementTree.SubElement(suite, "testcase", classname=f"mingce.audit{step}", name=_xml(f"{name}: {words}"))


def _verdicts(case: ElementTree.Element, findings: Iterable[Finding], lang: str) -> None:
    for finding in findings:
        if finding.level == "bug":
            failure = ElementTree.SubElement(
                case, "failure", type=finding.fault.code, message=_xml(title(finding, lang))
            )
            failure.text = _xml(_details(finding, lang))
        elif finding.level == "suspicious":
            output = ElementTree.SubElement(case, "system-out")
            output.text = _xml(f"{title(finding, lang)}\n{_details(finding, lang)}")


def _details(finding: Finding, lang: str) -> str:
    """Formula, places, cause and change, a line each."""
    fault = finding.fault
    lines = [fault.formula]
    for place in finding.places:
        expected, found = place_numbers(place.expected, place.found)
        at = "" if place.row is None else f"[{place.row}" + ("]" if place.token is None else f", {place.token}]")
        lines.append(f"{finding.column}{at}: {sentence('audit.expected_found', lang, expected=expected, found=found)}")
    lines += [filled(fault.cause, finding, lang), filled(fault.change, finding, lang), fault.link]
    return "\n".join(line for line in lines if line)


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)


def as_sarif(audited: Audited, lang: str) -> str:
    """Bugs and doubts as results, their faults as rules; a result's file is the dump."""
    found = [(report.path, finding) for report in audited.reports for finding in report.findings]
    found += [("", finding) for finding in audited.across]
    told = [(path, finding) for path, finding in found if finding.level in ("bug", "suspicious")]
    faults = {finding.fault.code: finding.fault for _, finding in told}
    driver = {
        "name": "mingce audit",
        "version": __version__,
        "rules": [_rule(fault, lang) for fault in faults.values()],
    }
    run = {"tool": {"driver": driver}, "results": [_result(path, finding, lang) for path, finding in told]}
    sarif = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return json.dumps(sarif, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def _rule(fault: Fault, lang: str) -> dict[str, Any]:
    rule: dict[str, Any] = {
        "id": fault.code,
        "shortDescription": {"text": unfilled(pick(fault.title, lang))},
        "help": {"text": unfilled(pick(fault.change, lang)) or fault.formula or fault.code},
        "defaultConfiguration": {"level": _LEVELS[fault.severity]},
    }
    return rule | ({"helpUri": fault.link} if fault.link else {})


def _result(path: str, finding: Finding, lang: str) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.fault.code,
        "level": _LEVELS[finding.level],
        "message": {"text": f"{title(finding, lang)}\n{_details(finding, lang)}"},
        "properties": {"column": finding.column, "classes": list(finding.named), "share": finding.share},
    }
    if path:
        result["locations"] = [{"physicalLocation": {"artifactLocation": {"uri": quote(path)}}}]
    return result
