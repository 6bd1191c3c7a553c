"""Credit: Monte Carlo, TD, GAE, and who gets what for which token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from mingce.algorithms import reference
from mingce.explain import simulation
from mingce.explain.account import shown
from mingce.explain.account_texts import Pair
from mingce.explain.example import Rollout
from mingce.explain.topic import Grid, Topic, Values, listed
from mingce.explain.topics.chosen import equation, plain, rows_of, token_of
from mingce.specs.estimators import lambda_of

MANY = 64


class Sides(NamedTuple):
    """A rollout's credit both ways, one number a chosen token; `next_*` are those of the next chosen one."""

    slots: list[int]
    gamma: float
    lam: float
    after: float
    rewards: list[float]
    values: list[float]
    next_values: list[float]
    deltas: list[float]
    advantages: list[float]
    returns: list[float]
    mc_returns: list[float]
    mc_advantages: list[float]


def sides(rollout: Rollout) -> Sides:
    """By the twins, whichever estimator the rollout itself was given."""
    columns, settings, after = rollout["columns"], rollout["settings"], float(rollout.get("bootstrap") or 0.0)
    rewards, values, mask = [columns["rewards"]], [columns["values"]], [columns["response_mask"]]
    gamma, lam = settings.get("gamma"), lambda_of(settings)
    gamma, lam = 1.0 if gamma is None else float(gamma), 0.95 if lam is None else float(lam)
    slots = reference.chosen(mask[0])
    credit = reference.gae(rewards, values, mask, gamma, lam, [after])
    mc = reference.monte_carlo(rewards, values, mask, gamma, [after])

    def of(row: Sequence[Any]) -> list[float]:
        return [plain(float(row[t])) for t in slots]

    critic = of(values[0])
    return Sides(
        slots, gamma, lam, after, of(rewards[0]), critic, [*critic[1:], after], of(credit.deltas[0]),
        of(credit.advantages[0]), of(credit.returns[0]), of(mc.returns[0]), of(mc.advantages[0]),
    )  # fmt: skip


def place_of(side: Sides, t: int) -> int:
    """Which of the chosen tokens slot t is; the first for a slot that was not chosen."""
    return side.slots.index(t) if t in side.slots else 0


def credit_numbers(rollout: Rollout, t: int) -> Values:
    """What the topics on credit have in common."""
    side = sides(rollout)
    k = place_of(side, t)
    count, decay = len(side.slots), side.gamma * side.lam
    ahead = [side.gamma**j * delta for j, delta in enumerate(side.deltas[k:])]
    found = {
        "t": side.slots[k],
        "token": token_of(rollout, side.slots[k]),
        "first": side.slots[0],
        "first_token": token_of(rollout, side.slots[0]),
        "gamma": side.gamma,
        "lam": side.lam,
        "gamma_lam": decay,
        "bootstrap": side.after,
        "left": count - k - 1,
        "reward": side.rewards[k],
        "value": side.values[k],
        "next_value": side.next_values[k],
        "delta": side.deltas[k],
        "advantage": side.advantages[k],
        "next_advantage": side.advantages[k + 1] if k + 1 < count else 0.0,
        "return": side.returns[k],
        "mc_return": side.mc_returns[k],
        "next_return": side.mc_returns[k + 1] if k + 1 < count else side.after,
        "mc_advantage": side.mc_advantages[k],
        "gap": plain(side.mc_advantages[k] - side.advantages[k]),
        "delta_sum": plain(math.fsum(ahead)),
        "later_sum": plain(math.fsum(ahead[1:])),
        "rewards": listed(side.rewards),
        "values": listed(side.values),
        "deltas": listed(side.deltas),
        "advantages": listed(side.advantages),
        "returns": listed(side.returns),
        "mc_returns": listed(side.mc_returns),
        "mc_advantages": listed(side.mc_advantages),
    }
    return found | {
        "mc_equation": equation("{mc_return} − {value} = {mc_advantage}", found),
        "step_equation": equation("{delta} + {gamma_lam}·{next_advantage} = {advantage}", found),
    }


def same(*symbols: str) -> tuple[Pair, ...]:
    """Headings that read alike in both languages."""
    return tuple((symbol, symbol) for symbol in symbols)


# ── the numbers of single topics ─────────────────────────────────────────────────────────────────────────────────────


def _both(rollout: Rollout, t: int) -> Values:
    """The last three tokens worked out by Monte Carlo and by GAE."""
    side = sides(rollout)
    lines: dict[str, list[str]] = {"mc": [], "gae": []}
    for k in reversed(range(max(0, len(side.slots) - 3), len(side.slots))):
        numbers = credit_numbers(rollout, side.slots[k])
        for name, line in (
            ("mc", "G_{t} = {reward} + {gamma}·{next_return} = {mc_return},  A_{t} = {mc_return} − {value} = {mc_advantage}"),
            ("gae", "δ_{t} = {reward} + {gamma}·{next_value} − {value} = {delta},  A_{t} = {delta} + {gamma_lam}·{next_advantage} = {advantage}"),
        ):  # fmt: skip
            lines[name].append("    " + equation(line, numbers))
    found = {f"{name}_lines": "\n".join(written) for name, written in lines.items()}
    return credit_numbers(rollout, t) | found | {"shown_count": len(lines["mc"])}


def _both_grid(rollout: Rollout, t: int) -> Grid:
    side = sides(rollout)
    columns = (
        side.rewards,
        side.values,
        side.deltas,
        side.mc_returns,
        side.mc_advantages,
        side.returns,
        side.advantages,
    )

    def row(k: int) -> tuple[Any, ...]:
        return side.slots[k], token_of(rollout, side.slots[k]), *(column[k] for column in columns)

    headings = same("t", "token", "r", "V", "δ", "G", "A (MC)", "R^λ", "A (GAE)")
    return Grid(headings, tuple(rows_of(len(side.slots), row)))


def _unrolled_grid(rollout: Rollout, t: int) -> Grid:
    """Token t's advantage term by term, undamped and damped."""
    side = sides(rollout)
    k, decay = place_of(side, t), side.gamma * side.lam

    def row(j: int) -> tuple[Any, ...]:
        delta = side.deltas[k + j]
        token = token_of(rollout, side.slots[k + j])
        return j, token, delta, plain(side.gamma**j * delta), decay**j, plain(decay**j * delta)

    total = ("Σ", "", "", side.mc_advantages[k], "", side.advantages[k])
    headings = same("l", "token", "δ_(t+l)", "γ^l·δ", "(γλ)^l", "(γλ)^l·δ")
    return Grid(headings, (*rows_of(len(side.slots) - k, row), total))


def _sums(rollout: Rollout, t: int) -> Values:
    """The whole response's excess against the sum of its TD errors and against the sum of its advantages."""
    side = sides(rollout)
    decay = side.gamma * side.lam
    times = reference.discounted_sum([1.0] * len(side.slots), decay)[::-1]  # how often A_0 … A_k count δ_k
    whole = {
        "first_value": side.values[0],
        "first_return": side.mc_returns[0],
        "first_excess": side.mc_advantages[0],
    }
    return (
        credit_numbers(rollout, t)
        | whole
        | {
            "first_equation": equation("{first_return} − {first_value} = {first_excess}", whole),
            "first_sum": plain(math.fsum(side.gamma**k * delta for k, delta in enumerate(side.deltas))),
            "first_advantage": side.advantages[0],
            "weights": listed([decay**k for k in range(len(side.slots))]),
            "terms": listed([plain(decay**k * delta) for k, delta in enumerate(side.deltas)]),
            "advantage_sum": plain(math.fsum(side.advantages)),
            "counted": listed(times),
            "counted_sum": plain(math.fsum(n * delta for n, delta in zip(times, side.deltas, strict=True))),
        }
    )


def _lambda_picture(rollout: Rollout, t: int) -> Values:
    """The simulation of the example's own world."""
    common = credit_numbers(rollout, t)
    found = simulation.simulated(rollout)
    world, lam = found.world, common["lam"]
    mean, variance = simulation.exact(world, lam)
    zero, one = found.rows[0], found.rows[-1]
    best = min(found.rows, key=lambda row: row.exact_bias**2 + row.exact_variance)
    best_many = min(found.rows, key=lambda row: row.exact_bias**2 + row.exact_variance / MANY)
    start = sides(rollout).slots[-len(world.rewards)]
    return common | {
        "steps": len(world.rewards),
        "start_token": token_of(rollout, start),
        "start_value": world.values[0],
        "stay": world.stay,
        "kept": world.kept,
        "samples": found.samples,
        "finished": found.finished,
        "sim_values": listed(world.values),
        "true_q": found.true_q,
        "target": plain(found.target),
        "bias_zero": zero.bias,
        "bias_one": one.bias,
        "bias_lam": plain(mean - found.target),
        "bias_formula": simulation.sum_of_errors(world, lam),
        "off_one": abs(one.bias),
        "var_zero": zero.variance,
        "var_one": one.variance,
        "var_lam": variance,
        "sd_zero": math.sqrt(zero.variance),
        "sd_one": math.sqrt(one.variance),
        "sd_lam": math.sqrt(variance),
        "perfect_variance": simulation.exact(simulation.with_true_critic(world), lam)[1],
        "squares": simulation.sum_of_squares(world, lam),
        "many": MANY,
        "best_lam": best.lam,
        "best_lam_many": best_many.lam,
    }


def _lambda_grid(rollout: Rollout, t: int) -> Grid:
    headings = (
        ("λ", "λ"), ("Â_0 均值", "mean Â_0"), ("偏差", "bias"), ("方差", "variance"), ("均方误差", "mean squared error"),
        ("偏差（精确）", "bias (exact)"), ("方差（精确）", "variance (exact)"),
    )  # fmt: skip
    return Grid(headings, tuple(tuple(row) for row in simulation.simulated(rollout).rows))


def _backward(rollout: Rollout, t: int) -> Values:
    """The same credit summed forwards, and what comes out when rewards are added in place of TD errors."""
    side = sides(rollout)
    k, decay = place_of(side, t), side.gamma * side.lam
    wrong = reference.discounted_sum([*side.rewards[:-1], side.deltas[-1]], decay)
    return credit_numbers(rollout, t) | {
        "forward": plain(math.fsum(decay**j * delta for j, delta in enumerate(side.deltas[k:]))),
        "last_weight": decay ** (len(side.slots) - 1),
        "last_delta": side.deltas[-1],
        "last_reward": side.rewards[-1],
        "last_share": plain(decay ** (len(side.slots) - 1) * side.deltas[-1]),
        "wrong": plain(wrong[k]),
    }


