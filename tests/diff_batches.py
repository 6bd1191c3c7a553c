"""A batch made by our own functions, the ways in which another trainer's may differ from it, and the reason of each."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from mingce.algorithms.advantage import gae
from mingce.audit.diff import Difference, compare
from mingce.record.dump import Dump
from mingce.specs.settings import DumpSettings

ROWS, WIDTH, SEEDS = 12, 20, range(4)


def batch(seed: int, gamma: float = 0.98, lam: float = 0.9) -> Dump:
    """A batch with tool holes, made by our own functions; whitened over the batch with N − 1."""
    r = np.random.default_rng(seed)
    lengths, slots = r.integers(6, WIDTH - 1, ROWS), np.arange(WIDTH)
    attended = slots < lengths[:, None]
    mask = attended & ~((slots >= 2) & (slots < 4) & (np.arange(ROWS) % 2 == 0)[:, None])
    old = -np.abs(r.normal(size=mask.shape)) * mask
    ref = (old + 0.3 * r.normal(size=mask.shape)) * mask
    scores = np.where(slots == lengths[:, None] - 1, r.normal(size=(ROWS, 1)) + 2.0, 0.0)
    dump = Dump(
        {
            "response_mask": mask,
            "attention_mask": attended,
            "token_ids": np.where(slots == lengths[:, None] - 1, 2, r.integers(3, 90, mask.shape)) * attended,
            "old_log_probs": old.astype(np.float32),
            "rollout_log_probs": old.astype(np.float32),
            "ref_log_probs": ref.astype(np.float32),
            "values": (r.normal(size=mask.shape) * mask).astype(np.float32),
            "scores": scores.astype(np.float32),
        },
        {
            "uid": [f"row-{i}" for i in range(ROWS)],
            "prompt_ids": [[1, 5, int(i)] for i in range(ROWS)],
            "rank": [i // 6 for i in range(ROWS)],
        },
        DumpSettings(gamma=gamma, lam=lam, eos_id=2),
        path=f"batch-{seed}",
    )
    finish(dump, gamma=gamma, lam=lam)
    return dump


def finish(dump: Dump, *, beta: float = 0.1, kind: str = "k1", gamma: float = 0.98, lam: float = 0.9) -> None:
    """KL, rewards, credit and whitening again from what stands before them."""
    x = dump.wide("old_log_probs") - dump.wide("ref_log_probs")
    kl = {"k1": x, "k3": np.expm1(-x) + x, "k2": x**2 / 2}[kind] * dump.mask
    rewards = dump.wide("scores") - beta * kl
    r, v, mask = (torch.from_numpy(column) for column in (rewards, dump.wide("values"), dump.mask))
    credit = gae(r, v, mask, gamma, lam)
    assert credit.returns is not None
    returns = credit.returns.numpy()
    raw = (returns - dump.wide("values")) * dump.mask
    dump.columns |= {
        "kl": kl.astype(np.float32),
        "rewards": rewards.astype(np.float32),
        "advantages": raw.astype(np.float32),
        "returns": returns.astype(np.float32),
    }
    whiten(dump)


def whiten(dump: Dump, ddof: int = 1, mean: bool = False) -> None:
    raw = dump.wide("advantages")
    chosen = raw[dump.mask]
    white = (raw - chosen.mean()) / np.sqrt(chosen.var(ddof=ddof) + 1e-8) + (chosen.mean() if mean else 0.0)
    dump.columns["whitened_advantages"] = (white * dump.mask).astype(np.float32)


Change = Callable[[Dump], Any]


def said(found: Difference, lang: str) -> list[str]:
    """The verdict, why, how rows were matched, and the rest."""
    return [found.verdict(lang), *found.about(lang), *found.others(lang)]


def finding(change: Change, seed: int) -> Difference:
    a = batch(seed)
    b = copy.deepcopy(a)
    change(b)
    with np.errstate(all="raise"):
        found = compare(a, b)
    for lang in ("zh", "en"):
        assert all(said(found, lang))
    return found


def set_column(name: str, make: Callable[[Dump], Any]) -> Change:
    def change(dump: Dump) -> None:
        dump.columns[name] = np.asarray(make(dump)).astype(dump.columns[name].dtype)

    return change


def then_finish(change: Change) -> Change:
    def both(dump: Dump) -> None:
        change(dump)
        finish(dump)

    return both


def no_holes(dump: Dump) -> None:
    dump.columns["response_mask"] = dump.columns["attention_mask"].copy()


def no_eos(dump: Dump) -> None:
    last = dump.columns["attention_mask"].sum(1) - 1
    dump.columns["response_mask"] = dump.columns["response_mask"] & (np.arange(WIDTH) != last[:, None])


def dense_recursion(dump: Dump) -> None:
    """OpenRLHF's: V and r are 0 at masked tokens, which still count as steps."""
    reward, value, mask = dump.wide("rewards") * dump.mask, dump.wide("values") * dump.mask, dump.mask
    raw, following = np.zeros(dump.shape), np.zeros(ROWS)
    for t in reversed(range(WIDTH)):
        after = value[:, t + 1] if t + 1 < WIDTH else 0.0
        following = reward[:, t] + 0.98 * after - value[:, t] + 0.98 * 0.9 * following
        raw[:, t] = following
    dump.columns["advantages"] = (raw * mask).astype(np.float32)
    dump.columns["returns"] = ((raw + value) * mask).astype(np.float32)
    whiten(dump)


