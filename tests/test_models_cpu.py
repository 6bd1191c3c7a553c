"""The passes on the CPU have transformers' hidden states and gradients, and leaves alone what it does not compute.

Everything is compared with transformers' own pass in float64, and the float32 pass of transformers is the measure of
how far a right computation may be from it: root mean squares, for the largest of a few errors is a matter of luck.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from families import FAMILIES
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel
from transformers.activations import ACT2FN

from mingce.models import forward
from mingce.models.cpu import hidden_states, kernels, reach, supports
from mingce.models.cpu.families import ACTIVATIONS
from mingce.models.cpu.families import FAMILIES as SUPPORTED
from mingce.models.cpu.layer import _LONG
from mingce.models.cpu.layout import layout_of

SHAPES: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 4},
    "llama grouped": {"num_key_value_heads": 2},
    "llama one key head, wide heads": {"num_key_value_heads": 1, "head_dim": 24},
    "llama turned slowly": {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}},
    "qwen2": {"num_key_value_heads": 2},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 16},
    "mistral": {"num_key_value_heads": 2, "sliding_window": None},
    "mistral with a window": {"num_key_value_heads": 2, "sliding_window": 400},
    "phi3": {"num_key_value_heads": 2, "sliding_window": 400, "pad_token_id": None},
    "smollm3": {"num_key_value_heads": 2, "pad_token_id": None, "no_rope_layers": [1, 0, 1]},
    "gemma3_text": {
        "num_key_value_heads": 2,
        "head_dim": 16,
        "query_pre_attn_scalar": 20,
        "pad_token_id": None,
        "sliding_window": 400,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
}

ALLOWED = 3
"""How many times as far from float64 as transformers' float32 pass ours may be, on any processor."""


def build(name: str, **more: object) -> Any:
    torch.manual_seed(len(name))
    sizes = {"vocab_size": 50, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3}
    config = AutoConfig.for_model(
        name.split()[0], num_attention_heads=4, max_position_embeddings=512, **{**sizes, **SHAPES[name], **more}
    )
    model = AutoModel.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():  # norms and biases begin as 1 and 0, which hides mistakes
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def rows_of(lengths: list[int], least: int) -> tuple[Tensor, Tensor]:
    """Ids `[B, W]`, and the wanted places: from `least` on up to a row's length."""
    ids = torch.randint(0, 50, (len(lengths), max(lengths)))
    column = torch.arange(max(lengths))
    return ids, (column < torch.tensor(lengths)[:, None]) & (column >= least)


def states_and_gradients(
    states: Callable[[nn.Module], Tensor], model: nn.Module, weights: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    model.zero_grad()
    made = states(model)
    (made * weights.to(made.dtype)).sum().backward()
    return made.detach(), {name: p.grad.detach().clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_same(model: Any, ids: Tensor, wanted: Tensor) -> None:
    def plain(one: nn.Module) -> Tensor:
        states: Tensor = one(input_ids=ids, use_cache=False).last_hidden_state[wanted]
        return states

    weights = torch.randn(int(wanted.sum()), model.config.hidden_size)
    exact, exact_grads = states_and_gradients(plain, copy.deepcopy(model).double(), weights)
    usual, usual_grads = states_and_gradients(plain, model, weights)
    ours, grads = states_and_gradients(lambda one: hidden_states(one, ids, wanted), model, weights)
    assert grads.keys() == exact_grads.keys()
    pairs = [(exact, usual, ours), *((exact_grads[name], usual_grads[name], grads[name]) for name in grads)]
    least = 1e-6 * max(float(right.norm()) for right, _, _ in pairs)  # a row of one token has no gradient at queries
    far = torch.tensor(
        [
            [float((one - right).norm()) / max(float(right.norm()), least) for one in (own, theirs)]
            for right, theirs, own in pairs
        ]
    )
    own, theirs = far.square().mean(0).sqrt().tolist()
    assert own <= ALLOWED * theirs, f"{own:.1e} from float64, transformers {theirs:.1e}"
    for name, (one, other) in zip(("states", *grads), far.tolist(), strict=True):  # in one tensor either may be lucky
        assert one <= 3 * ALLOWED * max(other, theirs), f"{name}: {one:.1e} from float64, transformers {other:.1e}"


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("least", [0, 4])
def test_states_and_gradients_are_those_of_transformers(name: str, least: int) -> None:
    model = build(name)
    assert supports(model)
    assert_same(model, *rows_of([9, 23, 5, 23, 14], least))


@pytest.mark.parametrize("name", ["llama grouped", "qwen3"])
def test_long_rows_too(name: str) -> None:
    assert_same(build(name), *rows_of([_LONG + 3, 40, _LONG + 9], 7))


def test_rows_without_a_wanted_place() -> None:
    ids, wanted = rows_of([9, 23, 5, 12], 2)
    wanted[0] = wanted[2] = False
    assert_same(build("llama grouped"), ids, wanted)


@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=6), data=st.data())
def test_any_lengths_and_places(lengths: list[int], data: st.DataObject) -> None:
    ids, _ = rows_of(lengths, 0)
    chosen = [data.draw(st.lists(st.booleans(), min_size=n, max_size=n).filter(any)) for n in lengths]
    wanted = torch.zeros(ids.shape, dtype=torch.bool)
    for row, marks in enumerate(chosen):
        wanted[row, : len(marks)] = torch.tensor(marks)
    assert_same(build("llama grouped"), ids, wanted)


