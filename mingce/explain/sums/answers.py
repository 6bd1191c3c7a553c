"""Which sum a question asks for, and its answer: formula, numbers put in, result."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from mingce.base.numbers import number as shown
from mingce.base.texts import sentence
from mingce.explain.answer import Answer, Table
from mingce.explain.code_refs import resolve
from mingce.explain.question.scalars import read_final_reward
from mingce.explain.sums import averages, chances, credit, formulas, rows, spread, training
from mingce.explain.sums.groups import LONGEST, group_sum
from mingce.explain.sums.lists import (
    NUMBER,
    UNNAMED,
    named_in,
    number,
    number_after,
    numbers_after,
    plain_numbers,
    read_lists,
)
from mingce.specs.estimators import remax

LARGEST, SHORT, LONGEST_TEXT = 1e9, 60, 1000
_ONCE = frozenset({"answers_each", "other_std", "clipping"})
"""What is asked of a sum once: the next question does not go on with it."""
_TURNS = frozenset({"explained", "mse", "whiten", *_ONCE})
"""Sums whose name alone asks for another of the same numbers."""
_ESTIMATE = re.compile(r"\bk[123]\b", re.IGNORECASE)
_PASSING = frozenset({"steps", "choices", "length", "group_size"})
"""Counts that are also said in passing ("one step", 一条回答): of a sum over rows they change nothing."""
_ASKED_ABOUT = ("grad_norm", "group_size", "length", "steps", "sampled", "measured", "epochs")
_LAST = re.compile(r"最后|last", re.IGNORECASE)
_ALL = re.compile(
    r"(?:全(?:部)?(?:都)?(?:是|为|得|拿)?|都(?:是|为|得))\s*(?P<zh>\d+(?:\.\d+)?)|\b(?:all|every\w*)\b[^.?]{0,24}?\b(?P<en>\d+(?:\.\d+)?)\b|"
    r"(?P<right>全对|都对|都答对|all (?:\w+ ){0,3}(?:right|correct|ones?\b))|"
    r"(?P<wrong>全错|都错|都答错|all (?:\w+ ){0,3}(?:wrong|incorrect|zeros?\b))",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Sum:
    """A sum that was worked out, which the next question may go on with: its kind and what was given."""

    topic: str
    kind: str
    lists: Mapping[str, list[float]] = field(default_factory=dict)
    counts: Mapping[str, float] = field(default_factory=dict)
    scalars: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, float] = field(default_factory=dict)
    methods: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """The sums that were asked for, by their names in texts/quantities."""

    def same_numbers(self, other: Sum | None) -> bool:
        """Whether both are worked out of the same numbers."""
        return other is not None and replace(self, names=()) == replace(other, names=())


@dataclass
class Asked:
    """What a question gives: its words, lists, single numbers, settings; and the last sum if it goes on with it."""

    text: str
    lang: str
    lists: dict[str, list[float]]
    scalars: dict[str, float]
    settings: dict[str, float]
    counts: dict[str, float]
    methods: list[str]
    names: frozenset[str]
    earlier: Sum | None = None
    code: list[str] = field(default_factory=list)

    def says(self, *names: str) -> bool:
        """Whether it names one of these sums."""
        return bool(self.names & set(names))

    def answer(self, key: str, lines: list[str], tables: tuple[Table, ...] = (), **values: object) -> Answer:
        return self.plain(self.text_of(key, **values), lines, tables)

    def text_of(self, key: str, **values: object) -> str:
        return sentence(f"tutor.{key}", self.lang, **values)

    def plain(self, text: str, lines: list[str], tables: tuple[Table, ...] = ()) -> Answer:
        code = tuple(resolve(name) for name in self.code)
        return Answer(self.lang, text, lines=tuple(lines), tables=tables, code=code)


def sum_of(
    text: str,
    lang: str,
    scalars: Mapping[str, float],
    settings: Mapping[str, float],
    earlier: Sum | None,
    spoken: str = "",
) -> tuple[Answer, Sum] | None:
    """The answer to a question that types in the numbers of a sum; None if it does not.

    A short question that gives less goes on with the last sum, or is read after `spoken`, the question before.
    """
    if len(text) > LONGEST_TEXT or "```" in text:
        return None
    text = plain_numbers(text)
    asked = Asked(
        text, lang, read_lists(text), dict(scalars), dict(settings), number_after(text, "counts"),
        named_in(text, "methods"), frozenset(named_in(text, "sums")),
    )  # fmt: skip
    if any(not math.isfinite(x) or abs(x) > LARGEST for x in chain(*asked.lists.values(), asked.counts.values())):
        return None
    found = _worked(asked)
    if found is None and earlier is not None and len(text) < SHORT and (again := _going_on(asked, earlier)) is not None:
        found = _worked(again)
    if found is None and spoken and (asked.lists or formulas.CHANCE.search(text)) and len(text) < SHORT:
        asked.methods = asked.methods or named_in(spoken, "methods")
        asked.names |= frozenset(named_in(spoken, "sums")) - {"how"}
        found = _worked(asked)
    return found


def _worked(asked: Asked) -> tuple[Answer, Sum] | None:
    """By the first kind of sum that has all it needs; that of the last question if it goes on with it."""
    for kind, (topic, work) in KINDS.items():
        if asked.earlier is not None and kind != asked.earlier.kind:
            continue
        answer = work(asked)
        if answer is not None:
            given = asked.lists, asked.counts, asked.scalars, asked.settings
            return answer, Sum(topic, kind, *given, tuple(asked.methods), tuple(asked.names))
    return None


def _going_on(asked: Asked, earlier: Sum) -> Asked | None:
    """The last sum with what a short question gives anew: another method, setting or number; None if nothing."""
    lists, counts, methods = dict(asked.lists), dict(asked.counts), list(asked.methods)
    if UNNAMED in lists and len(earlier.lists) == 1:
        lists = {next(iter(earlier.lists)): lists[UNNAMED]}
        if set(*lists.values()) < set(*earlier.lists.values()):
            return None  # some of the same numbers are spoken of
    if earlier.lists:
        counts = {name: n for name, n in counts.items() if name in earlier.counts or name not in _PASSING}
    same = _same_for_all(asked.text, len(next(iter(earlier.lists.values())))) if len(earlier.lists) == 1 else None
    if same is not None:
        lists = {next(iter(earlier.lists)): same}
    if earlier.kind == "group" and not lists and (counted := chances.counted_scores(asked)) is not None:
        lists = {next(iter(earlier.lists)): counted[0]}
    if earlier.kind == "kl" and (score := read_final_reward(asked.text)) is not None:
        asked.scalars["scores"] = score
    numbers = re.findall(NUMBER, asked.text)
    bare = not (lists or counts or asked.settings or asked.scalars) and len(numbers) == 1
    if bare and earlier.counts:
        counts[_varied(earlier)] = number(numbers[0])
    elif len(numbers) == 1 and not asked.lists and len(earlier.lists) == 1 and _LAST.search(asked.text):
        name, row = next(iter(earlier.lists.items()))
        lists = {name: [*row[:-1], number(numbers[0])]}
    kinds = (asked.names & _TURNS) - set(earlier.names) or (earlier.kind == "kl" and _ESTIMATE.search(asked.text))
    fresh = [name for name in methods if name not in earlier.methods]
    how = asked.says("how") and not lists and not asked.settings
    if not (lists or counts or asked.settings or asked.scalars or fresh or kinds or how):
        return None
    return Asked(
        asked.text, asked.lang, {**earlier.lists, **lists}, {**earlier.scalars, **asked.scalars},
        {**earlier.settings, **asked.settings}, {**earlier.counts, **counts}, methods or list(earlier.methods),
        frozenset(earlier.names) - {"how", *_ONCE} | asked.names, earlier,
    )  # fmt: skip


def _varied(earlier: Sum) -> str:
    """Which of the last sum's numbers another number stands for: the one that is asked about."""
    return next((name for name in _ASKED_ABOUT if name in earlier.counts), next(reversed(list(earlier.counts))))


