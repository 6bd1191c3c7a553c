"""`mingce explain`: a rollout's account walked through stage by stage, with its own numbers in every formula.

What it is about: a prompt and a response scored by models, a rollout of a run or a dump, numbers typed in, or, with
nothing given, the worked example. torch is loaded for a scored pair only; the worked example's own pair, and one that
the embedded tokenizer cannot write, are shown with the example's numbers, and the first note says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from mingce.base.errors import RunError, SettingError, UnknownNameError
from mingce.base.paths import expanded
from mingce.base.terminal import make_console, write
from mingce.base.texts import sentence
from mingce.commands.user_input import numbers as numbers_of
from mingce.explain import example
from mingce.explain.account_texts import LEVELS
from mingce.explain.pair_text import EMBEDDED, embedded_lacks
from mingce.explain.walk import Walk, telling_slots, walk
from mingce.explain.walk_texts import label
from mingce.progress.tokens import visible
from mingce.record.rollout import Rollout

FORMATS = ("terminal", "markdown", "json")
PICTURES = (".png", ".svg", ".pdf")
COLUMNS = (
    "rewards", "values", "scores", "kl", "old_log_probs", "ref_log_probs", "new_log_probs", "new_values", "advantages",
)  # fmt: skip
"""What can be typed in, one number a token; the option of `old_log_probs` is --old-log-probs."""
MOST_SIGNS = 12
SETTINGS = ("gamma", "lam", "beta", "estimator", "n", "k")


def explain(
    console: Console,
    words: Sequence[str] = (),
    *,
    numbers: Mapping[str, str | None] | None = None,
    settings: Mapping[str, Any] | None = None,
    tokens: str | None = None,
    after: float | None = None,
    step: int | None = None,
    rollout: int | None = None,
    token: int | None = None,
    run: str | None = None,
    score: float | None = None,
    mapping: Path | None = None,
    level: str = "engineer",
    lang: str = "zh",
    form: str | None = None,
    out: Path | None = None,
    plot: Path | None = None,
    plot_lambda: Path | None = None,
) -> None:
    """Finds the rollout that is meant, walks it, and prints or writes the walk and its pictures.

    `words`: nothing, a run or dump, or a prompt and a response. `numbers`: COLUMNS as a person typed them.
    `settings`: SETTINGS that were given; over a recorded rollout they answer "what if".
    """
    form = _form(form, out)
    for name, known, kind in ((level, LEVELS, "level"), (form, FORMATS, "format"), (lang, ("zh", "en"), "language")):
        if name not in known:
            raise UnknownNameError(kind, name, known)
    for place, option in ((plot, "--plot"), (plot_lambda, "--plot-lambda")):
        if place is not None and place.suffix.lower() not in PICTURES:
            raise SettingError(f"{option} {place} must end in {', '.join(PICTURES)}.")
    given = {name: text for name, text in (numbers or {}).items() if text is not None}
    chosen = {name: value for name, value in (settings or {}).items() if value is not None}
    about, notes = _found(
        words, given, chosen, tokens=tokens, after=after, step=step, row=rollout, run=run, score=score,
        mapping=mapping, lang=lang,
    )  # fmt: skip
    if token is not None and not 0 <= token < len(about.tokens):
        count = len(about.tokens)
        raise SettingError(f"--token {token} is not there: the response has {count} tokens, 0 to {count - 1}.")
    _write(console, _walk(about, level, lang, form, token, notes), form, out)
    _draw(about, plot, plot_lambda, lang)


def _form(form: str | None, out: Path | None) -> str:
    """The format asked for, or the one that a file's name tells."""
    if form == "terminal" and out is not None:
        raise SettingError("--out writes Markdown or JSON; leave --format terminal out.")
    if form is None and out is not None:
        return "json" if out.suffix == ".json" else "markdown"
    return form or "terminal"


# ── the rollout that is meant ────────────────────────────────────────────────────────────────────────────────────────


def _found(
    words: Sequence[str],
    given: Mapping[str, str],
    settings: Mapping[str, Any],
    *,
    tokens: str | None,
    after: float | None,
    step: int | None,
    row: int | None,
    run: str | None,
    score: float | None,
    mapping: Path | None,
    lang: str,
) -> tuple[Rollout, list[str]]:
    if len(words) > 2:
        raise SettingError("give a run, or a prompt and a response; put a text with spaces between quotation marks.")
    typed = given or tokens is not None or after is not None
    if words and typed:
        raise SettingError("numbers typed in are an example of their own; leave out the run or the pair.")
    if len(words) < 2 and (run is not None or score is not None):
        raise SettingError("--run and --score go with a prompt and a response.")
    if len(words) != 1 and (step is not None or row is not None) and not (run is not None and row is None):
        raise SettingError("--step and --rollout choose from a run or a dump; give its path first.")
    if len(words) == 2:
        return _pair(words[0], words[1], settings, run=run, step=step, score=score, lang=lang)
    if words:
        return _recorded(words[0], settings, step, row, mapping, lang)
    if typed:
        return _typed(given, settings, tokens, after or 0.0, lang)
    about = example.worked()
    return (example.changed(about, **settings) if settings else about), []


