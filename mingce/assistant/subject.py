"""Which rollout a tool speaks of: numbers in the call, a rollout of a run or a dump, or the example at hand."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlencode

from mingce.assistant.places import Places
from mingce.base.errors import RunError, SettingError
from mingce.base.lang import LANGS, display_lang
from mingce.base.schema import Limit
from mingce.base.texts import sentence
from mingce.explain import example
from mingce.explain.account_texts import LEVELS
from mingce.explain.code_refs import CodeRef
from mingce.record.rollout import Rollout

MOST_TOKENS = 4096
"""Of a rollout whose numbers come with the call."""
Numbers = Annotated[list[float], Limit(most=MOST_TOKENS)]
Share = Annotated[float, Limit(low=0, high=1)]
Index = Annotated[int, Limit(low=0, high=10**9)]
Where = Annotated[str, Limit(most=4096)]
Word = Annotated[str, Limit(most=100)]
Lang = Annotated[str, Limit(choices=LANGS)]
Level = Annotated[str, Limit(choices=LEVELS)]


@dataclass(frozen=True)
class Desk:
    """What the tools work on: the allowed places, a language, the example at hand and where `mingce view` listens."""

    places: Places
    lang: str = "en"
    example: Rollout | None = None
    view_url: str | None = None

    def language(self, asked: str | None) -> str:
        return asked or self.lang or display_lang()


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What an account is computed under; what is left out is the example's or the run's."""

    gamma: Share | None = None
    lam: Share | None = None
    beta: float | None = None
    estimator: Word | None = None
    n: Annotated[int, Limit(low=1, high=10**6)] | None = None
    k: Annotated[int, Limit(low=1, high=10**6)] | None = None


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Numbers of a response, one a token."""

    rewards: Numbers | None = None
    values: Numbers | None = None
    scores: Numbers | None = None
    kl: Numbers | None = None
    advantages: Numbers | None = None
    old_log_probs: Numbers | None = None
    ref_log_probs: Numbers | None = None
    new_log_probs: Numbers | None = None
    new_values: Numbers | None = None


COLUMNS, SETTINGS = (tuple(field.name for field in fields(kind)) for kind in (Columns, Settings))


@dataclass(frozen=True, kw_only=True)
class About(Settings, Columns):
    """A rollout: its numbers, or a run or dump with step and row; with none of them the example at hand."""

    after: float | None = None
    tokens: Annotated[list[Annotated[str, Limit(most=200)]], Limit(most=MOST_TOKENS)] | None = None
    prompt: Annotated[str, Limit(most=20_000)] | None = None
    run: Where | None = None
    step: Index | None = None
    rollout: Index | None = None


# ── what results say of where they come from ─────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Code:
    """A function of mingce: its dotted name, its file from the package on, the line of its def."""

    name: str
    file: str
    line: int


@dataclass(frozen=True)
class Origin:
    """Where numbers come from: `kind`, and for a recorded rollout its place in the ledger.

    `page` is the address within the page of `mingce view`; `url` the whole address where the page is known to be.
    """

    kind: Literal["numbers", "example", "recorded"]
    page: str
    url: str | None = None
    run: str | None = None
    step: int | None = None
    rollout: int | None = None
    token: int | None = None
    uid: str | None = None


@dataclass(frozen=True)
class Subject:
    """A rollout and where it comes from; `path` and `id` are those of a run or a dump."""

    rollout: Rollout
    kind: Literal["numbers", "example", "recorded"]
    path: Path | None = None
    id: str | None = None


def codes(refs: tuple[CodeRef, ...]) -> list[Code]:
    return [Code(ref.name, ref.file, ref.line) for ref in refs]


def origin_of(subject: Subject, desk: Desk, token: int | None = None) -> Origin:
    """Where a subject's numbers stand, down to the token."""
    rollout = subject.rollout
    if subject.kind != "recorded" or subject.path is None or subject.id is None:
        page = "#/playground"
        return Origin(subject.kind, page, link(desk, page), token=token)
    page = rollout_page(subject.id, rollout.step, rollout.row, token)
    return Origin(
        "recorded", page, link(desk, page), desk.places.name(subject.path), rollout.step, rollout.row, token,
        rollout.uid,
    )  # fmt: skip


def rollout_page(run: str, step: int | None, row: int, token: int | None = None) -> str:
    """`#/run/demo/step/12/rollout/3?token=4`, as mingce/view/web/src/route.ts reads it."""
    query = "" if token is None else "?" + urlencode({"token": token})
    return f"{run_page(run)}/step/{step}/rollout/{row}{query}"


def run_page(run: str) -> str:
    """`#/run/demo`."""
    return f"#/run/{quote(run, safe='')}"


def link(desk: Desk, page: str) -> str | None:
    """The whole address of a part of the page, if it is known where the page is."""
    return None if desk.view_url is None else f"{desk.view_url.rstrip('/')}/{page}"


# ── finding it ───────────────────────────────────────────────────────────────────────────────────────────────────────


def find_subject(asked: About, desk: Desk) -> Subject:
    """The rollout that a call is about, under the settings that it names."""
    columns = {name: getattr(asked, name) for name in COLUMNS if getattr(asked, name) is not None}
    settings = {name: getattr(asked, name) for name in SETTINGS if getattr(asked, name) is not None}
    if asked.run is not None:
        if columns:
            raise SettingError(sentence("assistant.both"))
        return _recorded(asked.run, asked.step, asked.rollout or 0, settings, desk)
    if asked.step is not None or asked.rollout is not None:
        raise SettingError(sentence("assistant.step_of_what"))
    if columns or asked.tokens is not None:
        about = example.typed(
            columns, tokens=asked.tokens, prompt=asked.prompt or "", after=asked.after or 0.0, **settings
        )
        return Subject(about, "numbers")
    about = desk.example or example.worked()
    if asked.after is not None:
        about = replace(about, bootstrap=asked.after)
    changed = example.changed(about, **settings) if settings or asked.after is not None else about
    return Subject(changed, "example" if desk.example is None else "numbers")


def _recorded(run: str, step: int | None, row: int, settings: dict[str, Any], desk: Desk) -> Subject:
    path = desk.places.inside(run)
    about = example.recorded(path, step, row)
    if not about.tokens or not any(about.columns["response_mask"]):
        raise RunError(sentence("assistant.no_tokens", row=about.row, step=about.step))
    unknown = {name: value for name, value in settings.items() if getattr(about.settings, name) is None}
    about = replace(about, settings=replace(about.settings, **unknown))
    other = {name: value for name, value in settings.items() if getattr(about.settings, name) != value}
    return Subject(example.changed(about, **other) if other else about, "recorded", path, open_source(path).id)


def open_source(path: Path) -> Any:
    """The run or dump at a place, with the id that the page gives it."""
    from mingce.sources.library import Library

    sources = Library([path]).sources()
    if not sources:
        raise RunError(sentence("assistant.nothing_there", path=path))
    return sources[0]


def expect_token(rollout: Rollout, token: int) -> int:
    """A token that is there and that the policy chose."""
    count = len(rollout.tokens)
    if not 0 <= token < count:
        raise SettingError(sentence("assistant.no_token", token=token, count=count, last=count - 1))
    return token
