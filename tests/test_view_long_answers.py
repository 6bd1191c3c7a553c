"""Long answers on every page that shows them, several data sets, a large step: in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from chat_runs import QUESTIONS, Words, answer_of, chat_ledger, prompt
from playwright.sync_api import Browser, Page, expect
from test_view_hostile import new_run, write_step
from test_view_page import Tab, browser, watched
from test_view_server import served

from mingce.config import as_values, read_config
from mingce.record.run import Run
from mingce.sources.library import Library
from mingce.view.api import Api
from mingce.view.step_index import Query

__all__ = ["browser"]  # the fixture
pytestmark = pytest.mark.xdist_group("page")
SOURCES = ["org/gsm8k", "org/gsm8k", "math", "math"]
MANY = 100_000


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two data sets, answers of 40 to 2,000 tokens in training and in validation, and a step of 100,000 rollouts."""
    root = tmp_path_factory.mktemp("runs")
    words, model = Words(), root / "long-model"
    config = read_config(None, [f"model.path={model}", "steps=2", "kl.reward_coef=0.001"])
    with Run.create(root, "long", as_values(config)) as run:
        texts = [answer_of(width) for width in (2000, 900, 400, 40)]
        ledger = chat_ledger(config, words, [[(text, True)] for text in texts], 0.001)
        run.ledger.write(1, ledger.fill_rows(data_source=SOURCES))
        for step, widths in ((0, (40, 40)), (1, (700, 300))):
            held_out = chat_ledger(config, words, [[(answer_of(width), True)] for width in widths], 0.001)
            asked = [prompt(QUESTIONS[0] + " Show your work." * 60)] * 2
            run.validation.write(step, held_out.fill_rows(prompt=asked, prompt_ids=[words.ids(one) for one in asked]))
        metrics = {"critic/score/mean/gsm8k": 0.5, "critic/score/mean/math": 0.25, "val/accuracy_sampled/math": 0.1}
        run.metrics_path.write_text(json.dumps({"step": 1, "critic/score/mean": 0.4} | metrics) + "\n")
    words.save(model)
    write_step(new_run(root, "large", b'{"step": 1, "a": 1}\n'), MANY)
    return root


@pytest.fixture
def tab(browser: Browser, runs: Path) -> Iterator[Tab]:
    with served(Api(Library([runs])), lang="en") as client:
        tab = watched(browser, f"http://127.0.0.1:{client.port}/")
        yield tab
        tab.page.close()
        assert tab.complaints == []
        assert tab.stranger() == []


