"""Settings and models out of all reason: one sentence before anything is made, whatever would have crashed."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

import mingce
from mingce import cli
from mingce.base.errors import MingceError, SettingError, UnknownNameError
from mingce.config import as_values, config_of, read_config, settings
from mingce.config.bounds import LARGEST_SEED, MOST
from mingce.engine.local import epoch_order
from mingce.roles.actor import row_seed

TINY = Path(mingce.__file__).parent / "models" / "tiny"
SMALL = ["steps=1", "prompts_per_step=4", "samples_per_prompt=1", "minibatch_rollouts=4", "validation.examples=2",
         "threads=1"]  # fmt: skip


@pytest.fixture(autouse=True)
def _somewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MINGCE_LANG", "en")
    monkeypatch.chdir(tmp_path)


def said_by(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one sentence of a command that ends with exit code 2."""
    monkeypatch.setattr(sys, "argv", ["mingce", *words])
    with pytest.raises(SystemExit) as left:
        cli.main()
    said = capsys.readouterr().err.strip()
    assert left.value.code == 2, said
    assert said.count("\n") == 0, said
    return said


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("threads=10000", "threads must be at most"),
        ("reward.workers=100000", "reward.workers must be at most"),
        ("seed=1180591620717411303424", "seed must lie between"),
        ("seed=-1180591620717411303424", "seed must lie between"),
        ("prompts_per_step=99999999", "TB for their ledger alone, and this machine has"),
        ("samples_per_prompt=99999999", "TB for their ledger alone"),
        ("sampling.max_new_tokens=999999999", "TB for their ledger alone"),
        ("steps=1000000000000", "steps must be at most 1000000000"),
        ("micro_batch_tokens=1000000000000", "micro_batch_tokens must be at most"),
        ("sampling.max_rows=1000000000000", "sampling.max_rows must be at most"),
        ("model.lora.rank=1000000", "model.lora.rank must be at most"),
        ("data.size=-1", "data.size must be at least 1"),
        ("reward.time_limit=-1", "reward.time_limit must be above 0 seconds"),
        ("steps=" + "9" * 5000, "steps"),
        ("data.options={a: [1", "data.options cannot be read from"),
        ("[=1", "cannot be read from '[=1'"),
        ("=1", "'=1' is not a setting"),
        ("x" * 100_000 + "=1", "unknown setting 'xxx"),
    ],
)
def test_a_setting_out_of_reason(override: str, says: str) -> None:
    with pytest.raises(MingceError) as caught:
        read_config(None, [override])
    assert says in str(caught.value)
    assert len(str(caught.value)) < 500 + (len(override) if len(override) < 10_000 else 0)


@pytest.mark.parametrize("seed", [20261117, LARGEST_SEED, -LARGEST_SEED])
def test_every_seed_that_is_taken_can_be_drawn_from(seed: int) -> None:
    for step in (0, 1, MOST):
        for row in (-3, 0, 10**6):
            torch.Generator().manual_seed(row_seed(seed, step, row))
    epoch_order(3, seed, MOST)


def test_seeds_of_ordinary_size_are_what_they_were() -> None:
    for seed, step, row in ((0, 1, -1), (1, 40, 255), (-1, 0, -3), (18_000_000, 5, 7)):
        assert row_seed(seed, step, row) == (seed * 1_000_003 + step) * 1_000_003 + row


def test_no_number_is_without_an_end() -> None:
    """Every setting with a fraction refuses what is not finite, every whole one what nothing could count to."""
    example = read_config()
    for key, _, default in settings():
        if isinstance(default, float) or key in ("actor.dual_clip", "actor.stop_kl", "reward.time_limit", "kl.clamp"):
            for text in ("nan", "inf", "-inf", "1e999", "1e300"):
                with pytest.raises(SettingError):
                    read_config(None, [f"{key}={text}"])
        elif isinstance(default, int) and not isinstance(default, bool):
            with pytest.raises(SettingError):
                read_config(None, [f"{key}={10**25}"])
    assert read_config() == example


def test_recipes_that_would_not_end(tmp_path: Path) -> None:
    bomb = "a0: &a0 [1, 1]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    texts = {
        "bomb": bomb, "itself": "data: &d\n  options: *d\n", "deep": "data: " + "[" * 5000,
        "long": "x: " + "y" * 2_000_000, "list": "[1, 2]", "text": "hello", "twice": "steps: 1\nsteps: 2\n",
    }  # fmt: skip
    for name, text in texts.items():
        path = tmp_path / f"{name}.yaml"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(SettingError, match=name):
            read_config(path)
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00steps")
    with pytest.raises(SettingError, match=r"bytes\.yaml"):
        read_config(tmp_path / "bytes.yaml")
    with pytest.raises(UnknownNameError, match="a0"):
        config_of(yaml.safe_load(bomb))
    with pytest.raises(SettingError, match="steps"):
        config_of(as_values(read_config()) | {"steps": "many"})


