"""The audit of conversations with tools: it names the bugs of public reports from dumps made as they describe them,
with settings and without, and is silent on the same batch computed right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agent_dumps import (
    BETA,
    END,
    GAMMA,
    LAM,
    Floats,
    Talks,
    against_group,
    compact_returns,
    dump_of,
    kl,
    last,
    last_steps,
    recursion,
    reward_to_go,
    scored,
    steps,
    talks,
    whitened,
)

from mingce.audit.audit import audit
from mingce.record.dump import Dump

PENALTY = {"beta": BETA, "kl_estimator": "k1"}
SUMS: dict[str, Any] = {"estimator": "reinforce_plus_plus", "gamma": GAMMA, **PENALTY}
CRITIC: dict[str, Any] = {"estimator": "gae", "gamma": GAMMA, "lam": LAM, **PENALTY}
SEEDS = range(3)
settings_known = pytest.mark.parametrize("known", [True, False], ids=["with settings", "without settings"])
rewards_stored = pytest.mark.parametrize("stored", [True, False], ids=["rewards", "no rewards"])


def codes(dump: Dump, *levels: str) -> set[str]:
    return {
        finding.fault.code for finding in audit(dump).findings if finding.level in (levels or ("bug", "suspicious"))
    }


def summed(t: Talks, rewards: Floats, returns: Floats, settings: dict[str, Any], stored: bool) -> Dump:
    """A dump without a critic."""
    made = {"returns": returns, "advantages": whitened(returns, t.mask)}
    if stored:
        made |= {"rewards": rewards, "scores": scored(t, last(t.mask))}
    without = Talks({name: column for name, column in t.columns.items() if name != "values"}, t.rows)
    return dump_of(without, made, settings)


@settings_known
@rewards_stored
@pytest.mark.parametrize("seed", SEEDS)
def test_verl_6376_observations_reset_the_running_return(known: bool, stored: bool, seed: int) -> None:
    """running_return = running_return · response_mask[:, t] after every token."""
    t, settings = talks(seed), SUMS if known else {}
    mask = t.mask
    rewards = np.where(mask, scored(t, last(mask)) - BETA * kl(t), 0.0)
    faulty = reward_to_go(rewards, GAMMA, lambda row, at, running: running * float(mask[row, at]))
    assert codes(summed(t, rewards, faulty, settings, stored)) == {"hole-cuts-credit"}
    assert codes(summed(t, rewards, compact_returns(t, rewards), settings, stored)) == set()


@settings_known
@rewards_stored
@pytest.mark.parametrize("gamma", [1.0, GAMMA])
def test_slime_1370_the_kl_of_tool_output_enters_the_returns(known: bool, stored: bool, gamma: float) -> None:
    """token_level_rewards = −β·kl of the whole response, the score on its last unmasked token, summed from the end."""
    t, settings = talks(3), SUMS | {"gamma": gamma} if known else {}
    score = scored(t, last(t.mask))
    everywhere = np.where(t.present, score - BETA * kl(t), 0.0)
    faulty = reward_to_go(everywhere, gamma, lambda row, at, running: running)
    assert "kl-on-tool-tokens" in codes(summed(t, everywhere, faulty, settings, stored))
    masked = np.where(t.mask, everywhere, 0.0)
    assert codes(summed(t, masked, compact_returns(t, masked, gamma), settings, stored)) == set()


@settings_known
@rewards_stored
@pytest.mark.parametrize("seed", SEEDS)
def test_miles_1827_gae_runs_over_every_token_of_the_response(known: bool, stored: bool, seed: int) -> None:
    """The score on the last token, be it a tool's; KL and values of tool output in the recursion."""
    t, settings = talks(seed, ends_in_tool=True), CRITIC if known else {}

    def made(score_at: Any, slots: Any) -> Dump:
        score = scored(t, score_at)
        rewards = np.where(slots, score - BETA * kl(t), 0.0)
        raw = recursion(rewards, t["values"], slots, GAMMA, LAM)
        columns = {"returns": np.where(slots, raw + t["values"], 0.0), "advantages": whitened(raw, t.mask)}
        return dump_of(t, columns | ({"rewards": rewards, "scores": score} if stored else {}), settings)

    faulty = codes(made(last(t.present), t.present))
    assert {"recursion-through-tool-tokens", "kl-on-tool-tokens", "score-on-masked-token"} <= faulty
    assert "score-differs" not in faulty
    assert codes(made(last(t.mask), t.mask)) == set()


