"""What real runs showed to be wrong on the page, in a real browser: phones, parts of a score, other trainers' runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from chat_runs import QUESTIONS, chat_run
from playwright.sync_api import Browser, expect
from small_runs import trained
from test_view_page import Tab, browser, watched
from test_view_server import served

from mingce.record.foreign import foreign_table
from mingce.record.run import Run
from mingce.record.store import LedgerStore
from mingce.sources.library import Library
from mingce.view.api import Api

__all__ = ["browser"]  # the fixture
pytestmark = pytest.mark.xdist_group("page")
FOREIGN = {
    "source": "trl_grpo",
    "trainer": "TRL 1.16.0 GRPOTrainer",
    "settings": {"estimator": "grpo", "clip_low": 0.2, "clip_high": 0.2},
}
STAGES = ("step", "generate", "score", "log_probs", "values", "credit", "update_critic", "update_actor", "audit",
          "ledger", "save", "tools")  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chat run with a step that knows no better than another and one cut short, and a run that was watched."""
    root = tmp_path_factory.mktemp("runs")
    chat = chat_run(root, width=300)
    store = LedgerStore(chat / "ledger")
    same = store.read(1)
    store.write(4, same.fill({"advantages": torch.zeros_like(same["advantages"])}))
    cut = store.read(1)
    store.write(5, cut.fill_rows(finish_reason=["length"] * len(cut)))
    seconds = {f"timing_s/{name}": 40.0 / (place + 1) for place, name in enumerate(STAGES)}
    lines = [{"step": step, "actor/pg_loss": 1.2e-8 + 1e-10 * step} for step in (1, 2, 3)]
    (chat / "metrics.jsonl").write_text("".join(json.dumps(line | seconds) + "\n" for line in lines))
    chat_run(root, "grpo", "grpo", width=60)
    whole = Library([root / "grpo"]).source("grpo").dump(1)
    tokens = ("token_ids", "response_mask", "attention_mask", "advantages", "old_log_probs")
    rows = ("prompt", "prompt_ids", "response", "group", "uid")
    dump = replace(
        whole, source="trl_grpo", columns={name: whole.columns[name] for name in tokens},
        rows={name: whole.rows[name] for name in rows} | {"outcome": [0.0, 1.0] * 2},
    )  # fmt: skip
    with Run.create(root, "watched", FOREIGN) as run:
        run.ledger.write_table(1, *foreign_table(1, dump))
        run.metrics_path.write_text(json.dumps({"step": 1, "critic/score/mean": 0.5}) + "\n")
    return root


@pytest.fixture
def tab(browser: Browser, runs: Path) -> Iterator[Tab]:
    with served(Api(Library([runs])), lang="en") as client:
        tab = watched(browser, f"http://127.0.0.1:{client.port}/")
        yield tab
        tab.page.close()
        assert tab.complaints == []
        assert tab.stranger() == []


def test_question_and_answer_come_before_the_parts_of_a_score(tab: Tab) -> None:
    tab.page.set_viewport_size({"width": 820, "height": 900})
    page = tab.open("#/run/chat/step/1")
    box = page.locator(".table-box").first.bounding_box()
    assert box is not None
    for text in (QUESTIONS[0][:30], "Let us think step by step"):
        cell = page.locator("tbody tr.link").first.locator("td.text", has_text=text).bounding_box()
        assert cell is not None
        assert cell["x"] + cell["width"] <= box["x"] + box["width"]
    heads = page.locator("thead th").all_inner_texts()
    assert heads.index("response") < heads.index("correct")


def test_columns_that_a_trainer_did_not_record_are_no_columns_of_dashes(tab: Tab) -> None:
    page = tab.open("#/run/watched/step/1")
    heads = page.locator("thead th").all_inner_texts()
    assert [name for name in ("KL", "finish") if name in heads] == []
    expect(page.locator(".facts")).not_to_contain_text("β")
    tab.open("#/run/chat/step/1")
    expect(page.locator("thead")).to_contain_text("KL")


def test_numbers_that_are_all_the_same_are_one_thin_bar(tab: Tab) -> None:
    page = tab.open("#/run/chat/step/4")
    figure = page.locator(".histogram", has_text="advantages")
    expect(figure.locator("rect")).to_have_count(1)
    bar, picture = figure.locator("rect").bounding_box(), figure.locator("svg").bounding_box()
    assert bar is not None
    assert picture is not None
    assert bar["width"] < picture["width"] / 20
    expect(figure).to_contain_text("all are 0")
    tab.open("#/run/watched/step/1")  # a single picture does not fill the page
    box = page.locator(".histogram").bounding_box()
    assert box is not None
    assert box["width"] <= 520


