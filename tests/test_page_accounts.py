"""What the page shows of a token's account is what Python says of it, term by term, whatever the run was made with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect
from rich.console import Console
from test_view_page import Tab, browser, ours, watched  # noqa: F401  # browser is a fixture
from test_view_server import served

from mingce.base.errors import SettingError
from mingce.explain.account import Entry, account
from mingce.explain.account_texts import LEVELS
from mingce.explain.example import changed
from mingce.record.rollout import Rollout
from mingce.sources.library import Library
from mingce.specs import ESTIMATORS, KL_KINDS, POLICY_LOSSES
from mingce.training.start import train
from mingce.view.api import Api

pytestmark = pytest.mark.xdist_group("page")
ROW = 1
OWN = """
import mingce

@mingce.estimator(inputs=("rewards", "response_mask"))
def doubled(rewards, response_mask):
    return 2 * rewards

@mingce.policy_loss(settings=())
def unclipped(old_log_prob, log_prob, advantages, response_mask):
    return -(log_prob - old_log_prob).exp() * advantages
"""
READ = """() => [...document.querySelectorAll(".account-section")].map((section) => ({
  id: section.dataset.section,
  title: section.querySelector("h3").textContent,
  formula: section.querySelector(":scope > .formula, :scope > span")?.textContent ?? "",
  numbers: section.querySelector(".numbers")?.textContent ?? "",
  words: [...section.querySelectorAll(".prose")].map((one) => one.textContent).join(""),
  wrong: section.querySelector("[role=note]")?.textContent ?? null,
}))"""
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ-", "0123456789−+n−")
_LAYOUT = re.compile(r"[\s_^{}()/√`]")
_BOTH = re.compile(r"\^(\{[^}]*\}|\w)_(\{[^}]*\}|[0-9]+|[a-z])")
_NUMBER = re.compile(r"−?\d+(?:\.\d+)?(?:×10−?\d+)?")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of every estimator; every KL kind and every policy loss is in some, and so are a person's own."""
    root = tmp_path_factory.mktemp("runs")
    own = root.parent / "own.py"
    own.write_text(OWN)
    estimators = [*ours(ESTIMATORS), f"{own}:doubled"]
    kinds, losses = list(KL_KINDS), [*ours(POLICY_LOSSES), f"{own}:unclipped"]
    count = max(map(len, (estimators, kinds, losses)))
    for k, (estimator, kind, loss) in enumerate(
        zip(*(islice(cycle(x), count) for x in (estimators, kinds, losses)), strict=True)
    ):
        settings = f"root={root} name=run{k} steps=1 prompts_per_step=2 samples_per_prompt=3 minibatch_rollouts=3"
        more = f"estimator={estimator} kl.estimator={kind} actor.loss={loss} actor.epochs=2 actor.lr=0.003 seed={k}"
        quiet = "validation.every=0 validation.examples=4 threads=1 credit.n=3 credit.k=2 max_new_tokens=8"
        train(Console(quiet=True), None, f"{settings} {more} {quiet}".split())
    return root


@pytest.fixture(scope="module")
def api(runs: Path) -> Api:
    return Api(Library([runs]))


@pytest.fixture
def tab(api: Api, browser: Browser) -> Iterator[Tab]:  # noqa: F811
    with served(api) as client:
        tab = watched(browser, f"http://127.0.0.1:{client.port}/")
        yield tab
        tab.page.close()
        assert tab.complaints == []


def plain(text: str) -> str:
    """A formula or sentence without what only lays it out; what is raised stands behind what is lowered."""
    return _LAYOUT.sub("", _BOTH.sub(r"\2\1", text.translate(_RAISED)))


def shown(tab: Tab, lang: str, level: str) -> list[dict[str, str]]:
    tab.page.locator(f"[data-lang={lang}]").click()
    tab.page.locator(f"[data-level={level}]").click()
    sections: list[dict[str, str]] = tab.page.evaluate(READ)
    return [section | {key: plain(section[key]) for key in ("formula", "numbers", "words")} for section in sections]


def said(entries: list[Entry]) -> list[dict[str, str | None]]:
    return [
        {
            "id": entry.id, "title": entry.title, "formula": plain(entry.formula), "numbers": plain(entry.substituted),
            "words": plain(entry.meaning), "wrong": None,
        }
        for entry in entries
    ]  # fmt: skip


def choose(tab: Tab, run: str, t: int, view: str = "microscope") -> None:
    tab.open(f"#/run/{run}/step/1/rollout/{ROW}?token={t}&view={view}")
    expect(tab.page.locator(".account-head")).to_contain_text(f"t = {t} ")