def texts_of(t: Talks, where: Any) -> list[str]:
    """Texts as a tokenizer with tokens of one to five letters would decode them."""
    return [
        "".join("abcde"[: 1 + int(token) % 5] for token in ids[row])
        for ids, row in zip(t["token_ids"], where, strict=True)
    ]


@settings_known
@pytest.mark.parametrize("seed", SEEDS)
def test_verl_6392_the_scorer_reads_tool_output(known: bool, seed: int) -> None:
    """valid_response_ids by the attention mask: the text holds the tool's, the score sits on the tool's last token."""
    t, settings = talks(seed, ends_in_tool=True), CRITIC if known else {}

    def made(seen: Any) -> Dump:
        score = scored(t, last(seen))
        rewards = score - np.where(t.mask, BETA * kl(t), 0.0)
        raw = recursion(np.where(t.mask, rewards, 0.0), t["values"], t.mask, GAMMA, LAM)
        columns = {"returns": np.where(t.mask, raw + t["values"], 0.0), "advantages": whitened(raw, t.mask)}
        columns |= {"rewards": rewards, "scores": score}
        return dump_of(t, columns, settings, reward_text=texts_of(t, seen))

    assert codes(made(t.present)) == {"score-on-masked-token", "scored-tool-output"}
    assert codes(made(t.mask)) == set()


@settings_known
@pytest.mark.parametrize("masked", [False, True], ids=["as copied", "kept behind the mask"])
@pytest.mark.parametrize("seed", SEEDS)
def test_skyrl_1507_the_last_steps_advantage_is_copied_with_its_mask(known: bool, masked: bool, seed: int) -> None:
    """advantages = last_step_advantages[traj_ids], masked by the last step's own mask already."""
    t, settings = steps(seed), {"estimator": "grpo"} if known else {}
    final, outcome = last_steps(t), np.array(t.rows["outcome"])
    number = against_group(t, sorted(set(final)), outcome)[final]
    right = np.where(t.mask, number[:, None], 0.0)
    copied = right[final]
    faulty = np.where(t.mask, copied, 0.0) if masked else copied
    assert codes(dump_of(t, {"advantages": faulty}, settings)) == {"advantages-behind-another-mask"}
    assert codes(dump_of(t, {"advantages": right}, settings)) == set()


@settings_known
@pytest.mark.parametrize("seed", SEEDS)
def test_skyrl_1507_where_responses_stand_at_the_right_edge(known: bool, seed: int) -> None:
    """As SkyRL lays them out: the copied mask covers a row's last tokens, as many as the last step has."""
    t, settings = steps(seed), {"estimator": "grpo"} if known else {}
    final, outcome = last_steps(t), np.array(t.rows["outcome"])
    lengths = t.mask.sum(axis=1)
    at = np.arange(int(lengths.max()))
    mask = at < lengths[:, None]
    alone = Talks({"response_mask": mask, "attention_mask": mask}, t.rows)
    number = against_group(t, sorted(set(final)), outcome)[final]
    right = np.where(mask, number[:, None], 0.0)
    faulty = np.where(at >= (lengths - lengths[final])[:, None], right, 0.0)
    assert codes(dump_of(alone, {"advantages": faulty}, settings)) == {"advantages-behind-another-mask"}
    assert codes(dump_of(alone, {"advantages": right}, settings)) == set()


