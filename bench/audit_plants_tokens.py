"""Bugs of masks, ends of rows, prompts and log-probs: classes 2, 5–8, 12–14, 17, 18, 20–22, 28, 36, 38–42."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from audit_clean import Case, place_score
from audit_plants import here, plant
from audit_world import (
    BOS,
    EOS,
    FIRST_WORD,
    OTHER_STOP,
    PAD,
    VOCABULARY,
    Sampler,
    log_softmax,
    other_experts,
    rounding_noise,
    states,
)
from audit_world import score as log_probs

from mingce.algorithms.masking import keep

MANY: dict[str, Any] = {"rows": 48, "width": 96}  # statistics need tokens
TRAINER = ("old_log_probs", "ref_log_probs", "new_log_probs")


def policies(case: Case) -> dict[str, Any]:
    return dict(zip(TRAINER, (case.policy, case.reference, case.learnt), strict=True))


def rescored(case: Case, names: tuple[str, ...] = TRAINER, **how: Any) -> None:
    """The trainer's forward passes again, wrongly."""
    for name in names:
        found, entropy = log_probs(policies(case)[name], case.rollouts, **({"temperature": case.temperature} | how))
        case.again(name, found)
        if name == "old_log_probs":
            case.again("entropy", entropy)


# ── 2, 14: what was sampled from ───────────────────────────────────────────────────────────────────────────────────


@plant(2, "the engine reports raw log-probs", temperature=0.7, **MANY)
def _(case: Case) -> None:
    case.again("rollout_log_probs", case.rollouts.plain_log_probs)


@plant(2, "the trainer scores at temperature 1", temperature=0.7, **MANY)
def _(case: Case) -> None:
    rescored(case, temperature=1.0)


@plant(2, "both sides say temperature 1", temperature=0.7, **MANY)
def _(case: Case) -> None:
    rescored(case, temperature=1.0)
    case.again("rollout_log_probs", case.rollouts.plain_log_probs)


@plant(2, "both sides say temperature 1, sampled hotter", temperature=1.3, **MANY)
def _(case: Case) -> None:
    rescored(case, temperature=1.0)
    case.again("rollout_log_probs", case.rollouts.plain_log_probs)


@plant(2, "entropy of unscaled logits", temperature=0.7, **MANY)
def _(case: Case) -> None:
    case.again("entropy", log_probs(case.policy, case.rollouts, 1.0)[1])


@plant(14, "top-p 0.9", sampler=Sampler(top_p=0.9), temperature=1.0, **MANY)
@plant(14, "top-p 0.8", sampler=Sampler(top_p=0.8), temperature=1.0, **MANY)
@plant(14, "top-k 20", sampler=Sampler(top_k=20), temperature=1.0, **MANY)
@plant(14, "min-p 0.05", sampler=Sampler(min_p=0.05), temperature=1.0, **MANY)
def _(case: Case) -> None:
    """The engine's log-probs are renormalised over what it kept; the trainer's are not."""


# ── 5, 6, 20, 41: another policy than the trainer's ────────────────────────────────────────────────────────────────


@plant(5, "other kernels", sampler=Sampler(noise=rounding_noise(0.2)), temperature=1.0, epochs=2, **MANY)
@plant(5, "other experts", sampler=Sampler(noise=other_experts(0.08, 1.0)), temperature=1.0, epochs=2, **MANY)
def _(case: Case) -> None:
    """lo and lq of the same weights differ."""


@plant(6, "one step, versions known", stale=0.12, epochs=2, **MANY)
def _(case: Case) -> None:
    versions = torch.full(case.shape, case.step - 4 if case.step else 0)
    case.then("measure", lambda c: c.columns.update(weight_versions=versions))
    case.settings["learner_version"] = case.step


