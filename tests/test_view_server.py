"""The page's server over real runs: every answer, who is refused, what is damaged, imported and exported."""

from __future__ import annotations

import http.client
import io
import json
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
import uvicorn
from rich.console import Console

import mingce
from mingce.base.errors import MingceError, RunError, SettingError
from mingce.base.numbers import number as shown
from mingce.explain.account import account, token_values
from mingce.explain.account_texts import LEVELS, SECTIONS, names_in
from mingce.explain.row_account import row_account
from mingce.record.rollout import Rollout
from mingce.record.run import Run
from mingce.record.store import LedgerStore
from mingce.record.tokens import Token, TokenTexts
from mingce.sources.library import Library
from mingce.sources.source import Damage
from mingce.training import start
from mingce.view.api import Api, thinned
from mingce.view.app import make_app
from mingce.view.digits import encode
from mingce.view.export import chosen_answers, export_page, safe_json, write_export
from mingce.view.gate import names_of
from mingce.view.serve import Address, listen

SMALL = ("prompts_per_step=4", "samples_per_prompt=2", "minibatch_rollouts=8", "validation.examples=4", "threads=1")
NASTY = "</script><script>alert(1)</script><!-- \u2028 & <img src=x onerror=alert(1)>"


def train(root: Path, name: str, *overrides: str) -> Path:
    console = Console(file=io.StringIO(), width=100)
    start.train(console, None, [f"root={root}", f"name={name}", "validation.every=0", *SMALL, *overrides])
    return root / name


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs: plain, ragged with dense scores and cut responses, and against the group."""
    root = tmp_path_factory.mktemp("runs")
    train(root, "plain", "steps=3", "audit.every=1", "seed=1")
    train(root, "ragged", "steps=2", "task=counting", "lang=en", "credit.truncation=bootstrap", "max_new_tokens=8")
    train(root, "group", "steps=2", "estimator=grpo", "actor.loss=cpi", "kl.estimator=k3")
    return root


@pytest.fixture(scope="session")
def api(runs: Path) -> Api:
    return Api(Library([runs]))


class Answer:
    def __init__(self, response: http.client.HTTPResponse):
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    def __init__(self, port: int):
        self.port = port

    def get(self, path: str, host: str | None = None, method: str = "GET", **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.putrequest(method, path, skip_host=True)
            connection.putheader("Host", f"127.0.0.1:{self.port}" if host is None else host)
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            return Answer(connection.getresponse())
        finally:
            connection.close()


@contextmanager
def served(api: Api, **options: Any) -> Iterator[Client]:
    """A real server in a thread."""
    listener, address = listen("127.0.0.1", None)
    config = uvicorn.Config(
        make_app(api, poll=0.05, **options), log_level="critical", lifespan="off", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield Client(address.port)
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@pytest.fixture(scope="session")
def client(api: Api) -> Iterator[Client]:
    with served(api) as client:
        yield client


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_runs_are_listed_with_their_state(client: Client) -> None:
    found = {run["id"]: run for run in client.get("/api/runs").json()}
    assert set(found) == {"plain", "ragged", "group"}
    plain = found["plain"]
    assert (plain["status"], plain["steps"], plain["total_steps"], plain["kind"]) == ("finished", 3, 3, "run")
    assert plain["spark"][-1] == plain["last_score"]
    assert found["ragged"]["lang"] == "en"


def test_a_run_has_its_series_and_their_meanings(client: Client, runs: Path) -> None:
    run = client.get("/api/runs/plain").json()
    logged = Run.open(runs / "plain", readonly=True).metrics()
    assert run["steps"] == [0, 1, 2, 3]
    assert run["series"]["critic/score/mean"] == [line.get("critic/score/mean") for line in logged]
    assert run["ledger_steps"] == [1, 2, 3]
    assert run["damaged"] == []
    assert run["config"]["credit.lam"] == 0.95
    assert {"step": 2, "kind": "audit", "bugs": 0, "suspicious": 0} in run["events"]
    meanings = {metric["name"]: metric for metric in run["metrics"]}
    assert set(meanings) == set(run["series"])
    assert all(metric["zh"] and metric["en"] for metric in meanings.values())
    assert meanings["actor/pg_loss"]["columns"] == ["policy_loss"]


def test_a_step_has_its_rollouts_histograms_and_moments(client: Client, runs: Path) -> None:
    step = client.get("/api/runs/plain/steps/2").json()
    ledger = LedgerStore(runs / "plain" / "ledger").read(2)
    assert step["total"] == step["shown"] == len(step["rollouts"]) == len(ledger) == 8
    entry = step["rollouts"][3]
    assert entry["uid"] == "2-3"
    assert entry["score"] == pytest.approx(float(ledger["scores"][3].sum()))
    assert entry["length"] == int(ledger.mask[3].sum())
    assert entry["max_abs_advantage"] == pytest.approx(float(ledger["advantages"][3].abs().max()))
    assert entry["kl"] == pytest.approx(float(ledger["kl"][3][ledger.mask[3]].mean()), abs=1e-6)
    assert sum(step["histograms"]["advantages"]["counts"]) == int(ledger.mask.sum())
    assert sum(step["histograms"]["rewards"]["counts"]) == 8
    chosen = ledger["advantages"][ledger.loss_mask].double()
    assert step["whitening"]["mean"] == pytest.approx(float(chosen.mean()))
    assert step["whitening"]["std"] == pytest.approx(float(chosen.std()))
    for group in step["groups"]:
        scores = {e["row"]: e["score"] for e in step["rollouts"] if e["group"] == group["group"]}
        assert scores[group["best_row"]] == max(scores.values())
        assert scores[group["worst_row"]] == min(scores.values())
    response = step["rollouts"][5]["response"]
    only = client.get(f"/api/runs/plain/steps/2?search={quote(response)}").json()
    assert 0 < only["shown"] < 9
    assert all(response in entry["response"] for entry in only["rollouts"])


def test_a_rollout_has_every_number_bit_for_bit(client: Client, runs: Path) -> None:
    ledger = LedgerStore(runs / "ragged" / "ledger").read(2)
    for row in range(len(ledger)):
        found = client.get(f"/api/runs/ragged/steps/2/rollouts/{row}").json()
        length = int(ledger.lengths[row])
        assert len(found["tokens"]) == length
        for name, column in ledger.columns().items():
            if name != "token_ids":
                sent = np.array(found["columns"][name], dtype=np.float32)
                assert (sent == column[row, :length].numpy()).all(), name
        assert [token["id"] for token in found["tokens"]] == ledger["token_ids"][row, :length].tolist()
        text = "".join(token["text"] for token in found["tokens"] if not token.get("special"))
        assert text == ledger.rows["response"][row] == found["response"]
        assert "".join(token["text"] for token in found["prompt_tokens"]) == found["prompt"]
        assert row in [sibling["row"] for sibling in found["siblings"]]
        assert len(found["siblings"]) == 2
        cut = found["info"]["finish_reason"] == "length"
        assert found["bootstrap"] == (found["info"]["bootstrap_value"] if cut else 0)
    assert "length" in ledger.rows["finish_reason"], "the fixture should hold a cut response"


def test_one_prompt_through_the_steps(client: Client) -> None:
    prompts = client.get("/api/runs/plain/through").json()["prompts"]
    assert prompts
    assert prompts[0]["answers"] >= 2
    place = prompts[0]
    found = client.get(f"/api/runs/plain/through?step={place['step']}&row={place['row']}").json()
    assert found["prompt"] == place["prompt"]
    assert len(found["answers"]) == place["answers"]
    assert {"values", "advantages", "returns"} <= set(found["answers"][0]["columns"])
    by_text = client.get(f"/api/runs/plain/through?prompt={quote(place['prompt'])}").json()
    assert by_text == found


def test_the_audit_of_a_step(client: Client) -> None:
    found = client.get("/api/runs/plain/audit?step=2").json()
    assert found["step"] == 2
    assert found["counts"]["bug"] == 0
    assert len(found["checks"]) > 5
    assert client.get("/api/runs/plain/audit").json()["step"] == 3


def test_texts_and_playground(client: Client) -> None:
    texts = client.get("/api/texts").json()
    names = {column["name"] for column in texts["columns"]}
    assert {"advantages", "returns", "values"} <= names
    assert [section["id"] for section in texts["account"]] == [section.id for section in SECTIONS]
    assert client.get("/api/playground").json()["errata"]


def test_the_examples_are_those_of_the_tests() -> None:
    shipped = Path(mingce.__file__).parent / "view" / "examples.json"
    assert json.loads(shipped.read_text()) == json.loads((Path(__file__).parent / "seed_examples.json").read_text())


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/api/runs/nobody", 404, "no run 'nobody'"),
        ("/api/runs/plain/steps/99", 404, "no ledger of step 99"),
        ("/api/runs/plain/steps/2/rollouts/99", 404, "no row 99"),
        ("/api/runs/plain/steps/two", 404, "Not Found"),
        ("/api/runs/plain/through?step=x", 400, "step must be a whole number"),
        ("/api/runs/nobody/events", 404, "no run 'nobody'"),
        ("/nothing", 404, "Not Found"),
    ],
)
def test_what_is_not_there_is_said_as_json(client: Client, path: str, status: int, says: str) -> None:
    answer = client.get(path)
    assert answer.status == status
    assert says in answer.json()["error"]
    assert answer.headers["content-type"] == "application/json"


# ── the account of a token ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["plain", "ragged", "group"])
def test_the_account_says_the_ledgers_numbers(api: Api, runs: Path, name: str) -> None:
    """The twins recompute every token; what is shown is the ledger's own number to the shown digits."""
    columns = {
        "delta": "deltas", "advantage": "advantages", "return": "returns", "whitening": "whitened_advantages",
        "reward": "rewards", "kl": "kl", "ratio": "ratio", "policy": "policy_loss", "value_loss": "value_loss",
    }  # fmt: skip
    seen = set()
    ledger = LedgerStore(runs / name / "ledger").read(2)
    for row in range(len(ledger)):
        rollout = api.rollout(name, 2, row)
        for t in range(len(rollout.tokens)):
            for section in account(rollout, t, "engineer", "en"):
                seen.add(section.id)
                if section.id in columns:
                    stored = float(ledger[columns[section.id]][row, t])
                    assert section.agrees, (row, t, section)
                    assert section.computed == pytest.approx(stored, abs=2e-5)
                    assert section.substituted.endswith(f"= {shown(stored)}"), section
    critic = {"delta", "return", "value_loss", "end", "whitening"} if name != "group" else set()
    assert seen == {"state", "kl", "reward", "advantage", "ratio", "policy"} | critic


