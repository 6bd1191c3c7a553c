"""Clean dumps: a toy model's rollouts, taken through the real arithmetic of mingce or of verl, stage by stage.

A `Case` is a batch before its dump is written. It runs named stages in the order of a training step

    measure → score → reward → credit → whiten → update → log

each of them a function of the case that fills columns. A bug is planted by putting another function in the place of one
stage, so that everything after it is computed from its numbers, as in a real trainer (audit_plants.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from audit_world import BOS, EOS, PAD, Policy, Rollouts, Sampler, draw, rounding_noise, score
from torch import Tensor

from mingce.algorithms import advantage, kl, losses, masking
from mingce.audit.dump import Dump

Stage = Callable[["Case"], None]
STAGES = ("measure", "score", "reward", "credit", "whiten", "update", "log")
CRITIC = ("gae", "monte_carlo", "td0", "n_step")
GROUPED = ("grpo", "dr_grpo", "rloo")
CLIP, DUAL_CLIP = 0.2, 3.0
FLOATS = (
    "rollout_log_probs", "old_log_probs", "ref_log_probs", "new_log_probs", "entropy", "scores", "kl", "rewards",
    "values", "new_values", "deltas", "raw_advantages", "advantages", "returns", "ratio", "importance_weights",
)  # fmt: skip


class Case:
    """One batch on its way through a trainer's step.

    `raw` holds what the models said on every slot, `columns` what the trainer keeps of it and computes. `sees` says
    behind which mask a measured column is kept: "chosen", "present" or "all".
    """

    def __init__(
        self,
        seed: int,
        maker: str = "own",
        holes: bool = True,
        *,
        rows: int | None = None,
        width: int | None = None,
        samples: int | None = None,
        estimator: str | None = None,
        sampler: Sampler | None = None,
        stale: float = 0.0,
        temperature: float | None = None,
        far: float | None = None,
        epochs: int | None = None,
        minibatches: int | None = None,
        mode: str | None = None,
        dense: bool | None = False,
        beta: float | None = None,
        truncation: str | None = "zero",
        spread: bool = True,
        like: Case | None = None,
    ):
        """Everything that is not given is drawn. `stale` moves the engine's weights that far from the trainer's;
        `spread` makes every row's score another number, so that a lost one shows; `like` is the step before this one,
        whose settings stay and whose policy has moved on a little."""
        rng = self.rng = np.random.default_rng(seed)
        self.maker, self.seed, self.holes = maker, seed, holes
        samples = int(rng.choice([2, 4, 8] if estimator in GROUPED else [1, 2, 4, 8])) if samples is None else samples
        rows = int(rng.integers(8, 65)) if rows is None else rows
        width = int(rng.integers(16, 129)) if width is None else width
        hazard = float(rng.uniform(0.8, 2.5)) / width
        self.policy = Policy.new(rng, hazard, 2.0 / width if holes else 0.0)
        if like is not None:
            samples, width, temperature = like.settings["group_size"], like.shape[1], like.temperature
            self.policy = like.policy.moved(rng, 0.01)
        t = float(rng.choice([1.0, 1.0, 0.7])) if temperature is None else temperature
        noise = rounding_noise(float(rng.uniform(0.0005, 0.008))) if like is None else like.sampler.noise
        engine = Sampler(temperature=t, noise=noise) if sampler is None else sampler
        if stale:
            engine = Sampler(t, engine.top_p, engine.top_k, engine.min_p, noise, self.policy.moved(rng, stale))
        self.sampler, self.temperature = engine, t
        self.rollouts = draw(rng, self.policy, engine, max(rows // samples, 1), samples, width)
        self.pad = EOS if rng.random() < 0.3 else PAD
        self.far = float(rng.uniform(0.02, 0.12)) if far is None else far
        self.reference = self.policy.moved(rng, self.far) if like is None else like.reference
        self.learnt = self.policy.moved(rng, float(rng.uniform(0.02, 0.08)))
        estimator = estimator or str(rng.choice(["gae", "gae", "gae", *estimators_of(maker)]))
        mode = str(rng.choice([*losses.LOSS_AGG_MODES, "token-mean"])) if mode is None else mode
        self.settings: dict[str, Any] = {
            "estimator": estimator,
            "gamma": float(rng.choice([1.0, 0.99, 0.95])),
            "lam": {"monte_carlo": 1.0, "td0": 0.0}.get(estimator, float(rng.choice([1.0, 0.95, 0.9]))),
            "beta": float(np.exp(rng.uniform(np.log(0.01), np.log(0.2)))) if beta is None else beta,
            "kl_estimator": str(rng.choice(["k1", "k1", "k2", "k3", "abs"])),
            "kl_loss_coef": 0.0,
            "clip": CLIP,
            "clip_low": CLIP,
            "clip_high": CLIP,
            "dual_clip": DUAL_CLIP,
            "value_clip": float(rng.choice([0.2, 0.5])),
            "loss_agg_mode": mode,
            "loss_norm": width,
            "temperature": t,
            "top_p": engine.top_p,
            "top_k": engine.top_k,
            "ppo_epochs": int(rng.integers(1, 3)) if epochs is None else epochs,
            "group_size": samples,
            "world_size": 1,
            "eos_id": EOS,
            "pad_id": self.pad,
            "bos_id": BOS,
            "stop_ids": [EOS],
            "max_response_length": width,
            "n": 5,
            "k": 3,
        }
        if like is not None:
            self.settings, self.pad = dict(like.settings), like.pad
            estimator = self.estimator
        self.minibatches = int(rng.choice([1, 1, 2])) if minibatches is None and maker == "own" else minibatches or 1
        self.truncation = str(rng.choice(advantage.TRUNCATION)) if truncation is None else truncation
        if self.truncation == "bootstrap" and estimator not in CRITIC:
            self.truncation = "zero"
        self.dense = bool(rng.random() < 0.15) if dense is None else dense
        self.step: int | None = int(rng.integers(5, 500)) if like is None else (like.step or 0) + 1
        self.outcomes = _outcomes(rng, self.rollouts, spread)
        self.sees = dict.fromkeys(("old_log_probs", "ref_log_probs", "new_log_probs", "entropy", "values"), "chosen")
        self.sees |= {"new_values": "chosen", "rollout_log_probs": "chosen"}
        if maker == "verl":  # attended tool tokens go through the models; pads are 0, or what the critic said there
            self.sees |= dict.fromkeys(("old_log_probs", "ref_log_probs", "new_log_probs", "entropy"), "present")
            self.sees |= dict.fromkeys(("values", "new_values"), str(rng.choice(["present", "all"])))
        self.columns: dict[str, Tensor] = {}
        self.rows: dict[str, list[Any]] = {}
        self.scalars: dict[str, float] = {}
        self.hide: set[str] = set()  # what the dump does not hold
        self.stages = stages_of(maker)
        self.after: dict[str, list[Stage]] = {}
        self.second_pass_differs = False  # the first update's forward pass does not give the old numbers again
        self.rescore()

    # ── what the models say ──────────────────────────────────────────────────────────────────────────────────────

    def rescore(self) -> None:
        """Every model's forward pass over the rollouts as they are now."""
        self.remask()
        self.raw = self._measured()

    def remask(self) -> None:
        """The masks of the rollouts as they are now."""
        self.chosen, self.present = torch.tensor(self.rollouts.chosen), torch.tensor(self.rollouts.present)
        self.loss_mask = self.chosen

    def _measured(self) -> dict[str, Tensor]:
        rng, rollouts, t = self.rng, self.rollouts, self.temperature
        old, entropy = score(self.policy, rollouts, t)
        reference, _ = score(self.reference, rollouts, t)
        new, _ = score(self.learnt, rollouts, t)
        values = _values(rng, rollouts, self.outcomes)
        moved = values + rng.normal(size=values.shape) * rng.uniform(0.05, 0.4)
        found = {
            "rollout_log_probs": rollouts.log_probs,
            "old_log_probs": old,
            "ref_log_probs": reference,
            "new_log_probs": new,
            "entropy": entropy,
            "values": values[:, :-1],
            "new_values": moved[:, :-1],
            "all_values": values,
        }
        return {name: torch.tensor(column, dtype=torch.float32) for name, column in found.items()}

    def again(self, name: str, log_probs: Any) -> None:
        """Another forward pass's numbers in the place of a measured column."""
        self.raw[name] = torch.tensor(np.asarray(log_probs), dtype=torch.float32)

    # ── geometry ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def shape(self) -> tuple[int, int]:
        return self.rollouts.shape

    @property
    def estimator(self) -> str:
        return str(self.settings["estimator"])

    @property
    def last(self) -> Tensor:
        """[B] the last chosen slot, −1 without one."""
        return last_of(self.chosen)

    @property
    def last_present(self) -> Tensor:
        return last_of(self.present)

    @property
    def cut(self) -> Tensor:
        """[B] the limit ended the row."""
        return torch.tensor([reason == "length" for reason in self.rollouts.finish])

    @property
    def mask(self) -> Tensor:
        """m as float32."""
        return self.chosen.float()

    @property
    def bootstrap(self) -> Tensor:
        after = self.raw["all_values"].gather(1, (self.last_present + 1)[:, None])[:, 0]
        return advantage.truncation_rule(self.truncation, self.cut, self.chosen, after)[0]

    # ── running ──────────────────────────────────────────────────────────────────────────────────────────────────

    def put(self, stage: str, function: Stage) -> None:
        """`function` in the place of a stage."""
        assert stage in STAGES, stage
        self.stages[stage] = function

    def then(self, stage: str, function: Stage) -> None:
        """`function` right after a stage."""
        assert stage in STAGES, stage
        self.after.setdefault(stage, []).append(function)

    def dump(self, coarse: bool = False) -> Dump:
        """All stages, then the dump as it is written; `coarse` rounds every number to bfloat16."""
        for name in STAGES:
            self.stages[name](self)
            for function in self.after.get(name, ()):
                function(self)
        return self.written(coarse)

    def written(self, coarse: bool) -> Dump:
        rollouts, settings = self.rollouts, dict(self.settings)
        ids = torch.tensor(rollouts.ids)
        columns: dict[str, Any] = {
            "token_ids": torch.where(torch.tensor(rollouts.present), ids, self.pad).numpy(),
            "response_mask": self.chosen.numpy(),
            "attention_mask": self.present.numpy(),
        }
        if bool((self.loss_mask != self.chosen).any()):
            columns["loss_mask"] = self.loss_mask.numpy()
        for name, column in self.columns.items():
            if name in FLOATS:
                columns[name] = (column.bfloat16() if coarse else column).float().numpy()
            else:
                columns[name] = column.numpy()
        count, width = self.shape
        longest = max(len(prompt) for prompt in rollouts.prompts)
        rows: dict[str, list[Any]] = {
            "uid": [f"{self.seed}-{i}" for i in range(count)],
            "group": list(rollouts.group),
            "prompt_ids": list(rollouts.prompts),
            "left_pad": [longest - len(prompt) for prompt in rollouts.prompts],
            "position_ids": [
                [0] * (longest - len(prompt)) + list(range(len(prompt) + width)) for prompt in rollouts.prompts
            ],
            "finish_reason": list(rollouts.finish),
            "outcome": [float(x) for x in self.outcomes],
            "final_values": self.raw["all_values"].gather(1, (self.last_present + 1)[:, None])[:, 0].tolist(),
        }
        if self.maker == "verl":  # its position ids stand still on the pads of the response
            for i, prompt in enumerate(rollouts.prompts):
                end = len(prompt) + int(self.last_present[i])
                pads = [0] * (longest - len(prompt))
                rows["position_ids"][i] = pads + [min(j, end) for j in range(len(prompt) + width)]
        if self.estimator not in CRITIC:
            rows.pop("final_values")
        rows |= self.rows
        for name in self.hide:
            for part in (columns, rows, settings, self.scalars):
                part.pop(name, None)
        stored = {name: "bfloat16" if coarse else "float32" for name in columns if name in FLOATS}
        source = {"own": "mingce", "verl": "verl"}[self.maker]
        return Dump(columns, rows, settings, dict(self.scalars), source, stored, step=self.step)


