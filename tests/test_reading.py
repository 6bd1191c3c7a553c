"""Files of strangers: what is no regular file is not waited for, what would unpack to more than it is is refused."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from mingce.base.errors import MingceError, RunError
from mingce.base.reading import MAX_NODES, open_regular, parse_yaml, read_regular
from mingce.record.run import Run

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + k)}: &{chr(98 + k)} [{', '.join([f'*{chr(97 + k)}'] * 9)}]\n" for k in range(20)
)


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        "a: &a {b: *a}",
        "a: &only 1",
        "[" * 100_000,
        "- " * 50_000 + "1",
        "? " * 50_000,
        "".join(f"k{i}: 1\n" for i in range(MAX_NODES)),
        "a: " + "1:" * 300_000 + "1",
        "a: !!int '" + "1:" * 300_000 + "1'",
        "a: " + "9" * 9000,
        "a: 2020-99-99",
        "a: !!float ''",
        "a: !!timestamp x",
        "a: !!python/object/apply:os.system [x]",
        "{a: b: c}",
        "a: \0",
        b"\xff\xfe\0",
        b"a: \xff",
    ],
)
def test_yaml_that_no_settings_need_is_refused_at_once(text: str | bytes) -> None:
    with pytest.raises(yaml.YAMLError):
        parse_yaml(text)


def test_plain_yaml_is_read_as_ever() -> None:
    text = "a: {b: 0.5, c: [1, 2]}\nd: |\n" + "  9 is a long text\n" * 1000
    assert parse_yaml(text) == yaml.safe_load(text)


@pytest.fixture
def odd_files(tmp_path: Path) -> list[Path]:
    """A pipe, a socket, devices, a directory, links to them and to nowhere."""
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
    (tmp_path / "folder").mkdir()
    links = {"zero": "/dev/zero", "stdin": "/dev/stdin", "null": "/dev/null", "nowhere": "gone", "loop": "loop"}
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
    (tmp_path / "to-pipe").symlink_to("pipe")
    names = ["pipe", "socket", "folder", *links, "to-pipe", "zero\0byte", "n" * 300]
    return [tmp_path / name for name in names]


def test_only_regular_files_are_opened(odd_files: list[Path], tmp_path: Path) -> None:
    for path in odd_files:
        with pytest.raises(OSError, match=r"."):
            open_regular(path)
    (tmp_path / "real").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("real")
    assert read_regular(tmp_path / "link", 5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_regular(tmp_path / "real", 4)
    with pytest.raises(OSError, match="link"):
        open_regular(tmp_path / "link", follow=False)


def run_with(path: Path, **files: str) -> Path:
    with Run.create(path, "r", {"steps": 1}):
        pass
    for name, content in files.items():
        (path / "r" / name.replace("_", ".")).write_text(content)
    return path / "r"


def test_a_runs_settings_may_be_a_bomb(tmp_path: Path) -> None:
    run = Run.open(run_with(tmp_path, config_yaml=BOMB), readonly=True)
    with pytest.raises(RunError, match="anchor or alias"):
        run.config()
    (run.path / "config.yaml").unlink()
    os.mkfifo(run.path / "config.yaml")
    with pytest.raises(RunError, match="not a regular file"):
        run.config()


@pytest.mark.parametrize("line", ['{"step": 1e999}', '{"step": [' + "[" * 100_000, '{"step": 1, "a": [1]}', "[]", "7"])
def test_a_damaged_line_is_a_sentence_for_resume(tmp_path: Path, line: str) -> None:
    run = Run.open(run_with(tmp_path, metrics_jsonl=line + "\n"), readonly=False)
    if "[1]" not in line:
        with pytest.raises(RunError, match="line 1 of"):
            run.metrics()
        with pytest.raises(RunError, match="line 1 of"):
            run.rewind(0)
    run.close()


def test_a_pipe_for_a_log_is_a_sentence_for_resume(tmp_path: Path) -> None:
    path = run_with(tmp_path)
    os.mkfifo(path / "metrics.jsonl")
    with pytest.raises(RunError, match="not a regular file"):
        Run.open(path, readonly=True).metrics()


BOMBED = {
    "recipe": ["train", "BOMB"],
    "plan": ["plan", "BOMB", "--model-config", "7b"],
    "mapping": ["audit", "x.jsonl", "--mapping", "BOMB"],
    "view mapping": ["view", "x.jsonl", "--mapping", "BOMB", "--export", "out.html"],
    "eval": ["eval", "r", "--step", "0"],
    "resume": ["resume", "r"],
    "view": ["view", "r", "--export", "out.html"],
}


@pytest.mark.parametrize("name", BOMBED)
def test_a_bomb_is_a_sentence_wherever_yaml_is_read(tmp_path: Path, name: str) -> None:
    run_with(tmp_path, config_yaml=BOMB)
    (tmp_path / "bomb.yaml").write_text(BOMB)
    (tmp_path / "x.jsonl").write_text('{"prompt": "a", "response": "b", "reward": 1}\n')
    command = ["bomb.yaml" if word == "BOMB" else word for word in BOMBED[name]]
    ran = subprocess.run(
        [sys.executable, "-m", "mingce.cli", *command], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 2, ran.stderr
    assert "Traceback" not in ran.stderr
    assert "anchor or alias" in ran.stderr + ran.stdout or name.startswith("view")


def test_the_errors_are_the_persons(tmp_path: Path) -> None:
    from mingce.config import read_config

    os.mkfifo(tmp_path / "recipe.yaml")
    with pytest.raises(MingceError, match="cannot be read"):
        read_config(tmp_path / "recipe.yaml")
