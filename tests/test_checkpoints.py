"""Checkpoints: whole or not there, verified, and exact to the last bit."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from mingce.base.errors import RunError
from mingce.record.checkpoints import (
    Checkpoint,
    best_step,
    load,
    load_newest,
    save,
)
from mingce.record.run import Run, step_name
from mingce.roles.optimizer_state import flatten_optimizer, restore_optimizer

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def tensors_of(step: int, size: int = 40) -> dict[str, dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(step)
    return {
        "actor": {"weight": torch.randn(size, size, generator=generator), "bias": torch.full((size,), float(step))},
        "critic": {"head": torch.randn(size, generator=generator).bfloat16()},
    }


def save_step(run: Run, step: int, **settings: Any) -> Path:
    run.log(step, {"loss": 1 / (step + 1)})
    return save(run, step, tensors=tensors_of(step), state={"cursor": step, "rng": [step] * 9}, **settings)


def is_whole(checkpoint: Checkpoint | None) -> bool:
    assert checkpoint is not None
    expected = tensors_of(checkpoint.step)
    same = all(
        torch.equal(checkpoint.tensors[file][name], tensor)
        for file, flat in expected.items()
        for name, tensor in flat.items()
    )
    return same and checkpoint.state == {"cursor": checkpoint.step, "rng": [checkpoint.step] * 9}


def never(message: str) -> None:
    raise AssertionError(f"fell back: {message}")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with Run.create(tmp_path, "run", {}) as made:
        yield made


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


# ── sudden death ─────────────────────────────────────────────────────────────────────────────────────────────────────


def resume(path: Path) -> tuple[Run, int]:
    """What `mingce resume` does first: the run, open for training, and the step to do next."""
    run = Run.open(path)
    checkpoint = load_newest(run, never)
    step = checkpoint.step if checkpoint is not None else -1
    assert checkpoint is None or is_whole(checkpoint)
    run.rewind(step)
    return run, step + 1


def forked(work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    return child


def test_killed_at_random_moments_there_is_always_a_whole_checkpoint(run: Run) -> None:
    run.close()
    chance = random.Random(0)
    kills, newest = 0, -1
    while kills < 24:
        reader, writer = os.pipe()

        def train(writer: int = writer) -> None:
            again, step = resume(run.path)
            while True:
                save_step(again, step, score=(step * 7 % 5) / 5)
                os.write(writer, struct.pack("q", step))
                step += 1

        child = forked(train)
        os.close(writer)
        told = os.read(reader, 8)
        time.sleep(chance.random() * 0.06)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "the trainer stopped by itself"
        kills += 1
        told += os.read(reader, 1 << 16)
        os.close(reader)
        said = struct.unpack("q", told[-8:])[0]  # the last step whose save() returned
        checkpoint = load_newest(Run.open(run.path, readonly=True), never)
        assert is_whole(checkpoint)
        assert checkpoint is not None
        assert checkpoint.step >= said > newest
        newest = said
    again, step = resume(run.path)
    again.close()
    assert again.metrics() == [{"step": done, "loss": 1 / (done + 1)} for done in range(step)]
    assert not list(again.path.rglob("*.partial"))


def survive_every_crash_point(path: Path, work: Callable[[Run], object], check: Callable[[Run], object]) -> int:
    """Do `work` on a copy of the run, killed before its 1st, 2nd, 3rd … file operation, and `check` after each."""
    for number in range(1, 500):
        copy = path.with_name("copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(path, copy)

        def die_at_operation(copy: Path = copy, number: int = number) -> None:
            again = Run.open(copy)
            left = number

            def count(event: str, _: object) -> None:
                nonlocal left
                if event in ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate"):
                    left -= 1
                    if left == 0:
                        os.kill(os.getpid(), signal.SIGKILL)

            sys.addaudithook(count)
            work(again)
            os._exit(0)

        _, status = os.waitpid(forked(die_at_operation), 0)
        again, _ = resume(copy)
        check(again)
        again.close()
        assert not list(copy.rglob("*.partial"))
        if not os.WIFSIGNALED(status):
            assert os.waitstatus_to_exitcode(status) == 0
            return number - 1
    raise AssertionError("it never ended")


def test_killed_before_any_file_operation_of_a_save_nothing_is_lost(two: Run) -> None:
    two.log(3, {"loss": 0.0})
    two.close()

    def work(run: Run) -> None:
        save_step(run, 3, keep_last=1)

    def check(run: Run) -> None:
        newest = run.checkpoint_steps()[-1]
        assert newest in (2, 3)
        assert [line["step"] for line in run.metrics()][-1] == newest

    assert survive_every_crash_point(two.path, work, check) > 20


def test_killed_before_any_file_operation_of_a_rewind_the_next_resume_is_sound(two: Run) -> None:
    two.log(3, {"loss": 0.0})
    two.close()

    def check(run: Run) -> None:
        newest = run.checkpoint_steps()[-1]
        assert newest in (1, 2)
        assert [line["step"] for line in run.metrics()] == [1, 2][:newest]

    assert survive_every_crash_point(two.path, lambda run: run.rewind(1), check) > 5


def test_a_reader_always_finds_one_while_the_trainer_prunes(run: Run) -> None:
    save_step(run, 0)
    run.close()

    def train() -> None:
        again = Run.open(run.path)
        for step in range(1, 40):
            save_step(again, step, keep_last=1)
        os._exit(0)

    child = forked(train)
    reader = Run.open(run.path, readonly=True)
    seen = set()
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        checkpoint = load_newest(reader, never)
        assert is_whole(checkpoint)
        assert checkpoint is not None
        seen.add(checkpoint.step)
    assert len(seen) > 3


# ── a full disk ──────────────────────────────────────────────────────────────────────────────────────────────────────

FILL_A_DISK = """
import json, sys, torch
from pathlib import Path
torch.set_num_threads(1)
from mingce.record.checkpoints import load_newest, save
from mingce.base.errors import RunError
from mingce.ledger import Ledger
from mingce.record.run import Run

