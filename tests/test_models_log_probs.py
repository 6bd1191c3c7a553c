"""Log-probs and entropies against the plain computation, their gradients too; the two layouts of a forward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from families import FAMILIES, PAD, VOCABULARY, build, each_family, family_model, ragged_prompts
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import Gemma2Config, GraniteConfig, OPTConfig

from mingce.models import log_probs as module
from mingce.models.batching import forward_inputs, joined_rows
from mingce.models.log_probs import log_probs_batcher, response_log_probs
from mingce.models.micro_batches import packed_batches


def responses(lengths: list[int], width: int) -> tuple[Tensor, Tensor]:
    """Random tokens `[B, T]` and their mask, with nonsense behind it."""
    generator = torch.Generator().manual_seed(1)
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    return torch.randint(0, VOCABULARY, (len(lengths), width), generator=generator), mask


def plain(
    model: Any, prompts: list[list[int]], tokens: Tensor, mask: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """The same by the book: left-padded rows, all logits, log-softmax, slice [P−1 : −1]."""
    inputs = forward_inputs(prompts, tokens, mask, PAD)
    output = model(input_ids=inputs.input_ids, attention_mask=inputs.attention_mask, position_ids=inputs.position_ids)
    logits = output.logits[:, -tokens.shape[1] - 1 : -1].float() / temperature
    everything = logits.log_softmax(-1)
    chosen = everything.gather(-1, tokens[..., None])[..., 0]
    entropy = -(everything.exp() * everything).sum(-1)
    return chosen.masked_fill(~mask, 0), entropy.masked_fill(~mask, 0)


def gradients(model: Any, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


head_log_probs: Any = module._HeadLogProbs.apply


def agree(model: Any, temperature: float = 0.7) -> None:
    """Values within 1e-5, gradients within 1e-5 of the largest in their tensor, for log-probs and entropies at once."""
    prompts = ragged_prompts(6)
    tokens, mask = responses([7, 1, 4, 7, 0, 3], 7)
    weights = torch.randn(2, *tokens.shape, generator=torch.Generator().manual_seed(2))
    ours = response_log_probs(model, prompts, tokens, mask, temperature=temperature, pad_id=PAD)
    wanted = plain(model, prompts, tokens, mask, temperature)
    for column, reference in zip(ours, wanted, strict=True):
        torch.testing.assert_close(column, reference, atol=1e-5, rtol=0)
        assert not column[~mask].any()
    mine = gradients(model, (torch.stack(ours) * weights).sum())
    book = gradients(model, (torch.stack(wanted) * weights).sum())
    assert mine.keys() == book.keys()
    for name, gradient in mine.items():
        torch.testing.assert_close(gradient, book[name], atol=float(book[name].abs().max()) * 1e-5, rtol=0, msg=name)


@each_family
def test_values_and_gradients_are_those_of_the_plain_computation(family: str) -> None:
    agree(family_model(family))


@pytest.mark.parametrize("tied", [False, True])
def test_tied_embeddings_collect_both_gradients(tied: bool) -> None:
    shape = FAMILIES["llama"].to_dict() | {"tie_word_embeddings": tied}
    agree(build(type(FAMILIES["llama"])(**shape)))


def _sized(config_class: Any, **more: Any) -> Any:
    shape = FAMILIES["llama"].to_dict()
    kept = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    return config_class(**{key: shape[key] for key in kept}, num_key_value_heads=2, **more)


CHANGED_LOGITS: dict[str, Callable[[], Any]] = {
    "capped logits": lambda: _sized(Gemma2Config, head_dim=8, final_logit_softcapping=3.0, pad_token_id=None),
    "scaled logits": lambda: _sized(GraniteConfig, logits_scaling=3.0),
    "a backbone of two parts": lambda: OPTConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        word_embed_proj_dim=32,
        ffn_dim=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        dropout=0.0,
        pad_token_id=None,
    ),
}


@pytest.mark.parametrize("kind", CHANGED_LOGITS)
def test_models_that_change_their_logits_are_asked_for_them(kind: str) -> None:
    model = build(CHANGED_LOGITS[kind]())
    prompts, (tokens, mask) = ragged_prompts(3), responses([5, 2, 4], 5)
    with torch.no_grad():
        ours = response_log_probs(model, prompts, tokens, mask, pad_id=PAD)
        wanted = plain(model, prompts, tokens, mask, 1.0)
    torch.testing.assert_close(ours, wanted, atol=1e-5, rtol=0)


@given(
    rows=st.integers(1, 40),
    vocabulary=st.integers(2, 30),
    temperature=st.floats(0.3, 3),
    bias=st.booleans(),
    frozen=st.booleans(),
    of_entropy=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_the_head_by_blocks_has_the_gradients_of_the_head_at_once(
    rows: int, vocabulary: int, temperature: float, bias: bool, frozen: bool, of_entropy: bool, seed: int
) -> None:
    """In float32 by blocks against float64 at once, as near as the logits allow: each is known to eps of its size only,
    and e^logit is relatively as wrong as the logit is absolutely."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(rows, 5), (vocabulary, 5), *([(vocabulary,)] if bias else [])]
    leaves = [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]
    learning = 1 if frozen else len(leaves)
    for leaf in leaves[learning:]:
        leaf.requires_grad_(False)
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    targets = torch.randint(0, vocabulary, (rows,), generator=generator)
    weights = torch.randn(2, rows, generator=generator) * torch.tensor([[1.0], [float(of_entropy)]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK", 1)
        patch.setattr(module, "_LEAST_ROWS", 7)
        by_blocks = head_log_probs(*leaves, *([] if bias else [None]), targets, temperature)
        mine = torch.autograd.grad((torch.stack(by_blocks) * weights).sum(), leaves[:learning])
    logits = torch.nn.functional.linear(*exact) / temperature
    everything = logits.log_softmax(-1)
    at_once = everything.gather(1, targets[:, None])[:, 0], -(everything.exp() * everything).sum(-1)
    near = 8 * torch.finfo(torch.float32).eps * (1 + float(logits.detach().abs().max()))
    wanted = torch.autograd.grad((torch.stack(at_once) * weights).sum(), exact[:learning])
    for one, two in zip([*by_blocks, *mine], [*at_once, *wanted], strict=True):
        scale = max(1.0, float(two.detach().abs().max()))
        torch.testing.assert_close(one.double(), two, atol=near * scale, rtol=0)


def test_half_precision_weights_are_scored_in_float32() -> None:
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(n, 16, generator=generator).bfloat16().requires_grad_() for n in (300, VOCABULARY))
    targets = torch.randint(0, VOCABULARY, (300,), generator=generator)
    log_probs, entropy = head_log_probs(hidden, weight, None, targets, 1.0)
    everything = (hidden @ weight.T).float().log_softmax(-1)
    torch.testing.assert_close(log_probs, everything.gather(1, targets[:, None])[:, 0])
    assert entropy.dtype == torch.float32
    mine = torch.autograd.grad(log_probs.sum(), (hidden, weight))
    wanted = torch.autograd.grad(everything.gather(1, targets[:, None]).sum(), (hidden, weight))
    for one, two in zip(mine, wanted, strict=True):
        assert one.dtype == torch.bfloat16
        torch.testing.assert_close(one, two, atol=float(two.abs().max()) * 0.02, rtol=0)


def test_logits_are_never_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tensor of tokens × vocabulary is made, neither forward nor backward, and padding is not scored."""
    largest = 0
    linear = torch.nn.functional.linear

    def watched(hidden: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        nonlocal largest
        if weight.shape[0] == VOCABULARY:
            largest = max(largest, hidden.numel() // hidden.shape[-1])
        return linear(hidden, weight, bias)

    model, prompts = family_model("llama"), ragged_prompts(20)
    tokens, mask = responses([9, 2] * 10, 9)
    response_log_probs(model, prompts, tokens, mask, pad_id=PAD)  # the first call looks at the model's head
    monkeypatch.setattr(torch.nn.functional, "linear", watched)
    monkeypatch.setattr(module, "_BLOCK", 1)
    monkeypatch.setattr(module, "_LEAST_ROWS", 16)
    log_probs, _ = response_log_probs(model, prompts, tokens, mask, pad_id=PAD)
    log_probs.sum().backward()
    assert largest == 16


def test_frozen_weights_get_no_gradient() -> None:
    model = family_model("llama")
    model.lm_head.requires_grad_(False)
    log_probs, _ = response_log_probs(model, [[3, 4]], *responses([3], 3), pad_id=PAD)
    log_probs.sum().backward()
    assert model.lm_head.weight.grad is None
    assert model.model.embed_tokens.weight.grad.any()


def test_which_models_compute_no_padding() -> None:
    from peft import LoraConfig, get_peft_model

    def packs(model: nn.Module) -> bool:
        batcher: Any = log_probs_batcher(model, 100)
        return batcher.func is packed_batches

    assert packs(family_model("llama"))
    assert not packs(family_model("gpt2"))
    learns: Any = log_probs_batcher(family_model("llama"), 100)
    beside: Any = log_probs_batcher(get_peft_model(family_model("llama"), LoraConfig(target_modules=["q_proj"])), 100)
    assert (learns.keywords["small"], beside.keywords["small"]) == (False, True)
    adapted = get_peft_model(family_model("llama"), LoraConfig(target_modules=["lm_head"]))
    assert not packs(adapted), "its logits are those of transformers' padded pass"


def test_nothing_to_score() -> None:
    model = family_model("llama")
    for prompts, shape in (([], (0, 4)), ([[3], [4, 5]], (2, 0)), ([[3]], (1, 2))):
        tokens, mask = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.bool)
        for column in response_log_probs(model, prompts, tokens, mask, pad_id=PAD):
            assert column.shape == shape
            assert not column.any()


def test_what_is_behind_the_mask_does_not_matter() -> None:
    model, prompts = family_model("gpt2"), ragged_prompts(4)
    tokens, mask = responses([6, 2, 5, 1], 6)
    other = torch.where(mask, tokens, (tokens + 7) % VOCABULARY)
    first = response_log_probs(model, prompts, tokens, mask, pad_id=PAD)
    second = response_log_probs(model, prompts, other, mask, pad_id=9)
    for one, two in zip(first, second, strict=True):
        assert torch.equal(one, two)


def test_layouts() -> None:
    tokens = torch.tensor([[7, 8, 9], [6, 5, 4]])
    mask = torch.tensor([[True, True, True], [True, False, False]])
    left = forward_inputs([[1, 2], [3]], tokens, mask, 0)
    assert left.input_ids.tolist() == [[1, 2, 7, 8, 9], [0, 3, 6, 0, 0]]
    assert left.attention_mask.tolist() == [[1, 1, 1, 1, 1], [0, 1, 1, 0, 0]]
    assert left.position_ids.tolist() == [[0, 1, 2, 3, 4], [0, 0, 1, 1, 1]]
    joined = joined_rows([[1, 2], [3]], tokens, mask, 0)
    assert joined.input_ids.tolist() == [[1, 2, 7, 8, 9], [3, 6, 0, 0, 0]]
    assert joined.columns.tolist() == [[1, 2, 3, 4], [0, 1, 2, 3]]


def test_a_gap_in_a_response_is_refused() -> None:
    with pytest.raises(AssertionError, match="right-padded"):
        joined_rows([[1]], torch.tensor([[1, 2, 3]]), torch.tensor([[True, False, True]]), 0)
