"""What a progress prints: plain lines, the live page, the last words; and who gets which."""

from __future__ import annotations

import io
import math
import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from progress_pages import ANSWERS, METRICS, PHRASES, Plain, Ticking, rollouts, terminal
from rich.console import Console

from mingce.progress import Summary, progress_for
from mingce.progress.board import Board, Clockwork
from mingce.progress.curves import BLOCKS
from mingce.progress.live import LARGEST_SHARE, LiveProgress, pause_after
from mingce.progress.plain import PlainProgress
from mingce.progress.tokens import sampled_answer

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")


# ── plain lines ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_step_is_one_line_in_a_fixed_form() -> None:
    plain = Plain()
    plain.step(1, 1.0)
    assert plain.lines[:3] == ["title", "  task  arithmetic", "  批次  64 × 4"]
    assert plain.lines[3] == (
        "step  1/40  score 0.710  KL 0.0031  entropy 0.420  length 8.1  explained var. +0.35  1.00 s/step  0:39 left"
    )


def test_the_validation_before_the_first_step_is_no_step_time() -> None:
    plain = Plain()
    plain.progress.stage("validate", 0)
    plain.clock.now += 50
    plain.step(1, 1.0)
    assert plain.lines[-1].endswith("1.00 s/step  0:39 left")


def test_the_same_step_in_chinese_and_without_a_critic() -> None:
    plain = Plain("zh")
    plain.clock.now += 1
    plain.progress.step(1, {"critic/score/mean": 0.5, "critic/kl": math.nan}, None, None)
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
    plain.progress.stage("generate", 1)
    for done in range(100):
        plain.clock.now += 1
        plain.progress.progress(done, 100)
    said = [line for line in plain.lines if "generate" in line]
    assert said[0] == "step  1/40  generate 1/100  0:02 elapsed"
    assert [int(line.split()[3].partition("/")[0]) for line in said] == [1, 5, 13, 29, 59, 89]


def test_a_stage_whose_share_is_known_says_when_it_will_be_over() -> None:
    plain = Plain()
    plain.progress.stage("validate", 0)
    for tenth in range(1, 10):
        plain.clock.now += 10
        plain.progress.progress(0, 400, tenth / 10)
    assert plain.lines[-1].endswith("validate 0/400  0:20 left  1:20 elapsed"), plain.lines[-1]
    made = board("en")
    made.stage, made.counted = "validate", (0, 400)
    page = "\n".join(line.plain for line in made.lines(Clockwork(90.0, None, None, 10.0), 79, 29))
    assert "0:10 left" in page


def test_steps_of_a_few_seconds_need_no_lines_of_progress_between() -> None:
    plain = Plain(steps=4)
    for step in (1, 2, 3, 4):
        for _ in range(6):
            plain.progress.stage("update_actor", step)
            plain.clock.now += 0.5
        plain.progress.step(step, METRICS, None, None)
    progress = [line for line in plain.lines if "actor update" in line]
    assert len(progress) == 1  # in the first step, when nothing is known yet
    assert sum(line.startswith("step") for line in plain.lines) == 4 + 1


def test_validation_and_notes_are_always_said() -> None:
    plain = Plain()
    plain.progress.validated(0, {"val/accuracy_greedy": 0.95, "val/accuracy_sampled": 0.405, "val/score_mean": 0.41})
    plain.progress.note("KL is in the reward")
    plain.progress.note("checkpoint damaged [red]", True)
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
    progress = LiveProgress(console, "en", Ticking())
    progress._over = pauses = Pauses(0)  # the thread ends before its first frame
    progress.begin("title", [("task", "arithmetic")], 1, 60)
    progress._thread.join()
    drawn = progress.frames
    ledger, tokens = rollouts("en")
    for step in range(1, 61):
        progress.stage("generate", step)
        for done in range(100):
            progress.progress(done, 100)
        progress.step(step, METRICS, ledger, lambda row: tokens)
        progress.validated(step, {"val/accuracy_sampled": 0.5})
    assert progress.frames == drawn
    progress.close()
    assert progress.frames == drawn + 1  # how it stood at the end
    assert pauses.asked == [1 / 8]


def test_frames_come_at_most_eight_a_second_and_cost_at_most_a_hundredth() -> None:
    assert pause_after(0.0) == 1 / 8
    for cost in (0.0005, 0.003, 0.01):
        assert pause_after(cost) >= 1 / 8
        assert cost / (cost + pause_after(cost)) < LARGEST_SHARE <= 0.02
    assert pause_after(0.5) == 1.0  # one slow frame does not freeze the page
    console, _ = terminal()
    progress = LiveProgress(console, "en")
    progress._over = pauses = Pauses(20)
    drawn = progress.frames
    progress.begin("title", [], 1, 60)
    progress._thread.join()
    assert progress.frames == drawn + 1 + 20
    assert min(pauses.asked) >= 1 / 8
    progress.close()


def test_a_frame_never_waits_for_the_trainer() -> None:
    console, _ = terminal()
    progress = LiveProgress(console, "en")
    before = progress._frame()
    found: list[object] = []
    with progress._lock:  # the trainer is changing the page, and may be interrupted there by a signal
        thread = threading.Thread(target=lambda: found.append(progress._frame()))
        thread.start()
        thread.join(timeout=300)
    assert found == [before]


@pytest.mark.parametrize("fails", [False, True])
def test_the_terminal_is_left_as_it_was(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    console, file = terminal()
    stdout, stderr = sys.stdout, sys.stderr

    def train() -> None:
        with LiveProgress(console, "zh") as progress:
            progress.begin("title", [], 1, 60)
            progress.note("自检通过")
            print("a stray print is shown above the page")
            progress.step(1, METRICS, None, None)
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
    assert not any(thread.name == "mingce-progress" for thread in threading.enumerate())


def test_closing_twice_or_before_beginning_is_harmless() -> None:
    console, file = terminal()
    progress = LiveProgress(console, "en")
    progress.close()
    progress.close()
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
    plain.progress.end(summary())
    console, file = terminal(width=80)
    live = LiveProgress(console, lang)
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
    plain.progress.end(
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
    assert isinstance(progress_for(Console(file=screen), "zh"), LiveProgress)


@pytest.mark.parametrize(("name", "value"), [("CI", "true"), ("TERM", "dumb"), ("TTY_INTERACTIVE", "0")])
def test_ci_and_terminals_that_cannot_redraw_get_plain_lines(
    screen: io.TextIOWrapper, name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert isinstance(progress_for(Console(file=screen), "en"), PlainProgress)


def test_a_file_gets_plain_lines_even_if_colours_are_forced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with (tmp_path / "log").open("w") as file:
        assert isinstance(progress_for(Console(file=file), "en"), PlainProgress)
