"""A batch on its way through a training step, before its dump is written.

A `Case` runs named stages in the order of a step

    measure → score → reward → credit → whiten → update → log

each of them a function of the case that fills columns. A bug is planted by putting another function in the place of one
stage, so that everything after it is computed from its numbers, as in a real trainer (audit_plants/).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from audit_world import BOS, EOS, PAD, Policy, Sampler, critic_values, draw, outcomes, rounding_noise, score
from torch import Tensor

from mingce.algorithms import advantage
from mingce.record.dump import Dump, with_ledger_names
from mingce.specs import AGGREGATIONS, ESTIMATORS
from mingce.specs.estimator import TRUNCATIONS, lambda_of, row_inputs
from mingce.specs.settings import DumpSettings

Stage = Callable[["Case"], None]
STAGES = ("measure", "score", "reward", "credit", "whiten", "update", "log")
CRITIC = [name for name, spec in ESTIMATORS.items() if spec.needs_critic]
GROUPED = [name for name, spec in ESTIMATORS.items() if spec.grouped]
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
        self.sampler: Sampler = engine
        self.temperature: float = t
        self.rollouts = draw(rng, self.policy, engine, max(rows // samples, 1), samples, width)
        self.pad = EOS if rng.random() < 0.3 else PAD
        self.far = float(rng.uniform(0.02, 0.12)) if far is None else far
        self.reference: Policy = self.policy.moved(rng, self.far) if like is None else like.reference
        self.learnt = self.policy.moved(rng, float(rng.uniform(0.02, 0.08)))
        estimator = estimator or str(rng.choice(["gae", "gae", "gae", *estimators_of(maker)]))
        mode = str(rng.choice([*AGGREGATIONS, "token-mean"])) if mode is None else mode
        self.settings: dict[str, Any] = {
            "estimator": estimator,
            "gamma": float(rng.choice([1.0, 0.99, 0.95])),
            "lam": lambda_of({"estimator": estimator, "lam": float(rng.choice([1.0, 0.95, 0.9]))}),
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
        self.truncation = str(rng.choice(TRUNCATIONS)) if truncation is None else truncation
        if self.truncation == "bootstrap" and estimator not in CRITIC:
            self.truncation = "zero"
        self.dense = bool(rng.random() < 0.15) if dense is None else dense
        self.step: int | None = int(rng.integers(5, 500)) if like is None else (like.step or 0) + 1
        self.outcomes = outcomes(rng, self.rollouts, spread)
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
        values = critic_values(rng, rollouts, self.outcomes)
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

    def run(self) -> None:
        """All stages."""
        for name in STAGES:
            self.stages[name](self)
            for function in self.after.get(name, ()):
                function(self)

    def dump(self, coarse: bool = False) -> Dump:
        """All stages, then the dump."""
        self.run()
        return self.written(coarse)

    def written(self, coarse: bool) -> Dump:
        """The dump as it stands in a file; `coarse` rounds every number to bfloat16."""
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
            "bootstrap_value": self.raw["all_values"].gather(1, (self.last_present + 1)[:, None])[:, 0].tolist(),
        }
        if self.maker == "verl":  # its position ids stand still on the pads of the response
            for i, prompt in enumerate(rollouts.prompts):
                end = len(prompt) + int(self.last_present[i])
                pads = [0] * (longest - len(prompt))
                rows["position_ids"][i] = pads + [min(j, end) for j in range(len(prompt) + width)]
        if self.estimator not in CRITIC:
            rows.pop("bootstrap_value")
        rows |= self.rows
        scalars = dict(self.scalars)
        for name in self.hide:
            for part in (columns, rows, settings, scalars):
                part.pop(name, None)
        stored = {name: "bfloat16" if coarse else "float32" for name in columns if name in FLOATS}
        source = {"own": "mingce", "verl": "verl"}[self.maker]
        given = DumpSettings(**settings)
        return Dump(with_ledger_names(columns), rows, given, scalars, source, with_ledger_names(stored), step=self.step)


def last_of(mask: Tensor) -> Tensor:
    slots = torch.arange(mask.shape[1])
    return torch.where(mask, slots, -1).amax(dim=1)


def stages_of(maker: str) -> dict[str, Stage]:
    """The stages as a trainer's own functions make them."""
    if maker == "own":
        from audit_clean import OWN

        return dict(OWN)
    from audit_peers import FROM_VERL

    return dict(FROM_VERL)


def estimators_of(maker: str) -> list[str]:
    """The estimators that a clean batch of this maker may have."""
    if maker == "verl":
        return ["gae", "grpo", "dr_grpo", "rloo", "reinforce_plus_plus"]
    measured_apart = {"attention_weights", "turn", *row_inputs()}
    return [name for name, spec in ESTIMATORS.items() if not measured_apart & {*spec.inputs}]
