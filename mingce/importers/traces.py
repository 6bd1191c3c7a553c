"""Traces of verifiers, and prime-rl's stream of them with what its orchestrator and trainer wrote about each later.

    monitors/file/traces/stream/00000.jsonl                   episodes, each with its traces
    monitors/file/traces/annotations/<producer>/00000.jsonl   updates: the step a trace was trained at, token streams

A trace is a tree of messages; a path from its root to a leaf is a row, and what the policy did not write is a hole.
A full chunk is packed with zstd. Before September 2026 a stream was one file, stream.jsonl.
"""

from __future__ import annotations

import io
import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mingce.base.errors import DataError
from mingce.base.texts import sentence_pair
from mingce.importers.draft import Draft
from mingce.importers.limits import ALLOWED, MAX_LINE, MAX_LINES, PACKING, Refused, file_size
from mingce.importers.numbers import Numbers, from_list

_OF_TRAINER = {"trainer_logprobs": "old_log_probs", "entropies": "entropy"}
_COLUMNS = {"logprobs": "rollout_log_probs", "advantages": "advantages", "reference_logprobs": "ref_log_probs"}
_COLUMNS |= _OF_TRAINER
_LIMITS = {"max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens", "compaction_failed"}
_CHUNK = re.compile(r"\d{1,9}\.jsonl(\.zst)?")
MOST_NODES = 100_000

Line = tuple[str, int, int]
"""A line of a stream: the name of its chunk (`chunk_files`), where it begins, and its bytes."""


@dataclass
class Row:
    """A path through a trace: its tokens, which of them were sampled, and the columns it has, all of one length."""

    ids: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    columns: dict[str, list[float | None]] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    step: int | None = None


def recognises(data: Any) -> bool:
    """A table of episodes or of traces, one a line."""
    if not isinstance(data, dict):
        return False
    return _dicts_in(data.get("traces")) or ("task" in data and _dicts_in(data.get("nodes")))


def _dicts_in(column: Any) -> bool:
    first = next((entry for entry in column if entry), None) if isinstance(column, list) else None
    return isinstance(first, list) and isinstance(first[0], dict)


def read(data: dict[str, Any], where: str) -> Draft:
    """One file of episodes or traces, with nothing written about them elsewhere."""
    names = list(data)
    records = ({name: data[name][at] for name in names} for at in range(len(data[names[0]])))
    drafts = _drafts([row for record in records for row in _rows(record, {})], where, by_step=False)
    if not drafts:
        raise DataError(f"{where} holds traces without token ids; the audit needs the tokens that were trained on.")
    drafts[0].source = "verifiers"
    return drafts[0]


def home(directory: Path) -> Path | None:
    """Where the traces of a run are, if this is the run's directory, one above them or the traces' own."""
    for place in (directory, directory / "traces", directory / "file" / "traces", directory / "monitors/file/traces"):
        if (place / "stream").is_dir() or (place / "stream.jsonl").is_file():
            return place
    return None


def read_home(traces: Path, steps: Collection[int] | None) -> list[Draft]:
    """A draft for each step, or each of these, of the traces that were trained at it."""
    updates: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    notes = traces / "annotations"
    for producer in sorted(notes.iterdir()) if notes.is_dir() else ():
        if _is_writer(producer):
            for update in _records(producer):
                if isinstance(name := update.get("trace_id"), str):
                    updates[name].append(update)
    stream = traces / "stream"
    records = _records(stream if stream.is_dir() else traces / "stream.jsonl")
    rows = (row for record in records for row in _rows(record, updates))
    wanted = [row for row in rows if steps is None or row.step in steps]
    return _drafts(wanted, str(traces), by_step=True)


