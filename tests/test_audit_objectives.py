"""Every registered loss of verl 0.9.1 and TRL 1.16 is recognised by its logged number, and wrong ones are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loss_batch import CLIP_HIGH, CLIP_LOW, batch

from mingce.audit.audit import audit
from mingce.audit.finding import Finding
from mingce.record.dump import Dump
from mingce.specs.settings import DumpSettings

GOLDENS: dict[str, float] = json.loads(Path(__file__).with_name("loss_goldens.json").read_text(encoding="utf-8"))
CLIP: dict[str, Any] = {"clip_low": CLIP_LOW, "clip_high": CLIP_HIGH}
KL_PRICE, TRL_BOUND = 0.04, 5.0


Columns = dict[str, np.ndarray]


def about_losses(scalars: dict[str, float], more: Columns | None = None, **settings: Any) -> list[Finding]:
    dump = Dump(batch() | (more or {}), {}, DumpSettings(**settings), scalars)
    return [finding for finding in audit(dump).findings if finding.column in scalars]


@pytest.mark.parametrize("name", GOLDENS)
def test_a_peers_loss_is_recognised_and_not_suspected(name: str) -> None:
    maker, loss, *mode = name.split("/")
    settings: dict[str, Any] = CLIP | {"loss_agg_mode": mode[0] if mode else loss.split()[0]}
    if maker == "verl":
        settings["policy_loss"] = loss
    if name.endswith("with kl"):
        settings["kl_loss_coef"] = KL_PRICE
    if name == "trl/cispo":
        settings["clip_high"] = TRL_BOUND
    found = about_losses({"pg_loss": GOLDENS[name]}, **settings)
    assert [finding.level for finding in found if finding.level != "convention"] == []
    told = " ".join(str(finding.values["way_en"]) for finding in found)
    own = loss in ("dppo_tv", "dppo_kl", "gspo", "sapo", "gpg", "kl_cov", "geo_mean", "cispo", "vespo")
    assert (loss in told) == own
    del settings["loss_agg_mode"]
    settings.pop("policy_loss", None)
    if not name.endswith("-norm") and loss != "dr_grpo":  # over all slots: a constant, or a forgotten mask
        blind = about_losses({"pg_loss": GOLDENS[name]}, **settings)
        assert [finding.level for finding in blind if finding.level != "convention"] == []


def test_another_loss_than_the_settings_name_is_suspicious() -> None:
    logged = {"pg_loss": GOLDENS["verl/gpg/token-mean"]}
    found = about_losses(logged, **CLIP, loss_agg_mode="token-mean", policy_loss="gspo")
    assert [(finding.fault.code, finding.values["way_en"]) for finding in found] == [("loss-other-objective", "gpg")]


def terms(ratio: np.ndarray, a: np.ndarray, low: float = CLIP_LOW, high: float = CLIP_HIGH) -> np.ndarray:
    made: np.ndarray = np.maximum(-a * ratio, -a * np.clip(ratio, 1 - low, 1 + high))
    return made


def wrong_losses() -> dict[str, np.ndarray]:
    b = {name: column.astype(np.float64) for name, column in batch().items()}
    a, ratio = b["advantages"], np.exp(b["new_log_probs"] - b["old_log_probs"])
    return {
        "bounds swapped": terms(ratio, a, CLIP_HIGH, CLIP_LOW),
        "sign": terms(ratio, -a),
        "sign of the loss": -terms(ratio, a),
        "min for max": np.minimum(-a * ratio, -a * np.clip(ratio, 1 - CLIP_LOW, 1 + CLIP_HIGH)),
        "upside down": terms(1 / ratio, a),
        "no exp": terms(np.log(ratio), a),
        "to the reference": terms(np.exp(b["new_log_probs"] - b["ref_log_probs"]), a),
    }


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("name", wrong_losses())
def test_a_wrong_loss_is_named(name: str, known: bool) -> None:
    number = float(wrong_losses()[name][batch()["response_mask"]].mean())
    settings: dict[str, Any] = CLIP | ({"loss_agg_mode": "token-mean", "policy_loss": "vanilla"} if known else {})
    (finding,) = about_losses({"pg_loss": number}, **settings)
    assert (finding.level, finding.fault.code) == ("bug", "loss-other-terms")
    words = {"bounds swapped": "swapped", "sign": "sign", "min for max": "smaller", "to the reference": "reference"}
    assert words.get(name, "") in finding.values["way_en"]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("around", ["zero", "returns"])
def test_a_value_clip_around_the_wrong_centre_is_named(around: str, known: bool) -> None:
    rng, mask = np.random.default_rng(1), batch()["response_mask"]
    values = {name: rng.normal(size=mask.shape).astype(np.float32) for name in ("values", "new_values", "returns")}
    new, target = (values[name].astype(np.float64) for name in ("new_values", "returns"))
    near = np.clip(new, -0.2, 0.2) if around == "zero" else np.clip(new, target - 0.2, target + 0.2)
    number = 0.5 * float(np.maximum((new - target) ** 2, (near - target) ** 2)[mask].mean())
    found = about_losses({"vf_loss": number}, values, **({"value_clip": 0.2} if known else {}))
    if around == "returns" and not known:  # the square is then the plain one, as without any clip
        assert not [finding for finding in found if finding.level == "bug"]
        return
    assert [(finding.fault.code, 45 in finding.named) for finding in found] == [("value-clip-idle", True)]


def mean(x: np.ndarray) -> float:
    return float(x[batch()["response_mask"]].mean())


def moved() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(ratio, advantages, old − new) in float64."""
    b = {name: column.astype(np.float64) for name, column in batch().items()}
    x = b["old_log_probs"] - b["new_log_probs"]
    return np.exp(-x), b["advantages"], x


