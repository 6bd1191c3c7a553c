"""Our decoder against transformers' generate on random Llama models: tokens per CPU second, interleaved, best of N.

Lengths are ragged because a random model draws the stop token about once in V tokens. Both sample at temperature 1 from
the same model and prompts, on one thread, with freed memory kept. Usage: python bench/decode.py [--repeats 5]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from transformers import AutoModelForCausalLM, GenerationConfig, LlamaConfig

from mingce.memory import keep_freed_memory
from mingce.models.batching import forward_inputs
from mingce.models.sampling import Sampling, generate

STOP, PAD, VOCABULARY = 1, 0, 64


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    name: str
    prompts: int
    samples: int
    new_tokens: int
    hidden: int
    layers: int
    ragged: bool


CASES = (
    Case("0.2 M, short", prompts=32, samples=8, new_tokens=24, hidden=64, layers=3, ragged=False),
    Case("0.2 M, ragged", prompts=32, samples=8, new_tokens=192, hidden=64, layers=3, ragged=True),
    Case("1 M, equal", prompts=8, samples=8, new_tokens=64, hidden=128, layers=4, ragged=False),
    Case("1 M, ragged", prompts=8, samples=8, new_tokens=256, hidden=128, layers=4, ragged=True),
    Case("1 M, ragged", prompts=32, samples=8, new_tokens=256, hidden=128, layers=4, ragged=True),
)


Decoder = Callable[[Case, Any, list[list[int]]], int]


def build(case: Case) -> tuple[Any, list[list[int]]]:
    """A random model and prompts of 6 to 16 tokens."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=case.hidden,
        intermediate_size=4 * case.hidden,
        num_hidden_layers=case.layers,
        num_attention_heads=4,
        max_position_embeddings=512,
    )
    lengths = torch.randint(6, 17, (case.prompts,)).tolist()
    model = cast(Any, AutoModelForCausalLM).from_config(config).eval()
    return model, [torch.randint(2, VOCABULARY, (length,)).tolist() for length in lengths]


def ours(case: Case, model: Any, prompts: list[list[int]]) -> int:
    """Tokens drawn."""
    sampling = Sampling(max_new_tokens=case.new_tokens, stop_ids=(STOP,) if case.ragged else ())
    seeds = range(case.prompts * case.samples)
    return int(generate(model, prompts, sampling, n=case.samples, seeds=seeds, pad_id=PAD).attention_mask.sum())


def theirs(case: Case, model: Any, prompts: list[list[int]]) -> int:
    """Tokens drawn up to and with the first stop token."""
    none = torch.empty((case.prompts, 0), dtype=torch.long)
    inputs = forward_inputs(prompts, none, none.bool(), PAD)
    settings = cast(Any, GenerationConfig)(
        max_new_tokens=case.new_tokens,
        do_sample=True,
        top_k=0,
        num_return_sequences=case.samples,
        pad_token_id=PAD,
        eos_token_id=STOP if case.ragged else None,
    )
    rows = model.generate(inputs.input_ids, attention_mask=inputs.attention_mask, generation_config=settings)
    stops = rows[:, inputs.input_ids.shape[1] :] == STOP if case.ragged else rows.new_zeros(len(rows), case.new_tokens)
    return int((stops.long().cumsum(1) - stops.long() == 0).sum())


def rate(decode: Decoder, case: Case, model: Any, prompts: list[list[int]]) -> float:
    """Tokens per CPU second of one run."""
    begin = time.process_time()
    tokens = decode(case, model, prompts)
    return tokens / (time.process_time() - begin)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    keep_freed_memory()
    print(f"{'model':16} {'rows':>5} {'most':>5} {'generate tok/s':>15} {'ours tok/s':>11} {'ratio':>6}")
    for case in CASES:
        model, prompts = build(case)
        best: dict[Decoder, float] = {theirs: 0.0, ours: 0.0}
        for _ in range(repeats):
            for decode in best:
                best[decode] = max(best[decode], rate(decode, case, model, prompts))
        ratio = best[ours] / best[theirs]
        size = f"{case.name:16} {case.prompts * case.samples:5d} {case.new_tokens:5d}"
        print(f"{size} {best[theirs]:15.0f} {best[ours]:11.0f} {ratio:6.2f}", flush=True)


if __name__ == "__main__":
    main()
