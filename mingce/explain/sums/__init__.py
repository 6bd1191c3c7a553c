"""Sums over the lists of numbers that a question types in: a group's scores, log-probs, losses, batch sizes."""

from mingce.explain.sums.answers import Sum, sum_of

__all__ = ["Sum", "sum_of"]