def _group(asked: Asked) -> Answer | None:
    """The advantages of a group's scores."""
    methods, lists = asked.methods, asked.lists
    named_so = next((name for name in ("scores", "rewards", "advantages", UNNAMED) if name in lists), None)
    if named_so is None and not lists:
        return _group_counted(asked)
    others = set(lists) - {named_so, "lengths", UNNAMED}
    if named_so is None or others or not (methods or (asked.says("group") and named_so != "advantages")):
        return None
    scores, lengths = lists[named_so], lists.get("lengths")
    if named_so == UNNAMED and len(scores) == 2 and not asked.says("advantage"):
        return None  # two numbers of something else
    if not 2 <= len(scores) <= LONGEST or (not methods and asked.says("whiten") and named_so == "advantages"):
        return None
    sizes = [int(n) for n in lengths] if lengths and len(lengths) == len(scores) and min(lengths) >= 1 else None
    if sizes and max(sizes) > rows.LONGEST_ROW:
        return None
    return _group_of(asked, scores, sizes)


def _group_counted(asked: Asked) -> Answer | None:
    """The advantages of a group whose right and wrong answers are counted."""
    counted = chances.counted_scores(asked) if asked.methods or asked.says("group") else None
    if counted is None or not asked.says("advantage", "group", "wanted"):
        return None
    scores, note = counted
    asked.lists["scores"] = scores
    answer = _group_of(asked, scores, None)
    return replace(answer, text=f"{note}\n\n{answer.text}")


