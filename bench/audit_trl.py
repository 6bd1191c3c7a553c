"""Clean dumps by TRL 1.12.0's PPO, written as .npz for audit_bugs.py. Runs in an environment that has trl, not mingce:

    python -m venv trl && trl/bin/pip install torch==2.13.0 && trl/bin/pip install trl==1.12.0 accelerate datasets
    trl/bin/python bench/audit_trl.py OUT --trained 8 --random 192

trained: PPOTrainer itself on a tiny Llama with random weights; at the end of each batch the variables of train() are
copied out. random: the statements of train() from the padding masks to the advantages, taken out of its source and run
unchanged on the toy model's rollouts.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import inspect
import json
import os
import sys
import textwrap
import types
import warnings
from pathlib import Path
from typing import Any

os.environ |= {"TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
import torch  # noqa: E402
from audit_world import EOS, PAD, Policy, Rollouts, Sampler, draw, rounding_noise, score  # noqa: E402
from datasets import Dataset  # noqa: E402
from trl.experimental.ppo import PPOConfig, PPOTrainer  # noqa: E402
from trl.experimental.ppo import ppo_trainer as trl_ppo  # noqa: E402
from trl_toys import LETTERS, tiny_critic, tiny_llama, tokenizer  # noqa: E402

NAMES = ("logprobs", "ref_logprobs", "values", "rewards", "advantages", "returns", "kl", "scores", "padding_mask",
         "padding_mask_p1", "responses", "queries")  # fmt: skip


def write(path: Path, found: dict[str, Any], settings: dict[str, Any]) -> None:
    """The variables under TRL's own names, and the settings as JSON."""
    arrays = {name: found[name].detach().cpu().numpy() for name in NAMES if name in found}
    np.savez(path, settings=json.dumps(settings), **arrays)


def settings_of(args: Any, pad: int, eos: int) -> dict[str, Any]:
    return {
        "gamma": args.gamma, "lam": args.lam, "beta": args.kl_coef, "kl_estimator": args.kl_estimator,
        "whiten_rewards": args.whiten_rewards, "temperature": args.temperature, "pad_id": pad, "eos_id": eos,
        "estimator": "gae", "max_response_length": args.response_length,
    }  # fmt: skip


# ── train()'s own statements ───────────────────────────────────────────────────────────────────────────────────────


def statements() -> types.CodeType:
    """train()'s statements from `contain_eos_token = …` to the end of the block that computes the advantages."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(PPOTrainer.train)))
    for node in ast.walk(tree):
        if isinstance(node, ast.With):
            targets = [s.targets[0] if isinstance(s, ast.Assign) else None for s in node.body]
            names = [target.id if isinstance(target, ast.Name) else "" for target in targets]
            if "contain_eos_token" in names and "advantages" in names:
                body = node.body[names.index("contain_eos_token") :]
                return compile(ast.Module(body, []), "PPOTrainer.train", "exec")
    raise SystemExit("PPOTrainer.train has no block that makes contain_eos_token and advantages; is this trl 1.12.0?")


def random_batch(seed: int, code: types.CodeType) -> tuple[dict[str, Any], dict[str, Any]]:
    """TRL's arithmetic on rollouts of the toy model; no tool output, which TRL's PPO does not know."""
    rng = np.random.default_rng(seed)
    width, rows, temperature = int(rng.integers(16, 129)), int(rng.integers(8, 65)), float(rng.choice([1.0, 0.7]))
    policy = Policy.new(rng, float(rng.uniform(0.8, 2.5)) / width, 0.0)
    rollouts = draw(rng, policy, Sampler(temperature, noise=rounding_noise(0.0)), rows, 1, width)
    old, _ = score(policy, rollouts, temperature)
    reference, _ = score(policy.moved(rng, float(rng.uniform(0.02, 0.12))), rollouts, temperature)
    outcomes = rng.normal(size=rows) if rng.random() < 0.5 else (rng.random(rows) < 0.5) * 1.0
    values = 0.3 + 0.5 * outcomes[:, None] + 0.3 * rng.normal(size=(rows, width))
    args = types.SimpleNamespace(
        gamma=float(rng.choice([1.0, 0.99])), lam=float(rng.choice([0.95, 0.9, 1.0])),
        kl_coef=float(rng.choice([0.01, 0.05, 0.2])),
        kl_estimator=str(rng.choice(["k1", "k3"])), whiten_rewards=bool(rng.random() < 0.15), temperature=temperature,
        missing_eos_penalty=float(rng.choice([0.5, 1.0])) if rng.random() < 0.3 else None, response_length=width,
    )  # fmt: skip
    measured = {"logprobs": old, "ref_logprobs": reference, "values": values, "scores": outcomes}
    return through_train(code, rollouts, measured, args), settings_of(args, PAD, EOS)


def through_train(code: types.CodeType, rollouts: Rollouts, measured: dict[str, Any], args: Any) -> dict[str, Any]:
    """What train()'s statements make of rollouts and of what the models and the reward say of them."""
    responses = torch.tensor(np.where(rollouts.present, rollouts.ids, PAD))
    postprocessed = trl_ppo.truncate_response(EOS, PAD, responses)
    space = dict(vars(trl_ppo)) | {
        "self": types.SimpleNamespace(args=args, processing_class=types.SimpleNamespace(eos_token_id=EOS)),
        "args": args, "responses": responses, "postprocessed_responses": postprocessed,
        "sequence_lengths": trl_ppo.first_true_indices(postprocessed == PAD) - 1,
    }  # fmt: skip
    space |= {name: torch.tensor(column, dtype=torch.float32) for name, column in measured.items()}
    with torch.no_grad():
        exec(code, space)
    longest = max(map(len, rollouts.prompts))
    space["queries"] = torch.tensor([[PAD] * (longest - len(p)) + p for p in rollouts.prompts])
    return space


