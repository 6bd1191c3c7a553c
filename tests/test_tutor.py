"""The tutor answers what was asked: claims judged, numbers computed, follow-ups that add; defects that were found."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from answer_numbers import random_rollout

from mingce.explain import example
from mingce.explain.answer import Answer
from mingce.explain.answer_view import markdown
from mingce.explain.conversation import Conversation

HELD_OUT: dict[str, Any] = json.loads((Path(__file__).parent / "held_out_questions.json").read_text(encoding="utf-8"))


def asked(*questions: str, lang: str | None = None) -> tuple[Answer, str]:
    """The last answer, and its words."""
    talk = Conversation(lang=lang)
    answers = [talk.ask(question) for question in questions]
    return answers[-1], markdown(answers[-1])


# ── questions that somebody else wrote ───────────────────────────────────────────────────────────────────────────────


def hit(part: str, text: str) -> bool:
    if part.startswith("re:"):
        return re.search(part[3:], text, re.IGNORECASE | re.DOTALL) is not None
    return part.lower() in text.lower()


def passes(parts: list[list[str]], text: str) -> bool:
    return all(any(hit(part, text) for part in group) for group in parts)


def test_questions_in_scope_are_answered_with_what_they_need() -> None:
    inside = [one for one in HELD_OUT["questions"] if one["scope"]]
    missed = [one["id"] for one in inside if not passes(one["parts"], markdown(Conversation().ask(one["question"])))]
    assert len(inside) == 120
    assert len(missed) <= 0.10 * len(inside), missed


def test_questions_out_of_scope_are_declined() -> None:
    outside = [one for one in HELD_OUT["questions"] if not one["scope"]]
    answered = [one["question"] for one in outside if not Conversation().ask(one["question"]).declined]
    assert len(outside) == 30
    assert len(answered) <= 0.05 * len(outside), answered


def test_claims_get_the_right_verdict() -> None:
    wrong, judged, count = [], 0, 0
    for one in HELD_OUT["questions"]:
        if one["verdict"] is None:
            continue
        expected = one["verdict"] if isinstance(one["verdict"], list) else [one["verdict"]]
        fair = {*expected, *one.get("verdict_also", [])} | {"half"}
        judgements = Conversation().ask(one["question"]).judgements
        verdicts = [judgement.verdict for judgement in judgements if not judgement.near]
        if len(expected) == 1 and verdicts and len({(one.verdict, one.near) for one in judgements}) > 1:
            verdicts = ["half"]  # its parts are judged one by one, or said to be without a verdict
        count += 1
        judged += bool(judgements)
        if any(verdict not in fair for verdict in verdicts):
            wrong.append((one["id"], expected, verdicts))
    assert judged / count >= 0.6
    assert not wrong, wrong


def test_a_dialogue_goes_on_without_repeating_itself() -> None:
    met = turns = 0
    for dialogue in HELD_OUT["dialogues"]:
        talk, said = Conversation(), list[str]()
        for turn in dialogue["turns"]:
            text = markdown(talk.ask(turn["text"]))
            assert text not in said, (dialogue["id"], turn["text"])
            said.append(text)
            turns += 1
            met += passes(turn["parts"], text)
    assert turns == 100
    assert met / turns >= 0.85


# ── defects that were found ──────────────────────────────────────────────────────────────────────────────────────────


def test_another_pairs_account_is_never_shown_under_the_askers_text() -> None:
    answer, text = asked("输入：法国的首都是哪里？ 输出：柏林。 请给出每个 token 的优势")
    assert "柏林" in text
    assert "rewards=[" in text  # what is missing, and how to give it
    assert not answer.tables
    assert "0.6211" not in text


def test_a_pair_is_scored_where_there_is_a_model() -> None:
    talk = Conversation(scorer=lambda prompt, response: example.typed({"rewards": [0, 2], "values": [0.5, 1]}))
    text = markdown(talk.ask("输入：法国的首都是哪里？ 输出：柏林。 请给出每个 token 的优势"))
    assert "A_1 = δ_1" in text
    assert "= 1" in text


@pytest.mark.parametrize(
    ("question", "number"),
    [
        ("帮我算：rewards=[0,0,1] values=[0.3,0.4,0.6] lambda=0.95", "0.651"),
        ("r=[0, 0, 1] V=[0.3, 0.4, 0.6]", "0.651"),
        ("rewards=[0,0,1] values=[0.3,0.4,0.6]，算一下优势", "0.651"),
        ("第 4 个 token 的 advantage 怎么算出来的", "A_3 = δ_3 + γλ·A_4 = 0.09 + 0.95·0.5053 = 0.57"),
        ("最后一个 token 的 TD error 是多少", "δ_5 = r_5 + γ·V(s_T) − V(s_5) = 0.995 + 1·0 − 0.6 = 0.395"),
        ("第一个 token 的优势是多少", "A_0 ="),
        ("第 1 个 token 的优势是多少", "A_0 ="),
        ("what is the return of the last token?", "0.995"),
        ("what would A_0 be with λ = 0.5?", "0.108"),
        ("0.7738 是怎么来的", "0.95^5 = 0.7738"),
        ("where does 0.5053 come from?", "0.13 + 0.95·0.395 = 0.5053"),
        ("the sum of the deltas?", "0.755"),
        ("ratio 1.5, advantage 2, eps 0.2: the objective?", "2.4"),
        ("ratio = 0.7，A = −2，ε = 0.2，目标是多少", "−1.6"),
        ("log_prob=-1.0, ref_log_prob=-1.5: k1, k2, k3?", "0.1065"),
        ("r=0.5, V=0.2, V_{t+1}=0.3, gamma=0.9, delta 是多少", "0.57"),
        ("if the critic outputs 0 everywhere what is A_0?", "0.7348"),
        ("how many tokens ahead does GAE look with λ = 0.95?", "20"),
    ],
)
def test_a_number_is_computed(question: str, number: str) -> None:
    _, text = asked(question)
    assert number in text
    assert "基本对" not in text


def test_a_count_is_told_from_an_index() -> None:
    _, text = asked("第 4 个 token 的 advantage 是多少")
    assert "t = 3" in text
    assert "0.5053" in text  # t = 4, if that was meant


@pytest.mark.parametrize(
    ("question", "topics"),
    [
        ("values[:, -response_length-1:-1] 为什么要这样切片？", {None, "slices"}),
        ("critic 很差会怎样", {"critic_quality"}),
        ("old_log_prob 为什么要重算", {"old_log_probs"}),
        ("values 的 shape 是什么", {"slices"}),
        ("critic warmup 有什么用", {"critic_warmup"}),
        ("pg_clipfrac 是什么", {"clip_fraction"}),
        ("explained variance 是负的正常吗", {"explained_variance"}),
        ("clip-higher 是什么", {"clip_higher"}),
        ("梯度流过 advantage 吗，要不要 detach", {"gradient_flow"}),
        ("policy loss 约等于 0 是不是没学到", {"loss_near_zero"}),
        ("多轮对话 / 工具调用时，工具返回的 token 有 advantage 吗？", {"tool_tokens", "masks_eos"}),
    ],
)
def test_a_subject_is_found(question: str, topics: set[str | None]) -> None:
    answer, _ = asked(question)
    assert answer.topic in topics
    assert not answer.declined
    assert not answer.action


def test_why_the_slice_is_answered_first() -> None:
    _, text = asked("values[:, -response_length-1:-1] 为什么要这样切片？")
    assert "前一个" in text or "之前" in text


@pytest.mark.parametrize(
    ("question", "verdict"),
    [
        ("so A = R − V?", "right"),
        ("A_t = δ_t，对吗？", "half"),
        ("returns = rewards + values 对吧", "wrong"),
        ("A_3 is 0.57, right?", "right"),
        ("A_3 is 0.67, right?", "wrong"),
        ("优势就是 TD 误差，对不对？", "half"),
        ("λ 越大方差越小，对吗", "wrong"),
        ("λ 越大方差越大，对吗", "right"),
        ("GRPO 不需要 critic 吧", "right"),
        ("GRPO needs a critic, right?", "wrong"),
        ("the reference model is frozen, right?", "right"),
        ("returns use the whitened advantages, correct?", "wrong"),
    ],
)
def test_a_claim_is_judged_first(question: str, verdict: str) -> None:
    answer, text = asked(question)
    assert [judgement.verdict for judgement in answer.judgements][:1] == [verdict]
    body = text.partition("\n\n")[2] if answer.title else text
    assert body.startswith("**")


def test_several_claims_are_judged_one_by_one() -> None:
    answer, _ = asked("优势就是 TD 误差。returns 用白化后的优势算。GRPO 不需要 critic。对吗？")
    assert [judgement.verdict for judgement in answer.judgements] == ["half", "wrong", "right"]


@pytest.mark.parametrize(
    "follow_up",
    ["再举个例子", "还是没懂", "再简单一点", "换个比喻", "用英语再讲一遍", "why?", "有什么坑", "画个图", "λ=0.5 呢"],
)
def test_a_follow_up_adds(follow_up: str) -> None:
    talk = Conversation()
    first = markdown(talk.ask("为什么优势不就是 δ？"))
    answer = talk.ask(follow_up)
    assert not answer.declined
    assert markdown(answer) != first
    assert talk.topic == "a_not_delta"


def test_another_example_has_other_numbers() -> None:
    talk = Conversation()
    talk.ask("为什么优势不就是 δ？")
    text = markdown(talk.ask("再举个例子"))
    assert "请问1+1=2" not in text
    assert "0.6211" not in text


def test_in_english_again_is_in_english() -> None:
    answer, text = asked("什么是白化", "用英语再讲一遍")
    assert answer.lang == "en"
    assert "whiten" in text


def test_why_not_simply_lambda_one_is_no_setting() -> None:
    talk = Conversation()
    talk.ask("GAE 是什么")
    talk.ask("那为什么不直接用 λ=1？")
    assert talk.rollout.settings.lam == 0.95


@pytest.mark.parametrize(
    "question", ["how do I return an item I bought?", "best policy for home insurance", "我在公司里有什么优势"]
)
def test_other_senses_of_the_words_are_declined(question: str) -> None:
    answer, _ = asked(question)
    assert answer.declined


def test_a_question_never_writes(tmp_path: Path) -> None:
    code = "import sys; from rich.console import Console; from mingce.commands.ask import ask; "
    code += "ask(Console(), [sys.argv[1]])"
    for question in (
        "多轮对话 / 工具调用时，工具返回的 token 有 advantage 吗？",
        "old_log_probs 为什么要存下来",
        "怎么保存对话？",
    ):
        subprocess.run([sys.executable, "-c", code, question], cwd=tmp_path, check=True, capture_output=True)
    assert list(tmp_path.iterdir()) == []


def test_drawing_is_asked_for(tmp_path: Path) -> None:
    code = (
        "from rich.console import Console; import sys; from mingce.commands.ask import ask; ask(Console(), ['画个图'])"
    )
    env = {**os.environ, "MPLCONFIGDIR": str(tmp_path / "mpl")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True, env=env
    )
    assert "█" in done.stdout
    assert (tmp_path / "mingce_account.png").stat().st_size > 1000


# ── numbers and settings as people type them ─────────────────────────────────────────────────────────────────────────


def test_the_recursion_with_rewards_gives_what_it_gives() -> None:
    for lang, t, wrong in (("zh", 0, "0.7348"), ("en", 0, "0.7348"), ("zh", 5, "0.995"), ("en", 5, "0.995")):
        talk = Conversation(lang=lang, token=t)
        sentence = next(
            line for line in markdown(talk.tell("credit_backward", "engineer")).splitlines() if "r_t + γλ" in line
        )
        assert wrong in sentence


@pytest.mark.parametrize(
    ("question", "gamma", "lam"),
    [
        ("lambda=gamma=1", 1.0, 1.0),
        ("λ=γ=0.8 时优势是多少", 0.8, 0.8),
        ("what is A_0 with gamma=lam=0.9?", 0.9, 0.9),
        ("γ 和 λ 都取 0.9，A_0 是多少", 0.9, 0.9),
        ("gamma, lambda = 0.99, 0.9: A_0?", 0.99, 0.9),
    ],
)
def test_settings_that_share_a_number_are_all_set(question: str, gamma: float, lam: float) -> None:
    talk = Conversation()
    talk.ask(question)
    assert (talk.rollout.settings.gamma, talk.rollout.settings.lam) == (gamma, lam)


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        ("三个样本得分10、20、60，留一法", ("[−30, −15, 45]",)),
        ("GRPO，得分是1、0、1的三条回答", ("[0.5773, −1.1547, 0.5773]",)),
        ("两个 epoch，batch 12，minibatch 4，更新几次", ("3·2 = 6",)),
        ("一百二十八个 prompt，minibatch 32，更新几次", ("⌈128/32⌉ = 4",)),
        ("batch 12 分三个 minibatch，两个 epoch，更新几次", ("3·2 = 6",)),
        ("two epochs, batch 12, minibatch 4: how many updates?", ("3·2 = 6",)),
        ("64 个 prompt，每题四条回答，minibatch 16，更新几次", ("64·4 = 256",)),
        ("greedy 0.6，采样 0.9 和 0.2，ReMax 的优势", ("0.9 − 0.6 = 0.3", "0.2 − 0.6 = −0.4")),
        ("greedy score 0.6, samples 0.9 and 0.2, remax advantage", ("0.9 − 0.6 = 0.3", "0.2 − 0.6 = −0.4")),
        ("ReMax：贪心回答得分0.6，采样回答得分0.9，优势是多少", ("0.9 − 0.6 = 0.3",)),
    ],
)
def test_numbers_glued_to_words_and_counts_in_words_are_read(question: str, parts: tuple[str, ...]) -> None:
    _, text = asked(question)
    assert all(part in text for part in parts), text


@pytest.mark.parametrize(
    "question",
    [
        "KL can't be negative",
        "My per-token KL is -0.3. KL can't be negative, right?",
        "TRL prints objective/kl = -3.2 and KL can't be negative",
        "逐 token 的 KL 有负的，但 KL 不可能是负的，对吗？",
    ],
)
def test_a_claim_has_one_verdict_alone_and_in_company(question: str) -> None:
    answer, _ = asked(question)
    assert {one.verdict for one in answer.judgements} == {"half"}


@pytest.mark.parametrize(
    ("question", "opens"),
    [
        ("objective/kl −3.2 in TRL PPO. Is that bad?", False),
        ("is approx_kl the same as the KL to the reference model?", True),
    ],
)
def test_a_points_yes_or_no_answers_its_own_question_only(question: str, opens: bool) -> None:
    answer, _ = asked(question)
    assert answer.text.startswith(("No", "Yes")) == opens or bool(answer.judgements)


@pytest.mark.parametrize(
    ("question", "verdicts"),
    [
        ("ratio = (new-old).exp()", ["right"]),
        ("ratio = (old_log_probs - log_probs).exp() 对吗", ["wrong"]),
        ("ratio = new.exp()/old.exp(), right?", ["right"]),
        ("ratio = (new - old).exp().detach()", []),  # its numbers are right, its gradient is not
        ("ratio = torch.exp(new - old), right?", []),
    ],
)
def test_methods_of_code_are_read_as_functions(question: str, verdicts: list[str]) -> None:
    answer, _ = asked(question)
    assert [one.verdict for one in answer.judgements] == verdicts


@pytest.mark.parametrize(
    "question",
    [
        "why divide by std in GRPO?",
        "why does GRPO divide by std",
        "why divide by the standard deviation in GRPO",
        "GRPO 为啥要除以 std",
    ],
)
def test_why_grpo_divides_is_answered(question: str) -> None:
    answer, text = asked(question)
    assert answer.topic == "group_baseline"
    assert "Dr. GRPO" in text


# ── any rollout, any question ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(6))
def test_every_held_out_question_is_answered_of_any_rollout(seed: int) -> None:
    """With holes, cuts and missing columns: an answer or a sentence, no traceback."""
    rollout = random_rollout(seed)
    for one in HELD_OUT["questions"][seed::6]:
        assert markdown(Conversation(rollout).ask(one["question"]))


@pytest.mark.parametrize(
    "question", ["", " ", "？", "\x00", "a" * 5000, "[" * 3000, "= " * 2000, "第" * 3000, "λ=" * 2000, "0.1 " * 3000]
)
def test_odd_questions_are_bounded(question: str) -> None:
    assert markdown(Conversation().ask(question)) is not None


# ── what is supposed of the example's numbers ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("what if the critic is 0.3 too high everywhere?", ["V(s_t) + 0.3", "0.395 to 0.095"]),
        ("如果最后的 reward 是 -1 呢", ["0.395 到 −1.605"]),
        ("如果 V_3 是 0.5 呢", ["V(s_3) → 0.5", "0.57 到 0.42"]),
        ("what if all values are 0.5?", ["V(s_t) → 0.5", "0.6211 to 0.3479"]),
        ("把奖励翻倍会怎样", ["·2", "0.395 到 1.395"]),
    ],
)
def test_supposed_numbers_are_computed_before_and_after(question: str, said: list[str]) -> None:
    _, text = asked("What is the advantage of the last token?", question)
    assert [part for part in said if part not in text] == [], text


def test_typed_rows_are_changed_step_by_step() -> None:
    talk = Conversation()
    questions = [
        "rewards=[0,0,1] values=[0.5,0.5,0.5] lambda=1，优势是多少", "换成 lambda=0", "哪一个 token 变化最大",
        "如果最后的 reward 是 -1 呢", "那 V 都加 0.2 呢",
    ]  # fmt: skip
    texts = [markdown(talk.ask(question)) for question in questions]
    wanted = ["都是 0.5", "从 0.5 到 0", "t = 0（“y_0”）从 0.5 到 0", "从 0.5 到 −1.5", "从 −1.5 到 −1.7"]
    assert [one for one, text in zip(wanted, texts, strict=True) if one not in text] == []
    assert len(set(texts)) == len(texts)


def test_the_number_of_a_named_token_is_derived() -> None:
    for question, number in [
        ("What is the advantage of the last token?", "0.395"),
        ("what's the TD error at token 3?", "0.09"),
    ]:
        _, text = asked(question)
        assert f"= {number}" in text, text


def test_what_others_said_is_judged() -> None:
    answer, _ = asked("GAE 里 λ 到底控制什么？", "你确定吗？我看别人说 λ=1 偏差更大")
    assert [one.verdict for one in answer.judgements] == ["wrong"]


def test_a_bare_number_is_the_setting_spoken_of() -> None:
    talk = Conversation()
    questions = ["rewards=[0,0,1] values=[0.3,0.4,0.6] gamma=1 lambda=1 优势多少", "lambda 换 0", "那 0.9 呢"]
    texts = [markdown(talk.ask(question)) for question in questions]
    assert "0.7, 0.6, 0.4" in texts[0]
    assert "从 0.7 到 0.1" in texts[1]
    assert "从 0.1 到 0.604" in texts[2]


def test_other_numbers_for_the_last_sum_are_no_claim() -> None:
    answer, text = asked("ratio 0.6, A=+1, eps 0.2: which term does the min take?", "so ratio 2 with A=-1?")
    assert not answer.judgements
    assert "min(−2, −1.2) = −2" in text


@pytest.mark.parametrize(
    ("question", "said"), [("PPO 的 clip 是什么", "min(ρ_t·A_t, clip("), ("What is k3?", "k3 = e^{−x} − 1 + x")]
)
def test_what_a_thing_is_opens_with_its_definition(question: str, said: str) -> None:
    _, text = asked(question)
    assert said in text[:700], text[:700]


def test_a_sentence_with_a_setting_is_heard_in_its_language_and_changes_nothing() -> None:
    talk = Conversation()
    talk.ask("λ=0 的时候优势就是整句的总奖励")
    settings = talk.rollout.settings
    talk.ask("With lambda = 1 the advantage is the return minus the value")
    assert (talk.lang, talk.rollout.settings) == ("en", settings)


@pytest.mark.parametrize(
    "question",
    [
        "如果奖励全部是 -1 和 0 而不是 0 和 1，PPO 学得会有区别吗？",
        "把 reward 全部乘 10，GRPO 的优势也会变成 10 倍。",
        "the reward model gives scores between -40 and 60, should I normalise?",
    ],
)
def test_what_is_not_said_of_the_example_changes_nothing(question: str) -> None:
    talk = Conversation()
    before = talk.rollout
    talk.ask(question)
    assert talk.rollout == before


def test_a_function_named_in_prose_is_no_program() -> None:
    _, text = asked("一题采了 8 条，得分 1 0 0 1 1 0 0 0，GRPO 的话（标准差按 torch.std 算）优势分别多少？")
    assert "1.2076" in text, text
