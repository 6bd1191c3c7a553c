"""Prints the lowest versions that pyproject.toml allows, as constraints for pip: what `make test-lowest` installs."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
EXTRAS = ("mcp", "peft", "ray", "reasoning-gym", "dev")
"""What the tests use; the other extras are loggers and models that no test needs."""


def lowest(requirement: Requirement) -> str:
    """`name==version` of the requirement's lower bound."""
    (bound,) = [s.version for s in requirement.specifier if s.operator in (">=", "==")]
    return f"{requirement.name}=={bound}"


def constraints() -> list[str]:
    """One line for each requirement of the package and of the extras that the tests use."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"], *(line for extra in EXTRAS for line in project["optional-dependencies"][extra])]
    requirements = map(Requirement, lines)
    return sorted(lowest(requirement) for requirement in requirements if requirement.name != project["name"])


if __name__ == "__main__":
    print(*constraints(), sep="\n")
