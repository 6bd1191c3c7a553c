"""The clean set: dumps made by the peers' own code, in one folder with one index.

    python bench/clean_set.py OUT --seed 0 --verl VERL/bin/python --ppo TRL112/bin/python --grpo TRL116/bin/python
    python bench/audit_sets.py OUT/index.jsonl

How to make the three environments is said in clean_verl.py, clean_trl.py and clean_grpo.py. A part without a Python
stays as it is in the folder.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

from clean_files import join

HERE = Path(__file__).parent
MAKERS = {"verl": "clean_verl.py", "ppo": "clean_trl.py", "grpo": "clean_grpo.py"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    for name in MAKERS:
        parser.add_argument(f"--{name}", help="the Python of its environment")
    asked = parser.parse_args()
    for name, maker in MAKERS.items():
        if python := getattr(asked, name):
            subprocess.run([python, str(HERE / maker), str(asked.out), "--seed", str(asked.seed)], check=True)
    print(f"{join(asked.out)} dumps in {asked.out / 'index.jsonl'}")


if __name__ == "__main__":
    main()
