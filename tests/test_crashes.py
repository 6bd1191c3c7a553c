"""A test that kills its worker is a failed test; every other one is still run, once, and reported."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import crashes
import pytest

KILL = "os.kill(os.getpid(), signal.SIGILL)"


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("bodies", [
    [KILL] + ["pass"] * 5,
    ["pass"] * 5 + [KILL],
    ["pass", KILL, "pass", "assert 0", KILL, "pass", "time.sleep(0.3)", KILL, "pass", "pass"],
    [KILL],
])  # fmt: skip
@pytest.mark.parametrize("grouped", [False, True])
def test_a_killed_worker_is_one_failed_test(bodies: list[str], workers: int, grouped: bool, tmp_path: Path) -> None:
    mark = "@pytest.mark.xdist_group('together')\n" if grouped else ""
    tests = [
        f"{mark}def test_{i}():\n    open('ran', 'a').write('{i}\\n')\n    {body}\n" for i, body in enumerate(bodies)
    ]
    (tmp_path / "test_some.py").write_text("import os, signal, time\nimport pytest\n\n" + "\n".join(tests))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "xdist",
            "-n",
            str(workers),
            "--dist",
            "loadgroup",
            "-p",
            "crashes",
        ],
        cwd=tmp_path,
        # without the other plugins, whose imports take longer than these tests
        env={**os.environ, "PYTHONPATH": str(Path(crashes.__file__).parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    failing = [i for i, body in enumerate(bodies) if body in (KILL, "assert 0")]
    assert done.returncode == 1, done.stdout + done.stderr
    assert "INTERNALERROR" not in done.stdout
    named = {int(n) for n in re.findall(r"^FAILED test_some.py::test_(\d+)", done.stdout, re.MULTILINE)}
    assert sorted(named) == failing, done.stdout
    assert sorted(map(int, (tmp_path / "ran").read_text().split())) == list(range(len(bodies)))
