"""Finding code in a question, fenced, between backticks or as bare lines among prose, and its statements.

Everything is bounded: of a longer text the first 100 kB are read, brackets nest at most so deep, lines are counted.
"""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass

LONGEST, MOST_LINES, DEEPEST = 100_000, 400, 40
LONGEST_LINE, LONGEST_BARE = 2_000, 600
"""Of a marked line so much is read; a longer line that is not marked is prose."""
DEEPEST_TREE = 100
_PLAINLY = re.compile(r"```|\b(?:torch|np|numpy|F)\.[a-z_.]+\(")
_FENCE = re.compile(r"(?:```|~~~)[^\n`~]{0,80}\n(.*?)(?:```|~~~|\Z)", re.DOTALL)
_TICKS = re.compile(r"`([^`\n]{3,400})`")
_WIDE = str.maketrans("（）［］，：；＝＋－＊／", "()[],:;=+-*/")
_CHINESE = re.compile("[\u3000-\u303f\u4e00-\u9fff\uff01-\uff5e“”…]")
_CODE_START = re.compile(
    r"^\s*(?:for\s+\w+\s+in\b.*:|if\s.+:|else:|elif\s.+:|with\s.+:|def\s+\w+\(|return\b|class\s+\w+|"
    r"[A-Za-z_][\w.]*(?:\[[^\]=]*\])*(?:\s*,\s*[A-Za-z_][\w.]*)*\s*(?:[-+*/|&]?=)(?!=)|"
    r"[A-Za-z_][\w.]*(?:\[[^\n=]*\])?\.\w+\(|[A-Za-z_]\w*\[[^\]]*:[^\]]*\])"
)
_STRONG = re.compile(
    r"\b(?:torch|np|verl_F|F|math|core_algos)\.\w+\(|\w\[[^\]]*:[^\]]*\]|\.\w+\(|[A-Za-z_]\w*_\w+|\w\[\w[^\]]*\]|\*\*|"
    r"\b[a-z]\w*\s*[-+*/]\s*[a-z(]|\(.*\)"
)
_INLINE = re.compile(
    r"[A-Za-z_][\w.]*(?:\[[^\]\n]{1,120}\]|\([^()\n]{0,160}(?:\([^()\n]{0,120}\)[^()\n]{0,120}){0,4}\)|\.\w+)*"
    r"(?:\s*(?:[-+*/]|\*\*|=)\s*[-~(]*[A-Za-z_0-9.][\w.]*(?:\[[^\]\n]{1,120}\]|\([^()\n]{0,160}\)|\.\w+)*\)*)*"
)
_COMMENT = re.compile(r"\s#.*$|^#.*$")


@dataclass(frozen=True)
class Snippet:
    """Code found in a question: `code` line by line, `question` the prose around it, `fenced` if it was marked."""

    code: str
    question: str
    fenced: bool = False


def is_program(text: str) -> bool:
    """Whether a text plainly has code in it: then numbers in it are no numbers of an example."""
    return _PLAINLY.search(text) is not None


def read_snippet(text: str) -> Snippet | None:
    """The code in a question with the prose around it; None if there is none."""
    text = text[:LONGEST].replace("\r\n", "\n").replace("\t", "    ")
    fences = [one for one in _FENCE.finditer(text) if one[1].strip()]
    if fences:
        code = "\n".join(one[1].rstrip() for one in fences)
        return Snippet(_bounded(code), _prose(_FENCE.sub("\n", text)), fenced=True)
    ticks = [one[1].strip() for one in _TICKS.finditer(text) if _looks_like_code(one[1])]
    if ticks:
        return Snippet(_bounded("\n".join(ticks)), _prose(_TICKS.sub(" ", text)), fenced=True)
    return _bare(text)


def _prose(text: str) -> str:
    return " ".join(text.split())


def _bounded(code: str) -> str:
    return "\n".join(line[:LONGEST_LINE] for line in code.split("\n")[:MOST_LINES])


def _looks_like_code(text: str) -> bool:
    return not _CHINESE.search(text) and bool(_CODE_START.match(text) or _INLINE_STRONG.search(text))


_INLINE_STRONG = re.compile(r"\w\[[^\]]*[:\w][^\]]*\]|\w\([^)]*\)|\w\s*(?:=|\*|\+|-)\s*[\w(-]")


def _bare(text: str) -> Snippet | None:
    """Lines that are code among lines that are prose; code that starts or ends a line of prose."""
    code: list[str] = []
    prose: list[str] = []
    depth = 0
    for line in text.split("\n")[:MOST_LINES]:
        if depth > 0 and line.strip():
            taken, rest = _taken(line, inside=True)
        else:
            taken, rest = _taken(line)
        if taken:
            code.append(taken[:LONGEST_LINE])
            depth = max(0, depth + _opened(taken))
        if rest.strip():
            prose.append(rest.strip())
    if not any(line.strip() for line in code):
        return None
    return Snippet("\n".join(code), _prose(" ".join(prose)))


