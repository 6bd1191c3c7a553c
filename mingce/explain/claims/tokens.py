"""The tokens of a line of plain arithmetic; a name is read with its subscripts, superscripts and arguments at once."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from mingce.explain.claims.expressions import Node, Number, Symbol
from mingce.explain.claims.names import SETTING_KINDS, symbol_kind

MOST_TOKENS = 4000


class Token(NamedTuple):
    type: str
    text: str
    start: int
    end: int
    node: Node | None = None


_TOKEN = re.compile(
    r"""(?P<number>(?:\d+(?:\.\d+|\.(?=\s*[\],]))?|\.\d+)(?:[eE][+-]?\d{1,3})?%?)
    |(?P<name>[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)*|[Α-Ωα-ω])
    |(?P<string>"[^"\n]{0,60}"|“[^”\n]{0,60}”)
    |(?P<other>[<>!]=|=>|->|→|≥|≤|≠)
    |(?P<rel>:=|==?|≈)
    |(?P<dots>\.\.\.+)
    |(?P<op>\*\*|[-+*/^])
    |(?P<open>[(\[{])
    |(?P<close>[)\]}])
    |(?P<comma>[,，、])
    |(?P<space>\s+)
    |(?P<word>[^\x00-\x7fΑ-Ωα-ω“→≥≤≠≈，、]+|.)""",
    re.VERBOSE,
)
_SUFFIX = re.compile(
    r"""_\{(?P<sub>[^{}]{0,40})\}|_(?P<plainsub>[A-Za-z0-9]{1,12})|\^\{(?P<sup>[^{}]{0,40})\}|\^\((?P<psup>[^()]{0,30})\)"""
    r"""|\^(?P<bsup>[A-Za-z]{1,6})|\[\s{0,2}(?:\:\s{0,2},\s{0,2})?(?P<item>-?\d{1,4}|[a-z](?:\s?[+-]\s?\d)?)\s{0,2}\]"""
)
_ARGUMENT = re.compile(
    r"\(\s{0,2}(?:[sSx]_?\{?|t\s?=\s?|step\s?)?(?P<index>\d{1,4}|[tikT](?:\s?[+-]\s?\d)?)\}?\s{0,2}"
    r"(?:[,|]\s{0,2}[as]_?\{?(?:\d{1,4}|[tik](?:\s?[+-]\s?\d)?)\}?\s{0,2}){0,2}\)"
)
_STATE_TEXT = re.compile(r"\((?:prompt|x\b|[sS]\b|\"|“)[^()\n]{0,60}\)")
_THETA = re.compile(r"\(\s?θ\s?\)")
_POLICY_ARGUMENT = re.compile(r"\([^()\n=]{0,30}\)")
_NAME_INDEX = re.compile(r"(.+?)_?(\d{1,4})$")
_LETTER = re.compile(r"[tikTn](?:\s?[+-]\s?\d{1,2})?$")
_N_STEP = re.compile(r"\(?(?:[nk]|\d)\)?")
_MARK_SETTING = re.compile(r"(γ|λ|gamma|lambda|lam)\s?=\s?(\d+(?:\.\d+)?|\.\d+)")


def tokens_of(text: str) -> list[Token]:
    found: list[Token] = []
    at = 0
    while at < len(text) and len(found) < MOST_TOKENS:
        match = _TOKEN.match(text, at)
        if match is None:
            at += 1
            continue
        kind = match.lastgroup or "word"
        if kind == "name":
            symbol, end = _symbol(text, match[0], match.end())
            found.append(Token("name", match[0], at, end, symbol))
            at = end
            continue
        if kind != "space":
            found.append(Token(kind, match[0], at, match.end(), read_number(match[0]) if kind == "number" else None))
        at = match.end()
    return found


def read_number(text: str) -> Number | None:
    """A number with the digits it shows, None if it is too large to be one."""
    mantissa, _, exponent = text.rstrip("%").lower().partition("e")
    decimals = len(mantissa.partition(".")[2]) - int(exponent or 0)
    value = float(text.rstrip("%"))
    if not math.isfinite(value) or abs(decimals) > 30:
        return None
    return Number(value / 100, decimals + 2) if text.endswith("%") else Number(value, decimals)


def _symbol(text: str, name: str, at: int) -> tuple[Symbol, int]:
    """The symbol whose bare name ends at `at`, with the subscripts, superscripts and arguments that follow."""
    index: int | None = None
    letter = mark = ""
    from_zero = False
    kind = symbol_kind(name)
    if kind is None and (split := _NAME_INDEX.match(name)) and symbol_kind(split[1]) and "_log_" not in name:
        name, kind, index = split[1], symbol_kind(split[1]), int(split[2])
    elif kind is None and "_" in name:
        base, _, sub = name.rpartition("_")
        if len(base) == 1 or sub in ("t", "i", "k", "T"):
            kind = symbol_kind(base)
            name, letter, mark = (
                (base, sub, mark) if _LETTER.match(sub) else (base, letter, sub) if kind else (name, "", "")
            )
    setting = kind in SETTING_KINDS
    while len(mark) < 200 and (suffix := _SUFFIX.match(text, at)):
        if (setting and suffix[0][0] == "^") or name == "e" or (suffix["item"] is not None and kind is None):
            break
        part = next((group for group in suffix.groups() if group is not None), "").strip()
        if suffix["item"] is not None and re.fullmatch(r"-?\d+", part):
            index, from_zero = int(part), True
        elif suffix[0][0] != "^" and part.isdigit() and len(part) < 5:
            index = int(part)
        elif suffix[0][0] != "^" and _LETTER.match(part):
            letter = part.replace(" ", "")
        else:
            mark += " " + part
        at = suffix.end()
    if name in ("π", "pi") or name.startswith("pi_"):
        kind = (
            "ref_probs"
            if "ref" in mark + name
            else "new_probs"
            if "θ" in mark or "theta" in mark + name
            else "old_probs"
        )
        if match := _POLICY_ARGUMENT.match(text, at):
            at = match.end()
    elif name == "r" and (match := _THETA.match(text, at)):
        kind, at = "ratio", match.end()
    elif kind is not None and not setting:
        if match := _ARGUMENT.match(text, at):
            at = match.end()
            if match["index"].isdigit():
                index = int(match["index"])
            else:
                letter = match["index"].replace(" ", "")
        elif name in ("V", "Q") and (match := _STATE_TEXT.match(text, at)):
            at = match.end()
    if _N_STEP.fullmatch(mark.strip()):
        kind = None
    if kind == "values" and letter in ("t+1", "i+1", "k+1"):
        kind = "next_values"
    settings = tuple(("gamma" if n in ("γ", "gamma") else "lam", float(v)) for n, v in _MARK_SETTING.findall(mark))
    return Symbol(name, kind, index, letter, from_zero, settings, mark.strip()), at
