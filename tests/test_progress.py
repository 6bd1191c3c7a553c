"""What watches are made of: words and figures, curves and bars, the coloured answer, the time that is left."""

from __future__ import annotations

import math
import string

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from progress_pages import METRICS, PHRASES, Ticking, rollouts
from rich.cells import cell_len
from rich.text import Text

from mingce.base.numbers import figure, percent
from mingce.ledger import Ledger
from mingce.progress.bars import progress_bar, split_bar, split_legend, stage_shares
from mingce.progress.base import Pace
from mingce.progress.curves import BLOCKS, CAPACITY, Curve, sparkline
from mingce.progress.text import STAGES, duration, padded
from mingce.progress.tokens import END, coloured, credit_style, fold, grouped, prompt_text, sampled_answer, visible

# ── words and figures ────────────────────────────────────────────────────────────────────────────────────────────────


def test_both_languages_have_every_phrase_with_the_same_places_to_fill() -> None:
    def places(phrase: str) -> set[str]:
        return {name for _, name, _, _ in string.Formatter().parse(phrase) if name}

    assert PHRASES["zh"].keys() == PHRASES["en"].keys()
    assert {key: places(phrase) for key, phrase in PHRASES["zh"].items()} == {
        key: places(phrase) for key, phrase in PHRASES["en"].items()
    }
    assert set(STAGES) <= PHRASES["en"].keys()


def test_durations_and_shares_read_as_people_write_them() -> None:
    assert [duration(s) for s in (0.4, 34, 725, 3 * 3600 + 125, -3)] == ["0:00", "0:34", "12:05", "3:02:05", "0:00"]
    assert (percent(0.968), percent(math.nan)) == ("96.8%", "nan")


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_a_figure_is_short_and_close(x: float) -> None:
    shown = figure(x)
    assert len(shown) <= 9  # -1.0e-300
    if math.isfinite(x) and abs(x) < 1e300:
        assert math.isclose(float(shown.replace(",", "")), x, rel_tol=0.051, abs_tol=5e-5)


def test_padding_counts_chinese_characters_as_two_cells() -> None:
    assert padded("得分", 6) == "得分  "
    assert padded("得分", 6, right=True) == "  得分"
    assert cell_len(padded("解释方差", 5)) == 5


# ── curves and bars ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_sparkline_rises_with_its_values_and_leaves_gaps() -> None:
    assert sparkline([i / 7 for i in range(8)], 0, 1) == BLOCKS
    assert sparkline([0, math.nan, 1], 0, 1) == "▁ █"
    assert len(set(sparkline([3.0, 3.0], 3.0, 3.0))) == 1
    assert sparkline([-50, 9], -1, 1) == "▁█"


def test_a_curve_of_any_length_keeps_its_shape_in_bounded_memory() -> None:
    curve = Curve()
    for i in range(40_000):
        curve.add(i)
    columns = curve.columns(20)
    assert len(curve._buckets) <= CAPACITY
    assert len(columns) == 20
    assert columns == sorted(columns)
    assert columns[0] == pytest.approx(1000, abs=200)
    assert columns[-1] == pytest.approx(39_000, abs=200)
    assert curve.last == 39_999


@given(st.lists(st.one_of(st.none(), st.floats(-10, 10)), min_size=1, max_size=30), st.integers(1, 60))
def test_a_curve_fills_the_width_it_is_given(values: list[float | None], width: int) -> None:
    curve = Curve()
    for value in values:
        curve.add(value)
    columns = curve.columns(width)
    assert len(columns) == width
    assert len(sparkline(columns, -10, 10)) == width
    if width == len(values):
        assert [None if math.isnan(c) else c for c in columns] == values


def test_a_step_without_a_value_does_not_hide_the_last_one() -> None:
    curve = Curve()
    for value in (0.5, None):
        curve.add(value)
    assert curve.last == 0.5


@given(st.floats(-1, 2), st.integers(1, 80))
def test_a_progress_bar_is_as_long_as_asked(share: float, width: int) -> None:
    assert progress_bar(share, width, "green").cell_len == width


def test_stage_shares_sum_to_one_and_name_what_no_stage_explains() -> None:
    shares = stage_shares([METRICS], STAGES)
    assert shares == pytest.approx(
        {"generate": 0.2, "log_probs": 0.2, "update_critic": 0.25, "update_actor": 0.3, "other": 0.05}
    )
    assert split_bar(shares, 57).cell_len == 57
    every = {stage: 1 / len(STAGES) for stage in STAGES}
    assert split_bar(every, 57).cell_len == 57
    assert split_legend(every, PHRASES["en"], "audit", 200).plain.count("■") == len(STAGES)
    assert stage_shares([{"actor/pg_loss": 1.0}], STAGES) == {}


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_the_legend_fits_and_drops_the_smallest_first(lang: str) -> None:
    shares = stage_shares([METRICS], STAGES)
    for width in range(10, 120):
        legend = split_legend(shares, PHRASES[lang], "generate", width)
        assert legend.cell_len <= width
    assert "30%" in split_legend(shares, PHRASES[lang], None, 20).plain
    assert "5%" in legend.plain


