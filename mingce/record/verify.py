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
from typing import Literal

from mingce.base.errors import MingceError
from mingce.base.places import step_name
from mingce.base.reading import open_written, read_regular
from mingce.base.texts import sentence
from mingce.record import checkpoints
from mingce.record.checksums import chain_of, seal, sha256
from mingce.record.logs import as_line, each_line
from mingce.record.run import Run
from mingce.record.store import LedgerStore

State = Literal["whole", "damaged", "uncovered"]
LOGS = ("metrics", "timings", "audit")
LEDGERS = ("ledger", "validation")
_DIGESTS = (*LOGS, *LEDGERS, "config", "events")
LARGEST_EVENTS = 64 << 20
MOST_UNFIT = 1000
"""Lines of checksums.jsonl that do not match; what follows so many is not read."""
_IGNORED = ("lock", "uids.sqlite", "uids.sqlite-journal")
"""The lock says who trains, and the index is made again from the ledgers whenever it does not fit."""


@dataclass(frozen=True)
class FileState:
    """What is known of a file: whole, damaged, or not covered by any checksum, and why."""

    path: str
    state: State
    why: str = ""


def _damaged(path: str, name: str, **values: object) -> FileState:
    return FileState(path, "damaged", sentence(f"files.{name}", **values))


def _uncovered(path: str, name: str, **values: object) -> FileState:
    return FileState(path, "uncovered", sentence(f"files.{name}", **values))


@dataclass
class _Records:
    """checksums.jsonl: (step, digest) by kind, in order, and every chain there was."""

    digests: dict[str, list[tuple[int, str]]]
    chains: set[str]
    there: bool


def verify(run: Run, progress: Callable[[str], object] = lambda path: None) -> Iterator[FileState]:
    """Every file of the run, one after the other; `progress` is called before each that takes long."""
    records, wrong = _read_records(run)
    chain_lost = False
    for step in run.checkpoint_steps():
        path = run.checkpoints_path / step_name(step)
        progress(f"checkpoints/{path.name}")
        files = list(_checkpoint(run, path))
        yield from files
        if all(file.state != "damaged" for file in files):
            chain_lost |= _sealed_line_lost(path, records)
    if chain_lost and not wrong:
        wrong = sentence("files.line_lost")
    if records.there or wrong:
        yield FileState("checksums.jsonl", "damaged" if wrong else "whole", wrong)
    yield _config(run, records)
    for kind in LOGS:
        yield from _log(run.path / f"{kind}.jsonl", records.digests[kind])
    yield from _events(run.events_path, records.digests["events"])
    for kind, store in zip(LEDGERS, (run.ledger, run.validation), strict=True):
        yield from _ledgers(run.path, store, dict(records.digests[kind]), progress)
    yield from _tensorboard(run, progress)
    yield from _others(run)


def _sealed_line_lost(path: Path, records: _Records) -> bool:
    """Whether the line of checksums.jsonl that a checkpoint remembers is not there."""
    try:
        logs = checkpoints.read_manifest(path).get("logs")
    except (OSError, MingceError):  # removed meanwhile by the run that trains
        return False
    return isinstance(logs, dict) and logs.get("chain") not in records.chains


def _read_records(run: Run) -> tuple[_Records, str]:
    """What checksums.jsonl says, and what is wrong with it."""
    records, wrong, before, unfit = _Records({kind: [] for kind in _DIGESTS}, set(), False), "", "", 0
    for number, line in enumerate(each_line(run.checksums.path), 1):
        records.there = True
        try:
            values = json.loads(line)
            chain = values.pop("chain")
            fits = chain == seal(values, before) and line == as_line(values | {"chain": chain})
            step = int(values.pop("step"))
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
            fits, values, step = False, {}, 0
        if not fits:
            wrong = wrong or sentence("files.line", number=number)
            unfit += 1
            if unfit > MOST_UNFIT:
                break
        before = chain_of(line)
        if fits:
            records.chains.add(before)
            for kind in values.keys() & records.digests.keys():
                records.digests[kind].append((step, str(values[kind])))
    return records, wrong


def _checkpoint(run: Run, path: Path) -> Iterator[FileState]:
    """A checkpoint's files; or the first thing that is wrong with it."""
    place = f"checkpoints/{path.name}"
    try:
        checkpoints.verify(path)
        manifest = checkpoints.read_manifest(path)
    except MingceError as error:
        yield FileState(place, "damaged", str(error))
        return
    names = {*manifest["files"], "manifest.json"}
    yield from (FileState(f"{place}/{name}", "whole") for name in sorted(names))
    for file in sorted(path.rglob("*")):
        if not file.is_dir() and (name := file.relative_to(path).as_posix()) not in names:
            yield _uncovered(f"{place}/{name}", "not_of_checkpoint")


def _config(run: Run, records: _Records) -> FileState:
    known = [digest for _, digest in records.digests["config"]]
    try:
        content = read_regular(run.path / "config.yaml")
    except OSError as error:
        return FileState("config.yaml", "damaged", str(error.strerror))
    if not known:
        return _uncovered("config.yaml", "older_run")
    if sha256(content) == known[-1]:
        return FileState("config.yaml", "whole")
    return _damaged("config.yaml", "not_as_written")


