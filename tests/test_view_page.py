"""The web page in a real browser, over a real run and the real server."""

from __future__ import annotations

import hashlib
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright
from rich.console import Console
from test_view_hostile import new_run, write_step
from test_view_server import served

import mingce.view
from mingce.algorithms import reference
from mingce.ledger import Ledger
from mingce.record.run import Run
from mingce.record.store import LedgerStore
from mingce.sources.library import Library
from mingce.specs import ESTIMATORS, POLICY_LOSSES
from mingce.specs.estimator import row_inputs
from mingce.specs.kl import KL_NAMES
from mingce.training.start import train
from mingce.view.api import Api
from mingce.view.step_index import Query

expect.set_options(timeout=60_000)  # a busy machine draws slowly
pytestmark = pytest.mark.xdist_group("page")  # one worker, so that there is one run and one server
MINGCE = str(Path(sys.executable).with_name("mingce"))
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
HTML = "<script>window.broken = 1</script><img src=x onerror='window.broken = 1'>"
TRAINED, PLANTED, LONG = 2, 3, 4  # steps: the last trained one, one with HTML and a wrong number, one of 2,000 tokens
ROW, TOKEN = 1, 3
ROLLOUT = f"#/run/demo/step/{TRAINED}/rollout/{ROW}"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained run, with two more ledgers: one whose texts are HTML and which has a log-prob above 0, one long."""
    root = tmp_path_factory.mktemp("runs")
    settings = f"root={root} name=demo steps={TRAINED} prompts_per_step=8 validation.examples=8 lang=zh threads=1"
    train(Console(quiet=True), None, settings.split())
    store = LedgerStore(root / "demo" / "ledger")
    planted = store.read(TRAINED)
    planted.fill_rows(**{name: [HTML] * len(planted) for name in ("prompt", "response")})
    wrong = planted["old_log_probs"].clone()
    wrong[ROW, TOKEN] = 0.5
    store.write(PLANTED, planted.fill({"old_log_probs": wrong}))
    store.write(LONG, repeated(store.read(TRAINED).select([0, 1]), 2000))
    (root / "demo" / "ledger" / "step-000009.parquet").write_bytes(b"not a ledger")
    return root


def repeated(ledger: Ledger, width: int) -> Ledger:
    """The same tokens over and over, until every row is `width` long."""
    length = int(ledger.lengths.min())
    columns = {name: values[:, torch.arange(width) % length].contiguous() for name, values in ledger.columns().items()}
    long = Ledger(columns.pop("token_ids"), columns.pop("response_mask"), columns.pop("attention_mask"), ledger.rows)
    return long.fill(columns)


@pytest.fixture(scope="module")
def address(runs: Path) -> Iterator[str]:
    command = [MINGCE, "view", str(runs), "--no-browser", "--lang", "en"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        found = re.search(r"http://\S+/", server.stdout.readline())
        assert found is not None
        yield found[0]
        server.terminate()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("the web page is tested in chromium, which is not installed here; see make browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@dataclass
class Tab:
    """A tab and everything it complained about or asked for."""

    page: Page
    base: str
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def open(self, hash_: str) -> Page:
        self.page.goto(self.base + hash_)
        expect(self.page.locator("main h1")).to_be_visible()
        expect(self.page.locator(".loading")).to_have_count(0)
        return self.page

    def stranger(self) -> list[str]:
        """Requests to anywhere but the page's own address."""
        return [url for url in self.asked if not url.startswith((self.base.split("#")[0], "data:"))]


def watched(browser: Browser, base: str, lang: str = "en") -> Tab:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(60_000)
    page.add_init_script(f"try {{ localStorage.lang ??= '{lang}' }} catch {{}}")
    tab = Tab(page, base)
    page.on("console", lambda message: tab.complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: tab.complaints.append(str(error)))
    page.on("request", lambda request: tab.asked.append(request.url))
    return tab


