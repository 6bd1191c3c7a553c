"""Advantages without a critic: verl's estimators are recognised, wrong scales, signs, rows and groups are named."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mingce.audit import credit, groups, whitening
from mingce.audit.evidence import Evidence
from mingce.audit.finding import Finding
from mingce.record.dump import Dump
from mingce.specs.settings import DumpSettings

GROUPED = ("grpo", "dr_grpo", "rloo", "opo", "gpg", "grpo_passk", "reinforce_plus_plus_baseline")
SAMPLES, PROMPTS, WIDTH = 4, 6, 12
Made = tuple[Tensor, Tensor]


def batch(seed: int, prompts: int = PROMPTS, samples: int = SAMPLES, spread: bool = True) -> dict[str, Any]:
    """Rewards on chosen tokens, ragged, with a tool's output in some rows."""
    g = torch.Generator().manual_seed(seed)
    rows = prompts * samples
    mask = torch.arange(WIDTH) < torch.randint(4, WIDTH + 1, (rows, 1), generator=g)
    mask[::3, 2] = False
    scores = torch.rand(rows, generator=g) if spread else (torch.rand(rows, generator=g) > 0.5).float()
    rewards = -0.01 * torch.rand(rows, WIDTH, generator=g) * mask if spread else torch.zeros(rows, WIDTH)
    rewards[torch.arange(rows), torch.where(mask, torch.arange(WIDTH), 0).amax(1)] += scores
    return {"rewards": rewards, "mask": mask, "group": [f"p{i // samples}" for i in range(rows)]}


def grouped(b: dict[str, Any], name: str) -> Made:
    """What verl's function of that name does, prompt by prompt."""
    total, found, length = b["rewards"].sum(1), torch.zeros(len(b["group"])), b["mask"].sum(1)
    for prompt in dict.fromkeys(b["group"]):
        rows = torch.tensor([i for i, one in enumerate(b["group"]) if one == prompt])
        x, n = total[rows], length[rows]
        gap = x - x.mean()
        if name == "grpo":
            gap = gap / (x.std() + 1e-6)
        elif name == "rloo":
            gap = gap * len(x) / (len(x) - 1)
        elif name == "opo":
            gap = x - (n * x).sum() / n.sum()
        elif name == "gpg":
            gap = gap * len(total) / (total != 0).sum()
        elif name == "grpo_passk":
            top = x.topk(2)
            gap = torch.zeros(len(x)).index_fill(0, top.indices[:1], float(top.values[0] - top.values[1]))
            gap = gap / (x.std() + 1e-6)
        found[rows] = gap
    spread = found[:, None] * b["mask"]
    if name == "reinforce_plus_plus_baseline":
        spread = whitened(spread, b["mask"])
    return spread, spread


def whitened(x: Tensor, mask: Tensor) -> Tensor:
    seen = x[mask]
    return (x - seen.mean()) / (seen.var() + 1e-8).sqrt() * mask


def to_go(b: dict[str, Any]) -> Tensor:
    sums: Tensor = (b["rewards"] * b["mask"]).flip(1).cumsum(1).flip(1)
    return sums


def remax(b: dict[str, Any]) -> Made:
    greedy = {prompt: 0.1 + 0.07 * i for i, prompt in enumerate(dict.fromkeys(b["group"]))}
    returns = to_go(b)
    return returns - torch.tensor([greedy[one] for one in b["group"]])[:, None] * b["mask"], returns


def optimal_token_baseline(b: dict[str, Any]) -> Made:
    """One baseline for each slot of a prompt's samples; none on the tail of the longest."""
    returns, mask = to_go(b), b["mask"]
    weight = torch.rand(mask.shape, generator=torch.Generator().manual_seed(3)).cumsum(1) * mask
    taken = torch.zeros_like(returns)
    for prompt in dict.fromkeys(b["group"]):
        rows = torch.tensor([i for i, one in enumerate(b["group"]) if one == prompt])
        taken[rows] = (returns[rows] * weight[rows]).sum(0) / (weight[rows].sum(0) + 1e-8)
        lengths = mask[rows].sum(1)
        if (lengths == lengths.max()).sum() == 1:
            taken[rows[lengths.argmax()], int(lengths.sort().values[-2]) :] = 0.0
    return (returns - taken) * mask, returns