def _log(path: Path, expected: list[tuple[int, str]]) -> Iterator[FileState]:
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
        yield _damaged(path.name, "lines_missing", count=len(missing), steps=listed)
    elif not in_order:
        yield _damaged(path.name, "lines_moved")
    elif expected:
        yield FileState(path.name, "whole")
    if number > matched and not missing:
        yield _uncovered(path.name, "lines_uncovered", count=number - matched)


def _events(path: Path, expected: list[tuple[int, str]]) -> Iterator[FileState]:
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
        yield _damaged(path.name, "lines_damaged", lines=", ".join(map(str, wrong)))
    elif not complete:
        yield _damaged(path.name, "events_missing")
    elif uncovered:
        yield _uncovered(path.name, "older_run")
    elif number:
        yield FileState(path.name, "whole")


def _event_fits(line: bytes) -> tuple[bool, bool]:
    """Whether the line matches its checksum, and whether it is one from before there were any."""
    try:
        values = json.loads(line)
        digest = values.pop("sha256", None)
        fits = line == as_line(values | {"sha256": digest}) and digest == sha256(as_line(values))
        return fits, digest is None and set(values) == {"step", "kind", "why", "time"}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return False, False


def _ledgers(
    root: Path, store: LedgerStore, digests: dict[int, str], progress: Callable[[str], object]
) -> Iterator[FileState]:
    there = store.steps()
    for step in sorted({*there, *digests}):
        name = f"{store.directory.name}/{step_name(step)}.parquet"
        progress(name)
        if step not in there:
            yield _damaged(name, "missing")
        elif step in digests:
            yield _whole_file(root, name, digests[step])
        else:
            try:
                for _ in store.parts(step, store.column_names(step)):
                    pass  # pages have checksums of their own
                yield _uncovered(name, "older_run")
            except MingceError as error:
                yield FileState(name, "damaged", str(error))


def _whole_file(root: Path, name: str, digest: str) -> FileState:
    try:
        with open_written(root / name) as file:
            whole = hashlib.file_digest(file, "sha256").hexdigest() == digest
    except OSError as error:
        return FileState(name, "damaged", str(error.strerror))
    if whole:
        return FileState(name, "whole")
    return _damaged(name, "checksum")


def _tensorboard(run: Run, progress: Callable[[str], object]) -> Iterator[FileState]:
    """TensorBoard's files, whose records have checksums of their own; a kill cuts the last one short."""
    for path in sorted(run.tensorboard_path.rglob("*tfevents*")) if run.tensorboard_path.is_dir() else ():
        name = path.relative_to(run.path).as_posix()
        progress(name)
        try:
            if path.stat().st_size > LARGEST_EVENTS:
                yield _uncovered(name, "large")
            else:
                yield _events_file(name, read_regular(path, LARGEST_EVENTS))
        except OSError as error:
            yield FileState(name, "damaged", str(error.strerror))


def _events_file(name: str, content: bytes) -> FileState:
    """TFRecords one after the other: size, its CRC, data, their CRC."""
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c  # type: ignore[import-untyped]

    place = 0
    while place < len(content):
        head = content[place : place + 12]
        size = int.from_bytes(head[:8], "little")
        sound = len(head) < 12 or int.from_bytes(head[8:], "little") == masked_crc32c(head[:8])
        data, end = content[place + 12 : place + 12 + size], content[place + 12 + size : place + 16 + size]
        if sound and len(end) < 4:
            return _uncovered(name, "record_cut")
        if not sound or int.from_bytes(end, "little") != masked_crc32c(data):
            return _damaged(name, "from_byte", place=place)
        place += 16 + size
    return FileState(name, "whole")


def _others(run: Run) -> Iterator[FileState]:
    """What is in the run and was not looked at yet."""
    known = {"config.yaml", "checksums.jsonl", "events.jsonl", *(f"{kind}.jsonl" for kind in LOGS), *_IGNORED}
    folders = [(run.path, known)]
    for store in (run.ledger, run.validation):
        folders.append((store.directory, {*(f"{step_name(step)}.parquet" for step in store.steps()), *_IGNORED}))
    for folder, names in folders:
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name) if folder.is_dir() else ():
            if entry.name not in names and not entry.is_dir(follow_symlinks=False):
                place = Path(entry.path).relative_to(run.path).as_posix()
                yield _uncovered(place, "not_mingce")
    steps = {step_name(step) for step in run.checkpoint_steps()}
    for entry in (
        sorted(os.scandir(run.checkpoints_path), key=lambda e: e.name) if run.checkpoints_path.is_dir() else ()
    ):
        if entry.name not in steps:
            yield _uncovered(f"checkpoints/{entry.name}", "not_checkpoint")


def counts(files: list[FileState]) -> dict[str, int]:
    """How many of each."""
    return {state: sum(file.state == state for file in files) for state in ("whole", "damaged", "uncovered")}