def last_of(mask: Tensor) -> Tensor:
    slots = torch.arange(mask.shape[1])
    return torch.where(mask, slots, -1).amax(dim=1)


def _outcomes(rng: np.random.Generator, rollouts: Rollouts, spread: bool) -> Any:
    """One score a row, of a kind drawn for the batch: any number, or right and wrong."""
    rows = rollouts.shape[0]
    ease = {name: rng.normal() for name in dict.fromkeys(rollouts.group)}
    skill = np.array([ease[name] for name in rollouts.group]) + rng.normal(size=rows)
    kind = "number" if spread else rng.choice(["number", "right or wrong", "plus or minus", "all the same"])
    if kind == "number":
        return skill
    if kind == "all the same":
        return np.ones(rows)
    return (skill > 0) * 1.0 if kind == "right or wrong" else np.where(skill > 0, 1.0, -1.0)


def _values(rng: np.random.Generator, rollouts: Rollouts, outcomes: Any) -> Any:
    """[B, T + 1] a critic that sees the outcome coming as the row goes on."""
    rows, width = rollouts.shape
    progress = np.minimum(np.arange(width + 1) / np.maximum(rollouts.present.sum(axis=1, keepdims=True), 1), 1.0)
    wander = np.cumsum(rng.normal(size=(rows, width + 1)), axis=1) * 0.05
    return 0.3 + 0.7 * outcomes[:, None] * progress + wander + 0.1 * rng.normal(size=(rows, width + 1))


