"""A run's and a step's pages in a real browser: held-out answers, curves, runs overlaid, worst tokens, search, keys."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Browser, expect
from small_runs import trained
from test_view_hostile import new_run, write_step
from test_view_page import Tab, assert_shows, browser, shown_number, watched
from test_view_server import served

from mingce.base.errors import RunError
from mingce.ledger import Ledger
from mingce.record.run import Run
from mingce.sources.library import Library
from mingce.view import run_search, worst_tokens
from mingce.view.api import Api
from mingce.view.export import chosen_answers

__all__ = ["browser"]
pytestmark = pytest.mark.xdist_group("page")
KEPT = 4


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    more = ("lang=en", f"keep.validation_prompts={KEPT}", "samples_per_prompt=4", "prompts_per_step=3")
    trained(root, "one", *more, "steps=3", "minibatch_rollouts=12")
    trained(root, "two", *more, "steps=2", "minibatch_rollouts=12", "estimator=grpo", "actor.lr=2e-3")
    return root


@contextmanager
def opened(browser: Browser, *places: Path) -> Iterator[Tab]:
    with served(Api(Library(places)), lang="en") as client:
        tab = watched(browser, f"http://127.0.0.1:{client.port}/")
        yield tab
        tab.page.close()
        assert tab.complaints == []
        assert tab.stranger() == []


@pytest.fixture
def tab(browser: Browser, runs: Path) -> Iterator[Tab]:
    with opened(browser, runs) as tab:
        yield tab


def ledger_of(runs: Path, step: int, name: str = "one") -> Ledger:
    return Run.open(runs / name, readonly=True).ledger.read(step)


# ── held-out prompts ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_held_out_answers_come_first_on_a_runs_page(tab: Tab, runs: Path) -> None:
    page = tab.open("#/run/one")
    answers = [Run.open(runs / "one", readonly=True).validation.read(step) for step in range(4)]
    box = page.locator(".held-out")
    expect(box.locator(".answers li")).to_have_count(4)
    assert page.locator(".held-out, .chart-grid").first.get_attribute("class") == "card held-out"
    box.get_by_role("button", name="Next prompt").click()
    expect(page).to_have_url(re.compile(r"#/run/one\?prompt=2$"))
    page.reload()
    expect(box.locator(".prompt")).to_have_text(answers[0].row("prompt")[1])
    for step, one in enumerate(answers):
        line = box.locator(".answers li").nth(step)
        expect(line).to_contain_text(f"step {step}")
        expect(line.locator("[role=listbox]")).to_have_attribute("aria-label", one.row("response")[1])
    box.locator(".answers li a").last.click()
    expect(page).to_have_url(re.compile(r"#/run/one~validation/step/3/rollout/1"))
    assert_shows(page.locator(".account [data-name=value]").first.text_content(), float(answers[3]["values"][1, 0]))
    page.locator(".trail a", has_text="one").click()
    expect(page.locator("main h1")).to_have_text("one")


def test_without_values_held_out_answers_show_what_there_is(tab: Tab) -> None:
    page = tab.open("#/run/two")
    names = page.locator("[data-choose=held-out-column] option").evaluate_all("all => all.map(one => one.value)")
    assert "entropy" in names
    assert not {"values", "advantages"} & set(names)


def test_an_export_carries_the_held_out_answers(runs: Path) -> None:
    api = Api(Library([runs / "one"]))
    carried = chosen_answers(api, [3], 2)
    assert [one.row for one in carried["/api/runs/one~validation/through"].prompts] == list(range(KEPT))
    assert len(carried["/api/runs/one~validation/through?step=0&row=2"].answers) == 4


# ── curves ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def wild_run(root: Path, name: str = "wild", **changed: float) -> Path:
    """Thirty steps with one explained variance of −10, a slow first step, and a score of three parts that rises."""
    lines = []
    for step in range(1, 31):
        line = {
            "step": step, "critic/vf_explained_var": -10.0 if step == 5 else 0.4 + 0.01 * (step % 7),
            "critic/score/mean": 0.1 if step == 1 else 0.9 + 0.001 * step, "score/format": 0.5, "score/number": 0.1,
            "score/tone": step / 60, "critic/kl": 0.0 if step != 9 else 3.0,
            "timing_s/step": 40.0 if step == 1 else 1 + 0.1 * (step % 3), "timing_s/generate": 0.5 + 0.01 * step,
        }  # fmt: skip
        lines.append(json.dumps(line | changed) + "\n")
    return new_run(root, name, "".join(lines).encode())


def test_a_stray_point_does_not_flatten_a_curve(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, wild_run(tmp_path)) as tab:
        page = tab.open("#/run/wild")
        notes = page.locator("[data-strays]")
        expect(notes).to_have_count(2)  # a rise and a curve that is still but for one step are not strays
        expect(page.locator('[data-metric="critic/vf_explained_var"] .strays')).to_contain_text("−10 at step 5")
        expect(page.locator('[data-metric="timing_s/step"] .strays')).to_contain_text("40 at step 1")
        cards = page.locator(".chart-card").evaluate_all("all => all.map(one => one.dataset.metric)")
        assert cards[:2] == ["critic/score/mean", "score/format"]
        expect(page.locator('[data-metric="score/format"] .metric-names li')).to_have_count(3)
        notes.first.get_by_role("button").click()
        expect(notes).to_have_count(0)
        expect(page).to_have_url(re.compile(r"scale=full"))
        page.locator("[data-setting=smooth]").fill("0.6")
        expect(page).to_have_url(re.compile(r"smooth=0.6&scale=full"))
        page.reload()
        expect(page.locator(".curve-bar output")).to_have_text("0.60")
        expect(page.locator("[data-setting=full]")).to_be_checked()
        page.locator("[data-setting=full]").uncheck()
        expect(notes).to_have_count(2)


def test_scale_and_smoothing_by_hand(tab: Tab) -> None:
    page = tab.open("#/playground")

    def fit(values: list[float | None], name: str = "a") -> Any:
        return page.evaluate(
            "([name, values]) => window.mingce.curves.fit([{ name, values }])", [name, values]
        )  # fmt: skip

    found = fit([0.5, 0.4, -10, 0.6, 0.5, None, 0.4])
    assert found["range"] == [0.4, 0.6]
    assert found["strays"] == [{"line": 0, "index": 2, "value": -10}]
    assert fit([0.5, 0.4, -10, 0.6, 0.5, None, 0.4], "critic/score/mean")["range"] is None
    assert fit([1, 2, 3, 4, 5, 6, 20])["range"] is None  # hardly farther than the others from each other
    assert fit([0, 0, 0, 0, 0, 0, 5, 0.1])["range"] is None  # still but for two
    assert fit([1, 1, 9])["range"] is None
    assert fit([])["range"] is None
    smooth = "values => window.mingce.curves.smoothed(values, 0.5)"
    assert page.evaluate(smooth, [1, None, 3, 3]) == pytest.approx([1, None, 3.5 / 1.5, 4.75 / 1.75])


def test_runs_are_laid_over_each_other_with_the_settings_that_differ(tab: Tab) -> None:
    page = tab.open("#/?compare=one")
    page.get_by_label("Compare two").check()
    expect(page).to_have_url(re.compile(r"compare=one%2Ctwo"))
    expect(page.locator("[data-setting=estimator] td")).to_have_text(["estimator", "gae", "grpo"])
    expect(page.locator("tr[data-setting='actor.lr'] td")).to_have_text(["actor.lr", "0.001", "0.002"])
    differing = page.locator("tr[data-setting]").evaluate_all("all => all.map(one => one.dataset.setting)")
    assert set(differing) == {"estimator", "actor.lr", "steps"}
    cards = page.locator(".compare-runs .chart-card").evaluate_all("all => all.map(one => one.dataset.metric)")
    assert {"critic/score/mean", "critic/kl", "critic/vf_loss", "timing_s/step"} <= set(cards)
    page.locator("[data-setting=smooth]").fill("0.5")
    expect(page).to_have_url(re.compile(r"compare=one%2Ctwo&smooth=0.5"))
    tab.open("#/?compare=one,nobody")
    expect(page.locator(".compare-runs [role=alert]")).to_contain_text("nobody")
    tab.complaints.clear()  # the browser's own line about the 404


# ── tokens, texts, samples ───────────────────────────────────────────────────────────────────────────────────────────


def test_worst_tokens_of_a_step_lead_to_their_accounts(tab: Tab, runs: Path) -> None:
    ledger = ledger_of(runs, 2)
    page = tab.open("#/run/one/step/2")
    page.get_by_role("link", name="Worst tokens").click()
    page.locator("[data-setting=each]").click()
    expect(page.locator("table[data-by=advantages] tbody tr")).to_have_count(worst_tokens.TOP)
    shown = [shown_number(text.lstrip("+"))[0] for text in page.locator("tbody td:first-child").all_inner_texts()]
    wanted = ledger["advantages"][ledger.mask].abs().sort(descending=True).values[: len(shown)]
    assert torch.tensor(shown).abs().tolist() == pytest.approx(wanted.tolist(), abs=1e-4)
    sizes = {
        "ratio": ledger["ratio"].log().abs(), "entropy": ledger["entropy"],
        "sampler": (ledger["rollout_log_probs"] - ledger["old_log_probs"]).abs(),
    }  # fmt: skip
    for name, size in sizes.items():
        page.locator(".tabs a", has_text=name).click()
        expect(page.locator(".tabs [aria-current]")).to_contain_text(name)
        row, t = divmod(int(torch.where(ledger.mask, size, -1.0).argmax()), ledger.width)
        cells = page.locator("tbody tr").first.locator("td")
        if name == "entropy":
            expect(cells.nth(1)).to_have_text(str(row))
            expect(cells.nth(2)).to_have_text(str(t))
    first = page.locator("tbody tr").first
    row_shown, t_shown = (first.locator("td").nth(place).inner_text() for place in (1, 2))
    first.locator("a").first.click()
    expect(page).to_have_url(re.compile(rf"/step/2/rollout/{row_shown}\?token={t_shown}"))
    expect(page.locator(".account-head")).to_contain_text(f"t = {t_shown} ")


def test_worst_tokens_of_a_run_are_found_some_steps_at_a_time(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Api(Library([runs])).worst_of_run("one", "advantages")
    assert (whole.seen, whole.total) == (3, 3)
    largest = max(float(ledger_of(runs, step)["advantages"].abs().max()) for step in (1, 2, 3))
    assert abs(whole.tokens[0].value) == pytest.approx(largest)
    api = Api(Library([runs]))
    monkeypatch.setattr(worst_tokens.RunTop.look, "__defaults__", (-1.0,))
    seen = [api.worst_of_run("one", "advantages") for _ in range(4)]
    assert [one.seen for one in seen] == [1, 2, 3, 3]
    assert seen[-1].tokens == whole.tokens
    assert api.worst_of_run("one", "nothing").by == "advantages"
    assert worst_tokens.spread([1, 2, 3, 4, 5, 6]) == [6, 1, 3, 2, 4, 5]


def test_a_step_too_large_for_its_time_says_how_far_it_was_read(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    write_step(run, 64 * 30, tokens=2000)
    source = Library([run]).source("odd")
    top, seen = worst_tokens.worst_of_step(source, 1, seconds=-1.0)
    assert 0 < seen < 64 * 30
    assert all(place.row < seen for place in top["advantages"])


def test_a_text_is_found_in_all_steps(tab: Tab, runs: Path) -> None:
    wanted = ledger_of(runs, 1).row("response")[0]
    counts = [
        sum(wanted.lower() in text.lower() for text in ledger_of(runs, step).row("response")) for step in (1, 2, 3)
    ]
    page = tab.open("#/run/one")
    page.keyboard.press("/")
    page.keyboard.type("nobody said this")
    page.keyboard.press("Enter")
    expect(page.locator("[data-seen='3']")).to_have_text("Nothing found; 3 steps looked through")
    page.locator("main input[type=search]").fill("")
    page.keyboard.type(wanted.upper())
    page.keyboard.press("Enter")
    expect(page.locator("main h1")).to_have_text("Search")
    expect(page.locator("[data-seen='3']")).to_contain_text(f"In {sum(counts)} rollout")
    expect(page.locator("main .card")).to_have_count(sum(c > 0 for c in counts))
    expect(page.locator(".hits mark").first).to_have_text(wanted)
    page.locator("main h2 a").last.click()
    expect(page.locator("main h1")).to_have_text("Step 1")
    expect(page.locator(".count")).to_have_text(f"{counts[0]} / 12")


def test_a_search_that_takes_too_long_goes_on_when_asked(
    browser: Browser,
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_search.search_run, "__defaults__", (None, -1.0))
    with opened(browser, runs) as tab:
        page = tab.open("#/run/one/search?text=Is")
        expect(page.locator("[data-seen='1']")).to_contain_text("2 steps left")
        page.get_by_role("button", name="Look further back").click()
        expect(page.locator("[data-seen='2']")).to_be_visible()
        page.get_by_role("button", name="Look further back").click()
        expect(page.locator("[data-seen='3']")).to_be_visible()
        expect(page.locator("button.more")).to_have_count(0)
        assert page.locator("main h2").all_inner_texts() == [f"Step {step}: 12" for step in (3, 2, 1)]


def test_samples_stand_side_by_side_with_their_first_difference(tab: Tab, runs: Path) -> None:
    ledger = ledger_of(runs, 1)
    page = tab.open("#/run/one/step/1")
    page.locator("tbody tr.link").nth(5).locator("button").click()
    expect(page.locator(".count")).to_have_text("4 / 12")
    page.get_by_role("link", name="Side by side").click()
    cards = page.locator(".sample")
    expect(cards).to_have_count(4)
    rows = [int(cards.nth(i).get_attribute("data-row") or -1) for i in range(4)]
    assert rows == [4, 5, 6, 7]
    ids = {row: ledger["token_ids"][row, : int(ledger.lengths[row])].tolist() for row in rows}

    def check(base: int) -> None:
        expect(page.locator(".sample.base")).to_have_attribute("data-row", str(base))
        for row in rows:
            if row != base:
                same = next(
                    (t for t, i in enumerate(ids[row]) if i != dict(enumerate(ids[base])).get(t)), len(ids[row])
                )
                card = page.locator(f".sample[data-row='{row}']")
                expect(card).to_have_attribute("data-difference", str(same))
                expect(card.locator(".same")).to_have_count(same)
                expect(card.locator(".differs")).to_have_count(0 if ids[row] == ids[base] else 1)

    scores = ledger["scores"].sum(1)
    check(max(rows, key=lambda row: (float(scores[row]), -row)))
    page.locator("[data-choose=base]").select_option("1")
    expect(page).to_have_url(re.compile(r"base=5"))
    check(5)
    page.locator("main h1").click()
    page.keyboard.press("ArrowRight")
    check(6)
    page.reload()
    check(6)
    with pytest.raises(RunError, match="no row 99"):
        Api(Library([runs])).samples("one", 1, 99)


# ── live, keys, large steps ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_that_trains_is_followed_without_a_reload(browser: Browser, runs: Path, tmp_path: Path) -> None:
    ledger = ledger_of(runs, 1)
    with Run.create(tmp_path, "live", {"steps": 9, "estimator": "gae"}) as run:
        run.ledger.write(1, ledger)
        run.log(1, {"critic/score/mean": 0.25})
        with opened(browser, tmp_path) as tab:
            page = tab.open("#/run/live")
            page.evaluate("window.same = true")
            expect(page.locator(".status")).to_contain_text("training")
            expect(page.locator(".newest")).to_have_attribute("data-step", "1")
            ledger.fill_rows(response=[f"said now {row}" for row in range(len(ledger))])
            run.ledger.write(2, ledger)
            run.log(2, {"critic/score/mean": 0.5})
            expect(page.locator(".newest")).to_have_attribute("data-step", "2")
            expect(page.locator(".newest-response").first).to_have_text("said now 0")
            expect(page.locator(".newest li")).to_have_count(3)  # one of each prompt
            tab.open("#/run/live/step/2")
            run.ledger.write(3, ledger)
            run.log(3, {"critic/score/mean": 0.5})
            page.get_by_role("link", name="3 →").click()
            expect(page.locator("main h1")).to_have_text("Step 3")
            assert page.evaluate("window.same")
            tab.open("#/")
            expect(page.locator(".status")).to_contain_text("training")
            run.close()
            expect(page.locator(".status")).to_contain_text("stopped")


def test_steps_rows_and_points_are_reached_by_keys(tab: Tab) -> None:
    page = tab.open("#/run/one")
    page.locator('[data-metric="critic/kl"] .chart').focus()
    page.keyboard.press("End")
    expect(page.locator('[data-metric="critic/kl"] .readout')).to_contain_text("3: ")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="3 →")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page.locator("main h1")).to_have_text("Step 3")
    expect(page.locator("tbody tr.link")).to_have_count(12)
    page.locator(".table-box").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(page.locator("main h1")).to_have_text("Step 3, rollout 1")
    expect(page.locator(".beside a")).to_have_text(["← #0", "#2 →"])
    page.locator(".chips").focus()
    page.keyboard.press("j")
    expect(page.locator("main h1")).to_have_text("Step 3, rollout 2")
    tab.open("#/run/one/step/3/rollout/11?column=deltas")
    expect(page.locator(".beside a")).to_have_text(["← #10"])
    page.keyboard.press("k")
    expect(page).to_have_url(re.compile(r"/step/3/rollout/10\?column=deltas"))
    tab.open("#/run/one")
    page.get_by_label("Open step").fill("2")
    page.keyboard.press("Enter")
    expect(page.locator("main h1")).to_have_text("Step 2")
    expect(page.get_by_role("searchbox")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("Is")
    expect(page).to_have_url(re.compile("search=Is"))


@pytest.mark.parametrize("width", [360, 1280])
def test_no_formula_of_an_account_is_cut(tab: Tab, width: int) -> None:
    tab.page.set_viewport_size({"width": width, "height": 900})
    page = tab.open("#/run/one/step/2/rollout/0?token=1")
    loss = page.locator('[data-section="value_loss"]')
    expect(loss).to_contain_text("max")
    formulas = page.locator(".account .formula.block")
    assert formulas.evaluate_all("all => all.filter(one => one.scrollWidth > one.clientWidth + 1).length") == 0


def test_a_large_step_shows_its_first_rollouts_before_it_is_looked_through(
    browser: Browser,
    tmp_path: Path,
) -> None:
    run = new_run(tmp_path, lines=b'{"step": 1, "a": 1}\n')
    write_step(run, 3000)
    with opened(browser, run) as tab:
        waiting: list[Any] = []
        tab.page.route("**/steps/1?whole=1", lambda route: waiting.append(route))
        page = tab.open("#/run/odd/step/1")
        expect(page.locator(".count")).to_have_text("3,000 / 3,000")
        expect(page.locator("tr.link").first).to_contain_text("Response 0")
        expect(page.locator(".histogram, .rank.best")).to_have_count(0)
        for route in waiting:
            route.continue_()
        expect(page.locator(".histogram")).to_have_count(3)
        expect(page.locator(".rank.best").first).to_be_visible()