@pytest.mark.parametrize("name", ["n" * 300, "..", "a/b", "\x1b[31m", "a b", "-x", "\u202ex", "名" * 100])
def test_names_that_cannot_be(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said = said_by(monkeypatch, capsys, "train", *SMALL, f"name='{name}'" if " " in name else f"name={name}")
    assert "name" in said
    assert not set("\x1b\u202e") & set(said)
    assert len(said) < 300
    assert list(tmp_path.iterdir()) == []


def test_a_root_that_cannot_be_written_to(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    Path("file").write_text("", encoding="utf-8")
    Path("loop").symlink_to("loop")
    roots = ["/proc", "/proc/x/y", "file", "file/under", "x" * 300, "loop/x"]
    if os.geteuid() != 0:
        Path("mine").mkdir(mode=0o500)
        roots.append("mine")
    before = sorted(tmp_path.iterdir())
    for root in roots:
        assert "give a directory that can be written to" in said_by(
            monkeypatch, capsys, "train", *SMALL, f"root={root}"
        )
        assert sorted(tmp_path.iterdir()) == before


def edited(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    values = json.loads(path.read_text(encoding="utf-8"))
    change(values)
    path.write_text(json.dumps(values), encoding="utf-8")


def without_ends(values: dict[str, Any]) -> None:
    for name in [name for name in values if "eos" in name or "pad" in name]:
        del values[name]


def no_ends(model: Path) -> None:
    for name in ("tokenizer_config.json", "config.json", "generation_config.json"):
        edited(model / name, without_ends)


def bin_weights(content: bytes) -> Callable[[Path], None]:
    def change(model: Path) -> None:
        (model / "model.safetensors").unlink()
        (model / "pytorch_model.bin").write_bytes(content)

    return change


def cut_vocabulary(model: Path) -> None:
    weights = load_file(model / "model.safetensors")
    few = {name: w[:5].clone() if "embed" in name or "lm_head" in name else w for name, w in weights.items()}
    save_file(few, model / "model.safetensors", metadata={"format": "pt"})
    edited(model / "config.json", lambda values: values.update(vocab_size=5))


def config_with(**values: Any) -> Callable[[Path], None]:
    return lambda model: edited(model / "config.json", lambda there: there.update(values))


def file_of(name: str, content: bytes) -> Callable[[Path], None]:
    def change(model: Path) -> None:
        (model / name).write_bytes(content)

    return change


def cut(model: Path) -> None:
    path = model / "model.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


MODELS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no-ends": (no_ends, "neither an end nor a padding token"),
    "no-weights": (bin_weights(b"no weights at all"), "a file of weights holds something else than tensors"),
    "empty-bin": (bin_weights(b""), "a file of weights holds something else than tensors"),
    "pickle": (bin_weights(b"cos\nsystem\n(S'touch executed'\ntR."), "holds something else than tensors"),
    "cut": (cut, "cannot be loaded"),
    "empty": (file_of("model.safetensors", b""), "cannot be loaded"),
    "list": (file_of("config.json", b"[1]"), "cannot be read"),
    "binary": (file_of("config.json", b"\xff\xfe\x00"), "cannot be read"),
    "unknown": (config_with(model_type="nonesuch", architectures=["Nope"]), "cannot be read"),
    "sizes": (config_with(hidden_size=128), "its weights have other sizes than its config.json names"),
    "heads": (config_with(num_attention_heads=7), "is not a multiple of the number of attention heads"),
    "words": (config_with(hidden_size="big"), "expected int, got str"),
    "negative": (config_with(num_hidden_layers=-1), "-1 layers"),
    "layers": (config_with(num_hidden_layers=10**9), "1000000000 layers"),
    "tokenizer": (file_of("tokenizer.json", b"{}"), "tokenizer"),
    "tokenizer-bytes": (file_of("tokenizer.json", b"\x80\x04\xff"), "tokenizer"),
    "tokenizer-class": (file_of("tokenizer_config.json", b'{"tokenizer_class": 3}'), "tokenizer"),
    "end-id": (file_of("generation_config.json", b'{"eos_token_id": "x"}'), "generation_config.json names 'x'"),
    "vocabulary": (cut_vocabulary, "and the model knows 5"),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_is_none(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    change, says = MODELS[name]
    shutil.copytree(TINY, tmp_path / name)
    change(tmp_path / name)
    assert says in said_by(monkeypatch, capsys, "train", *SMALL, f"model.path={name}")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_adapters_of_another_rank_than_the_checkpoints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["train", *SMALL, "name=run", "model.lora.rank=2", "estimator=monte_carlo"]
    monkeypatch.setattr(sys, "argv", ["mingce", *words])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert not left.value.code
    capsys.readouterr()
    config = tmp_path / "runs" / "run" / "config.yaml"
    values = yaml.safe_load(config.read_text(encoding="utf-8"))
    for rank in (4, 0):
        values["model"]["lora"]["rank"] = rank
        config.write_text(yaml.safe_dump(values), encoding="utf-8")
        for words in (["resume", "runs/run", "steps=2"], ["eval", "runs/run"], ["export", "runs/run", "--out", "out"]):
            said_by(monkeypatch, capsys, *words)
    assert (tmp_path / "runs" / "run" / "checkpoints" / "step-000001" / "manifest.json").is_file()
