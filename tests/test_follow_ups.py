"""Dialogues: what goes on with a sum, asks for a trainer's setting, for less, or for what was not understood."""

from __future__ import annotations

import pytest

from mingce.explain.answer_view import markdown
from mingce.explain.conversation import Conversation
from mingce.explain.patterns import within_reason


def said(*turns: str) -> list[str]:
    talk = Conversation()
    return [markdown(talk.ask(turn)) for turn in turns]


@pytest.mark.parametrize(
    ("turns", "parts"),
    [
        (("ratio 1.5，A=2，ε 0.2，损失是多少", "A 换成 -2 呢"), ("min(−3, −2.4) = −3", "loss = 3")),
        (("ratio 0.5, A=1, loss?", "and if the advantage becomes -1?"), ("min(−0.5, −0.8) = −0.8",)),
        (("[1,2,3] 白化一下", "还有一种标准差呢，换它"), ("−1.2247, 0, 1.2247",)),
        (("whiten [1, 2, 3]", "and with the population std?"), ("−1.2247, 0, 1.2247",)),
        (
            ("log ratios .1 -.1 .2 .3, what is the sequence ratio?", "which of these get clipped with A>0?"),
            ("above 1.2: [1.2214, 1.3499]", "below 0.8: none"),
        ),
        (
            ("train_batch_size 512, rollout n 4, mini batch 128: how many updates?", "how many answers in each?"),
            ("128·4 = 512 answers",),
        ),
        (("train_batch_size 512，rollout.n=4，mini batch 128，更新几次", "每次更新多少条回答"), ("128·4 = 512 条",)),
    ],
)
def test_a_sum_goes_on_with_what_is_given_anew(turns: tuple[str, ...], parts: tuple[str, ...]) -> None:
    last = said(*turns)[-1]
    assert [part for part in parts if part not in last] == [], last


def test_what_was_asked_of_a_sum_once_is_not_asked_again() -> None:
    *_, each, again = said(
        "train_batch_size 512, rollout n 4, mini batch 128: how many updates?",
        "how many answers in each?",
        "ppo_epochs=2?",
    )
    assert "512 answers" in each
    assert again.startswith("8 parameter updates")


@pytest.mark.parametrize(
    ("turns", "name"),
    [
        (("what is the KL penalty for?", "how do I set it in OpenRLHF?"), "--algo.kl.init_coef"),
        (("what is the KL penalty for?", "and in TRL?"), "beta=0.0"),
        (("PPO 的 clip 讲一下", "verl 里是哪个参数"), "clip_ratio"),
        (("entropy collapse, what is it", "which flag in verl?"), "entropy_coeff"),
    ],
)
def test_a_trainers_setting_is_of_what_was_spoken_of(turns: tuple[str, ...], name: str) -> None:
    assert name in said(*turns)[-1]


def test_what_was_not_understood_elsewhere_is_told_plainly() -> None:
    answers = said("GAE 我看了三遍都没看懂", "再简单点", "换个比喻，别用下棋")
    assert "δ" in answers[0]
    assert len(set(answers)) == 3
    assert "KL" in said("i read about the KL penalty four times and still don't get it")[0]


def test_a_summary_has_a_sentence_for_each_thing_told_in_the_language_asked_for() -> None:
    *_, zh, en = said("GRPO 怎么算优势", "白化是什么", "总结一下", "in english please, all of it in 3 sentences")
    assert zh.count("\n- ") == 2
    assert "Baselines from a group" in en
    assert "Whitening" in en


def test_in_so_many_sentences_a_subject_is_told_in_short() -> None:
    whole, short = said("what is GSPO?")[0], said("GSPO in two sentences")[0]
    assert "ratio" in short
    assert len(short) < len(whole)


def test_the_whole_example_is_computed_once() -> None:
    answer = said("walk me through the example, just the numbers")[0]
    for part in ("−0.01, −0.005, 0.005", "0.04, 0.045, 0.055", "0.6211, 0.6117"):
        assert part in answer
    assert "0.6211" in said("例子从头到尾算一遍")[0]


def test_an_index_is_no_row() -> None:
    assert "values 却有" not in said("values[0] 到底是哪个时刻的估值")[0]
    assert "but 1" not in said("which state does values[0] belong to?")[0]


def test_rows_of_numbers_stay_whole_and_endless_words_are_cut() -> None:
    row = "rewards = [" + "0, " * 99 + "1]"
    assert within_reason(row) == row
    for text in ("9" * 5000, "-" * 20_000, "A" * 100_000, "为什么" * 30_000):
        assert len(within_reason(text)) <= 200


def test_the_same_answer_is_not_given_twice_at_length() -> None:
    first, again = said("λ=0.95 时优势是多少", "那 λ=0.95 呢")
    assert "0.6211" in again
    assert len(again) < len(first)
    assert "与前面说的一样" in again


def test_after_a_change_both_settings_and_the_reason_are_told() -> None:
    talk = Conversation()
    talk.ask("rewards=[0,0,0,0.6] values=[0.5,0.6,0.2,0.4] lambda .9 gamma 1, advantages?")
    talk.ask("and if lambda=1?")
    both = talk.ask("returns under both lambdas?")
    assert [both.tables[0].rows[0][2], both.tables[0].rows[0][3]] == ["0.5478", "0.6"]
    why = talk.ask("why did the second token go from negative to 0")
    assert any("= −0.058" in line for line in why.lines)
    assert any(line.startswith("A_1") and line.endswith("= 0") for line in why.lines)
    still = talk.ask("ok now gamma 0.9 w/ lambda still 1")
    assert [row[3] for row in still.tables[0].rows] == ["−0.0626", "−0.114", "0.34", "0.2"]
    assert still.judgements == ()


def test_a_number_given_anew_goes_to_what_it_belongs_to() -> None:
    talk = Conversation()
    talk.ask("TIS权重怎么算，给个数：fsdp logp -1.0，vllm logp -1.5，上限2")
    assert "[2]" in talk.ask("vllm要是-2.5呢").text


@pytest.mark.parametrize(
    ("question", "advantages"),
    [
        ("rewards=[-0.02,-0.01,0,0.9] values=[0.6,0.7,0.5,0.8] λ=1，A 是不是后面加起来减V", "0.27, 0.19, 0.4, 0.1"),
        ("rewards=[0,0,0,1] values=[.9,.9,.9,.9]. so advantages should be ~0?", "[0.0857, 0.0903, 0.095, 0.1]"),
    ],
)  # fmt: skip
def test_typed_rows_are_computed_whatever_is_claimed_of_them(question: str, advantages: str) -> None:
    assert advantages in Conversation().ask(question).text


def test_what_a_critic_had_said_more_changes_the_example() -> None:
    for question in (
        "in the 1+1 example, say critic had predicted 0.1 more before the last token. which advantages move?",
        "例子里要是critic在最后一个token之前多估了0.1，优势怎么变",
    ):
        rows = Conversation().ask(question).tables[0].rows
        assert [row[3] for row in rows][-2:] == ["0.5103", "0.295"]