# ── one answer ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_pieces_of_one_character_become_one_glyph_with_their_mean_advantage() -> None:
    pieces = grouped(["等于", "\ufffd", "\ufffd", "！", ""], [0.0, 1.0, 3.0, -1.0, 0.5], "等于数！")
    assert pieces == [("等于", 0.0), ("数", 2.0), ("！", -1.0), (END, 0.5)]


def test_pieces_that_stay_empty_until_their_character_is_whole_are_joined_to_it() -> None:
    assert grouped(["", "", "数", "学"], [1.0, 2.0, 3.0, 4.0], "数学") == [("数", 2.0), ("学", 4.0)]


def test_a_broken_end_and_special_tokens_find_their_text() -> None:
    assert grouped(["好", "\ufffd", "\ufffd", "<eos>"], [1.0] * 4, "好吗") == [("好", 1.0), ("吗", 1.0), ("<eos>", 1.0)]
    assert grouped(["\ufffd"], [1.0], "\ufffd") == [("□", 1.0)]


def test_leading_spaces_that_a_tokenizer_drops_come_back() -> None:
    assert grouped(["Yes", ",", "it", "is"], [0.0] * 4, "Yes, it is") == [
        ("Yes", 0.0),
        (",", 0.0),
        (" it", 0.0),
        (" is", 0.0),
    ]


@given(st.lists(st.tuples(st.text(max_size=4), st.floats(-2, 2)), max_size=20), st.text(max_size=30))
def test_whatever_a_model_says_reaches_the_terminal_harmless(tokens: list[tuple[str, float]], response: str) -> None:
    pieces = grouped([t for t, _ in tokens], [a for _, a in tokens], response)
    shown = coloured(pieces, 2.0, cells=50).plain
    assert shown.isprintable()
    assert "\ufffd" not in shown
    assert all(line.cell_len <= 17 for line in fold(Text(shown), 17))


def test_escape_codes_in_a_prompt_are_not_obeyed() -> None:
    assert visible("a\x1b[31mb\nc\t") == "a□[31mb↵c⇥"
    assert prompt_text([{"role": "system", "content": "x"}, {"role": "user", "content": " 请问\n"}]) == "请问"


def test_gains_are_green_losses_red_and_the_larger_the_brighter() -> None:
    def colour(advantage: float) -> tuple[int, int, int]:
        background = credit_style(advantage, 1.0).bgcolor
        assert background is not None
        assert background.triplet is not None
        return background.triplet

    for weak, strong in ((0.01, 0.4), (0.4, 1.0)):
        assert colour(weak)[1] < colour(strong)[1]
        assert colour(-weak)[0] < colour(-strong)[0]
    assert colour(1.0)[1] > colour(1.0)[0]
    assert colour(-1.0)[0] > colour(-1.0)[1]
    assert colour(5.0) == colour(1.0)  # beyond the batch's largest there is nothing
    assert credit_style(0.0, 1.0).bgcolor is None
    assert credit_style(None, 1.0).bgcolor is None
    assert credit_style(0.5, 0.0).bgcolor is None


def test_a_long_answer_keeps_its_beginning_and_its_scored_end() -> None:
    pieces = [(f"w{i:03d}", 0.1) for i in range(200)]
    shown = coloured(pieces, 1.0, cells=100).plain
    assert len(shown) <= 100
    assert shown.startswith("w000w001")
    assert " … " in shown
    assert shown.endswith("w198w199")


def test_the_sampled_answer_changes_with_the_step_and_carries_its_account() -> None:
    ledger, tokens = rollouts()
    asked: set[int] = set()

    def strings(row: int) -> list[str]:
        asked.add(row)
        return tokens

    answers = [sampled_answer(step, ledger, strings) for step in range(1, 10)]
    assert asked == {0, 1, 2}
    assert answers[0] is not None
    assert answers[0].prompt == "请问17+25=42？"
    assert "".join(text for text, _ in answers[0].pieces) == "是的，等于42！" + END
    assert answers[0].largest == 1.0
    assert answers[0].score == 1.0
    assert answers[0].pieces[0][1] == pytest.approx(-1.0)


def test_tokens_that_the_policy_did_not_choose_have_no_advantage() -> None:
    mask = torch.tensor([[True, False, True]])
    ledger = Ledger(torch.zeros(1, 3, dtype=torch.int64), mask)
    answer = sampled_answer(1, ledger, lambda row: ["a", "tool", "b"])
    assert answer is not None
    assert answer.pieces == [("a", 0.0), ("tool", None), ("b", 0.0)]
    assert answer.score is None
    nobody = Ledger(torch.zeros(0, 3, dtype=torch.int64), torch.zeros(0, 3, dtype=torch.bool))
    assert sampled_answer(1, nobody, lambda row: []) is None


# ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_time_left_follows_the_mean_of_the_last_steps() -> None:
    clock = Ticking()
    pace = Pace(clock)
    pace.start()
    assert pace.seconds is None
    assert pace.left(10) is None
    clock.now += 4
    pace.step_ended()
    assert pace.left(10) == 40
    clock.now += 1
    assert pace.left(10) == 39
    for _ in range(30):  # far more than the mean looks back
        clock.now += 1
        pace.step_ended()
    assert pace.seconds == pytest.approx(1.0)
    clock.now += 100  # overdue: the other nine are still to come
    assert pace.left(10) == pytest.approx(9.0)
