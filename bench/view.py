"""How fast the page's server answers on a run of ten million tokens, and how much memory it takes.

The run is made by LedgerStore.write; the server is a process of its own, asked over HTTP like a browser would.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from random import Random
from typing import Any

import torch
from tables import Table, number

from mingce.config import Config, as_values
from mingce.ledger import Ledger
from mingce.metrics import METRICS
from mingce.record.run import Run
from mingce.record.store import LedgerStore

FLOATS = (
    "rollout_log_probs", "old_log_probs", "ref_log_probs", "entropy", "scores", "kl", "rewards", "values", "deltas",
    "advantages", "returns", "whitened_advantages", "new_log_probs", "ratio", "policy_loss", "new_entropy",
    "new_values", "value_loss",
)  # fmt: skip
FLAGS = ("loss_mask", "clipped", "dual_clipped", "value_clipped")


def make_ledger(rollouts: int, tokens: int, seed: int) -> Ledger:
    """A ledger with every column the trainer fills; lengths from half to the whole width."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(tokens // 2, tokens + 1, (rollouts,), generator=generator).clamp(min=1)
    lengths[:] = lengths * tokens // max(int(lengths.float().mean()), 1)
    mask = torch.arange(int(lengths.max()))[None, :] < lengths[:, None]
    ids = torch.randint(4, 50, mask.shape, generator=generator)
    ledger = Ledger(
        ids,
        mask,
        mask,
        rows={
            "uid": [f"{seed}-{b}" for b in range(rollouts)],
            "group": [f"{seed}-{b // 4}" for b in range(rollouts)],
            "data_source": ["bench"] * rollouts,
            "prompt": [f"请问{b % 90}+{seed % 90}=？" for b in range(rollouts)],
            "prompt_ids": [[5, 6, 7, 8]] * rollouts,
            "response": ["等" * int(n) for n in lengths],
            "finish_reason": ["stop"] * rollouts,
            "score_parts": [{"number": 1.0}] * rollouts,
            "bootstrap_value": [0.0] * rollouts,
            "step": [seed] * rollouts,
            "policy_version": [seed] * rollouts,
            "temperature": [1.0] * rollouts,
        },
    )
    ledger.fill({name: torch.randn(mask.shape, generator=generator) for name in FLOATS})
    return ledger.fill(
        {name: torch.rand(mask.shape, generator=generator) < 0.1 for name in FLAGS} | {"loss_mask": mask}
    )


def make_run(root: Path, steps: int, rollouts: int, tokens: int) -> tuple[Path, int]:
    """A finished run on disk and its number of tokens."""
    config = Config(steps=steps, name="bench")
    total = 0
    with Run.create(root, "bench", as_values(config)) as run:
        store = LedgerStore(run.ledger_path)
        for step in range(1, steps + 1):
            ledger = make_ledger(rollouts, tokens, step)
            total += int(ledger.mask.sum())
            store.write(step, ledger)
            run.log(step, {metric.name: step + k / 7 for k, metric in enumerate(METRICS)})
        return run.path, total


def ask(url: str) -> tuple[float, int]:
    """Milliseconds and bytes of one answer."""
    start = time.perf_counter()
    with urllib.request.urlopen(url) as answer:
        size = len(answer.read())
    return 1000 * (time.perf_counter() - start), size


