"""The actor: draws responses, says how likely they were, and learns from what they earned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from mingce.algorithms.losses import (
    BatchTotals,
    batch_totals,
    entropy_loss,
    kl_loss,
    policy_loss,
)
from mingce.algorithms.masking import masked_mean
from mingce.config import Config
from mingce.ledger import Batcher, Ledger
from mingce.models.batching import forward_inputs
from mingce.models.log_probs import ledger_log_probs, log_probs_batcher
from mingce.models.lora import base_causal_lm
from mingce.models.micro_batches import batcher
from mingce.models.prompts import default_stop_ids, render_prompts
from mingce.models.sampling import Generation, Sampling, generate
from mingce.models.stopping import StopTexts
from mingce.roles.dialogues import ledger_of, play
from mingce.roles.learner import Learner, LocalLearner, OnProgress
from mingce.roles.worlds import Play, Worlds
from mingce.specs import find_policy_loss
from mingce.tasks.base import Example

WORLD = -1000
"""Seeds of environments count down from here, apart from those of rows."""


class Actor(Protocol):
    """Whoever draws responses and learns from them."""

    tokenizer: PreTrainedTokenizerBase
    config: Config
    sampling: Sampling
    pad_id: int
    worlds: Worlds | None
    """The task's environments, where it has them."""

    @property
    def learner(self) -> Learner: ...

    @property
    def size(self) -> int:
        """The number of parameters."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """What the policy computes in."""
        ...

    def generate(self, examples: Sequence[Example], step: int, on_progress: OnProgress | None = None) -> Ledger:
        """`samples_per_prompt` responses for each example, as a ledger with its rollout_log_probs."""
        ...

    def draw(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        seeds: Sequence[int],
        n: int = 1,
        on_progress: OnProgress | None = None,
    ) -> Generation:
        """Responses of the policy as it is now; a row depends on its prompt and seed only."""
        ...

    def play(
        self,
        examples: Sequence[Example],
        sampling: Sampling,
        seeds: Sequence[int],
        world_seeds: Sequence[int],
        on_progress: OnProgress | None = None,
    ) -> list[Play]:
        """A conversation for every example with the policy as it is now; `seeds` are the sampler's, the others the
        environments'."""
        ...

    def log_probs(self, ledger: Ledger) -> dict[str, Tensor]:
        """old_log_probs and entropy, by the same forward pass that updates differentiate."""
        ...

    def attention(self, ledger: Ledger) -> dict[str, Tensor]:
        """attention_weights: what the last chosen token pays to each, averaged over heads and layers."""
        ...

    def ratios(self, ledger: Ledger) -> dict[str, Tensor]:
        """The column ratio by the pass that updates differentiate; 1 before any update."""
        ...

    def update(self, ledger: Ledger, step: int, on_progress: OnProgress = ...) -> dict[str, float]:
        """PPO on the ledger, which keeps the columns the loss used; returns what is no function of columns.

        A ledger without old_log_probs and entropy gets them too, where one update is made of all its rows.
        """
        ...


