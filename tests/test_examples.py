"""The examples run as they stand, from any directory, and say what they promise; `import mingce` stays light."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import mingce

EXAMPLES = Path(__file__).parent.parent / "examples"
SAYS = {
    "own_loop.py": r"step 4  score 0\.\d+ .*\n.*Ledger\(128 rollouts",
    "own_estimator.py": r"reward_to_go[\s\S]*advantages",
    "own_reward.py": r"score",
    "query_runs.py": r"the ten tokens with the largest \|A\|\n  row \d+, t \d+: '.+'  advantages [+-]",
}


def python(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent), "MINGCE_LANG": "en"},
    )


@pytest.mark.parametrize("name", SAYS)
def test_an_example_runs_from_anywhere(name: str, tmp_path: Path) -> None:
    done = python(EXAMPLES / name, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(SAYS[name], done.stdout), done.stdout
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"


def test_the_loop_is_short() -> None:
    text = (EXAMPLES / "own_loop.py").read_text(encoding="utf-8").rpartition('"""')[2]
    assert sum(bool(line.strip()) for line in text.splitlines()) <= 40


def test_public_names_are_there_and_cost_nothing_until_used(tmp_path: Path) -> None:
    for name in mingce.__all__:
        assert getattr(mingce, name).__doc__, name
        assert name in dir(mingce)
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        mingce.trian  # noqa: B018
    light = "import mingce, sys; mingce.estimator; print(sorted({'torch', 'numpy', 'transformers'} & set(sys.modules)))"
    assert python("-c", light, cwd=tmp_path).stdout.strip() == "[]"


def test_the_ci_job_finds_its_toy_run_clean(tmp_path: Path) -> None:
    job = yaml.safe_load((EXAMPLES / "audit_in_ci.yml").read_text(encoding="utf-8"))["jobs"]["audit"]
    lines = [step["run"].split() for step in job["steps"] if step.get("run", "").startswith("mingce ")]
    assert [line[1] for line in lines] == ["train", "audit"]
    for line in lines:
        done = python("-m", "mingce.cli", *line[1:], cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "audit.xml").is_file()
    assert (tmp_path / "audit.sarif").is_file()
