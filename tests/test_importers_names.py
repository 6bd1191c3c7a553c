"""Names that are nearly ours, columns in lists and dicts of all kinds, settings a person declares, what is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dump_batches import LENGTHS, B, T, batch, lines, one, same, trl_tensors
from npz import save_npz

from mingce.base.errors import ColumnError, DataError
from mingce.importers import open_dump
from mingce.importers.near import known_name, suggestion
from mingce.record.dump import Dump

# ── near names ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("responseMask", "response_mask"), ("Response-Mask", "response_mask"), ("responsemask", "response_mask"),
        ("Advantages", "advantages"), ("RETURNS", "returns"), ("old_logp", "old_log_probs"),
        ("oldLogProbs", "old_log_probs"), ("old_logprob", "old_log_probs"), ("ref_logprobs_", "ref_log_probs"),
        ("refLogp", "ref_log_probs"), ("rollout_log_prob", "rollout_log_probs"), ("new_logps", "new_log_probs"),
        ("tokenIds", "token_ids"), ("token_id", "token_ids"), ("token_level_score", "scores"), ("Values", "values"),
    ],
)  # fmt: skip
def test_a_name_that_can_only_be_one_of_ours_is_taken(tmp_path: Path, theirs: str, ours: str) -> None:
    names = {"response_mask", "advantages", "returns", "old_log_probs", "ref_log_probs", "rollout_log_probs"}
    columns = {name: np.arange(B * T).reshape(B, T) % 2.0 for name in names - {ours}}
    save_npz(tmp_path / "x.npz", columns | {theirs: batch()["response_mask"].numpy()})
    dump = one(tmp_path / "x.npz")
    np.testing.assert_array_equal(dump.columns[ours], batch()["response_mask"].numpy())
    assert f"'{theirs}' was read as " in dump.remarks[0][1]


def test_what_may_be_two_things_is_not_taken(tmp_path: Path) -> None:
    for name in ("logP", "LogProb", "reward_s", "Log_Probs_", "new_", "rollout_id", "run_id", "step_id"):
        known = known_name(name)
        assert known is None or known in ("log_prob", "log_probs", "rewards"), name
    made = batch()
    both = {"old_logp": made["values"].numpy(), "oldLogProbs": made["returns"].numpy()}
    save_npz(tmp_path / "two.npz", {"response_mask": made["response_mask"].numpy()} | both)
    assert "old_log_probs" not in one(tmp_path / "two.npz").columns
    exact = {"response_mask": made["response_mask"].numpy(), "old_log_probs": made["values"].numpy()}
    save_npz(tmp_path / "exact.npz", exact | {"oldLogProbs": made["returns"].numpy()})
    dump = one(tmp_path / "exact.npz")
    same(dump.columns["old_log_probs"], made["values"])
    assert not dump.remarks


def test_a_farther_name_is_suggested_in_the_report(tmp_path: Path) -> None:
    made = batch()
    columns = {"response_mask": made["response_mask"].numpy(), "adv": made["advantages"].numpy()}
    save_npz(tmp_path / "x.npz", columns | {"seed": np.arange(B), "loss": np.zeros(())})
    dump = one(tmp_path / "x.npz")
    assert "advantages" not in dump.columns
    [(zh, en)] = dump.remarks
    assert "`columns: {adv: advantages}`" in zh
    assert "'adv' was not read; if it is advantages, write `columns: {adv: advantages}` into a file names.yaml" in en
    (tmp_path / "names.yaml").write_text("columns: {adv: advantages}")
    same(one(tmp_path / "x.npz", mapping=tmp_path / "names.yaml").columns["advantages"], made["advantages"])


@pytest.mark.parametrize(
    ("name", "ours"),
    [("adv", "advantages"), ("resp_msk", "response_mask"), ("old_lp", "old_log_probs"), ("vals", "values"),
     ("retruns", "returns"), ("ref_lps", "ref_log_probs"), ("tok_ids", "token_ids"), ("loss", None), ("seed", None),
     ("temperature", None), ("time", None), ("rank_id", None), ("accuracy", None), ("size", None)],
)  # fmt: skip
def test_suggestions(name: str, ours: str | None) -> None:
    assert suggestion(name) == ours


def test_near_names_in_a_trainers_dump(tmp_path: Path) -> None:
    made: dict[str, Any] = batch()
    made["oldLogProbs"] = made.pop("old_log_probs")
    torch.save({"batch": made, "meta_info": {"gaeLambda": 0.5}}, tmp_path / "x.pt")
    dump = one(tmp_path / "x.pt")
    assert dump.source == "verl"
    same(dump.columns["old_log_probs"], made["oldLogProbs"])
    assert dump.settings.lam == 0.5


def test_a_missing_column_says_what_was_found(tmp_path: Path) -> None:
    made = batch()
    save_npz(tmp_path / "mask.npz", {"resp_msk": made["response_mask"].numpy(), "values": made["values"].numpy()})
    with pytest.raises(DataError, match="it has resp_msk, values") as error:
        open_dump(tmp_path / "mask.npz")
    assert "`columns: {resp_msk: response_mask}` into a file names.yaml and add --mapping" in str(error.value)
    save_npz(tmp_path / "many.npz", {f"a_column_of_a_long_name_{i}": np.zeros((2, 2)) for i in range(200)})
    with pytest.raises(DataError, match="and 170 more") as error:
        open_dump(tmp_path / "many.npz")
    assert len(str(error.value)) < 1500
    torch.save({"batch": {"response": made["responses"]}, "non_tensor_batch": {}}, tmp_path / "verl.pt")
    with pytest.raises(ColumnError, match=r"has no 'responses'.*it has batch, non_tensor_batch, response"):
        open_dump(tmp_path / "verl.pt")
    trl = trl_tensors()
    del trl["padding_mask"]
    torch.save(trl, tmp_path / "trl.pt")
    with pytest.raises(ColumnError, match=r"no mask of the response.*it has queries, responses, logprobs"):
        open_dump(tmp_path / "trl.pt")
    (tmp_path / "folder").mkdir()
    save_npz(tmp_path / "folder/x.npz", {"weights": np.zeros((2, 2))})
    with pytest.raises(DataError, match="it has weights"):
        open_dump(tmp_path / "folder")


# ── lists and dicts ──────────────────────────────────────────────────────────────────────────────────────────────────

NAMES = {"response_mask": "response_mask", "values": "values", "old_log_probs": "old_log_probs"}


def rows_of(name: str) -> list[list[float]]:
    return [batch()[name][row, :length].tolist() for row, length in enumerate(LENGTHS)]


def ragged() -> dict[str, list[list[float]]]:
    return {name: rows_of(name) for name in NAMES}


def check(dump: Dump, rows: int = B) -> None:
    assert dump.source == "generic"
    assert dump.shape == (rows, T)
    kept = batch()["response_mask"].bool().numpy()
    np.testing.assert_array_equal(dump.mask, kept[:rows])
    for name in NAMES:
        expected = np.where(kept, batch()[name].double().numpy(), 0)
        np.testing.assert_allclose(dump.columns[name], expected[:rows], rtol=1e-6)


def records() -> list[dict[str, Any]]:
    return [{name: rows[i] for name, rows in ragged().items()} for i in range(B)]


CONTENTS: dict[str, Any] = {
    "columns": ragged(),
    "padded": {name: batch()[name].masked_fill(batch()["response_mask"] == 0, 0).tolist() for name in NAMES},
    "one dict in a list": [ragged()],
    "data": {"data": ragged(), "settings": {"gamma": 0.5}, "step": 3},
    "twice in a dict": {"train": {"data": [ragged()]}},
    "records": records(),
    "records in a dict": {"rollouts": records(), "gamma": 0.5},
    "a dict in each record": [{"tokens_of": one} for one in records()],
    "batches": [{name: rows[:2] for name, rows in ragged().items()}, {n: r[2:] for n, r in ragged().items()}],
}


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("how", ["json", "indented", "pt", "jsonl"])
def test_lists_and_dicts(tmp_path: Path, name: str, how: str) -> None:
    content = CONTENTS[name]
    path = tmp_path / "x.data"
    if how == "jsonl":
        lines(path, content if isinstance(content, list) else [content])
    elif how == "pt":
        torch.save(content, path)
    else:
        path.write_text(json.dumps(content, indent=2 if how == "indented" else None))
    dump = one(path)
    check(dump)
    if name == "data":
        assert (dump.settings.gamma, dump.step) == (0.5, 3)
    if name == "records in a dict":
        assert dump.settings.gamma == 0.5
    if name == "batches":
        assert dump.rows["micro_batch"] == [0, 0, 1, 1]


def test_a_single_row(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps(records()[0], indent=1))
    check(one(tmp_path / "x.json"), 1)
    (tmp_path / "x.json").write_text(json.dumps([records()[0]]))
    check(one(tmp_path / "x.json"), 1)


def test_numpy_objects(tmp_path: Path) -> None:
    columns = {}
    for name, rows in ragged().items():
        columns[name] = np.empty(B, dtype=object)
        columns[name][:] = [np.array(row) if name == "values" else row for row in rows]
    save_npz(tmp_path / "rows.npz", columns)
    check(one(tmp_path / "rows.npz"))
    np.save(tmp_path / "dict.npy", np.array(ragged(), dtype=object), allow_pickle=True)
    check(one(tmp_path / "dict.npy"))
    save_npz(tmp_path / "dict.npz", {"data": np.array(ragged(), dtype=object)})
    check(one(tmp_path / "dict.npz"))
    torch.save({name: tuple(map(tuple, rows)) for name, rows in ragged().items()}, tmp_path / "tuples.pt")
    check(one(tmp_path / "tuples.pt"))
    tensors = [{name: torch.tensor(row) for name, row in record.items()} for record in records()]
    torch.save(tuple(tensors), tmp_path / "tensors.pt")
    check(one(tmp_path / "tensors.pt"))


# ── settings and logged numbers ──────────────────────────────────────────────────────────────────────────────────────


def test_settings_that_a_person_declares(tmp_path: Path) -> None:
    given = {
        "whiten_rewards": True, "min_p": 0.05, "dual_clip": 3.0, "entropy_coeff": 0.01, "policy_loss": "gspo",
        "kl_clamp": 10.0,
    }  # fmt: skip
    expected = {name: value for name, value in given.items() if name != "entropy_coeff"} | {"entropy_coef": 0.01}
    torch.save(batch() | {"settings": given | {"gamma": True}}, tmp_path / "x.pt")
    known = one(tmp_path / "x.pt").settings.known()
    assert expected.items() <= known.items()
    assert "gamma" not in known
    torch.save(batch(), tmp_path / "y.pt")
    (tmp_path / "names.yaml").write_text(json.dumps({"settings": given}))
    assert expected.items() <= one(tmp_path / "y.pt", mapping=tmp_path / "names.yaml").settings.known().items()
    assert expected.items() <= one(tmp_path / "y.pt", settings=given).settings.known().items()


def test_logged_names_of_today(tmp_path: Path) -> None:
    logged = {
        "actor/reward_kl_penalty": 0.1, "actor/reward_kl_penalty_coeff": 0.2, "actor/pg_clipfrac_lower": 0.3,
        "critic/vf_clipfrac": 0.4, "actor/pg_clipfrac": 0.5, "actor/ppo_kl": 0.6, "actor/entropy": 0.7,
        "actor/kl_loss": 0.8, "actor/kl_coef": 9.0, "critic/returns/mean": 0.9,
    }  # fmt: skip
    torch.save({"batch": batch(), "meta_info": {"metrics": logged}}, tmp_path / "x.pt")
    assert one(tmp_path / "x.pt").scalars == {
        "kl_mean": 0.1, "kl_coef": 0.2, "pg_clipfrac_lower": 0.3, "vf_clipfrac": 0.4, "pg_clipfrac": 0.5,
        "approx_kl": 0.6, "entropy_mean": 0.7, "kl_loss": 0.8, "returns_mean": 0.9,
    }  # fmt: skip
