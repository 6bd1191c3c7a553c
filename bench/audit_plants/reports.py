"""Bugs of KNOWN_REPORTS (mingce/audit/catalogue.py), each computed as the trainer did before it was mended, where no
other plant does."""

from __future__ import annotations

import numpy as np
import torch
from audit_case import Case
from audit_clean import empty_row, micro_batches
from audit_world import PAD, Sampler, log_softmax, states
from torch import Tensor

from audit_plants import here, plant
from audit_plants.losses import ONE, apart, logged, policy_terms, steered
from audit_plants.operations import grouped, has_holes, has_pads, moments, scored_at, total
from audit_plants.sampling import MANY, policies
from audit_plants.whitening import whitened
from mingce.algorithms import losses, masking
from mingce.algorithms.masking import keep

# ── the loss ───────────────────────────────────────────────────────────────────────────────────────────────────────


@plant(3, "tool output in the policy loss", mode="token-mean", holes=True, also=(26, 27), estimator="grpo", **ONE)
def _(case: Case) -> None:
    """The loss is given the mask of attended tokens; advantages stand on all of them."""
    has_holes(case)
    case.sees |= {"old_log_probs": "present", "new_log_probs": "present"}
    case.then("whiten", lambda c: c.columns.update(advantages=torch.where(c.present, _row(c), 0.0)))
    logged(case, "pg_loss", lambda c: masking.masked_mean(policy_terms(c), c.present))


def _row(case: Case) -> Tensor:
    """[B, 1] each row's advantage."""
    return case.columns["advantages"].gather(1, case.last.clamp(min=0)[:, None])


@plant(4, "each rank by its own tokens", mode="token-mean", **ONE)
def _(case: Case) -> None:
    ranks = np.arange(case.shape[0]) * 4 // case.shape[0]
    case.rows["rank"], case.settings["world_size"] = ranks.tolist(), 4

    def mean_of_ranks(case: Case) -> float:
        terms = policy_terms(case)
        parts = [torch.tensor(ranks == one) for one in range(4)]
        return float(np.mean([float(masking.masked_mean(terms[rows], case.loss_mask[rows])) for rows in parts]))

    logged(case, "pg_loss", mean_of_ranks)


@plant(26, "padding in the denominator", mode="token-mean", **ONE)
def _(case: Case) -> None:
    has_pads(case)
    logged(case, "pg_loss", lambda c: masking.masked_sum(policy_terms(c), c.loss_mask) / c.loss_mask.numel())


@plant(26, "tokens of low entropy in the denominator", mode="token-mean", makers=("own",), estimator="grpo", **ONE)
def _(case: Case) -> None:
    """Only the tokens of highest entropy are learnt from; the mean is over all."""
    bound = case.raw["entropy"][case.chosen].quantile(0.8)
    case.then("credit", lambda c: setattr(c, "loss_mask", c.chosen & (c.raw["entropy"] >= bound)))
    logged(case, "pg_loss", lambda c: masking.masked_sum(policy_terms(c), c.loss_mask) / c.chosen.sum())


@plant(4, "a micro-batch without a token counts", mode="token-mean", truncation="mask", makers=("own",), also=(26,),
       **ONE)  # fmt: skip
def _(case: Case) -> None:
    here(case.cut.sum() >= 3)
    part = np.where(case.cut.numpy(), 0, 1 + np.arange(case.shape[0]) % 4)
    rows = case.shape[0]
    case.rows |= {"micro_batch": part.tolist(), "minibatch": [0] * rows, "epoch": [1] * rows}

    def mean(case: Case) -> float:
        terms = policy_terms(case)
        return float(np.mean([float(losses.agg_loss(terms[i], case.loss_mask[i])) for i in micro_batches(case)]))

    logged(case, "pg_loss", mean)


@plant(27, "the numerator without a mask", mode="token-mean", **ONE)
def _(case: Case) -> None:
    has_pads(case)
    case.sees |= dict.fromkeys(("old_log_probs", "new_log_probs"), "all")
    case.then("whiten", lambda c: c.columns.update(advantages=torch.where(c.chosen, c.columns["advantages"], 0.7)))
    logged(case, "pg_loss", lambda c: policy_terms(c).sum() / c.loss_mask.sum())


@plant(47, "log-probs over tool output", holes=True)
def _(case: Case) -> None:
    has_holes(case)
    case.sees["old_log_probs"] = "present"
    logged(case, "entropy_mean", lambda c: -masking.masked_mean(c.columns["old_log_probs"], c.present))


# ── advantages ─────────────────────────────────────────────────────────────────────────────────────────────────────


@plant(10, "a row without a chosen token counts in its group", estimator="grpo", samples=4, rows=32, also=(11,))
def _(case: Case) -> None:
    """Its tokens were masked because the episode failed; its reward still moves its siblings."""
    for row in case.rng.permutation(case.shape[0])[:3]:
        case.rollouts.chosen[row], case.rollouts.log_probs[row] = False, 0.0
    case.remask()
    scored_at(case, lambda c: c.last_present)
    case.put("credit", lambda c: grouped(c, total(c), c.rollouts.group))


