"""The command line. Commands import what they need when they run, so that `mingce --help` starts at once."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core
from rich.markup import escape
from rich.table import Table

from mingce import cli_tutor
from mingce.base.errors import Interruption, MingceError, SettingError
from mingce.base.lang import display_lang, say
from mingce.base.terminal import make_console, shown, take_any_character
from mingce.cli_options import Lang, LangOption, MappingOption, TrustOption, console

LONGEST_SENTENCE = 2000
"""Characters of an error; a name of a megabyte is not repeated."""


class Interruptible(typer.core.TyperGroup):
    """The commands, any of which Ctrl-C may end."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interruption(say(display_lang(), "已中断", "interrupted")) from None


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


Settings = Annotated[
    list[str] | None, typer.Argument(help="a recipe.yaml and settings as key=value", show_default=False)
]


@app.command(epilog="Example: mingce train steps=40 estimator=grpo lang=en")
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


@app.command(epilog="Example: mingce resume runs/20261115-120000-ab12")
def resume(
    run: Annotated[str, typer.Argument(help="the run's directory")],
    settings: Annotated[
        list[str] | None, typer.Argument(help="steps=N gives it more steps", show_default=False)
    ] = None,
    changed: Annotated[
        bool, typer.Option("--changed", help="go on though settings, data, code or libraries are others; it is noted")
    ] = False,
    trust: TrustOption = False,
    lang: LangOption = None,
) -> None:
    """Go on with a run from its newest whole checkpoint, bit for bit as if it had never stopped."""
    from mingce.training import start

    start.resume(console, Path(run), settings or [], changed=changed, trust=trust)


Where = Annotated[
    str, typer.Argument(metavar="RUN_OR_MODEL", help="a run's directory, tiny, smollm2, or a Hugging Face directory")
]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="settings laid over the run's own", show_default=False)
]
StepOption = Annotated[
    str | None,
    typer.Option("--step", metavar="N|best", help="which checkpoint; the newest if left out, 0 is the model as it was"),
]


@app.command("eval", epilog="Example: mingce eval runs/demo --step best --samples 8 --out answers.jsonl")
def evaluate(
    where: Where,
    overrides: Overrides = None,
    step: StepOption = None,
    task: Annotated[str | None, typer.Option(help="another task than the run's: a name, or a data file")] = None,
    examples: Annotated[int | None, typer.Option(help="how many held-out prompts")] = None,
    samples: Annotated[int | None, typer.Option(help="how many sampled answers to each")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object instead of tables")] = False,
    out: Annotated[Path | None, typer.Option(help="write every answer with its score to this JSONL file")] = None,
    trust: TrustOption = False,
    lang: LangOption = None,
) -> None:
    """Accuracy, greedy and sampled, mean score, pass@n and length on prompts that were held out."""
    from mingce.record.targets import find_run, parse_step

    find_run(where, parse_step(step))  # reports a wrong path before torch is loaded
    from mingce.commands import evaluate as command

    command.run(
        console,
        where,
        step=parse_step(step),
        task=task,
        examples=examples,
        samples=samples,
        overrides=overrides or [],
        as_json=as_json,
        out=out,
        trust=trust,
    )


@app.command(epilog="Example: mingce chat runs/demo --step best")
def chat(
    where: Where,
    overrides: Overrides = None,
    step: StepOption = None,
    lang: LangOption = None,
) -> None:
    """Talk to a checkpoint; every token stands on the colour of its value V(s_t). Reads a pipe too."""
    from mingce.record.targets import find_run, parse_step

    find_run(where, parse_step(step))
    from mingce.commands import chat as command

    command.run(console, where, step=parse_step(step), overrides=overrides or [])


@app.command(epilog="Example: mingce export runs/demo --step best --out my-model")
def export(
    where: Where,
    out: Annotated[Path, typer.Option(help="the directory to make; it must not exist yet")],
    step: StepOption = None,
    critic: Annotated[bool, typer.Option("--critic", help="the critic too, in OUT/critic")] = False,
    adapter: Annotated[bool, typer.Option("--adapter", help="LoRA adapters alone (PEFT) instead of merged")] = False,
    lang: LangOption = None,
) -> None:
    """Write a checkpoint as a plain Hugging Face directory."""
    from mingce.record.targets import find_run, parse_step

    find_run(where, parse_step(step))
    from mingce.commands import export as command

    command.run(console, where, out, step=parse_step(step), critic=critic, adapter=adapter)


@app.command(epilog="Example: mingce check data/train.parquet --function reward.py")
def check(
    task: Annotated[str, typer.Argument(metavar="TASK_OR_DATA", help="a task's name or a data file")],
    task_lang: Annotated[Lang, typer.Option(help="of an embedded task's prompts: zh or en")] = Lang.zh,
    function: Annotated[
        str | None, typer.Option(metavar="FILE.py[:NAME]", help="score with this compute_score instead")
    ] = None,
    full_marks: Annotated[float, typer.Option(help="with --function: the score from which an answer is right")] = 1.0,
    examples: Annotated[int, typer.Option(help="how many examples")] = 20,
    time_limit: Annotated[float | None, typer.Option(help="seconds for scoring one answer")] = None,
    lang: LangOption = None,
) -> None:
    """Prove without a model that a scorer accepts its own right answers, and refuses wrong ones."""
    from mingce.commands import check as command

    fine = command.run(
        console,
        task,
        lang=task_lang.value,
        function=function,
        full_marks=full_marks,
        examples=examples,
        time_limit=time_limit,
    )
    if not fine:
        raise typer.Exit(2)


Dumps = Annotated[list[Path], typer.Argument(metavar="FILE_OR_DIR", help="dumps of any trainer, or a run's directory")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="another setting, such as eos_id=2", show_default=False),
]


