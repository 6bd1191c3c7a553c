"""What rewards are made of: the peers' conventions are silent, each way of getting score or KL wrong is named.

The batches in tests/trl_ppo were made by TRL 1.12's own PPOTrainer.train (bench/audit_trl.py), one of each KL estimator
with and without whitened rewards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from audit_peers import from_trl
from torch import Tensor

from mingce.algorithms.advantage import gae
from mingce.algorithms.masking import masked_whiten
from mingce.audit.audit import audit
from mingce.audit.finding import Finding, Report
from mingce.audit.steps import audit_steps
from mingce.record.dump import Dump
from mingce.specs.settings import DumpSettings

TRL = sorted((Path(__file__).parent / "trl_ppo").glob("*.npz"))
GAMMA, LAM, BETA = 0.99, 0.95, 0.05
Columns = dict[str, Tensor]
K: dict[str, Callable[[Tensor], Tensor]] = {
    "k1": lambda x: x, "abs": torch.abs, "k2": lambda x: x * x / 2, "k3": lambda x: torch.exp(-x) - 1 + x,
}  # fmt: skip


def alarms(report: Report) -> list[str]:
    return [finding.fault.code for finding in report.findings if finding.level in ("bug", "suspicious")]


def told(report: Report) -> set[str]:
    return {finding.fault.code for finding in report.findings}


def one(report: Report, code: str) -> Finding:
    (found,) = [finding for finding in report.findings if finding.fault.code == code]
    return found


# ── TRL ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", TRL, ids=lambda path: path.stem)
@pytest.mark.parametrize("given", ["settings", "nothing", "nothing, read as any file"])
def test_batches_of_trl_are_clean(path: Path, given: str) -> None:
    dump = from_trl(path)
    known = dump.settings
    if given != "settings":
        dump.settings = DumpSettings(eos_id=known.eos_id, pad_id=known.pad_id)
    if given.endswith("any file"):
        dump.source = "generic"
        del dump.columns["value_mask"], dump.columns["kl"]
    report = audit(dump)
    assert alarms(report) == []
    assert {"score-after-last", "kl-in-reward"} <= told(report)
    assert ("rewards-whitened" in told(report)) == known.whiten_rewards
    assert one(report, "kl-in-reward").values["beta"] == pytest.approx(known.beta, rel=1e-3)
    assert report.settings.kl_estimator == known.kl_estimator


@pytest.mark.parametrize("path", TRL, ids=lambda path: path.stem)
def test_trl_with_a_kl_that_is_paid_has_that_one_finding(path: Path) -> None:
    dump = from_trl(path)
    dump.columns["old_log_probs"], dump.columns["ref_log_probs"] = (
        dump.columns["ref_log_probs"],
        dump.columns["old_log_probs"],
    )
    del dump.columns["kl"]
    k3 = path.stem.startswith("k3")
    assert alarms(audit(dump)) == ["kl-of-something-else" if k3 else "kl-sign"]


def test_a_declared_whitening_that_is_not_there() -> None:
    dump = from_trl(next(path for path in TRL if path.stem == "k1"))
    dump.settings = replace(dump.settings, whiten_rewards=True)
    assert alarms(audit(dump)) == ["rewards-not-whitened"]


# ── any trainer ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Batch:
    """Ragged rows with one score each; `rewards` is what a test makes of them."""

    def __init__(self, seed: int = 0, rows: int = 48, width: int = 40, far: float = 0.4):
        g = torch.Generator().manual_seed(seed)
        self.rows, self.width = rows, width
        self.lengths = torch.randint(6, width + 1, (rows,), generator=g)
        self.lengths[:4] = width
        self.mask = torch.arange(width) < self.lengths[:, None]
        self.old = torch.where(self.mask, -0.5 - 3 * torch.rand(rows, width, generator=g), 0.0)
        self.ref = torch.where(self.mask, self.old + far * torch.randn(rows, width, generator=g), 0.0).clamp(max=0.0)
        self.values = torch.where(self.mask, 0.5 + 0.3 * torch.randn(rows, width, generator=g), 0.0)
        self.outcome = 2 * torch.randn(rows, generator=g)
        self.x = self.old - self.ref

    def scores(self, outcome: Tensor | None = None) -> Tensor:
        placed = torch.zeros(self.rows, self.width)
        placed[torch.arange(self.rows), self.lengths - 1] = self.outcome if outcome is None else outcome
        return placed

    def report(self, rewards: Tensor, hide: Iterable[str] = ("outcome",), **settings: Any) -> Report:
        return audit(self.dump(rewards, hide, **settings))

    def dump(self, rewards: Tensor, hide: Iterable[str] = ("outcome",), **settings: Any) -> Dump:
        made = gae(rewards, self.values, self.mask, GAMMA, LAM)
        assert made.returns is not None
        columns: Columns = {
            "response_mask": self.mask, "attention_mask": self.mask, "old_log_probs": self.old,
            "ref_log_probs": self.ref, "values": self.values, "rewards": rewards, "scores": self.scores(),
            "returns": made.returns, "advantages": masked_whiten(made.advantages, self.mask),
        }  # fmt: skip
        rows = {"outcome": self.outcome.tolist()}
        arrays = {name: column.numpy() for name, column in columns.items() if name not in hide}
        kept = {name: row for name, row in rows.items() if name not in hide}
        return Dump(arrays, kept, DumpSettings(**settings))


def taken(batch: Batch, penalty: Tensor, beta: float = BETA) -> Tensor:
    return batch.scores() - beta * torch.where(batch.mask, penalty, 0.0)


def next_token(x: Tensor) -> Tensor:
    return torch.cat([x[:, 1:], torch.zeros_like(x[:, :1])], dim=1)


@pytest.mark.parametrize(
    ("penalty", "code", "kind"),
    [
        (lambda b: -b.x, "kl-sign", 23),
        (lambda b: -K["k3"](b.x), "kl-sign", 23),
        (lambda b: K["k3"](-b.x), "kl-of-something-else", 24),
        (lambda b: next_token(b.x), "kl-of-something-else", 24),
        (lambda b: torch.roll(b.x, 1, 0), "kl-of-something-else", 24),
        (lambda b: (b.x.sum(1) / b.lengths)[:, None].expand_as(b.x), "kl-of-something-else", 24),
        (lambda b: b.scores(b.x.sum(1)), "kl-of-something-else", 24),
        (lambda b: torch.exp(b.x) - 1, "kl-of-something-else", 24),
        (lambda b: torch.where(b.scores() != 0, 0.0, b.x), "kl-overwritten", 25),
    ],
)
@pytest.mark.parametrize("hide", [("outcome",), ("scores",)])
def test_a_wrong_penalty_is_named(penalty: Any, code: str, kind: int, hide: tuple[str, ...]) -> None:
    batch = Batch()
    report = batch.report(taken(batch, penalty(batch)), hide)
    assert alarms(report) == [code]
    assert kind in one(report, code).named
    assert len(one(report, code).named) <= 3


@pytest.mark.parametrize("made", ["abs", "k2", "k3"])
@pytest.mark.parametrize("rounded", [False, True])
def test_another_kind_than_declared(made: str, rounded: bool) -> None:
    batch = Batch()
    dump = batch.dump(taken(batch, K[made](batch.x)), kl_estimator="k1", beta=BETA)
    if rounded:
        for name, column in dump.columns.items():
            if column.dtype == np.float32:
                dump.columns[name] = torch.tensor(column).bfloat16().float().numpy()
    assert alarms(audit(dump)) == ["kl-estimator"]
    assert made in one(audit(dump), "kl-estimator").values["found"]


@pytest.mark.parametrize(
    ("factor", "why"), [(2.0, "twice"), (1 / np.log(2.0), "base 2"), (1 / np.log(10.0), "base 10"), (3.0, "another β")]
)
def test_another_price_says_what_gives_it(factor: float, why: str) -> None:
    batch = Batch()
    report = batch.report(taken(batch, batch.x, factor * BETA), beta=BETA, kl_estimator="k1")
    assert alarms(report) == ["kl-coefficient"]
    assert why in one(report, "kl-coefficient").values["why"]


def test_a_kl_that_is_declared_and_absent() -> None:
    batch = Batch()
    for hide in (("outcome",), ("scores",), ("outcome", "scores"), ("rewards", "scores")):
        assert alarms(batch.report(batch.scores(), hide, beta=0.02)) == ["kl-absent"]
    for settings in ({"kl_loss_coef": 0.01}, {"kl_in_reward": False}):
        assert alarms(batch.report(batch.scores(), beta=0.02, **settings)) == []
    logged = batch.dump(batch.scores(), beta=0.02)
    logged.scalars["kl_loss"] = 0.01
    assert alarms(audit(logged)) == []
    batch.ref = batch.old.clone()
    assert alarms(batch.report(batch.scores(), beta=0.02)) == []


@pytest.mark.parametrize("how", ["absent", "sign", "k3"])
def test_one_row_apart_is_found(how: str) -> None:
    batch = Batch(rows=64)
    penalty = batch.x.clone()
    penalty[7] = {"absent": 0 * batch.x, "sign": -batch.x, "k3": K["k3"](batch.x)}[how][7]
    report = batch.report(taken(batch, penalty))
    code = {"absent": "kl-absent", "sign": "kl-sign", "k3": "kl-estimator"}[how]
    assert alarms(report) == [code]
    assert {place.row for place in one(report, code).places} == {7}


# ── the score ────────────────────────────────────────────────────────────────────────────────────────────────────────


def overlong(b: Batch) -> Tensor:
    return b.outcome - ((b.lengths - b.width + 16).clamp(min=0) / 16).float()


@pytest.mark.parametrize(
    ("shaped", "code", "alarm"),
    [
        (lambda b: 0.5 * b.outcome, "score-scaled", False),
        (lambda b: b.outcome.clamp(-1, 1), "score-clipped", False),
        (lambda b: (b.outcome - b.outcome.mean()) / b.outcome.std(), "score-normalised", False),
        (overlong, "score-length-penalty", False),
        (lambda b: torch.where(b.lengths == b.width, b.outcome - 1, b.outcome), "score-of-cut-rows", False),
        (lambda b: -b.outcome, "score-sign", True),
        (lambda b: 0 * b.outcome, "score-lost", True),
        (lambda b: torch.roll(b.outcome, 1), "score-of-another-row", True),
        (lambda b: b.outcome / b.lengths, "score-over-length", True),
        (lambda b: torch.trunc(b.outcome), "score-cut-to-integer", True),
        (lambda b: torch.where(torch.arange(b.rows) == 3, 2.0, 1.0) * b.outcome, "score-counted-twice", True),
    ],
)
@pytest.mark.parametrize("hide", [("outcome",), ("scores",), ("scores", "rewards")])
def test_what_became_of_the_score_is_said(shaped: Any, code: str, alarm: bool, hide: tuple[str, ...]) -> None:
    batch = Batch()
    rewards = batch.scores(shaped(batch)) - BETA * torch.where(batch.mask, batch.x, 0.0)
    report = batch.report(rewards, hide)
    stored = "scores" not in hide  # then nothing but the KL should lie between scores and rewards
    assert alarms(report) == ([code] if alarm or stored else [])
    assert code in told(report)


def test_a_score_on_every_token() -> None:
    batch = Batch()
    everywhere = torch.where(batch.mask, batch.outcome[:, None], 0.0)
    kl = BETA * torch.where(batch.mask, batch.x, 0.0)
    assert alarms(batch.report(everywhere - kl)) == ["score-on-every-token"]
    assert alarms(batch.report(everywhere - kl, ("scores",))) == ["score-on-every-token"]
    dump = batch.dump(everywhere - kl)
    dump.columns["scores"] = everywhere.numpy()
    assert alarms(audit(dump)) == ["score-on-every-token"]
    spread = torch.where(batch.mask, (batch.outcome / batch.lengths)[:, None], 0.0)
    assert alarms(batch.report(spread - kl, ("scores",))) == []


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_dense_scores(scale: float) -> None:
    batch = Batch()
    dense = torch.where(batch.mask, torch.rand(batch.mask.shape, generator=torch.Generator().manual_seed(1)), 0.0)
    dump = batch.dump(scale * dense - BETA * torch.where(batch.mask, batch.x, 0.0))
    dump.columns["scores"] = dense.numpy()
    report = audit(dump)
    assert alarms(report) == []
    assert one(report, "kl-in-reward").values["beta"] == pytest.approx(BETA / scale, rel=1e-3)


def test_rewards_that_are_clipped_after_the_kl() -> None:
    batch = Batch()
    report = batch.report(taken(batch, batch.x).clamp(-0.5, 0.5))
    assert alarms(report) == ["rewards-clipped"]


# ── rewards that the dump does not hold ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("critic", [True, False])
@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_rewards_are_derived_from_returns(critic: bool, kind: str) -> None:
    """OpenRLHF's Experience holds returns, values and one reward a row."""
    batch, hide = Batch(), ["scores", "rewards", *([] if critic else ["values"])]
    if not critic:
        batch.values = torch.zeros_like(batch.values)

    def report(rewards: Tensor, **settings: Any) -> Report:
        dump = batch.dump(rewards, hide, **settings)
        dump.source = "openrlhf"
        if not critic:
            after = torch.zeros(batch.rows)
            for t in reversed(range(batch.width)):
                after = rewards[:, t] + GAMMA * after
                dump.columns["returns"][:, t] = after.numpy()
            dump.columns["advantages"] = masked_whiten(torch.tensor(dump.columns["returns"]), batch.mask).numpy()
        return audit(dump)

    found = report(taken(batch, K[kind](batch.x)))
    assert alarms(found) == []
    assert "rewards-implied" in told(found)
    assert found.settings.beta == pytest.approx(BETA, rel=1e-2)
    assert found.settings.gamma == pytest.approx(GAMMA, abs=1e-3)
    assert found.settings.kl_estimator == kind
    assert alarms(report(taken(batch, -K[kind](batch.x)))) == ["kl-sign"]
    assert alarms(report(taken(batch, K[kind](batch.x)), kl_estimator="abs")) == ["kl-estimator"]
    assert alarms(report(taken(batch, K[kind](batch.x)), beta=BETA / 3)) == ["kl-coefficient"]
    assert "gamma-lambda-differ" in alarms(report(taken(batch, K[kind](batch.x)), gamma=0.9, lam=LAM))


# ── the reference ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_reference_that_is_the_policy() -> None:
    batch = Batch()
    batch.ref = batch.old.clone()
    for step, level in ((None, "note"), (1, "note"), (50, "suspicious")):
        report = audit(replace(batch.dump(batch.scores(), beta=0.02), step=step))
        assert one(report, "reference-is-policy-here").level == level
    assert "reference-is-policy-here" not in told(audit(batch.dump(batch.scores())))
    steps = [replace(batch.dump(batch.scores(), beta=0.02), step=step) for step in (1, 2, 3)]
    assert [finding.fault.code for finding in audit_steps(steps)] == ["reference-is-policy-here"]
    assert audit_steps(steps[:1]) == []
