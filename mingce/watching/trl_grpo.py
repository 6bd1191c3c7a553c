"""TRL's GRPOTrainer and RLOOTrainer: what each loss saw, one pass over the answers of a generation at a time.

    _calculate_rewards                       the rewards of each function, the texts it read
    _generate_and_score_completions          the rows of a generation, in the order of their groups
    _get_per_token_logps_and_entropies       new log-probs and entropies; in a generation RLOO's old and reference ones
    _compute_loss                            a micro-batch of shuffled rows, as the loss took it, and the loss
    log                                      what the trainer logs

Rows are laid back in the order of their groups by their token ids. A ledger is one pass over a generation's answers,
under the number of the optimizer step that ended it: with the defaults, one a step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mingce.importers.aliases import SCALARS
from mingce.specs import trl_names
from mingce.watching.host import Host, Taken
from mingce.watching.recorder import Recorder
from mingce.watching.trainers import copied, is_a, plain_config, token_ids, tokenizer_text, version_of
from mingce.watching.trl import is_main, on_log
from mingce.watching.wrapping import Wraps

NAMES = ("TRL GRPOTrainer", "TRL RLOOTrainer")
_TENSORS = (
    "prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "tool_mask", "advantages",
    "old_per_token_logps", "ref_per_token_logps", "sampling_per_token_logps", "importance_sampling_ratio",
)  # fmt: skip
_OTHER_LOSS = dict.fromkeys(("policy_loss", "loss_agg_mode", "loss_norm", "clip_low", "clip_high"))
__all__ = ["NAMES", "attach", "host", "is_main", "recognises"]


def recognises(trainer: object) -> bool:
    return is_a(trainer, "trl", "GRPOTrainer") or is_a(trainer, "trl", "RLOOTrainer")


def host(trainer: Any) -> Host:
    """What its configuration says."""
    kind = "GRPOTrainer" if is_a(trainer, "trl", "GRPOTrainer") else "RLOOTrainer"
    args = trainer.args
    steps = getattr(args, "max_steps", -1)
    return Host(
        source="trl_grpo",
        name=f"TRL{version_of('trl')} {kind}",
        settings=(_grpo if kind == "GRPOTrainer" else _rloo)(args)
        | token_ids(trainer.processing_class)
        | _stops(trainer)
        | ({} if _has_own_loss(trainer) else _OTHER_LOSS),
        config=plain_config(args),
        steps=steps if steps > 0 else None,
        tokenizer=tokenizer_text(trainer.processing_class),
    )


def _has_own_loss(trainer: Any) -> bool:
    """Whether the loss is that of TRL's class itself; experimental ones derive from it and have another."""
    owner = next(one for one in type(trainer).__mro__ if "_compute_loss" in vars(one))
    return owner.__name__ in ("GRPOTrainer", "RLOOTrainer")


def _stops(trainer: Any) -> dict[str, Any]:
    """The ids that end an answer where there are several, as the generation's configuration may say."""
    stops = getattr(trainer, "eos_token_ids", None) or []
    return {"stop_ids": [int(one) for one in stops]} if len(stops) > 1 else {}


def _shared(args: Any) -> dict[str, Any]:
    high = getattr(args, "epsilon_high", None)
    return {
        "clip_low": args.epsilon,
        "clip_high": args.epsilon if high is None else high,
        "ppo_epochs": args.num_iterations,
        "temperature": args.temperature,
        "top_p": args.top_p,
        "top_k": args.top_k or None,
        "min_p": args.min_p,
        "group_size": args.num_generations,
        "max_response_length": args.max_completion_length,
        "mask_truncated": getattr(args, "mask_truncated_completions", None),
    }


