"""The files of a dump, each recognised by its content, as dumps in the order of their steps."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from mingce.base.errors import ColumnError, DataError, MingceError, first_line
from mingce.base.texts import sentence_pair
from mingce.importers import generic, ledger, nemo_rl, openrlhf, prime_rl, skyrl, slime, traces, trl, trl_grpo, verl
from mingce.importers.arrays import read_npy, read_npz, read_safetensors
from mingce.importers.draft import Draft
from mingce.importers.limits import MAX_BYTES, MAX_FILES, Refused, file_size, short
from mingce.importers.near import (
    MissingColumn,
    about_missing,
    mapping_line,
    names_in,
    renamed,
    suggestions,
    unknown_columns,
)
from mingce.importers.nesting import batches
from mingce.importers.objects import Record, plain
from mingce.importers.settings_file import Mapping, read_mapping
from mingce.importers.shards import join_ranks, joined, place
from mingce.importers.tables import read_json, read_parquet
from mingce.importers.torch_files import open_zip, read_pickled, read_torch_zip
from mingce.record.dump import Dump

_TRAINERS: tuple[tuple[Callable[[Any], bool], Callable[[Any, str], Draft]], ...] = tuple(
    (trainer.recognises, trainer.read)
    for trainer in (verl, trl_grpo, trl, openrlhf, prime_rl, skyrl, slime, nemo_rl, traces)
)
_WITH_OWN_NAMES = ("generic", "verl", "trl", "trl_grpo")  # dumps to which people add columns
_KNOWN = "npz, safetensors, Parquet, JSON, JSONL and .pt with a response mask are read; see docs/en/reference/audit.md"


def read_dumps(
    path: Path,
    mapping: Path | None,
    settings: dict[str, Any] | None,
    steps: Collection[int] | None,
    files: Sequence[str] | None = None,
    lines: Sequence[traces.Line] | None = None,
) -> list[Dump]:
    """What `open_dump` says, in this process."""
    names = read_mapping(mapping) if mapping else None
    if lines is not None:
        with _laid_out(str(path)):
            drafts = traces.read_lines(path, lines, steps)
    elif path.is_dir():
        drafts = _directory(path, names, steps, files)
    elif path.is_file():
        draft = _file(path, names)
        if draft.source == "mingce" and path.absolute().parent.name == "ledger":  # its run has the settings
            ledger.read_run(path.absolute().parent.parent).lay_beside(draft)
        drafts = [join_ranks([_placed(draft, Path(path.parent.name, path.name))], str(path))]
    elif path.exists():
        raise DataError(f"{path} is a pipe, a socket or a device; write the dump to a file and name that.")
    else:
        raise DataError(f"there is no file or directory {path}.")
    if names and drafts:
        names.check()
    for draft in drafts:
        draft.put_settings(names.settings if names else None, strict=True)
        draft.put_settings(settings, strict=True)
    return [draft.finish() for draft in drafts]


def recognise(path: Path) -> str | None:
    """The container that a file's first bytes show: zip, pickle, parquet, safetensors, npy, json; None if unknown."""
    with path.open("rb") as file:
        head = file.read(64)
    if head.startswith(b"PK\x03\x04") or head.startswith(b"PK\x05\x06"):
        return "zip"
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"\x93NUMPY"):
        return "npy"
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= path.stat().st_size:
        return "safetensors"  # whose length may begin as a pickle does
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "pickle"
    if head.removeprefix(codecs.BOM_UTF8).lstrip()[:1] in (b"{", b"["):
        return "json"
    return None


class NotADump(DataError):
    """The file can be read, but there is no batch of tokens in it."""


