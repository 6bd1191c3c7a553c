"""What is said about one token's account: every formula, the same with its numbers, and what it means.

One source for the page (/api/texts) and the terminal. Formulas and numbers are here and in `mingce.specs`, the words in
mingce/texts/account.zh.md and account.en.md. Three levels: for a twelve-year-old, for an engineer, with proof.
`{name}` stands for a number or text of this token; formulas in prose stand between backticks. A section is shown when
every name in `needs` has a value and none in `lacks` has one. Some sections end with a sentence for the case at hand,
which may have a form of its own for a level (`flat_child`):

    sign of a number                     positive | negative | zero (below 0.0005)
    the same of δ and credit             flat where the critic says one number everywhere: the sign tells nothing
    ratio, against 1                     up | down | same (within 0.0005)
    policy, value: what the clip did     free | clipped | dual
    end: what follows the token          inside | ended | bootstrapped
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from mingce.base import texts
from mingce.base.lang import LANGS
from mingce.specs import ESTIMATORS, POLICY_LOSSES, Estimator, PolicyLoss

LEVELS = ("child", "engineer", "proof")
FLAT = "flat"
"""The case of a critic that says one number everywhere."""
Pair = tuple[str, str]  # (中文, English)
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_ALWAYS = ("t", "token", "chosen_left")  # every chosen token has them


@dataclass(frozen=True, eq=False)
class Section:
    """One line of the account. `words` are for LEVELS in order; `case_of` names what chooses among `cases`."""

    id: str
    title: Pair
    formula: str
    numbers: str
    words: tuple[Pair, Pair, Pair]
    needs: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    estimators: tuple[str, ...] | None = None
    losses: tuple[str, ...] | None = None
    case_of: str | None = None
    cases: dict[str, Pair] = field(default_factory=dict)


def case_text(cases: Mapping[str, Pair], case: str | None, level: str) -> Pair | None:
    """The sentence for a case, at a level that has one of its own that one."""
    return cases.get(f"{case}_{level}", cases.get(case or ""))


@cache
def names_in(section: Section) -> frozenset[str]:
    """Every name that its formula and words want a value for."""
    texts = [section.numbers, *(text for pair in (*section.words, *section.cases.values()) for text in pair)]
    return frozenset(_PLACEHOLDER.findall("".join(texts)))


def written(key: str, formula: str, numbers: str, file: str = "account", **rules: Any) -> Section:
    """The section whose title, words and cases stand under `key` in mingce/texts/<file>.<lang>.md."""
    child, engineer, proof = (texts.pair(file, f"{key}.{level}") for level in LEVELS)
    cases = {name: pair for name, pair in texts.parts(file, key).items() if name not in LEVELS}
    title, kind = texts.pair(file, key), key.partition("/")[0]
    return Section(kind, title, formula, numbers, (child, engineer, proof), **{"cases": cases} | rules)


def _of_specs(kind: str, specs: Iterable[Estimator] | Iterable[PolicyLoss]) -> Iterator[Section]:
    """The sections of estimators or policy losses, those with words first; a kind may have words together."""
    by_key: dict[str, list[Estimator | PolicyLoss]] = {}
    for spec in specs:
        if spec.twin is None:  # the person's own, which nothing here can recompute
            continue
        keys = f"{kind}/{spec.name}", f"{kind}/{getattr(spec, 'kind', 'spec')}", f"{kind}/spec"
        by_key.setdefault(next(key for key in keys if key in texts.texts("account", "zh")), []).append(spec)
    without_words = by_key.pop(f"{kind}/spec", [])
    for key, alike in by_key.items():
        yield _of_spec(kind, key, alike)
    for spec in without_words:
        yield _of_spec(kind, f"{kind}/spec", [spec])


def _of_spec(kind: str, key: str, alike: Sequence[Estimator | PolicyLoss]) -> Section:
    """The first one's formula and numbers; where the words name no estimator or loss, its meaning is put into them."""
    spec, names = alike[0], tuple(one.name for one in alike)
    credit = isinstance(spec, Estimator)
    section = written(
        key, spec.formula, spec.numbers, estimators=names if credit else None, losses=None if credit else names
    )
    meanings = (spec.zh, spec.zh), (spec.en, spec.en[:1].upper() + spec.en[1:])

    def put(pair: Pair) -> Pair:
        zh, en = (
            text.replace("{meaning}", meaning).replace("{sentence}", sentence)
            for text, (meaning, sentence) in zip(pair, meanings, strict=True)
        )
        return zh, en

    child, engineer, proof = (put(pair) for pair in section.words)
    named = _PLACEHOLDER.findall("".join((spec.numbers, *child, *engineer, *proof)))
    cases = texts.parts("account", kind) | section.cases
    if not (isinstance(spec, Estimator) and spec.needs_critic):
        cases = {name: pair for name, pair in cases.items() if not name.startswith(FLAT)}
    return replace(
        section, title=put(section.title), words=(child, engineer, proof), cases=cases, case_of=kind if cases else None,
        needs=tuple(name for name in dict.fromkeys(named) if name not in _ALWAYS),
    )  # fmt: skip


