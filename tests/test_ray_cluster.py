"""Clusters as people have them: nodes started by `ray start`, the command line, Ctrl-C; nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_train import SMALL, same_files

from mingce.record.run import Run

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray")]

RAY = str(Path(sys.executable).parent / "ray")
MARK = f"MINGCE_TEST={os.getpid()}"
"""In the environment of everything that is started here."""
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | dict(
    [MARK.split("=")]
)
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "t" * 64}
SETTINGS = (*SMALL, "engine=ray", "ray.ranks=2", "lang=en", "name=run")


def mingce(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mingce.cli", *words]
    return subprocess.run(command, env=ENVIRONMENT | environment, capture_output=True, text=True, timeout=300)


def rays() -> set[int]:
    """The processes of Ray that were started by these tests."""
    found = set()
    for place in Path("/proc").iterdir():
        try:
            ours = place.name.isdigit() and MARK.encode() in (place / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if ours:
            found.add(int(place.name))
    return found


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    shared = set(os.listdir("/dev/shm"))
    yield
    until = time.monotonic() + 60
    while (left := rays()) and time.monotonic() < until:
        time.sleep(0.2)
    assert not left, f"processes {left} are left"
    assert not set(os.listdir("/dev/shm")) - shared


@pytest.fixture
def two_nodes() -> Iterator[str]:
    """The address of a cluster of two nodes with one core each; each has an address of its own on loopback."""
    port, nodes = 23000 + os.getpid() % 10000, []
    directory = tempfile.mkdtemp(dir="/tmp")  # sockets live there, whose paths must be short
    places = [
        [
            "--head",
            f"--port={port}",
            "--include-dashboard=false",
            f"--temp-dir={directory}",
            "--node-ip-address=127.0.0.2",
        ],
        [f"--address=127.0.0.2:{port}", "--node-ip-address=127.0.0.3"],
    ]
    try:
        for place in places:
            node = subprocess.Popen(
                [RAY, "start", "--num-cpus=1", "--block", *place],
                env=ENVIRONMENT | TOKEN | {"RAY_USAGE_STATS_ENABLED": "0"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            nodes.append(node)
            assert node.stdout is not None
            for line in node.stdout:
                if "--block" in line:  # its last words before it waits
                    break
        yield f"127.0.0.2:{port}"
    finally:
        for node in reversed(nodes):
            node.send_signal(signal.SIGTERM)
        for node in nodes:
            node.wait(60)
        shutil.rmtree(directory, ignore_errors=True)


def test_two_nodes_form_the_cluster_and_give_the_numbers_of_one(two_nodes: str, tmp_path: Path) -> None:
    done = mingce("train", *SETTINGS, f"root={tmp_path / 'two'}", f"ray.address={two_nodes}", **TOKEN)
    assert done.returncode == 0, done.stderr
    assert mingce("train", *SETTINGS, f"root={tmp_path / 'one'}").returncode == 0
    same_files(*(Run.open(tmp_path / name / "run", readonly=True) for name in ("one", "two")))

    begun = time.monotonic()
    busy = mingce("train", *SETTINGS, "ray.ranks=3", f"root={tmp_path}", f"ray.address={two_nodes}", **TOKEN)
    assert busy.returncode == 2
    assert "has 2 CPUs and 3 ranks of 1 need 3" in busy.stderr
    usual, begun = time.monotonic() - begun, time.monotonic()
    wrong = mingce(
        "train",
        *SETTINGS,
        f"root={tmp_path}",
        f"ray.address={two_nodes}",
        RAY_AUTH_MODE="token",
        RAY_AUTH_TOKEN="wrong",
    )
    assert wrong.returncode == 2, wrong.stderr
    assert "token" in wrong.stderr
    assert time.monotonic() - begun < 30 + 2 * usual


def test_a_cluster_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    for address in ("auto", "127.0.0.1:9"):
        done = mingce("train", *SETTINGS, f"root={tmp_path}", f"ray.address={address}")
        assert done.returncode == 2
        assert done.stderr.count("\n") <= 2
        assert "ray start --head" in done.stderr


def test_a_port_that_is_not_ray_s_is_one_sentence(tmp_path: Path) -> None:
    import http.server
    import threading

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    begun = time.monotonic()
    done = mingce("train", *SETTINGS, f"root={tmp_path}", f"ray.address=127.0.0.1:{server.server_port}")
    server.shutdown()
    assert done.returncode == 2, done.stderr
    assert time.monotonic() - begun < 150


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_stops_in_good_order_and_leaves_nothing(tmp_path: Path, times: int) -> None:
    command = [sys.executable, "-m", "mingce.cli", "train", *SETTINGS, "steps=1000", f"root={tmp_path}"]
    running = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               start_new_session=True)  # fmt: skip
    metrics = tmp_path / "run" / "metrics.jsonl"
    while not metrics.exists() or metrics.read_bytes().count(b"\n") < 3:
        assert running.poll() is None, running.communicate()
        time.sleep(0.1)
    for _ in range(times):
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to every process of the group
        time.sleep(0.3)
    said, _ = running.communicate(timeout=300)
    if times == 1:
        assert running.returncode == 0, said
        run = Run.open(tmp_path / "run", readonly=True)
        assert run.checkpoint_steps()[-1] == run.metrics()[-1]["step"]
        assert not run.events_path.exists()


def test_a_killed_driver_leaves_nothing_and_its_run_can_be_resumed(tmp_path: Path) -> None:
    settings = (*SETTINGS, "steps=4", "keep.checkpoint_every=1", "keep.last=9")
    command = [sys.executable, "-m", "mingce.cli", "train", *settings, f"root={tmp_path / 'killed'}"]
    running = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not list((tmp_path / "killed").glob("run/checkpoints/step-000002")):
        assert running.poll() is None
        time.sleep(0.02)
    running.kill()
    running.wait()
    assert mingce("resume", str(tmp_path / "killed" / "run")).returncode == 0
    assert mingce("train", *settings, f"root={tmp_path / 'whole'}").returncode == 0
    same_files(*(Run.open(tmp_path / name / "run", readonly=True) for name in ("whole", "killed")))


def begun(root: Path, *settings: str) -> subprocess.Popen[str]:
    """A driver in the midst of its run."""
    command = [sys.executable, "-m", "mingce.cli", "train", *SETTINGS, "steps=1000", *settings, f"root={root}"]
    running = subprocess.Popen(
        command, env=ENVIRONMENT | {"MINGCE_LANG": "en"}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    metrics = root / "run" / "metrics.jsonl"
    while not metrics.exists() or metrics.read_bytes().count(b"\n") < 3:
        assert running.poll() is None, running.communicate()
        time.sleep(0.05)
    return running


def descendants(process: int) -> dict[int, str]:
    """The processes that it and they have started, with their names."""
    parents, names = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                name, _, rest = (entry / "stat").read_text().rpartition(")")
                if rest.split()[0] != "Z":
                    parents[int(entry.name)], names[int(entry.name)] = int(rest.split()[1]), name.partition("(")[2]
    below, more = set(), {process}
    while more:
        below |= more
        more = {pid for pid, parent in parents.items() if parent in below} - below
    return {pid: names[pid] for pid in below - {process}}


def left_of(processes: dict[int, str], seconds: float) -> dict[int, str]:
    """Those that are still there after so many seconds at most."""
    until = time.monotonic() + seconds
    while True:
        left = {}
        for pid, name in processes.items():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                    left[pid] = name
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.1)


def test_a_killed_driver_takes_its_whole_cluster_along(tmp_path: Path) -> None:
    running = begun(tmp_path)
    below = descendants(running.pid)
    assert any("raylet" in name for name in below.values()), below
    assert any("ray::Dashb" in name for name in below.values()), below
    running.kill()
    running.communicate()
    assert left_of(below, 60.0) == {}


@pytest.mark.parametrize("victim", ["ray::Dashb", "raylet"])
def test_a_cluster_that_dies_under_its_driver_is_one_sentence(tmp_path: Path, victim: str) -> None:
    running = begun(tmp_path, "keep.checkpoint_every=1")
    below = descendants(running.pid)
    os.kill(next(pid for pid, name in below.items() if victim in name), signal.SIGKILL)
    _, said = running.communicate(timeout=300)
    assert running.returncode in (1, 2), said
    assert "this run's Ray cluster stopped (raylet killed or out of memory)" in said
    assert "Traceback" not in said
    assert left_of(below, 60.0) == {}
    steps = Run.open(tmp_path / "run", readonly=True).checkpoint_steps()[-1] + 1
    done = mingce("resume", str(tmp_path / "run"), f"steps={steps}")
    assert done.returncode == 0, done.stderr
