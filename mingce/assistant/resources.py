"""What a client may read beside the tools, as Markdown in both languages: columns, metrics, settings, topics.

`mingce://columns/en`, `mingce://metrics/zh`, `mingce://settings/en`, `mingce://topics/gae_variance/zh`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mingce.base.errors import DataError
from mingce.base.lang import LANGS
from mingce.base.texts import named, sentence, texts
from mingce.columns import COLUMNS
from mingce.explain import example
from mingce.explain.account_texts import LEVELS
from mingce.explain.answer import topic_answer
from mingce.explain.answer_view import markdown
from mingce.explain.topics import TOPICS

SCHEME = "mingce://"
TOPIC_TEMPLATE = f"{SCHEME}topics/{{topic}}/{{lang}}"


@dataclass(frozen=True)
class Resource:
    """A page: its address, title and meaning, and the function that writes it."""

    uri: str
    title: str
    description: str
    read: Callable[[], str]


def resources() -> list[Resource]:
    """All of them, the tables first."""
    pages = {"columns": columns_page, "metrics": metrics_page, "settings": settings_page}
    found = []
    for lang in LANGS:
        meanings = named(texts("assistant", lang)["resources"])
        for name, page in pages.items():
            read = _bound(page, lang)
            found.append(Resource(f"{SCHEME}{name}/{lang}", f"{name} ({lang})", meanings[name], read))
    for lang in LANGS:
        meaning = named(texts("assistant", lang)["resources"])["topic"]
        for topic in TOPICS.values():
            title = topic.title[LANGS.index(lang)]
            read = _bound(topic_page, topic.id, lang)
            found.append(Resource(f"{SCHEME}topics/{topic.id}/{lang}", title, meaning, read))
    return found


def _bound(page: Callable[..., str], *values: str) -> Callable[[], str]:
    return lambda: page(*values)


def read_resource(uri: str) -> str:
    """The page at an address; an address that does not exist is an error."""
    for resource in resources():
        if resource.uri == uri:
            return resource.read()
    raise DataError(sentence("assistant.no_resource", uri=uri[:200]))


def columns_page(lang: str) -> str:
    """The column table."""
    rows = (
        (f"`{c.name}`", f"`{c.symbol}`", c.alignment, f"`{c.formula_zh if lang == 'zh' else c.formula}`", c.zh, c.en)
        for c in COLUMNS.values()
    )
    picked = ((*row[:4], row[4] if lang == "zh" else row[5]) for row in rows)
    return _table(("column", "symbol", "alignment", "formula", "meaning"), picked)


def metrics_page(lang: str) -> str:
    """The metrics that a run logs, computed and measured."""
    from mingce.metrics import MEASURED, METRICS, measured_meaning

    computed = (
        (f"`{m.name}`", ", ".join(m.columns), m.reduction_zh if lang == "zh" else m.reduction, getattr(m, lang))
        for m in METRICS
    )
    measured = ((f"`{name}`", "", "", measured_meaning(name, lang)) for name in MEASURED)
    return _table(("metric", "columns", "over", "meaning"), (*computed, *measured))


def settings_page(lang: str) -> str:
    """The settings of a run with their defaults."""
    from mingce.config.table import describe, settings

    rows = ((f"`{key}`", f"`{default}`", describe(key, lang)) for key, _, default in settings())
    return _table(("setting", "default", "meaning"), rows)


def topic_page(topic_id: str, lang: str) -> str:
    """A topic at every level, with the worked example's numbers."""
    topic, about = TOPICS[topic_id], example.worked()
    related = [TOPICS[other] for other in topic.related]
    return "\n\n---\n\n".join(markdown(topic_answer(topic, about, None, level, lang, related)) for level in LEVELS)


def _table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in (headings, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(headings), *lines[1:]]) + "\n"