run = Run.create(sys.argv[1], "run", {})
messages = {}
def until_full(name, work):
    for number in range(200):
        try:
            work(number)
        except RunError as error:
            messages[name] = str(error)
            return
def checkpoint(number):
    save(run, number, tensors={"actor": {"w": torch.full((100_000,), float(number))}}, state={}, keep_last=99)
until_full("checkpoint", checkpoint)
newest = load_newest(run, print)
until_full("ledger", lambda step: run.ledger.write(step, Ledger(torch.randint(9**9, (64, 64)), torch.ones(64, 64) > 0)))
until_full("metrics", lambda step: run.log(step, {f"{step}/{n}": 0.1 for n in range(2_000)}))
whole = all(run.ledger.read(step).width == 64 for step in run.ledger.steps())
whole = whole and newest.step == run.checkpoint_steps()[-1]
whole = whole and (newest.tensors["actor"]["w"] == newest.step).all().item()
print(json.dumps({"messages": messages, "newest": newest.step, "whole": whole, "lines": len(run.metrics()),
                  "finished": run.metrics_path.read_bytes()[-1:] in (b"", b"\\n"),
                  "leftovers": [str(p) for p in run.path.rglob("*.partial")]}))
"""


def test_a_full_disk_is_one_sentence_and_leaves_only_whole_things(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        'mount -t tmpfs -o size=2m none "$0" && exec "$@"',
    ]
    if shutil.which("unshare") is None or subprocess.run([*mounted, str(disk), "true"], capture_output=True).returncode:
        pytest.skip("cannot mount a small disk here")
    command = [*mounted, str(disk), sys.executable, "-c", FILL_A_DISK, str(disk)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1], timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    newest = step_name(found["newest"])
    for name in ("checkpoint", "ledger", "metrics"):
        message = found["messages"][name]
        assert message.startswith("disk full while writing "), message
        assert f"; the last checkpoint {newest} is intact; free space and `mingce resume {disk}/run`" in message
    refused = re.escape(step_name(found["newest"] + 1)) + r" \(needs about \d{3} kB, [\d.]+ k?B free"
    assert re.search(refused, found["messages"]["checkpoint"])
    assert found["whole"]
    assert found["finished"]
    assert found["leftovers"] == []


def test_a_file_size_limit_leaves_the_last_checkpoint_intact(two: Run, tmp_path: Path) -> None:
    two.close()
    message = tmp_path / "message"

    def save_under_a_limit() -> None:
        again = Run.open(two.path)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, hard))
        try:
            save_step(again, 3)
        except RunError as error:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            message.write_text(str(error))
            os._exit(0)

    assert os.waitpid(forked(save_under_a_limit), 0)[1] == 0
    assert "file size limit reached while writing" in message.read_text()
    assert "the last checkpoint step-000002 is intact" in message.read_text()
    assert not list(two.path.rglob("*.partial"))
    assert is_whole(load_newest(two, never))


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
