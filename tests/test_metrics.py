"""Metrics are what their names say, over the chosen tokens and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mingce.base.lang import LANGS
from mingce.base.texts import named, texts
from mingce.ledger import Ledger
from mingce.metrics import MEASURED, METRICS, compute_metrics, measured_meaning, metric

MASK = torch.tensor([[1, 1, 0], [1, 0, 0]])


@pytest.fixture
def ledger() -> Ledger:
    rows: dict[str, list[Any]] = {
        "prompt_ids": [[1, 2], [3]],
        "finish_reason": ["stop", "length"],
        "score_parts": [{"verdict": 1.0}, {"verdict": 0.0}],
    }
    ledger = Ledger(torch.ones(2, 3, dtype=torch.long), MASK, rows=rows)
    junk = torch.full((2, 3), 9.0)

    def column(*values: float) -> torch.Tensor:
        return junk.masked_scatter(MASK.bool(), torch.tensor(values))

    ledger.fill({"scores": column(0.0, 1.0, 0.5)}, {"rewards": column(-0.1, 0.9, 0.4)})
    ledger.fill({"old_log_probs": column(-1.0, -2.0, -3.0), "ref_log_probs": column(-1.1, -2.2, -3.0)})
    ledger.fill({"rollout_log_probs": column(-1.0, -2.0, -3.0), "kl": column(0.1, 0.2, 0.0)})
    ledger.fill(
        {"values": column(0.0, 0.5, 0.5), "advantages": column(1.0, 0.5, 0.0)}, {"returns": column(1.0, 1.0, 0.5)}
    )
    return ledger


def test_values(ledger: Ledger) -> None:
    got = compute_metrics(ledger)
    wanted = {
        "critic/score/mean": 0.75,
        "critic/score/max": 1.0,
        "critic/rewards/min": 0.4,
        "critic/advantages/mean": 0.5,
        "critic/kl": (0.15 + 0.0) / 2,
        "critic/vf_explained_var": 1 - 0.25 / (1 / 12),
        "response_length/mean": 1.5,
        "response_length/clip_ratio": 0.5,
        "prompt_length/max": 2.0,
        "rollout/ratio_mean": 1.0,
        "score/verdict": 0.5,
    }
    for name, value in wanted.items():
        assert got[name] == pytest.approx(value), name
    assert metric("critic/kl", ledger) == got["critic/kl"]


def test_a_metric_without_its_columns_is_left_out(ledger: Ledger) -> None:
    assert "actor/pg_loss" not in compute_metrics(ledger)
    assert "critic/vf_loss" not in compute_metrics(ledger)


def test_an_empty_batch_has_finite_metrics() -> None:
    nothing = Ledger(torch.ones(0, 3, dtype=torch.long), torch.ones(0, 3))
    nothing.fill({"scores": torch.zeros(0, 3), "entropy": torch.zeros(0, 3)})
    assert all(value == value for value in compute_metrics(nothing).values())


def test_names_are_unique() -> None:
    names = [m.name for m in METRICS]
    assert len(set(names)) == len(names)


def test_every_metric_and_reduction_has_its_words_in_both_languages() -> None:
    for lang in LANGS:
        words = {key: set(named(text)) for key, text in texts("metrics", lang).items() if key}
        assert words["measured"] == set(MEASURED)
        assert words["reductions"] == {m.over for m in METRICS}
        known = words["metrics"]
        assert known == {m.name if m.name in known else m.name.rpartition("/")[0] for m in METRICS}
    assert measured_meaning("timing_s/save", "en") == measured_meaning("timing_s/<stage>", "en") != ""
    assert measured_meaning("no/such", "en") == ""
