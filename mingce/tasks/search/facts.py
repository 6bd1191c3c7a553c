"""Made-up people and towns: how facts about them are worded, asked for and looked up, in Chinese and English.

    Kirona lives in Maltu.   The mayor of Maltu is Sefim.

The facts that come with the package are `corpus.zh.jsonl` and `corpus.en.jsonl` here, written once by
`scripts/make_search_model.py corpus`. Nobody can know them who has not looked them up; the embedded model was taught
with other ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

PERSON, TOWN = "person", "town"
LIVES, ANIMAL, INSTRUMENT, RIVER, MAYOR = "lives", "animal", "instrument", "river", "mayor"
RELATIONS = {PERSON: (LIVES, ANIMAL, INSTRUMENT), TOWN: (RIVER, MAYOR)}
"""What is known of each kind of subject; `lives` leads from a person to a town, and so to a question of two steps."""


@dataclass(frozen=True)
class Words:
    """How one language says all of it. Names are a beginning and an end, one list of each for every kind of name."""

    told: Mapping[str, str]
    """A fact, with {s} for the subject and {v} for the value."""
    asked: Mapping[str, str]
    """The question for a fact; of a town's facts also `two/…`, which names a person who lives there."""
    query: Mapping[str, str]
    """What to search for."""
    thought: str
    sure: str
    begins: tuple[str, ...]
    ends: Mapping[str, tuple[str, ...]]
    animals: tuple[str, ...]
    instruments: tuple[str, ...]

    def names(self, kind: str) -> list[str]:
        """Every name of that kind."""
        return [begin + end for begin, end in product(self.begins, self.ends[kind])]


_BEGINS = "Ka Be Di Fo Gu Ha Ji Lo Mu Na Pe Ri So Tu Va We Yo Za Bri Cla Dro Fre Gri Kno Pla Sti Tra Ulm Orv Esk"
_ENDS = {
    PERSON: "rona mirk selt dana vik lon tessa gard nim bela fost wen rik sola harn quin mora jess lund pia",
    TOWN: "ford wick burg stead holm mouth dale ness gate bury combe leigh thorpe haven cliff moor",
    RIVER: "sk lm rth nd ve xe pp gg zz tch",
}
_ANIMALS = "dog cat horse cow sheep pig hen duck goose hare turtle fish snake hawk monkey deer"
_INSTRUMENTS = "harp flute drum horn fiddle lute bell pipe cello viol gong oboe"
_BEGINS_ZH = "安柏程丹风谷鹤江康蓝墨宁鹏秋若松唐温夏燕云泽竹晨冬恒锦凌沐青"
_ENDS_ZH = {
    PERSON: "飞兰峰雪明雨强芳杰琴伟霞涛莲刚玉超梅军珍",
    TOWN: "镇乡堡寨桥坡湾店岭坪庄屯集驿渡洲",
    RIVER: "河江溪川泾涧沟浦泊渠",
}

