"""Make the embedded model of the calculator demo from nothing: tokenizer, weights and model card.

    python scripts/make_calculator_model.py --out mingce/models/calculator

The model is first shown conversations that use the calculator rightly, among them some in which a call was refused and
written again. Then, briefly, ones of which most are spoiled: an answer out of the head, a call with a slip, an answer
after the first of two steps. It ends able to write every call and to copy every result, and often does not. What it
reads (the question and the calculator's results) is never imitated. One thread and fixed seeds.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from torch.nn import functional
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from mingce.tasks.calculator import ADDENDS, HIDDEN, TOOL, Calculator, factor_pairs
from mingce.tasks.tool_calls import FORMATS, ToolCall
from mingce.tasks.tools import tool_message

SEED = 0
TASKS = (Calculator("zh"), Calculator("en"))
TAGS = (f"<{TOOL}>", f"</{TOOL}>", "<result>", "</result>")
SPECIAL_TOKENS = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"}
CONTEXT = 128
SHAPE = {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 3, "num_attention_heads": 4}
SLIPS = {"head": 0.75, "call": 0.15, "early": 0.1}
RETRIED = 0.1
BATCH = 128


@dataclass(frozen=True)
class Lesson:
    """One phase of teaching: how long, how fast, and which share of the conversations is spoiled."""

    name: str
    steps: int
    learning_rate: float
    warm_up: int
    spoiled: float
    batch: int = BATCH


KNOW = Lesson("know", 3_000, 5e-3, warm_up=100, spoiled=0.0)
DOUBT = Lesson("doubt", 500, 3e-3, warm_up=20, spoiled=0.62)


class Piece(NamedTuple):
    """A part of a conversation; what the policy wrote is imitated."""

    text: str
    imitated: bool
    ends: bool = False
    """Whether an end token follows."""


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token a character, for every character of either language, and one for each tag."""
    characters = set("0123456789+-*" + HIDDEN)
    for task in TASKS:
        example = task.example(12, 13, 0)
        characters.update(str(example.prompt) + task.gold(example))
    vocabulary = {token: index for index, token in enumerate([*SPECIAL_TOKENS.values(), *sorted(characters)])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL_TOKENS["unk_token"]))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    backend.decoder = decoders.Fuse()
    backend.add_tokens([AddedToken(tag, normalized=False) for tag in TAGS])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        **SPECIAL_TOKENS,
        padding_side="left",
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
    )


def build_model(tokenizer: PreTrainedTokenizerFast) -> Any:
    """A Llama of a few hundred thousand parameters, untrained."""
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "bos", "eos")}
    size = {"vocab_size": len(tokenizer), "max_position_embeddings": CONTEXT, **SHAPE}
    model = LlamaForCausalLM(LlamaConfig.from_dict({**size, **ids}))
    model.generation_config = GenerationConfig(**ids)
    return model.eval()


def call(expression: str) -> Piece:
    return Piece(FORMATS["tags"].write(ToolCall(TOOL, {"": expression})), imitated=True)


def result(text: object) -> Piece:
    return Piece(str(FORMATS["tags"].told([tool_message(str(text))])), imitated=False)


def answer(task: Calculator, number: int) -> Piece:
    return Piece(task.answer(number), imitated=True, ends=True)


def demonstration(rng: random.Random, spoiled: float) -> list[Piece]:
    """A conversation of the training side, with the calculator used rightly, or spoiled."""
    task = rng.choice(TASKS)
    a, b = rng.choice(factor_pairs()[0])
    c = rng.choice(ADDENDS) if rng.random() < 0.5 else 0
    example = task.example(a, b, c)
    question = Piece(str(example.prompt), imitated=False)
    steps = [(f"{a}*{b}", a * b), *([(f"{a * b}+{c}", a * b + c)] if c else [])]
    slip = rng.choices(list(SLIPS), list(SLIPS.values()))[0] if rng.random() < spoiled else ""
    if slip == "head":
        digits = len(str(a * b + c))
        return [question, answer(task, rng.randrange(10 ** (digits - 1), 10**digits))]
    if slip == "early" and c:
        return [question, call(steps[0][0]), result(a * b), answer(task, a * b)]
    pieces = [question]
    for expression, number in steps:
        if slip == "call" or (not spoiled and rng.random() < RETRIED):
            wrong = slipped(rng, expression)
            pieces += [call(wrong), result(HIDDEN)]
            if slip == "call":
                return [*pieces, answer(task, rng.randrange(100, 10000))]
        pieces += [call(expression), result(number)]
    return [*pieces, answer(task, a * b + c)]


def slipped(rng: random.Random, expression: str) -> str:
    """A call that the calculator refuses: its operator left out or written twice."""
    sign = "*" if "*" in expression else "+"
    return expression.replace(sign, "" if rng.random() < 0.5 else sign * 2)


