"""TRL's own GRPOTrainer on the toy model, alone, with columns kept by hand, and watched; prints what differs as JSON.

Run by an interpreter that has TRL 1.16: python real_trl_grpo.py STEPS '{"beta": 0.04}'
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
warnings.filterwarnings("ignore")
sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from datasets import Dataset  # noqa: E402
from transformers import PrinterCallback  # noqa: E402
from trl_toys import LETTERS, tiny_llama, tokenizer  # noqa: E402
from trl_ways import OURS, attach_sampler, classes, rewards, rollout  # noqa: E402

import mingce  # noqa: E402
from mingce.record.run import Run  # noqa: E402
from mingce.watching import recorder  # noqa: E402

NAMES = {
    "token_ids": "completion_ids", "response_mask": "chosen", "attention_mask": "completion_mask",
    "new_log_probs": "new", "old_log_probs": "old_per_token_logps", "ref_log_probs": "ref_per_token_logps",
    "advantages": "advantages", "entropy": "entropies", "rollout_log_probs": "sampling_per_token_logps",
    "importance_weights": "importance_sampling_ratio",
}  # fmt: skip


class ByHand:
    """Keeps what the loss saw; its rows are numbered inside TRL's own dict. Mixed into a trainer of TRL's."""

    seen: list[dict[str, Any]]
    generated: list[torch.Tensor]

    def _calculate_rewards(self, *given: Any, **named: Any) -> torch.Tensor:
        rewards: torch.Tensor = super()._calculate_rewards(*given, **named)  # type: ignore[misc]
        self.rewards = rewards
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        self.generated = []
        output = super()._generate_and_score_completions(inputs)  # type: ignore[misc]
        weights = self.reward_weights  # type: ignore[attr-defined]
        if "old_logps" in output:  # RLOO's loss has them summed up by row
            output |= dict(zip(("old_per_token_logps", "ref_per_token_logps"), self.generated, strict=False))
        outcome = (self.rewards * weights).nansum(1)
        if (bounds := getattr(self, "reward_clip_range", None)) is not None:
            outcome = outcome.clamp(*bounds)
        return output | {"row": torch.arange(len(output["advantages"])), "outcome": outcome}

    def _get_per_token_logps_and_entropies(self, *given: Any, **named: Any) -> Any:
        self.measured = super()._get_per_token_logps_and_entropies(*given, **named)  # type: ignore[misc]
        self.generated.append(self.measured[0].detach().clone())
        return self.measured

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        loss = super()._compute_loss(model, inputs)  # type: ignore[misc]
        kept = {name: one.clone() for name, one in inputs.items() if isinstance(one, torch.Tensor) and one.ndim}
        kept |= {"new": self.measured[0].detach().clone(), "entropies": self.measured[1].detach().clone()}
        kept.setdefault("old_per_token_logps", kept["new"])
        kept["chosen"] = kept["completion_mask"] * kept.get("tool_mask", torch.tensor(1))
        kept["advantages"] = kept["advantages"][:, None] * kept["chosen"]
        if (weights := kept.get("importance_sampling_ratio")) is not None and weights.shape[1] == 1:
            kept["importance_sampling_ratio"] = weights * kept["chosen"]
        self.seen.append(kept | {"step": self.state.global_step + 1})  # type: ignore[attr-defined]
        return loss


def trainer(by_hand: bool, folder: str, steps: int, changed: dict[str, Any]) -> Any:
    rng = np.random.default_rng(0)
    data = [{"prompt": "".join(rng.choice(np.array(LETTERS[3:]), rng.integers(2, 9)))} for _ in range(64)]
    settings: dict[str, Any] = {
        "per_device_train_batch_size": 16, "gradient_accumulation_steps": 1, "num_generations": 4, "max_steps": steps,
        "max_completion_length": 16, "learning_rate": 2e-4, "lr_scheduler_type": "constant", "report_to": "none",
        "save_strategy": "no", "logging_steps": 1, "disable_tqdm": True, "use_cpu": True, "bf16": False,
        "gradient_checkpointing": False, "beta": 0.04,
    }  # fmt: skip
    settings |= {name: value for name, value in changed.items() if name not in OURS}
    kind, config, module = classes(changed.get("kind", "grpo"))
    ends, weights = changed.get("ends", 2.0), getattr(torch, changed.get("dtype", "float32"))
    module.create_model_from_path = lambda *_, **__: tiny_llama(0, ends=ends).to(weights)
    more = {"rollout_func": rollout} if changed.get("sampler") == "rollout" else {}
    if by_hand:
        kind = type(kind.__name__, (ByHand, kind), {"__module__": kind.__module__})
    made = kind(
        model=tiny_llama(0, ends=ends).to(weights), reward_funcs=rewards(changed.get("scored", 1)),
        processing_class=tokenizer(), train_dataset=Dataset.from_list(data),
        args=config(output_dir=folder, **settings), **more,
    )  # fmt: skip
    attach_sampler(made, changed.get("sampler"))
    made.remove_callback(PrinterCallback)
    torch.manual_seed(1)
    return made


def history(made: Any) -> list[dict[str, Any]]:
    """What was logged, without clocks and without our counts."""
    clocks = ("step_time", "train_runtime", "train_samples_per_second", "train_steps_per_second")
    kept = [
        [(k, v) for k, v in line.items() if k not in clocks and "runtime" not in k and "per_second" not in k]
        for line in made.state.log_history
    ]
    return [{name: value for name, value in line if not name.startswith("audit/")} for line in kept]


def differences(run: Path, by_hand: Any) -> dict[str, float]:
    """The largest difference of each column that was recorded; of rows with the same tokens any may be the other."""
    ledger, worst = Run.open(run, readonly=True).ledger, dict[str, float]()
    size = by_hand.args.steps_per_generation
    for start in range(0, len(by_hand.seen), size):
        parts = by_hand.seen[start : start + size]
        if len(parts) < size:  # a pass that training did not end
            break
        step = parts[-1]["step"]
        whole = {name: torch.cat([part[name] for part in parts]) for name in parts[0] if name != "step"}
        whole = {name: column[whole["row"].argsort()] for name, column in whole.items()}
        ours = sorted(ledger.rollouts(step, range(ledger.count(step))), key=_key)
        rows = [{name: column[row].tolist() for name, column in whole.items()} for row in range(len(whole["row"]))]
        for mine, theirs in zip(ours, sorted(rows, key=_their_key), strict=True):
            count = len(mine["token_ids"])
            for name, source in NAMES.items():
                if name in mine and count:
                    gaps = [abs(a - b) for a, b in zip(mine[name], theirs[source][:count], strict=True)]
                    worst[name] = max(worst.get(name, 0.0), *gaps)
            if mine.get("outcome") is not None:
                worst["outcome"] = max(worst.get("outcome", 0.0), abs(mine["outcome"] - theirs["outcome"]))
    return worst


def _key(row: dict[str, Any]) -> Any:
    columns = ("token_ids", "advantages", "new_log_probs", "rollout_log_probs")
    return row["prompt_ids"], *(row[name] for name in columns if name in row)


def _their_key(row: dict[str, Any]) -> Any:
    prompt = [i for i, there in zip(row["prompt_ids"], row["prompt_mask"], strict=True) if there]
    count = sum(row["completion_mask"])
    columns = ("completion_ids", "advantages", "new", "sampling_per_token_logps")
    return prompt, *(row[name][:count] for name in columns if name in row)


def main() -> None:
    torch.set_num_threads(1)
    recorder.WAITING = 10_000  # every step is asked for, and a toy's steps are shorter than an audit
    steps, changed = int(sys.argv[1]), json.loads(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        alone = trainer(False, folder, steps, changed)  # which seeds the generators
        alone.train()
        by_hand = trainer(True, folder, steps, changed)
        by_hand.seen = []
        by_hand.train()
        made, run = trainer(False, folder, steps, changed), Path(folder) / "run"
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
