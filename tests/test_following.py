"""Directories that a trainer is writing: files half written, cut, gone, hostile; shards; streams; audit and page."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from dump_batches import B, lines, nemo_records, slime_gathered, slime_rank, trace_updates, verifiers_episode
from npz import save_npz
from playwright.sync_api import Browser, expect
from rich.console import Console
from test_audit_command import batch
from test_view_page import Tab, browser  # noqa: F401
from test_view_server import served

from mingce.base.errors import DataError, SettingError
from mingce.commands import audit as command
from mingce.commands import view as view_command
from mingce.commands.audit_follow import Following
from mingce.importers import streams
from mingce.importers.following import Arrival, Follower
from mingce.sources import followed
from mingce.sources.followed import FollowedSource
from mingce.sources.library import Library
from mingce.view.api import Api

MINGCE = str(Path(sys.executable).with_name("mingce"))


class Clock:
    """Time that passes when it is told to; files are as old as their age in it."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds


def follower(path: Path, clock: Clock, **more: Any) -> Follower:
    return Follower(path, settled=1.0, patience=10.0, clock=clock, wall=clock, **more)


def polled(found: Follower) -> list[Arrival]:
    return list(found.poll())


def settled(found: Follower, clock: Clock, seconds: float = 2.0) -> list[Arrival]:
    """What is read of that which has just changed."""
    before = polled(found)
    clock.pass_(seconds)
    return before + polled(found)


def saved(path: Path, step: int, sign: float = -1.0) -> Path:
    path.mkdir(exist_ok=True)
    save_npz(path / f"step_{step}.npz", batch(sign, seed=step, rows=8, width=12))
    return path / f"step_{step}.npz"