def cases(**settings: Any) -> list[dict[str, Any]]:
    """With the settings and without."""
    return [settings, {}]


def look(
    b: dict[str, Any], made: Made, source: str = "verl", kind: torch.dtype = torch.float32, **settings: Any
) -> list[Finding]:
    floats = {"rewards": b["rewards"], "advantages": made[0], "returns": made[1]}
    columns = {name: x.to(kind).float().numpy() for name, x in floats.items()} | {"response_mask": b["mask"].numpy()}
    if "token_ids" in b:
        columns["token_ids"] = b["token_ids"]
    e = Evidence(Dump(columns, {"group": b["group"]}, DumpSettings(**settings), source=source))
    checks = [*credit.CHECKS, *whitening.CHECKS, *groups.CHECKS]
    return [finding for check in checks if e.has(*check.needs) for finding in check.findings(e) or ()]


def codes(found: list[Finding], *levels: str) -> list[str]:
    return [one.fault.code for one in found if one.level in (levels or ("bug", "suspicious"))]


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", [*GROUPED, "remax", "optimal_token_baseline", "reinforce_plus_plus"])
def test_the_estimators_of_verl_are_known_with_and_without_settings(name: str, kind: torch.dtype) -> None:
    for seed in range(3):
        b = batch(seed)
        if name == "reinforce_plus_plus":
            made = whitened(to_go(b), b["mask"]), to_go(b)
        else:
            own = {"remax": remax, "optimal_token_baseline": optimal_token_baseline}
            made = own[name](b) if name in own else grouped(b, name)
        assert codes(look(b, made, kind=kind, estimator=name)) == []
        assert codes(look(b, made, kind=kind)) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_the_functions_of_verl_itself_are_known(kind: torch.dtype) -> None:
    """The first time it downloads verl's wheel."""
    from audit_peers import verl

    registry = verl().ADV_ESTIMATOR_REGISTRY
    for seed in range(3):
        b = batch(seed)
        index, mask = np.array(b["group"], dtype=object), b["mask"].float()
        config = SimpleNamespace(gamma=0.99, get=lambda name, default=None: default)
        more = {
            "config": config, "old_log_probs": -torch.rand(mask.shape), "sum_pi_squared": 0.5 * torch.rand(mask.shape),
            "reward_baselines": torch.tensor([0.1 * int(one[1:]) for one in b["group"]]),
        }  # fmt: skip
        for name, function in registry.items():
            if name in ("gae", "grpo_vectorized", "gdpo"):
                continue
            taken = function.__code__.co_varnames[: function.__code__.co_argcount]
            given = {"token_level_rewards": b["rewards"].clone(), "response_mask": mask, "index": index} | more
            made = function(**{key: value for key, value in given.items() if key in taken})
            for settings in cases(estimator=name):
                assert codes(look(b, made, kind=kind, **settings)) == [], (name, settings)


@pytest.mark.parametrize(
    ("factor", "code"), [(100.0, "advantage-scale"), (0.5, "advantage-scale"), (-1.0, "advantage-sign")]
)
@pytest.mark.parametrize("name", ["grpo", "rloo"])
def test_a_wrong_scale_is_said_with_its_factor(name: str, factor: float, code: str) -> None:
    for settings in cases(estimator=name):
        b = batch(0)
        made = grouped(b, name)[0] * factor
        found = [one for one in look(b, (made, made), **settings) if one.level in ("bug", "suspicious")]
        assert [one.fault.code for one in found] == [code]
        assert found[0].values["factor"] == pytest.approx(factor, rel=1e-2)