def no_wider_than_the_screen(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


@pytest.mark.parametrize(("width", "height"), [(360, 740), (768, 1024), (1920, 1080)])
def test_held_out_answers_are_told_apart_at_a_glance_and_unfold(tab: Tab, width: int, height: int) -> None:
    tab.page.set_viewport_size({"width": width, "height": height})
    page = tab.open("#/run/long")
    lines = page.locator(".held-out .answers li")
    expect(lines).to_have_count(4)  # two rows a validation have the same prompt
    expect(lines.nth(0).locator(".glance")).to_have_count(0)
    long = lines.nth(2)
    expect(long.locator(".glance canvas")).to_be_visible()
    expect(long).to_contain_text("700 tokens")
    text = long.locator("[role=listbox]")
    folded = text.bounding_box()
    assert folded is not None
    assert folded["height"] < 110
    long.get_by_role("button", name="All of it").press("Enter")
    opened = text.bounding_box()
    assert opened is not None
    assert opened["height"] > 5 * folded["height"]
    longest, half = (lines.nth(n).locator(".glance canvas") for n in (2, 3))
    inked = "canvas => { const all = canvas.getContext('2d').getImageData(0, 4, canvas.width, 1).data; "
    inked += "return all.filter((x, i) => i % 4 === 3 && x > 0).length / canvas.width }"
    assert half.evaluate(inked) == pytest.approx(3 / 7 * longest.evaluate(inked), abs=0.03), "as wide as it is long"
    longest.click(position={"x": 3, "y": 3})
    expect(page).to_have_url(re.compile(r"long~validation/step/1/rollout/0\?token=\d"))
    assert no_wider_than_the_screen(page)


def test_a_long_question_is_cut_at_a_line_and_can_be_read_whole(tab: Tab) -> None:
    page = tab.open("#/run/long")
    asked = page.locator(".held-out .prompt")
    expect(asked).to_have_class("prompt short")
    assert asked.evaluate("one => one.scrollHeight > one.clientHeight + 20")
    page.locator(".held-out").get_by_role("button", name="All of it").first.click()
    expect(asked).to_have_class("prompt")


def test_rollouts_are_kept_and_sorted_by_their_data_source_on_the_server(tab: Tab, runs: Path) -> None:
    page = tab.open("#/run/long/step/1")
    expect(page.locator("tr.link")).to_have_count(4)
    expect(page.locator("tr.link .source")).to_have_text(SOURCES)
    page.get_by_label("Data source").select_option("math")
    expect(page).to_have_url(re.compile("data_source=math"))
    expect(page.locator("tr.link")).to_have_count(2)
    page.reload()
    expect(page.locator("tr.link .source")).to_have_text(["math", "math"])
    page.get_by_label("Data source").select_option("any source")
    page.get_by_role("button", name="source").click()
    expect(page.locator("tr.link .source")).to_have_text(["math", "math", "org/gsm8k", "org/gsm8k"])
    api = Api(Library([runs]))
    assert [line.row for line in api.table("long", 1, Query(data_source="org/gsm8k", sort="length")).rollouts] == [1, 0]
    assert api.table("long", 1, Query(data_source="none")).shown == 0
    tab.open("#/run/large/step/1")
    expect(page.get_by_label("Data source")).to_have_count(0)


def test_scores_by_data_source_are_among_the_first_charts(tab: Tab) -> None:
    page = tab.open("#/run/long")
    first = page.locator(".chart-grid").first
    expect(first.locator("[data-metric='critic/score/mean/gsm8k'] code")).to_have_text(
        ["critic/score/mean/gsm8k", "critic/score/mean/math"]
    )
    expect(first.locator("[data-metric='val/accuracy_sampled/math']")).to_be_visible()


def test_the_credit_map_of_2000_tokens_is_of_those_around_the_selected_one(tab: Tab) -> None:
    page = tab.open("#/run/long/step/1/rollout/0?view=map&token=1990")
    box = page.locator(".credit-map")
    expect(box).to_contain_text("Tokens 1840–1999 of 2000")
    expect(page.locator(".conversation")).to_have_count(0)
    assert page.evaluate("scrollY") == 0, "the picture is in sight, not the token in the text"
    place = box.bounding_box()
    assert place is not None
    assert place["y"] < 700
    page.keyboard.press("Home")
    expect(box).to_contain_text("Tokens 0–159 of 2000")
    box.get_by_role("button", name="The whole response").click()
    expect(box).to_contain_text("All 2000 tokens.")
    tab.open("#/run/long/step/1/rollout/0?view=map&range=300-360")
    expect(box).to_contain_text("Tokens 300–360 of 2000")
    tab.open("#/run/long/step/1/rollout/3?view=map")
    expect(box.locator("canvas")).to_be_visible()
    expect(box).not_to_contain_text("Tokens")


def chinese_run(runs: Path) -> str:
    """A run whose answers are Chinese, each character of three tokens."""
    if not (runs / "chinese").is_dir():
        config = read_config(None, [f"model.path={runs / 'zh'}"])
        rows = [[("等于七十二。<|im_end|>", True)], [("等于七十三。<|im_end|>", True)]]
        ledger = chat_ledger(config, words := Words(), rows, config.kl.reward_coef)
        with Run.create(runs, "chinese", as_values(config)) as run:
            run.ledger.write(1, ledger)
            run.metrics_path.write_text('{"step": 1, "a": 1}\n')
        words.save(runs / "zh")
    return "#/run/chinese"


def test_pieces_of_a_character_leave_no_marks_in_samples(tab: Tab, runs: Path) -> None:
    page = tab.open(f"{chinese_run(runs)}/step/1/samples/0")
    expect(page.locator(".sample-text").first).to_have_text("等于七十二。<|im_end|>")
    expect(page.locator(".sample .differs")).to_have_count(1)


def test_a_piece_of_a_character_says_which_of_them_it_is(tab: Tab, runs: Path) -> None:
    page = tab.open(f"{chinese_run(runs)}/step/1/rollout/0?token=4")
    expect(page.locator(".account-token")).to_have_text("于 2/3")
    expect(page.locator("[data-mark=action] mark")).to_have_text("于 2/3")
    expect(page.get_by_role("table", name="All columns").locator("td.token").nth(4)).to_have_text("于 2/3")
    page.keyboard.press("End")
    expect(page.locator(".account-token")).to_have_text("<|im_end|>")
    page = tab.open("#/run/chinese/worst?all=1")
    marks = page.locator(".worst mark")
    expect(marks).not_to_have_count(0)
    assert set(marks.all_inner_texts()) <= {*"等于七十二三。", "<|im_end|>"}
    expect(page.locator(".worst .hit-question").first).to_have_text(QUESTIONS[0])


def test_a_state_of_several_lines_is_one_paragraph_with_the_choice_at_its_end(tab: Tab) -> None:
    page = tab.open("#/run/long/step/1/rollout/0?token=12")
    state = page.locator("[data-mark=state] mark")
    expect(state).to_contain_text("step by step.↵↵In")
    action = page.locator("[data-mark=action] mark").bounding_box()
    box = state.bounding_box()
    assert action is not None
    assert box is not None
    assert abs((action["y"] + action["height"]) - (box["y"] + box["height"])) < 8


def test_of_many_validations_some_are_shown_and_all_on_demand(tab: Tab, runs: Path) -> None:
    config = read_config(None, ["estimator=grpo", f"model.path={runs / 'long-model'}", "kl.reward_coef=0"])
    words = Words()
    with Run.create(runs, "validated", as_values(config)) as run:
        for step in range(8):
            rows = [[(answer_of(200), True)], [(answer_of(70 + step), True)]]
            ledger = chat_ledger(config, words, rows, 0.0)
            run.validation.write(step, ledger.fill_rows(prompt=[prompt(one) for one in QUESTIONS]))
            run.ledger.write(step + 1, ledger)
        run.metrics_path.write_text('{"step": 8, "a": 1}\n')
    page = tab.open("#/run/validated")
    lines = page.locator(".held-out .answers > li")
    expect(lines).to_have_count(5)
    expect(lines.first).to_contain_text("step 0")
    expect(lines.last).to_contain_text("step 7")
    assert page.locator(".held-out .answers").evaluate("box => box.scrollHeight <= box.clientHeight + 1"), (
        "nothing is cut"
    )
    expect(page.locator("[data-choose=held-out-column]")).to_have_value("entropy")  # there is no critic
    ticks = page.locator(".held-out .legend-ticks > *")
    expect(ticks).to_have_count(2)
    expect(ticks.first).to_have_text("0")
    page.get_by_role("button", name="All 8 answers").click()
    expect(lines).to_have_count(8)
    page.get_by_role("button", name="Only some of them").click()
    expect(lines).to_have_count(5)
    page = tab.open("#/run/validated/through")
    lists = page.locator(".prompt-list")
    expect(lists).to_have_count(2)
    expect(lists.first.locator("li").first).to_contain_text("8 answers in 8 steps")
    expect(lists.last.locator("li").first).to_contain_text("8 answers in 8 steps")
    lists.first.locator("a").first.click()
    expect(page.locator("main h1")).to_have_text("A held-out prompt through time")


def test_prompts_that_came_once_are_no_prompts_through_time(tab: Tab) -> None:
    page = tab.open("#/run/long/through")
    expect(page.locator("main h2").first).to_have_text("Held-out prompts")
    expect(page.locator(".prompt-list")).to_have_count(1)
    expect(page.locator(".notice")).to_contain_text("No prompt recurs.")


def test_worst_tokens_are_read_on_a_phone_without_scrolling_aside(tab: Tab) -> None:
    tab.page.set_viewport_size({"width": 360, "height": 740})
    for address in ("#/run/long/worst", "#/run/long/step/1/worst?by=entropy"):
        page = tab.open(address)
        box = page.locator(".worst")
        expect(box.locator("mark").first).to_be_visible()
        assert box.evaluate("one => one.scrollWidth <= one.clientWidth")
        mark = box.locator("mark").first.bounding_box()
        assert mark is not None
        assert mark["x"] + mark["width"] < 360


def test_a_step_of_100_000_rollouts_opens_scrolls_and_sorts(tab: Tab) -> None:
    page = tab.open("#/run/large/step/1")
    expect(page.locator(".count")).to_have_text("100,000 / 100,000")
    expect(page.locator("tr.link").first).to_contain_text("Response 0")
    assert len([url for url in tab.asked if "/steps/1" in url]) <= 3
    assert page.locator("tbody tr").count() < 80, "only what is in sight is there"
    page.locator(".table-box").last.evaluate("box => box.scrollTop = box.scrollHeight")
    expect(page.locator("tr.link", has_text="Response 99999")).to_be_visible()
    page.get_by_role("button", name="score").click()
    expect(page.locator("th[aria-sort=descending]")).to_have_text("score ↓")
    expect(page.locator("tr.link td").nth(1)).to_contain_text(re.compile(r"1|0\.999"))
    page.get_by_label("Search").fill("Response 77777")
    expect(page.locator(".count")).to_have_text("1 / 100,000")
    facts = page.locator(".facts")
    expect(facts).not_to_contain_text("–")


def test_samples_stand_at_full_height_and_lead_to_their_first_difference(tab: Tab, runs: Path) -> None:
    page = tab.open("#/run/long/step/1/samples/1")
    text = page.locator(".sample .sample-text").first
    assert text.evaluate("one => one.scrollHeight <= one.clientHeight + 1"), "no box that cuts its last line"
    other = page.locator(".sample:not(.base)")
    t = other.get_attribute("data-difference")
    other.get_by_role("button", name=f"◆ t = {t}").click()
    expect(other.locator(".differs")).to_be_in_viewport()
    if int(t or 0) > 200:
        header = other.locator("header").bounding_box()
        assert header is not None
        assert header["y"] >= 0, "which sample it is stays in sight"


def test_a_range_in_an_address_opens_at_its_first_token(tab: Tab) -> None:
    page = tab.open("#/run/long/step/1/rollout/0?range=1200-1260")
    expect(page.locator(".chip.selected")).to_have_attribute("data-t", "1200")
    expect(page.locator(".chip.selected")).to_be_in_viewport()
    expect(page.locator(".range-account h2")).to_contain_text("t = 1200…1260")


def test_one_advantage_for_all_tokens_leaves_the_text_readable(tab: Tab, runs: Path) -> None:
    config = read_config(None, ["estimator=grpo", f"model.path={runs / 'long-model'}"])
    words = Words()
    rows = [[(answer_of(60), True)] for _ in range(2)]
    with Run.create(runs, "grouped", as_values(config)) as run:
        run.ledger.write(1, chat_ledger(config, words, rows, config.kl.reward_coef))
        run.metrics_path.write_text('{"step": 1, "a": 1}\n')
    page = tab.open("#/run/grouped/step/1/rollout/1")
    most = page.locator(".legend-ticks > *").last.text_content()
    chip = page.locator(".chip").nth(5)
    assert most is not None
    title = page.locator(".overview .reading").text_content() or ""
    advantage = float(title.rpartition(" ")[2].replace("−", "-"))
    assert float(most.replace("+", "")) == pytest.approx(2 * abs(advantage), rel=0.01)
    assert chip.evaluate("one => getComputedStyle(one).color") == "rgb(22, 24, 29)", "dark ink on a middle tone"
