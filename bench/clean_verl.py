"""Clean dumps by verl 0.9.1's own functions. Runs in an environment that has verl, not mingce:

    python -m venv verl && verl/bin/pip install torch==2.13.0
    verl/bin/pip install verl==0.9.1 orjson pillow cachetools uvicorn fastapi opentelemetry-sdk
    verl/bin/python bench/clean_verl.py OUT --seed 0

A batch is sampled from the toy model and goes through the steps of RayPPOTrainer.fit as a DataProto: apply_kl_penalty,
rollout correction, compute_advantage, value_loss and ppo_loss with their micro-batches, compute_data_metrics. Only the
models are the toy's; every number after them is verl's.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import uuid
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from audit_world import BOS, EOS, PAD
from clean_batches import DEGENERATE, Batch, sample
from clean_files import Parts, Writer
from torch import Tensor

warnings.filterwarnings("ignore")
with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
    from omegaconf import OmegaConf
    from verl import DataProto
    from verl.trainer.ppo import core_algos
    from verl.trainer.ppo.metric_utils import compute_data_metrics
    from verl.trainer.ppo.ray_trainer import apply_kl_penalty, compute_advantage
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
    from verl.utils import tensordict_utils
    from verl.utils.metric import Metric, reduce_metrics
    from verl.utils.py_functional import rename_dict
    from verl.workers.config import ActorConfig, CriticConfig, PolicyLossConfig
    from verl.workers.utils.losses import ppo_loss, value_loss
    from verl.workers.utils.padding import left_right_2_no_padding, no_padding_2_padding

ESTIMATORS = sorted(core_algos.ADV_ESTIMATOR_REGISTRY)
LOSSES = sorted(core_algos.POLICY_LOSS_REGISTRY)
MODES = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")
PENALTIES = ("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3", "k3+")
GRADIENT = "gradient on the log-probs"
UNGROUPED = ("gae", "reinforce_plus_plus", "remax")


@dataclass
class Asked:
    """What one dump is made with; the rest is drawn."""

    lot: str
    estimator: str = "gae"
    holes: bool = False
    kind: str = ""
    beta: float | None = 0.02
    penalty: str = "kl"
    gamma: float = 1.0
    lam: float = 1.0
    divide: bool = True  # norm_adv_by_std_in_grpo
    loss: str = "vanilla"
    mode: str = "token-mean"
    correction: dict[str, Any] = field(default_factory=dict)
    kl_loss: bool = False
    update: bool = True  # the dump has what the update saw and logged


def plan() -> Iterator[Asked]:
    """Every estimator, policy loss, aggregation, KL penalty, γ and λ, with tool output and without, and the degenerate
    batches."""
    turn = itertools.count()
    for estimator, holes, again in itertools.product(ESTIMATORS, (False, True), range(3)):
        n = next(turn)
        beta = (0.02, None, 0.1)[again]
        yield Asked(
            f"estimators/{estimator}", estimator, holes, "", beta, PENALTIES[n % len(PENALTIES)], (1.0, 0.99)[n % 2],
            (1.0, 0.95)[n // 2 % 2], divide=n % 5 != 0, mode=MODES[n % len(MODES)], update=n % 2 == 0,
        )  # fmt: skip
    for gamma, lam, holes in itertools.product((1.0, 0.99, 0.9), (1.0, 0.95, 0.5, 0.0), (False, True)):
        n = next(turn)
        yield Asked("gae settings", "gae", holes, "", 0.05, PENALTIES[n % 8], gamma, lam, mode=MODES[n % 5])
    for penalty, holes in itertools.product(PENALTIES, (False, True)):
        n = next(turn)
        yield Asked(f"kl/{penalty}", ("gae", "grpo", "reinforce_plus_plus")[n % 3], holes, "", 0.05, penalty)
    for loss, mode in itertools.product(LOSSES, MODES):
        n = next(turn)
        yield Asked(
            f"losses/{loss}", ("gae", "grpo", "rloo")[n % 3], n % 2 == 0, "", (None, 0.02)[n % 2], loss=loss, mode=mode,
            kl_loss=n % 4 == 0,
        )  # fmt: skip
    for level, again in itertools.product(("token", "sequence"), range(3)):
        n = next(turn)
        yield Asked("rollout correction", ("gae", "grpo", "optimal_token_baseline")[again], n % 2 == 0,
                    correction={"rollout_is": level, "rollout_is_threshold": 2.0})  # fmt: skip
    for kind, estimator in itertools.product(DEGENERATE, ESTIMATORS):
        n = next(turn)
        if not (estimator == "grpo_passk" and kind in ("one row", "groups of one")):  # verl refuses these
            yield Asked(f"degenerate/{kind}", estimator, n % 2 == 0, kind, (None, 0.02)[n // 3 % 2], update=n % 3 == 0)


# ── the models' part ───────────────────────────────────────────────────────────────────────────────────────────────


def proto(batch: Batch, rng: np.random.Generator) -> DataProto:
    """The batch as the rollout gives it: prompts padded on the left, responses on the right."""
    rollouts = batch.rollouts
    longest = max(map(len, rollouts.prompts))
    prompts = torch.tensor([[PAD] * (longest - len(p)) + p for p in rollouts.prompts])
    present = torch.tensor(rollouts.present)
    responses = torch.where(present, torch.tensor(rollouts.ids), PAD)
    attended = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in rollouts.prompts])
    attention = torch.cat([attended, present.long()], dim=1)
    names = {group: str(uuid.UUID(bytes=rng.bytes(16), version=4)) for group in dict.fromkeys(batch.uids)}
    tensors = {
        "prompts": prompts, "responses": responses, "input_ids": torch.cat([prompts, responses], dim=1),
        "attention_mask": attention, "position_ids": (attention.cumsum(dim=1) - 1).clamp(min=0),
        "response_mask": torch.tensor(rollouts.chosen).long(),
        "rollout_log_probs": torch.tensor(rollouts.log_probs, dtype=torch.float32),
    }  # fmt: skip
    uids = np.array([names[group] for group in batch.uids], dtype=object)
    return DataProto.from_dict(tensors=tensors, non_tensors={"uid": uids})


def flat(data: DataProto, column: Any) -> Tensor:
    """A model's output over the tokens of prompts and responses without padding, where slot t is said one earlier."""
    width = data.batch["responses"].shape[1]
    wide = torch.zeros(data.batch["attention_mask"].shape, dtype=torch.float32)
    wide[:, -width - 1 : -1] = torch.tensor(np.asarray(column), dtype=torch.float32)
    return wide[data.batch["attention_mask"].bool()]


