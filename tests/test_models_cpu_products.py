"""Products by oneDNN are those of `mm`: alone, and in every pass and draw of a model large enough for them."""

from __future__ import annotations

import pytest
import torch
from test_models_cpu import LINEAR, adapted, assert_same, build, rows_of
from test_models_cpu_decoder import test_adapters_draw_as_transformers_does as adapters_draw_alike
from test_models_cpu_decoder import test_logits_are_those_of_transformers as logits_are_alike
from torch import Tensor

from mingce.models.cpu import products

SIZES = [(1, 7, 5), (3, 576, 960), (64, 300, 17), (129, 64, 2048)]


@pytest.fixture
def every_product(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Small weights count as large; the list has the rows of every product that oneDNN made."""
    if not products._works():
        pytest.skip("this torch has no oneDNN")
    usual, made = products._by_onednn, list[int]()

    def counted(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        made.append(len(x))
        return usual(x, weight, bias)

    monkeypatch.setattr(products, "LARGE", 0)
    monkeypatch.setattr(products, "_by_onednn", counted)
    return made


def assert_near(found: Tensor, exact: Tensor) -> None:
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=1e-5 * float(exact.abs().max()))


@pytest.mark.parametrize(("rows", "inputs", "outputs"), SIZES)
def test_products_of_any_strides(every_product: list[int], rows: int, inputs: int, outputs: int) -> None:
    x, weight, bias = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(outputs)
    exact = x.double() @ weight.double().T
    for one in (x, x.T.contiguous().T, torch.randn(rows, 2 * inputs)[:, inputs:].copy_(x)):
        for other in (weight, weight.T.contiguous().T):
            assert_near(products.linear(one, other), exact)
            assert_near(products.linear(one, other, bias), exact + bias)
    of_y = torch.randn(rows, outputs)
    assert_near(products.of_weight(of_y, x), of_y.double().T @ x.double())
    assert len(every_product) == 13
    assert products.linear(x[:0], weight).shape == (0, outputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_weights_are_added_piece_by_piece(
    every_product: list[int], monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    monkeypatch.setattr(products, "PIECE", 300)
    of_y, x, total = torch.randn(9, 41).to(dtype), torch.randn(9, 17).to(dtype), torch.randn(41, 17)
    exact = total.double() + of_y.double().T @ x.double()
    products.add_of_weight(total, of_y, x)
    torch.testing.assert_close(total.double(), exact, rtol=0, atol=1e-5 if dtype == torch.float32 else 0.1)
    assert every_product == ([17, 17, 7] if dtype == torch.float32 else [])


def test_small_weights_and_other_dtypes_stay_with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_by_onednn", None)
    small, large = torch.randn(40, 50), torch.randn(400, 500)
    for weight in (small, large.double(), large.bfloat16()):
        x = torch.randn(1000, weight.shape[1], dtype=weight.dtype)
        assert torch.equal(products.linear(x, weight), torch.nn.functional.linear(x, weight))


def test_a_thin_factor_goes_with_its_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_by_onednn", lambda x, weight, bias: "oneDNN")
    monkeypatch.setattr(products, "_works", lambda: True)
    x, factor = torch.randn(9, 500), torch.randn(4, 500)
    assert products.linear(x, factor, size=products.LARGE) == "oneDNN"
    assert products.linear(x, factor, size=products.LARGE - 1) != "oneDNN"


@pytest.mark.parametrize("name", ["llama grouped", "qwen2", "qwen3", "phi3", "gemma3_text"])
def test_states_and_gradients_are_those_of_transformers(every_product: list[int], name: str) -> None:
    assert_same(build(name), *rows_of([9, 23, 5, 23, 14], 4))
    assert len(every_product) > 20


def test_adapters_too(every_product: list[int]) -> None:
    assert_same(adapted("llama grouped", LINEAR).base_model.model, *rows_of([9, 23, 5, 23, 14], 2))
    assert len(every_product) > 20


def test_no_matrix_with_gaps_is_given_to_onednn(every_product: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries, keys and values stand side by side, and so do their gradients: 800 times slower as they stand."""
    usual, seen = torch.ops.mkldnn._linear_pointwise, list[Tensor]()

    def looked_at(x: Tensor, weight: Tensor, *more: object) -> Tensor:
        seen.extend((x, weight))
        result: Tensor = usual(x, weight, *more)
        return result

    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", looked_at)
    assert_same(adapted("llama grouped", LINEAR).base_model.model, *rows_of([9, 23, 5, 23, 14], 2))
    wide = torch.randn(9, 40)
    assert_near(products.linear(wide[:, :7], wide[:, 20:27]), wide[:, :7].double() @ wide[:, 20:27].double().T)
    assert_near(products.of_weight(wide[:, :7], wide[:, 20:]), wide[:, :7].T.double() @ wide[:, 20:].double())
    assert len(seen) > 40
    assert all(one.is_contiguous() or one.T.is_contiguous() for one in seen)


def test_the_decoder_too(every_product: list[int]) -> None:
    logits_are_alike("llama", 7)
    logits_are_alike("qwen2", 7)
    adapters_draw_alike("llama")
    assert len(every_product) > 1000