def read_lines(traces: Path, lines: Sequence[Line], steps: Collection[int] | None) -> list[Draft]:
    """A draft for each step of the traces whose lines stand there, those about them included."""
    updates: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    episodes: list[dict[str, Any]] = []
    wanted: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for name, begin, size in lines:
        wanted[name].append((begin, size))
    paths = dict(chunk_files(traces))
    for name in sorted(wanted):
        if name not in paths:
            raise DataError(f"{traces / name} has gone.")
        for record in _at(paths[name], sorted(wanted[name])):
            if not name.startswith("annotations"):
                episodes.append(record)
            elif isinstance(trace_id := record.get("trace_id"), str):
                updates[trace_id].append(record)
    rows = (row for record in episodes for row in _rows(record, updates))
    return _drafts([row for row in rows if steps is None or row.step in steps], str(traces), by_step=True)


def _at(path: Path, places: list[tuple[int, int]]) -> Iterator[dict[str, Any]]:
    """The records at some places of a file, in order; what is no record any more is passed over."""
    with opened_chunk(path) as file:
        at = 0
        for begin, size in places:
            if file.seekable():
                file.seek(begin)
            while not file.seekable() and at < begin and (part := file.read(min(begin - at, 1 << 20))):
                at += len(part)
            line = file.read(min(size, MAX_LINE))
            at += len(line)
            with suppress(ValueError, RecursionError):
                if isinstance(record := json.loads(line), dict):
                    yield record


def chunk_files(traces: Path) -> list[tuple[str, Path]]:
    """(name, file) of everything that is written of a run's traces: the stream first, then what is said of them.

    A chunk has the same name before and after it is packed.
    """
    found: list[tuple[str, Path]] = []
    notes = traces / "annotations"
    writers = sorted(notes.iterdir()) if notes.is_dir() else []
    for place in (traces / "stream", traces / "stream.jsonl", *(one for one in writers if _is_writer(one))):
        name = str(place.relative_to(traces))
        if place.is_dir():
            found += [(f"{name}/{number}", path) for number, path in sorted(_chunks(place).items())]
        elif place.is_file():
            found.append((name, place))
    return found


def _is_writer(place: Path) -> bool:
    written = place.is_dir() or (place.suffix == ".jsonl" and not place.name.endswith(".index.jsonl"))
    return written and not place.is_symlink()


def _chunks(place: Path) -> dict[str, Path]:
    return {path.name.split(".")[0]: path for path in sorted(place.iterdir(), reverse=True) if _chunk(path)}


def _records(place: Path) -> Iterator[dict[str, Any]]:
    """The records of a stream in the order they were written; a last line cut by a crash is left out."""
    chunks = _chunks(place) if place.is_dir() else {"": place}
    count = 0
    for path in (chunks[name] for name in sorted(chunks)):
        with opened_chunk(path) as file:
            while line := file.readline(MAX_LINE + 1):
                count += 1
                if len(line) > MAX_LINE or count > MAX_LINES:
                    raise Refused(f"{path} has a line of over {MAX_LINE:,} bytes, or over {MAX_LINES:,} lines.")
                try:
                    record = json.loads(line)
                except (ValueError, RecursionError) as error:
                    if line.endswith(b"\n"):
                        raise DataError(f"{path}, line {count} is not JSON ({error}).") from error
                    return
                if isinstance(record, dict):
                    yield record


def _chunk(path: Path) -> bool:
    return bool(_CHUNK.fullmatch(path.name)) and path.is_file() and not path.is_symlink()


def opened_chunk(path: Path) -> Any:
    """A file to be read line by line, unpacked if it is sealed."""
    size = file_size(path)
    if path.suffix != ".zst":
        return path.open("rb")
    import pyarrow as pa

    ALLOWED.claim(PACKING * size)
    return io.BufferedReader(_Unpacked(pa.input_stream(str(path), compression="zstd"), str(path), size))


