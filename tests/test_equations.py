"""Equations as people write them: what each is judged to be, and that no judgement shows a number that is wrong."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest
from answer_numbers import equations, random_rollout

from mingce.base.lang import LANGS
from mingce.explain import example
from mingce.explain.answer_view import markdown
from mingce.explain.equations import judge_equation, judge_equations, verdict_answer
from mingce.explain.equations.reading import MOST, read

RIGHT = r"""
A = R − V
A = R - V 对吗？
Rₜ = Vₜ + Aₜ
advantages = returns - values
优势 = 回报 − 价值
优势等于回报减去价值
回报就是优势加上价值
returns = advantages + values
R_t - V_t = A_t
is it true that A_t = R_t - V(s_t)?
A_t = delta_t + gamma*lambda*A_{t+1}
A_t = δ_t + γλA_{t+1}
A_t = \delta_t + \gamma \lambda A_{t+1}
$\hat{A}_t = \delta_t + \gamma\lambda \hat{A}_{t+1}$
A[t] = delta[t] + gamma * lam * A[t+1]
lastgaelam = delta + gamma * lam * lastgaelam
\hat{A}_t^{GAE} = \sum_{l=0}^{\infty} (\gamma\lambda)^l \delta_{t+l}
A_t = Σ_l (γλ)^l δ_{t+l}
A_t = δ_t + γλδ_{t+1} + (γλ)^2 δ_{t+2} + …
A_0 = δ_0 + γλ·δ_1 + (γλ)²·δ_2 + ... + (γλ)^5·δ_5
\delta_t = r_t + \gamma V(s_{t+1}) - V(s_t)
delta_t = r_t + gamma * V_{t+1} - V_t
δ_t = r_t + γV(s_t+1) − V(s_t)
delta = rewards[t] + gamma * nextvalues - values[t]
TD 误差 = 奖励 + γ * 下一步价值 - 价值
r_t + γ V(s') - V(s) = δ_t
R_t = r_t + γ((1-λ)V_{t+1} + λR_{t+1})
R_t = r_t + γV_{t+1} + γλA_{t+1}
G_t = r_t + γG_{t+1}
G_t = Σ_k γ^k r_{t+k}
G_t = r_t + γ r_{t+1} + γ^2 r_{t+2} + ...
r = score - beta*kl
r_t = score_t − β·k_t
token_level_rewards = token_level_scores - beta * kld
kl = log pi_old - log pi_ref
kl = log π_old(a|s) − log π_ref(a|s)
kld = old_log_probs - ref_log_probs
ratio = exp(new - old)
ratio = torch.exp(log_prob - old_log_prob)
ratio = π_θ(a|s)/π_old(a|s)
\rho_t = \frac{\pi_\theta(a_t|s_t)}{\pi_{\theta_{old}}(a_t|s_t)}
r_t(θ) = π_θ(a_t|s_t) / π_{θ_old}(a_t|s_t)
log_ratio = log_probs - old_logprobs
ratio = exp(log_ratio)
loss = -min(ratio*A, clip(ratio,1-eps,1+eps)*A)
pg_losses = max(-A*ratio, -A*clip(ratio, 1-eps, 1+eps))
L^{CLIP}_t = \min(r_t(\theta)\hat{A}_t, \text{clip}(r_t(\theta), 1-\epsilon, 1+\epsilon)\hat{A}_t)
Q(s,a) = r + γV(s')
Q(s_t, a_t) = r_t + γ V(s_{t+1})
A(s,a) = Q(s,a) - V(s)
V(s) = E[Q(s,a)]
V(s_t) = E[r_t + γV(s_{t+1})]
V(s) = E[G]
E[A] = 0
E[δ_t] = 0
E[R_t] = V_t
mean(whitened) = 0
sum(白化后的优势) = 0
ratio > 0
-loss = min(ratio*A, clip(ratio)*A)
returns = values + advantages，对吗
当 λ=1 时 A = G - V
λ = 0 的时候 A_t = δ_t 吗
with gamma = 1, delta_t = r_t + V_{t+1} - V_t
if λ = 1 then R_t = G_t
第一次更新时 ratio = 1
at the last token A_t = r_t - V_t
A_3 = 0.57
A_3 ≈ 0.57
第 4 个 token 的优势是 0.57
delta_2 is 0.055
the advantage of token 3 is 0.57
token 3's advantage is 0.57
最后一个 token 的优势等于 0.395
A_4 = 0.13 + 0.95*0.395
sum(rewards) = 0.955
γλ = 0.95*1
A_0 > A_5
A_5 = δ_5
V_0 < V_5
whitened = (A - mean(A))/std(A)
Â = (A − μ)/σ
G_0 = Σ_{t=0}^{T-1} γ^t r_t
"""
HALF = {
    "A_t = δ_t": "lam0 last",
    "A = delta": "lam0 last",
    "优势就是 TD 误差": "lam0 last",
    "A_t 是 δ_t 吗": "lam0 last",
    "R_t = r_t + γ V_{t+1}": "lam0 last",
    "returns = rewards + gamma * nextvalue": "lam0 last",
    "V_t = r_t + gamma*V_{t+1}": "expectation",
    r"V(s_t) = r_t + \gamma V(s_{t+1})": "expectation",
    "V_t = r_t + V_{t+1}": "gamma1+expectation",
    "V(0) = r(0)+r(1)+...+r(5)": "gamma1+expectation",
    "V(0) = r(0)+r(1)+...+r(6)": "gamma1+expectation",
    "V_t = G_t": "expectation",
    "R_t = V_t": "expectation",
    "价值 = 回报": "expectation",
    "delta_t = r_t + V_{t+1} - V_t": "gamma1",
    "A = sum of deltas": "lam1+gamma1 last",
    "δ 之和 = A": "lam1+gamma1 last",
    "A_t = Σ_l γ^l δ_{t+l}": "lam1",
    "A_t = G_t - V_t": "lam1 last",
    "R_t = G_t": "lam1 last",
    "returns[t] = rewards[t] + gamma*returns[t+1]": "lam1 last",
    "回报 = 奖励之和": "lam1+gamma1 last",
    "R = sum of future rewards": "lam1+gamma1 last",
    "G_t = r_t + G_{t+1}": "gamma1 last",
    "A_t = r_t - V_t": "last",
    "A_t = δ_t + λA_{t+1}": "gamma1",
    "A_t = δ_t + γA_{t+1}": "lam1",
    "reward = score": "beta0",
    "奖励就是得分": "beta0",
    "r_t = score_t": "beta0",
    "Σ_t r_t = G_0": "gamma1",
    "V(s_t) 等于从 t 开始的奖励之和": "gamma1+expectation",
    "returns 是不是等于 rewards + gamma * V(s_{t+1})": "lam0 last",
    "new = old": "first",
    "ratio = 1": "first",
    "log_ratio = 0": "first",
    "loss = -ratio*A": "no_clip",
    "loss = -A": "first",
    "value_loss = 0.5*(V' - R)^2": "no_clip",
    "kl >= 0": "k3",
    "A_t = δ_t + 0.95*A_{t+1}": "settings",
}
WRONG = r"""
returns = rewards + values
回报 = 奖励 + 价值
A = R + V
A_t = V_t - R_t
advantages = values - returns
δ_t = r_t + γV_t − V_{t+1}
A_t = r_t + γV_{t+1}
A_t = δ_t - γλA_{t+1}
R_t = A_t - V_t
r = score + beta*kl
ratio = new - old
ratio = exp(old - new)
kl = log π_ref - log π_old
kl = log π − log π_old
loss = min(ratio*A, clip(ratio,1-eps,1+eps)*A)
loss = -max(ratio*A, clip(ratio,1-eps,1+eps)*A)
value_loss = (V' - R)^2
mean(A) = 0
sum(A) = 0
std(A) = 1
A = 0
A_t > 0
V_t < V_{t+1}
R_t = whitened + V_t
A_t = A_{t+1}
A_3 = 0.75
第 2 个 token 的优势是 0.99
delta_2 is 0.55
A_0 < A_5
r_5 = 1
sum(rewards) = 1.25
V(s_5) = 0.9
A_99 = 0.1
"""
NONE = (
    "", "λ = 0.5 会怎样", "γ=0.99", "1+1=2", "优势是什么", "what is A", "为什么要白化？", "values=[0.1,0.2]", "t = 3",
    "hello = world", "请问1+1=2？ → 是的，等于2！", "step = 5", "the reward is 1", "is the value always positive?",
    "a = b", "= = =", "A =", "= V",
    "A_t = (1-λ) Σ_n λ^{n-1} A^{(n)}_t",
)  # fmt: skip


def lines(text: str) -> list[str]:
    return text.strip().splitlines()


@pytest.mark.parametrize("text", lines(RIGHT))
def test_what_is_right(text: str) -> None:
    verdict = judge_equation(text, example.worked(), "zh")
    assert verdict is not None
    assert (verdict.status, verdict.conditions) == ("right", ()), verdict


@pytest.mark.parametrize("text", HALF)
def test_what_takes_a_condition(text: str) -> None:
    verdict = judge_equation(text, example.worked(), "en")
    assert verdict is not None
    assert verdict.status == "half", verdict
    assert set(HALF[text].split()) <= set(verdict.conditions), verdict


@pytest.mark.parametrize("text", lines(WRONG))
def test_what_is_wrong(text: str) -> None:
    verdict = judge_equation(text, example.worked(), "en")
    assert verdict is not None
    assert verdict.status == "wrong", verdict
    assert verdict.text


@pytest.mark.parametrize("text", NONE)
def test_what_claims_nothing(text: str) -> None:
    assert judge_equations(text, example.worked(), "zh") == []


def test_there_are_many() -> None:
    assert len(lines(RIGHT)) + len(HALF) + len(lines(WRONG)) >= 80


# ── what is said ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_wrong_equation_gets_numbers_the_difference_and_the_right_formula() -> None:
    verdict = judge_equation("returns = rewards + values", example.worked(), "en")
    assert verdict is not None
    assert verdict.lines == ("R_0 = 0.8211", "r_0 + V(s_0) = −0.01 + 0.2 = 0.19")
    assert verdict.t == 0
    assert verdict.left == pytest.approx(0.8211, abs=1e-4)
    assert verdict.right == pytest.approx(0.19)
    assert "A_t − r_t" in verdict.text
    assert verdict.formula == "R_t = A_t + V(s_t)"
    assert "0.6311" in verdict.text


def test_what_the_sides_differ_by_is_named() -> None:
    found = {
        "A_t = δ_t": "γλ·A_{t+1}", "V_t = r_t + γV_{t+1}": "−δ_t", "reward = score": "−β·k_t",
        "δ_t = r_t + V_{t+1} - V_t": "(1 − γ)·V(s_{t+1})",
    }  # fmt: skip
    for text, more in found.items():
        verdict = judge_equation(text, example.worked(), "zh")
        assert verdict is not None
        assert more in verdict.text, verdict.text


def test_a_sign_and_a_factor_are_named() -> None:
    sign = judge_equation("loss = min(ratio*A, clip(ratio,1-eps,1+eps)*A)", example.worked(), "en")
    factor = judge_equation("value_loss = max((V' - R)^2, (clip(V', V-eps_v, V+eps_v) - R)^2)", example.worked(), "en")
    assert sign is not None
    assert "sign" in sign.text
    assert factor is not None
    assert "0.5 times" in factor.text, factor.text


def test_whitened_advantages_are_spoken_of_where_they_matter() -> None:
    raw = judge_equation("R = A + V", example.worked(), "en")
    mean = judge_equation("mean(A) = 0", example.worked(), "en")
    assert raw is not None
    assert "raw advantage" in raw.text
    assert mean is not None
    assert "For whitened advantages it is true" in mean.text


def test_where_a_wrong_number_belongs_is_told() -> None:
    verdict = judge_equation("A_4 = 0.57", example.worked(), "en")
    assert verdict is not None
    assert verdict.status == "wrong"
    assert "0.57 is in fact the advantage A_3" in verdict.text


def test_counting_from_one_is_noticed() -> None:
    verdict = judge_equation("第 4 个 token 的优势是 0.57", example.worked(), "zh")
    assert verdict is not None
    assert "从 1 数起" in verdict.text
    exact = judge_equation("第 3 个 token 的优势是 0.57", example.worked(), "zh")
    assert exact is not None
    assert (exact.status, "从 1 数起" in exact.text) == ("right", False)


def test_several_equations_of_a_text_are_judged_in_order() -> None:
    text = "先算 δ_t = r_t + γV_{t+1} − V_t，再算 A_t = δ_t，最后 R_t = A_t + V_t。"
    assert [one.status for one in judge_equations(text, example.worked(), "zh")] == ["right", "half", "right"]
    chain = judge_equations("A_4 = δ_4 + γλ*A_5 = 0.13 + 0.95*0.395", example.worked(), "zh")
    assert [one.status for one in chain] == ["right", "right"]


def test_a_condition_in_the_text_is_taken_up() -> None:
    with_it = judge_equation("如果 λ=0.5，A_t = δ_t + 0.5*γ*A_{t+1} 吗", example.worked(), "zh")
    without = judge_equation("A_t = δ_t + 0.5*γ*A_{t+1}", example.worked(), "zh")
    assert with_it is not None
    assert with_it.status == "right"
    assert without is not None
    assert without.status == "wrong"


def test_numbers_at_hand_that_fulfil_a_wrong_equation_do_not_make_it_right() -> None:
    lucky = example.typed({"rewards": [0.0, 0.0], "values": [0.0, 0.0]})
    verdict = judge_equation("R = r + V", lucky, "en")
    assert verdict is not None
    assert verdict.status == "wrong"
    assert "happen to" in verdict.text


def test_other_estimators_have_their_own_identities() -> None:
    worked = example.worked()
    monte_carlo = example.changed(worked, estimator="monte_carlo")
    verdict = judge_equation("A_t = G_t - V_t", monte_carlo, "en")
    assert verdict is not None
    assert verdict.status == "right"
    assert "monte_carlo" in verdict.text
    td0 = judge_equation("A_t = δ_t", example.changed(worked, estimator="td0"), "zh")
    assert td0 is not None
    assert td0.status == "right"


def test_what_the_rollout_lacks_is_shown_with_the_worked_example() -> None:
    verdict = judge_equation("A = R - V", example.typed({"rewards": [0, 1.0]}), "en")
    assert verdict is not None
    assert verdict.status == "right"
    assert "not the numbers of your example" in verdict.text


# ── no wrong number ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(16))
def test_verdicts_on_random_rollouts_do_not_depend_on_them_and_show_no_wrong_number(seed: int) -> None:
    rollout, lang = random_rollout(seed), LANGS[seed % 2]
    claims = [text for text in (*lines(RIGHT), *HALF, *lines(WRONG)) if not re.search(r"\d\.\d|_\d|token|\(0\)", text)]
    for text in claims[seed % 4 :: 4]:
        verdict = judge_equation(text, rollout, lang)
        usual = judge_equation(text, example.worked(), lang)
        assert verdict is not None
        assert usual is not None
        if not re.search(r"\(?(?:sum|mean|std)|[<>≥]", text):
            assert verdict.status == usual.status, (text, verdict, usual)
        answer = markdown(verdict_answer(verdict, rollout, lang))
        assert all(holds for _, holds in equations("\n".join(verdict.lines))), verdict.lines
        assert "{" not in re.sub(r"_\{t[+−].{1,4}\}|\{j≠i\}|\{−x\}", "", answer), answer


@pytest.mark.parametrize("text", ["A = R - V", "δ = r + γV' - V", "A_t = δ_t + γλA_{t+1}", "R_t = A_t + V_t"])
@pytest.mark.parametrize("seed", range(12))
def test_identities_hold_on_rollouts_with_holes_and_cuts(text: str, seed: int) -> None:
    verdict = judge_equation(text, random_rollout(seed), "en")
    assert verdict is not None
    assert verdict.status == "right"
    assert verdict.left == pytest.approx(verdict.right, abs=1e-9)


# ── hostile texts ────────────────────────────────────────────────────────────────────────────────────────────────────

HOSTILE = (
    "(" * 3000 + "A = V", "A = " + "(" * 500 + "V" + ")" * 500, "A = " + "-" * 2000 + "V",
    "A = " + "V+" * 1500 + "V", "A=" * 2000, "\\frac{" * 400, "\\frac{A}{V} = " * 300,
    "Σ_{l=0}^{99999999} Σ_{k=0}^{99999999} r_k = A", "A_{99999999999999} = 1.5", "A = 9^9^9^9^9",
    "A = 10^{10^{10}}", "A = 1/0", "A = V/0", "A = log(0)", "A = exp(exp(exp(exp(9999))))", "A_{t+999999} = V",
    "|" * 999 + "A = V", "A[[[[[[ = V", "A = V" + "'" * 500, "A_{_{_{_{_ = V", "A = … + …", "A = r_0 + … ",
    "A^{^{^{ = V", "__import__('os').system('true') = A", "A = V.__class__", "A = {0.__class__} V",
    "\x00A = V\x00", "A = " + "γ" * 1900, "r(0)+...+r(1e9) = V", "r(0)+r(1)+...+r(99999) = V_0",
    "A = Σ Σ Σ Σ Σ Σ Σ Σ δ", "A=" + "Σ_{l=0}^{∞} " * 60 + "δ_{t+l}", "A_t^2^2^2^2^2 = δ",
    "E[" * 300 + "A" + "]" * 300 + " = 0", "min(" * 200 + "A = 0", "第 99999 个 token 的优势是 1",
)  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_are_bounded(text: str) -> None:
    verdicts = judge_equations(text, example.worked(), "zh")
    assert len(verdicts) <= MOST
    assert all(one.status in ("right", "half", "wrong") for one in verdicts)


def test_random_pieces_never_raise() -> None:
    chance = random.Random(7)
    pieces = [
        "A", "V", "_t", "_{t+1}", "(", ")", "=", "+", "-", "*", "/", "^", "Σ", "γ", "λ", "r", "0.5", "3", "…",
        " ", "[t]", "|", ",", "δ", "<", "exp", "min(", "优势", "是", "之和", "'", "{", "}", "\\frac", "E[", "]",
        "clip(", "log π_old", "第 2 个 token 的",
    ]  # fmt: skip
    for _ in range(400):
        text = "".join(chance.choices(pieces, k=chance.randint(1, 24)))
        read(text)
    for _ in range(60):
        text = "A = " + "".join(chance.choices(pieces, k=chance.randint(1, 8)))
        judge_equations(text, example.worked(), "en")


def test_a_rollout_without_chosen_tokens_is_no_error() -> None:
    worked = example.worked()
    empty = replace(worked, columns={**worked.columns, "response_mask": [0] * 6})
    verdict = judge_equation("A = R - V", empty, "en")
    assert verdict is not None
