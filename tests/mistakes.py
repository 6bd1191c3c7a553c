"""Random mistakes on the command line: a yard of odd files, and commands that point at them or set what cannot be."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import yaml
from npz import save_npz
from safetensors.numpy import save_file

import mingce
from mingce.config import as_values, read_config, settings

TINY = Path(mingce.__file__).parent / "models" / "tiny"
KEYS = [key for key, _, _ in settings()]
VALUES = [
    "", "0", "-1", "1", "nan", "inf", "-inf", "1e999", "1e308", "-0.0", str(2**31), str(2**63), str(2**70),
    "9" * 400, "9" * 5000, "true", "null", "~", "[]", "{}", "[1,", "{a: 1", "[[[[", "x", "x" * 3000, "é", "名字",
    "\u202eabc", "\x1b[31mred", "[red]x[/]", "[/]", "${seed}", "${nope}", "${oc.env:HOME}", "${", "$", "???",
    "&a [*a]", "*a", "!!python/x", "!!python/object/apply:os.system [true]", "1:2:3", "0x10", "1_000", "2026-01-01",
    "a=b", "'", '"', "\\", "%", "%s", "{0}", "../..", "/", ".", "/proc", "/dev/null", "\ud800", "\n", "a\nb", "\t",
    "-", "--", "@", "#", "tiny", "zh", "fr",
]  # fmt: skip
WORDS = ["", " ", "--", "-", "-x", "--nope", "--lang", "--lang=fr", "--step=x", "--step=-1",
         "--step=99999999999999999999", "0", "💥", "e\u0301", "[bold]", "\x1b]0;title\x07", "x" * 5000, "a=b", "=",
         "steps=3"]  # fmt: skip
QUESTIONS = ["", "?", "λ", "λ=2", "λ=nan", "γ=1e999", "什么是 GAE？", "why?", "/help", "/lang fr", "/plot", "[red]",
             "\x1b[2J", "1", "x" * 3000, "rewards 1 2 3", "rewards = nan", "token 99", "%s {0}"]  # fmt: skip


def make_yard(root: Path) -> list[str]:
    """Fills the directory with files whole, damaged, swapped and oddly named; returns their paths from there."""
    rng = random.Random(0)
    columns = {"rewards": [0.0, 1.0], "values": [0.1, 0.2], "advantages": [0.5, 0.8]}
    save_npz(root / "whole.npz", {name: np.array([row]) for name, row in columns.items()})
    torch.save({name: torch.tensor([row]) for name, row in columns.items()}, root / "whole.pt")
    save_file({name: np.array([row]) for name, row in columns.items()}, root / "whole.safetensors")
    pq.write_table(pa.table({name: [row] for name, row in columns.items()}), root / "whole.parquet")
    (root / "whole.jsonl").write_text(json.dumps(columns) + "\n", encoding="utf-8")
    (root / "whole.json").write_text(json.dumps(columns), encoding="utf-8")
    (root / "whole.csv").write_text("rewards,values\n0,1\n", encoding="utf-8")
    (root / "whole.yaml").write_text("steps: 2\n", encoding="utf-8")
    (root / "whole.md").write_text("A = 0.1 + 0.95 · 0.58 = 0.651\n", encoding="utf-8")
    (root / "whole.py").write_text("def compute_score(a, b, c, d=None):\n    return 1.0\n", encoding="utf-8")
    whole = sorted(root.iterdir())
    for path in whole:
        content, kind = path.read_bytes(), path.suffix
        (root / f"cut{kind}").write_bytes(content[: len(content) // 2])
        (root / f"empty{kind}").write_bytes(b"")
        (root / f"noise{kind}").write_bytes(rng.randbytes(500))
        (root / f"zeros{kind}").write_bytes(bytes(300))
        other = rng.choice(whole).read_bytes()
        (root / f"swapped{kind}").write_bytes(other)
        flipped = bytearray(content)
        for _ in range(3):
            flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
        (root / f"flipped{kind}").write_bytes(flipped)
        (root / f"folder{kind}").mkdir()
        (root / f"\x1b[31m{kind}").write_bytes(content)
        (root / f"[red]\u202e{kind}").write_bytes(content[:20])
    (root / "keys.yaml").write_text("lamda: 1\n\x1b: 2\n", encoding="utf-8")
    (root / "types.yaml").write_text("steps: [1]\ndata: 3\n", encoding="utf-8")
    (root / os.fsdecode(b"\xff\xfe.jsonl")).write_bytes(b"{}\n")
    (root / "nowhere").symlink_to("nothing-there")
    (root / "loop").symlink_to("loop")
    _make_runs(root, rng)
    for name, change in (("config.json", b"{"), ("tokenizer.json", b"{}"), ("model.safetensors", b"\x08" + bytes(40))):
        shutil.copytree(TINY, root / f"model-{name}")
        (root / f"model-{name}" / name).write_bytes(change)
    return sorted(os.path.relpath(path, root) for path in root.iterdir())


def _make_runs(root: Path, rng: random.Random) -> None:
    """Directories that look like runs, none of which can be trained."""
    config = yaml.safe_dump(as_values(read_config()))
    for name, text in (("run", config), ("run-old", f"lang: zh\n{config}"), ("run-empty", ""), ("run-list", "[1]"),
                       ("run-keys", "a: 1\n"), ("run-cut", config[:300]), ("run-types", "steps: x\n")):  # fmt: skip
        run = root / name
        for folder in ("ledger", "checkpoints/step-000001", "tensorboard"):
            (run / folder).mkdir(parents=True)
        (run / "config.yaml").write_text(text, encoding="utf-8")
        (run / "metrics.jsonl").write_bytes(rng.choice([b"", b"{}\n", b'{"step": 1e999}\n', b"\xff\n", b"[1]\nnull\n"]))
        (run / "checkpoints/step-000001/manifest.json").write_bytes(rng.choice([b"", b"{}", b"[]", b'{"step": 1}']))
        (run / "ledger/step-000001.parquet").write_bytes(rng.randbytes(100))


def mistake(rng: random.Random, places: Sequence[str]) -> list[str]:
    """A command line that is wrong in some way, or odd."""

    def place() -> str:
        return rng.choice([rng.choice(places), rng.choice(places), rng.choice(places), *rng.sample(WORDS, 1)])

    def value() -> str:
        return rng.choice(VALUES + list(places[:3]))

    def pair() -> str:
        key = rng.choice([rng.choice(KEYS), rng.choice(KEYS), rng.choice(KEYS).rpartition(".")[2], rng.choice(WORDS)])
        return f"{key}={value()}"

    def numbers() -> str:
        return rng.choice(["0, 1", "1", "", "nan", "1e999", "x", "0 1 2", "－1", "1,,2", "9" * 400, "\x1b", "[1]"])

    def number() -> str:
        return rng.choice(["-1", "0", "1", "3", "x", "nan", "1e999", str(2**70), ""])

    command = rng.choice(sorted(MAKERS))
    words = [command, *MAKERS[command](place, value, pair, numbers, number, rng)]
    if rng.random() < 0.15:
        words.insert(rng.randrange(len(words) + 1), rng.choice([*WORDS, *VALUES]))
    if rng.random() < 0.15:
        words += ["--lang", rng.choice(["zh", "en", "fr", ""])]
    return [word.replace("\0", "") for word in words]


def _maybe(rng: random.Random, **options: str) -> list[str]:
    return [
        word for name, text in options.items() if rng.random() < 0.25 for word in (f"--{name.replace('_', '-')}", text)
    ]


MAKERS: dict[str, Callable[..., list[str]]] = {
    "train": lambda at, value, pair, numbers, n, rng: [
        "--dry-run", rng.choice([f"model.path={at()}", f"data.train=[{at()}]", f"task={at()}", pair(), pair()]),
        *(pair() for _ in range(rng.randrange(3))), *([at()] if rng.random() < 0.3 else []),
    ],
    "resume": lambda at, value, pair, numbers, n, rng: [at(), pair(), *([pair()] if rng.random() < 0.3 else [])],
    "eval": lambda at, value, pair, numbers, n, rng: [
        at(), pair(), *_maybe(rng, step=n(), task=at(), examples=n(), samples=n(), out=at()),
    ],
    "chat": lambda at, value, pair, numbers, n, rng: [at(), pair(), *_maybe(rng, step=n())],
    "export": lambda at, value, pair, numbers, n, rng: [at(), "--out", at(), *_maybe(rng, step=n())],
    "check": lambda at, value, pair, numbers, n, rng: [
        at(), *_maybe(rng, function=at(), full_marks=n(), examples=n(), time_limit=n()),
    ],
    "audit": lambda at, value, pair, numbers, n, rng: [
        at(), *_maybe(rng, mapping=at(), gamma=n(), beta=n(), set=pair(), step=n(), out=at()),
        *rng.choice([[], ["--json"], ["--markdown"], ["--json", "--markdown"]]),
    ],
    "diff": lambda at, value, pair, numbers, n, rng: [
        at(), at(), *_maybe(rng, mapping=at(), step=n()), *rng.choice([[], ["--json"]]),
    ],
    "view": lambda at, value, pair, numbers, n, rng: [
        at(), "--no-browser", "--export", at(),
        *_maybe(rng, steps=n(), rollouts=n(), mapping=at(), tokenizer=at(), port=n()),
    ],
    "explain": lambda at, value, pair, numbers, n, rng: rng.choice([
        [at(), *_maybe(rng, step=n(), rollout=n(), token=n(), mapping=at())],
        ["--rewards", numbers(), "--values", numbers(), *_maybe(rng, after=n(), gamma=n(), tokens=value())],
        _maybe(rng, lam=n(), estimator=value(), n=n(), k=n(), level=value(), format=value(), out=at()),
    ]),
    "ask": lambda at, value, pair, numbers, n, rng: [
        rng.choice(QUESTIONS), *([at()] if rng.random() < 0.4 else []),
        *_maybe(rng, step=n(), token=n(), rewards=numbers(), values=numbers(), lam=n(), resume=at()),
    ],
    "check-log": lambda at, value, pair, numbers, n, rng: [at(), *rng.choice([[], ["--json"], ["--wrong-only"]])],
    "plan": lambda at, value, pair, numbers, n, rng: [
        pair(), *_maybe(rng, model_config=at(), gpus=n(), gpu=value(), gpu_memory=value(), tflops=n(),
                        link=value(), up_to=n(), assume=pair(), prompt_tokens=n(), gpus_per_node=n()),
    ],
    "columns": lambda at, value, pair, numbers, n, rng: [value()],
    "credit": lambda at, value, pair, numbers, n, rng: [
        "--rewards", numbers(), "--values", numbers(), *_maybe(rng, gamma=n(), lam=n(), after=n()),
    ],
}  # fmt: skip
"""What follows a command, from functions that make up its parts."""
