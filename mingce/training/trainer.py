"""The loop. Generate; value, compare and score; assign credit; update critic and actor; write it all down.

Steps count from 1; step 0 is the model as it was. A step is a function of the weights it starts from, the configuration
and its number, so a run that is killed and resumed goes the same way bit for bit.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any

import numpy as np
import torch

from mingce.algorithms.kl import AdaptiveKLController, FixedKLController
from mingce.audit.guard import Guard
from mingce.base.errors import MingceError, RunError
from mingce.base.texts import sentence
from mingce.config import Config
from mingce.credit import assign_credit
from mingce.engine.local import Roles
from mingce.ledger import Ledger
from mingce.metrics import compute_metrics, metric
from mingce.progress import Progress
from mingce.record import checkpoints
from mingce.record.run import Run
from mingce.record.tokens import added_texts
from mingce.roles.actor import row_seed
from mingce.roles.inputs import Rollouts, measure_inputs, on_request
from mingce.specs import find_estimator
from mingce.training import fingerprints
from mingce.training.fingerprints import Consent
from mingce.training.held_out import accounts
from mingce.training.no_learning import Lookout
from mingce.training.saving import Saver
from mingce.training.selfcheck import self_check
from mingce.training.sinks import Sinks
from mingce.training.validation import PROMPTS, Validation, validate

NO_LEARNING = "no-learning"
STOPS = (signal.SIGINT, signal.SIGTERM)


def seed_everything(seed: int) -> None:
    """The global generators, for code that is not ours, a reward function above all; ours has seeds of its own."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


class Interrupted(KeyboardInterrupt):
    """A person or a cluster asked for the run's end in the midst of a validation, which is then abandoned."""


