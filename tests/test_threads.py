"""Dialogues whose questions go on with the thread: the code, the quantity, the numbers, the change told before."""

from __future__ import annotations

import pytest

from mingce.explain.answer import Answer
from mingce.explain.answer_view import markdown
from mingce.explain.conversation import Conversation

CODE = """```python
adv = masked_whiten(adv, mask)
returns = adv + values
loss_v = ((vpred - returns)**2 * mask).mean()
```
whats wrong"""
MASKED = "numbers: rewards=[0,0,0,1] values=[0.5,0.3,0.8,0.6] mask=[1,0,1,1], default g/l"
ROWS = "rewards=[0,0,0,0.6] values=[0.5,0.6,0.2,0.4] lambda .9 gamma 1, advantages?"


def asked(*turns: str) -> list[Answer]:
    talk = Conversation()
    return [talk.ask(turn) for turn in turns]


def last(*turns: str) -> str:
    return markdown(asked(*turns)[-1])


@pytest.mark.parametrize(
    ("turns", "parts"),
    [
        ((CODE, "and the .mean() thing, explain"), ("`loss_v", "denominator", "0.5 times")),
        ((CODE, "and the second bug?"), ("`loss_v", "denominator")),
        ((CODE, "what does line 1 do"), ("masked_whiten(adv, mask)", "whitening")),
        ((CODE, "第二行呢，什么意思"), ("returns = adv + values", "白化")),
        ((CODE, "swapped the two lines, critic loss fell to 0.02, plausible?"), ("Plausible", "off by about 1")),
        ((CODE, "if half of the positions are padding how much is it off"), ("0.5 times", "1 − 0.5 = 0.5")),
        ((CODE, "so direction of gradient is the same, only size. no problem then?"), ("Half right", "batch to batch")),
    ],
)  # fmt: skip
def test_a_line_of_the_code_before_is_spoken_of_again(turns: tuple[str, ...], parts: tuple[str, ...]) -> None:
    answer = last(*turns)
    assert [part for part in parts if part not in answer] == [], answer


def test_the_share_of_padding_gives_the_factor_by_itself() -> None:
    assert "0.75 倍" in last("损失直接用 .mean()，有 25% 是 padding，会差多少")


def test_another_token_is_of_the_quantity_that_was_asked_about() -> None:
    answer = last("例子里前五个token的score都是0，为什么rewards不是0", "那第3个token呢")
    assert "r_2 = score_2 − β·k_2 = 0 − 0.1·(−0.05) = 0.005" in answer


def test_what_is_excepted_is_not_what_is_asked_for() -> None:
    answer = last("奖励怎么来的", "reward会有正的吗？除了最后一个")
    assert "t = 2: 0.005" in answer
    assert "KL ≥ 0" in answer
    assert "r_5 = 0.995" in last("r 是什么", "最后一个 token 的 reward 是多少").replace(
        "r_5 = score_5 − β·k_5 = 1 − 0.1·0.05", "r_5"
    )


def test_a_mask_in_a_dialogue_is_computed_with_and_then_left_out() -> None:
    told, without = (
        markdown(one) for one in asked("do tool tokens get an advantage", MASKED, "and if I forgot the mask?")[1:]
    )
    assert "[0.471, 0.18, 0.4]" in told
    for part in ("[0.4375, 0.671, 0.18, 0.4]", "t = 1: 0.671", "t = 0: 0.471 → 0.4375"):
        assert part in without


def test_nothing_is_said_of_a_mask_that_leaves_nothing_out() -> None:
    assert "slots with mask 0" not in last("what is whitening", "and if I forgot the mask?")


@pytest.mark.parametrize(
    ("question", "count"), [("举个例子，两个token就行", 2), ("give me an example with three tokens", 3)]
)
def test_an_example_has_as_many_tokens_as_are_asked_for(question: str, count: int) -> None:
    talk = Conversation()
    talk.ask("GAE 为什么从后往前算")
    answer = talk.ask(question)
    assert len(talk.rollout.tokens) == count
    assert f"A_{count - 1} = " in "\n".join(answer.lines)


def test_a_move_is_told_of_the_token_that_moved_so_with_its_two_parts() -> None:
    answer = last(ROWS, "and if lambda=1?", "why did token 2 go from negative to 0")
    assert "−0.4 + 0.342 = −0.058" in answer
    assert "−0.4 + 0.4 = 0" in answer
    assert "A_2 = 0.38" not in answer.splitlines()[4]
    flipped = last("rewards=[-0.01,-0.02,0.5] values=[0.2,0.4,0.1]，γ=1 λ=0.95，帮我把优势算一下", "如果λ=0呢",
                   "那第2个token到底是好还是坏？符号都变了")  # fmt: skip
    assert "−0.32 + 0.38 = 0.06" in flipped
    assert "信谁" in flipped


