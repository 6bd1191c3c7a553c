"""Which sum a question asks for, and its answer: formula, numbers put in, result."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mingce.base.numbers import number as shown
from mingce.base.texts import sentence
from mingce.explain.answer import Answer, Table
from mingce.explain.code_refs import resolve
from mingce.explain.sums import rows
from mingce.explain.sums.groups import LONGEST, group_sum
from mingce.explain.sums.lists import UNNAMED, named_in, number_after, read_lists
from mingce.specs.estimators import remax

LARGEST, SHORT, LONGEST_TEXT = 1e9, 40, 1000
_ALL = re.compile(
    r"(?:全(?:部)?(?:都)?(?:是|为|得|拿)?|都(?:是|为|得))\s*(?P<zh>\d+(?:\.\d+)?)|\b(?:all|every\w*)\b[^.?]{0,24}?\b(?P<en>\d+(?:\.\d+)?)\b|"
    r"(?P<right>全对|都对|都答对|all (?:\w+ ){0,3}(?:right|correct|ones?\b))|"
    r"(?P<wrong>全错|都错|都答错|all (?:\w+ ){0,3}(?:wrong|incorrect|zeros?\b))",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Sum:
    """A sum that was worked out, which the next question may go on with: a group's scores and the methods shown."""

    topic: str
    scores: tuple[float, ...] = ()
    methods: tuple[str, ...] = ()


@dataclass
class Asked:
    """What a question gives: its words, lists, single numbers, settings."""

    text: str
    lang: str
    lists: dict[str, list[float]]
    scalars: Mapping[str, float]
    settings: Mapping[str, float]
    earlier: Sum | None
    code: list[str] = field(default_factory=list)

    def says(self, *names: str) -> bool:
        """Whether it names one of these sums."""
        return bool(set(names) & set(named_in(self.text, "sums")))

    def answer(self, key: str, lines: list[str], tables: tuple[Table, ...] = (), **values: object) -> Answer:
        text = sentence(f"tutor.{key}", self.lang, **values)
        code = tuple(resolve(name) for name in self.code)
        return Answer(self.lang, text, lines=tuple(lines), tables=tables, code=code)


def sum_of(
    text: str, lang: str, scalars: Mapping[str, float], settings: Mapping[str, float], earlier: Sum | None
) -> tuple[Answer, Sum] | None:
    """The answer to a question that types in the numbers of a sum; None if it does not."""
    if len(text) > LONGEST_TEXT:
        return None
    asked = Asked(text, lang, read_lists(text), scalars, settings, earlier)
    if any(not math.isfinite(x) or abs(x) > LARGEST for row in asked.lists.values() for x in row):
        return None
    for work in _KINDS:
        found = work(asked)
        if found is not None:
            return found
    return None


def _group(asked: Asked) -> tuple[Answer, Sum] | None:
    """The advantages of a group's scores, or of the last group's under another method or with other scores."""
    methods, lists = named_in(asked.text, "methods"), asked.lists
    scores = lists.get("scores") or lists.get("rewards") or lists.get(UNNAMED)
    others = set(lists) - {"scores", "rewards", "lengths", UNNAMED}
    if scores is not None and not others and (methods or asked.says("group")):
        lengths = lists.get("lengths")
    elif asked.earlier is not None and asked.earlier.scores and len(asked.text) < SHORT and not lists:
        same, lengths = _same_for_all(asked.text, len(asked.earlier.scores)), None
        fresh = [name for name in methods if name not in asked.earlier.methods]
        if same is None and not fresh and not asked.says("how"):
            return None
        scores, methods = same or list(asked.earlier.scores), methods or list(asked.earlier.methods)
    else:
        return None
    if not 2 <= len(scores) <= LONGEST:
        return None
    sizes = [int(n) for n in lengths] if lengths and len(lengths) == len(scores) and min(lengths) >= 1 else None
    if sizes and max(sizes) > rows.LONGEST_ROW:
        return None
    each = asked.says("how") and not lists
    text, lines, table, code = group_sum(scores, methods, sizes, asked.lang, each=each)
    answer = Answer(asked.lang, text, lines=tuple(lines), tables=(table,), code=tuple(map(resolve, code)))
    return answer, Sum("group_baseline", tuple(scores), tuple(methods))


