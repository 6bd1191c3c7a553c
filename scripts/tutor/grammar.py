"""Questions made by a grammar: topics as nouns (nouns.toml) in the forms in which people ask."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

FORMS = {
    "zh": (
        "{}", "{}是什么", "{}是什么意思", "什么是{}", "为什么要{}", "{}有什么用", "{}怎么理解", "讲讲{}",
        "请问{}怎么算", "{}在代码里怎么实现", "{}有什么坑", "我不太懂{}", "{}和训练效果有什么关系", "{}设错了会怎样",
        "能不能举例说明{}", "verl 里的{}", "{}一般怎么设",
    ),
    "en": (
        "{}", "what is {}?", "what does {} mean", "why {}?", "why do we need {}", "explain {}", "how does {} work",
        "tell me about {}", "how is {} computed", "{} in code", "pitfalls of {}", "I don't understand {}", "{} in verl",
        "what happens if {} is wrong", "give an example of {}", "how should I set {}", "is {} important?",
    ),
}  # fmt: skip


def generated_questions() -> Iterator[tuple[str, str]]:
    """(question, topic)."""
    nouns = tomllib.loads((Path(__file__).parent / "nouns.toml").read_text(encoding="utf-8"))
    for lang, forms in FORMS.items():
        for topic, names in nouns[lang].items():
            for name in names:
                yield from ((form.format(name), topic) for form in forms)