@pytest.fixture
def tab(browser: Browser, address: str) -> Iterator[Tab]:
    """A fresh tab; at the end of the test the console must be empty and nothing may have left the machine."""
    tab = watched(browser, address)
    yield tab
    tab.page.close()
    assert tab.complaints == []
    assert tab.stranger() == []


@pytest.fixture
def ledger(runs: Path) -> dict[str, Any]:
    return LedgerStore(runs / "demo" / "ledger").rollout(TRAINED, ROW)


def shown_number(text: str) -> tuple[float, float]:
    """A number as the page writes it, and half a unit of its last digit."""
    plain = text.replace("−", "-").translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
    digits, _, power = plain.partition("×10")
    scale = 10.0 ** int(power or 0)
    decimals = len(digits.partition(".")[2]) if power else 4
    return float(digits) * scale, 0.5 * 10.0**-decimals * scale * (1 + 1e-9)


def assert_shows(text: str | None, number: float) -> None:
    assert text is not None
    value, tolerance = shown_number(text)
    assert abs(value - number) <= tolerance, f"the page shows {text} for {number}"


PAGES = {
    "#/": "Runs",
    "#/?compare=demo,demo": "Runs",
    "#/run/demo": "demo",
    f"#/run/demo/step/{TRAINED}": f"Step {TRAINED}",
    ROLLOUT: f"Step {TRAINED}, rollout {ROW}",
    f"{ROLLOUT}?view=map": f"Step {TRAINED}, rollout {ROW}",
    f"{ROLLOUT}?view=whatif": f"Step {TRAINED}, rollout {ROW}",
    f"#/run/demo/through?step={TRAINED}&row={ROW}": "One prompt through time",
    "#/run/demo/through": "One prompt through time",
    f"#/run/demo/audit?step={TRAINED}": "Audit",
    "#/playground": "Playground",
}


def test_the_page_was_built_from_these_sources() -> None:
    view = Path(mingce.view.__file__).parent
    web = view / "web"
    sources = [path for name in ("src", "public") for path in (web / name).rglob("*") if path.is_file()]
    sources += [web / name for name in ("index.html", "package-lock.json", "tsconfig.json", "vite.config.ts")]
    ordered = sorted(sources, key=lambda path: path.relative_to(web).as_posix())
    found = hashlib.sha256(b"".join(path.read_bytes() for path in ordered)).hexdigest()
    assert (view / "static" / "built-from.txt").read_text() == f"{found}\n", "run `make web`"


def test_every_page_opens(tab: Tab) -> None:
    for hash_, heading in PAGES.items():
        page = tab.open(hash_)
        expect(page.locator("main h1")).to_have_text(heading)
        expect(page.locator("[role=alert]")).to_have_count(1 if hash_ == "#/run/demo" else 0)


def test_every_page_fits_a_narrow_screen(tab: Tab) -> None:
    tab.page.set_viewport_size({"width": 360, "height": 740})
    for hash_ in PAGES:
        page, width = tab.open(hash_), 0
        for _ in range(600):  # until the page has settled; its content policy forbids a waiting script
            page.wait_for_timeout(100)
            width = page.evaluate("document.documentElement.scrollWidth")
            if width <= 360:
                break
        assert width <= 360, hash_


def test_charts_explain_themselves_and_lead_to_a_step(tab: Tab) -> None:
    page = tab.open("#/run/demo")
    card = page.locator('[data-metric="critic/kl"]')
    expect(card).to_contain_text("distance to the reference")
    chart = card.locator(".u-over")
    box = None
    while box is None:  # a chart that is drawn anew has none for a moment
        expect(chart).to_be_visible()
        box = chart.bounding_box()
    chart.click(position={"x": box["width"] - 2, "y": 20})
    expect(page.locator("main h1")).to_have_text(f"Step {TRAINED}")


def test_damaged_ledger_is_named_and_the_rest_is_shown(tab: Tab) -> None:
    page = tab.open("#/run/demo")
    expect(page.locator("[role=alert]")).to_contain_text("step-000009.parquet")
    assert page.locator(".chart-card").count() >= 8