def until(true: Callable[[], Any], seconds: float = 120.0) -> None:
    """Wait for something that a thread does."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_step_is_read_once_it_is_whole_and_again_when_it_changes(tmp_path: Path) -> None:
    clock = Clock()
    found = follower(tmp_path, clock)
    assert polled(found) == []
    whole = saved(tmp_path, 1).read_bytes()
    place = tmp_path / "step_2.npz"
    place.write_bytes(whole[: len(whole) // 2])
    assert polled(found) == []  # it may be changing
    assert found.waiting()
    clock.pass_(2)
    (first,) = polled(found)
    assert (first.key, first.dumps[0].step, first.problem) == ((1, ""), 1, None)
    clock.pass_(2)
    assert polled(found) == []  # the second cannot be read, so it is half written
    place.write_bytes(whole)
    (second,) = settled(found, clock)
    assert (second.dumps[0].step, second.again) == (2, False)
    save_npz(place, batch(seed=9, rows=5, width=12))
    (again,) = settled(found, clock)
    assert (again.dumps[0].shape[0], again.again) == (5, True)
    assert not found.waiting()


def test_what_cannot_be_read_is_told_once_and_what_is_no_dump_never(tmp_path: Path) -> None:
    clock = Clock()
    found = follower(tmp_path, clock)
    (tmp_path / "step_1.npz").write_bytes(b"PK\x03\x04" + bytes(40))
    (tmp_path / "step_2.jsonl").write_text('{"token_ids": [[1, 2')
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "config.json").write_text('{"lr": 1}')
    (tmp_path / "step_3.pt.tmp").write_bytes(b"x")
    os.mkfifo(tmp_path / "step_4.npz")
    (tmp_path / "step_5.npz").symlink_to("/dev/zero")
    with (tmp_path / "step_6.npz").open("wb") as hole:
        hole.write(b"PK\x03\x04")
        hole.truncate(1 << 36)
    told = []
    for _ in range(6):
        told += polled(found)
        clock.pass_(11)
    assert sorted(one.key[0] for one in told) == [1, 2, 6]
    assert all(one.problem and not one.dumps for one in told)
    assert not found.waiting()


def test_files_that_go_are_forgotten_and_one_of_the_same_name_is_new(tmp_path: Path) -> None:
    clock = Clock()
    found = follower(tmp_path, clock)
    saved(tmp_path, 1)
    clock.pass_(5)
    assert len(polled(found)) == 1  # it lay there before
    (tmp_path / "step_1.npz").unlink()
    assert (polled(found), found.keys()) == ([], set())
    saved(tmp_path, 1)
    (arrival,) = settled(found, clock)
    assert not arrival.again
    shutil.rmtree(tmp_path)
    assert polled(found) == []


def test_shards_of_a_step_are_waited_for_and_read_together(tmp_path: Path) -> None:
    clock = Clock()
    found = follower(tmp_path, clock)
    for step, rank in ((4, 0), (4, 1), (5, 0)):
        (tmp_path / f"step_{step}").mkdir(exist_ok=True)
        torch.save(slime_rank(rank, step), tmp_path / f"step_{step}" / f"rank{rank}.pt")
    polled(found)
    clock.pass_(2)
    (first,) = (one for one in found.poll() if one.key[0] == 4)
    assert (first.dumps[0].step, first.dumps[0].shape[0]) == (4, 2 * B)
    assert settled(found, clock) == []
    torch.save(slime_rank(1, 5), tmp_path / "step_5" / "rank1.pt")
    (second,) = settled(found, clock)
    assert (second.dumps[0].step, second.dumps[0].shape[0]) == (5, 2 * B)


def test_both_sides_of_slime_become_one_step(tmp_path: Path) -> None:
    clock = Clock()
    found = follower(tmp_path, clock)
    gathered = slime_gathered()
    samples = [
        {"index": one["sample_index"], "group_index": 0, "tokens": one["tokens"].tolist(), "prompt": "p",
         "response": f"r{at}", "response_length": one["response_lengths"], "reward": 1.0, "loss_mask": None,
         "rollout_log_probs": None, "status": "completed"}
        for at, one in enumerate(gathered["samples"])
    ]  # fmt: skip
    for folder, data in (("rollout_data", {"rollout_id": 4, "samples": samples}), ("train_data", gathered)):
        (tmp_path / folder).mkdir()
        torch.save(data, tmp_path / folder / "4.pt")
        (arrival,) = settled(found, clock)
        (dump,) = arrival.dumps
        assert (dump.source, dump.step) == ("slime", 4)
        assert ("advantages" in dump.columns, arrival.again) == (
            (True, True) if folder == "train_data" else (False,) * 2
        )
    assert dump.rows["response"] == [f"r{at}" for at in range(2 * B)]


def test_nemo_rl_and_growing_lines(tmp_path: Path) -> None:
    clock = Clock()
    found = follower(tmp_path, clock)
    lines(tmp_path / "train_data_step3.jsonl", nemo_records())
    lines(tmp_path / "val_data_step3.jsonl", [{"content": ["text"], "rewards": [1.0]}])
    text = (tmp_path / "train_data_step3.jsonl").read_text()
    with (tmp_path / "train_data_step4.jsonl").open("w") as file:
        file.write(text[: len(text) // 2])
    polled(found)
    clock.pass_(2)
    (third,) = polled(found)
    assert (third.dumps[0].source, third.dumps[0].step) == ("nemo_rl", 3)
    (tmp_path / "train_data_step4.jsonl").write_text(text)
    (fourth,) = settled(found, clock)
    assert fourth.dumps[0].shape[0] == B


# ── streams of traces ────────────────────────────────────────────────────────────────────────────────────────────────


def append(path: Path, record: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")


def ship(home: Path, row: int, step: int, *, trained: bool = True) -> None:
    orchestrated, annotated = trace_updates(row, step)
    append(home / "annotations/orch/00000.jsonl", orchestrated)
    if trained:
        append(home / "annotations/trainer/00000.jsonl", annotated)


def test_a_stream_gives_its_steps_as_the_trainer_writes_about_them(tmp_path: Path) -> None:
    clock, home = Clock(), tmp_path / "monitors/file/traces"
    found = follower(tmp_path, clock)
    assert polled(found) == []
    for row in range(B):
        append(home / "stream/00000.jsonl", verifiers_episode(row))
    assert settled(found, clock) == []  # nobody has trained on them
    ship(home, 0, 1)
    ship(home, 1, 1)
    (home / "annotations/orch/00000.jsonl").open("a").write('{"trace_id": "tr')  # being written
    (first,) = settled(found, clock)
    assert (first.dumps[0].step, first.dumps[0].rows["uid"]) == (1, ["train0/0", "train1/0"])
    assert {"old_log_probs", "rollout_log_probs", "advantages"} <= first.dumps[0].columns.keys()

    path = home / "annotations/orch/00000.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))  # the same bytes up to the torn line
    ship(home, 2, 2, trained=False)
    assert settled(found, clock) == []  # its trainer has not written yet
    append(home / "annotations/trainer/00000.jsonl", trace_updates(2, 2)[1])
    (second,) = settled(found, clock)
    assert (second.dumps[0].step, second.dumps[0].rows["uid"], second.again) == (2, ["train2/0"], False)

    with pa.output_stream(str(home / "stream/00000.jsonl.zst"), compression="zstd") as file:
        file.write((home / "stream/00000.jsonl").read_bytes())
    (home / "stream/00000.jsonl").unlink()  # the chunk is full
    ship(home, 3, 3)
    (third,) = settled(found, clock)
    assert third.dumps[0].rows["uid"] == ["train3/0"]
    assert found.open(first.found)[0].rows["uid"] == ["train0/0", "train1/0"]


def test_a_long_stream_stays_within_bounds_and_a_replaced_one_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MOST_TRACES", 3)
    home = tmp_path / "traces"
    index = streams.StreamIndex(home)
    for row in range(B):
        append(home / "stream/00000.jsonl", verifiers_episode(row))
        ship(home, row, row)
        index.refresh()
    assert sorted(index.steps()) == [1, 2, 3]
    assert len(index.lines(3)) == 3
    assert index.lines(0) == []
    (home / "stream/00000.jsonl").write_text("not json\n[1]\n" + json.dumps(verifiers_episode(3)) + "\n")
    for _ in range(2):
        index.refresh()
    assert 3 in index.steps()


# ── the audit ────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def writing(path: Path, steps: list[tuple[int, float]]) -> Iterator[threading.Thread]:
    """A thread that writes steps in pieces, as a trainer's file system shows them."""

    def work() -> None:
        for step, sign in steps:
            made = io.BytesIO()
            save_npz(made, batch(sign, seed=step, rows=8, width=12))
            data = made.getvalue()
            with (path / f"step_{step}.npz").open("wb") as file:
                for begin in range(0, len(data), 2000):
                    file.write(data[begin : begin + 2000])
                    file.flush()
                    time.sleep(0.005)

    thread = threading.Thread(target=work)
    thread.start()
    yield thread
    thread.join()


