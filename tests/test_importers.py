"""Every format that the importers read, written as its trainer writes it and read back number for number."""

from __future__ import annotations

import importlib.util
import json
import pickle
import sys
import types
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from npz import save_npz
from safetensors.torch import save_file

from mingce.base.errors import ColumnError, DataError, SettingError, UnknownNameError
from mingce.importers import open_dump
from mingce.ledger import Ledger
from mingce.record.dump import Dump
from mingce.record.store import LedgerStore

B, P, T = 4, 3, 5
LENGTHS = [5, 3, 1, 4]


def batch(seed: int = 0, rows: int = B, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """A verl batch: prompts left-padded, responses right-padded."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.tensor((LENGTHS * rows)[:rows])
    mask = (torch.arange(T) < lengths[:, None]).long()
    before = torch.ones(rows, P, dtype=torch.long)
    before[1, 0] = 0
    attention = torch.cat([before, mask], dim=1)

    def floats() -> torch.Tensor:
        return torch.randn(rows, T, generator=draw).to(dtype)

    made = {
        "prompts": torch.randint(5, 50, (rows, P), generator=draw) * before,
        "responses": torch.randint(5, 50, (rows, T), generator=draw) * mask,
        "attention_mask": attention,
        "position_ids": (attention.cumsum(1) - 1).clamp(min=0),
        "response_mask": mask,
    }
    made["input_ids"] = torch.cat([made["prompts"], made["responses"]], dim=1)
    names = ("old_log_probs", "rollout_log_probs", "ref_log_prob", "token_level_scores", "token_level_rewards")
    return made | {name: floats() for name in (*names, "values", "returns", "advantages")}


def one(path: Path, **options: Any) -> Dump:
    dumps = open_dump(path, **options)
    assert len(dumps) == 1
    return dumps[0]


def same(found: Any, expected: torch.Tensor) -> None:
    np.testing.assert_array_equal(found, expected.double().numpy() if found.dtype == np.float64 else expected.numpy())


def check_verl(dump: Dump, made: dict[str, torch.Tensor]) -> None:
    assert dump.source == "verl"
    same(dump.columns["token_ids"], made["responses"])
    same(dump.columns["response_mask"], made["response_mask"].bool())
    same(dump.columns["attention_mask"], made["attention_mask"][:, P:].bool())
    for theirs, ours in (
        ("ref_log_prob", "ref_log_probs"), ("token_level_scores", "scores"), ("token_level_rewards", "rewards"),
        ("advantages", "advantages"), ("values", "values"),
    ):  # fmt: skip
        same(dump.columns[ours], made[theirs])
    assert dump.rows["prompt_ids"][1] == made["prompts"][1, 1:].tolist()
    assert dump.rows["left_pad"] == [0, 1, 0, 0]
    assert dump.rows["position_ids"][1] == made["position_ids"][1].tolist()
    assert dump.stored["values"] == "float32"


# ── verl ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_verl_dict(tmp_path: Path) -> None:
    made = batch()
    about = {"temperature": 0.7, "global_steps": 12, "eos_token_id": [2, 3]}
    others = {"uid": np.array(["a", "a", "b", "b"], dtype=object), "data_source": np.array(["x"] * B, dtype=object)}
    torch.save({"batch": made, "non_tensor_batch": others, "meta_info": about}, tmp_path / "misleading.npz")
    dump = one(tmp_path / "misleading.npz")
    check_verl(dump, made)
    assert dump.rows["group"] == ["a", "a", "b", "b"]
    assert dump.settings.temperature == 0.7
    assert dump.settings.eos_id == 2
    assert dump.settings.stop_ids == [2, 3]
    assert dump.step == 12


def test_verl_batch_alone_in_npz_and_safetensors(tmp_path: Path) -> None:
    made = batch()
    save_npz(tmp_path / "a.npz", {name: column.numpy() for name, column in made.items()}, compressed=True)
    save_file(made, tmp_path / "b.pt")
    for name in ("a.npz", "b.pt"):
        check_verl(one(tmp_path / name), made)


class DataProto:
    """Pickled under verl's name, with the state that verl's own __getstate__ gives."""

    def __init__(self, state: Any):
        self.state = state

    def __getstate__(self) -> Any:
        return self.state

    def __setstate__(self, state: Any) -> None:
        raise AssertionError("a stranger's class was made")


class TensorDict:
    """Pickled as tensordict pickles itself."""

    def __init__(self, columns: dict[str, torch.Tensor], consolidated: bool):
        self.columns, self.consolidated = columns, consolidated

    def __reduce__(self) -> Any:
        if not self.consolidated:
            return _make_td, (
                TensorDict,
                {"_tensordict": self.columns, "_batch_size": torch.Size([B]), "_device": None},
            )
        parts, leaves, at = [], {}, 0
        for name, column in self.columns.items():
            raw = column.contiguous().view(torch.uint8).flatten()
            pad = -len(raw) % 8
            parts += [raw, torch.zeros(pad, dtype=torch.uint8)]
            leaves[name] = (str(column.dtype), list(column.shape), at, at + len(raw) + pad, pad)
            at += len(raw) + pad
        about = {"cls": "TensorDict", "non_tensors": {}, "leaves": leaves, "cls_metadata": {"batch_size": [B]}}
        return _rebuild_tensordict_files_consolidated, (about, torch.cat(parts))


def _make_td(*_: Any) -> None:
    raise AssertionError("a stranger's function was called")


def _rebuild_tensordict_files_consolidated(*_: Any) -> None:
    raise AssertionError("a stranger's function was called")


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The classes above under the names that a pickle of the real ones has."""
    homes: dict[str, tuple[Any, ...]] = {
        "verl.protocol": (DataProto,),
        "tensordict._td": (TensorDict,),
        "tensordict._reductions": (_make_td, _rebuild_tensordict_files_consolidated),
        "openrlhf.trainer.ppo_utils.experience": (Experience,),
    }
    for home, things in homes.items():
        module = types.ModuleType(home)
        for thing in things:
            monkeypatch.setattr(thing, "__module__", home)
            setattr(module, thing.__name__, thing)
        monkeypatch.setitem(sys.modules, home, module)
        for parent in (home.rsplit(".", depth)[0] for depth in range(1, home.count(".") + 1)):
            monkeypatch.setitem(sys.modules, parent, types.ModuleType(parent))


@pytest.mark.usefixtures("peers")
@pytest.mark.parametrize("consolidated", [True, False])
@pytest.mark.parametrize("how", ["save_to_disk", "torch.save"])
def test_verl_data_proto(tmp_path: Path, consolidated: bool, how: str) -> None:
    import io

    made = batch()
    buffer = io.BytesIO()
    torch.save(TensorDict(made, consolidated), buffer)
    others = {"uid": np.array(["a", "a", "b", "b"], dtype=object)}
    proto = DataProto((buffer.getvalue(), others, {"temperature": 1.0}))
    path = tmp_path / "step_7.bin"
    if how == "torch.save":
        torch.save(proto, path)
    else:
        path.write_bytes(pickle.dumps(proto))
    dump = one(path)
    check_verl(dump, made)
    assert dump.step == 7
    assert dump.rows["group"] == ["a", "a", "b", "b"]


@pytest.mark.usefixtures("peers")
def test_verl_tensordict_and_old_pickles(tmp_path: Path) -> None:
    made = batch()
    torch.save(TensorDict(made, False), tmp_path / "td.pt")
    torch.save(made, tmp_path / "legacy.pt", _use_new_zipfile_serialization=False)
    (tmp_path / "plain.pkl").write_bytes(pickle.dumps(made))
    for name in ("td.pt", "legacy.pt", "plain.pkl"):
        check_verl(one(tmp_path / name), made)


def test_verl_numpy_serialization(tmp_path: Path, peers: None) -> None:
    made = batch()
    encoded = {
        name: (str(column.dtype).removeprefix("torch."), tuple(column.shape), column.numpy().tobytes())
        for name, column in made.items()
    }
    (tmp_path / "x").write_bytes(pickle.dumps(DataProto((((B,), None, encoded), {}, {}))))
    check_verl(one(tmp_path / "x"), made)


def test_verl_before_response_mask(tmp_path: Path) -> None:
    made = batch()
    mask = made.pop("response_mask")
    torch.save(made, tmp_path / "x.pt")
    same(one(tmp_path / "x.pt").columns["response_mask"], mask.bool())


def test_half_precision_is_widened_and_remembered(tmp_path: Path) -> None:
    made = batch(dtype=torch.bfloat16) | {"values": torch.randn(B, T).half(), "returns": torch.randn(B, T).double()}
    torch.save(made, tmp_path / "x.pt")
    save_file(made, tmp_path / "y.safetensors")
    for name in ("x.pt", "y.safetensors"):
        dump = one(tmp_path / name)
        assert dump.stored["advantages"] == "bfloat16"
        assert dump.stored["values"] == "float16"
        assert dump.columns["advantages"].dtype == dump.columns["values"].dtype == np.float32
        assert dump.columns["returns"].dtype == np.float64
        same(dump.columns["advantages"], made["advantages"].float())
        same(dump.columns["values"], made["values"].float())
        same(dump.columns["returns"], made["returns"])


def test_strided_and_shared_tensors(tmp_path: Path) -> None:
    made = batch()
    made["returns"] = made["values"]
    made["advantages"] = torch.randn(B, 1).expand(B, T)
    made["old_log_probs"] = torch.randn(T, B).T
    made["ref_log_prob"] = torch.randn(B, 2 * T)[:, T:]
    torch.save(made, tmp_path / "x.pt")
    dump = one(tmp_path / "x.pt")
    for theirs, ours in (("returns", "returns"), ("advantages", "advantages"), ("ref_log_prob", "ref_log_probs")):
        same(dump.columns[ours], made[theirs])
    same(dump.columns["old_log_probs"], made["old_log_probs"])


# ── TRL, OpenRLHF ────────────────────────────────────────────────────────────────────────────────────────────────────


def trl_tensors() -> dict[str, torch.Tensor]:
    made = batch()
    padding = made["response_mask"] == 0
    p1 = torch.arange(T) > torch.tensor(LENGTHS)[:, None]
    logprobs = made["old_log_probs"].masked_fill(padding, 1.0)
    return {
        "queries": made["prompts"], "responses": made["responses"], "logprobs": logprobs,
        "ref_logprobs": made["ref_log_prob"].masked_fill(padding, 1.0), "values": made["values"],
        "scores": torch.randn(B), "rewards": made["token_level_rewards"], "advantages": made["advantages"],
        "returns": made["returns"], "padding_mask": padding, "padding_mask_p1": p1,
    }  # fmt: skip


def check_trl(dump: Dump, made: dict[str, torch.Tensor]) -> None:
    assert dump.source == "trl"
    same(dump.columns["response_mask"], ~made["padding_mask"])
    same(dump.columns["value_mask"], ~made["padding_mask_p1"])
    same(dump.columns["old_log_probs"], made["logprobs"])
    same(dump.columns["rewards"], made["rewards"])
    assert "scores" not in dump.columns
    np.testing.assert_array_equal(np.array(dump.rows["outcome"], np.float32), made["scores"].numpy())


def test_trl(tmp_path: Path) -> None:
    made = trl_tensors()
    torch.save(made | {"settings": {"gamma": 1.0, "pad_token_id": 0, "kl_coef": 0.05}}, tmp_path / "step12.pt")
    dump = one(tmp_path / "step12.pt")
    check_trl(dump, made)
    assert (dump.settings.beta, dump.settings.pad_id, dump.step) == (0.05, 0, 12)
    assert dump.rows["left_pad"] == [0, 1, 0, 0]


@dataclass
class Experience:
    """OpenRLHF's, pickled under its name."""

    sequences: Any = None
    attention_mask: Any = None
    action_mask: Any = None
    action_log_probs: Any = None
    base_action_log_probs: Any = None
    values: Any = None
    returns: Any = None
    advantages: Any = None
    kl: Any = None
    rewards: Any = None
    prompts: list[str] = field(default_factory=list)
    info: dict[str, Any] = field(default_factory=dict)


def experience(seed: int, whole: bool) -> tuple[Experience, dict[str, torch.Tensor]]:
    """`whole`: action columns over all of the sequence but its first token, as OpenRLHF does since 0.8."""
    made = batch(seed)
    pad = torch.zeros(B, P - 1)

    def wide(name: str) -> torch.Tensor:
        column = made[name]
        return torch.cat([pad.to(column.dtype), column], dim=1) if whole else column

    return Experience(
        sequences=made["input_ids"], attention_mask=made["attention_mask"], action_mask=wide("response_mask").bool(),
        action_log_probs=wide("old_log_probs"), base_action_log_probs=wide("ref_log_prob"), values=wide("values"),
        returns=wide("returns"), advantages=wide("advantages"), kl=wide("token_level_scores"),
        rewards=torch.arange(B).float(), info={"reward": torch.arange(B).float()}, prompts=["p"] * B,
    ), made  # fmt: skip


@pytest.mark.usefixtures("peers")
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("as_dict", [True, False])
def test_openrlhf(tmp_path: Path, whole: bool, as_dict: bool) -> None:
    (first, made), (second, more) = experience(0, whole), experience(1, whole)
    found: list[Any] = [vars(first), vars(second)] if as_dict else [first, second]
    torch.save(found, tmp_path / "x.pt")
    dump = one(tmp_path / "x.pt")
    assert dump.source == "openrlhf"
    assert dump.shape == (2 * B, T)
    for theirs, ours in (("responses", "token_ids"), ("old_log_probs", "old_log_probs"), ("returns", "returns")):
        same(dump.columns[ours], torch.cat([made[theirs], more[theirs]]))
    assert dump.rows["outcome"] == [0.0, 1.0, 2.0, 3.0] * 2
    assert dump.rows["micro_batch"] == [0] * B + [1] * B
    assert dump.rows["prompt_ids"][1] == made["prompts"][1, 1:].tolist()
    assert dump.rows["left_pad"][:B] == [0, 1, 0, 0]


# ── prime-rl, slime, NeMo RL ─────────────────────────────────────────────────────────────────────────────────────────


def prime_records(rank: int, step: int = 3) -> list[dict[str, Any]]:
    made = batch(rank)
    records: list[dict[str, Any]] = []
    for row, length in enumerate(LENGTHS):
        n = P + length
        records.append(
            {
                "schema_version": 1, "step": step, "export_step": step, "rank": rank, "micro_step": 0, "run_id": None,
                "token_ids": made["input_ids"][row, :n].tolist(), "position_ids": list(range(n)),
                "loss_mask": [False] * P + [True] * length, "advantages": [0.5 * row] * n, "losses": [{}] * n,
                "rewards": [float(row)] * n,
                "inference_logprobs": [0.0] * P + made["rollout_log_probs"][row, :length].tolist(),
                "trainer_logprobs": [None] * P + made["old_log_probs"][row, :length].tolist(),
                "entropy": [0.1] * n, "mismatch_kl": [None] * n, "importance_ratio": [1.0] * n,
            }
        )  # fmt: skip
    return records


def lines(path: Path, records: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_prime_rl(tmp_path: Path) -> None:
    for step in (10, 9):
        for rank in (0, 1):
            lines(tmp_path / f"token_exports/step_{step}/rank_{rank}.jsonl", prime_records(rank, step))
        (tmp_path / f"token_exports/step_{step}/STABLE").touch()
    dumps = open_dump(tmp_path)
    assert [dump.step for dump in dumps] == [9, 10]
    made = batch(0)
    dump = dumps[0]
    assert dump.source == "prime_rl"
    assert dump.shape == (2 * B, T)
    assert dump.rows["rank"] == [0] * B + [1] * B
    assert dump.rows["outcome"] == [0.0, 1.0, 2.0, 3.0] * 2
    assert dump.rows["prompt_ids"][2] == made["prompts"][2].tolist()
    same(dump.columns["token_ids"][:B], made["responses"])
    np.testing.assert_array_equal(
        dump.columns["old_log_probs"][:B], np.where(made["response_mask"], made["old_log_probs"].double(), 0)
    )
    assert not {"kl", "rewards"} & dump.columns.keys()
    assert not dump.remarks


def slime_rank(rank: int, rollout_id: int = 4) -> dict[str, Any]:
    made = batch(rank)

    def ragged(name: str) -> list[torch.Tensor]:
        return [made[name][row, :length] for row, length in enumerate(LENGTHS)]

    data = {
        "tokens": [made["input_ids"][row, : P + length] for row, length in enumerate(LENGTHS)],
        "loss_masks": [torch.ones(length, dtype=torch.int) for length in LENGTHS], "response_lengths": LENGTHS,
        "total_lengths": [P + length for length in LENGTHS], "sample_indices": [B * rank + i for i in range(B)],
        "rewards": [0.1] * B, "raw_reward": [1.0, 0.0, 1.0, 0.0], "truncated": [1, 0, 0, 0],
        "log_probs": ragged("old_log_probs"), "ref_log_probs": ragged("ref_log_prob"), "values": ragged("values"),
        "advantages": ragged("advantages"), "returns": ragged("returns"),
    }  # fmt: skip
    return {"rollout_id": rollout_id, "rank": rank, "rollout_data": data}


def test_slime(tmp_path: Path) -> None:
    for rank in (0, 1):
        torch.save(slime_rank(rank), tmp_path / f"4_{rank}.pt")
    samples = [
        {
            "index": i, "group_index": i // 2, "prompt": "问", "response": "答", "tokens": [1, 2, 3, 4],
            "response_length": 2, "reward": 1.0, "status": "completed", "rollout_log_probs": [-0.1, -0.2],
        }
        for i in reversed(range(2 * B + 1))
    ]  # fmt: skip
    torch.save({"rollout_id": 4, "samples": samples}, tmp_path / "rollout_4.pt")
    dump = one(tmp_path)
    assert dump.source == "slime"
    assert (dump.shape, dump.step) == ((2 * B, T), 4)
    assert dump.rows["group"] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert dump.rows["rank"] == [0] * B + [1] * B
    assert dump.rows["finish_reason"][:2] == ["length", "stop"]
    assert dump.rows["outcome"][:2] == [1.0, 0.0]
    assert dump.rows["rollout_ids"][0] == [3, 4]
    same(dump.columns["token_ids"][:B], batch(0)["responses"])
    same(dump.columns["values"][:B], batch(0)["values"] * batch(0)["response_mask"])
    assert "1 samples" in dump.remarks[0][1]


def test_slime_copies_of_tensor_parallel_ranks(tmp_path: Path) -> None:
    for rank in (0, 1):
        torch.save(slime_rank(0) | {"rank": rank}, tmp_path / f"4_{rank}.pt")
    dump = one(tmp_path)
    assert dump.shape == (B, T)
    assert not [remark for remark in dump.remarks if "missing" in remark[1] and "rank 0" in remark[1]]


def nemo_records() -> list[dict[str, Any]]:
    made = batch()
    width = P + T
    records = []
    for row, length in enumerate(LENGTHS):
        mask = [0] * P + [1] * length + [0] * (T - length)
        records.append(
            {
                "token_ids": [made["input_ids"][row].tolist()], "token_loss_mask": [mask],
                "sample_loss_mask": [0 if row == 3 else 1], "advantages": [[0.5] * width], "rewards": [float(row)],
                "generation_logprobs": [[0.0] * P + made["rollout_log_probs"][row].tolist()],
                "prev_logprobs": [[0.0] * P + made["old_log_probs"][row].tolist()], "input_lengths": [P + length],
                "content": ["text"], "idx": row,
            }
        )  # fmt: skip
    return records


def test_nemo_rl(tmp_path: Path) -> None:
    for step in (2, 10):
        lines(tmp_path / f"train_data_step{step}.jsonl", nemo_records())
    dumps = open_dump(tmp_path)
    assert [dump.step for dump in dumps] == [2, 10]
    made, dump = batch(), dumps[0]
    assert dump.source == "nemo_rl"
    same(dump.columns["token_ids"], made["responses"])
    same(dump.columns["attention_mask"], made["response_mask"].bool())
    same(dump.columns["rollout_log_probs"], made["rollout_log_probs"])
    assert dump.columns["loss_mask"].sum(axis=1).tolist() == [5, 3, 1, 0]
    assert dump.rows["outcome"] == [0.0, 1.0, 2.0, 3.0]
    assert dump.rows["prompt_ids"][0] == made["prompts"][0].tolist()


# ── our own ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def run_directory(root: Path, whiten: bool = True) -> Ledger:
    made = batch()
    mask = made["response_mask"].bool()
    ledger = Ledger(made["responses"], mask, rows={"uid": list("abcd"), "group": list("xxyy")})
    columns = {"old_log_probs": made["old_log_probs"], "scores": made["token_level_scores"]}
    columns |= {"rewards": made["token_level_rewards"], "values": made["values"], "advantages": made["advantages"]}
    ledger.fill(columns, {"returns": made["returns"]})
    if whiten:
        ledger.fill({"whitened_advantages": made["ref_log_prob"]})
    store = LedgerStore(root / "ledger")
    for step in (2, 1):
        store.write(step, ledger)
    config = {"estimator": "gae", "credit": {"gamma": 0.99, "lam": 0.9}, "kl": {"reward_coef": 0.01, "estimator": "k1"}}
    (root / "config.yaml").write_text(yaml.safe_dump(config | {"critic": {"value_clip": 0.5}}))
    lines(root / "metrics.jsonl", [{"step": s, "actor/pg_loss": 0.25 * s, "critic/kl_coeff": 0.02} for s in (1, 2)])
    return ledger


@pytest.mark.parametrize("place", ["", "ledger"])
def test_run_directory(tmp_path: Path, place: str) -> None:
    ledger = run_directory(tmp_path)
    dumps = open_dump(tmp_path / place)
    assert [dump.step for dump in dumps] == [1, 2]
    dump = dumps[1]
    assert dump.source == "mingce"
    same(dump.columns["advantages"], ledger["advantages"])
    same(dump.columns["whitened_advantages"], ledger["whitened_advantages"])
    same(dump.columns["values"], ledger["values"])
    assert dump.rows["group"] == list("xxyy")
    assert dump.settings.gamma == 0.99
    assert dump.settings.lam == 0.9
    assert dump.settings.beta == 0.02
    assert dump.scalars["pg_loss"] == 0.5


def test_chosen_steps(tmp_path: Path) -> None:
    run_directory(tmp_path / "run")
    assert [dump.step for dump in open_dump(tmp_path / "run", steps={2, 7})] == [2]
    with pytest.raises(DataError, match=r"steps \[9\]"):
        open_dump(tmp_path / "run", steps=[9])
    for step in (1, 2):
        torch.save(batch(), tmp_path / f"step_{step}.pt")
    (tmp_path / "run").rename(tmp_path / ".hidden")
    assert [dump.step for dump in open_dump(tmp_path, steps={1})] == [1]


def test_settings_of_a_wrong_type(tmp_path: Path) -> None:
    torch.save(batch() | {"settings": {"gamma": "x", "lam": float("nan"), "eos_id": 2.5}}, tmp_path / "x.pt")
    assert not {"gamma", "lam", "eos_id"} & one(tmp_path / "x.pt").settings.known().keys()
    with pytest.raises(SettingError, match="gamma"):
        open_dump(tmp_path / "x.pt", settings={"gamma": "x"})


def test_ledger_without_whitening(tmp_path: Path) -> None:
    ledger = run_directory(tmp_path, whiten=False)
    dump = one(tmp_path / "ledger" / "step-000001.parquet")
    same(dump.columns["advantages"], ledger["advantages"])
    assert "whitened_advantages" not in dump.columns
    assert dump.settings.gamma == 0.99


# ── generic, mappings, shards ────────────────────────────────────────────────────────────────────────────────────────


def plain_columns() -> dict[str, torch.Tensor]:
    made = batch()
    return {
        "token_ids": made["responses"], "eos_mask": made["response_mask"], "logprobs": made["old_log_probs"],
        "values": made["values"], "raw_advantages": made["returns"], "advantages": made["advantages"],
    }  # fmt: skip


def check_plain(dump: Dump, tail: bool = True) -> None:
    made = batch()
    assert dump.source == "generic"
    keep = np.ones((B, T), dtype=bool) if tail else made["response_mask"].bool().numpy()
    for theirs, ours in (
        ("old_log_probs", "old_log_probs"),
        ("returns", "advantages"),
        ("advantages", "whitened_advantages"),
    ):
        np.testing.assert_array_equal(dump.columns[ours], np.where(keep, made[theirs].numpy(), 0))
    same(dump.columns["response_mask"], made["response_mask"].bool())
    assert dump.settings.gamma == 0.9
    assert dump.rows["group"] == ["a", "a", "b", "b"]
    assert dump.rows["outcome"] == [1.0, 2.0, 3.0, 4.0]


def test_generic_containers(tmp_path: Path) -> None:
    columns = plain_columns()
    rows: dict[str, list[Any]] = {"group": ["a", "a", "b", "b"], "reward": [1.0, 2.0, 3.0, 4.0]}
    about = json.dumps({"gamma": 0.9})
    arrays = {name: column.numpy() for name, column in columns.items()}
    save_npz(tmp_path / "a.npz", arrays | {k: np.array(v) for k, v in rows.items()} | {"settings": np.array(about)})
    torch.save({"columns": columns, "rows": rows, "settings": {"gamma": 0.9}}, tmp_path / "b.parquet")
    lists = {k: [row[:n].tolist() for row, n in zip(v, LENGTHS, strict=True)] for k, v in columns.items()}
    records = [{k: v[i] for k, v in (lists | rows).items()} | {"gamma": 0.9} for i in range(B)]
    lines(tmp_path / "c.txt", records)
    half = {k: pa.array(v, pa.list_(pa.float32() if k != "token_ids" else pa.int32())) for k, v in lists.items()}
    pq.write_table(pa.table(half | rows).replace_schema_metadata({"settings": about}), tmp_path / "d.pt")
    for name, tail in (("a.npz", True), ("b.parquet", True), ("c.txt", False), ("d.pt", False)):
        check_plain(one(tmp_path / name), tail)


def test_whole_sequences_lose_their_prompts(tmp_path: Path) -> None:
    made = batch()
    pad = torch.zeros(B, P)
    whole = {name: torch.cat([pad, made[name].float()], dim=1).numpy() for name in ("response_mask", "advantages")}
    np.savez(
        tmp_path / "x", input_ids=made["input_ids"].numpy(), loss_mask=whole["response_mask"], adv=whole["advantages"]
    )
    (tmp_path / "names.yaml").write_text("columns: {adv: advantages}\nsettings: {lambda: 0.5}\n")
    dump = one(tmp_path / "x.npz", mapping=tmp_path / "names.yaml", settings={"gamma": 1.0})
    same(dump.columns["token_ids"], made["responses"])
    same(dump.columns["advantages"], made["advantages"])
    assert dump.rows["prompt_ids"][0] == made["prompts"][0].tolist()
    assert (dump.settings.lam, dump.settings.gamma) == (0.5, 1.0)


def test_mapping(tmp_path: Path) -> None:
    made = batch()
    torch.save({"m": made["response_mask"], "V": made["values"], "values": torch.zeros(B, T)}, tmp_path / "x.pt")
    names = tmp_path / "names.json"
    names.write_text(json.dumps({"columns": {"m": "response_mask", "V": "values"}}))
    same(one(tmp_path / "x.pt", mapping=names).columns["values"], made["values"])
    with pytest.raises(DataError, match="no response mask"):
        open_dump(tmp_path / "x.pt")
    names.write_text(json.dumps({"columns": {"m": "respons_mask"}}))
    with pytest.raises(UnknownNameError, match="response_mask"):
        open_dump(tmp_path / "x.pt", mapping=names)
    names.write_text(json.dumps({"columns": {"m": "response_mask", "gone": "values"}}))
    with pytest.raises(DataError, match="'gone'"):
        open_dump(tmp_path / "x.pt", mapping=names)


@pytest.mark.parametrize(
    "name", ["step_3_rank{}.pt", "step_3/rank_{}.pt", "step_3/dp{}/x.pt", "shard-0000{}-of-00004.pt"]
)
def test_shards(tmp_path: Path, name: str) -> None:
    for rank in (2, 0, 1, 3):
        path = tmp_path / name.format(rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(batch(rank), path)
    dump = one(tmp_path)
    assert dump.rows["rank"] == [rank for rank in range(4) for _ in range(B)]
    same(dump.columns["values"], torch.cat([batch(rank)["values"] for rank in range(4)]))
    assert dump.settings.world_size == 4
    assert not dump.remarks
    (tmp_path / name.format(1)).unlink()
    dump = one(tmp_path)
    assert dump.shape == (3 * B, T)
    assert "rank 1" in dump.remarks[0][0]
    assert "1 of 4 rank files" in dump.remarks[0][1]


def test_last_rank_missing_at_one_step(tmp_path: Path) -> None:
    for step, ranks in ((1, (0, 1, 2)), (2, (0, 1))):
        for rank in ranks:
            torch.save(batch(rank), tmp_path / f"step{step}-rank{rank}.pt")
    first, second = open_dump(tmp_path)
    assert not first.remarks
    assert "rank 2" in second.remarks[0][1]


def test_shards_of_different_width(tmp_path: Path) -> None:
    made = batch()
    narrow = {name: column[:2, :-1] if column.shape[1] > P else column[:2] for name, column in made.items()}
    narrow["values"] = narrow.pop("values")
    torch.save(narrow | {"extra": torch.zeros(2)}, tmp_path / "rank0.pt")
    torch.save({k: v for k, v in made.items() if k != "returns"}, tmp_path / "rank1.pt")
    dump = one(tmp_path)
    assert dump.shape == (2 + B, T)
    assert not dump.columns["response_mask"][:2, -1].any()
    assert "returns" not in dump.columns
    assert "returns" in dump.remarks[0][1]


def test_directory_with_other_files(tmp_path: Path) -> None:
    torch.save(batch(), tmp_path / "step_1.pt")
    (tmp_path / "config.json").write_text('{\n "a": 1\n}')
    (tmp_path / "notes.md").write_text("hello")
    save_file({"layer.weight": torch.zeros(2, 2)}, tmp_path / "model.safetensors")
    (tmp_path / "evil.pkl").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    assert len(open_dump(tmp_path)) == 1
    (tmp_path / "step_1.pt").unlink()
    with pytest.raises(DataError, match="no dump"):
        open_dump(tmp_path)


# ── mistakes, each with its place ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"responses": torch.full((B, T), float("nan"))}, "row 0, token 0"),
        ({"responses": torch.full((B, T), 0.5)}, "whole number"),
        ({"response_mask": torch.full((B, T), 2)}, "a mask is 0 or 1"),
        ({"values": torch.zeros(B, T - 1)}, "'values' has shape"),
        ({"values": torch.zeros(B - 1, T)}, "'values' has shape"),
        ({"responses": torch.full((B, T), -4)}, "negative"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, change: dict[str, torch.Tensor], said: str) -> None:
    torch.save(batch() | change, tmp_path / "x.pt")
    with pytest.raises(ColumnError, match=said) as error:
        open_dump(tmp_path / "x.pt")
    assert "x.pt" in str(error.value)


def test_ragged_rows_are_named(tmp_path: Path) -> None:
    lines(
        tmp_path / "x.jsonl",
        [{"response_mask": [1, 1], "values": [0.1, 0.2]}, {"response_mask": [1], "values": [1, 2]}],
    )
    with pytest.raises(ColumnError, match="'values' has 2 numbers in row 1") as error:
        open_dump(tmp_path / "x.jsonl")
    assert error.value.row == 1


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file"):
        open_dump(tmp_path / "x")


def test_empty_batch(tmp_path: Path) -> None:
    torch.save({name: column[:0] for name, column in batch().items()}, tmp_path / "x.pt")
    assert one(tmp_path / "x.pt").shape == (0, T)


# ── the lines that people paste ──────────────────────────────────────────────────────────────────────────────────────


def example(name: str) -> Any:
    path = Path(__file__).parent.parent / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_example_of_verl(tmp_path: Path) -> None:
    made = batch()
    proto = SimpleNamespace(batch=made, non_tensor_batch={"uid": np.array(list("aabb"), dtype=object)}, meta_info={})
    config = {
        "algorithm": {
            "gamma": 0.9,
            "lam": 0.8,
            "use_kl_in_reward": True,
            "kl_ctrl": {"kl_coef": 0.1},
            "kl_penalty": "kl",
        },
        "actor_rollout_ref": {"actor": {"clip_ratio": 0.2}, "rollout": {"n": 2}},
    }
    tokenizer = SimpleNamespace(eos_token_id=2, pad_token_id=0, bos_token_id=1)
    example("dump_from_verl").dump_verl(proto, str(tmp_path / "d" / "step_5.pt"), config, tokenizer, 5)
    dump = one(tmp_path / "d")
    check_verl(dump, made)
    assert dump.step == 5
    assert dump.rows["group"] == list("aabb")
    expected = {"gamma": 0.9, "lam": 0.8, "beta": 0.1, "kl_estimator": "k1", "clip": 0.2, "group_size": 2, "eos_id": 2}
    assert expected.items() <= dump.settings.known().items()


def test_example_of_trl(tmp_path: Path) -> None:
    made = trl_tensors()
    args = SimpleNamespace(
        gamma=1.0, lam=0.95, kl_coef=0.05, kl_estimator="k1", cliprange=0.2, cliprange_value=0.2, num_ppo_epochs=4,
        temperature=0.7, response_length=T,
    )  # fmt: skip
    tokenizer = SimpleNamespace(eos_token_id=2, pad_token_id=0)
    path = tmp_path / "step_5_rank0.npz"
    example("dump_from_trl").dump_trl(made | {"self": None}, str(path), args, tokenizer, 5)
    dump = one(path)
    check_trl(dump, made)
    assert dump.step == 5
    expected = {"lam": 0.95, "beta": 0.05, "value_clip": 0.2, "ppo_epochs": 4, "pad_id": 0}
    assert expected.items() <= dump.settings.known().items()
    assert dump.rows["left_pad"] == [0, 1, 0, 0]
