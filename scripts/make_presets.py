"""Writes mingce/plan/presets.json: the shapes of the presets as transformers builds them, so that a plan for one of
them needs neither torch nor transformers.

python scripts/make_presets.py
"""

from __future__ import annotations

import json

from mingce.base.atomic import atomic_write
from mingce.plan.families import read_shape, shape_of
from mingce.plan.presets import PRESETS, SHAPES, TINY
from mingce.plan.shape import shape_values


def main() -> None:
    """Builds every preset on the meta device and writes its shape."""
    shapes = {name: shape_of(config, name, name) for name, config in PRESETS.items()} | {"tiny": read_shape(TINY)}
    lines = [f"{json.dumps(name)}: {json.dumps(shape_values(shape))}" for name, shape in shapes.items()]
    atomic_write(SHAPES, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


if __name__ == "__main__":
    main()
