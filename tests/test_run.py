"""The run directory: names, locks, metrics that rewind to the byte, and a disk that refuses."""

from __future__ import annotations

import json
import math
import os
import resource
import secrets
import signal
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mingce.base.atomic import atomic_directory, atomic_write, clean_leftovers
from mingce.base.errors import RunError
from mingce.record.run import TIMING_PREFIXES, Run

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def in_child(work: Callable[[], object]) -> int:
    """Run `work` in a forked process; 0 if it ended without an exception."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# ── names and settings ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_run_holds_its_settings(tmp_path: Path) -> None:
    config = {
        "lr": 1e-5,
        "task": "请问",
        "prompt": "a: b # c\n${x}",
        "none": None,
        "on": True,
        "sizes": [1, 2.5],
        "a": {"b": {}},
    }
    with Run.create(tmp_path / "runs", "first", config) as run:
        assert run.path == tmp_path / "runs" / "first"
        assert run.config() == config
        assert {entry.name for entry in run.path.iterdir()} == {
            "config.yaml",
            "checksums.jsonl",
            "ledger",
            "checkpoints",
            "tensorboard",
            "lock",
        }
    assert Run.open(run.path, readonly=True).config() == config


def test_a_taken_name_is_refused_and_the_run_is_left_alone(tmp_path: Path) -> None:
    with Run.create(tmp_path, "mine", {"seed": 1}):
        pass
    with pytest.raises(RunError, match=r"already a run named 'mine'.*mingce resume .*mine.*another name"):
        Run.create(tmp_path, "mine", {"seed": 2})
    assert Run.open(tmp_path / "mine", readonly=True).config() == {"seed": 1}
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match="already a run named 'empty'"):
        Run.create(tmp_path, "empty", {})


def test_generated_names_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = iter(["00aa", "00aa", "00aa", "00bb"])  # two runs in one second may draw the same
    monkeypatch.setattr(secrets, "token_hex", lambda _: next(ids))
    monkeypatch.setattr(time, "strftime", lambda _: "20261116-120000")
    for _ in range(2):
        Run.create(tmp_path, None, {}).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["20261116-120000-00aa", "20261116-120000-00bb"]


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "-flag", "a b", "a\n"])
def test_names_that_would_leave_the_folder_or_hide_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RunError, match="cannot be a run's name"):
        Run.create(tmp_path, name, {})
    assert list(tmp_path.iterdir()) == []


def test_a_chinese_name_is_a_name(tmp_path: Path) -> None:
    with Run.create(tmp_path, "明策-1", {}) as run:
        assert run.path.is_dir()


def test_opening_what_is_no_run_offers_the_nearest(tmp_path: Path) -> None:
    Run.create(tmp_path, "arithmetic", {}).close()
    with pytest.raises(RunError, match=r"no run at .*arithmatic; did you mean .*arithmetic\?"):
        Run.open(tmp_path / "arithmatic")
    with pytest.raises(RunError, match="no run at"):
        Run.open(tmp_path / "nowhere" / "x")
    assert not (tmp_path / "nowhere").exists()


def test_a_root_that_is_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="a file stands where a directory should be"):
        Run.create(tmp_path / "file", "run", {})


# ── the lock ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_two_cannot_train_in_one_directory_but_any_may_read(tmp_path: Path) -> None:
    run = Run.create(tmp_path, "busy", {})
    with pytest.raises(RunError, match=rf"another process is training in .*busy \(process {os.getpid()} on "):
        Run.open(run.path)

    def refused() -> None:
        with pytest.raises(RunError, match=f"process {os.getppid()} on"):
            Run.open(run.path)

    assert in_child(refused) == 0
    with pytest.raises(RunError, match="another process"):  # the child's end did not give our lock away
        Run.open(run.path)
    assert Run.open(run.path, readonly=True).config() == {}
    run.close()
    Run.open(run.path).close()


def test_a_killed_process_leaves_no_lock_even_if_its_worker_lives_on(tmp_path: Path) -> None:
    with Run.create(tmp_path, "killed", {}) as made:
        path = made.path
    reader, writer = os.pipe()
    holder = os.fork()
    if holder == 0:
        run = Run.open(path)
        worker = os.fork()
        if worker == 0:
            time.sleep(60)
            os._exit(0)
        os.write(writer, struct.pack("i", worker))
        time.sleep(60)
        run.close()
        os._exit(0)
    worker = struct.unpack("i", os.read(reader, 4))[0]
    try:
        with pytest.raises(RunError, match=f"process {holder} on"):
            Run.open(path)
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)
        os.kill(worker, 0)
        with Run.open(path) as run:
            assert run.training
    finally:
        os.kill(worker, signal.SIGKILL)
        os.close(reader)
        os.close(writer)


# ── metrics ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def shared_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with Run.create(tmp_path_factory.mktemp("runs"), "shared", {}) as run:
        yield run


names = st.text(min_size=1).filter(lambda name: name != "step" and not name.startswith(TIMING_PREFIXES))


@given(st.dictionaries(names, st.floats(width=64) | st.integers()))
def test_every_number_reads_back_to_the_same_bits(shared_run: Run, metrics: dict[str, float]) -> None:
    shared_run.metrics_path.unlink(missing_ok=True)
    shared_run.log(3, metrics | {"last": 1.0})
    line = json.loads(shared_run.metrics_path.read_text())
    assert next(iter(line)) == "step"
    json.dumps(line, allow_nan=False)  # strict JSON, which other programs read too
    (found,) = shared_run.metrics()
    for name, value in metrics.items():
        if isinstance(value, int) or math.isnan(value):
            assert repr(found[name]) == repr(value)
        else:
            assert struct.pack("d", found[name]) == struct.pack("d", value)


def test_timings_are_kept_apart(tmp_path: Path) -> None:
    with Run.create(tmp_path, "run", {}) as run:
        run.log(0, {"actor/pg_loss": 0.1, "timing_s/gen": 2.0, "perf/throughput": 9.0})
        run.log(1, {"timing_s/gen": 2.5})
        assert run.metrics_path.read_text() == '{"step": 0, "actor/pg_loss": 0.1}\n'
        assert [json.loads(line)["step"] for line in run.timings_path.read_text().splitlines()] == [0, 1]


def test_an_interrupted_and_rewound_log_is_the_same_bytes(tmp_path: Path) -> None:
    def numbers(step: int) -> dict[str, float]:
        return {"loss": math.sin(step) / 3, "kl": -1e-9 * step, "bad": math.nan, "timing_s/step": time.perf_counter()}

    with Run.create(tmp_path, "whole", {}) as whole:
        for step in range(8):
            whole.log(step, numbers(step))
    with Run.create(tmp_path, "broken", {}) as broken:
        for step in range(6):
            broken.log(step, numbers(step))
            broken.log(step, {"val/score": step / 7} if step == 5 else {})
    with broken.metrics_path.open("ab") as file:
        file.write(whole.metrics_path.read_bytes().splitlines()[6][:17])  # killed in the middle of a line
    with Run.open(broken.path) as resumed:
        assert [line["step"] for line in resumed.metrics()] == [0, 1, 2, 3, 4, 5, 5]
        resumed.rewind(3)
        assert [json.loads(line)["step"] for line in resumed.timings_path.read_text().splitlines()] == [0, 1, 2, 3]
        for step in range(4, 8):
            resumed.log(step, numbers(step))
    assert broken.metrics_path.read_bytes() == whole.metrics_path.read_bytes()


def test_rewinding_to_before_the_first_step_forgets_all(tmp_path: Path) -> None:
    with Run.create(tmp_path, "run", {}) as run:
        run.rewind(-1)
        run.log(0, {"loss": 1.0})
        run.rewind(-1)
        assert run.metrics() == []


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    with Run.create(tmp_path, "run", {}) as run:
        for step in range(3):
            run.log(step, {"loss": 1.0})
        run.metrics_path.write_bytes(run.metrics_path.read_bytes().replace(b'"step": 1', b'"step"; 1'))
        with pytest.raises(RunError, match=r"line 2 of .*metrics\.jsonl is damaged"):
            run.rewind(2)


def test_a_run_opened_for_reading_is_not_written(tmp_path: Path) -> None:
    Run.create(tmp_path, "run", {}).close()
    run = Run.open(tmp_path / "run", readonly=True)
    with pytest.raises(AssertionError, match="reading only"):
        run.log(0, {"loss": 1.0})


# ── whole or not at all ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_refused_file_leaves_the_old_one_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    atomic_write(path, b"old")

    def fail(file: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        atomic_write(path, fail)
    assert path.read_bytes() == b"old"
    atomic_write(path, lambda file: file.write(b"new"))
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_directory_appears_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with pytest.raises(TypeError), atomic_directory(path) as beside:
        (beside / "part").write_text(None)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
    with atomic_directory(path) as beside:
        (beside / "part").write_text("x")
        assert not path.exists()
    assert (path / "part").read_text() == "x"
    with pytest.raises(FileExistsError), atomic_directory(path) as beside:
        (beside / "part").write_text("y")
    with atomic_directory(path, replace=True) as beside:
        (beside / "part").write_text("z")
    assert (path / "part").read_text() == "z"
    assert list(tmp_path.iterdir()) == [path]


def test_leftovers_go_when_the_run_is_opened(tmp_path: Path) -> None:
    with Run.create(tmp_path, "run", {}) as run:
        leftovers = [run.path / ".metrics.jsonl.99.partial", run.checkpoints_path / ".step-000001.99.partial" / "deep"]
        for leftover in leftovers:
            leftover.mkdir(parents=True)
        (run.ledger_path / ".step-000003.parquet.99.partial").write_text("x")
    with Run.open(run.path):
        assert not [entry for entry in run.path.rglob("*") if entry.name.endswith(".partial")]


def test_only_old_leftovers_go_where_others_may_be_writing(tmp_path: Path) -> None:
    old, new = tmp_path / ".a.1.partial", tmp_path / ".b.2.partial"
    for folder in (old, new):
        folder.mkdir()
    os.utime(old, (1, 1))
    clean_leftovers(tmp_path, older_than=60)
    assert list(tmp_path.iterdir()) == [new]


def test_a_line_that_does_not_fit_is_taken_back(tmp_path: Path) -> None:
    with Run.create(tmp_path, "run", {}) as run:
        run.log(0, {"loss": 1.0})
        before = run.metrics_path.read_bytes()
    message = tmp_path / "message"

    def log_too_much() -> None:
        with Run.open(run.path) as again:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
            try:
                again.log(1, {f"loss/{number}": 0.1 for number in range(50)})
            except RunError as error:
                message.write_text(str(error)[:99])

    assert in_child(log_too_much) == 0
    assert message.read_text().startswith("file size limit reached while writing ")
    assert run.metrics_path.read_bytes() == before