class _Unpacked(io.RawIOBase):
    """A packed stream, no longer than an honest one of its size would be."""

    def __init__(self, stream: Any, where: str, size: int) -> None:
        self.stream, self.where, self.left = stream, where, max(4 * PACKING * size, 1 << 20)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self.stream.read(len(buffer))
        except OSError as error:
            raise DataError(f"{self.where} is a damaged or cut zstd file ({error}).") from error
        self.left -= len(data)
        if self.left < 0:
            raise Refused(f"{self.where} unpacks to far more than its size; it is not a stream of traces.")
        buffer[: len(data)] = data
        return len(data)


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _rows(record: dict[str, Any], updates: dict[str, list[dict[str, Any]]]) -> Iterator[Row]:
    """The rows of an episode, or of a trace that stands alone."""
    traces = record.get("traces") if isinstance(record.get("traces"), list) else [record]
    for trace in traces or ():
        if isinstance(trace, dict) and isinstance(trace.get("nodes"), list):
            yield from _of_trace(trace, record, updates.get(str(trace.get("id")), []))


def _of_trace(trace: dict[str, Any], episode: dict[str, Any], updates: list[dict[str, Any]]) -> Iterator[Row]:
    nodes = [node for node in trace["nodes"] if isinstance(node, dict)]
    if len(nodes) != len(trace["nodes"]) or len(nodes) > MOST_NODES:
        raise ValueError("a trace has nodes that are no objects, or too many of them")
    info = _dict(trace.get("info"))
    for update in updates:
        info = info | _dict(update.get("info"))
    about, step = _about(trace, episode, info)
    for index, path in enumerate(_paths(nodes)):
        row = _row([nodes[at] for at in path])
        for update in updates:
            for branch in update.get("branches") or ():
                if isinstance(branch, dict) and branch.get("index") == index:
                    _annotate(row, branch)
        if any(row.mask):
            row.about = about | {"uid": f"{trace.get('id')}/{index}"}
            row.step = step
            yield row


def _paths(nodes: list[dict[str, Any]]) -> Iterator[list[int]]:
    """Node numbers from the root to each leaf, in the order of the leaves."""
    parents = [node.get("parent") for node in nodes]
    inner = set(parents)
    total = 0
    for leaf in (at for at in range(len(nodes)) if at not in inner):
        path, at = [], leaf
        while type(at) is int and 0 <= at < len(nodes) and total <= MOST_NODES:
            path.append(at)
            total += 1
            following = parents[at]
            at = following if type(following) is int and following < at else -1  # a message stands after its parent
        if total > MOST_NODES:
            raise ValueError("a trace has too many branches")
        yield path[::-1]


def _row(nodes: list[dict[str, Any]]) -> Row:
    """Tokens and columns along a path; a node's numbers are those of its sampled tokens."""
    row = Row()
    held = {name for name in _COLUMNS if any(node.get(name) for node in nodes)}
    for node in nodes:
        ids, mask = (_list(node.get(key)) for key in ("token_ids", "mask"))
        mask = [bool(one) for one in mask] if len(mask) == len(ids) else [False] * len(ids)
        row.ids += ids
        row.mask += mask
        for name in held:
            values = iter(_list(node.get(name)))
            row.columns.setdefault(name, []).extend(next(values, None) if one else 0.0 for one in mask)
    return row


def _annotate(row: Row, streams: dict[str, Any]) -> None:
    """What a producer wrote about a path: one number for each of its tokens, as far as it was trained on."""
    for name in _COLUMNS:
        stream = _list(streams.get(name))
        if stream and any(one is not None for one in stream):
            padded = (stream + [None] * len(row.ids))[: len(row.ids)]
            row.columns[name] = [one if chosen else 0.0 for one, chosen in zip(padded, row.mask, strict=True)]


