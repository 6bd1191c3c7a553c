"""mingce's trainer, a step at a time, as `mingce train` runs it: every step's ledger written, the audit on its turn."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

from addition import accuracy
from flops import forward_flops
from rich.console import Console
from turns import Over, Turn

from mingce.config import as_values, read_config
from mingce.engine.local import build_roles
from mingce.models.lora import base_causal_lm
from mingce.progress.base import Progress, Summary
from mingce.record.run import Run
from mingce.training.sinks import Sinks
from mingce.training.trainer import Trainer


class Stepwise(Progress):
    """Waits for its turn between steps."""

    turn: Turn
    forward: Callable[[Any], float]
    """FLOPs of a forward pass over a ledger."""

    def note(self, sentence: str, warning: bool = False) -> None:
        print(sentence, file=sys.stderr)

    def progress(self, done: int, total: int, share: float | None = None) -> None:
        pass

    def validated(self, step: int, metrics: dict[str, float]) -> None:
        self.turn.wait()

    def step(self, step: int, metrics: dict[str, float], ledger: Any, tokens: Any) -> None:
        self.turn.wait(lambda: {"tokens": int(ledger.mask.sum()), "forward": self.forward(ledger)})

    def end(self, summary: Summary) -> None:
        pass

    def close(self) -> None:
        pass


def timed(turn: Turn, part: str, owner: Any, method: str) -> None:
    """Counts the method's CPU seconds as a part of the step."""
    work: Callable[..., Any] = getattr(owner, method)

    @wraps(work)
    def call(*given: Any, **named: Any) -> Any:
        with turn.part(part):
            return work(*given, **named)

    setattr(owner, method, call)


def main() -> None:
    asked: dict[str, Any] = json.loads(sys.argv[1])
    samples, rows = asked.get("samples", 1), asked["batch"] // asked["minibatches"]
    files = {name: Path(asked["data"]) / name for name in ("train.jsonl", "held_out.jsonl", "exact.py")}
    config = read_config(
        None,
        [
            f"model.path={asked['model']}", f"data.train=[{files['train.jsonl']}]",
            f"data.held_out=[{files['held_out.jsonl']}]", f"reward.function={files['exact.py']}", "lang=en",
            f"prompts_per_step={asked['batch'] // samples}", f"samples_per_prompt={samples}",
            f"minibatch_rollouts={rows}", f"critic.minibatch_rollouts={rows}", f"actor.epochs={asked['epochs']}",
            f"critic.epochs={asked['epochs']}", f"actor.lr={asked['lr']}", f"critic.lr={asked['lr']}",
            f"sampling.max_new_tokens={asked['length']}", f"threads={asked['threads']}", f"seed={asked['seed']}",
            "steps=100000", "validation.every=0", "validation.examples=1", "keep.checkpoint_every=100000",
            f"root={asked['directory']}", *asked["overrides"],
        ],
    )  # fmt: skip
    roles = build_roles(config)
    progress = Stepwise(Console(file=sys.stderr), "en")
    progress.forward = lambda ledger: forward_flops(
        base_causal_lm(roles.actor.model), ledger, config.micro_batch_tokens
    )
    progress.turn = Turn(lambda: accuracy(roles.actor.model.eval()))
    with Run.create(config.root, None, as_values(config)) as run, suppress(Over):
        for learner in (roles.actor, roles.critic):
            if learner is not None:
                timed(progress.turn, "update", learner, "update")
        timed(progress.turn, "write", run.ledger, "write")
        Trainer(run, config, roles, progress).train(Sinks({}, progress.note))


main()
