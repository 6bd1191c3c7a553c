"""Our own ledger as a dump: the names the audit uses, and the settings its numbers were made with."""

from __future__ import annotations

from collections.abc import Sequence

from mingce.config import Config, as_values
from mingce.importers.settled import settled
from mingce.ledger import Ledger
from mingce.record.dump import ROW_COLUMNS, TOKEN_COLUMNS, Dump
from mingce.specs.settings import by_dotted_key, dump_settings


def dump_of_ledger(
    ledger: Ledger, config: Config, *, step: int | None = None, beta: float | None = None, stop_ids: Sequence[int] = ()
) -> Dump:
    """A ledger with everything the configuration says of it; `beta` is the price of its KL, which may be adaptive."""
    columns = {name: values.cpu().numpy() for name, values in ledger.columns().items()}
    if "whitened_advantages" in columns:  # what the loss used is `advantages` to the audit
        columns["raw_advantages"] = columns["advantages"]
        columns["advantages"] = columns["whitened_advantages"]
    rows = {name: values for name, values in ledger.rows.items() if name in ROW_COLUMNS}
    if "bootstrap_value" in ledger.rows:
        rows["final_values"] = ledger.rows["bootstrap_value"]
    dump = Dump(
        columns={name: column for name, column in columns.items() if name in TOKEN_COLUMNS},
        rows=rows,
        settings=dump_settings(by_dotted_key(as_values(config)), beta=beta, stop_ids=stop_ids),
        source="mingce",
        step=step,
    )
    return settled(dump)
