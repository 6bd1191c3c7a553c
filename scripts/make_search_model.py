"""Make what the search demo comes with from nothing: its corpora, and its model with tokenizer, weights and card.

    python scripts/make_search_model.py corpus                       # mingce/tasks/search/corpus.{zh,en}.jsonl
    python scripts/make_search_model.py model --out mingce/models/search

The model is taught with worlds of its own, made up anew, none of whose people, towns or rivers is in the corpora. It is
first shown conversations that search rightly. Then, briefly, ones of which most are spoiled: an answer out of the head,
a search for somebody else, an answer after the first of two searches. It ends able to write every query and to copy
what was found, and often does not. What it reads (the question and what is found) is never imitated. One thread and
fixed seeds.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from make_calculator_model import SEED, SPECIAL_TOKENS, Lesson, Piece, teach
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from mingce.tasks.search.facts import WORDS, Fact, Question, invent, questions
from mingce.tasks.search.retrievers import TOPK, Index, passages
from mingce.tasks.search.task import FORMAT, Search, corpus_path, shipped
from mingce.tasks.search.tool import NOTHING
from mingce.tasks.tool_calls import find_format
from mingce.tasks.tools import tool_message

PEOPLE, TOWNS = 150, 50
WORLDS = 24
LANGUAGES = ("zh", "en")
CONTEXT = 256
SHAPE = {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 3, "num_attention_heads": 4}
SLIPS = {"head": 0.75, "other": 0.1, "early": 0.15}
BATCH = 64
KNOW = Lesson("know", 600, 5e-3, warm_up=100, spoiled=0.0, batch=BATCH)
DOUBT = Lesson("doubt", 150, 2e-3, warm_up=20, spoiled=0.7, batch=BATCH)
_TAGS = ("think", "search", "information", "answer")


def make_corpora() -> None:
    """Writes the facts that come with the package."""
    for lang in LANGUAGES:
        facts = invent(random.Random(f"corpus {lang}"), lang, PEOPLE, TOWNS)
        lines = [
            {"id": f"{lang}-{number}", "contents": fact.contents(lang), **fact._asdict()}
            for number, fact in enumerate(facts)
        ]
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        corpus_path(lang).write_text(text, encoding="utf-8")


class World(NamedTuple):
    """A world to teach with, and the index of its facts."""

    task: Search
    facts: list[Fact]
    one: list[Question]
    two: list[Question]
    engine: Index

    def found(self, query: str) -> Piece:
        text = passages(self.engine.search([query], TOPK)[0]) or NOTHING
        return Piece(str(find_format(FORMAT).told([tool_message(text)])), imitated=False)


def make_worlds() -> list[World]:
    worlds = []
    for lang in LANGUAGES:
        task = Search(lang)
        taken = frozenset(name for fact in shipped(lang) for name in (fact.subject, fact.value))
        for number in range(WORLDS):
            facts = invent(random.Random(f"{SEED} world {number} {lang}"), lang, 120, 40, taken)
            every = list(questions(facts))
            one, two = ([q for q in every if len(q.steps) == count] for count in (1, 2))
            documents = [{"contents": fact.contents(lang)} for fact in facts]
            worlds.append(World(task, facts, one, two, Index(documents)))
    return worlds


class Teacher:
    """Shows conversations of its worlds."""

    def __init__(self) -> None:
        self.worlds = make_worlds()

    def __call__(self, rng: random.Random, spoiled: float) -> list[Piece]:
        world = rng.choice(self.worlds)
        question = rng.choice(world.one if rng.random() < 0.5 else world.two)
        slip = rng.choices(list(SLIPS), list(SLIPS.values()))[0] if rng.random() < spoiled else ""
        pieces = [Piece(question.text(world.task.lang), imitated=False)]
        if slip == "head":
            return [*pieces, self.answer(world, rng.choice(world.facts).value)]
        steps = question.steps[:1] if slip == "early" else question.steps
        for fact in steps:
            asked = fact._replace(subject=rng.choice(world.facts).subject) if slip == "other" else fact
            (query,) = Question((asked,)).queries(world.task.lang)
            pieces += [Piece(world.task.searching(query), imitated=True), world.found(query)]
        wrong = slip == "other" or (slip == "early" and steps == question.steps)
        return [*pieces, self.answer(world, rng.choice(world.facts).value if wrong else steps[-1].value)]

    def answer(self, world: World, value: str) -> Piece:
        return Piece(world.task.answering(value), imitated=True, ends=True)


def pieces_of_text() -> Iterator[str]:
    """What is one token: tags, the parts of names, words for things, and phrases of the wording."""
    yield from (f"<{end}{tag}>" for tag in _TAGS for end in ("", "/"))
    yield from (f'Doc {number}(Title: "' for number in range(1, TOPK + 1))
    yield from ('") ', "\n", " ", ".", "?", "。", NOTHING)
    for words in WORDS.values():
        yield from (words.thought, words.sure, *words.begins, *words.animals, *words.instruments)
        yield from (end for ends in words.ends.values() for end in ends)
        for wording in (words.query, words.asked, words.told):
            for text in wording.values():
                yield from (part for part in re.split(r"\{[sv]\}", text) if part)


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token for each of these pieces, the longest first."""
    pieces = sorted(set(pieces_of_text()), key=lambda piece: (-len(piece), piece))
    vocabulary = {token: index for index, token in enumerate([*SPECIAL_TOKENS.values(), *pieces])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL_TOKENS["unk_token"]))
    longest = "|".join(re.escape(piece) for piece in pieces)
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(rf"{longest}|[\s\S]"), "isolated")
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


