"""The tutor on the page: questions about a token, texts to check, in a real browser and against the server's limits."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from rich.console import Console
from test_view_page import HTML, Tab, browser, watched  # noqa: F401  # browser is a fixture
from test_view_server import Answer, Client, served

from mingce.explain.answer import Answer as Said
from mingce.explain.claims.marking import marked
from mingce.explain.conversation import Conversation
from mingce.explain.topics import TOPICS
from mingce.record.store import LedgerStore
from mingce.sources.library import Library
from mingce.sources.rollouts import recorded
from mingce.training.start import train
from mingce.view.apart import Apart, EndedError
from mingce.view.api import Api
from mingce.view.export import write_export
from mingce.view.posted import LONGEST_QUESTION, LONGEST_TEXT, MOST_TURNS, QUESTION_BYTES

pytestmark = pytest.mark.xdist_group("page")
STEP, PLANTED, ROW, TOKEN = 2, 3, 1, 3
WHY = {"en": "Why is A not just δ here?", "zh": "为什么优势 A 不直接用 δ？"}
WHAT_IF = {"en": "What if λ = 0.5?", "zh": "如果 λ = 0.5 呢？"}
CLAIM = {"en": "A_t = r_t − V(s_t), right?", "zh": "A_t = r_t − V(s_t)，对吗？"}
TEXT = "r = [0, 0, 1], V = [0.3, 0.4, 0.6], γ = 1, λ = 0.95.\nδ = [0.1, 0.2, 0.4].\nA = [0.651, 0.58, 0.5].\n"
_LAYOUT = re.compile(r"[\s`*_{}()^|\[\]]")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained step, and one whose prompts and responses are HTML and of which one token was not chosen."""
    root = tmp_path_factory.mktemp("runs")
    settings = f"root={root} name=demo steps={STEP} prompts_per_step=2 samples_per_prompt=2 minibatch_rollouts=4"
    train(Console(quiet=True), None, f"{settings} validation.every=0 validation.examples=4 lang=zh threads=1".split())
    store = LedgerStore(root / "demo" / "ledger")
    planted = store.read(STEP)
    planted["response_mask"][ROW, TOKEN] = False
    planted.fill_rows(**{name: [HTML] * len(planted) for name in ("prompt", "response")})
    store.write(PLANTED, planted)
    return root


@pytest.fixture(scope="module")
def api(runs: Path) -> Api:
    return Api(Library([runs]))


@pytest.fixture(scope="module")
def client(api: Api) -> Iterator[Client]:
    with served(api) as client:
        yield client


@pytest.fixture
def tab(browser: Browser, client: Client) -> Iterator[Tab]:  # noqa: F811
    tab = watched(browser, f"http://127.0.0.1:{client.port}/")
    yield tab
    tab.page.close()
    assert tab.complaints == []
    assert tab.stranger() == []


# ── in the browser ───────────────────────────────────────────────────────────────────────────────────────────────────


def opened(tab: Tab, lang: str = "en", theme: str = "light", token: int = TOKEN, step: int = STEP) -> Page:
    tab.page.add_init_script(f"localStorage.lang = '{lang}'; localStorage.theme = '{theme}'")
    page = tab.open(f"#/run/demo/step/{step}/rollout/{ROW}?token={token}")
    expect(page.locator(".ask-head")).to_contain_text(f"t = {token}")
    return page


def ask(page: Page, question: str) -> Locator:
    """The newest answer, when it is there."""
    page.locator(".ask textarea").fill(question)
    page.locator(".ask textarea").press("Enter")
    newest = page.locator("article.round")
    expect(newest.locator(".asked")).to_contain_text(question)
    return newest


