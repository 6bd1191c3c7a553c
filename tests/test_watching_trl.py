"""TRL as PyPI has it, under mingce.watch. Needs interpreters that have it: `make test-slow` makes both.

MINGCE_TRL_GRPO is one with TRL 1.16, MINGCE_TRL_PPO one with TRL 1.12.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from trl_bugs import BUGS, Bug

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
pytestmark = pytest.mark.slow


def interpreter(name: str) -> str:
    if name not in os.environ:
        pytest.skip(f"{name} names no interpreter")
    return str(Path(os.environ[name]).absolute())


def run(python: str, *words: str, path: Path | None = None) -> str:
    places = [str(place) for place in (path, HERE.parent) if place is not None]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "MINGCE_LANG": "en"}
    done = subprocess.run([python, *words], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def found(python: str, script: str, steps: int, settings: dict[str, Any], path: Path | None = None) -> dict[str, Any]:
    lines = run(python, str(HERE / script), str(steps), json.dumps(settings), path=path).splitlines()
    result: dict[str, Any] = json.loads(
        next(line for line in lines if line.startswith("FOUND ")).removeprefix("FOUND ")
    )
    return result


@pytest.mark.parametrize("settings", [{}, {"num_iterations": 2, "gradient_accumulation_steps": 2}, {"beta": 0.0}])
def test_grpo_is_recorded_to_the_bit_and_untouched(settings: dict[str, Any]) -> None:
    seen = found(interpreter("MINGCE_TRL_GRPO"), "real_trl_grpo.py", 50, settings)
    assert seen["same_log"]
    assert seen["same_weights"]
    assert max(seen["differences"].values()) == 0
    assert (seen["audits"], seen["alarms"], seen["dropped"], seen["failures"]) == (50, [], 0, 0)
    assert seen["logged"]


def test_ppo_is_recorded_to_the_bit_and_untouched() -> None:
    seen = found(interpreter("MINGCE_TRL_PPO"), "real_trl_ppo.py", 20, {})
    assert seen["same_log"]
    assert seen["same_weights"]
    assert max(seen["differences"].values()) == 0
    assert (seen["alarms"], seen["dropped"], seen["failures"]) == ([], 0, 0)
    assert seen["audits"] >= 20


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_in_the_package_itself_is_named(bug: Bug, tmp_path: Path) -> None:
    python = interpreter("MINGCE_TRL_GRPO")
    home = Path(run(python, "-c", "import trl; print(trl.__path__[0])").strip().splitlines()[-1])
    shutil.copytree(home, tmp_path / "trl", ignore=shutil.ignore_patterns("__pycache__"))
    source = tmp_path / "trl" / "trainer" / bug.file
    text = source.read_text(encoding="utf-8")
    assert bug.old in text
    source.write_text(text.replace(bug.old, bug.new), encoding="utf-8")
    seen = found(python, "real_trl_grpo.py", 6, bug.settings, tmp_path)
    assert bug.finding in {code for step, code in seen["alarms"] if step <= 4}, seen["alarms"]


def test_the_examples_run(tmp_path: Path) -> None:
    for name, variable in (("watch_trl_grpo.py", "MINGCE_TRL_GRPO"), ("watch_trl_ppo.py", "MINGCE_TRL_PPO")):
        said = run(interpreter(variable), str(EXAMPLES / name), str(tmp_path / name), "--steps", "3")
        assert f"mingce view {tmp_path / name}" in said
        assert len(list((tmp_path / name / "ledger").glob("*.parquet"))) >= 3
