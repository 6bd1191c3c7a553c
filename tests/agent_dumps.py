"""Batches of conversations with tools, and the credit that trainers gave them before public reports were mended.

Each function below `faulty` computes what the report says the code did, by loops over one row at a time; its clean
twin is `right`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mingce.record.dump import Dump
from mingce.specs.settings import DumpSettings

Floats = NDArray[np.float64]
GAMMA, LAM, BETA = 0.97, 0.9, 0.1
GROUPS, SAMPLES = 10, 4
ASSISTANT, TOOL = 1, 2
END = 3  # the id that ends a turn


@dataclass
class Talks:
    """Conversations: who wrote each token, in which turn, and what models and the world said of them."""

    columns: dict[str, NDArray[Any]]
    rows: dict[str, list[Any]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]

    @property
    def mask(self) -> NDArray[np.bool_]:
        return np.asarray(self.columns["response_mask"].astype(bool))

    @property
    def present(self) -> NDArray[np.bool_]:
        return np.asarray(self.columns["attention_mask"].astype(bool))


def talks(seed: int, ends_in_tool: bool = False) -> Talks:
    """Two or three turns a row with tool output between them; `ends_in_tool`: and behind the last one in most rows."""
    rng = np.random.default_rng(seed)
    lines = []
    for row in range(GROUPS * SAMPLES):
        roles: list[int] = []
        turns = int(rng.integers(2, 4))
        for turn in range(turns):
            roles += [ASSISTANT] * int(rng.integers(4, 10))
            if turn < turns - 1 or (ends_in_tool and row % 4):
                roles += [TOOL] * int(rng.integers(3, 9))
        lines.append(roles)
    width = max(map(len, lines)) + 2
    role = np.array([line + [0] * (width - len(line)) for line in lines])
    shape = role.shape
    old = -3.0 * rng.random(shape) - 0.05
    present = role > 0
    outcome = rng.normal(size=len(role)).round(3)
    ids = rng.integers(10, 900, shape)
    ids[(role == ASSISTANT) & (np.pad(role, ((0, 0), (0, 1)))[:, 1:] != ASSISTANT)] = END
    columns = {
        "token_ids": np.where(present, ids, 0),
        "attention_mask": present,
        "response_mask": role == ASSISTANT,
        "old_log_probs": np.where(present, old, 0.0),
        "rollout_log_probs": np.where(role == ASSISTANT, old + 0.005 * rng.normal(size=shape), 0.0),
        "ref_log_probs": np.where(present, old - 0.3 * rng.random(shape), 0.0),
        "values": np.where(present, 0.4 * rng.normal(size=shape), 0.0),
    }
    group = [f"p{row // SAMPLES}" for row in range(len(role))]
    prompt_ids = [[1, 2 + row // SAMPLES, 7] for row in range(len(role))]
    return Talks(columns, {"group": group, "prompt_ids": prompt_ids, "outcome": outcome.tolist()})


def last(flags: NDArray[np.bool_]) -> NDArray[np.int64]:
    return np.asarray(flags.shape[1] - 1 - flags[:, ::-1].argmax(axis=1))


def scored(t: Talks, at: NDArray[np.int64]) -> Floats:
    scores = np.zeros(t.mask.shape)
    scores[np.arange(len(at)), at] = t.rows["outcome"]
    return scores


def kl(t: Talks) -> Floats:
    return np.asarray(t["old_log_probs"] - t["ref_log_probs"])


def reward_to_go(rewards: Floats, gamma: float, steps: Callable[[int, int, float], float]) -> Floats:
    """From the end; `steps(row, t, running)` is what is carried on to the left of slot t."""
    returns = np.zeros_like(rewards)
    for row, line in enumerate(rewards):
        running = 0.0
        for t in reversed(range(len(line))):
            returns[row, t] = running = line[t] + gamma * running
            running = steps(row, t, running)
    return returns


def recursion(rewards: Floats, values: Floats, slots: NDArray[np.bool_], gamma: float, lam: float) -> Floats:
    """GAE over the slots given."""
    advantages = np.zeros_like(rewards)
    for row in range(len(rewards)):
        value = credit = 0.0
        for t in reversed(np.flatnonzero(slots[row])):
            credit = rewards[row, t] + gamma * value - values[row, t] + gamma * lam * credit
            value, advantages[row, t] = values[row, t], credit
    return advantages


def whitened(raw: Floats, mask: NDArray[np.bool_]) -> Floats:
    return np.where(mask, (raw - raw[mask].mean()) / np.sqrt(raw[mask].var(ddof=1) + 1e-8), 0.0)


def compact_returns(t: Talks, rewards: Floats, gamma: float = GAMMA) -> Floats:
    """Reward to go over the chosen tokens alone."""
    return recursion(rewards, np.zeros_like(rewards), t.mask, gamma, 1.0)


def dump_of(t: Talks, made: Mapping[str, NDArray[Any]], settings: dict[str, Any], **rows: list[Any]) -> Dump:
    columns = {
        name: column.astype(np.float32) if column.dtype.kind == "f" else column
        for name, column in (t.columns | dict(made)).items()
    }
    return Dump(columns, t.rows | rows, DumpSettings(**settings))


# ── a turn a row ───────────────────────────────────────────────────────────────────────────────────────────────────


def steps(seed: int) -> Talks:
    """Trajectories of one to four turns, each turn a row of its own whose tokens end at the right edge of its part.

    As SkyRL's step-wise batches: responses stand behind observations of different lengths, the outcome is on the last
    token of the last step.
    """
    rng = np.random.default_rng(seed)
    masks, conversation, segment, group, outcome = [], [], [], [], []
    for trajectory in range(GROUPS * SAMPLES):
        count = int(rng.integers(1, 5))
        paid = float(rng.normal())
        for step in range(count):
            before, length = int(rng.integers(0, 20)), int(rng.integers(4, 12))
            masks.append([before <= t < before + length for t in range(34)])
            conversation.append(trajectory)
            segment.append(step)
            group.append(f"p{trajectory // SAMPLES}")
            outcome.append(paid if step == count - 1 else 0.0)
    mask = np.array(masks)
    columns = {"response_mask": mask, "attention_mask": np.logical_or.accumulate(mask[:, ::-1], axis=1)[:, ::-1]}
    made = Talks(columns, {"conversation": conversation, "segment": segment, "group": group, "outcome": outcome})
    columns["scores"] = columns["rewards"] = scored(made, last(mask))
    return made


def last_steps(t: Talks) -> list[int]:
    """For each row the last row of its trajectory."""
    final = dict(zip(t.rows["conversation"], range(len(t.mask)), strict=True))
    return [final[one] for one in t.rows["conversation"]]


def against_group(t: Talks, rows: list[int], outcome: Floats) -> Floats:
    """(x − mean)/std of each row, the statistics of its group over the `rows` given."""
    advantages = np.zeros(len(t.mask))
    for row, name in enumerate(t.rows["group"]):
        peers = outcome[[i for i in rows if t.rows["group"][i] == name]]
        advantages[row] = (outcome[row] - peers.mean()) / (peers.std(ddof=1) + 1e-6)
    return advantages