def test_step_table_sorts_filters_and_searches(tab: Tab, runs: Path) -> None:
    page = tab.open(f"#/run/demo/step/{TRAINED}")
    everything = LedgerStore(runs / "demo" / "ledger").read(TRAINED)
    expect(page.locator(".count")).to_have_text(f"{len(everything)} / {len(everything)}")
    expect(page.locator(".histogram")).to_have_count(3)
    page.get_by_role("button", name="max |A|").click()
    expect(page.locator("th", has_text="max |A| ↓")).to_be_visible()
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    column = page.locator("thead th").all_inner_texts().index("max |A| ↓")
    shown = page.locator(f"tbody tr.link td:nth-child({column + 1})").all_inner_texts()
    numbers = [shown_number(text)[0] for text in shown]
    assert numbers == sorted(numbers, reverse=True)
    assert_shows(shown[0], everything["advantages"].abs().max().item())
    response = everything.row("response")[5]
    page.get_by_role("searchbox").fill(response)
    wanted = sum(response in f"{p}\n{r}" for p, r in zip(*map(everything.row, ("prompt", "response")), strict=True))
    expect(page.locator(".count")).to_have_text(f"{wanted} / {len(everything)}")
    page.get_by_role("searchbox").fill("")
    expect(page).to_have_url(re.compile(r"step/2\?sort=max_abs_advantage&down=1$"))
    page.reload()
    expect(page.locator("th", has_text="max |A| ↓")).to_be_visible()
    page.get_by_label("In the group").select_option("best")
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    groups = len(set(everything.row("group")))
    expect(page.locator(".count")).to_have_text(re.compile(rf"^\d+ / {len(everything)}$"))
    assert int(page.locator(".count").inner_text().split()[0]) <= groups
    page.locator("tbody tr.link").first.click()
    expect(page.locator(".chips .chip").first).to_be_visible()


def test_tokens_are_coloured_around_zero_by_the_chosen_column(tab: Tab, ledger: dict[str, Any]) -> None:
    page = tab.open(ROLLOUT)
    blue = "element => { const [r, , b] = getComputedStyle(element).backgroundColor.match(/\\d+/g); return b - r; }"
    for column in ("advantages", "deltas"):
        page.locator("[data-choose=column]").select_option(column)
        limit = max(abs(x) for x in ledger[column])
        expect(page.locator(".chips-head .legend")).to_contain_text(f"+{float(f'{limit:.3g}'):g}")
        tints = page.locator(".chips .chip").evaluate_all(f"all => all.map({blue})")
        for tint, number in zip(tints, ledger[column], strict=True):
            if abs(number) > 0.05 * limit:
                assert (tint > 0) == (number > 0), (column, tint, number)


ACCOUNT = {
    "reward": "rewards", "kl": "kl", "score": "scores", "value": "values", "delta": "deltas", "return": "returns",
    "advantage": "advantages", "whitened": "whitened_advantages", "ratio": "ratio", "policy_loss": "policy_loss",
    "value_loss": "value_loss", "new_value": "new_values", "old_log_prob": "old_log_probs",
}  # fmt: skip


def test_account_shows_the_ledgers_numbers(tab: Tab, ledger: dict[str, Any]) -> None:
    for t in (0, TOKEN, len(ledger["token_ids"]) - 1):
        page = tab.open(f"{ROLLOUT}?token={t}")
        expect(page.locator(".account-head")).to_contain_text(f"t = {t} ")
        numbers = page.locator(".account [data-name]").evaluate_all(
            "all => all.map(e => [e.dataset.name, e.textContent])"
        )
        seen = {name for name, _ in numbers}
        assert seen >= ACCOUNT.keys(), ACCOUNT.keys() - seen
        for name, text in numbers:
            if name in ACCOUNT:
                assert_shows(text, ledger[ACCOUNT[name]][t])
        following = ledger["values"][t + 1] if t + 1 < len(ledger["values"]) else 0.0
        assert_shows(dict(numbers)["next_value"], following)
        assert "{" not in page.locator(".account").inner_text()


