"""Shared settings of the tests: one thread, so that numbers repeat; no deadlines, because machines are busy.

`make test-cpus` tries two threads. The display language is Chinese unless a test chooses, whatever the machine's
locale is.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from crashes import pytest_xdist_make_scheduler  # noqa: F401  # a hook
from hypothesis import HealthCheck, settings

from mingce.base import half
from mingce.record.run import Run

os.environ["MINGCE_LANG"] = "zh"
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it, and so would what tests start
torch.set_num_threads(int(os.environ.get("TEST_THREADS", "1")))
half.works("bfloat16")  # sets what it needs here, which must be before the first product of the process
examples = int(os.environ.get("TEST_EXAMPLES", "200"))
slow_is_fine = [HealthCheck.too_slow]
settings.register_profile(
    "mingce", max_examples=examples, deadline=None, derandomize=True, suppress_health_check=slow_is_fine
)
settings.load_profile("mingce")


@pytest.fixture(autouse=True)
def _own_language(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `--lang` of one test chose is no other test's language."""
    monkeypatch.setenv("MINGCE_LANG", os.environ["MINGCE_LANG"])


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the tests remember is not remembered for the person who runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture
def english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINGCE_LANG", "en")


@pytest.fixture
def one_thread() -> Iterator[None]:
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(usual)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """An empty run, open."""
    with Run.create(tmp_path, "run", {}) as made:
        yield made


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """One Ray cluster for all tests of a process, for starting one takes seconds; on paper it has eight cores."""
    from mingce.config import RayConfig
    from mingce.engine.cluster import Cluster

    cluster = Cluster(RayConfig(), processes=8)
    yield
    cluster.close()
