"""The pytest plug-in: the fixture `assert_clean`, and a line at the end that says how much was audited.

    [tool.pytest.ini_options]
    mingce_require = ["credit", "masks"]        # areas that every batch must allow to judge; credit if left out

A test's own `require=` counts more. pytest finds the plug-in by its entry point; nothing of mingce is loaded before a
test asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

_COUNTS = pytest.StashKey[dict[str, int]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The one setting."""
    parser.addini("mingce_require", "areas that assert_clean must be able to judge", type="args", default=["credit"])


@pytest.fixture
def assert_clean(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`mingce.testing.assert_clean` with the areas that the project requires."""
    from mingce.testing import assert_clean as function

    counts = request.config.stash.setdefault(_COUNTS, {"dumps": 0, "tokens": 0})

    def counted(batch: Any, **options: Any) -> Any:
        audited = partial(function, require=request.config.getini("mingce_require"))(batch, **options)
        counts["dumps"] += len(audited.reports)
        counts["tokens"] += sum(report.tokens for report in audited.reports)
        return audited

    return counted


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """How much was looked at."""
    counts = config.stash.get(_COUNTS, None)
    if counts:
        terminalreporter.write_line(f"mingce: {counts['dumps']} dumps, {counts['tokens']:,} tokens audited clean")
