"""OpenRLHF's own trainer and experience maker under mingce.watch.

MINGCE_OPENRLHF is the folder of OpenRLHF 0.11's unpacked wheel (`pip download --no-deps openrlhf`), MINGCE_VERL an
interpreter that has Ray and transformers. What needs a GPU is stood in for (stand_ins.py).
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize("in_loss", ["0", "1"], ids=["KL in the reward", "KL in the loss"])
@pytest.mark.parametrize("estimator", ["gae", "rloo", "dr_grpo", "group_norm"])
def test_columns_are_those_of_its_experiences(estimator: str, in_loss: str) -> None:
    if not {"MINGCE_OPENRLHF", "MINGCE_VERL"} <= os.environ.keys():
        pytest.skip("MINGCE_OPENRLHF names no folder")
    places = os.pathsep.join([str(HERE.parent), str(HERE), os.environ["MINGCE_OPENRLHF"]])
    words = [os.environ["MINGCE_VERL"], str(HERE / "real_openrlhf.py"), estimator, in_loss]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": places})
    assert done.returncode == 0, done.stderr[-2000:]
    seen = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("FOUND "))[6:])
    assert seen["alarms"] == []
    assert len(seen["differences"]) == 3
    for one in seen["differences"]:
        assert set(one.values()) == {0.0}
        assert ("kl" in one) == (in_loss == "0")  # where the reference's log-probs are dropped
        assert ("ref_log_probs" in one) == (in_loss == "1")
        assert ("values" in one) == (estimator == "gae")
