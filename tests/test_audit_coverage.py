"""How much an audit looked at: coverage, what to record, CI formats, assert_clean and the pytest plug-in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from npz import save_npz
from test_audit_command import batch, mingce

from mingce.audit.audit import audit, checks
from mingce.audit.finding import AREAS
from mingce.audit.missing import missing
from mingce.base.errors import MingceError
from mingce.base.texts import named, texts
from mingce.importers.memory import dump_in_memory
from mingce.record.dump import TOKEN_COLUMNS
from mingce.testing import assert_clean

pytest_plugins = ["pytester"]
SETTINGS = {"gamma": 1.0, "lam": 0.95}


@pytest.fixture
def hollow(tmp_path: Path) -> Path:
    """A dump that allows next to nothing."""
    whole = batch()
    save_npz(tmp_path / "hollow.npz", {name: whole[name] for name in ("response_mask", "old_log_probs")})
    return tmp_path / "hollow.npz"


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    save_npz(tmp_path / "clean.npz", batch())
    return tmp_path / "clean.npz"


# ── coverage ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_check_that_areas_name_exists() -> None:
    known = {check.name for check in checks()}
    assert {name for names in AREAS.values() for name in names} <= known


def test_a_hollow_dump_is_not_called_clean(hollow: Path) -> None:
    code, said = mingce(hollow, "--lang", "en")
    assert code == 0
    assert "clean" not in said.splitlines()[0]
    assert "credit (advantages and returns)" in said.splitlines()[0]


@pytest.mark.parametrize(("areas", "code"), [("credit", 2), ("masks,credit", 2), ("all", 2), ("masks", 0), ("", 0)])
def test_required_areas_decide_the_exit_code(hollow: Path, areas: str, code: int) -> None:
    assert mingce(hollow, "--require", areas)[0] == code


def test_requiring_what_was_judged_changes_nothing(clean: Path, tmp_path: Path) -> None:
    assert mingce(clean, "--require", "masks,rewards,credit")[0] == 0
    save_npz(tmp_path / "bug.npz", batch(+1.0))
    assert mingce(tmp_path / "bug.npz", "--require", "all")[0] == 1
    with pytest.raises(MingceError, match="did you mean 'credit'"):
        mingce(clean, "--require", "credits")


def test_the_exit_code_survives_a_reader_that_leaves(clean: Path, tmp_path: Path) -> None:
    """`mingce audit x | head -1`: the pipe breaks and the verdict's code stays."""
    save_npz(tmp_path / "bug.npz", batch(+1.0))
    for file, code in ((clean, 0), (tmp_path / "bug.npz", 1)):
        for form in ([], ["--json"], ["--markdown"]):
            reading, writing = os.pipe()
            os.close(reading)
            done = subprocess.run(
                [sys.executable, "-m", "mingce.cli", "audit", str(file), *form], stdout=writing, stderr=subprocess.PIPE
            )
            os.close(writing)
            assert (done.returncode, done.stderr) == (code, b""), (file.name, form)


def test_columns_that_say_nothing_are_not_counted_as_judged() -> None:
    """Credit of zeros, or of an estimator that the recursion does not fit, was not judged."""
    columns = batch()
    zeros = {name: np.zeros_like(x) if x.dtype.kind == "f" else x for name, x in columns.items()}
    assert "credit" not in audit(dump_in_memory(zeros)).judged
    report = audit(dump_in_memory(columns, {"estimator": "uniform"}))
    assert "credit" not in report.judged
    assert "K5 gae" in [one.check.name for one in report.skipped if not one.missing]
    assert "credit" in audit(dump_in_memory(columns)).judged


# ── what to record ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_missing_is_named_with_the_line_that_records_it(hollow: Path) -> None:
    code, said = mingce(hollow, "--explain-missing", "--lang", "en")
    assert code == 0
    for name in ("rollout_log_probs", "advantages", "values", "rewards", "new_log_probs", "pg_loss"):
        assert any(line.split()[:1] == [name] for line in said.splitlines()), name
    assert "K10 rollout" in said


@pytest.mark.parametrize("source", [name for name in texts("recording", "en") if name])
def test_every_trainer_has_a_line_for_everything(source: str) -> None:
    """Also for the verl a line is of verl, and no name stays a placeholder."""
    dump = dump_in_memory({"response_mask": np.ones((4, 4), dtype=bool)})
    dump.source = source
    report = audit(dump)
    waiting = {name for one in report.skipped for needed in one.missing for name in needed.split("|")}
    for lang in ("zh", "en"):
        lines = missing(report, lang)
        assert {one.name for one in lines} <= waiting
        assert all(one.line and "{" not in one.line.replace("= {", "") and one.checks for one in lines), source
        unlocked = {check for one in lines for check in one.checks}
        assert unlocked == {one.check.name for one in report.skipped if one.missing}


def test_recording_names_only_what_a_dump_may_have() -> None:
    from mingce.importers.aliases import SCALARS, SETTINGS
    from mingce.record.dump import ROW_COLUMNS

    known = {*TOKEN_COLUMNS, *ROW_COLUMNS, *SCALARS, *SETTINGS, "release", "any"}
    for source, text in texts("recording", "en").items():
        assert not source or set(named(text)) <= known, source


