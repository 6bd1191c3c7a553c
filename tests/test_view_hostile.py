"""Runs that nobody prepared: odd lines, odd files, too much of everything. The page goes on and says what it left."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_view_server import Client, served

import mingce
from mingce.base import reading
from mingce.record.run import Run
from mingce.record.tokens import TokenTexts
from mingce.sources import logs
from mingce.sources.library import Library
from mingce.sources.series import Part, Series
from mingce.sources.source import Damage
from mingce.view.api import Api
from mingce.view.step_index import Query
from mingce.view.together import Together

SETTINGS = {"steps": 9, "estimator": "gae", "model": {"path": "tiny"}}


def new_run(root: Path, name: str = "odd", lines: bytes = b"") -> Path:
    with Run.create(root, name, SETTINGS) as run:
        run.metrics_path.write_bytes(lines)
    return root / name


def shown(path: Path) -> dict[str, Any]:
    """The run as the real server answers, after the list of runs."""
    with served(Api(Library([path]))) as client:
        assert client.get("/api/runs").status == 200
        answer = client.get(f"/api/runs/{path.name}")
        assert answer.status == 200, answer.body
        found: dict[str, Any] = answer.json()
        return found


# ── odd lines ────────────────────────────────────────────────────────────────────────────────────────────────────────

ODD = {
    "infinite step": b'{"step": 1e999}',
    "infinite number": b'{"step": 5, "a": 1e999}',
    "bare NaN": b'{"step": 5, "a": NaN}',
    "bare infinity": b'{"step": Infinity}',
    "huge whole number": b'{"step": 5, "a": 1' + b"0" * 400 + b"}",
    "more digits than Python reads": b'{"step": 5, "a": ' + b"9" * 5000 + b"}",
    "huge step": b'{"step": 1' + b"0" * 30 + b"}",
    "nested": b'{"step": 5, "a": {"b": 1}}',
    "list": b'{"step": 5, "a": [1]}',
    "null": b'{"step": 5, "a": null}',
    "word": b'{"step": 5, "a": "many"}',
    "no step": b'{"a": 1}',
    "step is a text": b'{"step": "5"}',
    "step is true": b'{"step": true}',
    "step is a fraction": b'{"step": 4.5}',
    "negative": b'{"step": -1}',
    "twice": b'{"step": 4, "a": 2}',
    "backwards": b'{"step": 3, "a": 2}',
    "no mapping": b"[1, 2]",
    "no JSON": b"{broken",
    "empty": b"",
    "deep": b"[" * 100_000,
    "no UTF-8": b'{"step": 5, "\xff\xfe": 1}',
    "zeros": b"\0" * 5000,
    "UTF-16": '{"step": 5}'.encode("utf-16"),
    "long name": b'{"step": 5, "' + b"n" * 5000 + b'": 1}',
    "many names": b'{"step": 5, ' + b", ".join(b'"n%d": 1' % k for k in range(9000)) + b"}",
    "long line": b'{"step": 5, "a": "' + b"x" * (reading.MAX_LINE + 10) + b'"}',
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_line_is_skipped_counted_and_shown(tmp_path: Path, name: str) -> None:
    good = [b'{"step": %d, "a": 0.5, "critic/score/mean": "NaN"}' % step for step in (1, 2, 3, 4)]
    path = new_run(tmp_path, lines=b"\n".join([*good, ODD[name], b'{"step": 6, "a": 1}', b""]))
    found = shown(path)
    assert found["steps"] == [1, 2, 3, 4, 6]
    assert found["series"]["a"] == [0.5, 0.5, 0.5, 0.5, 1]
    assert found["skipped"] == [{"file": "metrics.jsonl", "count": 1, "lines": [5]}]
    assert "line 5 " in {one["file"]: one["why"] for one in found["damaged"]}["metrics.jsonl"]
    loaded = mingce.load_run(path)
    assert loaded.skipped() == {"metrics.jsonl": 1}
    assert list(loaded.metrics()["step"].to_numpy()) == [1, 2, 3, 4, 6]


@pytest.mark.parametrize("file", ["timings.jsonl", "audit.jsonl", "events.jsonl"])
@pytest.mark.parametrize(
    "line", [ODD["infinite step"], ODD["no UTF-8"], ODD["deep"], b'{"step": {}, "kind": 3}', b"[]"]
)
def test_so_is_one_of_the_other_logs(tmp_path: Path, file: str, line: bytes) -> None:
    path = new_run(tmp_path, lines=b'{"step": 1, "a": 1}\n')
    whole = b'{"step": 1, "kind": "restart", "why": "x", "findings": []}\n'
    whole = b'{"step": 1, "timing_s/step": 2.5}\n' if file == "timings.jsonl" else whole
    (path / file).write_bytes(line + b"\n" + whole)
    found = shown(path)
    assert found["skipped"] == [{"file": file, "count": 1, "lines": [1]}]
    assert found["series"].get("timing_s/step", [2.5]) == [2.5]
    assert len(found["events"]) == (0 if file == "timings.jsonl" else 1)


def test_many_odd_lines_are_counted_and_the_first_are_named(tmp_path: Path) -> None:
    path = new_run(tmp_path, lines=b"?\n" * 2000 + b'{"step": 7, "a": 1}\n')
    found = shown(path)
    assert found["steps"] == [7]
    assert found["skipped"] == [{"file": "metrics.jsonl", "count": 2000, "lines": [1, 2, 3, 4, 5]}]
    assert "2,000 lines" in found["damaged"][0]["why"]


def test_a_new_name_in_every_line_costs_little(tmp_path: Path) -> None:
    lines = b"".join(b'{"step": %d, "name%d": 1}\n' % (step, step) for step in range(50_000))
    found = shown(new_run(tmp_path, lines=lines))
    assert len(found["series"]) == logs.MAX_PARTS
    assert found["skipped"][0]["count"] == 50_000 - logs.MAX_PARTS
    assert len(json.dumps(found)) < 5e6


def test_a_log_that_grows_is_read_from_where_it_ended(tmp_path: Path) -> None:
    path = new_run(tmp_path, lines=b'{"step": 1, "a": 1}\n{"step": 2, "a"')
    log = logs.NumberLog(path / "metrics.jsonl")
    first = log.series()
    assert first.steps.tolist() == [1]
    assert log.series() is first
    with (path / "metrics.jsonl").open("ab") as file:
        file.write(b': 2}\n{"step": 3, "b": 3}\n')
    assert log.series().steps.tolist() == [1, 2, 3]
    assert log.series().column("b")[-1] == 3
    beside = path / "new"
    beside.write_bytes(b'{"step": 1, "a": 5}\n')
    beside.replace(path / "metrics.jsonl")
    assert log.series().column("a").tolist() == [5]


def test_a_sparse_file_of_a_terabyte_is_no_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs.Log.__init__, "__defaults__", (64 << 20,))
    path = new_run(tmp_path, lines=b'{"step": 1, "a": 1}\n')
    os.truncate(path / "metrics.jsonl", 1 << 40)
    found = shown(path)
    assert found["steps"] == [1]
    assert "only its first" in found["damaged"][0]["why"]


# ── files that are no files ──────────────────────────────────────────────────────────────────────────────────────────

NAMES = ["lock", "metrics.jsonl", "timings.jsonl", "audit.jsonl", "events.jsonl", "ledger/step-000001.parquet"]


def make_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # its name must be short
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(here)


MADE: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "socket": make_socket,
    "directory": Path.mkdir,
    "zeros without end": lambda path: path.symlink_to("/dev/zero"),
    "standard input": lambda path: path.symlink_to("/dev/stdin"),
    "link to nowhere": lambda path: path.symlink_to("nowhere"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "link out of the run": lambda path: path.symlink_to("/etc/passwd"),
}


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path, name: str, kind: str) -> None:
    path = new_run(tmp_path, lines=b'{"step": 1, "a": 1}\n')
    (path / name).unlink(missing_ok=True)
    MADE[kind](path / name)
    found = shown(path)
    assert found["status"] == "stopped"
    assert found["ledger_steps"] == []
    assert found["steps"] == ([] if name == "metrics.jsonl" else [1])
    if name != "lock":
        assert name in [one["file"] for one in found["damaged"]]
    assert "root:" not in json.dumps(found)


@pytest.mark.parametrize("kind", MADE)
def test_so_are_settings_that_are_none(tmp_path: Path, kind: str) -> None:
    """A directory without a regular config.yaml is no run; one whose file is replaced later shows what it had."""
    path = new_run(tmp_path / "runs", lines=b'{"step": 1, "a": 1}\n')
    api = Api(Library([tmp_path / "runs"]))
    assert api.runs()[0].estimator == "gae"
    (path / "config.yaml").unlink()
    MADE[kind](path / "config.yaml")
    assert api.run("odd").config["estimator"] == "gae"
    assert [one.file for one in api.run("odd").damaged] == ["config.yaml"]


@pytest.mark.xdist_group("permissions")  # of directories above the tests' own
def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    path = new_run(tmp_path, lines=b'{"step": 1, "a": 1}\n')
    (path / "events.jsonl").write_text("")
    write_step(path, 4)
    for file in ("events.jsonl", "ledger/step-000001.parquet"):
        (path / file).chmod(0)
    api, me = Api(Library([path])), os.geteuid()
    for parent in (path, *(place for place in path.parents if len(place.parts) > 2)):
        parent.chmod(0o755)
    try:
        if me == 0:
            os.seteuid(65534)  # root may read anything
        run = api.run("odd")
    finally:
        os.seteuid(me)
    assert run.steps == [1]
    why = "Permission denied"
    assert run.damaged == [Damage(file, why) for file in ("events.jsonl", "ledger/step-000001.parquet")]


# ── many ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_long_curve_keeps_its_spikes() -> None:
    values = np.zeros(100_000)
    values[[31_416, 77_777]] = 9.0, -9.0
    lines = Series(np.arange(100_000), [Part(("a",), np.arange(100_000), values[:, None])])
    found = lines.curves(2000)
    assert len(found["steps"]) == len(found["series"]["a"]) <= 2002
    assert (max(filter(None, found["series"]["a"])), min(filter(None, found["series"]["a"]))) == (9.0, -9.0)
    place = found["series"]["a"].index(9.0)
    assert abs(found["steps"][place] - 31_416) <= found["every"]
    assert found["steps"][-1] == 99_999
    assert found["steps"] == sorted(set(found["steps"]))
    near = lines.curves(2000, 31_400, 31_500)
    assert near["every"] == 1
    assert near["series"]["a"][16] == 9.0


def test_who_asks_at_the_same_time_shares_an_answer() -> None:
    made = 0

    def make() -> int:
        nonlocal made
        made += 1
        time.sleep(0.05)
        return made

    async def ask() -> list[int]:
        together: Together[int] = Together(4)
        first = [asyncio.create_task(together.answer("q", make)) for _ in range(50)]
        await asyncio.sleep(0.02)
        later = [asyncio.create_task(together.answer("q", make)) for _ in range(50)]
        later[7].cancel()  # someone goes away, the others still get theirs
        await asyncio.gather(*first, *(task for k, task in enumerate(later) if k != 7))
        return [task.result() for task in (first[0], first[49], later[0], later[49])]

    assert asyncio.run(ask()) == [1, 1, 2, 2]
    assert made == 2


def test_a_mistake_is_told_to_all_who_share_it() -> None:
    async def ask() -> list[object]:
        together: Together[int] = Together(4)
        return await asyncio.gather(*(together.answer("q", lambda: 1 // 0) for _ in range(3)), return_exceptions=True)

    assert [type(found) for found in asyncio.run(ask())] == [ZeroDivisionError] * 3


def test_two_hundred_at_once_beside_a_long_run(tmp_path: Path) -> None:
    """Twenty thousand steps here; memory is what counts, for seconds depend on the machine."""
    rng = np.random.default_rng(0)
    names = [f"group{k % 6}/metric{k}" for k in range(30)]
    rows = rng.random((20_000, 30)).round(6).tolist()
    lines = "".join(json.dumps({"step": s} | dict(zip(names, row, strict=True))) + "\n" for s, row in enumerate(rows))
    path = new_run(tmp_path, lines=lines.encode())
    command = [sys.executable, "-m", "mingce.cli", "view", str(path), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline().rstrip("/\n ").rpartition(":")[2])
        sizes: list[int] = []

        def ask() -> None:
            answer = Client(port).get("/api/runs/odd")
            assert answer.status == 200
            sizes.append(len(answer.body))

        Client(port).get("/api/runs")
        threads = [threading.Thread(target=ask) for _ in range(200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        used = Path(f"/proc/{server.pid}/status")
        peak = used.read_text().partition("VmHWM:")[2].split()[0] if used.exists() else "0"
        server.terminate()
    assert len(sizes) == 200
    assert max(sizes) < 2e6
    assert int(peak) < 400_000


def test_a_thousand_runs_are_listed_page_by_page(tmp_path: Path) -> None:
    for k in range(450):
        (tmp_path / f"r{k}").mkdir()
        (tmp_path / f"r{k}" / "config.yaml").write_text("steps: 1\n")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "again").symlink_to("r1")
    with served(Api(Library([tmp_path]))) as client:
        pages = [client.get(f"/api/runs?offset={offset}").json() for offset in (0, 200, 400, 600)]
    assert [len(page) for page in pages] == [200, 200, 50, 0]
    assert len({run["id"] for page in pages for run in page}) == 450


@pytest.mark.parametrize(
    "path",
    [
        "/api/runs?offset=-1", "/api/runs?offset=1e999", "/api/runs?offset=٣", f"/api/runs?offset={'9' * 5000}",
        "/api/runs/odd?from=NaN", "/api/runs/odd?to=-1", "/api/runs/odd/audit?step=1e999", "/api/runs/odd/steps/1e999",
        f"/api/runs/odd/steps/{'9' * 5000}", "/api/runs/odd/steps/-1", "/api/runs/odd/steps/٣",
        f"/api/runs/odd/steps/1/rollouts/{'9' * 30}", "/api/runs/odd/steps/1/rollouts/-1",
        "/api/runs/odd/steps/1?limit=x", "/api/runs/odd/steps/1?like=-1", f"/api/runs/{'a' * 20000}", "/api/runs/%00",
        "/api/runs/%ff%fe", "/api/runs/odd/through?step=1e9", "/api/runs/odd/through?row=99999999999",
    ],
)  # fmt: skip
def test_odd_questions_are_answered_with_a_sentence(tmp_path: Path, path: str) -> None:
    run = new_run(tmp_path, lines=b'{"step": 1, "a": 1}\n')
    write_step(run, 4)
    with served(Api(Library([run]))) as client:
        answer = client.get(quote(path, safe="/?=&%"))
        assert answer.status in (400, 404, 422), answer.body
        assert answer.body.startswith((b'{"error":', b"Invalid HTTP request", b"Request-URI")) or len(path) > 10_000


# ── ledgers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def write_step(run: Path, size: int, step: int = 1, tokens: int = 3, **other: Any) -> None:
    """A ledger of `size` rollouts, groups of four, written as Parquet; `other` columns replace the usual."""
    offsets = pa.array(np.arange(0, size * tokens + 1, tokens, dtype=np.int32))
    rng = np.random.default_rng(step)

    def column(values: Any) -> pa.Array:
        return pa.ListArray.from_arrays(offsets, pa.array(values))

    numbers = {
        name: column(rng.normal(size=size * tokens).astype(np.float32)) for name in ("kl", "advantages", "ratio")
    }
    ones = np.ones(size * tokens, dtype=bool)
    scores = np.zeros(size * tokens, dtype=np.float32)
    scores[tokens - 1 :: tokens] = rng.random(size)
    columns = {
        "uid": [f"{step}-{row}" for row in range(size)], "group": [f"g{row // 4}" for row in range(size)],
        "prompt": [f"prompt {row // 4}" for row in range(size)], "response": [f"Response {row}" for row in range(size)],
        "finish_reason": ["length" if row % 5 == 0 else "stop" for row in range(size)],
        "score_parts": [json.dumps({"correct": row % 2}) for row in range(size)],
        "token_ids": column(np.arange(size * tokens) % 40), "response_mask": column(ones),
        "attention_mask": column(ones), "scores": column(scores), "rewards": column(scores), **numbers, **other,
    }  # fmt: skip
    about = {"mingce.format": "1", "mingce.step": str(step), "mingce.width": str(tokens)}
    kept = {name: values for name, values in columns.items() if values is not None}
    table = pa.table(kept).replace_schema_metadata(about)
    pq.write_table(table, run / "ledger" / f"step-{step:06d}.parquet", row_group_size=64, compression="zstd")


def test_a_step_is_given_a_screenful_at_a_time(tmp_path: Path) -> None:
    run = new_run(tmp_path, lines=b'{"step": 1, "a": 1}\n')
    write_step(run, 3000)
    with served(Api(Library([run]))) as client:
        answer = client.get("/api/runs/odd/steps/1")
        step = answer.json()
        assert (step["total"], step["shown"], len(step["rollouts"])) == (3000, 3000, 100)
        assert len(answer.body) < 100_000
        assert step["parts"] == ["correct"]
        assert step["histograms"] is None  # the others were not read yet
        whole = client.get("/api/runs/odd/steps/1?whole=1").json()
        assert sum(whole["histograms"]["advantages"]["counts"]) == 9000
        assert whole["endings"] == ["length", "stop"]
        unmarked = [line | {"best": False, "worst": False} for line in whole["rollouts"]]
        assert unmarked == step["rollouts"]

        def table(query: str) -> tuple[int, list[dict[str, Any]]]:
            found = client.get(f"/api/runs/odd/steps/1/rollouts?{query}").json()
            return found["shown"], found["rollouts"]

        scores = np.array([line["score"] for at in range(0, 3000, 500) for line in table(f"offset={at}&limit=500")[1]])
        order = np.argsort(-scores, kind="stable")
        _, lines = table("sort=score&down=1&offset=1000&limit=50")
        assert [line["row"] for line in lines] == order[1000:1050].tolist()
        count, lines = table(f"search={quote('RESPONSE 299')}")
        assert (count, {line["row"] for line in lines}) == (11, {299, *range(2990, 3000)})
        assert table("search=1-77")[0] == 1
        assert table("finish=length")[0] == 600
        assert table("like=402")[1][0]["group"] == "g100"
        assert table("like=402")[0] == 4
        count, lines = table("extreme=best&limit=500")
        assert count == 750
        assert all(line["score"] == scores[line["row"] // 4 * 4 :][:4].max() for line in lines)
        assert table("sort=part:correct&down=1")[1][0]["parts"] == {"correct": 1}
        assert table("offset=99999") == (3000, [])
        assert len(table("limit=99999")[1]) == 500
        assert table("sort=nothing")[1][0]["row"] == 0


def test_the_index_of_a_step_follows_its_file(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    write_step(run, 8)
    api = Api(Library([run]))
    assert api.step("odd", 1).total == 8
    write_step(run, 12)
    assert api.step("odd", 1).total == 12
    found, rows = api.spread("odd", 1, 3)
    assert len(found.rollouts) == len(rows) == 3
    by_score = sorted(api.table("odd", 1, Query()).rollouts, key=lambda line: float(line.score or 0))
    assert {by_score[0].row, by_score[-1].row} <= set(rows)


STRINGS = pa.array([["a"] * 3] * 8)
WRONG: dict[str, dict[str, Any]] = {
    "texts for numbers": {"scores": STRINGS},
    "a number for a list": {"advantages": pa.array([1.0] * 8)},
    "rows without a list": {"advantages": pa.array([None] * 8, pa.list_(pa.float32()))},
    "lists of other lengths": {"scores": pa.array([[1.0]] * 8)},
    "numbers for texts": {"prompt": pa.array([1] * 8)},
    "parts that are no JSON": {"score_parts": ["{"] * 8},
    "parts that are nested": {"score_parts": [json.dumps({"a": {"b": 1}, "c": "x"})] * 8},
    "no mask": {"response_mask": None},
    "no texts": {"prompt": None, "response": None, "uid": None, "group": None, "finish_reason": None},
    "unknown columns": {"nobody": pa.array([1] * 8)},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_ledger_of_other_columns_is_a_sentence(tmp_path: Path, name: str) -> None:
    run = new_run(tmp_path, lines=b'{"step": 1, "a": 1}\n')
    write_step(run, 8, **WRONG[name])
    with served(Api(Library([run]))) as client:
        for path in ("steps/1", "steps/1/rollouts?search=x&sort=score", "steps/1/rollouts/3", "through"):
            answer = client.get(f"/api/runs/odd/{path}")
            assert answer.status in (200, 404, 422), (path, answer.body)
        assert client.get("/api/runs/odd").status == 200


def test_a_rollout_of_a_million_tokens_is_cut(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    write_step(run, 2, tokens=1_000_000)
    api = Api(Library([run]))
    found = api.rollout("odd", 1, 1)
    assert found.more_tokens
    assert len(found.tokens) == len(found.columns["advantages"]) == 50_000
    assert api.step("odd", 1).rollouts[0].length == 1_000_000
    assert api.through("odd", 1, 0).answers


def numbers_without_end() -> dict[str, Any]:
    zeros = np.zeros(1 << 27, dtype=np.float32)
    offsets = pa.array(np.array([0, *[len(zeros)] * 4], dtype=np.int32))
    return {"advantages": pa.ListArray.from_arrays(offsets, pa.array(zeros))}


def texts_without_end() -> dict[str, Any]:
    """A megabyte, two thousand times: two gigabytes in a file of two kilobytes."""
    return {"prompt": pa.DictionaryArray.from_arrays(pa.array([0] * 2000, pa.int32()), pa.array(["x" * (1 << 20)]))}


def plant(run: Path, columns: dict[str, Any], *, step: int = 1, types: bool = False) -> Path:
    """A ledger of a few kilobytes that unpacks to gigabytes; with `types`, only once it is Python's."""
    size = len(next(iter(columns.values())))
    mask = pa.array([[True]] * size)
    about = {"mingce.format": "1", "mingce.step": str(step), "mingce.width": "3"}
    table = pa.table({"response_mask": mask, "attention_mask": mask, **columns}).replace_schema_metadata(about)
    path = run / "ledger" / f"step-{step:06d}.parquet"
    with pq.ParquetWriter(path, table.schema, compression="zstd", store_schema=types) as file:
        file.write_table(table, row_group_size=size)
        file.add_key_value_metadata({} if types else about)
    assert path.stat().st_size < 1 << 20
    return path


