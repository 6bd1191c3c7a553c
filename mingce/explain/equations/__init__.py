"""Equations as people write them, judged: read by a small parser, tried on the rollout at hand and on random ones."""

from __future__ import annotations

from mingce.explain.equations.judge import EquationVerdict, judge_equation, judge_equations, verdict_answer

__all__ = ["EquationVerdict", "judge_equation", "judge_equations", "verdict_answer"]
