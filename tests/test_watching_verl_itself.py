"""verl's own code, as PyPI has it, under MINGCE_WATCH. Needs an interpreter that has it: `make test-slow` makes one.

MINGCE_VERL is one with verl 0.9.1, Ray and TransferQueue.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from verl_bugs import BUGS

HERE = Path(__file__).parent
pytestmark = pytest.mark.slow
SHUFFLED = [
    "actor_rollout_ref.actor.ppo_epochs=2", "actor_rollout_ref.actor.shuffle=true",
    *(f"actor_rollout_ref.{name}=true" for name in ("actor.use_dynamic_bsz", "rollout.log_prob_use_dynamic_bsz")),
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=60",
    "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=60",
]  # fmt: skip


def found(tmp_path: Path, script: str, *words: str, watched: bool = True) -> dict[str, Any]:
    """What a script says that is run by verl's interpreter, where mingce's entry point is found as if installed."""
    if "MINGCE_VERL" not in os.environ:
        pytest.skip("MINGCE_VERL names no interpreter")
    about = tmp_path / "site" / "mingce-0.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mingce\nVersion: 0\n")
    (about / "entry_points.txt").write_text("[verl.plugins]\nmingce = mingce.watching.verl_plugin\n")
    places = [str(HERE.parent), str(HERE), str(about.parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "MINGCE_WATCH_AUDIT_EVERY": "1"}
    environment["RAY_raylet_start_wait_time_s"] = "300"
    if watched:
        environment["MINGCE_WATCH"] = str(tmp_path / "run")
    python = str(Path(os.environ["MINGCE_VERL"]).absolute())
    done = subprocess.run(
        [python, str(HERE / script), *words], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = next(line for line in done.stdout.splitlines() if line.startswith("FOUND "))
    seen: dict[str, Any] = json.loads(said.removeprefix("FOUND "))
    return seen


@pytest.mark.parametrize("kind", ["legacy", "v1"])
def test_its_plug_in_group_records_what_was_put_in(kind: str, tmp_path: Path) -> None:
    seen = found(tmp_path, "real_verl.py", kind)
    computed = {name: seen["differences"].pop(name) for name in ("rewards", "advantages", "returns")}
    assert set(seen["differences"].values()) == {0.0}
    assert max(computed.values()) <= (1e-6 if kind == "v1" else 0.0)  # V1's are verl's own, ours the other side
    assert (seen["alarms"], seen["audits"]) == ([], 1)
    expected = {"gamma": 0.99, "lam": 0.9, "beta": 0.05, "kl_estimator": "k1", "estimator": "gae", "dual_clip": 3.0}
    assert expected.items() <= seen["settings"].items()


@pytest.mark.parametrize("changed", [[], SHUFFLED], ids=["one epoch", "two epochs, shuffled, by tokens"])
def test_new_log_probs_are_those_that_its_workers_losses_were_given(changed: list[str], tmp_path: Path) -> None:
    """Two Ray workers with FSDP2 update the embedded model on the CPU: verl's own code, and its own metrics."""
    seen = found(tmp_path, "real_verl_update.py", "3", "2", *changed)
    assert [(one["rows"], one["new_log_probs"]) for one in seen["differences"]] == [(0.0, 0.0)] * 3
    assert min(one["moved"] for one in seen["differences"]) > 0.1  # they are not the old ones
    assert (seen["alarms"], seen["audits"], seen["left"]) == ([], 3, [])
    alone = found(tmp_path, "real_verl_update.py", "3", "2", *changed, watched=False)
    assert alone["logs"] == seen["logs"]


@pytest.mark.parametrize("kind", ["legacy", "v1"])
def test_bugs_in_its_own_functions_are_named_on_the_first_step(kind: str, tmp_path: Path) -> None:
    named = found(tmp_path, "real_verl_bugs.py", kind, watched=False)
    assert named.pop("clean gae") == named.pop("clean grpo") == []
    assert {bug.name: named[bug.name] for bug in BUGS if not set(bug.findings) & set(named[bug.name])} == {}
