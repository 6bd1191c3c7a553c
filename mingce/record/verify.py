"""Whether every file of a run is what was written: checkpoints by their manifests, logs and ledgers by checksums.jsonl.

Nothing is changed, and only checksums.jsonl is believed where it agrees with itself and with the checkpoints.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mingce.base.errors import MingceError
from mingce.base.lang import display_lang, say
from mingce.base.places import steps_in
from mingce.base.reading import open_written, read_regular
from mingce.record import checkpoints
from mingce.record.checksums import chain_of, sealed, sha256
from mingce.record.logs import as_line, each_line
from mingce.record.run import Run, step_name

State = Literal["whole", "damaged", "uncovered"]
LOGS = ("metrics", "timings", "audit")
_DIGESTS = (*LOGS, "ledger", "config", "events")
LARGEST_EVENTS = 64 << 20
MOST_UNFIT = 1000
"""Lines of checksums.jsonl that do not match; what follows so many is not read."""
_IGNORED = ("lock", "uids.sqlite", "uids.sqlite-journal")
"""The lock says who trains, and the index is made again from the ledgers whenever it does not fit."""


@dataclass(frozen=True)
class Found:
    """What is known of a file: whole, damaged, or not covered by any checksum, and why."""

    path: str
    state: State
    why: str = ""


@dataclass
class _Records:
    """checksums.jsonl: (step, digest) by kind, in order, and every chain there was."""

    digests: dict[str, list[tuple[int, str]]]
    chains: set[str]
    there: bool


def verify(run: Run, progress: Callable[[str], object] = lambda path: None) -> Iterator[Found]:
    """Every file of the run, one after the other; `progress` is called before each that takes long."""
    records, wrong = _read_records(run)
    chain_lost = False
    for step in run.checkpoint_steps():
        path = run.checkpoints_path / step_name(step)
        progress(f"checkpoints/{path.name}")
        found = list(_checkpoint(run, path))
        yield from found
        logs = None if any(one.state == "damaged" for one in found) else checkpoints.read_manifest(path).get("logs")
        chain_lost |= logs is not None and logs["chain"] not in records.chains
    if chain_lost and not wrong:
        wrong = _say("存档记得的那一行不在里面", "the line that a checkpoint remembers is not in it")
    if records.there or wrong:
        yield Found("checksums.jsonl", "damaged" if wrong else "whole", wrong)
    yield _config(run, records)
    for kind in LOGS:
        yield from _log(run.path / f"{kind}.jsonl", records.digests[kind])
    yield from _events(run.events_path, records.digests["events"])
    yield from _ledgers(run, dict(records.digests["ledger"]), progress)
    yield from _tensorboard(run, progress)
    yield from _others(run)


def _say(zh: str, en: str) -> str:
    return say(display_lang(), zh, en)


def _read_records(run: Run) -> tuple[_Records, str]:
    """What checksums.jsonl says, and what is wrong with it."""
    records, wrong, before, unfit = _Records({kind: [] for kind in _DIGESTS}, set(), False), "", "", 0
    for number, line in enumerate(each_line(run.checksums.path), 1):
        records.there = True
        try:
            values = json.loads(line)
            chain = values.pop("chain")
            fits = chain == sealed(values, before) and line == as_line(values | {"chain": chain})
            step = int(values.pop("step"))
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
            fits, values, step = False, {}, 0
        if not fits:
            wrong = wrong or _say(f"第 {number} 行与校验和不符", f"line {number} does not match its checksum")
            unfit += 1
            if unfit > MOST_UNFIT:
                break
        before = chain_of(line)
        if fits:
            records.chains.add(before)
            for kind in values.keys() & records.digests.keys():
                records.digests[kind].append((step, str(values[kind])))
    return records, wrong


def _checkpoint(run: Run, path: Path) -> Iterator[Found]:
    """A checkpoint's files; or the first thing that is wrong with it."""
    place = f"checkpoints/{path.name}"
    try:
        checkpoints.verify(path)
        manifest = checkpoints.read_manifest(path)
    except MingceError as error:
        yield Found(place, "damaged", str(error))
        return
    names = {*manifest["files"], "manifest.json"}
    yield from (Found(f"{place}/{name}", "whole") for name in sorted(names))
    for file in sorted(path.rglob("*")):
        if not file.is_dir() and (name := file.relative_to(path).as_posix()) not in names:
            yield Found(f"{place}/{name}", "uncovered", _say("不属于这个存档", "not part of the checkpoint"))


