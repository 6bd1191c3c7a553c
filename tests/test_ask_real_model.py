"""`mingce ask --model` with a real server and a real small model. Slow: run with `make test-slow`."""

from __future__ import annotations

import io
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest
from rich.console import Console

from mingce.base import endpoint
from mingce.base.texts import sentence
from mingce.commands.ask import ask
from mingce.explain import dialogue
from mingce.explain.conversation import Conversation
from mingce.explain.menu import example_answer

QUESTIONS = (
    "why is the advantage not just delta? Give the numbers.",
    "Which number is A_4, and how is it computed? List all advantages and values with numbers.",
    "把每个 token 的奖励、价值和优势用数字列出来，并说明 GAE 怎么算。",
)
DECIMAL = re.compile(r"\d\.\d")


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, str]]:
    """`transformers serve` on loopback with SmolLM2-135M-Instruct: its address and the model's name."""
    for package in ("fastapi", "openai"):
        pytest.importorskip(package)
    from mingce.models.smollm2 import converted

    weights = str(converted())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    start = "import sys; from transformers.cli.transformers import main; sys.exit(main())"
    words = [
        sys.executable,
        "-c",
        start,
        "serve",
        weights,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--device",
        "cpu",
    ]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(600):
                assert process.poll() is None, "the server did not start"
                if _answers(port):
                    break
                time.sleep(0.5)
            yield f"http://127.0.0.1:{port}/v1", weights
        finally:
            process.terminate()


def _answers(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status < 500
    except OSError:
        return False
    finally:
        connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS)
def test_whatever_a_real_model_says_no_untraced_number_is_unmarked(
    server: tuple[str, str], question: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "MOST_TOKENS", 200)  # it has no end of its own
    url, name = server
    console = Console(file=io.StringIO(), width=100)
    ask(console, [question], model=url, model_name=name, model_timeout=900, log=True, directory=tmp_path)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    kept = dialogue.read(next(tmp_path.glob("*.md"))).rounds[0].answer
    print(kept)
    lang = "zh" if "优势" in question else "en"
    assert sentence("assistant.record_prompt", lang) in kept, "the model was not heard"
    conversation = Conversation()
    computed = " ".join(str(part) for part in (conversation.ask(question), example_answer(conversation)))
    columns = [x for column in conversation.rollout.columns.values() for x in column if isinstance(x, float)]
    mark = sentence("assistant.mark_unverified", lang)
    for found in re.finditer(r"(~~)?[-−]?\d+\.\d+(?:[eE][-+]?\d+)?%?(~~)?", shown.rpartition("\n> ")[0]):
        text = found[0].strip("~%").replace("−", "-")
        judged = found[1] or shown[found.end() :].lstrip().startswith(mark)
        decimals = len(text.partition(".")[2].partition("e")[0])
        near = any(abs(abs(float(text)) - abs(x)) <= 0.5001 * 10.0**-decimals for x in columns)
        assert judged or near or text.lstrip("-") in computed, f"{found[0]} is not marked"