def _allocations(rollout: Rollout) -> tuple[Sides, int, dict[str, list[float]]]:
    """Every allocation's credit of every chosen token; attention grows with the place where none was recorded."""
    side = sides(rollout)
    k = rollout["settings"].get("k") or 3
    mask = [[1] * len(side.slots)]
    recorded = rollout["columns"].get("attention_weights")
    attention = [float(place) for place in range(1, len(side.slots) + 1)]
    if recorded is not None:
        attention = [float(recorded[t]) for t in side.slots]
    found = {
        "uniform": reference.uniform([side.rewards], mask)[0],
        "last_k": reference.last_k([side.rewards], mask, k)[0],
        "attention": reference.attention([side.rewards], mask, [attention])[0],
        "td0": side.deltas,
        "monte_carlo": side.mc_advantages,
        "gae": side.advantages,
    }
    return side, k, {name: [plain(x) for x in row] for name, row in found.items()}


def _shares(rollout: Rollout, t: int) -> Values:
    side, k, found = _allocations(rollout)
    here = place_of(side, t)
    return (
        credit_numbers(rollout, t)
        | {"k": k, "total": plain(math.fsum(side.rewards)), "gae_sum": plain(math.fsum(side.advantages))}
        | {f"by_{name}": row[here] for name, row in found.items()}
    )


def _shares_grid(rollout: Rollout, t: int) -> Grid:
    side, k, found = _allocations(rollout)

    def row(place: int) -> tuple[Any, ...]:
        slot = side.slots[place]
        return slot, token_of(rollout, slot), *(credit[place] for credit in found.values())

    total = ("Σ", "", *(plain(math.fsum(credit)) for credit in found.values()))
    names = (f"last_k ({k})" if name == "last_k" else name for name in found)
    return Grid(same("t", "token", *names), (*rows_of(len(side.slots), row), total))


def _knobs(rollout: Rollout, t: int) -> Values:
    """What γ and λ leave of the last token for the first, and GAE as a mixture of n-step estimates."""
    side = sides(rollout)
    k, reach = place_of(side, t), len(side.slots) - 1
    decay = side.gamma * side.lam
    partial = list(accumulate(side.gamma**j * delta for j, delta in enumerate(side.deltas[k:])))
    mixed = [(1 - side.lam) * side.lam**j * estimate for j, estimate in enumerate(partial[:-1])]
    mixture = math.fsum([*mixed, side.lam ** (len(partial) - 1) * partial[-1]])
    return credit_numbers(rollout, t) | {
        "reach": reach,
        "gamma_power": side.gamma**reach,
        "lam_power": side.lam**reach,
        "both_power": decay**reach,
        "horizon": "∞" if decay >= 1 else 1 / (1 - decay),
        "n_steps": listed([plain(x) for x in partial]),
        "mixture": plain(mixture),
    }


def _knobs_grid(rollout: Rollout, t: int) -> Grid:
    """A_t over λ (down) and γ (across), the critic's values kept as they are."""
    side = sides(rollout)
    k = place_of(side, t)
    gammas = sorted({1.0, 0.99, 0.9, side.gamma}, reverse=True)
    lams = sorted({0.0, 0.5, 0.9, 0.95, 1.0, side.lam})
    mask = [[1] * len(side.slots)]
    rows = tuple(
        (lam, *(plain(reference.gae([side.rewards], [side.values], mask, g, lam, [side.after]).advantages[0][k]) for g in gammas))
        for lam in lams
    )  # fmt: skip
    return Grid((("λ", "λ"), *same(*(f"A, γ = {shown(g)}" for g in gammas))), rows)


# ── the topics ───────────────────────────────────────────────────────────────────────────────────────────────────────

