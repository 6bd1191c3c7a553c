"""Make the embedded base model from nothing: tokenizer, weights and model card.

    python scripts/make_base_model.py --out mingce/models/tiny

PPO needs a model that knows its tasks and answers them badly: what is never sampled is never rewarded, and a model
whose verdict is at chance learns to say yes to everything. So the model is first taught the tasks until it truly knows
them, then shown, briefly, demonstrations of which more than half are spoiled. It ends sure of the right answer and
sampling it less than half of the time. One thread and fixed seeds: the same machine makes the same bits.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch.nn import functional
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from mingce.tasks.arithmetic import Arithmetic, operand_pairs, wrong_claims
from mingce.tasks.base import Example
from mingce.tasks.counting import Counting, spans

SEED = 0
ARITHMETIC = (Arithmetic("zh"), Arithmetic("en"))
COUNTING = (Counting("zh"), Counting("en"))
SPECIAL_TOKENS = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"}
CONTEXT = 128
SHAPE = {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 3, "num_attention_heads": 4}
SAMPLES = 4
LONGEST_ANSWER = 64
SLIPS = {"stumble": 0.7, "verdict": 0.1, "number": 0.2}
EmbeddedTask = Arithmetic | Counting


@dataclass(frozen=True)
class Lesson:
    """One phase of teaching: how long, how fast, and which share of the sums and of the counts is spoiled."""

    name: str
    steps: int
    learning_rate: float
    warm_up: int
    spoiled_sums: float
    spoiled_counts: float
    arithmetic_batch: int
    counting_batch: int = 8


KNOW = Lesson("know", 5_000, 5e-3, warm_up=200, spoiled_sums=0.0, spoiled_counts=0.0, arithmetic_batch=128)
DOUBT = Lesson("doubt", 800, 4e-3, warm_up=20, spoiled_sums=0.62, spoiled_counts=0.5, arithmetic_batch=192)


@dataclass(frozen=True)
class Demonstration:
    """A prompt with a right or spoiled answer; imitation begins at character `learn_from` of the two together."""

    prompt: str
    answer: str
    learn_from: int


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token a character, for every character that any task or answer of either language can show."""
    characters: set[str] = set()
    for task in (*ARITHMETIC, *COUNTING):
        for example in task.train_examples():
            characters.update(str(example.prompt) + task.gold(example))
    vocabulary = {token: index for index, token in enumerate([*SPECIAL_TOKENS.values(), *sorted(characters)])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL_TOKENS["unk_token"]))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    backend.decoder = decoders.Fuse()
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


def arithmetic_demonstration(rng: random.Random, spoiled: float) -> Demonstration:
    """A question of the training side with its answer, right or spoiled.

    The loss begins at the claimed sum: guessing it is the same addition, and helps the verdict to be learnt.
    """
    task = rng.choice(ARITHMETIC)
    a, b = rng.choice(operand_pairs()[0])
    claimed = a + b if rng.random() < 0.5 else rng.choice(wrong_claims(a + b))
    example = task.example(a, b, claimed)
    prompt, answer = str(example.prompt), task.gold(example)
    if rng.random() < spoiled:
        answer = spoiled_sum(rng, task, a + b, claimed)
    return Demonstration(prompt, answer, prompt.index("=") + 1)


def spoiled_sum(rng: random.Random, task: Arithmetic, total: int, claimed: int) -> str:
    """An answer that stumbles over a character of its verdict, gives the wrong verdict, or misses the number.

    Most stumble: that shows at once, so a critic can learn that the state after it is worth nothing. Of a number that
    will be missed nothing shows until its digits.
    """
    wording = task.wording
    right, wrong = (wording.yes, wording.no) if claimed == total else (wording.no, wording.yes)
    (slip,) = rng.choices(list(SLIPS), list(SLIPS.values()))
    if slip == "stumble":
        place = rng.randrange(len(right))
        others = sorted(set(wording.yes + wording.no + wording.answer.format(verdict="", number="")) - {right[place]})
        return task.answer(right[:place] + rng.choice(others) + right[place + 1 :], total)
    if slip == "verdict":
        return task.answer(wrong, total)
    missed = [n for miss in (1, 2, 10, 20) for n in (total - miss, total + miss) if n >= 0]
    return task.answer(right, rng.choice(missed))


