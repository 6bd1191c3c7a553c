"""Topics of time: what is before a token and what after it, what the masks leave out, how a response ends."""

from __future__ import annotations

from typing import Any

from mingce.algorithms import reference
from mingce.base.numbers import number as shown
from mingce.record.rollout import Rollout
from mingce.explain.topic import SILENT, Grid, Phrase, Values, listed, topic
from mingce.explain.topics.chosen import equation, plain, rows_of, token_of
from mingce.explain.topics.steps import Walk, spread, step, walk

# ── which index is which ─────────────────────────────────────────────────────────────────────────────────────────────


@topic
def state_action_index(rollout: Rollout, t: int) -> Values:
    values = step(rollout, t)
    w = walk(rollout)
    values["one_based"] = int(values["t"]) + 1
    values["to_go"] = plain(w.credit(lam=1.0).returns[0][w.place(t)])
    values["return_identity"] = equation("{return} − {value} = {advantage}", values)
    return values


@state_action_index.with_grid
def _index_grid(rollout: Rollout, t: int) -> Grid:
    v = step(rollout, t)
    here, there, action = f"s_{v['t']}", f"s_{v['next_t']}", f"a_{v['t']}"
    score, kl = (_at(rollout, name, v["t"]) for name in ("scores", "kl"))
    rows: list[tuple[Any, ...]] = [
        ("values[t]", here, "V(s_t)", v["value"]),
        ("scores[t]", action, "score_t", score),
        ("kl[t]", action, "k_t", kl),
        ("rewards[t]", f"{here} —{action}→ {there}", "r(s_t, a_t, s_{t+1})", v["reward"]),
        ("values[t+1]", there, "V(s_{t+1})", v["next_value"]),
        ("deltas[t]", action, "r_t + γV(s_{t+1}) − V(s_t)", v["delta"]),
        ("advantages[t]", action, "Σ_l (γλ)^l δ_{t+l} ≈ Q(s_t, a_t) − V(s_t)", v["advantage"]),
        ("returns[t]", here, "V(s_t) + A_t", v["return"]),
    ]
    return Grid(("column", "belongs_to", "definition", "here"), tuple(row for row in rows if row[-1] is not None))


def _at(rollout: Rollout, name: str, slot: int) -> float | None:
    column = rollout.columns.get(name)
    return None if column is None else column[slot]


# ── returns share the state's index ──────────────────────────────────────────────────────────────────────────────────


