"""Dumps of every trainer, written as it writes them and read back number for number; and the lines people paste."""

from __future__ import annotations

import pickle
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dump_batches import (
    B,
    Experience,
    P,
    T,
    batch,
    experience,
    lines,
    nemo_records,
    one,
    prime_records,
    same,
    slime_rank,
    trl_tensors,
)
from npz import save_npz
from safetensors.torch import save_file

from mingce.importers import open_dump
from mingce.record.dump import Dump


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
