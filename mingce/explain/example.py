"""The rollout that an answer is about, from wherever it comes.

`typed` takes numbers, `recorded` a run's or a dump's rollout, `changed` the same one under other settings. What can be
computed from what is given is computed by the float64 twins; nothing here imports torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mingce.algorithms import reference
from mingce.base.errors import SettingError, UnknownNameError
from mingce.base.user_files import names_file
from mingce.record.rollout import EPSILON as EPSILON
from mingce.record.rollout import Rollout as Rollout
from mingce.record.rollout import Whitening
from mingce.record.tokens import Token
from mingce.specs import ESTIMATORS, POLICY_LOSSES, find_estimator
from mingce.specs.estimators import GAE
from mingce.specs.kl import FULL
from mingce.specs.losses import policy_ratio
from mingce.specs.rows import zeros
from mingce.specs.settings import AccountSettings

Row = Sequence[float]

PROMPT, TOKENS = "请问1+1=2？", ("是", "的", "，", "等于", "2", "！")
SCORES = (0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
KL = (0.1, 0.05, -0.05, 0.1, 0.2, 0.05)
VALUES = (0.20, 0.25, 0.30, 0.35, 0.45, 0.60)
OLD_LOG_PROBS = (-0.12, -0.08, -0.15, -0.10, -0.05, -0.02)
BETA, GAMMA, LAM = 0.1, 1.0, 0.95

SETTINGS = AccountSettings(
    estimator=GAE, gamma=1.0, lam=0.95, truncation="zero", beta=0.1, kl_estimator="k1", whiten=True,
    policy_loss="ppo", clip_low=0.2, clip_high=0.2, value_clip=0.5,
)  # fmt: skip


def worked() -> Rollout:
    """The seeds' example, 请问1+1=2？ → 是的，等于2！, before its first update."""
    ref = [old - kl for old, kl in zip(OLD_LOG_PROBS, KL, strict=True)]
    given = {"scores": SCORES, "old_log_probs": OLD_LOG_PROBS, "ref_log_probs": ref, "values": VALUES}
    return typed(given, tokens=TOKENS, prompt=PROMPT, gamma=GAMMA, lam=LAM, beta=BETA)


_OTHERS: tuple[tuple[str, tuple[str, ...], dict[str, Row]], ...] = (
    ("请问3+4=8？", ("不", "对", "，", "应该", "是", "7", "！"), {
        "scores": (0, 0, 0, 0, 0, 0, 1), "values": (0.4, 0.55, 0.5, 0.6, 0.62, 0.8, 0.9),
        "old_log_probs": (-0.7, -0.2, -0.1, -0.4, -0.05, -0.3, -0.02),
        "ref_log_probs": (-0.9, -0.25, -0.08, -0.5, -0.06, -0.7, -0.02),
    }),
    ("Is 9+5=13?", ("Yes", ",", " it", " is", " 13", "!"), {
        "scores": (0, 0, 0, 0, 0, 0), "values": (0.5, 0.3, 0.32, 0.3, 0.25, 0.05),
        "old_log_probs": (-0.5, -0.05, -0.1, -0.02, -1.2, -0.01),
        "ref_log_probs": (-0.8, -0.05, -0.12, -0.02, -1.9, -0.02),
    }),
    ("1, 2, 3, …", ("4", ",", " 5", ",", " 7"), {
        "scores": (0.25, 0, 0.25, 0, -0.5), "values": (0.6, 0.4, 0.45, 0.2, 0.1),
        "old_log_probs": (-0.1, -0.01, -0.2, -0.01, -1.5), "ref_log_probs": (-0.15, -0.01, -0.22, -0.02, -0.6),
    }),
)  # fmt: skip
"""A wrong sum put right, a wrong answer, and scores on the way."""


def another(number: int) -> Rollout:
    """The number-th example besides the worked one, from 1; behind the last they begin again under another λ."""
    lap, place = divmod(number - 1, len(_OTHERS))
    prompt, tokens, columns = _OTHERS[place]
    lam = LAM if lap == 0 else round(0.9 / lap, 3)
    return typed(columns, tokens=tokens, prompt=prompt, gamma=GAMMA, lam=lam, beta=BETA)