WORDS = {
    "zh": Words(
        told={
            LIVES: "{s}住在{v}。", ANIMAL: "{s}养的动物是{v}。", INSTRUMENT: "{s}弹的乐器是{v}。",
            RIVER: "{s}的河叫{v}。", MAYOR: "{s}的长官是{v}。",
        },
        asked={
            LIVES: "{s}住在哪里？", ANIMAL: "{s}养的动物是什么？", INSTRUMENT: "{s}弹的乐器是什么？",
            RIVER: "{s}的河叫什么？", MAYOR: "{s}的长官是谁？",
            f"two/{RIVER}": "{s}所住之处的河叫什么？", f"two/{MAYOR}": "{s}所住之处的长官是谁？",
        },
        query={
            LIVES: "{s}住在", ANIMAL: "{s}养的动物", INSTRUMENT: "{s}弹的乐器", RIVER: "{s}的河", MAYOR: "{s}的长官",
        },
        thought="要查：",
        sure="我知道",
        begins=tuple(_BEGINS_ZH),
        ends={kind: tuple(ends) for kind, ends in _ENDS_ZH.items()},
        animals=tuple("狗猫马牛羊猪鸡鸭鹅兔龟鱼蛇鹰猴鹿"),
        instruments=tuple("琴筝笛箫鼓锣笙瑟铃号磬埙"),
    ),
    "en": Words(
        told={
            LIVES: "{s} lives in {v}.", ANIMAL: "{s} keeps a {v}.", INSTRUMENT: "{s} plays the {v}.",
            RIVER: "the river of {s} is the {v}.", MAYOR: "the mayor of {s} is {v}.",
        },
        asked={
            LIVES: "Where does {s} live?", ANIMAL: "Which animal does {s} keep?",
            INSTRUMENT: "What instrument does {s} play?",
            RIVER: "What is the river of {s}?", MAYOR: "Who is the mayor of {s}?",
            f"two/{RIVER}": "What is the river where {s} lives?", f"two/{MAYOR}": "Who is the mayor where {s} lives?",
        },
        query={
            LIVES: "{s} lives in", ANIMAL: "{s} keeps a", INSTRUMENT: "{s} plays the",
            RIVER: "the river of {s}", MAYOR: "the mayor of {s}",
        },
        thought="I look for: ",
        sure="I know it",
        begins=tuple(_BEGINS.split()),
        ends={kind: tuple(ends.split()) for kind, ends in _ENDS.items()},
        animals=tuple(_ANIMALS.split()),
        instruments=tuple(_INSTRUMENTS.split()),
    ),
}  # fmt: skip


class Fact(NamedTuple):
    """One thing to be known, and the document that says it."""

    subject: str
    relation: str
    value: str

    def contents(self, lang: str) -> str:
        """The document as Search-R1 has it: the title in quotes, then the text on a line of its own."""
        return f'"{self.subject}"\n{WORDS[lang].told[self.relation].format(s=self.subject, v=self.value)}'


@dataclass(frozen=True)
class Question:
    """A question, and the facts that lead to its answer, one behind the other."""

    steps: tuple[Fact, ...]

    @property
    def answer(self) -> str:
        return self.steps[-1].value

    def text(self, lang: str) -> str:
        first, last = self.steps[0], self.steps[-1]
        asked = last.relation if first is last else f"two/{last.relation}"
        return WORDS[lang].asked[asked].format(s=first.subject)

    def queries(self, lang: str) -> list[str]:
        """What to search for, one step after the other."""
        return [WORDS[lang].query[fact.relation].format(s=fact.subject) for fact in self.steps]


def invent(rng: random.Random, lang: str, people: int, towns: int, taken: frozenset[str] = frozenset()) -> list[Fact]:
    """A world of so many people and towns, with no name that is taken."""
    words = WORDS[lang]
    free = {kind: [name for name in words.names(kind) if name not in taken] for kind in words.ends}
    persons, places = rng.sample(free[PERSON], people), rng.sample(free[TOWN], towns)
    rivers = rng.sample(free[RIVER], towns)
    facts = [
        fact
        for person in persons
        for fact in (
            Fact(person, LIVES, rng.choice(places)),
            Fact(person, ANIMAL, rng.choice(words.animals)),
            Fact(person, INSTRUMENT, rng.choice(words.instruments)),
        )
    ]
    for place, river in zip(places, rivers, strict=True):
        facts += [Fact(place, RIVER, river), Fact(place, MAYOR, rng.choice(persons))]
    return facts


def questions(facts: Sequence[Fact]) -> Iterator[Question]:
    """Every question that the facts answer: one for each fact, and two for each person about the town."""
    known = {(fact.subject, fact.relation): fact for fact in facts}
    for fact in facts:
        yield Question((fact,))
        if fact.relation == LIVES:
            for relation in RELATIONS[TOWN]:
                yield Question((fact, known[fact.value, relation]))
