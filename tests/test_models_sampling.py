"""The decoder: same tokens as transformers' generate, same distribution as it says, independent rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from families import (
    EOS,
    FAMILIES,
    PAD,
    VOCABULARY,
    WINDOW,
    build,
    character_tokenizer,
    each_family,
    family_model,
    ragged_prompts,
)
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    MistralConfig,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from mingce.base.errors import ModelError, SettingError
from mingce.models import drawing
from mingce.models.batching import forward_inputs
from mingce.models.cache import CachedDecoder
from mingce.models.cpu import Decoder, vocabulary
from mingce.models.log_probs import response_log_probs
from mingce.models.sampling import Generation, Sampling, generate
from mingce.models.stopping import StopTexts


def rows_of(drawn: Generation) -> list[list[int]]:
    return [ids[mask].tolist() for ids, mask in zip(drawn.token_ids, drawn.attention_mask, strict=True)]


def transformers_greedy(model: Any, prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
    """What generate(do_sample=False) gives the left-padded prompts, each row up to its end token."""
    none = torch.empty((len(prompts), 0), dtype=torch.long)
    inputs = forward_inputs(prompts, none, none.bool(), PAD)
    rows = model.generate(
        inputs.input_ids,
        attention_mask=inputs.attention_mask,
        max_new_tokens=new_tokens,
        do_sample=False,
        pad_token_id=PAD,
        eos_token_id=EOS,
    )[:, inputs.input_ids.shape[1] :].tolist()
    return [row[: row.index(EOS) + 1] if EOS in row else row for row in rows]


@each_family
def test_greedy_is_transformers_greedy(family: str) -> None:
    model, prompts = family_model(family), ragged_prompts(12)
    ours = generate(model, prompts, Sampling(24, temperature=0, stop_ids=(EOS,)), seeds=range(12), pad_id=PAD)
    assert rows_of(ours) == transformers_greedy(model, prompts, 24)
    assert not ours.log_probs.any()


def test_greedy_is_transformers_greedy_with_a_sliding_window() -> None:
    shape = FAMILIES["llama"].to_dict()
    kept = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    model = build(MistralConfig(**{key: shape[key] for key in kept}, num_key_value_heads=2, sliding_window=5))
    ours = generate(model, ragged_prompts(8), Sampling(20, temperature=0, stop_ids=(EOS,)), seeds=range(8), pad_id=PAD)
    assert rows_of(ours) == transformers_greedy(model, ragged_prompts(8), 20)


@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
def test_a_window_that_the_family_does_not_know_is_none(family: str) -> None:
    """transformers' cache believes an entry that its model ignores, and forgets what the model would look at."""
    model, prompts = family_model(family), ragged_prompts(6)
    model.config.sliding_window = 5
    drawn = generate(model, prompts, Sampling(20, stop_ids=(EOS,)), seeds=range(6), pad_id=PAD)
    with torch.no_grad():
        scored, _ = response_log_probs(model, prompts, drawn.token_ids, drawn.attention_mask, pad_id=PAD)
    torch.testing.assert_close(drawn.log_probs, scored, atol=1e-4, rtol=0)


@each_family
@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_log_probs_are_those_of_the_trainer(family: str, temperature: float) -> None:
    model, prompts = family_model(family), ragged_prompts(6)
    sampling = Sampling(24, temperature=temperature, stop_ids=(EOS, 5, 7))
    drawn = generate(model, prompts, sampling, n=4, seeds=range(24), pad_id=PAD)
    repeated = [prompt for prompt in prompts for _ in range(4)]
    with torch.no_grad():
        scored, _ = response_log_probs(
            model, repeated, drawn.token_ids, drawn.attention_mask, temperature=temperature, pad_id=PAD
        )
    assert len({len(row) for row in rows_of(drawn)}) > 3, "the rows should be ragged"
    torch.testing.assert_close(drawn.log_probs, scored, atol=1e-4, rtol=0)


