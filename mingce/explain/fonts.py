"""A font with Chinese glyphs among those installed. matplotlib's own list may be older than the fonts, so if it has
none the font files are looked through by name.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

FAMILIES = (
    "Noto Sans CJK SC", "Source Han Sans SC", "Noto Sans SC", "PingFang SC", "Hiragino Sans GB", "Microsoft YaHei",
    "WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "SimHei", "Heiti SC", "STHeiti", "DengXian", "Noto Sans CJK JP",
    "Noto Sans CJK TC", "Source Han Sans CN", "Arial Unicode MS", "Droid Sans Fallback", "Noto Serif CJK SC", "SimSun",
)  # fmt: skip
"""The better to read at small sizes, the earlier."""
_FILES = (
    "notosanscjk", "notosanssc", "sourcehansans", "pingfang", "hiragino", "msyh", "wqy", "simhei", "heiti", "deng",
    "arialuni", "arial unicode", "droidsansfallback", "notoserifcjk", "simsun",
)  # fmt: skip


@cache
def chinese_family() -> str | None:
    """The family's name, known to matplotlib from here on; None if this machine has none."""
    from matplotlib import font_manager

    known = _known()
    if known is None:
        for file in sorted(font_manager.findSystemFonts()):
            if any(name in Path(file).name.lower() for name in _FILES):
                try:
                    font_manager.fontManager.addfont(file)
                except (OSError, RuntimeError):  # a font that cannot be read is as good as none
                    continue
        known = _known()
    return known


def _known() -> str | None:
    from matplotlib import font_manager

    names = {font.name for font in font_manager.fontManager.ttflist}
    return next((family for family in FAMILIES if family in names), None)
