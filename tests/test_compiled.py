"""Compiled loops take no liberty that was not chosen; kept machine code is used while it is whole and current."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mingce

PACKAGE = Path(mingce.__file__).parent
SUM = """
import numpy as np
from mingce.base.compiled import REORDERED, compiler

@compiler(REORDERED)
def total(x):
    s = 0.0
    for i in range(len(x)):
        s += x[i]
    return s
"""


def run(program: str, *paths: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment |= {"PYTHONPATH": os.pathsep.join(map(str, paths)), "MINGCE_LANG": "en", **settings}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("cpu", ["skylake-avx512", "x86-64-v3", "generic"])
def test_no_division_is_estimated(cpu: str, tmp_path: Path) -> None:
    """Compiled for the processor and not run, so that it need not be this one."""
    import platform

    if platform.machine() != "x86_64":
        pytest.skip("the names are those of x86 processors")
    program = """
import re
from numba import float32, types
from mingce.models.cpu import decoder, kernels
plane, line = types.Array(float32, 2, "C"), types.Array(float32, 1, "C")
for function, signature in (
    (kernels.glu, (plane, plane, float32, float32, plane)),
    (kernels.glu_backward, (plane, plane, float32, float32, plane, plane, plane)),
    (decoder._glu, (plane, float32, float32, plane)),
    (kernels.causal_softmax, (plane, float32)),
    (kernels.rms_norm, (plane, plane, line, float32, plane, plane, line)),
):
    function.compile(signature)
    code = "".join(function.inspect_asm().values())
    print(function.__name__, re.findall(r"v?rcp\\w+|v?rsqrt\\w+", code), "div" in code)
"""
    done = run(program, PACKAGE.parent, NUMBA_CPU_NAME=cpu, NUMBA_CACHE_DIR=str(tmp_path))
    assert [line.split(" ", 1)[1] for line in done.stdout.splitlines()] == ["[] True"] * 5, done.stdout


def test_damaged_machine_code_is_compiled_anew(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(SUM)
    program = "import numpy as np; from own import total; print(total(np.arange(100.0)))"

    def result() -> tuple[str, str]:
        done = run(program, PACKAGE.parent, tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
        return done.stdout.strip(), done.stderr

    assert result() == ("4950.0", "")
    (file,) = (tmp_path / "cache").rglob("*.nbc")
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for damaged in (b"", whole[:20], whole[: len(whole) // 2], bytes(flipped), b"\x80\x04." * 100):
        file.write_bytes(damaged)
        number, said = result()
        assert number == "4950.0"
        assert said == f"The compiled code kept in {file} is damaged and is compiled anew.\n"
        written = file.read_bytes()
        assert hashlib.sha256(written[32:]).digest() == written[:32]
    assert result() == ("4950.0", "")


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """A module beside which nothing can be written, not even by root: a file stands in the place of the directory."""
    (tmp_path / "sealed").mkdir()
    (tmp_path / "sealed" / "own.py").write_text(SUM)
    (tmp_path / "sealed" / "__pycache__").write_text("")
    return tmp_path / "sealed"


@pytest.mark.parametrize("home_too", [False, True])
def test_where_nothing_can_be_written_beside_the_source(sealed: Path, home_too: bool, tmp_path: Path) -> None:
    cache = tmp_path / "user"
    if home_too:
        cache.write_text("")
    program = "import numpy as np; from own import total; print(total(np.arange(100.0)))"
    done = run(program, PACKAGE.parent, sealed, XDG_CACHE_HOME=str(cache))
    assert (done.stdout, done.stderr) == ("4950.0\n", "")
    assert bool(list(tmp_path.rglob("*.nbc"))) != home_too


def test_a_full_disk_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(SUM)
    program = (
        "import resource, numpy as np; from own import total; import signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "print(total(np.arange(100.0)))"
    )
    done = run(program, PACKAGE.parent, tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "cache"), PYTHONDONTWRITEBYTECODE="1")
    assert (done.stdout, done.stderr) == ("4950.0\n", "")
    assert not list((tmp_path / "cache").rglob("*.nbc*"))


def test_a_change_in_a_called_function_is_noticed(tmp_path: Path) -> None:
    """numba itself looks only at the file of the function that is called from outside."""
    called, calling = tmp_path / "called.py", tmp_path / "calling.py"
    calling.write_text(
        "from mingce.base.compiled import EXACT, compiler\nfrom called import one\n\n\n"
        "@compiler(EXACT)\ndef two(x):\n    return one(x)\n"
    )
    for added in (1, 2):
        called.write_text(
            "from mingce.base.compiled import EXACT, compiler\n\n\n"
            f"@compiler(EXACT)\ndef one(x):\n    return x + {added}.0\n"
        )
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        done = run(
            "from calling import two; print(two(1.0))",
            PACKAGE.parent,
            tmp_path,
            NUMBA_CACHE_DIR=str(tmp_path / "cache"),
        )
        assert done.stdout == f"{1 + added}.0\n"
