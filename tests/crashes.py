"""A crashed worker is one failed test with its name, and the others go on; pytest's own `--dist loadgroup` loses them.

pytest-xdist 3.8 runs the test that crashed again until all workers are used up, gives work to a worker that has not
collected yet (INTERNALERROR), and waits forever for one that was given a single test
(https://github.com/pytest-dev/pytest-xdist/issues/714, 1189, 1323, 1327).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

try:
    from xdist.scheduler import LoadGroupScheduling
except ImportError:  # run without it
    LoadGroupScheduling = object


class CrashSafeScheduling(LoadGroupScheduling):  # type: ignore[misc]
    """Groups stay together; what a crashed worker had left goes to the others, without the test that crashed it."""

    def remove_node(self, node: Any) -> str | None:
        """The test that was running, which counts as done: xdist reports it as failed."""
        workload = self.assigned_work.pop(node)
        left = {scope: [test for test, done in unit.items() if not done] for scope, unit in workload.items()}
        crashed = next((test for tests in left.values() for test in tests), None)
        for scope, tests in left.items():
            if unit := {test: False for test in tests if test != crashed}:
                self.workqueue[scope] = unit
        for other in self.nodes:
            self._reschedule(other)
        return crashed

    def _assign_work_unit(self, node: Any) -> None:
        """The next group; to a worker that has just died nothing can be sent, and `remove_node` takes it back."""
        with suppress(OSError):
            super()._assign_work_unit(node)

    def _reschedule(self, node: Any) -> None:
        """Enough work for a worker to begin: it runs a test only when it knows the next, or that there is none."""
        if node not in self.registered_collections or node not in self.assigned_work:
            return
        while not node.shutting_down and self.workqueue and self._pending_of(self.assigned_work[node]) <= 2:
            self._assign_work_unit(node)
        if not self.workqueue:
            node.shutdown()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> CrashSafeScheduling | None:
    return CrashSafeScheduling(config, log) if config.getvalue("dist") == "loadgroup" else None
