"""A line of Markdown, LaTeX or code as plain arithmetic: `\\(\\delta_2 = 1 + 0 - 0.6\\)` → `δ_2 = 1 + 0 - 0.6`.

Every pattern here is bounded, so that a hostile line costs no more than a few passes over it.
"""

from __future__ import annotations

import re
from functools import lru_cache

from mingce.explain.claims.names import label_kinds

_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋ₜᵢₖₙₗ", "0123456789+-tiknl", strict=True))
_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿᵗᵏˡ", "0123456789+-ntkl", strict=True))
_SUBSCRIPT = re.compile(f"[{''.join(_SUBSCRIPTS)}]+")
_SUPERSCRIPT = re.compile(f"[{''.join(_SUPERSCRIPTS)}]+")
_HTML_SUBSCRIPT = re.compile(r"<sub>([^<>]{1,20})</sub>")
_HTML = re.compile(r"</?(?:br|b|i|em|strong|code|span|p|td|tr|li|sup|sub)\s{0,2}/?>", re.IGNORECASE)
_WRAPPERS = "mathbf|mathrm|mathit|mathcal|boldsymbol|bm|text|textbf|operatorname|hat|widehat|bar|tilde|boxed|underbrace"
_WRAPPED = re.compile(rf"\\(?:{_WRAPPERS})\s{{0,2}}\{{([^{{}}]{{0,120}})\}}")
_BARE_HAT = re.compile(r"\\(?:hat|bar|tilde)\s{0,2}(?=[A-Za-z])")
_FRACTION = re.compile(r"\\[dt]?frac\s{0,2}\{([^{}]{0,200})\}\s{0,2}\{([^{}]{0,200})\}")
_ROOT = re.compile(r"\\sqrt\s{0,2}\{([^{}]{0,200})\}")
_COMMAND = re.compile(r"\\([A-Za-z]+)")
_COMMANDS = {
    **dict(delta="δ", gamma="γ", lambda_="λ", beta="β", mu="μ", sigma="σ", pi="π", rho="ρ", theta="θ", Delta="δ"),
    **dict(epsilon="ε", varepsilon="ε", phi="φ", sum="Σ", times="*", cdot="*", ast="*", div="/", approx="≈", simeq="≈"),
    **dict(triangleq="=", equiv="=", to="→", rightarrow="→", Rightarrow="⇒", implies="⇒", dots="...", ldots="..."),
    **dict(cdots="...", ge="≥", geq="≥", le="≤", leq="≤", neq="≠", ne="≠", pm="±", exp="exp", log="log", ln="ln"),
    **dict(min="min", max="max", lbrack="[", rbrack="]", star="*", sqrt="sqrt", quad=" ", qquad=" ", mid="|"),
}
_COMMANDS["lambda"] = _COMMANDS.pop("lambda_")
_CHARACTERS = str.maketrans(
    {
        **{chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F) if chr(code) != "，"},
        **dict.fromkeys("−‑﹣", "-"),
        **dict.fromkeys("×·⋅∙∗•・", "*"),
        **dict.fromkeys("≃≅≒≐", "≈"),
        **dict.fromkeys("≜≡≔", "="),
        **dict.fromkeys("│┃║├┤┌┐└┘─━┬┴┼\u00a0\u3000\u200b\u2009\u202f\t", " "),
        **dict.fromkeys("`$", " "),
        **dict.fromkeys("［【〔⟨", "["),
        **dict.fromkeys("］】〕⟩", "]"),
        "½": "(1/2)",
        "¼": "(1/4)",
        "⅓": "(1/3)",
        "⅔": "(2/3)",
        "¾": "(3/4)",
        "÷": "/",
        "…": "...",
        "Â": "A",
        "\u0302": "",
        "Δ": "δ",
        "ϵ": "ε",
        "ɣ": "γ",
        "⟶": "→",
        "➜": "→",
        "⇒": "→",
    }
)
_POWER_OF_TEN = re.compile(r"(?<=\d)\s?\*\s?10\^(?:\{([+-]?\d{1,3})\}|([+-]?\d{1,3})(?!\d))")
_BULLET = re.compile(r"^\s{0,40}(?:[-*+•]\s+|>\s{0,2}|\d{1,3}[.)]\s+|#{1,6}\s+)")
_BOLD = re.compile(r"(?<![0-9)])\*\*|\*\*(?![0-9(.\-])")
_EN_DASH_MINUS = re.compile(r"(?<![0-9])–(?=\s?[0-9.A-Za-z])")


