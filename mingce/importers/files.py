"""The files of a dump, each recognised by its content, as dumps in the order of their steps."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from mingce.base.errors import DataError, MingceError, first_line
from mingce.base.texts import sentence_pair
from mingce.importers import generic, ledger, nemo_rl, openrlhf, prime_rl, slime, trl, verl
from mingce.importers.arrays import read_npz, read_safetensors
from mingce.importers.draft import Draft
from mingce.importers.limits import MAX_BYTES, MAX_FILES, Refused, file_size
from mingce.importers.pickles import plain
from mingce.importers.settings_file import Mapping, read_mapping
from mingce.importers.shards import join_ranks, place
from mingce.importers.tables import read_jsonl, read_parquet
from mingce.importers.torch_files import open_zip, read_pickled, read_torch_zip
from mingce.record.dump import Dump

_TRAINERS: tuple[tuple[Callable[[Any], bool], Callable[[Any, str], Draft]], ...] = tuple(
    (trainer.recognises, trainer.read) for trainer in (verl, trl, openrlhf, prime_rl, slime, nemo_rl)
)
_KNOWN = "npz, safetensors, Parquet, JSONL and .pt with a response mask are read; see docs/en/reference/audit.md"


def read_dumps(
    path: Path, mapping: Path | None, settings: dict[str, Any] | None, steps: Collection[int] | None
) -> list[Dump]:
    """What `open_dump` says, in this process."""
    names = read_mapping(mapping) if mapping else None
    if path.is_dir():
        drafts = _directory(path, names, steps)
    elif path.is_file():
        draft = _file(path, names)
        if draft is None:
            raise DataError(f"{path} holds no dump: no response mask under any known name; {_KNOWN}.")
        if draft.source == "mingce" and path.absolute().parent.name == "ledger":  # its run has the settings
            ledger.read_run(path.absolute().parent.parent).lay_beside(draft)
        drafts = [join_ranks([_placed(draft, Path(path.parent.name, path.name))], str(path))]
    elif path.exists():
        raise DataError(f"{path} is a pipe, a socket or a device; write the dump to a file and name that.")
    else:
        raise DataError(f"there is no file or directory {path}.")
    if names:
        names.check()
    for draft in drafts:
        draft.put_settings(names.settings if names else None, strict=True)
        draft.put_settings(settings, strict=True)
    return [draft.finish() for draft in drafts]


def recognise(path: Path) -> str | None:
    """The container that a file's first bytes show: zip, pickle, parquet, safetensors, jsonl; None if unknown."""
    with path.open("rb") as file:
        head = file.read(64)
    if head.startswith(b"PK\x03\x04") or head.startswith(b"PK\x05\x06"):
        return "zip"
    if head.startswith(b"PAR1"):
        return "parquet"
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "pickle"
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= path.stat().st_size:
        return "safetensors"
    if head.removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"{":
        return "jsonl"
    return None


def _file(path: Path, names: Mapping | None) -> Draft | None:
    """What one file gives; None if it is no dump."""
    where = str(path)
    size = file_size(path)
    try:
        kind = recognise(path)
        facts: dict[str, str] = {}
        data: Any = None
        if kind == "zip":
            with open_zip(path, size, where) as archive:
                members = archive.namelist()
                if any(name.endswith("data.pkl") for name in members):
                    return read_content(read_torch_zip(archive, where), facts, where, names)
                if any(name.endswith(".npy") for name in members):
                    data = read_npz(archive, where)
        elif kind == "pickle":
            data = read_pickled(path.read_bytes(), where)
        elif kind == "parquet":
            data, facts = read_parquet(path, size)
        elif kind == "safetensors":
            data, facts = read_safetensors(path, size)
        elif kind == "jsonl":
            data = read_jsonl(path)
    except OSError as error:
        raise DataError(f"{where} cannot be read ({error.strerror or error}).") from error
    return None if data is None else read_content(data, facts, where, names)


def read_content(data: Any, facts: dict[str, str], where: str, names: Mapping | None) -> Draft | None:
    """The content given to the trainer whose it is."""
    if not verl.recognises(data) and not openrlhf.recognises(data):
        data = plain(data, where, "the dump")
    if names:
        data = names.rename(data)
    try:
        if ledger.recognises(facts):
            return ledger.read(data, facts, where)
        for recognises, read in _TRAINERS:
            if recognises(data):
                return read(data, where)
        return generic.read(data, where, facts) if generic.recognises(data) else None
    except MingceError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        raise DataError(f"{where} is not laid out as its trainer writes it ({first_line(error, 160)}).") from error