OTHERS = "monte_carlo td0 n_step uniform last_k attention dr_grpo rloo reinforce_plus_plus"


@pytest.mark.parametrize("estimator", OTHERS.split())
def test_every_estimator_has_its_account(api: Api, estimator: str) -> None:
    """The section of each estimator arrives at its twin's advantage and leaves no placeholder open."""
    rollout = api.rollout("plain", 2, 1)
    columns = {**rollout.columns, "attention_weights": [0.5] * len(rollout.tokens)}
    settings = replace(rollout.settings, estimator=estimator)
    values, _ = token_values(replace(rollout, settings=settings, columns=columns), 0)
    computed = values["computed_advantage"]
    for column in ("advantages", "returns", "whitened_advantages"):
        columns.pop(column)
    entries = account(replace(rollout, settings=settings, columns=columns), 0, "proof", "zh")
    (section,) = [entry for entry in entries if entry.id == "advantage"]
    assert section.computed == pytest.approx(computed)
    assert section.substituted.endswith(f"= {shown(computed)}")
    assert not re.search(r"\{[a-z_]+\}", section.substituted + section.meaning)


def with_number(rollout: Rollout, column: str, t: int, number: float) -> Rollout:
    changed = list(rollout.columns[column])
    changed[t] = number
    return replace(rollout, columns={**rollout.columns, column: changed})