@pytest.mark.parametrize(
    ("turns", "part"),
    [
        (("奖励怎么来的，列出 rewards", "要是我把β设成0呢"), "拉在参考模型附近"),
        (("KL 惩罚是什么", "kl_coef 从0.001调到0.1会怎样"), "100 倍"),
        (("what is the advantage at t = 2", "and with lambda=0?"), "only the own step counts"),
        (("what is the advantage at t = 2", "and with lambda=1?"), "no bias by the critic"),
        (("what are the returns", "what if gamma = 0.9"), "γ^distance"),
    ],
)
def test_a_change_of_a_setting_is_told_with_what_follows(turns: tuple[str, ...], part: str) -> None:
    assert part in last(*turns)


def test_a_change_is_compared_with_the_number_it_starts_from() -> None:
    answer = asked("t = 2 的优势是多少", "kl_coef 从0.001调到0.1会怎样")[-1]
    assert "β: 0.001 → 0.1" in answer.title


@pytest.mark.parametrize("line", ["用小孩能听懂的话再讲一遍", "explain it for a child please", "换个比喻再讲一次"])
def test_a_childs_version_of_what_was_told_is_never_declined(line: str) -> None:
    answers = asked("V(s_t) 包括 r_t 吗", "终点为啥是0啊，都答对了不应该很高吗", line)
    assert not answers[-1].declined
    assert answers[-1].topic is not None
    assert "λ: " not in answers[-1].title


def test_after_another_beta_it_is_the_leash_that_is_told_plainly() -> None:
    *_, answer = asked("rewards 是怎么算的", "要是我把β设成0呢", "还是不太懂，为啥非得拉住它")
    assert answer.topic == "kl_where"


@pytest.mark.parametrize("line", ["顺便问下晚上吃火锅还是烧烤", "by the way, what shall we have for dinner?"])
def test_an_aside_is_declined(line: str) -> None:
    assert asked("what is the advantage at t = 2", line)[-1].declined


def test_within_a_dialogue_no_other_subject_is_appended() -> None:
    for turns in (("whiten 是什么", "那returns跟着变不"), ("PPO clip?", "so ratio is 1 for all of these?")):
        answer = asked(*turns)[-1]
        assert answer.text.count("\n\n") <= 2


def test_what_the_kl_costs_is_carried_from_turn_to_turn() -> None:
    turns = ("my KL is 12 after 200 steps should i worry", "its summed, answers ~300 tokens",
             "with kl_coef 0.05 how much reward does that eat", "score avg is 0.8, so net?",
             "so drop the coef to .01 and everythings fine?")  # fmt: skip
    _, each, cost, net, dropped = (markdown(one) for one in asked(*turns))
    assert "12/300 = 0.04" in each
    assert "0.05·12 = 0.6" in cost
    assert "0.8 − 0.6 = 0.2" in net
    assert "0.01·12 = 0.12" in dropped
    assert "0.8 − 0.12 = 0.68" in dropped
    assert "not fine by itself" in dropped


def test_a_kl_alone_is_no_sum() -> None:
    assert asked("my KL is 12 after 200 steps should i worry")[0].topic == "kl_where"
    assert "ΣKL" not in last("score 0, KL 0.2, β = 0.1: what is the reward of this token?")


def test_probabilities_after_clip_higher_get_both_limits() -> None:
    answer = last("someone told me clip-higher. how does that help", "give me numbers, token with prob .01 vs .9")
    for part in ("0.01·(1 + 0.2) = 0.012", "0.01·(1 + 0.28) = 0.0128", "0.9·(1 + 0.28) = 1.152 > 1"):
        assert part in answer


def test_a_sum_is_not_told_again_for_a_question_without_numbers() -> None:
    turns = (
        "一组4个回答得分 1 1 0 1 ，优势怎么算",
        "4个全对会怎样",
        "一条回答里每个token优势都一样，那错的那一步模型怎么知道？",
    )
    answer = last(*turns)
    assert "dr_grpo: [0, 0, 0, 0]" not in answer


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        ("V_old=0.5, 新V=0.9, return=1.0, cliprange_value=0.2，loss和梯度？", ("loss = 0.045", "梯度为 0")),
        ("V_old=0.5, vpred=0.6, return=1.0, cliprange_value=0.2, loss and gradient?", ("0.08", "0.6 − 1 = −0.4")),
        ("V_old=0.5, vpred=0.1, return=1.0, cliprange_value=0.2, loss and gradient?", ("0.405", "0.1 − 1 = −0.9")),
    ],
)  # fmt: skip
def test_the_value_loss_has_its_gradient(question: str, parts: tuple[str, ...]) -> None:
    answer = last(question)
    assert [part for part in parts if part not in answer] == [], answer


@pytest.mark.parametrize("question", ["δ 跟 A 到底啥关系啊，能不能不用公式讲", "PPO clip without the formulas please"])
def test_without_formulas_there_are_none(question: str) -> None:
    answer = asked(question)[0]
    assert not answer.formula
    assert not answer.lines
    assert "`" not in answer.text


def test_a_truncated_weight_shows_what_it_was_cut_from() -> None:
    answer = last("TIS权重怎么算，给个数：fsdp logp -1.0，vllm logp -1.5，上限2", "vllm要是-2.5呢")
    assert "exp(1.5) = 4.4817" in answer
    assert "min(4.4817, 2) = 2" in answer