def _placed(draft: Draft, path: Path) -> Draft:
    """Step and rank from the file's name where the content does not tell them."""
    step, rank, world = place(path)
    draft.step = step if draft.step is None else draft.step
    draft.rank = rank if draft.rank is None else draft.rank
    draft.world = world if draft.world is None else draft.world
    return draft


def _files(directory: Path) -> Iterator[Path]:
    """The regular files below the directory, hidden ones and links to elsewhere left out, by name."""
    seen = 0
    for folder, folders, files in os.walk(directory):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = Path(folder, name)
            if name.startswith(".") or path.is_symlink() or not path.is_file():
                continue
            seen += 1
            if seen > MAX_FILES:
                raise Refused(f"{directory} holds more than {MAX_FILES:,} files; name the dump's own directory.")
            yield path


def _directory(directory: Path, names: Mapping | None, steps: Collection[int] | None) -> list[Draft]:
    """Every dump below a directory, the files of one step joined."""
    ledgers = ledger.run_of(directory)
    run = ledger.read_run(ledgers.absolute().parent if ledgers.name == "ledger" else ledgers) if ledgers else None
    paths = sorted(ledgers.glob("step-*.parquet")) if ledgers else list(_files(directory))
    found: list[Draft] = []
    skipped: list[tuple[str, str]] = []
    total = 0
    for path in paths:
        if ledgers and steps is not None and place(path)[0] not in steps:
            continue
        try:
            draft = _file(path, names)
        except Refused as error:
            skipped.append(sentence_pair("importers.not_opened", name=path.name, error=error))
            continue
        except MingceError as error:
            if path.suffix == ".json":  # a config, not a dump
                skipped.append(sentence_pair("importers.no_dump", name=path.name, error=error))
                continue
            raise
        if draft is None or (steps is not None and _placed(draft, path.relative_to(directory)).step not in steps):
            continue
        total += sum(column.array.nbytes for column in draft.columns.values())
        if total > MAX_BYTES:
            raise Refused(f"{directory} needs more than {MAX_BYTES:,} bytes; name one step's file, or fewer steps.")
        if run:
            run.lay_beside(draft)
        found.append(_placed(draft, path.relative_to(directory)))
    if not found:
        reason = f" ({skipped[0][1]})" if skipped else f" of the steps {sorted(steps)[:8]}" if steps is not None else ""
        raise DataError(f"{directory} holds no dump that can be read{reason}; {_KNOWN}.")
    joined = _by_step(found, directory)
    joined[0].remarks.extend(skipped)
    return joined


def _by_step(found: list[Draft], directory: Path) -> list[Draft]:
    """One draft a step, ranks joined and slime's two sides put together."""
    parts: dict[tuple[int, int], list[Draft]] = {}
    for number, draft in enumerate(found):
        alone = draft.step is None and draft.rank is None  # nothing says that it belongs to another file
        key = (-1 if draft.step is None else draft.step, number if alone else -1)
        parts.setdefault(key, []).append(draft)
    joined: list[Draft] = []
    counts = [len({d.rank for d in group if d.rank is not None}) for group in parts.values()]
    for key in sorted(parts):
        group = parts[key]
        where = group[0].where if len(group) == 1 else str(directory)
        sampled = [d for d in group if d.source == "slime" and d.rank is None]
        trained = [d for d in group if d not in sampled] if sampled else group
        if group[0].source == "slime":
            ranks = {d.rank for d in trained if d.rank is not None}
            trained = slime.without_copies(trained)
            if trained and ranks:
                trained[0].world = max(max(ranks) + 1, trained[0].world or 0)
        for one in _same_rank_apart(trained) if trained else [sampled]:
            whole = join_ranks(one, where, max(counts, default=0) or None)
            joined.append(slime.with_samples(whole, sampled[0]) if trained and sampled else whole)
    return joined


def _same_rank_apart(group: list[Draft]) -> list[list[Draft]]:
    """Two files of the same step and rank are two dumps, not two shards."""
    ranks = [draft.rank for draft in group]
    if len(group) > 1 and len(set(ranks)) < len(ranks):
        return [[draft] for draft in group]
    return [group]
