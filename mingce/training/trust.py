"""Which code a run may execute: what this person has trained with on this machine, or has said yes to.

A run's settings name files of Python, a cluster whose answers are unpickled, an address that is sent a key. A
directory that came in an archive belongs to whoever unpacked it, so its owner says nothing; what counts is the person's
own list, kept beside no run: the very file (path and SHA-256) and the very address.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from mingce.algorithms.own import own_file
from mingce.base.errors import RunError
from mingce.base.terminal import make_console
from mingce.base.texts import sentence
from mingce.config import Config
from mingce.progress.tokens import visible
from mingce.tasks.function import split_spec

SHOWN_LINES = 12
SHOWN_WIDTH = 110


@dataclass(frozen=True)
class Executed:
    """Something that a setting has executed: a file with its hash, a cluster, or a judge's address."""

    setting: str
    name: str
    sha256: str = ""

    @property
    def line(self) -> str:
        """As the list keeps it."""
        return json.dumps([self.setting, self.name, self.sha256], ensure_ascii=False)


def executed_by(config: Config, *, trains: bool) -> Iterator[Executed]:
    """What the settings execute, in training or in scoring alone; a file that is not there executes nothing."""
    for spec in config.reward.function:
        path = split_spec(spec)[0].resolve()
        if path.is_file():
            yield Executed("reward.function", str(path), hashlib.sha256(path.read_bytes()).hexdigest())
    for server in config.agent.mcp:  # a command that is run, or a server that the policy's calls go to
        yield Executed("agent.mcp", server)
    if config.reward.judge.url is not None:  # it is sent every answer, and the person's key
        yield Executed("reward.judge.url", config.reward.judge.url)
    always = [("task", config.task), *(("agent.tools", tool) for tool in config.agent.tools)]
    in_training = [("estimator", config.estimator), ("actor.loss", config.actor.loss)]
    for setting, name in [*always, *(in_training if trains else [])]:
        file = own_file(name)
        if file is not None and file.is_file():
            yield Executed(setting, str(file), hashlib.sha256(file.read_bytes()).hexdigest())
    if trains and config.engine == "ray" and config.ray.address not in ("local", "auto"):
        yield Executed("ray.address", config.ray.address)


def remember(things: Sequence[Executed]) -> None:
    """Adds them to the person's list; where it cannot be written, the person is asked again another time."""
    known = _known()
    lines = "".join(f"{thing.line}\n" for thing in things if thing.line not in known)
    if not lines:
        return
    with suppress(OSError, RuntimeError):
        _list().parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(_list(), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(handle, "a", encoding="utf-8") as file:
            file.write(lines)


def expect_trust(
    run: Path | None, config: Config, typed: Sequence[str], *, trust: bool, trains: bool = False, command: str
) -> None:
    """Asks about what the run at that place would execute and this person never has; without a terminal, an error.

    `typed` are the settings of the command line, which the person has chosen; `trust` is `--trust`.
    """
    if run is None:
        return
    chosen = {word.partition("=")[0] for word in typed}
    strange = [thing for thing in executed_by(config, trains=trains) if thing.setting not in chosen]
    known = _known()
    for thing in strange:
        if thing.line not in known and not trust and not _agreed(run, thing):
            raise RunError(_refusal(run, thing, command))
    remember(strange)


def _agreed(run: Path, thing: Executed) -> bool:
    """Whether the person says yes, having seen what it is; False where nobody can be asked."""
    console = make_console(stderr=True)
    if not (sys.stdin.isatty() and console.is_terminal):
        return False
    question = sentence("training.executes", run=run, what=_named(thing))
    console.print(Text(visible(question), style="bold"), soft_wrap=True)
    if thing.sha256:
        console.print(Text(f"  sha256 {thing.sha256}"), soft_wrap=True)
        lines = Path(thing.name).read_text(encoding="utf-8", errors="replace").splitlines()
        for number, line in enumerate(lines[:SHOWN_LINES], 1):
            console.print(Text(f"  {number:>3}  {visible(line)[:SHOWN_WIDTH]}"), soft_wrap=True)
        if len(lines) > SHOWN_LINES:
            console.print(Text(f"    …  {len(lines)}"))
    console.print(sentence("training.execute") + " ", end="", markup=False)
    try:
        return input().strip().lower() in ("y", "yes", "是")
    except EOFError:
        return False


def _named(thing: Executed) -> str:
    return f"{thing.setting} = {thing.name}"


def _refusal(run: Path, thing: Executed, command: str) -> str:
    digest = f" (sha256 {thing.sha256[:16]}…)" if thing.sha256 else ""
    return visible(sentence("training.untrusted", run=run, what=_named(thing) + digest, command=command))


def _list() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or ""
    return (Path(state) if Path(state).is_absolute() else Path.home() / ".local" / "state") / "mingce" / "trusted.jsonl"


def _known() -> set[str]:
    try:
        return set(_list().read_text(encoding="utf-8").splitlines())
    except (OSError, RuntimeError, UnicodeDecodeError):
        return set()