def test_an_account_that_does_not_recompute_says_so(api: Api) -> None:
    rollout = with_number(api.rollout("plain", 2, 0), "advantages", 2, 0.25)
    wrong = {entry.id: entry for entry in account(rollout, 2, "child", "zh")}["advantage"]
    assert not wrong.agrees
    assert wrong.recorded == 0.25
    assert wrong.computed == pytest.approx(api.rollout("plain", 2, 0).columns["advantages"][2], abs=1e-4)
    assert row_account(rollout).disagreeing["advantage"] == [2]


def test_a_token_of_a_tool_has_no_account(api: Api) -> None:
    rollout = with_number(api.rollout("plain", 2, 0), "response_mask", 1, 0)
    assert [entry.id for entry in account(rollout, 1, "child", "en")] == ["not_chosen"]


def test_the_account_exists_at_every_level_in_both_languages(api: Api) -> None:
    rollout = api.rollout("ragged", 2, 0)
    last = len(rollout.tokens) - 1
    for lang in ("zh", "en"):
        meanings = [[entry.meaning for entry in account(rollout, last, level, lang)] for level in LEVELS]
        assert len({len(found) for found in meanings}) == 1
        for texts in meanings:
            assert not any(re.search(r"\{[a-z_]+\}", text) for text in texts)
            assert all(re.search("[\u4e00-\u9fff]", text) for text in texts) == (lang == "zh")
    known = {name for name in token_values(rollout, 0)[0]}
    known |= {"group_mean", "group_std", "group_size", "others_mean", "share", "std", "whitened"}
    for section in SECTIONS:
        assert names_in(section) <= known, section.id