@topic
def returns_values_index(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    returns = w.credit().returns[0]
    upcoming = [*w.values[1:], w.after]
    v["shifted"] = spread(rollout, w, [r - u for r, u in zip(returns, upcoming, strict=True)])
    v["shifted_here"] = plain(v["return"] - v["next_value"])
    v["same_slot"] = equation("{return} − {value} = {advantage}", v)
    v["other_slot"] = equation("{return} − {next_value} = {shifted_here}", v)
    v["collected"] = plain(sum(w.rewards[: w.place(t)]))
    v["to_go"] = plain(w.credit(lam=1.0).returns[0][w.place(t)])
    return v


# ── the reward of an action or of a transition ───────────────────────────────────────────────────────────────────────


@topic
def reward_of_transition(rollout: Rollout, t: int) -> Values:
    v = step(rollout, t)
    score, kl, beta = _at(rollout, "scores", v["t"]), _at(rollout, "kl", v["t"]), rollout.settings.beta
    v |= {"score": score, "kl": kl, "beta": beta}
    if score is not None and kl is not None and beta is not None:
        v["cost"] = plain(beta * kl)
        parts, made_of = equation("{score} − {beta}·{kl} = {reward}", v), "made_of.score_and_kl"
    else:
        parts, made_of = shown(v["reward"]), "made_of.score" if score is not None else "made_of.itself"
    foreign = [s for s in range(int(v["t"]) + 1, int(v["next_t"])) if s < len(rollout.tokens)]
    v |= {"parts": parts, "made_of": Phrase(made_of), "count_foreign": len(foreign)}
    v["foreign"] = Phrase("foreign") if foreign else SILENT
    v["target"] = equation("{reward} + {gamma}·{next_value}", v)
    v["target_value"] = plain(v["reward"] + v["gamma"] * v["next_value"])
    return v


# ── before and after the move ────────────────────────────────────────────────────────────────────────────────────────


@topic
def move_before_after(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    late = [*w.values[1:], w.after]
    wrong = w.credit(values=late)
    v["late_values"] = spread(rollout, w, late)
    v["late_deltas"] = spread(rollout, w, wrong.deltas[0])
    v["late_advantages"] = spread(rollout, w, wrong.advantages[0])
    v["late_advantage"] = plain(wrong.advantages[0][w.place(t)])
    v["surprise"] = equation("{reward} + {gamma}·{next_value} − {value} = {delta}", v)
    slot = int(v["t"])
    v |= (
        {"seen": token_of(rollout, slot - 1), "read": Phrase("read.token")} if slot else {"read": Phrase("read.prompt")}
    )
    return v


@move_before_after.with_grid
def _move_grid(rollout: Rollout, t: int) -> Grid:
    w = walk(rollout)

    def row(k: int) -> tuple[Any, ...]:
        slot = w.slots[k]
        seen = token_of(rollout, slot - 1) if slot else "x"
        upcoming = w.following(w.values, k, w.after)
        return (f"s_{slot}", seen, w.values[k], token_of(rollout, slot), w.rewards[k], upcoming)

    headings = "state", "read_at", "value_before", "action", "r_t", "value_after"
    return Grid(headings, rows_of(len(w.slots), row))


# ── how a response ends ──────────────────────────────────────────────────────────────────────────────────────────────


def _cut(rollout: Rollout, w: Walk) -> tuple[float, Phrase, Phrase]:
    """The value after the cut, where it comes from, and whether this response was cut."""
    info = rollout.info
    stored = info.bootstrap_value
    if w.after:
        after, source = w.after, "used"
    elif stored:
        after, source = float(stored), "stored"
    else:
        after, source = w.values[-1], "last"
    by_limit, ended = info.truncated, info.finish_reason
    cut = "limit" if by_limit else "bootstrapped" if w.after else "ended" if ended else "unknown"
    return after, Phrase(f"cut_from.{source}"), Phrase(f"cut.{cut}")


@topic
def truncation(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    after, source, cut = _cut(rollout, w)
    zero, continued = w.credit(after=0.0), w.credit(after=after)
    k = w.place(t)
    v |= {
        "cut_value": after, "cut_from": source, "cut": cut, "rule": rollout.settings.truncation or "zero",
        "zero_delta": plain(zero.deltas[0][-1]), "cut_delta": plain(continued.deltas[0][-1]),
        "zero_advantages": spread(rollout, w, zero.advantages[0]),
        "cut_advantages": spread(rollout, w, continued.advantages[0]),
        "zero_advantage": plain(zero.advantages[0][k]), "cut_advantage": plain(continued.advantages[0][k]),
        "gap": plain(continued.advantages[0][k] - zero.advantages[0][k]),
        "zero_return": plain(zero.returns[0][k]), "cut_return": plain(continued.returns[0][k]),
    }  # fmt: skip
    v["zero_equation"] = equation("{last_reward} + {gamma}·0 − {last_value} = {zero_delta}", v)
    v["cut_equation"] = equation("{last_reward} + {gamma}·{cut_value} − {last_value} = {cut_delta}", v)
    v["gap_difference"] = equation("{cut_advantage} − {zero_advantage} = {gap}", v)
    v["gap_equation"] = equation("{gamma}·{gamma_lam}^{chosen_left}·{cut_value} = {gap}", v)
    return v


@truncation.with_grid
def _truncation_grid(rollout: Rollout, t: int) -> Grid:
    w = walk(rollout)
    after, _, _ = _cut(rollout, w)
    zero, continued = w.credit(after=0.0).advantages[0], w.credit(after=after).advantages[0]

    def row(k: int) -> tuple[Any, ...]:
        return (token_of(rollout, w.slots[k]), plain(zero[k]), plain(continued[k]), plain(continued[k] - zero[k]))

    return Grid(("token", "zero", "bootstrap", "difference"), rows_of(len(w.slots), row))


# ── masks and EOS ────────────────────────────────────────────────────────────────────────────────────────────────────


@topic
def masks_eos(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    mask = rollout.columns["response_mask"]
    by_slot = {slot: k for k, slot in enumerate(w.slots)}
    response = range(w.slots[-1] + 1)
    rewards = [w.rewards[by_slot[s]] if s in by_slot else 0.0 for s in response]
    values = [w.values[by_slot[s]] if s in by_slot else 0.0 for s in response]
    blind = reference.gae([[*rewards, 0.0]], [[*values, 1.0]], [[1] * (len(response) + 1)], w.gamma, w.lam)
    holes = [s for s in range(w.slots[0], w.slots[-1]) if s not in by_slot]
    v |= {
        "mask": listed([int(bool(m)) for m in mask]), "count_slots": len(mask), "count_holes": len(holes),
        "blind_delta": plain(blind.deltas[0][w.slots[-1]]), "blind_advantage": plain(blind.advantages[0][w.slots[-1]]),
        "blind_advantages": spread(rollout, w, [blind.advantages[0][s] for s in w.slots]),
        "blind_here": plain(blind.advantages[0][w.slots[w.place(t)]]),
    }  # fmt: skip
    v["blind_equation"] = equation("{last_reward} + {gamma}·1 − {last_value} = {blind_delta}", v)
    v["end_equation"] = equation("{last_reward} + {gamma}·{bootstrap} − {last_value} = {last_delta}", v)
    if holes:
        before, after = max(s for s in w.slots if s < holes[0]), min(s for s in w.slots if s > holes[0])
        v |= {"hole_before": before, "hole_after": after}
        v |= {"token_before": token_of(rollout, before), "token_after": token_of(rollout, after)}
    v["holes"] = Phrase("holes.some" if holes else "holes.none")
    return v
