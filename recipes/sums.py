"""The reward of recipes/smollm2_sums.yaml: 1 if the answer's last number is the sum, else 0."""

from __future__ import annotations

import re


def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: object = None) -> float:
    numbers = re.findall(r"\d+", solution_str)
    return float(bool(numbers) and numbers[-1] == ground_truth)