# ── who may ask ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "10.0.0.1", "[::2]"])
def test_another_name_is_refused(client: Client, host: str) -> None:
    answer = client.get("/api/runs", host=host)
    assert answer.status == 421
    assert b"plain" not in answer.body


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "127.0.0.1", "[::1]:80", "LOCALHOST"])
def test_its_own_names_are_answered(client: Client, host: str) -> None:
    assert client.get("/api/runs", host=host).status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/static/../../../../etc/passwd",
        "/static/..%2f..%2f..%2f__init__.py",
        "/static/%2e%2e/app.py",
        "/static//etc/passwd",
        "/api/runs/..%2f..%2fetc/steps/1",
        "/api/runs/../../etc/passwd",
        "/api/runs/%2e%2e",
    ],
)
def test_no_path_leads_outside(client: Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status in (400, 404)
    assert b"root:" not in answer.body
    assert b"import" not in answer.body


def test_links_that_lead_outside_are_not_followed(runs: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    shutil.copytree(runs / "plain", outside / "secret")
    inside = tmp_path / "inside"
    shutil.copytree(runs / "plain", inside / "honest")
    (inside / "linked").symlink_to(outside / "secret")
    ledger = inside / "honest" / "ledger" / "step-000002.parquet"
    ledger.unlink()
    ledger.symlink_to(outside / "secret" / "ledger" / "step-000002.parquet")
    api = Api(Library([inside]))
    assert [run.name for run in api.runs()] == ["honest"]
    run = api.run("honest")
    assert run.ledger_steps == [1, 3]
    assert run.damaged == [Damage("ledger/step-000002.parquet", "it is not a regular file")]


@pytest.mark.parametrize("path", ["/", "/api/runs", "/api/texts", "/nothing", "/static/nothing.js"])
def test_every_answer_carries_the_headers(client: Client, path: str) -> None:
    headers = client.get(path).headers
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers or "uvicorn" in headers["server"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_it_only_shows(client: Client, method: str) -> None:
    assert client.get("/api/runs", method=method).status == 405


def test_looking_changes_no_file(runs: Path, tmp_path: Path) -> None:
    run = tmp_path / "plain"
    shutil.copytree(runs / "plain", run)
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in run.rglob("*")}
    api = Api(Library([run]))
    api.runs(), api.run("plain"), api.step("plain", 1), api.rollout("plain", 1, 0), api.prompts("plain")
    api.audit("plain", 1), api.progress("plain"), mingce.load_run(run).tokens(1)
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in run.rglob("*")} == before


def test_beyond_this_machine_a_token_is_needed(api: Api) -> None:
    with served(api, token="s3cret", hosts=names_of("0.0.0.0"), any_address=True) as client:
        for path in ("/", "/api/runs", "/api/runs?token=wrong", "/api/runs/plain/events", "/static/x"):
            assert client.get(path).status == 401, path
        assert client.get("/api/runs?token=s3cret").status == 200
        assert client.get("/?token=s3cret", host="evil.example").status == 421
        assert client.get("/api/runs?token=s3cret", host="192.168.1.7:80").status == 200
        entered = client.get("/?token=s3cret")
        assert (entered.status, entered.headers["location"]) == (303, "/")
        cookie = entered.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert client.get("/api/runs", Cookie=cookie.split(";")[0]).status == 200
        assert client.get("/api/runs", Cookie=f"mingce-{client.port}=wrong").status == 401


def test_a_token_is_made_only_beyond_this_machine() -> None:
    listener, address = listen("127.0.0.1", None)
    listener.close()
    assert address.token is None
    assert address.url == f"http://127.0.0.1:{address.port}/"
    listener, address = listen("0.0.0.0", None)
    listener.close()
    assert address.token
    assert len(address.token) >= 32
    assert Address("0.0.0.0", 7, "t").url == f"http://{socket.gethostname()}:7/?token=t"
    taken, address = listen("127.0.0.1", None)
    with taken, pytest.raises(SettingError, match=f"cannot listen on 127.0.0.1, port {address.port}"):
        listen("127.0.0.1", address.port)


# ── damage, dumps, live ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_damaged_ledger_is_named_and_the_rest_goes_on(runs: Path, tmp_path: Path) -> None:
    run = tmp_path / "hurt"
    shutil.copytree(runs / "plain", run)
    cut, flipped = run / "ledger" / "step-000001.parquet", run / "ledger" / "step-000003.parquet"
    cut.write_bytes(cut.read_bytes()[:2000])
    content = bytearray(flipped.read_bytes())
    content[len(content) // 3] ^= 0xFF
    flipped.write_bytes(content)
    with (run / "metrics.jsonl").open("ab") as metrics:
        metrics.write(b"{broken\n" + b'{"step": 4, "critic/score/mean": "NaN"}\n' + b'{"step": 5, "unfin')
    with served(Api(Library([run]))) as client:
        found = client.get("/api/runs/hurt").json()
        assert found["steps"] == [0, 1, 2, 3, 4]
        assert found["series"]["critic/score/mean"][-1] is None
        assert found["ledger_steps"] == [2, 3]
        told = {damage["file"]: damage["why"] for damage in found["damaged"]}
        assert set(told) == {"ledger/step-000001.parquet", "metrics.jsonl"}
        assert "cut short" in told["ledger/step-000001.parquet"]
        assert "line 5 " in told["metrics.jsonl"]
        refused = client.get("/api/runs/hurt/steps/1")
        assert refused.status == 422
        assert "step-000001.parquet" in refused.json()["error"]
        answers = [client.get(f"/api/runs/hurt/steps/3/rollouts/{row}").status for row in range(8)]
        assert 422 in answers  # the flipped byte is in some column of the only row group
        assert client.get("/api/runs/hurt").json()["ledger_steps"] == [2]
        assert client.get("/api/runs/hurt/steps/2/rollouts/0").status == 200


def test_a_file_that_is_mended_is_shown_again(runs: Path, tmp_path: Path) -> None:
    run = tmp_path / "mended"
    shutil.copytree(runs / "plain", run)
    path = run / "ledger" / "step-000001.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    api = Api(Library([run]))
    assert api.run("mended").ledger_steps == [2, 3]
    path.write_bytes(whole)
    found = api.run("mended")
    assert (found.ledger_steps, found.damaged) == ([1, 2, 3], [])


def test_a_dump_is_a_run_of_one_step(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    mask = np.arange(8) < rng.integers(3, 9, size=(32, 1))
    values, rewards = rng.normal(size=(32, 8)), np.where(mask, rng.normal(size=(32, 8)), 0)
    advantages = np.zeros((32, 8))
    for b in range(32):
        after_v = after_a = 0.0
        for t in reversed(range(int(mask[b].sum()))):
            advantages[b, t] = rewards[b, t] + after_v - values[b, t] + 0.9 * after_a
            after_v, after_a = values[b, t], advantages[b, t]
    dump = tmp_path / "step_7.npz"
    np.savez(
        dump, responses=np.arange(256).reshape(32, 8), response_mask=mask, values=values, token_level_rewards=rewards,
        token_level_scores=rewards, advantages=advantages, returns=advantages + values,
    )  # fmt: skip
    (tmp_path / "not-a-dump.bin").write_bytes(b"nothing")
    api = Api(Library([dump, tmp_path / "not-a-dump.bin"]))
    listed = {run.name: run for run in api.runs()}
    assert listed["step_7.npz"].kind == "dump"
    assert listed["not-a-dump.bin"].message
    run = api.run(listed["step_7.npz"].id)
    assert run.ledger_steps == [7]
    step = api.step(run.id, 7)
    assert [entry.length for entry in step.rollouts] == mask.sum(axis=1).tolist()
    rollout = api.rollout(run.id, 7, 0)
    assert len(rollout.tokens) == mask[0].sum()
    assert rollout.has_texts is False
    assert rollout.columns["advantages"] == advantages[0][mask[0]].tolist()
    assert [rollout.settings.gamma, rollout.settings.lam] == pytest.approx([1.0, 0.9])
    entries = {entry.id: entry for entry in account(rollout, 0, "engineer", "zh")}
    assert entries["advantage"].agrees
    assert api.audit(run.id, 7)["rows"] == 32
    encode([run, step, rollout])


def test_events_tell_of_new_steps(runs: Path, tmp_path: Path) -> None:
    run = tmp_path / "live"
    shutil.copytree(runs / "plain", run)
    with Run.open(run) as writer, served(Api(Library([run]))) as client:
        connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=120)
        connection.request("GET", "/api/runs/live/events")
        answer = connection.getresponse()
        assert answer.headers["content-type"].startswith("text/event-stream")

        def event() -> Any:
            while not (line := answer.readline()).startswith(b"data: "):
                assert line, "the stream ended"
            return json.loads(line.removeprefix(b"data: "))

        assert event() == {"status": "training", "step": 3}
        writer.log(4, {"critic/score/mean": 1.0})
        assert event() == {"step": 4}
        writer.close()
        assert event() == {"status": "finished"}
        connection.close()


def test_a_run_that_appears_is_found(runs: Path, tmp_path: Path) -> None:
    api = Api(Library([tmp_path]))
    assert api.runs() == []
    shutil.copytree(runs / "group", tmp_path / "new run")
    (found,) = api.runs()
    assert found.name == "new run"
    assert re.fullmatch("run-[0-9a-f]{8}", found.id)
    assert api.run(found.id).steps


# ── text ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def rewritten(run: Path, step: int, **rows: list[str]) -> None:
    """The step's ledger with other row columns."""
    store = LedgerStore(run / "ledger")
    store.write(step, store.read(step).fill_rows(**rows))


@pytest.fixture
def nasty(runs: Path, tmp_path: Path) -> Path:
    run = tmp_path / "nasty"
    shutil.copytree(runs / "plain", run)
    for step in (1, 2, 3):
        rewritten(run, step, response=[NASTY] * 8, prompt=[NASTY] * 8)
    return run


def test_markup_in_a_response_stays_text(nasty: Path) -> None:
    with served(Api(Library([nasty]))) as client:
        for path in ("/api/runs/nasty/steps/1", "/api/runs/nasty/steps/1/rollouts/0"):
            answer = client.get(path)
            assert answer.headers["content-type"] == "application/json"
            found = answer.json()
            assert (found["rollouts"][0] if "rollouts" in found else found)["response"] == NASTY


PAGE = """<!doctype html><html><head><meta charset="utf-8">
<script type="module" crossorigin src="/static/assets/app-1.js"></script>
<link rel="stylesheet" crossorigin href="/static/assets/app-1.css"></head><body><div id="app"></div></body></html>"""


@pytest.fixture
def static(tmp_path: Path) -> Path:
    """A page of the shape that the build makes."""
    folder = tmp_path / "static"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text(PAGE)
    (folder / "assets" / "app-1.js").write_text("const a = '</script><!--'; document.title = a;")
    (folder / "assets" / "app-1.css").write_text("@font-face{src:url(/static/assets/f.woff2)} p{color:red}")
    (folder / "assets" / "f.woff2").write_bytes(b"font")
    return folder


def data_of(page: str) -> dict[str, Any]:
    blocks = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert len(blocks) == 1
    found: dict[str, Any] = json.loads(blocks[0])
    return found


def test_the_export_is_one_file_with_all_it_needs(nasty: Path, static: Path, tmp_path: Path) -> None:
    api, out = Api(Library([nasty])), tmp_path / "report.html"
    size = write_export(api, out, [1, 3], 4, audit=True, static=static)
    page = out.read_text(encoding="utf-8")
    assert size == out.stat().st_size
    assert page.count("<script") == page.count("</script>") == 2
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?/""", page)
    assert not re.search(r"url\((?!data:)", page)
    assert "\u2028" not in page
    assert "<img" not in page
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    assert policy
    assert "default-src 'none'" in policy[1]
    assert policy[1].count("'sha256-") == 2
    data = data_of(page)
    assert data["/api/runs/nasty"]["ledger_steps"] == [1, 3]
    for step in (1, 3):
        table = data[f"/api/runs/nasty/steps/{step}"]
        assert len(table["rollouts"]) == 4
        for entry in table["rollouts"]:
            rollout = data[f"/api/runs/nasty/steps/{step}/rollouts/{entry['row']}"]
            assert rollout["response"] == NASTY
            assert rollout == json.loads(encode(api.rollout("nasty", step, entry["row"])))
        assert data[f"/api/runs/nasty/audit?step={step}"]["step"] == step
    assert data["/api/runs"][0]["path"] == "nasty", "the reader's business is not where the sender keeps files"
    assert str(tmp_path) not in json.dumps({key: value for key, value in data.items() if "/audit" not in key})
    assert {"/api/texts", "/api/playground", "/api/runs/nasty/through", "/api/export"} <= set(data)


def test_the_built_page_can_be_exported(api: Api, runs: Path) -> None:
    page = export_page(chosen_answers(Api(Library([runs / "ragged"])), None, 2))
    assert "/static/" not in re.sub(r'<script type="application/json".*?</script>', "", page, flags=re.DOTALL)
    assert set(data_of(page)["/api/export"]["steps"]) == {1, 2}


def test_a_damaged_dump_is_not_exported(tmp_path: Path) -> None:
    (tmp_path / "cut.parquet").write_bytes(b"PAR1" + bytes(100))
    with pytest.raises(RunError, match=r"nothing of cut.parquet can be exported: [^\n]*cut[^\n]*$"):
        chosen_answers(Api(Library([tmp_path / "cut.parquet"])), None, 4)


def test_an_export_wants_one_run_and_steps_that_are_there(api: Api, runs: Path) -> None:
    with pytest.raises(SettingError, match="--export takes one run"):
        chosen_answers(api, None, 4)
    with pytest.raises(MingceError, match="no ledger of step 9"):
        chosen_answers(Api(Library([runs / "plain"])), [9], 4)


def test_json_in_a_page_cannot_end_its_script() -> None:
    text = safe_json({"a": NASTY, "b": "\u2029</SCRIPT>"})
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {"a": NASTY, "b": "\u2029</SCRIPT>"}


# ── tokens ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_pieces_of_one_character_share_a_glyph(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<eos>"])
    file = tmp_path / "tokenizer.json"
    tokenizer.save(str(file))
    texts = TokenTexts(file)
    ids = [*tokenizer.encode("a数 🙂\n").ids, 256]
    found = texts.tokens(ids)
    assert [token.text for token in found] == ["a", "数", "", "", " ", "🙂", "", "", "", "\n", "<eos>"]
    assert [token.glyph for token in found] == [0, 1, 1, 1, 2, 3, 3, 3, 3, 4, 5]
    assert found[-1].special
    broken = texts.tokens([*tokenizer.encode("数").ids[:2], *tokenizer.encode("b").ids, 999])
    assert [token.text for token in broken] == ["\ufffd", "", "b", "⟨999⟩"]
    (tmp_path / "damaged.json").write_text("{")
    assert TokenTexts(tmp_path / "damaged.json").tokens([3]) == [Token(3, "⟨3⟩", 0)]


# ── for code, and the command ────────────────────────────────────────────────────────────────────────────────────────


def test_frames_hold_the_same_numbers(runs: Path) -> None:
    run = mingce.load_run(runs / "ragged")
    ledger = LedgerStore(runs / "ragged" / "ledger").read(1)
    assert run.steps() == [1, 2]

    def columns(frame: Any) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = frame.to_pydict() if hasattr(frame, "to_pydict") else frame.to_dict("list")
        return found

    tokens, rollouts = columns(run.tokens(1)), columns(run.rollouts(1))
    assert tokens["advantages"] == ledger["advantages"][ledger.mask].tolist()
    assert rollouts["uid"] == ledger.rows["uid"]
    assert rollouts["score"] == pytest.approx(ledger["scores"].sum(dim=1).tolist())
    one = columns(run.rollout(1, 2))
    assert one["values"] == [v for v, row in zip(tokens["values"], tokens["row"], strict=True) if row == 2]
    assert one["t"] == list(range(len(one["t"])))
    assert columns(run.metrics())["step"] == [0, 1, 2]
    with pytest.raises(MingceError, match="nothing at"):
        mingce.load_run(runs / "nobody")


def test_looking_does_not_load_torch(runs: Path) -> None:
    program = (
        "import sys, mingce; light = len(sys.modules)\n"
        "from pathlib import Path; from mingce.view.api import Api, texts; from mingce.sources.library import Library\n"
        "import mingce.view.app, mingce.view.serve\n"
        f"api = Api(Library([Path({str(runs)!r})])); api.run('plain'); api.rollout('plain', 1, 0); texts()\n"
        "assert light < 120, light; assert not {'torch', 'transformers', 'numba'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_command_serves_and_stops(runs: Path) -> None:
    command = [sys.executable, "-m", "mingce.cli", "view", str(runs), "--no-browser", "--lang", "en"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stdout
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", server.stdout.readline())
        assert found
        for _ in range(1000):
            try:
                assert Client(int(found[1])).get("/api/runs").status == 200
                break
            except ConnectionError:
                time.sleep(0.05)
        else:
            pytest.fail("nobody answers at the address")
    finally:
        server.terminate()
    assert server.wait(120) in (0, -15)
    missing = subprocess.run([*command[:4], str(runs / "nobody")], capture_output=True, text=True)
    assert missing.returncode == 2
    assert "there is nothing at" in missing.stderr


def test_numbers_are_written_shortly_and_read_back_exactly() -> None:
    rng = np.random.default_rng(0)
    special = [0.0, -0.0, 1e-45, 3.4028235e38, 0.1, 16777216.0, -1e-8]
    values = np.concatenate([special, rng.normal(size=500) * 10.0 ** rng.integers(-30, 30, 500)]).astype(np.float32)
    written = encode({"a": array("f", values), "b": [array("f")], "c": "0"})
    read = json.loads(written)
    assert np.array_equal(np.array(read["a"], dtype=np.float32), values)
    assert (read["b"], read["c"]) == ([[]], "0")
    assert len(written) < 0.7 * len(json.dumps(values.tolist()))
    with pytest.raises(TypeError, match="not JSON"):
        encode({"a": object()})
    with pytest.raises(ValueError, match="JSON compliant"):
        encode(float("nan"))


def test_long_series_are_thinned_evenly() -> None:
    assert thinned(0, 5) == []
    assert thinned(5, 5) == [0, 1, 2, 3, 4]
    assert thinned(11, 5) == [0, 3, 6, 9, 10]