def roll_out(actor: Actor, examples: Sequence[Example], step: int, on_progress: OnProgress | None) -> Ledger:
    """What `Actor.generate` does with what `Actor.draw` draws."""
    n, seed = actor.config.samples_per_prompt, actor.config.seed
    total = len(examples) * n
    seeds = [row_seed(seed, step, row) for row in range(total)]
    rows = rows_of(actor, examples, step, n)
    if actor.worlds is not None:
        repeated = [example for example in examples for _ in range(n)]
        worlds = [row_seed(seed, step, WORLD - row // n) for row in range(total)]
        return ledger_of(actor.play(repeated, actor.sampling, seeds, worlds, on_progress), actor, rows)
    template = actor.config.data.chat_template_kwargs
    prompts = render_prompts(actor.tokenizer, [example.prompt for example in examples], template)
    texts = [actor.tokenizer.decode(prompt) for prompt in prompts]
    drawn = actor.draw(prompts, actor.sampling, seeds, n, on_progress)
    rows |= {
        "prompt": [text for text in texts for _ in range(n)],
        "prompt_ids": [prompt for prompt in prompts for _ in range(n)],
        "response": drawn.texts(actor.tokenizer),
        "finish_reason": drawn.finish_reasons,
    }
    ledger = Ledger(drawn.token_ids, drawn.attention_mask, drawn.attention_mask, rows)
    return ledger.fill({"rollout_log_probs": drawn.log_probs})


def rows_of(actor: Actor, examples: Sequence[Example], step: int, n: int) -> dict[str, Sequence[Any]]:
    """What is known of `n` answers to each example before they are drawn."""
    total = len(examples) * n
    return {
        "uid": [f"{step}-{row}" for row in range(total)],
        "group": [f"{step}-{i}-{example.uid}" for i, example in enumerate(examples) for _ in range(n)],
        "data_source": [example.data_source for example in examples for _ in range(n)],
        "step": [step] * total,
        "policy_version": [actor.learner.updates] * total,
        "temperature": [actor.sampling.temperature] * total,
    }


class LocalActor:
    """The policy and its optimizer in this process."""

    def __init__(self, model: nn.Module, tokenizer: PreTrainedTokenizerBase, config: Config):
        self.model, self.tokenizer, self.config = model, tokenizer, config
        self.pad_id = int(cast(int, tokenizer.pad_token_id))
        self.learner = LocalLearner(model, config.actor, config.steps)
        self.worlds: Worlds | None = None
        self.sampler = model  # the weights that draw; a copy where the model itself is sharded
        s = config.sampling
        special = {text: i for text, i in tokenizer.get_added_vocab().items() if text in s.stop}
        self.sampling = Sampling(
            s.max_new_tokens,
            s.temperature,
            s.top_k,
            s.top_p,
            s.min_p,
            stop_ids=tuple(sorted({*default_stop_ids(model, tokenizer), *special.values()})),
            stop_texts=tuple(text for text in s.stop if text not in special),
        )

    @property
    def size(self) -> int:
        return sum(p.numel() for p in self.model.parameters())

    @property
    def dtype(self) -> torch.dtype:
        return next(self.model.parameters()).dtype

    # ── drawing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def generate(self, examples: Sequence[Example], step: int, on_progress: OnProgress | None = None) -> Ledger:
        return roll_out(self, examples, step, on_progress)

    def draw(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        seeds: Sequence[int],
        n: int = 1,
        on_progress: OnProgress | None = None,
    ) -> Generation:
        return generate(
            self.sampler,
            prompts,
            sampling,
            seeds=seeds,
            pad_id=self.pad_id,
            n=n,
            max_rows=self.config.sampling.max_rows,
            on_progress=on_progress,
            stop_texts=StopTexts(self.tokenizer, sampling.stop_texts) if sampling.stop_texts else None,
        )

    def play(
        self,
        examples: Sequence[Example],
        sampling: Sampling,
        seeds: Sequence[int],
        world_seeds: Sequence[int],
        on_progress: OnProgress | None = None,
    ) -> list[Play]:
        return play(self, examples, sampling, seeds, world_seeds, on_progress)

    # ── scoring what was drawn ───────────────────────────────────────────────────────────────────────────────────

    @torch.no_grad()
    def log_probs(self, ledger: Ledger) -> dict[str, Tensor]:
        def part(micro: Ledger) -> dict[str, Tensor]:
            log_probs, entropy = self._forward(micro)
            return {"old_log_probs": log_probs, "entropy": entropy}

        return ledger.by_micro_batch(self._batcher(), part)

    def _batcher(self) -> Batcher:
        return log_probs_batcher(self.model, self.config.micro_batch_tokens)

    def _forward(self, ledger: Ledger) -> tuple[Tensor, Tensor]:
        return ledger_log_probs(self.model, ledger, self.pad_id, self.sampling.temperature)

    @torch.no_grad()
    def attention(self, ledger: Ledger) -> dict[str, Tensor]:
        model = base_causal_lm(self.sampler)

        def part(micro: Ledger) -> dict[str, Tensor]:
            inputs = forward_inputs(micro.row("prompt_ids"), micro["token_ids"], micro["attention_mask"], self.pad_id)
            maps = model(
                input_ids=inputs.input_ids,
                attention_mask=inputs.attention_mask,
                position_ids=inputs.position_ids,
                output_attentions=True,
                use_cache=False,
            ).attentions
            mean = torch.stack([layer.float().mean(1) for layer in maps]).mean(0)  # [B, P + T, P + T]
            width = micro.width
            last = inputs.input_ids.shape[1] - width + (micro.lengths - 1).clamp(min=0)
            paid = mean[torch.arange(len(micro), device=mean.device), last]
            return {"attention_weights": paid[:, paid.shape[1] - width :]}

        implementation = model.config._attn_implementation
        model.set_attn_implementation("eager")  # the fast kernels do not say what they attended to
        try:
            return ledger.by_micro_batch(batcher(self.config.micro_batch_tokens, packed=False), part)
        finally:
            model.set_attn_implementation(implementation)

    # ── learning ─────────────────────────────────────────────────────────────────────────────────────────────────

    def update(self, ledger: Ledger, step: int, on_progress: OnProgress = lambda done, total: None) -> dict[str, float]:
        actor = self.config.actor
        columns, report = self.learner.learn(
            ledger,
            self.loss,
            step=step,
            seed=row_seed(self.config.seed, step, -1),
            minibatch_rollouts=self.config.minibatch_rollouts,
            batcher=self._batcher(),
            loss_scale_factor=self.config.sampling.max_new_tokens,
            enough=None if actor.stop_kl is None else self._moved_enough,
            on_progress=on_progress,
        )
        ledger.fill(columns)
        return {f"actor/{name}": value for name, value in report.items()}

    def loss(self, micro: Ledger, totals: BatchTotals) -> tuple[Tensor, dict[str, Tensor]]:
        """The policy loss of a part, with the entropy bonus and the KL where the configuration has them.

        A part without old_log_probs is learnt from once: the weights at hand are those that it was drawn with.
        """
        c, mask, mode = self.config.actor, micro.loss_mask, self.config.actor.loss_agg_mode
        log_probs, entropy = self._forward(micro)
        advantages = micro["whitened_advantages" if "whitened_advantages" in micro else "advantages"]
        spec = find_policy_loss(c.loss)
        before = {} if "old_log_probs" in micro else {"old_log_probs": log_probs.detach(), "entropy": entropy.detach()}
        old = before["old_log_probs"] if before else micro["old_log_probs"]
        policy = policy_loss(spec, old, log_probs, advantages, mask, vars(c), mode, **totals)
        bonus = entropy_loss(entropy, mask, mode, **totals)
        loss, columns = policy.loss, before | policy.columns | bonus.columns
        if c.entropy_coef:
            loss = loss - c.entropy_coef * bonus.loss
        if self.config.kl.loss_coef:
            kl = kl_loss(
                log_probs,
                micro["ref_log_probs"],
                mask,
                self.config.kl.loss_estimator,
                self.config.kl.clamp,
                mode,
                **totals,
            )
            loss, columns = loss + self.config.kl.loss_coef * kl.loss, columns | kl.columns
        return loss, columns

    @torch.no_grad()
    def ratios(self, ledger: Ledger) -> dict[str, Tensor]:
        def part(micro: Ledger) -> dict[str, Tensor]:
            return {"ratio": self.loss(micro, batch_totals(micro.loss_mask))[1]["ratio"]}

        return ledger.by_micro_batch(self._batcher(), part)

    def _moved_enough(self, minibatch: Ledger, columns: Mapping[str, Tensor]) -> bool:
        moved = masked_mean(minibatch["old_log_probs"] - columns["new_log_probs"], minibatch.loss_mask)
        limit = self.config.actor.stop_kl
        assert limit is not None
        return float(moved) > limit


def row_seed(seed: int, step: int, row: int) -> int:
    """A seed for one row of one step, so that a step can be drawn again without what came before it.

    It is one that torch's generators take: what is beyond 64 bits is wrapped around.
    """
    exact = (seed * 1_000_003 + step) * 1_000_003 + row
    return exact if -(2**63) <= exact < 2**64 else exact % 2**64
