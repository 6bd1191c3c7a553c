"""The display language follows the person: --lang, MINGCE_LANG, the locale. That of the tasks is a setting."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

from mingce.base.errors import SettingError
from mingce.base.lang import display_lang
from mingce.cli import app
from mingce.config import as_values, config_of, read_config

SMALL = ("steps=1", "prompts_per_step=4", "samples_per_prompt=2", "minibatch_rollouts=8", "validation.examples=4",
         "threads=1")  # fmt: skip
COMMANDS = sorted(get_command(app).commands)  # type: ignore[attr-defined]
PLAIN = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "HOME") if name in os.environ}


def mingce(*words: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[bytes]:
    """A real process, with nothing in its environment that names a language but what is given."""
    command = [sys.executable, "-m", "mingce.cli", *words]
    return subprocess.run(command, capture_output=True, env=PLAIN | {"COLUMNS": "120"} | env, cwd=cwd)


def here(*words: str, **env: str) -> str:
    """What the command prints, in this process, which has torch loaded; its environment as in `mingce`."""
    unset = dict.fromkeys(("LC_ALL", "LC_MESSAGES", "LANG", "MINGCE_LANG"))
    done = CliRunner().invoke(app, words, env={"COLUMNS": "120", **unset, **env})
    assert done.exit_code == 0, (words, done.output)
    return done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_the_option(command: str) -> None:
    options = [name for option in get_command(app).commands[command].params for name in option.opts]  # type: ignore[attr-defined]
    assert "--lang" in options


@pytest.mark.parametrize(
    ("env", "lang"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, "en"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "C", "LC_MESSAGES": "zh_TW.UTF-8"}, "zh"),
        ({"LANG": "C", "MINGCE_LANG": "ZH"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "MINGCE_LANG": "en"}, "en"),
    ],
)
def test_the_environment_chooses(env: dict[str, str], lang: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG", "MINGCE_LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert display_lang() == lang


def test_an_unknown_language_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINGCE_LANG", "fr")
    with pytest.raises(SettingError, match="MINGCE_LANG must be zh or en, but is 'fr'"):
        display_lang()
    done = mingce("columns", MINGCE_LANG="fr")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"MINGCE_LANG must be zh or en" in done.stderr


def test_the_option_is_stronger_than_the_environment() -> None:
    chinese, english = "蒙特卡洛".encode(), b"Monte Carlo"
    assert chinese in mingce("columns", "returns", LANG="zh_CN.UTF-8").stdout
    assert english in mingce("columns", "returns", LANG="C.UTF-8").stdout
    assert chinese in mingce("columns", "returns", "--lang", "zh", LANG="C.UTF-8", MINGCE_LANG="en").stdout
    assert english in mingce("columns", "returns", "-l", "en", LANG="zh_CN.UTF-8", MINGCE_LANG="zh").stdout


def test_the_demo_is_chinese_and_its_display_the_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run of the Chinese task, shown in English by train, in either language by whatever opens it."""
    done = mingce("train", *SMALL, "name=demo", cwd=tmp_path, LANG="C.UTF-8")
    shown = done.stdout.decode()
    assert done.returncode == 0, done.stderr.decode()
    assert "self-check: KL to the reference 0" in shown
    assert "请问" in shown
    assert "训练完成" not in shown
    monkeypatch.chdir(tmp_path)
    assert "训练完成" in here("resume", "runs/demo", "steps=2", "--lang", "zh", LANG="C.UTF-8")
    for lang, says in (("zh", "第 2 步的策略"), ("en", "the policy of step 2")):
        assert says in here("export", "runs/demo", "--out", lang, "--lang", lang, LANG="C.UTF-8")
    words = ("eval", "runs/demo", "--examples", "2", "--samples", "1")
    assert "准确率" in (chinese := here(*words, LANG="zh_CN.UTF-8"))
    assert "accuracy" in (english := here(*words, LANG="C.UTF-8"))
    assert "请问" in chinese
    assert "请问" in english
    assert json.loads(here(*words, "--json", "--lang", "en"))["lang"] == "zh"


def test_the_tasks_language_is_a_setting_of_the_task() -> None:
    assert read_config(None, []).data.lang == "zh"
    assert read_config(None, ["lang=en"]).data.lang == read_config(None, ["data.lang=en"]).data.lang == "en"


def test_runs_and_recipes_made_before_open_as_they_were(tmp_path: Path) -> None:
    values = as_values(read_config(None, ["data.lang=en", "data.size=7"]))
    old = values | {"data": {k: v for k, v in values["data"].items() if k != "lang"}, "lang": "en"}
    assert config_of(old) == config_of(values)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(old), encoding="utf-8")
    assert read_config(recipe) == config_of(values)
    assert read_config(recipe, ["lang=zh"]).data.lang == "zh"
    recipe.write_text("lang: en\n", encoding="utf-8")
    assert read_config(recipe).data.lang == "en"


def test_a_run_made_before_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    here("train", *SMALL, "lang=en", "name=run", "keep.checkpoint_every=1", f"root={tmp_path / 'new'}")
    shutil.copytree(tmp_path / "new", tmp_path / "old")
    config = tmp_path / "old" / "run" / "config.yaml"
    values = yaml.safe_load(config.read_text(encoding="utf-8"))
    values["lang"] = values["data"].pop("lang")
    config.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    for root in ("new", "old"):
        here("resume", str(tmp_path / root / "run"), "steps=2")
    new, old = ((tmp_path / root / "run" / "metrics.jsonl").read_bytes() for root in ("new", "old"))
    assert new == old
    assert new.count(b"\n") == 3  # validation before the first step, and two steps


@pytest.mark.parametrize(
    "env",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "gbk"},
    ],
    ids=["C", "ascii", "gbk"],
)
def test_a_terminal_that_cannot_write_chinese_gets_something(env: dict[str, str], tmp_path: Path) -> None:
    for words in (
        ("columns", "advantages", "--lang", "zh"),
        ("columns", "--lang", "en"),
        ("ask", "什么是白化"),
        ("explain", "--format", "markdown", "--lang", "zh"),
        ("columns", "优势▲"),
        ("train", "--help"),
    ):
        done = mingce(*words, cwd=tmp_path, **env)
        assert b"Traceback" not in done.stderr, (words, done.stderr.decode(errors="replace"))
        assert done.returncode == (2 if "优势▲" in words else 0), words
        assert done.stdout or done.returncode
