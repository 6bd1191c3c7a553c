"""Small models that a plan counts, and jobs for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig

from mingce.plan import roles
from mingce.plan.families import shape_of
from mingce.plan.job import Job, Learning, Lengths
from mingce.plan.shape import ModelShape

ROOT = Path(__file__).parents[1]


def on_meta(config: PretrainedConfig, auto: Any = AutoModelForCausalLM) -> Any:
    with torch.device("meta"):
        return auto.from_config(config)


def numbers(model: Any, *, learning: bool = False) -> int:
    return sum(p.numel() for p in model.parameters() if p.requires_grad or not learning)


def shape(config: PretrainedConfig) -> ModelShape:
    return shape_of(config.to_dict(), config.model_type, "here")


def job_of(role: roles.RoleModel, rows: int, prompt: int, response: int, ranks: int = 1, **more: Any) -> Job:
    """A job whose micro-batch is `rows` rows of one rank."""
    lengths = Lengths(prompt, response)
    settings: dict[str, Any] = {
        "prompts": rows * ranks,
        "samples": 1,
        "longest": lengths,
        "expected": lengths,
        "micro_batch_tokens": rows * lengths.row,
        "decoded_rows": rows,
        "actor": role if role.name == "actor" else roles.actor(role.shape),
        "critic": role if role.name == "critic" else None,
        "reference": None,
        "reward": None,
        "actor_learning": Learning(rows * ranks, 1),
        "critic_learning": Learning(rows * ranks, 1),
        "precision": roles.Precision(4, 4),
    }
    return Job(**(settings | more))


SMALL: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 176,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "pad_token_id": None,
}
TINY: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 200,
    "hidden_size": 48,
    "intermediate_size": 100,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
