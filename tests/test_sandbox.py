"""The sandbox against hostile programs, in every kind that this machine has."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mingce.base.errors import MingceError
from mingce.tasks import sandbox
from mingce.tasks.python_tool import LONGEST_PROGRAM, PythonTool
from mingce.tasks.sandbox import KINDS, Bounds, run_program
from mingce.tasks.tools import ToolEnvironment, load_tools

ENCLOSED = ("bubblewrap", "namespaces")
QUICK = Bounds(seconds=3.0, memory=512 * 2**20, output=2000)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    if not sandbox.works(request.param):
        pytest.skip(f"no {request.param} here")
    return str(request.param)


def ancestors(process: str) -> list[str]:
    """Who started a process, who started that one, and so on."""
    found: list[str] = []
    while process != "0":
        process = Path("/proc", process, "stat").read_text().rpartition(")")[2].split()[1]
        found.append(process)
    return found


def children() -> set[str]:
    """The processes that run a program of this test now; another worker's tests start programs of their own."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and b"RLIMIT_NPROC" in (entry / "cmdline").read_bytes():
                status = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                above = ancestors(entry.name)
                if status != "Z" and (str(os.getpid()) in above or str(os.getppid()) not in above):
                    found.add(entry.name)
        except OSError:
            continue
    return found


def none_left() -> bool:
    """Whether no program of ours runs on; the kernel needs a moment to end a namespace's last process."""
    until = time.monotonic() + 20
    while children() and time.monotonic() < until:
        time.sleep(0.05)
    return not children()


def mine() -> str:
    """A file of this user that no program should see."""
    return str(Path(__file__).resolve())


def test_a_program_prints(kind: str) -> None:
    outcome = run_program(
        "import math, os\nprint(math.factorial(20))\nopen('x', 'w').write('y')\nprint(os.listdir())", kind
    )
    assert outcome == sandbox.Outcome("2432902008176640000\n['x']\n", 0)
    assert "x" not in run_program("import os; print(os.listdir())", kind).text  # a directory of its own each time


def test_a_program_makes_no_namespaces_and_looks_into_no_process(kind: str) -> None:
    source = """
import ctypes, os
library = ctypes.CDLL(None)
print(library.unshare(0x10000000), library.unshare(0x20000), library.mount(b"none", b".", b"tmpfs", 0, b"size=4g"))
print(library.ptrace(16, os.getppid(), 0, 0), library.chroot(b"."))
"""
    assert run_program(source, kind) == sandbox.Outcome("-1 -1 -1\n-1 -1\n", 0)


def test_the_same_program_prints_the_same(kind: str) -> None:
    source = "import random; print(random.random(), hash('x'), {'a', 'b', 'c'})"
    assert run_program(source, kind) == run_program(source, kind)


def test_an_error_is_told_by_the_lines_of_the_program(kind: str) -> None:
    outcome = run_program("x = 1\nx / 0", kind)
    assert outcome.code == 1
    assert 'File "<program>", line 2' in outcome.text
    assert outcome.text.endswith("ZeroDivisionError: division by zero\n")
    assert "<string>" not in outcome.text


def test_an_environment_without_keys(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    assert "secret" not in run_program("import os; print(dict(os.environ))", kind).text


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("while True: pass", "more than"),
        ("import signal, time\nfor s in range(1, 64):\n  try: signal.signal(s, signal.SIG_IGN)\n  except (OSError, "
         "ValueError): pass\nwhile True: time.sleep(1)", "more than 3 s"),
        ("while True: print('x' * 1000)", "more than 2000 bytes of output"),
        ("import sys\nwhile True: sys.stderr.write('x' * 1000)", "more than 2000 bytes of output"),
    ],
    ids=["loop", "ignores signals", "output", "stderr"],
)  # fmt: skip
def test_what_does_not_end_is_ended(kind: str, source: str, told: str) -> None:
    outcome = run_program(source, kind, QUICK)
    assert told in outcome.stopped
    assert len(outcome.text) <= QUICK.output


@pytest.mark.parametrize(
    "source",
    [
        "import os\nwhile True: os.fork()",
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'print(1)'])",
        "import threading\nthreading.Thread(target=print).start()",
        "import resource\nresource.setrlimit(resource.RLIMIT_NPROC, (100, 100))",
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (2**40, 2**40))",
        "x = bytearray(2 ** 30)",
        "x = []\nwhile True: x.append(bytearray(2 ** 24))",
        "with open('big', 'wb') as f:\n  for _ in range(100): f.write(bytes(2 ** 20)); f.flush()",
        "import os\nfor _ in range(1000): os.open('/dev/null', 0)",
    ],
    ids=["fork bomb", "process", "thread", "lift processes", "lift memory", "memory", "memory bomb", "file", "files"],
)  # fmt: skip
def test_what_takes_too_much_fails(kind: str, source: str) -> None:
    outcome = run_program(source, kind, QUICK)
    assert outcome.code != 0
    assert not outcome.stopped or "memory" in outcome.stopped
    assert none_left()