@pytest.mark.parametrize("place", ["#/", "#/run/chat", "#/run/chat/step/1/rollout/0"])
def test_the_bar_of_a_phone_is_two_lines_at_most(tab: Tab, place: str) -> None:
    tab.page.set_viewport_size({"width": 360, "height": 740})
    page = tab.open(place)
    for name in ("zh", "en"):
        button = page.locator(f"[data-lang={name}]")
        button.click()
        box = button.bounding_box()
        assert box is not None
        assert box["height"] < 36  # one line of text
        assert page.locator(".bar").evaluate("bar => bar.offsetHeight") <= 96
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_note_of_the_audit_is_as_wide_as_any_finding(tab: Tab) -> None:
    page = tab.open("#/run/chat/audit?step=5")
    note = page.locator(".finding.note", has_text="cut by the length limit")
    inside = note.evaluate("card => [card.clientWidth, ...[...card.children].map(child => child.offsetWidth)]")
    assert all(width > 0.9 * (inside[0] - 50) for width in inside[1:])


def test_a_watched_run_names_its_trainer_and_that_trainers_line(tab: Tab) -> None:
    page = tab.open("#/")
    card = page.locator(".run-card", has=page.get_by_role("link", name="watched"))
    expect(card).to_contain_text("grpo")
    tab.open("#/run/watched")
    expect(page.locator(".trainer")).to_have_text("TRL 1.16.0 GRPOTrainer")
    tab.open("#/run/watched/step/1/rollout/0?column=log_prob_gap")
    missing = page.locator("[data-missing=log_prob_gap]")
    expect(missing).to_contain_text("sampling_per_token_logps")
    expect(missing).to_contain_text("use_vllm=True")
    expect(missing).not_to_contain_text("ledger of ours")
    expect(page.locator(".facts")).not_to_contain_text("finish")


def test_lines_of_a_chart_have_their_own_colours_and_none_is_called_a_stray(tab: Tab) -> None:
    page = tab.open("#/run/chat")
    card = page.locator("figure[data-metric='timing_s/step']")
    names = card.locator(".metric-names li")
    expect(names).to_have_count(6)
    expect(names.nth(1)).to_have_text("timing_s/generate")
    colours = names.locator(".key-line").evaluate_all("marks => marks.map(mark => mark.style.background)")
    assert len(set(colours)) == len(colours)
    expect(page.locator(".strays")).to_have_count(0)
    axis = page.locator("figure[data-metric='actor/pg_loss'] .u-over")
    assert axis.evaluate("over => over.offsetLeft") >= 58  # 1.25×10⁻⁸ stands left of it


def test_a_hit_in_a_prompt_is_shown_without_its_template(tab: Tab) -> None:
    page = tab.open("#/run/chat/search?text=Natalia%20sold%20clips")
    expect(page.locator(".hits li").first).to_contain_text(QUESTIONS[0][:60])
    expect(page.locator(".hits").first).not_to_contain_text("im_start")


def test_worst_tokens_are_of_as_many_rollouts_unless_all_are_wanted(tab: Tab) -> None:
    page = tab.open("#/run/chat/worst")
    rows = page.locator("tbody tr").evaluate_all(
        "rows => rows.map(row => row.cells[1].textContent + row.cells[2].textContent)"
    )
    assert len(rows) > 5
    assert len(set(rows)) == len(rows)
    first = page.locator("tbody tr").first.inner_text()
    page.locator("[data-setting=each]").click()
    expect(page.locator("tbody tr")).to_have_count(20)
    expect(page).to_have_url(re.compile("all=1"))
    assert page.locator("tbody tr").first.inner_text() == first