def test_account_speaks_two_languages_at_three_levels(tab: Tab) -> None:
    page = tab.open(ROLLOUT)
    said = set()
    for lang in ("zh", "en"):
        page.locator(f"[data-lang={lang}]").click()
        for level in ("child", "engineer", "proof"):
            page.locator(f"[data-level={level}]").click()
            text = page.locator("[data-section=delta] .prose").first.inner_text()
            assert bool(re.search("[\u4e00-\u9fff]{4}", text)) == (lang == "zh")
            said.add(text)
    assert len(said) == 6


def test_language_and_theme_are_remembered(tab: Tab) -> None:
    page = tab.open("#/run/demo")
    page.locator("[data-lang=zh]").click()
    expect(page.locator(".run-charts .hint")).to_contain_text("点图上的点")
    assert page.evaluate("document.documentElement.lang") == "zh-CN"
    while page.evaluate("document.documentElement.dataset.theme") != "dark":
        page.locator(".theme").click()
    page.reload()
    expect(page.locator(".run-charts .hint")).to_contain_text("点图上的点")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_arrow_keys_walk_the_tokens(tab: Tab, ledger: dict[str, Any]) -> None:
    page = tab.open(ROLLOUT)
    last = len(ledger["token_ids"]) - 1
    for key, expected in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", last), ("ArrowRight", last)):
        page.keyboard.press(key)
        expect(page.locator(".chip.selected")).to_have_attribute("data-t", str(expected))
    assert f"token={last}" in page.url
    expect(page.locator(".account [data-mark=action] mark")).to_have_text(page.locator(".chip.selected").inner_text())


def test_sliders_recompute_the_microscope(tab: Tab, ledger: dict[str, Any]) -> None:
    page = tab.open(f"{ROLLOUT}?view=whatif")
    page.locator("[data-setting=γ]").fill("0.9")
    page.locator("[data-setting=β]").fill("0.5")
    mask = [[1] * len(ledger["token_ids"])]
    rewards = reference.kl_rewards([ledger["scores"]], [ledger["kl"]], mask, 0.5)
    for name, lam in (("λ=0: TD", 0.0), ("λ=1: Monte Carlo", 1.0)):
        page.get_by_role("button", name=name).click()
        twin = reference.gae(rewards, [ledger["values"]], mask, 0.9, lam)
        for column, row in (("advantages", twin.advantages[0]), ("returns", twin.returns[0]), ("rewards", rewards[0])):
            cells = page.locator(f"td[data-column={column}]").all_inner_texts()
            for text, number in zip(cells, row, strict=True):
                assert_shows(text, number)
    variance = {side: page.locator(f"[data-variance={side}]").inner_text() for side in ("gae", "monte_carlo")}
    assert variance["gae"] == variance["monte_carlo"]  # λ stands at 1


COMPUTE = """([batch, settings]) => {
  const { klPenalty, klRewards, estimate, whiten, policyTerms, ESTIMATORS } = window.mingce.credit;
  const kl = batch.old.map((row, b) => row.map((x, t) => klPenalty(x, batch.ref[b][t], settings.kl, settings.clamp)));
  const rewards = klRewards(batch.scores, kl, batch.mask, settings.beta);
  const found = { kl, rewards };
  for (const name of ESTIMATORS) {
    const credit = estimate(name, { ...batch, rewards }, settings);
    found[name] = { ...credit, whitened: whiten(credit.advantages, batch.mask) };
  }
  for (const name of batch.losses) {
    found[name] = batch.mask.map((row, b) =>
      policyTerms(name, batch.old[b], batch.ref[b], batch.scores[b], row, settings));
  }
  return found;
}"""


