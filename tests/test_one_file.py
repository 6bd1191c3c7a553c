"""examples/ppo_one_file.py says it computes the trainer's numbers: every column, gradient and update of two steps."""

from __future__ import annotations

import copy
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from test_train import filled
from torch import Tensor, nn

from mingce.algorithms.losses import batch_totals
from mingce.algorithms.masking import masked_whiten
from mingce.config import Config, read_config
from mingce.credit import assign_credit
from mingce.engine.local import LocalRoles, build_roles
from mingce.ledger import Ledger
from mingce.roles.actor import row_seed

FILE = Path(__file__).parent.parent / "examples" / "ppo_one_file.py"
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ppo_one_file", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def one() -> ModuleType:
    return loaded()


@pytest.fixture(scope="module")
def config(one: ModuleType) -> Config:
    """The trainer's defaults are the file's settings, but for the dual clip, which the file leaves out."""
    config = read_config(None, ["prompts_per_step=40", "threads=1", "actor.dual_clip=null"])
    theirs = (
        config.samples_per_prompt, config.sampling.max_new_tokens, config.kl.reward_coef, config.credit.gamma,
        config.credit.lam, config.actor.clip_low, config.actor.clip_high, config.critic.value_clip,
        config.actor.epochs, config.critic.epochs, config.minibatch_rollouts, config.critic.minibatch_rollouts,
        config.actor.lr, config.critic.lr, config.actor.grad_clip, config.critic.grad_clip,
    )  # fmt: skip
    ours = (
        one.SAMPLES, one.MAX_NEW_TOKENS, one.BETA, one.GAMMA, one.LAM, one.CLIP, one.CLIP, one.VALUE_CLIP, one.EPOCHS,
        one.EPOCHS, one.MINIBATCH, one.CRITIC_MINIBATCH, one.LR, one.CRITIC_LR, one.GRAD_CLIP, one.GRAD_CLIP,
    )  # fmt: skip
    assert ours == theirs
    return config


class Pair:
    """The trainer's roles, and the one file's networks and optimizers beginning with the same weights."""

    def __init__(self, one: ModuleType, config: Config, roles: LocalRoles):
        assert roles.critic is not None
        assert roles.reference is not None
        self.one, self.config, self.roles, self.their_critic = one, config, roles, roles.critic
        self.policy: Any = copy.deepcopy(roles.actor.model)
        self.reference = copy.deepcopy(self.policy).requires_grad_(False)
        self.critic = one.Critic(self.policy)
        self.actor_optimizer = torch.optim.AdamW(self.policy.parameters(), lr=one.LR, weight_decay=0.0)
        self.critic_optimizer = torch.optim.AdamW(self.critic.parameters(), lr=one.CRITIC_LR, weight_decay=0.0)

    def drawn(self, step: int) -> Ledger:
        """A step's rollouts, with all that the trainer computes before it updates."""
        c, roles = self.config, self.roles
        if step == 1:
            return filled(c, roles)
        examples = roles.batch(step, c.prompts_per_step, c.seed)
        ledger = roles.actor.generate(examples, step)
        scored = [example for example in examples for _ in range(c.samples_per_prompt)]
        ledger.fill(roles.reward.score(ledger, scored, step), roles.actor.log_probs(ledger))
        assert roles.reference is not None
        ledger.fill(roles.reference.log_probs(ledger), self.their_critic.values(ledger))
        assign_credit(ledger, c, c.kl.reward_coef)
        return ledger

    def inputs(self, ledger: Ledger) -> tuple[Tensor, Tensor]:
        """The same rollouts in the file's layout."""
        prompts, mask = self.one.pad_prompts(ledger.row("prompt_ids"), self.roles.actor.pad_id)
        return torch.cat([prompts, ledger["token_ids"]], 1), torch.cat([mask, ledger.mask.long()], 1)


@pytest.fixture(scope="module")
def pair(one: ModuleType, config: Config) -> Pair:
    return Pair(one, config, build_roles(config))