def test_the_deviation_of_the_batch_is_a_choice_of_trl_and_none_of_verl() -> None:
    b = batch(1)
    made = grouped(b, "dr_grpo")[0] / (b["rewards"].sum(1).std() + 1e-4)
    assert codes(look(b, (made, made), source="trl_grpo", estimator="grpo")) == []
    assert codes(look(b, (made, made), source="generic")) == []
    for source in ("verl", "generic"):  # where nothing says that it is meant
        found = look(b, (made, made), source=source, estimator="grpo")
        assert [(one.fault.code, one.named) for one in found if one.level == "suspicious"] == [
            ("estimator-differs", (1, 30))
        ]
    assert codes(look(b, (made, made), source="generic", estimator="grpo", std_over="batch")) == []
    assert codes(look(b, (made, made), source="trl_grpo", estimator="grpo", std_over="group")) == ["estimator-differs"]


def test_one_spike_loosens_nothing() -> None:
    """A prompt whose rewards are a thousand times the others', and one small error in another prompt."""
    b = batch(2)
    b["rewards"][:SAMPLES] *= 1000
    made = grouped(b, "dr_grpo")[0]
    assert codes(look(b, (made, made))) == []
    made[10] += 0.05 * b["mask"][10]
    found = look(b, (made, made))
    assert codes(found) == ["group-rows-off"]
    assert [place.row for one in found for place in one.places] == [10]


def test_rows_of_others_halves_and_copies_are_named() -> None:
    b = batch(3)
    made = grouped(b, "grpo")[0]
    value = made.sum(1) / b["mask"].sum(1)
    swapped = value[[*range(4), *np.roll(np.arange(4, 20), 5), *range(20, 24)]][:, None] * b["mask"]
    assert [one.named for one in look(b, (swapped, swapped)) if one.level == "bug"] == [(37,)]
    halves = grouped(b | {"group": [f"{one}-{i % SAMPLES < 2}" for i, one in enumerate(b["group"])]}, "grpo")[0]
    assert codes(look(b, (halves, halves))) == ["groups-misformed"]
    rows = [*range(24), 3, 7, 7]
    ids = np.arange(24)[:, None] * 100 + np.arange(WIDTH)
    again = {"rewards": b["rewards"][rows], "mask": b["mask"][rows], "token_ids": ids[rows]}
    found = look(again | {"group": [b["group"][i] for i in rows]}, (made[rows], made[rows]))
    assert codes(found) == ["group-rows-copied"]


@pytest.mark.parametrize("name", GROUPED)
def test_batches_in_which_nothing_differs_raise_no_alarm(name: str) -> None:
    for change in ("equal", "zero", "one token", "alone"):
        b = batch(4, *((24, 1) if change == "alone" and name != "grpo_passk" else (PROMPTS, SAMPLES)), spread=False)
        if change == "one token":
            b["mask"], b["rewards"] = (
                b["mask"] & (torch.arange(WIDTH) < 1),
                b["rewards"].sum(1)[:, None] * (torch.arange(WIDTH) < 1),
            )
        if change in ("equal", "zero"):
            b["rewards"] = torch.where(b["rewards"] != 0, float(change == "equal"), 0.0)
        if change == "alone" and name != "grpo_passk":  # verl keeps the score of a group of one
            kept = b["rewards"].sum(1)[:, None] * b["mask"]
            made = (kept, kept)
        else:
            made = grouped(b, name)
        for settings in cases(estimator=name):
            assert codes(look(b, made, **settings)) == [], (change, settings)


def test_another_baseline_or_another_outcome_within_the_group_is_named() -> None:
    b = batch(7)
    b["rewards"] = torch.where(b["rewards"] > 0.02, b["rewards"], 0.0)
    x, length = b["rewards"].sum(1), b["mask"].sum(1)
    part = torch.arange(len(x)) // SAMPLES
    lowest = x.view(-1, SAMPLES).amin(1)[part]
    made = (x - lowest)[:, None] * b["mask"]
    found = look(b, (made, made), source="generic")
    assert [one.fault.code for one in found if one.level == "suspicious"] == ["group-other-baseline"]
    assert "smallest" in next(one for one in found if one.level == "suspicious").values["what"]
    over = (x / length).view(-1, SAMPLES)
    made = (over - over.mean(1, keepdim=True)).view(-1)[:, None] * b["mask"]
    found = look(b, (made, made), source="trl_grpo", estimator="grpo")
    assert [one.fault.code for one in found if one.level == "suspicious"] == ["group-of-other-outcome"]
    stale = torch.rand(PROMPTS, generator=torch.Generator().manual_seed(3))[part]
    made = (x - stale)[:, None] * b["mask"]
    assert codes(look(b, (made, made), source="trl_grpo")) == ["group-foreign-baseline"]
    assert codes(look(b, (made, made), source="generic")) == []  # as ReMax does it