@plant(6, "the sync stops at a step", epochs=2, **MANY)
def _(case: Case) -> list[Case]:
    steps = [case]
    for number in range(5):
        later = Case(case.seed + 1 + number, case.maker, case.holes, rows=48, like=steps[-1])
        if number >= 2:  # the engine keeps the weights of the step where the sync stopped, while the policy moves on
            policy = case.policy.moved(case.rng, 0.1 + 0.02 * number)
            later = Case(
                case.seed + 1 + number, case.maker, case.holes, rows=48, like=steps[-1],
                sampler=Sampler(case.temperature, noise=case.sampler.noise, policy=policy),
            )  # fmt: skip
        steps.append(later)
    return steps[1:]


@plant(20, "versions known", stale=0.12, epochs=1, minibatches=1, **MANY)
def _(case: Case) -> None:
    versions = torch.full(case.shape, case.step - 4 if case.step else 0)
    case.then("measure", lambda c: c.columns.update(weight_versions=versions))
    case.settings["learner_version"] = case.step


@plant(20, "ratio 1 everywhere", stale=0.2, epochs=1, minibatches=1, **MANY)
def _(case: Case) -> None:
    """Asynchronous data, and the denominator recomputed by the learner."""


def drop_out(case: Case, names: tuple[str, ...]) -> None:
    for name in names:
        units = (*case.shape, case.policy.output.shape[0])
        kept = case.rng.binomial(24, 0.9, units) / (24 * 0.9)  # each toy unit stands for 24 of a model's
        rescored(case, (name,), dropped=kept)


@plant(41, "two passes differ", epochs=1, minibatches=1, **MANY)
def _(case: Case) -> None:
    case.learnt, case.second_pass_differs = case.policy, True
    drop_out(case, ("old_log_probs", "new_log_probs"))


@plant(41, "one pass", epochs=2, **MANY)
def _(case: Case) -> None:
    drop_out(case, ("old_log_probs", "new_log_probs"))


@plant(17, "other batch shapes", epochs=1, minibatches=1)
def _(case: Case) -> None:
    case.second_pass_differs = True
    noise = case.rng.normal(size=case.shape) * 0.05
    case.again("new_log_probs", case.raw["old_log_probs"].numpy() + noise)


@plant(17, "no temperature in the update", epochs=1, minibatches=1, temperature=0.7, **MANY)
def _(case: Case) -> None:
    case.second_pass_differs, case.learnt = True, case.policy
    rescored(case, ("new_log_probs",), temperature=1.0)


# ── 7, 8, 36: ends of rows ─────────────────────────────────────────────────────────────────────────────────────────


def _without_eos(case: Case) -> Any:
    ended = np.array(case.rollouts.finish) == "stop"
    here(ended.sum() >= 4)
    last = case.last.numpy()
    case.pad = case.settings["pad_id"] = EOS
    case.rollouts.chosen[ended, last[ended]] = False
    return ended, last


@plant(7, "the loss mask is y ≠ pad")
def _(case: Case) -> None:
    _without_eos(case)
    case.remask()
    here(case.chosen.any(dim=1).all())


@plant(7, "both masks are y ≠ pad")
def _(case: Case) -> None:
    ended, last = _without_eos(case)
    case.rollouts.present[ended, last[ended]] = False
    case.remask()
    here(case.chosen.any(dim=1).all())


