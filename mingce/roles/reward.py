"""The reward: scores texts and writes what they earned on the tokens that earned it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from mingce.base.errors import SettingError
from mingce.config import RewardConfig
from mingce.ledger import Ledger
from mingce.record.tokens import added_texts
from mingce.roles.actor import row_seed
from mingce.tasks.base import Example, Response, Score, Task
from mingce.tasks.combined import BatchScorer, Combined
from mingce.tasks.function import USUAL_NAME, FunctionScorer
from mingce.tasks.scoring import FAILED, OnError, Scoring
from mingce.tasks.tools import WithTools

MODEL, JUDGE = "reward_model", "judge"
Member = tuple[str, float, BatchScorer]
"""Something that pays beside the task: its name in the log, its weight, and itself."""


class Reward:
    """The task's score, a function's, a reward model's, or their weighted sum; and what the turns earned."""

    def __init__(
        self, scorer: BatchScorer, tokenizer: PreTrainedTokenizerBase, seed: int, *, turn_weight: float = 1.0,
        failed_score: float = 0.0,
    ):  # fmt: skip
        """`turn_weight` multiplies environments' rewards; `failed_score` is that of one whose environment failed."""
        self.scorer, self.tokenizer, self.seed = scorer, tokenizer, seed
        self.turn_weight, self.failed_score = turn_weight, failed_score

    def score(self, ledger: Ledger, examples: Sequence[Example], step: int) -> dict[str, Tensor]:
        """scores [B, T], by the scorer; of a conversation the policy's last message is scored.

        `examples` has one for each conversation. A scorer that draws does so from (seed, step, row), so that a step
        scores the same whenever it is done again.
        """
        last_row = _last_rows(ledger)
        places = [(last_row[n], self._judged(ledger, last_row[n])) for n in range(len(examples))]
        texts = [self._text(ledger, row, slots) for row, slots in places]
        drawn = [ledger["token_ids"][row, slots].tolist() for row, slots in places]
        responses = [Response.drawn(*one) for one in zip(texts, drawn, strict=True)]
        seeds = [row_seed(self.seed, step, row) for row in range(len(examples))]
        return self.pay(ledger, self.scorer.score(examples, responses, seeds))

    def pay(self, ledger: Ledger, scores: Sequence[Score]) -> dict[str, Tensor]:
        """scores [B, T]: the final score on the last chosen token, dense parts on the tokens that completed them.

        What the turns of a conversation earned is on their last tokens. `scores` has one for each conversation.
        """
        conversations, last_row = _conversations(ledger), _last_rows(ledger)
        judged = [self._judged(ledger, last_row[number]) for number in range(len(scores))]
        columns = torch.zeros(ledger.mask.shape, device=ledger.device)
        for row, number in enumerate(conversations):
            chosen = ledger.mask[row].nonzero().squeeze(1).tolist()
            if not chosen:
                continue  # no token to pay; the row is in no loss either
            if ledger.rows.get("finish_reason", [""] * len(ledger))[last_row[number]] == "error":
                columns[row, chosen[-1]] = self.failed_score
                continue
            whole = row == last_row[number]  # an earlier segment led to all that the conversation was paid
            columns[row, chosen[-1]] += scores[number].score if whole else scores[number].total
            if whole and scores[number].dense:
                self._pay_dense(columns[row], ledger["token_ids"][row].tolist(), judged[number], scores[number])
            for slot, amount in self._turn_ends(ledger, row):
                columns[row, slot] += self.turn_weight * amount
        ledger.fill_rows(score_parts=[dict(scores[number].parts) for number in conversations])
        return {"scores": columns}

    def _judged(self, ledger: Ledger, row: int) -> list[int]:
        """The slots of the text that is scored: what the policy chose, in its last turn."""
        chosen = ledger.mask[row]
        if "turn" in ledger and bool(chosen.any()):
            chosen = chosen & (ledger["turn"][row] == ledger["turn"][row][chosen].max())
        slots: list[int] = chosen.nonzero().squeeze(1).tolist()
        return slots

    def _text(self, ledger: Ledger, row: int, slots: Sequence[int]) -> str:
        if "turn" not in ledger:
            return str(ledger.row("response")[row])
        return str(self.tokenizer.decode(ledger["token_ids"][row, slots].tolist(), skip_special_tokens=True))

    def _pay_dense(self, paid: Tensor, ids: Sequence[int], slots: Sequence[int], score: Score) -> None:
        ends = self._character_ends(ids, slots)
        for offset, amount in score.dense:
            slot = next((t for t, end in zip(slots, ends, strict=True) if end > offset), slots[-1])
            paid[slot] += amount

    def _turn_ends(self, ledger: Ledger, row: int) -> list[tuple[int, float]]:
        """The last chosen slot of every turn of a row, with what the turn earned."""
        if "turn_rewards" not in ledger.rows:
            return []
        last: dict[int, int] = {}
        for slot in ledger.mask[row].nonzero().squeeze(1).tolist():
            last[int(ledger["turn"][row, slot])] = slot
        return list(zip(last.values(), ledger.row("turn_rewards")[row], strict=True))

    def _character_ends(self, ids: Sequence[int], chosen: Sequence[int]) -> list[int]:
        """How many characters of the response are complete after each chosen token."""
        decode = partial(self.tokenizer.decode, skip_special_tokens=True)
        return list(accumulate(map(len, added_texts(decode, [ids[t] for t in chosen]))))

    def close(self) -> None:
        """Ends scoring processes."""
        self.scorer.close()


