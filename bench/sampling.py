"""Our decoder against transformers' `model.generate`: same weights, same distribution, same prompts.

Ragged lengths are geometric with a mean of a quarter of the limit: a random model draws nearly uniformly, and so many
of its tokens are made stop tokens. Only tokens up to a row's end count.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from measuring import Spread, matmul_rate, ratio, take_turns
from tables import Table, number, spread
from toys import PAD, VOCABULARY, linear_weights, llama, prompts
from transformers import AutoModelForCausalLM, GenerationConfig

from mingce.base.errors import ModelError
from mingce.models import smollm2
from mingce.models.batching import forward_inputs
from mingce.models.sampling import Sampling, generate


class Case(NamedTuple):
    """One row of the table."""

    model: str
    lengths: str
    rows: int
    prompt: int
    limit: int
    samples: int = 1
    wanted: float | None = None


CASES = (
    Case("1 M", "equal", 64, 8, 64, wanted=1.5), Case("1 M", "equal", 256, 8, 64, wanted=1.5),
    Case("5 M", "equal", 64, 8, 64, wanted=1.5), Case("1 M", "ragged", 64, 8, 64, wanted=3.0),
    Case("1 M", "ragged", 256, 8, 256, wanted=3.0), Case("5 M", "ragged", 64, 8, 64, wanted=3.0),
    Case("1 M", "equal", 64, 128, 64), Case("1 M", "equal", 64, 128, 64, samples=8),
    Case("5 M", "equal", 64, 128, 64), Case("5 M", "equal", 64, 128, 64, samples=8),
)  # fmt: skip
QUICK = (CASES[0], CASES[3], CASES[6], CASES[7])
REAL = Case("SmolLM2-135M", "equal", 8, 16, 24)
MORE_WANTED = 1.4
"""How many times the ratio of one sample a prompt 8 samples should have."""


def stop_ids(case: Case) -> tuple[int, ...]:
    return tuple(range(1, 1 + 4 * VOCABULARY // case.limit)) if case.lengths == "ragged" else ()


def ours(case: Case, model: Any, asked: list[list[int]]) -> int:
    """Tokens drawn."""
    sampling = Sampling(max_new_tokens=case.limit, stop_ids=stop_ids(case))
    drawn = generate(model, asked, sampling, n=case.samples, seeds=range(case.rows), pad_id=PAD)
    return int(drawn.attention_mask.sum())


def theirs(case: Case, model: Any, asked: list[list[int]]) -> int:
    """Tokens drawn up to and with the first stop token."""
    none = torch.empty((len(asked), 0), dtype=torch.long)
    inputs = forward_inputs(asked, none, none.bool(), PAD)
    stops = list(stop_ids(case))
    settings = cast(Any, GenerationConfig)(
        max_new_tokens=case.limit, do_sample=True, top_k=0, num_return_sequences=case.samples, pad_token_id=PAD,
        eos_token_id=stops or None,
    )  # fmt: skip
    model.generation_config.eos_token_id = stops or None
    rows = model.generate(inputs.input_ids, attention_mask=inputs.attention_mask, generation_config=settings)
    ended = torch.isin(rows[:, case.prompt :], torch.tensor(stops, dtype=torch.long)).long()
    return int((ended.cumsum(1) - ended == 0).sum())


def limit_rate(case: Case, model: Any) -> float:
    """Tokens a second if decoding were nothing but its matrix products."""
    weights = linear_weights(model)
    flop = 2 * sum(out * into for out, into in weights)
    return matmul_rate([(case.rows, into, out) for out, into in weights]) / flop


def measure(table: Table, case: Case, model: Any, vocabulary: int, rounds: int) -> tuple[float, str]:
    """Adds the case's row; returns the ratio, and what it could be at most."""
    asked = prompts(case.rows // case.samples, case.prompt, vocabulary)
    taken = take_turns(
        {"generate": lambda: theirs(case, model, asked), "mingce": lambda: ours(case, model, asked)}, rounds
    )
    won, most = ratio(taken["generate"], taken["mingce"]), limit_rate(case, model)
    rates = {side: 1 / Spread.of(seconds).median for side, seconds in taken.items()}
    cells = [case.model, case.lengths, *(str(count) for count in case[2:6]), spread(won)]
    table.rows.append(cells + [number(rate) for rate in (rates["generate"], rates["mingce"], most)])
    table.raw.append({**case._asdict(), "ratio": won, "seconds_a_token": taken, "limit_tokens_a_second": most})
    return won.median, f"At the limit of its matrix products it would be {number(most / rates['generate'])}×."


def run(quick: bool) -> Table:
    table = Table(
        "sampling",
        "Sampling",
        ["model", "lengths", "rows", "prompt", "limit", "samples a prompt", "to generate", "generate tok/s",
         "mingce tok/s", "limit tok/s"],
    )  # fmt: skip
    peer, rounds = "transformers' generate", 3 if quick else 5
    alone: dict[str, float] = {}
    for case in QUICK if quick else CASES:
        shared = case.samples > 1
        label = f"{case.model}, {case.rows} rows, prompts of {case.prompt}, at most {case.limit}, {case.lengths}"
        with table.case(f"{label}, {case.samples} a prompt" if shared else label):
            won, why = measure(table, case, llama(case.model), VOCABULARY, rounds)
            if shared:
                more = f"{case.model}: 8 samples a prompt, as a multiple of one sample's ratio"
                table.at_least(more, won / alone[case.model], MORE_WANTED, group="Sampling, 8 of a prompt over 1 of it")
            else:
                alone[case.model] = won
                kind = f"{case.lengths} lengths" if case.wanted else f"prompts of {case.prompt}, one sample each"
                table.at_least(label, won, case.wanted, group=f"Sampling, {kind}", peer=peer, why=why)
    if not quick:
        with table.case(f"{REAL.model}, {REAL.rows} rows"):
            add_real(table, peer, rounds)
    table.notes.append(
        "One thread. `model.generate` repeats a prompt for each of its samples and computes rows that have ended; the "
        "limit is the model's matrix products at this number of rows and nothing else (no prefill, no attention)."
    )
    return table


def add_real(table: Table, peer: str, rounds: int) -> None:
    """A real model, where its weights are installed."""
    try:
        directory = smollm2.converted()
    except ModelError as error:
        table.notes.append(f"{REAL.model} is left out: {error}")
        return
    model = cast(Any, AutoModelForCausalLM).from_pretrained(directory, dtype=torch.float32).eval()
    won, why = measure(table, REAL, model, model.config.vocab_size, rounds)
    table.at_least(f"{REAL.model}, {REAL.rows} rows", won, None, group="Sampling, a real model", peer=peer, why=why)
