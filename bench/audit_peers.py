"""The stages of a step by verl 0.9.1's own functions, and TRL's dumps as audit_trl.py wrote them.

verl's core_algos is loaded from its wheel without the GPU stack that the package asks for: what the file imports of it
only for annotations stands empty, its arithmetic (core_algos, torch_functional) is the real one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import types
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from audit_case import STAGES, Case, Stage
from audit_clean import measure, micro_batches, parts, place_score

from mingce.record.dump import Dump
from mingce.specs.settings import DumpSettings

PEERS = Path(os.environ.get("MINGCE_PEERS", Path(tempfile.gettempdir()) / "mingce_peers"))
FILES = ("verl/utils/torch_functional.py", "verl/trainer/ppo/core_algos.py")


def sources() -> Path:
    """The folder with verl 0.9.1's files, fetched from PyPI the first time."""
    home = PEERS / "verl-0.9.1"
    if not all((home / name).exists() for name in FILES):
        home.mkdir(parents=True, exist_ok=True)
        fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(home), "verl==0.9.1"]
        subprocess.run(fetch, check=True)
        with zipfile.ZipFile(next(home.glob("verl-*.whl"))) as wheel:
            for name in FILES:
                wheel.extract(name, home)
    return home


@cache
def verl() -> types.ModuleType:
    """verl's core_algos."""
    home = sources()
    empty: dict[str, dict[str, Any]] = {
        "verl": {}, "verl.utils": {"as_torch_index": None, "group_mean_std": None},
        "verl.utils.device": {"get_device_name": lambda: "cpu", "get_torch_device": lambda: torch.cpu},
        "tensordict": {"TensorDict": object}, "verl.trainer": {}, "verl.trainer.config": {"AlgoConfig": dict},
        "verl.utils.import_utils": {"deprecated": lambda *a: lambda f: f}, "verl.workers": {},
        "verl.workers.config": {"ActorConfig": object},
    }  # fmt: skip
    before = {name: sys.modules.get(name) for name in (*empty, "verl.utils.torch_functional")}
    try:
        for name, content in empty.items():
            module = types.ModuleType(name)
            module.__dict__.update(content)
            sys.modules[name] = module
        functional = _loaded("verl.utils.torch_functional", home / FILES[0])
        sys.modules["verl.utils"].torch_functional = functional  # type: ignore[attr-defined]
        sys.modules["verl"].utils = sys.modules["verl.utils"]  # type: ignore[attr-defined]
        return _loaded("verl_core_algos", home / FILES[1])
    finally:
        for name, module_before in before.items():
            if module_before is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module_before


