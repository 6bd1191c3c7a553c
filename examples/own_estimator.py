"""An estimator and a policy loss of your own: a decorated function each, on tensors.

    mingce train estimator=examples/own_estimator.py:reward_to_go actor.loss=examples/own_estimator.py:soft_clip
    python examples/own_estimator.py        # the same from code

`inputs` are columns of the ledger (`mingce columns`), `settings` those of `credit.` and `actor.` (docs/en/reference/
config.md). An estimator that reads `values` has a critic; it also gets `bootstrap` [B], the value after each row's last
token. Everything else follows: the ledger, checkpoints, resume, the page. Accounts show such a column as it is
recorded, for nothing but your code can recompute it; a `twin`, the same function on lists of floats, would let them.
"""

import tempfile

import torch
from torch import Tensor

import mingce


@mingce.estimator(
    inputs=("rewards", "response_mask"),
    settings=("gamma",),
    formula="A_t = Σ_k γ^k·r_{t+k} − mean_batch(r)",
    en="reward to go, less the batch's mean",
    zh="从 t 起的奖励，减去整批的平均",
)
def reward_to_go(rewards: Tensor, response_mask: Tensor, gamma: float) -> Tensor:
    sums, later = torch.zeros_like(rewards), torch.zeros(len(rewards))
    for t in reversed(range(rewards.shape[1])):
        chosen = response_mask[:, t]  # what the policy did not choose is stepped over
        later = torch.where(chosen, rewards[:, t] + gamma * later, later)
        sums[:, t] = later
    return sums - sums[response_mask].mean()


@mingce.policy_loss(settings=("clip_low",), formula="L_t = −Â_t·tanh(ρ_t − 1)", en="a soft clip", zh="软裁剪")
def soft_clip(
    old_log_prob: Tensor, log_prob: Tensor, advantages: Tensor, response_mask: Tensor, clip_low: float
) -> Tensor:
    """The gain flattens as the ratio leaves 1, without a kink."""
    ratio = (log_prob - old_log_prob).exp()
    return -advantages * clip_low * torch.tanh((ratio - 1) / clip_low)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as root:
        run = mingce.train(
            f"root={root}", "estimator=reward_to_go", "actor.loss=soft_clip", "steps=3", "validation.examples=20"
        )
        print(run.rollout(3, 0))
