"""Numbers as people read them, for everything that is printed; the page's numbers.ts rounds by the same rule.

Rounding: to three decimals more than are shown first, then half away from zero, as one rounds by hand. What differs by
less than float32 can hold reads the same wherever it was computed: 0.50525 is 0.5053 though its float64 lies below the
tie and its float32 above.
"""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Context, Decimal

_EXACT = Context(prec=400, rounding=ROUND_HALF_UP)
_SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
MISSING = "—"


def rounded(x: float, decimals: int = 4) -> str:
    """So many decimals by the rule above, never −0, with a hyphen for a minus: `-0.5053`."""
    fine = Decimal(x).quantize(Decimal(1).scaleb(-decimals - 3), context=_EXACT)
    text = f"{fine.quantize(Decimal(1).scaleb(-decimals), context=_EXACT):f}"
    return text.lstrip("-") if not text.strip("-0.") else text


def number(value: float | None, *, powers: bool = True) -> str:
    """Up to four decimals and a true minus sign; with `powers` what is below 0.001 has a power of ten."""
    if value is None:
        return MISSING
    if isinstance(value, int) or not math.isfinite(value):
        return str(value).replace("-", "−")
    if powers and 0 < abs(value) < 0.001:
        digits, power = f"{value:.2e}".split("e")
        return f"{digits.replace('-', '−')}×10{str(int(power)).translate(_SUPERSCRIPTS)}"
    return rounded(value).rstrip("0").rstrip(".").replace("-", "−")


def figure(x: float) -> str:
    """A number in at most eight characters: `0.0031`, `0.710`, `8.10`, `4,312`, `-1.2e+09`."""
    if not math.isfinite(x) or x == 0:
        return f"{x + 0.0:g}"
    size = abs(x)
    if size >= 1e6 or 0 < size < 1e-4:
        return f"{x:.1e}"
    if size >= 1000:
        return f"{x:,.0f}"
    return rounded(x, 4 if size < 0.1 else 3 if size < 1 else 2 if size < 10 else 1)


def percent(share: float) -> str:
    """`96.8%`; a figure that is not a number stays what it is."""
    return f"{rounded(100 * share, 1)}%" if math.isfinite(share) else str(share)


def significant(value: float) -> str:
    """Three significant figures, without an exponent and without zeros that say nothing."""
    if value == 0:
        return "0"
    text = rounded(value, max(0, 2 - math.floor(math.log10(abs(value)))))
    return text.rstrip("0").rstrip(".") if "." in text else text


def show_bytes(count: float) -> str:
    """Three figures and a unit: `14.2 GB`."""
    return _by_thousands(count, (" B", " kB", " MB", " GB", " TB"))


def show_count(count: float) -> str:
    """`7.62 B`, `145 k`: parameters and tokens."""
    return _by_thousands(count, ("", " k", " M", " B", " T"))


def show_seconds(seconds: float) -> str:
    """`3.2 ms`, `41 s`, `12 min`, `3.4 h`: the unit in which it is easiest to grasp."""
    for limit, factor, unit in ((1.0, 1e3, "ms"), (600.0, 1.0, "s"), (7200.0, 1 / 60, "min")):
        if seconds < limit:
            return f"{significant(seconds * factor)} {unit}"
    return f"{significant(seconds / 3600)} h"


def _by_thousands(count: float, units: tuple[str, ...]) -> str:
    """In the first unit that leaves less than a thousand, or the last."""
    for unit in units[:-1]:
        if count < 999.5:
            return f"{significant(count)}{unit}"
        count /= 1000
    return f"{significant(count)}{units[-1]}"