_NUMBER = r"[-+]?(?:\d{1,6}(?:\.\d{1,12})?|\.\d{1,12})(?![\d%A-Za-z])"
_VERB = re.compile(
    r"(?<![A-Za-z])((?:[AVRGQrδρ]_?\{?\d{1,4}\}?|[AVRG]\(s_\{?\d{1,4}\}?\)|[a-z_]{3,20}\[\d{1,4}\]))\s{0,2}"
    r"(?:(?:is|was|equals|becomes|gives|(?:comes|works|turns)(?: out)? (?:as|at|to be|to))(?: about| roughly| only)?"
    r"|约?等于|大?约[为是]?|[是为]|变[为成]|算出来是)\s{0,2}(?=[-+]?\.?\d)"
)
_BARE_LIST = re.compile(
    rf"(?<![\w.\[(]){_NUMBER}(?:(?:,\s|，|、|,(?=[-.\d]*\.)){_NUMBER}){{1,200}}"
    rf"(?:,?\s(?:and\s)?{_NUMBER}|[和与]{_NUMBER}|(?:,\s|，|、){_NUMBER})(?![\w\])=+*/^]|\s?[=+*/^≈])"
)
_LIST_END = re.compile(r"[，、]|,?\s(?:and\s)?(?=[-+.\d])|[和与]")
_SETTING_END = re.compile(r"(?:[γλβεt]|gamma|lambda|lam|beta|steps?|tokens?|token \d*)\s{0,2}[=:为是]?\s{0,2}$", re.I)
_COMMENTED = re.compile(r"(?<=[0-9)\]])\s{1,80}#\s{0,4}(?=[=≈])")


@lru_cache(maxsize=4096)
def plain(line: str) -> str:
    """The line with its formulae as plain arithmetic; prose stays as it is."""
    if line.isascii() and not any(mark in line for mark in "\\*`$<|\t"):
        return _worded(_BULLET.sub("", line))
    line = _BULLET.sub("", line, count=1)
    line = _SUBSCRIPT.sub(lambda m: "_{" + "".join(_SUBSCRIPTS[c] for c in m[0]) + "}", line)
    line = _SUPERSCRIPT.sub(lambda m: "^{" + "".join(_SUPERSCRIPTS[c] for c in m[0]) + "}", line)
    line = _EN_DASH_MINUS.sub("-", line)
    if "<" in line:
        line = _HTML.sub(" ", _HTML_SUBSCRIPT.sub(r"_{\1}", line))
    if "\\" in line:
        line = _without_latex(line)
    line = line.translate(_CHARACTERS)
    line = _POWER_OF_TEN.sub(lambda m: "e" + (m[1] or m[2]), line)
    return _worded(_BOLD.sub(" ", line))


def _worded(line: str) -> str:
    """What words say of numbers, as signs: `A_3 is 0.57` → `A_3 ≈ 0.57`, `rewards 0, 0, 1` → `rewards [0, 0, 1]`."""
    if "#" in line:
        line = _COMMENTED.sub(" ", line)
    line = _VERB.sub(r"\1 ≈ ", line)
    if line.count(",") + line.count("，") + line.count("、") < 2:
        return line
    return _BARE_LIST.sub(_bracketed, line)


def _bracketed(match: re.Match[str]) -> str:
    """A bare list in brackets, if the words in front of it name something of ours."""
    before = match.string[max(0, match.start() - 28) : match.start()]
    inside = match.string.count("[", 0, match.start()) > match.string.count("]", 0, match.start())
    name = re.split(r"[0-9\[\](),，。;；]", before)[-1]
    if inside or not label_kinds(name) or _SETTING_END.search(name):
        return match[0]
    return "[" + _LIST_END.sub(", ", match[0]) + "]"


def _without_latex(line: str) -> str:
    line = line.replace("\\_", "_").replace("\\%", "%").replace("\\\\", " ; ").replace("&", " ")
    for _ in range(3):
        line = _BARE_HAT.sub("", _WRAPPED.sub(r"\1", line))
        line = _ROOT.sub(r"sqrt(\1)", _FRACTION.sub(r"((\1)/(\2))", line))
    for mark in ("\\[", "\\]", "\\(", "\\)", "\\,", "\\;", "\\:", "\\!", "\\ "):
        line = line.replace(mark, " ")
    line = line.replace("\\{", "{").replace("\\}", "}")
    return _COMMAND.sub(lambda m: _COMMANDS.get(m[1], " "), line)
