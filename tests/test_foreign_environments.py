"""Environments that nobody here wrote: games of textarena, environments of skyrl-gym, tools of MCP servers."""

from __future__ import annotations

import json
import random
import sys
import threading
from pathlib import Path
from typing import Any

import foreign_games
import pytest
import torch
from small_runs import quiet, trained
from test_tool_calls import TEMPLATES, tokenizer_of
from transformers import LlamaConfig, LlamaForCausalLM

from mingce.base.errors import EnvironmentFault, MingceError
from mingce.config import read_config
from mingce.models.turns import Dialogue
from mingce.record.run import Run
from mingce.tasks import mcp_tools, sandbox
from mingce.tasks.check import check_task
from mingce.tasks.environment import Action
from mingce.tasks.mcp_tools import load_mcp
from mingce.tasks.registry import load_task
from mingce.tasks.tool_calls import FORMATS, ToolCall
from mingce.training import start
from mingce.training.trust import executed_by

SERVER = '''from mcp.server.mcpserver import MCPServer

mcp = MCPServer("Demo")


@mcp.tool()
def add(a: int, b: int) -> int:
    """Add two numbers"""
    return a + b


@mcp.tool()
def fail(how: str) -> str:
    """Fails"""
    if how == "dies":
        import os
        os._exit(1)
    raise ValueError(how)


if __name__ == "__main__":
    mcp.run()
'''
RAW = """import json, sys
for line in sys.stdin:
    asked, kind = json.loads(line), sys.argv[1]
    if "id" not in asked or kind == "silent":
        continue
    told = {}
    if asked["method"] == "initialize":
        told = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}}}
        told["serverInfo"] = {"name": "raw", "version": "1"}
    elif asked["method"] == "tools/list":
        told = {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}
        told |= {"nextCursor": "again"} if kind == "endless" else {}
    elif asked["method"] == "tools/call":
        told = {"content": [], "structuredContent": {"found": 7}}
    print("no protocol\\n" + json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": told}), flush=True)
"""
FIVE = ("steps=5", "agent.max_turns=3", "agent.turn_tokens=12", "sampling.max_new_tokens=300",
        "sampling.temperature=1.0", "validation.examples=4", "audit.every=1")  # fmt: skip


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textarena", foreign_games.textarena())
    monkeypatch.setitem(sys.modules, "skyrl_gym", foreign_games.skyrl_gym())


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of letters with a chat template that knows tools."""
    place = tmp_path_factory.mktemp("model")
    tokenizer = tokenizer_of(TEMPLATES["hermes"])
    tokenizer.save_pretrained(place)
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    config = LlamaConfig(vocab_size=len(tokenizer), eos_token_id=1, num_attention_heads=4, **sizes)
    LlamaForCausalLM(config).save_pretrained(place)
    return place


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    file = tmp_path / "rows.jsonl"
    lines = []
    for a in range(2, 42):
        prompt = [{"role": "user", "content": f"{a}+1="}]
        spec = {"method": "rule", "ground_truth": str(a + 1)}
        lines.append({"data_source": "sums", "prompt": prompt, "reward_spec": spec, "extra_info": {"max_turns": 3}})
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def checked_run(path: Path, steps: int = 5) -> list[dict[str, Any]]:
    """The metrics of a run of conversations in which nothing went wrong."""
    run = Run.open(path, readonly=True)
    lines = [line for line in run.metrics() if "agent/ids_as_sampled" in line]
    assert len(lines) >= steps
    assert all(line["agent/ids_as_sampled"] == 1.0 and line["agent/failed_share"] == 0 for line in lines)
    assert all(line.get("audit/bugs", 0) == 0 for line in lines)
    return lines


def test_a_game_says_what_is_new_and_pays_at_its_end(libraries: None) -> None:
    task = load_task("textarena:Dice-v0", size=8, held_out_size=4, options={"sides": 10})
    example = task.train_examples()[0]
    assert example.prompt == [{"role": "user", "content": "10 sides."}]
    assert len({one.extra_info["seed"] for one in [*task.train_examples(), *task.held_out_examples()]}) == 12
    before = random.getstate()
    game: Any = task.environment()  # type: ignore[attr-defined]
    assert game.reset(example, 5) == example.prompt
    first = game.step(Action("none"))
    assert not first.done
    assert first.content[0]["content"].startswith("rolled ")  # neither the prompt again nor what the player said
    hidden = game.game.hidden
    last = game.step(Action(f"it is {hidden}"))
    assert (last.reward, last.done, last.right) == (1.0, True, True)
    assert random.getstate() == before
    report = check_task(task)
    assert not report.failures
    assert "right ones could not be tried" in report.sentence


def test_games_in_threads_draw_from_their_own_seeds(libraries: None) -> None:
    task: Any = load_task("textarena:Dice-v0", size=16, held_out_size=1, options={"turns": 30})

    def played(number: int, into: dict[int, list[str]]) -> None:
        game = task.environment()
        game.reset(task.train_examples()[number], number)
        into[number] = [game.step(Action("x")).content[0]["content"] for _ in range(20)]

    alone: dict[int, list[str]] = {}
    for number in range(16):
        played(number, alone)
    beside: dict[int, list[str]] = {}
    threads = [threading.Thread(target=played, args=(number, beside)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert beside == alone
    assert len({tuple(story) for story in alone.values()}) == 16


def test_wrong_names_are_sentences(libraries: None, monkeypatch: pytest.MonkeyPatch, rows: Path) -> None:
    with pytest.raises(MingceError, match="unknown textarena game 'Dise-v0'"):
        load_task("textarena:Dise-v0").train_examples()
    with pytest.raises(MingceError, match="no game for one player"):
        load_task("textarena:Pair-v0").train_examples()
    with pytest.raises(MingceError, match=r"cannot be begun with .*change data\.options"):
        load_task("textarena:Dice-v0", options={"sids": 3}).train_examples()
    with pytest.raises(MingceError, match=r"name files of them by data\.train"):
        load_task("skyrl_gym:again")
    with pytest.raises(MingceError, match="unknown skyrl-gym environment 'agan'"):
        load_task([str(rows)], environment="skyrl_gym:agan", scored_by_model=True)
    monkeypatch.setitem(sys.modules, "textarena", None)
    monkeypatch.setitem(sys.modules, "skyrl_gym", None)
    with pytest.raises(MingceError, match=r"pip install 'mingce\[textarena\]'"):
        load_task("textarena:Dice-v0")
    with pytest.raises(MingceError, match=r"pip install 'mingce\[skyrl-gym\]'"):
        load_task([str(rows)], environment="skyrl_gym:again", scored_by_model=True)


def test_rows_of_files_in_an_environment_of_skyrl(libraries: None, rows: Path) -> None:
    task: Any = load_task([str(rows)], environment="skyrl_gym:again", scored_by_model=True, options={"most": 2})
    example = task.train_examples()[0]
    place = task.environment()
    assert place.reset(example, 0) == example.prompt
    assert place.step(Action("x")).content == [{"role": "user", "content": "again"}]
    last = place.step(Action(place.gold()))
    assert (last.reward, last.done, last.right) == (1.0, True, True)
    assert not check_task(task).failures


@pytest.mark.parametrize("name", ["again", "model"])
@pytest.mark.parametrize("column", ["reward_spec", "reward_model"])
def test_an_environment_finds_the_ground_truth_under_either_name(
    name: str, column: str, libraries: None, rows: Path
) -> None:
    rows.write_text(rows.read_text().replace("reward_spec", column))
    assert not check_task(load_task([str(rows)], environment=f"skyrl_gym:{name}", scored_by_model=True)).failures


@pytest.mark.parametrize("kind", ["textarena", "skyrl_gym"])
def test_a_run_goes_on_bit_for_bit(kind: str, libraries: None, tmp_path: Path, chat_model: Path, rows: Path) -> None:
    task = ["task=textarena:Dice-v0", "data.size=20", "data.held_out_size=4"]
    if kind == "skyrl_gym":
        task = ["task=skyrl_gym:again", f"data.train=[{rows}]"]
    how = [*task, *FIVE, f"model.path={chat_model}", "audit.every=0"]
    whole = trained(tmp_path, "whole", *how, "steps=2")
    part = trained(tmp_path, "part", *how, "steps=1")
    start.resume(quiet(), part, ["steps=2"])
    one, two = (Run.open(path, readonly=True).ledger.read(2) for path in (whole, part))
    assert one.rows == two.rows
    assert all(torch.equal(one[name], two[name]) for name in one.columns())
    assert max(one.row("turn_rewards"), key=len)
    assert int(one["turn"].max()) > 0


@pytest.fixture
def server(tmp_path: Path) -> str:
    file = tmp_path / "server.py"
    file.write_text(SERVER)
    return f"{sys.executable} {file}"


def test_the_tools_of_an_mcp_server(server: str) -> None:
    tools = {tool.name: tool for tool in load_mcp([server])}
    function = tools["add"].schema["function"]
    assert function["description"] == "Add two numbers"
    assert sorted(function["parameters"]["properties"]) == ["a", "b"]
    assert tools["add"].call({"a": 2, "b": 3}) == ("5", True)
    told, worked = tools["add"].call({"a": "x"})
    assert not worked
    assert told.startswith("Error: ")
    told, worked = tools["fail"].call({"": "broken"})
    assert not worked
    assert told.startswith("Error: ")
    with pytest.raises(EnvironmentFault, match="the MCP server"):  # which costs the row
        tools["fail"].call({"how": "dies"})
    assert tools["add"].call({"a": 4, "b": 3}) == ("7", True)  # it was started anew
    tools["add"].close()


def test_wrong_servers_are_sentences(server: str) -> None:
    for spec, sentence in (
        ("nowhere-to-be-found --x", "cannot be asked for its tools"),
        ("http://example.com/mcp", "only servers on this"),
        ("", "is no command"),
        ("python '", "is no command"),
    ):
        with pytest.raises(MingceError, match=sentence):
            load_mcp([spec])
    with pytest.raises(MingceError, match=r"two functions of one name \(add\)"):
        load_task("arithmetic", mcp=[server, server])


@pytest.mark.parametrize(("kind", "sentence"), [("endless", "more than 1,000"), ("silent", "within 3 s")])
def test_a_server_that_never_comes_to_an_end_is_a_sentence(
    kind: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_tools, "START_SECONDS", 3.0 if kind == "silent" else 60.0)
    file = tmp_path / "raw.py"
    file.write_text(RAW)
    with pytest.raises(MingceError, match=sentence):
        load_mcp([f"{sys.executable} {file} {kind}"])


def test_a_server_may_answer_with_an_object_alone_and_write_what_is_no_protocol(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "raw.py"
    file.write_text(RAW)
    (tool,) = load_mcp([f"{sys.executable} {file} plain"])
    assert tool.call({}) == ('{"found": 7}', True)
    tool.close()
    assert "no protocol" not in capfd.readouterr().err


def test_a_server_out_of_a_run_is_asked_about(server: str) -> None:
    config = read_config(None, [f'agent.mcp=["{server}"]'])
    assert [(one.setting, one.name) for one in executed_by(config, trains=False)] == [("agent.mcp", server)]


def taught(place: Path, task: Any, call: ToolCall) -> Path:
    """A tiny chat model that has learned to write this call, whatever is asked."""
    tokenizer = tokenizer_of(TEMPLATES["hermes"])
    tokenizer.save_pretrained(place)
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), eos_token_id=1, num_attention_heads=4, **sizes))
    answer = [*tokenizer.encode(FORMATS["hermes"].write(call), add_special_tokens=False), 1]
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for number in range(120):
        example = task.train_examples()[number % 20]
        prompt = Dialogue(tokenizer, example.prompt, list(task.tool_schemas())).prompt_ids
        labels = torch.tensor([[-100] * len(prompt) + answer])
        model(input_ids=torch.tensor([[*prompt, *answer]]), labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(place)
    return place


@pytest.mark.parametrize("kind", ["mcp", "python"])
def test_five_steps_with_tools_that_are_called(kind: str, server: str, tmp_path: Path, rows: Path) -> None:
    if kind == "python" and not sandbox.works("bubblewrap"):
        pytest.skip("no bubblewrap here")
    reward = tmp_path / "reward.py"
    reward.write_text("def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return 0.5\n")
    tools: dict[str, Any] = {"mcp": [server]} if kind == "mcp" else {"tools": ["python"]}
    call = ToolCall("add", {"a": 2, "b": 3}) if kind == "mcp" else ToolCall("python", {"code": "print(2+3)"})
    task: Any = load_task([str(rows)], function=str(reward), **tools)
    model = taught(tmp_path / "model", task, call)
    task.close()
    how = [f"data.train=[{rows}]", f"reward.function=[{reward}]", f"model.path={model}"]
    setting = f'agent.mcp=["{server}"]' if kind == "mcp" else "agent.tools=[python]"
    path = trained(tmp_path, "run", *how, setting, *FIVE, "agent.turn_tokens=90", "sampling.temperature=0.7")
    lines = checked_run(path)
    assert lines[0]["agent/tool_calls"] > 0
    ledger = Run.open(path, readonly=True).ledger.read(1)
    assert any("<tool_response>\n5\n</tool_response>" in text for text in ledger.row("response"))


@pytest.mark.slow
def test_five_steps_with_a_game_of_textarena(tmp_path: Path, chat_model: Path) -> None:
    pytest.importorskip("textarena")
    how = ["task=textarena:GuessTheNumber-v0", "data.size=20", "data.held_out_size=4", f"model.path={chat_model}"]
    lines = checked_run(trained(tmp_path, "game", *how, *FIVE, "sampling.max_new_tokens=900"))
    assert max(line["agent/turns/max"] for line in lines) > 1


@pytest.mark.slow
def test_five_steps_with_an_environment_of_skyrl_gym(tmp_path: Path, chat_model: Path, rows: Path) -> None:
    pytest.importorskip("skyrl_gym")
    how = ["task=skyrl_gym:gsm8k_multi_turn", f"data.train=[{rows}]", f"model.path={chat_model}"]
    lines = checked_run(trained(tmp_path, "sky", *how, *FIVE, "sampling.max_new_tokens=900"))
    assert max(line["agent/turns/max"] for line in lines) > 1
    assert not check_task(
        load_task([str(rows)], environment="skyrl_gym:gsm8k_multi_turn", scored_by_model=True)
    ).failures