def typed(
    columns: Mapping[str, Row],
    *,
    tokens: Sequence[str] | None = None,
    prompt: str = "",
    after: float = 0.0,
    **settings: Any,
) -> Rollout:
    """A rollout of numbers typed in, one of each a token; `after` is the value of the state after the last token."""
    given = {name: [float(x) for x in row] for name, row in columns.items() if row is not None}
    lengths = {name: len(row) for name, row in given.items()} | ({"tokens": len(tokens)} if tokens else {})
    if len(set(lengths.values())) != 1 or not all(lengths.values()):
        counts = ", ".join(f"{name} has {count}" for name, count in lengths.items())
        raise SettingError(f"give one number of each kind a token: {counts or 'nothing was given'}.")
    for name, row in given.items():
        for t, x in enumerate(row):
            if not math.isfinite(x):
                raise SettingError(f"{name} has {x} for token {t}; give finite numbers.")
    if not math.isfinite(after):
        raise SettingError(f"the value after the last token is {after}; give a finite number.")
    length = next(iter(lengths.values()))
    texts = list(tokens) if tokens else [f"y_{t}" for t in range(length)]
    return completed(
        Rollout(
            prompt=prompt,
            response="".join(texts),
            tokens=[Token(t, text, t) for t, text in enumerate(texts)],
            columns={"response_mask": [1] * length, **given},
            settings=replace(SETTINGS, **settings),
            uid="typed",
            has_texts=tokens is not None,
            bootstrap=float(after),
        )
    )


def recorded(path: Path, step: int | None, row: int, mapping: Path | None = None) -> Rollout:
    """A rollout of a run or a dump; without a step the newest."""
    from mingce.sources import rollouts  # NumPy and pyarrow, which numbers typed in do without

    return rollouts.recorded(path, step, row, mapping)


def changed(rollout: Rollout, columns: Mapping[str, Row] | None = None, **settings: Any) -> Rollout:
    """The same rollout under other settings (gamma=…, lam=…, beta=…) or with other numbers, computed anew."""
    given = {name: list(column) for name, column in rollout.columns.items() if name not in _COMPUTED}
    asked = replace(rollout.settings, **settings)
    by_name = asked.as_dict()
    follows = {
        "kl": _makes_kl(rollout.columns, by_name),
        "rewards": asked.beta is not None and _makes_rewards(rollout.columns, by_name),
    }
    for name, made in follows.items():  # what was typed in or recorded and follows from nothing stays as it is
        if name in rollout.columns and not made:
            given[name] = list(rollout.columns[name])
    if "advantages" in rollout.columns and "rewards" not in rollout.columns:
        given["advantages"] = list(rollout.columns["advantages"])
    given |= {name: [float(x) for x in row] for name, row in (columns or {}).items()}
    return completed(replace(rollout, columns=given, settings=asked, whitening=None))


# ── what follows from what is given ──────────────────────────────────────────────────────────────────────────────────

_COMPUTED = (
    "kl", "rewards", "deltas", "advantages", "returns", "whitened_advantages", "ratio", "clipped", "dual_clipped",
    "policy_loss", "value_loss", "value_clipped",
)  # fmt: skip
_LOG_PROBS = ("old_log_probs", "ref_log_probs")