def _grpo(args: Any) -> dict[str, Any]:
    sequences = getattr(args, "importance_sampling_level", "token") == "sequence"
    apart = getattr(args, "multi_objective_aggregation", "") == "normalize_then_sum"
    return _shared(args) | {
        "estimator": None if apart else trl_names.SCALED.get(str(args.scale_rewards)),
        "std_over": None if apart else str(args.scale_rewards),
        "rewards_apart": apart,
        "kl_loss_coef": args.beta,
        "kl_estimator": "k3",
        "kl_in_reward": False,
        "kl_loss_weighted": getattr(args, "use_bias_correction_kl", None),
        "policy_loss": "gspo" if sequences else trl_names.POLICY_LOSSES.get(args.loss_type),
        "loss_agg_mode": args.loss_type,
        "loss_norm": float(args.max_completion_length) if args.loss_type == trl_names.BY_CONSTANT else None,
        "ratio_cap": getattr(args, "delta", None),
        "entropy_share": getattr(args, "top_entropy_quantile", None),
        "entropy_coef": None if getattr(args, "use_adaptive_entropy", False) else getattr(args, "entropy_coef", None),
    }


def _rloo(args: Any) -> dict[str, Any]:
    return _shared(args) | {
        "estimator": None if args.normalize_advantages else trl_names.LEAVE_ONE_OUT,
        "beta": args.beta,
        "kl_estimator": "k1",
        "kl_in_reward": bool(args.beta),
    }


def attach(trainer: Any, wraps: Wraps, recorder: Recorder) -> None:
    """Wrap what tells of a step."""
    watched = _Passes(trainer, recorder)
    wraps.wrap(trainer, "_calculate_rewards", after=watched.scored)
    wraps.wrap(trainer, "_generate_and_score_completions", before=watched.begin_generation, after=watched.generated)
    wraps.wrap(trainer, "_get_per_token_logps_and_entropies", after=watched.measured)
    wraps.wrap(trainer, "_compute_loss", after=watched.lost)
    wraps.wrap(trainer, "log", **on_log(trainer, recorder))


@dataclass
class _Generation:
    """The answers of a generation, in the order of their groups; tensors are copies."""

    prompt_ids: Any
    completion_ids: Any
    advantages: Any
    measured: list[Any]
    version: int
    rewards: Any = None
    rows: dict[str, list[Any]] = field(default_factory=dict)


@dataclass
class _Part:
    """A micro-batch as its loss saw it."""

    tensors: dict[str, Any]
    log_probs: Any
    entropies: Any
    loss: Any