def test_nothing_outside_is_read(kind: str) -> None:
    outcome = run_program(f"print(open({mine()!r}).read())", kind)
    if kind == "bubblewrap":
        assert outcome.code == 1
        assert "FileNotFoundError" in outcome.text
        for place in ("/etc/passwd", "/proc/1/environ", str(Path.home() / ".bashrc"), "/var/log", "/tmp"):
            assert run_program(f"import os; print(os.path.exists({place!r}))", kind).text == "False\n", place
    else:  # said so in the module
        assert outcome.code in (0, 1)


def test_nothing_outside_is_written(kind: str, tmp_path: Path) -> None:
    if kind != "bubblewrap":
        pytest.skip("not held by this kind")
    tmp_path.chmod(0o777)
    places = [str(tmp_path / "x"), "/x", "/usr/x", f"{sys.prefix}/x", "/dev/shm/x", "/tmp/x"]
    source = "import sys\nfor p in {places}:\n  try: open(p, 'w'); print(p)\n  except OSError: pass"
    written = run_program(source.format(places=places), kind).text.split()
    assert not [place for place in written if os.path.exists(place)]
    assert not list(tmp_path.iterdir())


def test_a_full_directory_is_full(kind: str) -> None:
    if kind != "bubblewrap":
        pytest.skip("not held by this kind")
    source = "for n in range(100):\n  with open(str(n), 'wb') as f: f.write(bytes(2 ** 23))"
    outcome = run_program(source, kind)
    assert "No space left" in outcome.text


def test_there_is_no_network(kind: str) -> None:
    if kind not in ENCLOSED:
        pytest.skip("not held by this kind")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        outcome = run_program(f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 2)", kind)
    assert outcome.code == 1
    assert "OSError" in outcome.text or "refused" in outcome.text


def test_nobody_else_is_signalled(kind: str) -> None:
    if kind not in ENCLOSED:
        pytest.skip("not held by this kind")
    with subprocess.Popen(["sleep", "60"]) as victim:
        try:
            source = f"import os\nfor p in ({os.getpid()}, {victim.pid}):\n  try: os.kill(p, 9); print('killed')\n"
            source += "  except OSError: print('no')"
            assert run_program(source, kind).text == "no\nno\n"
            run_program("import os\nos.kill(os.getppid(), 9)", kind)  # at most what holds it
            run_program("import os\nos.kill(-1, 9)", kind)
            assert victim.poll() is None
        finally:
            victim.send_signal(signal.SIGKILL)


def test_programs_run_beside_each_other(kind: str) -> None:
    texts: dict[int, str] = {}

    def one(number: int) -> None:
        texts[number] = run_program(f"print({number} ** 2)", kind, Bounds(seconds=60.0)).text

    threads = [threading.Thread(target=one, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {number: f"{number**2}\n" for number in range(6)}


def test_the_tool_tells_how_it_went(kind: str) -> None:
    (tool,) = load_tools([f"python:{kind}"])
    assert tool.name == "python"
    assert tool.call({"code": "print(6 * 7)"}) == ("42", True)
    assert tool.call({"": "print(6 * 7)"}) == ("42", True)
    told, worked = tool.call({"code": "print('so far')\nraise SystemExit(3)"})
    assert (told, worked) == ("so far\nError: exit code 3", False)
    for wrong in ({}, {"code": 3}, {"code": "1", "x": 1}, {"code": " " * LONGEST_PROGRAM + "1"}):
        told, worked = tool.call(wrong)
        assert told.startswith("Error: ")
        assert not worked
    assert isinstance(tool, PythonTool)
    assert ToolEnvironment([tool], str).tools["python"] is tool


def test_what_cannot_be_had_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MingceError, match="unknown sandbox"):
        load_tools(["python:jail"])
    monkeypatch.setattr(sandbox, "works", lambda kind: False)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    with pytest.raises(MingceError, match="install bubblewrap"):
        load_tools(["python"])
    monkeypatch.setattr(os, "getuid", lambda: 0)  # whose programs run as nobody, who reads no /root
    with pytest.raises(MingceError, match="let the user nobody read the interpreter"):
        load_tools(["python:namespaces"])


def test_nothing_is_left_behind(kind: str) -> None:
    run_program("while True: pass", kind, Bounds(seconds=0.5))
    assert none_left()
