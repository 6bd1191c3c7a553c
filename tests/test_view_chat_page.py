"""One rollout in a real browser: a chat run, answers of 2,000 tokens, a tool's words, an estimator without a critic."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from chat_runs import QUESTIONS, SYSTEM, chat_run
from playwright.sync_api import Browser, Page, expect
from test_view_page import Tab, assert_shows, browser, shown_number, watched
from test_view_server import served

from mingce.record.store import LedgerStore
from mingce.sources.library import Library
from mingce.view.api import Api

__all__ = ["browser"]  # the fixture
pytestmark = pytest.mark.xdist_group("page")
WIDTH = 2000
SHORT, LONG, TOOL = (f"#/run/chat/step/{step}/rollout/0" for step in (1, 2, 3))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    chat_run(root, width=WIDTH)
    chat_run(root, "grpo", "grpo", width=60)
    store = LedgerStore(chat_run(root, "exact", width=60) / "ledger")
    exact = store.read(1)
    store.write(1, exact.fill({"rollout_log_probs": exact["old_log_probs"] - 2e-6}))
    return root


@pytest.fixture
def tab(browser: Browser, runs: Path) -> Iterator[Tab]:
    with served(Api(Library([runs])), lang="en") as client:
        tab = watched(browser, f"http://127.0.0.1:{client.port}/")
        yield tab
        tab.page.close()
        assert tab.complaints == []
        assert tab.stranger() == []


def test_the_prompt_is_a_conversation_whose_template_is_folded(tab: Tab) -> None:
    page = tab.open(SHORT)
    expect(page.locator(".question")).to_have_count(0)  # it stands in the conversation
    expect(page.locator(".turn")).to_have_count(2)
    expect(page.locator(".turn[data-role=system] p")).to_have_text(SYSTEM)
    expect(page.locator(".turn[data-role=user] p")).to_have_text(QUESTIONS[0])
    conversation = page.locator(".conversation")
    expect(conversation).not_to_contain_text("im_start")
    expect(page.locator(".template").nth(1)).to_have_text("⋯ 5")
    page.locator(".template").nth(1).click()
    expect(page.locator(".template").nth(1)).to_contain_text("<|im_end|>↵\n<|im_start|>user↵")
    page.get_by_role("button", name="Show the template (13 tokens)").click()
    expect(conversation).to_contain_text("<|im_start|>assistant")
    page.locator("[data-lang=zh]").click()
    expect(page.locator(".turn[data-role=user] h3")).to_contain_text("用户")
    tab.open(f"{SHORT}?view=whatif")
    expect(page.locator(".question")).to_have_text(QUESTIONS[0])
    expect(page.locator(".conversation")).to_have_count(0)
    tab.open("#/run/chat/step/1")
    expect(page.locator("tbody tr.link").nth(2)).to_contain_text("小明有 12 个苹果")
    expect(page.locator("tbody")).not_to_contain_text("im_start")


def test_the_response_reads_as_the_text_it_is(tab: Tab, runs: Path) -> None:
    page = tab.open(SHORT)
    text = page.locator(".chips").evaluate("box => box.textContent").replace("↵", "")
    assert text == LedgerStore(runs / "chat" / "ledger").rollout(1, 0)["response"]
    box = page.locator(".chips").evaluate(
        "box => [box.scrollHeight, box.clientHeight, getComputedStyle(box).whiteSpace]"
    )
    assert box[0] == box[1]  # nothing of it is cut
    assert box[2] == "pre-wrap"


def visible_share(page: Page, t: int) -> float:
    """How much of a token's height can be seen under the bar and the overview."""
    return float(page.evaluate(
        """t => { const box = document.querySelector(`.chip[data-t="${t}"]`).getBoundingClientRect();
        const seen = document.elementFromPoint(box.left + 2, (box.top + box.bottom) / 2);
        return seen && seen.closest(`.chip[data-t="${t}"]`) ? 1 : 0; }""", t,
    ))  # fmt: skip


