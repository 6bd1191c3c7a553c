"""The command line as a person meets it: a real process, its output, its exit code."""

from __future__ import annotations

import subprocess
import sys

import pytest


def mingce(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mingce.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, env={"COLUMNS": "200", "PYTHONUTF8": "1"})


def test_credit_puts_the_numbers_into_the_formulae() -> None:
    done = mingce("credit", "--rewards", "0, 0, 1", "--values", "0.3 0.4 0.6", "--lam", "0.95")
    assert done.returncode == 0, done.stderr
    assert "A_0 = 0.1 + 0.95·0.58 = 0.651" in done.stdout
    assert "R_2 = 0.4 + 0.6 = 1" in done.stdout


def test_columns_explains_one_in_both_languages() -> None:
    assert "蒙特卡洛" in mingce("columns", "returns", "--lang", "zh").stdout
    english = mingce("columns", "token_level_rewards", "--lang", "en").stdout
    assert english.startswith("rewards")
    assert "r_t = score_t − β·k_t" in english


def test_example_shows_the_seeds_numbers() -> None:
    shown = mingce("example").stdout
    for number in ("0.6211", "0.995", "0.8224"):
        assert number in shown


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("columns", "vlaues"), "unknown column 'vlaues'; did you mean 'values'?"),
        (("credit", "--rewards", "0, x", "--values", "1, 2"), "--rewards must be numbers separated by commas"),
        (("credit", "--rewards", "0, nan", "--values", "1, 2"), "--rewards has nan for token 1; give finite numbers"),
        (("credit", "--rewards", "0", "--values", "1, 2"), "--rewards has 1 numbers and --values 2"),
        (("credit", "--rewards", "0", "--values", "1", "--lam", "2"), "--lam must lie between 0 and 1"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_two(words: tuple[str, ...], says: str) -> None:
    done = mingce(*words)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert "Traceback" in mingce("--debug", *words).stderr


@pytest.mark.parametrize("command", ["example", "columns", "credit"])
def test_every_command_has_an_example_in_its_help(command: str) -> None:
    assert f"Example: mingce {command}" in mingce(command, "--help").stdout