def _about(trace: dict[str, Any], episode: dict[str, Any], info: dict[str, Any]) -> tuple[dict[str, Any], int | None]:
    """Everything of a row that is not a token's, and the step it was trained at."""
    rewards = [one for one in _dict(trace.get("rewards")).values() if isinstance(one, dict)]
    scores = [(one.get("score"), one.get("weight", 1.0)) for one in rewards]
    scored = [s * w for s, w in scores if isinstance(s, int | float) and isinstance(w, int | float)]
    work = _dict(_dict(episode.get("run")).get("work"))
    calls = [call for call in _list(trace.get("calls")) if isinstance(call, dict) and not call.get("error")]
    cut = trace.get("stop_condition") in _LIMITS or bool(calls and calls[-1].get("finish_reason") == "length")
    step = _dict(info.get("ship")).get("step")
    version = _dict(work.get("policy")).get("start")
    return {
        "group": _dict(episode.get("group")).get("id") or info.get("group_id"),
        "outcome": float(sum(scored)) if scored else None,
        "finish_reason": "length" if cut else "stop",
        "policy_version": version if type(version) is int else None,
        "data_source": _dict(episode.get("env")).get("name") or _dict(episode.get("env")).get("id"),
        "kind": info.get("kind") or work.get("type"),
    }, step if type(step) is int and step >= 0 else None


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


# ── drafts ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _drafts(rows: list[Row], where: str, *, by_step: bool) -> list[Draft]:
    """One draft a step; rows that were never trained on are left out where it is known which were."""
    trained = [row for row in rows if row.step is not None and row.about["kind"] != "eval"]
    kept = trained or [row for row in rows if row.about["kind"] != "eval"] or rows
    by: defaultdict[int | None, list[Row]] = defaultdict(list)
    for row in kept:
        by[row.step if by_step or len({one.step for one in kept}) == 1 else None].append(row)
    drafts = [_draft(by[step], where, step) for step in sorted(by, key=lambda step: -1 if step is None else step)]
    if drafts and len(kept) < len(rows):
        drafts[0].remarks.append(sentence_pair("importers.not_trained", left=len(rows) - len(kept)))
    return drafts


def _draft(rows: list[Row], where: str, step: int | None) -> Draft:
    names = {name for row in rows for name in row.columns}
    seen = [row for row in rows if names.isdisjoint(_OF_TRAINER) or not row.columns.keys().isdisjoint(_OF_TRAINER)]
    for row in seen:
        _cut(row)
    seen = [row for row in seen if any(row.mask)]
    draft, whole = Draft(where, "prime_rl", step=step), Draft(where)
    if len(seen) < len(rows):
        draft.remarks.append(sentence_pair("importers.not_trained", left=len(rows) - len(seen)))
    lengths = [len(row.ids) for row in seen]
    whole.put("response_mask", [Numbers(np.array(row.mask, dtype=bool), "json") for row in seen], lengths)
    whole.put("attention_mask", [Numbers(np.ones(n, dtype=bool), "json") for n in lengths], lengths)
    whole.put("token_ids", [_numbers(row.ids, where, "token_ids") for row in seen], lengths)
    for theirs, ours in _COLUMNS.items():
        full = [theirs in row.columns and None not in row.columns[theirs] for row in seen]
        if all(full) and full:
            whole.put(ours, [_numbers(row.columns[theirs], where, theirs) for row in seen], lengths)
        elif any(full):
            said = sentence_pair("importers.only_in_some_rows", name=ours, rows=len(full), holders=sum(full))
            draft.remarks.append(said)
    draft.put_sequences(whole.columns)
    for name in ("uid", "group", "outcome", "finish_reason", "policy_version", "data_source"):
        draft.put_row(name, [row.about.get(name) for row in seen], len(seen))
    return draft


def _cut(row: Row) -> None:
    """Only as far as the trainer saw the row: it may have cut it."""
    for name in _OF_TRAINER:
        known = [at for at, one in enumerate(row.columns.get(name, ())) if one is not None and row.mask[at]]
        later = [at for at in range(known[-1] + 1, len(row.mask)) if row.mask[at]] if known else []
        if later:
            row.ids, row.mask = row.ids[: later[0]], row.mask[: later[0]]
            row.columns = {key: column[: later[0]] for key, column in row.columns.items()}


def _numbers(values: list[Any], where: str, name: str) -> Numbers:
    found = from_list(values, where, name)
    if found is None:
        raise DataError(f"{where}: '{name}' holds something else than numbers.")
    return found
