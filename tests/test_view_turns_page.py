"""A conversation with tools in a real browser: turns and observations as blocks, the turn's curve, the timeline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from small_runs import trained
from test_view_page import Tab, assert_shows, browser, watched
from test_view_server import served

from mingce.record.store import LedgerStore
from mingce.sources.library import Library
from mingce.view.api import Api

__all__ = ["browser"]  # the fixture
pytestmark = pytest.mark.xdist_group("page")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    how = ("task=calculator", "model.path=calculator", "sampling.max_new_tokens=64", "validation.examples=4")
    return trained(tmp_path_factory.mktemp("runs"), "calc", *how, "steps=1")


@pytest.fixture(scope="module")
def row(run: Path) -> int:
    """A rollout that called the tool."""
    calls = LedgerStore(run / "ledger").read(1).row("tool_calls")
    return max(range(len(calls)), key=lambda row: calls[row])


@pytest.fixture
def tab(browser: Browser, run: Path) -> Iterator[Tab]:
    with served(Api(Library([run])), lang="en") as client:
        tab = watched(browser, f"http://127.0.0.1:{client.port}/")
        yield tab
        tab.page.close()
        assert tab.complaints == []
        assert tab.stranger() == []


def test_turns_calls_and_observations_are_blocks(tab: Tab, run: Path, row: int) -> None:
    stored = LedgerStore(run / "ledger").rollout(1, row)
    count = max(stored["turn"]) + 1
    page = tab.open(f"#/run/calc/step/1/rollout/{row}")
    expect(page.locator(".said")).to_have_count(count)
    expect(page.locator(".said").first).to_contain_text("calls a tool")
    told = page.locator(".observation[data-observation=tool]")
    assert told.count() >= 1
    assert "repeating-linear-gradient" in told.first.evaluate("element => getComputedStyle(element).backgroundImage")
    for turn in range(count):
        slots = [t for t, n in enumerate(stored["turn"]) if n == turn and stored["response_mask"][t]]
        cells = page.locator(f".turns tr[data-turn='{turn}'] td").all_inner_texts()
        assert cells[:2] == [str(turn + 1), str(len(slots))]
        assert_shows(cells[2], sum(stored["rewards"][t] for t in slots))
        assert_shows(cells[3], stored["values"][slots[0]])
        assert_shows(cells[4], stored["returns"][slots[0]])
        assert_shows(cells[5], sum(stored["advantages"][t] for t in slots) / len(slots))
    expect(page.locator(".turn-curve [data-line]")).to_have_count(3)
    page.locator(".turns tr[data-turn='1']").click()
    expect(page.locator(".chip.selected")).to_have_attribute("data-t", str(stored["turn"].index(1, slots_end(stored))))
    tab.open(f"#/run/calc/step/1/rollout/{row}?view=map")
    expect(page.locator(".holes-note")).to_contain_text("credit goes across")
    page.locator("[data-lang=zh]").click()
    expect(page.locator(".holes-note")).to_contain_text("信用照样穿过")


def slots_end(stored: dict[str, list[int]]) -> int:
    """Where the first observation ends, and so the second turn begins."""
    mask = stored["response_mask"]
    return next(t for t in range(1, len(mask)) if mask[t] and not mask[t - 1])


def test_the_timeline_has_a_lane_for_every_sample(tab: Tab, run: Path, row: int) -> None:
    page = tab.open(f"#/run/calc/step/1/rollout/{row}")
    rollout = Api(Library([run])).rollout("calc", 1, row)
    assert [one.row for one in rollout.clocks] == [one.row for one in rollout.siblings]
    expect(page.locator(".lane")).to_have_count(len(rollout.siblings))
    own = page.locator(f".lane.own[data-row='{row}']")
    (clock,) = [one for one in rollout.clocks if one.row == row]
    expect(own.locator(".span.decoded")).to_have_count(len(clock.turns))
    expect(own.locator(".span.stepped")).to_have_count(sum(one.stepped_from is not None for one in clock.turns))


def test_it_fits_a_narrow_screen(tab: Tab, row: int) -> None:
    tab.page.set_viewport_size({"width": 360, "height": 740})
    page = tab.open(f"#/run/calc/step/1/rollout/{row}")
    expect(page.locator(".timeline")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_whose_turn_a_token_is_in_is_told_of_observations_too(run: Path, row: int) -> None:
    stored = LedgerStore(run / "ledger").rollout(1, row)
    columns = Api(Library([run])).rollout("calc", 1, row).columns
    assert list(columns["turn"]) == list(stored["turn"])
    assert list(columns["role"]) == list(stored["role"])
    assert {who for who, mine in zip(columns["role"], columns["response_mask"], strict=True) if not mine} == {2}
    assert None in columns["values"]