def _remax(asked: Asked) -> Answer | None:
    """Each sampled answer's score less the greedy answer's."""
    greedy = number_after(asked.text, "counts").get("greedy")
    if greedy is None or not asked.says(remax.__name__):
        return None
    lists = [asked.lists[name] for name in ("scores", "rewards", UNNAMED, "advantages") if name in asked.lists]
    one = number_after(asked.text, "counts").get("sampled")
    scores = lists[0] if lists else [one] if one is not None else []
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


def _of(topic: str, work: Callable[[Asked], Answer | None]) -> Callable[[Asked], tuple[Answer, Sum] | None]:
    def worked(asked: Asked) -> tuple[Answer, Sum] | None:
        answer = work(asked)
        return None if answer is None else (answer, Sum(topic))

    return worked


def _whitened(asked: Asked) -> Answer | None:
    row = asked.lists.get("advantages") or asked.lists.get(UNNAMED)
    if row is None or not asked.says("whiten") or set(asked.lists) - {"advantages", UNNAMED}:
        return None
    white, mean, std, biased = rows.whitened(row)
    asked.code.append("mingce.algorithms.masking.masked_whiten")
    lines = [f"μ = {shown(mean)}", f"σ = √(Σ(A − μ)²/{len(row) - 1}) = {shown(std)}"]
    lines += [
        f"({shown(x)} − {rows.bracketed(mean)})/{shown(std)} = {shown(y)}" for x, y in zip(row, white, strict=True)
    ]
    key = "sum_whitened" if std > 0 else "sum_whitened_flat"
    return asked.answer(key, lines[:LONGEST], row=rows.listed(white), std=shown(std), biased=shown(biased))


def _explained(asked: Asked) -> Answer | None:
    back, values = asked.lists.get("returns"), asked.lists.get("values")
    if back is None or values is None or len(back) != len(values) or not asked.says("explained"):
        return None
    total, rest, explained = rows.explained(back, values)
    asked.code.append("mingce.metrics._explained_variance")
    errors = [a - b for a, b in zip(back, values, strict=True)]
    lines = [f"R − V = {rows.listed(errors)}", f"Var(R) = {shown(total)}", f"Var(R − V) = {shown(rest)}"]
    if total > 0:
        lines.append(f"1 − {shown(rest)}/{shown(total)} = {shown(explained)}")
    return asked.answer("sum_explained" if total > 0 else "sum_explained_flat", lines, explained=shown(explained))


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
    lines += [f"{name} = {rows.listed(row)}" for name, row in kinds.items()]
    asked.code.append("mingce.specs.kl.kl_penalty")
    beta, score = asked.settings.get("beta"), asked.scalars.get("scores")
    if beta is None and score is None:
        return asked.answer("sum_kl", lines, rows="; ".join(lines[1:]))
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
    return asked.answer("sum_kl_rewards", lines[:LONGEST], kind=kind, beta=shown(beta), rows=rows.listed(rewards))


