"""A run that came from elsewhere executes nothing before its reader has said so."""

from __future__ import annotations

import io
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from test_train import SMALL

from mingce.base.errors import RunError
from mingce.config import read_config
from mingce.explain.scored import scored
from mingce.training import start, trust

REWARD = """
from pathlib import Path
Path(__file__).with_name("executed").touch()
def compute_score(data_source, solution_str, ground_truth, extra_info):
    return float(len(solution_str))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of somebody else's, made with a list of their own."""
    root = tmp_path_factory.mktemp("elsewhere")
    (root / "reward.py").write_text(REWARD)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(root / "state"))
        words = [f"root={root}", "name=run", *SMALL, "steps=1", f"reward.function={root / 'reward.py'}"]
        start.train(Console(file=io.StringIO()), None, words)
    return root


@pytest.fixture
def stranger(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run as it came: unpacked by me, its reward function inside of it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("MINGCE_LANG", "en")
    shutil.copytree(made / "run", tmp_path / "run")
    (tmp_path / "run" / "reward.py").write_text(REWARD)
    config = tmp_path / "run" / "config.yaml"
    config.write_text(config.read_text().replace(str(made / "reward.py"), str(tmp_path / "run" / "reward.py")))
    return tmp_path / "run"


def mingce(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mingce.cli", *map(str, words)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_eval_needs_a_flag_once(stranger: Path) -> None:
    refused = mingce("eval", stranger, "--examples", "1", "--samples", "1")
    assert refused.returncode == 2
    assert "--trust" in refused.stderr
    assert "sha256" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (stranger / "executed").exists()

    assert mingce("eval", stranger, "--examples", "1", "--samples", "1", "--trust").returncode == 0
    assert (stranger / "executed").exists()
    trust.expect_trust(stranger, read_config(stranger / "config.yaml", []), [], trust=False, command="eval")

    (stranger / "reward.py").write_text(REWARD + "# changed\n")
    with pytest.raises(RunError, match="--trust"):
        trust.expect_trust(stranger, read_config(stranger / "config.yaml", []), [], trust=False, command="eval")


def test_resume_and_explain_ask_too(stranger: Path) -> None:
    with pytest.raises(RunError, match=r"mingce resume .* --trust"):
        start.resume(Console(file=io.StringIO()), stranger, ["steps=2"])
    with pytest.raises(RunError, match="--trust"):
        scored("请问17+25=42？", "是的，等于42！", where=str(stranger))
    assert not (stranger / "executed").exists()
    scored("请问17+25=42？", "是的，等于42！", where=str(stranger), score=1.0)  # which executes nothing
    assert not (stranger / "executed").exists()
    start.resume(Console(file=io.StringIO()), stranger, ["steps=2"], trust=True)
    assert (stranger / "executed").exists()


def test_what_one_trained_with_or_types_is_one_s_own(stranger: Path) -> None:
    config = read_config(stranger / "config.yaml", [])
    typed = [f"reward.function={stranger / 'reward.py'}"]
    trust.expect_trust(stranger, config, typed, trust=False, command="eval")
    trust.remember(list(trust.executed_by(config, trains=True)))  # as `mingce train` does
    trust.expect_trust(stranger, config, [], trust=False, command="eval")
    assert (stranger.parent / "state" / "mingce" / "trusted.jsonl").stat().st_mode & 0o77 == 0


def test_a_cluster_that_a_run_names_is_asked_about_on_resume(stranger: Path) -> None:
    config = read_config(None, ["engine=ray", "ray.address=10.0.0.1:6379"])
    with pytest.raises(RunError, match=r"ray\.address = 10\.0\.0\.1:6379"):
        trust.expect_trust(stranger, config, [], trust=False, trains=True, command="resume")
    trust.expect_trust(stranger, config, ["ray.address=10.0.0.1:6379"], trust=False, trains=True, command="resume")


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 2), ("", 2)])
def test_in_a_terminal_one_is_asked_and_sees_the_file(stranger: Path, answer: str, code: int) -> None:
    (stranger / "reward.py").write_text("# \x1b[2J hides\n" + REWARD)
    program = (
        "import sys; from pathlib import Path; from mingce.config import read_config\n"
        "from mingce.training.trust import expect_trust\n"
        "from mingce.base.errors import RunError\n"
        "run = Path(sys.argv[1])\n"
        "try: expect_trust(run, read_config(run / 'config.yaml', []), [], trust=False, command='eval')\n"
        "except RunError: sys.exit(2)\n"
    )
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(stranger)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "dumb"},
    )
    os.close(theirs)
    os.write(ours, f"{answer}\n".encode())
    said = b""
    while b"[y/N]" not in said:
        said += os.read(ours, 4096)
    assert child.wait(300) == code
    os.close(ours)
    assert b"sha256" in said
    assert b"def compute_score" in said
    assert b"\x1b[2J" not in said