def _config(run: Run, records: _Records) -> Found:
    known = [digest for _, digest in records.digests["config"]]
    try:
        content = read_regular(run.path / "config.yaml")
    except OSError as error:
        return Found("config.yaml", "damaged", str(error.strerror))
    if not known:
        return Found("config.yaml", "uncovered", _OLDER())
    if sha256(content) == known[-1]:
        return Found("config.yaml", "whole")
    return Found("config.yaml", "damaged", _say("与写下时不同", "not what was written"))


def _OLDER() -> str:
    return _say("没有它的校验和（较早的运行）", "there is no checksum of it (an older run)")


def _log(path: Path, expected: list[tuple[int, str]]) -> Iterator[Found]:
    """A log against the digests of its lines; lines before the first and after the last digest are not covered."""
    known, seen, in_order = {digest for _, digest in expected}, set[str](), True
    number = matched = last = 0
    for number, line in enumerate(each_line(path), 1):
        digest = sha256(line)
        if digest in known:
            in_order &= matched < len(expected) and digest == expected[matched][1] and last in (0, number - 1)
            matched, last = matched + 1, number
            seen.add(digest)
    missing = [step for step, digest in expected if digest not in seen]
    if missing:
        listed = ", ".join(map(str, missing[:5])) + (" …" if len(missing) > 5 else "")
        zh = f"{len(missing)} 行缺失或与校验和不符（第 {listed} 步）"
        why = _say(zh, f"{len(missing)} lines are missing or do not match their checksum (steps {listed})")
        yield Found(path.name, "damaged", why)
    elif not in_order:
        yield Found(path.name, "damaged", _say("行的次序变了或多出了行", "lines were added or changed places"))
    elif expected:
        yield Found(path.name, "whole")
    if number > matched and not missing:
        count = number - matched
        zh, en = f"{count} 行没有校验和", f"{count} lines have no checksum (an older run, or written as it was killed)"
        yield Found(path.name, "uncovered", _say(zh, en))


def _events(path: Path, expected: list[tuple[int, str]]) -> Iterator[Found]:
    """Every line against its own checksum, and all up to one of them against the last that checksums.jsonl has."""
    wrong, uncovered, number, so_far = list[int](), 0, 0, hashlib.sha256()
    complete = not expected
    for number, line in enumerate(each_line(path), 1):
        fits, older = _event_fits(line)
        uncovered += older
        if not fits and not older:
            wrong.append(number)
            if len(wrong) == 5:
                break
        so_far.update(line)
        complete = complete or so_far.hexdigest() == expected[-1][1]
    if wrong:
        listed = ", ".join(map(str, wrong))
        yield Found(path.name, "damaged", _say(f"第 {listed} 行损坏", f"damaged lines: {listed}"))
    elif not complete:
        yield Found(path.name, "damaged", _say("有行缺失或次序变了", "lines are missing or changed places"))
    elif uncovered:
        yield Found(path.name, "uncovered", _OLDER())
    elif number:
        yield Found(path.name, "whole")


def _event_fits(line: bytes) -> tuple[bool, bool]:
    """Whether the line matches its checksum, and whether it is one from before there were any."""
    try:
        values = json.loads(line)
        digest = values.pop("sha256", None)
        fits = line == as_line(values | {"sha256": digest}) and digest == sha256(as_line(values))
        return fits, digest is None and set(values) == {"step", "kind", "why", "time"}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return False, False