@pytest.mark.parametrize("name", SHAPES)
def test_rows_that_begin_alike(name: str) -> None:
    """One prompt's samples, of which two are the same, a row that is another's beginning, and a stranger."""
    ids, wanted = rows_of([9, 23, 5, 23, 14, 23, 2], 4)
    ids[:6, :5] = ids[0, :5]
    ids[3] = ids[1]
    ids[5, :12] = ids[4, :12]
    ids[6] = ids[5]
    wanted[6, 1] = True
    assert_same(build(name), ids, wanted)


def test_one_layer_is_first_and_last() -> None:
    ids, wanted = rows_of([9, 23, 5], 4)
    ids[:, :6] = ids[0, :6]
    assert_same(build("llama grouped", num_hidden_layers=1), ids, wanted)


def test_long_rows_that_begin_alike() -> None:
    ids, wanted = rows_of([_LONG + 3, 40, _LONG + 9], 7)
    ids[:, :30] = ids[0, :30]
    assert_same(build("llama grouped"), ids, wanted)


@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(3, 14), min_size=2, max_size=8), least=st.integers(0, 2), data=st.data())
def test_any_rows_that_begin_alike(lengths: list[int], least: int, data: st.DataObject) -> None:
    ids, wanted = rows_of(lengths, least)
    for row in range(1, len(lengths)):
        other, shared = data.draw(st.tuples(st.integers(0, row - 1), st.integers(0, max(lengths))))
        ids[row, :shared] = ids[other, :shared]
    assert_same(build("qwen3"), ids, wanted)


@settings(max_examples=200, deadline=None)
@given(rows=st.lists(st.lists(st.integers(0, 2), min_size=0, max_size=6), min_size=1, max_size=8))
def test_states_are_prefixes(rows: list[list[int]]) -> None:
    """Against a dictionary of all prefixes."""
    width = max(1, *(len(row) for row in rows)) + 1
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])  # a padding that is a token too
    found = layout_of(ids, torch.tensor([len(row) for row in rows]))
    numbers: dict[tuple[int, ...], int] = {}
    expected = [numbers.setdefault(tuple(row[: t + 1]), len(numbers)) for row in rows for t in range(len(row))]
    assert found.states.tolist() == expected
    assert found.first.tolist() == [expected.index(state) == token for token, state in enumerate(expected)]