def _stopped_without_eos(case: Case) -> Any:
    """Half of the rows stop at a string and not at EOS; their masks say all ones to the end."""
    rows, width = case.shape
    case.pad = case.settings["pad_id"] = PAD
    last = case.last_present.numpy()
    hit = np.zeros(rows, dtype=bool)
    for row in case.rng.permutation(rows)[: rows // 2]:
        if (
            case.rollouts.finish[row] == "stop"
            and 3 <= last[row] < width - 4
            and case.rollouts.chosen[row, last[row] - 1]
        ):
            end = last[row]  # the EOS goes, and one id stands to the end of the row
            case.rollouts.present[row, end:] = case.rollouts.chosen[row, end:] = False
            case.rollouts.ids[row, end:] = case.pad
            hit[row] = True
    here(hit.sum() >= 2)
    return hit


@plant(8, "the attention mask knows better")
def _(case: Case) -> None:
    hit = _stopped_without_eos(case)
    end = torch.tensor(case.rollouts.present).sum(1) - 1
    case.rescore()
    case.chosen = case.chosen | torch.tensor(hit)[:, None]
    case.loss_mask = case.chosen
    case.put("score", lambda c: place_score(c, end))


@plant(8, "both masks are ones")
def _(case: Case) -> None:
    hit = _stopped_without_eos(case)
    case.rescore()
    case.chosen, case.present = (mask | torch.tensor(hit)[:, None] for mask in (case.chosen, case.present))
    case.loss_mask = case.chosen


@plant(36, "EOS forced onto rows that were cut")
def _(case: Case) -> None:
    cut = np.array(case.rollouts.finish) == "length"
    here(cut.sum() >= 3)
    here(case.rollouts.chosen[cut, -1].all())
    case.rollouts.ids[cut, -1] = EOS
    case.rescore()
    case.rollouts.log_probs[cut, -1] = case.raw["old_log_probs"].numpy()[cut, -1]
    case.again("rollout_log_probs", case.rollouts.log_probs)


@plant(36, "EOS trimmed by the engine")
def _(case: Case) -> None:
    ended, last = np.array(case.rollouts.finish) == "stop", case.last.numpy()
    here((ended & (last > 1)).sum() >= 6)
    for row in np.flatnonzero(ended):
        case.rollouts.present[row, last[row]] = case.rollouts.chosen[row, last[row]] = False
    case.rollouts.log_probs[~case.rollouts.chosen] = 0.0
    case.rescore()


@plant(36, "another stop id")
def _(case: Case) -> None:
    ended, last = np.array(case.rollouts.finish) == "stop", case.last.numpy()
    some = ended & (case.rng.random(len(ended)) < 0.6)
    here(some.sum() >= 4)
    case.rollouts.ids[some, last[some]] = OTHER_STOP
    case.rescore()
    case.rollouts.log_probs[some, last[some]] = case.raw["old_log_probs"].numpy()[some, last[some]]
    case.again("rollout_log_probs", case.rollouts.log_probs)


# ── 12, 13, 42: other ids than were sampled ────────────────────────────────────────────────────────────────────────


def _retokenised(case: Case, longer: bool) -> None:
    """From some token on the row is written with one id less or more; the engine's log-probs stay as they came."""
    rollouts, width = case.rollouts, case.shape[1]
    sampled = [rollouts.ids[i, : int(n) + 1].tolist() for i, n in enumerate(case.last_present)]
    hit = 0
    for row in range(case.shape[0]):
        n = len(sampled[row])
        plain = rollouts.chosen[row, :n].all()
        if not plain or n < 12 or (longer and n >= width - 1) or case.rng.random() < 0.2:
            continue
        at = int(case.rng.integers(2, n // 2))
        other = case.rng.integers(FIRST_WORD, VOCABULARY, 3).tolist()
        ids = sampled[row]
        ids = [*ids[:at], *other, *ids[at + 2 :]] if longer else [*ids[:at], other[0], *ids[at + 2 :]]
        rollouts.ids[row], rollouts.chosen[row], rollouts.present[row] = case.pad, False, False
        rollouts.ids[row, : len(ids)] = ids
        rollouts.chosen[row, : len(ids)] = rollouts.present[row, : len(ids)] = True
        hit += 1
    here(hit >= 5)
    case.rescore()
    case.rows["rollout_ids"] = sampled


@plant(12, "merged tokens", **MANY)
def _(case: Case) -> None:
    _retokenised(case, longer=False)


@plant(12, "split tokens", **MANY)
def _(case: Case) -> None:
    _retokenised(case, longer=True)


@plant(12, "merged tokens, sampled ids not stored", **MANY)
def _(case: Case) -> None:
    _retokenised(case, longer=False)
    case.rows.pop("rollout_ids")


def _pads_count(case: Case) -> list[list[int]]:
    lengths = [len(prompt) for prompt in case.rollouts.prompts]
    rescored(case, shift=np.array([max(lengths) - n for n in lengths]))
    return [list(range(max(lengths) + case.shape[1])) for _ in lengths]


@plant(13, "position ids count the pads", samples=1, **MANY)
def _(case: Case) -> None:
    case.rows["position_ids"] = _pads_count(case)


@plant(13, "position ids not stored", samples=1, **MANY)
def _(case: Case) -> None:
    _pads_count(case)
    case.hide.add("position_ids")


@plant(42, "BOS twice")
def _(case: Case) -> None:
    case.rows["prompt_ids"] = [[BOS, *prompt] for prompt in case.rollouts.prompts]
    case.hide.add("position_ids")


@plant(42, "BOS twice in some prompts")
def _(case: Case) -> None:
    half = case.rng.random(case.shape[0]) < 0.5
    here(half.any())
    case.rows["prompt_ids"] = [[BOS, *p] if h else p for p, h in zip(case.rollouts.prompts, half, strict=True)]
    case.hide.add("position_ids")


# ── 18, 40: the right numbers in the wrong place ───────────────────────────────────────────────────────────────────


def _shifted(case: Case, names: tuple[str, ...], by: int) -> None:
    for name in names:
        case.again(name, np.roll(case.raw[name].numpy(), by, axis=1))


@plant(18, "the trainer's, one late")
def _(case: Case) -> None:
    _shifted(case, TRAINER, 1)


@plant(18, "the trainer's, one early")
def _(case: Case) -> None:
    _shifted(case, TRAINER, -1)


@plant(18, "the engine's, one late")
def _(case: Case) -> None:
    _shifted(case, ("rollout_log_probs",), 1)


def _next_state(case: Case) -> None:
    """logits[:, t] are gathered with the token of slot t, which they have already read."""
    _, positions, context = states(case.rollouts)
    for name, policy in policies(case).items():
        log_p = log_softmax(policy.logits(case.rollouts.ids, positions + 1, context) / case.temperature)
        case.again(name, np.take_along_axis(log_p, case.rollouts.ids[..., None], -1)[..., 0])


@plant(18, "logits of the next state", also=(40, 12), **MANY)
def _(case: Case) -> None:
    _next_state(case)


@plant(18, "logits of the next state, no rollout log-probs", **MANY)
def _(case: Case) -> None:
    _next_state(case)
    case.hide.add("rollout_log_probs")


@plant(40, "zigzag blocks read as contiguous", samples=2, **MANY)
def _(case: Case) -> None:
    blocks = np.array_split(np.arange(case.shape[1]), 8)
    order = np.concatenate([blocks[i] for i in (0, 1, 4, 5, 6, 7, 2, 3)])
    for name in TRAINER:
        case.again(name, case.raw[name].numpy()[:, order])


@plant(40, "rows come back in another order")
def _(case: Case) -> None:
    order = np.roll(np.arange(case.shape[0]), 1)
    for name in TRAINER:
        case.again(name, case.raw[name].numpy()[order])


# ── 21, 28, 38: numbers that are none ──────────────────────────────────────────────────────────────────────────────


@plant(21, "log-softmax in bfloat16", coarse=False)
def _(case: Case) -> None:
    for name, policy in policies(case).items():
        logits = torch.tensor(policy.logits(*states(case.rollouts)) / case.temperature).bfloat16()
        found = torch.log_softmax(logits, -1).float().gather(-1, torch.tensor(case.rollouts.ids)[..., None])[..., 0]
        case.again(name, found.numpy())


@plant(21, "logits minus their log-sum-exp in bfloat16", coarse=False)
def _(case: Case) -> None:
    for name, policy in policies(case).items():
        logits = torch.tensor(policy.logits(*states(case.rollouts)) / case.temperature).bfloat16()
        of_ids = logits.gather(-1, torch.tensor(case.rollouts.ids)[..., None])[..., 0]
        case.again(name, (of_ids - logits.float().logsumexp(-1).bfloat16()).float().numpy())


@plant(28, "0 for the log-probs that the engine did not send", also=(12,))
def _(case: Case) -> None:
    found, last = case.raw["rollout_log_probs"].clone(), case.last
    for row in range(0, case.shape[0], 2):
        found[row, max(int(last[row]) - 5, 0) : int(last[row]) + 1] = 0.0
    case.raw["rollout_log_probs"] = found
    here((keep(torch.ones(case.shape), case.chosen & (found == 0)).sum(1) >= 4).sum() >= 2)


@plant(28, "+1 on pads of one model only, in the reward", also=(15,))
def _(case: Case) -> None:
    def reward(case: Case) -> None:
        c = case.columns
        c["old_log_probs"] = torch.where(case.present, c["old_log_probs"], 1.0)
        c["kl"] = c["old_log_probs"] - c["ref_log_probs"]
        c["rewards"] = c["scores"] - case.settings["beta"] * c["kl"]

    case.settings["kl_estimator"] = "k1"
    case.put("reward", reward)


@plant(28, "−1 where tokens are", also=(12,))
def _(case: Case) -> None:
    found, last = case.raw["rollout_log_probs"].clone(), case.last
    for row in range(0, case.shape[0], 2):
        found[row, max(int(last[row]) - 5, 0) : int(last[row]) + 1] = -1.0
    case.raw["rollout_log_probs"] = found
    here((keep(torch.ones(case.shape), case.chosen & (found == -1)).sum(1) >= 4).sum() >= 2)


def _behind(case: Case, name: str, what: float) -> None:
    where = ~case.chosen & (torch.rand(case.shape, generator=torch.Generator().manual_seed(case.seed)) < 0.3)
    here(where.any())
    case.then("log", lambda c: c.columns.update({name: torch.where(where, what, c.columns[name])}))


@plant(38, "−inf in the reference's log-probs")
def _(case: Case) -> None:
    _behind(case, "ref_log_probs", -np.inf)


@plant(38, "NaN in the values")
def _(case: Case) -> None:
    _behind(case, "values", np.nan)


@plant(38, "NaN times 0 in the loss")
def _(case: Case) -> None:
    _behind(case, "old_log_probs", np.nan)
    case.then("log", lambda c: c.scalars.update(pg_loss=float("nan")))


# ── 22: the wrong reference ────────────────────────────────────────────────────────────────────────────────────────


@plant(22, "the reference is the policy itself", epochs=2)
def _(case: Case) -> list[Case]:
    later = Case(case.seed + 1, case.maker, case.holes, rows=32, like=case)
    for one in (case, later):
        one.raw["ref_log_probs"] = one.raw["old_log_probs"].clone()
    return [later]


@plant(22, "base model at step 0", far=0.5)
def _(case: Case) -> None:
    case.step = case.settings["step"] = 0


# ── 39: the weight's pair ──────────────────────────────────────────────────────────────────────────────────────────


def _weights(case: Case, over: str, under: str) -> None:
    def weigh(case: Case) -> None:
        apart = case.columns[over] - case.columns[under]
        case.columns["importance_weights"] = keep(apart.exp().clamp(max=2.0), case.chosen)

    case.then("update", weigh)


@plant(39, "new over rollout", stale=0.08, epochs=2)
def _(case: Case) -> None:
    _weights(case, "new_log_probs", "rollout_log_probs")


@plant(39, "on top of a ratio that has it already", stale=0.08, epochs=2)
def _(case: Case) -> None:
    _weights(case, "old_log_probs", "rollout_log_probs")

    def ratio(case: Case) -> None:
        case.columns["ratio"] = keep(
            (case.columns["new_log_probs"] - case.columns["rollout_log_probs"]).exp(), case.chosen
        )

    case.then("update", ratio)