def clipped_share(low: float = CLIP_LOW, high: float = CLIP_HIGH) -> float:
    ratio, a, _ = moved()
    return mean(((ratio > 1 + high) & (a > 0)) | ((ratio < 1 - low) & (a < 0)))


def wrong_means() -> dict[str, tuple[float, str, set[int]]]:
    """A logged loss, the fault that it is, and classes of it."""
    ratio, a, _ = moved()
    loss, mask = terms(ratio, a), batch()["response_mask"]
    length = mask.sum(axis=1)
    return {
        "divided by the accumulation steps": (mean(loss) / 8, "loss-scaled", {4, 26, 44}),
        "times the ranks": (mean(loss) * 4, "loss-scaled", {4}),
        "length twice": (float(((loss * mask).sum(axis=1) / length**2).mean()), "loss-denominator", {26}),
        "|advantages| as mask": (float((loss * np.abs(a)).sum() / np.abs(a).sum()), "loss-mask", {27}),
        "clip of the log": (mean(np.maximum(-a * ratio, -a * np.exp(np.clip(np.log(ratio), -CLIP_LOW, CLIP_HIGH)))),
                            "loss-other-terms", set()),
        "anything else": (mean(loss) + 0.1234, "loss-no-fit", {4, 26, 27}),
    }  # fmt: skip


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("name", wrong_means())
def test_a_wrong_mean_is_noticed_whatever_the_epochs(name: str, known: bool) -> None:
    """approx_kl follows from the columns, so the loss must; the share of clipped tokens tells the bounds."""
    number, code, classes = wrong_means()[name]
    scalars = {"pg_loss": number, "approx_kl": mean(moved()[2]), "pg_clipfrac": clipped_share()}
    settings: dict[str, Any] = CLIP | {"loss_agg_mode": "token-mean", "ppo_epochs": 4} if known else {}
    found = [finding for finding in about_losses(scalars, **settings) if finding.level in ("bug", "suspicious")]
    assert [finding.fault.code.replace("loss-constant", "loss-denominator") for finding in found] == [code]
    assert classes <= set(found[0].named)
    assert len(found[0].named) <= 3


def test_a_constant_that_is_not_the_declared_one_is_named() -> None:
    ratio, a, _ = moved()
    mask = batch()["response_mask"]
    number = float((terms(ratio, a) * mask).sum() / len(mask) / 17)
    (finding,) = about_losses({"pg_loss": number}, **CLIP, loss_agg_mode="seq-mean-token-sum-norm", loss_norm=40)
    assert (finding.level, finding.named, finding.values["way_en"]) == ("bug", (44,), "C = 17")


def values_of() -> Columns:
    rng, mask = np.random.default_rng(1), batch()["response_mask"]
    return {name: rng.normal(size=mask.shape).astype(np.float32) for name in ("values", "new_values", "returns")}


def test_a_value_loss_without_its_half_and_over_the_wrong_slots_is_named() -> None:
    columns, mask = values_of(), batch()["response_mask"]
    new, old, target = (columns[name].astype(np.float64) for name in ("new_values", "values", "returns"))
    square = np.maximum((new - target) ** 2, (np.clip(new, old - 0.2, old + 0.2) - target) ** 2)
    (finding,) = about_losses({"vf_loss": mean(square)}, columns, value_clip=0.2)
    assert (finding.level, finding.fault.code) == ("suspicious", "value-loss-doubled")
    early = np.concatenate([np.ones((len(mask), 1), bool), mask[:, :-1]], axis=1)
    (finding,) = about_losses({"vf_loss": 0.5 * float(square[early].mean())}, columns, value_clip=0.2)
    assert (finding.fault.code, finding.named) == ("value-mask-shift", (19,))


def test_a_kl_loss_that_is_a_sum_is_named() -> None:
    b = {name: column.astype(np.float64) for name, column in batch().items()}
    x = b["new_log_probs"] - b["ref_log_probs"]
    kl = np.expm1(-x) + x
    assert about_losses({"kl_loss": mean(kl)}, loss_agg_mode="token-mean") == []
    (finding,) = about_losses({"kl_loss": float(kl[batch()["response_mask"]].sum())}, loss_agg_mode="token-mean")
    assert (finding.level, finding.fault.code) == ("suspicious", "kl-loss-mode")