def on_responses(data: DataProto, column: Any) -> Tensor:
    """The same brought back to responses by verl: 0 on pads, measured on tool output."""
    padded: Tensor = no_padding_2_padding(flat(data, column), data.batch)
    return padded


def score_rows(data: DataProto, batch: Batch, rng: np.random.Generator, asked: Asked) -> None:
    """token_level_scores as the reward loop writes them: on the last attended token."""
    width = data.batch["responses"].shape[1]
    last = data.batch["attention_mask"][:, -width:].sum(dim=1) - 1
    scores = torch.zeros(len(last), width)
    outcome = torch.tensor(batch.outcomes, dtype=torch.float32)
    if asked.estimator == "gdpo":
        form = torch.tensor(rng.random(len(last)) < 0.7).float() * (0.0 if "zero" in asked.kind else 0.5)
        data.non_tensor_batch |= {"accuracy_reward": outcome.numpy(), "format_reward": form.numpy()}
        outcome = outcome + form
    scores[torch.arange(len(last)), last] = outcome
    data.batch["token_level_scores"] = scores
    if asked.estimator == "remax":  # what greedy answers to the same prompts got
        greedy = {group: rng.normal() if "zero" not in asked.kind else 0.0 for group in dict.fromkeys(batch.uids)}
        data.batch["reward_baselines"] = torch.tensor([greedy[g] for g in batch.uids], dtype=torch.float32)


# ── verl's part ────────────────────────────────────────────────────────────────────────────────────────────────────