_STATE = "s_t = (x, y_0 … y_{t−1}),  a_t = y_t", "s_{t} = “…{state_end}”,  a_{t} = “{token}”"
SECTIONS: tuple[Section, ...] = (
    written("not_chosen", "m_t = 0", "m_{t} = 0"),
    written("state", *_STATE, needs=("value",)),
    written("state/without_critic", *_STATE, lacks=("value",)),
    written(
        "kl",
        "k_t = k(log π_old(a_t) − log π_ref(a_t))",
        "k_{t} = {kl_estimator}({old_log_prob} − {ref_log_prob}) = {kl}",
        needs=("kl", "old_log_prob", "ref_log_prob"),
        case_of="kl",
    ),
    written(
        "reward",
        "r_t = score_t − β·k_t",
        "r_{t} = {score} − {beta}·{kl} = {reward}",
        needs=("reward", "score", "kl", "beta"),
    ),
    written(
        "reward/without_kl", "r_t = score_t", "r_{t} = {score} = {reward}", needs=("reward", "score"), lacks=("kl",)
    ),
    written(
        "delta",
        "δ_t = r_t + γ·V(s_{t+1}) − V(s_t)",
        "δ_{t} = {reward} + {gamma}·{next_value} − {value} = {delta}",
        needs=("delta", "reward", "value", "next_value", "gamma"),
        case_of="delta",
    ),
    written("end", "V(s_{t+1})", "V(s_({t}+1)) = {next_value}", needs=("delta", "next_value"), case_of="end"),
    *_of_specs("advantage", ESTIMATORS.values()),
    written(
        "return",
        "R_t = A_t + V(s_t)",
        "R_{t} = {advantage} + {value} = {return}",
        needs=("return", "advantage", "value"),
        lacks=("by_turns",),
    ),
    written(
        "return/turns",
        "R_t = A_k + V_k",
        "R_{t} = {advantage} + {turn_value} = {return}",
        needs=("return", "advantage", "turn_value", "by_turns"),
    ),
    written(
        "whitening",
        "Â_t = (A_t − μ)/√(σ² + 10⁻⁸)",
        "Â_{t} = ({advantage} − {mean})/{std} = {whitened}",
        needs=("whitened", "advantage", "mean", "std", "count"),
        case_of="whitened",
    ),
    written(
        "ratio",
        "ρ_t = exp(log π(a_t) − log π_old(a_t))",
        "ρ_{t} = exp({new_log_prob} − {old_log_prob}) = {ratio}",
        needs=("ratio", "new_log_prob", "old_log_prob"),
        case_of="ratio",
    ),
    *_of_specs("policy", POLICY_LOSSES.values()),
    written(
        "value_loss",
        "L^V_t = ½·max((V'(s_t) − R_t)², (clip(V'(s_t), V(s_t) ± ε_V) − R_t)²)",
        "L^V_{t} = ½·max(({new_value} − {return})², ({near_value} − {return})²) = {value_loss}",
        needs=("value_loss", "new_value", "return", "value", "value_clip"),
        case_of="value",
    ),
    written(
        "value_loss/without_clip",
        "L^V_t = ½·(V'(s_t) − R_t)²",
        "L^V_{t} = ½·({new_value} − {return})² = {value_loss}",
        needs=("value_loss", "new_value", "return"),
        lacks=("value_clip",),
    ),
)


def own_section(section_id: str, name: str) -> Section:
    """The heading of a person's own estimator or policy loss, whose numbers are shown as they are recorded."""
    spec = ESTIMATORS.get(name) if section_id == "advantage" else POLICY_LOSSES.get(name)
    symbol = "A_t" if section_id == "advantage" else "L^π_t"
    zh, en = (texts.sentence(f"page.own_{section_id}", lang, name=name) for lang in LANGS)
    return Section(section_id, (zh, en), spec.formula if spec else symbol, "", (("", ""),) * 3)
