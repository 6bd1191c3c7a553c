"""What can be chosen by name is named in mingce/specs, in prose and in tests, and nowhere else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mingce
from mingce.specs import ESTIMATORS

PACKAGE = Path(mingce.__file__).parent
PROSE = (
    "explain/topics",
    "explain/claims/names.py",
)
"""Texts about the estimators, and the words by which a question names them."""
METHODS = {("engine/ray.py", "attention"), ("plan/families.py", "attention")}
"""A role's method, called by name in other processes; a part of a model's layers."""


def sources() -> list[Path]:
    files = [path for kind in ("*.py", "*.ts", "*.tsx") for path in PACKAGE.rglob(kind)]
    apart = ("specs/", "view/static/", "node_modules/", *PROSE)
    return [path for path in files if not path.relative_to(PACKAGE).as_posix().startswith(apart)]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_is_named_once(name: str) -> None:
    literal = re.compile(rf'"{name}"')
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in sources()
        if "node_modules" not in path.parts and "generated" not in path.name and literal.search(path.read_text("utf-8"))
    }
    assert {place for place in found if (place, name) not in METHODS} == set()