def test_importance_weights_average_to_one() -> None:
    """Tokens drawn from q: the mean of p/q over them is 1 for any p; here p is another temperature than q's."""
    model, prompts = family_model("llama"), ragged_prompts(8)
    sampling = Sampling(16, temperature=0.7, stop_ids=(EOS,))
    drawn = generate(model, prompts, sampling, n=32, seeds=range(256), pad_id=PAD)
    repeated = [prompt for prompt in prompts for _ in range(32)]
    for temperature in (0.7, 0.8):
        with torch.no_grad():
            old, _ = response_log_probs(
                model, repeated, drawn.token_ids, drawn.attention_mask, temperature=temperature, pad_id=PAD
            )
        weights = (old - drawn.log_probs)[drawn.attention_mask].double().exp()
        error = float(weights.std()) / math.sqrt(len(weights))
        assert float(weights.mean()) == pytest.approx(1, abs=max(4 * error, 1e-5))


def test_tokens_follow_the_distribution_they_claim() -> None:
    logits = torch.randn(1, 12, generator=torch.Generator().manual_seed(0)).expand(20000, 12)
    sampling = Sampling(1, temperature=0.7, top_k=9, top_p=0.9)
    tokens, log_probs = drawing.draw(logits, sampling, torch.arange(20000), step=3)
    counts = torch.bincount(tokens, minlength=12).double()
    probs = torch.zeros(12, dtype=torch.float64).scatter(0, tokens, log_probs.double().exp())
    assert float(probs.sum()) == pytest.approx(1, abs=1e-6)
    chi_square = ((counts - 20000 * probs) ** 2 / (20000 * probs))[probs > 0].sum()
    assert float(chi_square) < 27, "beyond the 0.1 % point for 8 degrees of freedom"


@pytest.mark.parametrize(
    "setting", [{"top_k": 5}, {"top_p": 0.6}, {"min_p": 0.1}, {"top_k": 8, "top_p": 0.8, "min_p": 0.05}]
)
def test_truncation_is_that_of_transformers(setting: dict[str, Any]) -> None:
    logits = torch.randn(64, VOCABULARY, generator=torch.Generator().manual_seed(1)) * 2
    warpers = {"top_k": TopKLogitsWarper, "top_p": TopPLogitsWarper, "min_p": MinPLogitsWarper}
    wanted: Any = LogitsProcessorList([TemperatureLogitsWarper(0.7), *(warpers[key](setting[key]) for key in setting)])
    expected = wanted(torch.zeros(64, 1, dtype=torch.long), logits).log_softmax(-1)
    tokens, log_probs = drawing.draw(logits, Sampling(1, temperature=0.7, **setting), torch.arange(64), step=0)
    torch.testing.assert_close(log_probs, expected.gather(1, tokens[:, None])[:, 0], atol=1e-5, rtol=0)


def test_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    model, prompts = family_model("llama"), ragged_prompts(16)
    sampling = Sampling(20, stop_ids=(EOS, 5))
    together = rows_of(generate(model, prompts, sampling, seeds=range(100, 116), pad_id=PAD))
    alone = [
        rows_of(generate(model, [prompt], sampling, seeds=[100 + row], pad_id=PAD))[0]
        for row, prompt in enumerate(prompts)
    ]
    few_at_a_time = rows_of(generate(model, prompts, sampling, seeds=range(100, 116), pad_id=PAD, max_rows=3))
    assert together == alone == few_at_a_time


