"""A small ragged batch as each trainer would write it, and opening it again."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from mingce.importers import open_dump
from mingce.ledger import Ledger
from mingce.record.dump import Dump
from mingce.record.store import LedgerStore

B, P, T = 4, 3, 5
LENGTHS = [5, 3, 1, 4]


def batch(seed: int = 0, rows: int = B, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """A verl batch: prompts left-padded, responses right-padded."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.tensor((LENGTHS * rows)[:rows])
    mask = (torch.arange(T) < lengths[:, None]).long()
    before = torch.ones(rows, P, dtype=torch.long)
    before[1, 0] = 0
    attention = torch.cat([before, mask], dim=1)

    def floats() -> torch.Tensor:
        return torch.randn(rows, T, generator=draw).to(dtype)

    made = {
        "prompts": torch.randint(5, 50, (rows, P), generator=draw) * before,
        "responses": torch.randint(5, 50, (rows, T), generator=draw) * mask,
        "attention_mask": attention,
        "position_ids": (attention.cumsum(1) - 1).clamp(min=0),
        "response_mask": mask,
    }
    made["input_ids"] = torch.cat([made["prompts"], made["responses"]], dim=1)
    names = ("old_log_probs", "rollout_log_probs", "ref_log_prob", "token_level_scores", "token_level_rewards")
    return made | {name: floats() for name in (*names, "values", "returns", "advantages")}


def one(path: Path, **options: Any) -> Dump:
    dumps = open_dump(path, **options)
    assert len(dumps) == 1
    return dumps[0]


def same(found: Any, expected: torch.Tensor) -> None:
    np.testing.assert_array_equal(found, expected.double().numpy() if found.dtype == np.float64 else expected.numpy())


