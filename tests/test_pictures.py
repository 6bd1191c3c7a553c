"""The pictures of `mingce explain`: made in every format, with their tokens as text and no glyph missing."""

from __future__ import annotations

import random
import re
import warnings
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from mingce.base.errors import MingceError
from mingce.base.numbers import number
from mingce.explain import fonts, picture_style
from mingce.explain.example import Rollout, changed, completed, typed, worked
from mingce.explain.lambda_picture import draw_lambda
from mingce.explain.pictures import Shown, credit_panel, draw_account
from mingce.explain.simulation import simulated

HAS_CHINESE = pytest.mark.skipif(fonts.chinese_family() is None, reason="this machine has no font with Chinese glyphs")


def svg_texts(path: Path) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text(encoding="utf-8"))


def with_hole() -> Rollout:
    """Five tokens, the third a tool's, a negative δ among them, cut and continued."""
    rollout = typed({"rewards": [0] * 5, "values": [0] * 5}, tokens=["the", " cat", "⟨tool⟩", "是", "$2$"], after=0.4)
    columns: dict[str, list[Any]] = {
        "response_mask": [1, 1, 0, 1, 1],
        "rewards": [0.0, -0.2, None, 0.1, 0.5],
        "values": [0.6, 0.1, None, 0.7, 0.3],
    }
    return completed(replace(rollout, columns=columns))


@HAS_CHINESE
@pytest.mark.parametrize("lang", ["zh", "en"])
def test_tokens_stand_on_the_axis_as_text_and_no_glyph_is_missing(lang: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert draw_account(worked(), tmp_path / "account.svg", lang) == []
        assert draw_lambda(worked(), tmp_path / "lambda.svg", lang) == []
    texts = svg_texts(tmp_path / "account.svg")
    for token in ("是", "的", "，", "等于", "2", "！"):
        assert token in texts
    words = " ".join(texts)
    assert ("价值" in words, "value" in words) == ((True, False) if lang == "zh" else (False, True))
    assert ("方差" if lang == "zh" else "variance") in svg_texts(tmp_path / "lambda.svg")


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_every_format_is_written_and_the_same_twice(suffix: str, tmp_path: Path) -> None:
    for draw in (draw_account, draw_lambda):
        draw(worked(), tmp_path / f"a{suffix}", "en")
        content = (tmp_path / f"a{suffix}").read_bytes()
        start = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix]
        assert content.startswith(start)
        assert len(content) > 5000
        if suffix != ".pdf":  # which holds the time
            draw(worked(), tmp_path / f"b{suffix}", "en")
            assert (tmp_path / f"b{suffix}").read_bytes() == content


def test_without_a_chinese_font_one_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_style, "chinese_family", lambda: None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (remark,) = draw_account(worked(), tmp_path / "account.png", "en")
    assert "install one such as Noto Sans CJK" in remark
    assert "是" in remark
    assert "\n" not in remark
    assert (tmp_path / "account.png").exists()


def arrows(rollout: Rollout) -> dict[tuple[int, int], tuple[float, str]]:
    """(later, earlier) → how thick, and which way its colour leans."""
    ax = Figure().subplots()
    credit_panel(ax, Shown(rollout), "en")
    found = {}
    for patch in ax.patches:
        if isinstance(patch, FancyArrowPatch):
            vertices = patch._path_original.vertices  # type: ignore[attr-defined]
            later, earlier = round(float(vertices[0][0])), round(float(vertices[-1][0]))
            red, _, blue = (int(to_hex(patch.get_edgecolor())[k : k + 2], 16) for k in (1, 3, 5))
            found[later, earlier] = float(patch.get_linewidth()), "blue" if blue > red else "orange"
    return found


def test_arrows_are_as_thick_as_what_a_later_surprise_pays() -> None:
    rollout = typed({"rewards": [0, 0, 1], "values": [0.3, 0.4, 0.6]}, gamma=0.9, lam=0.5)
    found, deltas = arrows(rollout), rollout.columns["deltas"]
    paid = {(later, earlier): 0.45 ** (later - earlier) * deltas[later] for later, earlier in ((1, 0), (2, 0), (2, 1))}
    assert found.keys() == paid.keys()
    assert sorted(found, key=lambda pair: found[pair][0]) == sorted(paid, key=lambda pair: abs(paid[pair]))
    largest = max(map(abs, paid.values()))
    for pair, (thick, colour) in found.items():
        assert thick == pytest.approx(0.8 + 2.6 * abs(paid[pair]) / largest)
        assert colour == ("blue" if paid[pair] > 0 else "orange")


def test_arrows_step_over_holes_and_stop_where_the_estimator_does() -> None:
    assert arrows(with_hole()).keys() == {(1, 0), (3, 0), (3, 1), (4, 0), (4, 1), (4, 3)}
    assert arrows(changed(worked(), estimator="td0")) == {}
    steps = arrows(changed(worked(), estimator="n_step", n=2))
    assert steps.keys() == {(t + 1, t) for t in range(5)}


@HAS_CHINESE
def test_holes_long_responses_and_dollar_signs_are_drawn(tmp_path: Path) -> None:
    assert draw_account(with_hole(), tmp_path / "hole.svg", "en") == []
    texts = svg_texts(tmp_path / "hole.svg")
    assert {"the", "␣cat", "⟨tool⟩", "是", "$2$"} <= set(texts)
    long = typed({"rewards": [0.1] * 500, "values": [0.2] * 500}, tokens=["是"] * 500)
    (remark,) = draw_account(long, tmp_path / "long.png", "zh")
    assert "380" in remark


