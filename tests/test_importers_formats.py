"""Dumps as current releases write them: verl's V1 trainer, TRL's GRPO, slime's one file, traces of prime-rl."""

from __future__ import annotations

import io
import json
import pickle
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from dump_batches import (
    LENGTHS,
    B,
    P,
    T,
    batch,
    experience,
    grpo_tensors,
    lines,
    nemo_records,
    one,
    same,
    slime_gathered,
    trace_updates,
    verifiers_episode,
)
from safetensors.numpy import save

from mingce.base.errors import ColumnError, DataError
from mingce.importers import open_dump
from mingce.importers.memory import dump_in_memory
from mingce.record.dump import Dump

# ── verl's V1 trainer ────────────────────────────────────────────────────────────────────────────────────────────────

V1 = {
    "rm_scores": "token_level_scores", "rollout_log_probs": "rollout_log_probs", "old_log_probs": "old_log_probs",
    "ref_log_prob": "ref_log_prob", "values": "values", "advantages": "advantages", "returns": "returns",
    "token_level_rewards": "token_level_rewards", "rollout_is_weights": "old_log_probs", "entropy": "values",
}  # fmt: skip


class Held:
    """A value of a TensorDict that is no tensor, pickled as tensordict pickles it."""

    def __init__(self, state: dict[str, Any]):
        self.state = state

    def __getstate__(self) -> dict[str, Any]:
        return self.state


class NonTensorData(Held):
    pass


class NonTensorStack(Held):
    pass


def data(value: Any) -> NonTensorData:
    return NonTensorData({"tensordict": {}, "non_tensordict": {"data": value, "_is_non_tensor": True}})


def v1_rows(name: str) -> list[torch.Tensor]:
    return [batch()[name][row, :length] for row, length in enumerate(LENGTHS)]


def v1_fields() -> dict[str, list[torch.Tensor]]:
    """TransferQueue's fields, a row each; the third token of the first response is a tool's."""
    prompts = [batch()["prompts"][row, row == 1 :] for row in range(B)]
    fields = {name: v1_rows(source) for name, source in V1.items()}
    fields |= {"prompts": prompts, "responses": v1_rows("responses"), "response_mask": v1_rows("response_mask")}
    fields["response_mask"][0] = torch.tensor([1, 1, 0, 1, 1])
    # as the engine left it: over prompt and response, and overwritten by the reference's pass
    fields["log_probs"] = [torch.zeros(P + length) for length in LENGTHS]
    return fields