def test_rewards_compared_apart_raise_no_alarm_where_one_group_tells_little() -> None:
    """TRL's normalize_then_sum: one prompt's advantages are nearly 0, another's only rewards are not in the dump."""
    b = batch(8, prompts=4)
    b["rewards"] = torch.zeros_like(b["rewards"])
    outcome = [1.0] * 4 + [0.125, 1.0, 0.0, 0.125] + [1.0, 0.25, 1.0, 1.0] + [0.0] * 4
    last = torch.where(b["mask"], torch.arange(WIDTH), 0).amax(1)
    b["rewards"][torch.arange(16), last] = torch.tensor(outcome)
    told = [0.0] * 4 + [0.888, 1.5449, -3.3209, 0.888] + [7e-4, -2.1e-3, 7e-4, 7e-4] + [0.0] * 4
    made = torch.tensor(told)[:, None] * b["mask"]
    assert codes(look(b, (made, made), source="trl_grpo")) == []
    assert codes(look(b, (made, made), source="trl_grpo", estimator="grpo", rewards_apart=True)) == []


def test_pairs_of_samples_are_not_halved_into_groups_of_one() -> None:
    """A group of one has no deviation to be held against: nothing is said by it."""
    b = batch(9, prompts=10, samples=2)
    x = b["rewards"].sum(1)
    part = torch.arange(len(x)) // 2
    made = 0.3 * (
        x - x.view(-1, 2).mean(1)[part] + 0.01 * torch.randn(len(x), generator=torch.Generator().manual_seed(1))
    )
    made = made[:, None] * b["mask"]
    assert "groups-misformed" not in codes(look(b, (made, made)))


def test_one_prompt_alone_or_rounded_numbers_of_no_named_estimator_are_a_note() -> None:
    one = batch(14, prompts=1, samples=8)
    made = torch.randn(8, generator=torch.Generator().manual_seed(2))[:, None] * one["mask"]
    assert codes(look(one, (made, made), estimator="gdpo")) == []
    assert codes(look(one, (made, made), estimator="gdpo"), "note") == ["group-unexplained"]


@pytest.mark.parametrize("seed", range(4))
def test_rewards_that_trl_compares_apart_are_held_against_no_total(seed: int) -> None:
    """TRL's normalize_then_sum: each reward by itself, their sum divided by the deviation of the batch."""
    b = batch(seed)
    g = torch.Generator().manual_seed(seed)
    parts = torch.stack([b["rewards"].sum(1), (torch.rand(len(b["group"]), generator=g) > 0.5).float()])
    apart = parts.view(2, PROMPTS, SAMPLES)
    apart = ((apart - apart.mean(2, keepdim=True)) / (apart.std(2, keepdim=True) + 1e-4)).sum(0).reshape(-1)
    made = ((apart - apart.mean()) / (apart.std() + 1e-4))[:, None] * b["mask"]
    b["rewards"][torch.arange(len(apart)), torch.where(b["mask"], torch.arange(WIDTH), 0).amax(1)] += parts[1]
    for settings in cases(estimator="grpo", rewards_apart=True):
        for kind in (torch.float32, torch.bfloat16):
            assert codes(look(b, (made, made), "trl_grpo", kind, **settings)) == []


def test_one_prompt_that_differs_says_neither_scale_nor_row() -> None:
    b = batch(0, spread=False)
    b["rewards"] *= 0.0
    b["rewards"][7, 0] = 1.0
    made = torch.zeros(len(b["group"]))
    made[4:8] = torch.tensor([-0.329, -0.329, -0.329, 0.987])
    spread = made[:, None] * b["mask"]
    found = codes(look(b, (spread, spread), "trl_grpo"))
    assert not {"advantage-scale", "rows-desynchronised"} & set(found)