def test_what_a_row_gets_does_not_depend_on_its_neighbours() -> None:
    model = build("llama")
    ids, wanted = rows_of([9, 23, 5], 0)
    with torch.no_grad():
        together = hidden_states(model, ids, wanted)
        alone = torch.cat([hidden_states(model, ids[r : r + 1], wanted[r : r + 1]) for r in range(3)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)


def adapted(name: str, targets: list[str]) -> Any:
    """A model with adapters that do something, in its PEFT wrapper."""
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(build(name), LoraConfig(r=3, lora_alpha=5, target_modules=targets))
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if "lora_B" in parameter_name:
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model


LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@pytest.mark.parametrize("name", ["phi3", "smollm3"])
def test_adapters_of_other_shapes_too(name: str) -> None:
    model = adapted(name, ["qkv_proj", "gate_up_proj", "o_proj"] if name == "phi3" else LINEAR)
    assert supports(model.base_model.model)
    assert_same(model.base_model.model, *rows_of([9, 23, 5, 23, 14], 2))


def test_rows_beyond_a_window_are_left_to_transformers() -> None:
    model = build("mistral", sliding_window=16)
    assert supports(model)
    assert reach(model) == 16
    ids, wanted = rows_of([9, 23, 5, 30], 2)
    with torch.no_grad():
        theirs = model(input_ids=ids, use_cache=False).last_hidden_state[wanted]
        assert torch.equal(forward.hidden_states(model, ids, wanted), theirs)
        near = hidden_states(model, ids[:, :16], wanted[:, :16])
        torch.testing.assert_close(
            near, model(input_ids=ids[:, :16]).last_hidden_state[wanted[:, :16]], rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("name", ["llama grouped", "qwen2", "qwen3"])
@pytest.mark.parametrize("targets", [LINEAR, ["v_proj"], ["k_proj", "down_proj"], ["o_proj", "gate_proj"]])
def test_adapters_are_computed_too(name: str, targets: list[str]) -> None:
    model = adapted(name, targets)
    trunk = model.base_model.model
    assert supports(trunk)
    assert_same(trunk, *rows_of([9, 23, 5, 23, 14], 2))
    learning = {name for name, p in trunk.named_parameters() if p.grad is not None}
    assert learning == {name for name, _ in trunk.named_parameters() if "lora_" in name}


def test_adapters_that_are_off_leave_the_base() -> None:
    model, (ids, wanted) = adapted("llama grouped", LINEAR), rows_of([9, 23, 5], 2)
    trunk = model.base_model.model
    with torch.no_grad():
        on = hidden_states(trunk, ids, wanted)
        with model.disable_adapter():
            off = hidden_states(trunk, ids, wanted)
            theirs = trunk(input_ids=ids, use_cache=False).last_hidden_state[wanted]
    torch.testing.assert_close(off, theirs, rtol=1e-4, atol=1e-4)
    assert float((on - off).abs().max()) > 0.1


@pytest.mark.parametrize("family", FAMILIES)
def test_other_families_are_left_to_transformers(family: str) -> None:
    assert supports(AutoModel.from_config(FAMILIES[family])) == (family in {name.lower() for name in SUPPORTED})


@pytest.mark.parametrize("family", SUPPORTED)
def test_every_family_of_the_table_is_compared(family: str) -> None:
    """With biases, head norms, grouped keys and common beginnings as the shapes above have them."""
    assert any(shape.split()[0].removesuffix("_text") == family.lower() for shape in SHAPES)


def test_what_changes_the_pass_is_left_to_transformers() -> None:
    from peft import LoraConfig, get_peft_model

    assert not supports(build("llama").to(torch.bfloat16))
    assert not supports(build("llama", attention_bias=True))
    assert not supports(build("llama", mlp_bias=True))
    assert not supports(build("llama", attention_dropout=0.1))
    assert not supports(build("llama", hidden_act="gelu"))
    for unusual in ({"use_dora": True}, {"lora_dropout": 0.1}, {"lora_bias": True}):
        adapted: Any = get_peft_model(
            build("llama", attention_bias=False), LoraConfig(target_modules=["up_proj"], **unusual)
        )
        assert not supports(adapted.base_model.model), unusual
    checkpointed = build("llama")
    checkpointed.gradient_checkpointing_enable()
    assert not supports(checkpointed)
    hooked = build("llama")
    hooked.layers[1].mlp.register_forward_hook(lambda *_: None)
    assert not supports(hooked)


def test_having_shown_its_attention_once_changes_nothing() -> None:
    """transformers leaves hooks behind when it was asked for the maps."""
    model = build("llama")
    model.set_attn_implementation("eager")
    assert model(input_ids=torch.zeros(1, 3, dtype=torch.long), output_attentions=True).attentions is not None
    model.set_attn_implementation("sdpa")
    assert any(module._forward_hooks for module in model.modules())
    assert supports(model)


def test_exponentials_are_right_over_the_whole_range() -> None:
    @kernels.compiled
    def each(x, out):  # type: ignore[no-untyped-def]
        for i in range(len(x)):
            out[i] = kernels.exp(x[i])

    x = np.concatenate([np.linspace(-80, 80, 8001), [-1e-7, -1000.0, 1000.0]]).astype(np.float32)
    out = np.empty_like(x)
    each(x, out)
    far = np.abs(out[:-2] / np.exp(x[:-2].astype(np.float64)) - 1)
    assert far.max() < 1e-5  # of which y = x / ln 2 in float32 is the larger part
    assert out[-2] < 1e-37
    assert np.isfinite(out[-1])


@given(st.integers(0, 10_000), st.sampled_from(sorted(ACTIVATIONS)))
@settings(max_examples=60, deadline=None)
def test_gated_units_have_the_derivatives_of_their_activations(seed: int, name: str) -> None:
    generator = torch.Generator().manual_seed(seed)
    x, up, grad = (5 * torch.randn(3, 21, generator=generator) for _ in range(3))
    a, b = x.double().requires_grad_(), up.double().requires_grad_()
    exact = ACT2FN[name](a) * b
    numbers = [np.float32(number) for number in ACTIVATIONS[name]]
    exact.backward(grad.double())
    out, of_x, of_up, again = torch.empty_like(x), grad.clone(), torch.empty_like(x), torch.empty_like(x)
    kernels.glu(x.numpy(), up.numpy(), *numbers, out.numpy())
    kernels.glu_backward(x.numpy(), up.numpy(), *numbers, of_x.numpy(), of_up.numpy(), again.numpy())
    assert a.grad is not None
    assert b.grad is not None
    for own, right in ((out, exact.detach()), (again, exact.detach()), (of_x, a.grad), (of_up, b.grad)):
        torch.testing.assert_close(own.double(), right, rtol=1e-4, atol=1e-4)
