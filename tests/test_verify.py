"""`mingce verify`: damage that only a checksum shows is found, wherever it is."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console
from test_train import trained
from typer.testing import CliRunner

from mingce.base.errors import RunError
from mingce.cli import app
from mingce.record import checkpoints
from mingce.record.run import Run
from mingce.record.verify import FileState, verify
from mingce.training import start

SMALL = (
    "steps=4", "prompts_per_step=4", "samples_per_prompt=2", "minibatch_rollouts=8", "critic.minibatch_rollouts=8",
    "validation.examples=2", "validation.every=2", "audit.every=2", "keep.checkpoint_every=2", "threads=1",
)  # fmt: skip
NOT_VERIFIED = {"lock", "uids.sqlite"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = trained(tmp_path_factory.mktemp("made"), *SMALL, "steps=2", name="run")
    with Run.open(run.path) as again:
        again.log_event(2, "restart", "一个进程丢失")
    start.resume(Console(quiet=True), run.path, ["steps=4"])
    return run.path


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "run")
    return tmp_path / "run"


def damage(path: Path) -> list[FileState]:
    return [one for one in verify(Run.open(path, readonly=True)) if one.state == "damaged"]


def test_a_run_as_it_was_written_is_whole(made: Path) -> None:
    found = list(verify(Run.open(made, readonly=True)))
    assert {one.state for one in found} == {"whole"}
    names = {one.path for one in found}
    on_disk = {file.relative_to(made).as_posix() for file in made.rglob("*") if file.is_file()}
    assert {name for name in on_disk if Path(name).name not in NOT_VERIFIED} == names


def test_every_flipped_bit_in_every_file_is_found(path: Path) -> None:
    chance = random.Random(5)
    flips = missed = 0
    for file in sorted(path.rglob("*")):
        if not file.is_file() or file.name in NOT_VERIFIED:
            continue
        good = file.read_bytes()
        places = {0, len(good) - 1, *(chance.randrange(len(good)) for _ in range(4))}
        for place in places:
            bad = bytearray(good)
            bad[place] ^= 1 << chance.randrange(8)
            file.write_bytes(bad)
            flips += 1
            missed += not damage(path)
        file.write_bytes(good)
    assert flips > 60
    assert missed == 0


def test_lost_lines_and_files_are_found(path: Path) -> None:
    for name in ("metrics.jsonl", "timings.jsonl", "audit.jsonl", "checksums.jsonl"):
        good = (path / name).read_bytes()
        lines = good.splitlines(keepends=True)
        for bad in (b"", b"".join(lines[1:]), b"".join(lines[:-1]), b"".join(lines[:1] + lines[2:]), good[:-1]):
            (path / name).write_bytes(bad)
            assert damage(path), (name, len(bad))
        (path / name).write_bytes(b"".join([lines[1], lines[0], *lines[2:]]))
        assert damage(path), name
        (path / name).write_bytes(good)
    assert not damage(path)
    (path / "ledger" / "step-000002.parquet").unlink()
    assert [one.path for one in damage(path)] == ["ledger/step-000002.parquet"]


def test_events_that_were_taken_away_are_found(path: Path) -> None:
    with Run.open(path) as run:
        run.log_event(4, "changed", "线程数不同")
        run.log_event(4, "restart", "又一个进程丢失")
    assert damage(path) == []
    events = path / "events.jsonl"
    lines = events.read_bytes().splitlines(keepends=True)
    first, second, *others, last = lines
    for left in (lines[1:], [first, *others, last], lines[:-1], [], [second, first, *others, last], [first, *lines]):
        events.write_bytes(b"".join(left))
        assert [one.path for one in damage(path)] == ["events.jsonl"], len(left)
    events.unlink()
    assert [one.path for one in damage(path)] == ["events.jsonl"]
    events.write_bytes(b"".join(lines))
    with Run.open(path) as run:
        run.rewind(2)  # the events stay, what vouched for them was of later steps
    assert damage(path) == []
    assert events.read_bytes() == b"".join(lines)
    events.write_bytes(first)
    assert [one.path for one in damage(path)] == ["events.jsonl"]


def test_what_is_noted_of_later_steps_goes_with_them(path: Path) -> None:
    with Run.open(path) as run:
        run.log_event(2, "changed", "在回退之前说的")  # as a resume does, before it forgets steps 3 and 4
        run.rewind(2)
        run.log(3, {"loss": 1.0})
    assert damage(path) == []


@pytest.mark.parametrize(
    ("name", "bomb"),
    [
        ("metrics.jsonl", "hole"), ("checksums.jsonl", "hole"), ("metrics.jsonl", "lines"),
        ("checksums.jsonl", "lines"), ("events.jsonl", "line"),
    ],
)  # fmt: skip
def test_logs_of_a_stranger_are_read_within_bounds(path: Path, name: str, bomb: str) -> None:
    """A hole of a terabyte, millions of empty lines, a line without an end."""
    with (path / name).open("ab") as file:
        if bomb == "hole":
            file.truncate(1 << 40)
        else:
            file.write(b"\n" * (4 << 20) if bomb == "lines" else b"x" * (300 << 20))
    limited = "import resource; resource.setrlimit(resource.RLIMIT_DATA, (700 << 20,) * 2); from mingce.cli import main"
    command = [sys.executable, "-c", f"{limited}; main()", "verify", str(path), "--lang", "en"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert name in done.stdout + done.stderr, done.stderr[-500:]
    assert "memory" not in done.stderr


def test_after_a_rewind_and_a_resume_it_is_whole_again(path: Path) -> None:
    with Run.open(path) as run:
        run.rewind(2)
        run.log(3, {"loss": 1.0})
    assert damage(path) == []


def test_what_a_kill_left_is_not_damage(path: Path) -> None:
    with (path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 5, "x": 1}\n{"step": 6, ')
    shutil.copy(path / "ledger" / "step-000001.parquet", path / "ledger" / "step-000005.parquet")
    found = [one for one in verify(Run.open(path, readonly=True)) if one.state != "whole"]
    assert {(one.path, one.state) for one in found} == {
        ("metrics.jsonl", "uncovered"),
        ("ledger/step-000005.parquet", "uncovered"),
    }


def test_an_older_run_is_not_covered_and_not_damaged(path: Path) -> None:
    from mingce.record import checkpoints

    (path / "checksums.jsonl").unlink()
    for checkpoint in (path / "checkpoints").iterdir():
        manifest = checkpoints.read_manifest(checkpoint) | {"logs": None, "fingerprints": None}
        (checkpoint / "manifest.json").write_bytes(checkpoints.manifest_bytes(manifest))
    found = list(verify(Run.open(path, readonly=True)))
    assert {one.state for one in found} == {"whole", "uncovered"}
    assert {"config.yaml", "metrics.jsonl"} <= {one.path for one in found if one.state == "uncovered"}


def test_the_command_says_it_in_both_languages_and_as_json(path: Path) -> None:
    def said(*options: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["verify", str(path), *options])
        return done.exit_code, done.stdout

    code, text = said("--lang", "en")
    assert code == 0
    assert "0 damaged" in text
    (path / "checkpoints" / "step-7").mkdir()
    content = bytearray((path / "ledger" / "step-000001.parquet").read_bytes())
    content[100] ^= 1
    (path / "ledger" / "step-000001.parquet").write_bytes(content)
    code, text = said("--lang", "zh")
    assert code == 1
    assert "损坏 ledger/step-000001.parquet" in text
    code, text = said("--json")
    assert code == 1
    answer = json.loads(text)
    assert [one["path"] for one in answer["files"]] == ["ledger/step-000001.parquet", "checkpoints/step-7"]


def test_a_ledger_that_says_it_is_endlessly_wide_takes_no_memory(path: Path) -> None:
    file = next((path / "ledger").glob("*.parquet"))
    table = pq.read_table(file)
    table = table.replace_schema_metadata({**table.schema.metadata, b"mingce.width": b"100000000000"})
    pq.write_table(table, file)
    run = Run.open(path, readonly=True)
    with pytest.raises(RunError, match="100,000,000,000 tokens wide"):
        run.ledger.read(int(file.stem.rpartition("-")[2]))
    assert [one.path for one in damage(path)] == [f"ledger/{file.name}"]


@pytest.mark.parametrize("logs", [{}, [], "x", {"chain": 7}])
def test_odd_logs_in_a_manifest_are_no_traceback(path: Path, logs: object) -> None:
    checkpoint = next((path / "checkpoints").iterdir())
    manifest = checkpoints.read_manifest(checkpoint) | {"logs": logs}
    (checkpoint / "manifest.json").write_bytes(checkpoints.manifest_bytes(manifest))
    assert damage(path) is not None