def _group_of(asked: Asked, scores: list[float], sizes: list[int] | None) -> Answer:
    each = asked.says("how") and asked.earlier is not None
    text, lines, table, code = group_sum(scores, asked.methods, sizes, asked.lang, each=each)
    return Answer(asked.lang, text, lines=tuple(lines), tables=(table,), code=tuple(map(resolve, code)))


def _remax(asked: Asked) -> Answer | None:
    """Each sampled answer's score less the greedy answer's."""
    greedy = asked.counts.get("greedy")
    if greedy is None or not asked.says(remax.__name__):
        return None
    lists = [asked.lists[name] for name in ("scores", "rewards", UNNAMED, "advantages") if name in asked.lists]
    scores = lists[0] if lists else numbers_after(asked.text, "counts").get("sampled", [])
    if not scores and "sampled" in asked.counts:
        scores = [asked.counts["sampled"]]
    if not 1 <= len(scores) <= LONGEST:
        return None
    credit = remax([[score] for score in scores], [[1]] * len(scores), [greedy] * len(scores))
    advantages = [row[0] for row in credit]
    asked.code.append("mingce.algorithms.advantage.remax")
    lines = [
        f"A_{k} = {shown(score)} − {rows.bracketed(greedy)} = {shown(advantage)}"
        for k, (score, advantage) in enumerate(zip(scores, advantages, strict=True), start=1)
    ]
    return asked.answer("sum_remax", lines, greedy=shown(greedy), rows=rows.listed(advantages))


def _same_for_all(text: str, count: int) -> list[float] | None:
    """`如果全是 1 呢`: the same score for every answer."""
    match = _ALL.search(text)
    if match is None:
        return None
    said = match["zh"] or match["en"]
    return [float(said) if said else 1.0 if match["right"] else 0.0] * count


