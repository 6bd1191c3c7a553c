"""The Ray cluster that a run works on: one of its own on this machine, or one that is there already.

A cluster of its own listens on the loopback interface only and takes Ray's token for every call.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import secrets
import socket
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from mingce.base.errors import ClusterError
from mingce.base.texts import sentence
from mingce.config import RayConfig

PATIENCE = 45.0
"""Seconds to wait for processes to be placed before saying that the cluster is too busy."""
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": True}
_PROBE = """
import sys, ray
try:
    ray.init(sys.argv[1], log_to_driver=False, logging_level="ERROR")
except BaseException as error:
    print(error)
    sys.exit(1)
"""
_ON_LOOPBACK = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray's switch for listening on 127.0.0.1 alone, on Linux too
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_pipe_based_agent_to_parent_health_check": "1",  # agents end with their raylet, not minutes later
}
MARK = "MINGCE_CLUSTER"
DYING = 5.0
"""Seconds that a raylet may take to end after its ranks were told that it does."""


class Cluster:
    """The connection to a Ray cluster; `close` ends it, and the cluster too if it was started here."""

    def __init__(self, config: RayConfig, processes: int):
        """`processes` is how many a run will have, each of `ray.cpus` cores."""
        self.ours = False
        self._guardian: subprocess.Popen[str] | None = None
        address = config.address if config.address == "local" else _address_of(config.address)
        if address == "local" or address.startswith(("127.0.0.1:", "localhost:")):
            _listen_on_loopback_only()
        ray = ray_package()
        if ray.is_initialized():  # a notebook's, or a test's: whoever made it ends it
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if address == "local":
                _private_token()
                self._start(address, processes * config.cpus)
            else:
                _join(address)
        self.ours = True

    def expect(self, processes: int, cpus: int) -> None:
        """An error if the cluster could never hold that many processes of so many cores."""
        there = ray_package().cluster_resources().get("CPU", 0)
        if processes * cpus > there:
            raise ClusterError(
                f"the cluster has {there:g} CPUs and {processes} ranks of {cpus} need {processes * cpus}; lower "
                "ray.ranks or ray.cpus, or add nodes with `ray start --address`."
            )

    def _start(self, address: str, cpus: int) -> None:
        """A cluster of this run's own, with a guardian that ends its processes when this one is gone."""
        mark, ended = secrets.token_hex(8), sentence("engine.cluster_ended")
        self._guardian = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("guardian.py")), mark, f"mingce: {ended}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )
        os.environ[MARK] = mark  # for what Ray starts now, and for nothing else
        try:
            ray_package().init(
                address, num_cpus=cpus, include_dashboard=False, _node_ip_address="127.0.0.1", **_QUIET
            )  # fmt: skip
        finally:
            del os.environ[MARK]
        if (raylet := _raylet()) is not None:
            self._tell(f"raylet {raylet.pid}")

    def _tell(self, line: str) -> None:
        assert self._guardian is not None
        assert self._guardian.stdin is not None
        with contextlib.suppress(OSError):  # somebody killed it
            self._guardian.stdin.write(f"{line}\n")
            self._guardian.stdin.flush()

    def close(self) -> None:
        if self.ours:
            if self._guardian is not None:
                self._tell("bye")
            ray_package().shutdown()
            self.ours = False
        if self._guardian is not None:
            with contextlib.suppress(OSError):
                self._guardian.communicate()
            self._guardian = None


def lost(error: Exception | None = None) -> bool:
    """Whether the raylet that this process started is dead, so that another call of Ray would end this process too.

    `error` is what a rank's loss looked like: Ray says that the owner died, this process, when the raylet is about to.
    """
    raylet = _raylet()
    if raylet is None:
        return False
    until = time.monotonic() + (DYING if error is not None and "owner has died" in str(error) else 0.0)
    while raylet.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    return raylet.poll() is not None


def expect_cluster(error: Exception | None = None) -> None:
    """A ClusterError if the run's own cluster has ended."""
    if lost(error):
        raise ClusterError(sentence("engine.cluster_ended")) from error


def _raylet() -> subprocess.Popen[bytes] | None:
    """The raylet that this process started, where it started one and Ray lets it be known."""
    node = getattr(getattr(sys.modules.get("ray"), "_private", None), "worker", None)
    processes = getattr(getattr(node, "_global_node", None), "all_processes", {})
    entry = processes.get("raylet") if isinstance(processes, dict) else None
    return entry[0].process if entry else None


def ray_package() -> Any:
    """Ray, imported when it is first needed: that takes half a second, and it may not be installed."""
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise ClusterError("engine=ray needs the package ray; install it with pip install 'mingce[ray]'.") from None


def _listen_on_loopback_only() -> None:
    """Ray reads these when it is imported."""
    too_late = "ray" in sys.modules and any(os.environ.get(name) != value for name, value in _ON_LOOPBACK.items())
    if too_late and not sys.modules["ray"].is_initialized():
        raise ClusterError(
            "ray was imported before engine=ray began, so that its cluster would listen on every network; call "
            "ray.init yourself, or import ray later."
        )
    os.environ.update(_ON_LOOPBACK)


def _private_token() -> None:
    """Ray writes the token that it makes readable for everyone; here it is made first, for its owner alone."""
    path = Path.home() / ".ray" / "auth_token"
    if "RAY_AUTH_TOKEN" in os.environ or "RAY_AUTH_TOKEN_PATH" in os.environ or path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    with os.fdopen(handle, "w") as file:
        file.write(secrets.token_hex(32))


def _address_of(address: str) -> str:
    """host:port of a cluster to join; `auto` is the one that runs on this machine."""
    if address == "auto":
        note = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster"  # Ray's own
        address = os.environ.get("RAY_ADDRESS") or (note.read_text().strip() if note.exists() else "")
        if not address:
            raise ClusterError(
                "ray.address=auto finds no Ray cluster on this machine; start one with `ray start --head`, or take "
                "ray.address=local."
            )
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ClusterError(f"ray.address must be local, auto or host:port, but is '{address}'.")
    return address


def _join(address: str) -> None:
    """Connects, once a process of its own has: what is no cluster makes Ray wait for minutes, or end the process."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise ClusterError(
            f"nothing answers at ray.address={address} ({error.strerror or error}); start a cluster with "
            "`ray start --head`, or take ray.address=local."
        ) from None
    try:
        probe = subprocess.run(
            [sys.executable, "-c", _PROBE, address],
            env=os.environ | {"RAY_NUM_REDIS_GET_RETRIES": "3"},
            capture_output=True,
            text=True,
            timeout=PATIENCE / 2,
        )
    except subprocess.TimeoutExpired:
        raise ClusterError(
            f"{address} does not answer as a Ray cluster does; see that ray.address is its port."
        ) from None
    if probe.returncode:
        output = " ".join(probe.stdout.split())
        if "Version mismatch" in output:
            raise ClusterError(f"the cluster at {address} has other versions than this process: {output[:300]}")
        if "token" in output or "AuthToken" in probe.stderr:
            raise ClusterError(
                f"the cluster at {address} does not take this process's token; copy ~/.ray/auth_token from its "
                "head, or set RAY_AUTH_TOKEN."
            )
        raise ClusterError(f"the cluster at {address} cannot be joined: {output[:300] or 'Ray ended without a word'}")
    ray_package().init(address, **_QUIET)
