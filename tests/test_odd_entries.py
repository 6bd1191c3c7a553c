"""A run directory with things in it that nobody prepared: each command ends, and nothing readable or unread is lost."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from checkpoint_steps import is_whole, never, save_step

from mingce.base.errors import RunError
from mingce.record.checkpoints import load, load_newest
from mingce.record.run import Run


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """A run with whole checkpoints of steps 1 and 2."""
    with Run.create(tmp_path, "run", {}) as made:
        save_step(made, 1)
        save_step(made, 2)
        yield made


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as end:
        before = Path.cwd()
        os.chdir(path.parent)  # a socket's path is short
        try:
            end.bind(path.name)
        finally:
            os.chdir(before)


ODD: dict[str, Callable[[Path], object]] = {
    "a link to nowhere": lambda path: path.symlink_to("nowhere"),
    "a link to itself": loop,
    "a file": lambda path: path.write_text("x"),
    "a pipe": pipe,
    "a socket": listening,
}
NAMES = ["step-000099", "step-7", "step-0000099", "step-٠٠٠٠٩٩", "step-000099 ", "step-" + "9" * 200]


@pytest.fixture
def alarm() -> Iterator[None]:
    """An endless loop, or a wait for a pipe, is a failure and not a hang."""

    def rings(number: int, frame: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, rings)
    signal.alarm(20)
    yield
    signal.alarm(0)


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("kind", ODD)
def test_an_odd_entry_of_a_steps_name_is_no_checkpoint_and_no_ledger(run: Run, kind: str) -> None:
    ODD[kind](run.checkpoints_path / "step-000099")
    ODD[kind](run.ledger_path / "step-000099.parquet")
    checkpoint = load_newest(run, never)
    assert checkpoint is not None
    assert (checkpoint.step, run.checkpoint_steps()) == (2, [1, 2])
    with pytest.raises(RunError, match="no checkpoint of step 99; there are: 1, 2"):
        load(run, 99)
    if kind != "a file":
        assert run.ledger.steps() == []
    run.rewind(1)
    assert run.checkpoint_steps() == [1]
    assert os.path.lexists(run.checkpoints_path / "step-000099")


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("name", NAMES[1:])
def test_only_a_steps_own_name_is_a_checkpoint(run: Run, name: str) -> None:
    shutil.copytree(run.checkpoints_path / "step-000002", run.checkpoints_path / name)
    assert run.checkpoint_steps() == [1, 2]
    assert is_whole(load_newest(run, never))
    run.rewind(1)
    assert (run.checkpoints_path / name).is_dir()


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("kind", ODD)
def test_a_save_takes_the_place_of_an_odd_entry(run: Run, kind: str) -> None:
    ODD[kind](run.checkpoints_path / "step-000003")
    save_step(run, 3)
    assert is_whole(load(run, 3))
    assert not list(run.checkpoints_path.glob(".*"))


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("file", ["manifest.json", "state.json", "actor.safetensors"])
def test_an_odd_entry_inside_a_checkpoint_is_damage(run: Run, kind: str, file: str) -> None:
    inside = run.checkpoints_path / "step-000002" / file
    inside.unlink()
    ODD[kind](inside)
    passed: list[str] = []
    checkpoint = load_newest(run, passed.append)
    assert checkpoint is not None
    assert checkpoint.step == 1
    assert "step-000002" in passed[0]


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("kind", ["a link to itself", "a pipe", "a socket"])
@pytest.mark.parametrize("file", ["lock", "metrics.jsonl", "config.yaml", "checkpoints", "ledger", "checksums.jsonl"])
def test_an_odd_entry_in_place_of_a_file_of_the_run_is_one_sentence(run: Run, kind: str, file: str) -> None:
    run.close()
    place = run.path / file
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    ODD[kind](place)
    with pytest.raises(RunError):
        Run.open(run.path).metrics()


def test_a_link_to_a_checkpoint_elsewhere_is_one_and_what_it_points_to_is_not_removed(run: Run, tmp_path: Path) -> None:
    place = run.checkpoints_path / "step-000002"
    place.rename(tmp_path / "step-000002")
    place.symlink_to(tmp_path / "step-000002")
    assert is_whole(load_newest(run, never))
    run.rewind(1)
    assert not os.path.lexists(place)
    assert (tmp_path / "step-000002" / "manifest.json").exists()


# ── what merely cannot be read ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=[errno.EACCES, errno.EIO, errno.ESTALE])
def refused(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Checkpoints whose files the disk refuses for now."""
    names = {"step-000002"}
    usual = os.open

    def refusing(path: str | os.PathLike[str], flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if names & set(Path(path).parts):
            raise OSError(request.param, os.strerror(request.param), str(path))
        return usual(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refusing)
    return names


def test_a_run_does_not_go_on_behind_a_checkpoint_that_cannot_be_read(run: Run, refused: set[str]) -> None:
    with pytest.raises(RunError, match=r"step-000002 .* cannot be read \(manifest.json: .*move it out .*step-000001"):
        load_newest(run, never)
    with pytest.raises(RunError, match="cannot be read"):
        load(run, 2)
    refused.clear()
    assert is_whole(load_newest(run, never))


def test_a_reader_falls_back_and_says_why(run: Run, refused: set[str]) -> None:
    passed: list[str] = []
    checkpoint = load_newest(Run.open(run.path, readonly=True), passed.append)
    assert checkpoint is not None
    assert checkpoint.step == 1
    assert "cannot be read" in passed[0]
    refused.add("step-000001")
    with pytest.raises(RunError, match=r"no checkpoint of .* is whole"):
        load_newest(Run.open(run.path, readonly=True), passed.append)


def test_pruning_leaves_what_cannot_be_read(run: Run, refused: set[str]) -> None:
    for step in (3, 4, 5):
        save_step(run, step, keep_last=1)
    assert run.checkpoint_steps() == [2, 5]
    refused.clear()
    assert is_whole(load(run, 2))


def test_a_save_does_not_replace_what_cannot_be_read(run: Run, refused: set[str]) -> None:
    with pytest.raises(RunError, match="is there and cannot be read"):
        save_step(run, 2)
    refused.clear()
    assert is_whole(load(run, 2))


NOBODY = """
import os, sys, json
from mingce.record import checkpoints
from mingce.record import store
from mingce.base.errors import MingceError
from mingce.record.run import Run
os.setgid(65534)
os.setuid(65534)
found = {}
for readonly in (False, True):
    try:
        newest = checkpoints.load_newest(Run.open(sys.argv[1], readonly=readonly), lambda told: None)
        found[str(readonly)] = newest.step
    except MingceError as error:
        found[str(readonly)] = str(error)
print(json.dumps(found))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("closed", ["checkpoints/step-000002", "checkpoints"])
def test_without_permission_it_is_one_sentence(run: Run, closed: str) -> None:
    run.close()
    with tempfile.TemporaryDirectory() as open_to_all:  # pytest's own is closed to others whenever a pytest begins
        os.chmod(open_to_all, 0o755)
        path = Path(shutil.copytree(run.path, Path(open_to_all, "run")))
        for place in [path, *path.rglob("*")]:
            os.chown(place, 65534, 65534)
        os.chmod(path / closed, 0)
        done = subprocess.run([sys.executable, "-c", NOBODY, str(path)], capture_output=True, text=True, timeout=300)
        os.chmod(path / closed, 0o755)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert "cannot be" in found["False"]
        assert found["True"] == 1 or "cannot be listed" in found["True"]
        assert Run.open(path, readonly=True).checkpoint_steps() == [1, 2]
