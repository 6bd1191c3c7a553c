"""`mingce plan` against measurements on this machine: memory of small models, and traffic between processes.

Memory: bytes of tensors in one process (weights, gradients, moments, what autograd keeps, peaks of updates, passes and
sampling) of the embedded model and of random ones of 5 to 19 M parameters, in float32. Traffic: collectives of
engine=ray's own sharding between 2 and 4 gloo processes. Also Python's time to issue a layer of a decoding step.

Usage: python bench/plan.py [--only memory|traffic|launch]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import plan_memory
import plan_traffic
import torch
from transformers import AutoConfig, LlamaConfig, PretrainedConfig

from mingce.models.value_head import ValueModel
from mingce.plan import activations, memory, roles, traffic
from mingce.plan.families import shape_of
from mingce.plan.job import Job, Learning, Lengths

LENGTHS = Lengths(32, 96)
ROWS = 8


def llama_like(
    family: str, hidden: int, inner: int, layers: int, heads: int, vocab: int, **more: Any
) -> dict[str, Any]:
    return {
        "model_type": family,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "vocab_size": vocab,
        "max_position_embeddings": 512,
        "pad_token_id": None,
        **more,
    }


MODELS: dict[str, dict[str, Any]] = {
    "embedded (0.2 M, Llama)": llama_like("llama", 64, 192, 3, 4, 53, num_key_value_heads=4),
    "6 M, Llama": llama_like("llama", 256, 688, 5, 4, 4096, num_key_value_heads=4),
    "19 M, Llama, 3 queries a key": llama_like("llama", 384, 1024, 8, 6, 8192, num_key_value_heads=2),
    "6 M, Qwen2": llama_like("qwen2", 256, 688, 5, 4, 4096, num_key_value_heads=2),
    "6 M, Qwen3": llama_like("qwen3", 256, 688, 5, 4, 4096, num_key_value_heads=2, head_dim=64),
    "5 M, GPT-2": {
        "model_type": "gpt2",
        "vocab_size": 4096,
        "n_embd": 256,
        "n_layer": 5,
        "n_head": 4,
        "n_positions": 512,
        "bos_token_id": None,
        "eos_token_id": None,
    },
    "5 M, GPT-NeoX": llama_like("gpt_neox", 256, 688, 5, 4, 4096),
}

CASES: list[tuple[str, dict[str, Any]]] = [
    ("2 ranks", {"ranks": 2}),
    ("4 ranks", {"ranks": 4}),
    ("3 ranks, uneven", {"ranks": 3}),
    ("2 ranks, bfloat16", {"ranks": 2, "mixed_precision": "bfloat16"}),
    ("4 ranks, bfloat16, checkpointing", {"ranks": 4, "mixed_precision": "bfloat16", "activation_checkpointing": True}),
    ("2 ranks, critic", {"ranks": 2, "critic": True}),
    ("2 ranks, LoRA", {"ranks": 2, "lora": 8}),
    ("2 ranks, no resharding", {"ranks": 2, "reshard": False}),
]


def job_of(
    role: roles.RoleModel, *, ranks: int = 1, compute: int = 4, checkpointing: bool = False, reshard: bool = True
) -> Job:
    """A micro-batch of ROWS rows for every rank."""
    whole = Learning(ROWS * ranks, 1)
    return Job(
        prompts=ROWS * ranks,
        samples=1,
        longest=LENGTHS,
        expected=LENGTHS,
        micro_batch_tokens=ROWS * LENGTHS.row,
        decoded_rows=ROWS,
        actor=role if role.name == "actor" else roles.actor(role.shape),
        critic=role if role.name == "critic" else None,
        reference=None,
        reward=None,
        actor_learning=whole,
        critic_learning=whole,
        precision=roles.Precision(4, compute),
        checkpointing=checkpointing,
        reshard=reshard,
    )


def without_ledger(parts: memory.Parts) -> float:
    return sum(size for kind, size in parts.items() if kind != "ledger")


def ratio(predicted: float, measured: float) -> str:
    if not measured:
        return "0 = 0" if not predicted else "∞"
    return f"{predicted / 1e6:.2f} / {measured / 1e6:.2f} = {predicted / measured:.3f}"


def memory_rows() -> Iterator[tuple[str, ...]]:
    yield "model", "as", "weights, gradients, moments", "kept activations", "update", "pass", "sampling"
    for name, values in MODELS.items():
        config = configuration(values)
        shape = shape_of(config.to_dict(), name, name)
        for kind in ("actor", "critic", "LoRA", "checkpointing"):
            rank, checkpointing = 8 * (kind == "LoRA"), kind == "checkpointing"
            model: Any = plan_memory.build(config, rank=rank)
            role = roles.actor(shape, rank)
            if kind == "critic":
                model, role = ValueModel.from_causal_lm(model), roles.critic(shape)
            rows = plan_memory.Rows(ROWS, LENGTHS.prompt, LENGTHS.response)
            found = plan_memory.measure(model, rows, shape.vocab, checkpointing=checkpointing)
            held = sum(memory.held_bytes(role, 1, 4).values())
            job = job_of(role, checkpointing=checkpointing)
            tokens, scored = memory.micro_batch(job, 1, ROWS)
            sampling = ""
            if kind == "actor":
                drawn = plan_memory.measure_sampling(model, ROWS // 2, 2, rows, shape.vocab)
                sizes = activations.sampling_bytes(shape, ROWS, ROWS // 2, LENGTHS.prompt, LENGTHS.response, 4)
                sampling = ratio(sum(sizes), drawn)
            yield (
                name,
                kind,
                ratio(held, found.weights + found.gradients + found.optimizer),
                ratio(activations.kept_bytes(role, tokens, scored, 4, checkpointing=checkpointing), found.kept),
                ratio(without_ledger(memory.update_parts(job, role, 1)), found.update),
                ratio(without_ledger(memory.scoring_parts(job, role, 1)), found.forward),
                sampling,
            )


def traffic_rows() -> Iterator[tuple[str, ...]]:
    yield (
        "6 M, Llama on",
        "scoring gathers",
        "update gathers",
        "update sums",
        "refresh",
        "peak of a pass",
        "peak of an update",
    )
    values = MODELS["6 M, Llama"]
    for name, settings in CASES:
        case = plan_traffic.Case(values, rows=ROWS, prompt=LENGTHS.prompt, response=LENGTHS.response, **settings)
        found = plan_traffic.count(case)
        shape = shape_of(values, name, name)
        role = roles.critic(shape) if case.critic else roles.actor(shape, case.lora)
        compute = 4 if case.mixed_precision == "none" else 2
        options: dict[str, bool] = {"checkpointing": case.activation_checkpointing, "reshard": case.reshard}
        job, n = job_of(role, ranks=case.ranks, compute=compute, **options), case.ranks
        gather = traffic.gather_bytes(job, role, n) * n / (n - 1)
        total = traffic.sum_bytes(role, n) * n / (n - 1)
        refresh = 0 if case.critic else n * role.shard(n, learning=True) * 4
        yield (
            name,
            ratio(gather, found.scoring),
            ratio(2 * gather if case.reshard else 0, found.update_gather),
            ratio(total, found.update_sum),
            ratio(refresh, found.refresh),
            ratio(without_ledger(memory.scoring_parts(job, role, n)), found.forward_peak),
            ratio(without_ledger(memory.update_parts(job, role, n)), found.update_peak),
        )


def launch_rows() -> Iterator[tuple[str, ...]]:
    """A model so small that a decoding step is Python alone: CPU seconds of a layer and step, best of five."""
    yield "layers", "ms of a layer in a decoding step"
    for layers in (4, 12):
        config = LlamaConfig(
            **{k: v for k, v in llama_like("llama", 16, 32, layers, 2, 53).items() if k != "model_type"}
        )
        model, rows = plan_memory.build(config), plan_memory.Rows(4, 16, 64)
        best = min(_decoding_seconds(model, rows) for _ in range(5))
        yield str(layers), f"{1000 * best / layers / rows.response:.2f}"


def _decoding_seconds(model: Any, rows: plan_memory.Rows) -> float:
    begun = time.process_time()
    plan_memory.sample(model, 4, 1, rows, 53)
    return time.process_time() - begun


def configuration(values: dict[str, Any]) -> PretrainedConfig:
    return AutoConfig.for_model(**values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tables = {"memory": memory_rows, "traffic": traffic_rows, "launch": launch_rows}
    parser.add_argument("--only", choices=tables)
    only = parser.parse_args().only
    torch.set_num_threads(1)
    print("MB predicted / measured = ratio")
    for name, rows in tables.items():
        if only in (None, name):
            print()
            for place, row in enumerate(rows()):
                print("| " + " | ".join(row) + " |", flush=True)
                if place == 0:
                    print("|" + "---|" * len(row))


if __name__ == "__main__":
    main()
