"""An answer with every token on the colour of its advantage: green gained, red lost, the brighter the more."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from mingce.base.conversation import asked
from mingce.base.numbers import figure
from mingce.progress.text import MUTED

if TYPE_CHECKING:
    from mingce.ledger import Ledger

GAINED, LOST, NEUTRAL = (46, 190, 110), (226, 72, 80), (40, 42, 48)
LEVELS = 12
END = "∎"
"""Stands for a token without text, as the end of an answer is."""
UNREADABLE = "□"
BROKEN = "�"
Piece = tuple[str, float | None]
"""A stretch of text and the advantage of its tokens; None where the policy did not choose it."""


@dataclass(frozen=True)
class Answer:
    """One rollout of a step, as the display shows it. `largest` is the batch's largest |advantage|."""

    step: int
    prompt: str
    pieces: Sequence[Piece]
    largest: float
    score: float | None


def sampled_answer(step: int, ledger: Ledger, tokens: Callable[[int], list[str]]) -> Answer | None:
    """A row of the step's ledger, another one each step, without drawing from any random generator."""
    if not len(ledger):
        return None
    row = step * 2654435761 % len(ledger)
    length = int(ledger.lengths[row])
    strings = tokens(row)[:length]
    chosen = ledger.mask[row, :length].tolist()
    if "advantages" in ledger:
        credit = ledger["advantages"][row, :length].tolist()
        largest = float(ledger["advantages"].abs().max()) if ledger.width else 0.0
    else:
        credit, largest = [0.0] * length, 0.0
    numbers = [number if mine else None for number, mine in zip(credit, chosen, strict=True)][: len(strings)]
    return Answer(
        step,
        prompt_text(ledger.rows["prompt"][row]) if "prompt" in ledger.rows else "",
        grouped(strings, numbers, str(ledger.rows["response"][row]) if "response" in ledger.rows else ""),
        largest,
        float(ledger["scores"][row].sum()) if "scores" in ledger else None,
    )


def prompt_text(prompt: Any) -> str:
    """A prompt in one line: what a text asks, or what the last message of a chat says."""
    if isinstance(prompt, list) and prompt and isinstance(prompt[-1], dict):
        prompt = prompt[-1].get("content", "")
    return visible(asked(str(prompt)))


def visible(text: str) -> str:
    """`text` on one line and harmless to a terminal: a model may say anything, control characters included."""
    marks = {"\n": "↵", "\t": "⇥", BROKEN: UNREADABLE}
    return "".join(marks.get(c, c if c.isprintable() else UNREADABLE) for c in text)


def grouped(strings: Sequence[str], numbers: Sequence[float | None], response: str) -> list[Piece]:
    """Tokens as pieces that can be read, each with the mean advantage of its tokens.

    A byte-level tokenizer may spread one character over several tokens, whose strings are then empty or broken (�).
    Such a run is one piece, and its text is what stands at that place in the decoded response:

        ["等于", "�", "�", "！", ""] of the response "等于数！"  →  等于 · 数 · ！ · ∎
    """
    assert len(strings) == len(numbers), f"{len(strings)} token strings for {len(numbers)} advantages"
    pieces: list[Piece] = []
    place = t = 0
    while t < len(strings):
        end = t
        while end < len(strings) and (not strings[end] or BROKEN in strings[end]):
            end += 1
        if end == len(strings) and not any(strings[t:]):  # nothing follows: tokens that say nothing, as the end does
            pieces += [(END, number) for number in numbers[t:]]
            break
        if any(BROKEN in string for string in strings[t:end]):
            following = strings[end].strip() if end < len(strings) else ""
            found = response.find(following, place + 1) if following else -1
            until = found if found > place else len(response)
            text, place = response[place:until] or UNREADABLE, until
        else:
            end += 1  # a run of empty strings, if any, belongs to the token that completes its character
            text = strings[end - 1]
            found = response.find(text, place)
            if found >= 0 and not response[place:found].strip():  # some tokenizers drop a token's leading space
                text, place = response[place : found + len(text)], found + len(text)
        pieces.append((visible(text), _mean(numbers[t:end])))
        t = end
    return pieces


def _mean(numbers: Sequence[float | None]) -> float | None:
    chosen = [number for number in numbers if number is not None]
    return sum(chosen) / len(chosen) if chosen else None


@cache
def _style(level: int) -> Style:
    """A background `level` steps (of LEVELS) towards GAINED, or LOST if negative, with an ink to be read on it."""
    share = abs(level) / LEVELS
    towards = GAINED if level > 0 else LOST
    red, green, blue = (round(a + share * (b - a)) for a, b in zip(NEUTRAL, towards, strict=True))
    ink = "#101214" if 0.3 * red + 0.6 * green + 0.1 * blue > 105 else "#f2f4f6"
    return Style(color=ink, bgcolor=f"#{red:02x}{green:02x}{blue:02x}")


def credit_style(advantage: float | None, largest: float) -> Style:
    """The colour of a token: none where the policy did not choose it; any advantage but 0 shows a little."""
    if advantage is None:
        return Style(dim=True, italic=True)
    if not advantage or largest <= 0:
        return Style()
    level = max(1, round(math.sqrt(min(1.0, abs(advantage) / largest)) * LEVELS))  # the root lets small ones be seen
    return _style(level if advantage > 0 else -level)


def coloured(pieces: Sequence[Piece], largest: float, cells: int) -> Text:
    """The pieces in a row; of a text beyond `cells` the middle is left out, because the end is what was scored."""
    widths = [cell_len(text) for text, _ in pieces]
    if sum(widths) <= cells:
        return _joined(pieces, largest)
    room = max(0, cells - 3)
    head, used = 0, 0
    while head < len(pieces) and used + widths[head] <= room * 2 // 3:
        used += widths[head]
        head += 1
    tail = len(pieces)
    while tail > head and used + widths[tail - 1] <= room:
        tail -= 1
        used += widths[tail]
    return Text.assemble(_joined(pieces[:head], largest), (" … ", "dim"), _joined(pieces[tail:], largest))


def _joined(pieces: Sequence[Piece], largest: float) -> Text:
    return Text.assemble(*((text, credit_style(advantage, largest)) for text, advantage in pieces))


def fold(text: Text, width: int) -> list[Text]:
    """Lines of at most `width` cells; breaks anywhere, as Chinese does."""
    breaks, cells = [], 0
    for place, character in enumerate(text.plain):
        size = cell_len(character)
        if cells + size > width:
            breaks.append(place)
            cells = 0
        cells += size
    return list(text.divide(breaks))


def scale(largest: float, label: str) -> Text:
    """The legend: `advantage −0.42 ▇▇▇▇ +0.42`, from the reddest to the greenest."""
    text = Text(f"{label} −{figure(largest)} ", style=MUTED)
    for level in (-12, -8, -4, -1, 1, 4, 8, 12):
        text.append(" ", style=_style(level))
    return text.append(f" +{figure(largest)}", style=MUTED)
