"""Starting and resuming a run: everything between the command line and the loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from mingce.base.atomic import remove_directory
from mingce.base.errors import MingceError, RankFault, RunError
from mingce.base.lang import display_lang, say
from mingce.base.numbers import show_count
from mingce.config import Config, as_values, config_of, describe, read_config, settings, value_of
from mingce.credit import whitens
from mingce.engine.local import Roles, build_roles
from mingce.record.checkpoints import Checkpoint
from mingce.record.run import Run
from mingce.specs import find_estimator, find_policy_loss
from mingce.training import fingerprints
from mingce.training.no_learning import settings_without_learning
from mingce.training.saving import size_note
from mingce.training.sinks import Sinks, check_sinks, open_sinks
from mingce.training.trainer import Trainer
from mingce.training.trust import executed_by, expect_trust, remember
from mingce.training.validation import Validation
from mingce.watch import Summary, Watch, watch_for


def train(console: Console, recipe: Path | None, overrides: Sequence[str], *, dry_run: bool = False) -> Path | None:
    """A new run, whose directory it returns, or with `dry_run` only what it would be (None)."""
    config = read_config(recipe, overrides)
    with watch_for(console, display_lang()) as watch:
        check_sinks(config.keep.loggers)
        if dry_run:
            show_plan(console, config, build_roles(config, watch.note))
            return None
        remember(list(executed_by(config, trains=True)))
        with (
            closing(roles_of(config, watch.note)) as roles,
            Run.create(config.root, config.name, as_values(config)) as run,
        ):
            _train(run, config, roles, watch, resumed=False)
            return run.path


def resume(
    console: Console, path: Path, overrides: Sequence[str] = (), *, changed: bool = False, trust: bool = False
) -> None:
    """Goes on where the newest whole checkpoint of a run ends; `steps=N` may give it more steps.

    `changed` goes on even if what results depend on is no longer what it was, and notes it in events.jsonl. `trust`
    executes what the run's settings name without asking.
    """
    with Run.open(path) as run:
        config = config_of(run.config())
        if overrides:
            allowed = ("steps", "keep.", "validation.", "audit.", "threads", "micro_batch_tokens", "engine", "ray.")
            for override in overrides:
                if not override.startswith(allowed):
                    raise RunError(
                        f"'{override}' cannot change on resume, for the run would be another; only steps, keep.*, "
                        "validation.*, audit.*, threads, micro_batch_tokens, engine and ray.* can. Start a new run "
                        "instead."
                    )
            asked = read_config(None, overrides)
            for override in overrides:
                _copy(asked, config, override.partition("=")[0])
        check_sinks(config.keep.loggers)
        expect_trust(path, config, overrides, trust=trust, trains=True, command="resume")
        with watch_for(console, display_lang()) as watch, closing(roles_of(config, watch.note)) as roles:
            _train(run, config, roles, watch, resumed=True, changed=changed, overrides=overrides)


def roles_of(config: Config, note: Callable[[str], None]) -> Roles:
    """The roles where `engine` says."""
    if config.engine == "ray":
        from mingce.engine import ray

        return ray.build_roles(config, note)
    return build_roles(config, note)


def _copy(source: object, target: object, key: str) -> None:
    *path, last = key.split(".")
    for part in path:
        source, target = getattr(source, part), getattr(target, part)
    setattr(target, last, getattr(source, last))


def _train(
    run: Run,
    config: Config,
    roles: Roles,
    watch: Watch,
    *,
    resumed: bool,
    changed: bool = False,
    overrides: Sequence[str] = (),
) -> None:
    trainer = Trainer(run, config, roles, watch)
    started = time.monotonic()
    if resumed:
        try:
            trainer.resume(partial(_consent, trainer, overrides, changed))
            if changed:
                run.accept_config(trainer.step_done)
        except RankFault as at_once:
            trainer = _recovered(trainer, at_once)
    try:
        sinks = _sinks(trainer)
    except MingceError:
        if not resumed:
            remove_directory(run.path)  # nothing is in it yet, and its name stays free
        raise
    first = trainer.step_done + 1
    watch.begin("mingce 明策", facts(config, roles, run.path), first, config.steps)
    for sentence, warning in remarks(config):
        watch.note(sentence, warning)
    if (room := size_note(config, roles, run.path)) is not None:
        watch.note(*room)
    if first > config.steps and trainer.pending is None:
        zh = f"全部 {config.steps} 步已完成；要继续训练请给 steps=N"
        watch.note(say(display_lang(), zh, f"all {config.steps} steps are done; give it more with steps=N"))
    while (fault := _trained(trainer, sinks)) is not None:
        trainer = _recovered(trainer, fault)
        sinks = _sinks(trainer, needed=False)
    watch.end(summary(trainer, time.monotonic() - started))


def _consent(trainer: Trainer, overrides: Sequence[str], changed: bool, checkpoint: Checkpoint) -> None:
    """Says what is not as it was at the checkpoint; what changes results is an error without `--changed`."""
    run, step = trainer.run, checkpoint.step
    told = fingerprints.changes(run, checkpoint, trainer.fingerprints, overrides)
    grave = [sentence for sentence, needs_consent in told if needs_consent]
    if grave and not changed:
        listed = "; ".join(f"({number}) {sentence}" for number, sentence in enumerate(grave, 1))
        zh = f"这已不是原来的运行，继续下去结果会不同：{listed}。请改回去，或加 --changed 照样继续"
        en = f"this is no longer the run it was, and would go on differently: {listed}; undo that, or add --changed"
        raise RunError(say(display_lang(), zh, en))
    for sentence, needs_consent in told:
        trainer.watch.note(sentence, needs_consent)
        run.log_event(step, "changed", sentence)


def _sinks(trainer: Trainer, *, needed: bool = True) -> Sinks:
    """The loggers, ready for the next step; `needed` makes one that does not start an error."""
    run, config, watch = trainer.run, trainer.config, trainer.watch
    return open_sinks(
        config.keep.loggers,
        run.path,
        run.name,
        as_values(config),
        trainer.step_done + 1,
        lambda sentence: watch.note(sentence, True),
        needed=needed,
    )


def _trained(trainer: Trainer, sinks: Sinks) -> RankFault | None:
    """Trains to the end and returns None, or returns the fault when a rank is lost."""
    try:
        trainer.train(sinks)
    except RankFault as fault:
        return fault
    finally:
        sinks.close()
    return None


def _recovered(trainer: Trainer, fault: RankFault) -> Trainer:
    """Restarts all ranks after one was lost, and continues from the newest checkpoint."""
    run, lang = trainer.run, display_lang()
    again = Trainer(run, trainer.config, trainer.roles, trainer.watch)
    again.interrupted, again.fingerprints = trainer.interrupted, trainer.fingerprints
    while True:
        run.log_event(trainer.step_done, "restart", str(fault))
        zh, en = (
            f"{fault}；重建所有进程，从上一个存档重做",
            f"{fault}; starting all ranks again from the last checkpoint",
        )
        trainer.watch.note(say(lang, zh, en), True)
        try:
            trainer.roles.rebuild(fault)
            again.resume()
            return again
        except RankFault as another:
            fault = another


def remarks(config: Config) -> list[tuple[str, bool]]:
    """Where the KL enters, and what is unusual: (sentence, is a warning)."""
    kl, s, lang = config.kl, config.sampling, display_lang()
    said: list[tuple[str, bool]] = []
    if kl.reward_coef > 0 and kl.loss_coef > 0:
        zh = "KL 同时在奖励和损失里，罚了两次；请把 kl.reward_coef 或 kl.loss_coef 设为 0"
        said.append(
            (
                say(
                    lang,
                    zh,
                    "KL is in the reward AND in the loss: paid twice; set one of kl.reward_coef, kl.loss_coef to 0",
                ),
                True,
            )
        )
    elif kl.reward_coef > 0:
        zh = f"KL 在奖励里（{kl.estimator}，β = {kl.reward_coef:g}，{'自适应' if kl.adaptive else '固定'}）"
        en = f"KL is in the reward ({kl.estimator}, β = {kl.reward_coef:g}, {'adaptive' if kl.adaptive else 'fixed'})"
        said.append((say(lang, zh, en), False))
    elif kl.loss_coef > 0:
        zh, en = (
            f"KL 在损失里（{kl.loss_estimator}，权重 {kl.loss_coef:g}）",
            f"KL is in the loss ({kl.loss_estimator}, weight {kl.loss_coef:g})",
        )
        said.append((say(lang, zh, en), False))
    else:
        zh = "KL 既不在奖励里也不在损失里：没有什么把策略拉在起点附近"
        said.append(
            (
                say(lang, zh, "KL is neither in the reward nor in the loss: nothing holds the policy near its start"),
                True,
            )
        )
    if s.top_k or s.top_p < 1 or s.min_p > 0:
        zh = "采样被截断，而训练用整个分布：数据是异策略的"
        said.append(
            (
                say(
                    lang,
                    zh,
                    "sampling is truncated while training uses the whole distribution: the data are off-policy",
                ),
                True,
            )
        )
    for spec in (find_estimator(config.estimator), find_policy_loss(config.actor.loss)):
        if spec.aggregation not in (None, config.actor.loss_agg_mode):
            setting = f"actor.loss_agg_mode={spec.aggregation}"
            said.append((say(lang, f"{spec.name} 应配 {setting}", f"{spec.name} goes with {setting}"), True))
    said += [(say(lang, zh, en), True) for zh, en in settings_without_learning(config)]
    return said


def batch_plan(config: Config, tokens: int) -> list[tuple[str, str]]:
    """How a step divides, as (label, value) lines; `tokens` is prompt + response of the longest row."""
    rollouts = config.prompts_per_step * config.samples_per_prompt
    minibatches = math.ceil(rollouts / config.minibatch_rollouts)
    rows = min(config.minibatch_rollouts, rollouts)
    micro = math.ceil(rows / max(config.micro_batch_tokens // max(tokens, 1), 1))
    lines = [
        ("rollouts a step", f"{config.prompts_per_step} prompts × {config.samples_per_prompt} samples = {rollouts}"),
        ("minibatches", f"{minibatches} of {rows} rollouts"),
        ("micro-batches", f"at most {micro} a minibatch (≤ {config.micro_batch_tokens} tokens, rows ≤ {tokens})"),
        ("actor updates", f"{config.actor.epochs * minibatches} a step ({config.actor.epochs} epochs)"),
    ]
    if find_estimator(config.estimator).needs_critic:
        critic = math.ceil(rollouts / config.critic.minibatch_rollouts) * config.critic.epochs
        lines.append(("critic updates", f"{critic} a step ({config.critic.epochs} epochs)"))
    return lines


def facts(config: Config, roles: Roles, path: Path) -> list[tuple[str, str]]:
    """What a person wants to know at the start."""
    train, apart, size = len(roles.train), len(roles.held_out), show_count(roles.actor.size)
    prompts, samples, c = config.prompts_per_step, config.samples_per_prompt, config.credit
    if display_lang() == "zh":
        whitened = "，白化" if whitens(config) else ""
        return [
            ("任务", f"{roles.task.name}，{train:,} 个训练提示，{apart:,} 个留出"),
            ("模型", f"{config.model.path}，{size} 参数"),
            ("优势", f"{config.estimator}（γ = {c.gamma:g}，λ = {c.lam:g}{whitened}）"),
            ("批次", f"每步 {prompts} 个提示 × {samples} 条回答"),
            ("目录", str(path)),
        ]
    whitened = ", whitened" if whitens(config) else ""
    return [
        ("task", f"{roles.task.name}, {train:,} prompts, {apart:,} held out"),
        ("model", f"{config.model.path}, {size} parameters"),
        ("credit", f"{config.estimator} (γ = {c.gamma:g}, λ = {c.lam:g}{whitened})"),
        ("batch", f"{prompts} prompts × {samples} samples a step"),
        ("run", str(path)),
    ]


def show_plan(console: Console, config: Config, roles: Roles) -> None:
    """--dry-run: the resolved configuration and the batch plan."""
    table = Table("setting", "value", "", title="configuration", title_justify="left")
    for key, _, default in settings():
        setting = value_of(config, key)
        style = None if setting == default else "bold green"
        table.add_row(key, str(setting), describe(key, display_lang()), style=style)
    console.print(table)
    shortest = min(len(roles.train), 200)
    longest = max(len(roles.actor.tokenizer.encode(str(roles.train[i].prompt))) for i in range(shortest))
    plan = Table("plan", "", title="a step", title_justify="left")
    for label, value in [*facts(config, roles, Path(config.root) / (config.name or "…"))[:-1],
                         *batch_plan(config, longest + config.sampling.max_new_tokens)]:  # fmt: skip
        plan.add_row(label, value)
    plan.add_row(
        "steps", f"{config.steps}, about {config.steps * config.prompts_per_step / len(roles.train):.1f} epochs"
    )
    console.print(plan)
    for sentence, warning in remarks(config):
        console.print(sentence, style="yellow" if warning else None)


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
