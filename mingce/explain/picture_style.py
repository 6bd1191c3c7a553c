"""How the pictures look: colours that colour-blind readers tell apart, a font with Chinese, what cannot be drawn."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mingce.base.errors import SettingError
from mingce.base.texts import sentence
from mingce.explain.fonts import chinese_family

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, PURPLE, SKY, INK, FAINT = (
    "#0072b2", "#d55e00", "#009e73", "#aa4499", "#56b4e9", "#20242a", "#6b7280",
)  # fmt: skip
_MISSING = re.compile(r"Glyph (\d+)")


@contextmanager
def style() -> Iterator[None]:
    """Large enough to be read at half size; text stays text in an SVG."""
    import matplotlib

    family = chinese_family()
    look: dict[Any, Any] = {
        "font.family": [family, "DejaVu Sans"] if family else ["DejaVu Sans"],
        "font.size": 13, "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": FAINT,
        "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": FAINT, "ytick.labelsize": 11, "text.color": INK,
        "legend.fontsize": 11, "svg.fonttype": "none", "svg.hashsalt": "mingce", "savefig.dpi": 160,
        "hatch.linewidth": 1.5,
    }  # fmt: skip
    with matplotlib.rc_context(look):
        yield


@contextmanager
def remarks(lang: str) -> Iterator[list[str]]:
    """What matplotlib warns of while it draws, as one sentence for a person."""
    told: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield told
    missing = {chr(int(found[1])) for one in caught if (found := _MISSING.search(str(one.message)))}
    if missing:
        signs = " ".join(sorted(missing)[:8])
        told.append(sentence("tutor.no_font", lang, signs=signs))


Width = Callable[[str, float], float]


def ruler(figure: Figure) -> Width:
    """How wide a text is at a font size, both in points, with the picture's fonts."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.font_manager import FontProperties

    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]

    @cache
    def width(text: str, size: float) -> float:
        wide: float = renderer.get_text_width_height_descent(text, FontProperties(size=size), False)[0]
        return wide * 72 / figure.dpi

    return width


def fitted(text: str, room: float, size: float, width: Width, lines: int = 1) -> list[str]:
    """The text in lines that fit the room; what even the last of them has no room for is …"""
    found: list[str] = []
    rest = text
    while rest:
        last = len(found) == lines - 1
        if width(rest, size) <= room:
            return [*found, rest]
        end = 1
        while end < len(rest) and width(rest[: end + 1] + ("…" if last else ""), size) <= room:
            end += 1
        if last:
            return [*found, rest[:end] + "…"]
        found.append(rest[:end])
        rest = rest[end:]
    return found


def plain(text: str) -> str:
    """A dollar sign as itself, not as the beginning of mathematics."""
    return text.replace("$", r"\$")


def save(figure: Figure, path: Path) -> None:
    """The same bytes for the same picture."""
    metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
    try:
        figure.savefig(path, metadata=metadata)
    except OSError as error:
        raise SettingError(f"{path} cannot be written: {error.strerror}.") from error
