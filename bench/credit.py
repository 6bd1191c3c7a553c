"""GAE, returns and whitening: the compiled recursion against Python loops over T, verl's own function and torchrl's.

"loop" is the recursion as trainers write it, carrying value and advantage over slots that were not chosen; "bare loop"
is the least a loop can do, for a mask without holes. verl's function whitens too, so it is compared with ours whitened.
torchrl's knows no mask, so it is timed without holes; it runs in the peers' environment and takes turns with ours.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import torch
from audit_peers import verl
from credit_inputs import GAMMA, LAM, inputs
from measuring import Spread, Work, cpu_seconds, growth, ratio, repeats, take_turns
from plan_memory import Live
from tables import Table, number, spread
from torch import Tensor
from turns import Side, has

from mingce.algorithms.advantage import Credit, gae
from mingce.algorithms.masking import masked_whiten

HERE = Path(__file__).parent
WANTED = {(256, 2048): 100, (64, 8192): 300, (8, 32768): 1000}
OF_VERL = {(256, 2048): 50}
WIDTHS = (1024, 2048, 4096, 8192, 16384, 32768)


def bare_loop(rewards: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The textbook recursion, for a mask without holes."""
    after = last = torch.zeros(())
    backwards = []
    for t in reversed(range(rewards.shape[1])):
        delta = rewards[:, t] + GAMMA * after - values[:, t]
        last = delta + GAMMA * LAM * last
        backwards.append(last)
        after = values[:, t]
    advantages = torch.stack(backwards[::-1], dim=1)
    return advantages, advantages + values


