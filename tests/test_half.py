"""Half precision on a processor whose instructions kill: another setting is found, remembered, and told."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from test_audit_replay import dump_of, scored

from mingce.audit.replay import replay
from mingce.base import half
from mingce.base.errors import ModelError

DIES = """
import os, signal, sys
open(os.environ["TRIED"], "a").write(os.environ.get("ONEDNN_MAX_CPU_ISA", "none") + " " + sys.argv[1] + "\\n")
if os.environ.get("ONEDNN_MAX_CPU_ISA") not in ({survivors}):
    os.kill(os.getpid(), signal.SIGILL)
"""
Machine = Callable[..., Callable[[], list[str]]]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Makes children die of SIGILL in all but the named settings; gives what was tried since it was last asked."""
    monkeypatch.setenv("MINGCE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TRIED", str(tmp_path / "tried"))
    monkeypatch.setenv("MINGCE_LANG", "en")
    monkeypatch.setenv(half.VARIABLE, "")
    monkeypatch.delenv(half.VARIABLE)

    def make(*survivors: str) -> Callable[[], list[str]]:
        monkeypatch.setattr(half, "PROBE", DIES.format(survivors=", ".join(map(repr, (*survivors, "?")))))
        half.support.cache_clear()
        half._checked.clear()

        def tried() -> list[str]:
            file = tmp_path / "tried"
            lines = file.read_text().splitlines() if file.exists() else []
            file.unlink(missing_ok=True)
            half.support.cache_clear()
            return lines

        return tried

    yield make
    half.support.cache_clear()
    half._checked.clear()


def test_the_next_setting_is_chosen_and_remembered(machine: Machine) -> None:
    tried = machine("AVX512_CORE_BF16")
    half.enable("bfloat16")
    assert os.environ[half.VARIABLE] == "AVX512_CORE_BF16"
    assert tried() == [f"{s} {d}" for s in ("none", "AVX512_CORE_BF16") for d in half.DTYPES]
    half.enable("float16")  # with the setting in the environment, as in a child process
    assert tried() == []
    del os.environ[half.VARIABLE]
    half.enable("bfloat16")
    assert os.environ[half.VARIABLE] == "AVX512_CORE_BF16"
    assert tried() == []


def test_what_works_as_it_is_stays_as_it_is(machine: Machine) -> None:
    tried = machine("AVX2")
    os.environ[half.VARIABLE] = "AVX2"
    half.enable("bfloat16")
    assert os.environ[half.VARIABLE] == "AVX2"
    assert tried() == ["AVX2 bfloat16", "AVX2 float16"]


def test_nothing_works(machine: Machine) -> None:
    tried = machine()
    with pytest.raises(ModelError, match=r"^this CPU cannot compute bfloat16; use model.dtype=float32\.$"):
        half.enable("bfloat16")
    assert len(tried()) == 2 * (1 + len(half.LOWER))
    with pytest.raises(ModelError):
        half.enable("float16")
    assert tried() == []


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"dtypes": 3, "setting": ""}', b'{"dtypes": [], "setting": "X"}', b"\xff"]
)
def test_a_damaged_answer_is_tried_again(machine: Machine, content: bytes) -> None:
    tried = machine("AVX2")
    half.enable("bfloat16")
    assert tried()
    for file in Path(os.environ["MINGCE_CACHE"]).iterdir():
        file.write_bytes(content)
    half.enable("bfloat16")
    assert tried()


def test_a_cache_that_cannot_be_written(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    tried = machine("AVX2")
    half.enable("bfloat16")
    assert tried()
    half.enable("bfloat16")
    assert tried()


def test_a_child_without_an_end(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as a failure, and is not remembered: the machine may have been busy."""
    machine()
    monkeypatch.setattr(half, "PROBE", "import time; time.sleep(60)")
    monkeypatch.setattr(half, "SECONDS", 0.2)
    with pytest.raises(ModelError):
        half.enable("bfloat16")
    assert not list(Path(os.environ["MINGCE_CACHE"]).glob("*"))


def test_a_setting_that_comes_too_late_is_a_sentence(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product was computed before, so oneDNN no longer reads the setting and the instruction kills."""
    import signal

    machine("AVX2")
    monkeypatch.setattr(half, "_product", lambda dtype: os.kill(os.getpid(), signal.SIGILL))
    with pytest.raises(ModelError, match=r"needs ONEDNN_MAX_CPU_ISA=AVX2 before the process begins"):
        half.enable("bfloat16")


def test_the_audit_skips_what_cannot_be_computed(machine: Machine) -> None:
    machine()
    noisy = scored(0) + np.random.default_rng(0).normal(0, 0.02, scored(0).shape)
    codes = [finding.fault.code for finding in replay(dump_of(0, old_log_probs=noisy), "tiny")]
    assert codes == ["replay-differs", "replay-no-16-bit-pass"]
    assert [finding.fault.code for finding in replay(dump_of(0), "tiny")] == ["replay-agrees"]


@pytest.mark.parametrize(
    ("survivors", "shown"),
    [(("AVX512_CORE",), "works with ONEDNN_MAX_CPU_ISA=AVX512_CORE"), ((), "this CPU cannot; use model.dtype=float32")],
)
def test_the_doctor_shows_it(machine: Machine, survivors: tuple[str, ...], shown: str) -> None:
    from mingce.commands import doctor

    machine(*survivors)
    details = {finding.name: finding.detail for finding in doctor.machine("en")}
    assert details["bfloat16"].startswith(shown)
    assert details["float16"].startswith(shown)


def test_training_on_a_processor_that_cannot(machine: Machine, tmp_path: Path) -> None:
    machine()
    program = (
        "import sys; from mingce.base import half; from mingce.cli import main\n"
        f"half.PROBE = {half.PROBE!r}\n"
        "sys.argv = ['mingce', 'train', 'model.dtype=float16', 'steps=1']; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert "this CPU cannot compute float16; use model.dtype=float32." in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_the_real_probe_works_here() -> None:
    half.support.cache_clear()
    assert half._survives("bfloat16", "AVX2") is True
