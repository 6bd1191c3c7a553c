"""The benchmark's tables: rows measured anew take the place of the older ones, the others stay."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "bench"))

from tables import Table, as_json, of_json


def measured(names: str, found: float) -> Table:
    table = Table("toy", "Toy", ["case", "ratio"], calls=[{"day": f"d{found}", "minutes": 1.0, "loads": [0.5, found]}])
    for name in names:
        with table.case(name):
            table.rows.append([name, str(found)])
            table.raw.append({"case": name, "found": found})
            table.at_least(name, found, 2.0, peer="other")
    return table


def test_rows_measured_anew_replace_their_like_and_stand_in_order() -> None:
    older, _ = of_json(as_json([measured("acd", 1.0)], {}))
    joined = measured("bc", 3.0).joined(older[0], list("abcd"))
    assert joined.rows == [["a", "1.0"], ["b", "3.0"], ["c", "3.0"], ["d", "1.0"]]
    assert [one["found"] for one in joined.raw] == [1.0, 3.0, 3.0, 1.0]
    assert [(check.case, check.holds) for check in joined.checks] == [
        ("a", False), ("b", True), ("c", True), ("d", False),
    ]  # fmt: skip
    assert [call["minutes"] for call in joined.calls] == [1.0, 1.0]


def test_a_case_that_fails_costs_no_other() -> None:
    table = measured("a", 3.0)
    with table.case("b"):
        raise ValueError("no memory")
    with table.case("c"):
        table.rows.append(["c", "1"])
    assert table.cases == ["a", "c"]
    assert table.failures == ["b: no memory"]
