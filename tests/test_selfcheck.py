"""The gap between sampler and trainer at the first step is judged by what the dtype allows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mingce.base.errors import ModelError
from mingce.config import Config
from mingce.ledger import Ledger
from mingce.training.selfcheck import self_check


def checked(gaps: Any, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> str:
    """The line about a ledger in which the sampler's log-probs are off by `gaps`."""
    monkeypatch.setenv("MINGCE_LANG", "en")
    old, mask = torch.full((4, 50), -1.0), torch.ones(4, 50, dtype=torch.bool)

    ledger = Ledger(torch.zeros(4, 50, dtype=torch.long), mask)
    ledger.fill({"old_log_probs": old, "rollout_log_probs": old + gaps})
    actor: Any = SimpleNamespace(dtype=dtype, ratios=lambda ledger: {"ratio": torch.ones(4, 50)})
    return self_check(ledger, actor, Config())


@pytest.mark.parametrize(("dtype", "gap"), [(torch.bfloat16, 7e-3), (torch.float16, 1.3e-3)])
def test_rounding_is_told_with_its_size(dtype: torch.dtype, gap: float, monkeypatch: pytest.MonkeyPatch) -> None:
    gaps = torch.full((4, 50), gap)
    gaps[0, 0] = 10 * gap
    line = checked(gaps, dtype, monkeypatch)
    assert "rounds: a token's probability differs by up to" in line
    assert "warning" not in line
    assert "rounds" not in checked(torch.full((4, 50), 7e-7), torch.float32, monkeypatch)


@pytest.mark.parametrize(("dtype", "gap"), [(torch.bfloat16, 0.1), (torch.float16, 0.01), (torch.float32, 2e-5)])
def test_more_than_rounding_is_a_warning(dtype: torch.dtype, gap: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """All below the limit of a single token."""
    name = str(dtype).removeprefix("torch.")
    said = checked(torch.full((4, 50), gap), dtype, monkeypatch)
    assert f"warning: larger than {name} rounding explains (mean " in said


@pytest.mark.parametrize(("dtype", "gap"), [(torch.bfloat16, 0.3), (torch.float16, 0.05), (torch.float32, 5e-4)])
def test_a_gap_everywhere_is_an_error(dtype: torch.dtype, gap: float, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="sampler and trainer disagree"):
        checked(torch.full((4, 50), gap), dtype, monkeypatch)
