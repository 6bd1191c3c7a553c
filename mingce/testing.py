"""For the test suites of trainers: a batch is clean, or the test fails with the audit's report.

    from mingce.testing import assert_clean

    def test_a_step():
        batch = my_trainer.step()      # arrays or tensors [rows, response tokens] by name
        assert_clean(batch, settings={"gamma": 1.0, "lam": 0.95}, require=("credit", "masks"))

With pytest the same function is the fixture `assert_clean` (mingce/pytest_plugin.py).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mingce.audit.report import Audited
    from mingce.record.dump import Dump

__all__ = ["assert_clean"]


def assert_clean(
    batch: str | os.PathLike[str] | Mapping[str, Any] | Dump,
    *,
    settings: Mapping[str, Any] | None = None,
    require: Collection[str] = ("credit",),
    allow: Collection[str] = (),
    suspicious: bool = False,
) -> Audited:
    """Audits a batch; an AssertionError with the report where it has a bug or a required area could not be judged.

    `batch` is the path of a dump or a run, or a mapping from names to arrays or tensors [rows, response tokens], lists
    with an entry per row, and scalars, under the names of any trainer that `mingce audit` opens. `settings` are those
    of `mingce audit --set` (gamma, lam, beta, eos_id …); what is left out is inferred. `require` names areas: masks,
    tokens, rewards, credit, whitening, log_probs, losses. `allow` are codes of findings that are meant, such as
    "kl-coefficient". With `suspicious=True` a suspicion fails too.
    """
    from mingce.audit.report import audited_markdown
    from mingce.commands.audit import audit_all, check_areas, check_settings

    check_areas(require)
    audited = audit_all(_dumps(batch, check_settings(settings or {})), "en")
    levels = ("bug", "suspicious") if suspicious else ("bug",)
    wrong = {one.fault.code for one in audited.findings if one.level in levels and one.fault.code not in allow}
    reasons = [*sorted(wrong), *(f"{area} could not be judged" for area in audited.unjudged(require))]
    if reasons:
        raise AssertionError(f"{'; '.join(reasons)}\n\n{audited_markdown(audited, 'en')}")
    return audited


def _dumps(batch: Any, settings: dict[str, Any]) -> Iterator[Dump]:
    from mingce.commands.audit import dumps_at
    from mingce.importers.memory import dump_in_memory
    from mingce.record.dump import Dump

    if isinstance(batch, Dump):
        yield batch
    elif isinstance(batch, Mapping):
        yield dump_in_memory(batch, settings)
    else:
        yield from dumps_at([Path(batch)], None, settings)