TOPICS: tuple[Topic, ...] = (
    Topic(
        "mc_vs_gae",
        ("蒙特卡洛与 GAE 并排算一遍", "Monte Carlo and GAE side by side"),
        (
            (
                "MC 和 GAE 有什么区别？",
                "用几个数字把蒙特卡洛优势和 GAE 优势对比一下",
                "λ=1 的 GAE 是不是就是 MC",
                "手算一个 gae 的小例子",
                "monte carlo advantage 跟 gae advantage 差在哪",
                "三个 token 的 GAE 怎么一步一步递推",
            ),
            (
                "What is the difference between Monte Carlo and GAE?",
                "Work out MC and GAE advantages by hand on a small example",
                "Is GAE with lambda 1 the same as Monte Carlo?",
                "compare mc advantage vs gae advantage numerically",
                "walk me through the gae recursion with a few tokens",
            ),
        ),
        (
            (
                "有位教练，每个词说出口之前都猜一次：从现在到结束还能拿多少分。说“{token}”之前，他猜 {value}。\n\n"
                "**等到最后再算（蒙特卡洛）**：等整句话说完，从“{token}”数到结束，算得 {mc_return}，减去猜的 {value}，功劳是 {mc_advantage}。这种算法不靠教练猜后面的事，可是后面每个词的好运和坏运也全算到了“{token}”头上。\n\n"
                "**边走边对账（GAE）**：每说一个词，就看教练的看法变好还是变坏，把这些意外往回分；每往回传一个词，就乘一次 {gamma_lam}。这样算，“{token}”的功劳是 {advantage}。\n\n"
                "两种算法相差 {gap}。教练猜得越准，边走边对账就越划算；教练乱猜的时候，还是等到最后再算更可靠。",
                "A coach guesses, before every word, how much will still be earned from now to the end. Before “{token}” the guess was {value}.\n\n"
                "**Wait for the end (Monte Carlo)**: when everything has been said, count from “{token}” to the end, which makes {mc_return}, and take away the guess {value}: the credit is {mc_advantage}. This does not rely on the coach for anything that comes later, but the good and bad luck of every later word is put down to “{token}” as well.\n\n"
                "**Settle up along the way (GAE)**: after each word, see whether the coach's view got better or worse, and pass these surprises back; each word further back multiplies them by {gamma_lam}. Counted this way, the credit of “{token}” is {advantage}.\n\n"
                "The two differ by {gap}. The better the coach guesses, the more it pays to settle up along the way; while the guesses are poor, waiting for the end is more reliable.",
            ),
            (
                "两种算法读同样两列：奖励 {rewards}，价值 {values}（γ = {gamma}，λ = {lam}，最后一个 token 之后的价值 {bootstrap}）。\n\n"
                "最后 {shown_count} 个 token 用蒙特卡洛，`G_t = r_t + γ·G_{t+1}`，`A_t = G_t − V(s_t)`：\n\n{mc_lines}\n\n"
                "同样几个 token 用 GAE，`δ_t = r_t + γ·V(s_{t+1}) − V(s_t)`，`A_t = δ_t + γλ·A_{t+1}`：\n\n{gae_lines}\n\n"
                "整行：蒙特卡洛 {mc_advantages}，GAE {advantages}。\n\n"
                "- λ = 1 时两者逐个 token 相等；这里 λ = {lam}，“{token}”（t = {t}，从 0 数起）上相差 {gap}。\n"
                "- 蒙特卡洛只拿 `V(s_t)` 当基线，后面的 V 一概不用：没有 critic 带来的梯度偏差，但后面全部的随机性都进来了。GAE 还用后面的 V 自举：方差小，偏差取决于 critic 准不准。\n"
                "- critic 的目标也随之不同：`R_t = A_t + V(s_t)` 是 λ-回报 {returns}，只有 λ = 1 时才等于蒙特卡洛回报 {mc_returns}。",
                "Both read the same two columns: rewards {rewards} and values {values} (γ = {gamma}, λ = {lam}, value after the last token {bootstrap}).\n\n"
                "The last {shown_count} by Monte Carlo, `G_t = r_t + γ·G_{t+1}`, `A_t = G_t − V(s_t)`:\n\n{mc_lines}\n\n"
                "The same ones by GAE, `δ_t = r_t + γ·V(s_{t+1}) − V(s_t)`, `A_t = δ_t + γλ·A_{t+1}`:\n\n{gae_lines}\n\n"
                "The whole row: Monte Carlo {mc_advantages}, GAE {advantages}.\n\n"
                "- At λ = 1 the two agree on every token; here λ = {lam}, and on “{token}” (t = {t}, counting from 0) they differ by {gap}.\n"
                "- Monte Carlo uses `V(s_t)` as a baseline only and no later V: no bias of the gradient from the critic, but all later chance is in it. GAE also bootstraps from later V: less variance, and as much bias as the critic is wrong.\n"
                "- The critic's target differs too: `R_t = A_t + V(s_t)` is the λ-return {returns}; it equals the Monte Carlo return {mc_returns} only when λ = 1.",
            ),
            (
                "记 `δ_t = r_t + γ·V(s_{t+1}) − V(s_t)`，t+1 指下一个被选的 token，末端价值 `V(s_T)` = {bootstrap}（正常结束为 0），`G_t = Σ_l γ^l·r_{t+l} + γ^{T−t}·V(s_T)`。\n\n"
                "**λ = 1。** `Σ_l γ^l·δ_{t+l} = Σ_l γ^l·r_{t+l} + Σ_l (γ^{l+1}·V(s_{t+l+1}) − γ^l·V(s_{t+l}))`。第二个和首尾相消，只剩 `γ^{T−t}·V(s_T) − V(s_t)`，所以等于 `G_t − V(s_t)`。t = {t} 处：左边 {delta_sum}，右边 {mc_equation}。\n\n"
                "**一般的 λ。** `A^MC_t − A^GAE_t = Σ_{l≥1} γ^l·(1 − λ^l)·δ_{t+l}` = {gap}：差的正是被 λ 压低的那些后来的 δ。\n\n"
                "**期望。** 设 `V = V^π + e`，末端 e = 0。`E[G_t|s_t, a_t] = Q^π(s_t, a_t)`，故 `E[A^MC_t|s_t, a_t] = A^π(s_t, a_t) − e(s_t)`；`e(s_t)` 与动作无关，而 `E_{a~π}[b(s)·∇log π(a|s)] = 0`，梯度无偏。GAE 则为\n\n"
                "    E[A^GAE_t|s_t, a_t] = A^π(s_t, a_t) − e(s_t) + (1−λ)·Σ_{l≥1} γ^l·λ^{l−1}·E[e(s_{t+l})|s_t, a_t]\n\n"
                "最后一项依赖 `a_t`，除非 λ = 1 或 critic 准确，一般不会从梯度里消失；换来的是后来的 δ 以 `(γλ)^l` 进入，方差更小。",
                "Write `δ_t = r_t + γ·V(s_{t+1}) − V(s_t)`, t+1 being the next chosen token, with `V(s_T)` = {bootstrap} at the end (0 for an answer that ended), and `G_t = Σ_l γ^l·r_{t+l} + γ^{T−t}·V(s_T)`.\n\n"
                "**λ = 1.** `Σ_l γ^l·δ_{t+l} = Σ_l γ^l·r_{t+l} + Σ_l (γ^{l+1}·V(s_{t+l+1}) − γ^l·V(s_{t+l}))`. The second sum telescopes to `γ^{T−t}·V(s_T) − V(s_t)`, so the whole is `G_t − V(s_t)`. At t = {t}: {delta_sum} on the left, {mc_equation} on the right.\n\n"
                "**Any λ.** `A^MC_t − A^GAE_t = Σ_{l≥1} γ^l·(1 − λ^l)·δ_{t+l}` = {gap}: what differs is just the later δ that λ damps.\n\n"
                "**In expectation.** Let `V = V^π + e`, e = 0 at the end. `E[G_t|s_t, a_t] = Q^π(s_t, a_t)`, hence `E[A^MC_t|s_t, a_t] = A^π(s_t, a_t) − e(s_t)`; `e(s_t)` does not depend on the action, and `E_{a~π}[b(s)·∇log π(a|s)] = 0`, so the gradient is unbiased. For GAE\n\n"
                "    E[A^GAE_t|s_t, a_t] = A^π(s_t, a_t) − e(s_t) + (1−λ)·Σ_{l≥1} γ^l·λ^{l−1}·E[e(s_{t+l})|s_t, a_t]\n\n"
                "The last term depends on `a_t` and, unless λ = 1 or the critic is exact, does not in general leave the gradient; in return later δ enter with `(γλ)^l` only, and the variance is smaller.",
            ),
        ),
        formula="MC: A_t = Σ_l γ^l·r_(t+l) − V(s_t);  GAE: A_t = Σ_l (γλ)^l·δ_(t+l)",
        numbers=_both,
        grid=_both_grid,
        code=(
            "mingce.algorithms.advantage.gae",
            "mingce.algorithms.advantage.monte_carlo",
            "mingce.algorithms.scan._generalised",
        ),
        related=("advantage_from_returns", "a_not_delta", "gae_variance", "gamma_lambda"),
    ),
    Topic(
        "advantage_from_returns",
        ("用回报减价值当优势", "Return minus value as the advantage"),
        (
            (
                "REINFORCE 加上 value 基线的优势长什么样",
                "returns 那列减 values 那列为啥又变回 advantages 了",
                "蒙特卡洛优势怎么算",
                "最简单的 advantage 估计是什么",
            ),
            (
                "advantage of REINFORCE with a value baseline",
                "Why does the returns column minus values give back the advantages?",
                "simplest possible advantage estimate",
                "How is the Monte Carlo advantage computed?",
            ),
        ),
        (
            (
                "可以，这是最老实的算法。把每个词得到的分放进存钱罐：从“{token}”开始到结束，罐子里一共进了 {mc_return}（负数就是亏了）；教练事先猜的是 {value}。相减得 {mc_advantage}：正数是比他想的好，负数是比他想的差。\n\n"
                "它“粗糙”在哪里？罐子里的钱不光是“{token}”挣来的，还有后面 {left} 个词的运气。换一次，后面说得好一点或坏一点，数就变了，可“{token}”还是同一个“{token}”。\n\n"
                "所以常用的办法是：后面的运气只按折扣算到它头上，算出来是 {advantage}。",
                "Yes, and it is the most straightforward way. Put what every word earns into a money box: from “{token}” to the end the box gains {mc_return} (below 0: it loses); the coach had guessed {value}. The difference is {mc_advantage}: above 0 it went better than the coach thought, below 0 worse.\n\n"
                "What is rough about it? The money was not earned by “{token}” alone; the luck of the {left} words after it is in there too. Do it again, let the rest go a little better or worse, and the number changes, though “{token}” is still the same “{token}”.\n\n"
                "So what is usually done is to count the later luck at a discount only, and that gives {advantage}.",
            ),
            (
                "成立。由奖励从后往前累加 `G_t = r_t + γ·G_{t+1}`，得 {mc_returns}（γ = {gamma}，末端接 {bootstrap}）；逐元素减去 {values}，得 {mc_advantages}。这就是蒙特卡洛优势，等于 λ = 1 的 GAE；“{token}”（t = {t}）上是 {mc_equation}，而 λ = {lam} 的 GAE 给 {advantage}。\n\n"
                "容易踩的坑：\n\n"
                "- 不要拿账本里的 `returns` 减 `values`。`returns` 是由 `advantages + values` 得来的 λ-回报 {returns}，减回去只会得到原来的优势 {advantages}，等于什么也没算。要自己由 `rewards` 累加。\n"
                "- 被长度截断的回答，`G` 的末端要接 critic 的估计，否则没说完的部分被当成 0。\n"
                "- 这里的 V 只作基线。换成别的状态函数，甚至 V = 0（即 REINFORCE），期望梯度都不变，变的是方差。\n"
                "- 想用它训练：`estimator = monte_carlo`。",
                "It holds. Sum the rewards from the end, `G_t = r_t + γ·G_{t+1}`: {mc_returns} (γ = {gamma}, {bootstrap} after the end). Subtract {values} element by element: {mc_advantages}. This is the Monte Carlo advantage, which is GAE with λ = 1; on “{token}” (t = {t}) it is {mc_equation}, where GAE with λ = {lam} says {advantage}.\n\n"
                "Pitfalls:\n\n"
                "- Do not take the ledger's `returns` less `values`. `returns` is the λ-return {returns}, made as `advantages + values`; subtracting gives back the advantages {advantages}, and nothing has been computed. Sum the `rewards` yourself.\n"
                "- For an answer cut by the length limit, `G` must go on with the critic's estimate, or what was not said counts as 0.\n"
                "- V is a baseline here and nothing else. Another function of the state, even V = 0 (that is REINFORCE), leaves the expected gradient as it is and changes the variance.\n"
                "- To train with it: `estimator = monte_carlo`.",
            ),
            (
                "**无偏。** 定义 `A^π(s, a) = Q^π(s, a) − V^π(s)`，而 `Q^π(s_t, a_t) = E[G_t|s_t, a_t]`。所以 `E[G_t − V(s_t)|s_t, a_t] = A^π(s_t, a_t) + (V^π(s_t) − V(s_t))`。括号里与 `a_t` 无关，由 `E_{a~π}[b(s)·∇log π(a|s)] = b(s)·∇Σ_a π(a|s) = 0`，它对期望梯度没有贡献：critic 再差，这个估计的梯度也无偏。\n\n"
                "**粗糙在方差。** 记 `δ*_t = r_t + γ·V^π(s_{t+1}) − V^π(s_t)`，用真值望远镜相消：`G_t − V^π(s_t) = Σ_l γ^l·δ*_{t+l}`。文本的转移是确定的，给定 `(s_t, a_t)` 后 `δ*_t = A^π(s_t, a_t)` 是常数，其余是鞅差、两两不相关，因此\n\n"
                "    Var(G_t − V(s_t) | s_t, a_t) = Var(G_t | s_t, a_t) = Σ_{l≥1} γ^{2l}·E[(δ*_{t+l})²]\n\n"
                "右边没有 critic：V 学得再好，这一部分也不减小。GAE 的办法是把 `γ^{2l}` 换成 `(γλ)^{2l}`（V 准确时），代价是依赖 V 准不准。\n\n"
                "**数值核对**（t = {t}）：`G_t − V(s_t)` = {mc_equation}，与 `Σ_l γ^l·δ_{t+l}` = {delta_sum} 相同；δ 里的 V 用例子的 critic，也照样相消。",
                "**Unbiased.** By definition `A^π(s, a) = Q^π(s, a) − V^π(s)`, and `Q^π(s_t, a_t) = E[G_t|s_t, a_t]`. So `E[G_t − V(s_t)|s_t, a_t] = A^π(s_t, a_t) + (V^π(s_t) − V(s_t))`. The bracket does not depend on `a_t`, and by `E_{a~π}[b(s)·∇log π(a|s)] = b(s)·∇Σ_a π(a|s) = 0` it adds nothing to the expected gradient: however poor the critic, this estimate's gradient is unbiased.\n\n"
                "**Rough in variance.** With `δ*_t = r_t + γ·V^π(s_{t+1}) − V^π(s_t)` the true values telescope: `G_t − V^π(s_t) = Σ_l γ^l·δ*_{t+l}`. Transitions of text are deterministic, so given `(s_t, a_t)` the first term `δ*_t = A^π(s_t, a_t)` is a constant; the others are martingale differences, uncorrelated in pairs. Hence\n\n"
                "    Var(G_t − V(s_t) | s_t, a_t) = Var(G_t | s_t, a_t) = Σ_{l≥1} γ^{2l}·E[(δ*_{t+l})²]\n\n"
                "There is no critic on the right: however well V is learnt, this part does not shrink. GAE replaces `γ^{2l}` by `(γλ)^{2l}` (with an exact V), at the price of relying on V.\n\n"
                "**In numbers** (t = {t}): `G_t − V(s_t)` = {mc_equation}, the same as `Σ_l γ^l·δ_{t+l}` = {delta_sum}; the V inside δ is the example's critic, and cancels all the same.",
            ),
        ),
        formula="A_t = G_t − V(s_t),  G_t = r_t + γ·G_(t+1)",
        numbers=credit_numbers,
        each="G_{t} = {reward} + {gamma}·{next_return} = {mc_return},  A_{t} = {mc_return} − {value} = {mc_advantage}",
        table=("rewards", "values"),
        code=("mingce.algorithms.advantage.monte_carlo", "mingce.specs.estimators.monte_carlo"),
        related=("mc_vs_gae", "gae_variance", "advantage_inputs", "returns_raw"),
    ),
    Topic(
        "a_not_delta",
        ("为什么优势不就是 δ", "Why the advantage is not just δ"),
        (
            (
                "递推式里的 A_{t+1} 是从哪来的",
                "A_t 和 δ_t 到底差在哪",
                "望远镜求和是什么意思",
                "TD(0) 的优势有什么毛病",
            ),
            (
                "where does A_{t+1} in the recursion come from",
                "What does telescoping mean here?",
                "difference between delta_t and A_t",
                "drawbacks of TD(0) advantages",
            ),
        ),
        (
            (
                "足球场边有位教练，每脚球之前都猜这次进攻最后值多少分。“{token}”好比一脚传球：传之前他猜 {value}，传完之后他的看法加上当场得的分，变化是 {delta}。\n\n"
                "只记 {delta} 行不行？如果教练的眼光绝对准，行：好球的好处，他当场就全看出来了。可他不是神仙。有的妙传他当时没看懂，要等后面真的射门、真的进球，才一下一下吃惊。“{token}”之后的这些吃惊折算起来有 {later_sum}。\n\n"
                "全算上，是 {delta} 加 {later_sum}，得 {mc_advantage}。可是后面的吃惊里也有别人的运气，所以打个折再算，得 {advantage}。这就是优势：自己那一下，加上打了折的后来。",
                "A football coach guesses, before every touch, what the attack will be worth in the end. “{token}” is like a pass: before it the guess was {value}; with what was earned on the spot, the pass changed the coach's view by {delta}.\n\n"
                "Is it enough to write down {delta}? If the coach's eye were perfect, yes: all the good of a pass would be seen at once. But it is not. Some clever passes are understood only later, when the shot comes and the goal falls, one surprise after another. Discounted, the surprises after “{token}” come to {later_sum}.\n\n"
                "All together that is {delta} and {later_sum}, which makes {mc_advantage}. But the later surprises hold other players' luck too, so they are marked down first, and that makes {advantage}. This is the advantage: one's own surprise, and the later ones marked down.",
            ),
            (
                "`δ_t = r_t + γ·V(s_{t+1}) − V(s_t)` 是一步的估计，就是 λ = 0 的 GAE：后面的一切都由 `V(s_{t+1})` 代表。“{token}”（t = {t}）：δ = {delta}。\n\n"
                "- **什么时候 `A_t = δ_t` 就够了**：critic 准确时，`E[δ_t|s_t, a_t]` 正好是 `Q − V`，δ 是优势的无偏估计，而且在各个 λ 里方差最小。说“δ 不符合优势的定义”并不准确，问题在于 critic 不准。\n"
                "- **critic 不准时**：结尾的得分要先让 `V(s_{T−1})` 学会，再传给 `V(s_{T−2})`……一次更新大致只往前走一格，靠前的 token 很久都收不到信号。\n"
                "- **把后面的 δ 全加上**：`Σ_l γ^l·δ_{t+l}` = {delta_sum}，恰等于 `G_t − V(s_t)` = {mc_equation}。其中 {delta} 来自这一步，{later_sum} 来自后面。\n"
                "- **折中**：`A_t = δ_t + γλ·A_{t+1}`，λ = {lam}，这里是 {step_equation}。λ = 0 退回 δ，λ = 1 得到全部。\n\n"
                "下表把这个 token 的优势逐项展开。",
                "`δ_t = r_t + γ·V(s_{t+1}) − V(s_t)` is a one-step estimate, GAE with λ = 0: `V(s_{t+1})` stands for everything later. On “{token}” (t = {t}), δ = {delta}.\n\n"
                "- **When `A_t = δ_t` is enough**: with an exact critic `E[δ_t|s_t, a_t]` is precisely `Q − V`; δ is then an unbiased estimate of the advantage, with the least variance of all λ. It is not that δ misses the definition; the trouble is that the critic is not exact.\n"
                "- **With a critic that is off**: the final score must first be learnt by `V(s_{T−1})`, then by `V(s_{T−2})` and so on, about one slot an update; early tokens get no signal for a long time.\n"
                "- **All later δ added**: `Σ_l γ^l·δ_{t+l}` = {delta_sum}, exactly `G_t − V(s_t)` = {mc_equation}. Of this {delta} comes from this step and {later_sum} from later ones.\n"
                "- **In between**: `A_t = δ_t + γλ·A_{t+1}` with λ = {lam}, here {step_equation}. λ = 0 gives back δ, λ = 1 everything.\n\n"
                "The table unrolls this token's advantage term by term.",
            ),
            (
                "**相消。** `Σ_{l=0}^{T−1−t} γ^l·δ_{t+l} = Σ_l γ^l·r_{t+l} + Σ_l (γ^{l+1}·V(s_{t+l+1}) − γ^l·V(s_{t+l}))`，后一个和的相邻项正负抵消，只剩 `γ^{T−t}·V(s_T) − V(s_t)`。因此对**任何** V 都有 `Σ_l γ^l·δ_{t+l} = G_t − V(s_t)`，`G_t` 含末端的 `γ^{T−t}·V(s_T)`，`V(s_T)` = {bootstrap}。核对：左边 {delta_sum}，右边 {mc_equation}。\n\n"
                "**δ 的偏差。** 设 `V = V^π + e`。转移确定，`E[δ_t|s_t, a_t] = A^π(s_t, a_t) − e(s_t) + γ·e(s_{t+1})`。`e(s_t)` 与动作无关，无害；`γ·e(s_{t+1})` 随 `a_t` 而变，会留在梯度里。e ≡ 0 时 δ 无偏。\n\n"
                "**n 步与混合。** `A^{(n)}_t = Σ_{l<n} γ^l·δ_{t+l}` 把有害的误差推到 `γ^n·E[e(s_{t+n})]`，走到终点（`e(s_T) = 0`）即消失。GAE 是它们以几何权重 `(1−λ)·λ^{n−1}` 的加权平均：`(1−λ)·Σ_{n≥1} λ^{n−1}·A^{(n)}_t = Σ_l (γλ)^l·δ_{t+l}`，因为 `δ_{t+l}` 的系数为 `γ^l·(1−λ)·Σ_{n>l} λ^{n−1} = (γλ)^l`（n 超出终点后 `A^{(n)}` 不再变）。\n\n"
                "**递推。** 把 l = 0 的项提出来：`A_t = δ_t + γλ·Σ_{l≥0} (γλ)^l·δ_{t+1+l} = δ_t + γλ·A_{t+1}`；t = {t}：{step_equation}。",
                "**Telescoping.** `Σ_{l=0}^{T−1−t} γ^l·δ_{t+l} = Σ_l γ^l·r_{t+l} + Σ_l (γ^{l+1}·V(s_{t+l+1}) − γ^l·V(s_{t+l}))`; neighbours of the second sum cancel and leave `γ^{T−t}·V(s_T) − V(s_t)`. So for **any** V `Σ_l γ^l·δ_{t+l} = G_t − V(s_t)`, where `G_t` includes `γ^{T−t}·V(s_T)`, `V(s_T)` = {bootstrap}. Check: {delta_sum} on the left, {mc_equation} on the right.\n\n"
                "**The bias of δ.** Let `V = V^π + e`. With deterministic transitions `E[δ_t|s_t, a_t] = A^π(s_t, a_t) − e(s_t) + γ·e(s_{t+1})`. `e(s_t)` does not depend on the action and is harmless; `γ·e(s_{t+1})` varies with `a_t` and stays in the gradient. With e ≡ 0, δ is unbiased.\n\n"
                "**n steps, and the mixture.** `A^{(n)}_t = Σ_{l<n} γ^l·δ_{t+l}` pushes the harmful error out to `γ^n·E[e(s_{t+n})]`, which vanishes at the end (`e(s_T) = 0`). GAE averages them with the geometric weights `(1−λ)·λ^{n−1}`: `(1−λ)·Σ_{n≥1} λ^{n−1}·A^{(n)}_t = Σ_l (γλ)^l·δ_{t+l}`, since the coefficient of `δ_{t+l}` is `γ^l·(1−λ)·Σ_{n>l} λ^{n−1} = (γλ)^l` (past the end `A^{(n)}` no longer changes).\n\n"
                "**The recursion.** Take out the term l = 0: `A_t = δ_t + γλ·Σ_{l≥0} (γλ)^l·δ_{t+1+l} = δ_t + γλ·A_{t+1}`; at t = {t}: {step_equation}.",
            ),
        ),
        formula="Σ_l γ^l·δ_(t+l) = G_t − V(s_t);  A_t = δ_t + γλ·A_(t+1)",
        numbers=credit_numbers,
        each="A_{t} = {delta} + {gamma_lam}·{next_advantage} = {advantage};  Σ_l γ^l·δ_({t}+l) = {mc_return} − {value} = {delta_sum}",
        grid=_unrolled_grid,
        code=(
            "mingce.algorithms.advantage.td_errors",
            "mingce.algorithms.advantage.td0",
            "mingce.algorithms.advantage.gae",
        ),
        related=("mc_vs_gae", "excess_sum", "bootstrap", "critic_td_error"),
    ),
    Topic(
        "excess_sum",
        ("整句的超额收益与各 token 之和", "The whole answer's excess as a sum over tokens"),
        (
            (
                "所有 token 的优势加起来等于什么",
                "A_0 等于全部 A_t 之和吗",
                "Q(s,a) 和 V(s) 是整句的还是从 t 开始的",
                "advantage 能不能按 token 相加",
            ),
            (
                "What do all the advantages of a response add up to?",
                "is A_0 the sum of all A_t",
                "Are Q and V about the whole answer or from t on?",
                "can token advantages be added",
            ),
        ),
        (
            (
                "每天睡前，你都估一估这个月底能攒多少钱。第一天之前估的是 {first_value}，到月底实际算下来是 {first_return}，多了（负数就是少了）{first_excess}。\n\n"
                "这个差是从哪里来的？是每天的意外一点一点加出来的。这句话里每个词的意外依次是 {deltas}，折算后加起来正好是 {first_sum}。所以“整句的意外 = 每个词的意外之和”，这话对。\n\n"
                "可是“功劳”不能这样加。算“{first_token}”的功劳时，已经把后面各个词的意外打折算进来了，得 {first_advantage}；再算后面的词，同一个意外又被算了一次。把所有功劳加起来是 {advantage_sum}：词一多，同一个意外就数了好几遍，这个和不再是整句的意外。",
                "Every evening you guess how much you will have saved by the end of the month. Before the first day the guess was {first_value}; counted at the end it is {first_return}, which is {first_excess} more (below 0: less).\n\n"
                "Where does the difference come from? From every day's surprise, bit by bit. The surprises of this answer's words are {deltas}; discounted, they add up to exactly {first_sum}. So “the whole surprise is the sum of the words' surprises” is right.\n\n"
                "Credit does not add up like that. The credit of “{first_token}” already has the later words' surprises in it, marked down: {first_advantage}. When the later words get theirs, the same surprise is counted again. All credits together make {advantage_sum}: with several words the same surprise has been counted several times, and the sum is no longer the surprise of the whole.",
            ),
            (
                "方向对，三处要说准：\n\n"
                "- `Q(s_t, a_t)` 和 `V(s_t)` 都是**从 t 往后**的累计收益的期望，不是从头到尾的同一个量；只有 t = 0 时才是整句。\n"
                "- 能逐个相加的是 δ，不是 A。γ = {gamma} 时 `G_0 − V(s_0)` = {first_equation}，等于 `Σ_k γ^k·δ_k` = {first_sum}，其中 δ = {deltas}。\n"
                "- 优势直接相加没有这个意义：`Σ_t A_t` = {advantage_sum}，一般既不等于超额 {first_excess}（λ = 0 且 γ = 1 时才相等），也不等于 `A_0` = {first_advantage}（只有一个 token 时才相等）。同一个 `δ_k` 在每个 `A_t`（t ≤ k）里各算了一次，权重 `(γλ)^{k−t}`。\n\n"
                "“越远衰减越多”是对的：第一个 token 的优势里，从它起各个 δ 的权重 `(γλ)^l` 依次为 {weights}，乘上 δ 得 {terms}，加起来是 {first_advantage}。衰减的是**后来的 token 的 δ**，不是离结尾远的 token 的优势。",
                "The direction is right; three things need care:\n\n"
                "- `Q(s_t, a_t)` and `V(s_t)` are both expected sums **from t on**, not one and the same quantity of the whole answer; only at t = 0 is it the whole.\n"
                "- What adds up is δ, not A. With γ = {gamma}, `G_0 − V(s_0)` = {first_equation} equals `Σ_k γ^k·δ_k` = {first_sum}, where δ = {deltas}.\n"
                "- Adding the advantages has no such meaning: `Σ_t A_t` = {advantage_sum} is in general neither the excess {first_excess} (it is when λ = 0 and γ = 1) nor `A_0` = {first_advantage} (it is for a single token). The same `δ_k` is counted in every `A_t` with t ≤ k, with weight `(γλ)^{k−t}`.\n\n"
                "“The further, the smaller” is right: in the first token's advantage the δ from there on have weights `(γλ)^l`, {weights}; times δ that is {terms}, in all {first_advantage}. What decays is **the δ of later tokens**, not the advantage of tokens far from the end.",
            ),
            (
                "槽位都按被选的 token 编号 0 … T−1。\n\n"
                "**δ 之和。** `Σ_k γ^k·δ_k` 望远镜相消为 `G_0 − V(s_0)`：左边 {first_sum}，右边 {first_equation}。对任何 V 都成立，不要求 critic 准确。\n\n"
                "**真优势之和。** 若 `V = V^π`，转移与奖励确定，则 `δ_t = A^π(s_t, a_t)`，于是 `G_0 − V^π(s_0) = Σ_t γ^t·A^π(s_t, a_t)`：此时“整句的超额 = 各 token 真优势之和”逐条轨迹成立。所以那个直觉对**真**优势是一个定理，对 GAE 的**估计**则只在 λ = 0 时形式上成立（`A_t = δ_t`）。\n\n"
                "**GAE 之和。** 交换求和次序：\n\n"
                "    Σ_t A_t = Σ_t Σ_{k≥t} (γλ)^{k−t}·δ_k = Σ_k δ_k·(1 + γλ + … + (γλ)^k)\n\n"
                "`δ_k` 被数的次数依次是 {counted}，由右边得 {counted_sum}，由左边逐个相加得 {advantage_sum}。λ > 0 时靠后的 δ 被数得更多，所以它不是超额收益。\n\n"
                "**性能差。** 对两个策略取期望，同样的相消给出 `J(π') − J(π) = E_{π'}[Σ_t γ^t·A^π(s_t, a_t)]`，这是 CPI、TRPO 和 PPO 代理目标的出发点。",
                "Slots are numbered 0 … T−1 over the chosen tokens.\n\n"
                "**Sum of δ.** `Σ_k γ^k·δ_k` telescopes to `G_0 − V(s_0)`: {first_sum} on the left, {first_equation} on the right. This holds for any V; the critic need not be exact.\n\n"
                "**Sum of true advantages.** If `V = V^π`, with deterministic transitions and rewards, `δ_t = A^π(s_t, a_t)` and so `G_0 − V^π(s_0) = Σ_t γ^t·A^π(s_t, a_t)`: then “the whole excess is the sum over tokens” holds on every single trajectory. The intuition is thus a theorem about **true** advantages; for GAE's **estimates** it holds in form only at λ = 0 (`A_t = δ_t`).\n\n"
                "**Sum of GAE.** Swap the sums:\n\n"
                "    Σ_t A_t = Σ_t Σ_{k≥t} (γλ)^{k−t}·δ_k = Σ_k δ_k·(1 + γλ + … + (γλ)^k)\n\n"
                "`δ_k` is counted {counted} times in turn; the right side makes {counted_sum}, adding one by one on the left {advantage_sum}. With λ > 0 later δ are counted more, so it is not the excess.\n\n"
                "**Performance difference.** In expectation over two policies the same telescoping gives `J(π') − J(π) = E_{π'}[Σ_t γ^t·A^π(s_t, a_t)]`, from which the surrogate of CPI, TRPO and PPO starts.",
            ),
        ),
        formula="G_0 − V(s_0) = Σ_k γ^k·δ_k;  A_t = Σ_(k≥t) (γλ)^(k−t)·δ_k",
        numbers=_sums,
        table=("rewards", "values", "deltas"),
        code=("mingce.algorithms.advantage.td_errors", "mingce.algorithms.advantage.gae"),
        related=("a_not_delta", "credit_backward", "cpi_objective", "mc_vs_gae"),
    ),
    Topic(
        "gae_variance",
        ("GAE 为什么方差小（现场模拟）", "Why GAE has less variance (simulated on the spot)"),
        (
            (
                "λ 取大取小，方差和偏差怎么变",
                "bias variance 权衡能不能模拟一下看看",
                "gae 降方差的代价是什么",
                "critic 不准的话 GAE 会偏多少",
                "跑个模拟看看 lambda 对方差的影响",
                "lam 选 0.95 有什么道理",
            ),
            (
                "How do bias and variance change with lambda?",
                "simulate the bias-variance tradeoff of GAE",
                "What is the price of GAE's lower variance?",
                "how much bias does a wrong critic bring into GAE",
                "Is there a reason to choose lam 0.95?",
            ),
        ),
        (
            (
                "假想下棋：第一步固定走“{start_token}”，后面随手走，同一个开局重下 {samples} 盘，看这一步每盘记多少功劳。后面走错一步，剩下的分就全没了；{samples} 盘里有 {finished} 盘没走错，走到了底。\n\n"
                "**等下完再算**：功劳跟着后面的好坏走，每盘都可能不一样，上下晃动的幅度是 {sd_one}。不过全部平均起来几乎不偏，只差 {off_one}。\n\n"
                "**走完一步就听教练的**：每盘都一样，晃动是 {sd_zero}。可教练自己也会看错，平均偏了 {bias_zero}（负数是记少了，正数是记多了）。\n\n"
                "**折中（GAE）**：近处看真结果，远处多听教练的。按这个例子的设置，晃动 {sd_lam}，偏 {bias_lam}。\n\n"
                "晃得厉害，学的人不知道该信哪一盘；偏得厉害，学的人会一直学歪。GAE 就是在两者之间挑一个合适的位置。",
                "Imagine playing chess: the first move is always “{start_token}”, the rest is played on a whim, the same opening {samples} times over, and each time we note the credit of that move. One wrong move later on and everything still to be won is lost; {finished} of the {samples} games went through without one.\n\n"
                "**Wait until the game is over**: the credit follows whatever came later and may differ from game to game; it swings by {sd_one}. Yet on average it is hardly off, by {off_one}.\n\n"
                "**Ask the coach after that one move**: the same answer every time, a swing of {sd_zero}. But coaches misjudge too, and the average is off by {bias_zero} (below 0: too little credit, above 0: too much).\n\n"
                "**In between (GAE)**: look at real results nearby and rely on the coach for what is far. With this example's settings the swing is {sd_lam}, off by {bias_lam}.\n\n"
                "When it swings a lot, the learner does not know which game to believe; when it is off a lot, the learner goes on learning the wrong thing. GAE picks a place in between.",
            ),
            (
                "下表由例子现场模拟。取它最后 {steps} 个被选 token，第一个固定为“{start_token}”；之后每个 token 以概率 {stay} 留在例子的路上，一旦离开，此后的奖励和末端价值（例子里是 {bootstrap}，视为准确）都为 0。于是每个状态的真值都能算出，`Q(s_0, a_0)` = {true_q}。critic 是例子的 {sim_values}，离开之后变为其 {kept} 倍（真值是 0），所以并不准。固定种子抽 {samples} 条，每条用 GAE 算第一个 token 的优势（γ = {gamma}）；“精确”两列是对全部可能的轨迹按概率求和。\n\n"
                "- **方差**：λ = 0 时 {var_zero}，λ = 1 时 {var_one}；例子所用的 λ = {lam} 时为 {var_lam}（精确）。\n"
                "- **偏差**（均值减去 `Q(s_0, a_0) − V(s_0)` = {target}）：λ = 0 时 {bias_zero}，λ = 1 时 {bias_one}；λ = {lam} 时为 {bias_lam}（精确）。\n"
                "- **选哪个 λ**：按精确值，只看一条样本，均方误差最小的是 λ = {best_lam}；{many} 条取平均，方差除以 {many} 而偏差不变，最小的是 λ = {best_lam_many}。样本越多，偏差越要紧，所以大批量训练的 λ 往往靠近 1。\n\n"
                "λ = 0 时方差恰为 0 并非巧合：文本的转移是确定的，给定 `s_0` 和 `a_0`，`δ_0` 里没有后来的随机性；随机性全从 `δ_1, δ_2, …` 以权重 `(γλ)^l` 进来。\n\n"
                "注意：“λ 越大方差越大”在 critic 准确时是定理，critic 很差时未必。比如奖励全为 0，蒙特卡洛毫无方差，方差反而来自乱跳的 V。只有一个 token 时后面没有随机性，表里各行都一样。",
                "The table is simulated from the example on the spot. Take its last {steps} chosen tokens, the first being fixed as “{start_token}”; every later token stays on the example's path with probability {stay}, and once one has left it all further rewards and the value at the end (the example's {bootstrap}, taken as exact) are 0. So the true value of every state can be computed; `Q(s_0, a_0)` = {true_q}. The critic is the example's, {sim_values}, and {kept} times that off the path (the truth is 0), so it is not exact. {samples} rollouts are drawn with a fixed seed, and GAE gives the first token's advantage in each (γ = {gamma}); the “exact” columns sum over all possible rollouts with their probabilities.\n\n"
                "- **Variance**: {var_zero} at λ = 0, {var_one} at λ = 1; {var_lam} (exact) at the example's own λ = {lam}.\n"
                "- **Bias** (the mean less `Q(s_0, a_0) − V(s_0)` = {target}): {bias_zero} at λ = 0, {bias_one} at λ = 1; {bias_lam} (exact) at λ = {lam}.\n"
                "- **Which λ**: by the exact figures, the mean squared error of a single sample is least at λ = {best_lam}; averaging {many} samples divides the variance by {many} and leaves the bias, and then it is least at λ = {best_lam_many}. The more samples, the more bias matters, which is why training with large batches tends to use λ near 1.\n\n"
                "That the variance at λ = 0 is exactly 0 is no accident: transitions of text are deterministic, so given `s_0` and `a_0` there is no later chance in `δ_0`; it all comes in by `δ_1, δ_2, …` with weights `(γλ)^l`.\n\n"
                "Note: “the larger λ, the larger the variance” is a theorem for an exact critic, not for a very poor one. If all rewards are 0, for instance, Monte Carlo has no variance at all, and what there is comes from a jumpy V. With a single token nothing random follows, and all rows are alike.",
            ),
            (
                "记 `δ*_t = r_t + γ·V^π(s_{t+1}) − V^π(s_t)`，以下都以 `(s_0, a_0)` 为条件。\n\n"
                "**不相关。** `E[δ*_l|s_l] = 0`；k < l 时 `δ*_k` 由 `s_l` 决定，故 `E[δ*_k·δ*_l] = E[δ*_k·E[δ*_l|s_l]] = 0`（l ≥ 1）。而 `δ*_0 = A^π(s_0, a_0)` 是常数（转移与奖励确定）。\n\n"
                "**critic 准确时。** `Â_0 = Σ_l (γλ)^l·δ*_l`，所以对每个 λ 都有 `E[Â_0] = A^π(s_0, a_0)`，且\n\n"
                "    Var(Â_0) = Σ_{l≥1} (γλ)^{2l}·E[(δ*_l)²]\n\n"
                "随 λ 单调不减：λ = 0 时为 0，λ = 1 时为 `Var(G_0)`。在模拟的世界里换上真值作 critic，λ = {lam}：枚举全部轨迹得方差 {perfect_variance}，右边的和为 {squares}。常见的写法 `Var(G) ≈ Σ γ^{2k}·Var(r_k)` 漏掉了奖励之间的协方差；不相关的是 δ*，不是 r。\n\n"
                "**critic 有误差时。** 设 `V = V^π + e`，`e(s_T) = 0`。代入 `δ_l = δ*_l + γ·e(s_{l+1}) − e(s_l)` 并按 `e(s_l)` 合并：\n\n"
                "    Â_0 = Σ_l (γλ)^l·δ*_l − e(s_0) + (1−λ)·Σ_{l≥1} γ^l·λ^{l−1}·e(s_l)\n\n"
                "因此 `E[Â_0] − (Q^π(s_0, a_0) − V(s_0)) = (1−λ)·Σ_{l≥1} γ^l·λ^{l−1}·E[e(s_l)]`。λ = {lam}：枚举得 {bias_lam}，右边 {bias_formula}；λ = 1 时恒为 0。`−e(s_0)` 与动作无关，对梯度无害，所以不计入偏差；其余各项随 `a_0` 而变，是真正的偏差。e 也进入方差，与 δ* 的交叉项符号不定，这就是 critic 差时单调性可能失效的原因。",
                "Write `δ*_t = r_t + γ·V^π(s_{t+1}) − V^π(s_t)`; everything below is given `(s_0, a_0)`.\n\n"
                "**Uncorrelated.** `E[δ*_l|s_l] = 0`; for k < l, `δ*_k` is determined by `s_l`, so `E[δ*_k·δ*_l] = E[δ*_k·E[δ*_l|s_l]] = 0` (l ≥ 1). And `δ*_0 = A^π(s_0, a_0)` is a constant (transitions and rewards are deterministic).\n\n"
                "**With an exact critic.** `Â_0 = Σ_l (γλ)^l·δ*_l`, so `E[Â_0] = A^π(s_0, a_0)` for every λ, and\n\n"
                "    Var(Â_0) = Σ_{l≥1} (γλ)^{2l}·E[(δ*_l)²]\n\n"
                "never falls as λ grows: 0 at λ = 0, `Var(G_0)` at λ = 1. With the true values as critic in the simulated world, λ = {lam}: enumerating all rollouts gives a variance of {perfect_variance}, the sum on the right {squares}. The usual `Var(G) ≈ Σ γ^{2k}·Var(r_k)` leaves out the covariances of the rewards; it is δ* that is uncorrelated, not r.\n\n"
                "**With a critic that is off.** Let `V = V^π + e`, `e(s_T) = 0`. Put in `δ_l = δ*_l + γ·e(s_{l+1}) − e(s_l)` and collect `e(s_l)`:\n\n"
                "    Â_0 = Σ_l (γλ)^l·δ*_l − e(s_0) + (1−λ)·Σ_{l≥1} γ^l·λ^{l−1}·e(s_l)\n\n"
                "Hence `E[Â_0] − (Q^π(s_0, a_0) − V(s_0)) = (1−λ)·Σ_{l≥1} γ^l·λ^{l−1}·E[e(s_l)]`. At λ = {lam}: {bias_lam} by enumeration, {bias_formula} on the right; at λ = 1 always 0. `−e(s_0)` does not depend on the action and does the gradient no harm, so it is not counted as bias; the other terms vary with `a_0` and are the true bias. The e enter the variance too, with cross terms of either sign against δ*; that is why the monotonicity may fail with a poor critic.",
            ),
        ),
        formula="Var(Â_0 | s_0, a_0) = Σ_(l≥1) (γλ)^(2l)·E[δ_l²]  (V = V^π)",
        numbers=_lambda_picture,
        grid=_lambda_grid,
        code=(
            "mingce.explain.simulation.simulated",
            "mingce.explain.simulation.true_values",
            "mingce.specs.estimators.gae",
        ),
        related=("mc_vs_gae", "gamma_lambda", "bootstrap", "a_not_delta"),
    ),
    Topic(
        "credit_backward",
        ("从后往前算与信用分配", "Computing from the back, and credit assignment"),
        (
            (
                "为啥优势要倒着算",
                "GAE 那个 reversed 循环在干嘛",
                "能不能从第一个 token 开始算 GAE",
                "最后一个 token 的分怎么传到前面去的",
                "credit assignment 是啥",
            ),
            (
                "why does the GAE loop run in reverse",
                "Could GAE be computed from the first token on?",
                "What is credit assignment?",
                "How does the final score reach the early tokens?",
            ),
        ),
        (
            (
                "一队人传水桶救火，火灭了，要给每个人记功。**信用分配**说的是：每个人记多少。**从后往前算**说的是：从队尾开始问，一个一个问到队头。前者是目的，后者只是省事的问法。\n\n"
                "为什么从队尾问省事？因为每个人的功劳 = 自己带来的意外 + 后一个人功劳的一部分。后一个人的先算好了，前一个人的一步就出来：“{token}”自己的意外是 {delta}，加上后一个的 {next_advantage} 乘 {gamma_lam}，得 {advantage}。\n\n"
                "从队头开始也行：把“{token}”和后面每个人的意外都抄一遍，打折、相加，还是 {forward}。一样的功劳，只是抄得累。",
                "A line of people passed buckets and put out a fire; now everybody is to be given credit. **Credit assignment** is the question how much each one gets. **Computing from the back** only means asking at the end of the line first and going forward one by one. The first is the aim, the second a convenient way to ask.\n\n"
                "Why is the end convenient? Because each one's credit is their own surprise plus a part of the next one's credit. Once the next one's is known, the one before takes a single step: “{token}” brought a surprise of {delta} itself, and with {gamma_lam} times the next one's {next_advantage} that makes {advantage}.\n\n"
                "Starting at the front works too: copy out the surprise of “{token}” and of everybody after it, mark them down, add them up, and it is {forward} again. The same credit, only more copying.",
            ),
            (
                "信用分配是要解决的问题：结果出来之后，每个 token 的选择各记多少功过。GAE 的回答是 `A_t = Σ_l (γλ)^l·δ_{t+l}`。从后往前递推 `A_t = δ_t + γλ·A_{t+1}` 是把这个和在 O(T) 内算完的办法，本身不是信用分配。\n\n"
                "- 两种次序结果相同：“{token}”（t = {t}），递推得 {advantage}，从前往后逐项相加得 {forward}；后者对每个 t 都重加一遍，要 O(T²)。\n"
                "- 蒙特卡洛也一样，`G_t = r_t + γ·G_{t+1}` 通常同样从后往前算。次序不是 GAE 与蒙特卡洛的区别。\n"
                "- **传回来的是 δ，不是奖励。** 最后一个 token 的奖励是 {last_reward}，扣除 critic 的预期之后，意外是 δ = {last_delta}；传到第一个 token 的权重是 `(γλ)^{T−1}` = {last_weight}，到手 {last_share}。说“第一个 token 拿到最后奖励的百分之几”是不对的。\n"
                "- **常见的错**：递推里写成 `A_t = r_t + γλ·A_{t+1}`，漏掉了 `γ·V(s_{t+1}) − V(s_t)`。那样“{token}”会得到 {wrong}，正确的是 {advantage}。\n"
                "- 掩码为 0 的槽位（工具输出、填充）跳过：“下一个”总是下一个被选的 token。",
                "Credit assignment is the problem: once the outcome is known, how much of it is put down to the choice of each token. GAE's answer is `A_t = Σ_l (γλ)^l·δ_{t+l}`. The recursion from the back, `A_t = δ_t + γλ·A_{t+1}`, is the way to compute that sum in O(T), and is not credit assignment itself.\n\n"
                "- Either order gives the same: on “{token}” (t = {t}) the recursion makes {advantage}, adding the terms forwards {forward}; the latter adds anew for every t and takes O(T²).\n"
                "- Monte Carlo is no different, `G_t = r_t + γ·G_{t+1}` is usually computed from the back as well. The order is not what tells GAE from Monte Carlo.\n"
                "- **What is passed back is δ, not the reward.** The last token's reward is {last_reward}; with what the critic expected taken off, the surprise is δ = {last_delta}. It reaches the first token with weight `(γλ)^{T−1}` = {last_weight}, as {last_share}. “The first token gets so many per cent of the final reward” is wrong.\n"
                "- **A common mistake**: the recursion written as `A_t = r_t + γλ·A_{t+1}`, without `γ·V(s_{t+1}) − V(s_t)`. “{token}” would then get {wrong}; right is {advantage}.\n"
                "- Slots with mask 0 (tool output, padding) are stepped over: “next” is always the next chosen token.",
            ),
            (
                "**递推 ⇔ 求和。** 末端 `A_{T−1} = δ_{T−1}`。若 `A_{t+1} = Σ_l (γλ)^l·δ_{t+1+l}`，则 `δ_t + γλ·A_{t+1} = δ_t + Σ_l (γλ)^{l+1}·δ_{t+1+l} = Σ_l (γλ)^l·δ_{t+l}`。归纳成立；t = {t}：递推 {advantage}，求和 {forward}。\n\n"
                "**真正从前往后的算法：资格迹。** 策略梯度要的是 `g = Σ_t A_t·∇log π(a_t|s_t)`。交换求和次序：\n\n"
                "    g = Σ_t Σ_{k≥t} (γλ)^{k−t}·δ_k·∇log π_t = Σ_k δ_k·z_k,   z_k = γλ·z_{k−1} + ∇log π_k\n\n"
                "`z_k` 只用到过去，每来一个 `δ_k` 就把它按 `(γλ)^{k−t}` 记到之前的每个 t 上。同样的 δ、同样的权重、同一个 g，一遍从前往后就能算完（TD(λ) 的后向视角）。可见“从后往前”既不充分也不必要；定义信用的是权重 `(γλ)^{k−t}`，不是次序。\n\n"
                "**为什么这是合理的信用。** 因果性：`E[r_j·∇log π(a_t|s_t)] = 0`（j < t），所以 t 之前的奖励不该记到 t 上，求和从 k = t 开始。若 `V = V^π`，`E[A_t|s_t, a_t] = A^π(s_t, a_t)`：平均而言每个 token 恰好记到它的真优势。",
                "**Recursion ⇔ sum.** At the end `A_{T−1} = δ_{T−1}`. If `A_{t+1} = Σ_l (γλ)^l·δ_{t+1+l}`, then `δ_t + γλ·A_{t+1} = δ_t + Σ_l (γλ)^{l+1}·δ_{t+1+l} = Σ_l (γλ)^l·δ_{t+l}`, and induction does the rest; at t = {t}: {advantage} by the recursion, {forward} by the sum.\n\n"
                "**An algorithm that truly goes forwards: eligibility traces.** The policy gradient wants `g = Σ_t A_t·∇log π(a_t|s_t)`. Swap the sums:\n\n"
                "    g = Σ_t Σ_{k≥t} (γλ)^{k−t}·δ_k·∇log π_t = Σ_k δ_k·z_k,   z_k = γλ·z_{k−1} + ∇log π_k\n\n"
                "`z_k` looks at the past only, and every `δ_k`, as it comes, is put down to each earlier t with `(γλ)^{k−t}`. The same δ, the same weights, the same g, in one pass forwards (the backward view of TD(λ)). So “from the back” is neither sufficient nor necessary; what defines the credit are the weights `(γλ)^{k−t}`, not the order.\n\n"
                "**Why this credit makes sense.** Causality: `E[r_j·∇log π(a_t|s_t)] = 0` for j < t, so rewards before t are not to be put down to t, and the sum starts at k = t. If `V = V^π`, `E[A_t|s_t, a_t] = A^π(s_t, a_t)`: on average each token is given precisely its true advantage.",
            ),
        ),
        formula="A_t = δ_t + γλ·A_(t+1) = Σ_l (γλ)^l·δ_(t+l)",
        numbers=_backward,
        each="A_{t} = {delta} + {gamma_lam}·{next_advantage} = {advantage}",
        table=("rewards", "values", "deltas", "advantages"),
        code=(
            "mingce.algorithms.scan._generalised",
            "mingce.specs.estimators.gae",
            "mingce.algorithms.advantage.gae",
        ),
        related=("credit_allocations", "a_not_delta", "excess_sum", "masks_eos"),
    ),
    Topic(
        "credit_allocations",
        ("各种信用分配方案对比", "Ways to share out the credit, compared"),
        (
            (
                "平均分配奖励和 GAE 比怎么样",
                "把奖励只给最后几个 token 行吗",
                "按 attention 权重分功劳可以吗",
                "除了 GAE 还有哪些分功劳的办法",
                "uniform last_k attention 这几个 estimator 有什么不同",
            ),
            (
                "How does splitting the reward evenly compare with GAE?",
                "can I give the reward only to the last few tokens",
                "Share out credit by attention weights?",
                "other ways than GAE to distribute the reward over tokens",
                "What do the estimators uniform, last_k and attention do?",
            ),
        ),
        (
            (
                "一队人合力赢来一笔奖金 {total}（负数就是罚款），怎么分？\n\n"
                "- 平均分：每人一样，“{token}”得 {by_uniform}。\n"
                "- 只给最后 {k} 个人：“{token}”得 {by_last_k}。\n"
                "- 谁被最后一个人看得多就多给（没有记录时，假设越靠后看得越多）：“{token}”得 {by_attention}。\n"
                "- 请教练逐个看意外（GAE）：“{token}”得 {by_gae}。\n\n"
                "只要给每个人都定了一个数，就是在分功劳，从前往后分还是从后往前分都算。可是分法有好坏：前三种只是切蛋糕，不问谁真的有用；请教练的分法会问“有了你，比预想的好了多少”，所以有人可以得正的，有人可以得负的，加起来也不必等于奖金。",
                "A team has won a prize of {total} (below 0: a fine). How is it shared?\n\n"
                "- Equally: the same for each, “{token}” gets {by_uniform}.\n"
                "- To the last {k} only: “{token}” gets {by_last_k}.\n"
                "- More to those whom the last one looked at more (where this was not recorded, say the later ones): “{token}” gets {by_attention}.\n"
                "- Ask the coach for everyone's surprises (GAE): “{token}” gets {by_gae}.\n\n"
                "Giving each a number is sharing out the credit, whether one goes from front to back or from back to front. But some ways are better than others: the first three merely cut a cake and do not ask who was of any use. The coach's way asks “how much better than expected did it go with you?”, so some may get a plus and some a minus, and the sum need not be the prize.",
            ),
            (
                "每个 token 都有一个优势，用哪种次序算出来的都是信用分配；但不是每种分配都是优势 `Q − V` 的估计。在例子上比较（总奖励 {total}，γ = {gamma}，λ = {lam}），“{token}”分别得到：\n\n"
                "- `uniform`：总奖励均分，{by_uniform}。\n"
                "- `last_k`（k = {k}）：只给最后 k 个，{by_last_k}。\n"
                "- `attention`：按最后一个 token 对它的注意力，{by_attention}。账本没有注意力权重时，这里以 1, 2, …, n 示意。\n"
                "- `td0`：只看一步，{delta}；`monte_carlo`：回报减价值，{by_monte_carlo}；`gae`：{by_gae}。\n\n"
                "差别在三处：\n\n"
                "- **总量**：前三种之和恒等于总奖励；GAE 之和是 {gae_sum}，它不是在切一块固定的蛋糕。\n"
                "- **基线**：前三种没有减去预期，总奖励为正则全句都被鼓励，为负则全句都被抑制，只靠批内白化或不同样本之间的差别来纠正。\n"
                "- **因果**：前三种把早先的奖励也分给后来的 token；`td0`、`monte_carlo`、`gae` 只看 t 及以后。",
                "Every token has an advantage, and in whatever order it was computed that is credit assignment; but not every allocation is an estimate of the advantage `Q − V`. On the example (total reward {total}, γ = {gamma}, λ = {lam}), “{token}” gets:\n\n"
                "- `uniform`: an equal share of the total, {by_uniform}.\n"
                "- `last_k` (k = {k}): only the last k share, {by_last_k}.\n"
                "- `attention`: by the attention the last token pays to it, {by_attention}. Where the ledger has no attention weights, 1, 2, …, n stand in for them here.\n"
                "- `td0`: one step only, {delta}; `monte_carlo`: return less value, {by_monte_carlo}; `gae`: {by_gae}.\n\n"
                "They differ in three ways:\n\n"
                "- **Total**: the first three always add up to the total reward; GAE adds up to {gae_sum}, for it does not cut a cake of given size.\n"
                "- **Baseline**: the first three take no expectation off; with a positive total the whole answer is encouraged, with a negative one discouraged, and only the whitening or the contrast between samples puts that right.\n"
                "- **Causality**: the first three share earlier rewards with later tokens; `td0`, `monte_carlo` and `gae` look at t and after only.",
            ),
            (
                "策略梯度（γ = 1）是 `∇J = E[Σ_t Q^π(s_t, a_t)·∇log π_t]`，`∇log π_t` 指 `∇log π(a_t|s_t)`。一种分配 `c_t` 无偏，当且仅当 `E[Σ_t c_t·∇log π_t] = ∇J`（或差一个常数倍）。\n\n"
                "**均分。** `c_t = G/T`，G 是总奖励。因 `E[r_j·∇log π_t] = 0`（j < t），`E[G·∇log π_t] = E[Q_t·∇log π_t]`。所以长度 T 固定时 `E[Σ_t c_t·∇log π_t] = ∇J/T`，方向无偏，就是不带基线的 REINFORCE。长度可变时，`(G/T)·Σ_t ∇log π_t` 恰是 `E[G/T]` 的梯度，目标换成了每 token 的平均奖励：正奖励时偏爱短回答，负奖励时偏爱长回答。\n\n"
                "**最后 k 个。** 丢掉了前面 T − k 个 token 的项 `E[Q_t·∇log π_t]`；除非这些选择对结果没有影响，否则有偏。\n\n"
                "**注意力。** `c_t = w_t·G`，`w_t` 由整条轨迹（含 `a_t` 之后的 token）决定，与 G 相关，一般 `E[w_t·G·∇log π_t] ≠ const·E[Q_t·∇log π_t]`，有偏。\n\n"
                "**GAE。** 对任何 λ，`V = V^π` 时无偏；λ = 1 时对任何 V 无偏。\n\n"
                "**守恒与否。** 前三种 `Σ_t c_t = G` = {total}。GAE 有 `Σ_t A_t = Σ_k δ_k·(1 + γλ + … + (γλ)^k)` = {gae_sum}，守恒的是另一个量：`Σ_t γ^t·δ_t = G_0 − V(s_0)`。",
                "The policy gradient (γ = 1) is `∇J = E[Σ_t Q^π(s_t, a_t)·∇log π_t]`, with `∇log π_t` for `∇log π(a_t|s_t)`. An allocation `c_t` is unbiased if and only if `E[Σ_t c_t·∇log π_t] = ∇J` (or a constant times it).\n\n"
                "**Equal shares.** `c_t = G/T`, G being the total reward. Since `E[r_j·∇log π_t] = 0` for j < t, `E[G·∇log π_t] = E[Q_t·∇log π_t]`. So for a fixed length T `E[Σ_t c_t·∇log π_t] = ∇J/T`: unbiased in direction, REINFORCE without a baseline. When the length varies, `(G/T)·Σ_t ∇log π_t` is exactly the gradient of `E[G/T]`; the goal has become the reward per token, which favours short answers when rewards are positive and long ones when negative.\n\n"
                "**The last k.** The terms `E[Q_t·∇log π_t]` of the first T − k tokens are dropped; biased, unless those choices do not matter for the outcome.\n\n"
                "**Attention.** `c_t = w_t·G`, where `w_t` is determined by the whole trajectory, tokens after `a_t` included, and correlated with G; in general `E[w_t·G·∇log π_t] ≠ const·E[Q_t·∇log π_t]`: biased.\n\n"
                "**GAE.** Unbiased for every λ if `V = V^π`; for every V if λ = 1.\n\n"
                "**What is conserved.** The first three have `Σ_t c_t = G` = {total}. GAE has `Σ_t A_t = Σ_k δ_k·(1 + γλ + … + (γλ)^k)` = {gae_sum}; what it conserves is another quantity, `Σ_t γ^t·δ_t = G_0 − V(s_0)`.",
            ),
        ),
        formula="uniform: G/T;  last_k: G/min(k, T);  attention: w_t·G;  GAE: Σ_l (γλ)^l·δ_(t+l)",
        numbers=_shares,
        grid=_shares_grid,
        code=(
            "mingce.algorithms.advantage.uniform",
            "mingce.algorithms.advantage.last_k",
            "mingce.algorithms.advantage.attention",
            "mingce.algorithms.advantage.gae",
        ),
        related=("credit_backward", "group_baseline", "reward_sparse_dense", "excess_sum"),
    ),
    Topic(
        "gamma_lambda",
        ("γ 和 λ 各管什么", "What γ does and what λ does"),
        (
            (
                "gamma 和 lambda 有什么区别",
                "折扣因子和 λ 能不能合成一个",
                "γ=1 λ=0.95 为什么这样设",
                "大模型 PPO 里 gamma 一般取多少",
                "把 lam 调小会怎样",
                "γλ 乘在一起是什么意思",
            ),
            (
                "What is the difference between gamma and lambda?",
                "why gamma 1 and lam 0.95",
                "Could gamma and lambda be merged into one number?",
                "What happens if I lower lam?",
                "what does gamma times lambda mean in gae",
            ),
        ),
        (
            (
                "两个旋钮，管两件不同的事。\n\n"
                "**第一个旋钮：多看重以后的糖。** 现在一颗糖算一颗；晚一步才到手的，算 {gamma} 颗。这是在说你**想要什么**：拧得小，就变成只想要马上到手的糖。\n\n"
                "**第二个旋钮：多相信教练。** 它不改变你想要什么，只改变**怎么估**：拧到 0，走完一步就全听教练的；拧到 1，一直等到真结果。现在是 {lam}。\n\n"
                "功劳往回传一个词，两个旋钮一起打折，乘 {gamma_lam}。从最后一个词传到第一个词，隔着 {reach} 步，只剩 {both_power}。",
                "Two knobs for two different things.\n\n"
                "**The first: how much you care for sweets that come later.** One now counts as one; one that comes a step later counts as {gamma}. This says **what you want**: turn it down and you want only what comes at once.\n\n"
                "**The second: how much you trust the coach.** It does not change what you want, only **how you estimate it**: at 0 you take the coach's word after a single step, at 1 you wait for the real outcome. It stands at {lam}.\n\n"
                "When credit is passed back by a word, both knobs mark it down together, times {gamma_lam}. From the last word to the first, {reach} steps away, {both_power} is left.",
            ),
            (
                "- **γ = {gamma} 是目标的一部分。** 它定义什么叫好：`G_t = Σ_l γ^l·r_{t+l}`。改 γ 就改了 `V^π`、`Q^π` 和最优策略。\n"
                "- **λ = {lam} 只是估计的方法。** 它决定优势里多少来自实际发生的、多少来自 critic；critic 准确时，各个 λ 的期望都一样。\n\n"
                "它们在递推里以乘积出现，γλ = {gamma_lam}，但不能合成一个数：`δ_t = r_t + γ·V(s_{t+1}) − V(s_t)` 里的 γ 是单独的。\n\n"
                "- 最后一个 token 的 δ 传到第一个 token，隔 {reach} 步：γ 留下 {gamma_power}，λ 留下 {lam_power}，合计 {both_power}。大致的视野是 `1/(1−γλ)` = {horizon} 个 token。\n"
                "- 语言模型常用 γ = 1：回答有限长，得分在结尾；γ < 1 会让同样的得分只因回答更长就打折，回答一长，靠前的 token 几乎看不到得分。\n"
                "- λ 小：方差小，学得稳，但 critic 的错全部进来，靠前的 token 收到信号慢。λ = 1：没有 critic 的偏差，方差通常最大。长回答用 λ < 1 时要留意 `λ^T`：几百个 token 之后它几乎为 0。\n\n"
                "下表是“{token}”的优势随 λ（行）与 γ（列）的变化。注意 V 没有随 γ 重新学过，所以换 γ 的列只说明算术。",
                "- **γ = {gamma} is part of the goal.** It defines what is good: `G_t = Σ_l γ^l·r_{t+l}`. Another γ means another `V^π`, another `Q^π` and another best policy.\n"
                "- **λ = {lam} is only a way of estimating.** It decides how much of the advantage comes from what happened and how much from the critic; with an exact critic every λ has the same expectation.\n\n"
                "In the recursion they appear as a product, γλ = {gamma_lam}, but they cannot be merged: the γ in `δ_t = r_t + γ·V(s_{t+1}) − V(s_t)` stands alone.\n\n"
                "- The last token's δ reaches the first, {reach} steps away, with {gamma_power} left by γ and {lam_power} by λ, {both_power} in all. The rough horizon is `1/(1−γλ)` = {horizon} tokens.\n"
                "- For language models γ = 1 is usual: answers are finite and the score comes at the end; γ < 1 marks the same score down merely because the answer is longer, and in long answers lets early tokens see hardly any of it.\n"
                "- A small λ: little variance, steady learning, but all of the critic's error is in it and early tokens get their signal late. λ = 1: no bias from the critic, usually the most variance. With λ < 1 and long answers mind `λ^T`: after some hundred tokens it is almost 0.\n\n"
                "The table shows the advantage of “{token}” over λ (rows) and γ (columns). V has not been learnt anew for another γ, so those columns show arithmetic only.",
            ),
            (
                "**γ 改目标。** `V^π_γ(s) = E[Σ_l γ^l·r_l|s]`，不同的 γ 是不同的函数；`J_γ` 的最优策略一般也不同。若真正的目标是 γ = 1，用 γ < 1 就引入了偏差，critic 再准也消不掉。\n\n"
                "**λ 不改目标。** 设 `V = V^π_γ`。`E[δ_t|s_t, a_t] = A^π(s_t, a_t)`，l ≥ 1 时 `E[δ_{t+l}|s_{t+l}] = 0`，所以对任何 λ，`E[Σ_l (γλ)^l·δ_{t+l}|s_t, a_t] = A^π(s_t, a_t)`。λ 只在 V 有误差时才影响期望。\n\n"
                "**λ 是各步估计的混合。** `A^{(n)}_t = Σ_{l<n} γ^l·δ_{t+l}`，m 为从 t 起剩下的 token 数，n ≥ m 时 `A^{(n)} = A^{(m)}`，故\n\n"
                "    Σ_l (γλ)^l·δ_{t+l} = (1−λ)·Σ_{n=1}^{m−1} λ^{n−1}·A^{(n)}_t + λ^{m−1}·A^{(m)}_t\n\n"
                "（比较 `δ_{t+l}` 的系数：`γ^l·[(1−λ)·(λ^l + … + λ^{m−2}) + λ^{m−1}] = γ^l·λ^l`。）t = {t}：各 n 步优势为 {n_steps}，混合得 {mixture}，递推得 {advantage}。\n\n"
                "**为何不能合并。** `Σ_l (γλ)^l·δ_{t+l}` 通过 δ 依赖 γ，通过权重依赖 γλ。取 γ' = γλ、λ' = 1 得到的是 `Σ_l (γλ)^l·r_{t+l} − V(s_t)`（正常结束时），对应另一个目标的蒙特卡洛优势，而不是原目标的 GAE。",
                "**γ changes the goal.** `V^π_γ(s) = E[Σ_l γ^l·r_l|s]` is a different function for each γ, and the best policy of `J_γ` in general another. If the true goal has γ = 1, a γ < 1 brings a bias that no critic, however exact, removes.\n\n"
                "**λ does not.** Let `V = V^π_γ`. `E[δ_t|s_t, a_t] = A^π(s_t, a_t)`, and `E[δ_{t+l}|s_{t+l}] = 0` for l ≥ 1, so for any λ `E[Σ_l (γλ)^l·δ_{t+l}|s_t, a_t] = A^π(s_t, a_t)`. λ touches the expectation only when V is off.\n\n"
                "**λ mixes the n-step estimates.** With `A^{(n)}_t = Σ_{l<n} γ^l·δ_{t+l}`, m tokens left from t on, and `A^{(n)} = A^{(m)}` for n ≥ m,\n\n"
                "    Σ_l (γλ)^l·δ_{t+l} = (1−λ)·Σ_{n=1}^{m−1} λ^{n−1}·A^{(n)}_t + λ^{m−1}·A^{(m)}_t\n\n"
                "(compare the coefficients of `δ_{t+l}`: `γ^l·[(1−λ)·(λ^l + … + λ^{m−2}) + λ^{m−1}] = γ^l·λ^l`.) At t = {t}: the n-step advantages are {n_steps}, their mixture {mixture}, the recursion {advantage}.\n\n"
                "**Why they cannot be merged.** `Σ_l (γλ)^l·δ_{t+l}` depends on γ through δ and on γλ through the weights. Taking γ' = γλ, λ' = 1 gives `Σ_l (γλ)^l·r_{t+l} − V(s_t)` (for an answer that ended), the Monte Carlo advantage of another goal, not GAE for this one.",
            ),
        ),
        formula="δ_t = r_t + γ·V(s_(t+1)) − V(s_t);  A_t = δ_t + γλ·A_(t+1)",
        numbers=_knobs,
        grid=_knobs_grid,
        code=(
            "mingce.algorithms.advantage.gae",
            "mingce.algorithms.advantage.n_step",
            "mingce.algorithms.scan._generalised",
        ),
        related=("gae_variance", "mc_vs_gae", "a_not_delta", "values_shape"),
    ),
)
