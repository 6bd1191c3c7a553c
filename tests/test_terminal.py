"""What a file's name, a setting or a text says never commands the terminal, in a real one."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from npz import save_npz
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from mingce.base.terminal import make_console, shown

EVIL = "\x1b]0;mine\x07\x1b[2J\u202egnp\x9b31m"
COMMANDS = ("\x1b]0;", "\x1b[2J", "\x07", "\u202e", "\x9b")


def in_terminal(cwd: Path, *words: str) -> str:
    """All that a command writes to its terminal."""
    ours, its = pty.openpty()
    env = os.environ | {"TERM": "xterm-256color", "COLUMNS": "300", "PYTHONUTF8": "1", "MINGCE_LANG": "en"}
    with subprocess.Popen(
        [sys.executable, "-m", "mingce.cli", *words], stdin=its, stdout=its, stderr=its, cwd=cwd, env=env
    ):
        os.close(its)
        said = b""
        try:
            while more := os.read(ours, 65536):
                said += more
        except OSError:  # its end of the line is closed
            pass
    os.close(ours)
    return said.decode(errors="replace")


def test_control_characters_become_escapes() -> None:
    assert shown("a\x1b[0m\u202eb\x07\x9b\n\tc") == "a\\x1b[0m\\u202eb\\x07\\u009b\n\tc"
    assert shown("请问1+1=2？ 💥 é") == "请问1+1=2？ 💥 é"
    value = {"x": EVIL + "\x7f\u2028"}
    assert json.loads(shown(json.dumps(value, ensure_ascii=False))) == value


def test_nothing_gets_through_a_console(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setenv("FORCE_COLOR", "1")
    console = make_console()
    console.file = stream
    table = Table(EVIL)
    table.add_row(Text(EVIL, style="red"))
    console.print(escape(EVIL), table, style="bold")
    console.out(EVIL)
    with Live(Text(EVIL), console=console, refresh_per_second=1) as live:
        live.update(table, refresh=True)
    assert "mine" in stream.getvalue()
    assert "\x1b[" in stream.getvalue()  # its own colours
    for command in COMMANDS:
        assert command not in stream.getvalue()


@pytest.mark.parametrize(
    "words",
    [
        ("audit", f"{EVIL}.npz"),
        ("diff", f"{EVIL}.npz", "nothing"),
        ("check-log", f"{EVIL}.md", "--json"),
        ("check-log", f"{EVIL}.md", "more", EVIL),
        ("columns", EVIL),
        ("train", f"{EVIL}.yaml"),
        ("train", "--dry-run", f"{EVIL}=1"),
        ("explain", f"{EVIL}.npz", "--format", "markdown"),
        ("ask", EVIL),
        ("view", f"{EVIL}.npz", "--export", f"{EVIL}.html"),
        (EVIL,),
    ],
    ids=lambda words: "-".join(word for word in words if word.isalpha() or word == "check-log"),
)
def test_odd_names_in_a_terminal(words: tuple[str, ...], tmp_path: Path) -> None:
    columns = {"rewards": [[0.0, 1.0]], "values": [[0.1, 0.2]], "advantages": [[0.5, 9.8]], "returns": [[1.0, 1.0]]}
    with open(tmp_path / f"{EVIL}.npz", "wb") as file:
        save_npz(file, {name: np.array(rows) for name, rows in columns.items()})
    (tmp_path / f"{EVIL}.md").write_text(f"{EVIL}: 0.5 + 0.5 = 2\n", encoding="utf-8")
    (tmp_path / f"{EVIL}.yaml").write_text("nope: 2\n", encoding="utf-8")
    said = in_terminal(tmp_path, *words)
    assert said.strip()
    assert "Traceback" not in said
    for command in COMMANDS:
        assert command not in said, repr(said)