class Batch(NamedTuple):
    """Conversations as tensors `[B, T]`, right-padded; labels are -100 where not imitated."""

    ids: torch.Tensor
    labels: torch.Tensor


def to_batch(tokenizer: PreTrainedTokenizerFast, shown: Sequence[Sequence[Piece]]) -> Batch:
    rows: list[tuple[list[int], list[int]]] = []
    for pieces in shown:
        ids: list[int] = []
        labels: list[int] = []
        for piece in pieces:
            part = tokenizer(piece.text, add_special_tokens=False).input_ids
            part = [*part, tokenizer.eos_token_id] if piece.ends else part
            ids += part
            labels += part if piece.imitated else [-100] * len(part)
        rows.append((ids, labels))
    shape = len(rows), max(len(ids) for ids, _ in rows)
    batch = Batch(torch.full(shape, tokenizer.pad_token_id), torch.full(shape, -100))
    for index, (ids, labels) in enumerate(rows):
        batch.ids[index, : len(ids)], batch.labels[index, : len(ids)] = torch.tensor(ids), torch.tensor(labels)
    return batch


Demonstrate = Callable[[random.Random, float], list[Piece]]
"""A conversation, spoiled with that probability."""


def batches(tokenizer: PreTrainedTokenizerFast, lesson: Lesson, demonstrate: Demonstrate) -> Iterator[Batch]:
    rng = random.Random(f"{SEED} {lesson.name}")
    for _ in range(lesson.steps):
        yield to_batch(tokenizer, [demonstrate(rng, lesson.spoiled) for _ in range(lesson.batch)])


def teach(model: Any, tokenizer: PreTrainedTokenizerFast, lesson: Lesson, demonstrate: Demonstrate) -> None:
    """Imitate the lesson's conversations: AdamW, warm-up, cosine decay, progress printed."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lesson.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    started = time.process_time()
    for step, batch in enumerate(batches(tokenizer, lesson, demonstrate), start=1):
        fade = 0.5 * (1 + math.cos(math.pi * step / lesson.steps))
        optimizer.param_groups[0]["lr"] = lesson.learning_rate * min(step / lesson.warm_up, fade)
        logits = model(input_ids=batch.ids).logits[:, :-1].flatten(0, 1)
        loss = functional.cross_entropy(logits, batch.labels[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0 or step == lesson.steps:
            spent = time.process_time() - started
            print(
                f"{lesson.name}: step {step:,} of {lesson.steps:,}, {spent:.0f} CPU s, loss {loss.item():.4f}",
                flush=True,
            )


def model_card(model: Any, tokenizer: PreTrainedTokenizerFast) -> str:
    """The README of the model directory: what it is and how it was made."""
    shape = ", ".join(f"{name.removeprefix('num_').replace('_', ' ')} {size}" for name, size in SHAPE.items())
    return f"""---
license: apache-2.0
language: [zh, en]
library_name: transformers
---
# mingce calculator

The model of `recipes/calculator.yaml`: it can write a calculator's call and copy its result, and often does not. A
Llama of {model.num_parameters():,} parameters ({shape}), one token a character and one for each tag, {len(tokenizer)}
tokens, fp32, context {CONTEXT}. No chat template: the prompt is the text itself.

| language | question | conversation |
|---|---|---|
| zh | `37*48等于多少？` | `<calc>37*48</calc>` *`<result>1776</result>`* `等于1776！` |
| en | `What is 37*48?` | `<calc>37*48</calc>` *`<result>1776</result>`* `It is 1776!` |

`37*48+259` takes two calls: the calculator does one operation at a time, and answers `?` to anything else.

## How it was made

`python scripts/make_calculator_model.py`, from random weights (seed {SEED}), one thread, no data but the task's own
generator, factor pairs that are held out left out:

1. {KNOW.steps:,} steps of {BATCH} conversations, all of them right; before {RETRIED:.0%} of the calls one is refused
   and written again.
2. {DOUBT.steps:,} steps of {BATCH}, {DOUBT.spoiled:.0%} spoiled: an answer out of the head, which is wrong
   ({SLIPS["head"]:.0%} of them), a call with a slip and then such an answer ({SLIPS["call"]:.0%}), or an answer after
   the first of two calls ({SLIPS["early"]:.0%}).

It can do nothing else: any other text is out of its vocabulary or its experience.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the calculator demo's model from nothing.")
    parser.add_argument("--out", type=Path, required=True, help="directory to write the model, tokenizer and card to")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    tokenizer = build_tokenizer()
    model = build_model(tokenizer)
    for lesson in (KNOW, DOUBT):
        teach(model, tokenizer, lesson, demonstration)
    model.save_pretrained(arguments.out)
    tokenizer.save_pretrained(arguments.out)
    (arguments.out / "model.safetensors").chmod(0o644)
    (arguments.out / "README.md").write_text(model_card(model, tokenizer), encoding="utf-8")


if __name__ == "__main__":
    main()
