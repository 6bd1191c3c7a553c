"""Half precision on the CPU: which instructions it may use here, found out by trying them in a child process.

A processor may advertise matrix instructions (AMX) that kill the process which uses them, under some hypervisors for
one. Nothing but trying tells. oneDNN, which computes torch's products in half precision, leaves instructions out when
ONEDNN_MAX_CPU_ISA says so, but reads it only once: with the first product of a process, whatever its precision.
"""

from __future__ import annotations

import faulthandler
import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from mingce.base.atomic import atomic_write
from mingce.base.errors import MingceError, ModelError
from mingce.base.texts import sentence
from mingce.base.user_cache import cache_directory

VARIABLE = "ONEDNN_MAX_CPU_ISA"
LOWER = ("AVX512_CORE_BF16", "AVX512_CORE_VNNI", "AVX512_CORE", "AVX2")
"""Values of it that are tried in turn where products fail without."""
DTYPES = ("bfloat16", "float16")
_checked: set[tuple[str, str]] = set()
"""Dtypes and settings that a copy of this process has computed with."""
SECONDS = 120
"""How long a child may take, most of which is to import torch."""
PROBE = """
import sys
import torch
torch.manual_seed(0)
torch.set_num_threads(2)
for rows, width in ((1, 32), (7, 64), (64, 256)):
    layer, x = torch.nn.Linear(width, 96), torch.randn(rows, width)
    query = torch.randn(2, 4, rows, 32)
    answers = []
    for dtype in (torch.float32, getattr(torch, sys.argv[1])):
        rounded, q = (one.to(dtype, copy=True).requires_grad_() for one in (x, query))
        layer = layer.to(dtype)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
        made = (layer(rounded), mixed, q @ q.transpose(-1, -2))
        sum(one.float().square().sum() for one in made).backward()
        answers.append(torch.cat([one.detach().float().flatten() for one in (*made, rounded.grad, q.grad)]))
    far = (answers[1] - answers[0]).norm() / answers[0].norm()
    assert far < 0.05, far
"""


@dataclass(frozen=True)
class Support:
    """The dtypes that work here, and the value of ONEDNN_MAX_CPU_ISA with which they do; empty where none is needed."""

    dtypes: tuple[str, ...]
    setting: str


def enable(dtype: str) -> None:
    """Makes products in `dtype` (bfloat16 or float16) safe in this process and those it starts, or raises.

    Called before the first product of the process.
    """
    if not works(dtype):
        raise ModelError(sentence("engine.no_half", dtype=dtype))
    setting = support().setting
    if setting and not _product_survives(dtype, setting):
        raise ModelError(sentence("engine.half_too_late", dtype=dtype, variable=VARIABLE, setting=setting))


def works(dtype: str) -> bool:
    """Whether products in `dtype` can be computed here; what they need is set in the environment."""
    answer = support()
    if answer.setting:
        os.environ[VARIABLE] = answer.setting
    return dtype in answer.dtypes


@lru_cache(maxsize=1)
def support() -> Support:
    """What works on this machine: from the user's cache, or tried now and remembered."""
    current = os.environ.get(VARIABLE, "")
    remembered = _remembered(current)
    if remembered is not None:
        return remembered
    answer, certain = _try_all(current)
    if certain:
        _remember(current, answer)
        if answer.setting != current:  # child processes have it in their environment
            _remember(answer.setting, answer)
    return answer


def _try_all(current: str) -> tuple[Support, bool]:
    """The first setting with which all dtypes work, else the one with most; and whether that is certain."""
    best, certain = Support((), current), True
    for setting in (current, *(lower for lower in LOWER if lower != current)):
        outcomes = {dtype: _survives(dtype, setting) for dtype in DTYPES}
        certain = certain and None not in outcomes.values()
        working = tuple(dtype for dtype, survives in outcomes.items() if survives)
        if len(working) > len(best.dtypes):
            best = Support(working, setting)
        if len(working) == len(DTYPES):
            break
    return best, certain


def _survives(dtype: str, setting: str) -> bool | None:
    """Whether a child that computes in `dtype` ends well; None when time or memory was too short to tell."""
    environment = {**os.environ, VARIABLE: setting}
    if not setting:
        del environment[VARIABLE]
    try:
        child = subprocess.run(
            [sys.executable, "-c", PROBE, dtype],
            env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None
    return None if child.returncode == -signal.SIGKILL else child.returncode == 0


def _product_survives(dtype: str, setting: str) -> bool:
    """Whether a copy of this very process computes a product: if it has computed before, the setting came too late."""
    if (dtype, setting) in _checked or not hasattr(os, "fork"):
        return True
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            faulthandler.disable()
            _product(dtype)
            os._exit(0)
        os._exit(1)
    survived = os.waitpid(child, 0)[1] == 0
    if survived:
        _checked.add((dtype, setting))
    return survived


def _product(dtype: str) -> None:
    """In a forked child: one thread, for the others were not copied, and an end after ten seconds."""
    import resource

    import torch

    signal.alarm(10)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    torch.set_num_threads(1)
    kind = getattr(torch, dtype)
    torch.ones(64, 64, dtype=kind) @ torch.ones(64, 64, dtype=kind)


# ── the answer, remembered ───────────────────────────────────────────────────────────────────────────────────────


def _file(setting: str) -> Path:
    """One for each machine, torch and setting."""
    about = [_processor(), platform.release(), metadata.version("torch"), setting, PROBE]
    return cache_directory() / f"half-{hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]}.json"


def _processor() -> str:
    """Model and flags as the kernel names them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return "\n".join(
        sorted({line for line in lines if line.split("\t")[0].strip() in ("model name", "flags", "Features")})
    )


def _remembered(setting: str) -> Support | None:
    """None where nothing readable is remembered."""
    try:
        stored = json.loads(_file(setting).read_text(encoding="utf-8"))
        dtypes, chosen = stored["dtypes"], stored["setting"]
    except (OSError, RuntimeError, ValueError, KeyError, TypeError):
        return None
    if not isinstance(dtypes, list) or not all(dtype in DTYPES for dtype in dtypes):
        return None
    return Support(tuple(dtypes), chosen) if chosen in ("", setting, *LOWER) else None


def _remember(setting: str, answer: Support) -> None:
    with suppress(OSError, RuntimeError, MingceError):  # without a cache it is tried again next time
        path = _file(setting)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = json.dumps({"dtypes": answer.dtypes, "setting": answer.setting}).encode()
        atomic_write(path, content)
