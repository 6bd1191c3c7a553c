"""Checkpoints and sudden death: a trainer killed anywhere, and a disk that is full, leave only whole things."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoint_steps import is_whole, never, save_step

from mingce.base.errors import RunError
from mingce.base.places import step_name
from mingce.record.checkpoints import load_newest
from mingce.record.run import Run

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.usefixtures("one_thread"),  # a forked child has no others
]


@pytest.fixture
def two(run: Run) -> Run:
    """A run with whole checkpoints of steps 1 and 2."""
    save_step(run, 1)
    save_step(run, 2)
    return run


# ── sudden death ─────────────────────────────────────────────────────────────────────────────────────────────────────


def resume(path: Path) -> tuple[Run, int]:
    """What `mingce resume` does first: the run, open for training, and the step to do next."""
    run = Run.open(path)
    checkpoint = load_newest(run, never)
    step = checkpoint.step if checkpoint is not None else -1
    assert checkpoint is None or is_whole(checkpoint)
    run.rewind(step)
    return run, step + 1


def forked(work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    return child


def test_killed_at_random_moments_there_is_always_a_whole_checkpoint(run: Run) -> None:
    run.close()
    chance = random.Random(0)
    kills, newest = 0, -1
    while kills < 24:
        reader, writer = os.pipe()

        def train(writer: int = writer) -> None:
            again, step = resume(run.path)
            while True:
                save_step(again, step, score=(step * 7 % 5) / 5)
                os.write(writer, struct.pack("q", step))
                step += 1

        child = forked(train)
        os.close(writer)
        told = os.read(reader, 8)
        time.sleep(chance.random() * 0.06)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "the trainer stopped by itself"
        kills += 1
        told += os.read(reader, 1 << 16)
        os.close(reader)
        said = struct.unpack("q", told[-8:])[0]  # the last step whose save() returned
        checkpoint = load_newest(Run.open(run.path, readonly=True), never)
        assert is_whole(checkpoint)
        assert checkpoint is not None
        assert checkpoint.step >= said > newest
        newest = said
    again, step = resume(run.path)
    again.close()
    assert again.metrics() == [{"step": done, "loss": 1 / (done + 1)} for done in range(step)]
    assert not list(again.path.rglob("*.partial"))


def survive_every_crash_point(path: Path, work: Callable[[Run], object], check: Callable[[Run], object]) -> int:
    """Do `work` on a copy of the run, killed before its 1st, 2nd, 3rd … file operation, and `check` after each."""
    for number in range(1, 500):
        copy = path.with_name("copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(path, copy)

        def die_at_operation(copy: Path = copy, number: int = number) -> None:
            again = Run.open(copy)
            left = number

            def count(event: str, _: object) -> None:
                nonlocal left
                if event in ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate"):
                    left -= 1
                    if left == 0:
                        os.kill(os.getpid(), signal.SIGKILL)

            sys.addaudithook(count)
            work(again)
            os._exit(0)

        _, status = os.waitpid(forked(die_at_operation), 0)
        again, _ = resume(copy)
        check(again)
        again.close()
        assert not list(copy.rglob("*.partial"))
        if not os.WIFSIGNALED(status):
            assert os.waitstatus_to_exitcode(status) == 0
            return number - 1
    raise AssertionError("it never ended")


def test_killed_before_any_file_operation_of_a_save_nothing_is_lost(two: Run) -> None:
    two.log(3, {"loss": 0.0})
    two.close()

    def work(run: Run) -> None:
        save_step(run, 3, keep_last=1)

    def check(run: Run) -> None:
        newest = run.checkpoint_steps()[-1]
        assert newest in (2, 3)
        assert [line["step"] for line in run.metrics()][-1] == newest

    assert survive_every_crash_point(two.path, work, check) > 20


def test_killed_before_any_file_operation_of_a_rewind_the_next_resume_is_sound(two: Run) -> None:
    two.log(3, {"loss": 0.0})
    two.close()

    def check(run: Run) -> None:
        newest = run.checkpoint_steps()[-1]
        assert newest in (1, 2)
        assert [line["step"] for line in run.metrics()] == [1, 2][:newest]

    assert survive_every_crash_point(two.path, lambda run: run.rewind(1), check) > 5


def test_a_reader_always_finds_one_while_the_trainer_prunes(run: Run) -> None:
    save_step(run, 0)
    run.close()

    def train() -> None:
        again = Run.open(run.path)
        for step in range(1, 40):
            save_step(again, step, keep_last=1)
        os._exit(0)

    child = forked(train)
    reader = Run.open(run.path, readonly=True)
    seen = set()
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        checkpoint = load_newest(reader, never)
        assert is_whole(checkpoint)
        assert checkpoint is not None
        seen.add(checkpoint.step)
    assert len(seen) > 3


# ── a full disk ──────────────────────────────────────────────────────────────────────────────────────────────────────

FILL_A_DISK = """
import json, sys, torch
from pathlib import Path
torch.set_num_threads(1)
from mingce.record.checkpoints import load_newest, save
from mingce.base.errors import RunError
from mingce.ledger import Ledger
from mingce.record.run import Run