class Trainer:
    """One run's training, from wherever its newest checkpoint left it."""

    def __init__(self, run: Run, config: Config, roles: Roles, progress: Progress):
        self.run, self.config, self.roles, self.progress = run, config, roles, progress
        self.estimator = find_estimator(config.estimator)
        kl = config.kl
        self.kl = (
            AdaptiveKLController(kl.reward_coef, kl.target, kl.horizon)
            if kl.adaptive
            else FixedKLController(kl.reward_coef)
        )
        sampling = roles.actor.sampling
        # where texts end responses too, which ids do is not known
        self.guard = Guard(run, config, () if sampling.stop_texts else sampling.stop_ids)
        self.lookout = Lookout(config)
        self.seconds: dict[str, float] = {}
        self.before: Validation | None = None
        self.after: Validation | None = None
        self.step_done = 0
        self.interrupted = ""
        """How the run was asked to stop (`Ctrl-C`, `SIGTERM`); empty while it was not."""
        self.validating = False
        self.pending: dict[str, float] | None = None
        """Metrics of the step that is done but for its validation, which was interrupted; else None."""
        self.saver = Saver()
        self.fingerprints = fingerprints.take(config, roles)

    def train(self, sinks: Sinks) -> None:
        """All steps that are left; Ctrl-C or SIGTERM ends the step at hand, saves it and stops."""
        with self._asked_to_stop(), self._saved_at_the_end():
            try:
                if self.pending is not None:
                    self._finish(self.step_done, self.pending, None, sinks)
                elif self.step_done == 0:
                    self.before = self._validate(0)
                    self._record(0, self.before.metrics, sinks)
                for step in range(self.step_done + 1, self.config.steps + 1):
                    if self.interrupted:
                        return
                    self.saver.check()
                    self.run.check_place()
                    ledger, measured = self.step(step)
                    measured |= self._audit(step, ledger, measured["critic/kl_coeff"])
                    with self.stage("ledger", step):
                        every = self.config.keep.ledger_every
                        if (every and step % every == 0) or self.guard.alarm:
                            self.run.ledger.write(step, ledger)
                            if self.roles.actor.worlds is not None:
                                self.run.log_clocks(step, self.roles.actor.worlds.clocks)
                    self._finish(step, compute_metrics(ledger) | measured | self._timings(ledger), ledger, sinks)
            except Interrupted:
                return

    def _finish(self, step: int, metrics: dict[str, float], ledger: Ledger | None, sinks: Sinks) -> None:
        """Validates, records and saves a step whose update is made; `ledger` is None when it was made before a resume.

        Interrupted, the validation is left to the resume: the checkpoint keeps what else there is to record.
        """
        every = self.config.validation.every
        was_pending, self.step_done = self.pending is not None, step
        if step == self.config.steps or (every and step % every == 0) or was_pending:
            self.pending = metrics
            try:
                self.after = self._validate(step)
            except Interrupted:
                if not was_pending:
                    self.save(step, None)
                if self.guard.alarm:
                    raise self.guard.alarm from None
                raise
            self.pending = None
            metrics = metrics | self.after.metrics
        self._record(step, metrics, sinks)
        last = step == self.config.steps or self.interrupted or self.guard.alarm
        if last or was_pending or step % self.config.keep.checkpoint_every == 0:
            self.save(step, metrics.get("val/accuracy_sampled"), again=was_pending)
        self.progress.step(step, metrics, ledger, None if ledger is None else partial(self.token_texts, ledger))
        if self.guard.alarm:
            raise self.guard.alarm

    def step(self, step: int) -> tuple[Ledger, dict[str, float]]:
        """One PPO step: the ledger with every column, and what is no function of columns."""
        actor, critic, reference, reward = self.roles.actor, self.roles.critic, self.roles.reference, self.roles.reward
        seed_everything(row_seed(self.config.seed, step, -3))
        examples = self.roles.batch(step, self.config.prompts_per_step, self.config.seed)
        drawn_for = [example for example in examples for _ in range(self.config.samples_per_prompt)]
        with self.stage("generate", step):
            ledger = actor.generate(examples, step, partial(self._drawn, len(drawn_for)))
        with self.stage("score", step):
            ledger.fill(reward.score(ledger, drawn_for, step))
        with self.stage("log_probs", step):
            if not self._scored_by_the_update(step, ledger):
                ledger.fill(actor.log_probs(ledger))
            if reference is not None:
                ledger.fill(reference.log_probs(ledger))
        if on_request(self.estimator.inputs):
            with self.stage("inputs", step):
                measure_inputs(self.estimator.inputs, Rollouts(ledger, drawn_for, step, actor, reward))
        with self.stage("values", step):
            if critic is not None:
                ledger.fill(critic.values(ledger))
        with self.stage("credit", step):
            beta = self.kl.value
            assign_credit(ledger, self.config, beta)
            if step == 1:
                self.progress.note(self_check(ledger, actor, self.config))
        measured = {"critic/kl_coeff": beta} | (actor.worlds.measured if actor.worlds is not None else {})
        with self.stage("update_critic", step):
            if critic is not None:
                measured |= critic.update(ledger, step, self.progress.progress)
        with self.stage("update_actor", step):
            if step > self.config.critic.warmup or critic is None:
                measured |= actor.update(ledger, step, self.progress.progress)
        if "kl" in ledger:
            self.kl.update(metric("critic/kl", ledger), len(ledger))
        return ledger, measured

    def _scored_by_the_update(self, step: int, ledger: Ledger) -> bool:
        """Whether the first pass of the actor's update says old_log_probs and entropy, and no pass before it is needed.

        It does if it is the step's only one of all rows and nothing before it reads them; step 1 is checked before.
        """
        c, read = self.config, {"old_log_probs", "entropy"} & {*self.estimator.inputs}
        once = c.actor.epochs == 1 and len(ledger) <= c.minibatch_rollouts and c.actor.stop_kl is None
        warm = self.roles.critic is None or step > c.critic.warmup
        return once and warm and step > 1 and self.roles.reference is None and not read

    # ── writing and going on ─────────────────────────────────────────────────────────────────────────────────────

    def save(self, step: int, score: float | None, *, again: bool = False) -> None:
        """A checkpoint of everything that the next step depends on; `score` decides which is the best.

        `again` replaces one of the same step, which was not validated then.
        """
        learners = self.roles.learners
        state: dict[str, Any] = {name: learner.state() for name, learner in learners.items()}
        state["kl_coef"] = self.kl.value
        state["before"] = None if self.before is None else self.before.state()
        if self.pending is not None:
            state["pending"] = {name: repr(value) for name, value in self.pending.items()}
        keep = self.config.keep
        with self.stage("save", step):
            self.saver.wait()
            draft = checkpoints.prepare(
                self.run,
                step,
                tensors={name: learner.tensors() for name, learner in learners.items()},
                state=state,
                score=score,
                keep=checkpoints.Keep(keep.last, keep.best, keep.optimizer),
                fingerprints=self.fingerprints,
                replace=again,
            )
            self.saver.save(draft)

    @contextmanager
    def _saved_at_the_end(self) -> Iterator[None]:
        """Waits for the checkpoint that is being written, however training ends."""
        try:
            yield
        except BaseException:
            with suppress(MingceError):  # what ended training is reported
                self.saver.wait()
            raise
        self.saver.wait()
        self.run.check_place()

    def resume(self, consent: Consent = lambda checkpoint: None) -> None:
        """Takes up the newest whole checkpoint, if there is `consent`, and forgets whatever was written after it."""
        found = checkpoints.load_newest(self.run, lambda text: self.progress.note(text, True), read=False)
        if found is not None:
            consent(found)
        pending: dict[str, str] | None = None if found is None else found.state.get("pending")
        self.run.rewind(-1 if found is None else found.step, logged=pending is None)
        told = [str(event.get("cause")) for event in self.run.events(NO_LEARNING)]
        self.lookout = Lookout(self.config, self.run.metrics(), told)
        if found is None:
            self.progress.note(sentence("training.no_checkpoint"))
            return
        for role, learner in self.roles.learners.items():
            if role not in found.tensors or role not in found.state:
                raise RunError(
                    f"{found.path} has no {role}, which estimator={self.config.estimator} needs; set it back"
                )
            learner.restore(found.tensors[role], found.state[role])
        self.kl.value = found.state["kl_coef"]
        if found.state["before"] is not None:
            self.before = Validation.of_state(found.state["before"])
        self.step_done = found.step
        if pending is not None:
            self.pending = {name: _number(text) for name, text in pending.items()}

    def _record(self, step: int, metrics: dict[str, float], sinks: Sinks) -> None:
        self.run.log(step, metrics)
        sinks.log(step, metrics)
        if (found := self.lookout.look(metrics)) is not None:
            self.run.log_event(step, NO_LEARNING, found.sentence, cause=found.cause)
            self.progress.note(found.sentence, True)

    def _audit(self, step: int, ledger: Ledger, beta: float) -> dict[str, float]:
        """How many findings the audit of the step's ledger makes, if it is this step's turn."""
        if not self.guard.due(step):
            return {}
        with self.stage("audit", step):
            bugs, counts = self.guard.look(step, ledger, beta)
        for bug in bugs:
            self.progress.note(bug, True)
        return counts

    def _validate(self, step: int) -> Validation:
        with self.stage("validate", step):
            self.validating = True
            try:
                if self.interrupted:
                    raise Interrupted
                result = validate(self.roles, self.config, self.before, self._validated_rows)
            finally:
                self.validating = False
            if result.evaluation is not None and self.config.keep.validation_prompts:
                ledger = accounts(self.roles, self.config, result.evaluation, step, self.kl.value)
                self.run.validation.write(step, ledger)
        self.progress.validated(step, result.metrics)
        if self.before is None and PROMPTS in result.metrics:
            asked, budget = int(result.metrics[PROMPTS]), self.config.validation.budget
            self.progress.note(sentence("training.validation_budget", asked=asked, budget=budget), True)
        return replace(result, evaluation=None)

    def _validated_rows(self, done: int, total: int, share: float) -> None:
        self.progress.progress(done, total, share)
        if self.interrupted:  # should the handler's own exception have been lost in code that takes none
            raise Interrupted

    def _drawn(self, total: int, rows: int, tokens: int) -> None:
        share = max(rows, tokens / self.config.sampling.max_new_tokens) / total
        self.progress.progress(rows, total, min(share, 1.0))

    # ── for people ───────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def stage(self, name: str, step: int) -> Iterator[None]:
        """Says which stage a step is in, and how long it took."""
        self.progress.stage(name, step)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def _timings(self, ledger: Ledger) -> dict[str, float]:
        """Seconds by stage since the last call, and the speed they make."""
        spent, self.seconds = self.seconds, {}
        spent.pop("validate", None)
        total = sum(spent.values())
        seconds = {f"timing_s/{name}": value for name, value in spent.items()} | {"timing_s/step": total}
        speed = {"perf/tokens_per_second": int(ledger.mask.sum()) / max(total, 1e-9)}
        return seconds | speed | ({"perf/restarts": self.roles.restarts} if self.roles.restarts else {})

    def token_texts(self, ledger: Ledger, row: int) -> list[str]:
        """The tokens of a rollout as texts, in order."""
        ids = ledger["token_ids"][row, : int(ledger.lengths[row])].tolist()
        return added_texts(self.roles.tokenizer.decode, ids)

    @contextmanager
    def _asked_to_stop(self) -> Iterator[None]:
        """The first Ctrl-C or SIGTERM asks to stop after the step, or ends a validation; the second stops at once."""

        def asked(number: int, frame: FrameType | None) -> None:
            self.interrupted = who = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
            for stop in STOPS:
                signal.signal(stop, signal.default_int_handler)
            key = "training.leave_validation" if self.validating else "training.finish_step"
            self.progress.note(sentence(key, who=who), True)
            if self.validating:
                raise Interrupted

        try:
            usual = {stop: signal.signal(stop, asked) for stop in STOPS}
        except ValueError:  # not the main thread
            yield
            return
        try:
            yield
        finally:
            for stop, handler in usual.items():
                signal.signal(stop, handler)


def _number(text: str) -> float:
    """What `repr` wrote; a count stays a whole number."""
    return int(text) if text.lstrip("-").isdigit() else float(text)
