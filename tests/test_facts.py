"""Claims judged by structure: the facts, what turns a claim, and claims as learners state them (fresh_claims.tsv)."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from mingce.base.lang import LANGS
from mingce.base.texts import texts
from mingce.explain.account import substituted
from mingce.explain.answer_view import markdown
from mingce.explain.conversation import Conversation
from mingce.explain.example import worked
from mingce.explain.question.clauses import claims_of
from mingce.explain.question.facts import facts, find
from mingce.explain.question.frames import lexicon
from mingce.explain.question.judging import judgements
from mingce.explain.topic import values_of
from mingce.explain.topics import TOPICS

CLAIMS = [
    line.split("\t")
    for line in (Path(__file__).parent / "fresh_claims.tsv").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
OPPOSITE = {"right": "wrong", "wrong": "right", "half": "half"}
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


def verdicts_on(text: str) -> list[str]:
    return [one.verdict for one in Conversation().ask(text).judgements if not one.near]


def test_facts_are_the_same_in_both_languages_and_speak_of_known_things() -> None:
    zh, en = (texts("facts", lang) for lang in LANGS)
    assert list(zh) == list(en)
    assert all(zh[key] == en[key] for key in zh if key.endswith(".about"))
    names = {word.name for word in lexicon()}
    for fact in facts().values():
        assert fact.topic in TOPICS
        for form in fact.forms:
            assert form.names <= names, (fact.id, form.names - names)


def test_reasons_name_only_what_is_computed() -> None:
    rollout = worked()
    for fact in facts().values():
        values = values_of(TOPICS[fact.topic], rollout, 1)
        for reason in fact.reasons:
            assert all(values.get(name) is not None for name in _PLACEHOLDER.findall(reason)), fact.id
            assert "{" not in re.sub(r"_\{[^}]*\}", "", substituted(reason, values)), fact.id


@pytest.mark.parametrize(("text", "deserved"), CLAIMS)
def test_claims_get_their_verdicts(text: str, deserved: str) -> None:
    said, wanted = verdicts_on(text), [] if deserved == "none" else deserved.split(",")
    assert said == wanted or (set(said) == set(wanted) and len(set(wanted)) == 1) or (text in OPEN and not said)


OPEN = {
    "old_log_probs 每个 epoch 都会重新算一遍",
    "explained variance 为负说明 critic 比直接报平均值还差",
    "Compute the returns first and whiten the advantages afterwards",
}
"""Claims that get no verdict; what is not here must get the right one."""

CAUSES = {
    "lambda": ("λ", "λ"), "gamma": ("γ", "γ"), "beta": ("β", "β"), "epsilon": ("ε", "ε"),
    "epochs": ("epoch 数", "epochs"),
    "entropy_bonus": ("熵系数", "the entropy coefficient"), "temperature": ("温度", "the temperature"),
    "group_size": ("组大小", "the group size"), "lr": ("学习率", "the learning rate"),
}  # fmt: skip
EFFECTS = {
    "variance": ("方差", "the variance"), "bias": ("偏差", "the bias"), "entropy": ("熵", "the entropy"),
    "clip_frac": ("裁剪比例", "the clip fraction"), "kl": ("KL", "the KL"), "approx_kl": ("approx_kl", "approx_kl"),
}  # fmt: skip
FORMS = (
    ("{} 越大，{}越大", 1), ("{} 越大，{}越小", -1), ("{} 越小，{}越小", 1), ("把 {} 调小会让{}变大", -1),
    ("{} 越大，{}并不会越大", -1), ("增大 {} 不会降低{}", 1),
    ("raising {} increases {}", 1), ("raising {} lowers {}", -1), ("lowering {} reduces {}", 1),
    ("the larger {}, the smaller {}", -1), ("lowering {} does not raise {}", 1),
    ("a smaller {} means that {} rises", -1),
)  # fmt: skip


def moving() -> list[tuple[str, str, int]]:
    """(cause, effect, way) of every fact of that kind whose names are listed above."""
    return [
        (cause, effect, 1 if form.rest[1] == "+" else -1)
        for fact in facts().values()
        for form in fact.forms
        if form.kind == "moves" and form.rest[1] in "+-"
        for cause, effect in product(form.slots[0], form.rest[0].split("|"))
        if cause in CAUSES and effect in EFFECTS
    ]


def test_direction_and_negation_decide_whatever_the_words() -> None:
    assert len(moving()) >= 8
    for (cause, effect, way), (form, turn) in product(moving(), FORMS):
        lang = 0 if re.search("[一-鿿]", form) else 1
        text = form.format(CAUSES[cause][lang], EFFECTS[effect][lang])
        found = [one.finding.verdict for one in claims_of(text) if one.finding]
        assert found == ["right" if way == turn else "wrong"], text


TURNED = [
    ("GRPO 需要 critic", "GRPO 不需要 critic"),
    ("GRPO needs a critic", "GRPO works without a critic"),
    ("the denominator of the ratio is the old policy", "the denominator of the ratio is the reference"),
    ("ratio 的分母是旧策略，而不是参考模型", "ratio 的分母是参考模型，而不是旧策略"),
    ("GAE has less variance than Monte Carlo", "Monte Carlo has less variance than GAE"),
    ("GAE 的方差比蒙特卡洛小", "蒙特卡洛的方差比 GAE 小"),
    ("V(s_t) is computed before token t", "V(s_t) is computed after token t"),
    ("先算回报再白化", "先白化再算回报"),
    ("k3 can be negative", "k3 is never negative"),
    ("the advantage can be negative", "the advantage cannot be negative"),
    ("the reference model is frozen", "the reference model is updated"),
    ("old_log_probs 在多个 epoch 里保持不变", "old_log_probs 每个 epoch 都重新计算"),
]


@pytest.mark.parametrize(("one", "other"), TURNED)
def test_what_turns_a_claim_turns_its_verdict(one: str, other: str) -> None:
    verdicts = [found.verdict for text in (one, other) if (found := find(text))]
    assert sorted(verdicts) == ["right", "wrong"]


QUANTITIES = [
    ("tokens whose ratio is outside the range have no gradient", "half"),
    ("tokens whose ratio is outside the range never have a gradient", "wrong"),
    ("tokens whose ratio is outside the range can have a gradient", "right"),
    ("ratio 超出区间的 token 不一定没有梯度", "right"),
    ("白化可能改变优势的符号", "right"),
    ("白化一定改变优势的符号", "wrong"),
]


@pytest.mark.parametrize(("text", "verdict"), QUANTITIES)
def test_how_much_is_claimed_decides(text: str, verdict: str) -> None:
    found = find(text)
    assert found is not None
    assert found.verdict == verdict


def test_what_is_mentioned_besides_leaves_a_claim_without_a_verdict() -> None:
    assert find("GRPO needs a critic for very long tool conversations in the browser") is None
    assert find("GRPO needs a critic and a reference model") is None


def test_each_half_of_a_double_claim_is_judged_or_named() -> None:
    answer = Conversation().ask("GRPO has no critic, and its rollouts are faster on Tuesdays")
    assert [one.near for one in answer.judgements] == [False, True]
    assert "Tuesdays" in answer.judgements[1].quote
    assert "cannot judge" in markdown(answer)


def test_a_yes_or_no_question_is_answered_with_yes_or_no() -> None:
    assert "**No:**" in markdown(Conversation().ask("Is the reference model the same as the old policy?"))
    assert "**是**：" in markdown(Conversation().ask("参考模型是冻结的吗？"))


@pytest.mark.parametrize("text", ["V(0) 里不包含 r(0)，对吗", "returns[t] and values[t] do not share an index, right?"])
def test_no_topic_says_yes_under_a_verdict(text: str) -> None:
    answer = Conversation().ask(text)
    assert answer.judgements
    assert not re.match(r"(?:Yes|是|对|成立)\b", answer.text)


@pytest.mark.parametrize(
    ("claim", "verdicts"),
    [
        ("old policy and reference policy are the same frozen model", ["wrong"]),
        ("GRPO把critic去掉了，所以它没有baseline，方差会非常大", ["right", "wrong"]),
    ],
)
def test_what_is_joined_is_no_two_claims_and_no_other_verdict(claim: str, verdicts: list[str]) -> None:
    judged, _ = judgements(claim, worked(), 0, "en")
    assert [one.verdict for one in judged if not one.near] == verdicts
