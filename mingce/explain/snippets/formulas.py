"""Formulas pasted as a question, in LaTeX or plain signs: which one it is, and its symbols with their numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

LONGEST = 4_000


class Symbol(NamedTuple):
    """A symbol of a formula: its key in the texts, the column or setting that holds its number."""

    key: str
    shown: str
    column: str = ""
    setting: str = ""


@dataclass(frozen=True)
class Formula:
    """A formula that is known: all of `signs` must be in the text; `kind` is the line of code that computes it."""

    id: str
    kind: str
    signs: tuple[str, ...]
    symbols: tuple[Symbol, ...]


_A, _DELTA = Symbol("advantage", "A_t", "advantages"), Symbol("delta", "δ_t", "deltas")
_R, _V = Symbol("reward", "r_t", "rewards"), Symbol("value", "V(s_t)", "values")
_NEXT = Symbol("next_value", "V(s_{t+1})", "next_values")
_RHO, _GAMMA = Symbol("ratio", "ρ_t", "ratio"), Symbol("gamma", "γ", setting="gamma")
_LAM, _EPS = Symbol("lam", "λ", setting="lam"), Symbol("epsilon", "ε", setting="clip_low")
_BETA, _RETURN = Symbol("beta", "β", setting="beta"), Symbol("returns", "R_t", "returns")
_NEW_V = Symbol("new_value", "V'(s_t)", "new_values")
_LOGP, _OLD = Symbol("log_prob", "log π", "new_log_probs"), Symbol("old_log_prob", "log π_old", "old_log_probs")
_REF, _SCORE = Symbol("ref_log_prob", "log π_ref", "ref_log_probs"), Symbol("score", "score_t", "scores")
_KL = Symbol("kl", "KL_t", "kl")

FORMULAS: tuple[Formula, ...] = (
    Formula("clip", "surrogate_min", ("min", "clip"), (_RHO, _A, _EPS)),
    Formula("clip", "surrogate_min", (r"l\^?\{?clip",), (_RHO, _A, _EPS)),
    Formula("gae_sum", "gae_step", ("sum", r"(?:gamma\s*lambda|gammalambda)", "delta"), (_A, _DELTA, _GAMMA, _LAM)),
    Formula("gae_sum", "gae_step", (r"a_?\{?t[^=]*=\s*delta_?\{?t\}?\s*\+\s*gamma\s*\*?\s*lambda",), (_A, _DELTA,
         _GAMMA,
         _LAM)),
    Formula("delta", "delta", (r"delta[^=]*=", r"gamma\s*\*?\s*v", r"-\s*v"), (_DELTA, _R, _GAMMA, _NEXT, _V)),
    Formula("kl_k3", "kl_k3", (r"(?:exp|e\^)", r"-\s*1", "ref", "log"), (_LOGP, _REF)),
    Formula("kl_k3", "kl_k3", (r"frac\{pi_?\{?ref", "log", r"-\s*1"), (_LOGP, _REF)),
    Formula("kl_reward", "reward", (r"beta", r"-", r"(?:kl|ref)", r"(?:score|r_?\{?phi|r_\{?theta|r\(|r_t|r_\{t)"),
         (_R, _SCORE, _BETA, _KL)),
    Formula("grpo_norm", "group_norm", ("mean", "std"), (_A, _R)),
    Formula("value_loss", "vf_max", (r"v_?[^=]*-\s*(?:r|g|v)", r"(?:\^\s*\{?2|2\})", r"l\^?_?\{?\(?(?:v|critic)"),
         (_NEW_V, _V, _RETURN)),
    Formula("policy_gradient", "reinforce", ("nabla", "log", "pi"), (_LOGP, _A)),
    Formula("ratio", "ratio", (r"frac\{pi", "old"), (_LOGP, _OLD)),
    Formula("ratio", "ratio", (r"(?:rho|r)_?\{?t[^=]*=\s*(?:exp|pi)", "old"), (_LOGP, _OLD)),
    Formula("returns", "returns", (r"(?:r|g)_?\{?t[^=]*=\s*(?:hat\{?)?a[^=]*\+\s*v",), (_RETURN, _A, _V)),
    Formula("discounted", "discounted_return", ("sum", r"gamma\^", r"r_"), (_RETURN, _R, _GAMMA)),
    Formula("discounted", "discounted_return", (r"g_?\{?t[^=]*=\s*r_?\{?t\}?\s*\+\s*gamma\s*\*?\s*g",), (_RETURN, _R,
         _GAMMA)),
    Formula("entropy", "entropy", ("sum", "log", r"\bh\b|h\("), (_LOGP,)),
)  # fmt: skip

_GREEK = {
    "γ": "gamma", "λ": "lambda", "δ": "delta", "β": "beta", "ε": "epsilon", "ρ": "rho", "π": "pi", "θ": "theta",
    "Σ": "sum ", "∑": "sum ", "∇": "nabla ", "φ": "phi", "−": "-", "·": "*", "×": "*", "Â": "hat{A}", "∞": "infty",
    "²": "^2", "½": "0.5",
}  # fmt: skip
_COMMANDS = re.compile(
    r"\\(?:left|right|big|Big|bigl|bigr|,|;|!|quad|mathbb|mathrm|text|operatorname|bm|mathcal|displaystyle)\b|\\[,;!]"
)
_SIGNS = re.compile(r"\\[a-zA-Z]+|[γλδβερπΣ∑∇Â]|[A-Za-z]\^?_\{?t|\^\{?CLIP", re.IGNORECASE)


def plain(text: str) -> str:
    """LaTeX and Greek signs as lower-case words."""
    text = text[:LONGEST]
    for sign, word in _GREEK.items():
        text = text.replace(sign, word)
    text = _COMMANDS.sub("", text)
    text = text.replace("\\cdot", "*").replace("\\", "").replace("$", "").replace("varepsilon", "epsilon")
    return re.sub(r"[ \t\n]+", " ", text).lower()


def find_formula(text: str) -> Formula | None:
    """The formula in a question, None if there is none that is known."""
    if len(_SIGNS.findall(text[:LONGEST])) < 2 or not re.search(r"[=∑Σ\\]|L\^", text[:LONGEST]):
        return None
    words = plain(text)
    for formula in FORMULAS:
        if all(re.search(sign, words) for sign in formula.signs):
            return formula
    return None