def credit(data: DataProto, batch: Batch, asked: Asked) -> dict[str, float]:
    """Log-probs, values, rewards and advantages in the order of fit()."""
    metrics: dict[str, float] = {}
    data.batch["old_log_probs"] = on_responses(data, batch.old)
    if asked.loss == "bypass_mode":
        data.batch["old_log_probs"] = data.batch["rollout_log_probs"]
    if asked.beta is not None or asked.kl_loss:
        data.batch["ref_log_prob"] = on_responses(data, batch.reference)
    if "optimal_token_baseline" in asked.estimator:
        data.batch["sum_pi_squared"] = on_responses(data, batch.squares)
    if asked.estimator == "gae":
        data.batch["values"] = on_responses(data, batch.values)
    if asked.beta is None:
        data.batch["token_level_rewards"] = data.batch["token_level_scores"]
    else:
        data, found = apply_kl_penalty(data, core_algos.FixedKLController(asked.beta), asked.penalty)
        metrics |= found
    if asked.correction:
        data, found = compute_rollout_correction_and_add_to_batch(data, OmegaConf.create(asked.correction))
        metrics |= found
    algorithm = OmegaConf.create({
        "gamma": asked.gamma, "lam": asked.lam, "norm_adv_by_std_in_grpo": asked.divide,
        "gdpo_reward_keys": ["accuracy_reward", "format_reward"],
    })  # fmt: skip
    compute_advantage(
        data,
        asked.estimator,
        asked.gamma,
        asked.lam,
        batch.samples,
        norm_adv_by_std_in_grpo=asked.divide,
        config=algorithm,
    )
    metrics |= compute_data_metrics(data, use_critic=asked.estimator == "gae")
    return metrics


def update(data: DataProto, batch: Batch, asked: Asked, epochs: int, parts: int) -> dict[str, float]:
    """The losses of one pass over the batch in `parts` micro-batches, as the workers log them, and the size of the
    gradient that they add up to on the log-probs."""
    config = ActorConfig(
        strategy="fsdp", rollout_n=batch.samples, ppo_micro_batch_size_per_gpu=1, ppo_epochs=epochs,
        loss_agg_mode=asked.mode, use_kl_loss=asked.kl_loss, kl_loss_coef=0.001, entropy_coeff=0.0,
        policy_loss=PolicyLossConfig(loss_mode=asked.loss, dro_beta=0.1),
    )  # fmt: skip
    new = flat(data, batch.new if epochs > 1 else batch.old).requires_grad_()
    sizes = data.batch["attention_mask"].sum(dim=1).tolist()
    logged: dict[str, Any] = {}
    total, start = int(data.batch["response_mask"].sum()), 0
    for rows in np.array_split(np.arange(len(sizes)), parts):
        part = left_right_2_no_padding(data.select_idxs(rows).to_tensordict())
        tensordict_utils.assign_non_tensor(part, dp_size=1, global_batch_size=len(sizes), batch_num_tokens=total)
        end = start + sum(sizes[i] for i in rows)
        loss, metrics = ppo_loss(config, {"log_probs": new[start:end]}, part)
        loss.backward()  # as the engine does it, micro-batch after micro-batch
        found = dict(metrics)
        if asked.estimator == "gae":
            critic = CriticConfig(strategy="fsdp", ppo_micro_batch_size_per_gpu=1, loss_agg_mode=asked.mode)
            said = flat(data, batch.new_values if epochs > 1 else batch.values)[start:end]
            found |= value_loss(critic, {"values": said}, part)[1]
        for name, value in found.items():
            logged.setdefault(name, []).append(value)
        start = end
    assert new.grad is not None
    return reduced(logged) | {GRADIENT: float(new.grad.norm())}


def reduced(logged: dict[str, list[Any]]) -> dict[str, float]:
    """Micro-batches' metrics by verl's own rules, under the names that it logs."""
    metrics: dict[str, float] = {}
    for name, found in logged.items():
        if isinstance(found[0], Metric):
            whole = Metric(found[0].aggregation)
            for one in found:
                whole.extend(one)
            found = [whole.aggregate()]
        metrics[name] = float(reduce_metrics({name: found})[name])
    critic = {name: value for name, value in metrics.items() if name.startswith("critic/")}
    actor = {name: value for name, value in metrics.items() if name not in critic}
    return critic | dict(rename_dict(actor, "actor/"))


