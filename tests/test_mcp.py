"""`mingce mcp` driven by the official client over both transports: all it offers, and what it refuses."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_places import COMMAND, ENVIRONMENT, TRANSPORTS, furnish, http_server, talk_stdio

from mingce.algorithms import reference
from mingce.assistant.places import Places
from mingce.assistant.resources import resources
from mingce.assistant.toolbox import TOOLS
from mingce.base.errors import SettingError
from mingce.commands import mcp as command
from mingce.explain import dialogue, example
from mingce.explain.code_refs import ROOT
from mingce.explain.topics import TOPICS

REWARDS, VALUES = [0.0, 0.0, 1.0], [0.3, 0.4, 0.6]


@pytest.fixture(scope="module")
def allowed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return furnish(tmp_path_factory.mktemp("mcp"))


@pytest.fixture(params=sorted(TRANSPORTS))
def transport(request: pytest.FixtureRequest) -> Any:
    return TRANSPORTS[request.param]


async def call(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    """A tool's structured result, which the client has held against the schema; its text is the same JSON."""
    result = await client.call_tool(name, arguments)
    text = getattr(result.content[0], "text", "")
    assert not result.is_error, text
    assert json.loads(text) == result.structured_content
    structure: dict[str, Any] | None = result.structured_content
    assert structure is not None
    return structure


async def refusal(client: Client, name: str, **arguments: Any) -> str:
    """The one sentence with which a call is refused."""
    result = await client.call_tool(name, arguments)
    text = str(getattr(result.content[0], "text", ""))
    assert result.is_error, text
    assert result.structured_content is None
    assert 0 < len(text) < 2001
    assert "\n" not in text
    assert "Traceback" not in text
    return text


def is_definition(code: dict[str, Any]) -> bool:
    """Whether a source's file and line are those of the function that it names."""
    line = (ROOT / code["file"]).read_text(encoding="utf-8").splitlines()[code["line"] - 1]
    return re.match(rf"\s*def {code['name'].rpartition('.')[2]}\(", line) is not None


# ── every tool, resource and prompt ──────────────────────────────────────────────────────────────────────────────────


def test_the_account_tools_compute_explain_derive_judge_and_answer(transport: Any, allowed: Path) -> None:
    async def talk(client: Client) -> None:
        offered = (await client.list_tools()).tools
        assert {tool.name for tool in offered} == set(TOOLS)
        assert [tool.name for tool in offered if not (tool.annotations and tool.annotations.read_only_hint)] == [
            "save_dialogue"
        ]
        found = await call(client, "compute_account", rewards=REWARDS, values=VALUES, gamma=0.9, lam=0.5)
        right = reference.gae([REWARDS], [VALUES], [[1] * 3], 0.9, 0.5)
        assert found["columns"]["advantages"] == pytest.approx(right.advantages[0])
        assert found["columns"]["returns"] == pytest.approx(right.returns[0])
        assert found["origin"] | {"kind": "numbers", "page": "#/playground"} == found["origin"]
        assert found["quantities"]
        assert all(is_definition(code) for one in found["quantities"] for code in one["code"])
        found = await call(client, "compute_account", rewards=REWARDS, values=VALUES, estimator="monte_carlo")
        assert found["columns"]["advantages"] == pytest.approx([1 - v for v in VALUES])

        found = await call(client, "derive_number", quantity="advantages", token=4)
        assert (found["with_numbers"], found["result"]) == ("A_4 = 0.13 + 0.95·0.395 = 0.5053", pytest.approx(0.50525))
        assert found["inputs"] == {"deltas": pytest.approx(0.13)}
        assert found["origin"]["kind"] == "example"

        found = await call(client, "explain_token", token=4, lang="zh")
        stages = {stage["column"]: stage for stage in found["stages"]}
        assert stages["rewards"]["with_numbers"] == "r_4 = 0 − 0.1·0.2 = −0.02"
        assert "“2”" in found["opening"]
        assert "A_4 = 0.13 + 0.95·0.395 = 0.5053" in found["markdown"]

        found = await call(client, "check_claims", text="δ_4 = 0.13, A_5 = 0.395. A_4 = 0.13 + 0.95·0.395 = 0.52")
        assert (found["wrong"], found["claims"][-1]["status"], found["claims"][-1]["right"]) == (
            1,
            "wrong",
            [[0.50525]],
        )

        earlier = ["why is the advantage not just delta?"]
        found = await call(client, "ask_tutor", question="and with λ=0.5?", earlier=earlier)
        assert found["topic"] == "a_not_delta"
        assert "λ = 0.5" in found["markdown"]

    transport(talk, str(allowed))