def _conversations(ledger: Ledger) -> list[int]:
    """The number of each row's conversation."""
    return ledger.rows.get("conversation", list(range(len(ledger))))


def _last_rows(ledger: Ledger) -> dict[int, int]:
    """The row of each conversation; of several segments the last one."""
    return {number: row for row, number in enumerate(_conversations(ledger))}


class Judge:
    """Says which answers count as right; one on which the scorer fails does not, unless that stops the run."""

    def __init__(self, task: Task, config: RewardConfig, members: Sequence[Member]):
        """`members` are what pays beside the task; those that grade answers to data files say which are right."""
        from mingce.tasks.file_task import FileTask
        from mingce.tasks.registry import unscored

        task = task.task if isinstance(task, WithTools) else task
        graders = [member for name, _, member in members if name != MODEL]
        if isinstance(task, FileTask) and (isinstance(task.scorer, FunctionScorer) or task.scorer is unscored):
            self.scorers, self.full_marks = graders, task.full_marks
        else:
            self.scorers, self.full_marks = [_pool(_Correct(task), config, "correct", workers=0)], 1.0

    def right(
        self,
        examples: Sequence[Example],
        responses: Sequence[str],
        seeds: Sequence[int],
        paid: tuple[BatchScorer, Sequence[Score]] | None = None,
    ) -> list[bool]:
        """Whether each answer is right, by the first scorer that judges it.

        `paid` are what a scorer gave these answers already, which is not asked again.
        """
        right = [False] * len(responses)
        left = list(range(len(responses)))
        for scorer in self.scorers:
            if paid is not None and scorer is paid[0]:
                scores = [paid[1][row] for row in left]
            else:
                asked = [examples[row] for row in left], [responses[row] for row in left], [seeds[row] for row in left]
                scores = scorer.score(*asked) if left else []
            for row, score in zip(left, scores, strict=True):
                right[row] = score.judged and not score.parts.get(FAILED) and score.total >= self.full_marks
            left = [row for row, score in zip(left, scores, strict=True) if not score.judged]
        return right

    def close(self) -> None:
        """Ends scoring processes."""
        for scorer in self.scorers:
            scorer.close()


class _Correct:
    """A task's own judgement as a score of 1 or 0."""

    def __init__(self, task: Task):
        self.task = task

    def __call__(self, example: Example, response: str) -> Score:
        return Score(float(self.task.correct(example, response)))


def extra_members(config: RewardConfig) -> list[Member]:
    """What pays beside the task: the person's functions, a reward model, a judge.

    Functions have worker processes, one at least each: whatever one does, the trainer outlives it.
    """
    functions = [FunctionScorer(spec) for spec in config.function]
    members: list[Member] = []
    for name, weight, function in zip(_names(functions), config.function_weights, functions, strict=True):
        members.append((name, weight, _pool(function, config, name, workers=max(1, config.workers))))
    if config.model is not None:
        from mingce.tasks.reward_model import RewardModel

        members.append((MODEL, config.model_weight, RewardModel(config.model)))
    if config.judge.url is not None:
        from mingce.tasks.judge import JudgeModel

        members.append((JUDGE, config.judge.weight, JudgeModel(config.judge, config.time_limit, _on_error(config))))
    return members


def reward_scorer(task: Task, config: RewardConfig, members: Sequence[Member], *, task_scores: bool) -> BatchScorer:
    """What pays, as configured; `task_scores` is False when the task has no score of its own."""
    weighted = [(weight, member) for _, weight, member in members]
    if task_scores:
        weighted.insert(0, (config.task_weight, _pool(task, config, "task", workers=config.workers)))
    only = len(weighted) == 1 and weighted[0][0] == 1.0
    return weighted[0][1] if only else Combined(weighted)


def _names(functions: Sequence[FunctionScorer]) -> list[str]:
    """What the functions are called in the log: `function` if there is one, else by file, by function if need be."""
    if len(functions) == 1:
        return ["function"]
    taken = ("task", MODEL, JUDGE)
    stems = [f.name if f.function_name == USUAL_NAME else f.function_name for f in functions]
    names = [
        f"{f.name}.{f.function_name}" if stems.count(stem) > 1 or stem in taken else stem
        for f, stem in zip(functions, stems, strict=True)
    ]
    return [name if names.count(name) == 1 else f"{name}.{names[:at].count(name) + 1}" for at, name in enumerate(names)]


def _pool(scorer: object, config: RewardConfig, name: str, *, workers: int) -> Scoring:
    return Scoring(
        scorer,  # type: ignore[arg-type]
        name=name,
        workers=workers,
        time_limit=config.time_limit,
        on_error=_on_error(config),
    )


def _on_error(config: RewardConfig) -> OnError:
    try:
        return "stop" if config.on_error == "stop" else float(config.on_error)
    except ValueError:
        raise SettingError(f"reward.on_error must be stop or a number, but is '{config.on_error}'.") from None