# ── the stages as both trainers have them ──────────────────────────────────────────────────────────────────────────


def visible(case: Case, name: str) -> Tensor:
    """A measured column behind the mask that it is kept with."""
    where = {"chosen": case.chosen, "present": case.present, "all": torch.ones_like(case.present)}[case.sees[name]]
    return masking.keep(case.raw[name], where)


def measure(case: Case) -> None:
    names = ["rollout_log_probs", "old_log_probs", "entropy"]
    if case.settings["beta"] is not None:
        names.append("ref_log_probs")
    if case.estimator in CRITIC:
        names.append("values")
    case.columns |= {name: visible(case, name) for name in names}


def place_score(case: Case, index: Tensor) -> None:
    """Each row's outcome in the slot `index` [B]; −1 writes nothing."""
    scores = torch.zeros(case.shape)
    rows = torch.arange(case.shape[0])[index >= 0]
    scores[rows, index[rows]] = torch.tensor(case.outcomes, dtype=torch.float32)[rows]
    case.columns["scores"] = scores


def score_last(case: Case) -> None:
    place_score(case, case.last)
    if case.dense:  # a format reward on some tokens on the way
        some = torch.tensor(case.rng.random(case.shape) < 0.1) & case.chosen
        case.columns["scores"] += 0.1 * some.float()