@plant(30, "per slice of the context", rows=48, width=96, nameless=True)
def _(case: Case) -> None:
    """Two ranks share each row's tokens in zigzag, and each takes its own mean and deviation."""
    lengths = torch.tensor([len(prompt) for prompt in case.rollouts.prompts])[:, None]
    chunk = -(-(lengths + case.present.sum(1, keepdim=True)) // 4)
    quarter = ((lengths + torch.arange(case.shape[1])) // chunk).clamp(max=3)
    outer = (quarter == 0) | (quarter == 3)

    def make(case: Case, raw: Tensor) -> Tensor:
        found = torch.zeros(case.shape)
        for part in (outer, ~outer):
            mean, var = moments(raw, case.chosen & part)
            found = torch.where(part, (raw - mean) * torch.rsqrt(var + 1e-8), found)
        return keep(found, case.chosen)

    whitened(case, make)


# ── ids, masks, positions ──────────────────────────────────────────────────────────────────────────────────────────


@plant(8, "pads after EOS counted", estimator="grpo")
def _(case: Case) -> None:
    """The mask is a row's shape, and rows were padded to the longest before; the engine gave no log-probs."""
    here((case.last < case.shape[1] - 3).sum() >= 4)
    case.pad = case.settings["pad_id"] = PAD
    case.rollouts.ids[~case.rollouts.present] = PAD
    case.rollouts.chosen |= ~case.rollouts.present
    case.rollouts.present[:] = True
    case.rescore()
    case.hide.add("rollout_log_probs")


@plant(13, "the response's position ids padded on the left", samples=1, **MANY)
def _(case: Case) -> None:
    """Ids are padded on the right, their position ids on the left."""
    has_pads(case)
    width = case.shape[1]
    longest = max(len(prompt) for prompt in case.rollouts.prompts)
    positions = []
    for prompt, size in zip(case.rollouts.prompts, case.present.sum(1).tolist(), strict=True):
        own = [len(prompt) + i for i in range(size)]
        positions.append([0] * (longest - len(prompt)) + list(range(len(prompt))) + [0] * (width - size) + own)
    case.rows["position_ids"] = positions


# ── log-probs ──────────────────────────────────────────────────────────────────────────────────────────────────────


@plant(18, "the first logits for the last labels", **MANY)
def _(case: Case) -> None:
    """The forward pass has more positions than the labels (images unfold), and gather takes the first of them."""
    back = case.shape[1] // 3
    for name, policy in policies(case).items():
        log_p = log_softmax(policy.logits(*states(case.rollouts)) / case.temperature)
        case.again(name, np.take_along_axis(np.roll(log_p, back, axis=1), case.rollouts.ids[..., None], -1)[..., 0])


@plant(14, "top-p 0.8, both sides of the whole vocabulary", sampler=Sampler(top_p=0.8), temperature=1.0, also=(2,),
       **MANY)  # fmt: skip
def _(case: Case) -> None:
    case.again("rollout_log_probs", case.rollouts.plain_log_probs)


# ── over steps ─────────────────────────────────────────────────────────────────────────────────────────────────────


@plant(6, "the engine never leaves the first weights", epochs=2, **MANY)
def _(case: Case) -> list[Case]:
    steps = [case]
    for number in range(5):
        engine = Sampler(case.temperature, noise=case.sampler.noise, policy=case.policy)
        later = Case(case.seed + 1 + number, case.maker, case.holes, rows=48, like=steps[-1], sampler=engine)
        later.policy = case.policy.moved(case.rng, 0.04 * (number + 1))
        later.rescore()
        steps.append(later)
    return steps[1:]


def _abort(case: Case) -> None:
    for row in case.rng.permutation(case.shape[0])[: case.shape[0] // 6]:
        empty_row(case, int(row))


@plant(43, "rows without a token count as 0", rows=48, far=0.12)
def _(case: Case) -> list[Case]:
    """The KL is averaged over all rows, and a row that was aborted has none."""

    def heard(case: Case) -> float:
        return float(masking.masked_mean(apart(case), case.chosen, axis=1).sum() / case.shape[0])

    return steered(case, heard, lambda c: c.shape[0], _abort, 0.95)


@plant(48, "the first steps' prompts again", rows=32)
def _(case: Case) -> list[Case]:
    """A resumed run begins its data from the top: prompts 1 2 3 1 2 4."""
    steps = [case]
    for number in range(5):
        steps.append(Case(case.seed + 1 + number, case.maker, case.holes, rows=32, like=steps[-1]))
    for again, first in ((3, 0), (4, 1)):
        steps[again].rows["prompt_ids"] = steps[first].rollouts.prompts
    for one in steps:
        one.hide |= {"position_ids", "left_pad"}
    return steps[1:]