def test_every_account_is_pythons(tab: Tab, api: Api) -> None:
    """Every estimator, KL kind and policy loss; every token, at each level in turn: title, formula, numbers, words."""
    seen: dict[str, set[str | None]] = {"estimator": set(), "kl": set(), "loss": set()}
    ids: set[str] = set()
    for k, run in enumerate(api.runs()):
        rollout = api.rollout(run.id, 1, ROW)
        settings = rollout.settings
        for kind, name in (
            ("estimator", settings.estimator),
            ("kl", settings.kl_estimator),
            ("loss", settings.policy_loss),
        ):
            seen[kind].add(name)
        for t in range(len(rollout.tokens)):
            choose(tab, run.id, t)
            level, lang = LEVELS[(k + t) % 3], ("zh", "en")[(k + t) // 3 % 2]
            expected = said(account(rollout, t, level, lang))
            assert shown(tab, lang, level) == expected, (settings, t, level, lang)
            ids |= {str(one["id"]) for one in expected}
    assert seen["estimator"] >= set(ours(ESTIMATORS))
    assert seen["kl"] >= set(KL_KINDS)
    assert seen["loss"] >= set(ours(POLICY_LOSSES))
    assert len([name for name in seen["estimator"] if name and name.endswith(":doubled")]) == 1
    assert ids >= {"state", "kl", "reward", "delta", "end", "advantage", "return", "whitening", "ratio", "policy"}


def numbers_and_words(text: str) -> tuple[list[float], list[str]]:
    found = [one.replace("−", "-").split("×10") for one in _NUMBER.findall(text)]
    return [float(digits) * 10.0 ** int(*power or "0") for digits, *power in found], _NUMBER.split(text)


def test_what_the_sliders_make_is_what_python_makes_of_it(tab: Tab, api: Api) -> None:
    """Every estimator that one response has the numbers for, with other settings than those recorded."""
    run = next(one for one in api.runs() if "values" in api.rollout(one.id, 1, ROW).columns)
    recorded = api.rollout(run.id, 1, ROW)
    possible = []
    for name in ours(ESTIMATORS):
        settings: dict[str, Any] = {"estimator": name, "gamma": 0.9, "lam": 0.5, "beta": 0.3, "whiten": False}
        try:
            rollout = changed(priced(recorded), **settings)
        except SettingError:  # it needs more than one response
            continue
        possible.append(name)
        for t in (0, len(rollout.tokens) - 1):
            choose(tab, run.id, t, "whatif")
            tab.page.locator("[data-setting=estimator]").select_option(name)
            tab.page.locator("[data-setting=whiten]").select_option("none")
            for symbol, value in (("γ", "0.9"), ("λ", "0.5"), ("β", "0.3")):
                slider = tab.page.locator(f"[data-setting={symbol}]")
                if slider.count() and slider.is_enabled():
                    slider.fill(value)
            for section, wanted in zip(
                shown(tab, "en", "engineer"), said(account(rollout, t, "engineer", "en")), strict=True
            ):
                for part in ("title", "numbers", "words"):
                    ours_, theirs = (numbers_and_words(str(one[part])) for one in (section, wanted))
                    assert ours_[1] == theirs[1], (name, t, section["id"])
                    assert ours_[0] == pytest.approx(theirs[0], rel=6e-3, abs=2e-4), (name, t, section["id"])
    assert len(possible) > 4


def test_a_token_chosen_while_a_slider_settles_stays_chosen(tab: Tab, api: Api) -> None:
    run = next(one for one in api.runs() if "values" in api.rollout(one.id, 1, ROW).columns)
    choose(tab, run.id, 1, "whatif")
    slider = tab.page.locator("[data-setting=γ]")
    slider.fill("0.83")
    tab.page.evaluate("location.hash = location.hash.replace('token=1', 'token=0')")
    expect(tab.page.locator(".account-head")).to_contain_text("t = 0 ")
    expect(tab.page).to_have_url(re.compile(r"token=0&.*gamma=0\.83"))
    expect(tab.page.locator(".account-head")).to_contain_text("t = 0 ")


def priced(rollout: Rollout) -> Rollout:
    """With the recorded KL, which the sliders take as it is."""
    return replace(rollout, columns={name: list(column) for name, column in rollout.columns.items()})


def test_a_number_that_the_definitions_do_not_confirm_is_marked(tab: Tab, api: Api, runs: Path) -> None:
    from mingce.record.store import LedgerStore

    store = LedgerStore(runs / "run0" / "ledger")
    ledger = store.read(1)
    wrong = ledger["kl"].clone()
    wrong[ROW, 0] = 0.75
    store.write(2, ledger.fill({"kl": wrong}))
    rollout = api.rollout("run0", 2, ROW)
    entry = next(one for one in account(rollout, 0, "engineer", "en") if one.id == "kl")
    assert not entry.agrees
    tab.open(f"#/run/run0/step/2/rollout/{ROW}?token=0")
    section = next(one for one in shown(tab, "en", "engineer") if one["id"] == "kl")
    assert section["numbers"] == plain(entry.substituted)
    assert section["wrong"] == "The ledger has 0.75, which is not what the definition gives."