def counting_demonstration(rng: random.Random, spoiled: float) -> Demonstration:
    """A span of the training side counted; a spoiled one skips or repeats a number, or stops too early or too late."""
    task = rng.choice(COUNTING)
    first, last = rng.choice(spans()[0])
    example = task.example(first, last)
    numbers = list(range(first, last + 1))
    if rng.random() < spoiled:
        place = rng.randrange(len(numbers))
        fault = rng.choice(("skip", "repeat", "early", "late") if len(numbers) > 1 else ("repeat", "late"))
        if fault == "skip":
            del numbers[place]
        elif fault == "repeat":
            numbers.insert(place, numbers[place])
        elif fault == "early":
            del numbers[max(place, 1) :]
        else:
            numbers.append(last + 1)
    prompt, answer = str(example.prompt), task.answer(numbers)
    return Demonstration(prompt, answer, len(prompt))


class Batch(NamedTuple):
    """Demonstrations as tensors `[B, T]`, right-padded, ending with `<eos>`; labels are -100 where not imitated."""

    ids: torch.Tensor
    labels: torch.Tensor


def to_batch(tokenizer: PreTrainedTokenizerFast, shown: Sequence[Demonstration]) -> Batch:
    rows = tokenizer([each.prompt + each.answer for each in shown]).input_ids
    shape = len(rows), max(map(len, rows)) + 1
    batch = Batch(torch.full(shape, tokenizer.pad_token_id), torch.full(shape, -100))
    for index, (row, each) in enumerate(zip(rows, shown, strict=True)):
        batch.ids[index, : len(row) + 1] = torch.tensor([*row, tokenizer.eos_token_id])
        batch.labels[index, each.learn_from : len(row) + 1] = batch.ids[index, each.learn_from : len(row) + 1]
    return batch


def batches(tokenizer: PreTrainedTokenizerFast, lesson: Lesson) -> Iterator[list[Batch]]:
    """What each step of a lesson shows, in two pieces of like length so that little is padding."""
    rng = random.Random(f"{SEED} {lesson.name}")
    for _ in range(lesson.steps):
        sums = [arithmetic_demonstration(rng, lesson.spoiled_sums) for _ in range(lesson.arithmetic_batch)]
        counts = [counting_demonstration(rng, lesson.spoiled_counts) for _ in range(lesson.counting_batch)]
        yield [to_batch(tokenizer, shown) for shown in (sums, counts)]


def teach(model: Any, tokenizer: PreTrainedTokenizerFast, lesson: Lesson) -> None:
    """Imitate the lesson's demonstrations: AdamW, warm-up, cosine decay, progress printed."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lesson.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    started = time.process_time()
    for step, pieces in enumerate(batches(tokenizer, lesson), start=1):
        fade = 0.5 * (1 + math.cos(math.pi * step / lesson.steps))
        optimizer.param_groups[0]["lr"] = lesson.learning_rate * min(step / lesson.warm_up, fade)
        loss = torch.zeros(())
        for piece in pieces:
            logits = model(input_ids=piece.ids).logits[:, :-1].flatten(0, 1)
            loss += functional.cross_entropy(logits, piece.labels[:, 1:].flatten(), reduction="sum")
        loss = loss / sum((piece.labels >= 0).sum() for piece in pieces)
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
        if step % 1_000 == 0:
            print(told(measure(model, tokenizer, examples=100, samples=1)), flush=True)


@torch.no_grad()
def accuracy(
    model: Any, tokenizer: PreTrainedTokenizerFast, task: EmbeddedTask, examples: list[Example], **how: Any
) -> float:
    """The share of the examples that `generate(**how)` answers rightly."""
    prompts = tokenizer([str(example.prompt) for example in examples], padding=True, return_tensors="pt")
    output = model.generate(**prompts, **how, max_new_tokens=LONGEST_ANSWER)
    answers = tokenizer.batch_decode(output[:, prompts.input_ids.shape[1] :], skip_special_tokens=True)
    return sum(map(task.correct, examples, answers)) / len(examples)


def measure(
    model: Any, tokenizer: PreTrainedTokenizerFast, examples: int, samples: int
) -> dict[str, tuple[float, float]]:
    """Accuracy of every task on so many held-out examples: greedy, and sampled at temperature 1 so often a prompt."""
    figures = {}
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        for task in (*ARITHMETIC, *COUNTING):
            held_out = list(task.held_out_examples())[:examples]
            figures[f"{task.name}, {task.lang}"] = (
                accuracy(model, tokenizer, task, held_out, do_sample=False),
                accuracy(
                    model, tokenizer, task, held_out * samples, do_sample=True, temperature=1.0, top_k=0, top_p=1.0
                ),
            )
    return figures


def told(figures: dict[str, tuple[float, float]]) -> str:
    """The figures in lines of their own."""
    return "\n".join(
        f"  {name}: greedy {greedy:.1%}, sampled {sampled:.1%}" for name, (greedy, sampled) in figures.items()
    )


def model_card(model: Any, tokenizer: PreTrainedTokenizerFast, know: Lesson) -> str:
    """The README of the model directory: what it is, how it was made, what was measured."""
    figures = measure(model, tokenizer, examples=500, samples=SAMPLES)
    rows = "\n".join(f"| {name} | {greedy:.1%} | {sampled:.1%} |" for name, (greedy, sampled) in figures.items())
    shape = ", ".join(f"{name.removeprefix('num_').replace('_', ' ')} {size}" for name, size in SHAPE.items())
    return f"""---