def _pair(
    prompt: str, response: str, settings: Mapping[str, Any], *, run: str | None, step: int | None, score: float | None,
    lang: str,
) -> tuple[Rollout, list[str]]:  # fmt: skip
    if not prompt or not response:
        raise SettingError("prompt and response must have at least one character each.")
    if score is not None and not math.isfinite(score):
        raise SettingError(f"--score must be a finite number, but is {score}.")
    if run is None and score is None and (shown := _without_model(prompt, response, settings, lang)) is not None:
        return shown
    from mingce.record.targets import find_run

    where = run or EMBEDDED
    find_run(where, step)  # reports a wrong path before torch is loaded
    keys = {"gamma": "credit.gamma", "lam": "credit.lam", "n": "credit.n", "k": "credit.k", "beta": "kl.reward_coef"}
    overrides = [f"{keys.get(name, name)}={value}" for name, value in settings.items()]
    with _waiting(sentence("tutor.loading_model", lang, where=where)):
        from mingce.explain.scored import scored

        about, notes = scored(prompt, response, where=where, step=step, overrides=overrides, score=score, lang=lang)
    return about, [*notes, sentence("tutor.first_update", lang), sentence("tutor.one_row", lang)]


def _without_model(
    prompt: str, response: str, settings: Mapping[str, Any], lang: str
) -> tuple[Rollout, list[str]] | None:
    """The worked example, where the pair is that example or the embedded tokenizer cannot write it; says which."""
    about = example.worked()
    if (prompt, response) == (about.prompt, about.response):
        note = sentence("tutor.built_in_pair", lang)
    elif lacks := embedded_lacks(prompt + response):
        signs = " ".join(visible(one).replace(" ", "␣") for one in lacks[:MOST_SIGNS])
        signs += " …" if len(lacks) > MOST_SIGNS else ""
        note = sentence("tutor.not_this_pair", lang, signs=signs, pair=f"{about.prompt} → {about.response}")
    else:
        return None
    return (example.changed(about, **settings) if settings else about), [note]


def _recorded(
    place: str, settings: Mapping[str, Any], step: int | None, row: int | None, mapping: Path | None, lang: str
) -> tuple[Rollout, list[str]]:
    path = expanded(place)
    if not path.exists():
        raise RunError(
            f"there is nothing at {place}; give a run's directory or a dump, or a prompt and a response of your own."
        )
    with _waiting(sentence("tutor.reading", lang, path=place)):
        about = example.recorded(path, step, row or 0, mapping)
    if not about.tokens:
        raise RunError(f"rollout {about.row} of step {about.step} has no tokens; choose another with --rollout.")
    unknown = {name: value for name, value in settings.items() if getattr(about.settings, name) is None}
    about = replace(about, settings=replace(about.settings, **unknown))
    other = {name: value for name, value in settings.items() if getattr(about.settings, name) != value}
    if not other:
        return about, []
    what = ", ".join(f"{name} = {value}" for name, value in other.items())
    return example.changed(about, **other), [sentence("tutor.as_if", lang, what=what)]


def _typed(
    given: Mapping[str, str], settings: Mapping[str, Any], tokens: str | None, after: float, lang: str
) -> tuple[Rollout, list[str]]:
    columns = {name: numbers_of(name.replace("_", "-"), text) for name, text in given.items()}
    about = example.typed(columns, tokens=tokens.split() if tokens else None, after=after, **settings)
    notes = []
    if "ratio" in about.columns and "new_log_probs" not in columns:
        notes.append(sentence("tutor.first_update", lang))
    if "whitened_advantages" in about.columns:
        notes.append(sentence("tutor.one_row", lang))
    return about, notes


# ── what comes of it ─────────────────────────────────────────────────────────────────────────────────────────────────


def _walk(about: Rollout, level: str, lang: str, form: str, token: int | None, notes: Sequence[str]) -> Walk:
    total = len(about.tokens)
    telling = telling_slots(about)
    if (form != "terminal" and token is None) or len(telling) == total:
        return walk(about, level, lang, token=token, notes=notes)
    left_out = label("left_out", lang, total=total, shown=len(telling))
    return walk(about, level, lang, token=token, slots=telling, notes=[*notes, left_out])


def _write(console: Console, found: Walk, form: str, out: Path | None) -> None:
    if form == "terminal":
        from mingce.explain.terminal import show

        show(console, found)
        return
    from mingce.explain.markdown import as_json, markdown

    text = markdown(found) if form == "markdown" else as_json(found)
    if out is None:
        write(text)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingError(f"--out {out} cannot be written: {error.strerror}.") from error
    _wrote(out, found.lang)


def _draw(about: Rollout, plot: Path | None, plot_lambda: Path | None, lang: str) -> None:
    if plot is None and plot_lambda is None:
        return
    from mingce.explain.lambda_picture import draw_lambda
    from mingce.explain.pictures import draw_account

    for place, draw in ((plot, draw_account), (plot_lambda, draw_lambda)):
        if place is not None:
            with _waiting(sentence("tutor.drawing", lang, path=place)):
                remarks = draw(about, place, lang)
            for remark in remarks:
                _tell(remark, "yellow")
            _wrote(place, lang)


@contextmanager
def _waiting(text: str) -> Iterator[None]:
    """What is under way, on stderr while it lasts; only where a person sits before it."""
    console = make_console(stderr=True)
    if console.is_terminal:
        with console.status(Text(text)):
            yield
    else:
        yield


def _wrote(path: Path, lang: str) -> None:
    _tell(sentence("tutor.written", lang, path=path))


def _tell(text: str, style: str = "") -> None:
    """On stderr, so that JSON and Markdown can be piped on."""
    make_console(stderr=True).print(Text(text, style=style), soft_wrap=True)