def plain(text: str) -> str:
    """Without what only lays it out."""
    return _LAYOUT.sub("", text.translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻-", "0123456789−−"))).replace("/", "")


def assert_told(shown: Locator, said: Said) -> None:
    """Everything of an answer is on the page, word for word."""
    expect(shown.locator(".answer")).to_be_visible()
    text = plain(shown.text_content() or "")
    for part in (said.title, said.about, *said.text.split("\n"), *said.formula.split("\n")):
        assert plain(part.removeprefix("- ")) in text, part
    for line in said.lines:
        for statement in re.split(r"[;,]\s{2,}", line):
            assert plain(statement) in text, statement
    cells = [cell for table in said.tables for row in table.rows for cell in row]
    assert shown.locator(".answer td").all_inner_texts() == cells
    assert shown.locator("[data-topic]").evaluate_all("all => all.map(one => one.dataset.topic)") == [
        topic for topic, _ in said.choices
    ]
    verdicts = shown.locator("[data-verdict]").evaluate_all("all => all.map(one => one.dataset.verdict)")
    assert verdicts == [one.verdict for one in said.judgements]


def dialogue(runs: Path, lang: str) -> Conversation:
    return Conversation(recorded(runs / "demo", STEP, ROW), lang=lang, token=TOKEN)


@pytest.mark.parametrize(
    ("lang", "theme", "width"), [("en", "light", 1280), ("zh", "dark", 1920), ("zh", "light", 360)]
)
def test_the_page_answers_as_the_tutor_does(tab: Tab, runs: Path, lang: str, theme: str, width: int) -> None:
    """A question, a follow-up, a claim: what the terminal would say, nothing wider than the screen."""
    tab.page.set_viewport_size({"width": width, "height": 800})
    page, talk = opened(tab, lang, theme), dialogue(runs, lang)
    for question in (WHY[lang], WHAT_IF[lang], CLAIM[lang]):
        said = talk.ask(question)
        assert_told(ask(page, question), said)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert said.judgements
    expect(page.locator("article.round .judged b")).to_be_visible()
    assert page.locator("details.round").count() == 2
    page.locator("[data-do=forget]").click()
    expect(page.locator(".round")).to_have_count(0)
    assert_told(ask(page, WHY[lang]), dialogue(runs, lang).ask(WHY[lang]))


def test_a_related_topic_opens_at_its_button(tab: Tab) -> None:
    page = opened(tab)
    ask(page, WHY["en"])
    button = page.locator("[data-topic]").first
    topic = button.get_attribute("data-topic")
    assert topic is not None
    button.click()
    expect(page.locator("article.round h3")).to_contain_text(re.sub("[`*]", "", TOPICS[topic].title[1])[:12])
    expect(page.locator("details.round summary")).to_contain_text(WHY["en"])


def test_walking_to_another_token_asks_about_that_one(tab: Tab) -> None:
    page = opened(tab)
    first = ask(page, "what is the advantage here?")
    expect(first.locator(".about")).to_contain_text(f"t = {TOKEN})")
    page.locator(f'.chip[data-t="{TOKEN - 1}"]').click()
    expect(page.locator(".ask-head")).to_contain_text(f"t = {TOKEN - 1}")
    expect(ask(page, "and here?").locator(".about")).to_contain_text(f"t = {TOKEN - 1})")


def test_lines_of_an_answers_table_lead_to_their_tokens(tab: Tab) -> None:
    page = opened(tab)
    rows = ask(page, WHAT_IF["en"]).locator("tr[data-row]")
    expect(rows.nth(TOKEN)).to_have_class("link selected")
    rows.nth(1).click()
    expect(page.locator('.chip[data-t="1"]')).to_have_class(re.compile("selected"))
    expect(rows.nth(1)).to_have_class("link selected")


def test_suggestions_and_keys(tab: Tab) -> None:
    page = opened(tab)
    suggested = page.locator("[data-suggested]")
    assert 3 <= suggested.count() <= 4
    page.keyboard.press("/")
    expect(page.locator(".ask textarea")).to_be_focused()
    page.keyboard.type("a/b?")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".ask textarea")).to_have_value("a/b?")
    expect(page.locator(".ask-head")).to_contain_text(f"t = {TOKEN}")
    page.keyboard.press("Escape")
    expect(page.locator(".ask textarea")).not_to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".ask-head")).to_contain_text(f"t = {TOKEN - 1}")
    page.keyboard.press("Shift+?")
    expect(page.locator(".ask textarea")).to_be_focused()
    text = suggested.first.inner_text()
    suggested.first.click()
    expect(page.locator("article.round .asked")).to_contain_text(text)
    expect(page.locator("article.round .answer h3")).to_be_visible()


