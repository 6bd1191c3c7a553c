"""Runs as frames: which tokens were praised or blamed most, and what else stands in their account?

    python examples/query_runs.py [RUN]         # without one a small run is made first

Frames are pandas where it is installed, pyarrow otherwise; np.asarray reads a column of either. A dump of another
trainer opens the same way.
"""

import sys
import tempfile

import numpy as np

import mingce


def main(path: str) -> None:
    run = mingce.load_run(path)
    step = run.steps()[-1]
    print(run, run.config()["estimator"], f"{len(run.metrics())} lines of metrics")
    tokens, rollouts = run.tokens(step), run.rollouts(step)  # one line a token with every column; one line a rollout
    print(f"step {step}: the ten tokens with the largest |A|")
    for i in np.argsort(-np.abs(np.asarray(tokens["advantages"])))[:10]:
        row, t = int(np.asarray(tokens["row"])[i]), int(np.asarray(tokens["t"])[i])
        text = np.asarray(run.rollout(step, row)["text"])[t]  # one rollout's tokens, with their texts
        numbers = (f"{name} {np.asarray(tokens[name])[i]:+.3f}" for name in ("advantages", "values", "rewards"))
        print(f"  row {row}, t {t}: {text!r}", *numbers, "in", np.asarray(rollouts["response"])[row], sep="  ")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as root:
            small = ("steps=2", "prompts_per_step=16", "validation.examples=8", "threads=1")
            main(str(mingce.train(f"root={root}", *small, quiet=True).path))
