"""Clean dumps by TRL 1.16.0's GRPOTrainer, run on a tiny model. Needs an environment that has trl, not mingce:

    python -m venv trl && trl/bin/pip install torch==2.13.0 && trl/bin/pip install trl==1.16.0
    trl/bin/python bench/clean_grpo.py OUT --seed 0

Two kinds of dump: what _generate_and_score_completions returns, with the rewards it compared (generation), and what one
pass of _compute_loss over them saw and gave (loss). The trainer's columns keep their names; rewards and the number of
the prompt travel through its shuffling and splitting inside its own dict.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

os.environ |= {"TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
import torch  # noqa: E402
from clean_files import Parts, Writer  # noqa: E402
from datasets import Dataset  # noqa: E402
from transformers import PrinterCallback  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402
from trl.trainer import grpo_trainer  # noqa: E402
from trl_toys import EOS, LETTERS, tiny_llama, tokenizer  # noqa: E402

GENERATIONS = 3
COLUMNS = ("completion_ids", "completion_mask", "tool_mask", "advantages", "old_per_token_logps", "ref_per_token_logps",
           "sampling_per_token_logps")  # fmt: skip

Reward = Callable[..., list[float]]


class Enough(Exception):
    pass


def share_of_as(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """A number of its own for nearly every answer."""
    return [sum(i % 5 == 0 for i in ids) / 8 for ids in completion_ids]


def short_enough(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """Right or wrong."""
    return [float(len(ids) < 8) for ids in completion_ids]


def always_one(completion_ids: list[list[int]], **_: Any) -> list[float]:
    return [1.0] * len(completion_ids)


def always_zero(completion_ids: list[list[int]], **_: Any) -> list[float]:
    return [0.0] * len(completion_ids)


RUNS: tuple[tuple[str, dict[str, Any]], ...] = (
    *((loss, {"loss_type": loss}) for loss in ("grpo", "bnpo", "dr_grpo", "dapo", "sapo", "luspo", "vespo")),
    ("cispo", {"loss_type": "cispo", "epsilon_high": 5.0}),
    *((f"{loss}, twice", {"loss_type": loss, "num_iterations": 2, "beta": 0.04}) for loss in ("grpo", "dapo")),
    ("cispo, twice", {"loss_type": "cispo", "num_iterations": 2, "beta": 0.04, "epsilon_high": 5.0}),
    ("beta", {"beta": 0.04}),
    ("beta", {"beta": 0.2, "loss_type": "grpo", "use_bias_correction_kl": True}),
    ("scale_rewards batch", {"scale_rewards": "batch"}),
    ("scale_rewards batch", {"scale_rewards": "batch", "beta": 0.04, "reward": short_enough}),
    ("scale_rewards none", {"scale_rewards": "none"}),
    ("scale_rewards none", {"scale_rewards": "none", "loss_type": "dr_grpo", "reward": short_enough}),
    ("right or wrong", {"reward": short_enough}),
    ("mask_truncated_completions", {"mask_truncated_completions": True}),
    ("mask_truncated_completions", {"mask_truncated_completions": True, "loss_type": "grpo", "num_iterations": 2}),
    ("temperature", {"temperature": 0.7}),
    ("temperature", {"temperature": 1.5, "beta": 0.04, "num_iterations": 2}),
    ("sequence ratios", {"importance_sampling_level": "sequence", "num_iterations": 2, "loss_type": "grpo"}),
    ("micro-batches", {"steps_per_generation": 2, "gradient_accumulation_steps": 2}),
    ("micro-batches", {"steps_per_generation": 2, "gradient_accumulation_steps": 2, "loss_type": "grpo", "beta": 0.04}),
    ("two rewards", {"reward": [share_of_as, short_enough], "reward_weights": [1.0, 0.5]}),
    ("two rewards apart", {"reward": [share_of_as, short_enough], "multi_objective_aggregation": "normalize_then_sum"}),
    ("high-entropy tokens", {"top_entropy_quantile": 0.3, "num_iterations": 2}),
    ("two-sided clip", {"delta": 1.5, "num_iterations": 2, "learning_rate": 1e-2}),
    ("tool output", {"tools": True}),
    ("tool output", {"tools": True, "beta": 0.04, "num_iterations": 2, "loss_type": "grpo"}),
    ("degenerate/equal scores", {"reward": always_one}),
    ("degenerate/equal scores", {"reward": always_one, "beta": 0.04, "scale_rewards": "batch"}),
    ("degenerate/zero scores", {"reward": always_zero, "num_iterations": 2}),
    ("degenerate/single tokens", {"max_completion_length": 1}),
    ("degenerate/one prompt", {"per_device_train_batch_size": 4}),
)


class Kept(GRPOTrainer):  # type: ignore[misc]
    """Writes a dump when answers are scored, and one at each loss."""

    writer: Writer
    lot: str
    rewards: torch.Tensor
    measured: tuple[torch.Tensor, torch.Tensor]
    parts: ClassVar[list[tuple[Any, ...]]] = []

    def _calculate_rewards(self, *given: Any, **named: Any) -> torch.Tensor:
        per_function: torch.Tensor = super()._calculate_rewards(*given, **named)
        self.rewards = (per_function * self.reward_weights).nansum(dim=1)
        return per_function

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        if self._step >= GENERATIONS * self.args.steps_per_generation * self.num_iterations:
            raise Enough
        output = super()._generate_and_score_completions(inputs)
        output["rewards"] = self.rewards
        output["group"] = torch.arange(len(self.rewards)) // self.num_generations
        self.writer.add(f"generation/{self.lot}", self._parts(output))
        return output

    def _get_per_token_logps_and_entropies(self, *given: Any, **named: Any) -> Any:
        found = super()._get_per_token_logps_and_entropies(*given, **named)
        self.measured = found[:2]
        return found

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        loss = super()._compute_loss(model, inputs)
        self.parts.append((inputs, *(column.detach().clone() for column in self.measured), float(loss)))
        if len(self.parts) == self.args.steps_per_generation:
            self.writer.add(f"loss/{self.lot}", self._pass())
            self.parts.clear()
        return loss

    def _pass(self) -> Parts:
        """The micro-batches of one pass over the answers, one below the other."""
        seen, log_probs, entropies, losses = zip(*self.parts, strict=True)
        names = [name for name, column in seen[0].items() if isinstance(column, torch.Tensor) and column.ndim]
        parts = self._parts({name: torch.cat([one[name] for one in seen]) for name in names})
        new = torch.cat(log_probs)
        parts.columns["new_log_probs"] = new
        parts.columns.setdefault("old_per_token_logps", new.clone())  # the loss itself takes it so
        if torch.equal(new, parts.columns["old_per_token_logps"]):  # later passes have the entropy of another policy
            parts.columns["entropy"] = torch.cat(entropies)
        sizes = [len(one["advantages"]) for one in seen]
        parts.rows["micro_batch"] = [number for number, size in enumerate(sizes) for _ in range(size)]
        each = ("clip_ratio", "kl", "entropy", "vespo", "cispo", "sapo")  # said at each loss; the rest once for all
        logged = {
            name: np.mean(said[-len(seen) if name.startswith(each) else -1 :])
            for name, said in self._metrics["train"].items()
            if said
        }
        repeats = {name: value for name, value in logged.items() if np.isfinite(value) and name != "step_time"}
        parts.scalars = {name: float(value) for name, value in repeats.items()}
        parts.scalars["loss"] = sum(losses)
        if self.beta == 0:  # nothing but the policy loss
            parts.scalars["pg_loss"] = sum(losses)
        return parts

    def _parts(self, output: dict[str, Any]) -> Parts:
        columns = {name: output[name].detach().clone() for name in COLUMNS if output.get(name) is not None}
        columns |= {
            "prompt_ids": output["prompt_ids"],
            "prompt_mask": output["prompt_mask"],
            "rewards": output["rewards"],
        }
        return Parts(columns, {"group": output["group"].tolist()}, self._settings(), flat=True)

    def _settings(self) -> dict[str, Any]:
        """Under TRL's own names."""
        names = ("loss_type", "scale_rewards", "beta", "num_iterations", "epsilon", "delta", "temperature", "top_p",
                 "num_generations", "mask_truncated_completions", "importance_sampling_level", "max_completion_length",
                 "multi_objective_aggregation", "top_entropy_quantile", "steps_per_generation")  # fmt: skip
        found = {name: getattr(self.args, name) for name in names}
        found |= {"epsilon_high": self.epsilon_high, "advantage_estimator": "grpo", "eos_token_id": EOS}
        found |= {"pad_token_id": 0, "step": self._step // (self.args.steps_per_generation * self.num_iterations) + 1}
        return {name: value for name, value in found.items() if value is not None}


def with_tools(prompts: list[str], trainer: Kept) -> dict[str, Any]:
    """Answers with a tool's tokens inside, by TRL's rollout_func: what was asked, four tokens of reply, and more."""
    ask = tokenizer()(prompts)["input_ids"]
    first = trainer._generate_single_turn(ask, None, {}, trainer.num_generations)[0]
    rng = np.random.default_rng(trainer.state.global_step)
    ids, mask = [], []
    replies = [rng.integers(3, len(LETTERS), 4).tolist() if one[-1] != EOS else [] for one in first]
    longer = [p + one + reply for p, one, reply in zip(ask, first, replies, strict=True)]
    more = trainer._generate_single_turn(longer, None, {}, trainer.num_generations)[0]
    for one, reply, rest in zip(first, replies, more, strict=True):
        ids.append(one + reply + (rest if reply else []))
        mask.append([1] * len(one) + [0] * len(reply) + ([1] * len(rest) if reply else []))
    return {"prompt_ids": ask, "completion_ids": ids, "logprobs": None, "env_mask": mask}


def run(folder: Path, seed: int, *, reward: Any = share_of_as, tools: bool = False, **changed: Any) -> None:
    rng = np.random.default_rng(seed)
    letters = np.array(LETTERS[3:])
    data = Dataset.from_list([{"prompt": "".join(rng.choice(letters, rng.integers(2, 9)))} for _ in range(64)])
    settings: dict[str, Any] = {
        "per_device_train_batch_size": 16, "gradient_accumulation_steps": 1, "steps_per_generation": 1,
        "num_generations": 4, "max_completion_length": 16, "beta": 0.0, "temperature": 1.0, "learning_rate": 1e-3,
        "lr_scheduler_type": "constant", "max_steps": 10**6, "report_to": "none", "save_strategy": "no",
        "logging_strategy": "no", "disable_tqdm": True, "use_cpu": True, "seed": seed, "bf16": False,
        "gradient_checkpointing": False,
    }  # fmt: skip
    grpo_trainer.create_model_from_path = lambda *_, **__: tiny_llama(seed, ends=2.0)  # the reference is of no hub
    trainer = Kept(
        model=tiny_llama(seed, ends=2.0), reward_funcs=reward, processing_class=tokenizer(), train_dataset=data,
        args=GRPOConfig(output_dir=str(folder), **(settings | changed)), rollout_func=with_tools if tools else None,
    )  # fmt: skip
    trainer.remove_callback(PrinterCallback)
    with contextlib.suppress(Enough):
        trainer.train()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    Kept.writer = writer = Writer(asked.out, "trl-grpo")
    with tempfile.TemporaryDirectory() as folder:
        for number, (lot, changed) in enumerate(RUNS):
            Kept.lot = lot
            run(Path(folder), asked.seed * 100 + number, **changed)
    print(f"{len(writer.index.read_text().splitlines())} dumps of TRL's GRPO in {asked.out}")


if __name__ == "__main__":
    main()
