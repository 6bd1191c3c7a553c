"""Every importer within 10 CPU seconds and 1 GB, whatever the file; the process that reads is bounded and replaced."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hostile_files import hostile_files, place
from hostile_parts import Made
from npz import save_npz

import mingce
from mingce.base.errors import ColumnError, DataError, MingceError, SettingError
from mingce.importers import open_dump, opening
from mingce.importers.limits import Refused

SECONDS, MEMORY = 10, 1 << 30
CANARY = "executed"
# seconds each, so not in every run of the tests
HEAVY = (
    "a run with a bomb of settings",
    "program of 15 million numbers in 30 KB.pt",
    "30 MB of empty lists.jsonl",
    "one row 100,000 times.pkl",
    "header of 15 MB of lists.safetensors",
    "a line of 500 MB.jsonl",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    return hostile_files(tmp_path_factory.mktemp("canary") / CANARY)


def check(folder: Path, names: list[str]) -> None:
    """Open the files in a program of its own: a sentence or a dump each, within the limits, and nothing is executed."""
    (folder / "files").mkdir()
    program = Path(__file__).with_name("hostile_files.py")
    # by way of a shell: a process counts the memory of the one it was forked from as its own
    command = ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, str(program), str(folder / "files"), *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    *lines, whole = map(json.loads, done.stdout.splitlines())
    assert [line["name"] for line in lines] == names
    assert whole["memory"] < MEMORY
    for line in lines:
        assert line["said"].isprintable(), line  # one line, nothing that steers a terminal
        assert 0 < len(line["said"]) < 1100, line
        assert line["seconds"] < SECONDS, line
        assert line["memory"] < MEMORY, line
        assert line["said"] != "opened" or not line["name"].startswith("calls "), line
    assert not (folder / CANARY).exists()


def test_hostile_files_of_every_format(tmp_path: Path, made: dict[str, Made]) -> None:
    assert len(made) > 400
    for kind in ("pkl", "pt", "npz", "safetensors", "jsonl", "parquet"):
        assert sum(name.endswith(f".{kind}") for name in made) >= 20
    check(tmp_path, [name for name in made if name not in HEAVY])


@pytest.mark.slow
def test_the_heaviest_hostile_files(tmp_path: Path) -> None:
    check(tmp_path, list(HEAVY))


# ── the bombs by name ────────────────────────────────────────────────────────────────────────────────────────────────

BOMBS = {
    "shared tuple as numpy.dtype.pkl": "a dtype that is not written as a short text",
    "shared tuple as numpy.dtype.pt": "a dtype that is not written as a short text",
    "shared tuple as codecs coding.pkl": "bytes are written as a tuple",
    "shared tuple as torch.device.pkl": "no dump",
    "nested storages.pkl": "storages in storages",
    "old torch of storages in storages.pt": "storages in storages",
    "one storage loaded 20,000 times.pkl": "the same storage many times",
    "20,000 lines with a new key each.jsonl": "more than 1,000 columns",
    "stride 0 in eight columns.pt": "MB of columns",
    "stride 0 in twelve float columns.pt": "MB of columns",
    "stride 0 in a list of rows.pt": "MB of columns",
    "overlapping tensors.safetensors": "share the same bytes",
    "overlap of one byte.safetensors": "share the same bytes",
    "nine columns of 99 MB in 100 KB.npz": "would unpack to",
    "uint8 of 42 MB in 40 KB.npz": "MB of columns",
    "texts of 60 MB in 60 KB.npz": "MB of columns",
    "overlapping members.npz": "over another file",
    "packed by bzip2.npz": "numpy and torch never use",
    "60 columns of a million equal numbers.parquet": "MB of columns",
    "a pipe": "a pipe, a socket or a device",
    "/dev/zero": "a pipe, a socket or a device",
    "a sparse 3 GB pickle": "were ever written",
    "sparse tensors": "were ever written",
    "ledger of width 100000000.parquet": "MB of columns",
}


@pytest.mark.parametrize("name", BOMBS)
def test_bomb(name: str, made: dict[str, Made], tmp_path: Path) -> None:
    path = place(tmp_path, name, made[name])
    with pytest.raises(MingceError) as error:
        open_dump(path)
    assert BOMBS[name] in str(error.value)


# ── the process that reads ───────────────────────────────────────────────────────────────────────────────────────────


def sound(path: Path, rows: int = 4, width: int = 6) -> Path:
    mask = np.ones((rows, width), np.int64)
    values = np.arange(rows * width, dtype=np.float32).reshape(rows, width)
    np.savez(
        path, response_mask=mask, values=values, prompt_ids=mask[:, :2], uid=np.array([f"u{i}" for i in range(rows)])
    )
    return path


SLOW = """
import mingce.importers.files as files

