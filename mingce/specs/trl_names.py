"""What TRL's settings are called here: how its trainers compare rewards, and which policy loss a loss type is."""

from __future__ import annotations

SCALED = {"group": "grpo", "none": "dr_grpo"}
"""The estimator of GRPO's `scale_rewards`; divided by the deviation of the batch it has no name of its own."""
LEAVE_ONE_OUT = "rloo"
POLICY_LOSSES = dict.fromkeys(("grpo", "bnpo", "dr_grpo", "dapo", "luspo"), "ppo") | {"cispo": "cispo"}
"""The policy loss of GRPO's `loss_type`; others are their own."""
BY_CONSTANT = "dr_grpo"
"""The loss type that divides by the longest completion allowed."""
BY_STEP = ("dapo", "cispo", "vespo")
"""Loss types that divide by the tokens of the whole step."""