def test_a_long_token_is_not_broken(tab: Tab) -> None:
    page = tab.open("#/run/chat/step/1/rollout/0?token=9")
    for width in (360, 1280, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.locator("[data-mark=action] mark").evaluate("mark => mark.getClientRects().length") == 1


def test_a_state_ends_in_whole_words_and_whole_marks_of_the_template(tab: Tab) -> None:
    page = tab.open("#/run/chat/step/1/rollout/0?token=0")
    state = page.locator("[data-section=state] .numbers")
    for view in ("", "&view=whatif"):  # as Python tells it, and as the page computes it
        tab.open(f"#/run/chat/step/1/rollout/0?token=0{view}")
        expect(state).to_contain_text("<|im_start|>assistant↵")
        tab.open(f"#/run/chat/step/1/rollout/0?token=13{view}")
        expect(state).to_have_text("s13=“…April she sold 48”,a13=“ clips”")


def test_settings_tried_and_steps_zoomed_into_are_in_the_address(tab: Tab, browser: Browser, tmp_path: Path) -> None:
    page = tab.open("#/run/chat/step/1/rollout/0?view=whatif&lam=0.5&gamma=2&estimator=nothing&n=1.5")
    assert page.locator("[data-setting=λ]").first.input_value() == "0.5"
    assert page.locator("[data-setting=γ]").first.input_value() == "1"  # 2 is none
    page.locator("[data-setting=λ]").first.fill("0.25")
    expect(page).to_have_url(re.compile(r"view=whatif&lam=0.25$"))
    page.reload()
    expect(page.locator("[data-setting=λ]").first).to_have_value("0.25")
    page.evaluate("location.hash = '#/run/chat/step/1/rollout/0?view=whatif&lam=0.75'")
    expect(page.locator("[data-setting=λ]").first).to_have_value("0.75")
    page.get_by_role("button", name="Back to what was recorded").click()
    expect(page).to_have_url(re.compile(r"view=whatif$"))
    with Run.create(tmp_path, "long", {"steps": 9000}) as run:
        run.metrics_path.write_text("".join(f'{{"step": {step}, "critic/kl": 0.5}}\n' for step in range(1, 9001)))
    with served(Api(Library([tmp_path])), lang="en") as client:
        other = watched(browser, f"http://127.0.0.1:{client.port}/")
        zoomed = other.open("#/run/long?steps=100-160&smooth=0.5")
        expect(zoomed.locator(".hint .tag")).to_contain_text("steps 100–160")
        zoomed.locator(".hint .tag").click()
        expect(zoomed).to_have_url(re.compile(r"#/run/long\?smooth=0.5$"))
        zoomed.close()


def test_ticked_runs_are_said_where_the_list_is_read(tab: Tab) -> None:
    tab.page.set_viewport_size({"width": 900, "height": 300})
    page = tab.open("#/")
    said = page.locator(".picked")
    expect(said).to_have_text("Tick two or more to compare them.")
    for name in ("chat", "grpo"):
        page.get_by_label(f"Compare {name}").check()
    expect(said).to_contain_text("2 runs are ticked")
    page.evaluate("scrollTo(0, 0)")
    expect(said).to_be_in_viewport()
    page.get_by_role("button", name="see them compared").click()
    expect(page.locator(".compare-runs h2")).to_be_in_viewport()
    page.set_viewport_size({"width": 360, "height": 740})
    width = 0
    for _ in range(600):  # until the charts have followed
        page.wait_for_timeout(100)
        width = page.evaluate("document.documentElement.scrollWidth")
        if width <= 360:
            break
    assert width <= 360
    page.get_by_role("button", name="Untick all").click()
    expect(page.locator(".compare-runs")).to_have_count(0)
    expect(page).to_have_url(re.compile(r"#/$"))


def test_runs_that_train_are_compared_as_they_go_on(browser: Browser, tmp_path: Path) -> None:
    with Run.create(tmp_path, "ended", {"steps": 1}) as run:
        run.metrics_path.write_text('{"step": 1, "critic/kl": 0.4}\n')
    with Run.create(tmp_path, "live", {"steps": 9}) as run, served(Api(Library([tmp_path])), lang="en") as client:
        run.metrics_path.write_text('{"step": 1, "critic/kl": 0.5}\n')
        tab = watched(browser, f"http://127.0.0.1:{client.port}/")
        page = tab.open("#/?compare=ended,live")
        card = page.locator(".compare-runs figure[data-metric='critic/kl']")
        expect(card).to_be_visible()
        with run.metrics_path.open("a") as log:
            log.write('{"step": 2, "critic/kl": 0.7, "actor/entropy": 1.5}\n')
        expect(page.locator(".compare-runs figure[data-metric='actor/entropy']")).to_be_visible()
        page.close()


def test_the_turns_curve_is_legible_on_a_phone_and_its_prompt_is_said_once(browser: Browser, tmp_path: Path) -> None:
    how = ("task=calculator", "model.path=calculator", "sampling.max_new_tokens=64", "validation.examples=4")
    run = trained(tmp_path, "calc", *how, "steps=1", "lang=en")
    calls = LedgerStore(run / "ledger").read(1).row("tool_calls")
    row = max(range(len(calls)), key=lambda row: calls[row])
    with served(Api(Library([run])), lang="en") as client:
        tab = watched(browser, f"http://127.0.0.1:{client.port}/")
        tab.page.set_viewport_size({"width": 360, "height": 740})
        page = tab.open(f"#/run/calc/step/1/rollout/{row}")
        label = page.locator(".turn-curve text").last.bounding_box()
        assert label is not None
        assert label["height"] >= 11
        expect(page.locator(".question")).to_have_count(0)
        expect(page.locator(".conversation .prompt")).to_contain_text("What is")
        expect(page.locator(".said").first).to_contain_text("tokens")
        page.locator("tr[data-turn='1'] button").focus()
        page.keyboard.press("Enter")
        expect(page.locator("tr[data-turn='1']")).to_have_class(re.compile("selected"))
        page.close()