def _file(path: Path, names: Mapping | None) -> Draft:
    """What one file gives."""
    where = str(path)
    size = file_size(path)
    try:
        kind = recognise(path)
        if kind == "zip":
            with open_zip(path, size, where) as archive:
                members = archive.namelist()
                if any(name.endswith("data.pkl") for name in members):
                    return read_content(read_torch_zip(archive, where), {}, where, names)
                if any(name.endswith(".npy") for name in members):
                    return read_content(read_npz(archive, where), {}, where, names)
        elif kind == "parquet":
            return read_content(*read_parquet(path, size), where, names)
        elif kind == "safetensors":
            return read_content(*read_safetensors(path, size), where, names)
        elif kind is not None:
            read = {"pickle": read_pickled, "npy": read_npy}.get(kind)
            data = read(path.read_bytes(), where) if read else read_json(path, size)
            return read_content(data, {}, where, names)
    except OSError as error:
        raise DataError(f"{where} cannot be read ({error.strerror or error}).") from error
    raise NotADump(f"{where} holds no dump: it is of no kind that is known; {_KNOWN}.")


def read_content(data: Any, facts: dict[str, str], where: str, names: Mapping | None) -> Draft:
    """The content given to the trainer whose it is."""
    if not verl.recognises(data) and not openrlhf.recognises(data):
        data = plain(data, where, "the dump")
    if names:
        data = names.rename(data)
    if ledger.recognises(facts):
        return _read(partial(ledger.read, facts=facts), data, where)
    taken: dict[str, str] = {}
    held = names_in(data)
    data = renamed(data, taken) if not isinstance(data, Record) else data
    for recognises, read in _TRAINERS:
        if recognises(data):
            known = generic.with_facts(data, facts, where) if isinstance(data, dict) else data
            draft = _read(read, known, where)
            break
    else:
        parts = [_read(_reader(one, facts), one, where) for one in batches(data)]
        if not parts:
            raise NotADump(
                f"{where} holds no dump: no response mask under any known name; "
                f"{about_missing(held, 'response_mask')}; {_KNOWN}."
            )
        draft = parts[0] if len(parts) == 1 else joined(parts, where)
        if len(parts) > 1:
            draft.rows.setdefault("micro_batch", [i for i, part in enumerate(parts) for _ in range(len(part))])
    draft.remarks += [sentence_pair("importers.read_as", theirs=a, ours=b) for a, b in list(taken.items())[:12]]
    unread = unknown_columns(data) if draft.source in _WITH_OWN_NAMES else []
    left = suggestions(unread, {*draft.columns, *draft.rows})
    draft.remarks += [
        sentence_pair("importers.not_read", name=short(theirs), ours=ours, line=mapping_line({theirs: ours}))
        for theirs, ours in list(left.items())[:4]
    ]
    return draft


def _reader(one: dict[str, Any], facts: dict[str, str]) -> Callable[[Any, str], Draft]:
    """Who reads a batch that was found inside of something else."""
    found = (read for recognises, read in _TRAINERS if recognises(one))
    return next(found, partial(generic.read, facts=facts))


def _read(read: Callable[..., Draft], data: Any, where: str) -> Draft:
    """What a reader makes of the content; what it lacks is one sentence with what is there."""
    try:
        with _laid_out(where):
            draft = read(data, where=where)
        if "response_mask" not in draft.columns:
            raise MissingColumn(f"{where} has no mask of the response's tokens, so none can be judged", "response_mask")
        return draft
    except MissingColumn as error:
        said = about_missing(names_in(data), error.column or "")
        raise ColumnError(f"{error}; {said}.", column=error.column) from error


@contextmanager
def _laid_out(where: str) -> Iterator[None]:
    """What confuses a reader is one sentence."""
    try:
        yield
    except MingceError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        raise DataError(f"{where} is not laid out as its trainer writes it ({first_line(error, 160)}).") from error


def _streamed(home: Path, steps: Collection[int] | None) -> list[Draft]:
    """A run's stream of traces, a draft a step."""
    with _laid_out(str(home)):
        found = traces.read_home(home, steps)
    if not found:
        which = "" if steps is None else f" of the steps {sorted(steps)[:8]}"
        raise DataError(f"{home} holds no trace with token ids{which}.")
    return found


def _placed(draft: Draft, path: Path) -> Draft:
    """Step and rank from the file's name where the content does not tell them."""
    step, rank, world = place(path)
    draft.step = step if draft.step is None else draft.step
    draft.rank = rank if draft.rank is None else draft.rank
    draft.world = world if draft.world is None else draft.world
    return draft