def random_batch(draw: random.Random, rows: int) -> dict[str, Any]:
    """Rows of different lengths with holes, sparse or dense scores, cut or ended."""
    width = draw.randint(1, 24)

    def number(scale: float) -> list[list[float]]:
        return [[draw.gauss(0, scale) for _ in range(width)] for _ in range(rows)]

    lengths = [draw.randint(0 if b else 1, width) for b in range(rows)]
    mask = [[int(t < lengths[b] and draw.random() < 0.85) for t in range(width)] for b in range(rows)]
    return {
        "old": number(1.0), "ref": number(1.0), "scores": number(draw.choice((0.0, 1.0))), "values": number(0.7),
        "mask": mask, "after": [draw.choice((0.0, draw.gauss(0, 1))) for _ in range(rows)],
        "group": [draw.randint(0, 1) for _ in range(rows)],
        "attention": [[abs(x) for x in row] for row in number(1.0)],
        "rowInputs": {name: draw.gauss(0, 1) for name in row_inputs()},
    }  # fmt: skip


def ours(table: dict[str, Any]) -> dict[str, Any]:
    """Without what other tests registered as a person's own."""
    return {name: spec for name, spec in table.items() if spec.tensor_function is None}


def differences(page: list[list[float]], python: list[list[float]]) -> float:
    pairs = (pair for rows in zip(page, python, strict=True) for pair in zip(*rows, strict=True))
    return max(abs(a - b) / max(1.0, abs(b)) for a, b in pairs)


