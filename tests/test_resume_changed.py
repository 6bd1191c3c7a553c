"""A run that is no longer the same says so before it goes on; one that moved away meanwhile stops."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from rich.console import Console
from test_train import trained

from mingce.base.errors import MingceError, RunError
from mingce.base.places import step_name
from mingce.record import checkpoints
from mingce.record.run import Run
from mingce.training import fingerprints, start

SMALL = (
    "steps=3", "prompts_per_step=4", "samples_per_prompt=2", "minibatch_rollouts=8", "critic.minibatch_rollouts=8",
    "validation.examples=2", "validation.every=0", "audit.every=0", "keep.checkpoint_every=1", "threads=1",
)  # fmt: skip
REWARD = """
def compute_score(data_source, solution_str, ground_truth, extra_info):
    return float(len(solution_str) % 3)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps on a data file and a reward function of one's own."""
    root = tmp_path_factory.mktemp("made")
    rows = [{"data_source": "own", "prompt": f"{n}+1=", "reward_model": {"ground_truth": "1"}} for n in range(40)]
    (root / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (root / "reward.py").write_text(REWARD)
    trained(root, *SMALL, f"data.train=[{root / 'data.jsonl'}]", f"reward.function={root / 'reward.py'}", name="run")
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "copy"
    shutil.copytree(made, copy)
    config = copy / "run" / "config.yaml"
    config.write_text(config.read_text().replace(str(made), str(copy)))
    return copy


def resumed(root: Path, *overrides: str, changed: bool = False) -> str:
    with Console(record=True, width=10_000, file=open("/dev/null", "w")) as console:
        start.resume(console, root / "run", overrides, changed=changed, trust=True)
        return console.export_text()


def edit_config(root: Path, **settings: object) -> None:
    path = root / "run" / "config.yaml"
    values = yaml.safe_load(path.read_text())
    for key, value in settings.items():
        *sections, last = key.split("__")
        place = values
        for section in sections:
            place = place[section]
        place[last] = value
    path.write_text(yaml.safe_dump(values))


def edit_file(name: str, old: str, new: str) -> Callable[[Path], None]:
    def edit(root: Path) -> None:
        path = root / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return edit


def edit_manifest(**values: object) -> Callable[[Path], None]:
    """As if the checkpoint had been written elsewhere."""

    def edit(root: Path) -> None:
        for path in (root / "run" / "checkpoints").glob("step-*"):
            manifest = checkpoints.read_manifest(path)
            for key, value in values.items():
                if isinstance(value, dict):
                    manifest["fingerprints"][key] |= value
                else:
                    manifest["fingerprints"][key] = value
            (path / "manifest.json").write_bytes(checkpoints.manifest_bytes(manifest))

    return edit


def cut_line(root: Path) -> None:
    path = root / "run" / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:1] + lines[2:]))


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "seed": (lambda root: edit_config(root, seed=5), "setting seed: 0 → 5"),
    "estimator": (lambda root: edit_config(root, estimator="monte_carlo"), "setting estimator: gae → monte_carlo"),
    "learning rate": (lambda root: edit_config(root, actor__lr=1.0), "setting actor.lr"),
    "micro batch": (lambda root: edit_config(root, micro_batch_tokens=64), "setting micro_batch_tokens"),
    "threads": (lambda root: edit_config(root, threads=2), "threads: 1 → 2"),
    "data": (edit_file("data.jsonl", "7+1=", "8+1="), "data data.jsonl"),
    "reward code": (edit_file("reward.py", "% 3", "% 2"), "reward function: "),
    "a line lost": (cut_line, "metrics.jsonl up to step 3 is not what it was"),
    "a number edited": (edit_file("run/metrics.jsonl", '"step": 1', '"step": 1 '), "metrics.jsonl up to step 3"),
    "torch": (edit_manifest(libraries={"torch": "1.0"}), "library torch: 1.0 → "),
    "cores": (edit_manifest(threads=64), "threads: 64 → 1"),
    "cpu": (edit_manifest(cpu="VSX"), "CPU instructions: VSX → "),
    "model": (edit_manifest(model={"policy": {"model.safetensors": "0"}}), "model policy "),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_results_needs_consent(root: Path, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINGCE_LANG", "en")
    edit, sentence = CHANGES[change]
    edit(root)
    before = {path: path.read_bytes() for path in sorted((root / "run").rglob("*")) if path.is_file()}
    with pytest.raises(RunError, match="no longer the run it was") as refused:
        resumed(root)
    assert sentence in str(refused.value)
    assert "--changed" in str(refused.value)
    skip = {"lock"}
    assert {p: p.read_bytes() for p in before if p.name not in skip} == {
        p: content for p, content in before.items() if p.name not in skip
    }
    if change != "estimator":
        resumed(root, changed=True)
        events = [json.loads(line) for line in (root / "run" / "events.jsonl").read_text().splitlines()]
        assert [event["kind"] for event in events] == ["changed"]
        assert sentence in events[0]["why"]


def test_the_same_run_goes_on_without_a_word(root: Path) -> None:
    shutil.move(root / "data.jsonl", root / "moved.jsonl")  # where it lies does not matter
    edit_config(root, data__train=[str(root / "moved.jsonl")], keep__last=3, validation__every=7)
    resumed(root, "steps=4", "keep.best=0")
    assert not (root / "run" / "events.jsonl").exists()


def test_more_steps_need_consent_where_the_learning_rate_follows_them(tmp_path: Path) -> None:
    trained(tmp_path, *SMALL, "actor.schedule=linear", name="run")
    with pytest.raises(RunError, match="steps"):
        resumed(tmp_path, "steps=5")


def test_what_the_command_line_asks_for_is_told_and_noted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINGCE_LANG", "en")
    resumed(root, "steps=4", "micro_batch_tokens=64")
    (event,) = [json.loads(line) for line in (root / "run" / "events.jsonl").read_text().splitlines()]
    assert "setting micro_batch_tokens" in event["why"]


def test_a_checkpoint_without_fingerprints_goes_on_with_a_note(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINGCE_LANG", "en")
    for path in (root / "run" / "checkpoints").glob("step-*"):
        manifest = checkpoints.read_manifest(path)
        manifest |= {"fingerprints": None, "logs": None, "version": 1}
        (path / "manifest.json").write_bytes(checkpoints.manifest_bytes(manifest))
    resumed(root, "steps=4")
    assert "no fingerprints" in (root / "run" / "events.jsonl").read_text()
    assert Run.open(root / "run", readonly=True).metrics()[-1]["step"] == 4


def test_of_a_large_file_ends_size_and_blocks_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprints, "WHOLE", 4096)
    monkeypatch.setattr(fingerprints, "BLOCK", 64)
    path, content = tmp_path / "large", bytearray(range(256)) * 40
    path.write_bytes(content)
    whole = fingerprints.of_file(path)
    for place in (0, len(content) - 1):
        content[place] ^= 1
        path.write_bytes(content)
        assert fingerprints.of_file(path) != whole
        content[place] ^= 1
    path.write_bytes(content + b"x")
    assert fingerprints.of_file(path) != whole
    path.write_bytes(content)
    assert fingerprints.of_file(path) == whole


# ── weights only ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_older_checkpoints_keep_weights_only_and_going_on_from_one_needs_consent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINGCE_LANG", "en")
    run = trained(tmp_path, *SMALL, "keep.last=3", "keep.optimizer=2", "keep.best=0", name="run")
    names = [sorted(p.name for p in (run.checkpoints_path / step_name(s)).glob("*.optimizer.*")) for s in (1, 2, 3)]
    assert names == [[], *[["actor.optimizer.safetensors", "critic.optimizer.safetensors"]] * 2]
    for step in (1, 2, 3):
        assert checkpoints.load(run, step).weights_only == (step == 1)
    for step in (2, 3):
        shutil.rmtree(run.checkpoints_path / step_name(step))
    with pytest.raises(RunError, match="step-000001 has no optimizer moments"):
        resumed(tmp_path)
    resumed(tmp_path, changed=True)
    assert run.metrics()[-1]["step"] == 3


def test_a_checkpoint_of_another_shape_is_one_sentence(tmp_path: Path) -> None:
    trained(tmp_path, *SMALL, "model.lora.rank=2", name="run")
    for settings in ({"model__lora__rank": 4}, {"model__lora__rank": 0}):
        edit_config(tmp_path, **settings)
        with pytest.raises(MingceError):
            resumed(tmp_path)
        with pytest.raises(RunError, match=r"另一个模型|对不上"):
            resumed(tmp_path, changed=True)


# ── a directory that goes away ───────────────────────────────────────────────────────────────────────────────────────


def away(path: Path) -> None:
    path.rename(path.with_name("away"))


def deleted(path: Path) -> None:
    while path.exists():  # the run still writes into it
        shutil.rmtree(path, ignore_errors=True)


def replaced(path: Path) -> None:
    shutil.copytree(path, path.with_name("copy"))
    away(path)
    path.with_name("copy").rename(path)


MOVES: dict[str, Callable[[Path], object]] = {
    "moved": away,
    "deleted": deleted,
    "replaced": replaced,
    "ledger moved": lambda path: away(path / "ledger"),
    "checkpoints moved": lambda path: away(path / "checkpoints"),
    "checkpoints deleted": lambda path: deleted(path / "checkpoints"),
}


@pytest.mark.parametrize("move", MOVES)
def test_a_run_that_moves_away_while_training_stops(tmp_path: Path, move: str) -> None:
    command = [sys.executable, "-m", "mingce.cli", "train", *SMALL, "steps=400", f"root={tmp_path}", "name=x"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=None)
    metrics = tmp_path / "x" / "metrics.jsonl"
    deadline = time.monotonic() + 300
    while not (metrics.exists() and metrics.read_bytes().count(b"\n") >= 3):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    MOVES[move](tmp_path / "x")
    _, said = process.communicate(timeout=300)
    assert process.returncode == 2, said
    assert "Traceback" not in said
    assert str(tmp_path / "x") in said
    if move in ("moved", "deleted"):
        assert not (tmp_path / "x").exists()
    if move in ("moved", "replaced"):
        assert len(list((tmp_path / "away" / "ledger").glob("*.parquet"))) >= 2
