"""What a person sees: the live page, the plain lines, the coloured answer and the last words, in both languages."""

from __future__ import annotations

import io
import math
import os
import re
import string
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from mingce.base.lang import LANGS
from mingce.base.numbers import figure, percent
from mingce.base.texts import sentences
from mingce.ledger import Ledger
from mingce.watch import Summary, watch_for
from mingce.watch.bars import progress_bar, split_bar, split_legend, stage_shares
from mingce.watch.base import Pace
from mingce.watch.board import Board, Clockwork
from mingce.watch.curves import BLOCKS, CAPACITY, Curve, sparkline
from mingce.watch.live import LARGEST_SHARE, LiveWatch, pause_after
from mingce.watch.plain import PlainWatch
from mingce.watch.text import STAGES, duration, padded
from mingce.watch.tokens import END, coloured, credit_style, fold, grouped, prompt_text, sampled_answer, visible

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")
PHRASES = {lang: sentences("terminal", lang) for lang in LANGS}
METRICS = {
    "critic/score/mean": 0.71,
    "critic/kl": 0.0031,
    "actor/entropy_loss": 0.42,
    "response_length/mean": 8.1,
    "critic/vf_explained_var": 0.35,
    "timing_s/generate": 0.2,
    "timing_s/score": 0.001,
    "timing_s/log_probs": 0.2,
    "timing_s/update_critic": 0.25,
    "timing_s/update_actor": 0.3,
    "timing_s/step": 1.0,
    "perf/tokens_per_second": 4312.0,
}
ANSWERS = {"zh": ("请问17+25=42？", "是的，等于42！"), "en": ("Is 17+25=42?", "Yes, it is 42!")}


class Ticking:
    """A clock that goes only when told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def rollouts(lang: str = "zh", rows: int = 3) -> tuple[Ledger, list[str]]:
    """A ledger of the same answer `rows` times, advantages rising from −1 to 0.5, and the answer's token strings."""
    prompt, response = ANSWERS[lang]
    tokens = [*response, ""]
    shape = (rows, len(tokens))
    ledger = Ledger(
        torch.zeros(shape, dtype=torch.int64),
        torch.ones(shape, dtype=torch.bool),
        rows={"prompt": [prompt] * rows, "response": [response] * rows},
    )
    scores = torch.zeros(shape)
    scores[:, -1] = 1.0
    advantages = torch.linspace(-1, 0.5, len(tokens)).expand(shape)
    ledger.fill({"scores": scores, "rewards": scores, "values": torch.zeros(shape), "advantages": advantages})
    return ledger, tokens


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


# ── plain lines ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Plain:
    """A plain watch that writes into memory, with its clock."""

    def __init__(self, lang: str = "en", steps: int = 40, first_step: int = 1):
        self.file, self.clock = io.StringIO(), Ticking()
        self.watch = PlainWatch(Console(file=self.file), lang, self.clock)
        self.watch.begin("title", [("task", "arithmetic"), ("批次", "64 × 4")], first_step, steps)

    def step(self, step: int, seconds: float) -> None:
        self.watch.stage("generate", step)
        self.clock.now += seconds
        self.watch.step(step, METRICS, None, None)

    @property
    def lines(self) -> list[str]:
        return self.file.getvalue().splitlines()


def test_a_step_is_one_line_in_a_fixed_form() -> None:
    plain = Plain()
    plain.step(1, 1.0)
    assert plain.lines[:3] == ["title", "  task  arithmetic", "  批次  64 × 4"]
    assert plain.lines[3] == (
        "step  1/40  score 0.710  KL 0.0031  entropy 0.420  length 8.1  explained var. +0.35  1.00 s/step  0:39 left"
    )


def test_the_validation_before_the_first_step_is_no_step_time() -> None:
    plain = Plain()
    plain.watch.stage("validate", 0)
    plain.clock.now += 50
    plain.step(1, 1.0)
    assert plain.lines[-1].endswith("1.00 s/step  0:39 left")


