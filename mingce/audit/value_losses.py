"""K12: the critic's loss and its mask."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mingce.audit.aggregation import Terms, Way, Words, masks, number, ways
from mingce.audit.aggregation import rounding as rounding_of
from mingce.audit.evidence import Bools, Evidence, Floats, finite, shift
from mingce.audit.finding import Check, Fault, Finding, Place
from mingce.audit.matching import NO_FIT, both, fitting, judge
from mingce.base.texts import sentence_pair

VALUE_CLIP = Fault.of("value-clip-idle", "bug", (45,), "vf_loss = ½·mean_m max((V' − R)², (clip(V', V ± ε) − R)²)")
VALUE_HALF = Fault.of("value-loss-doubled", "suspicious", (45, 47), "vf_loss = ½·mean_m (V' − R)²", "")
LARGER = 1.25  # times what the columns allow
VALUE_MASK = Fault.of("value-mask-shift", "bug", (19,), "vf_loss = mean over m_t of (V_t − R_t)²")


def value_loss(e: Evidence) -> Iterator[Finding]:
    """vf_loss against the squares of the columns, with and without the value clip."""
    new, old, target = e["new_values"], e["values"], e["returns"]
    if not e.mask.any():
        return
    seen, beside = masks(e), _beside(e)
    if "value_mask" in e.dump.columns:  # judged by value_mask
        kept = e.dump.columns["value_mask"].astype(bool)
        seen = {"loss": kept, **{name: mask for name, mask in seen.items() if name != "loss"}}
    clip = number(e, "value_clip")
    coarse = any(rounding_of(e, name) > 1e-4 for name in ("new_values", "returns"))
    with np.errstate(all="ignore"):
        plain = (new - target) ** 2
        rounding = (
            2
            * np.sqrt(plain)
            * (rounding_of(e, "new_values") * np.abs(new) + rounding_of(e, "returns") * np.abs(target))
        )
        matrices = {"plain": (sentence_pair("audit.plain_square"), plain)}
        for range_ in (clip,) if clip is not None else (0.2, 0.5):
            limited = (np.clip(new, old - range_, old + range_) - target) ** 2
            matrices[f"larger {range_}"] = (sentence_pair("audit.larger_square"), np.maximum(plain, limited))
            if clip is not None or not coarse:
                matrices |= _wrong_squares(new, target, plain, limited, range_, coarse)
    right = [name for name in matrices if name.startswith("larger") or (clip is None and name == "plain")]
    variants = {
        name: [(label, Terms(factor * matrix, factor * rounding, seen)) for factor in (0.5, 1.0)]
        for name, (label, matrix) in matrices.items()
    }
    options, found = ways(e, seen), e.dump.scalars["vf_loss"]
    meant = [variant for name in right for variant in variants[name]]
    plainly = [way for way in options if not way.classes]
    if not fitting(meant, plainly, found):
        idle = [v for name in matrices if name not in right for v in variants[name]]
        fits = fitting(idle, plainly, found)
        if fits:
            label, way = fits[0]
            expected = meant[0][1].number(way)
            place = (Place(None, None, expected, found),)
            others = {c for _, way in fitting(meant, options, found) for c in way.classes}
            yield Finding(VALUE_CLIP, "vf_loss", both(label), place, classes=tuple(sorted({45} | others)))
            return
    if "value_mask" not in e.dump.columns and not fitting(meant, plainly, found):
        for words, mask in beside.items():
            moved = [(label, Terms(terms.matrix, terms.error, {"loss": mask})) for label, terms in meant]
            total = int(mask.sum())
            if total and fitting(moved, [Way("token-mean", words, np.full(len(mask), 1.0 / total))], found):
                place = (Place(None, None, meant[0][1].number(plainly[0]), found),)
                yield Finding(VALUE_MASK, "vf_loss", both(words), place)
                return
    halves = [variant for name in right for variant in variants[name][:1]]
    if fitting(meant, plainly, found) and not fitting(halves, plainly, found):
        doubled = Place(None, None, halves[0][1].number(plainly[0]), found)
        yield Finding(VALUE_HALF, "vf_loss", {"found": found}, (doubled,))
        return
    said = list(judge(e, "vf_loss", meant, options, clip is not None))
    yield from said
    if not said and not fitting(meant, options, found) and _beyond(e, plainly, found):
        expected = meant[0][1].number(plainly[0])
        numbers = {"scalar": "vf_loss", "found": found, "expected": expected}
        yield Finding(NO_FIT, "vf_loss", numbers, (Place(None, None, expected, found),))


def _beyond(e: Evidence, plainly: list[Way], found: float) -> bool:
    """Whether it is larger than any pass from the old values to the new ones can have made it, ½ or not."""
    seen = masks(e)
    squares = [(finite(e[name]) - finite(e["returns"])) ** 2 for name in ("values", "new_values")]
    terms = [Terms(square, np.zeros_like(square), seen) for square in squares]
    named = [way for way in plainly if way.mode == e.settings.loss_agg_mode] or plainly
    means = [one.number(way) for one in terms for way in named if "sum" not in way.mode]
    return bool(means) and bool(np.isfinite(found)) and found > LARGER * max(means)


def _wrong_squares(
    new: Floats, target: Floats, plain: Floats, limited: Floats, clip: float, coarse: bool
) -> dict[str, tuple[Words, Floats]]:  # fmt: skip
    """Squares of a value clip that went wrong, by what went wrong."""
    made = {f"clipped {clip}": (sentence_pair("audit.clipped_square"), limited)}
    made[f"smaller {clip}"] = (sentence_pair("audit.smaller_square"), np.minimum(plain, limited))
    if coarse:  # rounding leaves room for chance
        return made
    around = {"zero": np.clip(new, -clip, clip), "returns": np.clip(new, target - clip, target + clip)}
    for name, near in around.items():
        words = sentence_pair(f"audit.square_around_{name}")
        made[f"{name} {clip}"] = (words, np.maximum(plain, (near - target) ** 2))
        made[f"only {name} {clip}"] = (words, (near - target) ** 2)
    return made


def value_mask(e: Evidence) -> Iterator[Finding]:
    """The critic's own mask: the policy's, or one slot beside it. TRL's keeps one slot more, which is not beside."""
    kept = e.dump.columns["value_mask"].astype(bool)
    for words, mask in _beside(e).items():
        if np.array_equal(kept, mask) and not np.array_equal(mask, e.mask):
            places = e.places(kept != e.mask, e.mask.astype(np.float64), kept.astype(np.float64))
            yield Finding(VALUE_MASK, "value_mask", both(words), places)


def _beside(e: Evidence) -> dict[Words, Bools]:
    """The response mask one slot to the left and to the right."""
    found = {
        sentence_pair("audit.mask_left"): shift(e.mask, 1),
        sentence_pair("audit.mask_right"): shift(e.mask, -1),
    }
    if e.dump.source != "trl":  # TRL keeps the slot after the end as well
        from_prompt = shift(e.mask, -1)
        from_prompt[:, 0] = True  # the whole row's mask, cut one slot early: it begins at the prompt's last token
        found[sentence_pair("audit.mask_from_prompt")] = from_prompt
    return found


CHECKS: tuple[Check, ...] = (
    Check.of("K12 value loss", ("vf_loss", "new_values", "values", "returns"), value_loss),
    Check.of("K12 value mask", ("value_mask",), value_mask),
)
