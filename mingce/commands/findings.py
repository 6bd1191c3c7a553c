"""What the doctor finds, one line each."""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

NAME_CELLS = 36


@dataclass(frozen=True)
class Finding:
    """One thing looked at, and what to do (`advice`) if it is not fine.

    `fine` is None for something optional that is not there. Only a False that is `essential` spoils the verdict.
    """

    name: str
    detail: str
    fine: bool | None = True
    advice: str = ""
    essential: bool = True

    @property
    def failed(self) -> bool:
        """Whether mingce cannot be relied on because of this."""
        return self.fine is False and self.essential

    def show(self, console: Console) -> None:
        """A line with its mark: ✓ fine, ✗ failed, ! could be better, – not there; the advice below."""
        mark, style = ("–", "bright_black") if self.fine is None else ("✓", "green")
        if self.fine is False:
            mark, style = ("✗", "bold red") if self.essential else ("!", "yellow")
        dim = "bright_black" if self.fine is None else ""
        name = self.name + " " * max(1, NAME_CELLS - cell_len(self.name))
        console.print(Text.assemble("  ", (f"{mark} ", style), (name, dim), (self.detail, dim)), soft_wrap=True)
        if self.fine is False:
            console.print(Text(f"      {self.advice}", style="yellow"), soft_wrap=True)
