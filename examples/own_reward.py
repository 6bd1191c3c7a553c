"""A reward of your own: `compute_score`, with the arguments that verl gives it, in a file.

    mingce train reward.function=examples/own_reward.py reward.function_weight=0.5      # beside the task's own score
    mingce train data.train=[my.parquet] reward.function=examples/own_reward.py         # alone, on your own data
    python examples/own_reward.py                                                       # the first of these from code

It runs in processes of its own, so whatever it does (a hang, a crash), the trainer outlives it and names the row. A
number is the score of the whole answer; a dict has `score` and any number of parts, which are logged beside it.
"""

import tempfile
from typing import Any


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: dict[str, Any]
) -> dict[str, float]:
    """Half for the right number anywhere in the answer, half for saying it briefly."""
    right = str(extra_info["a"] + extra_info["b"]) in solution_str
    brief = max(0.0, 1 - len(solution_str) / 20)
    return {"score": 0.5 * right + 0.5 * brief, "right": float(right), "brief": brief}


if __name__ == "__main__":
    import mingce

    with tempfile.TemporaryDirectory() as root:
        run = mingce.train(
            f"root={root}", f"reward.function={__file__}", "reward.function_weight=0.5", "steps=3",
            "prompts_per_step=16", "validation.examples=20", "threads=1",
        )  # fmt: skip
        print(run.rollouts(3))
