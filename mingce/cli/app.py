"""The command line. Commands import what they need when they run, so that `mingce --help` starts at once."""

from __future__ import annotations

import io
import sys
from typing import Annotated, Any

import typer
import typer.core
from rich.markup import escape

from mingce.base.errors import Interruption, MingceError
from mingce.base.terminal import make_console, shown, take_any_character
from mingce.base.texts import sentence
from mingce.cli import arithmetic, assistant, dumps, machine, models, training, tutor
from mingce.cli.options import console

LONGEST_ERROR = 2000
"""Characters of an error; a name of a megabyte is not repeated."""


class Interruptible(typer.core.TyperGroup):
    """The commands, any of which Ctrl-C may end."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interruption(sentence("commands.interrupted")) from None


app = typer.Typer(
    name="mingce",
    cls=Interruptible,
    help="mingce 明策: PPO for language models with every token's account open.",
    epilog="Example: mingce train",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="show the traceback of an error")] = False,
    version: Annotated[bool, typer.Option("--version", help="print the version and exit")] = False,
) -> None:
    if version:
        from mingce import __version__

        console.print(__version__)
        raise typer.Exit


for commands in (training, models, dumps, tutor, assistant, machine, arithmetic):  # in the order of --help
    app.add_typer(commands.group)


def main() -> None:
    """The `mingce` command: a person's mistake is one sentence on stderr and exit code 2, Ctrl-C a word and 130."""
    take_any_character()
    try:
        sys.exit(app(standalone_mode=False))
    except _Misuse as error:
        usage = io.StringIO()
        error.show(file=usage)
        sys.stderr.write(shown(usage.getvalue()))
        sys.exit(error.exit_code)
    except typer.Abort:
        _print_error("aborted.")
        sys.exit(1)
    except (MingceError, OSError, MemoryError, RecursionError, UnicodeError) as error:
        if "--debug" in sys.argv:
            raise
        _print_error(str(error) if isinstance(error, MingceError) else _system_error(error))
        sys.exit(getattr(error, "exit_code", 2))


_Misuse: Any = typer.BadParameter.__mro__[2]
"""What typer raises for a command line that it cannot read; its base class has no public name."""


def _print_error(text: str) -> None:
    text = text if len(text) <= LONGEST_ERROR else f"{text[: LONGEST_ERROR - 1]}…"
    make_console(stderr=True).print(f"[bold red]mingce:[/] {escape(text)}", highlight=False, soft_wrap=True)


def _system_error(error: OSError | MemoryError | RecursionError | UnicodeError) -> str:
    """What the machine refused, in one sentence."""
    if isinstance(error, OSError):
        where = "" if error.filename is None else f" {error.filename}"
        return f"the system refused{where}: {error.strerror or error}; --debug shows where."
    if isinstance(error, UnicodeError):
        return "one of the words given holds characters that cannot be written; --debug shows where."
    what = "the memory does not suffice" if isinstance(error, MemoryError) else "something is nested too deeply"
    return f"{what}; --debug shows where."