# ── nothing lies on anything ─────────────────────────────────────────────────────────────────────────────────────────


def pictured(kind: str) -> Rollout:
    """Rollouts that are hard to lay out."""
    chance = random.Random(kind)
    words = (" understanding", "internationalisation", "是", "等于等于等于", "<|endoftext|>", "2", " the", "$x$")
    if kind == "worked":
        return worked()
    if kind == "rewards above 0":  # their bars end at the panel's edge
        return typed({"rewards": [0.0, 0.25, 1.0], "values": [0.1, 0.2, 0.3]}, tokens=["等于", "是", "2"])
    if kind == "all the same":
        return typed({"rewards": [0.5] * 5, "values": [0.0] * 5}, lam=1.0, tokens=["是"] * 5)
    if kind == "equal values and returns":
        return typed({"rewards": [0, 0, 0, 1], "values": [1, 1, 1, 1.0]}, tokens=list("是的等于"))
    if kind == "large and small":
        return typed({"rewards": [-123456.789, 1e-7, 98765.4321, -1e12], "values": [1e9, -2.5e-5, 0.0001, 54321.0987]})
    if kind == "a long prompt":
        return replace(worked(), prompt="请问三百六十五乘以二十四等于多少？" * 5)
    if kind == "hole":
        return with_hole()
    if kind == "rewards alone":
        return typed({"rewards": [0, -0.5, 1.0]})
    if kind == "one":
        return typed({"rewards": [1.0], "values": [0.2]}, tokens=["internationalisation"], after=0.5)
    count = int(kind)
    rewards, values = ([chance.uniform(-1, 1) for _ in range(count)] for _ in range(2))
    return typed({"rewards": rewards, "values": values}, tokens=[chance.choice(words) for _ in range(count)])


def drawn_texts(rollout: Rollout, path: Path, lang: str, monkeypatch: pytest.MonkeyPatch) -> dict[Any, Bbox]:
    """Every text that was drawn, with its box in pixels."""
    boxes: dict[Any, Bbox] = {}
    draw = Text.draw

    def noted(self: Text, renderer: Any, *others: Any, **more: Any) -> None:
        draw(self, renderer, *others, **more)
        if self.get_visible() and self.get_text().strip():
            boxes[self] = Text.get_window_extent(self, renderer)

    monkeypatch.setattr(Text, "draw", noted)
    draw_account(rollout, path, lang)
    return boxes


def png_size(path: Path) -> tuple[int, int]:
    """Width and height, which the header has."""
    header = path.read_bytes()[16:24]
    return int.from_bytes(header[:4], "big"), int.from_bytes(header[4:], "big")


@pytest.mark.parametrize("lang", ["zh", "en"])
@pytest.mark.parametrize(
    "kind",
    ["worked", "rewards above 0", "all the same", "equal values and returns", "large and small", "a long prompt",
     "hole", "rewards alone", "one", "6", "12", "13", "24", "25", "60", "120"],
)  # fmt: skip
def test_no_text_lies_on_another_or_outside(
    kind: str, lang: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boxes = drawn_texts(pictured(kind), tmp_path / "a.png", lang, monkeypatch)
    width, height = png_size(tmp_path / "a.png")
    assert len(boxes) > 8
    for text, box in boxes.items():
        assert min(box.x0, box.y0, width - box.x1, height - box.y1) > -1, text
    for (one, a), (other, b) in combinations(boxes.items(), 2):
        wide, high = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        assert wide < 1 or high < 1, (one, other)


def test_numbers_are_written_as_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {text.get_text() for text in drawn_texts(worked(), tmp_path / "a.png", "en", monkeypatch)}
    names = ("deltas", "values", "returns", "rewards", "advantages")
    assert {number(x) for name in names for x in worked().columns[name]} <= texts
    assert {"0.5053", "0.9553"} <= texts


def test_what_cannot_be_drawn_or_written_is_one_sentence(tmp_path: Path) -> None:
    bare = typed({"old_log_probs": [-0.1, -0.2]})
    with pytest.raises(MingceError, match="nothing to draw"):
        draw_account(bare, tmp_path / "x.png", "en")
    with pytest.raises(MingceError, match="needs rewards and values"):
        draw_lambda(bare, tmp_path / "x.png", "en")
    with pytest.raises(MingceError, match="cannot be written"):
        draw_account(worked(), tmp_path / "nowhere" / "x.png", "en")
    one = typed({"rewards": [1.0], "values": [0.2]})
    assert draw_account(one, tmp_path / "one.png", "en") == []
    assert draw_lambda(one, tmp_path / "one_lambda.png", "en") == []
    only = typed({"rewards": [0, 1.0]})
    assert draw_account(only, tmp_path / "rewards.png", "en") == []


def test_the_lambda_picture_is_of_the_simulation(tmp_path: Path) -> None:
    draw_lambda(worked(), tmp_path / "lambda.svg", "en")
    texts = " ".join(svg_texts(tmp_path / "lambda.svg"))
    assert f"{simulated(worked()).samples:,} samples" in texts
    assert "λ = 0.95" in texts
