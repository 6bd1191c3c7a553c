"""Ledger: a batch of rollouts as aligned, checked columns on one response-token axis [B, T].

    ledger = Ledger(token_ids, response_mask, rows={"uid": [...], "prompt_ids": [[...], ...]})
    ledger.fill({"old_log_probs": …}, {"ref_log_probs": …})     # checked against the column table
    ledger["advantages"]                                        # Tensor [B, T], 0 behind the mask

A column is accepted only if its name is in the table, its shape and type fit, every chosen token's number is finite,
and the columns it is computed from are there. Slots behind the mask are stored as 0 whatever came in.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from mingce.algorithms.checks import as_mask
from mingce.base.errors import ColumnError, SettingError, UnknownNameError
from mingce.columns import ROW_COLUMNS, TOKEN_COLUMNS, Column, column

Rows = dict[str, list[Any]]
Batcher = Callable[["Ledger"], list[Tensor]]
"""Row indices of the parts in which a model computes a ledger."""


class Ledger:
    """B rollouts of up to T response tokens. Columns are tensors [B, T]; `rows` holds one Python value a rollout."""

    def __init__(
        self,
        token_ids: Tensor,
        response_mask: Tensor,
        attention_mask: Tensor | None = None,
        rows: Mapping[str, Sequence[Any]] | None = None,
    ):
        """`attention_mask` marks the slots that hold a token at all; by default those up to the last chosen one."""
        if response_mask.dim() != 2:
            raise ColumnError(
                f"response_mask must have shape [B, T], but has {list(response_mask.shape)}.", column="response_mask"
            )
        mask = as_mask(response_mask)
        present = _up_to_last(mask) if attention_mask is None else as_mask(attention_mask, "attention_mask")
        self._columns: dict[str, Tensor] = {"response_mask": mask}
        self._columns["attention_mask"] = self._checked(TOKEN_COLUMNS["attention_mask"], present)
        if bool((mask & ~present).any()):
            row, token = (int(i) for i in (mask & ~present).nonzero()[0])
            raise ColumnError(
                f"row {row}, token {token} is chosen (response_mask 1) but not present (attention_mask 0).",
                column="attention_mask",
                row=row,
                token=token,
            )
        self._columns["token_ids"] = self._checked(TOKEN_COLUMNS["token_ids"], token_ids)
        self.rows: Rows = {}
        self.fill_rows(**(rows or {}))

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def __len__(self) -> int:
        """B, the number of rollouts."""
        return self.mask.shape[0]

    @property
    def width(self) -> int:
        """T, the number of slots."""
        return self.mask.shape[1]

    @property
    def mask(self) -> Tensor:
        """response_mask as bool [B, T]."""
        return self._columns["response_mask"]

    @property
    def loss_mask(self) -> Tensor:
        """The tokens that enter the losses: the column loss_mask if it is filled, response_mask otherwise."""
        return self._columns.get("loss_mask", self.mask)

    @property
    def device(self) -> torch.device:
        """Where the columns are."""
        return self.mask.device

    @property
    def lengths(self) -> Tensor:
        """[B] slots in use: one past the last present token."""
        slots = torch.arange(1, self.width + 1, device=self.device)
        return (self._columns["attention_mask"] * slots).amax(dim=1) if self.width else self.mask.sum(dim=1)

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def __getitem__(self, name: str) -> Tensor:
        known = column(name)
        if known.name not in self._columns:
            raise ColumnError(
                f"the ledger has no column '{known.name}' yet; fill it first ({known.source}).", column=known.name
            )
        return self._columns[known.name]

    def row(self, name: str) -> list[Any]:
        """The row column of that name, one value a rollout."""
        if name not in self.rows:
            raise ColumnError(f"the ledger has no row column '{name}'; give it with fill_rows.", column=name)
        return self.rows[name]

    def columns(self) -> dict[str, Tensor]:
        """All token columns by name, in the order they were filled."""
        return dict(self._columns)

    # ── filling ──────────────────────────────────────────────────────────────────────────────────────────────────

    def fill(self, *updates: Mapping[str, Tensor]) -> Ledger:
        """Checks and stores columns; nothing is stored if any of them is wrong. Returns the ledger."""
        updated: dict[str, tuple[Column, Tensor]] = {}
        for update in updates:
            for name, values in update.items():
                known = column(name)
                if known.alignment == "row":
                    raise ColumnError(
                        f"'{known.name}' is one value a rollout; give it with fill_rows.", column=known.name
                    )
                if known.name in ("token_ids", "response_mask", "attention_mask"):
                    raise ColumnError(f"'{known.name}' is fixed when the ledger is made.", column=known.name)
                updated[known.name] = (known, values)
        checked: dict[str, Tensor] = {}
        for name, (known, values) in updated.items():
            missing = [i for i in known.inputs if i not in self._columns and i not in updated]
            if missing:
                raise ColumnError(
                    f"'{name}' is computed from {', '.join(missing)}, which must be filled first.", column=name
                )
            checked[name] = self._checked(known, values)
        self._columns.update(checked)
        return self

    def fill_rows(self, **rows: Sequence[Any]) -> Ledger:
        """Stores row columns, one value a rollout each. Returns the ledger."""
        for name, values in rows.items():
            if name not in ROW_COLUMNS:
                raise UnknownNameError("row column", name, ROW_COLUMNS)
            if len(values) != len(self):
                raise ColumnError(
                    f"row column '{name}' has {len(values)} values for {len(self)} rollouts.", column=name
                )
        self.rows.update({name: list(values) for name, values in rows.items()})
        return self

    def _checked(self, known: Column, values: Tensor) -> Tensor:
        """`values` as they are stored: the table's dtype, finite on chosen tokens, 0 behind the mask."""
        name, mask = known.name, self.mask
        if values.shape != mask.shape:
            raise ColumnError(
                f"'{name}' has shape {list(values.shape)}, the ledger is {list(mask.shape)}; a column covers the "
                "response tokens only.",
                column=name,
            )
        if values.device != mask.device:
            raise ColumnError(
                f"'{name}' is on {values.device}, the ledger on {mask.device}; move one of them.", column=name
            )
        if known.dtype == "bool":
            # what stands behind the mask need not even be 0 or 1
            stored = values if name == "attention_mask" else torch.where(mask, values, torch.zeros_like(values))
            return as_mask(stored, name)
        if values.is_floating_point() != (known.dtype == "float32") or values.dtype == torch.bool:
            raise ColumnError(f"'{name}' holds {values.dtype}, expected {known.dtype}.", column=name)
        if known.dtype == "int64":
            return torch.where(self._columns["attention_mask"], values, 0).to(torch.int64)
        stored = torch.where(mask, values.detach(), 0.0).to(torch.float32)
        wrong = ~torch.isfinite(stored)
        if wrong.any():
            row, token = (int(i) for i in wrong.nonzero()[0])
            who = f" (uid {self.rows['uid'][row]})" if "uid" in self.rows else ""
            raise ColumnError(
                f"'{name}' is {values[row, token].item()} at row {row}, token {token}{who}, "
                f"{int(wrong.sum())} of {int(mask.sum())} chosen tokens are not finite; it comes from {known.source}.",
                column=name,
                row=row,
                token=token,
            )
        return stored

    # ── parts and wholes ─────────────────────────────────────────────────────────────────────────────────────────

    def _from_checked(self, columns: dict[str, Tensor], rows: Rows) -> Ledger:
        """A ledger of columns that were checked before."""
        ledger = object.__new__(Ledger)
        ledger._columns, ledger.rows = columns, rows
        return ledger

    def select(self, rows: Tensor | Sequence[int]) -> Ledger:
        """The given rows (indices, or a bool mask [B]) in the given order, at the same width."""
        index = torch.as_tensor(rows)
        if index.dtype == torch.bool:
            if index.shape != (len(self),):
                raise SettingError(f"a row mask must have shape [{len(self)}], but has {list(index.shape)}.")
            index = index.nonzero().squeeze(1)
        index = index.to(self.device, torch.long)
        chosen = index.tolist()
        if any(not -len(self) <= i < len(self) for i in chosen):
            raise SettingError(f"row {max(chosen, key=abs)} does not exist; the ledger has {len(self)} rows.")
        return self._from_checked(
            {name: values[index] for name, values in self._columns.items()},
            {name: [values[i] for i in chosen] for name, values in self.rows.items()},
        )

    def only(self, *names: str) -> Ledger:
        """The same rows with token_ids, the masks and, of the named columns, those that are there."""
        columns = {"response_mask", "attention_mask", "token_ids", "loss_mask", *names}
        rows = {name: values for name, values in self.rows.items() if name in (*names, "prompt_ids", "uid")}
        return self._from_checked({name: values for name, values in self._columns.items() if name in columns}, rows)

    def trim(self) -> Ledger:
        """The same rows without the slots that no row uses."""
        width = int(self.lengths.max()) if len(self) else 0
        return self._from_checked({name: values[:, :width] for name, values in self._columns.items()}, dict(self.rows))

    def widen(self, width: int) -> Ledger:
        """The same rows with empty slots added up to `width`."""
        if width < self.width:
            raise SettingError(f"cannot widen a ledger of {self.width} slots to {width}.")
        wider = {name: pad(values, (0, width - self.width)) for name, values in self._columns.items()}
        return self._from_checked(wider, dict(self.rows))

    def minibatches(self, rows: int, generator: torch.Generator | None = None) -> list[Tensor]:
        """Row indices of parts of `rows` rollouts (the last may be smaller), shuffled if a generator is given."""
        if rows < 1:
            raise SettingError(f"a minibatch needs at least one rollout, but minibatch_rollouts is {rows}.")
        order = torch.arange(len(self)) if generator is None else torch.randperm(len(self), generator=generator)
        return [order[start : start + rows] for start in range(0, len(self), rows)]

    def by_micro_batch(self, batcher: Batcher, compute: Callable[[Ledger], Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Runs `compute` on each trimmed part and puts its columns back in this ledger's row order and width.

        The batcher, which the model chooses (mingce.models.micro_batches), says which rows go together.
        """
        whole: dict[str, Tensor] = {}
        for rows in batcher(self):
            for name, values in compute(self.select(rows).trim()).items():
                if name not in whole:
                    whole[name] = values.new_zeros((len(self), self.width)[: values.dim()])
                slots = (slice(values.shape[1]),) if values.dim() == 2 else ()
                whole[name][(rows.to(self.device), *slots)] = values
        return whole

    @staticmethod
    def concat(ledgers: Sequence[Ledger]) -> Ledger:
        """All rows of the ledgers, one after another; they must have the same columns."""
        if not ledgers:
            raise SettingError("there is no ledger to concatenate.")
        first = ledgers[0]
        for number, ledger in enumerate(ledgers[1:], start=1):
            for mine, theirs in ((first._columns, ledger._columns), (first.rows, ledger.rows)):
                differing = sorted(set(mine) ^ set(theirs))
                if differing:
                    raise ColumnError(
                        f"ledger {number} and ledger 0 differ in column '{differing[0]}': only one of them has it.",
                        column=differing[0],
                    )
        width = max(ledger.width for ledger in ledgers)
        parts = [ledger.widen(width) for ledger in ledgers]
        return first._from_checked(
            {name: torch.cat([part._columns[name] for part in parts]) for name in first._columns},
            {name: [value for part in parts for value in part.rows[name]] for name in first.rows},
        )

    def to(self, device: str | torch.device) -> Ledger:
        """The same ledger on another device."""
        return self._from_checked({name: values.to(device) for name, values in self._columns.items()}, dict(self.rows))

    def __getstate__(self) -> tuple[dict[str, np.ndarray[Any, Any]], Rows]:
        """For another process: arrays, which Ray puts into shared memory and maps there without a copy."""
        return {name: values.cpu().numpy() for name, values in self._columns.items()}, self.rows

    def __setstate__(self, state: tuple[dict[str, np.ndarray[Any, Any]], Rows]) -> None:
        arrays, self.rows = state
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # shared memory is for reading only, and columns are never written to
            self._columns = {name: torch.from_numpy(values) for name, values in arrays.items()}

    def __repr__(self) -> str:
        computed = [name for name in self._columns if name not in ("response_mask", "attention_mask", "token_ids")]
        size = f"{len(self)} rollouts × {self.width} slots, {int(self.mask.sum())} chosen tokens"
        return f"Ledger({size}: {', '.join(computed)})"


def _up_to_last(mask: Tensor) -> Tensor:
    """1 on every slot up to and including the last chosen one of its row."""
    return mask.flip(1).cummax(dim=1).values.flip(1) if mask.shape[1] else mask