@pytest.mark.parametrize("question", ["save this dialogue", "/save x.md", "draw it", "/plot x.png"])
def test_what_writes_files_says_how_and_does_not(
    tab: Tab, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(runs.rglob("*"))
    command = ask(opened(tab), question).locator("[data-command]")
    expect(command).to_contain_text(f"demo --step {STEP} --rollout {ROW} --token {TOKEN}")
    assert list(tmp_path.iterdir()) == []
    assert sorted(runs.rglob("*")) == before


def test_hostile_text_is_text(tab: Tab) -> None:
    page = opened(tab, token=0, step=PLANTED)
    shown = ask(page, f"{HTML} {WHAT_IF['en']}")
    expect(shown.locator(".asked")).to_contain_text(HTML)
    expect(ask(page, "/example").locator(".about")).to_contain_text("<script>")
    page = tab.open("#/check")
    page.locator("textarea").fill(f"{HTML}\n{TEXT}{HTML} A_2 = 0.7 {HTML}")
    page.locator(".check-form [type=submit]").click()
    expect(page.locator(".marked-text")).to_contain_text(f"{HTML} A_2 = 0.7 {HTML}")
    assert page.locator("main img, main script").count() == 0
    assert page.evaluate("window.broken") is None


@pytest.mark.parametrize(("lang", "theme", "width"), [("en", "light", 1280), ("zh", "dark", 360)])
def test_a_wrong_number_is_marked(
    tab: Tab,
    browser: Browser,  # noqa: F811
    tmp_path: Path,
    lang: str,
    theme: str,
    width: int,
) -> None:
    tab.page.set_viewport_size({"width": width, "height": 800})
    tab.page.add_init_script(f"localStorage.lang = '{lang}'; localStorage.theme = '{theme}'")
    page = tab.open("#/")
    page.locator('.bar a[href="#/check"]').click()
    page.locator("textarea").fill(TEXT)
    page.locator(".check-form [type=submit]").click()
    expect(page.locator(".part.wrong")).to_have_text("A = [0.651, 0.58, 0.5].")
    expect(page.locator(".part.right")).to_have_text("δ = [0.1, 0.2, 0.4].")
    (wrong,) = [one for one in marked(TEXT) if one.status == "wrong"]
    notes = plain(page.locator(".notes").text_content() or "")
    for part in (wrong.right[0][lang == "en"], wrong.formulas[0], wrong.notes[0][lang == "en"]):
        assert plain(part) in notes
    for status in ("wrong", "right"):
        expect(page.locator(f"[data-count={status}]")).to_contain_text("1")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    with page.expect_download() as download:
        page.locator("[data-do=download]").click()
    saved = tmp_path / "checked.html"
    download.value.save_as(saved)
    other = browser.new_page()
    other.goto(saved.as_uri())
    expect(other.locator(".wrong").last).to_have_text("A = [0.651, 0.58, 0.5].")
    expect(other.locator("aside")).to_contain_text("0.4")
    other.close()


def test_the_example_of_the_check_page_has_a_mistake_of_each_kind(tab: Tab) -> None:
    page = tab.open("#/check")
    for lang in ("en", "zh"):
        page.locator(f"[data-lang={lang}]").click()
        page.locator("[data-do=example]").click()
        page.locator(".check-form [type=submit]").click()
        expect(page.locator(".marked-text")).to_contain_text("GAE with" if lang == "en" else "蒙特卡洛")
        expect(page.locator(".part.wrong")).to_have_count(2)
        expect(page.locator(".part.right")).to_have_count(2)


def test_a_problem_is_told_and_the_dialogue_goes_on(tab: Tab, api: Api) -> None:
    page = opened(tab)
    ask(page, WHY["en"])
    page.route("**/api/ask", lambda route: route.fulfill(status=503, json={"error": "took too long"}))
    expect(ask(page, "something slow").locator("[role=alert]")).to_have_text("took too long")
    page.unroute("**/api/ask")
    expect(ask(page, WHAT_IF["en"]).locator(".answer h3")).to_be_visible()
    assert page.locator("details.round").count() == 1
    tab.complaints.clear()  # the browser reports the 503 itself


def test_an_exported_file_says_how_to_ask(browser: Browser, runs: Path, tmp_path: Path) -> None:  # noqa: F811
    out = tmp_path / "report.html"
    write_export(Api(Library([runs / "demo"])), out, [STEP], 4)
    tab = watched(browser, out.as_uri())
    page = tab.open(f"#/run/demo/step/{STEP}/rollout/{ROW}?token={TOKEN}")
    page.locator(".ask textarea").fill("what's A?")
    page.locator(".ask textarea").press("Enter")
    expect(page.locator("[data-command]")).to_have_text(
        f"mingce ask 'what'\\''s A?' demo --step {STEP} --rollout {ROW} --token {TOKEN}"
    )
    page = tab.open("#/check")
    expect(page.locator("[data-command]")).to_contain_text("mingce check-log")
    page.close()
    assert tab.complaints == []
    assert tab.stranger() == []


# ── the server's side ────────────────────────────────────────────────────────────────────────────────────────────────


def body(*questions: str, **changes: Any) -> dict[str, Any]:
    turns = [{"question": question, "token": TOKEN} for question in questions]
    return {"run": "demo", "step": STEP, "row": ROW, "lang": "en", "level": "engineer", "turns": turns} | changes


def post(client: Client, path: str, content: Any, **headers: str) -> Answer:
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=120)
    try:
        connection.request("POST", path, raw, {"Content-Type": "application/json"} | headers)
        return Answer(connection.getresponse())
    finally:
        connection.close()