def test_the_run_tools_read_runs_and_rollouts_and_audit_dumps(transport: Any, allowed: Path) -> None:
    async def talk(client: Client) -> None:
        listed = await call(client, "list_runs")
        assert [(run["run"], run["last_step"], run["page"]) for run in listed["runs"]] == [
            ("runs/demo", 2, "#/run/demo")
        ]
        run = await call(client, "read_run", run="runs/demo", metrics=["critic/score/mean"])
        assert run["config"]["prompts_per_step"] == 4
        assert (run["steps"], len(run["metrics"][0]["values"])) == ([0, 1, 2], 3)  # 0 is the validation before training
        last = await call(client, "read_run", run="runs/demo")
        assert last["steps"] == [2]
        assert set(last["metric_names"]) >= {"actor/pg_loss", "critic/vf_loss"}

        every = await call(client, "search_rollouts", run="runs/demo", step=1)
        assert every["count"] == every["total"] == 8
        prompt = every["rollouts"][0]["question"]
        some = await call(client, "search_rollouts", run="runs/demo", step=1, text=prompt)
        assert 0 in [one["rollout"] for one in some["rollouts"]]
        assert all(prompt in one["question"] + one["response"] for one in some["rollouts"])

        ledger = await call(client, "read_rollout", run="runs/demo", step=1, rollout=3, columns=["values", "rewards"])
        assert set(ledger["columns"]) == {"values", "rewards"}
        assert len(ledger["columns"]["values"]) == len(ledger["tokens"]) == ledger["count"]
        token = await call(client, "explain_token", run="runs/demo", step=1, rollout=3, token=0)
        origin = token["origin"]
        assert origin["page"] == "#/run/demo/step/1/rollout/3?token=0"
        assert origin["url"] == f"http://127.0.0.1:8000/{origin['page']}"
        assert (origin["run"], origin["step"], origin["rollout"], origin["token"]) == ("runs/demo", 1, 3, 0)
        values = next(stage for stage in token["stages"] if stage["column"] == "values")
        assert values["recorded"] == pytest.approx(ledger["columns"]["values"][0])

        audit = await call(client, "audit_dump", dump="dumps/sign.npz", gamma=1.0, lam=0.95)
        assert audit["bugs"] == 1
        assert "KL" in audit["findings"][0]["title"]
        clean = await call(client, "audit_dump", dump="runs/demo", step=1)
        assert (clean["bugs"], clean["page"]) == (0, "#/run/demo/audit")
        told = await refusal(client, "read_rollout", run="runs/demo", step=99)
        assert "99" in told

    transport(talk, str(allowed), "--view-url", "http://127.0.0.1:8000/")


