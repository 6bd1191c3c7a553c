"""The formulas between two quantities, where one exists, and the same with a token's numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mingce.explain.derive.sheet import Sheet, fine, put


@dataclass(frozen=True)
class Link:
    """What holds between two quantities: the formula, the sentence on it, and its line of numbers at a token."""

    a: str
    b: str
    sentence: str
    formula: str
    line: Callable[[Sheet, int], str | None]


def link_of(a: str, b: str) -> Link | None:
    """The link between two quantities, in either order."""
    return next((link for link in LINKS if {link.a, link.b} == {a, b}), None)


def _line(template: str, *inputs: str) -> Callable[[Sheet, int], str | None]:
    """A line whose numbers are columns at t: `{advantages}`, `{gamma}`; None where one is missing."""

    def write(sheet: Sheet, t: int) -> str | None:
        values = {name: sheet.at(name, t) for name in inputs}
        settings = {"gamma": sheet.gamma, "decay": sheet.decay, "beta": sheet.beta}
        known = values | {name: x for name, x in settings.items() if "{" + name + "}" in template}
        if any(x is None for x in known.values()):
            return None
        return put(template, t=t, **known)

    return write


def _carried(sheet: Sheet, t: int) -> str | None:
    """A_t − δ_t = γλ·A_{t+1}."""
    spec, after, decay = sheet.estimator, sheet.following(t), sheet.decay
    a, d = sheet.at("advantages", t), sheet.at("deltas", t)
    following = 0.0 if after is None else sheet.at("advantages", after)
    if spec is None or not spec.mixes_tokens or None in (a, d, following, decay) or sheet.cut_off(t):
        return None
    name = "0" if after is None else f"A_{after}"
    template = f"A_{{t}} − δ_{{t}} = {{a}} − {{d}} = γλ·{name} = {{w}}·{{n}}"
    return put(template, t=t, a=a, d=d, w=decay, n=following)


def _step(sheet: Sheet, t: int) -> str | None:
    """δ_t − r_t = γ·V(s_{t+1}) − V(s_t)."""
    d, r, v, ahead, gamma = (
        *(sheet.at(n, t) for n in ("deltas", "rewards", "values")),
        sheet.next_value(t),
        sheet.gamma,
    )
    if None in (d, r, v, ahead, gamma):
        return None
    template = f"δ_{{t}} − r_{{t}} = γ·V({sheet.state_after(t)}) − V(s_{{t}}) = {{g}}·{{n}} − {{v}} = {{x}}"
    return put(template, t=t, g=gamma, n=ahead, v=v, x=(gamma or 0) * (ahead or 0) - (v or 0))


def _whitening(sheet: Sheet, t: int) -> str | None:
    whitening, a, x = sheet.rollout.whitening, sheet.at("advantages", t), sheet.at("whitened_advantages", t)
    if whitening is None or a is None or x is None or whitening.variance <= 0:
        return None
    spread = (whitening.variance + whitening.epsilon) ** 0.5
    mean = fine(whitening.mean)
    mean = f"({mean})" if mean.startswith("−") else mean
    return f"Â_{t} = ({fine(a)} − {mean})/{fine(spread)} = {put('{x}', x=x)}"


def _nothing(sheet: Sheet, t: int) -> str | None:
    return None


LINKS = (
    Link("returns", "values", "returns_values", "R_t − V(s_t) = A_t",
         _line("R_{t} − V(s_{t}) = {returns} − {values} = {advantages}", "returns", "values", "advantages")),
    Link("advantages", "deltas", "advantages_deltas", "A_t = δ_t + γλ·A_{t+1}", _carried),
    Link("rewards", "scores", "rewards_scores", "r_t = score_t − β·k_t",
         _line("r_{t} = {scores} − {beta}·{kl} = {rewards}", "scores", "kl", "rewards")),
    Link("ratio", "kl", "ratio_kl", "ρ_t = π(a_t)/π_old(a_t),  k_t = log(π_old(a_t)/π_ref(a_t))", _nothing),
    Link("advantages", "whitened_advantages", "advantages_whitened", "Â_t = (A_t − μ)/√(σ² + 10⁻⁸)", _whitening),
    Link("advantages", "returns", "advantages_returns", "R_t = A_t + V(s_t)",
         _line("R_{t} = {advantages} + {values} = {returns}", "advantages", "values", "returns")),
    Link("deltas", "rewards", "deltas_rewards", "δ_t − r_t = γ·V(s_{t+1}) − V(s_t)", _step),
    Link("values", "rewards", "values_rewards", "V(s_t) = E[r_t + γ·r_{t+1} + γ²·r_{t+2} + …]", _nothing),
    Link("advantages", "values", "advantages_values", "A_t = R_t − V(s_t)",
         _line("A_{t} = {returns} − {values} = {advantages}", "returns", "values", "advantages")),
    Link("advantages", "rewards", "advantages_rewards", "A_t = Σ_l (γλ)^l·δ_{t+l}", _nothing),
    Link("returns", "mc_return", "returns_mc", "R_t(λ = 1) = G_t", _nothing),
    Link("returns", "rewards", "returns_rewards", "R_t = r_t + γ·((1 − λ)·V(s_{t+1}) + λ·R_{t+1})", _nothing),
    Link("returns", "td_target", "returns_target", "R_t − (r_t + γ·V(s_{t+1})) = γλ·A_{t+1}", _nothing),
    Link("old_log_probs", "new_log_probs", "old_new", "ρ_t = exp(log π(a_t) − log π_old(a_t))",
         _line("ρ_{t} = exp({new_log_probs} − {old_log_probs}) = {ratio}", "new_log_probs", "old_log_probs", "ratio")),
    Link("old_log_probs", "ref_log_probs", "old_ref", "x_t = log π_old(a_t) − log π_ref(a_t)", _nothing),
    Link("old_log_probs", "rollout_log_probs", "old_rollout", "E[exp(log π_old − log q)] = 1", _nothing),
    Link("values", "new_values", "values_new", "clip(V'(s_t), V(s_t) ± ε_V)", _nothing),
    Link("policy_loss", "advantages", "loss_advantages", "∂L^π_t/∂log π = −ρ_t·Â_t", _nothing),
    Link("policy_loss", "value_loss", "two_losses", "L = L^π + c_V·L^V", _nothing),
    Link("kl", "kl_loss", "kl_kl_loss", "r_t = score_t − β·k_t,  L = L^π + c_KL·L^KL", _nothing),
    Link("response_mask", "loss_mask", "masks", "ℓ_t ≤ m_t", _nothing),
    Link("mc_advantage", "advantages", "mc_gae", "A_t(λ = 1) = G_t − V(s_t)", _nothing),
    Link("values", "next_values", "values_next", "V(s_{t+1})", _nothing),
)  # fmt: skip
"""Of the pairs that people mix up."""
