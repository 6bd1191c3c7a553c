"""Makes the pictures of docs/images anew: plots, and two short runs whose pages are opened in chromium.

python scripts/make_images.py            # two minutes on one core
python scripts/make_images.py RUNS       # of runs made before, RUNS/zh and RUNS/en
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from mingce.sources.library import Library
from mingce.view.api import Api

IMAGES = Path(__file__).parent.parent / "docs" / "images"
STEP = 6
PLOTS = {"--plot": "account", "--plot-lambda": "lambda"}
RUNS = {"zh": ["lang=zh"], "en": ["lang=en", "task=counting"]}
# name, run, address, width × height, dark
PICTURES = (
    ("view-rollout-zh", "zh", "rollout/{row}?token={token}&column=deltas", (1360, 940), True),
    ("view-rollout-en", "en", "rollout/{row}?token={token}", (1360, 940), False),
    ("view-run-en", "en", "..", (1280, 1000), False),
    ("view-step-zh", "zh", "", (1280, 860), False),
    ("view-map-zh", "zh", "rollout/{row}?token={token}&view=map", (1360, 1180), False),
    ("view-whatif-en", "en", "rollout/{row}?token={token}&view=whatif", (1360, 1100), True),
    ("view-phone-zh", "zh", "rollout/{row}?token={token}", (390, 844), False),
    ("view-playground-zh", "zh", "playground", (1280, 1000), False),
)


def train(root: Path) -> None:
    """The two runs."""
    for name, settings in RUNS.items():
        command = [sys.executable, "-m", "mingce.cli", "train", f"root={root}", f"name={name}", "steps=10", "threads=1"]
        subprocess.run([*command, *settings], check=True, stdout=subprocess.DEVNULL)


def telling(run: Path) -> dict[str, int]:
    """A rollout that went wrong beside others that did not, and the token where the critic lost most hope."""
    api = Api(Library([run]))
    rows = [(line.row, line.group, line.score or 0.0) for line in api.step(run.name, STEP).rollouts]
    best = {group: max(score for _, other, score in rows if other == group) for _, group, _ in rows}
    row = next(row for row, group, score in rows if score < best[group])
    deltas = api.rollout(run.name, STEP, row).columns["deltas"]
    inside = range(len(deltas) - 1)
    return {"row": row, "token": min(inside, key=lambda t: float(deltas[t] or 0.0), default=0)}


def address(run: str, place: str, where: dict[str, int]) -> str:
    """The page's own address of a picture."""
    if place == "playground":
        return "#/playground"
    return f"#/run/{run}" if place == ".." else f"#/run/{run}/step/{STEP}/{place.format(**where)}".rstrip("/")


def settle(page: Page) -> None:
    """Waits until nothing is loaded or drawn any more."""
    page.wait_for_load_state("networkidle")
    page.evaluate("document.fonts.ready")
    page.wait_for_timeout(600)


def photograph(root: Path) -> None:
    """All pictures."""
    server = subprocess.Popen(
        [sys.executable, "-m", "mingce.cli", "view", str(root), "--no-browser", "--lang", "en"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    try:
        found = None
        while found is None:
            found = re.search(r"http://\S+", server.stdout.readline())
        where = {run: telling(root / run) for run in RUNS}
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            for name, run, place, (width, height), dark in PICTURES:
                context = browser.new_context(
                    locale="zh-CN" if run == "zh" else "en-US",
                    viewport={"width": width, "height": height},
                    color_scheme="dark" if dark else "light",
                )
                context.add_init_script(f"try {{ localStorage.lang = '{run}' }} catch {{}}")  # else it is the server's
                page = context.new_page()
                page.goto(f"{found[0].rstrip('/')}/{address(run, place, where[run])}")
                settle(page)
                page.screenshot(path=str(IMAGES / f"{name}.png"))
                print(name, file=sys.stderr)
            browser.close()
    finally:
        server.terminate()
        server.wait()


def plot() -> None:
    """The worked example's pictures."""
    for lang in ("zh", "en"):
        names = {option: IMAGES / f"explain-{name}-{lang}.png" for option, name in PLOTS.items()}
        options = [word for option, path in names.items() for word in (option, str(path))]
        command = [sys.executable, "-m", "mingce.cli", "explain", "--lang", lang, *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    plot()
    if len(sys.argv) > 1:
        photograph(Path(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as root:
        train(Path(root))
        photograph(Path(root))


if __name__ == "__main__":
    main()