def model_card(model: Any, tokenizer: PreTrainedTokenizerFast) -> str:
    """The README of the model directory: what it is and how it was made."""
    shape = ", ".join(f"{name.removeprefix('num_').replace('_', ' ')} {size}" for name, size in SHAPE.items())
    return f"""---
license: apache-2.0
language: [zh, en]
library_name: transformers
---
# mingce search

The model of `recipes/search_agent.yaml`: it can write a query and copy what was found, and often does not. A Llama of
{model.num_parameters():,} parameters ({shape}), one token for a part of a name, a word for a thing, a phrase of the
wording or a tag, {len(tokenizer)} tokens, fp32, context {CONTEXT}. No chat template: the prompt is the text itself.

The format is that of Search-R1: `<think>…</think><search>…</search>` *`<information>…</information>`*
`<think>…</think><answer>…</answer>`.

## How it was made

`python scripts/make_search_model.py model`, from random weights (seed {SEED}), one thread, no data but made-up worlds
({WORLDS} a language), searched by the task's own BM25 index. No person, town or river of theirs is in the corpora that
the task asks about, so the model has never read one of those facts:

1. {KNOW.steps:,} steps of {BATCH} conversations, all of them right.
2. {DOUBT.steps:,} steps of {BATCH}, {DOUBT.spoiled:.0%} spoiled: an answer out of the head ({SLIPS["head"]:.0%} of
   them), a search for somebody else and a wrong answer ({SLIPS["other"]:.0%}), or an answer after the first of two
   searches ({SLIPS["early"]:.0%}).

It can do nothing else: any other text is out of its vocabulary or its experience.
"""


def make_model(out: Path) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    tokenizer = build_tokenizer()
    model = build_model(tokenizer)
    teacher = Teacher()
    for lesson in (KNOW, DOUBT):
        teach(model, tokenizer, lesson, teacher)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    (out / "model.safetensors").chmod(0o644)
    (out / "README.md").write_text(model_card(model, tokenizer), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the search demo's corpora and model from nothing.")
    parser.add_argument("what", choices=("corpus", "model"))
    parser.add_argument("--out", type=Path, help="directory to write the model, tokenizer and card to")
    arguments = parser.parse_args()
    if arguments.what == "corpus":
        make_corpora()
    elif arguments.out is None:
        parser.error("model needs --out")
    else:
        make_model(arguments.out)


if __name__ == "__main__":
    main()