def _opened(line: str) -> int:
    line = _COMMENT.sub("", line)
    return sum(line.count(one) for one in "([{") - sum(line.count(one) for one in ")]}")


def _taken(line: str, inside: bool = False) -> tuple[str, str]:
    """The code of a line and what is left of it."""
    if len(line) > LONGEST_BARE:
        return "", line
    bare = _COMMENT.sub("", line)
    comment = line[len(bare) :]
    if inside and not _CHINESE.search(bare):
        return line, ""
    if not _CHINESE.search(bare) and _CODE_START.match(bare) and _is_code(bare):
        return _split_english(bare, comment)
    if re.fullmatch(r"\s*[)\]}]+,?\s*", bare):
        return line, ""
    first = _CHINESE.search(bare)
    if first and _is_statement(head := bare[: first.start()].rstrip()):
        return head, bare[first.start() :]
    found = [one for one in _INLINE.finditer(bare[:LONGEST_LINE]) if _is_inline_code(one[0])]
    if not found:
        return "", line
    best = max(found, key=lambda one: len(one[0]))
    head = bare[: best.start()]
    start = len(head) - len(head.lstrip()) if not head.strip() else 0
    piece = best[0].rstrip()
    return " " * start + piece, head + " " + bare[best.start() + len(piece) :]


_ENGLISH = re.compile(
    r"(?<=[^\s,;:?])[\s,;:?]+(?=(?:why|what|how|is (?:this|it|that)|explain|does|correct\?|right\?)\b).*$", re.I
)


def _split_english(bare: str, comment: str) -> tuple[str, str]:
    """`ratio = exp(a - b)  why exp?`: the words behind the code."""
    words = _ENGLISH.search(bare)
    if words and words.start() > 3:
        return bare[: words.start()], words[0].strip()
    return bare.rstrip("。？?！ "), ""


def _is_statement(line: str) -> bool:
    """Whether a line is whole Python by itself, and no name with prose behind it."""
    if not (_CODE_START.match(line) and _is_code(line)) or len(line) > LONGEST_BARE:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(line.strip())
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return True


def _is_code(line: str) -> bool:
    words = re.findall(r"[A-Za-z]{2,}", line)
    if re.search(r"\b(?:why|what|how|explain|the|does|please)\b", line, re.I) and not re.search(r"[=(\[]", line):
        return False
    if re.match(r"\s*if\s", line) and not line.rstrip().endswith(":"):
        return False
    return bool(words) and bool(_STRONG.search(line) or "=" in line or line.strip().endswith(":"))


def _is_inline_code(piece: str) -> bool:
    if len(piece) < 4 or not re.search(r"[\[(=*]|\s[-+/]\s", piece):
        return False
    if re.fullmatch(r"[A-Za-z]+\([^)]{0,12}\)", piece) and "_" not in piece:
        return False
    if re.fullmatch(r"[\w.]+\s*=\s*-?[\d.]+(?:e-?\d+)?", piece):  # γ-like settings belong to the request
        return False
    if re.fullmatch(r"[\d\s.+\-*/=()]*", piece) or re.fullmatch(r"[A-Za-z]\w{0,2}(?:[-+][\w]+)*", piece):
        return False
    return bool(
        re.search(r"[A-Za-z_]\w*\[[^\]]*\]|\b\w+\.\w+\(|[A-Za-z]\w*\([^)]*[A-Za-z][^)]*\)|=\s*\S+\s*[-+*/(]", piece)
        or (re.search(r"[-+*/]", piece) and re.search(r"[A-Za-z]\w*_\w+|\b(?:gamma|lam|ratio|delta|beta|eps)\b", piece))
    )


# ── statements ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Line:
    """One statement: its text, its tree, and the loop variable it stands under."""

    text: str
    node: ast.stmt
    loop: str | None = None
    depth: int = 0


def statements(code: str) -> list[Line]:
    """The statements of code that may be a part of something longer, in order; what does not parse is left out."""
    found: list[Line] = []
    for chunk in _chunks(code):
        tree = _parsed(chunk)
        if tree is not None:
            _collect(tree.body, chunk, found, None, 0)
    return found[:MOST_LINES]


