"""A prompt and a response as a ledger of one row: their tokens, and what actor, reference and critic say of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from mingce.base.errors import DataError
from mingce.base.texts import sentence
from mingce.engine.local import build_actor, build_critic
from mingce.explain.pair_text import unknown_characters
from mingce.ledger import Ledger
from mingce.models.lora import base_causal_lm
from mingce.models.prompts import render_prompt
from mingce.roles.reference import LocalReference
from mingce.specs import find_estimator
from mingce.training.opening import Opened


def measured(opened: Opened, prompt: str, response: str, lang: str, notes: list[str]) -> Ledger:
    """The pair's ledger with log-probs and values; `notes` hears of a critic that was never trained."""
    ledger = _tokens(opened, prompt, response)
    _measure(opened, ledger, lang, notes)
    return ledger


def _tokens(opened: Opened, prompt: str, response: str) -> Ledger:
    tokenizer, where = opened.actor.tokenizer, opened.config.model.path
    for name, text in (("prompt", prompt), ("response", response)):
        odd = unknown_characters(text, partial(tokenizer.encode, add_special_tokens=False), tokenizer.unk_token_id)
        if odd:
            raise DataError(
                f"the tokenizer of {where} has no token for {' '.join(odd[:8])} in the {name}; "
                "use its characters, or a model with a larger vocabulary: --run RUN_OR_MODEL."
            )
    prompt_ids = render_prompt(tokenizer, prompt)
    ids = tokenizer.encode(response, add_special_tokens=False, verbose=False)
    if tokenizer.eos_token_id is not None and ids[-1:] != [tokenizer.eos_token_id]:
        ids = [*ids, tokenizer.eos_token_id]
    most = getattr(base_causal_lm(opened.actor.model).config, "max_position_embeddings", None)
    if most is not None and len(prompt_ids) + len(ids) > most:
        raise DataError(
            f"prompt and response are {len(prompt_ids) + len(ids)} tokens, but {where} reads {most}; shorten them."
        )
    mask = torch.ones(1, len(ids), dtype=torch.bool)
    rows: dict[str, Sequence[Any]] = {
        "uid": ["pair"], "group": ["pair"], "prompt": [prompt], "prompt_ids": [prompt_ids], "response": [response],
        "finish_reason": ["stop"], "temperature": [opened.actor.sampling.temperature],
    }  # fmt: skip
    device = next(opened.actor.model.parameters()).device
    return Ledger(torch.tensor([ids]), mask, mask, rows).to(device)


def _measure(opened: Opened, ledger: Ledger, lang: str, notes: list[str]) -> None:
    config, actor = opened.config, opened.actor
    same = opened.step in (None, 0) or hasattr(actor.model, "disable_adapter")  # no training to undo, or one switch
    begun = actor.model if same else build_actor(config).model
    reference = LocalReference(begun, actor.pad_id, actor.sampling.temperature, config.micro_batch_tokens)
    ledger.fill(actor.log_probs(ledger), reference.log_probs(ledger))
    if not find_estimator(config.estimator).needs_critic:
        return
    critic = opened.critic
    if critic is None:
        critic = build_critic(config, actor)
        notes.append(sentence("tutor.untrained_critic", lang))
    ledger.fill(critic.values(ledger))