run = Run.create(sys.argv[1], "run", {})
messages = {}
def until_full(name, work):
    for number in range(200):
        try:
            work(number)
        except RunError as error:
            messages[name] = str(error)
            return
def checkpoint(number):
    save(run, number, tensors={"actor": {"w": torch.full((100_000,), float(number))}}, state={}, keep_last=99)
until_full("checkpoint", checkpoint)
newest = load_newest(run, print)
until_full("ledger", lambda step: run.ledger.write(step, Ledger(torch.randint(9**9, (64, 64)), torch.ones(64, 64) > 0)))
until_full("metrics", lambda step: run.log(step, {f"{step}/{n}": 0.1 for n in range(2_000)}))
whole = all(run.ledger.read(step).width == 64 for step in run.ledger.steps())
whole = whole and newest.step == run.checkpoint_steps()[-1]
whole = whole and (newest.tensors["actor"]["w"] == newest.step).all().item()
print(json.dumps({"messages": messages, "newest": newest.step, "whole": whole, "lines": len(run.metrics()),
                  "finished": run.metrics_path.read_bytes()[-1:] in (b"", b"\\n"),
                  "leftovers": [str(p) for p in run.path.rglob("*.partial")]}))
"""


def test_a_full_disk_is_one_sentence_and_leaves_only_whole_things(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        'mount -t tmpfs -o size=2m none "$0" && exec "$@"',
    ]
    if shutil.which("unshare") is None or subprocess.run([*mounted, str(disk), "true"], capture_output=True).returncode:
        pytest.skip("cannot mount a small disk here")
    command = [*mounted, str(disk), sys.executable, "-c", FILL_A_DISK, str(disk)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1], timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    newest = step_name(found["newest"])
    for name in ("checkpoint", "ledger", "metrics"):
        message = found["messages"][name]
        assert message.startswith("disk full while writing "), message
        assert f"; the last checkpoint {newest} is intact; free space and `mingce resume {disk}/run`" in message
    refused = re.escape(step_name(found["newest"] + 1)) + r" \(needs about \d{3} kB, [\d.]+ k?B free"
    assert re.search(refused, found["messages"]["checkpoint"])
    assert found["whole"]
    assert found["finished"]
    assert found["leftovers"] == []


def test_a_file_size_limit_leaves_the_last_checkpoint_intact(two: Run, tmp_path: Path) -> None:
    two.close()
    message = tmp_path / "message"

    def save_under_a_limit() -> None:
        again = Run.open(two.path)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, hard))
        try:
            save_step(again, 3)
        except RunError as error:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            message.write_text(str(error))
            os._exit(0)

    assert os.waitpid(forked(save_under_a_limit), 0)[1] == 0
    assert "file size limit reached while writing" in message.read_text()
    assert "the last checkpoint step-000002 is intact" in message.read_text()
    assert not list(two.path.rglob("*.partial"))
    assert is_whole(load_newest(two, never))
