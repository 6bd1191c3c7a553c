"""The embedded search agent: questions about made-up facts, a search over them, and answers that must match exactly.

`Where does Kirona live?` → `<think>I look for: Kirona lives in</think><search>Kirona lives in</search>` ⟶
`<information>Doc 1(Title: "Kirona") Kirona lives in Maltu. …</information>` →
`<think>I know it</think><answer>Maltu</answer>`

The format is that of Search-R1. Questions about a person's town take two searches. A fifth of the people and towns is
never asked about in training. `data.options`: `retriever` (a server's address; left out, an index in this process),
`topk`, and `show=false`, with which a search finds nothing.
"""

from __future__ import annotations

import json
import random
import re
import string
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from mingce.base.errors import SettingError, UnknownNameError
from mingce.tasks.base import Example, Prompt, Score
from mingce.tasks.environment import Environment
from mingce.tasks.search.facts import WORDS, Fact, Question, questions
from mingce.tasks.search.retrievers import TOPK
from mingce.tasks.search.tool import NAME, NOTHING, SearchTool
from mingce.tasks.tool_calls import ToolCall, find_format
from mingce.tasks.tools import ToolEnvironment

FORMAT = "tags:information"
HELD_OUT_SHARE, HELD_OUT_EXAMPLES = 0.2, 400
SPLIT_SEED = 1729
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_LEFT_OUT = str.maketrans("", "", string.punctuation)


def corpus_path(lang: str) -> Path:
    """The corpus that comes with the package."""
    return Path(__file__).with_name(f"corpus.{lang}.jsonl")


@cache
def shipped(lang: str) -> tuple[Fact, ...]:
    """The facts of that corpus."""
    lines = corpus_path(lang).read_text(encoding="utf-8").splitlines()
    return tuple(Fact(one["subject"], one["relation"], one["value"]) for one in map(json.loads, lines))


@cache
def split(lang: str) -> tuple[tuple[Question, ...], tuple[Question, ...]]:
    """The questions to train on and those held out: subjects of the one side are never asked about on the other."""
    facts = shipped(lang)
    subjects = list(dict.fromkeys(fact.subject for fact in facts))
    apart = set(random.Random(SPLIT_SEED).sample(subjects, round(HELD_OUT_SHARE * len(subjects))))
    every = list(questions(facts))
    held_out = tuple(one for one in every if one.steps[0].subject in apart)
    return tuple(one for one in every if one.steps[0].subject not in apart), held_out


def normalised(answer: str) -> str:
    """As Search-R1 compares answers: without case, punctuation, articles and more than one blank."""
    plain = re.sub(r"\b(a|an|the)\b", " ", answer.lower().translate(_LEFT_OUT))
    return " ".join(plain.split())


def answer_in(response: str) -> str | None:
    """What stands in the last `<answer>…</answer>`."""
    found = _ANSWER.findall(response)
    return str(found[-1]) if found else None


class SearchEnvironment(ToolEnvironment):
    """Searches until a turn has none."""

    def __init__(self, task: Search):
        super().__init__([task.tool], task.gold)
        self.task, self.searched = task, 0

    def reset(self, example: Example, seed: int) -> Prompt:
        self.searched = 0
        return super().reset(example, seed)

    def _answer(self, call: ToolCall) -> tuple[str, bool]:
        text, worked = super()._answer(call)
        self.searched += worked
        return text if worked and self.task.show else NOTHING, worked

    def _error(self, problem: str) -> str:
        return NOTHING

    def gold(self) -> str:
        queries = self.example.extra_info["queries"]
        if self.searched < len(queries):
            return self.task.searching(queries[self.searched])
        return self.task.gold(self.example)


class Search:
    """Questions about people and towns that nobody has heard of, in Chinese or English."""

    name = "search"

    def __init__(self, lang: str = "zh", options: Mapping[str, Any] | None = None) -> None:
        if lang not in WORDS:
            raise UnknownNameError("language", lang, WORDS)
        options = dict(options or {})
        show, topk = options.pop("show", True), options.pop("topk", TOPK)
        where = options.pop("retriever", None)
        if options or not isinstance(show, bool) or not isinstance(topk, int) or not 1 <= topk <= 20:
            raise SettingError(
                "the search task's data.options may have show=true or false, topk from 1 to 20 and retriever, an "
                f"address; not {options or {'show': show, 'topk': topk}}."
            )
        self.lang, self.words, self.show = lang, WORDS[lang], show
        self.tool = SearchTool(corpus_path(lang) if where is None else str(where), topk)

    def environment(self) -> Environment:
        return SearchEnvironment(self)

    def tool_schemas(self) -> Sequence[Mapping[str, Any]]:
        return [self.tool.schema]

    def tool_format(self) -> str | None:
        return FORMAT

    def train_examples(self) -> Sequence[Example]:
        """Every question of the training side in a fixed mixed order."""
        every = list(split(self.lang)[0])
        random.Random(f"{SPLIT_SEED} train").shuffle(every)
        return [self.example(one) for one in every]

    def held_out_examples(self) -> Sequence[Example]:
        """Questions about the subjects that training never asks about, always the same ones."""
        every = list(split(self.lang)[1])
        random.Random(f"{SPLIT_SEED} held out").shuffle(every)
        return [self.example(one) for one in every[:HELD_OUT_EXAMPLES]]

    def example(self, question: Question) -> Example:
        text = question.text(self.lang)
        return Example(
            uid=f"{self.name}-{self.lang}-{text}",
            prompt=text,
            ground_truth=question.answer,
            data_source=f"{self.name}_{self.lang}",
            extra_info={"queries": question.queries(self.lang)},
        )

    def searching(self, query: str) -> str:
        """A turn that searches."""
        call = find_format(FORMAT).write(ToolCall(NAME, {"": query}))
        return f"<think>{self.words.thought}{query}</think>{call}"

    def answering(self, answer: str) -> str:
        """A turn that answers."""
        return f"<think>{self.words.sure}</think><answer>{answer}</answer>"

    def score(self, example: Example, response: str) -> Score:
        """1 for an exact match, else 0."""
        return Score(float(self.correct(example, response)))

    def gold(self, example: Example) -> str:
        return self.answering(str(example.ground_truth))

    def correct(self, example: Example, response: str) -> bool:
        answer = answer_in(response)
        return answer is not None and normalised(answer) == normalised(str(example.ground_truth))
