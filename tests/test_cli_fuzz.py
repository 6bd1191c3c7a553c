"""Random mistakes on the command line: a sentence, an exit code, nothing left behind, and no traceback ever."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from mistakes import make_yard, mistake

from mingce import cli

COUNT = 500
LINES = 12
"""Of an error at most: a sentence is one, typer's usage with an option's long help may be more."""


def files(root: Path) -> dict[str, int]:
    return {str(path): path.lstat().st_size for path in root.rglob("*") if not path.is_dir() and path.name != "lock"}


def typed(word: str) -> bytes:
    """As a shell passes it on; half a character that stands for no byte cannot be typed."""
    try:
        return os.fsencode(word)
    except UnicodeEncodeError:
        return word.encode("utf-8", "replace")


def judge(words: list[str], code: object, out: str, err: str) -> None:
    assert code in (0, 1, 2), (words, code, err[-2000:])
    assert "Traceback" not in err, (words, err[-3000:])
    assert not set("\x1b\u202e\x07") & set(out + err), (words, out[-500:], err[-500:])
    if code == 2:
        assert err.strip(), (words, out[-500:])
        assert err.strip().count("\n") < LINES, (words, err)


def test_five_hundred_mistakes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    places = make_yard(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    rng, before = random.Random(16), files(tmp_path)
    for _ in range(COUNT):
        words = mistake(rng, places)
        monkeypatch.setenv("MINGCE_LANG", "en")
        monkeypatch.setattr(sys, "argv", ["mingce", *words])
        monkeypatch.setattr(sys, "stdin", io.StringIO(""))
        try:
            cli.main()
        except SystemExit as left:
            code = left.code or 0
        except BaseException as error:
            raise AssertionError(f"{words} raised {type(error).__name__}") from error
        out, err = capsys.readouterr()
        judge(words, code, out, err)
        if code == 2:
            assert files(tmp_path) == before, words
        before = files(tmp_path)


@pytest.mark.slow
def test_mistakes_in_processes_of_their_own(tmp_path: Path) -> None:
    """A larger sample as a person types it; CLI_FUZZ is how many, CLI_FUZZ_SEED which."""
    places = make_yard(tmp_path)
    rng = random.Random(int(os.environ.get("CLI_FUZZ_SEED", "1")))
    for _ in range(int(os.environ.get("CLI_FUZZ", "300"))):
        words = mistake(rng, places)
        done = subprocess.run(
            [sys.executable, "-P", "-m", "mingce.cli", *(typed(word) for word in words)],
            capture_output=True, cwd=tmp_path, stdin=subprocess.DEVNULL, timeout=300,
            env=os.environ | {"HF_HUB_OFFLINE": "1"},
        )  # fmt: skip
        judge(words, done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