def too_deep(code: str) -> bool:
    """Brackets nested deeper than anything a person writes, or a long run of signs: the parser is spared them."""
    depth = most = 0
    for sign in code:
        if sign in "([{":
            depth += 1
            most = max(most, depth)
        elif sign in ")]}":
            depth -= 1
    return most > DEEPEST or bool(re.search(r"(?:[-+~]\s*){60}|(?:\bnot\s+){60}|(?:\*\*\s*\w+\s*){60}", code))


def _parsed(code: str) -> ast.Module | None:
    code = _dedented(code.translate(_WIDE).replace("−", "-").replace("·", "*"))
    if too_deep(code):
        return None
    for text in (code, code.rstrip().rstrip(":").rstrip(",;") if not code.rstrip().endswith(":") else code + " pass"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the parser's advice on a stranger's code is not for our reader
                return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None


def _dedented(code: str) -> str:
    lines = [line for line in code.split("\n") if line.strip()]
    common = min((len(line) - len(line.lstrip()) for line in lines), default=0)
    return "\n".join(line[common:] for line in lines)


def _chunks(code: str) -> list[str]:
    """The whole if it parses; else as many lines at a time as parse, found by brackets and indents."""
    if _parsed(code) is not None:
        return [code]
    chunks: list[list[str]] = []
    depth = 0
    for line in code.split("\n"):
        if not line.strip():
            continue
        if depth > 0 and chunks:
            chunks[-1].append(line)
        else:
            chunks.append([line])
        depth = max(0, depth + _opened(line))
    return _joined(["\n".join(chunk) for chunk in chunks])


def _joined(chunks: list[str]) -> list[str]:
    """Loops with their bodies: a line that ends in a colon takes the deeper lines behind it."""
    found: list[str] = []
    k = 0
    while k < len(chunks):
        head = chunks[k]
        k += 1
        if _COMMENT.sub("", head).rstrip().endswith(":"):
            indent = len(head) - len(head.lstrip())
            body = []
            while k < len(chunks) and len(chunks[k]) - len(chunks[k].lstrip()) > indent:
                body.append(chunks[k])
                k += 1
            whole = "\n".join([head, *body])
            found += [whole] if _parsed(whole) is not None else [head, *body]
        else:
            found.append(head)
    return found


def _collect(body: list[ast.stmt], code: str, found: list[Line], loop: str | None, depth: int) -> None:
    if depth > 12:
        return
    source = _dedented(code.translate(_WIDE).replace("−", "-").replace("·", "*")).split("\n")
    _gather(body, source, found, loop, depth)


def _gather(body: list[ast.stmt], source: list[str], found: list[Line], loop: str | None, depth: int) -> None:
    for node in body:
        if isinstance(node, ast.Pass | ast.Import | ast.ImportFrom | ast.Assert | ast.Raise):
            continue
        if _depth(node) > DEEPEST_TREE:
            continue
        inner = loop
        if isinstance(node, ast.For):
            target = node.target
            inner = target.id if isinstance(target, ast.Name) else loop
            found.append(Line(_head(node, source), node, loop, depth))
        nested = [part for name in ("body", "orelse") for part in getattr(node, name, []) if isinstance(part, ast.stmt)]
        if nested:
            if depth < 12:
                _gather(nested, source, found, inner, depth + 1)
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        pairs = _pairs(node)
        found += [Line(ast.unparse(one), one, loop, depth) for one in pairs]
        if not pairs:
            found.append(Line(_text(node, source), node, loop, depth))


def _pairs(node: ast.stmt) -> list[ast.Assign]:
    """`a, b = x, y` as two statements."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.value, ast.Tuple):
        return []
    target = node.targets[0]
    if not isinstance(target, ast.Tuple) or len(target.elts) != len(node.value.elts):
        return []
    pairs = zip(target.elts, node.value.elts, strict=True)
    return [ast.copy_location(ast.Assign(targets=[one], value=value), node) for one, value in pairs]


def _depth(node: ast.AST) -> int:
    """How deep a tree is, counted without recursion."""
    level: list[ast.AST] = [node]
    depth = 0
    while level and depth <= DEEPEST_TREE:
        level = [inner for one in level for inner in ast.iter_child_nodes(one)]
        depth += 1
    return depth


def _head(node: ast.For, source: list[str]) -> str:
    return source[node.lineno - 1].strip() if node.lineno <= len(source) else "for"


def _text(node: ast.stmt, source: list[str]) -> str:
    """The statement in one line as it was written, without comments."""
    lines = source[node.lineno - 1 : node.end_lineno]
    text = " ".join(" ".join(_COMMENT.sub("", line) for line in lines).split())
    return re.sub(r"(?<=[(\[]) | (?=[)\]])|,(?= ?[)\]])", "", text) if len(lines) > 1 else text.rstrip(",;")
