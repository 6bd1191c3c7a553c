"""The prose in mingce/texts: every text in both languages, with the same placeholders, and each of them is computed."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest
from answer_numbers import random_rollout

import mingce.audit
from mingce.audit.audit import checks
from mingce.audit.catalogue import CLASSES
from mingce.audit.finding import FAULTS
from mingce.base.lang import LANGS
from mingce.base.texts import listed, named, parsed, sentence, sentences, texts
from mingce.explain import example
from mingce.explain.account import token_values
from mingce.explain.account_texts import LEVELS, SECTIONS, Section
from mingce.explain.topic import PARTS, Phrase, Topic, values_of
from mingce.explain.topics import TOPICS
from mingce.explain.walk_texts import SCORES, SHORT, VALUES

PACKAGE = Path(mingce.audit.__file__).parent.parent
FOLDER = PACKAGE / "texts"
ALL_NAMES = sorted({str(file.relative_to(FOLDER)).removesuffix(".md")[:-3] for file in FOLDER.rglob("*.md")})
NAMES = [name for name in ALL_NAMES if not name.startswith("sentences/")]
SENTENCES = [name.removeprefix("sentences/") for name in ALL_NAMES if name.startswith("sentences/")]
PLACEHOLDER = re.compile(r"\{([a-z_]+?)(?:_zh|_en)?(?::[^}]*)?\}")  # the audit's may have a language and a format
CHINESE = re.compile("[\u4e00-\u9fff]")
LISTS = (
    "shows", "asked", "phrases", "grid", "labels", "settings", "checks", "classes", "metrics", "measured", "reductions",
    "tools", "arguments", "resources", "prompt_titles", "prompt_arguments", "line_what", "line_why", "line_bugs",
    "line_notes", "formulas", "symbols", "generic", "verl", "trl", "trl_grpo", "openrlhf", "slime", "skyrl",
    "prime_rl", "nemo_rl", "mingce",
)  # fmt: skip
PLAIN = [
    "account", "assistant", "audit", "columns", "facts", "metrics", "misconceptions", "notions", "polarity",
    "propositions", "quantities", "recording", "reports", "requests", "settings", "snippets", "thesaurus", "tutor",
    "walk",
]  # fmt: skip
TOPIC_KEYS = ["", "shows", "asked", *PARTS, *LEVELS, "phrases", "grid"]


def placeholders(text: str) -> set[str]:
    return set(PLACEHOLDER.findall(text))


def test_every_file_has_its_twin_and_belongs_to_something() -> None:
    files = {str(file.relative_to(FOLDER)) for file in FOLDER.rglob("*") if file.suffix not in (".py", ".pyc", "")}
    assert files == {f"{name}.{lang}.md" for name in ALL_NAMES for lang in LANGS}
    pointed = [f"points/{name}" for name, topic in TOPICS.items() if topic.points]
    assert sorted([*PLAIN, *(f"topics/{topic}" for topic in TOPICS), *pointed]) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_both_languages_have_the_same_texts_and_placeholders(name: str) -> None:
    zh, en = ({key: text for key, text in texts(name, lang).items() if not _only_chinese(key)} for lang in LANGS)
    assert list(zh) == list(en)
    for key in zh:
        if key in ("", "asked"):
            continue
        assert placeholders(zh[key]) == placeholders(en[key]), key
        assert not CHINESE.search(en[key]), key
        if key in LISTS:
            entries = named(zh[key]), named(en[key])
            assert list(entries[0]) == list(entries[1]), key
            assert all(placeholders(entries[0][one]) == placeholders(entries[1][one]) for one in entries[0]), key


@pytest.mark.parametrize("file", SENTENCES)
def test_sentences_are_the_same_in_both_languages_and_each_is_said_somewhere(file: str) -> None:
    zh, en = (sentences(file, lang) for lang in LANGS)
    assert list(zh) == list(en)
    for name in zh:
        assert placeholders(zh[name]) == placeholders(en[name]), name
        assert zh[name], name
        assert en[name], name
        assert not CHINESE.search(en[name]), name
    code = "".join(
        path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py") if "node_modules" not in path.parts
    )
    if f'sentences("{file}", ' not in code and f'f"{file}.' not in code:  # names that are put together
        assert not [name for name in zh if f'"{file}.{name}"' not in code]


def test_every_sentence_that_code_names_exists() -> None:
    for path in PACKAGE.rglob("*.py"):
        if "node_modules" in path.parts:
            continue
        for key in re.findall(r'\bsentence\(\s*"([\w.]+)"', path.read_text(encoding="utf-8")):
            file, _, name = key.partition(".")
            assert name in sentences(file, "en"), f"{path.name}: {key}"


def test_a_sentence_has_its_values_put_in() -> None:
    assert sentence("training.no_checkpoint", "en") == "no checkpoint yet; starting from the beginning"


def _only_chinese(key: str) -> bool:
    """The formulas of the columns: in English they stand in the table itself."""
    return key.endswith(".formula")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lang", LANGS)
def test_a_file_is_well_formed(name: str, lang: str) -> None:
    markdown = (FOLDER / f"{name}.{lang}.md").read_text(encoding="utf-8")
    headings = re.findall("^#.*$", markdown, re.MULTILINE)
    assert headings[0].startswith("# ")
    assert all(re.fullmatch(r"#{2,3} [a-z_0-9/-]+", heading) for heading in headings[1:])
    assert not re.search(r"[ \t]$", markdown, re.MULTILINE)
    for key, text in texts(name, lang).items():
        has_parts = any(other.startswith(f"{key}.") for other in texts(name, lang))
        assert text or has_parts, key
        if key in LISTS:
            assert all(line.startswith("- ") for line in text.splitlines())
            if key != "asked":
                assert len(named(text)) == len(listed(text))
                assert all(named(text).values())


def test_a_heading_that_stands_twice_is_an_error() -> None:
    assert parsed("# t\n\n## a\n\nx\n\n### b\n\n    y\n") == {"": "# t", "a": "x", "a.b": "    y"}
    with pytest.raises(ValueError, match=r"'a\.b' stands twice"):
        parsed("## a\n### b\nx\n### b\ny\n")


# ── topics ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("topic", TOPICS.values(), ids=TOPICS.keys())
def test_a_topics_file_has_its_parts_and_no_others(topic: Topic) -> None:
    keys = list(texts(f"topics/{topic.id}", "zh"))
    assert keys == [key for key in TOPIC_KEYS if key in keys]
    assert set(keys) >= {"", "shows", "asked", *LEVELS}
    shows, in_english = (named(texts(f"topics/{topic.id}", lang)["shows"]) for lang in LANGS)
    assert shows == in_english
    assert set(shows) <= {"needs", "formula", "each", "table", "code", "related"}
    used = set() if topic.grid is None else set(topic.grid(example.worked(), 0).headings)
    assert set(topic.headings("zh")) <= used


@pytest.mark.parametrize("topic", TOPICS.values(), ids=TOPICS.keys())
def test_what_a_topic_names_is_computed(topic: Topic) -> None:
    """Phrases included: those chosen for some rollout, with what they name in turn."""
    own = set(named(texts(f"topics/{topic.id}", "zh").get("phrases", "")))
    for rollout in (example.worked(), *(random_rollout(seed) for seed in range(4))):
        values = values_of(topic, rollout, 0)
        said = [text for key in (*LEVELS, *topic.parts) for text in topic.said(key)]
        for text in (*said, topic.each, *topic.headings("zh").values()):
            assert placeholders(text) <= set(values)
        for phrase in (value for value in values.values() if isinstance(value, Phrase) and value.name):
            phrase_text = topic.phrases("zh")[phrase.name]
            assert all(values.get(name) is not None for name in placeholders(phrase_text)), phrase_text
        asked = {name.partition(".")[0] for name in own}
        assert asked <= {name for name, value in values.items() if isinstance(value, Phrase)}
        assert asked <= placeholders("".join(said[::2]))


# ── the account ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_text_of_account_and_walk_is_used() -> None:
    def said(section: Section) -> set[str]:
        return {text for pair in (section.title, *section.words, *section.cases.values()) for text in pair}

    used = {text for section in (*SECTIONS, SCORES, VALUES) for text in said(section)}
    used |= {text for _, cases in SHORT.values() for pair in cases.values() for text in pair}
    for name in ("account", "walk"):
        for lang in LANGS:
            unused = {key for key, text in texts(name, lang).items() if text and text not in used}
            assert {key for key in unused if "/spec" not in key} <= {"", "labels"}


def test_what_the_account_names_is_computed() -> None:
    known = set(token_values(example.worked(), 0)[0])
    own = {"own", "share", "group_mean", "group_std", "group_size", "others_mean", "baseline", "near_value"}
    for section in (*SECTIONS, SCORES, VALUES):
        for zh, _ in (*section.words, *section.cases.values()):
            assert placeholders(zh) <= known | own, section.id


# ── the audit ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_text_of_the_audit_is_a_faults_a_checks_or_a_classs() -> None:
    for family in pkgutil.iter_modules(mingce.audit.__path__):
        importlib.import_module(f"mingce.audit.{family.name}")
    for lang in LANGS:
        known = texts("audit", lang)
        assert {key for key in known if "." not in key} == {"", "checks", "classes", *FAULTS}
        assert {key.partition(".")[2] for key in known} <= {"", "cause", "change"}
        assert set(named(known["checks"])) == {check.name for check in checks()}
        assert [int(number) for number in named(known["classes"])] == list(CLASSES)


# ── when they are read ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("words", "read"), [(["--help"], []), (["columns", "kl", "--lang", "zh"], ["columns.zh"])])
def test_a_command_reads_only_the_texts_it_says(words: list[str], read: list[str]) -> None:
    code = (
        "import sys, mingce.cli, mingce.base.texts\n"
        "opened = []\n"
        "sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == 'open' else None)\n"
        f"sys.argv = ['mingce', *{words!r}]\n"
        "try:\n    mingce.cli.main()\nexcept SystemExit:\n    pass\n"
        "print('READ', [one for one in opened if one.endswith('.md')], 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8")
    last = done.stdout.splitlines()[-1]
    assert last == f"READ {[str(FOLDER / f'{name}.md') for name in read]} False", done.stderr
