"""TRL as PyPI has it, under mingce.watch. Needs interpreters that have it: `make test-slow` makes both.

MINGCE_TRL_GRPO is one with TRL 1.16, MINGCE_TRL_PPO one with TRL 1.12.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from trl_bugs import BUGS, Bug

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
pytestmark = pytest.mark.slow


def interpreter(name: str) -> str:
    if name not in os.environ:
        pytest.skip(f"{name} names no interpreter")
    return str(Path(os.environ[name]).absolute())


def run(python: str, *words: str, path: Path | None = None) -> str:
    places = [str(place) for place in (path, HERE.parent) if place is not None]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "MINGCE_LANG": "en"}
    done = subprocess.run([python, *words], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def found(python: str, script: str, steps: int, settings: dict[str, Any], path: Path | None = None) -> dict[str, Any]:
    lines = run(python, str(HERE / script), str(steps), json.dumps(settings), path=path).splitlines()
    result: dict[str, Any] = json.loads(
        next(line for line in lines if line.startswith("FOUND ")).removeprefix("FOUND ")
    )
    return result


WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"num_iterations": 2, "gradient_accumulation_steps": 2},
    {"beta": 0.0},
    {"loss_type": "dr_grpo", "scale_rewards": "none", "beta": 0.0},
    {"loss_type": "cispo", "epsilon_high": 5.0, "num_iterations": 2, "beta": 0.0},
    {"scale_rewards": "batch", "loss_type": "bnpo"},
    {"importance_sampling_level": "sequence", "num_iterations": 2, "epsilon": 3e-4, "beta": 0.0},
    {"scored": 2, "reward_weights": [1.0, 0.5]},
    {"scored": 2, "multi_objective_aggregation": "normalize_then_sum"},
    {"scored": "some"},
    {"steps_per_generation": 4, "per_device_train_batch_size": 4, "num_iterations": 3, "learning_rate": 1e-3},
    {"mask_truncated_completions": True, "ends": 1.0},
    {"dtype": "bfloat16", "bf16": True},
    {"temperature": 0.7, "top_p": 0.9, "top_k": 10, "beta": 0.02},
    {"sampler": "vllm", "max_completion_length": 8},
    {"sampler": "vllm", "max_completion_length": 8, "vllm_importance_sampling_mode": "sequence_truncate"},
    {"sampler": "rollout", "max_completion_length": 10, "num_iterations": 2, "mask_truncated_completions": True},
    {"top_entropy_quantile": 0.3, "beta": 0.0},
    {"use_adaptive_entropy": True, "entropy_target": 0.5},
    {"lr_scheduler_type": "linear", "warmup_steps": 5},
    {"learning_rate": 0.0},
    {"kind": "rloo", "num_iterations": 2},
    {"kind": "rloo", "scored": 2, "reward_clip_range": [0.2, 0.9], "normalize_advantages": True},
    {"kind": "gmpo", "num_iterations": 2},
    {"num_generations": 16},
    {"loss_type": "bnpo", "gradient_accumulation_steps": 4, "per_device_train_batch_size": 4,
     "mask_truncated_completions": True},
    {"loss_type": "dr_grpo", "gradient_accumulation_steps": 4, "num_iterations": 3, "scale_rewards": "batch"},
    {"entropy_coef": 0.05, "beta": 0.0, "gradient_accumulation_steps": 4, "per_device_train_batch_size": 4,
     "num_iterations": 2},
)  # fmt: skip


@pytest.mark.parametrize("settings", WAYS, ids=json.dumps)
def test_grpo_is_recorded_to_the_bit_and_untouched(settings: dict[str, Any]) -> None:
    seen = found(interpreter("MINGCE_TRL_GRPO"), "real_trl_grpo.py", 50, settings)
    assert seen["same_log"]
    assert seen["same_weights"]
    assert {"token_ids", "response_mask", "new_log_probs", "old_log_probs", "advantages"} <= seen["differences"].keys()
    assert ("rollout_log_probs" in seen["differences"]) == ("sampler" in settings)
    assert max(seen["differences"].values()) == 0
    assert (seen["alarms"], seen["dropped"], seen["failures"]) == ([], 0, 0)
    assert seen["audits"] == 50 // (settings.get("steps_per_generation", 1))
    assert seen["logged"]


@pytest.mark.parametrize("fault", ["limit", "killed", "nowhere", "gone"])
def test_training_goes_on_with_one_warning(fault: str) -> None:
    lines = run(interpreter("MINGCE_TRL_GRPO"), str(HERE / "real_trl_faults.py"), fault).splitlines()
    seen = json.loads(next(line for line in lines if line.startswith("FOUND ")).removeprefix("FOUND "))
    assert (seen["same_log"], seen["steps"], len(seen["warnings"])) == (True, 12, 1)


def test_a_step_is_on_the_page_soon_after_its_end() -> None:
    lines = run(interpreter("MINGCE_TRL_GRPO"), str(HERE / "real_trl_faults.py"), "page").splitlines()
    seen = json.loads(next(line for line in lines if line.startswith("FOUND ")).removeprefix("FOUND "))
    assert len(seen["seconds"]) == 12
    assert max(seen["seconds"]) < 5


def test_ppo_is_recorded_to_the_bit_and_untouched() -> None:
    seen = found(interpreter("MINGCE_TRL_PPO"), "real_trl_ppo.py", 20, {})
    assert seen["same_log"]
    assert seen["same_weights"]
    assert max(seen["differences"].values()) == 0
    assert (seen["alarms"], seen["dropped"], seen["failures"]) == ([], 0, 0)
    assert seen["audits"] >= 20


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_in_the_package_itself_is_named(bug: Bug, tmp_path: Path) -> None:
    python = interpreter("MINGCE_TRL_GRPO")
    home = Path(run(python, "-c", "import trl; print(trl.__path__[0])").strip().splitlines()[-1])
    shutil.copytree(home, tmp_path / "trl", ignore=shutil.ignore_patterns("__pycache__"))
    source = tmp_path / "trl" / "trainer" / bug.file
    text = source.read_text(encoding="utf-8")
    assert bug.old in text
    source.write_text(text.replace(bug.old, bug.new), encoding="utf-8")
    seen = found(python, "real_trl_grpo.py", 6, bug.settings, tmp_path)
    assert bug.finding in {code for step, code in seen["alarms"] if step <= 4}, seen["alarms"]


def test_the_examples_run(tmp_path: Path) -> None:
    for name, variable in (("watch_trl_grpo.py", "MINGCE_TRL_GRPO"), ("watch_trl_ppo.py", "MINGCE_TRL_PPO")):
        said = run(interpreter(variable), str(EXAMPLES / name), str(tmp_path / name), "--steps", "3")
        assert f"mingce view {tmp_path / name}" in said
        assert len(list((tmp_path / name / "ledger").glob("*.parquet"))) >= 3
