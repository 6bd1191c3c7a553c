"""The search agent: what the corpus says, what the index finds, the service's shape, and what training sees."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_runs import trained
from starlette.testclient import TestClient

from mingce.base.errors import EnvironmentFault, MingceError
from mingce.models.loading import load_tokenizer
from mingce.record.run import Run
from mingce.tasks.check import check_task
from mingce.tasks.environment import Action
from mingce.tasks.registry import load_task
from mingce.tasks.search.facts import WORDS
from mingce.tasks.search.task import Search, answer_in, corpus_path, normalised, shipped, split
from mingce.tasks.tool_calls import ToolCall, find_format
from mingce.tasks.tools import load_tools

pytest.importorskip("bm25s")
from mingce.commands.retrieve import make_app
from mingce.tasks.search.retrievers import Service, find_retriever, passages, words

SMALL = ("task=search", "model.path=search", "sampling.max_new_tokens=160", "lang=en", "agent.workers=0",
         "validation.examples=4")  # fmt: skip


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    """The command's own server, on a free port."""
    command = [sys.executable, "-m", "mingce.cli", "retrieve", "--port", "0", "--lang", "en"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        yield re.findall(r"http://\S+/retrieve", process.stderr.readline())[0]
        process.terminate()


@pytest.mark.parametrize("lang", WORDS)
def test_gold_turns_earn_full_marks_and_sides_are_apart(lang: str) -> None:
    assert not check_task(Search(lang)).failures
    train, held_out = split(lang)
    assert not {one.steps[0].subject for one in train} & {one.steps[0].subject for one in held_out}
    assert {len(one.steps) for one in held_out} == {1, 2}
    for document, fact in zip(corpus_path(lang).read_text().splitlines(), shipped(lang), strict=True):
        assert json.loads(document)["contents"] == fact.contents(lang)


@pytest.mark.parametrize("lang", WORDS)
def test_every_query_finds_its_fact(lang: str) -> None:
    index = find_retriever(corpus_path(lang))
    for question in split(lang)[1]:
        for fact, query in zip(question.steps, question.queries(lang), strict=True):
            assert fact.contents(lang) in [one.contents for one in index.search([query], 3)[0]]


def test_scores_are_those_of_bm25() -> None:
    """By the formula, over the documents of the corpus: k1 = 1.5, b = 0.75, Lucene's idf."""
    import math

    documents = [words(json.loads(line)["contents"]) for line in corpus_path("en").read_text().splitlines()]
    mean = sum(map(len, documents)) / len(documents)
    query = "the mayor of Zaford"

    def score(document: list[str]) -> float:
        total = 0.0
        for word in words(query):
            count, n = document.count(word), sum(word in one for one in documents)
            idf = math.log(1 + (len(documents) - n + 0.5) / (n + 0.5))
            total += idf * count / (count + 1.5 * (1 - 0.75 + 0.75 * len(document) / mean))
        return total

    best = sorted(map(score, documents), reverse=True)[:3]
    (found,) = find_retriever(corpus_path("en")).search([query], 3)
    assert [one.score for one in found] == pytest.approx(best, rel=1e-4)


def test_the_format_is_that_of_search_r1() -> None:
    task = Search("en")
    environment = task.environment()
    example = task.held_out_examples()[0]
    environment.reset(example, 0)
    turn = environment.gold()
    assert re.fullmatch(r"<think>[^<]*</think><search>[^<]*</search>", turn)
    written = find_format("tags:information")
    observation = environment.step(Action(turn, written.read(turn, ["search"]).calls))
    told = written.told([dict(one) for one in observation.content])  # type: ignore[union-attr,arg-type]
    assert re.fullmatch(r'<information>Doc 1\(Title: "\w+"\) .*</information>', str(told), re.DOTALL)
    assert answer_in("<answer>a</answer><answer> The Ka. </answer>") == " The Ka. "
    assert normalised(" The Ka. ") == "ka"
    assert task.score(example, "Eskdale").score == 0


def test_the_service_answers_as_search_r1s_does(service: str) -> None:
    asked = ["the mayor of Eskdale", "nobody knows zzz", "Harik lives in"]
    index = find_retriever(corpus_path("en"))
    assert Service(service).search(asked, 3) == index.search(asked, 3)
    client = TestClient(make_app(index), base_url="http://127.0.0.1")
    body = {"queries": asked[2:], "topk": 1, "return_scores": True}
    (row,) = client.post("/retrieve", json=body).json()["result"]
    assert row[0]["document"]["contents"].startswith('"Harik"\n')
    assert row[0]["score"] > 0
    (plain,) = client.post("/retrieve", json={**body, "return_scores": False}).json()["result"]
    assert plain == [row[0]["document"]]
    alone = {"query": asked[2], "topk": 1, "return_scores": True}  # as SkyRL's environments ask
    assert client.post("/retrieve", json=alone).json()["result"] == [row]


@pytest.mark.parametrize(
    "body",
    [b"[", b"[]", b"{}", b'{"queries": "x"}', b'{"queries": [1]}', b'{"queries": ["x"], "topk": 0}', b'{"query": 1}',
     b'{"queries": ["x"], "topk": 101}', b'{"queries": ["' + b"x" * 5000 + b'"]}', b"[" * 2_000_000],
    ids=range(10),
)  # fmt: skip
def test_wrong_requests_are_refused(body: bytes) -> None:
    client = TestClient(make_app(find_retriever(corpus_path("en"))), base_url="http://127.0.0.1")
    assert client.post("/retrieve", content=body, headers={"content-type": "application/json"}).status_code == 422
    assert client.post("/retrieve", content=b'{"queries": ["x"]}').status_code == 422  # as a form of a page could
    assert client.post("/retrieve", json={"queries": ["x"]}, headers={"host": "evil.example"}).status_code == 400


def test_wrong_retrievers_are_sentences(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    for spec, why in {
        "search:": "say where", f"search:{tmp_path / 'no.jsonl'}": "cannot be read", f"search:{empty}": "no documents",
        "search:http://example.com/retrieve": "only servers on this machine", "search:http://[": "no retriever",
    }.items():  # fmt: skip
        with pytest.raises(MingceError, match=why):
            load_tools([spec])
    for options in ({"topk": 0}, {"show": 1}, {"nonsense": 1}):
        with pytest.raises(MingceError, match=r"data\.options"):
            load_task("search", options=options)
    with pytest.raises(EnvironmentFault, match="does not answer"):
        Service("http://127.0.0.1:1/retrieve").search(["x"], 3)


def test_a_search_tool_for_any_task(tmp_path: Path) -> None:
    corpus = tmp_path / "c.jsonl"
    corpus.write_text('{"contents": "\\"Oak\\"\\nAn oak is a tree."}\n{"contents": "\\"Eel\\"\\nAn eel is a fish."}\n')
    (tool,) = load_tools([f"search:{corpus}"])
    assert tool.call({"query": "what tree"}) == ('Doc 1(Title: "Oak") An oak is a tree.', True)
    assert tool.call({"": "what"}) == ("?", True)
    assert tool.call({"query": 3})[1] is False
    assert tool.schema["function"]["parameters"]["required"] == ["query"]
    assert passages([]) == ""
    assert ToolCall("search", {"query": "x"}).name == tool.name


def test_a_retriever_that_is_gone_costs_its_rows(tmp_path: Path) -> None:
    run = trained(tmp_path, "r", *SMALL, "data.options.retriever=http://127.0.0.1:1/retrieve", "steps=1")
    ledger = Run.open(run, readonly=True).ledger.read(1)
    reasons = ledger.row("finish_reason")
    assert "error" in reasons
    assert "stop" in reasons  # those that answered out of their head


def test_the_service_and_the_index_train_the_same(service: str, tmp_path: Path) -> None:
    own = Run.open(trained(tmp_path, "own", *SMALL, "steps=1"), readonly=True).ledger.read(1)
    asked = trained(tmp_path, "asked", *SMALL, f"data.options.retriever={service}", "steps=1")
    other = Run.open(asked, readonly=True).ledger.read(1)
    assert own.rows["response"] == other.rows["response"]
    assert all(own[name].equal(other[name]) for name in own.columns())


def test_unmasked_observations_are_stopped_by_the_audit(tmp_path: Path) -> None:
    said = r"step 1 found a bug: \d+ tokens that a tool .* marked as chosen|第 1 步.*被标成了策略所选"
    with pytest.raises(MingceError, match=said):
        trained(tmp_path, "r", *SMALL, "agent.mask_observations=false", "audit.every=1", "audit.stop=true", "steps=3")
    findings = (tmp_path / "r" / "audit.jsonl").read_text()
    assert "observation-chosen" in findings
    ledger = Run.open(tmp_path / "r", readonly=True).ledger.read(1)
    assert ledger.mask.equal(ledger["attention_mask"])
    assert trained(tmp_path, "ok", *SMALL, "audit.every=1", "audit.stop=true", "steps=1").exists()


def test_the_model_has_never_read_the_corpora() -> None:
    """No name of the worlds that it is taught with is in the corpora, and every name is two tokens of its own."""
    from make_search_model import build_tokenizer, make_worlds

    tokenizer = build_tokenizer()
    assert tokenizer.get_vocab() == load_tokenizer("search").get_vocab()
    for world in make_worlds()[::8]:
        lang = world.task.lang
        asked = {fact.subject for fact in shipped(lang)} | {f.value for f in shipped(lang) if f.relation == "river"}
        assert not asked & {name for fact in world.facts for name in (fact.subject, fact.value)}
        ids = tokenizer([fact.subject for fact in world.facts]).input_ids
        assert {len(one) for one in ids} == {2}
