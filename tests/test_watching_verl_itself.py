"""verl's own code, as PyPI has it, under MINGCE_WATCH. Needs an interpreter that has it: `make test-slow` makes one.

MINGCE_VERL is one with verl 0.9.1, Ray and TransferQueue.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from verl_bugs import BUGS

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["legacy", "v1"])
def test_its_plug_in_group_records_what_was_put_in(kind: str, tmp_path: Path) -> None:
    if "MINGCE_VERL" not in os.environ:
        pytest.skip("MINGCE_VERL names no interpreter")
    about = tmp_path / "site" / "mingce-0.dist-info"  # as an installed mingce has it
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mingce\nVersion: 0\n")
    (about / "entry_points.txt").write_text("[verl.plugins]\nmingce = mingce.watching.verl_plugin\n")
    places = [str(HERE.parent), str(HERE), str(about.parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "MINGCE_WATCH": str(tmp_path / "run")}
    python = str(Path(os.environ["MINGCE_VERL"]).absolute())
    done = subprocess.run(
        [python, str(HERE / "real_verl.py"), kind], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = next(line for line in done.stdout.splitlines() if line.startswith("FOUND "))
    seen = json.loads(said.removeprefix("FOUND "))
    computed = {name: seen["differences"].pop(name) for name in ("rewards", "advantages", "returns")}
    assert set(seen["differences"].values()) == {0.0}
    assert max(computed.values()) <= (1e-6 if kind == "v1" else 0.0)  # V1's are verl's own, ours the other side
    assert (seen["alarms"], seen["audits"]) == ([], 1)
    expected = {"gamma": 0.99, "lam": 0.9, "beta": 0.05, "kl_estimator": "k1", "estimator": "gae", "dual_clip": 3.0}
    assert expected.items() <= seen["settings"].items()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["legacy", "v1"])
def test_bugs_in_its_own_functions_are_named_on_the_first_step(kind: str, tmp_path: Path) -> None:
    if "MINGCE_VERL" not in os.environ:
        pytest.skip("MINGCE_VERL names no interpreter")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parent), str(HERE)])}
    python = str(Path(os.environ["MINGCE_VERL"]).absolute())
    done = subprocess.run(
        [python, str(HERE / "real_verl_bugs.py"), kind], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = next(line for line in done.stdout.splitlines() if line.startswith("FOUND "))
    named = json.loads(said.removeprefix("FOUND "))
    assert named.pop("clean gae") == named.pop("clean grpo") == []
    assert {bug.name: named[bug.name] for bug in BUGS if not set(bug.findings) & set(named[bug.name])} == {}
