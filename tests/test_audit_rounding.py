"""Rounded dumps: what 16 bits do to a number is no bug, and a bug is one in 16 bits too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from test_audit_credit import GAMMA, LAM, Columns, clean, codes, credited, look
from torch import Tensor

from mingce.algorithms.advantage import gae, td_errors
from mingce.algorithms.masking import masked_whiten
from mingce.audit import precision, rounding
from mingce.audit.evidence import Evidence
from mingce.record.dump import Dump

HALF = (torch.bfloat16, torch.float16)


def cases(**settings: Any) -> list[dict[str, Any]]:
    """With the settings and without."""
    return [settings, {}]


def rounded(c: Columns, kind: torch.dtype) -> Columns:
    return {name: x.to(kind).float() if x.is_floating_point() else x for name, x in c.items()}


def whole(seed: int) -> Columns:
    """A batch with every column that only says again what others say."""
    c = clean(seed, rows=32, width=64)
    c["deltas"] = td_errors(c["rewards"], c["values"], c["response_mask"], GAMMA)
    c["kl"] = c["old_log_probs"] - c["ref_log_probs"]
    c["new_log_probs"] = c["old_log_probs"] + 0.2 * torch.randn(
        c["kl"].shape, generator=torch.Generator().manual_seed(1)
    )
    c["ratio"] = torch.exp(c["new_log_probs"] - c["old_log_probs"])
    return c


@pytest.mark.parametrize("kind", HALF)
def test_rounding_is_no_bug(kind: torch.dtype) -> None:
    for seed in range(4):
        c = rounded(whole(seed), kind)
        for settings in cases(gamma=GAMMA, lam=LAM):
            assert codes(look(c, **settings)[1]) == []


def shifted_values(c: Columns) -> Columns:
    late = torch.cat([c["values"][:, 1:], torch.zeros(len(c["values"]), 1)], dim=1)
    made = gae(c["rewards"], late, c["response_mask"], GAMMA, LAM)
    assert made.returns is not None
    return {"returns": made.advantages + late, "advantages": masked_whiten(made.advantages, c["response_mask"])}


def by_position(c: Columns) -> Columns:
    """Whitened along the wrong axis."""
    raw, mask = c["returns"] - c["values"], c["response_mask"]
    count = mask.sum(0).clamp(min=1)
    mean = (raw * mask).sum(0) / count
    std = (((raw - mean) ** 2 * mask).sum(0) / count + 1e-8).sqrt()
    return {"advantages": (raw - mean) / std * mask}


def exchanged(c: Columns) -> Columns:
    order = torch.randperm(len(c["returns"]), generator=torch.Generator().manual_seed(5))
    return {"returns": c["returns"][order], "advantages": c["advantages"][order]}


BUGS: dict[str, tuple[Callable[[Columns], Columns], str]] = {
    "a value late": (shifted_values, "values-shifted"),
    "other returns": (lambda c: {"returns": c["rewards"] + c["values"]}, "returns-broken"),
    "sign": (lambda c: {"advantages": -c["advantages"]}, "advantage-sign"),
    "scale": (lambda c: {"advantages": 3 * c["advantages"]}, "advantage-scale"),
    "one row's sign": (
        lambda c: {"advantages": c["advantages"] * (1 - 2.0 * (torch.arange(32) == 5))[:, None]}, "advantage-sign",
    ),
    "wrong axis": (by_position, "whitened-in-parts"),
    "cut": (lambda c: {"advantages": c["advantages"].clamp(-0.5, 0.5)}, "advantages-cut"),
    "other rows": (exchanged, "credit-of-another-row"),
    "a reward that nobody got": (
        lambda c: credited(c, c["rewards"] + 0.5 * (torch.rand(c["rewards"].shape) < 0.01)) | {"rewards": c["rewards"]},
        "advantage-unexplained",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", [torch.float32, *HALF])
@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_named_in_every_format(name: str, kind: torch.dtype) -> None:
    plant, code = BUGS[name]
    c = clean(7, rows=32, width=64)
    c |= plant(c)
    for settings in cases(gamma=GAMMA, lam=LAM):
        found = look(rounded(c, kind), **settings)[1]
        assert code in codes(found)
        assert "rewards" not in {one.column for one in found if one.level in ("bug", "suspicious")}


def test_returns_of_another_lambda_are_no_matter_of_whitening() -> None:
    """The advantages are the settings' own; only the critic's target is another."""
    c = clean(3)
    other = gae(c["rewards"], c["values"], c["response_mask"], GAMMA, 0.5).returns
    assert other is not None
    for settings in cases(gamma=GAMMA, lam=LAM):
        assert codes(look(c | {"returns": other}, **settings)[1]) == ["returns-broken"]


def test_rewards_on_last_tokens_that_changed_rows() -> None:
    c = clean(2)
    moved = c["scores"].clone()
    last = moved.argmax(1)
    moved[torch.arange(24), last] = moved[torch.arange(24), last].roll(3)
    made = credited(c, c["scores"])
    found = look({**c, **made, "rewards": moved, "scores": moved})[1]
    assert [one.named for one in found if one.level == "bug"] == [(37,)]


def half_log_probs(c: Columns, kind: torch.dtype, use: bool) -> list[str]:
    """Log-probs in 16 bits: `use` says whether the rest was computed with them."""
    names = ("old_log_probs", "ref_log_probs")
    short = {name: c[name].to(kind).float() for name in names}
    source = c | short if use else c
    kl = source["old_log_probs"] - source["ref_log_probs"]
    columns = {**c, **short, "kl": kl}
    del columns["rewards"], columns["scores"]
    e = Evidence(Dump({name: x.numpy() for name, x in columns.items()}))
    return [one.fault.code for one in precision.half_precision(e) if one.level == "bug"]


@pytest.mark.parametrize("kind", HALF)
def test_log_probs_that_are_only_stored_in_half_precision_are_no_bug(kind: torch.dtype) -> None:
    c = clean(1)
    assert half_log_probs(c, kind, use=False) == []
    assert half_log_probs(c, kind, use=True) == ["half-precision-log-probs"]


def test_a_format_is_told_by_few_numbers_but_not_by_marks() -> None:
    def numbers(x: Tensor) -> np.ndarray:
        found: np.ndarray = x.numpy()
        return found

    some = torch.randn(12, generator=torch.Generator().manual_seed(0))
    assert rounding.kind_of(numbers(some)) == "float32"
    assert rounding.kind_of(numbers(some.bfloat16().float())) == "bfloat16"
    assert rounding.kind_of(numbers(some.half().float())) == "float16"
    marks = numbers(torch.tensor([0.0, 0.25, 0.5, 1.0, 2.0, 3.5, 7.0, 11.0, 13.0, 17.0]))
    assert rounding.kind_of(marks) is None
    assert (rounding.coarsest(marks), rounding.coarsest(marks, ["bfloat16"])) == ("float32", "bfloat16")
