r"""GSM8K: grade-school word problems whose answer is one number, right or wrong.

A file has the set's own columns (`question`, and `answer` ending in `#### 18`) or verl's. The number of a response
is what follows its last `####`, else what stands in its last `\boxed{}`, else its last number. It is right when it is
equal to the ground truth, whether written `18`, `$18.00`, `18 %` or `36/2`; there is no credit for half the way.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from math_verify import LatexExtractionConfig, parse, verify
from sympy import Rational

from mingce.tasks.answers import after_last, last_boxed, numbers, plain
from mingce.tasks.base import Example, Prompt, Score
from mingce.tasks.data import Convert, Examples, Row
from mingce.tasks.data_columns import Keys, converters
from mingce.tasks.file_task import FileTask
from mingce.tasks.rows import Rows

INSTRUCTION = 'Think step by step and give the final number after "####".'
DATA_SOURCE = "openai/gsm8k"

# Only arithmetic that takes no longer than its text is long: a response of 9^9^9^9 must not stop the run.
ARITHMETIC = re.compile(r"(?:[\d.,+\-*/()\s{}$%]|\\[dt]?frac|\\times|\\cdot|\\div|\\left|\\right|\\[,;! ])+", re.ASCII)
LONGEST_EXPRESSION = 100

for module in ("parser", "grader"):  # they warn that their time limit is off; the scorer's own limit holds instead
    logging.getLogger(f"math_verify.{module}").setLevel(logging.ERROR)


def gsm8k(
    train: Sequence[str | Path], held_out: Sequence[str | Path] | None = None, *, chat: bool = True, seed: int = 0
) -> FileTask:
    """The problems of the files; those with the set's own columns are asked in a chat or (`chat=False`) as text."""
    apart = _read(held_out, chat, held_out=True) if held_out else None
    return FileTask("gsm8k", _read(train, chat), apart, number_scorer, seed=seed)


def number_scorer(example: Example, response: str) -> Score:
    """1 for the right number, 0 for any other or none; the part `answered` says whether there was one."""
    answer = answer_text(response)
    right = answer is not None and equals(answer, str(example.ground_truth))
    return Score(float(right), {"answered": float(answer is not None)})


def answer_text(response: str) -> str | None:
    """The part of the response that gives its number: one line, or None if there is no number at all."""
    marked = after_last(response, "####")
    if marked is None:
        marked = last_boxed(response)
    if marked is not None:
        line = marked.split("\n")[0].rpartition("=")[2].strip()
        return line if any(character.isdigit() for character in line) else None
    every = numbers(response)
    return str(every[-1]) if every else None


def equals(answer: str, truth: str) -> bool:
    """Whether the text gives the number `truth`, as one number among words or as an arithmetic expression."""
    right_number = numbers(truth)[0]
    candidates = numbers(answer)
    if len(candidates) == 1:
        return candidates[0] == right_number
    expression = plain(answer).replace("$", "").replace("%", "")
    if len(expression) > LONGEST_EXPRESSION or "**" in expression or not ARITHMETIC.fullmatch(expression):
        return False
    parsed = parse(f"${expression}$", [LatexExtractionConfig()], parsing_timeout=None)
    return bool(verify(Rational(right_number.numerator, right_number.denominator), parsed, timeout_seconds=None))


def gsm8k_example(row: Row, uid: str, chat: bool) -> Example:
    """One row of `question` and `answer`."""
    question, answer = row.get("question"), row.get("answer")
    if not isinstance(question, str) or not question.strip():
        raise ValueError("`question` is not text")
    if not isinstance(answer, str) or "####" not in answer:
        raise ValueError("`answer` does not end in #### and a number")
    text = f"{question.strip()}\n{INSTRUCTION}"
    prompt: Prompt = [{"role": "user", "content": text}] if chat else f"{text}\n"
    return Example(uid, prompt, _one_number(answer.rpartition("####")[2]), DATA_SOURCE, {"answer": answer})


def is_raw(rows: Rows) -> bool:
    """Whether a file has the set's own columns, and answers that end in #### and a number."""
    return {"question", "answer"} <= set(rows.columns) and "####" in str(rows[0]["answer"])


def _read(paths: Sequence[str | Path], chat: bool, held_out: bool = False) -> Examples:
    """The examples of the files."""

    def convert(rows: Rows) -> Convert:
        if {"question", "answer"} <= set(rows.columns):
            return lambda row, uid: gsm8k_example(row, uid, chat)
        (make,) = converters(Keys(), [rows])
        return lambda row, uid: _with_number(make(row, uid))

    return Examples(paths, lambda files: [convert(rows) for rows in files], held_out=held_out)


def _with_number(example: Example) -> Example:
    _one_number(str(example.ground_truth))
    return example


def _one_number(text: str) -> str:
    values = numbers(text)
    if len(values) != 1:
        raise ValueError(f"the ground truth {text.strip()!r} is not one number")
    number: Fraction = values[0]
    return str(number)
