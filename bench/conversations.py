"""Conversations of several turns: our decoder, which goes on from a turn's cache, against the loop that people write on
transformers' `model.generate`, which is given the whole history anew in every turn.

Same weights, same distribution, same prompts, and the same made-up answer after every turn. Equal turns have as many
tokens as the limit says; ragged ones are geometric with a mean of a quarter of it, and a turn that reaches the limit
ends its conversation. Tokens that the policy drew count, up to the end of their turn.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from measuring import Spread, ratio, take_turns
from tables import Table, number, spread
from toys import PAD, VOCABULARY, llama, prompts
from transformers import GenerationConfig

from mingce.models.batching import forward_inputs
from mingce.models.conversations import Limits, Reply, converse
from mingce.models.sampling import Sampling


class Case(NamedTuple):
    """One row of the table."""

    model: str
    lengths: str
    rows: int
    turns: int
    prompt: int
    limit: int
    told: int
    wanted: float | None = 3.0


CASES = (
    Case("1 M", "ragged", 64, 4, 64, 64, 64), Case("1 M", "equal", 64, 4, 64, 24, 64, wanted=None),
)  # fmt: skip
QUICK = CASES[:1]


def stop_ids(case: Case) -> tuple[int, ...]:
    return tuple(range(1, 1 + 4 * VOCABULARY // case.limit)) if case.lengths == "ragged" else ()


class Told:
    """Answers every turn with the same ids, as an environment would."""

    def __init__(self, ids: list[int]):
        self.ids = ids

    def listen(self, row: int, ids: list[int], *, last: bool) -> None: ...

    def reply(self, row: int) -> Reply:
        return Reply(ids=self.ids, role=2)


def ours(case: Case, model: Any, asked: list[list[int]], told: list[int]) -> int:
    """Tokens drawn."""
    most = case.turns * (case.limit + case.told)
    sampling = Sampling(max_new_tokens=most, stop_ids=stop_ids(case))
    limits = Limits(case.turns, case.limit if case.lengths == "ragged" else 0)
    equal = case.lengths == "equal"
    played = converse(
        model, asked, sampling, Told(told), limits, seeds=range(case.rows),
        closing_ids=range(VOCABULARY) if equal else (), ends_turn=lambda ids: equal and len(ids) == case.limit,
    )  # fmt: skip
    return sum(len(turn) for one in played for turn in one.turns)


def theirs(case: Case, model: Any, asked: list[list[int]], told: list[int]) -> int:
    """Tokens drawn: every turn is one call with the whole history of the conversations that go on."""
    stops, drawn, histories = list(stop_ids(case)), 0, [list(one) for one in asked]
    settings = cast(Any, GenerationConfig)(
        max_new_tokens=case.limit, do_sample=True, top_k=0, pad_token_id=PAD, eos_token_id=stops or None
    )
    model.generation_config.eos_token_id = stops or None
    for _ in range(case.turns):
        none = torch.empty((len(histories), 0), dtype=torch.long)
        inputs = forward_inputs(histories, none, none.bool(), PAD)
        rows = model.generate(inputs.input_ids, attention_mask=inputs.attention_mask, generation_config=settings)
        after = []
        for history, row in zip(histories, rows[:, inputs.input_ids.shape[1] :].tolist(), strict=True):
            end = next((at + 1 for at, token in enumerate(row) if token in stops), len(row))
            drawn += end
            if not stops or row[end - 1] in stops:
                after.append([*history, *row[:end], *told])
        histories = after
        if not histories:
            break
    return drawn


def measure(table: Table, case: Case, rounds: int) -> float:
    """Adds the case's row; returns the ratio."""
    model = llama(case.model)
    asked, (told,) = prompts(case.rows, case.prompt, VOCABULARY), prompts(1, case.told, VOCABULARY)
    taken = take_turns(
        {"generate": lambda: theirs(case, model, asked, told), "mingce": lambda: ours(case, model, asked, told)}, rounds
    )
    won = ratio(taken["generate"], taken["mingce"])
    rates = {side: 1 / Spread.of(seconds).median for side, seconds in taken.items()}
    cells = [case.model, case.lengths, *(str(count) for count in case[2:7]), spread(won)]
    table.rows.append(cells + [number(rate) for rate in (rates["generate"], rates["mingce"])])
    table.raw.append({**case._asdict(), "ratio": won, "seconds_a_token": taken})
    return won.median


def run(quick: bool) -> Table:
    columns = ["model", "turns are", "conversations", "turns", "prompt", "limit of a turn", "observation"]
    table = Table("conversations", "Conversations", [*columns, "to generate", "generate tok/s", "mingce tok/s"])
    for case in QUICK if quick else CASES:
        label = f"{case.model}, {case.rows} conversations of {case.turns} turns, {case.lengths}"
        with table.case(label):
            won = measure(table, case, 3 if quick else 5)
            table.at_least(
                label, won, case.wanted, group=f"Conversations, {case.lengths} turns", peer="transformers' generate"
            )
    table.notes.append(
        "One thread, CPU seconds, both sides taking turns; tokens that the policy drew. The loop on `model.generate` "
        "is given every history anew in every turn, and waits for the longest turn of the batch."
    )
    return table