def test_samples_of_a_prompt_differ_and_are_prompt_major() -> None:
    model, prompts = family_model("llama"), ragged_prompts(3)
    sampling = Sampling(12)
    drawn = rows_of(generate(model, prompts, sampling, n=4, seeds=range(12), pad_id=PAD, max_rows=5))
    one_by_one = [
        rows_of(generate(model, [prompts[row // 4]], sampling, seeds=[row], pad_id=PAD))[0] for row in range(12)
    ]
    assert drawn == one_by_one
    assert len({tuple(row) for row in drawn}) == 12


def test_same_seeds_give_the_same_bits() -> None:
    model, prompts = family_model("qwen3"), ragged_prompts(5)
    first, second = (generate(model, prompts, Sampling(16), n=3, seeds=range(-7, 8), pad_id=PAD) for _ in range(2))
    assert torch.equal(first.token_ids, second.token_ids)
    assert torch.equal(first.log_probs, second.log_probs)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_finished_rows_leave_the_batch(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, sizes = family_model(family), list[int]()

    def counted(work: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def count(self: Any, rows: Any, *more: Any) -> Tensor:
            sizes.append(len(rows))
            return work(self, rows, *more)

        return count

    decoder = Decoder if family == "llama" else CachedDecoder
    for name in ("begin", "step"):
        monkeypatch.setattr(decoder, name, counted(getattr(decoder, name)))
    drawn = generate(model, ragged_prompts(4), Sampling(24, stop_ids=(5, 6, 7)), n=8, seeds=range(32), pad_id=PAD)
    lengths = drawn.attention_mask.sum(1)
    present = [int((lengths > slot).sum()) for slot in range(drawn.token_ids.shape[1])]
    assert sizes == [4, *present[1:]], "the prompts once each, then the rows that still go on"
    assert present[-1] < 32


def test_stop_at_the_first_token() -> None:
    model, seen = family_model("gpt2"), list[tuple[int, int]]()
    every_id = tuple(range(VOCABULARY))
    drawn = generate(
        model,
        [[7], [8, 9]],
        Sampling(5, stop_ids=every_id),
        n=2,
        seeds=range(4),
        pad_id=PAD,
        on_progress=lambda rows, tokens: seen.append((rows, tokens)),
    )
    assert drawn.token_ids.shape == (4, 1)
    assert drawn.attention_mask.all()
    assert drawn.finish_reasons == ["stop"] * 4
    assert seen == [(4, 4)]


def test_no_prompts() -> None:
    drawn = generate(family_model("llama"), [], Sampling(5), seeds=[], pad_id=PAD)
    assert drawn.token_ids.shape == drawn.attention_mask.shape == drawn.log_probs.shape == (0, 0)
    assert drawn.finish_reasons == []


def test_finish_reasons_and_padding() -> None:
    model = family_model("llama")
    drawn = generate(model, ragged_prompts(8), Sampling(10, stop_ids=(5, 6)), n=4, seeds=range(32), pad_id=PAD)
    assert {"stop", "length"} == set(drawn.finish_reasons)
    for row, ids in enumerate(rows_of(drawn)):
        assert all(token not in (5, 6) for token in ids[:-1])
        assert (drawn.finish_reasons[row] == "stop") == (ids[-1] in (5, 6))
        assert drawn.finish_reasons[row] == "stop" or len(ids) == 10
    assert (drawn.token_ids[~drawn.attention_mask] == PAD).all()
    assert not drawn.log_probs[~drawn.attention_mask].any()


@each_family
def test_the_window_of_the_model_is_not_exceeded(family: str) -> None:
    prompts = [[3] * (WINDOW - 1), [3] * (WINDOW - 6), [4, 5]]
    drawn = generate(family_model(family), prompts, Sampling(10), seeds=range(3), pad_id=PAD)
    assert drawn.attention_mask.sum(1).tolist() == [1, 6, 10]
    assert drawn.finish_reasons == ["length"] * 3


def test_a_prompt_that_fills_the_window_is_named() -> None:
    with pytest.raises(ModelError, match=f"prompt 1 has {WINDOW} tokens"):
        generate(family_model("llama"), [[3], [3] * WINDOW], Sampling(4), seeds=range(2), pad_id=PAD)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_diverged_model_is_said_to_be(temperature: float) -> None:
    model = family_model("llama")
    torch.nn.init.constant_(model.lm_head.weight, math.nan)
    with pytest.raises(ModelError, match="response token 0"):
        generate(model, [[3]], Sampling(4, temperature=temperature), seeds=[0], pad_id=PAD)


def test_uniforms_are_uniform_and_independent_over_seeds_and_steps() -> None:
    drawn = torch.stack([drawing.uniforms(torch.arange(2000), step) for step in range(50)])
    assert float(drawn.min()) >= 0
    assert float(drawn.max()) < 1
    counts = torch.histc(drawn.float(), 100, 0, 1).double()
    assert float(((counts - 1000) ** 2 / 1000).sum()) < 160, "chi square, 99 degrees of freedom"

    def correlation(one: Tensor, other: Tensor) -> float:
        return float(torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1])

    assert abs(correlation(drawn[:, 1:], drawn[:, :-1])) < 0.02
    assert abs(correlation(drawn[1:], drawn[:-1])) < 0.02


def test_uniforms_match_splitmix64() -> None:
    """Against the algorithm in whole numbers."""

    def mix(bits: int) -> int:
        bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB % 2**64
        return bits ^ (bits >> 31)

    seeds = [0, 1, 2**63, 2**64 - 1, -5, 12345678901234567890123]
    ours = drawing.uniforms(drawing.seed_tensor(seeds, torch.device("cpu")), 6)
    wanted = [(mix((mix(seed % 2**64) + 7 * 0x9E3779B97F4A7C15) % 2**64) >> 11) / 2**53 for seed in seeds]
    assert ours.tolist() == wanted


@pytest.mark.parametrize(
    "setting", [{"temperature": -1.0}, {"top_p": 0.0}, {"min_p": 2.0}, {"top_k": -1}, {"max_new_tokens": 0}]
)
def test_settings_outside_their_range(setting: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(setting))):
        Sampling(**{"max_new_tokens": 4, **setting})


@pytest.mark.parametrize("size", [1, 61, 3000])
def test_a_token_is_picked_where_the_cumulative_distribution_passes_the_number(size: int) -> None:
    generator = torch.Generator().manual_seed(size)
    logits = 3 * torch.randn(400, size, generator=generator)
    logits[torch.rand(400, size, generator=generator) < 0.3] = -math.inf  # what truncation leaves out
    logits[:, 0] = 0.0
    numbers = torch.rand(400, dtype=torch.float64, generator=generator)
    numbers[:2] = torch.tensor([0.0, 1 - 2.0**-53])
    tokens, log_probs = vocabulary.draw(logits, numbers)
    exact = logits.double().log_softmax(-1)
    torch.testing.assert_close(log_probs.double(), exact.gather(1, tokens[:, None])[:, 0], atol=2e-6, rtol=0)
    cumulative = exact.exp().cumsum(1)
    after = cumulative.gather(1, tokens[:, None])[:, 0]
    before = after - exact.exp().gather(1, tokens[:, None])[:, 0]
    assert bool(((before - 1e-6 <= numbers) & (numbers <= after + 1e-6)).all())
    assert bool(log_probs.isfinite().all()), "a token that may not be drawn never is"


def test_broken_logits_are_not_picked_from_silently() -> None:
    logits = torch.zeros(4, 2000)
    logits[0, 0], logits[1, 1999], logits[2, 7] = math.nan, math.nan, math.inf
    _, log_probs = vocabulary.draw(logits, torch.full((4,), 0.5, dtype=torch.float64))
    assert log_probs.isfinite().tolist() == [False, False, False, True]


def test_threads_are_as_they_were() -> None:
    """Small steps are decoded by one."""
    model, usual = family_model("llama"), torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        generate(model, [[3, 4], [5]], Sampling(max_new_tokens=3), seeds=[0, 1], pad_id=PAD)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(usual)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_row_ends_with_the_token_that_completes_a_stop_text(family: str) -> None:
    model, tokenizer = family_model(family), character_tokenizer()
    prompts, sampling = ragged_prompts(8), Sampling(24, stop_ids=(EOS,))
    free = rows_of(generate(model, prompts, sampling, n=8, seeds=range(64), pad_id=PAD))
    stops = [text for row in free if (text := str(tokenizer.decode(row[2:4]))) and " " in text and "<" not in text][:3]
    texts = StopTexts(tokenizer, stops)
    ended = generate(
        model, prompts, sampling, n=8, seeds=range(64), pad_id=PAD, max_rows=5, stop_texts=texts
    )  # fmt: skip
    cut = 0
    for whole, row, reason in zip(free, rows_of(ended), ended.finish_reasons, strict=True):
        has = [any(stop in tokenizer.decode(whole[: n + 1]) for stop in stops) for n in range(len(whole))]
        length = has.index(True) + 1 if any(has) else len(whole)
        assert row == whole[:length], "the ids are as they were drawn, up to the token that completes the text"
        assert reason == ("stop" if any(has) or whole[-1] == EOS else "length")
        cut += length < len(whole)
    assert cut > 1
