"""What a person is shown before and after training: a run's facts, remarks on its settings, its plan, its results."""

from __future__ import annotations

import math
from pathlib import Path

from rich.console import Console
from rich.table import Table

from mingce.base.lang import display_lang
from mingce.base.numbers import show_count
from mingce.base.texts import sentence
from mingce.config import Config, describe, settings, value_of
from mingce.config.table import LARGEST_BETA, WHOLE_ANSWER
from mingce.credit import whitens
from mingce.engine.local import Roles
from mingce.progress import Summary
from mingce.specs import find_estimator, find_policy_loss
from mingce.specs.settings import SYMBOLS
from mingce.training.no_learning import settings_without_learning
from mingce.training.trainer import Trainer
from mingce.training.validation import Validation

USUAL_DRIFT = 0.1
"""Nats per token that a policy often is from its reference once it has learned something."""
DEAR = 0.1
"""What that may cost of a score of 1 without a warning."""


def remarks(config: Config) -> list[tuple[str, bool]]:
    """Where the KL enters, and what is unusual: (sentence, is a warning)."""
    kl, s = config.kl, config.sampling
    if kl.reward_coef > 0 and kl.loss_coef > 0:
        said = [(sentence("training.kl_twice"), True)]
    elif kl.reward_coef > 0:
        kind = sentence("training.adaptive" if kl.adaptive else "training.fixed")
        cost = kl.reward_coef * USUAL_DRIFT * s.max_new_tokens
        facts = {"estimator": kl.estimator, "beta": kl.reward_coef, "kind": kind}
        facts |= {"drift": USUAL_DRIFT, "tokens": s.max_new_tokens, "cost": cost}
        said = [(sentence("training.kl_in_reward", **facts), False)]
        if cost > DEAR:
            cheaper = min(LARGEST_BETA, WHOLE_ANSWER / s.max_new_tokens)
            said.append((sentence("training.kl_dear", **facts, cheaper=cheaper), True))
    elif kl.loss_coef > 0:
        said = [(sentence("training.kl_in_loss", estimator=kl.loss_estimator, weight=kl.loss_coef), False)]
    else:
        said = [(sentence("training.no_kl"), True)]
    if s.top_k or s.top_p < 1 or s.min_p > 0:
        said.append((sentence("training.truncated_sampling"), True))
    for spec in (find_estimator(config.estimator), find_policy_loss(config.actor.loss)):
        if spec.aggregation not in (None, config.actor.loss_agg_mode):
            said.append((sentence("training.aggregation", name=spec.name, mode=spec.aggregation), True))
    return said + [(text, True) for text in settings_without_learning(config)]


def batch_plan(config: Config, tokens: int) -> list[tuple[str, str]]:
    """How a step divides, as (label, value) lines; `tokens` is prompt + response of the longest row."""
    rollouts = config.prompts_per_step * config.samples_per_prompt
    minibatches = math.ceil(rollouts / config.minibatch_rollouts)
    rows = min(config.minibatch_rollouts, rollouts)
    micro = math.ceil(rows / max(config.micro_batch_tokens // max(tokens, 1), 1))
    lines = {
        "rollouts": {"prompts": config.prompts_per_step, "samples": config.samples_per_prompt, "rollouts": rollouts},
        "minibatches": {"count": minibatches, "rows": rows},
        "micro_batches": {"count": micro, "most": config.micro_batch_tokens, "tokens": tokens},
        "actor_updates": {"count": config.actor.epochs * minibatches, "epochs": config.actor.epochs},
    }
    if find_estimator(config.estimator).needs_critic:
        updates = math.ceil(rollouts / config.critic.minibatch_rollouts) * config.critic.epochs
        lines["critic_updates"] = {"count": updates, "epochs": config.critic.epochs}
    return [(sentence(f"training.plan_{name}"), sentence(f"training.{name}", **x)) for name, x in lines.items()]


def facts(config: Config, roles: Roles, path: Path) -> list[tuple[str, str]]:
    """What a person wants to know at the start, as (label, value) lines."""
    values: dict[str, dict[str, object]] = {
        "task": {"name": roles.task.name, "train": len(roles.train), "held_out": len(roles.held_out)},
        "model": {"path": config.model.path, "size": show_count(roles.actor.size)},
        "credit": {"estimator": config.estimator, "settings": _credit_settings(config)},
        "batch": {"prompts": config.prompts_per_step, "samples": config.samples_per_prompt},
    }
    lines = [(sentence(f"training.label_{name}"), sentence(f"training.{name}", **x)) for name, x in values.items()]
    return [*lines, (sentence("training.label_run"), str(path))]


def _credit_settings(config: Config) -> str:
    """The settings that the estimator reads, in parentheses; nothing where it reads none and nothing is whitened."""
    read = find_estimator(config.estimator).settings
    known = [f"{SYMBOLS.get(name, name)} = {getattr(config.credit, name):g}" for name in read]
    known += [sentence("training.whitened")] if whitens(config) else []
    opening, comma, closing = ("（", "，", "）") if display_lang() == "zh" else (" (", ", ", ")")
    return f"{opening}{comma.join(known)}{closing}" if known else ""


def show_plan(console: Console, config: Config, roles: Roles) -> None:
    """--dry-run: the resolved configuration and the batch plan."""
    headings = sentence("training.plan_setting"), sentence("training.plan_value"), ""
    table = Table(*headings, title=sentence("training.plan_configuration"), title_justify="left")
    usual = Config()
    for key, _, _ in settings():
        setting = value_of(config, key)
        style = None if setting == value_of(usual, key) else "bold green"
        table.add_row(key, str(setting), describe(key, display_lang()), style=style)
    console.print(table)
    shortest = min(len(roles.train), 200)
    longest = max(len(roles.actor.tokenizer.encode(str(roles.train[i].prompt))) for i in range(shortest))
    plan = Table(sentence("training.plan"), "", title=sentence("training.plan_step"), title_justify="left")
    for label, value in [*facts(config, roles, Path(config.root) / (config.name or "…"))[:-1],
                         *batch_plan(config, longest + config.sampling.max_new_tokens)]:  # fmt: skip
        plan.add_row(label, value)
    epochs = config.steps * config.prompts_per_step / len(roles.train)
    plan.add_row(sentence("training.plan_steps"), sentence("training.steps", steps=config.steps, epochs=epochs))
    console.print(plan)
    for remark, warning in remarks(config):
        console.print(remark, style="yellow" if warning else None)


def summary(trainer: Trainer, seconds: float) -> Summary:
    """What the run came to."""

    def accuracy(result: Validation | None, kind: str) -> float | None:
        return None if result is None else result.metrics.get(f"val/accuracy_{kind}")

    before, after = trainer.before, trainer.after
    pairs = zip(before.answers, after.answers, strict=False) if before and after else ()
    unfinished = trainer.step_done < trainer.config.steps or trainer.pending is not None
    stopped = trainer.interrupted if trainer.interrupted and unfinished else None
    path = trainer.run.path
    commands = (
        [f"mingce resume {path}"]
        if stopped
        else [f"mingce view {path}", f"mingce chat {path}", f"mingce eval {path}", f"mingce export {path} --out DIR"]
    )
    return Summary(
        run=str(path),
        seconds=seconds,
        steps=trainer.step_done,
        greedy_before=accuracy(before, "greedy"),
        greedy_after=accuracy(after, "greedy"),
        sampled_before=accuracy(before, "sampled"),
        sampled_after=accuracy(after, "sampled"),
        answers=[(b.prompt, b.response, a.response, b.right, a.right) for b, a in pairs],
        stopped=stopped,
        commands=commands,
    )