def test_2000_tokens_are_cut_out_only_where_they_are_seen_and_each_can_be_reached(tab: Tab) -> None:
    page = tab.open(f"{LONG}?token=1200")
    expect(page.locator(".chip.selected")).to_have_attribute("data-t", "1200")
    expect(page.locator(".account-head")).to_contain_text("t = 1200 ")
    assert visible_share(page, 1200) == 1
    length = page.locator(".chips").evaluate("box => box.textContent.length")
    assert page.locator(".chip").count() < WIDTH
    for key, selected in (("End", WIDTH - 1), ("ArrowLeft", WIDTH - 2), ("Home", 0), ("ArrowRight", 1)):
        page.keyboard.press(key)
        expect(page.locator(".chip.selected")).to_have_attribute("data-t", str(selected))
        expect(page.locator(".account-head")).to_contain_text(f"t = {selected} ")
        assert visible_share(page, selected) == 1
    assert page.locator(".chips").evaluate("box => box.textContent.length") == length
    page.locator(".chips").focus()
    page.keyboard.press("ArrowDown")
    below = int(page.locator(".chip.selected").get_attribute("data-t") or 0)
    assert below > 1
    page.keyboard.press("ArrowUp")
    expect(page.locator(".chip.selected")).not_to_have_attribute("data-t", str(below))


def test_a_drag_over_the_overview_marks_a_range_that_the_account_follows(tab: Tab, runs: Path) -> None:
    page = tab.open(LONG)
    canvas = page.locator(".overview canvas")
    box = canvas.bounding_box()
    assert box is not None
    slot = (box["width"] - 58 - 8) / WIDTH

    def x(t: int) -> float:
        return 58 + (t + 0.5) * slot

    canvas.click(position={"x": x(1000), "y": 40})
    expect(page.locator(".chip.selected")).to_have_attribute("data-t", re.compile("^(99[789]|100[0123])$"))
    box = canvas.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + x(500), box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + x(520), box["y"] + 40)
    page.mouse.move(box["x"] + x(600), box["y"] + 40)
    page.mouse.up()
    found = re.search(r"range=(\d+)-(\d+)", page.url)
    assert found is not None
    first, last = int(found[1]), int(found[2])
    assert abs(first - 500) <= 3
    assert abs(last - 600) <= 3
    stored = LedgerStore(runs / "chat" / "ledger").rollout(2, 0)
    cells = page.locator("[data-range=rewards] td").all_inner_texts()
    assert_shows(cells[0], sum(stored["rewards"][first : last + 1]))
    most = max(stored["deltas"][first : last + 1])
    page.locator("[data-range=deltas] button").last.click()
    expect(page.locator(".chip.selected")).to_have_attribute("data-t", str(stored["deltas"].index(most)))
    page.reload()
    expect(page.locator(".range-account h2")).to_contain_text(f"t = {first}…{last}")
    for _ in range(50):  # a key that comes before the page listens to keys is lost
        page.keyboard.press("Escape")
        if not page.locator(".range-account").count():
            break
        page.wait_for_timeout(200)
    expect(page.locator(".range-account")).to_have_count(0)
    assert "range=" not in page.url


def test_the_keyboard_and_the_text_mark_ranges_too(tab: Tab) -> None:
    page = tab.open(f"{SHORT}?token=3")
    for _ in range(4):
        page.keyboard.press("Shift+ArrowRight")
    expect(page).to_have_url(re.compile("range=3-7"))
    expect(page.locator(".chip.ranged")).to_have_count(5)
    page.keyboard.press("Escape")
    expect(page.locator(".chip.ranged")).to_have_count(0)
    first, last = (page.locator(f".chip[data-t='{t}']").bounding_box() for t in (1, 4))
    assert first is not None
    assert last is not None
    page.mouse.move(first["x"] + first["width"] / 2, first["y"] + 10)
    page.mouse.down()
    page.mouse.move(last["x"] + last["width"] / 2, last["y"] + 10, steps=4)
    page.mouse.up()
    expect(page).to_have_url(re.compile("range=1-4"))
    for odd in ("9-3", "x", "5-", "999999-9999999"):
        tab.open(f"{SHORT}?range={odd}")
        expect(page.locator(".chips .chip").first).to_be_visible()
        expect(page.locator(".range-account")).to_have_count(0)


def test_what_a_tool_said_stands_apart(tab: Tab) -> None:
    page = tab.open(TOOL)
    block = page.locator(".observation")
    expect(block).to_have_count(1)
    expect(block).to_contain_text("tool · ")
    assert "repeating-linear-gradient" in block.evaluate("element => getComputedStyle(element).backgroundImage")
    block.locator(".chip", has_text="72").click()
    expect(page.locator(".account-section")).to_have_count(1)
    expect(page.locator("[data-section=not_chosen]")).to_be_visible()
    expect(page.locator("[data-mark=action]")).to_contain_text("given, not chosen")
    page.locator(".chip[data-t='0']").click()
    expect(page.locator("[data-mark=action] small")).to_contain_text("chosen")
    expect(page.locator("[data-mark=action]")).not_to_contain_text("given")


