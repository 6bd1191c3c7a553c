"""K12: where the KL enters, in the rewards, in the loss, in both or in neither; and whether there is one at all."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mingce.audit.aggregation import number
from mingce.audit.composition import FAIR, account
from mingce.audit.evidence import Evidence
from mingce.audit.finding import Check, Fault, Finding, Severity, phrase
from mingce.audit.kl import usual_penalties
from mingce.audit.rewards import declared_absent
from mingce.audit.row_scores import row_kl
from mingce.audit.updates import of_the_first_policy, ratio_idle
from mingce.record.dump import LOSS

LEAST_TOKENS = 16
VISIBLE = 1e-3  # a KL larger than this could be seen in the reward
SAME = 1e-6

KL_PLACE = Fault.of("kl-enters", "note", (25,), "r = s − β·k; loss = pg_loss + β'·kl_loss")
KL_TWICE = Fault.of("kl-twice", "suspicious", (25,), "r = s − β·k or loss = pg_loss + β·kl_loss")
KL_NEVER = Fault.of("kl-never", "suspicious", (25,), "r = s − β·k or loss = pg_loss + β·kl_loss")
REFERENCE_HERE = Fault.of(
    "reference-is-policy-here", "note", (22,), "log π_old − log π_ref ≠ 0 once the policy has moved",
    "huggingface/trl/issues/3194",
)  # fmt: skip


def kl_places(e: Evidence) -> Iterator[Finding]:
    """Whether the KL is in the rewards, in the loss, in both or in neither."""
    found = account(e)
    with np.errstate(all="ignore"):
        x = e["old_log_probs"] - e["ref_log_probs"]
        visible = e.mask & np.isfinite(x) & (np.abs(x) > VISIBLE)
    if found is None or found.weak or int(visible.sum()) < LEAST_TOKENS:
        return
    if found.penalty is not None and found.explained < FAIR:
        return  # the rewards differ from the scores, but not by a KL
    in_reward, coef = found.penalty is not None or row_kl(e) is not None, number(e, "kl_loss_coef")
    explicit = e.settings.kl_loss_coef is not None
    both_given = None not in (e.dump.settings.beta, e.dump.settings.kl_loss_coef)
    logged = bool(e.dump.scalars.get("kl_loss")) and not explicit
    if in_reward and (coef or logged):
        how = phrase("how", "audit.kl_loss_coef", coef=f"{coef:g}") if coef else phrase("how", "audit.kl_loss_logged")
        yield Finding(KL_TWICE, "rewards", how)
    elif not in_reward and not (coef or logged) and both_given and not declared_absent(e):
        yield Finding(KL_NEVER, "rewards")
    elif found.rewards.stored and not declared_absent(e):
        loss = "audit.yes" if coef or logged else "audit.no" if explicit else "audit.not_stated"
        reward = phrase("reward", "audit.yes" if in_reward else "audit.no")
        yield Finding(KL_PLACE, "rewards", reward | phrase("loss", loss))


def same_reference(e: Evidence) -> Iterator[Finding]:
    """A reference that says the same as the policy on every token: nothing is penalised."""
    price = max(e.settings.beta or 0.0, e.settings.kl_loss_coef or 0.0)
    with np.errstate(all="ignore"):
        gap = np.abs(e["old_log_probs"] - e["ref_log_probs"])[e.mask]
    if price <= 0 or len(gap) < LEAST_TOKENS or not np.nan_to_num(gap, nan=1.0).max() < SAME:
        return
    if usual_penalties(e)[0].room[e.mask].max() > VISIBLE:
        return  # rounded so that a small difference could not show
    step = e.dump.step if e.settings.step is None else e.settings.step
    moving = not e.dump.holds(LOSS) or bool(np.nan_to_num(e[LOSS])[e.mask].any())  # else nothing is learnt
    # the first update may have had nothing to learn from
    late = step is not None and step > 2 and moving and not of_the_first_policy(e)
    if late and "new_log_probs" in e.dump.columns and not ratio_idle(e):
        return  # the check of the reference says it
    level: Severity | None = "suspicious" if late else None
    yield Finding(REFERENCE_HERE, "ref_log_probs", {"beta": price}, severity=level)


CHECKS: tuple[Check, ...] = (
    Check.of("K12 KL place", ("rewards|returns", "old_log_probs", "ref_log_probs"), kl_places),
    Check.of("K12 same reference", ("old_log_probs", "ref_log_probs"), same_reference),
)