# ── the trainer itself ─────────────────────────────────────────────────────────────────────────────────────────────


class Enough(Exception):
    pass


class Watched(PPOTrainer):  # type: ignore[misc]
    """Copies train()'s variables out when it logs, which is the end of a batch."""

    out: Path
    wanted: int

    def log(self, logs: dict[str, float], *rest: Any, **more: Any) -> None:
        number = int(self.state.global_step)  # from 1
        settings = settings_of(self.args, self.processing_class.pad_token_id, self.processing_class.eos_token_id)
        write(self.out / f"trained-{number:03}.npz", sys._getframe(1).f_locals, settings | {"step": number})
        if number >= self.wanted:
            raise Enough


class CountOfAs(torch.nn.Module):
    """A reward in the shape of a model, as TRL wants one: the share of one letter, read at the last token."""

    base_model_prefix = "rule"

    class Rule(torch.nn.Module):
        def forward(self, input_ids: torch.Tensor, **_: Any) -> Any:
            counted = (input_ids % 5 == 0).float().cumsum(1) / 8
            return types.SimpleNamespace(hidden_states=(counted[..., None],))

    def __init__(self) -> None:
        super().__init__()
        self.rule, self.score = self.Rule(), torch.nn.Identity()


def train(trainer_class: type[Watched], out: Path, *, reseed: bool = True, **changed: Any) -> None:
    """PPOTrainer on the tiny model until `trainer_class` has had enough; `changed` are other settings. TRL draws its
    minibatches from NumPy's generator and does not seed it: `reseed` does, so that a run repeats."""
    policy, reference, critic = tiny_llama(), tiny_llama(), tiny_critic()
    reference.load_state_dict(policy.state_dict())
    rng = np.random.default_rng(0)
    data = Dataset.from_list(
        [{"input_ids": [1, *rng.integers(3, len(LETTERS), rng.integers(2, 12)).tolist()]} for _ in range(512)]
    )
    settings: dict[str, Any] = {
        "per_device_train_batch_size": 8, "gradient_accumulation_steps": 4, "num_mini_batches": 2, "num_ppo_epochs": 2,
        "local_rollout_forward_batch_size": 32, "total_episodes": 10**6, "response_length": 32, "stop_token": "eos",
        "temperature": 1.0, "learning_rate": 1e-4, "kl_coef": 0.05, "missing_eos_penalty": 1.0,
        "num_sample_generations": 0, "report_to": "none", "save_strategy": "no", "logging_steps": 1,
        "disable_tqdm": True, "use_cpu": True, "bf16": False, "gradient_checkpointing": False, "seed": 0,
    }  # fmt: skip
    trainer = trainer_class(
        args=PPOConfig(output_dir=str(out / "trainer"), **(settings | changed)), processing_class=tokenizer(),
        model=policy, ref_model=reference, reward_model=CountOfAs(), value_model=critic, train_dataset=data,
        eval_dataset=data.select(range(8)),
    )  # fmt: skip
    if reseed:
        np.random.seed(trainer.args.seed)
    with contextlib.suppress(Enough):
        trainer.train()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--trained", type=int, default=8, help="batches of the trainer itself")
    parser.add_argument("--random", type=int, default=192, help="random batches through its statements")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.trained:
        Watched.out, Watched.wanted = asked.out, asked.trained
        train(Watched, asked.out)
    code = statements()
    for number in range(asked.random):
        write(asked.out / f"random-{number:03}.npz", *random_batch(number, code))
    print(f"{len(list(asked.out.glob('*.npz')))} dumps in {asked.out}")


if __name__ == "__main__":
    main()
