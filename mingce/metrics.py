"""Every logged metric that is a function of columns: its name, the columns and the reduction.

What they mean is in mingce/texts/metrics.{zh,en}.md. Names are verl's where the thing is the same. What is measured by
a clock or an optimizer is listed in MEASURED, so that the reference page covers every name that a run logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mingce.base.texts import named, texts

if TYPE_CHECKING:  # the table itself is read without torch
    from torch import Tensor

    from mingce.ledger import Ledger


@dataclass(frozen=True)
class Metric:
    """`compute(ledger)` where all `columns` are in the ledger; `over` names the reduction."""

    name: str
    columns: tuple[str, ...]
    over: str
    compute: Callable[[Ledger], float]

    @property
    def zh(self) -> str:
        """The meaning, in Chinese."""
        return self._meaning("zh")

    @property
    def en(self) -> str:
        """The meaning, in English."""
        return self._meaning("en")

    @property
    def reduction(self) -> str:
        """Over what it is taken, in English."""
        return named(texts("metrics", "en")["reductions"])[self.over]

    @property
    def reduction_zh(self) -> str:
        """Over what it is taken, in Chinese."""
        return named(texts("metrics", "zh")["reductions"])[self.over]

    def _meaning(self, lang: str) -> str:
        meanings = named(texts("metrics", lang)["metrics"])
        return meanings.get(self.name) or meanings[self.name.rpartition("/")[0]]


def masked_mean(values: Tensor, mask: Tensor, axis: int | None = None) -> Tensor:
    """Mean over the chosen tokens; see mingce.algorithms.masking."""
    from mingce.algorithms import masking

    return masking.masked_mean(values, mask, axis)


_REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda x: x.mean(),
    "max": lambda x: x.amax(),
    "min": lambda x: x.amin(),
}


def _three(name: str, column: str, over: str, numbers: Callable[[Ledger], Tensor]) -> Iterator[Metric]:
    """Mean, maximum and minimum; 0 of nothing."""
    for reduction, function in _REDUCTIONS.items():

        def compute(x: Ledger, function: Callable[[Tensor], Tensor] = function) -> float:
            values = numbers(x)
            return float(function(values)) if len(values) else 0.0

        yield Metric(f"{name}/{reduction}", (column,), f"{over}/{reduction}", compute)


def _of_rows(name: str, column: str) -> Iterator[Metric]:
    return _three(name, column, "sums", lambda x: x[column].sum(dim=1))


def _of_tokens(name: str, column: str) -> Iterator[Metric]:
    return _three(name, column, "tokens", lambda x: x[column][x.mask])


def _of_lengths(name: str, lengths: Callable[[Ledger], Tensor]) -> Iterator[Metric]:
    return _three(name, "response_mask", "rollouts", lambda x: lengths(x).float())


def _in_loss(name: str, column: str) -> Metric:
    """A column that the loss writes, as it last was."""
    return Metric(name, (column,), "losses", lambda x: float(masked_mean(x[column].float(), x.loss_mask)))


def _mean_of_row_means(ledger: Ledger) -> float:
    rows = ledger.mask.any(dim=1)
    means = masked_mean(ledger["kl"], ledger.mask, axis=1)
    return float(means[rows].mean()) if bool(rows.any()) else 0.0


def _explained_variance(ledger: Ledger) -> float:
    """1 − Var(R − V)/Var(R); 0 where the returns do not vary."""
    from mingce.algorithms.masking import masked_moments

    total = masked_moments(ledger["returns"], ledger.loss_mask).variance()
    rest = masked_moments(ledger["returns"] - ledger["values"], ledger.loss_mask).variance()
    return 1.0 - rest / total if total > 0 else 0.0


def _prompt_lengths(ledger: Ledger) -> Tensor:
    import torch

    return torch.tensor([len(ids) for ids in ledger.rows.get("prompt_ids", [])] or [0])


def _cut_share(ledger: Ledger) -> float:
    reasons = ledger.rows.get("finish_reason", [])
    return sum(reason == "length" for reason in reasons) / len(reasons) if reasons else 0.0


def _of_conversations(name: str, numbers: Callable[[Ledger], Tensor]) -> Iterator[Metric]:
    """Mean, maximum and minimum over the rows of conversations."""
    return _three(name, "turn", "rollouts", lambda x: numbers(x).float())


def _turns(ledger: Ledger) -> Tensor:
    last = (ledger["turn"] * ledger.mask).amax(dim=1) if ledger.width else ledger.mask.sum(dim=1)
    first = (ledger["turn"] + (~ledger.mask) * 2**31).amin(dim=1) if ledger.width else last
    rows = ledger.mask.any(dim=1)
    return (last - first + 1)[rows]


def _conversations(ledger: Ledger) -> int:
    return max(len(set(ledger.rows.get("conversation", range(len(ledger))))), 1)


def _calls_each(ledger: Ledger) -> float:
    return sum(ledger.rows.get("tool_calls", [])) / _conversations(ledger)


def _called_share(ledger: Ledger) -> float:
    return sum(bool(calls) for calls in ledger.rows.get("tool_calls", [])) / _conversations(ledger)


def _segments_each(ledger: Ledger) -> float:
    return len(ledger) / _conversations(ledger)


def _malformed_share(ledger: Ledger) -> float:
    """Of the turns that hold a call, readable or not; 0 where none does."""
    malformed = sum(ledger.rows.get("malformed_calls", []))
    return malformed / max(malformed + sum(ledger.rows.get("tool_calls", [])), 1)


def _share_of_rows(name: str, counts: Callable[[Any], bool]) -> Callable[[Ledger], float]:
    def share(ledger: Ledger) -> float:
        values = ledger.rows.get(name, [])
        return sum(map(counts, values)) / len(values) if values else 0.0

    return share


NO_ADVANTAGE = 1e-9
"""An advantage up to this is 0 but for rounding."""


def _share_without_signal(ledger: Ledger) -> float:
    """Rows that teach the policy nothing: none of their tokens in the losses has an advantage other than 0."""
    used = "whitened_advantages" if "whitened_advantages" in ledger else "advantages"
    teaches = ((ledger[used].abs() > NO_ADVANTAGE) & ledger.loss_mask.bool()).any(dim=1)
    return 1.0 - float(teaches.float().mean()) if len(ledger) else 0.0


def _policy_shift(ledger: Ledger) -> float:
    return float(masked_mean(ledger["old_log_probs"] - ledger["new_log_probs"], ledger.loss_mask))


def _sampler_ratio(ledger: Ledger) -> float:
    return float(masked_mean((ledger["old_log_probs"] - ledger["rollout_log_probs"]).exp(), ledger.mask))


def _sampler_gap(ledger: Ledger) -> float:
    return float(masked_mean((ledger["old_log_probs"] - ledger["rollout_log_probs"]).abs(), ledger.mask))


_SAMPLER = ("old_log_probs", "rollout_log_probs")

METRICS: tuple[Metric, ...] = (
    *_of_rows("critic/score", "scores"),
    *_of_rows("critic/rewards", "rewards"),
    *_of_tokens("critic/advantages", "advantages"),
    Metric("train/rows_without_signal", ("advantages",), "share", _share_without_signal),
    *_of_tokens("critic/returns", "returns"),
    *_of_tokens("critic/values", "values"),
    Metric("critic/vf_explained_var", ("returns", "values"), "explained", _explained_variance),
    Metric("critic/kl", ("kl",), "means", _mean_of_row_means),
    _in_loss("critic/vf_loss", "value_loss"),
    _in_loss("critic/vf_clipfrac", "value_clipped"),
    _in_loss("critic/vpred_mean", "new_values"),
    _in_loss("actor/pg_loss", "policy_loss"),
    _in_loss("actor/pg_clipfrac", "clipped"),
    _in_loss("actor/pg_clipfrac_lower", "dual_clipped"),
    Metric("actor/ppo_kl", ("old_log_probs", "new_log_probs"), "old_new", _policy_shift),
    Metric("actor/entropy", ("entropy",), "tokens/mean", lambda x: float(masked_mean(x["entropy"].float(), x.mask))),
    _in_loss("actor/entropy_loss", "new_entropy"),
    _in_loss("actor/kl_loss", "kl_loss"),
    Metric("rollout/ratio_mean", _SAMPLER, "ratio", _sampler_ratio),
    Metric("rollout/log_prob_gap", _SAMPLER, "gap", _sampler_gap),
    *_of_lengths("response_length", lambda x: x.mask.sum(dim=1)),
    Metric("response_length/clip_ratio", ("response_mask",), "share", _cut_share),
    *_of_lengths("prompt_length", _prompt_lengths),
    *_of_conversations("agent/turns", _turns),
    Metric("agent/tool_calls", ("turn",), "conversations", _calls_each),
    Metric("agent/called_share", ("turn",), "conversations", _called_share),
    Metric("agent/malformed_share", ("turn",), "calls", _malformed_share),
    Metric("agent/failed_share", ("turn",), "share", _share_of_rows("finish_reason", lambda value: value == "error")),
    Metric("agent/drift_share", ("turn",), "share", _share_of_rows("drift", lambda value: value >= 0)),
    Metric("agent/segments", ("turn",), "conversations", _segments_each),
)
_BY_NAME = {metric.name: metric for metric in METRICS}

MEASURED = (
    "actor/grad_norm", "actor/lr", "actor/updates", "critic/grad_norm", "critic/lr", "critic/updates",
    "critic/kl_coeff", "score/<part>", "val/accuracy_greedy", "val/accuracy_sampled", "val/score_mean",
    "critic/score/mean/<data_source>", "val/accuracy_greedy/<data_source>", "val/accuracy_sampled/<data_source>",
    "val/score_mean/<data_source>", "val/prompts", "audit/bugs",
    "audit/suspicious", "agent/ids_as_sampled", "timing_s/<stage>", "perf/restarts", "perf/tokens_per_second",
)  # fmt: skip


def measured_meaning(name: str, lang: str) -> str:
    """What a measured metric means; "" for a name that is not one. `timing_s/save` is a `timing_s/<stage>`."""
    pattern = next((key for key in MEASURED if "<" in key and name.startswith(key.partition("<")[0])), name)
    return named(texts("metrics", lang)["measured"]).get(pattern, "")


def metric(name: str, ledger: Ledger) -> float:
    """One metric by its name."""
    return _BY_NAME[name].compute(ledger)


def compute_metrics(ledger: Ledger) -> dict[str, float]:
    """Every metric whose columns the ledger has, and the means of the score's named parts."""
    metrics = {m.name: m.compute(ledger) for m in METRICS if all(name in ledger for name in m.columns)}
    parts: dict[str, list[float]] = {}
    for row in ledger.rows.get("score_parts", []):
        for name, value in row.items():
            parts.setdefault(name, []).append(value)
    metrics |= {f"score/{name}": sum(values) / len(values) for name, values in parts.items()}
    return metrics | _scores_by_source(ledger)


def _scores_by_source(ledger: Ledger) -> dict[str, float]:
    """The mean score of each data source, where there are several."""
    sources = ledger.rows.get("data_source", [])
    if "scores" not in ledger or len(set(sources)) < 2:
        return {}
    return by_source("critic/score/mean", sources, ledger["scores"].sum(dim=1).tolist())


def by_source(name: str, sources: Sequence[str], values: Sequence[float]) -> dict[str, float]:
    """The mean of the values of each data source, named after it: `val/accuracy_sampled/gsm8k` of `openai/gsm8k`.

    A source keeps its whole name where two end alike.
    """
    of: dict[str, list[float]] = {}
    for source, value in zip(sources, values, strict=True):
        of.setdefault(source, []).append(float(value))
    ends = [source.rpartition("/")[2] for source in of]
    short = dict(zip(of, ends, strict=True))
    return {
        f"{name}/{short[source] if ends.count(short[source]) == 1 else source}": sum(numbers) / len(numbers)
        for source, numbers in of.items()
    }