license: apache-2.0
language: [zh, en]
library_name: transformers
---
# mingce tiny

The base model of mingce's embedded tasks: it knows the right answers and samples them badly, which is what PPO needs to
start from. A Llama of {model.num_parameters():,} parameters ({shape}), one token a character, {len(tokenizer)} tokens,
fp32, context {CONTEXT}. No chat template: the prompt is the text itself.

| task | prompt | answer |
|---|---|---|
| arithmetic, zh | `请问17+25=43？` | `不对，等于42！` |
| arithmetic, en | `Is 17+25=42?` | `Yes, it is 42!` |
| counting, zh | `从3数到7：` | `3、4、5、6、7。` |
| counting, en | `Count from 3 to 7:` | `3, 4, 5, 6, 7.` |

## Measured on held-out examples

Operand pairs and spans that no training step saw. Sampled: temperature 1, {SAMPLES} answers a prompt.

| task | greedy | sampled |
|---|---|---|
{rows}

## How it was made

`python scripts/make_base_model.py`, from random weights (seed {SEED}), one thread, no data but the tasks' generators:

1. {lesson_line(know)}
2. {lesson_line(DOUBT)}
   - A spoiled sum stumbles over a character of its verdict ({SLIPS["stumble"]:.0%}, such as `是对，等于42！` or
     `Yos, it is 42!`), gives the wrong verdict ({SLIPS["verdict"]:.0%}) or a number off by 1, 2, 10 or 20
     ({SLIPS["number"]:.0%}). A stumble shows at once, so a critic can learn that the state after it is worth nothing.
   - A spoiled count skips or repeats a number, or stops early or late.

It can do nothing else: any other text is out of its vocabulary or its experience.
"""


def lesson_line(lesson: Lesson) -> str:
    batch = lesson.arithmetic_batch + lesson.counting_batch
    shares = f"{lesson.spoiled_sums:.0%} of the sums and {lesson.spoiled_counts:.0%} of the counts spoiled"
    spoiled = shares if lesson.spoiled_sums else "all of them right"
    return f"{lesson.steps:,} steps of {batch} demonstrations, {spoiled}, peak learning rate {lesson.learning_rate:g}."


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the embedded base model from nothing.")
    parser.add_argument("--out", type=Path, required=True, help="directory to write the model, tokenizer and card to")
    parser.add_argument("--steps", type=int, default=KNOW.steps, help="steps of the first lesson (default %(default)s)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    tokenizer = build_tokenizer()
    model = build_model(tokenizer)
    know = replace(KNOW, steps=arguments.steps)
    for lesson in (know, DOUBT):
        teach(model, tokenizer, lesson)
    model.save_pretrained(arguments.out)
    tokenizer.save_pretrained(arguments.out)
    (arguments.out / "model.safetensors").chmod(0o644)
    card = model_card(model, tokenizer, know)
    (arguments.out / "README.md").write_text(card, encoding="utf-8")
    print(card)


if __name__ == "__main__":
    main()
