"""Many conversations at once: caches that go on after a turn give what whole rows give, and rows go their own way."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
import torch
from families import family_model
from transformers import AutoConfig, AutoModelForCausalLM

from mingce.models.conversations import Limits, Reply, Transcript, converse
from mingce.models.drawing import Sampling
from mingce.models.loading import load_causal_lm
from mingce.models.log_probs import response_log_probs
from mingce.models.sampling import generate

TALK = Limits(turns=4, turn_tokens=12)


class Echo:
    """Answers with random ids of its own, drawn from the row; some rows are given a new prompt, some end early."""

    def __init__(self, vocabulary: int, *, restarts: bool = True, wait: float = 0.0):
        self.vocabulary, self.restarts, self.wait = vocabulary, restarts, wait
        self.turns: dict[int, int] = {}
        self.heard: dict[int, list[int]] = {}

    def listen(self, row: int, ids: list[int], *, last: bool) -> None:
        self.heard.setdefault(row, []).extend(ids)
        self.turns[row] = self.turns.get(row, 0) + 1

    def reply(self, row: int) -> Reply:
        rng = random.Random(f"{row} {self.turns[row]}")
        time.sleep(self.wait * random.random())
        ids = [rng.randrange(4, self.vocabulary) for _ in range(rng.randrange(0, 9))]
        if rng.random() < 0.1:
            return Reply(done=True)
        if self.restarts and rng.random() < 0.2:
            return Reply(prompt=[5, *ids])
        return Reply(ids, role=2)


def tiny() -> Any:
    return load_causal_lm("tiny")


def mistral() -> Any:
    """With a sliding window, which the passes on the CPU leave to transformers, whose cache cannot skip padding."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "mistral", vocab_size=60, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=256, sliding_window=8, pad_token_id=0,
    )  # fmt: skip
    return AutoModelForCausalLM.from_config(config).eval()


MODELS = {"cpu": tiny, "gpt2": lambda: family_model("gpt2"), "sliding": mistral}


def talk(model: Any, rows: list[int], partner: Echo, **how: Any) -> dict[int, Transcript]:
    """Conversations of these rows, whose partner knows them by their numbers."""
    vocabulary = model.config.vocab_size
    prompts = [[4 + (7 * row) % 20, *range(4, 6 + row % 5)] for row in rows]

    class Renamed:
        def listen(self, row: int, ids: list[int], *, last: bool) -> None:
            partner.listen(rows[row], ids, last=last)

        def reply(self, row: int) -> Reply:
            return partner.reply(rows[row])

    stops = tuple(range(4, vocabulary, 7))
    sampling = Sampling(60, stop_ids=stops)
    found = converse(model, prompts, sampling, Renamed(), TALK, seeds=[100 + row for row in rows], **how)
    return dict(zip(rows, found, strict=True))


@pytest.mark.parametrize("name", MODELS)
def test_log_probs_are_those_of_whole_rows(name: str) -> None:
    model = MODELS[name]()
    partner = Echo(model.config.vocab_size)
    found = talk(model, list(range(24)), partner)
    segments = [segment for one in found.values() for segment in one.segments if segment.ids]
    assert sum(len(one.segments) > 1 for one in found.values()) > 2
    assert sum(not all(segment.chosen) for segment in segments) > 10
    for segment in segments:
        ids, present = torch.tensor([segment.ids]), torch.ones(1, len(segment.ids), dtype=torch.bool)
        with torch.no_grad():
            whole, _ = response_log_probs(model, [segment.prompt], ids, present, pad_id=0)
        chosen = torch.tensor([segment.chosen])
        torch.testing.assert_close(torch.tensor([segment.log_probs])[chosen], whole[chosen], rtol=0, atol=2e-4)


@pytest.mark.parametrize("name", MODELS)
def test_a_conversation_keeps_what_was_drawn_and_its_limits(name: str) -> None:
    model = MODELS[name]()
    partner = Echo(model.config.vocab_size)
    for row, one in talk(model, list(range(24)), partner).items():
        chosen = [i for s in one.segments for i, mine in zip(s.ids, s.chosen, strict=True) if mine]
        assert chosen == [token for turn in one.turns for token in turn]
        assert chosen[: len(partner.heard.get(row, []))] == partner.heard.get(row, [])
        assert one.tokens <= 60
        assert len(one.turns) <= 4
        assert all(1 <= len(turn) <= 12 for turn in one.turns)
        assert one.finish_reason in ("stop", "length")
        for segment in one.segments:
            assert segment.chosen[-1:] in ([True], [])  # nothing is told that nobody answers
            assert segment.turns == sorted(segment.turns)
            assert [role == 1 for role in segment.roles] == segment.chosen


@pytest.mark.parametrize("name", ["cpu", "gpt2"])
def test_a_row_depends_neither_on_others_nor_on_time(name: str) -> None:
    model = MODELS[name]()
    size = model.config.vocab_size
    together = talk(model, list(range(20)), Echo(size))
    assert talk(model, list(range(20)), Echo(size, wait=0.003)) == together  # bit for bit
    few = talk(model, [3, 17, 8], Echo(size))
    by_parts = talk(model, list(range(20)), Echo(size), max_rows=6)
    for row, one in few.items():
        assert one.turns == together[row].turns == by_parts[row].turns


@pytest.mark.parametrize("name", ["cpu", "gpt2"])
def test_a_single_turn_is_what_generate_draws(name: str) -> None:
    model = MODELS[name]()
    sampling = Sampling(20, stop_ids=(9, 16))
    prompts, seeds = [[4, 5, 6], [7, 8], [4, 5, 6]], [1, 2, 3]

    class Done(Echo):
        def reply(self, row: int) -> Reply:
            return Reply(done=True)

    drawn = generate(model, prompts, sampling, seeds=seeds, pad_id=0)
    found = converse(model, prompts, sampling, Done(9), Limits(1), seeds=seeds)
    for row, one in enumerate(found):
        assert one.segments[0].ids == drawn.token_ids[row][drawn.attention_mask[row]].tolist()
        assert one.finish_reason == drawn.finish_reasons[row]


def test_a_prompt_or_answer_without_room_ends_the_row_only() -> None:
    model = tiny()  # a window of 128

    class Long(Echo):
        def reply(self, row: int) -> Reply:
            return Reply([4] * 100, role=2) if row else super().reply(row)

    stops = tuple(range(4, model.config.vocab_size, 2))
    found = converse(
        model, [[5] * 20, [5] * 60], Sampling(300, stop_ids=stops), Long(40, restarts=False), Limits(3), seeds=[1, 2]
    )
    assert found[1].finish_reason == "length"
    assert len(found[1].turns) == 1
    assert all(found[1].segments[0].chosen)
    assert len(found[0].turns) >= 1