def test_a_dialogue_asked_anew_is_the_one_remembered(runs: Path) -> None:
    """The process may forget every dialogue: its questions are asked again, and the answer is the same."""
    questions = [WHY["en"], WHAT_IF["en"], "and why?"]
    remembering, forgetful = Api(Library([runs])), Api(Library([runs]))
    for end in range(1, len(questions) + 1):
        answer = remembering.ask(json.dumps(body(*questions[:end])).encode())
    assert json.loads(answer) == json.loads(forgetful.ask(json.dumps(body(*questions)).encode()))
    talk = dialogue(runs, "en")
    assert [talk.ask(question) for question in questions][-1].text == json.loads(answer)["text"]


@pytest.mark.parametrize(
    ("path", "content", "headers", "status"),
    [
        ("/api/ask", b"x" * (QUESTION_BYTES + 1), {}, 413),
        ("/api/ask", body("x" * (LONGEST_QUESTION + 1)), {}, 400),
        ("/api/ask", body(*["why?"] * (MOST_TURNS + 1)), {}, 400),
        ("/api/ask", body(), {}, 400),
        ("/api/ask", body("why?", step=True), {}, 400),
        ("/api/ask", body("why?", step=10**30), {}, 400),
        ("/api/ask", body("why?", lang="fr"), {}, 400),
        ("/api/ask", body("why?", level=["child"]), {}, 400),
        ("/api/ask", body(turns=["why?"]), {}, 400),
        ("/api/ask", body("why?", run="../demo"), {}, 404),
        ("/api/ask", body("why?", step=77), {}, 404),
        ("/api/ask", body("why?", row=77), {}, 404),
        ("/api/ask", b"[" * 50_000, {}, 400),
        ("/api/ask", b"\xff\xfe", {}, 400),
        ("/api/ask", body("why?"), {"Content-Type": "text/plain"}, 415),
        ("/api/ask", body("why?"), {"Origin": "http://evil.example"}, 403),
        ("/api/ask", body("why?"), {"Sec-Fetch-Site": "cross-site"}, 403),
        ("/api/ask", body("why?"), {"Host": "evil.example"}, 421),
        ("/api/check", {"text": "1" * (LONGEST_TEXT + 1), "lang": "en"}, {}, 400),
        ("/api/check", {"text": "", "lang": "en"}, {}, 400),
        ("/api/runs", body("why?"), {}, 405),
    ],
)  # fmt: skip
def test_who_and_what_is_refused(client: Client, path: str, content: Any, headers: dict[str, str], status: int) -> None:
    answer = post(client, path, content, **headers)
    assert answer.status == status
    assert answer.json()["error"]
    assert "content-security-policy" in answer.headers


def test_only_questions_are_answered(client: Client) -> None:
    assert client.get("/api/ask").status == 405
    assert client.get("/api/check").status == 405


@pytest.mark.parametrize("question", ["\ud800 why?", "\x00", "{}{0}{__class__}", "-" * 20_000, "λ=" + "9" * 5000])
def test_odd_questions_are_answered(client: Client, question: str) -> None:
    answer = post(client, "/api/ask", body(question))
    assert answer.status == 200
    assert answer.json()["text"]


def test_a_token_that_is_not_there_or_not_chosen_is_no_mistake(client: Client) -> None:
    assert post(client, "/api/ask", body(turns=[{"question": WHY["en"], "token": 10**8}])).json()["token"] == 0
    assert post(client, "/api/ask", body(WHY["en"], step=PLANTED)).json()["token"] == 0


def test_beyond_this_machine_the_token_is_needed_to_ask(api: Api) -> None:
    with served(api, token="s3cret") as client:
        assert post(client, "/api/ask", body("why?")).status == 401
        assert post(client, "/api/ask?token=s3cret", body(WHY["en"])).status == 200


def test_work_that_takes_too_long_ends_and_the_next_is_done() -> None:
    worker = Apart("check", 1e-6)
    for lang, words in (("en", "was stopped"), ("zh", "已停止")):
        with pytest.raises(EndedError, match=words):
            worker.work(lang, TEXT)
    worker.seconds = 60.0
    assert json.loads(worker.work("en", TEXT))["counts"] == {"wrong": 1, "right": 1, "unverified": 0}
    worker.stop()


def test_a_process_that_was_killed_is_started_again() -> None:
    worker = Apart("check", 60.0)
    worker.work("en", TEXT)
    assert worker._process is not None
    worker._process.kill()
    worker._process.wait()
    assert json.loads(worker.work("en", TEXT))["counts"]["wrong"] == 1
    worker.stop()