def test_the_pages_arithmetic_is_pythons_on_200_rollouts(tab: Tab) -> None:
    page, draw, rows = tab.open("#/playground"), random.Random(5), 4
    for _ in range(200 // rows):
        batch = random_batch(draw, rows) | {"losses": list(ours(POLICY_LOSSES))}
        settings: dict[str, Any] = {
            "gamma": draw.choice((0.0, 0.9, 1.0)), "lam": draw.choice((0.0, 0.5, 0.95, 1.0)), "n": draw.randint(1, 8),
            "k": draw.randint(1, 4), "beta": draw.choice((0.0, 0.01, 0.5)), "clamp": draw.choice((None, 0.5)),
            "kl": draw.choice((*KL_NAMES[:-1], "k3+")), "clip_low": 0.2, "clip_high": 0.3,
            "dual_clip": draw.choice((None, 3.0)),
        }  # fmt: skip
        found = page.evaluate(COMPUTE, [batch, settings])
        kl = [
            [reference.kl_penalty(x, y, settings["kl"], settings["clamp"]) for x, y in zip(*row, strict=True)]
            for row in zip(batch["old"], batch["ref"], strict=True)
        ]
        rewards = reference.kl_rewards(batch["scores"], kl, batch["mask"], settings["beta"])
        assert differences(found["kl"], kl) < 1e-6
        assert differences(found["rewards"], rewards) < 1e-6
        columns = batch | {"rewards": rewards, "response_mask": batch["mask"], "attention_weights": batch["attention"]}
        columns |= {name: [x] * rows for name, x in batch["rowInputs"].items()}
        for name, spec in ours(ESTIMATORS).items():
            if not set(spec.inputs) <= {*columns, "group"}:
                continue  # of conversations: tests/test_view_turns_page.py
            credit = spec.estimate(columns, settings, batch["after"])
            wanted = {column: numbers for column, numbers in credit._asdict().items() if numbers is not None}
            wanted["whitened"] = reference.masked_whiten(wanted["advantages"], batch["mask"])
            for column, numbers in wanted.items():
                assert differences(found[name][column], numbers) < 1e-12, (name, column, settings)
        for name, loss in ours(POLICY_LOSSES).items():
            for b, mask in enumerate(batch["mask"]):
                terms = loss.terms(batch["old"][b], batch["ref"][b], batch["scores"][b], mask, settings)
                for t, term in terms.items():
                    shown = found[name][b][str(t)]
                    assert shown["loss"] == pytest.approx(term.loss, rel=1e-12, abs=1e-12), (name, settings)
                    assert bool(shown.get("clipped")) == term.clipped


def test_credit_map_names_the_term_under_the_pointer(tab: Tab, ledger: dict[str, Any]) -> None:
    page = tab.open(f"{ROLLOUT}?view=map&token=0")
    canvas = page.locator(".credit-map canvas")
    box = canvas.bounding_box()
    assert box is not None
    count = len(ledger["token_ids"])
    cell = (box["width"] - 64) / count
    canvas.hover(position={"x": 64 + (count - 0.5) * cell, "y": 64 + 0.5 * cell})
    term = page.locator(".map-term [data-name=term]")
    assert_shows(term.text_content(), (1.0 * 0.95) ** (count - 1) * ledger["deltas"][-1])


def test_playground_follows_the_typed_numbers_and_shows_errata(tab: Tab) -> None:
    page = tab.open("#/playground")
    expect(page.locator("td[data-column=advantages]").first).to_have_text("0.6211")
    page.get_by_label("score 5").fill("2")
    page.get_by_label("score 5").press("Enter")
    twin = reference.gae(
        reference.kl_rewards([[0, 0, 0, 0, 0, 2]], [[0.1, 0.05, -0.05, 0.1, 0.2, 0.05]], [[1] * 6], 0.1),
        [[0.2, 0.25, 0.3, 0.35, 0.45, 0.6]], [[1] * 6], 1.0, 0.95,
    )  # fmt: skip
    expect(page.locator("td[data-column=advantages]").last).not_to_have_text("0.395")
    for text, number in zip(
        page.locator("td[data-column=advantages]").all_inner_texts(), twin.advantages[0], strict=True
    ):
        assert_shows(text, number)
    page.locator("[data-choose=example]").select_option(label="erratum 002, question 3")
    sides = page.locator("section.card.errata .errata-side")
    expect(sides).to_have_count(3)
    expect(sides.nth(0)).to_contain_text("0.27")
    expect(sides.nth(1)).to_contain_text("0.6071")
    expect(sides.nth(2)).to_contain_text("0.6071")


def test_html_in_a_response_is_text(tab: Tab) -> None:
    def plant(route: Route) -> None:
        answer = route.fetch()
        rollout = answer.json()
        rollout["tokens"][0]["text"] = HTML
        route.fulfill(response=answer, json=rollout)

    page = tab.open(f"#/run/demo/step/{PLANTED}")
    expect(page.locator("tbody tr.link").first).to_contain_text(HTML)
    page.route("**/rollouts/0", plant)
    tab.open(f"#/run/demo/step/{PLANTED}/rollout/0")
    expect(page.locator(".prompt")).to_have_text(HTML)
    expect(page.locator(".chip").first).to_have_text(HTML)
    assert page.locator("main img, main script").count() == 0
    assert page.evaluate("window.broken") is None


def test_audit_findings_lead_to_the_token(tab: Tab) -> None:
    page = tab.open(f"#/run/demo/audit?step={PLANTED}")
    expect(page.locator(".verdict.bug")).to_be_visible()
    page.locator(".finding.bug .places a").first.click()
    expect(page.locator(".chip.selected")).to_have_attribute("data-t", str(TOKEN))
    assert f"/rollout/{ROW}?" in page.url


def test_a_response_of_2000_tokens_is_drawn_only_where_it_is_seen(tab: Tab) -> None:
    page = tab.open(f"#/run/demo/step/{LONG}/rollout/0")
    assert 100 < page.locator(".chip").count() < 2000
    assert page.locator("td[data-column=advantages]").count() < 60
    for canvas in page.locator(".strip canvas, .overview canvas").all():
        assert canvas.evaluate("canvas => canvas.width") < 2000
    for key, selected in (("End", 1999), ("ArrowLeft", 1998)):
        page.keyboard.press(key)
        expect(page.locator(".chip.selected")).to_have_attribute("data-t", str(selected))
    expect(page.locator("tr.selected td").first).to_have_text("1998")


def test_a_step_of_many_rollouts_is_asked_for_as_it_is_scrolled(browser: Browser, tmp_path: Path) -> None:
    run = new_run(tmp_path, lines=b'{"step": 1, "a": 1}\n')
    write_step(run, 3000)
    with served(Api(Library([run])), lang="zh") as client:
        tab = watched(browser, f"http://127.0.0.1:{client.port}/")
        page = tab.open("#/run/odd/step/1?sort=score&down=1")
        expect(page.locator(".count")).to_have_text("3,000 / 3,000")
        expect(page.locator("[aria-busy=true]")).to_have_count(0)
        assert page.locator("tr.link").count() < 60
        page.locator(".table-box").focus()
        page.keyboard.press("End")
        expect(page.locator("tr.waiting")).to_have_count(0)
        lowest = Api(Library([run])).table("odd", 1, Query(sort="score", down=True, offset=2999)).rollouts[0]
        expect(page.locator("tr.link a").last).to_have_text(str(lowest.row))
        page.get_by_role("searchbox").fill("response 2999")
        expect(page.locator(".count")).to_have_text("1 / 3,000")
        expect(page.locator("tr.link a")).to_have_text("2999")
        page.locator("tr.link").click()
        expect(page.locator("main h1")).to_have_text("Step 1, rollout 2999")
        page.go_back()
        expect(page.locator(".count")).to_have_text("1 / 3,000")
        assert tab.complaints == []
        page.close()


def test_a_run_tells_what_happened_and_what_was_skipped(browser: Browser, tmp_path: Path) -> None:
    path = new_run(tmp_path, lines=b'{"step": 1, "critic/kl": 1}\n{"step": 1e999}\n{"step": 2, "critic/kl": 1}\n')
    with Run.open(path) as run:
        for step in (1, 2, 3, 4, 5):
            run.log_event(step, "no-learning", f"{HTML} {step}")
    with served(Api(Library([path])), lang="zh") as client:
        tab = watched(browser, f"http://127.0.0.1:{client.port}/")
        page = tab.open("#/run/odd")
        expect(page.locator("[data-skipped]")).to_contain_text("Line 2 of metrics.jsonl cannot be read")
        expect(page.locator("[data-event=no-learning]")).to_have_count(3)
        expect(page.locator("[data-event=no-learning]").first).to_contain_text(f"step 5{HTML} 5")
        page.get_by_role("button", name="2 more").click()
        expect(page.locator("[data-event=no-learning]")).to_have_count(5)
        page.locator("[data-lang=zh]").click()
        expect(page.locator("[data-skipped]")).to_contain_text("metrics.jsonl 的第 2 行读不了")
        assert page.evaluate("window.broken") is None
        assert tab.complaints == []
        page.close()


def test_the_first_language_is_the_servers_until_the_reader_chooses(browser: Browser, tmp_path: Path) -> None:
    path = new_run(tmp_path, lines=b'{"step": 1, "critic/kl": 1}\n')
    with served(Api(Library([path])), lang="zh") as client:
        page = browser.new_page(locale="en-GB")
        page.goto(f"http://127.0.0.1:{client.port}/")
        expect(page.locator("main h1")).to_have_text("运行")
        page.locator("[data-lang=en]").click()
        page.reload()
        expect(page.locator("main h1")).to_have_text("Runs")
        page.close()


def test_export_opens_from_disk_without_a_network(browser: Browser, runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    command = [MINGCE, "view", str(runs / "demo"), "--export", str(out), "--steps", str(TRAINED), "--rollouts", "4"]
    subprocess.run([*command, "--audit"], check=True, capture_output=True)
    tab = watched(browser, out.as_uri())
    tab.page.context.set_offline(True)
    page = tab.open("")
    page.locator(".run-name a").click()
    expect(page.locator(".chart-card").first).to_be_visible()
    tab.open(f"#/run/demo/step/{TRAINED}")
    page.locator("tbody tr.link").first.click()
    expect(page.locator(".account [data-name=advantage]").first).to_be_visible()
    page.locator("[data-lang=zh]").click()
    page.get_by_role("link", name="假如").click()
    expect(page.locator("[data-setting=λ]")).to_be_visible()
    tab.open("#/playground")
    tab.open(f"#/run/demo/audit?step={TRAINED}")
    page.close()
    assert tab.complaints == []
    assert tab.stranger() == []