def split(case: Case) -> None:
    """Minibatches and micro-batches of like length, as row ids."""
    rows = case.shape[0]
    order = case.rng.permutation(rows)
    minibatch, micro = np.zeros(rows, dtype=int), np.zeros(rows, dtype=int)
    for number, part in enumerate(np.array_split(order, case.minibatches)):
        minibatch[part] = number
        part = part[np.argsort(-case.chosen.sum(dim=1).numpy()[part], kind="stable")]
        for smaller in np.array_split(part, max(2, len(part) // 6)):
            micro[smaller] = micro.max() + 1
    case.rows |= {"minibatch": minibatch.tolist(), "micro_batch": [int(i) - 1 for i in micro]}
    case.rows["epoch"] = [case.settings["ppo_epochs"] - 1] * rows


def parts(case: Case) -> None:
    """The parts of the step, and what the models said when the loss last used them."""
    if "micro_batch" not in case.rows:
        split(case)
    minibatch = np.array(case.rows["minibatch"])
    untouched = case.settings["ppo_epochs"] == 1 and not case.second_pass_differs
    if untouched:  # the first minibatch has learnt nothing
        first = torch.tensor(minibatch == 0)[:, None]
        for new, old in (("new_log_probs", "old_log_probs"), ("new_values", "values")):
            case.raw[new] = torch.where(first, case.raw[old], case.raw[new])
    case.columns["new_log_probs"] = visible(case, "new_log_probs")
    if case.estimator in CRITIC:
        case.columns["new_values"] = visible(case, "new_values")


def micro_batches(case: Case) -> list[Tensor]:
    """Row indices of each micro-batch."""
    ids = torch.tensor(case.rows["micro_batch"])
    return [(ids == i).nonzero()[:, 0] for i in sorted(set(case.rows["micro_batch"]))]


def statistics(case: Case) -> None:
    """The means that are logged beside the losses, over chosen tokens."""
    c, mask, scalars = case.columns, case.chosen, case.scalars
    scalars["entropy_mean"] = float(masking.masked_mean(c["entropy"], mask))
    scalars["advantages_mean"] = float(masking.masked_mean(c["advantages"], mask))
    scalars["approx_kl"] = float(masking.masked_mean(c["old_log_probs"] - c["new_log_probs"], case.loss_mask))
    if "kl" in c:
        rows = mask.any(dim=1)
        scalars["kl_mean"] = float(masking.masked_mean(c["kl"], mask, axis=1)[rows].mean())
        scalars["kl_coef"] = case.settings["beta"]


# ── mingce ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def own_reward(case: Case) -> None:
    c, s = case.columns, case.settings
    if s["beta"] is None:
        c["rewards"] = c["scores"].clone()
        return
    c["kl"] = kl.kl_penalty(c["old_log_probs"], c["ref_log_probs"], s["kl_estimator"], case.chosen)
    c["rewards"] = kl.kl_rewards(c["scores"], c["kl"], case.chosen, s["beta"])


def own_credit(case: Case) -> None:
    """As mingce.credit.assign_credit does it, without a ledger."""
    c, s = case.columns, case.settings
    bootstrap, case.loss_mask = advantage.truncation_rule(
        case.truncation, case.cut, case.chosen, case.bootstrap if case.estimator in CRITIC else None
    )
    given: dict[str, Any] = {"rewards": c["rewards"], "response_mask": case.chosen, "bootstrap": bootstrap}
    given |= {"values": c.get("values"), "group": case.rollouts.group}
    given |= {name: s[name] for name in ("gamma", "lam", "n", "k")}
    function = advantage.estimator(case.estimator)
    takes = inspect.signature(function).parameters
    credit = function(**{name: value for name, value in given.items() if name in takes})
    c["raw_advantages"] = credit.advantages
    if credit.returns is not None:
        c["returns"] = credit.returns
        c["deltas"] = advantage.td_errors(c["rewards"], c["values"], case.chosen, s["gamma"], bootstrap)


def own_whiten(case: Case) -> None:
    c = case.columns
    if case.estimator in GROUPED:
        c["advantages"] = c.pop("raw_advantages")
    else:
        c["advantages"] = masking.masked_whiten(c["raw_advantages"], case.loss_mask)


def own_update(case: Case) -> None:
    """The losses as roles/learner.py adds them up: micro-batch by micro-batch, over the minibatch's totals."""
    parts(case)
    c, s, mask = case.columns, case.settings, case.loss_mask
    ratio, shares = torch.zeros(case.shape), {name: torch.zeros(case.shape) for name in ("pg", "vf")}
    clipped = {name: torch.zeros(case.shape) for name in ("pg", "vf")}
    for rows in micro_batches(case):
        policy = losses.compute_policy_loss(
            c["old_log_probs"][rows], c["new_log_probs"][rows], c["advantages"][rows], mask[rows],
            cliprange_low=s["clip_low"], cliprange_high=s["clip_high"], clip_ratio_c=s["dual_clip"],
        )  # fmt: skip
        ratio[rows], shares["pg"][rows] = policy.columns["ratio"], policy.columns["policy_loss"]
        clipped["pg"][rows] = policy.columns["clipped"].float()
        if "values" in c:
            value = losses.compute_value_loss(
                c["new_values"][rows], c["returns"][rows], c["values"][rows], mask[rows], s["value_clip"]
            )
            shares["vf"][rows] = value.columns["value_loss"]
            clipped["vf"][rows] = value.columns["value_clipped"].float()
    c["ratio"] = ratio
    for name in ("pg", "vf") if "values" in c else ("pg",):
        mode = s["loss_agg_mode"] if name == "pg" else "token-mean"
        case.scalars[f"{name}_loss"] = float(
            losses.agg_loss(shares[name], mask, mode, loss_scale_factor=s["loss_norm"])
        )
        case.scalars[f"{name}_clipfrac"] = float(masking.masked_mean(clipped[name], mask))
    if s["kl_loss_coef"]:
        term = losses.compute_kl_loss(c["new_log_probs"], c["ref_log_probs"], mask, loss_agg_mode=s["loss_agg_mode"])
        case.scalars["kl_loss"] = float(term.loss)


OWN: dict[str, Stage] = dict(
    zip(STAGES, (measure, score_last, own_reward, own_credit, own_whiten, own_update, statistics), strict=True)
)


def stages_of(maker: str) -> dict[str, Stage]:
    if maker == "own":
        return dict(OWN)
    from audit_peers import FROM_VERL

    return dict(FROM_VERL)


def estimators_of(maker: str) -> list[str]:
    """The estimators that a clean batch of this maker may have."""
    if maker == "verl":
        return ["gae", "grpo", "dr_grpo", "rloo", "reinforce_plus_plus"]
    return [name for name in advantage.ESTIMATORS if name != "attention"]


# ── one of them ────────────────────────────────────────────────────────────────────────────────────────────────────


def clean(seed: int, maker: str = "own", holes: bool = True, coarse: bool = False) -> Dump:
    """A random batch without a bug: any shape, estimator, aggregation; sometimes without the settings, sometimes the
    first step (policy = reference), sometimes with an empty row."""
    rng = np.random.default_rng([seed, 1])
    case = Case(
        seed, maker, holes, dense=None, spread=False, truncation=None if maker == "own" else "zero",
        beta=None if rng.random() < 0.85 else 0.0,
    )  # fmt: skip
    kind = rng.random()
    if rng.random() < 0.2 and maker == "own":
        case.then("update", weigh)
    if kind < 0.1:
        case.step = 1
        case.raw["ref_log_probs"] = case.raw["old_log_probs"].clone()
    elif kind < 0.15:  # no reference model at all
        case.settings["beta"] = None
    elif kind < 0.2:  # the engine gave nothing back for one row, and nobody scored it
        empty_row(case, int(rng.integers(case.shape[0])))
    elif kind < 0.25 and maker == "own":
        case.settings |= {"beta": 0.0, "kl_loss_coef": 0.01}
    dump = case.dump(coarse)
    if rng.random() < 0.3 and case.estimator not in ("n_step", "uniform", "last_k"):  # nobody could guess these
        for name in ("gamma", "lam", "beta", "kl_estimator", "estimator", "loss_agg_mode", "loss_norm"):
            dump.settings.pop(name, None)
    dump.settings = {name: value for name, value in dump.settings.items() if value is not None}
    if maker == "own" and rng.random() < 0.3:
        dump.source = "generic"
    return dump


def weigh(case: Case) -> None:
    """Truncated weights that correct for the engine's own numbers."""
    apart = case.columns["old_log_probs"] - case.columns["rollout_log_probs"]
    case.columns["importance_weights"] = masking.keep(apart.exp().clamp(max=2.0), case.chosen)


def empty_row(case: Case, row: int) -> None:
    """The row has no response."""
    case.rollouts.chosen[row] = case.rollouts.present[row] = False
    case.rollouts.log_probs[row], case.outcomes[row] = 0.0, 0.0
    case.remask()