def memory(process: int) -> dict[str, float]:
    """Resident memory now and at its peak, in MB."""
    status = Path(f"/proc/{process}/status").read_text()
    return {
        name: int(re.search(rf"{key}:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]
        for name, key in (("now", "VmRSS"), ("peak", "VmHWM"))
    }


def cpu_seconds(process: int) -> float:
    """What the server has computed so far; unlike the clock, no other process disturbs it much."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def in_the_browser(base: str, run: str, step: int, row: int) -> dict[str, float]:
    """Seconds until a page in a new chromium is drawn, and until the microscope answers a key."""
    from playwright.sync_api import sync_playwright

    found = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, address, drawn in (
            ("run_s", f"#/run/{run}", ".uplot"),
            ("step_s", f"#/run/{run}/step/{step}", "tbody tr:not(.filler)"),
            ("rollout_s", f"#/run/{run}/step/{step}/rollout/{row}", ".chip"),
        ):
            page = browser.new_context().new_page()
            start = time.perf_counter()
            page.goto(f"{base}/{address}")
            page.locator(drawn).first.wait_for()
            found[name] = round(time.perf_counter() - start, 2)
        page.keyboard.press("ArrowRight")
        page.locator(".chip.selected[data-t='1']").wait_for()
        found["rollout_and_a_key_s"] = round(time.perf_counter() - start, 2)
        browser.close()
    return found


def measure(run: Path, steps: int, rollouts: int, samples: int) -> dict[str, Any]:
    start = time.perf_counter()
    server = subprocess.Popen(
        [sys.executable, "-m", "mingce.cli", "view", str(run), "--no-browser", "--lang", "en"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    try:
        base = ""
        while not base:
            found = re.search(r"http://\S+", server.stdout.readline())
            base = found[0].rstrip("/") if found else ""
        first, _ = ask(f"{base}/api/runs")
        started = time.perf_counter() - start
        api, random = f"{base}/api/runs/{run.name}", Random(0)
        cold, size = ask(api)
        warm, _ = ask(api)
        places = [(random.randint(1, steps), random.randrange(rollouts)) for _ in range(samples)]
        before = cpu_seconds(server.pid)
        answers = [ask(f"{api}/steps/{step}/rollouts/{row}") for step, row in places]
        cpu = 1000 * (cpu_seconds(server.pid) - before) / samples
        again = [ask(f"{api}/steps/{step}/rollouts/{row}") for step, row in places]
        pages = [ask(f"{api}/steps/{step}") for step in random.sample(range(1, steps + 1), min(5, steps))]
        through, _ = ask(f"{api}/through")

        def spread(answers: list[tuple[float, int]]) -> dict[str, float]:
            times = sorted(time for time, _ in answers)
            return {
                "median_ms": round(statistics.median(times), 1),
                "max_ms": round(times[-1], 1),
                "kB": round(statistics.median(size for _, size in answers) / 1000),
            }

        return {
            "in_the_browser": in_the_browser(base, run.name, random.randint(1, steps), random.randrange(rollouts)),
            "start_s": round(started, 2),
            "runs_ms": round(first, 1),
            "run_page_ms": {"first": round(cold, 1), "again": round(warm, 1), "kB": round(size / 1000)},
            "rollout_first": spread(answers) | {"cpu_ms": round(cpu, 1)},
            "rollout_again": spread(again),
            "step_page": spread(pages),
            "through_ms": round(through, 1),
            "memory_MB": {name: round(size) for name, size in memory(server.pid).items()},
        }
    finally:
        server.terminate()
        server.wait()


def milliseconds(value: Any) -> str:
    return f"{number(value['median_ms'])} (most {number(value['max_ms'])})"


def add_rows(table: Table, name: str, found: dict[str, Any]) -> None:
    first, again, page, browser = (
        found[key] for key in ("rollout_first", "rollout_again", "step_page", "in_the_browser")
    )
    run, memory = found["run_page_ms"], found["memory_MB"]
    rows = {
        "starting the server, s": number(found["start_s"]),
        "list of runs, ms": number(found["runs_ms"]),
        "a run's figures, first time (again), ms": f"{number(run['first'])} ({number(run['again'])}), {run['kB']} kB",
        "a rollout, first time, ms": f"{milliseconds(first)}, {first['kB']} kB",
        "of it the server's CPU, ms": number(first["cpu_ms"]),
        "a rollout, again, ms": milliseconds(again),
        "a step's rollouts, ms": f"{milliseconds(page)}, {page['kB']} kB",
        "the prompts through the steps, ms": number(found["through_ms"]),
        "a run drawn in a new browser, s": number(browser["run_s"]),
        "a step drawn, s": number(browser["step_s"]),
        "a rollout drawn, s": number(browser["rollout_s"]),
        "a rollout drawn and a key answered, s": number(browser["rollout_and_a_key_s"]),
        "the server's memory (at most), MB": f"{memory['now']} ({memory['peak']})",
    }
    table.rows += [[name, *row] for row in rows.items()]
    table.raw.append({"run": name, **found})
    table.at_most(f"{name}: a rollout, first time, median", first["median_ms"], None, " ms",
                  group="Viewer: time to a rollout's numbers in a run of 10⁷ tokens")  # fmt: skip
    table.at_most(f"{name}: a rollout drawn in a new browser", browser["rollout_s"], None, " s",
                  group="Viewer: time to a rollout drawn in a new browser")  # fmt: skip


def run(quick: bool) -> Table:
    table = Table("view", "The page's server on large runs", ["run", "what", "measured"])
    for steps, rollouts, tokens in ((5, 100, 1000),) if quick else ((100, 100, 1000), (10, 100_000, 10)):
        name = f"{steps} steps × {rollouts:,} × {tokens:,} tokens"
        with table.case(name), tempfile.TemporaryDirectory() as root:
            place, total = make_run(Path(root), steps, rollouts, tokens)
            size = sum(file.stat().st_size for file in (place / "ledger").iterdir())
            table.notes.append(f"{name}: {total:,} tokens, {size / 1e6:,.0f} MB of ledgers.")
            add_rows(table, name, measure(place, steps, rollouts, samples=60))
    table.notes.append("On the wall, over HTTP as a browser asks; the browser is chromium by Playwright.")
    return table