def same_update(before: list[Tensor], ours: nn.Module, theirs: nn.Module) -> None:
    """Both moved alike, as whole networks: Adam divides by the gradient's size, so that the few weights whose gradient
    is mere rounding may each go another way. Ours then take their weights, lest that add up."""
    with torch.no_grad():
        same_moves(list(zip(before, ours.parameters(), theirs.parameters(), strict=True)))


def same_moves(pairs: list[tuple[Tensor, Tensor, Tensor]]) -> None:
    apart = sum(float((a - b).square().sum()) for _, a, b in pairs) ** 0.5
    moved = sum(float((b - was).square().sum()) for was, _, b in pairs) ** 0.5
    assert apart < 1e-2 * moved
    for _, a, b in pairs:
        a.copy_(b)


def test_every_number_of_two_steps_is_the_trainer_s(pair: Pair) -> None:
    """The second step begins with the weights that the first one left, and its KL is no longer 0."""
    for step in (1, 2):
        same_step(pair, step)


def same_step(pair: Pair, step: int) -> None:
    one, ledger = pair.one, pair.drawn(step)
    ids, attention_mask = pair.inputs(ledger)
    rollouts, kl = one.assess(pair.policy, pair.reference, pair.critic, ids, attention_mask, ledger["scores"])
    mask = rollouts.mask
    assert len(set(ledger.lengths.tolist())) > 1, "rows of one length prove less"
    rewards = one.kl_rewards(ledger["scores"], kl, mask, one.BETA)
    ref = one.log_probs(pair.reference, ids, attention_mask, ledger.width) * mask
    advantages, returns = one.gae(rewards, rollouts.values, mask, one.GAMMA, one.LAM)
    ours = {
        "old_log_probs": rollouts.old_log_probs, "ref_log_probs": ref, "values": rollouts.values, "kl": kl,
        "rewards": rewards, "advantages": advantages, "returns": returns, "whitened_advantages": rollouts.advantages,
    }  # fmt: skip
    for name, column in ours.items():
        torch.testing.assert_close(column, ledger[name], **CLOSE, msg=f"{name}: {{}}".format)
    torch.testing.assert_close(rollouts.returns, ledger["returns"], **CLOSE)
    torch.testing.assert_close(one.whiten(advantages, mask), masked_whiten(advantages, mask.bool()), **CLOSE)

    for role, model, loss, minibatch, optimizer in (
        (pair.their_critic, pair.critic, one.value_loss, one.CRITIC_MINIBATCH, pair.critic_optimizer),
        (pair.roles.actor, pair.policy, one.policy_loss, one.MINIBATCH, pair.actor_optimizer),
    ):
        same_gradient(role, model, loss(model, rollouts), ledger)
        torch.manual_seed(row_seed(pair.config.seed, step, -1 if role is pair.roles.actor else -2))
        before = [weight.detach().clone() for weight in model.parameters()]
        one.update(model, optimizer, rollouts, loss, minibatch)
        role.update(ledger, step)
        same_update(before, model, role.model)


def same_gradient(role: Any, model: nn.Module, loss: Tensor, ledger: Ledger) -> None:
    """Of the whole batch's loss; both models are left without one."""
    theirs, _ = role.loss(ledger, batch_totals(ledger.loss_mask))
    torch.testing.assert_close(loss, theirs, **CLOSE)
    ours = torch.autograd.grad(loss, list(model.parameters()))
    expected = torch.autograd.grad(theirs, list(role.model.parameters()))
    for a, b in zip(ours, expected, strict=True):
        torch.testing.assert_close(a, b, **CLOSE)


def test_the_file_is_short_and_stands_alone() -> None:
    text = FILE.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 250
    imported = set(re.findall(r"^from (mingce[\w.]*) import", text, re.MULTILINE))
    assert imported <= {"mingce.models.loading", "mingce.tasks.arithmetic", "mingce.tasks.base"}


@pytest.mark.slow
def test_it_learns_to_answer(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, FILE], cwd=tmp_path, capture_output=True, text=True, check=True)
    before, after = (float(found) for found in re.findall(r"held-out accuracy \w+: +([0-9.]+)%", done.stdout))
    assert before < 60
    assert after > 85