def settings_of(batch: Batch, asked: Asked, epochs: int) -> dict[str, Any]:
    """Under verl's own names, as a person would copy them out of the configuration."""
    found = {
        "adv_estimator": asked.estimator, "gamma": asked.gamma, "lam": asked.lam, "kl_coef": asked.beta,
        "kl_penalty": asked.penalty if asked.beta is not None else None, "clip_ratio": 0.2, "clip_ratio_low": 0.2,
        "clip_ratio_high": 0.2, "cliprange_value": 0.5 if asked.estimator == "gae" else None,
        "loss_agg_mode": asked.mode, "loss_mode": asked.loss, "ppo_epochs": epochs, "temperature": batch.temperature,
        "top_p": 1.0, "n": batch.samples, "kl_loss_coef": 0.001 if asked.kl_loss else None, "eos_token_id": EOS,
        "pad_token_id": PAD, "bos_token_id": BOS, "global_steps": batch.step,
        "response_length": batch.rollouts.shape[1],
        "norm_adv_by_std_in_grpo": asked.divide if asked.estimator.startswith(("grpo", "gdpo")) else None,
    }  # fmt: skip
    return {name: value for name, value in found.items() if value is not None}


def made(asked: Asked, seed: list[int]) -> Parts:
    rng = np.random.default_rng(seed)
    torch.manual_seed(int(rng.integers(2**31)))  # clip_cov draws tokens
    batch = sample(rng, holes=asked.holes, grouped=asked.estimator not in UNGROUPED, kind=asked.kind)
    data = proto(batch, rng)
    score_rows(data, batch, rng, asked)
    metrics = credit(data, batch, asked)
    epochs = int(rng.integers(1, 3))
    data.batch["entropys"] = on_responses(data, batch.entropy)
    if asked.mode != MODES[-1]:  # there it is a mean over pads too: findings_verl.py
        entropy = core_algos.agg_loss(data.batch["entropys"], data.batch["response_mask"], asked.mode)
        metrics["actor/entropy"] = entropy.item()
    if asked.update:
        parts = 1 if asked.loss == "geo_mean" else min(int(rng.integers(1, 4)), len(batch.uids))  # findings_verl.py
        metrics |= update(data, batch, asked, epochs, parts)
        data.batch["new_log_probs"] = on_responses(data, batch.new if epochs > 1 else batch.old)
        if asked.estimator == "gae":
            data.batch["new_values"] = on_responses(data, batch.new_values if epochs > 1 else batch.values)
    columns = {name: column.contiguous() for name, column in data.batch.items()}
    rows = {name: entries.tolist() for name, entries in data.non_tensor_batch.items()}
    scalars = {name: float(value) for name, value in metrics.items() if np.isfinite(value) and name != GRADIENT}
    return Parts(columns, rows, settings_of(batch, asked, epochs), scalars)


def save_proto(writer: Writer, parts: Parts, number: int) -> None:
    """The batch as DataProto.save_to_disk pickles it, with what fit() keeps in meta_info."""
    path = writer.out / writer.part / f"data_proto_{number}.pkl"
    rows = {name: np.array(entries, dtype=object) for name, entries in parts.rows.items()}
    about = {"temperature": parts.settings["temperature"], "global_steps": parts.settings["global_steps"]}
    DataProto.from_dict(tensors=parts.columns, non_tensors=rows, meta_info=about).save_to_disk(str(path))
    writer.note(path, "saved by DataProto", "float32", False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    writer = Writer(asked.out, "verl")
    for number, one in enumerate(plan()):
        parts = made(one, [asked.seed, number])
        writer.add(one.lot, parts)
        if number % 16 == 0:
            save_proto(writer, parts, number)
    print(f"{len(writer.index.read_text().splitlines())} dumps of verl in {asked.out}")


if __name__ == "__main__":
    main()
