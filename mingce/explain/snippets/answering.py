"""The answer to pasted code or a formula: why, if that was asked, then bugs, then every line with its numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from mingce.algorithms import reference
from mingce.base.numbers import number as shown
from mingce.base.texts import named, sentence, texts
from mingce.explain.answer import Answer, example_line, legible
from mingce.explain.code_refs import CodeRef, resolve
from mingce.explain.snippets import running
from mingce.explain.snippets.by_hand import BY_HAND
from mingce.explain.snippets.environment import following
from mingce.explain.snippets.formulas import Formula, Symbol, find_formula
from mingce.explain.snippets.judging import judged
from mingce.explain.snippets.kinds import BUGS, BY_ID, SCAFFOLDING
from mingce.explain.snippets.matching import Match, Reading, read_lines
from mingce.explain.snippets.reading import Snippet, read_snippet, statements
from mingce.explain.snippets.running import Contrast, Scene, contrast, results, scene
from mingce.explain.snippets.tensor import Tensor
from mingce.explain.topic import listed
from mingce.record.rollout import Rollout

MOST_SHOWN, LONGEST_SHOWN = 24, 110
_WHY = re.compile(
    r"为什么|为何|为啥|干嘛|凭什么|原因|目的|有什么用|作用|意义|\bwhy\b|how come|reason|purpose|what.{0,12}\bfor\b",
    re.I,
)
_DOUBTS = re.compile(r"对吗|对不对|错|正确|问题吗|\bbugs?\b|\bright\?|correct|wrong", re.IGNORECASE)
_POLICY = {
    "log_ratio", "ratio", "clipped_ratio", "pg_plain", "pg_clipped", "pg_max", "pg_dual", "dual_min", "dual_where",
    "dual_max", "surrogate", "surrogate_clipped", "surrogate_min", "pg_loss", "pg_clipfrac", "ppo_kl", "seq_log_ratio",
    "seq_ratio", "token_seq_log_ratio", "token_seq_ratio", "cispo", "loss_with_kl", "token_mean", "seq_sum",
    "seq_token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "constant_norm", "value_clip", "vf_plain",
    "vf_clipped", "vf_max", "vf_loss", "vf_clipfrac", "total_loss", "detach",
}  # fmt: skip
"""Lines about an update: they show nothing where old and new policy are equal."""
_OBSCURE = {"last_position", "fill_log_probs"}
_GROUP = {
    "group_mean", "group_std", "group_norm", "group_scale", "group_centre", "rloo_baseline", "rloo_step",
    "opo_baseline",
    "opo_step", "broadcast", "group_total", "group_collect",
}  # fmt: skip
_MENTIONS = {  # what a question may point at, and how it stands in code
    r"\bmax": "max", r"\bmin": "min", r"clip|clamp|裁剪": "cl", r"\bexp\b|指数": "exp", r"detach|摘": "detach",
    r"reverse|倒|反|从后": "reversed", r"0\.5|½|一半": "0.5", r"-\s*1\s*:\s*-\s*1|切片|slice|左移": ":",
    r"mask|掩码": "mask", r"负号|minus|negative|减": "-", r"标准差|std": "std", r"均值|mean": "mean",
    r"next_?values?": "nextvalues", r"lambda|lam\b|λ": "lam", r"gamma|γ": "gamma", r"where": "where",
    r"unsqueeze": "unsqueeze", r"stack": "stack", r"flip": "flip", r"平方|square": "**",
}  # fmt: skip


def snippet_answer(text: str, rollout: Rollout, lang: str) -> Answer | None:
    """The answer to a question that pastes code or a formula of PPO; None if it pastes nothing that is known."""
    snippet, reading = read(text)
    if snippet is not None and reading is not None and _is_about_ppo(snippet, reading):
        return _code_answer(snippet, reading, rollout, lang)
    formula = find_formula(text)
    return None if formula is None else _formula_answer(formula, rollout, lang)


def has_bug(text: str) -> bool:
    """Whether a line of the pasted code is wrong."""
    _, reading = read(text)
    return reading is not None and any(match.bug for match in reading.matches)


def bugs_of(text: str) -> list[str]:
    """The bugs of pasted code."""
    _, reading = read(text)
    return [match.bug for match in reading.matches if match.bug] if reading is not None else []


def is_explained(text: str) -> bool:
    """Whether the pasted code is a line that the answer says the purpose of by itself."""
    snippet, reading = read(text)
    return snippet is not None and reading is not None and _alone(reading) is not None


def _alone(reading: Reading) -> Match | None:
    """A line that means nothing to most readers unless its purpose is said."""
    known = [match for match in reading.matches if match.kind]
    return known[0] if len(known) == 1 and known[0].kind in _OBSCURE else None


@lru_cache(maxsize=8)
def read(text: str) -> tuple[Snippet | None, Reading | None]:
    """The code in a text and what its lines are."""
    snippet = read_snippet(text)
    return snippet, None if snippet is None else judged(read_lines(statements(snippet.code)), _around(snippet))


def _around(snippet: Snippet) -> str:
    """The prose and the comments."""
    comments = " ".join(line.partition("#")[2] for line in snippet.code.split("\n"))
    return f"{snippet.question} {comments}"


def _is_about_ppo(snippet: Snippet, reading: Reading) -> bool:
    """Whether a line is more than scaffolding, and the question points at nothing that the code does not have."""
    kinds = {match.kind for match in reading.matches if match.kind}
    if not kinds - SCAFFOLDING and not (kinds and len(reading.matches) == 1 and kinds - {"loop", "append", "length"}):
        return False
    text = " ".join(match.line.text for match in reading.matches)
    pointed = [word for word in ("min", "max", "detach") if re.search(rf"\b{word}\b", snippet.question)]
    absent = bool(pointed) and not any(word in text for word in pointed)
    return snippet.fenced or not absent or any(match.bug for match in reading.matches)


def phrase(key: str, lang: str, /, **values: object) -> str:
    """A sentence of the texts with its values."""
    return named(texts("snippets", lang)["phrases"])[key].format(**values)


def _said(list_name: str, key: str, lang: str) -> str:
    return named(texts("snippets", lang)[list_name])[key]


def _code_answer(snippet: Snippet, reading: Reading, rollout: Rollout, lang: str) -> Answer:
    used = running.about(rollout)
    scenes = _scenes(reading, used)
    numbers = results(reading, scenes[0])
    parts: list[str] = []
    asked = _asked(snippet, reading)
    if asked is not None and asked.kind:
        parts.append(_said("line_why", asked.kind, lang))
    found, variants = _bugs(reading, used, scenes, lang)
    unknown = [match for match in reading.matches if match.kind is None]
    if found or len(reading.matches) > 2 or _DOUBTS.search(snippet.question):
        parts += found or [phrase("no_bug_in_known" if unknown else "no_bug", lang)]
    parts.append("\n".join(_items(reading, numbers, scenes[0], lang)))
    if asked is None and (alone := _alone(reading)) is not None:
        parts.append(_said("line_why", alone.kind or "", lang))
    if unknown and len(unknown) < len(reading.matches):
        comma = "、" if lang == "zh" else ", "
        lines = comma.join(f"`{_short(one.line.text)}`" for one in unknown[:3])
        parts.append(phrase("unknown", lang, lines=lines))
    parts += _notes(reading, lang)
    shown_lines = _numbered(reading, numbers)
    parts += _variants([*(scenes[:1] if shown_lines else []), *variants], lang)
    return Answer(
        lang,
        "\n\n".join(parts),
        title=phrase("title", lang),
        about=_about(used, rollout, lang),
        lines=tuple(shown_lines),
        code=_code(reading),
    )


def _about(used: Rollout, rollout: Rollout, lang: str) -> str:
    shown_one = legible(used)
    first = reference.chosen(shown_one.columns["response_mask"])[0]
    line = example_line(shown_one, first, lang)
    if used is rollout:
        return line
    lacking = [name for name in running.NEEDED if name not in rollout.columns] or ["response_mask"]
    names = ("、" if lang == "zh" else ", ").join(lacking)
    return sentence("tutor.other_example", lang, names=names) + ("" if lang == "zh" else " ") + line


# ── why ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _asked(snippet: Snippet, reading: Reading) -> Match | None:
    """The line that a why is about: the one the question points at, or the only one."""
    if not _WHY.search(snippet.question):
        return None
    known = [match for match in reading.matches if match.kind]
    if len(known) == 1:
        return known[0]
    pointed = [sign for pattern, sign in _MENTIONS.items() if re.search(pattern, snippet.question, re.IGNORECASE)]
    words = set(re.findall(r"[A-Za-z_]\w{2,}", snippet.question))

    def score(match: Match) -> int:
        named_here = sum(bool(re.search(rf"\b{re.escape(word)}\b", match.line.text)) for word in words)
        return 2 * named_here + sum(sign in match.line.text for sign in pointed)

    best = max(known, key=score)
    return best if score(best) else None


# ── bugs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _bugs(reading: Reading, rollout: Rollout, scenes: Sequence[Scene], lang: str) -> tuple[list[str], list[Scene]]:
    """A paragraph for every bug, and the scenes that its numbers come from."""
    found: list[str] = []
    used: list[Scene] = []
    for match in reading.matches:
        if match.bug is None:
            continue
        said = phrase("bug", lang, line=_short(match.line.text), text=_said("line_bugs", match.bug, lang))
        if match.bug == "loop_forward" and (name := _stacked_as_filled(reading)):
            said += ("" if lang == "zh" else " ") + phrase("turn_list", lang, name=name)
        numbers, where = _bug_numbers(match, rollout, scenes, lang)
        found.append(f"{said} {numbers}".rstrip() if lang == "en" else said + numbers)
        used += [where] if where is not None else []
    return found, used


def _stacked_as_filled(reading: Reading) -> str | None:
    """The list that the loop fills and that is stacked as it is."""
    text = "\n".join(match.line.text for match in reading.matches)
    filled = re.search(r"\b(\w+)\.append\(", text)
    stacked = filled and re.search(rf"stack\({filled[1]}\b(?!\[::-1\])", text)
    return filled[1] if filled and stacked else None


def _bug_numbers(match: Match, rollout: Rollout, scenes: Sequence[Scene], lang: str) -> tuple[str, Scene | None]:
    gradient = any(bug.id == match.bug and bug.gradient for bug in BUGS)
    if match.bug in BY_HAND:
        pair = BY_HAND[match.bug](scenes[0])
        if pair is None:
            return "", None
        if match.bug == "slice_late":
            return phrase("slice_numbers", lang, wrong=shown(pair[0][0]), right=shown(pair[1][0])), None
        name = "slopes" if match.bug == "old_not_detached" else "numbers"
        return phrase(name, lang, wrong=_listed(pair[0]), right=_listed(pair[1])), None
    if match.bug == "std_without_epsilon":
        return phrase("nan", lang), None
    if match.shape is not None:
        return "", None
    compared = contrast(match, rollout, scenes, gradient or match.bug == "ratio_of_itself")
    if compared is None:
        return phrase("same", lang), None
    return _compared(compared, lang), compared.scene


def _compared(one: Contrast, lang: str) -> str:
    return phrase("slopes" if one.gradient else "numbers", lang, wrong=_listed(one.wrong), right=_listed(one.right))


def _listed(row: Sequence[float]) -> str:
    return shown(row[0]) if len(row) == 1 else listed(row)


def _scenes(reading: Reading, rollout: Rollout) -> list[Scene]:
    """The scene the lines are shown on, and the variants on which a bug may show."""
    kinds = {match.kind for match in reading.matches}
    moved = bool(kinds & _POLICY) and running.is_first_update(rollout)
    grouped = bool(kinds & _GROUP)
    flat = reading.flat and not grouped
    found = [scene(rollout, moved, False, grouped, flat)]
    may_move = running.is_first_update(rollout)
    for variant in ((may_move, False, grouped), (moved, True, grouped), (may_move, True, grouped)):
        found.append(scene(rollout, *variant, flat))
    return found


# ── lines ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _short(text: str) -> str:
    text = text.replace("`", "'")
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 2]} …"


def _items(reading: Reading, numbers: Sequence[Tensor | None], where: Scene, lang: str) -> list[str]:
    items = []
    for match, value in list(zip(reading.matches, numbers, strict=True))[:MOST_SHOWN]:
        if match.kind is None:
            continue
        what = _said("line_what", "loop_reversed" if match.bug == "loop_forward" else match.kind, lang)
        shape = _shape(match, value, where)
        name = "item" if match.bug is None else "item_wrong"
        items.append("- " + phrase(name, lang, line=_short(match.line.text), shape=shape and f" {shape}", what=what))
    return items


def _shape(match: Match, value: Tensor | None, where: Scene) -> str:
    """`(B, T)`, `(B,)` or nothing for a number."""
    if match.kind in ("slice_state", "slice_token"):
        return "(B, P+T) → (B, T)"
    if value is None:
        return ""
    if match.line.loop and len(value.shape) <= 1:
        return "(B,)"
    rows = int(where.environment["group_size"].number())
    if len(value.shape) == 2:
        return "(B, T)" if value.shape[1] > 1 else "(B, 1)"
    if len(value.shape) == 1:
        return "(B,)" if where.grouped and value.shape[0] == rows else "(T,)" if value.shape[0] > 1 else ""
    return ""


def _numbered(reading: Reading, numbers: Sequence[Tensor | None]) -> list[str]:
    """`lastgaelam = delta + gamma*lam*lastgaelam → 0.395, 0.5053, …`"""
    found = []
    for match, value in list(zip(reading.matches, numbers, strict=True))[:MOST_SHOWN]:
        if match.kind is None or value is None or match.kind in ("carry_init", "length", "zeros"):
            continue
        if match.kind == "slice_state" and match.bug is not None:
            continue
        found.append(f"{_short(match.line.text)} → {_values(value)}")
    return found


def _values(value: Tensor) -> str:
    row = value.numbers()
    if len(row) == 1:
        return shown(row[0])
    texts_ = [shown(x) for x in row]
    return ", ".join([*texts_[:8], "…", *texts_[-2:]] if len(texts_) > 12 else texts_)


_PLAIN_LOOP = {"gae_step"}


def _notes(reading: Reading, lang: str) -> list[str]:
    said = [match.note for match in reading.matches if match.bug is None or match.note == "unmasked"]
    keys = dict.fromkeys(note for note in said if note)
    kinds = {match.kind for match in reading.matches}
    found = [key for key in keys if key]
    if "score_place" in kinds:
        found.append("score_place")
    in_loop = {match.kind for match in reading.matches if match.line.loop}
    if in_loop & _PLAIN_LOOP and not {"carry_value", "carry_advantage"} & kinds:
        found.append("dense_gae")
    return [phrase("convention", lang, text=_said("line_notes", key, lang)) for key in found]


def _variants(scenes: Sequence[Scene], lang: str) -> list[str]:
    said = []
    if any(one.moved for one in scenes):
        comma = "、" if lang == "zh" else ", "
        move, value_move = (comma.join(map(shown, moves)) for moves in (running.MOVES, running.VALUE_MOVES))
        said.append(phrase("moved", lang, shift=shown(running.SHIFT), move=move, value_move=value_move))
    if any(one.padded for one in scenes):
        said.append(phrase("padded", lang, count=running.PADDING))
    if any(one.grouped for one in scenes):
        others = ("、" if lang == "zh" else ", ").join(shown(x) for x in running.OTHER_TOTALS)
        said.append(phrase("grouped", lang, others=others))
    return said


def _code(reading: Reading) -> tuple[CodeRef, ...]:
    names = dict.fromkeys(BY_ID[m.kind].code for m in reading.matches if m.kind in BY_ID and BY_ID[m.kind].code)
    return tuple(resolve(name) for name in list(names)[:4])


# ── formulas ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _formula_answer(formula: Formula, rollout: Rollout, lang: str) -> Answer:
    used = legible(running.about(rollout))
    first = reference.chosen(used.columns["response_mask"])[0]
    said = phrase("reads_as", lang, name=_said("formulas", formula.id, lang).rstrip("。."))
    items = [_symbol(one, used, first, lang) for one in formula.symbols]
    kind = BY_ID.get(formula.kind)
    why = _said("line_why", formula.kind, lang)
    return Answer(
        lang,
        "\n\n".join([said, "\n".join([phrase("symbols", lang), *(f"- {one}" for one in items)]), why]),
        title=phrase("title_formula", lang),
        about=_about(running.about(rollout), rollout, lang),
        code=(resolve(kind.code),) if kind is not None and kind.code else (),
    )


def _symbol(symbol: Symbol, rollout: Rollout, t: int, lang: str) -> str:
    what = _said("symbols", symbol.key, lang)
    value: float | None = None
    if symbol.setting:
        value = getattr(rollout.settings, symbol.setting)
        return phrase(
            "symbol", lang, symbol=f"{symbol.shown} = {shown(value)}" if value is not None else symbol.shown, what=what
        )
    if symbol.column == "next_values":
        row = [0.0 if x is None else float(x) for x in rollout.columns["values"]]
        value = following([row], [rollout.mask], rollout.bootstrap)[0][t]
    elif symbol.column in rollout.columns:
        value = rollout.columns[symbol.column][t]
    if value is None:
        return phrase("symbol", lang, symbol=symbol.shown, what=what)
    column = "" if symbol.column == "next_values" else f" `{symbol.column}`"
    said = phrase(
        "symbol_number", lang, symbol=symbol.shown, what=what, token=rollout.tokens[t].text, t=t, value=shown(value)
    )
    return said.replace(f"`{symbol.shown}`", f"`{symbol.shown}`{column}", 1)
