"""The column table: every per-token and per-rollout number, defined once.

The trainer fills these columns, the auditor recomputes them, the page draws them, the tutor puts numbers into their
formulae. What each means is in mingce/texts/columns.zh.md and columns.en.md. Importing this file needs no torch, so the
command line can print the table at once.

Time, 0-based as in the code. Prompt x, response tokens y_0 … y_{T-1}:

    state   s_t = (x, y_0 … y_{t-1})   what is known BEFORE token t
    action  a_t = y_t                  choosing token t takes s_t to s_{t+1}

    prompt: 请问1+1=2？                 slot      0     1     2     3     4     5
    response                           token     是    的    ，    等于   2     ！
    state-aligned:  values[t]          before    |是   |的   |，   |等于  |2    |！     V(s_t), read before token t
    action-aligned: rewards[t], …      of        是    的    ，    等于   2     ！      what choosing token t earned

A formula's t+1 means the next CHOSEN token: recursions step over slots whose response_mask is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mingce.base.errors import UnknownNameError
from mingce.base.texts import named, texts

Alignment = Literal["action", "state", "row"]


@dataclass(frozen=True)
class Column:
    """One named column of a ledger.

    `alignment` says what slot t is about: the choice of token t ("action"), the state before it ("state"), or, for
    "row" columns, the whole rollout. `inputs` must be in the ledger before this column can be filled; `optional`
    are read when they are there. `source` is where the numbers come from: "module:function" for arithmetic, or the
    role that measures them, such as "actor.generate".
    """

    name: str
    symbol: str
    alignment: Alignment
    dtype: str
    formula: str
    inputs: tuple[str, ...]
    source: str
    optional: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def formula_zh(self) -> str:
        """The formula, its words in Chinese."""
        return texts("columns", "zh").get(f"{self.name}.formula", self.formula)

    @property
    def zh(self) -> str:
        """The meaning in a sentence, in Chinese."""
        return self._said("zh")[0]

    @property
    def en(self) -> str:
        """The meaning in a sentence, in English."""
        return self._said("en")[0]

    @property
    def long_zh(self) -> str:
        """The longer paragraph, in Chinese."""
        return self._said("zh")[1]

    @property
    def long_en(self) -> str:
        """The longer paragraph, in English."""
        return self._said("en")[1]

    def _said(self, lang: str) -> list[str]:
        return texts("columns", lang)[self.name].split("\n\n")

    @property
    def is_computed(self) -> bool:
        """True when the column is arithmetic on other columns, False when a role measures it."""
        return ":" in self.source


@dataclass(frozen=True)
class Setting:
    """A symbol in the formulae that is chosen by a person, not computed."""

    symbol: str
    name: str

    @property
    def zh(self) -> str:
        """The meaning, in Chinese."""
        return named(texts("columns", "zh")["settings"])[self.name]

    @property
    def en(self) -> str:
        """The meaning, in English."""
        return named(texts("columns", "en")["settings"])[self.name]


_MASKING = "mingce.algorithms.masking"
_KL = "mingce.algorithms.kl"
_ADVANTAGE = "mingce.algorithms.advantage"
_LOSSES = "mingce.algorithms.losses"

_TABLE = (
    # ── what was said ────────────────────────────────────────────────────────────────────────────────────────────
    Column(
        "token_ids", "y_t", "action", "int64", "a_t = y_t, drawn from q(·|s_t) where m_t = 1", (), "actor.generate",
        aliases=("responses", "response_ids"),
    ),
    Column(
        "attention_mask", "n_t", "action", "bool", "n_t = 1 where slot t holds a token, 0 on padding", (),
        "actor.generate",
    ),
    Column(
        "response_mask", "m_t", "action", "bool", "m_t = 1 where the policy chose y_t", (), "actor.generate",
        aliases=("eos_mask", "action_mask", "token_loss_mask"),
    ),
    Column(
        "turn", "turn_t", "action", "int64", "turn_t = 0, 1, …: the policy's turn that y_t is in, or answers", (),
        "actor.generate",
    ),
    Column(
        "role", "who_t", "action", "int64", "who_t = 1 assistant (m_t = 1), 2 tool, 3 user, 4 system; 0 on padding", (),
        "actor.generate",
    ),
    Column(
        "loss_mask", "ℓ_t", "action", "bool", "ℓ_t = m_t, and 0 on rows cut by the length limit if truncation = mask",
        ("response_mask",), f"{_ADVANTAGE}:truncation_rule",
    ),
    # ── log-probabilities ────────────────────────────────────────────────────────────────────────────────────────
    Column(
        "rollout_log_probs", "log q(a_t)", "action", "float32",
        "log q(a_t|s_t), q the very distribution drawn from (temperature, top-k, top-p, min-p)", ("token_ids",),
        "actor.generate",
        aliases=("inference_logprobs", "generation_logprobs", "rollout_logprobs", "sampling_logprobs"),
    ),
    Column(
        "old_log_probs", "log π_old(a_t)", "action", "float32", "log π_old(a_t|s_t), before any update of this step",
        ("token_ids",), "actor.log_probs",
        aliases=("old_log_prob", "logprobs", "action_log_probs", "trainer_logprobs", "prev_logprobs", "old_logprobs"),
    ),
    Column(
        "entropy", "H_t", "action", "float32", "H_t = −Σ_a π_old(a|s_t)·log π_old(a|s_t)", ("token_ids",),
        "actor.log_probs", aliases=("entropys", "entropies"),
    ),
    Column(
        "ref_log_probs", "log π_ref(a_t)", "action", "float32", "log π_ref(a_t|s_t)", ("token_ids",),
        "reference.log_probs",
        aliases=("ref_log_prob", "ref_logprobs", "base_action_log_probs", "ref_logps", "reference_logprobs"),
    ),
    # ── rewards ──────────────────────────────────────────────────────────────────────────────────────────────────
    Column(
        "scores", "score_t", "action", "float32", "score_t = 0 except on the last chosen token, or dense",
        ("token_ids",), "reward.score", aliases=("token_level_scores", "rm_scores"),
    ),
    Column(
        "kl", "k_t", "action", "float32", "k_t = log π_old(a_t) − log π_ref(a_t)  (k1; also abs, k2, k3, full)",
        ("old_log_probs", "ref_log_probs"), f"{_KL}:kl_penalty", aliases=("kld", "mismatch_kl"),
    ),
    Column(
        "rewards", "r_t", "action", "float32", "r_t = score_t − β·k_t", ("scores",), f"{_KL}:kl_rewards",
        optional=("kl",), aliases=("token_level_rewards", "token_rewards"),
    ),
    # ── credit ───────────────────────────────────────────────────────────────────────────────────────────────────
    Column(
        "values", "V(s_t)", "state", "float32", "V(s_t), read from the critic before token t", ("token_ids",),
        "critic.values", aliases=("old_values",),
    ),
    Column(
        "deltas", "δ_t", "action", "float32", "δ_t = r_t + γ·V(s_{t+1}) − V(s_t)", ("rewards", "values"),
        f"{_ADVANTAGE}:td_errors", aliases=("td_errors", "delta"),
    ),
    Column(
        "attention_weights", "w_t", "action", "float32", "w_t ≥ 0: attention paid to y_t by the last chosen token",
        ("token_ids",), "actor.attention",
    ),
    Column(
        "advantages", "A_t", "action", "float32",
        "A_t = δ_t + γλ·A_{t+1} with δ_t = r_t + γ·V(s_{t+1}) − V(s_t)  (GAE; other estimators have their own)",
        ("rewards",), f"{_ADVANTAGE}:gae", optional=("values", "deltas", "attention_weights"),
        aliases=("raw_advantages",),
    ),
    Column("returns", "R_t", "state", "float32", "R_t = A_t + V(s_t)", ("advantages", "values"), f"{_ADVANTAGE}:gae"),
    Column(
        "whitened_advantages", "Â_t", "action", "float32", "Â_t = (A_t − μ)/√(σ² + 10⁻⁸) over the whole batch",
        ("advantages",), f"{_MASKING}:masked_whiten", optional=("loss_mask",), aliases=("normalized_advantages",),
    ),
    # ── the update ───────────────────────────────────────────────────────────────────────────────────────────────
    Column(
        "new_log_probs", "log π(a_t)", "action", "float32", "log π(a_t|s_t), by the policy being updated",
        ("old_log_probs",), "actor.update", aliases=("log_prob", "new_logprobs"),
    ),
    Column(
        "ratio", "ρ_t", "action", "float32", "ρ_t = exp(log π(a_t) − log π_old(a_t)), exponent held within ±20",
        ("new_log_probs", "old_log_probs"), f"{_LOSSES}:policy_ratio", aliases=("importance_ratio", "ratios"),
    ),
    Column(
        "clipped", "c_t", "action", "bool", "c_t = 1 where the clip of ρ_t decided the term (ε or dual clip)",
        ("ratio", "advantages"), f"{_LOSSES}:policy_loss", optional=("whitened_advantages",),
    ),
    Column(
        "dual_clipped", "d_t", "action", "bool", "d_t = 1 where Â_t < 0 and ρ_t > c (dual clip)",
        ("ratio", "advantages"), f"{_LOSSES}:policy_loss", optional=("whitened_advantages",),
    ),
    Column(
        "policy_loss", "L^π_t", "action", "float32",
        "L^π_t = −min(ρ_t·Â_t, clip(ρ_t, 1−ε_low, 1+ε_high)·Â_t), at most −c·Â_t if Â_t < 0;  cpi: −ρ_t·Â_t",
        ("ratio", "advantages"), f"{_LOSSES}:policy_loss", optional=("whitened_advantages",),
        aliases=("pg_losses",),
    ),
    Column(
        "new_entropy", "H'_t", "action", "float32", "H'_t = −Σ_a π(a|s_t)·log π(a|s_t)", ("new_log_probs",),
        f"{_LOSSES}:entropy_from_logits",
    ),
    Column(
        "kl_loss", "L^KL_t", "action", "float32", "L^KL_t = k(log π(a_t), log π_ref(a_t))",
        ("new_log_probs", "ref_log_probs"), f"{_LOSSES}:kl_loss",
    ),
    Column(
        "new_values", "V'(s_t)", "state", "float32", "V'(s_t), by the critic being updated", ("values",),
        "critic.update", aliases=("vpreds", "vpred"),
    ),
    Column(
        "value_clipped", "c^V_t", "state", "bool",
        "c^V_t = 1 where |clip(V'(s_t), V(s_t) ± ε_V) − R_t| > |V'(s_t) − R_t|", ("new_values", "values", "returns"),
        f"{_LOSSES}:value_loss",
    ),
    Column(
        "value_loss", "L^V_t", "state", "float32",
        "L^V_t = ½·max((V'(s_t) − R_t)², (clip(V'(s_t), V(s_t) ± ε_V) − R_t)²)", ("new_values", "values", "returns"),
        f"{_LOSSES}:value_loss", aliases=("vf_losses",),
    ),
    # ── one a rollout ────────────────────────────────────────────────────────────────────────────────────────────
    Column("uid", "uid", "row", "str", "unique in the run", (), "actor.generate"),
    Column("group", "g", "row", "str", "equal for the samples of one prompt", (), "actor.generate", aliases=("index",)),
    Column("data_source", "source", "row", "str", "names the task or data set", (), "data"),
    Column("prompt", "x", "row", "str", "as the tokenizer saw it", (), "data"),
    Column("prompt_ids", "x_ids", "row", "list[int]", "token ids of x", (), "data", aliases=("queries", "prompts")),
    Column("response", "y", "row", "str", "decode(y_t where n_t = 1)", (), "actor.generate"),
    Column("finish_reason", "finish", "row", "str", "stop | length | error", (), "actor.generate"),
    Column("conversation", "conv", "row", "int", "number of the conversation in its step", (), "actor.generate"),
    Column("segment", "seg", "row", "int", "0, 1, …: which part of its conversation the row is", (), "actor.generate"),
    Column("turn_rewards", "r^env_k", "row", "list[float]", "what turn k of the row earned", (), "actor.generate"),
    Column("tool_calls", "calls", "row", "int", "tool calls of the conversation", (), "actor.generate"),
    Column("malformed_calls", "malformed", "row", "int", "turns with a call that cannot be read", (), "actor.generate"),
    Column("drift", "drift", "row", "int", "first t where encoding anew differs, or −1", (), "actor.generate"),
    Column("score_parts", "parts", "row", "dict[str, float]", "named parts of the score", (), "reward.score"),
    Column(
        "bootstrap_value", "V(s_T)", "row", "float", "critic at the state after the last token", (), "critic.values",
    ),
    Column("greedy_score", "b", "row", "float", "score of the greedy answer to the same prompt", (), "reward.score"),
    Column("step", "step", "row", "int", "training step, from 1", (), "trainer"),
    Column("policy_version", "version", "row", "int", "updates applied before it was drawn", (), "actor.generate"),
    Column("temperature", "τ", "row", "float", "softmax(logits / τ)", (), "actor.generate"),
)  # fmt: skip

ROLES = ("", "assistant", "tool", "user", "system")
"""What the numbers in the column `role` stand for."""

COLUMNS: dict[str, Column] = {column.name: column for column in _TABLE}
TOKEN_COLUMNS: dict[str, Column] = {name: c for name, c in COLUMNS.items() if c.alignment != "row"}
ROW_COLUMNS: dict[str, Column] = {name: c for name, c in COLUMNS.items() if c.alignment == "row"}
DERIVED: dict[str, Column] = {
    "log_prob_gap": Column(
        "log_prob_gap", "g_t", "action", "float32", "g_t = log q(a_t) − log π_old(a_t)",
        ("rollout_log_probs", "old_log_probs"), "page",
    ),
}  # fmt: skip
"""What no ledger stores: the page computes it from two columns, where it has both."""
ALIASES: dict[str, str] = {alias: column.name for column in _TABLE for alias in column.aliases}

_SYMBOLS = {
    "gamma": "γ", "lam": "λ", "kl_coef": "β", "clip_low": "ε_low", "clip_high": "ε_high", "dual_clip": "c",
    "value_clip": "ε_V",
}  # fmt: skip
SETTINGS: dict[str, Setting] = {name: Setting(symbol, name) for name, symbol in _SYMBOLS.items()}


def column(name: str) -> Column:
    """The column of that name or alias; an unknown name is an error that offers the nearest one."""
    known = COLUMNS.get(ALIASES.get(name, name))
    if known is None:
        raise UnknownNameError("column", name, COLUMNS)
    return known
