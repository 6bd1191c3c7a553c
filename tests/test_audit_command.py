"""`mingce audit` as a person or a CI job meets it: exit codes, JSON, Markdown, runs of several steps, mistakes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from npz import save_npz
from rich.console import Console
from typer.testing import CliRunner

from mingce.audit import audit as auditing
from mingce.audit.finding import Check
from mingce.base.errors import DataError, MingceError, RunError, SettingError, UnknownNameError
from mingce.cli import app
from mingce.commands import audit as command
from mingce.training import start

KL = 0.02


def batch(sign: float = -1.0, seed: int = 0, rows: int = 48, width: int = 40) -> dict[str, np.ndarray[Any, Any]]:
    """The columns of a PPO step with GAE (γ = 1, λ = 0.95); with `sign` +1 the KL is added to the reward."""
    chance = np.random.default_rng(seed)
    lengths = chance.integers(10, width + 1, rows)
    mask = np.arange(width) < lengths[:, None]
    old = np.where(mask, -chance.exponential(0.7, mask.shape) - 0.01, 0)
    ref = np.where(mask, np.minimum(old + chance.normal(0, 0.1, mask.shape), -1e-4), 0)
    values = np.where(mask, chance.normal(0.3, 0.2, mask.shape), 0)
    scores = np.zeros(mask.shape)
    scores[np.arange(rows), lengths - 1] = chance.integers(0, 2, rows)
    rewards = scores + sign * KL * np.where(mask, old - ref, 0)
    advantages = np.zeros(mask.shape)
    after, ahead = np.zeros(rows), np.zeros(rows)
    for t in reversed(range(width)):
        here = mask[:, t]
        advantages[:, t] = np.where(here, rewards[:, t] + ahead - values[:, t] + 0.95 * after, 0)
        after, ahead = np.where(here, advantages[:, t], 0), np.where(here, values[:, t], 0)
    columns = {
        "old_log_probs": old,
        "ref_log_probs": ref,
        "token_level_scores": scores,
        "token_level_rewards": rewards,
        "values": values,
        "advantages": advantages,
        "returns": np.where(mask, advantages + values, 0),
    }
    return {
        "responses": np.where(mask, chance.integers(5, 900, mask.shape), 0),
        "response_mask": mask.astype(np.int64),
    } | {name: column.astype(np.float32) for name, column in columns.items()}


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """clean.npz, sign.npz and run/ with four steps, the third of which has the bug."""
    place = tmp_path_factory.mktemp("dumps")
    save_npz(place / "clean.npz", batch())
    save_npz(place / "sign.npz", batch(+1.0))
    (place / "run").mkdir()
    for step in range(1, 5):
        save_npz(place / "run" / f"step_{step}.npz", batch(+1.0 if step == 3 else -1.0, seed=step))
    return place


def mingce(*words: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["audit", *map(str, words)], env={"COLUMNS": "120"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout


# ── what it says ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_clean_dump_ends_with_0_and_a_bug_with_1(dumps: Path) -> None:
    code, said = mingce(dumps / "clean.npz", "--lang", "en")
    assert code == 0
    assert said.startswith("clean: ")
    code, said = mingce(dumps / "sign.npz", "--lang", "en")
    assert code == 1
    assert said.startswith("BUG: The KL penalty in the reward has the wrong sign")
    code, said = mingce(dumps / "sign.npz", "--lang", "zh")
    assert said.startswith("BUG：奖励里的 KL 惩罚符号反了")
    assert "β = 0.02（推断）" in said


def test_a_process_of_its_own_ends_with_the_same_codes(dumps: Path) -> None:
    def code(*words: str | Path) -> int:
        done = subprocess.run([sys.executable, "-m", "mingce.cli", "audit", *words], capture_output=True, text=True)
        assert "Traceback" not in done.stderr
        assert bool(done.stdout) == (done.returncode != 2)
        return done.returncode

    assert [code(dumps / name) for name in ("sign.npz", "missing.npz")] == [1, 2]


def test_json_is_one_object_in_both_languages(dumps: Path) -> None:
    code, said = mingce(dumps / "sign.npz", "--json", "--gamma", "1", "--set", "eos_id=2")
    found = json.loads(said)
    assert code == found["exit_code"] == 1
    (report,) = found["reports"]
    assert (report["source"], report["rows"], report["counts"]["bug"]) == ("generic", 48, 1)
    assert report["findings"][0]["code"] == "kl-sign"
    assert report["findings"][0]["classes"] == [23]
    assert report["settings"]["gamma"] == {"value": 1.0, "inferred": False}
    assert report["settings"]["lam"]["inferred"]
    assert report["settings"]["eos_id"]["value"] == 2
    first = report["findings"][0]["places"][0]
    assert first["label"] == str(batch(+1.0)["responses"][first["row"], first["token"]])
    assert found["verdict"]["zh"].startswith("BUG：")


def test_the_report_can_be_written_to_a_file(dumps: Path, tmp_path: Path) -> None:
    code, said = mingce(dumps / "sign.npz", "--out", tmp_path / "a.md", "--lang", "en")
    assert code == 1
    assert said.startswith("BUG: ")
    assert said.count("\n") == 1
    assert (tmp_path / "a.md").read_text(encoding="utf-8").startswith("# BUG: ")
    mingce(dumps / "sign.npz", "--out", tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["exit_code"] == 1
    _, said = mingce(dumps / "clean.npz", "--markdown", "--lang", "zh")
    assert said.startswith("# 干净：")


# ── several steps ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_of_a_directory_every_step_is_audited(dumps: Path) -> None:
    code, said = mingce(dumps / "run", "--lang", "en")
    lines = said.splitlines()
    assert code == 1
    assert lines[0].endswith("bugs in 1 of 4 dumps, first in step 3")
    assert [line[:10] for line in lines[1:5]] == ["✓ step 1  ", "✓ step 2  ", "✗ step 3  ", "✓ step 4  "]
    assert "the worst: step 3" in lines


def test_steps_can_be_chosen(dumps: Path) -> None:
    assert mingce(dumps / "run", "--step", "1", "--step", "2")[0] == 0
    assert mingce(dumps / "run", "--step", "3")[0] == 1
    for place in ("run", "run/step_1.npz"):
        with pytest.raises(DataError, match=r"no dump .*9"):
            mingce(dumps / place, "--step", "9")


def test_several_places_are_one_audit(dumps: Path) -> None:
    code, said = mingce(dumps / "clean.npz", dumps / "sign.npz", "--lang", "en")
    assert code == 1
    assert "bugs in 1 of 2 dumps, first in sign.npz" in said.splitlines()[0]


def test_a_run_of_ours_is_read_a_step_at_a_time_with_its_settings(tmp_path: Path) -> None:
    settings = (
        "steps=2",
        "prompts_per_step=8",
        "samples_per_prompt=4",
        "validation.examples=1",
        "actor.epochs=1",
        "threads=1",
        "lam=0.9",
    )
    start.train(Console(file=io.StringIO()), None, [f"root={tmp_path}", "name=run", "audit.every=0", *settings])
    code, said = mingce(tmp_path / "run", "--json")
    assert code == 0
    reports = json.loads(said)["reports"]
    assert [report["step"] for report in reports] == [1, 2]
    assert all(report["settings"]["lam"] == {"value": 0.9, "inferred": False} for report in reports)
    assert mingce(tmp_path / "run", "--step", "2", "--json")[0] == 0
    with pytest.raises(RunError, match="no ledger of that step; there are: 1, 2"):
        mingce(tmp_path / "run", "--step", "7")


# ── diff ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_diff_names_the_column_row_and_token_where_two_dumps_part(dumps: Path) -> None:
    def diff(*words: str | Path) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["diff", *map(str, words)], env={"COLUMNS": "100"})
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.stdout

    code, said = diff(dumps / "clean.npz", dumps / "sign.npz", "--lang", "en")
    assert code == 1
    assert said.startswith("They part first in rewards: row 0, token 0")
    assert "← rewards" in said
    code, said = diff(dumps / "clean.npz", dumps / "sign.npz", "--json")
    found = json.loads(said)
    assert (code, found["same"], found["first"]) == (1, False, "rewards")
    assert [c["column"] for c in found["columns"] if c["sameness"] == "differs"] == ["rewards", "advantages", "returns"]
    code, said = diff(dumps / "clean.npz", dumps / "clean.npz", "--lang", "zh")
    assert code == 0
    assert "相同" in said.splitlines()[0]
    assert diff(dumps / "run", dumps / "run" / "step_2.npz", "--step", "2")[0] == 0
    with pytest.raises(DataError, match=r"holds 4 dumps \(steps 1, 2, 3, 4\); choose with --step"):
        diff(dumps / "run", dumps / "clean.npz")
    save_npz(dumps / "empty.npz", batch(rows=0))
    with pytest.raises(DataError, match="no row in common"):
        diff(dumps / "clean.npz", dumps / "empty.npz")


# ── mistakes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "error", "says"),
    [
        (("--gamma", "2"), SettingError, "--gamma must lie between 0 and 1"),
        (("--set", "lamda=1"), UnknownNameError, "did you mean 'lambda'"),
        (("--set", "gamma"), SettingError, "--set takes key=value"),
        (("--json", "--markdown"), SettingError, "exclude each other"),
        (("--ref-model", "tiny"), SettingError, "--ref-model needs --model"),
        (("--out", "/nowhere/at/all.md"), SettingError, "cannot be written"),
    ],
)
def test_a_mistake_is_one_sentence(dumps: Path, words: tuple[str, ...], error: type[MingceError], says: str) -> None:
    with pytest.raises(error, match=says):
        mingce(dumps / "clean.npz", *words)


def test_settings_are_numbers_lists_or_words() -> None:
    given = command.parse_settings(
        ["stop_ids=[1, 2]", "kl_coef=1e-3", "estimator=grpo", "eos_id=2"], gamma=1.0, lam=None
    )
    assert given == {"gamma": 1.0, "stop_ids": [1, 2], "beta": 0.001, "estimator": "grpo", "eos_id": 2}


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x80\x04garbage", b"{}", b"PAR1" * 9])
def test_what_is_no_dump_ends_with_2(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.bin").write_bytes(content)
    with pytest.raises(MingceError) as caught:
        mingce(tmp_path / "x.bin")
    assert caught.value.exit_code == 2


def test_a_check_that_falls_over_is_could_not_run(dumps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(evidence: object) -> list[Any]:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(auditing, "checks", lambda: [Check("K0 broken", ("坏", "broken"), (), broken)])
    with pytest.raises(DataError, match=r"the check K0 broken failed on .*clean\.npz \(ZeroDivisionError: oh\)"):
        mingce(dumps / "clean.npz")


def test_when_no_check_can_run_it_is_not_called_clean(dumps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = Check("K0", ("缺", "lacks"), ("nothing_has_this",), lambda evidence: ())
    monkeypatch.setattr(auditing, "checks", lambda: [lacking])
    with pytest.raises(DataError, match="no check can run"):
        mingce(dumps / "clean.npz")


def test_someone_who_waits_at_a_terminal_is_told_and_a_pipe_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[io.StringIO] = []

    def console(terminal: bool) -> Callable[..., Console]:
        def made(**_: object) -> Console:
            said.append(io.StringIO())
            return Console(file=said[-1], force_terminal=terminal)

        return made

    monkeypatch.setattr(command, "PATIENCE", 0.0)
    for terminal in (True, False):
        monkeypatch.setattr(command, "make_console", console(terminal))
        with command.waiting("reading") as tell:
            tell("step 3  K5 gae")
            for _ in range(10_000):
                if not terminal or "K5" in said[-1].getvalue():
                    break
                time.sleep(0.01)
    assert "step 3  K5 gae" in said[0].getvalue()
    assert said[1].getvalue() == ""
