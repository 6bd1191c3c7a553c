"""The kinds of KL of one sampled token, with x = log π − log π_ref of the chosen token.

A new kind is an entry here and its tensor function in `mingce.algorithms.kl`. A name ending in + (k1+, k3+) has its own
value and k2's gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mingce.base.errors import UnknownNameError

FULL = "full"
"""The KL over the whole vocabulary, which needs every logit of both models."""


@dataclass(frozen=True)
class KLKind:
    """One estimate of the KL; `aliases` are verl's names.

    `twin` takes a float or a NumPy array. `as_loss`: its gradient depends on the reference. `verl_clamp`: verl limits
    it to ± this. `linear`: it grows with |x| and not with its square.
    """

    name: str
    aliases: tuple[str, ...]
    formula: str
    zh: str
    en: str
    twin: Callable[[Any], Any]
    as_loss: bool = True
    verl_clamp: float | None = None
    linear: bool = False


_TABLE = (
    KLKind(
        "k1",
        ("kl",),
        "x",
        "无偏，单个 token 可为负",
        "unbiased; a single token may be negative",
        lambda x: x,
        as_loss=False,
        linear=True,
    ),
    KLKind("abs", (), "|x|", "绝对值", "its absolute value", abs, linear=True),
    KLKind("k2", ("mse",), "½x²", "梯度等于真实 KL 的梯度", "its gradient is that of the true KL", lambda x: x * x / 2),
    KLKind(
        "k3",
        ("low_var_kl",),
        "e^{−x} − 1 + x",
        "无偏且不为负",
        "unbiased, never negative",
        lambda x: math.e**-x - 1 + x,
        verl_clamp=10.0,
    ),
)
KL_KINDS = {kind.name: kind for kind in _TABLE}
_BY_ALIAS = {alias: kind for kind in KL_KINDS.values() for alias in (kind.name, *kind.aliases)}
KL_NAMES = (*KL_KINDS, *(alias for kind in KL_KINDS.values() for alias in kind.aliases), FULL)
"""Every name a setting may have, without its +."""


def kl_name(name: object) -> str:
    """The plain name of a kind that may be called by an alias; "" for one that is not known."""
    kind = _BY_ALIAS.get(str(name).removesuffix("+"))
    return "" if kind is None else kind.name


def find_kl(name: str) -> KLKind:
    """The kind of that name or alias, with or without a +."""
    kind = _BY_ALIAS.get(name.removesuffix("+"))
    if kind is None:
        raise UnknownNameError("kl_penalty", name, KL_NAMES)
    return kind


def kl_penalty(logprob: float, ref_logprob: float, kl_penalty: str = "k1", clamp: float | None = None) -> float:
    """The named estimate for one token."""
    return limited(float(find_kl(kl_penalty).twin(logprob - ref_logprob)), clamp)


def limited(value: float, clamp: float | None) -> float:
    """Within ± clamp."""
    return value if clamp is None else min(max(value, -clamp), clamp)
