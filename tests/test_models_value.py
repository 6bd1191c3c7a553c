"""The value model: aligned with states, masked, saved and loaded whole."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from families import PAD, VOCABULARY, character_tokenizer, each_family, family_model, ragged_prompts
from torch import Tensor

from mingce.base.errors import ModelError
from mingce.models.loading import load_causal_lm, save_model
from mingce.models.lora import LoraSettings
from mingce.models.value_head import ValueModel


def with_random_head(family: str) -> ValueModel:
    model = ValueModel.from_causal_lm(family_model(family))
    torch.nn.init.normal_(model.head.weight)
    return model


def responses(lengths: list[int], width: int) -> tuple[Tensor, Tensor]:
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    return torch.randint(0, VOCABULARY, (len(lengths), width), generator=torch.Generator().manual_seed(1)), mask


@each_family
def test_values_are_read_at_the_token_before(family: str) -> None:
    """Row by row without padding: V(s_t) is the head at token t−1, the final value at the last token."""
    model, prompts, lengths = with_random_head(family), ragged_prompts(5), [6, 1, 4, 0, 6]
    tokens, mask = responses(lengths, 6)
    with torch.no_grad():
        values, final = model.values(prompts, tokens, mask, PAD)
        for row, (prompt, length) in enumerate(zip(prompts, lengths, strict=True)):
            whole = torch.tensor([prompt + tokens[row, :length].tolist()])
            states = model.head(model.backbone(input_ids=whole).last_hidden_state)[0, len(prompt) - 1 :, 0]
            torch.testing.assert_close(values[row, :length], states[:length], atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(final[row], states[length], atol=1e-5, rtol=1e-5)
        without, _ = model.values(prompts, tokens, mask, PAD, final=False)
    assert values.shape == tokens.shape
    assert not values[~mask].any()
    torch.testing.assert_close(without, values, atol=1e-5, rtol=1e-5)


def test_a_new_head_says_nothing_and_learns() -> None:
    policy = family_model("llama")
    model, prompts = ValueModel.from_causal_lm(policy), ragged_prompts(8)
    tokens, mask = responses([6, 5, 4, 3, 2, 1, 6, 6], 6)
    before = [weight.clone() for weight in policy.parameters()]
    wanted = torch.where(tokens % 2 == 0, 1.0, -1.0) * mask
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(40):
        values, _ = model.values(prompts, tokens, mask, PAD)
        loss = (values - wanted).square().sum() / mask.sum()
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[0] == pytest.approx(1)
    assert losses[-1] < 0.1
    assert all(torch.equal(one, two) for one, two in zip(before, policy.parameters(), strict=True)), "a copy learns"


def test_gradients_do_not_come_from_behind_the_mask() -> None:
    model, prompts = with_random_head("gpt2"), ragged_prompts(3)
    tokens, mask = responses([3, 1, 2], 5)
    other = torch.where(mask, tokens, (tokens + 5) % VOCABULARY)
    found = []
    for ids in (tokens, other):
        model.zero_grad()
        values, final = model.values(prompts, ids, mask, PAD)
        (values.sum() + final.sum()).backward()
        found.append([weight.grad.clone() for weight in model.parameters() if weight.grad is not None])
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-5)


def test_responses_without_tokens() -> None:
    model, prompts = with_random_head("llama"), ragged_prompts(2)
    tokens, mask = responses([0, 0], 3)
    for final in (True, False):
        values, _ = model.values(prompts, tokens, mask, PAD, final=final)
        assert not values.any()
        values.sum().backward()


def test_no_rows() -> None:
    model = with_random_head("llama")
    values, final = model.values([], torch.zeros(0, 3, dtype=torch.long), torch.zeros(0, 3, dtype=torch.bool), PAD)
    assert values.shape == (0, 3)
    assert final.shape == (0,)


@each_family
def test_saved_and_loaded(family: str, tmp_path: Path) -> None:
    model, prompts = with_random_head(family), ragged_prompts(4)
    tokens, mask = responses([4, 3, 2, 1], 4)
    model.save(tmp_path / "critic")
    again = ValueModel.load(tmp_path / "critic")
    for one, two in zip(
        model.values(prompts, tokens, mask, PAD), again.values(prompts, tokens, mask, PAD), strict=True
    ):
        assert torch.equal(one, two)


def test_from_the_directory_of_a_language_model(tmp_path: Path) -> None:
    policy = family_model("qwen2")
    save_model(tmp_path / "policy", policy, character_tokenizer())
    model = ValueModel.load(tmp_path / "policy")
    assert torch.equal(model.backbone.get_parameter("norm.weight"), policy.model.norm.weight)
    assert not model.head.weight.any()


def test_a_broken_head_file_is_named(tmp_path: Path) -> None:
    with_random_head("llama").save(tmp_path / "critic")
    (tmp_path / "critic" / "value_head.safetensors").write_bytes(b"nothing")
    with pytest.raises(ModelError, match=r"value head in .*critic cannot be read"):
        ValueModel.load(tmp_path / "critic")


def test_from_a_model_with_adapters_everything_learns(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    save_model(tmp_path / "policy", family_model("llama"), character_tokenizer())
    policy = load_causal_lm(tmp_path / "policy", lora=LoraSettings(rank=2))
    model = ValueModel.from_causal_lm(policy)
    assert all(weight.requires_grad for weight in model.parameters())
    assert not any("lora" in name for name, _ in model.named_parameters())


def test_with_adapters_the_trunk_is_shared_and_only_adapters_and_head_learn(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    save_model(tmp_path / "policy", family_model("llama"), character_tokenizer())
    policy = load_causal_lm(tmp_path / "policy", lora=LoraSettings(rank=2))
    model = ValueModel.with_adapters(policy)
    learning = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert learning == {name for name, _ in model.named_parameters() if "lora_" in name or name.startswith("head.")}
    frozen = {weight.data_ptr() for weight in policy.parameters() if not weight.requires_grad}
    assert all(weight.data_ptr() in frozen for weight in model.parameters() if not weight.requires_grad)
    assert not {p.data_ptr() for p in policy.parameters() if p.requires_grad} & {
        p.data_ptr() for p in model.parameters() if p.requires_grad
    }
    apart = ValueModel.with_adapters(policy, share=False)
    assert not any(weight.data_ptr() in frozen for weight in apart.parameters())


def test_a_critic_with_adapters_is_saved_merged(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    save_model(tmp_path / "policy", family_model("llama"), character_tokenizer())
    model = ValueModel.with_adapters(load_causal_lm(tmp_path / "policy", lora=LoraSettings(rank=2)))
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.add_(0.3 * torch.randn_like(weight))
    model.save(tmp_path / "critic")
    rows = [[3, 4, 5], [6]], torch.tensor([[7, 8], [9, 10]]), torch.ones(2, 2, dtype=torch.bool), 0
    before, after = model.values(*rows)[0], ValueModel.load(tmp_path / "critic").values(*rows)[0]
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-4)
    assert float(before.detach().abs().min()) > 0
