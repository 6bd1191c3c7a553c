"""TRL's own PPOTrainer on the toy model, alone, with columns kept by hand, and watched; prints what differs as JSON.

Run by an interpreter that has TRL 1.12: python real_trl_ppo.py STEPS '{"whiten_rewards": true}'
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TRL_EXPERIMENTAL_SILENCE": "1"}
warnings.filterwarnings("ignore")
sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from audit_trl import CountOfAs  # noqa: E402
from datasets import Dataset  # noqa: E402
from transformers import PrinterCallback  # noqa: E402
from trl.experimental.ppo import PPOConfig, PPOTrainer  # noqa: E402
from trl_toys import LETTERS, tiny_critic, tiny_llama, tokenizer  # noqa: E402

import mingce  # noqa: E402
from mingce.record.run import Run  # noqa: E402
from mingce.watching import recorder  # noqa: E402

NAMES = {
    "token_ids": "responses", "old_log_probs": "logprobs", "ref_log_probs": "ref_logprobs", "values": "values",
    "rewards": "rewards", "advantages": "advantages", "returns": "returns", "kl": "kl", "response_mask": "mask",
    "value_mask": "mask_p1", "new_log_probs": "new_logprobs", "ratio": "ratio", "new_values": "vpred",
}  # fmt: skip


class ByHand(PPOTrainer):  # type: ignore[misc]
    """Keeps train()'s variables when it logs, and those of the update when it sums up a micro-batch's entropy."""

    seen: list[dict[str, Any]]

    def log(self, logs: dict[str, float], *rest: Any, **more: Any) -> None:
        found = sys._getframe(1).f_locals
        kept = {name: found[name].clone() for name in NAMES.values() if name in found}
        kept |= {
            "scores": found["scores"].clone(),
            "mask": ~found["padding_mask"],
            "mask_p1": ~found["padding_mask_p1"],
        }
        for name in ("new_logprobs", "ratio", "vpred"):
            kept[name] = torch.empty_like(found["logprobs"])
            for rows, part in self.updates[-self.args.num_mini_batches * self.args.gradient_accumulation_steps :]:
                kept[name][rows] = part[name]
        self.seen.append(kept)
        super().log(logs, *rest, **more)


def keep_updates(made: Any) -> None:
    """The columns of each micro-batch, by a call that comes after the loss: the gradients are dropped."""
    made.updates = []
    drop = made.optimizer.zero_grad

    def zero_grad(*given: Any, **named: Any) -> Any:
        found = sys._getframe(1).f_locals
        if "micro_batch_inds" in found:
            part = {name: found[name].detach().clone() for name in ("new_logprobs", "ratio", "vpred")}
            made.updates.append((torch.tensor(found["micro_batch_inds"]), part))
        return drop(*given, **named)

    made.optimizer.zero_grad = zero_grad


def trainer(kind: type[PPOTrainer], folder: str, steps: int, changed: dict[str, Any]) -> Any:
    policy, reference, critic = tiny_llama(), tiny_llama(), tiny_critic()
    reference.load_state_dict(policy.state_dict())
    rng = np.random.default_rng(0)
    data = Dataset.from_list(
        [{"input_ids": [1, *rng.integers(3, len(LETTERS), rng.integers(2, 12)).tolist()]} for _ in range(512)]
    )
    settings: dict[str, Any] = {
        "per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "num_mini_batches": 2, "num_ppo_epochs": 2,
        "local_rollout_forward_batch_size": 32, "total_episodes": 32 * steps, "response_length": 24,
        "stop_token": "eos", "learning_rate": 1e-4, "kl_coef": 0.05, "missing_eos_penalty": 1.0,
        "num_sample_generations": 0, "report_to": "none", "save_strategy": "no", "logging_steps": 1,
        "disable_tqdm": True, "use_cpu": True, "bf16": False, "gradient_checkpointing": False, "seed": 0,
    }  # fmt: skip
    made = kind(
        args=PPOConfig(output_dir=folder, **(settings | changed)), processing_class=tokenizer(), model=policy,
        ref_model=reference, reward_model=CountOfAs(), value_model=critic, train_dataset=data,
        eval_dataset=data.select(range(8)),
    )  # fmt: skip
    made.remove_callback(PrinterCallback)
    np.random.seed(0)  # TRL draws its minibatches from it
    return made


def history(made: Any) -> list[dict[str, Any]]:
    """What was logged, without clocks and without our counts."""
    lines = [[(k, v) for k, v in line.items() if k != "eps"] for line in made.state.log_history]
    return [{name: value for name, value in line if not name.startswith("audit/")} for line in lines]


def differences(run: Path, by_hand: Any) -> dict[str, float]:
    ledger, worst = Run.open(run, readonly=True).ledger, dict.fromkeys([*NAMES, "outcome"], 0.0)
    for step, theirs in enumerate(by_hand.seen, 1):
        for row, ours in enumerate(ledger.rollouts(step, range(ledger.count(step)))):
            for name, source in NAMES.items():
                kept = theirs[source][row][: len(ours[name])].tolist()
                worst[name] = max(worst[name], *(abs(a - b) for a, b in zip(ours[name], kept, strict=True)))
            worst["outcome"] = max(worst["outcome"], abs(ours["outcome"] - float(theirs["scores"][row])))
    return worst


def main() -> None:
    torch.set_num_threads(1)
    recorder.WAITING = 10_000  # every step is asked for, and a toy's steps are shorter than an audit
    steps, changed = int(sys.argv[1]), json.loads(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        alone = trainer(PPOTrainer, folder, steps, changed)
        alone.train()
        by_hand = trainer(ByHand, folder, steps, changed)
        by_hand.seen = []
        keep_updates(by_hand)
        by_hand.train()
        made, run = trainer(PPOTrainer, folder, steps, changed), Path(folder) / "run"
        watched = mingce.watch(made, run, audit_every=1)
        assert watched is not None
        made.train()
        mingce.unwatch(made)
        audits = [json.loads(line) for line in (run / "audit.jsonl").read_text().splitlines()]
        weights = zip(alone.model.parameters(), made.model.parameters(), strict=True)
        found = {
            "same_log": history(alone) == history(made),
            "same_weights": all(torch.equal(a, b) for a, b in weights),
            "differences": differences(run, by_hand),
            "audits": len(audits),
            "alarms": [
                [line["step"], one["code"]]
                for line in audits for one in line["findings"] if one["severity"] in ("bug", "suspicious")
            ],
            "dropped": watched.dropped,
            "failures": watched.failures,
            "logged": sum("audit/bugs" in line for line in made.state.log_history) > 0,
        }  # fmt: skip
    print("FOUND", json.dumps(found))


if __name__ == "__main__":
    main()