def _ledgers(run: Run, digests: dict[int, str], progress: Callable[[str], object]) -> Iterator[Found]:
    there = steps_in(run.ledger_path, ".parquet")
    for step in sorted({*there, *digests}):
        name = f"ledger/{step_name(step)}.parquet"
        progress(name)
        if step not in there:
            yield Found(name, "damaged", _say("缺失", "missing"))
        elif step in digests:
            yield _whole_file(run.path, name, digests[step])
        else:
            try:
                run.ledger.read(step)  # pages have checksums of their own
                yield Found(name, "uncovered", _OLDER())
            except MingceError as error:
                yield Found(name, "damaged", str(error))


def _whole_file(root: Path, name: str, digest: str) -> Found:
    try:
        with open_written(root / name) as file:
            whole = hashlib.file_digest(file, "sha256").hexdigest() == digest
    except OSError as error:
        return Found(name, "damaged", str(error.strerror))
    if whole:
        return Found(name, "whole")
    return Found(name, "damaged", _say("与校验和不符", "does not match its checksum"))


def _tensorboard(run: Run, progress: Callable[[str], object]) -> Iterator[Found]:
    """TensorBoard's files, whose records have checksums of their own; a kill cuts the last one short."""
    for path in sorted(run.tensorboard_path.rglob("*tfevents*")) if run.tensorboard_path.is_dir() else ():
        name = path.relative_to(run.path).as_posix()
        progress(name)
        try:
            if path.stat().st_size > LARGEST_EVENTS:
                yield Found(
                    name, "uncovered", _say("太大，未检查；metrics.jsonl 有同样的数", "large; metrics.jsonl has it all")
                )
            else:
                yield _events_file(name, read_regular(path, LARGEST_EVENTS))
        except OSError as error:
            yield Found(name, "damaged", str(error.strerror))


def _events_file(name: str, content: bytes) -> Found:
    """TFRecords one after the other: size, its CRC, data, their CRC."""
    place = 0
    while place < len(content):
        head = content[place : place + 12]
        size = int.from_bytes(head[:8], "little")
        sound = len(head) < 12 or int.from_bytes(head[8:], "little") == _masked_crc(head[:8])
        data, end = content[place + 12 : place + 12 + size], content[place + 12 + size : place + 16 + size]
        if sound and len(end) < 4:
            return Found(
                name, "uncovered", _say("最后一条没有写完（进程被杀）", "the last record is cut short, as by a kill")
            )
        if not sound or int.from_bytes(end, "little") != _masked_crc(data):
            return Found(name, "damaged", _say(f"从第 {place} 字节起损坏", f"damaged from byte {place} on"))
        place += 16 + size
    return Found(name, "whole")


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ 0x82F63B78 if byte & 1 else byte >> 1
        table.append(byte)
    return table


_TABLE = _crc_table()


def _masked_crc(data: bytes) -> int:
    """CRC-32C as TFRecord masks it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _others(run: Run) -> Iterator[Found]:
    """What is in the run and was not looked at yet."""
    known = {"config.yaml", "checksums.jsonl", "events.jsonl", *(f"{kind}.jsonl" for kind in LOGS), *_IGNORED}
    ledgers = {f"{step_name(step)}.parquet" for step in steps_in(run.ledger_path, ".parquet")}
    for folder, names in ((run.path, known), (run.ledger_path, {*ledgers, *_IGNORED})):
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name) if folder.is_dir() else ():
            if entry.name not in names and not entry.is_dir(follow_symlinks=False):
                place = Path(entry.path).relative_to(run.path).as_posix()
                yield Found(place, "uncovered", _say("不是 mingce 写的", "not a file of mingce"))
    steps = {step_name(step) for step in run.checkpoint_steps()}
    for entry in (
        sorted(os.scandir(run.checkpoints_path), key=lambda e: e.name) if run.checkpoints_path.is_dir() else ()
    ):
        if entry.name not in steps:
            yield Found(f"checkpoints/{entry.name}", "uncovered", _say("不是存档", "not a checkpoint"))


def counts(found: list[Found]) -> dict[str, Any]:
    """How many of each."""
    return {state: sum(one.state == state for one in found) for state in ("whole", "damaged", "uncovered")}
