"""Shared settings of the tests: one thread, so that numbers repeat; no deadlines, because machines are shared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("mingce", max_examples=200, deadline=None, derandomize=True)
settings.load_profile("mingce")


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the tests remember is not remembered for the person who runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """One Ray cluster for all tests of a process, for starting one takes seconds; on paper it has eight cores."""
    from mingce.config import RayConfig
    from mingce.engine.cluster import Cluster

    cluster = Cluster(RayConfig(), processes=8)
    yield
    cluster.close()
