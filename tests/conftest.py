"""Shared settings of the tests: one thread, so that numbers repeat; no deadlines, because machines are shared."""

from __future__ import annotations

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("mingce", max_examples=200, deadline=None, derandomize=True)
settings.load_profile("mingce")
