"""Two-digit addition for both trainers alike: `17+25=` → `42` and the end token, a vocabulary of 16 characters.

Imported by either side's process, so it needs nothing but torch, tokenizers and transformers. With weights as they are
initialised a model draws each of the 16 tokens about as often, so its responses end after 16 tokens on average.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, cast

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from torch import Tensor
from toys import llama
from transformers import PreTrainedTokenizerFast

PAD, BOS, EOS = 0, 1, 2
CHARACTERS = ("<pad>", "<bos>", "<eos>", "<unk>", *"0123456789+=")
ID = {character: place for place, character in enumerate(CHARACTERS)}
ANSWER_LIMIT = 5


def problems(held_out: bool) -> list[tuple[int, int]]:
    """All 8,100 sums of two numbers of two digits, a thousand of them held out."""
    every = [(a, b) for a in range(10, 100) for b in range(10, 100)]
    random.Random(0).shuffle(every)
    return every[:1000] if held_out else every[1000:]


def prompt(a: int, b: int) -> str:
    return f"{a}+{b}="


def prompt_ids(a: int, b: int) -> list[int]:
    return [BOS, *(ID[character] for character in prompt(a, b))]


def answer_ids(a: int, b: int) -> list[int]:
    return [*(ID[character] for character in str(a + b)), EOS]


def tokenizer(ends: bool) -> Any:
    """One token a character; without `ends` it names no end token, so that every response has the same length."""
    made = Tokenizer(models.WordLevel(dict(ID), unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    made.decoder = decoders.Fuse()
    made.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", BOS)])
    end = {"eos_token": "<eos>"} if ends else {}
    return cast(Any, PreTrainedTokenizerFast)(
        tokenizer_object=made, pad_token="<pad>", bos_token="<bos>", unk_token="<unk>", padding_side="left", **end
    )  # fmt: skip


def save(model: Any, ends: bool, directory: Path) -> Path:
    """Model and tokenizer as a directory that both sides load."""
    end = EOS if ends else None
    model.config.eos_token_id = model.generation_config.eos_token_id = end
    model.generation_config.pad_token_id = PAD
    model.save_pretrained(directory)
    tokenizer(ends).save_pretrained(directory)
    return directory


def write_data(directory: Path) -> tuple[Path, Path, Path]:
    """Training file, held-out file and reward function, as mingce reads them."""
    paths = []
    for name, held_out in (("train", False), ("held_out", True)):
        path = directory / f"{name}.jsonl"
        rows = (
            {"prompt": prompt(a, b), "data_source": "addition", "reward_model": {"ground_truth": str(a + b)}}
            for a, b in problems(held_out)
        )
        path.write_text("".join(json.dumps(row | {"extra_info": {}}) + "\n" for row in rows))
        paths.append(path)
    function = directory / "exact.py"
    function.write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    return float(solution_str == ground_truth)\n"
    )
    return paths[0], paths[1], function


@torch.no_grad()
def accuracy(model: Any, count: int = 1000) -> float:
    """Share of held-out sums that a sampled response gets right, end token included; the same draws each time."""
    asked = problems(held_out=True)[:count]
    generator = torch.Generator().manual_seed(1234)
    right = 0
    for begin in range(0, len(asked), 100):  # few at a time, so that a process's peak memory is its training's
        piece = asked[begin : begin + 100]
        cache, ids, drawn = None, torch.tensor([prompt_ids(a, b) for a, b in piece]), []
        for _ in range(ANSWER_LIMIT):
            output = model(input_ids=ids, past_key_values=cache, use_cache=True)
            cache = output.past_key_values
            ids = torch.multinomial(output.logits[:, -1].float().softmax(-1), 1, generator=generator)
            drawn.append(ids)
        ends = (answer_ids(a, b) for a, b in piece)
        rows = torch.cat(drawn, 1).tolist()
        right += sum(row[: len(end)] == end for row, end in zip(rows, ends, strict=True))
    return right / len(asked)


def warmed_up(size: str, wanted: float) -> Any:
    """A model taught by demonstrations until it samples so many sums right: where both trainers start."""
    model = llama(size, vocabulary=len(CHARACTERS), window=512)
    torch.manual_seed(0)
    sums = problems(held_out=False)
    width = len(prompt_ids(10, 10)) + 4
    rows, targets = torch.full((len(sums), width), PAD), torch.full((len(sums), width), -100)
    for place, (a, b) in enumerate(sums):
        asked, answer = prompt_ids(a, b), answer_ids(a, b)
        rows[place, : len(asked) + len(answer)] = torch.tensor(asked + answer)
        targets[place, len(asked) : len(asked) + len(answer)] = torch.tensor(answer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(1, 20_000):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1.0, step / 40)
        model.train()
        chosen: Tensor = torch.randint(0, len(sums), (128,))
        model(input_ids=rows[chosen], labels=targets[chosen]).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 0 and accuracy(model.eval(), 500) >= wanted:
            break
    return model.eval()