def test_the_same_step_in_chinese_and_without_a_critic() -> None:
    plain = Plain("zh")
    plain.clock.now += 1
    plain.watch.step(1, {"critic/score/mean": 0.5, "critic/kl": math.nan}, None, None)
    assert plain.lines[3] == "第  1/40 步  得分 0.500  KL nan"


def test_quick_steps_make_a_line_every_two_seconds_and_the_first_and_last_always() -> None:
    plain = Plain(steps=50)
    for step in range(1, 51):
        plain.step(step, 0.125)
    shown = [int(found[1]) for line in plain.lines if (found := re.match(r"step +(\d+)/", line))]
    assert shown == [1, 17, 33, 49, 50]
    assert "left" not in plain.lines[-1]


def test_what_takes_long_says_how_far_it_is_ever_more_rarely() -> None:
    plain = Plain()
    plain.watch.stage("generate", 1)
    for done in range(100):
        plain.clock.now += 1
        plain.watch.progress(done, 100)
    said = [line for line in plain.lines if "generate" in line]
    assert said[0] == "step  1/40  generate 1/100  0:02 elapsed"
    assert [int(line.split()[3].partition("/")[0]) for line in said] == [1, 5, 13, 29, 59, 89]


def test_steps_of_a_few_seconds_need_no_lines_of_progress_between() -> None:
    plain = Plain(steps=4)
    for step in (1, 2, 3, 4):
        for _ in range(6):
            plain.watch.stage("update_actor", step)
            plain.clock.now += 0.5
        plain.watch.step(step, METRICS, None, None)
    progress = [line for line in plain.lines if "actor update" in line]
    assert len(progress) == 1  # in the first step, when nothing is known yet
    assert sum(line.startswith("step") for line in plain.lines) == 4 + 1


def test_validation_and_notes_are_always_said() -> None:
    plain = Plain()
    plain.watch.validated(0, {"val/accuracy_greedy": 0.95, "val/accuracy_sampled": 0.405, "val/score_mean": 0.41})
    plain.watch.note("KL is in the reward")
    plain.watch.note("checkpoint damaged [red]", True)
    assert plain.lines[3:] == [
        "validation at step 0  sampled 40.5%  greedy 95.0%  score 0.410",
        "KL is in the reward",
        "warning: checkpoint damaged [red]",
    ]


def test_a_resumed_run_counts_on() -> None:
    plain = Plain(first_step=31)
    plain.step(31, 2.0)
    assert plain.lines[3].startswith("step 31/40")
    assert plain.lines[3].endswith("0:18 left")


# ── the live page ────────────────────────────────────────────────────────────────────────────────────────────────────


def board(lang: str, steps: int = 12) -> Board:
    made = Board(PHRASES[lang])
    made.begin(1, 60)
    made.add_validation({"val/accuracy_sampled": 0.4, "val/accuracy_greedy": 0.95})
    ledger, tokens = rollouts(lang)
    for step in range(1, steps + 1):
        made.add_step(step, METRICS | {"critic/score/mean": step / 60})
        made.answer = sampled_answer(step, ledger, lambda row: tokens)
    made.stage, made.counted = "update_actor", (128, 256)
    return made


NOW = Clockwork(elapsed=14.0, left=56.0, pace=1.21)


@pytest.mark.parametrize("lang", ["zh", "en"])
@pytest.mark.parametrize("width", [79, 99, 119])
def test_the_page_shows_everything_within_its_lines_and_columns(lang: str, width: int) -> None:
    lines = board(lang).lines(NOW, width, 29)
    page = "\n".join(line.plain for line in lines)
    assert len(lines) <= 22
    assert max(line.cell_len for line in lines) <= width
    words = PHRASES[lang]
    for phrase in ("score", "kl", "entropy", "length", "explained", "accuracy"):
        assert words[f"curve_{phrase}"] in page
    for shown in ("12/60", "0:14", "0:56", "1.21", "128/256", "40.0%", "95.0%", "4,312", "30%", *ANSWERS[lang]):
        assert shown in page
    assert words["update_actor"] in page