def per_rank(dump: Dump) -> None:
    raw, out = dump.wide("advantages"), np.zeros(dump.shape)
    for rows in (slice(0, 6), slice(6, 12)):
        chosen = raw[rows][dump.mask[rows]]
        out[rows] = (raw[rows] - chosen.mean()) / chosen.std(ddof=1) * dump.mask[rows]
    dump.columns["whitened_advantages"] = out.astype(np.float32)


def per_row(dump: Dump) -> None:
    del dump.rows["rank"]
    raw = dump.wide("advantages")
    rows = [(x - x[m].mean()) / x[m].std() * m for x, m in zip(raw, dump.mask, strict=True)]
    dump.columns["whitened_advantages"] = np.stack(rows).astype(np.float32)


def swap_rows(name: str) -> Change:
    def change(dump: Dump) -> None:
        dump.columns[name] = dump.columns[name][::-1].copy()

    return change


REASONS: list[tuple[str, Change, str, str]] = [
    ("holes", then_finish(no_holes), "response_mask", "mask-holes"),
    ("eos", no_eos, "response_mask", "mask-eos"),
    ("shifted", set_column("values", lambda d: np.roll(d.columns["values"], 1, 1)), "values", "shift"),
    ("rows", swap_rows("ref_log_probs"), "ref_log_probs", "rows-permuted"),
    ("scaled", set_column("ref_log_probs", lambda d: d.wide("ref_log_probs") * 0.7), "ref_log_probs", "scale"),
    ("score", set_column("scores", lambda d: np.roll(d.columns["scores"], 1, 1)), "scores", "score-offset"),
    ("score scale", set_column("scores", lambda d: 2 * d.columns["scores"]), "scores", "scale"),
    ("beta", lambda d: finish(d, beta=0.2), "rewards", "kl-penalty"),
    ("estimator", lambda d: finish(d, kind="k3"), "kl", "kl-estimator"),
    ("gamma", lambda d: finish(d, gamma=1.0), "advantages", "discount"),
    ("lambda", lambda d: finish(d, lam=1.0), "advantages", "discount"),
    ("dense", dense_recursion, "advantages", "recursion"),
    ("ddof", lambda d: whiten(d, ddof=0), "whitened_advantages", "whitening"),
    ("mean", lambda d: whiten(d, mean=True), "whitened_advantages", "whitening"),
    ("raw", set_column("whitened_advantages", lambda d: d.columns["advantages"]), "whitened_advantages", "whitening"),
    ("sign", set_column("whitened_advantages", lambda d: -d.wide("whitened_advantages")), "whitened_advantages",
     "whitening"),
    ("rank", per_rank, "whitened_advantages", "whitening-scope"),
    ("row", per_row, "whitened_advantages", "whitening-scope"),
    ("ids", set_column("token_ids", lambda d: d.columns["token_ids"] + 1), "token_ids", "other-tokens"),
]  # fmt: skip
