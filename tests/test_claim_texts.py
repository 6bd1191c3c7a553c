"""check-log on texts of every kind: random ones, those written by hand, and the tutor's own; right and with slips."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from answer_numbers import random_rollout
from claim_texts import slip_of, text_of
from hand_claims import right_texts, wrong_texts
from told_examples import STYLES, Example, told

from mingce.base.lang import LANGS
from mingce.explain import markdown as walk_view
from mingce.explain.account_texts import LEVELS
from mingce.explain.answer import topic_answer
from mingce.explain.answer_view import markdown
from mingce.explain.claims.check import check
from mingce.explain.claims.extraction import facts
from mingce.explain.claims.quantities import Series
from mingce.explain.claims.reading import passage_of
from mingce.explain.example import worked
from mingce.explain.topics import TOPICS
from mingce.explain.walk import walk
from mingce.record.rollout import Rollout

FEW, MANY = range(200), range(1000)
FOUND = 0.98
ROLLOUTS = 50
KEYS = [(topic, key, lang) for topic in TOPICS.values() for key in (*LEVELS, *topic.parts) for lang in LANGS]


def false_alarms(seeds: range) -> list[int]:
    return [seed for seed in seeds if check(text_of(seed)).of("wrong")]


def missed(seeds: range) -> list[tuple[int, str]]:
    """Slips that are not named on one of their lines."""
    out = []
    for seed in seeds:
        text, lines, kind = slip_of(seed)
        if not any(lines & {verdict.where.line, *verdict.lines} for verdict in check(text).of("wrong")):
            out.append((seed, kind))
    return out


def test_random_right_texts_are_not_flagged() -> None:
    assert false_alarms(FEW) == []


def test_slips_in_random_texts_are_found() -> None:
    assert len(missed(FEW)) <= (1 - FOUND) * len(FEW), missed(FEW)


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.__name__)
def test_worked_examples_as_people_paste_them(style: Callable[[Example], str]) -> None:
    for seed in range(12):
        text, count = told(style, seed)
        assert [(v.where.line, v.claim) for v in check(text).of("wrong")] == [], text
        wrong, _ = told(style, seed, random.Random(seed).randrange(count))
        assert check(wrong).of("wrong"), wrong


NO_CLAIMS = (
    "At step 100 the mean return is 0.8 and the value loss is 0.1.", "第 2 步训练时，回报为 0.93，优势为 0.1。",
    "t = 1 之后价值为 0.6。", "For another answer, at t = 1 the advantage is 0.1 and its return is 0.3.",
    "另一条回答 t=1 处优势为 0.1。", "In epoch 3, step 1, value is 0.77.",
    "token 1's advantage rises to 0.6 when λ is 1.",
    "A GRPO group: scores = [1, 0, 0, 1]. Mean 0.5.\nFor the PPO row, advantages = [0.651, 0.58, 0.4, 0.1].",
)  # fmt: skip


@pytest.mark.parametrize("text", NO_CLAIMS)
def test_numbers_of_other_things_are_left_alone(text: str) -> None:
    example = "γ=1, λ=0.95\nrewards = [0, 0, 1]\nvalues = [0.3, 0.4, 0.6]\nadvantages = [0.651, 0.58, 0.4]\n"
    assert check(example + text).of("wrong") == []


@pytest.mark.slow
def test_a_thousand_random_texts() -> None:
    assert false_alarms(MANY) == []
    assert len(missed(MANY)) <= (1 - FOUND) * len(MANY), missed(MANY)


@pytest.mark.parametrize("name", right_texts())
def test_a_right_text_written_by_hand_is_not_flagged(name: str) -> None:
    assert [(v.where.line, v.claim) for v in check(right_texts()[name]).of("wrong")] == []


@pytest.mark.parametrize("name", wrong_texts())
def test_a_slip_written_by_hand_is_found(name: str) -> None:
    text, line = wrong_texts()[name]
    assert any(line in (v.where.line, *v.lines) for v in check(text).of("wrong")), text


# ── the tutor's own words ────────────────────────────────────────────────────────────────────────────────────────────


def wrong_in_answers(rollout: Rollout, keys: list[tuple[object, str, str]]) -> list[tuple[str, str]]:
    """What is found wrong in answers about a rollout."""
    out = []
    for topic, key, lang in keys:
        text = markdown(topic_answer(topic, rollout, None, key, lang, ()))  # type: ignore[arg-type]
        out += [(f"{topic.id} {key} {lang}", v.where.quote) for v in check(text).of("wrong")]  # type: ignore[attr-defined]
    return out


def test_answers_about_the_worked_example_are_found_right() -> None:
    assert wrong_in_answers(worked(), list(KEYS)) == []


@pytest.mark.parametrize("seed", range(ROLLOUTS))
def test_answers_about_random_rollouts_are_found_right(seed: int) -> None:
    """A part of all answers for each rollout; over the rollouts every answer has its turn several times."""
    keys = KEYS[seed % 8 :: 8]
    assert wrong_in_answers(random_rollout(seed), list(keys)) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(ROLLOUTS))
def test_all_answers_about_random_rollouts_are_found_right(seed: int) -> None:
    assert wrong_in_answers(random_rollout(seed), list(KEYS)) == []


@pytest.mark.parametrize("seed", [None, *range(0, ROLLOUTS, 4)])
def test_a_walk_is_found_right(seed: int | None) -> None:
    rollout = worked() if seed is None else random_rollout(seed)
    chance = random.Random(seed or 0)
    text = walk_view.markdown(walk(rollout, chance.choice(LEVELS), chance.choice(LANGS)))
    assert [(v.where.line, v.where.quote) for v in check(text).of("wrong")] == []


# ── what is read ─────────────────────────────────────────────────────────────────────────────────────────────────────

HOLES = "γ=1, λ=1\nrewards = [0, —, 0, 1]\nvalues = [0.2, —, 0.4, 0.5]\nadvantages = [0.8, —, {}, 0.5]\n"
MASK = HOLES.replace("—", "0").replace("rewards", "response_mask = [1, 0, 1, 1]\nrewards")
CUT = "γ=1, λ=0\nThe value after the last token is 0.3.\nrewards = [0, 0]\nvalues = [0.2, 0.4]\nA = [0.2, {}]\n"


@pytest.mark.parametrize(
    ("text", "right", "wrong"), [(HOLES, "0.6", "0.9"), (MASK, "0.6", "0.9"), (CUT, "-0.1", "-0.4")]
)
def test_tokens_nobody_chose_and_a_cut_response(text: str, right: str, wrong: str) -> None:
    assert [v.status for v in check(text.format(right)).verdicts] == ["right"]
    assert [v.status for v in check(text.format(wrong)).verdicts] == ["wrong"]


INPUTS = "γ=1, λ=1\nrewards = [0, 0, 1]\nvalues = [0.2, 0.4, 0.5]\n"
HATTED = INPUTS + "\n| token | Â |\n|---|---|\n| a | {} |\n| b | {} |\n| c | {} |\n"
ROWS = INPUTS + "\n放在不同地方，首末两个 token 的优势：\n\n- 首格：0.8，末 token −0.5；整行 [0.8, −0.4, −0.5]。\n"
KINDS = INPUTS + "\n| column | at b | {} |\n|---|---|---|\n| values | 0.4 | −0.2 |\n| returns | 1 | 0.3 |\n"


def test_a_column_named_with_a_hat_may_be_whitened() -> None:
    assert check(HATTED.format("1.0911", "-0.2182", "-0.8729")).of("wrong") == []
    assert check(HATTED.format("0.8", "0.6", "0.5")).of("wrong") == []
    assert check(HATTED.format("0.8", "0.7", "0.5")).of("wrong") != []


def test_a_row_whose_own_line_says_what_it_is_takes_no_name_from_the_line_before() -> None:
    assert check(ROWS).of("wrong") == []
    assert check(INPUTS + "\nAdvantages:\n[0.8, 0.7, 0.5]\n").of("wrong") != []


def test_a_table_of_derivatives_has_no_token_per_column() -> None:
    lists = [
        fact.kind for fact in facts(passage_of(KINDS.format("derivative of the loss"))) if isinstance(fact, Series)
    ]
    assert lists == ["rewards", "values"]


def test_two_examples_do_not_mix() -> None:
    first = "## One\nγ=1, λ=0.5\nr = [0, 0, 1]\nV = [0.2, 0.4, 0.6]\nA = [0.4, 0.4, 0.4]\n"
    second = "## Two\nγ=0.9, λ=0.9\nr = [0, 0, -1]\nV = [0.1, 0.3, 0.2]\nA_3 = -1.2\n"
    assert {v.status for v in check(first + second).verdicts} == {"right"}
    (found,) = check(first + second.replace("-1.2", "0.4")).of("wrong")
    assert found.right[0].rows == ((-1.2,),)


def test_numbers_are_rounded_as_everywhere() -> None:
    (found,) = check("γ=1, λ=0.95\nr=[-0.02, 0.995]\nV=[0.45, 0.60]\nA=[0.9, 0.395]").of("wrong")
    assert found.formulas == ("A_0 = δ_0 + γλ·A_1 = 0.13 + 0.95·0.395 = 0.5053",)
