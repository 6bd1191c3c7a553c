"""The formulas by which estimators without a critic compare a response's outcome x with those of the other samples.

Trainers' own names for them, verl's first, lead here; the audit recomputes them.
"""

from __future__ import annotations

STD, BIASED, MEAN, OTHERS, ITSELF = (
    "(x − mean)/std", "(x − mean)/biased std", "x − mean", "x − mean of the others", "x"
)  # fmt: skip
WEIGHTED, BATCH_STD, BATCH_BIASED = (
    "x − mean weighted by length", "(x − mean)/std of the batch", "(x − mean)/biased std of the batch"
)  # fmt: skip
GPG, BEST, BEST_STD = "(x − mean)·rows/count(x ≠ 0)", "best − second best", "(best − second best)/std"
WITHIN = (STD, BIASED, MEAN, OTHERS)
"""Those that a wrong grouping is sought with."""
CLEAN = (*WITHIN, WEIGHTED, BATCH_STD, BATCH_BIASED, GPG, BEST, BEST_STD)
WHITENED, WHITENED_ROWS = ", whitened over the tokens", ", whitened over the rows"
_GRPO = (STD, BIASED, MEAN)
MEANT: dict[str, tuple[str, ...]] = {
    "grpo": _GRPO, "grpo_vectorized": _GRPO, "dr_grpo": (MEAN,), "rloo": (OTHERS,), "rloo_vectorized": (OTHERS,),
    "opo": (WEIGHTED,), "gpg": (GPG,), "grpo_passk": (BEST, BEST_STD),
    "reinforce_plus_plus_baseline": (MEAN + WHITENED,), "reinforce_plus_plus": (ITSELF + WHITENED,),
    "gdpo": (STD + WHITENED, MEAN + WHITENED), "remax": (),
}  # fmt: skip
"""What an estimator's name in the settings may mean."""
MEANT_ELSEWHERE = {
    "grpo": (*_GRPO, BATCH_STD, BATCH_BIASED, STD + WHITENED, MEAN + WHITENED, STD + WHITENED_ROWS),
    "rloo": (OTHERS, OTHERS + WHITENED_ROWS),
}  # fmt: skip
"""What it may also mean but in verl and here: TRL divides by the batch's deviation, or whitens what it has summed."""
WITHIN_PROMPT = ("grpo", "dr_grpo", "rloo")
"""Estimators that compare a response with those to the same prompt and with nothing else of the batch."""
KL_OF_A_RESPONSE = ("rloo", "remax")
"""Estimators whose trainers take the KL of a whole response off its score."""
BASELINE_OF_PROMPT, BASELINE_OF_TOKEN = ("remax",), ("optimal_token_baseline", "tir_optimal_token_baseline")
"""Estimators that take off a baseline which a prompt's samples share: one for all tokens, or one for each."""
SUMS_OF_REWARDS = ("reinforce_plus_plus", "reinforce", "monte_carlo", "remax")
"""Estimators whose returns are the sums of what is still paid."""
BY_CRITIC = ("gae",)
"""Estimators that trainers whiten whatever their settings."""
DIVIDED = ("grpo", "grpo_vectorized")
"""Estimators for which a setting says by whose deviation they divide."""