def _kl_row(asked: Asked) -> Answer | None:
    """The KL estimates of two rows of log-probs, and the rewards they make."""
    policy = asked.lists.get("new_log_probs") or asked.lists.get("old_log_probs")
    ref = asked.lists.get("ref_log_probs")
    if policy is None or ref is None or len(policy) != len(ref) or not asked.says("kl"):
        return None
    if set(asked.lists) & {"values", "rewards", "advantages"}:
        return None
    kinds = rows.kl_rows(policy, ref)
    lines = [f"x = log π − log π_ref = {rows.listed(kinds.pop('x'))}"]
    for name, row in kinds.items():
        total = rows.clean(math.fsum(row))
        lines.append(f"{name} = {rows.listed(row)}, Σ = {shown(total)}, mean = {shown(total / len(row))}")
    asked.code.append("mingce.specs.kl.kl_penalty")
    beta, score = asked.settings.get("beta"), read_final_reward(asked.text)
    score = asked.scalars.get("scores") if score is None else score
    asked.scalars |= {} if score is None else {"scores": score}
    if beta is None and score is None:
        wanted = {name.lower() for name in _ESTIMATE.findall(asked.text)} if asked.earlier is not None else set()
        said = [line for line in lines[1:] if not wanted or line.partition(" ")[0] in wanted]
        return asked.answer("sum_kl", lines, rows="; ".join(said))
    beta, scores = rows.BETA if beta is None else beta, asked.lists.get("scores")
    if scores is None or len(scores) != len(ref):
        scores = [0.0] * (len(ref) - 1) + [0.0 if score is None else score]
    kind = next((name for name in kinds if re.search(rf"\b{name}\b", asked.text, re.IGNORECASE)), next(iter(kinds)))
    rewards = [a - beta * b for a, b in zip(scores, kinds[kind], strict=True)]
    asked.code.append("mingce.algorithms.kl.kl_rewards")
    lines += [
        f"r_{t} = {shown(a)} − {shown(beta)}·{rows.bracketed(b)} = {shown(r)}"
        for t, (a, b, r) in enumerate(zip(scores, kinds[kind], rewards, strict=True))
    ]
    lines = [*lines[:LONGEST], *rows.cost_lines(beta, kinds[kind], rewards)]
    key = "sum_kl_rewards_unscored" if score is None and not any(scores) else "sum_kl_rewards"
    return asked.answer(key, lines, kind=kind, beta=shown(beta), rows=rows.listed(rewards))


def _ratio_row(asked: Asked) -> Answer | None:
    """The ratios of two rows of log-probs, the answer's one ratio, and the clipped losses if advantages are given."""
    new, old = asked.lists.get("new_log_probs"), asked.lists.get("old_log_probs")
    rollout = asked.lists.get("rollout_log_probs")
    if not asked.lists and "rollout_log_probs" in asked.scalars:  # of a single token
        rollout = [asked.scalars["rollout_log_probs"]]
        old, new = (
            [asked.scalars[one]] if one in asked.scalars else None for one in ("old_log_probs", "new_log_probs")
        )
    typed = asked.says("sequence") or "advantages" in asked.lists  # not the range within which a ratio stays
    if set(asked.lists) <= {"log_ratios", "advantages"} and (drifts := asked.lists.get("log_ratios")):
        old, new = [0.0] * len(drifts), drifts
    elif typed and set(asked.lists) <= {"ratios", "advantages"} and min(each := asked.lists.get("ratios", [0.0])) > 0:
        old, new = [0.0] * len(each), [math.log(x) for x in each]
    if rollout is not None and old is None and new is not None:
        old, new = new, None
    if rollout is not None and old is not None and len(rollout) == len(old):
        cap = asked.counts.get("cap", rows.CAP)
        weights, lines = rows.truncated_weights(rollout, old, cap)
        asked.code.append("mingce.specs.losses.policy_ratio")
        return asked.answer("sum_tis", lines, rows=rows.listed(weights), cap=shown(cap))
    if new is None or old is None or len(new) != len(old) or set(asked.lists) & {"values", "rewards"}:
        return None
    ratios, one, drift = rows.ratios(old, new)
    asked.code.append("mingce.specs.losses.sequence_ratio")
    lines = [f"log π − log π_old = {rows.listed([b - a for a, b in zip(old, new, strict=True)])}"]
    lines += [f"ρ = {rows.listed(ratios)}", f"s = exp(mean(log π − log π_old)) = exp({shown(-drift)}) = {shown(one)}"]
    kls = dict(zip(("first", "second", "third"), map(rows.fine, rows.approx_kls(old, new)), strict=True))
    lines.append(f"approx_kl = mean(log π_old − log π) = {shown(drift)}")
    lines.append(f"½·mean((log π − log π_old)²) = {kls['second']};  mean(ρ − 1 − log ρ) = {kls['third']}")
    if asked.says("approx_kl") and not _credited(asked):
        return asked.answer("sum_approx_kl", lines, (), **kls)
    if asked.says("clipping") and asked.earlier is not None and not _credited(asked):
        return _stopped(asked, ratios)
    advantages = asked.lists.get("advantages") or [asked.scalars["advantages"]] * len(old) if _credited(asked) else None
    if advantages is not None and len(advantages) == len(old):
        eps = asked.settings.get("clip", rows.CLIP)
        bounds = 1 - asked.scalars.get("clip_low", eps), 1 + asked.scalars.get("clip_high", eps)
        losses, stopped = rows.clipped_lines(ratios, advantages, bounds)
        lines += losses
        asked.code.append("mingce.algorithms.losses.ppo_loss")
        if asked.says("clip_fraction"):
            return _fraction(asked, ratios, stopped, bounds, lines)
    return asked.answer("sum_ratio", lines, rows=rows.listed(ratios), one=shown(one), drift=shown(drift))


