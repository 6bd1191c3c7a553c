"""The benchmark: tables joined with older ones, and how much work a pass is said to be."""

from __future__ import annotations

import torch
from flops import forward_flops
from tables import Table, as_json, of_json
from torch.utils.flop_counter import FlopCounterMode
from toys import PAD, llama, prompts

from mingce.ledger import Ledger
from mingce.models.log_probs import log_probs_batcher, response_log_probs


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


def test_flops_are_those_that_torch_counts() -> None:
    model, mask = llama("1 M"), torch.arange(9) < torch.tensor([9, 2, 9, 5, 1, 7])[:, None]
    tokens = torch.randint(3, 9, mask.shape, generator=torch.Generator().manual_seed(0))
    ledger = Ledger(tokens, mask, rows={"prompt_ids": [prompts(3, 6)[i] for i in (0, 1, 0, 2, 1, 1)]})
    for budget in (40, 1000):
        counted = 0
        for rows in log_probs_batcher(model, budget)(ledger):
            part = ledger.select(rows).trim()
            with FlopCounterMode(display=False) as counter, torch.no_grad():
                response_log_probs(model, part.row("prompt_ids"), part["token_ids"], part["attention_mask"], pad_id=PAD)
            by_operation = counter.get_flop_counts()["Global"]
            counted += sum(count for operation, count in by_operation.items() if "bmm" not in str(operation))
        assert forward_flops(model, ledger, budget) == counted