def masked_loop(rewards: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The recursion that steps over masked slots, as verl writes it."""
    weight = mask.to(values.dtype)
    after = last = torch.zeros((), dtype=values.dtype)
    backwards = []
    for t in reversed(range(rewards.shape[1])):
        m = weight[:, t]
        delta = rewards[:, t] + GAMMA * after - values[:, t]
        step = delta + GAMMA * LAM * last
        last = step * m + (1 - m) * last
        after = values[:, t] * m + (1 - m) * after
        backwards.append(last)
    advantages = torch.stack(backwards[::-1], dim=1) * weight
    return advantages, advantages + values * weight


def ours(columns: tuple[Tensor, Tensor, Tensor]) -> Credit:
    """Rewards, values and mask to advantages and returns."""
    return gae(*columns, GAMMA, LAM)


def works(shape: tuple[int, int], holes: bool) -> dict[str, Work]:
    """The sides that run in this process."""
    given = rewards, values, mask = inputs(shape, holes)
    floats, core = mask.float(), verl()
    advantages = ours(given).advantages
    sides: dict[str, Work] = {
        "loop": lambda: masked_loop(rewards, values, mask),
        "verl": lambda: core.compute_gae_advantage_return(rewards, values, floats, GAMMA, LAM),
        "mingce": lambda: ours(given),
        "mingce whitened": lambda: masked_whiten(ours(given).advantages, mask),
        "verl's whitening": lambda: core.verl_F.masked_whiten(advantages, floats),
        "whitening": lambda: masked_whiten(advantages, mask),
    }
    return sides if holes else sides | {"bare": lambda: bare_loop(rewards, values)}


def beside_torchrl(python: str, shape: tuple[int, int], rounds: int) -> dict[str, list[float]]:
    """CPU seconds of torchrl's function in a process of its own and of ours, turn by turn."""
    given = inputs(shape, holes=False)
    times = repeats(partial(ours, given))
    taken: dict[str, list[float]] = {"torchrl": [], "mingce": []}
    with tempfile.TemporaryDirectory() as place:
        with Side(python, HERE / "turn_torchrl.py", {"shape": shape, "directory": place}, 1) as side:
            side.step()
            for _ in range(rounds):
                taken["torchrl"].append(side.step()["cpu"])
                taken["mingce"].append(cpu_seconds(partial(ours, given), times))
        theirs = torch.load(Path(place) / "advantages.pt")
    assert torch.allclose(theirs, ours(given).advantages, atol=1e-4), "torchrl computed something else"
    return taken


def error(shape: tuple[int, int], holes: bool) -> float:
    """The largest error of an advantage, as a share of its row's largest, against the loop in float64."""
    rewards, values, mask = inputs(shape, holes)
    exact, _ = masked_loop(rewards.double(), values.double(), mask)
    found = ours((rewards, values, mask)).advantages
    return float(((found - exact).abs().amax(1) / exact.abs().amax(1)).max())


def run(quick: bool, peers: str | None) -> Table:
    table = Table(
        "credit",
        "Credit: GAE, returns and whitening",
        ["shape", "mask", "to the loop", "to a bare loop", "to verl 0.9.1, whitened", "to torchrl",
         "whitening alone, to verl's", "loop ms", "mingce ms", "max error"],
    )  # fmt: skip
    torchrl, rounds = has(peers, "torchrl"), 3 if quick else 5
    for shape in [(256, 2048)] if quick else list(WANTED):
        for holes in (False, True):
            name = f"{shape[0]} × {shape[1]}, {'a hole a row' if holes else 'full mask'}"
            with table.case(name):
                taken = take_turns(works(shape, holes), rounds)
                beside = beside_torchrl(str(peers), shape, rounds) if torchrl and not holes else {}
                add_row(table, name, shape, holes, taken, beside)
    if not torchrl:
        table.notes.append("torchrl is left out: no Python that has it was given (`--peers`).")
    add_growth(table, WIDTHS[:3] if quick else WIDTHS)
    return table


def add_row(
    table: Table,
    name: str,
    shape: tuple[int, int],
    holes: bool,
    taken: dict[str, list[float]],
    beside: dict[str, list[float]],
) -> None:
    to_loop, to_verl = ratio(taken["loop"], taken["mingce"]), ratio(taken["verl"], taken["mingce whitened"])
    whitening, wrong, half = (
        ratio(taken["verl's whitening"], taken["whitening"]),
        error(shape, holes),
        2 if holes else 1,
    )
    table.at_least(name, to_loop.median, WANTED[shape] / half, group="GAE and returns", peer="a Python loop over T")
    wanted = OF_VERL[shape] / half if shape in OF_VERL else None
    white = ratio(taken["whitening"], taken["mingce whitened"]).median
    table.at_least(f"{name}, with whitening", to_verl.median, wanted, group="GAE, returns and whitening",
                   peer="verl 0.9.1's function", why=f"{white:.0%} of ours is whitening.")  # fmt: skip
    table.at_least(f"{name}, whitening alone", whitening.median, None, group="Whitening alone", peer="verl 0.9.1's",
                   why="Ours takes its sums in float64.")  # fmt: skip
    bare = to_torchrl = ""
    if not holes:
        bare = spread(ratio(taken["bare"], taken["mingce"]))
    if beside:
        won = ratio(beside["torchrl"], beside["mingce"])
        to_torchrl = spread(won)
        table.at_least(f"{name}, torchrl", won.median, None, group="GAE and returns", peer="torchrl's vectorised")
    milliseconds = [number(1e3 * Spread.of(taken[side]).median) for side in ("loop", "mingce")]
    size, mask = name.split(", ")
    table.rows.append([size, mask, spread(to_loop), bare, spread(to_verl), to_torchrl, spread(whitening), *milliseconds,
                       f"{wrong:.0e}"])  # fmt: skip
    table.raw.append({"shape": shape, "holes": holes, "seconds": taken, "beside_torchrl": beside, "error": wrong})


def add_growth(table: Table, widths: tuple[int, ...]) -> None:
    """How time and memory grow with T and with B."""
    for name, shapes in (("T", [(16, width) for width in widths]), ("B", [(width // 16, 512) for width in widths])):
        with table.case(f"growth over {name}"):
            given = {shape: inputs(shape, False) for shape in shapes}
            taken = take_turns({str(shape): partial(ours, columns) for shape, columns in given.items()}, 5)
            seconds = [Spread.of(rounds).median for rounds in taken.values()]
            peaks = []
            for columns in given.values():
                with Live(columns) as live:
                    ours(columns)
                peaks.append(live.peak)
            table.raw.append({"over": name, "shapes": shapes, "seconds": taken, "peak_bytes": peaks})
            group = "GAE and returns: fitted exponent of growth"
            table.at_most(f"time over {name}, fitted exponent", growth(widths, seconds), 1.1, group=group)
            table.at_most(f"memory over {name}, fitted exponent", growth(widths, peaks), 1.1, group=group)
            slots = [rows * width for rows, width in shapes]
            table.notes.append(
                f"Over {name} from {shapes[0]} to {shapes[-1]}: {number(1e9 * seconds[0] / slots[0])} to "
                f"{number(1e9 * seconds[-1] / slots[-1])} ns and {number(peaks[0] / slots[0])} to "
                f"{number(peaks[-1] / slots[-1])} bytes a slot beyond the inputs."
            )
