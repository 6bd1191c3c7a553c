"""Narrower questions get their short answer first, follow-ups stay on the subject, typed lists are computed with."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from mingce.base.lang import LANGS
from mingce.base.numbers import number as shown
from mingce.explain import example, topic
from mingce.explain.account import account
from mingce.explain.answer_view import markdown
from mingce.explain.claims.check import check
from mingce.explain.conversation import Conversation
from mingce.explain.question.points import verdict_of
from mingce.explain.topics import TOPICS

ASKED: dict[str, list[str]] = json.loads((Path(__file__).parent / "point_questions.json").read_text(encoding="utf-8"))


def test_questions_worded_otherwise_find_their_point() -> None:
    pairs = [(point, question) for point, questions in ASKED.items() for question in questions]
    missed = []
    for point, question in pairs:
        answer = Conversation().ask(question)
        if f"{answer.topic}{answer.level}" not in point.split("|"):
            missed.append((point, question, answer.topic, answer.level))
    known = {phrase for one in TOPICS.values() for point in one.points.values() for phrase in sum(point.asked, ())}
    assert not [question for _, question in pairs if question in known]
    assert len(missed) <= 0.15 * len(pairs), missed


def test_a_point_is_asked_in_both_languages_and_its_answer_stands_the_check() -> None:
    for one in TOPICS.values():
        for key, point in one.points.items():
            assert all(point.asked), (one.id, key)
            for lang in LANGS:
                text = topic.text_of(one, example.worked(), 0, key, lang)
                assert not re.search(r"\{[a-z_]{2,}\}", text), (one.id, key)
                assert check(text).of("wrong") == [], (one.id, key)


@pytest.mark.parametrize(
    ("question", "numbers"),
    [
        ("scores 1, 0, 0, 1 for one prompt: GRPO?", ["(1 + 0 + 0 + 1)/4 = 0.5", "[0.866, −0.866, −0.866, 0.866]"]),
        ("rloo 四个得分 0.9 0.3 0.6 0.2", ["[0.5333, −0.2667, 0.1333, −0.4]"]),
        ("dr. grpo advantages of scores [2, 4, 4, 6]", ["[−2, 0, 0, 2]"]),
        ("opo, scores 1 and 0, lengths 1 and 3", ["[0.75, −0.25]"]),
        ("一组都是 1：得分 1 1 1，GRPO", ["[0, 0, 0]", "没有策略梯度"]),
        ("whiten the advantages [0.5, -0.2, 0.1, 0.8]", ["[0.4549, −1.1371, −0.4549, 1.1371]", "0.4397", "0.3808"]),
        ("returns 1,0,1,1,0 and values .8,.3,.6,.9,.2: explained variance", ["1 − 0.083/0.3 = 0.7233"]),
        ("logp=[-0.5,-1.0,-0.2] ref_logp=[-0.7,-0.8,-0.2] k1 k3 β=0.1 score=1", ["[−0.02, 0.02, 1]", "0.0214"]),
        ("new log probs [-0.1,-0.4], old [-0.2,-0.2], ratio of the whole answer?", ["s = 0.9512", "[1.1052, 0.8187]"]),
        ("rollout logprobs [-1, -3], old logprobs [-1.1, -1.5]: TIS weights, cap 2", ["[0.9048, 2]"]),
        ("lengths 2 and 6, losses 1 and 0.2: token-mean, seq-mean-token-mean?", ["mean = 0.4", "token-mean = 0.6"]),
        ("256 prompts, mini batch 64, 2 epochs, n=8: how many updates per step?", ["8 parameter updates"]),
        ("reference model gives 40%, policy gives 10%: k1 and k3?", ["k1 = x = −1.3863", "1.6137"]),
        ("参考模型概率 0.5，策略概率 0.8，β=0.05，扣多少 KL", ["β·k1 = 0.05·0.47 = 0.0235"]),
        ("old logprob -1.2, new logprob -0.9: clipped at 0.2?", ["1.3499", "clipped for A > 0"]),
        ("λ=0.95，奖励传到 100 个 token 之前还剩多少", ["0.0059"]),
        ("value 0.5, new value 1.4, return 1, cliprange_value 0.2: loss?", ["clip(1.4, 0.3, 0.7) = 0.7", "0.08"]),
        ("rewards 0 0 1, values 0.3 0.5 0.9, lambda 0.95: GAE please", ["[0.2, 0.4, 0.1]", "[0.6703, 0.495, 0.1]"]),
    ],
)  # fmt: skip
def test_typed_numbers_are_computed(question: str, numbers: list[str]) -> None:
    text = markdown(Conversation().ask(question))
    assert not [number for number in numbers if number not in text], text


@pytest.mark.parametrize("seed", range(5))
def test_a_groups_advantages_follow_their_definitions(seed: int) -> None:
    chance = random.Random(seed)
    scores = [round(chance.uniform(-2, 2), 2) for _ in range(chance.randint(2, 9))]
    listed = ", ".join(map(str, scores))
    mean = sum(scores) / len(scores)
    text = markdown(Conversation().ask(f"group scores [{listed}], dr_grpo?"))
    assert f"[{', '.join(shown(score - mean) for score in scores)}]" in text


def told(*questions: str) -> list[str]:
    talk = Conversation()
    return [markdown(talk.ask(question)) for question in questions]


@pytest.mark.parametrize(
    ("questions", "said"),
    [
        (["GRPO 得分 1 0 1 1", "怎么算的", "如果全是 1 呢", "那这组还有用吗", "换成 rloo"],
         ["0.5, −1.5", "(1 − 0.75)/(0.5", "[0, 0, 0, 0]", "动态采样", "rloo: [0, 0, 0, 0]"]),
        (["what is GRPO?", "so it has no critic?", "what if all the samples are wrong"],
         ["baseline", "no critic", "no policy gradient"]),
        (["explain whitening", "does it touch the returns?", "is padding counted"],
         ["mean", "before whitening", "masked"]),
        (["how does the clip work", "why is it not clipped on the other side", "draw it"],
         ["ρ", "wrong way", "A = −1"]),
        (["rewards 0 0 1, values 0.3 0.4 0.6, lambda 0.95: advantages?", "and for λ = 0?", "what are the returns then"],
         ["[0.651, 0.58, 0.4]", "from 0.651 to 0.1", "[0.4, 0.6, 1]"]),
        (["什么是 GAE", "画出来"], ["γλ", "0.6211"]),
    ],
)  # fmt: skip
def test_a_follow_up_stays_on_the_subject_and_adds(questions: list[str], said: list[str]) -> None:
    answers = told(*questions)
    assert not [(q, part) for q, part, text in zip(questions, said, answers, strict=True) if part not in text], answers
    assert len(set(answers)) == len(answers)


def test_credit_is_drawn_as_a_map_whose_lines_add_up() -> None:
    talk = Conversation()
    talk.ask("how is credit assigned from the back?")
    lines = talk.ask("draw it").lines
    assert len(lines) == 7
    assert [line.split()[-1] for line in lines[1:]] == ["0.6211", "0.6117", "0.5965", "0.57", "0.5053", "0.395"]


def test_nothing_is_drawn_of_other_matters() -> None:
    assert Conversation().ask("plot a pie chart of my sales in Excel").declined


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
@pytest.mark.parametrize(
    ("ref", "likes"), [(-0.5, "better than it used to"), (-2.0, "better"), (-0.9, "less than it used to")]
)
def test_the_sentence_of_a_kl_goes_by_the_log_probs(kind: str, ref: float, likes: str) -> None:
    old = -0.3 if "better" in likes else -1.5
    rollout = example.typed(
        {"old_log_probs": [old], "ref_log_probs": [ref], "scores": [1.0], "values": [0.5]}, kl_estimator=kind
    )
    entry = next(one for one in account(rollout, 0, "engineer", "en") if one.id == "kl")
    assert likes in entry.meaning


def test_a_long_rows_lists_are_not_written_out_first(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[float] = []

    def counted(x: float) -> str:
        written.append(x)
        return "0"

    monkeypatch.setattr(topic, "shown", counted)
    assert topic.listed([0.0] * 100_000).count("0") == 12
    assert len(written) == 12


@pytest.mark.parametrize(
    ("questions", "numbers"),
    [
        (["奖励 0 0 1，critic 给的 0.2 0.5 0.6，γ=1 λ=1，优势？"], ["[0.8, 0.5, 0.4]"]),
        (["rewards are 0,0,-1 and the critic said 0.5, 0.3, -0.2. GAE with lam 1 gamma 1?"], ["[−1.5, −1.3, −0.8]"]),
        (["λ=0.8 γ=1 时有效长度是多少个 token"], ["= 5"]),
        (["entropy of [0.5, 0.5]?"], ["0.6931"]),
        (["beta is 0.2, target kl 5, horizon 1000, measured kl 4, batch of 100: next beta, adaptive?"], ["0.196"]),
        (["max 是 2000 缓冲 400，长度 1700 扣多少", "那 1900 呢"], ["−0.25", "−0.75"]),
        (["4 gpus, mini batch 16, n=8, micro batch 4, batch size 64: how many micro steps?"], ["updated 4 times"]),
        (["ppo_mini_batch_size=16, train_batch_size=64: how many updates?"], ["4 parameter updates"]),
        (["128 的 batch mini 32 更新几次", "epoch 改成 3 呢"], ["更新 4 次", "更新 12 次"]),
        (["rewards 1 0 2 with gamma 0.5, returns?"], ["[1.5, 1, 2]"]),
        (["pi: -0.2, -0.9; ref: -0.25, -1.2. total k1 and mean k3?", "and k2?"], ["Σ = 0.35", "mean = 0.0231"]),
        (["grpo 三个分 3 0 0", "不除标准差呢", "rloo 呢"], ["1.1547", "[2, −1, −1]", "[3, −1.5, −1.5]"]),
        (["leave one out for 4 2 0", "now the last score is 3"], ["[3, 0, −3]", "[1.5, −1.5, 0]"]),
        (["seq A has 3 tokens with losses 1,1,1; seq B has 1 token with loss 2. token-mean?"], ["token-mean = 1.25"]),
        (["returns 1 2 3, values 1 2 2: mse?"], ["0.3333"]),
        (["clip 0.2, token prob under old policy is 0.1. Up to what probability is it pushed?"], ["0.12"]),
    ],
)  # fmt: skip
def test_numbers_in_running_text_are_read_and_carried_on(questions: list[str], numbers: list[str]) -> None:
    answers = told(*questions)
    parts = numbers if len(questions) > 1 and len(numbers) == len(questions) else [*numbers, *[""] * len(answers)]
    missed = [(part, text) for part, text in zip(parts, answers, strict=False) if part not in text]
    assert not missed


def test_a_point_says_whether_a_claim_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    point = TOPICS["whitening"].points["@scope"]
    line = "白化的均值是在整批上取的"
    stated = topic.Point(point.asked, point.said, (("right", line),))
    monkeypatch.setitem(TOPICS["whitening"].points, "@scope", stated)
    assert verdict_of(line, ["whitening@scope"]) == "right"
    assert verdict_of("白化的均值不是在整批上取的", ["whitening@scope"]) == "wrong"
    assert verdict_of(f"{line}，这样不会有坏处", ["whitening@scope"]) == "right"
    assert verdict_of("白化的方差是在整批上取的", ["whitening@scope"]) is None
    assert verdict_of("裁剪让梯度变成 0", ["whitening@scope"]) is None


def test_statements_stand_among_the_phrasings() -> None:
    point = topic.point_of("- 问法\n- wrong: 说法\n\n答。", "- asked\n- half: stated: so\n\nSaid.")
    assert point.asked == (("问法", "说法"), ("asked", "stated: so"))
    assert point.claims == (("wrong", "说法"), ("half", "stated: so"))
    assert point.said == ("答。", "Said.")


@pytest.mark.parametrize("question", ["how do I return an item I bought?", "今天天气怎么样", "怎么做红烧肉"])
def test_other_matters_are_declined_within_a_dialogue_too(question: str) -> None:
    talk = Conversation()
    talk.ask("explain GAE")
    assert talk.ask(question).declined


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        ("pg_loss is around 0.001 all training long, so the actor isnt learning anything", "wrong"),
        ("higher kl coef changes the advantages of earlier tokens too, not only the token where the KL is", "right"),
        ("这个batch优势大部分是负的，说明模型这批答得都不行，该停训了", "不对"),
    ],
)
def test_a_claim_without_a_verdict_is_laid_beside_the_nearest_statement_of_its_point(claim: str, verdict: str) -> None:
    answer = Conversation().ask(claim)
    assert [one.near for one in answer.judgements] == [True]
    assert verdict in markdown(answer).split("\n\n")[1]
