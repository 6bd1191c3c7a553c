"""One answer of a chat: its tokens, their account, and both in colour."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from rich.box import SIMPLE_HEAD
from rich.style import Style
from rich.table import Table
from rich.text import Text
from transformers import PreTrainedTokenizerBase

from mingce.explain.account_table import cell
from mingce.progress.tokens import grouped, visible
from mingce.record.tokens import added_texts

LOW, HIGH = (36, 92, 214), (34, 150, 84)
"""The colours of a scale's ends: blue and green."""
LEVELS = 8
NARROWEST = 0.2
"""The least width of a scale, so that noise does not look like a verdict."""
SYMBOLS = ("log π(a_t)", "π(a_t)", "H(π)", "V(s_t)")


@dataclass(frozen=True)
class Spoken:
    """An answer and its account, one entry a token; `values` is None where there is no trained critic.

    Log-probs and entropy are those of the whole distribution at `temperature`.
    """

    response: str
    strings: list[str]
    """What each token adds to the response; see `token_strings`."""
    names: list[str]
    """Each token by itself, special ones too."""
    log_probs: list[float]
    entropy: list[float]
    values: list[float] | None
    temperature: float
    was_cut: bool

    @property
    def probabilities(self) -> list[float]:
        return [math.exp(x) for x in self.log_probs]

    @property
    def shown(self) -> list[float]:
        """What the colours show: values, or probabilities without them."""
        return self.probabilities if self.values is None else self.values


@dataclass(frozen=True)
class Scale:
    """Numbers from `low` to `high` as colours from blue to green."""

    low: float
    high: float

    @classmethod
    def around(cls, numbers: Sequence[float]) -> Scale:
        """From the least to the largest of the numbers, or a little wider."""
        low, high = min(numbers), max(numbers)
        missing = max(0.0, NARROWEST - (high - low)) / 2
        return cls(low - missing, high + missing)

    def reaching(self, numbers: Sequence[float]) -> Scale:
        """The scale that has room for all of the numbers too."""
        return Scale(min(self.low, *numbers), max(self.high, *numbers))

    def style(self, x: float) -> Style:
        """White on the colour of x."""
        share = (x - self.low) / (self.high - self.low)
        red, green, blue = (round(a + share * (b - a)) for a, b in zip(LOW, HIGH, strict=True))
        return Style(color="#ffffff", bgcolor=f"#{red:02x}{green:02x}{blue:02x}")

    def legend(self) -> Text:
        """`0.00 ▇▇▇▇▇▇▇▇ 1.00`."""
        legend = Text(f"{self.low:.2f} ")
        for level in range(LEVELS):
            legend.append(" ", style=self.style(self.low + level / (LEVELS - 1) * (self.high - self.low)))
        return legend.append(f" {self.high:.2f}")


def coloured(spoken: Spoken, scale: Scale) -> Text:
    """The answer with every token on its colour; ∎ is the end."""
    pieces = grouped(spoken.strings, spoken.shown, spoken.response)
    return Text.assemble(*((text, scale.style(x)) for text, x in pieces if x is not None))


def account(spoken: Spoken, scale: Scale, title: str, headings: Sequence[str]) -> Table:
    """One line a token: log-prob, probability, entropy and, where there is one, value."""
    columns = [spoken.log_probs, spoken.probabilities, spoken.entropy]
    if spoken.values is not None:
        columns.append(spoken.values)
    in_colour = 1 if spoken.values is None else 3
    table = Table(title=title, title_justify="left", title_style="dim", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("t", justify="right", style="dim")
    table.add_column("token")
    for heading, symbol in list(zip(headings, SYMBOLS, strict=True))[: len(columns)]:
        table.add_column(f"{heading}\n{symbol}", justify="right")
    for t, name in enumerate(spoken.names):
        cells = [cell(column[t]) for column in columns]
        cells[in_colour].stylize(scale.style(spoken.shown[t]))
        table.add_row(str(t), visible(name).replace(" ", "␣"), *cells)
    return table


def token_strings(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """What each token adds to the text: nothing while a character's bytes are not all there, or for special tokens."""
    return added_texts(partial(tokenizer.decode, skip_special_tokens=True), ids)
