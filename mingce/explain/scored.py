"""A prompt and a response of one's own, scored by models and the task as a step of training would.

Models measure; the arithmetic is the float64 twins'. The response is taken as if the policy had said it and then
stopped, so the end token has its account too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch

from mingce.base.errors import DataError, SettingError
from mingce.base.texts import sentence
from mingce.base.user_files import names_file
from mingce.config import Config, as_values
from mingce.credit import whitens
from mingce.engine.local import build_actor, build_critic, task_of
from mingce.explain.example import Rollout, completed
from mingce.ledger import Ledger
from mingce.models.lora import base_causal_lm
from mingce.models.prompts import render_prompt
from mingce.record import checkpoints
from mingce.record.targets import Step, find_run
from mingce.record.tokens import TokenTexts, tokenizer_file
from mingce.roles.reference import Reference
from mingce.roles.reward import Reward, function_pool, reward_scorer
from mingce.specs import find_estimator
from mingce.specs.settings import AccountSettings, by_dotted_key
from mingce.tasks.arithmetic import Arithmetic
from mingce.tasks.base import Example, Task
from mingce.tasks.counting import Counting
from mingce.training.opening import Opened, open_policy
from mingce.training.trust import expect_trust

ASSUMED = 1.0


def scored(
    prompt: str,
    response: str,
    *,
    where: str = "tiny",
    step: Step = None,
    overrides: Sequence[str] = (),
    score: float | None = None,
    lang: str = "zh",
) -> tuple[Rollout, list[str]]:
    """The pair's rollout with every column, and what a reader must know about where its numbers come from.

    `where` is a run (its best checkpoint unless `step` says which) or a model; `score` is used instead of the task's.
    """
    run = find_run(where, step)
    if run is not None and step is None:
        step = checkpoints.best_step(run)
    opened = open_policy(where, step=step, overrides=overrides)
    config, notes = opened.config, [_whose(opened, lang)]
    if names_file(config.estimator):
        raise SettingError(f"{config.estimator} is a file of its own, not executed here; give --estimator gae.")
    if find_estimator(config.estimator).grouped:
        raise SettingError(
            f"{config.estimator} compares the answers to one prompt, and here is one answer only; give --estimator gae."
        )
    if run is not None and score is None:
        expect_trust(run.path, config, overrides, trust=False, command="eval")
    ledger = _ledger(opened, prompt, response)
    _measure(opened, ledger, lang, notes)
    _score(opened, ledger, prompt, score, lang, notes)
    return _rollout(opened, ledger, prompt, response), notes


def _whose(opened: Opened, lang: str) -> str:
    if opened.step is None:
        return sentence("tutor.untrained_actor", lang, where=opened.where)
    start = opened.config.model.path
    return sentence("tutor.trained_actor", lang, where=opened.where, step=opened.step, start=start)


# ── the tokens ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _ledger(opened: Opened, prompt: str, response: str) -> Ledger:
    tokenizer, where = opened.actor.tokenizer, opened.config.model.path
    for name, text in (("prompt", prompt), ("response", response)):
        unknown = tokenizer.unk_token_id
        odd = [c for c in dict.fromkeys(text) if unknown in tokenizer.encode(c, add_special_tokens=False)]
        if unknown is not None and odd:
            raise DataError(
                f"the tokenizer of {where} has no token for {' '.join(odd[:8])} in the {name}; "
                "use its characters, or a model with a larger vocabulary: --run RUN_OR_MODEL."
            )
    prompt_ids = render_prompt(tokenizer, prompt)
    ids = tokenizer.encode(response, add_special_tokens=False, verbose=False)
    if tokenizer.eos_token_id is not None and ids[-1:] != [tokenizer.eos_token_id]:
        ids = [*ids, tokenizer.eos_token_id]
    most = getattr(base_causal_lm(opened.actor.model).config, "max_position_embeddings", None)
    if most is not None and len(prompt_ids) + len(ids) > most:
        raise DataError(
            f"prompt and response are {len(prompt_ids) + len(ids)} tokens, but {where} reads {most}; shorten them."
        )
    mask = torch.ones(1, len(ids), dtype=torch.bool)
    rows: dict[str, Sequence[Any]] = {
        "uid": ["pair"], "group": ["pair"], "prompt": [prompt], "prompt_ids": [prompt_ids], "response": [response],
        "finish_reason": ["stop"], "temperature": [opened.actor.sampling.temperature],
    }  # fmt: skip
    device = next(opened.actor.model.parameters()).device
    return Ledger(torch.tensor([ids]), mask, mask, rows).to(device)


# ── what the roles say of them ───────────────────────────────────────────────────────────────────────────────────────


def _measure(opened: Opened, ledger: Ledger, lang: str, notes: list[str]) -> None:
    config, actor = opened.config, opened.actor
    begun = actor.model if hasattr(actor.model, "disable_adapter") else build_actor(config).model
    reference = Reference(begun, actor.pad_id, actor.sampling.temperature, config.micro_batch_tokens)
    ledger.fill(actor.log_probs(ledger), reference.log_probs(ledger))
    if not find_estimator(config.estimator).needs_critic:
        return
    critic = opened.critic
    if critic is None:
        critic = build_critic(config, actor)
        notes.append(sentence("tutor.untrained_critic", lang))
    ledger.fill(critic.values(ledger))


def _score(opened: Opened, ledger: Ledger, prompt: str, score: float | None, lang: str, notes: list[str]) -> None:
    config = opened.config
    found = None if score is not None else _example(config, prompt)
    if found is not None:
        task, example, task_scores = found
        scorer = reward_scorer(task, config.reward, function_pool(config.reward), task_scores=task_scores)
        reward = Reward(scorer, opened.actor.tokenizer, config.seed)
        try:
            columns = reward.score(ledger, [example], step=0)
        finally:
            reward.close()
        total = float(columns["scores"].sum())
        notes.append(sentence("tutor.score_of_task", lang, score=total, task=task.name))
        ledger.fill(columns)
        return
    given = ASSUMED if score is None else score
    if score is None:
        notes.append(sentence("tutor.score_assumed", lang, score=given, task=config.task))
    else:
        notes.append(sentence("tutor.score_given", lang, score=given))
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


# ── as the page has it ───────────────────────────────────────────────────────────────────────────────────────────────


def _rollout(opened: Opened, ledger: Ledger, prompt: str, response: str) -> Rollout:
    config = opened.config
    texts = TokenTexts(tokenizer_file(config.model.path))
    columns = {name: column[0].tolist() for name, column in ledger.columns().items() if name != "token_ids"}
    columns = {name: [int(x) for x in column] if "mask" in name else column for name, column in columns.items()}
    adapted = opened.kl_coef if config.kl.adaptive else None
    settings = AccountSettings.from_config(by_dotted_key(as_values(config)), beta=adapted, whiten=whitens(config))
    return completed(
        {
            "step": None, "row": 0, "uid": "pair", "group": None, "prompt": prompt, "response": response,
            "texts": texts.known, "prompt_tokens": texts.texts(ledger.row("prompt_ids")[0]),
            "tokens": texts.texts(ledger["token_ids"][0].tolist()), "columns": columns, "info": {},
            "bootstrap": 0.0, "settings": settings.as_dict(), "whitening": None, "siblings": [],
            "siblings_left_out": 0,
        }
    )  # fmt: skip