EVERY_READER = """
import resource, sys
from pathlib import Path
from typer.testing import CliRunner
from test_view_server import served
import mingce
from mingce.cli import app
from mingce.base.errors import MingceError
from mingce.view.api import Api
from mingce.sources.library import Library

def attempt(read):
    try:
        return read()
    except MingceError as error:
        return error

resource.setrlimit(resource.RLIMIT_DATA, (1 << 30,) * 2)
for number, run in enumerate(map(Path, sys.argv[2:])):
    print("next run")
    with served(Api(Library([run]))) as client:
        for asked in ("", "/rollouts?search=x", "/rollouts/0"):
            print("page", client.get(f"/api/runs/odd/steps/1{asked}").body)
        print("damaged", client.get("/api/runs/odd").json()["damaged"])
    out = f"{sys.argv[1]}/{number}.html"
    for command in (["view", str(run), "--export", out], ["explain", str(run)], ["verify", str(run)]):
        done = CliRunner().invoke(app, command, env={"COLUMNS": "1000"})
        print(command[0], done.stdout, done.exception)
    loaded = mingce.load_run(run)
    for read in (loaded.rollouts, loaded.tokens, lambda step: loaded.rollout(step, 0)):
        print("load_run", attempt(lambda: read(1)))
"""


BOMBS = {"numbers": "MB", "texts": "MB", "types": "is dictionary<"}