def test_the_page_grows_with_the_run_and_its_curves_reach_the_edge_at_the_end() -> None:
    def blocks(steps: int) -> int:
        line = next(line.plain for line in board("en", steps).lines(NOW, 119, 29) if line.plain.startswith("score"))
        return sum(c in BLOCKS for c in line)

    assert 0 < blocks(1) < blocks(30) < blocks(60)
    assert blocks(60) == 119 - len("explained var.") - 8 - 18 - 6


def test_a_page_without_critic_or_timings_leaves_their_lines_out() -> None:
    made = Board(PHRASES["en"])
    made.begin(1, 60)
    made.add_step(1, {"critic/score/mean": math.nan})
    page = "\n".join(line.plain for line in made.lines(Clockwork(1.0, None, None), 79, 29))
    assert "score" in page
    assert "nan" in page
    for missing in ("explained", "KL", "tokens/s", "left"):
        assert missing not in page


@pytest.mark.parametrize("height", range(1, 25))
def test_a_low_terminal_gets_the_parts_that_fit(height: int) -> None:
    lines = board("zh").lines(NOW, 79, height)
    assert len(lines) <= height
    assert height < 3 or "12/60" in lines[1].plain


def terminal(width: int = 100, height: int = 40) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, force_terminal=True, width=width, height=height, color_system="truecolor"), file


class Pauses(threading.Event):
    """Stands for the pause between frames: lets `frames` of them pass at once, then ends the drawing."""

    def __init__(self, frames: int):
        super().__init__()
        self.left, self.asked = frames, list[float]()

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.asked.append(timeout)
        self.left -= 1
        return self.left < 0 or self.is_set()


def test_the_trainers_calls_draw_nothing_only_the_drawing_thread_does() -> None:
    console, _ = terminal()
    watch = LiveWatch(console, "en", Ticking())
    watch._over = pauses = Pauses(0)  # the thread ends before its first frame
    watch.begin("title", [("task", "arithmetic")], 1, 60)
    watch._thread.join()
    drawn = watch.frames
    ledger, tokens = rollouts("en")
    for step in range(1, 61):
        watch.stage("generate", step)
        for done in range(100):
            watch.progress(done, 100)
        watch.step(step, METRICS, ledger, lambda row: tokens)
        watch.validated(step, {"val/accuracy_sampled": 0.5})
    assert watch.frames == drawn
    watch.close()
    assert watch.frames == drawn + 1  # how it stood at the end
    assert pauses.asked == [1 / 8]


def test_frames_come_at_most_eight_a_second_and_cost_at_most_a_hundredth() -> None:
    assert pause_after(0.0) == 1 / 8
    for cost in (0.0005, 0.003, 0.01):
        assert pause_after(cost) >= 1 / 8
        assert cost / (cost + pause_after(cost)) < LARGEST_SHARE <= 0.02
    assert pause_after(0.5) == 1.0  # one slow frame does not freeze the page
    console, _ = terminal()
    watch = LiveWatch(console, "en")
    watch._over = pauses = Pauses(20)
    drawn = watch.frames
    watch.begin("title", [], 1, 60)
    watch._thread.join()
    assert watch.frames == drawn + 1 + 20
    assert min(pauses.asked) >= 1 / 8
    watch.close()


def test_a_frame_never_waits_for_the_trainer() -> None:
    console, _ = terminal()
    watch = LiveWatch(console, "en")
    before = watch._frame()
    found: list[object] = []
    with watch._lock:  # the trainer is changing the page, and may be interrupted there by a signal
        thread = threading.Thread(target=lambda: found.append(watch._frame()))
        thread.start()
        thread.join(timeout=30)
    assert found == [before]