def _ratio_row(asked: Asked) -> Answer | None:
    """The ratios of two rows of log-probs, the answer's one ratio, and the clipped losses if advantages are given."""
    new, old = asked.lists.get("new_log_probs"), asked.lists.get("old_log_probs")
    rollout = asked.lists.get("rollout_log_probs")
    if rollout is not None and old is None and new is not None:
        old, new = new, None
    if rollout is not None and old is not None and len(rollout) == len(old):
        cap = number_after(asked.text, "counts").get("cap", rows.CAP)
        weights, lines = rows.truncated_weights(rollout, old, cap)
        asked.code.append("mingce.specs.losses.policy_ratio")
        return asked.answer("sum_tis", lines, rows=rows.listed(weights), cap=shown(cap))
    if new is None or old is None or len(new) != len(old) or set(asked.lists) & {"values", "rewards"}:
        return None
    ratios, one, drift = rows.ratios(old, new)
    asked.code.append("mingce.specs.losses.sequence_ratio")
    lines = [f"log π − log π_old = {rows.listed([b - a for a, b in zip(old, new, strict=True)])}"]
    lines += [f"ρ = {rows.listed(ratios)}", f"s = exp(mean(log π − log π_old)) = exp({shown(-drift)}) = {shown(one)}"]
    lines.append(f"approx_kl = mean(log π_old − log π) = {shown(drift)}")
    advantages = asked.lists.get("advantages") or [asked.scalars["advantages"]] * len(old) if _credited(asked) else None
    if advantages is not None and len(advantages) == len(old):
        lines += rows.clipped_lines(ratios, advantages, asked.settings.get("clip", rows.CLIP))
        asked.code.append("mingce.algorithms.losses.ppo_loss")
    return asked.answer("sum_ratio", lines, rows=rows.listed(ratios), one=shown(one), drift=shown(drift))


def _credited(asked: Asked) -> bool:
    return "advantages" in asked.lists or "advantages" in asked.scalars


def _aggregated(asked: Asked) -> Answer | None:
    """Two or more answers with their lengths and losses, averaged in each way."""
    losses, lengths = asked.lists.get("losses"), asked.lists.get("lengths")
    if losses is None and lengths is not None:
        losses = [number_after(part, "counts")["loss"] for part in _sentences(asked.text)]
    if lengths is None or not losses or len(losses) != len(lengths) or not asked.says("aggregate"):
        return None
    sizes = [int(n) for n in lengths]
    if min(sizes) < 1 or max(sizes) > rows.LONGEST_ROW:
        return None
    found = rows.aggregated(sizes, losses)
    asked.code.append("mingce.specs.losses.agg_loss")
    lines = rows.aggregation_lines(sizes, losses, found)
    said = "; ".join(f"{name} = {shown(x)}" for name, x in found.items())
    return asked.answer("sum_aggregated", lines, rows=said)


def _sentences(text: str) -> list[str]:
    """The parts of a question that each give a loss."""
    return [part for part in re.split(r"[，,。;；]|\.\s", text) if "loss" in number_after(part, "counts")]


def _updates(asked: Asked) -> Answer | None:
    """How often the parameters are updated in a step."""
    counts = number_after(asked.text, "counts")
    batch, mini, parts = counts.get("batch"), counts.get("mini_batch"), counts.get("mini_batches")
    if not ((batch and mini) or parts) or not asked.says("updates"):
        return None
    epochs, n, lines = counts.get("epochs", 1.0), counts.get("samples", 1.0), []
    times = int(parts or 0)
    if batch and mini:
        times = math.ceil(batch / mini)
        lines = [f"⌈{shown(batch)}/{shown(mini)}⌉ = {times}"]
    lines.append(f"{times}·{shown(epochs)} = {shown(times * epochs)}")
    if n > 1 and batch and mini:
        lines.append(f"{shown(batch)}·{shown(n)} = {shown(batch * n)};  {shown(mini)}·{shown(n)} = {shown(mini * n)}")
    return asked.answer("sum_updates", lines, times=times, epochs=shown(epochs), updates=shown(times * epochs))


_KINDS: tuple[Callable[[Asked], tuple[Answer, Sum] | None], ...] = (
    _of("methods_compared", _remax),
    _group,
    _of("whitening", _whitened),
    _of("explained_variance", _explained),
    _of("kl_estimators", _kl_row),
    _of("ratio_first_update", _ratio_row),
    _of("loss_aggregation", _aggregated),
    _of("batch_sizes", _updates),
)