class _Passes:
    """Collects a pass over the answers, and offers it when it is whole."""

    def __init__(self, trainer: Any, recorder: Recorder):
        self._trainer, self._recorder = trainer, recorder
        self._generating = False
        self._measured: list[Any] = []
        self._scored: tuple[Any, list[Any], list[Any]] | None = None
        self._generation: _Generation | None = None
        self._parts: list[_Part] = []
        self._moved = False
        self._seen, self._wanted = 0, False  # micro-batches of the generation, and whether the pass is recorded

    @property
    def _training(self) -> bool:
        return bool(self._trainer.model.training)

    @property
    def _step(self) -> int:
        """The optimizer step that is being made."""
        return int(self._trainer.state.global_step) + 1

    @property
    def _version(self) -> int:
        """How many updates the policy has seen; without an advantage so far there was nothing to move it."""
        return int(self._trainer.state.global_step) if self._moved else 0

    def begin_generation(self, *given: Any, **named: Any) -> None:
        if self._training:
            self._recorder.step_ended()
        if self._generation is None:  # a run that goes on from a checkpoint has moved before
            self._moved = int(self._trainer.state.global_step) > 0
        self._generating, self._measured, self._scored = True, [], None

    def scored(self, rewards: Any, inputs: Any, prompts: list[Any], completions: list[Any], *rest: Any) -> None:
        self._scored = (copied(rewards), list(prompts), list(completions))

    def generated(self, output: Mapping[str, Any], *given: Any, **named: Any) -> None:
        self._generating = False
        if not self._training:
            return
        prompts, completions, advantages = (
            copied(output[name]) for name in ("prompt_ids", "completion_ids", "advantages")
        )
        measured, version = [copied(one) for one in self._measured], self._version
        chosen = copied(output["completion_mask"]) * copied(output.get("tool_mask", 1))
        paid = advantages[:, None] if advantages.ndim == 1 else advantages
        self._moved |= bool((paid * chosen).any()) and self._learns
        self._generation = _Generation(prompts, completions, advantages, measured, version)
        self._seen = 0
        if self._scored is not None:
            rewards, asked, answered = self._scored
            self._generation.rewards = rewards[: len(asked)]  # of all ranks; the one that records is the first
            self._generation.rows = {"prompt": asked, "response": answered}

    def measured(self, found: tuple[Any, ...], *given: Any, **named: Any) -> None:
        if self._generating:
            if is_a(self._trainer, "trl", "RLOOTrainer"):  # GRPO's are in its output
                self._measured.append(found[0])
        else:
            self._measured = [found[0], found[1]]

    def lost(self, loss: Any, model: Any, inputs: Mapping[str, Any]) -> None:
        if self._recorder.bug() is not None:
            self._trainer.control.should_training_stop = True
        if not self._training or self._generation is None:
            return
        last, accumulated = self._trainer.args.steps_per_generation, self._accumulated
        epoch, place = divmod(self._seen, last)
        self._seen += 1
        if place == 0:
            self._parts, self._wanted = [], self._recorder.wants(self._step + (last - 1) // accumulated)
        if not self._wanted:
            return
        tensors = {name: copied(inputs[name]) for name in _TENSORS if inputs.get(name) is not None}
        log_probs, entropies = (copied(one) for one in self._measured)
        self._parts.append(_Part(tensors, log_probs, entropies, copied(loss)))
        if len(self._parts) == last:
            parts, self._parts = self._parts, []
            generation, logged, facts = self._generation, self._logged(last), self._facts(epoch, last)
            self._recorder.offer(self._step, lambda: _taken(generation, parts, logged, facts))

    @property
    def _learns(self) -> bool:
        """Whether the next update will move the policy: a warm-up begins at a rate of 0."""
        optimizer = getattr(self._trainer, "optimizer", None)
        return optimizer is None or any(group.get("lr", 1.0) for group in optimizer.param_groups)

    @property
    def _accumulated(self) -> int:
        """Micro-batches of an optimizer step."""
        now = getattr(self._trainer, "current_gradient_accumulation_steps", None)
        return int(now or self._trainer.args.gradient_accumulation_steps)

    def _logged(self, micro_batches: int) -> dict[str, float]:
        """What the trainer has noted of the pass and will log."""
        noted = self._trainer._metrics.get("train", {})
        names = [name for name in noted if name in SCALARS and name != "policy_loss"]  # which has the KL in it
        known = {name: said[-micro_batches:] for name in names if (said := noted[name])}
        return {name: sum(said) / len(said) for name, said in known.items()}

    def _policy_loss(self, micro_batches: int) -> float | None:
        """What TRL notes of the loss without the entropy's bonus; of these types a micro-batch's share of the step."""
        args, noted = self._trainer.args, self._trainer._metrics.get("train", {}).get("policy_loss", [])
        noted = noted[-micro_batches:]
        if len(noted) < micro_batches or getattr(args, "top_entropy_quantile", 1.0) < 1:
            return None
        return float(sum(noted)) / micro_batches * (self._accumulated if args.loss_type in trl_names.BY_STEP else 1)

    def _facts(self, epoch: int, micro_batches: int) -> _Facts:
        trainer, args = self._trainer, self._trainer.args
        bonus = bool(getattr(trainer, "_entropy_bonus_enabled", False))
        weights = getattr(trainer, "reward_weights", None)
        return _Facts(
            group_size=int(trainer.num_generations),
            names=[str(name) for name in getattr(trainer, "reward_func_names", [])],
            weights=copied(weights),
            processes=int(getattr(trainer.accelerator, "num_processes", 1)),
            epoch=epoch,
            accumulated=self._accumulated,
            only_policy_loss=not trainer.beta and not bonus,
            policy_loss=self._policy_loss(micro_batches) if bonus and not trainer.beta else None,
            one_loss=is_a(trainer, "trl", "GRPOTrainer")
            and _has_own_loss(trainer)
            and getattr(args, "off_policy_mask_threshold", None) is None
            and not getattr(args, "use_adaptive_entropy", False),  # whose price changes with each step
            compares_total=getattr(trainer, "multi_objective_aggregation", "") != "normalize_then_sum",
            bounds=getattr(trainer, "reward_clip_range", None),
        )


@dataclass(frozen=True)
class _Facts:
    """What of the trainer the numbers of a pass are read with."""

    group_size: int
    names: list[str]
    weights: Any
    processes: int
    epoch: int
    accumulated: int
    only_policy_loss: bool
    policy_loss: float | None
    one_loss: bool
    compares_total: bool
    bounds: Any


def _taken(generation: _Generation, parts: list[_Part], logged: dict[str, float], facts: _Facts) -> Taken:
    """One pass over the answers in the order of their groups; called in our thread."""
    import torch

    data: dict[str, Any] = {name: torch.cat([part.tensors[name] for part in parts]) for name in parts[0].tensors}
    new, entropies = (torch.cat([getattr(part, name) for part in parts]) for name in ("log_probs", "entropies"))
    at = _places(generation, data)
    order = sorted(range(len(at)), key=lambda row: at[row])
    if facts.processes > 1:  # a group may go on in another process
        whole = len(generation.advantages) // facts.group_size * facts.group_size
        order = [row for row in order if at[row] < whole]
    from_generation = [at[row] for row in order]
    data = {name: column[order] for name, column in data.items()} | {"per_token_logps": new[order]}
    for name, column in zip(("old_per_token_logps", "ref_per_token_logps"), generation.measured, strict=False):
        data[name] = column[from_generation]
    data.setdefault("old_per_token_logps", data["per_token_logps"])  # the loss itself takes it so
    if torch.equal(data["per_token_logps"], data["old_per_token_logps"]):  # else it is another policy's
        data["entropies"] = entropies[order]
    sizes = [len(part.log_probs) for part in parts]
    numbers = [number for number, size in enumerate(sizes) for _ in range(size)]
    data["micro_batch"] = [numbers[row] for row in order]
    data["minibatch"] = [numbers[row] // facts.accumulated for row in order]
    data["epoch"] = [facts.epoch] * len(order)
    if facts.processes == 1 and facts.one_loss:
        loss = float(sum(part.loss for part in parts)) * facts.accumulated / len(parts)
        policy_loss = loss if facts.only_policy_loss else facts.policy_loss
        data["metrics"] = logged | {"loss": loss} | ({} if policy_loss is None else {"pg_loss": policy_loss})
    rows: dict[str, list[Any]] = {
        name: [_text(entries[row]) for row in from_generation] for name, entries in generation.rows.items()
    }
    rows["policy_version"] = [generation.version] * len(order)
    if generation.rewards is not None:
        weights = 1.0 if facts.weights is None else facts.weights
        total = (generation.rewards * weights).nansum(dim=1)[from_generation]
        if facts.compares_total and not bool(generation.rewards.isnan().all(dim=1).any()):  # else TRL leaves rows out
            data["rewards"] = total if facts.bounds is None else total.clamp(*facts.bounds)
        if len(facts.names) > 1:
            rows["score_parts"] = [
                dict(zip(facts.names, generation.rewards[row].tolist(), strict=False)) for row in from_generation
            ]
    return Taken(data, rows, facts.processes * len(generation.advantages) if facts.processes > 1 else None)


def _places(generation: _Generation, data: Mapping[str, Any]) -> list[int]:
    """Which row of the generation each row is: the one with its token ids, of several that with its advantage."""
    left: dict[bytes, list[int]] = defaultdict(list)
    for row, key in enumerate(_keys(generation.prompt_ids, generation.completion_ids)):
        left[key].append(row)
    places = []
    for row, key in enumerate(_keys(data["prompt_ids"], data["completion_ids"])):
        candidates = left[key]
        same = (one for one in candidates if bool((generation.advantages[one] == data["advantages"][row]).all()))
        place = next(same, candidates[0])
        candidates.remove(place)
        places.append(place)
    return places


def _keys(prompts: Any, completions: Any) -> list[bytes]:
    prompts, completions = prompts.numpy(), completions.numpy()
    return [prompt.tobytes() + answer.tobytes() for prompt, answer in zip(prompts, completions, strict=True)]


def _text(said: Any) -> str | None:
    """A text, or the contents of a conversation's messages."""
    if isinstance(said, str):
        return said
    if isinstance(said, list) and all(isinstance(one, dict) for one in said):
        return "\n".join(str(one.get("content", "")) for one in said)
    return None
