"""A text as the words of an equation: LaTeX, sub- and superscripts, Chinese and English read into one notation."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mingce.explain.equations.names import CHINESE

LONGEST = 2000
"""So many characters of a text are read."""
_SUB = "₀₁₂₃₄₅₆₇₈₉₊₋ₜₖₗₙᵢⱼₜ"
_SUB_PLAIN = "0123456789+-tklnijt"
_SUPER = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ᵗᵏˡⁿ"
_SUPER_PLAIN = "0123456789+-tkln"
_LATEX = {
    "delta": "δ", "gamma": "γ", "lambda": "λ", "beta": "β", "epsilon": "ε", "varepsilon": "ε", "pi": "π", "rho": "ρ",
    "theta": "θ", "mu": "μ", "sigma": "σ", "sum": "Σ", "cdot": "*", "times": "*", "ldots": "…", "cdots": "…",
    "dots": "…", "infty": "∞", "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥", "ne": "≠", "neq": "≠", "approx": "≈",
    "mid": "|", "prime": "'", "log": " log ", "ln": " log ", "exp": " exp ", "min": " min ", "max": " max ",
    "sqrt": " sqrt ", "quad": " ", "qquad": " ", "left": "", "right": "", "big": "", "Big": "", "bigl": "",
    "bigr": "", "Bigl": "", "Bigr": "", "limits": "", "displaystyle": "", "equiv": "=", "triangleq": "=",
    "coloneqq": "=", "lvert": "|", "rvert": "|",
}  # fmt: skip
_WRAPPERS = re.compile(
    r"\\(?:text|mathrm|operatorname|mathbf|mathit|mathsf|textbf|boldsymbol|mathcal|mathbb)\s*\{([^{}]{0,40})\}"
)
_HAT = re.compile(r"\\(?:hat|widehat|tilde|bar)\s*\{?\s*([A-Za-z])\s*\}?")
_FRACTION = re.compile(r"\\[dt]?frac\s*(?=\{)")
_COMMAND = re.compile(r"\\([A-Za-z]+)")
_PLAIN = str.maketrans(
    "（）［］｛｝，＝＋－＊／＜＞．：；＇’′∗⋅·×÷−–—≦≧∑ϵƐ＿｜？！", "()[]{},=+-*/<>.:;'''****/---≤≥Σεε_|?!"
)
_PHRASES = (
    (r"(?i)\b(?:objective|policy|val|actor|critic|train|metrics|rollout)/[a-z]\w*(?:/\w+)*", " § "),  # metrics' names
    (r"是不是等于|是否等于|等不等于", " = "),
    (r"从\s*t\s*(?:开始|起)(?:往后|以后)?的?", " "),
    (r"(?:discounted sum of (?:all |the |future )*rewards|sum of (?:all |the )?discounted (?:future )?rewards)", " G "),
    (r"折扣(?:后)?的?奖励(?:之和|的?总和|的和|求和)|奖励的折扣(?:之)?和|折扣累[积计]奖励", " G "),
    (r"\b(?:is|are)\s+(?:always\s+)?(?:equal|equivalent|identical)\s+to\b|\bequals?\b|\bis\s+the\s+same\s+as\b", " = "),
    (r"大于等于|不小于|\b(?:at least|greater than or equal to|no less than)\b", " ≥ "),
    (r"小于等于|不大于|\b(?:at most|less than or equal to|no more than)\b", " ≤ "),
    (r"不等于|\b(?:is not equal to|does not equal)\b", " ≠ "),
    (
        r"(?:永远|总是|一定|恒)?(?:大于|(?<![\u4e00-\u9fff])比.{0,0}大)|\b(?:is )?(?:greater|larger|bigger) than\b",
        " > ",
    ),
    (r"(?:永远|总是|一定|恒)?小于|\b(?:is )?(?:less|smaller) than\b", " < "),
    (r"约等于|大约是|\bapproximately equals?\b", " ≈ "),
    (r"(?:恒|总是|永远|就|正好|刚好)?等于|就是|即为", " = "),
    (r"\bplus\b|加上|(?<![\u4e00-\u9fff])加|(?<=[\u4e00-\u9fff\d\w])\s*加\s*(?=[\u4e00-\u9fffA-Za-zα-ω\d])", " + "),
    (r"\bminus\b|减去|减", " - "),
    (r"\btimes\b|\bmultiplied by\b|乘以|乘上|乘", " * "),
    (r"\bdivided by\b|除以", " / "),
    (r"(?:torch|np|numpy|math|jnp|tf|F)\.(?=\w)", " "),
    (r"\b(?:clamp|clip_by_value)\b", "clip"),
    (r":=|==|≡|≔", " = "),
    (r"!=|<>", " ≠ "),
    (r"<=", " ≤ "),
    (r">=", " ≥ "),
    (r"\.{3,}|…+|⋯+|\.\.\s", " … "),
    (r"\bTD[\s-]*(?=误差|残差)", "TD"),
    (r"\bKL\s+(?=散度|惩罚)", "KL"),
    (r"\bMonte[\s-]*Carlo returns?\b|\bMC returns?\b", " G "),
    (r"\bTD[\s_-]+(errors?|residuals?)\b", r"td\1"),
    (r"\b(?:whitened|normali[sz]ed)[\s_-]+(?:advantages?|A)\b", " whitened "),
    (r"\b(policy|value|actor|critic)[\s-]+loss\b", r"\1_loss"),
    (r"\b(old|new|ref)[\s_-]+log[\s_-]?(?:probs?|p)\b", r"\1logprobs"),
    (r"\blog\s*pi_(old|ref|new|theta)\b", r"logpi\1"),
    (r"\bnext\s+values?\b", "nextvalue"),
)
_METHOD = re.compile(
    r"(?:(?<=[\w)\]])\.(exp|log|abs|sqrt|square|float|double|clone|cpu|contiguous)|(?<=\w)\.(detach))\(\s*\)"
)
_ALIKE = frozenset({"detach", "float", "double", "clone", "cpu", "contiguous"})
"""Methods that leave the numbers as they are; a whole formula that is detached is another matter."""
_OPERAND = re.compile(r"[\w.]*$")
_TABLE = tuple((re.compile(pattern), put) for pattern, put in _PHRASES)
_TOKEN = re.compile(
    r"(?P<num>(?:\d{1,15}(?:\.\d{1,15})?|\.\d{1,15})(?:[eE][-+]?\d{1,3}(?![A-Za-z_]))?%?|½)"
    r"|(?P<post>(?:的)?(?:总和|累加和|累加)|之和|的和|求和)"
    rf"|(?P<zh>{'|'.join(map(re.escape, CHINESE))})"
    r"|(?P<weak>是|为|\b(?:is|was|are)\b)"
    r"|(?P<skip>所有的?|全部的?|未来的?|之后的?|以后的?|后面的?|后续的?|每步的?|\b(?:all|the|future|following|subsequent|later|of)\b)"
    r"|(?P<greek>[α-ωϑΑ-ΡΤ-Ω])"
    r"|(?P<sum>Σ)"
    r"|(?P<name>[A-ZÂa-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)*)"
    r"|(?P<rel>[=<>≤≥≠≈])"
    r"|(?P<op>[-+*/^_'])"
    r"|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<bar>\|)|(?P<comma>,)|(?P<dots>…)|(?P<inf>∞)"
    r"|(?P<space>\s+)|(?P<word>.)",
    re.DOTALL,
)


@dataclass(frozen=True)
class Token:
    """A piece of the text; `kind` is the name of its pattern, `start` and `end` its place in the plain text."""

    kind: str
    text: str
    start: int
    end: int


def plain(text: str) -> str:
    """The text in one notation: no LaTeX, no sub- or superscripts, no full-width signs, words for operators read."""
    text = text[:LONGEST].replace("\n", " ; ")
    if "\\" in text or "$" in text:
        text = _without_latex(text)
    text = _scripts(text, _SUB, _SUB_PLAIN, "_")
    text = _scripts(text, _SUPER, _SUPER_PLAIN, "^")
    text = text.translate(_PLAIN).replace("√", " sqrt ").replace("**", "^")
    text = _methods(text)
    for pattern, put in _TABLE:
        text = pattern.sub(put, text)
    return text


def _methods(text: str) -> str:
    """`(new - old).exp()` as `exp(new - old)`: methods of code as functions of what they are called on."""
    while (found := _METHOD.search(text)) is not None:
        start, name = _operand(text, found.start()), found[1] or found[2]
        operand = text[start : found.start()]
        if name not in _ALIKE:
            operand = f"(({operand})^2)" if name == "square" else f"{name}({operand})"
        text = text[:start] + operand + text[found.end() :]
    return text


def _operand(text: str, end: int) -> int:
    """Where that begins which a method is called on: a name, with its brackets, or a bracket alone."""
    while end and text[end - 1] in ")]":
        depth, k = 0, end
        while k:
            k -= 1
            depth += (text[k] in ")]") - (text[k] in "([")
            if depth == 0:
                break
        end = k
    found = _OPERAND.search(text[:end])
    return end if found is None else found.start()


def _without_latex(text: str) -> str:
    text = text.replace("$", " ").replace("\\(", " ").replace("\\)", " ").replace("\\[", " ").replace("\\]", " ")
    text = re.sub(r"\\[,;:! ]", " ", text)
    text = _HAT.sub(lambda found: " Â" if found[1] == "A" else f" {found[1]}", text)
    text = _WRAPPERS.sub(r"\1", text)
    for _ in range(12):
        found = _FRACTION.search(text)
        if found is None:
            break
        text = _written_out(text, found.start(), found.end())
    text = text.replace("\\{", "(").replace("\\}", ")")
    return _COMMAND.sub(lambda found: _LATEX.get(found[1], found[1]), text)


def _written_out(text: str, start: int, brace: int) -> str:
    """The fraction whose first brace stands there as ((a)/(b))."""
    middle = _closing(text, brace)
    second = middle + 1
    while second < len(text) and text[second] == " ":
        second += 1
    end = _closing(text, second)
    if end >= len(text) or text[second : second + 1] != "{":
        return text[:start] + " " + text[brace:]
    return f"{text[:start]}(({text[brace + 1 : middle]})/({text[second + 1 : end]})){text[end + 1 :]}"


def _closing(text: str, brace: int) -> int:
    """Where the brace that opens there closes; the text's end where it does not."""
    depth = 0
    for k in range(brace, len(text)):
        depth += (text[k] == "{") - (text[k] == "}")
        if depth == 0:
            return k
    return len(text)


def _scripts(text: str, signs: str, letters: str, mark: str) -> str:
    table = str.maketrans(signs, letters)
    return re.sub(f"[{signs}]+", lambda found: f"{mark}{{{found[0].translate(table)}}}", text)


def tokens(text: str) -> list[Token]:
    """The words of a text in plain notation, spaces left out."""
    found = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "word"
        if kind not in ("space", "skip"):
            found.append(Token(kind, match[0], match.start(), match.end()))
    return found
