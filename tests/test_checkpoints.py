"""Checkpoints: whole or not there, verified, and exact to the last bit."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from checkpoint_steps import is_whole, never, save_step
from safetensors import safe_open
from torch import Tensor

from mingce.base.errors import RunError
from mingce.base.places import step_name
from mingce.record.checkpoints import Checkpoint, best_step, load, load_newest, save
from mingce.record.run import Run
from mingce.roles.optimizer_state import flatten_optimizer, restore_optimizer

# ── saving and loading ───────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_saved_is_loaded(run: Run) -> None:
    assert load_newest(run, never) is None
    path = save_step(run, 12, score=0.5)
    assert path == run.path / "checkpoints" / "step-000012"
    checkpoint = load_newest(run, never)
    assert is_whole(checkpoint)
    assert checkpoint is not None
    assert (checkpoint.step, checkpoint.score) == (12, 0.5)
    assert checkpoint.libraries["torch"] == torch.__version__
    assert is_whole(load(run, 12))
    assert {entry.name for entry in path.iterdir()} == {
        "actor.safetensors", "critic.safetensors", "state.json", "manifest.json"
    }  # fmt: skip


def test_other_programs_read_the_files_and_every_type_survives(run: Run) -> None:
    given = {
        "f32": torch.tensor([[0.0, -0.0, float("nan"), float("inf")]]),
        "turned": torch.arange(12.0).reshape(3, 4).T,
        "none": torch.zeros(0, 3),
        "scalar": torch.tensor(7.0),
        "flags": torch.tensor([True, False, True]),
        "odd": torch.arange(3, dtype=torch.int8),
        "half": torch.randn(5).half(),
        "bf": torch.randn(5).bfloat16(),
        "double": torch.randn(3).double(),
        "long": torch.tensor([2**62, -1]),
        "needs_grad": torch.nn.Parameter(torch.randn(2)),
    }
    given["tied"] = given["f32"]
    path = save(run, 0, tensors={"all": given}, state={})
    with safe_open(path / "all.safetensors", framework="pt") as file:
        assert set(file.keys()) == set(given)
        found = {name: file.get_tensor(name) for name in given}
    assert load(run, 0).tensors["all"].keys() == given.keys()
    for name, tensor in given.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        flat, expected = found[name].reshape(-1), tensor.detach().contiguous().reshape(-1)
        assert torch.equal(flat.view(torch.uint8), expected.view(torch.uint8)), name


def test_changing_a_loaded_tensor_does_not_touch_the_disk(run: Run) -> None:
    save_step(run, 1)
    load(run, 1).tensors["actor"]["weight"].add_(1)
    assert is_whole(load(run, 1))


def test_a_missing_step_names_those_there(run: Run) -> None:
    save_step(run, 3)
    save_step(run, 6)
    with pytest.raises(RunError, match="no checkpoint of step 4; there are: 3, 6"):
        load(run, 4)


def test_state_that_json_would_change_is_refused(run: Run) -> None:
    for wrong in ({"counts": {1: 2}}, {"tensor": torch.zeros(1)}, {"raw": b"x"}):
        with pytest.raises(AssertionError, match="unchanged"):
            save(run, 0, tensors={}, state=wrong)


def test_a_checkpoint_of_a_newer_format_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mingce.record.checkpoints.FORMAT", 3)
    save_step(run, 1)
    monkeypatch.undo()
    with pytest.raises(RunError, match="newer; update mingce"):
        load_newest(run, never)


# ── which ones are kept ──────────────────────────────────────────────────────────────────────────────────────────────


def test_the_last_and_the_best_are_kept(run: Run) -> None:
    for step, score in enumerate([0.1, 0.9, 0.3, float("nan"), None, 0.2]):
        save_step(run, step, score=score, keep_last=2, keep_best=1)
    assert run.checkpoint_steps() == [1, 4, 5]
    assert best_step(run) == 1
    save_step(run, 6, score=0.9, keep_last=1, keep_best=2)
    assert run.checkpoint_steps() == [1, 6]
    assert best_step(run) == 6
    save_step(run, 7, keep_last=1, keep_best=0)
    assert run.checkpoint_steps() == [7]
    assert best_step(run) is None


def test_a_damaged_checkpoint_is_not_counted_among_the_kept(run: Run) -> None:
    for step in (1, 2):
        save_step(run, step)
    (run.checkpoints_path / step_name(2) / "actor.safetensors").write_bytes(b"")
    save_step(run, 3, keep_last=2)
    assert run.checkpoint_steps() == [1, 3]


def test_a_whole_checkpoint_of_the_same_step_stays_and_a_damaged_one_is_replaced(run: Run) -> None:
    path = save_step(run, 1, keep_last=1)
    inode = path.stat().st_ino
    save_step(run, 1, keep_last=1)
    assert path.stat().st_ino == inode
    (path / "state.json").unlink()
    save_step(run, 1, keep_last=1)
    assert is_whole(load(run, 1))


def test_rewinding_forgets_newer_checkpoints(run: Run) -> None:
    for step in (1, 2, 3):
        save_step(run, step, keep_last=3)
    run.rewind(2)
    assert run.checkpoint_steps() == [1, 2]


# ── damage ───────────────────────────────────────────────────────────────────────────────────────────────────────────

FILES = ["actor.safetensors", "critic.safetensors", "state.json", "manifest.json"]


@pytest.fixture
def two(run: Run) -> Run:
    """A run with whole checkpoints of steps 1 and 2."""
    save_step(run, 1)
    save_step(run, 2)
    return run


def falls_back(run: Run, file: str) -> None:
    told: list[str] = []
    checkpoint = load_newest(run, told.append)
    assert is_whole(checkpoint)
    assert checkpoint is not None
    assert checkpoint.step == 1
    (message,) = told
    assert message.startswith("checkpoint step-000002 of ")
    assert message.endswith("falling back to step-000001")
    assert file in message or "its manifest is that of" in message


@pytest.mark.parametrize("file", FILES)
def test_one_flipped_bit_anywhere_is_found(two: Run, file: str) -> None:
    path = two.checkpoints_path / step_name(2) / file
    good = path.read_bytes()
    chance = random.Random(file)
    for offset in [0, 7, len(good) - 1, *(chance.randrange(len(good)) for _ in range(30))]:
        bad = bytearray(good)
        bad[offset] ^= 1 << chance.randrange(8)
        path.write_bytes(bad)
        falls_back(two, file)
    path.write_bytes(good)
    assert is_whole(load_newest(two, never))


@pytest.mark.parametrize("file", FILES)
def test_a_cut_or_missing_file_is_found(two: Run, file: str) -> None:
    path = two.checkpoints_path / step_name(2) / file
    good = path.read_bytes()
    for length in (0, 1, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:length])
        falls_back(two, file)
    path.write_bytes(good + b"\0")
    falls_back(two, file)
    path.unlink()
    falls_back(two, file)
    with pytest.raises(RunError, match=f"step-000002 of .* is damaged: .*{file} is missing"):
        load(two, 2)


def test_the_manifest_of_another_step_does_not_pass(two: Run) -> None:
    shutil.copy(two.checkpoints_path / step_name(1) / "manifest.json", two.checkpoints_path / step_name(2))
    falls_back(two, "manifest.json")


def test_all_damaged_is_an_error_that_names_each(two: Run) -> None:
    for step in (1, 2):
        (two.checkpoints_path / step_name(step) / "state.json").unlink()
    told: list[str] = []
    with pytest.raises(RunError, match=r"no checkpoint of .*step-000002 is damaged: state.json is missing, step-0"):
        load_newest(two, told.append)
    assert len(told) == 1


# ── exact continuation ───────────────────────────────────────────────────────────────────────────────────────────────


def make_adamw(model: torch.nn.Module) -> torch.optim.Optimizer:
    first, *rest = list(model.parameters())
    groups: list[dict[str, Any]] = [{"params": [first], "lr": 0.03, "betas": (0.8, 0.9)}, {"params": rest}]
    return torch.optim.AdamW(groups, lr=0.01)


OPTIMIZERS: dict[str, Callable[[torch.nn.Module], torch.optim.Optimizer]] = {
    "adamw": make_adamw,
    "amsgrad": lambda model: torch.optim.AdamW(model.parameters(), amsgrad=True, foreach=False, weight_decay=0.1),
    "tensor lr": lambda model: torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.02), foreach=False),
    "momentum": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    "fused": lambda model: torch.optim.AdamW(model.parameters(), fused=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_goes_on_to_the_same_bits(run: Run, name: str) -> None:
    def start(seed: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(seed)
        first, last = torch.nn.Linear(5, 7), torch.nn.Linear(7, 1)
        model = torch.nn.Sequential(first, torch.nn.Tanh(), torch.nn.Dropout(0.3), last)
        return model, OPTIMIZERS[name](model)

    def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
        torch.manual_seed(steps)
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(8, 5)).square().mean().backward()
            optimizer.step()
            for group in optimizer.param_groups:
                group["lr"] = group["lr"] * 0.9

    model, optimizer = start(0)
    train(model, optimizer, 3)
    moments, rest = flatten_optimizer(optimizer)
    tensors = {"actor": model.state_dict(), "optimizer": moments}
    save(run, 3, tensors=tensors, state={"optimizer": rest})
    train(model, optimizer, 4)

    again, other = start(99)
    checkpoint = load(run, 3)
    again.load_state_dict(checkpoint.tensors["actor"])
    restore_optimizer(other, checkpoint.tensors["optimizer"], checkpoint.state["optimizer"])
    train(again, other, 4)

    for mine, theirs in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    (moments, rest), (other_moments, other_rest) = flatten_optimizer(optimizer), flatten_optimizer(other)
    assert moments.keys() == other_moments.keys()
    assert all(torch.equal(moments[key], other_moments[key]) for key in moments)
    assert rest == other_rest
    assert is_unchanged(checkpoint, moments)


def is_unchanged(checkpoint: Checkpoint, moments: dict[str, Tensor]) -> bool:
    """Training after a restore must not write into what was loaded."""
    on_disk = load(Run.open(checkpoint.path.parents[1], readonly=True), checkpoint.step).tensors["optimizer"]
    return all(torch.equal(checkpoint.tensors["optimizer"][name], on_disk[name]) for name in moments)


def test_an_optimizer_of_another_model_is_refused() -> None:
    def trained(width: int, bias: bool = True) -> torch.optim.Optimizer:
        model = torch.nn.Linear(3, width, bias=bias)
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.ones(3)).sum().backward()
        optimizer.step()
        return optimizer

    taken = flatten_optimizer(trained(4))
    with pytest.raises(RunError, match=r"another model: 0\.exp_avg is \[4, 3\], the parameter \[5, 3\]"):
        restore_optimizer(trained(5), *taken)
    with pytest.raises(RunError, match="another model"):
        restore_optimizer(trained(4, bias=False), *taken)