# ── for CI ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_junit_has_a_case_per_check(tmp_path: Path) -> None:
    strange = tmp_path / "bug\x01<&>.npz"
    save_npz(strange, batch(+1.0))
    assert mingce(strange, "--junit", tmp_path / "audit.xml", "--lang", "en")[0] == 1
    (suite,) = ElementTree.parse(tmp_path / "audit.xml").getroot()
    cases = {str(case.get("name")).partition(":")[0]: case for case in suite}
    assert set(cases) == {check.name for check in checks()}
    (failure,) = suite.iter("failure")
    assert failure.get("type") == "kl-sign"
    assert cases["K4 reward"].find("failure") is failure
    assert "expected" in str(failure.text)
    assert cases["K10 rollout"].find("skipped") is not None
    counts = [suite.get(name) for name in ("tests", "failures", "skipped", "errors")]
    assert counts == [str(len(cases)), "1", str(len(list(suite.iter("skipped")))), "0"]


def test_sarif_has_a_rule_and_a_result_per_finding(clean: Path, tmp_path: Path) -> None:
    save_npz(tmp_path / "bug.npz", batch(+1.0))
    mingce(tmp_path / "bug.npz", "--sarif", tmp_path / "audit.sarif", "--lang", "en")
    sarif = json.loads((tmp_path / "audit.sarif").read_text(encoding="utf-8"))
    (run,) = sarif["runs"]
    assert sarif["version"] == "2.1.0"
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["kl-sign"]
    (result,) = run["results"]
    assert (result["ruleId"], result["level"]) == ("kl-sign", "error")
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].endswith("bug.npz")
    mingce(clean, "--sarif", tmp_path / "none.sarif")
    assert json.loads((tmp_path / "none.sarif").read_text(encoding="utf-8"))["runs"][0]["results"] == []


def test_a_place_that_cannot_be_written_is_said(clean: Path, tmp_path: Path) -> None:
    for option in ("--junit", "--sarif", "--out"):
        with pytest.raises(MingceError, match="cannot be written"):
            mingce(clean, option, tmp_path / "missing" / "file.xml")


# ── in test suites ───────────────────────────────────────────────────────────────────────────────────────────────────


def as_tensors(columns: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.array(column)) for name, column in columns.items()}


def test_assert_clean_takes_files_arrays_tensors_and_lists(clean: Path) -> None:
    columns = batch()
    lists = {name: column.tolist() for name, column in columns.items()}
    for given in (clean, str(clean), columns, as_tensors(columns), lists):
        report = assert_clean(given, settings=SETTINGS).reports[0]
        assert report.judged >= {"masks", "rewards", "credit"}
        assert report.rows == len(columns["response_mask"])


def test_half_precision_tensors_are_known_as_such() -> None:
    tensors = as_tensors(batch())
    for dtype in (torch.bfloat16, torch.float16):
        held = {name: x.to(dtype) if x.is_floating_point() else x for name, x in tensors.items()}
        dump = dump_in_memory(held)
        assert dump.stored["values"] == str(dtype).removeprefix("torch.")
        assert np.array_equal(dump.columns["values"], held["values"].float().numpy())


def test_assert_clean_fails_with_the_report() -> None:
    with pytest.raises(AssertionError, match=r"kl-sign\n\n# BUG: The KL penalty in the reward has the wrong sign"):
        assert_clean(batch(+1.0))
    assert_clean(batch(+1.0), allow=("kl-sign",))


def test_assert_clean_fails_where_nothing_was_judged() -> None:
    part = {name: batch()[name] for name in ("response_mask", "old_log_probs")}
    with pytest.raises(AssertionError, match="credit could not be judged"):
        assert_clean(part)
    assert_clean(part, require=("masks",))


def test_mistakes_of_the_caller_are_one_sentence() -> None:
    for batch_given, options, words in (
        ({"advantages": np.zeros((2, 3))}, {}, "no response mask under any known name; it has advantages"),
        (batch(), {"settings": {"gama": 1}}, "did you mean 'gamma'"),
        (batch(), {"settings": {"gamma": 2.0}}, "must lie between 0 and 1"),
        (batch(), {"require": ("credits",)}, "did you mean 'credit'"),
        ("nowhere.npz", {}, "there is no file"),
    ):
        with pytest.raises(MingceError, match=words):
            assert_clean(batch_given, **options)


def test_the_plug_in_gives_the_fixture_and_says_how_much_it_saw(pytester: pytest.Pytester) -> None:
    save_npz(pytester.path / "clean.npz", batch())
    pytester.makeini("[pytest]\nmingce_require = credit masks")
    pytester.makepyfile(
        """
        def test_clean(assert_clean):
            assert_clean("clean.npz")

        def test_more(assert_clean):
            assert_clean("clean.npz", require=["losses"])
        """
    )
    result = pytester.runpytest("-p", "mingce.pytest_plugin")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*losses could not be judged*", "mingce: 1 dumps, *tokens audited clean"])