sound = files.read_dumps

def read_dumps(path, *arguments, **options):
    while "slow" in str(path):
        pass
    return sound(path, *arguments, **options)

files.read_dumps = read_dumps
"""


@pytest.fixture
def slow_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file whose reading ends only at the limit of time: what the reading process loads at its start sees to that."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SLOW)
    paths = [str(tmp_path / "site"), str(Path(mingce.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    opening._READER.stop()
    yield sound(tmp_path / "slow.npz")
    opening._READER.stop()


def test_what_is_handed_over_is_what_was_read(tmp_path: Path) -> None:
    dump = open_dump(sound(tmp_path / "x.npz"))[0]
    assert dump.columns["values"].dtype == np.float32
    assert np.array_equal(dump.columns["values"].ravel(), np.arange(24))
    assert dump.columns["response_mask"].dtype == bool
    assert dump.rows["prompt_ids"] == [[1, 1]] * 4
    assert dump.rows["uid"] == ["u0", "u1", "u2", "u3"]
    assert dump.stored["values"] == "float32"
    dump.columns["values"][0, 0] = 7  # a column is the caller's own
    assert open_dump(tmp_path / "x.npz")[0].columns["values"][0, 0] == 0


def test_relative_paths_follow_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        sound(tmp_path / name / "x.npz", rows=len(name) if name == "a" else 3)
        monkeypatch.chdir(tmp_path / name)
        assert open_dump(Path("x.npz"))[0].shape[0] == (1 if name == "a" else 3)
    with pytest.raises(DataError, match=r"no file or directory y\.npz"):
        open_dump(Path("y.npz"))


def test_nothing_is_imported_from_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("numpy", "yaml", "json", "mingce", "pyarrow"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / CANARY)!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    opening._READER.stop()
    assert open_dump(sound(tmp_path / "x.npz"))
    assert not (tmp_path / CANARY).exists()


def test_errors_keep_their_kind_and_place(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, response_mask=np.ones((2, 2)), values=np.ones((2, 3)))
    with pytest.raises(ColumnError) as error:
        open_dump(path)
    assert error.value.column == "values"
    sound(path)
    with pytest.raises(SettingError, match="gamma"):
        open_dump(path, settings={"gamma": "x"})
    with pytest.raises(SettingError, match="gamma"):
        open_dump(path, settings={"gamma": object()})


def test_a_reader_that_is_killed_is_replaced(tmp_path: Path) -> None:
    path = sound(tmp_path / "x.npz")
    open_dump(path)
    process = opening._READER._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert open_dump(path)


def test_a_reader_killed_at_work_is_a_sentence(slow_file: Path, tmp_path: Path) -> None:
    path = sound(tmp_path / "x.npz")
    open_dump(path)
    process = opening._READER._process
    assert process is not None
    timer = threading.Timer(1.0, os.killpg, (process.pid, signal.SIGKILL))
    timer.start()
    with pytest.raises(DataError, match="SIGKILL"):
        open_dump(slow_file)
    timer.join()
    assert open_dump(path)


def test_a_fork_that_crashes_is_a_sentence() -> None:
    assert "SIGSEGV" in str(opening._ended("x", -signal.SIGSEGV))
    assert isinstance(opening._ended("x", -signal.SIGXCPU), Refused)


def test_time_is_limited_and_the_limit_is_the_persons(slow_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINGCE_DUMP_LIMIT", "0.2")
    monkeypatch.setenv("MINGCE_LANG", "en")
    with pytest.raises(Refused, match=r"longer than a dump of its size is given.*MINGCE_DUMP_LIMIT=4"):
        open_dump(slow_file)
    for wrong in ("many", "nan", "-1", "0"):
        monkeypatch.setenv("MINGCE_DUMP_LIMIT", wrong)
        with pytest.raises(SettingError, match="MINGCE_DUMP_LIMIT"):
            open_dump(slow_file)


def test_memory_limit_is_the_persons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: dict[str, Made]) -> None:
    path = place(tmp_path, "stride 0 in twelve float columns.pt", made["stride 0 in twelve float columns.pt"])
    with pytest.raises(Refused, match="256 MB of columns"):
        open_dump(path)
    monkeypatch.setenv("MINGCE_DUMP_LIMIT", "2")
    with pytest.raises(Refused, match="512 MB of columns"):
        open_dump(path)


def test_the_language_is_the_persons(slow_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINGCE_DUMP_LIMIT", "0.2")
    monkeypatch.setenv("MINGCE_LANG", "zh")
    with pytest.raises(Refused, match="没有打开"):
        open_dump(slow_file)


def test_threads_open_dumps_at_once(tmp_path: Path) -> None:
    paths = [sound(tmp_path / f"{rows}.npz", rows=rows) for rows in range(1, 9)]
    shapes: dict[Path, int] = {}

    def work(path: Path) -> None:
        shapes[path] = open_dump(path)[0].shape[0]

    threads = [threading.Thread(target=work, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [shapes[path] for path in paths] == list(range(1, 9))


def test_interrupting_ends_the_reading(slow_file: Path, tmp_path: Path) -> None:
    code = f"from mingce.importers import open_dump, opening; print(flush=True); open_dump({str(slow_file)!r})"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"MINGCE_DUMP_LIMIT": "50"},
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=150)  # five minutes if the reading went on
    assert b"KeyboardInterrupt" in error


def test_a_mapping_that_is_a_pipe_or_a_bomb(tmp_path: Path) -> None:
    path = sound(tmp_path / "x.npz")
    mapping = tmp_path / "names.yaml"
    os.mkfifo(mapping)
    with pytest.raises(DataError, match="a pipe"):
        open_dump(path, mapping=mapping)
    mapping.unlink()
    lists = "\n".join(f"  a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30))
    mapping.write_text(f"settings:\n  a0: &a0 [x]\n{lists}\ncolumns: {{theirs: *a29, eos_id: *a29}}\n")
    with pytest.raises(DataError, match="has an anchor or alias"):
        open_dump(path, mapping=mapping)


@pytest.mark.slow
def test_a_large_honest_dump_opens(tmp_path: Path) -> None:
    rows, width = 4000, 1000
    draw = np.random.default_rng(0)
    names = ("values", "returns", "advantages", "rewards", "scores", "kl", "old_log_probs", "ref_log_probs", "entropy")
    columns = {name: draw.normal(size=(rows, width)).astype(np.float32) for name in names}
    mask = np.ones((rows, width), np.int8)
    save_npz(tmp_path / "x.npz", {"response_mask": mask, "token_ids": draw.integers(0, 9, (rows, width)), **columns})
    zeros = np.zeros((rows, width))  # packed a thousandfold, but not alone in the file
    np.savez_compressed(tmp_path / "y.npz", response_mask=mask, values=columns["values"], kl=zeros, rewards=zeros)
    assert open_dump(tmp_path / "x.npz")[0].shape == (rows, width)
    assert open_dump(tmp_path / "y.npz")[0].shape == (rows, width)