@app.command("audit", epilog="Example: mingce audit dumps/step_12.pt --gamma 1 --lam 0.95 --set eos_id=2")
def audit_(
    places: Dumps,
    mapping: MappingOption = None,
    gamma: Annotated[float | None, typer.Option(help="discount γ; inferred if left out")] = None,
    lam: Annotated[float | None, typer.Option(help="λ of GAE; inferred if left out")] = None,
    beta: Annotated[float | None, typer.Option(help="β of the KL in the reward; inferred if left out")] = None,
    settings: SetOption = None,
    step: Annotated[list[int] | None, typer.Option(help="only this step; may be repeated", show_default=False)] = None,
    model: Annotated[Path | None, typer.Option(metavar="DIR", help="the policy's weights: replay log-probs")] = None,
    ref_model: Annotated[Path | None, typer.Option(metavar="DIR", help="the reference's weights: replay them")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON, in both languages")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="print Markdown")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write the report there (.json or Markdown), print the verdict")
    ] = None,
    lang: LangOption = None,
) -> None:
    """Recompute any trainer's token dump with independent code and name what is wrong. 0 clean, 1 a bug, 2 not run."""
    if as_json and as_markdown:
        raise SettingError("--json and --markdown exclude each other; choose one.")
    from mingce.commands import audit as command

    code = command.run(
        console,
        places,
        mapping=mapping,
        settings=command.parse_settings(settings or [], gamma=gamma, lam=lam, beta=beta),
        steps=step or [],
        model=model,
        ref_model=ref_model,
        as_json=as_json,
        as_markdown=as_markdown,
        out=out,
        lang=display_lang(),
    )
    raise typer.Exit(code)


@app.command(epilog="Example: mingce diff verl/step_1.pt openrlhf/step_1.pt --lang en")
def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="a dump")],
    b: Annotated[Path, typer.Argument(metavar="B", help="a dump of the same batch from elsewhere")],
    mapping: MappingOption = None,
    step: Annotated[int | None, typer.Option(help="the step to compare, where there are several")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON, in both languages")] = False,
    lang: LangOption = None,
) -> None:
    """Two dumps of one batch: the first column, row and token where they part, and why. 0 the same, 1 they part."""
    from mingce.commands import diff as command

    raise typer.Exit(command.run(console, a, b, mapping=mapping, step=step, as_json=as_json, lang=display_lang()))


@app.command(epilog="Example: mingce view runs/demo")
def view(
    places: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN_OR_DUMP", help="runs, a directory of runs, or dumps; runs/ if left out"),
    ] = None,
    host: Annotated[
        str, typer.Option(help="listen there instead; beyond this machine a token is needed")
    ] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(help="a free one if left out", min=1, max=65535)] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="open the page in the browser")] = True,
    mapping: MappingOption = None,
    tokenizer: Annotated[
        Path | None, typer.Option(metavar="FILE_OR_DIR", help="a tokenizer.json for the tokens' texts, for dumps")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="write one self-contained file instead of serving")
    ] = None,
    steps: Annotated[str | None, typer.Option(metavar="A,B", help="with --export: which steps")] = None,
    rollouts: Annotated[int, typer.Option(help="with --export: how many rollouts of each step")] = 16,
    with_audit: Annotated[bool, typer.Option("--audit", help="with --export: the audit of each step too")] = False,
    lang: LangOption = None,
) -> None:
    """See where every token's credit comes from: a local web page over runs and dumps. Changes nothing."""
    from mingce.commands import view as command

    command.run(
        console,
        places or [Path("runs")],
        host=host,
        port=port,
        browser=browser,
        mapping=mapping,
        tokenizer=tokenizer,
        export=export,
        steps=steps,
        rollouts=rollouts,
        audit=with_audit,
        lang=display_lang(),
    )


