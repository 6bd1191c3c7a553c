"""The batch on which verl 0.9.1's and TRL 1.16's own losses were computed (loss_goldens.json)."""

from __future__ import annotations

import numpy as np

CLIP_LOW, CLIP_HIGH = 0.2, 0.28


def batch() -> dict[str, np.ndarray]:
    """24 rows of up to 40 tokens in float32: log-probs that have moved, advantages of a group on each token."""
    rng = np.random.default_rng(7)
    rows, width = 24, 40
    mask = np.arange(width)[None, :] < rng.integers(6, width + 1, rows)[:, None]
    old = -rng.exponential(1.0, (rows, width))
    columns = {
        "old_log_probs": old,
        "new_log_probs": np.minimum(old + 0.25 * rng.normal(size=old.shape), -1e-4),
        "ref_log_probs": np.minimum(old + 0.3 * rng.normal(size=old.shape), -1e-4),
        "advantages": np.repeat(rng.normal(size=(rows, 1)), width, axis=1),
    }
    kept = {name: np.where(mask, column, 0.0).astype(np.float32) for name, column in columns.items()}
    return kept | {"response_mask": mask, "attention_mask": mask}