def _fraction(
    asked: Asked, ratios: list[float], stopped: list[int], bounds: tuple[float, float], lines: list[str]
) -> Answer:
    """The share of tokens that the clip stops, and which are only out of range."""
    none = asked.text_of("sum_none_of_them")
    outside = [t for t, x in enumerate(ratios) if not bounds[0] <= x <= bounds[1] and t not in stopped]
    which = {name: ", ".join(f"t = {t}" for t in row) or none for name, row in (("cut", stopped), ("free", outside))}
    low, high = map(shown, bounds)
    share = shown(len(stopped) / len(ratios))
    return asked.answer("sum_clip_fraction", lines, (), share=share, low=low, high=high, **which)


def _stopped(asked: Asked, ratios: list[float]) -> Answer:
    """Which of the ratios the clip stops, by the advantage's sign."""
    eps = asked.settings.get("clip", rows.CLIP)
    low, high = 1 - asked.scalars.get("clip_low", eps), 1 + asked.scalars.get("clip_high", eps)
    above, below = [x for x in ratios if x > high], [x for x in ratios if x < low]
    none = asked.text_of("sum_none_of_them")
    stopped = {name: rows.listed(row) if row else none for name, row in (("above", above), ("below", below))}
    text = asked.text_of("sum_stopped", low=shown(low), high=shown(high), **stopped)
    return asked.plain(text, [f"ρ = {rows.listed(ratios)}"])


def _credited(asked: Asked) -> bool:
    return "advantages" in asked.lists or "advantages" in asked.scalars


KINDS: dict[str, tuple[str, Callable[[Asked], Answer | None]]] = {
    remax.__name__: ("methods_compared", _remax),
    "pass_at": ("group_baseline", chances.pass_at),
    "alike": ("group_baseline", chances.alike),
    "group": ("group_baseline", _group),
    "targets": ("advantage_from_returns", credit.targets),
    "divergence": ("kl_estimators", credit.divergence),
    "whitened": ("whitening", spread.whitened),
    "explained": ("explained_variance", spread.explained),
    "kl": ("kl_estimators", _kl_row),
    "deltas": ("gamma_lambda", credit.from_deltas),
    "kl_rewards": ("kl_where", credit.from_kl),
    "several_steps": ("mc_vs_gae", credit.several_steps),
    "ratio": ("ratio_first_update", _ratio_row),
    "aggregated": ("loss_aggregation", averages.aggregated),
    "weights": ("loss_aggregation", averages.token_weights),
    "gradient_clip": ("batch_sizes", training.gradient_clip),
    "warm_up": ("batch_sizes", training.warm_up),
    "returns": ("gamma_lambda", formulas.returns),
    "entropy": ("entropy", formulas.entropy),
    "adaptive": ("adaptive_kl", formulas.adaptive),
    "overlong": ("truncation", formulas.overlong),
    "updates": ("batch_sizes", formulas.updates),
    "decay": ("gamma_lambda", formulas.decay),
    "limit": ("clip_higher", formulas.limit),
}
"""Each sum with the topic it belongs to; it has an answer if all it needs is given."""
