"""The package as others install it: what wheel and sdist hold, and that the wheel works away from its sources."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SOURCES = Path(__file__).parents[1]
PARTS = ("__init__.py", "py.typed", "models/tiny/model.safetensors", "view/static/index.html")


def build(sources: Path, kind: str, out_dir: Path) -> Path:
    """The wheel or sdist of `sources`, made by the build backend in a process of its own, without the network."""
    code = f"import hatchling.build, sys; print(hatchling.build.build_{kind}(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(out_dir)]
    result = subprocess.run(command, cwd=sources, check=True, capture_output=True, text=True)
    return out_dir / result.stdout.split()[-1]


def contents(wheel: Path) -> dict[str, int]:
    """The name and checksum of every file in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {entry.filename: entry.CRC for entry in archive.infolist()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(SOURCES, "wheel", tmp_path_factory.mktemp("wheel"))


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = set(contents(wheel))
    assert {f"mingce/{part}" for part in PARTS} <= names
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"mingce"}
    assert not [name for name in names if name.startswith("mingce/view/web/") or "__pycache__" in name]
    for pattern in ("*.py", "texts/**/*.md"):
        files = {f"mingce/{file.relative_to(SOURCES / 'mingce')}" for file in (SOURCES / "mingce").rglob(pattern)}
        assert files
        assert files - names == set()


def test_the_sdist_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(build(SOURCES, "sdist", tmp_path)) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert contents(build(unpacked, "wheel", tmp_path)) == contents(wheel)


def test_the_locked_versions_lie_in_the_ranges() -> None:
    """`make` installs exact versions of all that the package and its tests ask for, and the package accepts them."""
    lines = (SOURCES / "constraints.txt").read_text(encoding="utf-8").splitlines()
    locked = {
        canonicalize_name(name): version for name, version in (line.split("==") for line in lines if "==" in line)
    }
    project = tomllib.loads((SOURCES / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    names = ("docs", "peft", "ray", "reasoning-gym", "smollm2")
    asked = [*project["dependencies"], *(line for name in names for line in extras[name])]
    tools = [line for line in extras["dev"] if not line.startswith("mingce")]
    for requirement in map(Requirement, [*asked, *tools]):
        assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)]), requirement


@pytest.mark.slow
def test_the_wheel_works_away_from_its_sources(wheel: Path, tmp_path: Path) -> None:
    """Installed in an environment that lends only the dependencies of this one, and run from an empty directory."""
    home, work = tmp_path / "an environment", tmp_path / "an empty directory"
    work.mkdir()
    python, mingce = installed(wheel, home)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MINGCE"))}

    def run(*command: str | Path) -> str:
        result = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True)
        assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
        return result.stdout

    imported = Path(run(python, "-c", "import mingce; print(mingce.__file__)").strip())
    assert imported.is_relative_to(home)
    run(mingce, "train", "steps=2", "name=demo", "validation.examples=8")
    run(mingce, "view", "runs/demo", "--export", "report.html")
    assert "<html" in (work / "report.html").read_text(encoding="utf-8")
    run(mingce, "audit", "runs/demo")
    assert "λ" in run(mingce, "ask", "what is lambda?", "--lang", "en")
    assert "A_t" in run(mingce, "explain", "runs/demo", "--step", "1", "--rollout", "0", "--lang", "en")
    assert "All is well." in run(mingce, "doctor", "--lang", "en")
    assert {path.name for path in work.iterdir()} == {"runs", "report.html"}


def installed(wheel: Path, home: Path) -> tuple[Path, Path]:
    """A new environment with the wheel and a path to the dependencies installed here; its python and mingce."""
    venv.create(home, symlinks=True, with_pip=True)
    python = home / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel], check=True)
    site = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    )
    import torch

    Path(site.stdout.strip(), "lent.pth").write_text(f"{Path(torch.__file__).parents[1]}\n", encoding="utf-8")
    return python, home / "bin" / "mingce"