def test_an_estimator_without_a_critic_shows_no_value_no_td_error_and_no_lambda(tab: Tab) -> None:
    page = tab.open("#/run/grpo/step/1/rollout/1")
    for level in ("child", "engineer", "proof"):
        page.locator(f"[data-level={level}]").click()
        said = page.locator("main").inner_text()
        assert not re.search("[λγδ]|V\\(", said), re.findall(".{0,30}(?:[λγδ]|V\\().{0,30}", said)
    expect(page.get_by_role("link", name="Credit map")).to_have_count(0)
    expect(page.locator(".column-meaning")).to_contain_text("mean")
    tab.open("#/run/grpo/step/1/rollout/1?view=whatif")
    expect(page.locator("[data-setting=β]").first).to_be_visible()
    assert page.locator("[data-setting=λ], [data-setting=γ]").count() == 0


def test_the_gap_between_sampler_and_trainer_colours_tokens_and_a_missing_column_says_how(tab: Tab, runs: Path) -> None:
    page = tab.open(f"{SHORT}?column=log_prob_gap&token=4")
    stored = LedgerStore(runs / "chat" / "ledger").rollout(1, 0)
    gap = [q - old for q, old in zip(stored["rollout_log_probs"], stored["old_log_probs"], strict=True)]
    cells = page.locator("td[data-column=log_prob_gap]").all_inner_texts()
    assert len(cells) > 10
    for text, number in zip(cells, gap, strict=False):
        value, tolerance = shown_number(text)
        assert abs(value - number) <= tolerance + 1e-6
    expect(page.locator(".chips-head .legend")).to_be_visible()
    page.locator("[data-choose=column]").select_option("new_log_probs")
    expect(page.locator("[data-missing=new_log_probs]")).to_contain_text("was not recorded. To record it:")
    page.locator("[data-lang=zh]").click()
    expect(page.locator("[data-missing=new_log_probs]")).to_contain_text("没有记录")


def test_sampler_and_trainer_lie_over_each_other_and_rounding_is_no_difference(tab: Tab, runs: Path) -> None:
    page = tab.open(f"{SHORT}?column=log_prob_gap")
    stored = LedgerStore(runs / "chat" / "ledger").rollout(1, 0)
    gap = [abs(q - old) for q, old in zip(stored["rollout_log_probs"], stored["old_log_probs"], strict=True)]
    said = page.locator(".gap-line b").all_inner_texts()
    assert_shows(said[0], sum(gap) / len(gap))
    assert_shows(said[1], max(gap))
    page.locator(".gap-line button").click()
    expect(page.locator(".chip.selected")).to_have_attribute("data-t", str(gap.index(max(gap))))
    expect(page.locator(".reading")).to_contain_text("log q")
    tall = page.locator(".overview canvas").evaluate("canvas => canvas.clientHeight")
    page.locator("[data-choose=column]").select_option("rollout_log_probs")
    expect(page.locator(".gap-line")).to_have_count(0)
    tab.open(f"{LONG}")
    assert page.locator(".overview canvas").evaluate("canvas => canvas.clientHeight") < tall
    for place, ends in (("exact", "0.02"), ("chat", None)):
        tab.open(f"#/run/{place}/step/1/rollout/0?column=log_prob_gap")
        shown = page.locator(".chips-head .legend-ticks span").last.inner_text().lstrip("+")
        assert shown == ends or ends is None
        strong = page.locator(".chip").evaluate_all(STRONG)
        assert (max(strong) < 10) if ends else (max(strong) > 100)


STRONG = """chips => chips.map(chip => {
const rgb = getComputedStyle(chip).backgroundColor.match(/[0-9.]+/g).map(Number);
return Math.max(...rgb.slice(0, 3)) - Math.min(...rgb.slice(0, 3)); })"""  # how far from grey


@pytest.mark.parametrize("size", [(360, 740), (820, 1100), (1920, 1080)])
def test_it_fits_any_screen(tab: Tab, size: tuple[int, int]) -> None:
    tab.page.set_viewport_size({"width": size[0], "height": size[1]})
    for place in (SHORT, f"{LONG}?token=900&range=880-990", f"{TOOL}?token=9"):
        page = tab.open(place)
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
        token = re.search(r"token=(\d+)", place)
        assert visible_share(page, int(token[1]) if token else 0) == 1 or not token
