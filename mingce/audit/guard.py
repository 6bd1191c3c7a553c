"""The audit of a run's own ledger while it trains: the first step's, then every N-th.

What it finds goes to audit.jsonl, a function of the ledgers alone and therefore as exact on resume as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from mingce.base.errors import RunError
from mingce.base.lang import display_lang
from mingce.base.texts import sentence
from mingce.config import Config
from mingce.ledger import Ledger
from mingce.record.dump import dump_of_ledger
from mingce.record.run import Run


class Guard:
    """Audits ledgers as they are made. `alarm` is the error that should end the run once the step is saved."""

    def __init__(self, run: Run, config: Config, stop_ids: Sequence[int] = ()):
        self.run, self.config, self.stop_ids = run, config, stop_ids
        self.alarm: RunError | None = None

    def due(self, step: int) -> bool:
        """Whether it is this step's turn; a function of its number, so that a resumed run audits the same steps."""
        every = self.config.audit.every
        return every > 0 and (step == 1 or step % every == 0)

    def look(self, step: int, ledger: Ledger, beta: float) -> tuple[list[str], dict[str, float]]:
        """Audits one step's ledger and writes down what it finds; returns the bugs' titles and the counts to log."""
        from mingce.audit.audit import audit
        from mingce.audit.formats import finding_json
        from mingce.audit.wording import title

        report = audit(dump_of_ledger(ledger, self.config, step=step, beta=beta, stop_ids=self.stop_ids))
        bugs = [title(finding, display_lang()) for finding in report.of("bug")]
        self.run.log_audit(
            step,
            {
                "checks": len(report.ran),
                "findings": [finding_json(finding, report.labels) for finding in report.findings],
            },
        )
        if bugs and self.config.audit.stop:
            self.alarm = self._alarm(step, bugs[0])
        return bugs, {"audit/bugs": len(bugs), "audit/suspicious": len(report.of("suspicious"))}

    def _alarm(self, step: int, bug: str) -> RunError:
        return RunError(sentence("audit.alarm", step=step, bug=bug.rstrip("。."), path=self.run.path))