def _makes_kl(columns: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Whether the KL follows from the log-probs: of a known kind, and not of whole distributions."""
    known = settings["kl_estimator"] not in (None, FULL)
    return known and all(name in columns for name in _LOG_PROBS)


def _makes_rewards(columns: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Whether rewards follow from the scores: the KL, where there is one, and its price β are known."""
    if "scores" not in columns:
        return False
    if "kl" in columns or _makes_kl(columns, settings):
        return settings["beta"] is not None
    return settings["beta"] == 0 or not all(name in columns for name in _LOG_PROBS)


def completed(rollout: Rollout) -> Rollout:
    """With every column that follows from those given; the row stands for the whole batch when it is whitened.

    Without new log-probs and values the account is that of the first update: they are the old ones.
    """
    columns: dict[str, Any] = dict(rollout.columns)
    settings, mask = rollout.settings.as_dict(), rollout.mask
    inputs = {name: x for name, x in rollout.row_inputs.items() if x is not None}
    _check(settings, (*columns, *inputs))
    slots = reference.chosen(mask)

    def each(make: Callable[..., Any], *names: str) -> list[Any]:
        rows = [[columns[name][t] for name in names] for t in range(len(mask))]
        return [make(*row) if t in slots and None not in row else None for t, row in enumerate(rows)]

    if "kl" not in columns and _makes_kl(columns, settings):
        columns["kl"] = each(
            lambda old, ref: reference.kl_penalty(old, ref, settings["kl_estimator"], settings.get("kl_clamp")),
            *_LOG_PROBS,
        )
    if "rewards" not in columns and _makes_rewards(columns, settings):
        scores, kl = _plain(columns["scores"]), _plain(columns.get("kl") or [0.0] * len(mask))
        columns["rewards"] = reference.kl_rewards([scores], [kl], [mask], settings["beta"] or 0.0)[0]
    if "rewards" in columns and "advantages" not in columns and _can_assign(settings, (*columns, *inputs)):
        columns |= _credit(columns, inputs, settings, mask, rollout.bootstrap)
    whitening = rollout.whitening
    if "advantages" in columns and settings["whiten"] and len(slots) > 1:
        raw = [_plain(columns["advantages"])]
        mean, variance = reference.masked_mean(raw, [mask]), reference.masked_var(raw, [mask])
        whitening = Whitening(mean, math.sqrt(variance), variance, len(slots))
        columns["whitened_advantages"] = reference.masked_whiten(raw, [mask])[0]
    columns.setdefault("new_log_probs", columns.get("old_log_probs"))
    columns.setdefault("new_values", columns.get("values"))
    used = "whitened_advantages" if "whitened_advantages" in columns else "advantages"
    if columns["new_log_probs"] is not None and "old_log_probs" in columns and used in columns:
        columns |= _policy_losses(columns, settings, mask, used)
    if columns["new_values"] is not None and "returns" in columns and "values" in columns:
        terms = each(
            lambda new, target, old: reference.value_term(new, target, old, settings.get("value_clip")),
            "new_values", "returns", "values",
        )  # fmt: skip
        for name, part in (("value_loss", "loss"), ("value_clipped", "clipped")):
            columns[name] = [None if term is None else getattr(term, part) for term in terms]
    columns = {name: column for name, column in columns.items() if column is not None}
    return replace(rollout, columns=columns, whitening=whitening)


def _policy_losses(
    columns: Mapping[str, Any], settings: Mapping[str, Any], mask: list[int], used: str
) -> dict[str, Any]:
    """The ratio, and the loss where all that it reads is known; None is a known dual clip: none."""
    spec = POLICY_LOSSES.get(settings.get("policy_loss") or "ppo")
    if spec is None or spec.twin is None:
        return {}
    old, new, advantages = (_plain(columns[name]) for name in ("old_log_probs", "new_log_probs", used))
    if any(settings.get(name) is None for name in spec.settings if name != "dual_clip"):
        return {"ratio": [policy_ratio(old[t], new[t]) if mask[t] else None for t in range(len(mask))]}
    losses = spec.terms(old, new, advantages, mask, settings)
    parts = {"ratio": "ratio", "policy_loss": "loss"}
    if spec.clips:
        parts["clipped"] = "clipped"
    if "dual_clip" in spec.settings:
        parts["dual_clipped"] = "dual_clipped"
    return {
        name: [getattr(losses[t], part) if t in losses else None for t in range(len(mask))]
        for name, part in parts.items()
    }


def _can_assign(settings: Mapping[str, Any], there: Sequence[str]) -> bool:
    spec = find_estimator(settings["estimator"])
    return spec.twin is not None and all(name in there or name == "turn" for name in spec.inputs)


def _credit(
    columns: Mapping[str, Any], inputs: Mapping[str, float], settings: Mapping[str, Any], mask: list[int], after: float
) -> dict[str, Any]:
    row: dict[str, list[Any]] = {name: [_plain(columns[name])] for name in columns} | {"response_mask": [mask]}
    row |= {name: [x] for name, x in inputs.items()}
    row.setdefault("turn", zeros([mask]))
    credit = find_estimator(settings["estimator"]).estimate(row, settings, [after])
    named = {"deltas": credit.deltas, "advantages": credit.advantages, "returns": credit.returns}
    return {name: rows[0] for name, rows in named.items() if rows is not None}


_OF_ONE_ROW = ("rewards", "values", "response_mask")
"""What one response's numbers can give an estimator, besides what was recorded of it."""


def _check(settings: Mapping[str, Any], there: Sequence[str]) -> None:
    """What a person may have got wrong; None stands for what is not known. `there` are the row's columns and inputs."""
    name, known = str(settings["estimator"]), {*_OF_ONE_ROW, *there}
    possible = [spec.name for spec in ESTIMATORS.values() if not spec.grouped and known.issuperset(spec.inputs)]
    if name in ESTIMATORS and name not in possible:
        grouped = ESTIMATORS[name].grouped
        needs = "the other answers to the prompt" if grouped else "more than the numbers of one response"
        raise SettingError(f"'{name}' needs {needs}; choose {', '.join(possible)}.")
    if names_file(name):
        raise SettingError(f"'{name}' is code of one's own, not executed here; choose {', '.join(possible)}.")
    if name not in ESTIMATORS:
        raise UnknownNameError("estimator", name, possible)
    for key in ("gamma", "lam"):
        if settings[key] is not None and not 0 <= settings[key] <= 1:
            raise SettingError(f"{key} must lie between 0 and 1, but is {settings[key]}.")
    if settings.get("beta") is not None and not math.isfinite(settings["beta"]):
        raise SettingError(f"beta must be a finite number, but is {settings['beta']}.")
    for key in ("n", "k"):
        if key in ESTIMATORS[name].settings and (settings.get(key) is None or settings[key] < 1):
            raise SettingError(f"estimator {name} needs {key}, a whole number from 1; it is {settings.get(key)}.")


def _plain(column: Sequence[float | None]) -> list[float]:
    return [0.0 if x is None else float(x) for x in column]