def test_a_dialogue_is_saved_appended_and_read_back(transport: Any, tmp_path: Path) -> None:
    rounds = [{"question": "为什么？", "answer": "因为…\n用户：quoted\n\n"}, {"question": "A_4?", "answer": "0.5053"}]

    async def talk(client: Client) -> None:
        saved = await call(client, "save_dialogue", rounds=rounds[:1])
        assert re.fullmatch(r"codex_dialogue/codex_\d{8}_\d{6}\.md", saved["file"])
        more = await call(client, "save_dialogue", rounds=rounds[1:], file=saved["file"])
        assert more == {"file": saved["file"], "rounds": 2}
        kept = dialogue.read(tmp_path / saved["file"])
        assert [vars(one) for one in kept.rounds] == rounds
        (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
        assert "notes.txt" in await refusal(client, "save_dialogue", rounds=rounds, file="notes.txt")
        assert (tmp_path / "notes.txt").read_text(encoding="utf-8") == "mine"
        await refusal(client, "save_dialogue", rounds=rounds, directory="..")
        await refusal(client, "save_dialogue", rounds=rounds, directory="/tmp")
        await refusal(client, "save_dialogue", rounds=[])
        await refusal(client, "save_dialogue", rounds=[{"question": "a"}])
        await refusal(client, "save_dialogue", rounds=["a"])
        assert len(list(tmp_path.rglob("*.md"))) == 1

    transport(talk, str(tmp_path))


def test_every_resource_is_read_and_every_prompt_is_had(transport: Any, allowed: Path) -> None:
    async def talk(client: Client) -> None:
        listed = (await client.list_resources()).resources
        assert [str(one.uri) for one in listed] == [one.uri for one in resources()]
        assert len(listed) == 2 * (3 + len(TOPICS))
        assert (await client.list_resource_templates()).resource_templates[0].uri_template.startswith("mingce://topics")
        for one in listed:
            text = str(getattr((await client.read_resource(str(one.uri))).contents[0], "text", ""))
            assert len(text) > 200, one.uri
        columns = await client.read_resource("mingce://columns/zh")
        assert "δ_t = r_t + γ·V(s_{t+1}) − V(s_t)" in str(getattr(columns.contents[0], "text", ""))
        given = {
            "five_quantities": {},
            "walk_token": {"run": "runs/demo", "step": "1"},
            "judge_understanding": {"text": "A_4 = {0.52}"},
            "audit_dump": {"dump": "dumps/sign.npz"},
            "save_dialogue": {},
        }
        prompts = (await client.list_prompts()).prompts
        assert {prompt.name for prompt in prompts} == set(given)
        for prompt in prompts:
            arguments = dict(given[prompt.name])
            needed = {one.name for one in prompt.arguments or [] if one.required}
            assert needed == set(arguments)
            message = (await client.get_prompt(prompt.name, arguments)).messages[0]
            text = str(getattr(message.content, "text", ""))
            assert all(value in text for value in arguments.values())
            assert not needed or await _no_prompt(client, prompt.name)
        pair = (await client.get_prompt("five_quantities", {})).messages[0]
        assert example.PROMPT in str(getattr(pair.content, "text", ""))
        for uri in ("mingce://topics/../columns/zh", "mingce://nothing", "file:///etc/passwd"):
            with pytest.raises(MCPError):
                await client.read_resource(uri)
        assert await _no_prompt(client, "nothing")
        with pytest.raises(MCPError):
            await client.get_prompt("judge_understanding", {"text": "x" * 30_000})

    transport(talk, str(allowed))


async def _no_prompt(client: Client, name: str) -> bool:
    with pytest.raises(MCPError) as error:
        await client.get_prompt(name, {})
    return "Traceback" not in str(error.value)


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────────

OUTSIDE = [
    "/etc/passwd", "../outside/secret.npz", "runs/../../outside/secret.npz", "/dev/zero", "/dev/stdin",
    "/proc/self/mem", "link.npz", "leads_out/secret.npz", "mixed", "null", "pipe", "~root/x", "nothing", "a\0b", "/",
    "x" * 4000,
]  # fmt: skip
WRONG: list[dict[str, Any]] = [
    {"rewards": "0, 1", "values": VALUES},
    {"rewards": [0, "1", 2], "values": VALUES},
    {"rewards": [True, False, True], "values": VALUES},
    {"rewards": [[0, 0, 1]], "values": VALUES},
    {"rewards": [0] * 5000, "values": [0] * 5000},
    {"rewards": [0, 0], "values": VALUES},
    {"rewards": [1e308, 1e308, 1e308], "values": VALUES},
    {"rewards": REWARDS, "values": VALUES, "gamma": 1.5},
    {"rewards": REWARDS, "values": VALUES, "lam": "0.9"},
    {"rewards": REWARDS, "values": VALUES, "estimator": "grpo"},
    {"rewards": REWARDS, "values": VALUES, "estimator": "../own.py:x"},
    {"rewards": REWARDS, "values": VALUES, "unheard_of": 1},
    {"rewards": REWARDS, "values": VALUES, "run": "runs/demo"},
    {"rewards": [], "values": []},
    {"step": 1},
    {"run": 7},
    {"run": "runs/demo", "step": -1},
    {"run": "runs/demo", "rollout": 10**12},
]


def test_paths_outside_and_things_that_are_no_files_are_refused(transport: Any, allowed: Path) -> None:
    async def talk(client: Client) -> None:
        for path in OUTSIDE:
            await refusal(client, "read_run", run=path)
            await refusal(client, "audit_dump", dump=path)
            await refusal(client, "audit_dump", dump="dumps/sign.npz", mapping=path)
            await refusal(client, "compute_account", run=path)
            await refusal(client, "save_dialogue", rounds=[{"question": "a", "answer": "b"}], file=path)
        assert not (allowed.parent / "outside" / "codex_dialogue").exists()
        assert [run["run"] for run in (await call(client, "list_runs"))["runs"]] == ["runs/demo"]

    transport(talk, str(allowed))


def test_wrong_arguments_are_refused_in_one_sentence(transport: Any, allowed: Path) -> None:
    async def talk(client: Client) -> None:
        for arguments in WRONG:
            await refusal(client, "compute_account", **arguments)
        await refusal(client, "derive_number", quantity="advantages")
        await refusal(client, "derive_number", quantity="advantages", token=99)
        await refusal(client, "derive_number", quantity="kl", token=0, rewards=REWARDS, values=VALUES)
        await refusal(client, "derive_number", quantity="entropy", token=0)
        await refusal(client, "ask_tutor", question="x" * 5000)
        await refusal(client, "check_claims", text="x" * 300_000)
        await refusal(client, "check_claims", text=["a"])
        await refusal(client, "no_such_tool")
        await refusal(client, "read_run", run="runs/demo", metrics=["nothing"])
        assert (await call(client, "derive_number", quantity="advantages", token=4))["result"]  # it still works

    transport(talk, str(allowed))


def test_ten_megabytes_nan_and_junk_on_stdio_leave_the_server_alive(allowed: Path) -> None:
    """Raw lines, among them such as no client writes: every line of stdout is the protocol's, none has a traceback."""
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    nan = _request(2, "compute_account", rewards=[float("nan")], values=[float("inf")])
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
        json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        nan,
        "{not json",
        "\x00\x1b[31m",
        _request(3, "check_claims", text="7" * 10_000_000),
        _request(4, "audit_dump", dump="dumps/sign.npz"),
        _request(5, "derive_number", quantity="advantages", token=4),
    ]
    with subprocess.Popen(
        [*COMMAND, str(allowed)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        answers: dict[int, dict[str, Any]] = {}
        process.stdin.write("\n".join([*lines, ""]).encode())
        process.stdin.flush()
        while not answers.keys() >= {1, 3, 4, 5}:
            line = process.stdout.readline()
            assert line, "the server is gone"
            answer = json.loads(line)
            assert answer["jsonrpc"] == "2.0"
            assert b"Traceback" not in line
            if isinstance(answer.get("id"), int):
                answers[answer["id"]] = answer
        process.stdin.close()
        rest = process.stdout.read()
        assert all(json.loads(line)["jsonrpc"] == "2.0" for line in rest.splitlines())
        assert process.wait(20) == 0
    assert answers[3]["result"]["isError"]
    assert "10,000,000" in answers[3]["result"]["content"][0]["text"]
    assert answers[4]["result"]["structuredContent"]["bugs"] == 1
    assert answers[5]["result"]["structuredContent"]["result"] == pytest.approx(0.50525)
    if 2 in answers:
        assert answers[2].get("error") or answers[2]["result"]["isError"]


def _request(number: int, name: str, **arguments: Any) -> str:
    params = {"name": name, "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})


def test_http_listens_on_loopback_only_and_refuses_other_hosts_origins_and_huge_bodies(allowed: Path) -> None:
    with http_server(str(allowed)) as url:
        port = int(urlsplit(url).port or 0)
        listening = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        listening += [line.split()[1] for line in Path("/proc/net/tcp6").read_text().splitlines()[1:]]
        assert {address for address in listening if address.endswith(f":{port:04X}")} == {f"0100007F:{port:04X}"}
        ping = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert _status(port, ping, host="evil.example") == 421
        assert _status(port, ping, host="127.0.0.1.evil.example:80") == 421
        assert _status(port, ping, origin="http://evil.example") == 403
        assert _status(port, ping, origin="http://localhost.evil.example") == 403
        assert _status(port, ping, kind="text/plain") == 400
        assert _status(port, " " * 10_000_000) == 413
        assert _status(port, ping, path="/") == 404
        assert _status(port, ping) not in (403, 421)


def _status(
    port: int, body: str, *, path: str = "/mcp", host: str = "", origin: str = "", kind: str = "application/json"
) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    headers = {"content-type": kind, "accept": "application/json, text/event-stream"}
    headers |= {"host": host} if host else {}
    headers |= {"origin": origin} if origin else {}
    try:
        connection.request("POST", path, body, headers)
        return connection.getresponse().status
    except (BrokenPipeError, ConnectionResetError):  # it answered before all was sent
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_directory_with_links_that_lead_out_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "fine").symlink_to(tmp_path / "in")
    assert Places([tmp_path / "in"]).inside("fine") == tmp_path / "in"
    (tmp_path / "in" / "loop").symlink_to(tmp_path / "in" / "loop")
    assert Places([tmp_path / "in"]).name(tmp_path / "in" / "a") == "a"
    with pytest.raises(SettingError):
        Places([tmp_path / "nothing"])


def test_without_the_sdk_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, english: None) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(command, "version", missing)
    with pytest.raises(SettingError, match="pip install"):
        command.run([])
    monkeypatch.setattr(command, "version", lambda name: "1.9.0")
    with pytest.raises(SettingError, match="version 2"):
        command.run([])


def test_a_client_that_leaves_ends_the_server(allowed: Path) -> None:
    async def talk(client: Client) -> None:
        assert (await client.list_tools()).tools

    talk_stdio(talk, str(allowed))
