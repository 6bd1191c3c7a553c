"""train and resume."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mingce.base.errors import SettingError
from mingce.cli.options import LangOption, Settings, TrustOption, console

group = typer.Typer()


@group.command(epilog="Example: mingce train steps=40 estimator=grpo lang=en")
def train(
    settings: Settings = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print configuration and batch plan, train nothing")
    ] = False,
    lang: LangOption = None,
) -> None:
    """Train: PPO on a language model, every token recorded. Without settings, the embedded task and model."""
    words = settings or []
    recipes = [word for word in words if "=" not in word]
    if len(recipes) > 1:
        raise SettingError(f"'{recipes[1]}' is neither a setting (key=value) nor the one recipe.")
    from mingce.config import read_config
    from mingce.config.bounds import check_root
    from mingce.record.run import check_name

    overrides = [word for word in words if "=" in word]
    config = read_config(Path(recipes[0]) if recipes else None, overrides)  # before torch is loaded
    check_name(config.name)
    if not dry_run:
        check_root(config.root)
    from mingce.training import start

    start.train(console, Path(recipes[0]) if recipes else None, overrides, dry_run=dry_run)


@group.command(epilog="Example: mingce resume runs/20261115-120000-ab12")
def resume(
    run: Annotated[str, typer.Argument(help="the run's directory")],
    settings: Annotated[
        list[str] | None, typer.Argument(help="steps=N gives it more steps", show_default=False)
    ] = None,
    changed: Annotated[
        bool,
        typer.Option("--changed", help="resume although settings, data, code or libraries differ; it is recorded"),
    ] = False,
    trust: TrustOption = False,
    lang: LangOption = None,
) -> None:
    """Resume a run from its newest whole checkpoint, bit for bit as if it had never stopped."""
    from mingce.training import start

    start.resume(console, Path(run), settings or [], changed=changed, trust=trust)
