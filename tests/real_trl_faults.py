"""TRL's own GRPOTrainer watched where our part fails: python real_trl_faults.py limit|killed|nowhere|gone|page [DIR]

`limit`: no file may grow beyond 4 kB; `killed`: the thread that writes dies at step 3; `nowhere`: the run's directory
cannot be made; `gone`: it is removed while it is written; `full`: DIR is on a disk with little room; `page`: how long a
step takes from its end to our page. Prints what became of training as JSON; 12 steps.
"""

from __future__ import annotations

import json
import logging
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from real_trl_grpo import history, trainer
from transformers import TrainerCallback

import mingce

STEPS = 12


class Warnings(logging.Handler):
    """What was said."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


class Clock(TrainerCallback):
    """When each step ended; what is to happen at one."""

    def __init__(self) -> None:
        self.ended: dict[int, float] = {}
        self.at: dict[int, Any] = {}

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.ended[state.global_step] = time.time()
        if state.global_step in self.at:
            self.at[state.global_step]()


LOOK = """
import sys, time
from pathlib import Path
from mingce.sources.dumps import open_source
seen, ends = 0, time.time() + 60
while seen < int(sys.argv[2]) and time.time() < ends:
    try:
        steps = open_source(Path(sys.argv[1])).ledger_steps()
    except Exception:
        steps = []
    for step in steps[seen:]:
        print(step, time.time(), flush=True)
    seen = len(steps)
    time.sleep(0.2)
"""


def main() -> None:
    kind, told, clock = sys.argv[1], Warnings(), Clock()
    logging.getLogger("mingce").addHandler(told)
    with tempfile.TemporaryDirectory() as folder:
        alone = trainer(False, folder, STEPS, {})
        alone.train()
        made = trainer(False, folder, STEPS, {})
        made.add_callback(clock)
        run = Path(sys.argv[2] if len(sys.argv) > 2 else folder) / "run"
        if kind == "nowhere":
            (Path(folder) / "file").write_text("")
            run = Path(folder) / "file" / "run"
        watched = mingce.watch(made, run)
        if kind == "limit":
            clock.at[2] = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        elif kind == "gone":
            clock.at[4] = lambda: shutil.rmtree(run)
        elif kind == "killed" and watched is not None:

            def die(*_: Any) -> None:
                raise SystemExit

            clock.at[3] = lambda: setattr(watched._recorder._writer, "batch", die)
        words = [sys.executable, "-c", LOOK, str(run), str(STEPS)]
        page = subprocess.Popen(words, stdout=subprocess.PIPE, text=True) if kind == "page" else None
        made.train()
        mingce.unwatch(made)
        seconds = []
        if page is not None:
            shown = [line.split() for line in page.communicate()[0].splitlines()]
            seconds = [round(float(when) - clock.ended[int(step)], 2) for step, when in shown]
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        found = {"same_log": history(alone) == history(made), "steps": made.state.global_step, "warnings": told.said,
                 "seconds": seconds}  # fmt: skip
        print("FOUND", json.dumps(found))


if __name__ == "__main__":
    main()
