"""A batch as some trainer wrote it: named columns, nothing cleaned. Half of the evidence stands behind the mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mingce.base.errors import ColumnError
from mingce.base.texts import sentence_pair
from mingce.specs import ESTIMATORS
from mingce.specs.estimator import row_inputs
from mingce.specs.settings import SETTING_TYPES, DumpSettings, by_dotted_key

if TYPE_CHECKING:
    from mingce.config import Config
    from mingce.ledger import Ledger  # torch is not needed to look at a dump

Array = NDArray[Any]
Values = TypeVar("Values")

# Token columns [B, T] under the names and with the meaning of columns.py, and some that our ledger does not have:
#   importance_weights  the weight that corrects for the sampling policy, if the trainer uses one
#   value_mask          where values are kept, if that is not the response mask (TRL keeps one slot more)
#   weight_versions     version of the weights that sampled each token
#   turn, role          of conversations with tools, as in our ledger
# The policy loss uses `whitened_advantages` where there are any, else `advantages`, which some trainers have whitened
# already: only beside whitened ones are they known to be raw.
TOKEN_COLUMNS = (
    "token_ids", "response_mask", "attention_mask", "loss_mask", "value_mask", "rollout_log_probs", "old_log_probs",
    "ref_log_probs", "new_log_probs", "entropy", "scores", "kl", "rewards", "values", "new_values", "deltas",
    "advantages", "whitened_advantages", "returns", "ratio", "importance_weights", "weight_versions", "turn", "role",
)  # fmt: skip
RAW, LOSS = "raw_advantages", "loss_advantages"
"""Two ways to ask for advantages by what they are: known not to be whitened, and what the policy loss uses."""
# One entry per row:
#   uid, group          the row's own name; the name its prompt's samples share
#   prompt_ids          list of ids without padding
#   left_pad            how many pads stood before the prompt in the trainer's batch
#   position_ids        the whole row's position ids (prompt and response, pads included), list or None
#   finish_reason       "stop" or "length"
#   rank, minibatch, micro_batch, epoch      which part of the step the row was in
#   bootstrap_value     V of the state after the last token
#   outcome             the row's scalar score, where it is stored apart from the token columns
#   rollout_ids         ids as they were sampled, where they are stored apart from the trained ones
#   prompt, response, reward_text            texts; reward_text is what the scorer read
#   conversation, segment                    the trajectory that the row is a part of, and which part
#   drift                                    the first token at which encoding the text anew gives another id, or −1
ROW_COLUMNS = (
    "uid", "group", "prompt_ids", "left_pad", "position_ids", "finish_reason", "rank", "minibatch", "micro_batch",
    "epoch", "bootstrap_value", "outcome", "rollout_ids", "prompt", "response", "reward_text", "policy_version",
    "data_source", "conversation", "segment", "drift", *row_inputs(),
)  # fmt: skip
_UPDATED = {"ratio": ("new_log_probs", "ratio"), "new_values": ("new_values",)}
"""Columns that are 0 until an update writes the first of them."""


@dataclass
class Dump:
    """The contents of a dump. Floats are float32 or float64 arrays holding exactly the stored numbers.

    `scalars` are what the trainer logged for this step: pg_loss, vf_loss, kl_loss, entropy_mean, kl_mean, pg_clipfrac,
    vf_clipfrac, approx_kl, advantages_mean, kl_coef …
    """

    columns: dict[str, Array]
    rows: dict[str, list[Any]] = field(default_factory=dict)
    settings: DumpSettings = field(default_factory=DumpSettings)
    scalars: dict[str, float] = field(default_factory=dict)
    source: str = "generic"  # verl, trl, trl_grpo, openrlhf, prime_rl, verifiers, slime, skyrl, nemo_rl, mingce
    stored: dict[str, str] = field(default_factory=dict)  # dtype of each column in the file, e.g. "bfloat16"
    remarks: list[tuple[str, str]] = field(default_factory=list)  # (中文, English) about the reading: a missing shard …
    path: str = ""
    step: int | None = None
    rows_of: int | None = None
    """How many rows the step had, where these are a part of them: then nothing that takes the whole batch is judged."""

    def __post_init__(self) -> None:
        if "response_mask" not in self.columns:
            raise ColumnError(
                "the dump has no response_mask (or loss mask, action mask, padding mask), so no token can be judged; "
                "add it, or name it in a mapping file.",
                column="response_mask",
            )
        shape = self.columns["response_mask"].shape
        for name, column in self.columns.items():
            if column.ndim != 2 or column.shape != shape:
                raise ColumnError(
                    f"{name} has shape {list(column.shape)} where response_mask has {list(shape)}.", column=name
                )
        for name, row in self.rows.items():
            if len(row) != shape[0]:
                raise ColumnError(f"{name} has {len(row)} entries for {shape[0]} rows.", column=name)

    @property
    def shape(self) -> tuple[int, int]:
        rows, width = self.columns["response_mask"].shape
        return rows, width

    @property
    def partial(self) -> bool:
        """Whether these are some of the step's rows."""
        return self.rows_of is not None and self.rows_of > self.shape[0]

    @property
    def mask(self) -> NDArray[np.bool_]:
        """[B, T] True where the policy chose the token."""
        return self.columns["response_mask"].astype(bool)

    def name_of(self, name: str) -> str:
        """The column that holds what is asked for; "" where RAW or LOSS advantages are not known."""
        if name not in (RAW, LOSS):
            return name
        both = "whitened_advantages" in self.columns
        if name == RAW:
            return "advantages" if both or self.settings.whiten else ""
        return "whitened_advantages" if both else "" if self.settings.whiten else "advantages"

    def column(self, name: str) -> Array:
        """A token column as it is stored, by its name, or as RAW or LOSS."""
        return self.columns[self.name_of(name)]

    def wide(self, name: str) -> NDArray[np.float64]:
        """The column in float64, exactly the stored numbers."""
        return self.column(name).astype(np.float64)

    def holds(self, name: str) -> bool:
        """Whether it is a token column of this dump, RAW and LOSS included."""
        return self.name_of(name) in self.columns

    def has(self, *names: str) -> bool:
        """Whether every name is a token column, row column, setting or scalar of this dump; `a|b` means either."""
        return all(any(self._has(one) for one in name.split("|")) for name in names)

    def _has(self, name: str) -> bool:
        known = name in SETTING_TYPES and getattr(self.settings, name) is not None
        return known or self.holds(name) or name in self.rows or name in self.scalars


