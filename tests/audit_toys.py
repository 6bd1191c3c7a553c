"""Dumps of a toy policy: a small recurrent net over 64 tokens, sampled truly, so that every identity holds exactly."""

from __future__ import annotations

from typing import Any

import numpy as np

from mingce.audit import geometry, policy, precision
from mingce.audit.evidence import Evidence
from mingce.audit.finding import Finding
from mingce.record.dump import Dump
from mingce.specs.settings import DumpSettings

VOCABULARY, STATE = 64, 16
EOS, PAD, BOS = 1, 0, 2


def softmax(logits: np.ndarray) -> np.ndarray:
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: np.ndarray = shifted / shifted.sum(axis=1, keepdims=True)
    return shares


def keep_top_p(p: np.ndarray, top_p: float) -> np.ndarray:
    order = np.argsort(-p, axis=1)
    ranked = np.take_along_axis(p, order, axis=1)
    kept = np.zeros(p.shape, bool)
    np.put_along_axis(kept, order, np.cumsum(ranked, axis=1) - ranked < top_p, axis=1)
    cut = np.where(kept, p, 0.0)
    shares: np.ndarray = cut / cut.sum(axis=1, keepdims=True)
    return shares


def toy(
    seed: int,
    rows: int = 48,
    width: int = 64,
    sample: float = 1.0,  # temperature that tokens are drawn at
    rollout: float | None = None,  # temperature of the stored rollout log-probs; as drawn if None
    trainer: float | None = None,  # temperature of old, new log-probs and entropy; as drawn if None
    top_p: float = 1.0,
    noise: float = 0.01,  # of the engine's logits
    stale: float = 0.0,  # of the sampling policy's weights
    holes: bool = False,
    full: float = 0.1,  # share of rows that run into the limit
) -> Dump:
    """A clean dump unless the temperatures differ or the rollout is truncated or stale."""
    rng = np.random.default_rng(seed)
    embed = rng.normal(size=(VOCABULARY, STATE))
    recur = rng.normal(size=(STATE, STATE)) / np.sqrt(STATE)
    out = rng.normal(size=(STATE, VOCABULARY)) * 0.6
    bias = rng.normal(size=VOCABULARY)
    bias[[EOS, PAD, BOS]] = -1e9
    engine_out = out + stale * rng.normal(size=out.shape)
    lengths = np.where(rng.random(rows) < full, width, rng.integers(max(width // 4, 1), width + 1, rows))
    lengths = np.minimum(lengths, width)
    state = rng.normal(size=(rows, STATE))
    names = ("old_log_probs", "rollout_log_probs", "ref_log_probs", "new_log_probs", "entropy")
    columns: dict[str, np.ndarray] = {name: np.zeros((rows, width), np.float32) for name in names}
    ids = np.full((rows, width), PAD)
    ref_out, new_out = out + 0.05 * rng.normal(size=out.shape), out + 0.02 * rng.normal(size=out.shape)
    every = np.arange(rows)
    for t in range(width):
        logits = state @ out + bias
        drawn = state @ engine_out + bias + noise * rng.normal(size=logits.shape)
        q = softmax(drawn / sample)
        q = keep_top_p(q, top_p) if top_p < 1 else q
        choice = np.minimum((rng.random((rows, 1)) > np.cumsum(q, axis=1)).sum(axis=1), VOCABULARY - 1)
        q_stored = q if rollout is None else softmax(drawn / rollout)
        p = softmax(logits / (sample if trainer is None else trainer))
        ids[:, t] = choice
        columns["old_log_probs"][:, t] = np.log(p[every, choice])
        columns["rollout_log_probs"][:, t] = np.log(q_stored[every, choice])
        columns["entropy"][:, t] = -(p * np.log(p + 1e-300)).sum(axis=1)
        columns["ref_log_probs"][:, t] = np.log(softmax(state @ ref_out + bias)[every, choice])
        columns["new_log_probs"][:, t] = np.log(softmax((state @ new_out + bias) / (trainer or sample))[every, choice])
        state = np.tanh(state @ recur + 1.2 * embed[choice])
    slots = np.arange(width)[None, :]
    attended = slots < lengths[:, None]
    mask = attended.copy()
    if holes and width >= 16:
        start = width // 8
        mask[:, start : start + width // 8] &= np.arange(rows)[:, None] % 2 == 0
    ended = lengths < width
    ids[every[ended], lengths[ended] - 1] = EOS
    ids[~attended] = PAD
    for name in columns:
        columns[name][~mask] = 0.0
    columns |= {"token_ids": ids, "attention_mask": attended, "response_mask": mask}
    values = rng.normal(size=(rows, width)).astype(np.float32)
    columns["values"], columns["advantages"] = np.where(mask, values, 0), np.where(mask, values - values.mean(), 0)
    pads = rng.integers(0, 20, rows)
    pads[0] = 0
    prompts = [[BOS, *rng.integers(3, VOCABULARY, 24 - pad).tolist()] for pad in pads]
    ends = ["stop" if one else "length" for one in ended]
    return Dump(
        columns,
        {"left_pad": pads.tolist(), "prompt_ids": prompts, "finish_reason": ends},
        DumpSettings(eos_id=EOS, pad_id=PAD, bos_id=BOS),
    )


def rounded(dump: Dump) -> Dump:
    """The dump as bfloat16 would have kept it."""
    for name, column in dump.columns.items():
        if column.dtype == np.float32:
            bits = np.ascontiguousarray(column).view(np.uint32).astype(np.uint64)
            bits = (bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) & np.uint64(0xFFFF0000)
            dump.columns[name] = bits.astype(np.uint32).view(np.float32)
    return dump


def findings(dump: Dump, modules: tuple[Any, ...] = (geometry, precision, policy)) -> list[Finding]:
    evidence = Evidence(dump)
    return [
        finding
        for module in modules
        for check in module.CHECKS
        if all(evidence.has(name) for name in check.needs)
        for finding in check.findings(evidence) or ()
    ]


def named(dump: Dump) -> list[Finding]:
    """Findings that say something is wrong or may be."""
    return [finding for finding in findings(dump) if finding.level in ("bug", "suspicious")]