def _loaded(name: str, path: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def verl_score(case: Case) -> None:
    place_score(case, case.last_present)  # verl asks the attention mask


def verl_reward(case: Case) -> None:
    """apply_kl_penalty of ray_trainer.py."""
    c, s = case.columns, case.settings
    if s["beta"] is None:
        c["rewards"] = c["scores"].clone()
        return
    penalty = verl().kl_penalty(c["old_log_probs"], c["ref_log_probs"], s["kl_estimator"]) * case.mask
    c["rewards"] = c["scores"] - s["beta"] * penalty
    case.scalars["kl_mean"] = float(verl().verl_F.masked_mean(penalty, case.mask, axis=-1).mean())


def verl_credit(case: Case) -> None:
    c, s, mask = case.columns, case.settings, case.mask
    core, index = verl(), np.array(case.rollouts.group, dtype=object)
    if case.estimator == "gae":
        c["advantages"], c["returns"] = core.compute_gae_advantage_return(
            c["rewards"], c["values"], mask, s["gamma"], s["lam"]
        )
    elif case.estimator == "reinforce_plus_plus":
        config = types.SimpleNamespace(gamma=s["gamma"])
        c["advantages"], c["returns"] = core.compute_reinforce_plus_plus_outcome_advantage(
            c["rewards"], mask, config=config
        )
    elif case.estimator == "rloo":
        c["advantages"], c["returns"] = core.compute_rloo_outcome_advantage(c["rewards"], mask, index)
    else:
        c["advantages"], c["returns"] = core.compute_grpo_outcome_advantage(
            c["rewards"], mask, index, norm_adv_by_std_in_grpo=case.estimator == "grpo"
        )


def verl_whiten(case: Case) -> None:
    """Nothing: compute_gae_advantage_return has whitened."""


def verl_update(case: Case) -> None:
    parts(case)
    c, s, mask, core = case.columns, case.settings, case.mask, verl()
    totals = {
        "batch_num_tokens": mask.sum(),
        "global_batch_size": (mask.sum(1) > 0).sum(),
        "loss_scale_factor": s["loss_norm"],
    }
    config = types.SimpleNamespace(
        clip_ratio=s["clip"], clip_ratio_low=s["clip_low"], clip_ratio_high=s["clip_high"], global_batch_info=totals,
        get=lambda name, default=None: s["dual_clip"] if name == "clip_ratio_c" else default,
    )  # fmt: skip
    policy, value, counted = 0.0, 0.0, {"pg": 0.0, "vf": 0.0, "kl": 0.0}
    for rows in micro_batches(case):
        share = float(mask[rows].sum() / mask.sum())
        loss, metrics = core.compute_policy_loss_vanilla(
            c["old_log_probs"][rows], c["new_log_probs"][rows], c["advantages"][rows], mask[rows],
            s["loss_agg_mode"], config,
        )  # fmt: skip
        policy += float(loss)
        counted["pg"] += metrics["actor/pg_clipfrac"] * share
        counted["kl"] += metrics["actor/ppo_kl"] * share
        if "values" in c:
            loss, clipped = core.compute_value_loss(
                c["new_values"][rows], c["returns"][rows], c["values"][rows], mask[rows], s["value_clip"], **totals
            )
            value += float(loss)
            counted["vf"] += float(clipped) * share
    case.scalars |= {"pg_loss": policy, "pg_clipfrac": counted["pg"], "approx_kl": counted["kl"]}
    if "values" in c:
        case.scalars |= {"vf_loss": value, "vf_clipfrac": counted["vf"]}


def verl_log(case: Case) -> None:
    c, mean = case.columns, verl().verl_F.masked_mean
    case.scalars["entropy_mean"] = float(mean(c["entropy"], case.mask))
    case.scalars["advantages_mean"] = float(c["advantages"][case.chosen].mean())


FROM_VERL: dict[str, Stage] = dict(
    zip(STAGES, (measure, verl_score, verl_reward, verl_credit, verl_whiten, verl_update, verl_log), strict=True)
)


# ── TRL ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def from_trl(path: Path, coarse: bool = False) -> Dump:
    """A dump that audit_trl.py wrote: pads hold +1.0 in the log-probs, the score is one number a row."""
    with np.load(path) as file:
        found = {name: file[name] for name in file.files if name != "settings"}
        settings: dict[str, Any] = json.loads(str(file["settings"]))
    chosen, step = ~found["padding_mask"], settings.pop("step", None)
    columns: dict[str, Any] = {
        "token_ids": found["responses"], "response_mask": chosen, "attention_mask": chosen,
        "value_mask": ~found["padding_mask_p1"],
    }  # fmt: skip
    names = {"logprobs": "old_log_probs", "ref_logprobs": "ref_log_probs"}
    for name in ("logprobs", "ref_logprobs", "kl", "rewards", "values", "advantages", "returns"):
        column = torch.tensor(found[name])
        columns[names.get(name, name)] = (column.bfloat16() if coarse else column).float().numpy()
    prompts = [[int(i) for i in row if i != settings["pad_id"]] for row in found["queries"]]
    rows: dict[str, list[Any]] = {
        "prompt_ids": prompts,
        "left_pad": [found["queries"].shape[1] - len(prompt) for prompt in prompts],
        "outcome": found["scores"].tolist(),
    }
    stored = dict.fromkeys(columns, "bfloat16" if coarse else "float32")
    return Dump(columns, rows, DumpSettings(**settings), {}, "trl", stored, path=str(path), step=step)
