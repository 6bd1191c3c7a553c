"""A whole row computed anew by the float64 definitions: its KL, rewards, credit, whitening and losses as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mingce.algorithms import reference
from mingce.columns import TOKEN_COLUMNS
from mingce.record.rollout import Rollout
from mingce.specs import ESTIMATORS, POLICY_LOSSES
from mingce.specs.facts import Facts, group_facts, no_group, without_gaps
from mingce.specs.kl import kl_name
from mingce.specs.losses import policy_ratio
from mingce.specs.rows import zeros

Computed = dict[str, Sequence[Any]]
MOST_TERMS = 20_000_000
"""Of a sum over n steps; more would keep a reader waiting."""


def recompute(rollout: Rollout) -> Computed:
    """Every column that follows from others of the row and its settings, from those as they are recorded."""
    found = _kl(rollout) | _rewards(rollout) | _credit(rollout) | _whitened(rollout) | _losses(rollout)
    mask = rollout.mask
    return {name: [x if m else None for x, m in zip(column, mask, strict=True)] for name, column in found.items()}


def group_of(rollout: Rollout) -> Facts:
    """What the account says of the samples of the same prompt."""
    siblings = _siblings(rollout)
    if siblings is None:
        return no_group()
    rows, own = siblings
    return group_facts(rows["rewards"], rows["response_mask"], own)


def _where_known(*columns: Sequence[float | None]) -> list[int]:
    """The slots where every column has a number; the first is the mask."""
    return [t for t, row in enumerate(zip(*columns, strict=True)) if row[0] and None not in row]


def _sparse(numbers: dict[int, float], length: int) -> list[float | None]:
    return [numbers.get(t) for t in range(length)]


def _kl(rollout: Rollout) -> Computed:
    columns, kind = rollout.columns, rollout.settings.kl_estimator
    old, ref = columns.get("old_log_probs"), columns.get("ref_log_probs")
    if "kl" not in columns or old is None or ref is None or not kl_name(kind):
        return {}
    slots, clamp = _where_known(rollout.mask, old, ref), rollout.settings.kl_clamp
    found = {t: reference.kl_penalty(old[t], ref[t], str(kind), clamp) for t in slots}
    return {"kl": _sparse(found, len(old))}


def _rewards(rollout: Rollout) -> Computed:
    columns, beta = rollout.columns, rollout.settings.beta
    scores, kl, mask = columns.get("scores"), columns.get("kl"), rollout.mask
    if scores is None or "rewards" not in columns or (kl is not None and beta is None):
        return {}
    price = kl if kl is not None else [0.0] * len(mask)
    slots = _where_known(mask, scores, price)
    row = reference.kl_rewards([without_gaps(scores)], [without_gaps(price)], [mask], beta or 0.0)[0]
    return {"rewards": _sparse({t: row[t] for t in slots}, len(mask))}


def _credit(rollout: Rollout) -> Computed:
    settings, after = rollout.settings, [rollout.bootstrap]
    row: dict[str, list[Any]] = {name: [without_gaps(column)] for name, column in rollout.columns.items()}
    found: Computed = {}
    if "rewards" in row and "values" in row and settings.gamma is not None:
        inputs = row["rewards"], row["values"], row["response_mask"]
        found["deltas"] = reference.td0(*inputs, settings.gamma, after).deltas[0]
    spec, by_name = ESTIMATORS.get(settings.estimator or ""), settings.as_dict()
    if spec is None or spec.twin is None or any(by_name.get(name) is None for name in spec.settings):
        return found
    if rollout.more_tokens:  # what follows is not here
        return {}
    if "n" in spec.settings and min(by_name["n"], len(rollout.mask)) * len(rollout.mask) > MOST_TERMS:
        return found
    own = 0
    if spec.grouped:
        siblings = _siblings(rollout)
        if siblings is None:
            return found
        row, own = siblings
    row.setdefault("turn", zeros(row["response_mask"]))
    row |= {name: [x] * len(row["response_mask"]) for name, x in rollout.row_inputs.items() if x is not None}
    if any(name not in row for name in spec.inputs):
        return found
    credit = spec.estimate(row, by_name, after)
    found["advantages"] = credit.advantages[own]
    return found | ({} if credit.returns is None else {"returns": credit.returns[own]})


def _siblings(rollout: Rollout) -> tuple[dict[str, list[Any]], int] | None:
    """The columns of the samples of the same prompt and this one's place; None where some were left out."""
    siblings = rollout.siblings
    own = next((b for b, sibling in enumerate(siblings) if sibling.row == rollout.row), None)
    if own is None or rollout.siblings_left_out or any("rewards" not in one.columns for one in siblings):
        return None
    names = [name for name in TOKEN_COLUMNS if all(name in one.columns for one in siblings)]
    rows: dict[str, list[Any]] = {name: [without_gaps(one.columns[name]) for one in siblings] for name in names}
    return rows | {"group": [0] * len(siblings)}, own


def _whitened(rollout: Rollout) -> Computed:
    columns, whitening = rollout.columns, rollout.whitening
    raw, mask = columns.get("advantages"), rollout.mask
    if whitening is None or raw is None or "whitened_advantages" not in columns:
        return {}
    slots = _where_known(mask, raw)
    row = reference.standardise([without_gaps(raw)], [mask], whitening.mean, whitening.variance)[0]
    return {"whitened_advantages": _sparse({t: row[t] for t in slots}, len(mask))}


def _losses(rollout: Rollout) -> Computed:
    columns, settings, mask = rollout.columns, rollout.settings.as_dict(), rollout.mask
    old, new, used = columns.get("old_log_probs"), columns.get("new_log_probs"), used_advantages(rollout)
    found: Computed = {}
    if old is not None and new is not None:
        slots = _where_known(mask, old, new)
        old, new = without_gaps(old), without_gaps(new)
        found["ratio"] = _sparse({t: policy_ratio(old[t], new[t]) for t in slots}, len(mask))
        spec = POLICY_LOSSES.get(settings["policy_loss"] or "ppo")
        unknown = spec is None or any(settings[name] is None for name in spec.settings if name != "dual_clip")
        if spec is not None and spec.twin is not None and used is not None and not unknown:
            terms = spec.terms(old, new, without_gaps(used), mask, settings)
            slots = [t for t in slots if used[t] is not None]
            found["policy_loss"] = _sparse({t: terms[t].loss for t in slots}, len(mask))
            if spec.clips:
                found["clipped"] = _sparse({t: int(terms[t].clipped) for t in slots}, len(mask))
            if "dual_clip" in spec.settings:
                found["dual_clipped"] = _sparse({t: int(terms[t].dual_clipped) for t in slots}, len(mask))
    return found


def value_losses(rollout: Rollout, targets: Sequence[Any] | None) -> Computed:
    """The critic's loss of each token towards these targets."""
    guesses, values = rollout.columns.get("new_values"), rollout.columns.get("values")
    if guesses is None or values is None or targets is None:
        return {}
    slots = _where_known(rollout.mask, guesses, targets, values)
    reach = rollout.settings.value_clip
    terms = {t: reference.value_term(guesses[t], targets[t], values[t], reach) for t in slots}
    return {
        "value_loss": _sparse({t: term.loss for t, term in terms.items()}, len(guesses)),
        "value_clipped": _sparse({t: int(term.clipped) for t, term in terms.items()}, len(guesses)),
    }


def used_advantages(rollout: Rollout) -> Sequence[float | None] | None:
    """The advantages in the policy loss: whitened where they are."""
    return rollout.columns.get("whitened_advantages", rollout.columns.get("advantages"))
