"""The tests that compute, as other processors would run them: `make test-cpus`.

torch, oneDNN and numba each choose instructions by the processor they meet, and each can be told to choose as if it
were a lesser one. Kept machine code is keyed by processor, so the settings do not get in each other's way.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

TESTS = (
    "advantage", "kl", "losses", "masking", "verl_names", "models_cpu_decoder", "models_log_probs", "models_sampling",
    "models_cpu", "models_value", "audit_replay", "tasks_reward_model",
)  # fmt: skip
SETTINGS: dict[str, tuple[str, dict[str, str]]] = {  # name: the instructions it needs, the environment
    "no vectors, 1 thread": ("", {
        "ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "NUMBA_CPU_NAME": "generic",
        "TEST_THREADS": "1",
    }),
    "AVX2, 2 threads": ("avx2", {
        "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "NUMBA_CPU_NAME": "x86-64-v3",
        "NUMBA_CPU_FEATURES": "+sse2", "TEST_THREADS": "2",
    }),
    "AVX-512, 1 thread": ("avx512f", {
        "ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "NUMBA_CPU_NAME": "skylake-avx512",
        "NUMBA_CPU_FEATURES": "+sse2", "TEST_THREADS": "1",
    }),
    "AVX-512 with bfloat16, 2 threads": ("avx512_bf16", {
        "ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16", "NUMBA_CPU_NAME": "cooperlake",
        "TEST_THREADS": "2",
    }),
    "this processor, 2 threads": ("", {"TEST_THREADS": "2"}),
}  # fmt: skip


def main(files: list[str]) -> int:
    """Runs `files`, or the tests that compute, in every setting; the number of settings that failed."""
    files = files or [f"tests/test_{name}.py" for name in TESTS]
    here, failed = instructions(), 0
    for name, (needed, environment) in SETTINGS.items():
        if needed and needed not in here:
            print(f"{name}: skipped, this processor has no {needed}", flush=True)
            continue
        print(f"{name}: {' '.join(f'{key}={value}' for key, value in environment.items())}", flush=True)
        start = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", *files],
            env={**os.environ, **environment},
            check=False,
        )
        failed += done.returncode != 0
        print(f"{name}: {'FAILED' if done.returncode else 'passed'} in {time.monotonic() - start:.0f} s", flush=True)
    return failed


def instructions() -> set[str]:
    """What the kernel says the processor has."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    return {flag for line in lines if line.startswith("flags") for flag in line.split(":", 1)[1].split()}


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
