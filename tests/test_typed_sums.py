"""Questions that bring their own numbers: the answer has the numbers that plain arithmetic gives (typed_sums.json).

The numbers expected were worked out apart from the package; they are looked for in the answer's first paragraph and in
the lines of its sum, to four significant digits (or four decimals, as numbers are shown).
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mingce.explain.answer import Answer
from mingce.explain.answer_view import markdown
from mingce.explain.conversation import Conversation
from mingce.explain.question.request import read_request
from mingce.explain.question.scalars import read_final_reward

TYPED = json.loads((Path(__file__).parent / "typed_sums.json").read_text(encoding="utf-8"))
_NUMBER = re.compile(r"(?<![\d.A-Za-z_])[-−]?\d+(?:\.\d+)?(?:e-?\d+)?(?:×10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)?")
_PLAIN = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻−", "0123456789--")


def computed(answer: Answer) -> list[float]:
    """The numbers of the first paragraph and of the lines."""
    text = "\n".join([answer.text.partition("\n\n")[0], *answer.lines])
    return [float(one.replace("×10", "e").translate(_PLAIN)) for one in _NUMBER.findall(text)]


def has(found: list[float], wanted: float) -> bool:
    rounding = max(5.1e-5 if abs(wanted) >= 1e-3 or wanted == 0 else 0.0, 5e-4 * abs(wanted))
    return any(abs(one - wanted) <= rounding for one in found)


@pytest.mark.parametrize("typed", TYPED, ids=[f"{k:03d}" for k in range(1, len(TYPED) + 1)])
def test_the_numbers_come_out(typed: dict[str, list[float]]) -> None:
    answer = Conversation().ask(str(typed["question"]))
    assert answer.lines, answer.text
    missing = [one for one in typed["numbers"] if not has(computed(answer), one)]
    assert missing == [], f"{typed['question']}\n{answer.text}\n{answer.lines}"


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (
            "I have beta=0.1, policy logps [-0.3,-0.6] and reference logps [-0.5,-0.9]: what are the rewards?",
            "no score",
        ),
        ("β=0.1，策略 logp [-0.3,-0.6]，参考 logp [-0.5,-0.9]，每个 token 的奖励？", "没有给回答的得分"),
        ("Adaptive KL controller: target 0.1, measured KL 0.2, beta = 0.02. What is the next beta?", "missing is n"),
        ("正确率 0.9，一组回答全对的概率多大？", "还缺一组几条"),
        ("whitened advantages are 1, -1, 0 and values 0.5, 0.2, 0.1: what returns are the targets?", "missing"),
        (
            "advantages 0.1, 0.2 and values 0.5, 0.4, 0.3: what targets does the critic get?",
            "2 advantages and 3 values",
        ),
        ("warmup ratio 0.1, how many warmup steps is that?", "missing"),
        ("rewards 0, 0, 1 and values 0.2, 0.4, 0.6, what are the advantages?", "You did not say γ = 1, λ = 0.95"),
        ("old value 0.5, new value 1.5, return 1.2: the value loss?", "no range for clipping"),
        ("pass@32 from 16 samples, 4 correct?", "at least k"),
    ],
)
def test_what_is_missing_is_said(question: str, said: str) -> None:
    assert said in Conversation().ask(question).text


@pytest.mark.parametrize(
    "question",
    [
        "第一个 mini-batch 第一次更新时 ratio 理论上应该等于 1，如果日志里不是，说明 logprob 的计算有不一致。",
        "在第 1 个 mini-batch 上 ratio 为什么是 1，要更新几次才会变？",
        "PPO 的 clip 机制保证了新策略的 ratio 永远在 [0.8,1.2] 里面。",
        "GRPO 的 clip 取 0.2 和 0.28 分别管什么？",
        "组的大小 4 和 16 差别大吗",
        "8 of 10 runs fail with NaN in GRPO, what now?",
        "KL is 0.02, 0.05, 0.11 over the last steps, should beta go up?",
        "entropy fell from 1.2 to 0.3 and accuracy is 0.5, group size 8. Is it bad that all answers are the same?",
    ],
)
def test_ordinals_ranges_and_settings_make_no_sum(question: str) -> None:
    talk = Conversation()
    talk.ask(question)
    assert talk.sum is None


@pytest.mark.parametrize(
    ("question", "drawn"),
    [
        ("draw it", True),
        ("can you draw the clip curve", True),
        ("Draw a chart of the advantages", True),
        ("could you draw advantages for me", True),
        ("If the model is right with probability 0.9 and I draw groups of 8, how often are all equal?", False),
        ("we draw 8 samples per prompt", False),
        ("draw samples from the old policy", False),
        ("when I draw a sample from the policy its log-prob is kept", False),
    ],
)
def test_to_draw_samples_asks_for_no_picture(question: str, drawn: bool) -> None:
    assert ("draw" in read_request(question).wants) is drawn


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("the reward model says 0.8 for the whole answer", 0.8),
        ("the RM gave it a 1.5.", 1.5),
        ("奖励模型给了 0.6，", 0.6),
        ("RM 打分 -0.3", -0.3),
        ("final score of 2", 2.0),
        ("reward only at the end and it is -0.5, critic said 0.2, 0.1", -0.5),
        ("只有最后一个 token 有奖励 0.9，中间全 0", 0.9),
        ("the reward model gave 3, 5, 4 and 8 to four completions", None),
        ("the reward model scored it 0.4, the second reward model scored it 0.9", None),
    ],
)
def test_an_answers_one_score_is_read(text: str, score: float | None) -> None:
    assert read_final_reward(text) == score


@pytest.mark.parametrize(
    ("questions", "wanted"),
    [
        (["正确率 0.9，一组 8 条，全一样的概率有多大", "换成 16 条一组呢", "正确率 0.5 呢？", "那 4 呢"], 0.125),
        (["GRPO, 3 of 8 answers are correct. Advantages?", "and RLOO?", "and if 4 of 8 are correct?"], 0.571429),
        (["grad norm 3 clipped to 1.5, factor?", "and norm 6?"], 0.25),
        (
            ["lambda 0.97, gamma 1: how much of the last TD error reaches 100 tokens back?", "and 200 tokens?"],
            0.97**200,
        ),
        (
            [
                "I have beta=0.05, policy logps [-1.0,-0.5] and reference logps [-1.2,-0.9]. What are the rewards?",
                "the reward model says 0.8",
                "and with beta 0.1?",
            ],
            0.76,
        ),
        (["Dual clip: ratio is 8, advantage is -1, eps 0.2, c=3. What is the loss?", "and with c=5?"], 5.0),
    ],
)
def test_a_short_question_goes_on_with_the_sum(questions: list[str], wanted: float) -> None:
    talk = Conversation()
    answers = [talk.ask(question) for question in questions]
    assert has(computed(answers[-1]), wanted), answers[-1].text


def test_a_sum_is_not_told_twice() -> None:
    talk = Conversation()
    questions = [
        "vLLM logp is -1.5, trainer logp -1.0, what TIS weight with cap 2?",
        "why cap it?",
        "what happens without the cap?",
    ]
    texts = [markdown(talk.ask(question)) for question in questions]
    assert "1.6487" in texts[0]
    assert len(set(texts)) == len(texts)