def files_below(directory: Path, most: int = MAX_FILES) -> Iterator[Path]:
    """The regular files below the directory, hidden ones and links to elsewhere left out, by name."""
    seen = 0
    for folder, folders, files in os.walk(directory):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = Path(folder, name)
            if name.startswith(".") or path.is_symlink() or not path.is_file():
                continue
            seen += 1
            if seen > most:
                raise Refused(f"{directory} holds more than {most:,} files; name the dump's own directory.")
            yield path


def _directory(
    directory: Path, names: Mapping | None, steps: Collection[int] | None, files: Sequence[str] | None
) -> list[Draft]:
    """Every dump below a directory, or of some of its files, the files of one step joined."""
    if files is None and (streamed := traces.home(directory)):
        return _streamed(streamed, steps)
    ledgers = ledger.run_of(directory)
    run = ledger.read_run(ledgers.absolute().parent if ledgers.name == "ledger" else ledgers) if ledgers else None
    if files is not None:
        paths = [directory / name for name in files]
    else:
        paths = sorted(ledgers.glob("step-*.parquet")) if ledgers else list(files_below(directory))
    found: list[Draft] = []
    skipped: list[tuple[str, str]] = []
    empty: list[str] = []
    total = 0
    for path in paths:
        if ledgers and steps is not None and place(path)[0] not in steps:
            continue
        try:
            draft = _file(path, names)
        except NotADump as error:
            empty.append(str(error))
            continue
        except Refused as error:
            skipped.append(sentence_pair("importers.not_opened", name=path.name, error=error))
            continue
        except MingceError as error:
            if path.suffix == ".json" and files is None:  # a config, not a dump
                skipped.append(sentence_pair("importers.no_dump", name=path.name, error=error))
                continue
            raise
        if steps is not None and _placed(draft, path.relative_to(directory)).step not in steps:
            continue
        total += sum(column.array.nbytes for column in draft.columns.values())
        if total > MAX_BYTES:
            raise Refused(f"{directory} needs more than {MAX_BYTES:,} bytes; name one step's file, or fewer steps.")
        if run:
            run.lay_beside(draft)
        found.append(_placed(draft, path.relative_to(directory)))
    if not found and files is not None and not skipped:
        return []
    if not found:
        reasons = [english for _, english in skipped] or empty
        reason = f" of the steps {sorted(steps)[:8]}" if steps is not None else f" ({reasons[0]})" if reasons else ""
        raise DataError(f"{directory} holds no dump that can be read{reason}; {_KNOWN}.")
    dumps = _by_step(found, directory)
    dumps[0].remarks.extend(skipped)
    return dumps


def _by_step(found: list[Draft], directory: Path) -> list[Draft]:
    """One draft a step, ranks joined and slime's two sides put together."""
    parts: dict[tuple[int, int], list[Draft]] = {}
    for number, draft in enumerate(found):
        alone = draft.step is None and draft.rank is None  # nothing says that it belongs to another file
        key = (-1 if draft.step is None else draft.step, number if alone else -1)
        parts.setdefault(key, []).append(draft)
    whole: list[Draft] = []
    counts = [len({d.rank for d in group if d.rank is not None}) for group in parts.values()]
    for key in sorted(parts):
        group = parts[key]
        where = group[0].where if len(group) == 1 else str(directory)
        sampled, trained = [d for d in group if d.sampled], [d for d in group if not d.sampled]
        if group[0].source == "slime":
            ranks = {d.rank for d in trained if d.rank is not None}
            trained = slime.without_copies(trained)
            if trained and ranks:
                trained[0].world = max(max(ranks) + 1, trained[0].world or 0)
        for one in _same_rank_apart(trained or sampled):
            dump = join_ranks(one, where, max(counts, default=0) or None)
            whole.append(slime.with_samples(dump, sampled) if trained and sampled else dump)
    return whole


def _same_rank_apart(group: list[Draft]) -> list[list[Draft]]:
    """Two files of the same step and rank are two dumps, not two shards."""
    ranks = [draft.rank for draft in group]
    if len(group) > 1 and len(set(ranks)) < len(ranks):
        return [[draft] for draft in group]
    return [group]