@pytest.fixture(scope="module")
def read_by_all(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What every reader says of each bomb, one after the other in a process of its own."""
    runs = {bomb: new_run(tmp_path_factory.mktemp(bomb), lines=b'{"step": 1, "a": 1}\n') for bomb in BOMBS}
    for bomb, run in runs.items():
        plant(run, numbers_without_end() if bomb == "numbers" else texts_without_end(), types=bomb == "types")
    done = subprocess.run(
        [sys.executable, "-c", EVERY_READER, str(tmp_path_factory.mktemp("out")), *map(str, runs.values())],
        capture_output=True, text=True, timeout=300, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-1500:]
    return dict(zip(runs, (part.splitlines() for part in done.stdout.split("next run\n")[1:]), strict=True))


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_ledger_that_unpacks_to_gigabytes_is_refused(read_by_all: dict[str, list[str]], bomb: str) -> None:
    lines = [line for line in read_by_all[bomb] if line.partition(" ")[0] in WORDS_OF_READERS]
    assert len(lines) == 10, read_by_all[bomb]
    for line in lines:
        assert "step-000001.parquet" in line, line
        assert BOMBS[bomb] in line, line


WORDS_OF_READERS = ("page", "damaged", "view", "explain", "verify", "load_run")


@pytest.mark.parametrize(
    ("pattern", "content", "shown"),
    [({"String": "a"}, "a" * 1000, "a"), ({"Regex": "x*"}, "a", "a"), ({"String": "a"}, "b", "b")],
)
def test_a_tokenizer_of_a_stranger_makes_no_text_longer(
    tmp_path: Path, pattern: dict[str, str], content: str, shown: str
) -> None:
    step = {"type": "Replace", "pattern": pattern, "content": content}
    parts: dict[str, Any] = {
        "version": "1.0", "added_tokens": [], "decoder": {"type": "Sequence", "decoders": [step] * 3},
        "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"},
    }  # fmt: skip
    empty = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor"))
    (tmp_path / "tokenizer.json").write_text(json.dumps(empty | parts))
    texts = TokenTexts(tmp_path / "tokenizer.json")
    assert texts.known
    assert texts.tokens([0])[0].text == shown


def test_a_refused_ledger_hides_no_other(tmp_path: Path) -> None:
    run = new_run(tmp_path, lines=b'{"step": 1, "a": 1}\n{"step": 2, "a": 1}\n')
    write_step(run, 8)
    plant(run, texts_without_end(), step=2)
    with served(Api(Library([run]))) as client:
        assert client.get("/api/runs/odd/through").status == 200
        assert client.get("/api/runs/odd/steps/2").status == 422
        assert client.get("/api/runs/odd/steps/1").status == 200
        assert [one["file"] for one in client.get("/api/runs/odd").json()["damaged"]] == ["ledger/step-000002.parquet"]


def test_a_run_that_is_deleted_while_it_is_looked_at(tmp_path: Path) -> None:
    run = new_run(tmp_path, lines=b'{"step": 1, "a": 1}\n')
    write_step(run, 8)
    with served(Api(Library([tmp_path]))) as client:
        assert client.get("/api/runs/odd/steps/1").status == 200
        shutil.rmtree(run)
        for path in ("", "/steps/1", "/steps/1/rollouts/0", "/through", "/audit", "/events"):
            assert client.get(f"/api/runs/odd{path}").status == 404, path
        assert client.get("/api/runs").json() == []


def test_events_of_a_run_are_given_the_newest_of_too_many(tmp_path: Path) -> None:
    path = new_run(tmp_path, lines=b'{"step": 1, "a": 1}\n')
    with Run.open(path) as run:
        for step in range(300):
            run.log_event(step, "no-learning", "<b>all scores are equal</b>" + "x" * 5000)
    events = shown(path)["events"]
    assert [event["step"] for event in events] == list(range(100, 300))
    assert events[0]["why"].startswith("<b>all scores")
    assert len(events[0]["why"]) == logs.MAX_WHY


def test_clients_that_go_away_or_dawdle_hold_nobody_up(tmp_path: Path) -> None:
    lines = b"".join(b'{"step": %d, "a": %d, "b": 1, "c": 2, "d": 3}\n' % (step, step) for step in range(5000))
    run = new_run(tmp_path, lines=lines)
    with served(Api(Library([run]))) as client:
        idle = []
        for _ in range(60):
            connection = socket.create_connection(("127.0.0.1", client.port))
            host = f"127.0.0.1:{client.port}"
            connection.sendall(f"GET /api/runs/odd HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            idle.append(connection)  # reads nothing
        for connection in idle[:30]:
            connection.close()
        began = http.client.HTTPConnection("127.0.0.1", client.port, timeout=120)
        began.connect()
        began.sock.sendall(b"GET /api/ru")  # never goes on
        assert client.get("/api/runs/odd").status == 200
        for connection in idle[30:]:
            connection.close()
        began.close()


def test_the_page_begins_in_the_persons_language(tmp_path: Path) -> None:
    run = new_run(tmp_path, lines=b'{"step": 1, "a": 1}\n')
    for lang in ("zh", "en"):
        with served(Api(Library([run])), lang=lang) as client:
            assert f'<meta name="mingce-lang" content="{lang}">'.encode() in client.get("/").body
    with served(Api(Library([run]))) as client:
        assert b"mingce-lang" not in client.get("/").body