def test_audit_follows_a_trainer_and_ends_by_its_verdict(tmp_path: Path) -> None:
    for sign, code in ((-1.0, 0), (1.0, 1)):
        place = tmp_path / f"run{code}"
        place.mkdir()
        words = [MINGCE, "audit", str(place), "--follow", "--until-idle", "3", "--lang", "en"]
        with writing(place, [(1, -1.0), (2, sign), (3, sign)]):
            done = subprocess.run(words, capture_output=True, text=True, timeout=300)
        assert done.returncode == code, done.stdout + done.stderr
        for step in (1, 2, 3):
            assert f"step {step}" in done.stdout
        assert ("BUG" in done.stdout) == bool(code)


def test_ctrl_c_sums_up(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    words = [MINGCE, "audit", str(tmp_path), "--follow", "--lang", "en", "--out", str(tmp_path / "report.json")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        until(lambda: "step 1" in str(process.stdout and process.stdout.readline()))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    assert process.returncode == 0
    assert json.loads((tmp_path / "report.json").read_text())["reports"][0]["step"] == 1


def test_what_is_wrong_with_following_is_one_sentence(tmp_path: Path) -> None:
    console = Console(file=io.StringIO())
    with pytest.raises(SettingError, match="--model"):
        command.run(console, [tmp_path], follow=True, model=tmp_path, lang="en")
    with pytest.raises(SettingError, match="--follow"):
        command.run(console, [tmp_path], until_idle=1.0, lang="en")
    with pytest.raises(DataError, match="no dump"):
        command.run(console, [tmp_path / "never"], follow=True, until_idle=0.0, lang="en")
    with pytest.raises(SettingError, match="--export"):
        view_command.run(console, [tmp_path], follow=True, export=tmp_path / "x.html", lang="en")


def test_reports_of_a_long_run_are_bounded_and_a_bug_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mingce.commands.audit_follow.MOST_REPORTS", 2)
    monkeypatch.setattr("mingce.commands.audit_follow.MOST_STEPS", 2)
    for step in range(4):
        saved(tmp_path, step, sign=1.0 if step == 1 else -1.0)
    out = io.StringIO()
    following = Following(Console(file=out, width=200), "en")
    for arrival in Follower(tmp_path, settled=0).poll():
        following.take(0, arrival)
    audited = following.audited()
    assert [report.step for report in audited.reports] == [1, 3]
    assert audited.exit_code == 1
    assert following.dropped == 2
    assert out.getvalue().count("KL") >= 1


# ── the page ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_page_gets_steps_while_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed, "POLL", 0.05)
    monkeypatch.setattr(followed, "KEPT", 1)
    api = Api(Library([tmp_path], follow=True))
    (run,) = api.runs()
    assert (run.status, run.steps) == ("training", 0)
    source = api.library.source(run.id)
    assert isinstance(source, FollowedSource)
    try:
        with writing(tmp_path, [(1, -1.0), (2, 1.0)]):
            until(lambda: source.ledger_steps() == [1, 2])
        assert api.progress(run.id)["step"] == 2
        for step in (2, 1):  # one of them is read again
            wanted = batch(seed=step, rows=8, width=12)["response_mask"]
            assert [line.length for line in api.step(run.id, step).rollouts] == wanted.sum(axis=1).tolist()
        before = api.rollout(run.id, 1, 0).columns["values"]
        assert {finding["severity"] for finding in api.audit(run.id, 2)["findings"]} >= {"bug"}
        save_npz(tmp_path / "step_1.npz", batch(seed=7, rows=8, width=12))
        changes = api.progress(run.id)["changes"]
        until(lambda: api.progress(run.id)["changes"] != changes)
        assert api.rollout(run.id, 1, 0).columns["values"] != before
        (tmp_path / "step_2.npz").unlink()
        until(lambda: source.ledger_steps() == [1])
        (tmp_path / "step_3.npz").write_bytes(b"PK\x03\x04 not a zip")
        assert api.run(run.id).ledger_steps == [1]
    finally:
        source.close()


def test_a_directory_that_is_still_to_come(tmp_path: Path) -> None:
    library = Library([tmp_path / "later"], follow=True)
    (source,) = library.sources()
    assert isinstance(source, FollowedSource)
    try:
        assert source.ledger_steps() == []
        saved(tmp_path / "later", 3)
        until(lambda: source.ledger_steps() == [3])
        assert np.isfinite(source.series().at(3, "response_length/mean") or np.nan)
    finally:
        source.close()


def test_a_new_file_appears_in_the_browser_without_a_reload(tmp_path: Path, browser: Browser) -> None:  # noqa: F811
    place = tmp_path / "dumps"
    saved(place, 1)
    library = Library([place], follow=True)
    (source,) = library.sources()
    assert isinstance(source, FollowedSource)
    context = browser.new_context(locale="en-US")
    try:
        with served(Api(library)) as client:
            until(lambda: source.ledger_steps() == [1])
            tab = Tab(context.new_page(), f"http://127.0.0.1:{client.port}/")
            page = tab.open("#/run/dumps/step/1")
            expect(page.locator("nav.walk a")).to_have_count(0)
            saved(place, 2)
            expect(page.locator("nav.walk a")).to_contain_text("2")
            context.close()
    finally:
        source.close()