@settings_known
def test_group_statistics_are_over_trajectories(known: bool) -> None:
    t, settings = steps(5), {"estimator": "grpo"} if known else {}
    final = last_steps(t)
    outcome = np.array(t.rows["outcome"])[final]
    over_rows, over_trajectories = (
        np.where(t.mask, against_group(t, rows, outcome)[:, None], 0.0)
        for rows in (list(range(len(t.mask))), sorted(set(final)))
    )
    assert codes(dump_of(t, {"advantages": over_rows}, settings)) == {"group-statistics-over-turns"}
    assert codes(dump_of(t, {"advantages": over_trajectories}, settings)) == set()


def roles_of(t: Talks) -> dict[str, Any]:
    role = np.where(t.mask, 1, np.where(t.present, 2, 0))
    starts = t.mask & ~np.pad(t.mask, ((0, 0), (1, 0)))[:, :-1]
    return {"role": role, "turn": np.where(t.present, np.cumsum(starts, axis=1) - 1, 0)}


def test_masks_are_those_of_the_roles() -> None:
    t = talks(6)
    told = t.present & ~t.mask
    assert codes(dump_of(t, roles_of(t), {})) == set()
    early = t.mask | (told & np.pad(t.mask, ((0, 0), (0, 1)))[:, 1:])  # every turn begins a token early
    wrong = Talks(t.columns | {"response_mask": early}, t.rows)
    assert "observation-chosen" in codes(dump_of(wrong, roles_of(t), {}))
    fewer = t.mask & ~((roles_of(t)["turn"] == 1) & (np.arange(len(t.mask)) % 3 == 0)[:, None])
    assert "assistant-tokens-masked" in codes(
        dump_of(Talks(t.columns | {"response_mask": fewer}, t.rows), roles_of(t), {})
    )
    backwards = roles_of(t) | {"turn": np.where(t.present, 3 - roles_of(t)["turn"], 0)}
    assert codes(dump_of(t, backwards, {})) == {"turns-out-of-order"}


@pytest.mark.parametrize("numbered", [True, False], ids=["turns numbered", "turns not numbered"])
def test_a_score_at_a_turns_end_is_what_the_turn_earned(numbered: bool) -> None:
    """Where some conversations are paid for their last turn; one paid score on every row's first turn is misplaced."""
    t = talks(11)
    roles = roles_of(t)
    first = np.array(
        [int(np.flatnonzero(row & (turn == 0)).max()) for row, turn in zip(t.mask, roles["turn"], strict=True)]
    )
    shown = roles if numbered else {}
    some = scored(t, np.where(np.arange(len(first)) % 2 == 0, first, last(t.mask)))
    assert "score-index" not in codes(dump_of(t, shown | {"scores": some, "rewards": some}, {}))
    everywhere = scored(t, first)
    assert ("score-index" in codes(dump_of(t, shown | {"scores": everywhere, "rewards": everywhere}, {}))) != numbered
    inside = scored(t, np.maximum(last(t.mask) - 1, 0))
    assert "score-index" in codes(dump_of(t, shown | {"scores": inside, "rewards": inside}, {}))


def test_a_turn_that_nothing_was_said_to_is_no_text_behind_the_end() -> None:
    t = talks(13)
    told = t.present & ~t.mask
    order = np.argsort(told, axis=1, kind="stable")  # the observations taken out, what is left moved up
    columns = {name: np.take_along_axis(column, order, axis=1) for name, column in (t.columns | roles_of(t)).items()}
    left = np.arange(told.shape[1]) < (told.shape[1] - told.sum(axis=1))[:, None]
    columns = {name: np.where(left, column, np.zeros((), column.dtype)) for name, column in columns.items()}
    assert codes(dump_of(Talks(columns, t.rows), {}, {"eos_id": END})) == set()
    columns.pop("turn")
    assert "tokens-after-stop" in codes(dump_of(Talks(columns, t.rows), {}, {"eos_id": END}))


