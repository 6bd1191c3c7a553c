"""Model replay: the embedded model scores its own rollouts again, right and in every wrong way."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from families import VOCABULARY, character_tokenizer, family_model

from mingce.audit.finding import Finding
from mingce.audit.replay import replay
from mingce.base.errors import ColumnError, ModelError
from mingce.models.batching import forward_inputs
from mingce.models.loading import load_causal_lm, save_model
from mingce.models.log_probs import response_log_probs
from mingce.models.sampling import Sampling, generate
from mingce.models.value_head import ValueModel
from mingce.record.dump import Dump
from mingce.specs.settings import DumpSettings

ROWS, WIDTH, SEEDS = 10, 12, range(2)


@cache
def tiny() -> Any:
    return load_causal_lm("tiny")


@cache
def rollouts(seed: int) -> tuple[list[list[int]], Any, Any]:
    """Prompts of different lengths, and what the model answers at temperature 0.8."""
    r = np.random.default_rng(seed)
    prompts = [r.integers(3, 50, 3 + 2 * (row % 5)).tolist() for row in range(ROWS)]
    drawn = generate(tiny(), prompts, Sampling(WIDTH, 0.8, stop_ids=(2,)), seeds=list(range(ROWS)), pad_id=0)
    return prompts, drawn.token_ids, drawn.attention_mask.bool()


@torch.no_grad()
def scored(seed: int, model: Any = None, temperature: float = 0.8) -> Any:
    prompts, tokens, mask = rollouts(seed)
    found, _ = response_log_probs(model or tiny(), prompts, tokens, mask, pad_id=0, temperature=temperature)
    return found.numpy()


def dump_of(seed: int, **columns: Any) -> Dump:
    prompts, tokens, mask = rollouts(seed)
    named = {"old_log_probs": scored(seed)} | columns
    return Dump(
        {"response_mask": mask.numpy(), "attention_mask": mask.numpy(), "token_ids": tokens.numpy(), **named},
        {"prompt_ids": prompts},
        DumpSettings(temperature=0.8, pad_id=0),
    )


def told(dump: Dump, model: str | Path = "tiny", **options: Any) -> dict[str, Finding]:
    return {f"{f.column}:{f.fault.code}": f for f in replay(dump, model, **options)}


@pytest.mark.parametrize("seed", SEEDS)
def test_what_the_model_wrote_agrees(seed: int) -> None:
    dump = dump_of(seed, rollout_log_probs=scored(seed), ref_log_probs=scored(seed))
    assert list(told(dump, reference="tiny")) == ["old_log_probs:replay-agrees", "ref_log_probs:replay-agrees"]
    for name in ("old_log_probs", "rollout_log_probs"):
        dump.columns[name] = torch.from_numpy(dump.columns[name]).bfloat16().float().numpy()
    assert list(told(dump)) == ["old_log_probs:replay-agrees"]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_bfloat16_pass_is_noise(seed: int) -> None:
    rough = load_causal_lm("tiny", dtype="bfloat16")
    found = told(dump_of(seed, old_log_probs=scored(seed, rough)))
    assert set(found) <= {"old_log_probs:replay-agrees", "old_log_probs:replay-precision"}


@pytest.mark.parametrize("seed", SEEDS)
def test_temperature(seed: int) -> None:
    found = told(dump_of(seed, old_log_probs=scored(seed, temperature=1.0)))
    assert list(found) == ["old_log_probs:replay-temperature"]
    finding = found["old_log_probs:replay-temperature"]
    assert (finding.level, finding.named, finding.values["found"]) == ("bug", (2,), 1.0)
    dump = dump_of(seed, ref_log_probs=scored(seed, temperature=1.0))
    assert told(dump, reference="tiny")["ref_log_probs:replay-temperature"].level == "convention"
    dump = dump_of(seed)
    dump.settings = replace(dump.settings, temperature=None)
    found = told(dump)
    assert list(found) == ["old_log_probs:replay-temperature-found"]
    assert found["old_log_probs:replay-temperature-found"].values["found"] == 0.8


@pytest.mark.parametrize("seed", SEEDS)
def test_shifted(seed: int) -> None:
    right = scored(seed)
    for shift in (-1, 1):
        found = told(dump_of(seed, old_log_probs=np.roll(right, shift, axis=1), rollout_log_probs=right))
        assert found["old_log_probs:replay-shift"].named == (18,)
        assert "rollout_log_probs:replay-agrees" in found


@torch.no_grad()
def left_padded(model: Any, seed: int, *, masked: bool) -> Any:
    prompts, tokens, mask = rollouts(seed)
    inputs = forward_inputs(prompts, tokens, mask, 0)
    positions = torch.arange(inputs.input_ids.shape[1]).expand_as(inputs.input_ids)
    attention = inputs.attention_mask if masked else torch.ones_like(inputs.attention_mask)
    logits = model(input_ids=inputs.input_ids, attention_mask=attention, position_ids=positions).logits / 0.8
    logits = logits[:, -tokens.shape[1] - 1 : -1].log_softmax(-1)
    return torch.where(mask, logits.gather(-1, tokens[..., None])[..., 0], 0).numpy()


@pytest.mark.parametrize("seed", SEEDS)
def test_padding_that_is_seen(seed: int) -> None:
    found = told(dump_of(seed, old_log_probs=left_padded(tiny(), seed, masked=False)))
    assert list(found) == ["old_log_probs:replay-left-pad"]
    assert found["old_log_probs:replay-left-pad"].named == (13,)


def test_positions_counted_from_the_padding(tmp_path: Path) -> None:
    """Absolute positions, as GPT-2 has them, notice; rotary ones do not."""
    gpt2 = family_model("gpt2")
    assert VOCABULARY > 53
    save_model(tmp_path, gpt2, character_tokenizer())
    found = told(dump_of(1, old_log_probs=left_padded(gpt2, 1, masked=True)), tmp_path)
    assert list(found) == ["old_log_probs:replay-left-pad"]
    assert "positions" in found["old_log_probs:replay-left-pad"].values["way"]
    found = told(dump_of(1, old_log_probs=left_padded(tiny(), 1, masked=True)))
    assert list(found) == ["old_log_probs:replay-agrees"]


@torch.no_grad()
def test_token_read_from_its_own_logits() -> None:
    prompts, tokens, mask = rollouts(1)
    inputs = forward_inputs(prompts, tokens, mask, 0)
    logits = tiny()(input_ids=inputs.input_ids, attention_mask=inputs.attention_mask, position_ids=inputs.position_ids)
    own = (logits.logits[:, -tokens.shape[1] :] / 0.8).log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
    found = told(dump_of(1, old_log_probs=torch.where(mask, own, 0).numpy()))
    assert found["old_log_probs:replay-shift"].named == (18,)


def moved(scale: float, seed: int = 0) -> Any:
    """The model with other weights."""
    other = load_causal_lm("tiny")
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in other.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator) * scale * weight.std())
    return other


@pytest.mark.parametrize("seed", SEEDS)
def test_other_weights(seed: int) -> None:
    other = scored(seed, moved(0.1, seed))
    found = told(dump_of(seed, rollout_log_probs=other))
    assert list(found) == ["old_log_probs:replay-agrees", "rollout_log_probs:replay-rollout"]
    found = told(dump_of(seed, old_log_probs=other))
    assert list(found) == ["old_log_probs:replay-differs"]
    assert found["old_log_probs:replay-differs"].level == "suspicious"
    after = scored(seed, moved(0.2, seed))
    assert list(told(dump_of(seed, new_log_probs=after))) == ["old_log_probs:replay-agrees"]


@pytest.mark.parametrize("seed", SEEDS)
def test_dropout_while_scoring(seed: int) -> None:
    r = np.random.default_rng(seed)
    right = scored(seed)
    passes = [(right + 0.2 * r.normal(size=right.shape)).astype(np.float32) for _ in range(2)]
    found = told(dump_of(seed, old_log_probs=passes[0], new_log_probs=passes[1]))
    assert list(found) == ["old_log_probs:replay-two-passes"]
    assert found["old_log_probs:replay-two-passes"].named == (41,)


def test_the_reference_is_the_policy(tmp_path: Path) -> None:
    from mingce.models.loading import load_tokenizer

    save_model(tmp_path, moved(0.2), load_tokenizer("tiny"))
    found = told(dump_of(1, ref_log_probs=scored(1)), reference=tmp_path)
    assert found["ref_log_probs:replay-reference-is-policy"].named == (22,)
    found = told(dump_of(1, ref_log_probs=scored(1, load_causal_lm(tmp_path))), reference=tmp_path)
    assert "ref_log_probs:replay-agrees" in found


def test_values(tmp_path: Path) -> None:
    critic = ValueModel.from_causal_lm(tiny())
    torch.manual_seed(0)
    torch.nn.init.normal_(critic.head.weight)
    critic.save(tmp_path)
    prompts, tokens, mask = rollouts(1)
    with torch.no_grad():
        values = critic.values(prompts, tokens, mask, 0)[0].numpy()
    assert "values:replay-agrees" in told(dump_of(1, values=values), critic=tmp_path)
    found = told(dump_of(1, values=np.roll(values, -1, axis=1)), critic=tmp_path)
    assert found["values:replay-values-shift"].named == (19,)
    assert found["values:replay-values-shift"].values["slot"] == "t+1"
    assert "values:replay-values-differ" in told(dump_of(1, values=values + 1), critic=tmp_path)


def test_what_cannot_be_replayed_is_said() -> None:
    dump = dump_of(1)
    dump.columns["token_ids"] = dump.columns["token_ids"] + 1000
    with pytest.raises(ModelError, match=r"token id 1.* knows ids below 53"):
        replay(dump, "tiny")
    del dump.columns["token_ids"]
    with pytest.raises(ColumnError, match="no token_ids"):
        replay(dump, "tiny")
    dump = dump_of(1)
    dump.rows["prompt_ids"] = [[] for _ in range(ROWS)]
    with pytest.raises(ColumnError, match="no row"):
        replay(dump, "tiny")
    with pytest.raises(ModelError, match="value_head"):
        replay(dump_of(1, values=scored(1)), "tiny", critic="tiny")
    dump = dump_of(1, old_log_probs=np.full((ROWS, scored(1).shape[1]), np.nan, dtype=np.float32))
    assert replay(dump, "tiny") == []