def lines(path: Path, records: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def trl_tensors() -> dict[str, torch.Tensor]:
    made = batch()
    padding = made["response_mask"] == 0
    p1 = torch.arange(T) > torch.tensor(LENGTHS)[:, None]
    logprobs = made["old_log_probs"].masked_fill(padding, 1.0)
    return {
        "queries": made["prompts"], "responses": made["responses"], "logprobs": logprobs,
        "ref_logprobs": made["ref_log_prob"].masked_fill(padding, 1.0), "values": made["values"],
        "scores": torch.randn(B), "rewards": made["token_level_rewards"], "advantages": made["advantages"],
        "returns": made["returns"], "padding_mask": padding, "padding_mask_p1": p1,
    }  # fmt: skip


@dataclass
class Experience:
    """OpenRLHF's, pickled under its name."""

    sequences: Any = None
    attention_mask: Any = None
    action_mask: Any = None
    action_log_probs: Any = None
    base_action_log_probs: Any = None
    values: Any = None
    returns: Any = None
    advantages: Any = None
    kl: Any = None
    rewards: Any = None
    prompts: list[str] = field(default_factory=list)
    info: dict[str, Any] = field(default_factory=dict)


def experience(seed: int, whole: bool) -> tuple[Experience, dict[str, torch.Tensor]]:
    """`whole`: action columns over all of the sequence but its first token, as OpenRLHF does since 0.8."""
    made = batch(seed)
    pad = torch.zeros(B, P - 1)

    def wide(name: str) -> torch.Tensor:
        column = made[name]
        return torch.cat([pad.to(column.dtype), column], dim=1) if whole else column

    return Experience(
        sequences=made["input_ids"], attention_mask=made["attention_mask"], action_mask=wide("response_mask").bool(),
        action_log_probs=wide("old_log_probs"), base_action_log_probs=wide("ref_log_prob"), values=wide("values"),
        returns=wide("returns"), advantages=wide("advantages"), kl=wide("token_level_scores"),
        rewards=torch.arange(B).float(), info={"reward": torch.arange(B).float()}, prompts=["p"] * B,
    ), made  # fmt: skip


def prime_records(rank: int, step: int = 3) -> list[dict[str, Any]]:
    made = batch(rank)
    records: list[dict[str, Any]] = []
    for row, length in enumerate(LENGTHS):
        n = P + length
        records.append(
            {
                "schema_version": 1, "step": step, "export_step": step, "rank": rank, "micro_step": 0, "run_id": None,
                "token_ids": made["input_ids"][row, :n].tolist(), "position_ids": list(range(n)),
                "loss_mask": [False] * P + [True] * length, "advantages": [0.5 * row] * n, "losses": [{}] * n,
                "rewards": [float(row)] * n,
                "inference_logprobs": [0.0] * P + made["rollout_log_probs"][row, :length].tolist(),
                "trainer_logprobs": [None] * P + made["old_log_probs"][row, :length].tolist(),
                "entropy": [0.1] * n, "mismatch_kl": [None] * n, "importance_ratio": [1.0] * n,
            }
        )  # fmt: skip
    return records


def slime_rank(rank: int, rollout_id: int = 4) -> dict[str, Any]:
    made = batch(rank)

    def ragged(name: str) -> list[torch.Tensor]:
        return [made[name][row, :length] for row, length in enumerate(LENGTHS)]

    data = {
        "tokens": [made["input_ids"][row, : P + length] for row, length in enumerate(LENGTHS)],
        "loss_masks": [torch.ones(length, dtype=torch.int) for length in LENGTHS], "response_lengths": LENGTHS,
        "total_lengths": [P + length for length in LENGTHS], "sample_indices": [B * rank + i for i in range(B)],
        "rewards": [0.1] * B, "raw_reward": [1.0, 0.0, 1.0, 0.0], "truncated": [1, 0, 0, 0],
        "log_probs": ragged("old_log_probs"), "ref_log_probs": ragged("ref_log_prob"), "values": ragged("values"),
        "advantages": ragged("advantages"), "returns": ragged("returns"),
    }  # fmt: skip
    return {"rollout_id": rollout_id, "rank": rank, "rollout_data": data}


def nemo_records() -> list[dict[str, Any]]:
    made = batch()
    width = P + T
    records = []
    for row, length in enumerate(LENGTHS):
        mask = [0] * P + [1] * length + [0] * (T - length)
        records.append(
            {
                "token_ids": [made["input_ids"][row].tolist()], "token_loss_mask": [mask],
                "sample_loss_mask": [0 if row == 3 else 1], "advantages": [[0.5] * width], "rewards": [float(row)],
                "generation_logprobs": [[0.0] * P + made["rollout_log_probs"][row].tolist()],
                "prev_logprobs": [[0.0] * P + made["old_log_probs"][row].tolist()], "input_lengths": [P + length],
                "content": ["text"], "idx": row,
            }
        )  # fmt: skip
    return records


def run_directory(root: Path, whiten: bool = True) -> Ledger:
    made = batch()
    mask = made["response_mask"].bool()
    ledger = Ledger(made["responses"], mask, rows={"uid": list("abcd"), "group": list("xxyy")})
    columns = {"old_log_probs": made["old_log_probs"], "scores": made["token_level_scores"]}
    columns |= {"rewards": made["token_level_rewards"], "values": made["values"], "advantages": made["advantages"]}
    ledger.fill(columns, {"returns": made["returns"]})
    if whiten:
        ledger.fill({"whitened_advantages": made["ref_log_prob"]})
    store = LedgerStore(root / "ledger")
    for step in (2, 1):
        store.write(step, ledger)
    config = {"estimator": "gae", "credit": {"gamma": 0.99, "lam": 0.9}, "kl": {"reward_coef": 0.01, "estimator": "k1"}}
    (root / "config.yaml").write_text(yaml.safe_dump(config | {"critic": {"value_clip": 0.5}}))
    lines(root / "metrics.jsonl", [{"step": s, "actor/pg_loss": 0.25 * s, "critic/kl_coeff": 0.02} for s in (1, 2)])
    return ledger


def plain_columns() -> dict[str, torch.Tensor]:
    made = batch()
    return {
        "token_ids": made["responses"], "eos_mask": made["response_mask"], "logprobs": made["old_log_probs"],
        "values": made["values"], "raw_advantages": made["returns"], "advantages": made["advantages"],
    }  # fmt: skip


def verifiers_episode(row: int, kind: str = "train") -> dict[str, Any]:
    """One rollout as verifiers records it: a prompt, an answer, a tool's result and a second answer."""
    made, length = batch(), LENGTHS[row]
    ids, log_probs = made["input_ids"][row].tolist(), made["rollout_log_probs"][row].tolist()
    first = min(2, length)
    nodes: list[dict[str, Any]] = [
        {"message": {"role": "user"}, "token_ids": ids[:P], "mask": [False] * P, "logprobs": []},
        {"parent": 0, "message": {"role": "assistant"}, "sampled": True, "token_ids": ids[P : P + first],
         "mask": [True] * first, "logprobs": log_probs[:first]},
    ]  # fmt: skip
    if length > first:
        rest = length - first
        nodes += [
            {"parent": 1, "message": {"role": "tool"}, "token_ids": [7, 8], "mask": [False] * 2, "logprobs": []},
            {"parent": 2, "message": {"role": "assistant"}, "sampled": True, "token_ids": [9, *ids[P + first :][:rest]],
             "mask": [False] + [True] * rest, "logprobs": log_probs[first:length]},
        ]  # fmt: skip
    trace = {
        "version": 1, "id": f"{kind}{row}", "task": {"type": "Task", "data": {}}, "nodes": nodes,
        "calls": [{"node": 1, "finish_reason": "length" if row == 1 else "stop"}], "info": {"kind": kind}, "ok": True,
        "rewards": {"right": {"score": float(row), "weight": 0.5}, "style": None}, "stop_condition": "agent_completed",
    }  # fmt: skip
    work = {"type": kind, "step": 2, "policy": {"start": 1, "end": 2}}
    return {
        "id": f"episode{row}", "env": {"id": "gsm8k", "name": "math"}, "task": {"type": "Task"}, "ok": True,
        "group": {"id": f"g{row // 2}"}, "run": {"type": "train", "id": "r", "work": work}, "traces": [trace],
    }  # fmt: skip


def trace_updates(row: int, step: int, trained: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """What prime-rl's orchestrator and trainer write about that rollout; the trainer saw `trained` of its tokens."""
    nodes = verifiers_episode(row)["traces"][0]["nodes"]
    mask = [chosen for node in nodes for chosen in node["mask"]]
    info = {"effective": True, "ship": {"step": step, "time": 1.5}, "advantage": 0.5 - row}
    streams = {"trainer_logprobs": [-0.25 if one else None for one in mask[:trained]],
               "entropies": [0.5 if one else None for one in mask[:trained]]}  # fmt: skip
    about = {"version": 1, "trace_id": f"train{row}"}
    return (
        about | {"info": info, "branches": [{"index": 0, "advantages": [0.5 - row] * len(mask)}]},
        about | {"info": {}, "branches": [{"index": 0, **streams}]},
    )


def slime_gathered() -> dict[str, Any]:
    """slime's train data of two ranks in one file, sorted into the rollout's order."""
    samples, layout = [], []
    for rank in (0, 1):
        data = slime_rank(rank)["rollout_data"]
        places = [2 * row + rank for row in range(B)]  # ranks take turns
        for row in range(B):
            sample = {"data_parallel_rank": rank, "sample_index": data["sample_indices"][row]}
            sample["rollout_position"] = places[row]
            samples.append(sample | {k: v[row] for k, v in data.items() if k not in ("sample_indices", "raw_reward")})
        layout.append(
            {"rank": rank, "data_parallel_rank": rank, "sample_indices": data["sample_indices"], "partition": places,
             "micro_batch_indices": [[[0, 1], [2, 3]]], "num_microbatches": [2]}
        )  # fmt: skip
    samples.sort(key=lambda sample: sample["rollout_position"])
    raw = [float(place) for place in range(2 * B)]
    return {"format_version": 2, "rollout_id": 4, "rank": 0, "samples": samples, "dp_shards": layout, "raw_reward": raw}


def grpo_tensors() -> dict[str, torch.Tensor]:
    """What TRL's GRPOTrainer._generate_and_score_completions gives: prompts left-padded, a tool's result in row 0."""
    made = batch()
    tools = made["response_mask"].clone()
    tools[0, 1:3] = 0
    before = made["attention_mask"][:, :P]
    return {
        "prompt_ids": made["prompts"][[0, 0, 1, 1]], "prompt_mask": before[[0, 0, 1, 1]],
        "completion_ids": made["responses"], "completion_mask": made["response_mask"], "tool_mask": tools,
        "advantages": torch.tensor([1.0, -1.0, 0.5, -0.5]), "num_items_in_batch": torch.tensor(11),
        "old_per_token_logps": made["old_log_probs"], "ref_per_token_logps": made["ref_log_prob"],
        "sampling_per_token_logps": made["rollout_log_probs"], "importance_sampling_ratio": torch.rand(B, 1),
    }  # fmt: skip
