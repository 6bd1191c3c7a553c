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
CLIP = {"clip_low": CLIP_LOW, "clip_high": CLIP_HIGH}
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
    return np.maximum(-a * ratio, -a * np.clip(ratio, 1 - low, 1 + high))


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
    settings = CLIP | ({"loss_agg_mode": "token-mean", "policy_loss": "vanilla"} if known else {})
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
