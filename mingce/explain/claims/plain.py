"""A line of Markdown, LaTeX or code as plain arithmetic: `\\(\\delta_2 = 1 + 0 - 0.6\\)` → `δ_2 = 1 + 0 - 0.6`.

Every pattern here is bounded, so that a hostile line costs no more than a few passes over it.
"""

from __future__ import annotations

import re
from functools import lru_cache

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
_BULLET = re.compile(r"^\s{0,40}(?:[-*+•]\s+|>\s{0,2}|\d{1,3}[.)]\s+|#{1,6}\s+)")
_BOLD = re.compile(r"(?<![0-9)])\*\*|\*\*(?![0-9(.\-])")
_EN_DASH_MINUS = re.compile(r"(?<![0-9])–(?=\s?[0-9.A-Za-z])")


@lru_cache(maxsize=4096)
def plain(line: str) -> str:
    """The line with its formulae as plain arithmetic; prose stays as it is."""
    if line.isascii() and not any(mark in line for mark in "\\*`$<|\t"):
        return _BULLET.sub("", line)
    line = _BULLET.sub("", line, count=1)
    line = _SUBSCRIPT.sub(lambda m: "_{" + "".join(_SUBSCRIPTS[c] for c in m[0]) + "}", line)
    line = _SUPERSCRIPT.sub(lambda m: "^{" + "".join(_SUPERSCRIPTS[c] for c in m[0]) + "}", line)
    line = _EN_DASH_MINUS.sub("-", line)
    if "<" in line:
        line = _HTML.sub(" ", _HTML_SUBSCRIPT.sub(r"_{\1}", line))
    if "\\" in line:
        line = _without_latex(line)
    line = line.translate(_CHARACTERS)
    return _BOLD.sub(" ", line)


def _without_latex(line: str) -> str:
    line = line.replace("\\_", "_").replace("\\%", "%").replace("\\\\", " ; ").replace("&", " ")
    for _ in range(3):
        line = _BARE_HAT.sub("", _WRAPPED.sub(r"\1", line))
        line = _ROOT.sub(r"sqrt(\1)", _FRACTION.sub(r"((\1)/(\2))", line))
    for mark in ("\\[", "\\]", "\\(", "\\)", "\\,", "\\;", "\\:", "\\!", "\\ "):
        line = line.replace(mark, " ")
    line = line.replace("\\{", "{").replace("\\}", "}")
    return _COMMAND.sub(lambda m: _COMMANDS.get(m[1], " "), line)
