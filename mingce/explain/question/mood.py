"""Whether a text asks or states: what is open, what wants a yes or no, what is said."""

from __future__ import annotations

import re

_OPEN = re.compile(
    r"什么|怎么|怎样|如何|为何|为啥|咋|啥|哪|干嘛|多少|多大|多久|合适|谁|几(?:次|个|种|步|条|遍|轮)|还是(?!要|会|得|需|有|能|没)"
    r"|[,;]\s*(?:is|are|does|do|can|could|should|will|would|how|why|what|who|where) (?!not\b)"
    r"|(?:^|[.!?]\s*)(?:please |so,? |and |but |ok,? |then |well,? |wait,? )*(?:what|how|why|which|who|whom|where|"
    r"explain|give|show|compare|tell|let|describe|list|compute|set|use|try|draw|plot|walk)\b"
    r"|\b(?:what|how|why|which|where|when)\b[^.!]*\?|\bwhat['’]?s\b"
    r"|\b(?:tell|show|explain|know|wonder\w*|ask\w*|see)(?: me| us)? (?:what|how|why|which|whether|if|the)\b",
    re.IGNORECASE,
)
_WHETHER = re.compile(
    r"[吗么][？?。\s]*$|([一-鿿])[不没]\1|需不需要|可不可以|是否"
    r"|^\W*(?:so |and |but |then |ok |wait,? )*"
    r"(?:is|are|does|do|did|was|were|can|could|should|will|would|has|have|must)(?:n['’]?t)?\b",
    re.IGNORECASE,
)


def is_open(text: str) -> bool:
    """Whether it asks what, how or why: no yes or no answers it."""
    return _OPEN.search(text) is not None


def asks_whether(text: str) -> bool:
    """Whether it is a question for yes or no."""
    return _WHETHER.search(text) is not None and not is_open(text)


def asserts(text: str) -> bool:
    """Whether a text states something: it asks neither what nor whether."""
    return not (_OPEN.search(text) or _WHETHER.search(text) or re.search(r"[?？呢]", text))
