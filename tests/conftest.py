"""Shared settings of the tests: one thread, so that numbers repeat; no deadlines, because machines are shared."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from mingce import half
from tests.crashes import pytest_xdist_make_scheduler  # noqa: F401  # a hook

torch.set_num_threads(int(os.environ.get("TEST_THREADS", "1")))
half.works("bfloat16")  # sets what it needs here, which must be before the first product of the process
settings.register_profile("mingce", max_examples=200, deadline=None, derandomize=True)
settings.load_profile("mingce")


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """One Ray cluster for all tests of a process, for starting one takes seconds; on paper it has eight cores."""
    from mingce.config import RayConfig
    from mingce.engine.cluster import Cluster

    cluster = Cluster(RayConfig(), processes=8)
    yield
    cluster.close()