def test_conversations_are_cut_by_other_limits_than_their_length() -> None:
    """Rows that a limit of turns ended, shorter than others: the share that is logged, and ends of all kinds."""
    t = talks(12)
    reason = ["length" if row % 3 else "stop" for row in range(len(t.mask))]
    made = dump_of(t, roles_of(t), {}, finish_reason=reason)
    made.columns["token_ids"] = made.columns["token_ids"].copy()
    stopped = [row for row, one in enumerate(reason) if one == "stop"]
    made.columns["token_ids"][stopped, last(t.mask)[stopped]] = 3
    made.scalars["response_length_cut"] = reason.count("length") / len(reason)
    for kind in ("mean", "max", "min"):
        made.scalars[f"response_length_{kind}"] = float(getattr(t.present.sum(axis=1), kind)())
    assert codes(made) == set()


def test_drift_is_reported_by_row_and_turn() -> None:
    t = talks(7)
    second = int(np.flatnonzero(roles_of(t)["turn"][2] == 1)[1])
    at = [second if row == 2 else -1 for row in range(len(t.mask))]
    for columns in (roles_of(t), {}):
        (finding,) = [one for one in audit(dump_of(t, columns, {}, drift=at)).findings if one.column == "token_ids"]
        assert (finding.level, finding.fault.code) == ("note", "text-encodes-otherwise")
        assert [finding.values[name] for name in ("count", "row", "token", "turn")] == [1, 2, second, 2]
    assert "text-encodes-otherwise" not in codes(dump_of(t, {}, {}, drift=[-1] * len(at)), "note")


def test_ids_and_log_probs_of_one_turn_that_was_tokenised_again_are_found_there() -> None:
    """The second turn of one row was decoded and encoded anew: other ids, and log-probs that belong to others."""
    t = talks(8)
    turn = roles_of(t)["turn"]
    sampled = [ids[row].tolist() for ids, row in zip(t["token_ids"], t.present, strict=True)]
    slots = np.flatnonzero((turn[5] == 1) & t.mask[5])
    t.columns["token_ids"] = t["token_ids"].copy()
    t.columns["token_ids"][5, slots] += 1
    (finding,) = [one for one in audit(dump_of(t, {}, {}, rollout_ids=sampled)).findings if one.level == "bug"]
    assert finding.fault.code == "retokenised-ids"
    assert [finding.values[name] for name in ("row", "token", "turn")] == [5, int(slots[0]), 2]


@pytest.mark.parametrize("over", ["told", "right"])
def test_whitening_statistics_over_observations_are_named(over: str) -> None:
    t = talks(9)
    rewards = np.where(t.mask, scored(t, last(t.mask)) - BETA * kl(t), 0.0)
    raw = recursion(rewards, t["values"], t.mask, GAMMA, LAM)
    used = raw[t.present if over == "told" else t.mask]
    white = np.where(t.mask, (raw - used.mean()) / np.sqrt(used.var(ddof=1) + 1e-8), 0.0)
    made = {"rewards": rewards, "returns": np.where(t.mask, raw + t["values"], 0.0), "advantages": white}
    found = {one.fault.code for one in audit(dump_of(t, made, CRITIC)).findings if one.level in ("bug", "suspicious")}
    assert bool(found) == (over == "told"), found


def test_loss_of_observations_is_named() -> None:
    t = talks(10)
    assert codes(dump_of(t, {"loss_mask": t.present}, {})) == {"loss-mask-outside-response"}


@pytest.mark.parametrize("kept", [True, False], ids=["conversations known", "rows alone"])
def test_turns_that_are_rows_end_otherwise_than_answers(kept: bool) -> None:
    """Twenty turns a conversation that end with a call's mark, but for the last one, which ends with the stop id."""
    rng = np.random.default_rng(14)
    lengths = rng.integers(4, 11, 200)
    mask = np.arange(12) < lengths[:, None]
    ids = np.where(mask, rng.integers(10, 900, mask.shape), 0)
    conversation = np.repeat(np.arange(10), 20)
    final = np.arange(200) % 20 == 19
    ids[np.arange(200), lengths - 1] = np.where(final, END, 5)
    t = Talks({"token_ids": ids, "response_mask": mask, "attention_mask": mask}, {})
    rows = {"conversation": conversation.tolist()} if kept else {}
    assert ("lone-row-without-stop" in codes(dump_of(t, {}, {}, **rows))) != kept
