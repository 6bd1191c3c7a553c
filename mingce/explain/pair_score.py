"""The score of a prompt and a response: the task's where the prompt is one of its questions, else a given one."""

from __future__ import annotations

import re

import torch

from mingce.base.numbers import number
from mingce.base.texts import sentence
from mingce.config import Config
from mingce.engine.local import task_of
from mingce.ledger import Ledger
from mingce.roles.reward import Reward, extra_members, reward_scorer
from mingce.tasks.arithmetic import Arithmetic
from mingce.tasks.base import Example, Task
from mingce.tasks.counting import Counting
from mingce.training.opening import Opened

ASSUMED = 1.0


def fill_scores(opened: Opened, ledger: Ledger, prompt: str, score: float | None, lang: str, notes: list[str]) -> None:
    """Fills the scores; `notes` hears where they come from."""
    config = opened.config
    found = None if score is not None else _example(config, prompt)
    if found is not None:
        task, example, task_scores = found
        scorer = reward_scorer(task, config.reward, extra_members(config.reward), task_scores=task_scores)
        reward = Reward(scorer, opened.actor.tokenizer, config.seed)
        try:
            columns = reward.score(ledger, [example], step=0)
        finally:
            reward.close()
        total = float(columns["scores"].sum())
        notes.append(sentence("tutor.score_of_task", lang, score=number(total), task=task.name))
        ledger.fill(columns)
        return
    given = ASSUMED if score is None else score
    if score is None:
        notes.append(sentence("tutor.score_assumed", lang, score=number(given), task=config.task))
    else:
        notes.append(sentence("tutor.score_given", lang, score=number(given)))
    scores = torch.zeros(ledger.mask.shape, device=ledger.device)
    scores[0, -1] = given
    ledger.fill({"scores": scores})


def _example(config: Config, prompt: str) -> tuple[Task, Example, bool] | None:
    """The task's example with that prompt. The embedded tasks know every question they could ask, in both languages."""
    task, task_scores = task_of(config)
    if isinstance(task, Arithmetic | Counting):
        for asked in (kind(lang) for kind in (Arithmetic, Counting) for lang in ("zh", "en")):
            numbers = _matched(asked.wording.question, prompt)
            if numbers is not None:
                return asked, asked.example(**numbers), task_scores
        return None
    for examples in (task.train_examples(), task.held_out_examples()):
        for example in examples:
            if example.prompt == prompt:
                return task, example, task_scores
    return None


def _matched(question: str, prompt: str) -> dict[str, int] | None:
    pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[0-9]{1,4})", re.escape(question))
    found = re.fullmatch(pattern, prompt)
    return None if found is None else {name: int(number) for name, number in found.groupdict().items()}