@pytest.fixture
def tensordict(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("tensordict.tensorclass")
    for thing in (NonTensorData, NonTensorStack):
        monkeypatch.setattr(thing, "__module__", module.__name__)
        setattr(module, thing.__name__, thing)
    monkeypatch.setitem(sys.modules, "tensordict", types.ModuleType("tensordict"))
    monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.mark.usefixtures("tensordict")
@pytest.mark.parametrize("how", ["jagged", "strided", "lists", "old", "padded"])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_verl_v1(tmp_path: Path, how: str) -> None:
    fields: dict[str, Any] = dict(v1_fields())
    if how in ("jagged", "strided", "old"):
        layout = torch.strided if how == "strided" else torch.jagged
        fields = {name: torch.nested.as_nested_tensor(rows, layout=layout) for name, rows in fields.items()}
    elif how == "padded":
        fields = {name: torch.nn.utils.rnn.pad_sequence(rows, batch_first=True) for name, rows in fields.items()}
    uid = NonTensorStack({"tensordicts": [data(name) for name in "aabb"], "stack_dim": 0})
    about = {"uid": uid, "temperature": data(0.7), "global_steps": data(12)}
    torch.save(fields | about, tmp_path / "x.pt", _use_new_zipfile_serialization=how != "old")
    dump = one(tmp_path / "x.pt")
    assert (dump.source, dump.shape, dump.step) == ("verl", (B, T), 12)
    assert dump.mask.astype(int).tolist()[0] == [1, 1, 0, 1, 1]
    assert dump.mask.sum(axis=1).tolist() == [4, 3, 1, 4]
    if how != "padded":
        same(dump.columns["attention_mask"], batch()["response_mask"].bool())
        assert dump.rows["prompt_ids"][1] == batch()["prompts"][1, 1:].tolist()
    kept = batch()["response_mask"]
    for theirs, ours in (("token_level_scores", "scores"), ("ref_log_prob", "ref_log_probs"), ("values", "entropy")):
        same(dump.columns[ours], batch()[theirs] * kept)
    same(dump.columns["old_log_probs"], batch()["old_log_probs"] * kept)
    same(dump.columns["importance_weights"], batch()["old_log_probs"] * kept)
    assert dump.rows["group"] == list("aabb")
    assert dump.settings.temperature == 0.7


def test_a_nested_row_of_another_length_is_named(tmp_path: Path) -> None:
    fields = v1_fields()
    fields["values"][2] = torch.zeros(9)
    torch.save(fields, tmp_path / "x.pt")
    with pytest.raises(ColumnError, match="'values' has 9 numbers in row 2 where the row has 1 tokens"):
        open_dump(tmp_path / "x.pt")


# ── TRL's GRPO ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["batch", "buffered", "beside", "lists"])
def test_trl_grpo(tmp_path: Path, how: str) -> None:
    made = grpo_tensors()
    content: Any = made
    if how == "buffered":  # the step's batch, shuffled and split
        order = torch.tensor([2, 0, 3, 1])
        rows = {name: tensor[order] if tensor.ndim else tensor for name, tensor in made.items()}
        content = [{k: v[2 * i : 2 * i + 2] if v.ndim else v for k, v in rows.items()} for i in range(2)]
    elif how == "beside":
        settings = {"beta": 0.04, "num_generations": 2, "epsilon": 0.2, "epsilon_high": 0.28}
        content = {"inputs": made, "rewards": [1.0, 0.0, 1.0, 0.5], "settings": settings, "step": 9,
                   "metrics": {"kl": 0.25, "clip_ratio/region_mean": 0.125}}  # fmt: skip
    elif how == "lists":
        content = {name: tensor.tolist() for name, tensor in made.items()}
    torch.save(content, tmp_path / "x.pt")
    dump = one(tmp_path / "x.pt")
    assert (dump.source, dump.shape) == ("trl_grpo", (B, T))
    at = [1, 3, 0, 2] if how == "buffered" else list(range(B))  # where the rows of the batch went
    chosen = (made["completion_mask"] * made["tool_mask"]).bool().numpy()
    np.testing.assert_array_equal(dump.mask[at], chosen)
    np.testing.assert_array_equal(dump.columns["attention_mask"][at], made["completion_mask"].bool().numpy())
    np.testing.assert_array_equal(dump.columns["advantages"][at], made["advantages"].numpy()[:, None] * chosen)
    np.testing.assert_array_equal(dump.columns["old_log_probs"][at], made["old_per_token_logps"].numpy())
    weights = made["importance_sampling_ratio"].numpy()
    np.testing.assert_array_equal(dump.columns["importance_weights"][at], weights * chosen)
    groups = [dump.rows["group"][row] for row in at]
    assert (groups[0], groups[2]) == (groups[1], groups[3])
    assert groups[0] != groups[2]
    assert dump.rows["prompt_ids"][at[2]] == made["prompt_ids"][2, 1:].tolist()
    assert not dump.remarks
    if how == "buffered":
        assert dump.rows["micro_batch"] == [0, 0, 1, 1]
    if how == "beside":
        expected = {"kl_loss_coef": 0.04, "group_size": 2, "clip": 0.2, "clip_high": 0.28}
        assert expected.items() <= dump.settings.known().items()
        assert dump.settings.beta is None
        assert dump.rows["outcome"] == [1.0, 0.0, 1.0, 0.5]
        assert dump.step == 9
        assert dump.scalars == {"kl_mean": 0.25, "pg_clipfrac": 0.125}


# ── SkyRL ────────────────────────────────────────────────────────────────────────────────────────────────────────────

SKYRL = "skyrl.backends.skyrl_train.training_batch"


def _rebuild_tensor_batch(kind: type, state: dict[str, Any]) -> Any:
    raise AssertionError("nothing of a pickle is called")


class TrainingInputBatch:
    """SkyRL's batch as its class pickles itself: since 0.2 by a function, before that as a dict with a state."""

    def __init__(self, state: dict[str, Any]):
        self.state = state

    def __reduce__(self) -> Any:
        return _rebuild_tensor_batch, (TrainingInputBatch, self.state)


class OlderInputBatch(Held):
    pass


def skyrl_state(**about: Any) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Responses at the right edge, tool output within row 0, nothing trained on in row 1, one row of filling."""
    made = batch(0)
    width = made["responses"].shape[1]
    there = torch.stack([torch.arange(width) >= width - length for length in LENGTHS])

    def moved(name: str) -> torch.Tensor:
        rows = [row.roll(width - n) for row, n in zip(made[name], LENGTHS, strict=True)]
        return torch.stack([*rows, rows[0]])

    loss_mask = there.long()
    loss_mask[0, width - LENGTHS[0] + 1] = 0
    loss_mask[1] = 0
    before = [made["prompts"][row][made["attention_mask"][row, :P].bool()] for row in range(B)]
    whole = [torch.cat([before[row], made["responses"][row, : LENGTHS[row]]]) for row in range(B)]
    sequences = torch.zeros(B + 1, P + width, dtype=torch.long)
    for row, ids in enumerate([*whole, whole[0]]):
        sequences[row, P + width - len(ids) :] = ids
    tensors = {
        "sequences": sequences, "attention_mask": (sequences != 0).long(),
        "response_mask": torch.cat([there, there[:1]]).long(), "loss_mask": torch.cat([loss_mask, loss_mask[:1] * 0]),
        "action_log_probs": moved("old_log_probs"), "values": moved("values").bfloat16(),
        "returns": moved("returns"), "advantages": moved("advantages"),
    }  # fmt: skip

    def stored(value: torch.Tensor) -> dict[str, Any]:
        if value.dtype == torch.bfloat16:
            torch.save(value, buffer := io.BytesIO())
            return {"format": "torch", "data": buffer.getvalue()}
        array = value.numpy()
        return {"format": "numpy", "data": array.tobytes(), "shape": array.shape, "dtype": str(array.dtype)}

    kept: dict[str, Any] = {name: stored(value) for name, value in tensors.items()}
    kept |= {"base_action_log_probs": None, "pixel_values": {"format": "tensor_list", "items": []}}
    metadata = {"pad_size": 1, "policy_prompt_boundaries": [(0, 1), (1, B)], "metrics": {}} | about
    return {"batch_dict": kept, "batch_size": B + 1, "device": None, "metadata": metadata}, made


@pytest.mark.parametrize("kind", [TrainingInputBatch, OlderInputBatch])
def test_skyrl(kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = types.ModuleType(SKYRL)
    for thing in (TrainingInputBatch, OlderInputBatch, _rebuild_tensor_batch):
        monkeypatch.setattr(thing, "__module__", SKYRL)
        setattr(home, thing.__name__, thing)
    monkeypatch.setitem(sys.modules, SKYRL, home)
    for parent in ("skyrl", "skyrl.backends", "skyrl.backends.skyrl_train"):
        monkeypatch.setitem(sys.modules, parent, types.ModuleType(parent))
    state, made = skyrl_state()
    (tmp_path / "global_step_4_training_input.pkl").write_bytes(pickle.dumps(kind(state)))
    dump = one(tmp_path)
    assert (dump.source, dump.shape, dump.step) == ("skyrl", (B, max(LENGTHS)), 4)
    assert dump.rows["group"] == [0, *[1] * (B - 1)]
    width = max(LENGTHS)
    there = np.arange(width) < np.array(LENGTHS)[:, None]
    same(dump.columns["attention_mask"], torch.tensor(there))
    chosen = there.copy()
    chosen[0, 1] = False  # and row 1, which is not trained on, is all the policy's
    same(dump.columns["response_mask"], torch.tensor(chosen))
    same(dump.columns["token_ids"], made["responses"][:, :width] * torch.tensor(there))
    same(dump.columns["advantages"], made["advantages"][:, :width] * torch.tensor(there))
    assert dump.stored["values"] == "bfloat16"
    assert not dump.columns["loss_mask"][1].any()
    prompts = [made["prompts"][row][made["attention_mask"][row, :P].bool()].tolist() for row in range(B)]
    assert dump.rows["prompt_ids"] == prompts


def test_skyrl_with_what_is_watched() -> None:
    state, _ = skyrl_state(uids=["a", "a", "b", "b", "a"], is_last_step=[False, True, True, False, True])
    dump = dump_in_memory(
        {"batch_dict": state["batch_dict"], "metadata": state["metadata"], "settings": {"gamma": 0.9}}
    )
    assert (dump.rows["group"], dump.rows["conversation"]) == (["a", "a", "b", "b"], [0, 0, 1, 2])
    assert dump.settings.gamma == 0.9


# ── slime, OpenRLHF, NeMo RL ─────────────────────────────────────────────────────────────────────────────────────────


def test_slime_has_no_kl_where_it_computed_none(tmp_path: Path) -> None:
    """With --kl-coef 0 and --use-kl-loss its KL is zeros, whatever the log-probs say."""
    content = slime_gathered()
    for sample in content["samples"]:
        sample["kl"] = torch.zeros_like(sample["log_probs"])
    torch.save(content, tmp_path / "4.pt")
    dump = one(tmp_path / "4.pt")
    assert "ref_log_probs" in dump.columns
    assert "kl" not in dump.columns


def test_slime_in_one_file(tmp_path: Path) -> None:
    (tmp_path / "train_data").mkdir()
    (tmp_path / "rollout_data").mkdir()
    torch.save(slime_gathered(), tmp_path / "train_data/4.pt")
    order = [B * (place % 2) + place // 2 for place in range(2 * B)]  # the sample indices in the rollout's order
    samples = [
        {"index": i, "group_index": i // 2, "prompt": "问", "response": "答", "tokens": [1, 2, 3, 4], "loss_mask": None,
         "response_length": 2, "reward": 1.0, "status": "truncated", "rollout_log_probs": [-0.1, -0.2]}
        for i in order
    ]  # fmt: skip
    torch.save({"rollout_id": 4, "samples": samples}, tmp_path / "rollout_data/4.pt")
    others = [sample | {"index": 1000 + i} for i, sample in enumerate(samples)]
    torch.save({"rollout_id": 4, "samples": others}, tmp_path / "rollout_data/eval_4.pt")
    dump = one(tmp_path)
    assert (dump.source, dump.shape, dump.step) == ("slime", (2 * B, T), 4)
    assert dump.rows["rank"] == [0, 1] * B
    assert dump.rows["group"] == [i // 2 for i in order]
    assert dump.rows["outcome"] == [float(place) for place in range(2 * B)]
    assert dump.rows["micro_batch"] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert dump.rows["rollout_ids"][0] == [3, 4]
    assert dump.settings.world_size == 2
    same(dump.columns["token_ids"][::2], batch(0)["responses"])
    same(dump.columns["values"][1::2], batch(1)["values"] * batch(1)["response_mask"])
    assert not dump.remarks
    alone = one(tmp_path / "train_data/4.pt")
    assert alone.shape == (2 * B, T)


def test_openrlhf_of_today(tmp_path: Path) -> None:
    """Since 0.11 an Experience has its samples' indices, scores a row, and neither KL nor reference once it is used."""
    (first, made), (second, _) = experience(0, True), experience(1, True)
    for number, item in enumerate((first, second)):
        item.kl = item.base_action_log_probs = None
        item.info = {"reward": torch.full((B,), 9.0)}  # before penalties for length
        fields = vars(item)
        fields |= {"index": [B * number + i for i in reversed(range(B))], "scores": torch.ones(B)}
        fields |= {"truncated": torch.tensor([True, False, False, False]), "response_length": torch.tensor(LENGTHS)}
    content = {"experiences": [vars(first), vars(second)], "settings": {"n_samples_per_prompt": 2}, "step": 6}
    torch.save(content, tmp_path / "x.pt")
    dump = one(tmp_path / "x.pt")
    assert (dump.source, dump.step) == ("openrlhf", 6)
    assert dump.rows["outcome"] == [0.0, 1.0, 2.0, 3.0] * 2
    assert dump.rows["uid"] == [3, 2, 1, 0, 7, 6, 5, 4]
    assert dump.rows["group"] == [1, 1, 0, 0, 3, 3, 2, 2]
    assert dump.rows["finish_reason"][:2] == ["length", "stop"]
    assert not {"scores", "kl", "ref_log_probs"} & dump.columns.keys()
    same(dump.columns["returns"][:B], made["returns"])


def test_nemo_rl_with_dynamic_sampling(tmp_path: Path) -> None:
    records = [record | {"filtered_rewards": [10.0 + i], "agent_ref": [{"name": "a"}]}
               for i, record in enumerate(nemo_records())]  # fmt: skip
    lines(tmp_path / "train_data_step3.jsonl", records)
    dump = one(tmp_path)
    assert (dump.source, dump.step) == ("nemo_rl", 3)
    assert dump.rows["outcome"] == [10.0, 11.0, 12.0, 13.0]


# ── prime-rl's and verifiers' traces ─────────────────────────────────────────────────────────────────────────────────


def write_traces(run: Path, *, chunked: bool) -> None:
    """A run of prime-rl: three rollouts shipped at step 3, one at step 4, an evaluation, and one never trained on."""
    home = run / "monitors/file/traces"
    episodes = [verifiers_episode(row) for row in range(B)]
    other = json.loads(json.dumps(verifiers_episode(0)).replace("train0", "train9"))
    updates = [trace_updates(row, 4 if row == 2 else 3, trained=6 if row == 3 else None) for row in range(B)]
    streams: dict[str, list[Any]] = {
        "stream": [*episodes, verifiers_episode(1, "eval"), other],
        "annotations/orch": [update for update, _ in updates],
        "annotations/trainer": [update for _, update in updates],
    }
    for name, records in streams.items():
        if not chunked:
            lines(home / f"{name}.jsonl", records)
            lines(home / f"{name}.index.jsonl", [{"trace_id": "x", "offset": 0}])
            continue
        half = len(records) // 2
        lines(home / name / "00000.jsonl", records[:half])
        sealed = home / name / "00000.jsonl"
        with pa.output_stream(f"{sealed}.zst", compression="zstd") as file:
            file.write(sealed.read_bytes())
        sealed.unlink()
        lines(home / name / "00001.jsonl", records[half:])
        lines(home / f"{name}.index.jsonl", [{"trace_id": "x", "chunk": 0, "offset": 0}])
    live = home / ("stream/00001.jsonl" if chunked else "stream.jsonl")
    live.write_bytes(live.read_bytes() + b'{"id": "torn')


def check_traced(dump: Dump, rows: list[int]) -> None:
    made = batch()
    assert dump.source == "prime_rl"
    assert dump.rows["uid"] == [f"train{row}/0" for row in rows]
    assert dump.rows["group"] == [f"g{row // 2}" for row in rows]
    assert dump.rows["outcome"] == [0.5 * row for row in rows]
    assert dump.rows["policy_version"] == [1] * len(rows)
    for at, row in enumerate(rows):
        chosen = dump.mask[at]
        count = 2 if row == 3 else LENGTHS[row]  # the trainer saw only six tokens of the last one
        assert chosen.sum() == count
        np.testing.assert_array_equal(dump.columns["token_ids"][at][chosen], made["responses"][row, :count])
        log_probs = made["rollout_log_probs"][row, :count].double()
        np.testing.assert_array_equal(dump.columns["rollout_log_probs"][at][chosen], log_probs)
        np.testing.assert_array_equal(dump.columns["old_log_probs"][at], np.where(chosen, -0.25, 0))
        np.testing.assert_array_equal(dump.columns["advantages"][at], np.where(chosen, 0.5 - row, 0))
        assert dump.rows["prompt_ids"][at] == made["prompts"][row].tolist()


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("place", ["", "monitors/file", "monitors/file/traces"])
def test_prime_rl_traces(tmp_path: Path, chunked: bool, place: str) -> None:
    write_traces(tmp_path, chunked=chunked)
    third, fourth = open_dump(tmp_path / place)
    assert (third.step, fourth.step) == (3, 4)
    check_traced(third, [0, 1, 3])
    check_traced(fourth, [2])
    assert third.mask[0].astype(int).tolist() == [1, 1, 0, 0, 0, 1, 1, 1]  # the tool's two tokens and a template's
    assert third.rows["finish_reason"] == ["stop", "length", "stop"]
    assert "2 rows were not trained on" in third.remarks[0][1]
    assert [dump.step for dump in open_dump(tmp_path / place, steps=[4])] == [4]
    with pytest.raises(DataError, match=r"steps \[7\]"):
        open_dump(tmp_path / place, steps=[7])


@pytest.mark.parametrize("alone", [True, False])
def test_verifiers_traces(tmp_path: Path, alone: bool) -> None:
    records = [verifiers_episode(row) for row in range(B)]
    lines(tmp_path / "traces.jsonl", [record["traces"][0] for record in records] if alone else records)
    dump = one(tmp_path / "traces.jsonl")
    assert dump.source == "verifiers"
    assert dump.mask.sum(axis=1).tolist() == LENGTHS
    assert dump.rows["outcome"] == [0.0, 0.5, 1.0, 1.5]
    assert dump.rows.get("group") == (None if alone else ["g0", "g0", "g1", "g1"])
    assert not {"advantages", "old_log_probs"} & dump.columns.keys()


def test_branches_of_a_trace_are_rows(tmp_path: Path) -> None:
    episode = verifiers_episode(0)
    nodes = episode["traces"][0]["nodes"]
    nodes.append({"parent": 1, "token_ids": [40, 41], "mask": [False, True], "logprobs": [-0.5]})
    lines(tmp_path / "x.jsonl", [episode, verifiers_episode(1)])
    dump = one(tmp_path / "x.jsonl")
    assert dump.rows["uid"] == ["train0/0", "train0/1", "train1/0"]
    assert dump.mask.sum(axis=1).tolist() == [5, 3, 3]
    assert dump.columns["rollout_log_probs"][1][3] == -0.5


def test_traces_without_tokens_say_so(tmp_path: Path) -> None:
    lines(tmp_path / "x.jsonl", [{"task": {}, "nodes": [{"message": {"role": "user"}}]}])
    with pytest.raises(DataError, match="without token ids"):
        open_dump(tmp_path / "x.jsonl")


def test_one_line_of_json_may_be_a_whole_batch(tmp_path: Path) -> None:
    batch = {"response_mask": [[1, 1, 0], [1, 1, 1]], "values": [[0.5, 0.25, 0.0], [1.0, 2.0, 3.0]]}
    (tmp_path / "batch.json").write_text(json.dumps(batch) + "\n")
    (dump,) = open_dump(tmp_path / "batch.json")
    assert dump.columns["values"].tolist() == batch["values"]
    grpo = {"completion_ids": [[5, 6], [7, 8]], "completion_mask": [[1, 1], [1, 0]], "prompt_ids": [[1, 2], [1, 2]]}
    (tmp_path / "grpo.json").write_text(json.dumps(grpo | {"advantages": [1.0, -1.0]}))
    (dump,) = open_dump(tmp_path / "grpo.json")
    assert (dump.source, dump.shape) == ("trl_grpo", (2, 2))


def test_a_trainers_batch_in_a_table_keeps_what_was_laid_beside_it(tmp_path: Path) -> None:
    """New log-probs under our name, settings and scalars in Parquet's metadata, settings repeated on JSON's lines."""
    rows = [
        {"completion_ids": [5, 6], "completion_mask": [1, 1], "prompt_ids": [1, 2], "new_log_probs": [-0.5, -0.25]},
        {"completion_ids": [7, 8], "completion_mask": [1, 1], "prompt_ids": [1, 2], "new_log_probs": [-1.0, -2.0]},
    ]
    about = {
        "settings": json.dumps({"epsilon": 0.3, "scale_rewards": "batch"}),
        "scalars": json.dumps({"pg_loss": 0.5}),
    }
    pq.write_table(pa.Table.from_pylist(rows).replace_schema_metadata(about), tmp_path / "x.parquet")
    (dump,) = open_dump(tmp_path / "x.parquet")
    assert dump.columns["new_log_probs"].tolist() == [[-0.5, -0.25], [-1.0, -2.0]]
    assert (dump.settings.clip, dump.settings.std_over, dump.scalars) == (0.3, "batch", {"pg_loss": 0.5})
    lines = [json.dumps(row | {"epsilon": 0.3, "norm_adv_by_std_in_grpo": False}) for row in rows]
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    (dump,) = open_dump(tmp_path / "x.jsonl")
    assert (dump.source, dump.settings.clip, dump.settings.std_over) == ("trl_grpo", 0.3, "none")


def test_safetensors_whose_length_begins_as_a_pickle_does(tmp_path: Path) -> None:
    """The first eight bytes are the header's length, and 0x280 is written 80 02."""
    path = tmp_path / "batch.safetensors"
    columns = {"response_mask": np.ones((2, 3), np.float32), "values": np.zeros((2, 3), np.float32)}
    for protocol in (2, 3, 4, 5):
        for filling in range(2000):
            text = save(columns, {"about": "x" * filling})
            if text[:2] == bytes([0x80, protocol]):
                break
        path.write_bytes(text)
        assert open_dump(path)[0].shape == (2, 3), protocol


def test_a_batch_in_json_reads_as_the_same_arrays_do(tmp_path: Path) -> None:
    """Left-padded prompts, an attention mask over prompt and response, positions: as verl has them, and TRL's PPO."""
    batch = {
        "prompts": [[0, 2, 10], [2, 11, 12]], "responses": [[5, 1, 0], [6, 7, 1]],
        "attention_mask": [[0, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1]], "response_mask": [[1, 1, 0], [1, 1, 1]],
        "position_ids": [[0, 0, 1, 2, 3, 3], [0, 1, 2, 3, 4, 5]],
        "old_log_probs": [[-0.5, -0.25, 0.0], [-1.0, -0.5, -0.125]],
        "advantages": [[0.5, 0.25, 0.0], [-1.0, -0.5, 0.125]],
    }  # fmt: skip
    trl = {
        "queries": [[0, 2], [2, 3]], "responses": [[5, 1, 0], [6, 7, 1]],
        "padding_mask": [[False, False, True], [False] * 3],
        "logprobs": batch["old_log_probs"], "advantages": batch["advantages"],
    }  # fmt: skip
    for name, content in (("verl", batch), ("trl", trl)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
        arrays: dict[str, Any] = {key: np.array(rows) for key, rows in content.items()}
        np.savez(tmp_path / f"{name}.npz", **arrays)
        (told,), (stored,) = open_dump(tmp_path / f"{name}.json"), open_dump(tmp_path / f"{name}.npz")
        assert told.columns.keys() == stored.columns.keys()
        assert all((told.columns[key] == stored.columns[key]).all() for key in told.columns)
        assert told.rows == stored.rows