cli_tutor.add_to(app)


@app.command(epilog="Example: mingce plan recipes/grpo.yaml --model-config 7b --gpus 64 --gpu h100 --up-to 1024")
def plan(
    settings: Settings = None,
    model_config: Annotated[
        str | None,
        typer.Option(metavar="PRESET|FILE|DIR", help="7b, a config.json or a model directory; else the recipe's model"),
    ] = None,
    gpus: Annotated[int, typer.Option(help="GPUs in all, one rank each")] = 8,
    gpus_per_node: Annotated[int, typer.Option(help="GPUs of a node")] = 8,
    gpu: Annotated[str, typer.Option(help="a100, h100, h200, b200, mi300x or rtx4090: its data sheet")] = "h100",
    gpu_memory: Annotated[str | None, typer.Option(metavar="SIZE", help="memory of a GPU, such as 80GB")] = None,
    tflops: Annotated[float | None, typer.Option(help="dense TFLOP/s of a GPU")] = None,
    bandwidth: Annotated[str | None, typer.Option(metavar="RATE", help="of a GPU's memory, such as 3350GB/s")] = None,
    link: Annotated[str | None, typer.Option(metavar="RATE", help="between GPUs of a node, such as 450GB/s")] = None,
    network: Annotated[
        str | None, typer.Option(metavar="RATE", help="between nodes, for each GPU, such as 400Gb/s")
    ] = None,
    prompt_tokens: Annotated[int | None, typer.Option(help="mean length of a prompt; the limit if left out")] = None,
    response_tokens: Annotated[
        int | None, typer.Option(help="mean length of a response; the limit if left out")
    ] = None,
    up_to: Annotated[int | None, typer.Option(metavar="GPUS", help="how far to look at growth")] = None,
    assume: Annotated[
        list[str] | None, typer.Option(metavar="NAME=NUMBER", help="replace an assumption, such as train=0.35")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON, unrounded")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="print Markdown")] = False,
    lang: LangOption = None,
) -> None:
    """What a run will need on a cluster, before it runs: memory, traffic, time, growth. 0 it fits, 1 it does not."""
    if as_json and as_markdown:
        raise SettingError("--json and --markdown exclude each other; choose one.")
    from mingce.commands import plan as command
    from mingce.plan.plan import Request

    request = Request(
        settings=settings or [],
        model_config=model_config,
        gpus=gpus,
        gpus_per_node=gpus_per_node,
        gpu=gpu,
        gpu_memory=gpu_memory,
        tflops=tflops,
        bandwidth=bandwidth,
        link=link,
        network=network,
        prompt_tokens=prompt_tokens,
        response_tokens=response_tokens,
        up_to=up_to,
        assume=assume or [],
    )
    fits = command.run(console, request, lang=display_lang(), as_json=as_json, as_markdown=as_markdown)
    raise typer.Exit(0 if fits else 1)


@app.command(epilog="Example: mingce doctor --lang en")
def doctor(lang: LangOption = None) -> None:
    """What this machine has, and whether mingce's numbers are right on it."""
    from mingce.commands import doctor as command

    if not command.run(console, lang=display_lang()):
        raise typer.Exit(2)


@app.command(epilog="Example: mingce verify runs/demo")
def verify(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the run's directory")],
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
    lang: LangOption = None,
) -> None:
    """Read every file of a run and say what is whole, damaged, or covered by no checksum. 0 whole, 1 damage."""
    from mingce.commands import verify as command

    raise typer.Exit(command.run(console, run, as_json=as_json))


@app.command(epilog="Example: mingce example --lang zh")
def example(lang: LangOption = None) -> None:
    """The worked example 请问1+1=2？ → 是的，等于2！, token by token, through the real functions."""
    from mingce.explain.worked_example import show

    show(console, display_lang())


@app.command(epilog="Example: mingce columns advantages --lang en")
def columns(
    name: Annotated[str | None, typer.Argument(help="one column, or an alias of it; all if left out")] = None,
    lang: LangOption = None,
) -> None:
    """The column table: what each number is, at which index, and how it is computed."""
    from mingce.columns import COLUMNS, column

    chinese = display_lang() == "zh"
    if name is None:
        table = Table("column", "symbol", "aligned", "formula")
        for known in COLUMNS.values():
            table.add_row(known.name, known.symbol, known.alignment, known.formula_zh if chinese else known.formula)
        console.print(table)
        return
    known = column(name)
    formula = known.formula_zh if chinese else known.formula
    console.print(
        f"[bold]{known.name}[/]  {known.symbol}  ({known.alignment}, {known.dtype})\n{formula}", highlight=False
    )
    if known.inputs:
        console.print(f"← {', '.join(known.inputs)}   [dim]{known.source}[/]", highlight=False)
    sentence, paragraph = (known.zh, known.long_zh) if chinese else (known.en, known.long_en)
    console.print(f"\n{sentence}\n\n{paragraph}", highlight=False)


@app.command(epilog='Example: mingce credit --rewards "0, 0, 1" --values "0.3, 0.4, 0.6" --lam 0.95')
def credit(
    rewards: Annotated[str, typer.Option(help="one number a token, separated by commas")],
    values: Annotated[str, typer.Option(help="the critic's value before each token")],
    gamma: Annotated[float, typer.Option(help="discount γ, 0 to 1")] = 1.0,
    lam: Annotated[float, typer.Option(help="λ of GAE, 0 to 1")] = 0.95,
    after: Annotated[float, typer.Option(help="value after the last token: 0 if the response ended")] = 0.0,
    lang: LangOption = None,
) -> None:
    """TD errors, advantages and returns of a row of your own, with the numbers put into the formulae."""
    from mingce.algorithms import reference
    from mingce.base.numbers import number
    from mingce.commands.typed import numbers
    from mingce.explain.account_table import account_table

    r, v = numbers("rewards", rewards), numbers("values", values)
    if len(r) != len(v):
        raise SettingError(f"--rewards has {len(r)} numbers and --values {len(v)}; give one of each a token.")
    for name, value in (("gamma", gamma), ("lam", lam)):
        if not 0 <= value <= 1:
            raise SettingError(f"--{name} must lie between 0 and 1, but is {value}.")
    (after,) = numbers("after", str(after))
    account = reference.gae([r], [v], [[1] * len(r)], gamma, lam, [after])
    a, d = account.advantages[0], account.deltas[0]
    shown = {"rewards": r, "values": v, "deltas": d, "advantages": a, "returns": account.returns[0]}
    console.print(account_table([f"y_{t}" for t in range(len(r))], shown))
    for t in reversed(range(len(r))):
        following_v, following_a = (v[t + 1], a[t + 1]) if t + 1 < len(r) else (after, 0.0)
        console.print(
            f"δ_{t} = {number(r[t])} + {number(gamma)}·{number(following_v)} − {number(v[t])} = {number(d[t])}    "
            f"A_{t} = {number(d[t])} + {number(gamma * lam)}·{number(following_a)} = {number(a[t])}    "
            f"R_{t} = {number(a[t])} + {number(v[t])} = {number(account.returns[0][t])}",
            highlight=False,
        )


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
        _say("aborted.")
        sys.exit(1)
    except (MingceError, OSError, MemoryError, RecursionError, UnicodeError) as error:
        if "--debug" in sys.argv:
            raise
        _say(str(error) if isinstance(error, MingceError) else _of_the_machine(error))
        sys.exit(getattr(error, "exit_code", 2))


_Misuse: Any = typer.BadParameter.__mro__[2]
"""What typer raises for a command line that it cannot read; its base class has no public name."""


def _say(sentence: str) -> None:
    sentence = sentence if len(sentence) <= LONGEST_SENTENCE else f"{sentence[: LONGEST_SENTENCE - 1]}…"
    make_console(stderr=True).print(f"[bold red]mingce:[/] {escape(sentence)}", highlight=False, soft_wrap=True)


def _of_the_machine(error: OSError | MemoryError | RecursionError | UnicodeError) -> str:
    """What the machine refused, in one sentence."""
    if isinstance(error, OSError):
        where = "" if error.filename is None else f" {error.filename}"
        return f"the system refused{where}: {error.strerror or error}; --debug shows where."
    if isinstance(error, UnicodeError):
        return "one of the words given holds characters that cannot be written; --debug shows where."
    what = "the memory does not suffice" if isinstance(error, MemoryError) else "something is nested too deeply"
    return f"{what}; --debug shows where."


if __name__ == "__main__":
    main()