def dump_of_ledger(
    ledger: Ledger, config: Config, *, step: int | None = None, beta: float | None = None, stop_ids: Sequence[int] = ()
) -> Dump:
    """The dump of a ledger in memory; `beta` is the price of its KL, which may be adaptive."""
    from mingce.config import as_values

    settings = DumpSettings.from_run(by_dotted_key(as_values(config)), beta=beta, stop_ids=stop_ids)
    columns = {name: values.cpu().numpy() for name, values in ledger.columns().items()}
    stored = {name: column.dtype.name for name, column in columns.items()}
    return ledger_dump(Dump(columns, dict(ledger.rows), settings, stored=stored, step=step))


def ledger_dump(dump: Dump) -> Dump:
    """A ledger of ours, in memory or from its file, without what would mislead.

    That is: columns and rows that only training reads, a λ that the estimator does not use, columns no update has
    written yet.
    """
    settings, remarks = dump.settings, list(dump.remarks)
    spec = ESTIMATORS.get(settings.estimator or "")
    if spec is not None:
        settings = replace(settings, lam=spec.effective_lambda(settings.lam))
    columns = {name: column for name, column in dump.columns.items() if name in TOKEN_COLUMNS}
    for marker, names in _UPDATED.items():
        if marker in columns and bool((dump.mask & (columns[marker] == 0)).any()):
            columns = {name: column for name, column in columns.items() if name not in names}
    rows = {name: entries for name, entries in dump.rows.items() if name in ROW_COLUMNS}
    stored = {name: kind for name, kind in dump.stored.items() if name in columns}
    made = replace(dump, columns=columns, rows=rows, settings=settings, stored=stored, remarks=remarks, source="mingce")
    if (name := unknown_estimator(made)) is not None:
        remarks.append(sentence_pair("audit.unknown_estimator", name=name))
    return made


def unknown_estimator(dump: Dump) -> str | None:
    """The estimator in a person's own file that made the advantages of a ledger of ours; it is not recomputed."""
    name = dump.settings.estimator if dump.source == "mingce" else None
    spec = ESTIMATORS.get(name or "")
    return name if name and (spec is None or spec.kind == "own") else None


def with_ledger_names(columns: Mapping[str, Values]) -> dict[str, Values]:
    """Columns under the ledger's names, where `raw_advantages` stand beside or instead of the loss's `advantages`."""
    names = {"raw_advantages": "advantages"}
    if "raw_advantages" in columns:
        names["advantages"] = "whitened_advantages"
    return {names.get(name, name): column for name, column in columns.items()}