@pytest.mark.parametrize("fails", [False, True])
def test_the_terminal_is_left_as_it_was(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    console, file = terminal()
    stdout, stderr = sys.stdout, sys.stderr

    def train() -> None:
        with LiveWatch(console, "zh") as watch:
            watch.begin("title", [], 1, 60)
            watch.note("自检通过")
            print("a stray print is shown above the page")
            watch.step(1, METRICS, None, None)
            if fails:
                raise RuntimeError("the disk is full")

    if fails:
        with pytest.raises(RuntimeError, match="the disk is full"):
            train()
    else:
        train()
    assert (sys.stdout, sys.stderr) == (stdout, stderr)
    assert file.getvalue().count("\x1b[?25l") == file.getvalue().count("\x1b[?25h") == 1  # cursor hidden, shown
    assert "自检通过" in file.getvalue()
    assert "a stray print" in file.getvalue()
    assert not any(thread.name == "mingce-watch" for thread in threading.enumerate())


def test_closing_twice_or_before_beginning_is_harmless() -> None:
    console, file = terminal()
    watch = LiveWatch(console, "en")
    watch.close()
    watch.close()
    assert file.getvalue() == ""


# ── the last words ───────────────────────────────────────────────────────────────────────────────────────────────────


def summary(**changes: object) -> Summary:
    values: dict[str, object] = {
        "run": "runs/demo",
        "seconds": 74.0,
        "steps": 60,
        "greedy_before": 0.95,
        "greedy_after": 0.94,
        "sampled_before": 0.405,
        "sampled_after": 0.968,
        "answers": [("请问17+25=43？", "是的，等于42！", "不对，等于42！", False, True)],
        "commands": ["mingce view runs/demo  # open the page", "mingce chat runs/demo"],
    }
    return Summary(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_the_last_words_are_the_same_live_and_plain(lang: str) -> None:
    plain = Plain(lang)
    plain.watch.end(summary())
    console, file = terminal(width=80)
    live = LiveWatch(console, lang)
    live.begin("title", [], 1, 60)
    live.end(summary())
    coloured_words = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue())
    for words in ("\n".join(plain.lines), coloured_words):
        assert re.search(r"40\.5% +→ +96\.8% +▲ 56\.3", words)
        assert re.search(r"95\.0% +→ +94\.0% +▼ 1\.0", words)
        assert re.search(r"请问17\+25=43？ +✗ 是的，等于42！ +→ +✓ 不对，等于42！", words)
        for said in ("1:14", "60", "runs/demo", "  mingce view runs/demo  # open the page", "  mingce chat runs/demo"):
            assert said in words
    assert not CONTROL.search(plain.file.getvalue())


def test_a_stopped_run_says_so_and_unmeasured_parts_are_left_out() -> None:
    plain = Plain()
    plain.watch.end(
        summary(stopped="Ctrl-C", steps=12, greedy_before=None, greedy_after=None, sampled_after=None, answers=())
    )
    words = "\n".join(plain.lines)
    assert "Ctrl-C: stopped after step 12" in words
    assert "greedy" not in words
    assert re.search(r"sampled +40\.5% +→ +—", words)
    assert "✓" not in words


# ── who is watching ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.TextIOWrapper]:
    """A file that is a terminal."""
    for name in ("CI", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    ours, theirs = os.openpty()
    with open(theirs, "w", encoding="utf-8") as file:
        yield file
    os.close(ours)


def test_a_terminal_gets_the_live_page(screen: io.TextIOWrapper) -> None:
    assert isinstance(watch_for(Console(file=screen), "zh"), LiveWatch)


@pytest.mark.parametrize(("name", "value"), [("CI", "true"), ("TERM", "dumb"), ("TTY_INTERACTIVE", "0")])
def test_ci_and_terminals_that_cannot_redraw_get_plain_lines(
    screen: io.TextIOWrapper, name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert isinstance(watch_for(Console(file=screen), "en"), PlainWatch)


def test_a_file_gets_plain_lines_even_if_colours_are_forced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with (tmp_path / "log").open("w") as file:
        assert isinstance(watch_for(Console(file=file), "en"), PlainWatch)
