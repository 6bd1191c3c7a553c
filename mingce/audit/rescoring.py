"""Passes of a model over some rows of a dump: the right one, and those of trainers with a bug."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from mingce.audit.evidence import Bools, Evidence, Floats, Ints
from mingce.base import half
from mingce.base.errors import ColumnError, ModelError
from mingce.specs.settings import DumpSettings

if TYPE_CHECKING:
    from torch import Tensor, nn

FEW = 8  # rows for passes that only explain a gap
LONGEST = 256  # tokens of a response for those passes
_Array = TypeVar("_Array", Floats, Bools, Ints)


@dataclass(frozen=True)
class Rescored:
    """The rows that are scored again: their places in the dump, ids and masks, cut to the longest response."""

    rows: Ints  # [R]
    prompts: list[list[int]]
    left_pads: list[int]
    tokens: Ints  # [R, W]
    attended: Bools
    mask: Bools

    @classmethod
    def of(cls, e: Evidence, most: int) -> Rescored:
        """Evenly spread rows whose prompt and response are whole: a prompt, chosen tokens, no gap in the mask."""
        attended, prompts = e.attended, e.row("prompt_ids")
        whole = ~(attended[:, 1:] & ~attended[:, :-1]).any(axis=1) & (e.mask & attended).any(axis=1)
        usable = [row for row in np.flatnonzero(whole) if prompts[row] is not None and len(prompts[row])]
        if not usable:
            raise ColumnError(
                "no row of the dump has a prompt and a right-padded response, so nothing can be scored again.",
                column="prompt_ids",
            )
        rows = np.array(usable)[np.unique(np.linspace(0, len(usable) - 1, min(most, len(usable))).astype(int))]
        width = int(attended[rows].sum(axis=1).max())
        longest = max(len(prompt) for prompt in prompts if prompt is not None)
        given = e.row("left_pad") if "left_pad" in e.dump.rows else [None] * len(prompts)
        return cls(
            rows,
            [[int(token) for token in prompts[row]] for row in rows],
            [longest - len(prompts[row]) if given[row] is None else int(given[row]) for row in rows],
            e.dump.columns["token_ids"][rows, :width].astype(np.int64),
            attended[rows, :width],
            e.mask[rows, :width] & attended[rows, :width],
        )

    def cut(self, column: Floats) -> Floats:
        """A column of the dump on these rows."""
        return column[self.rows, : self.tokens.shape[1]]

    def few(self, column: _Array) -> _Array:
        """A cut column on the first rows and tokens, those of the explaining passes."""
        return column[self._few, :LONGEST]

    @cached_property
    def _few(self) -> Ints:
        """Rows with the most and the least padding before them, by turns."""
        order = np.argsort(self.left_pads, kind="stable")
        half = FEW // 2
        return np.sort(order if len(order) <= FEW else np.concatenate([order[:half], order[-half:]]))

    def fewer(self) -> Rescored:
        picked = self._few
        return Rescored(
            self.rows[picked],
            [self.prompts[row] for row in picked],
            [self.left_pads[row] for row in picked],
            self.few(self.tokens),
            self.few(self.attended),
            self.few(self.mask),
        )

    def check(self, vocabulary: int, name: str | Path) -> None:
        """Every id is one of the model's."""
        for row, prompt, tokens, there in zip(self.rows, self.prompts, self.tokens, self.attended, strict=True):
            largest = max(max(prompt), int(tokens[there].max()))
            if min(min(prompt), int(tokens[there].min())) < 0 or largest >= vocabulary:
                raise ModelError(
                    f"row {row} of the dump has token id {largest}, but {name} knows ids below {vocabulary}; "
                    "give the model that wrote it."
                )


class Rescorer:
    """A causal language model and the rows it scores."""

    def __init__(self, name: str | Path, chosen: Rescored, settings: DumpSettings, dtype: str, device: str):
        from mingce.models.loading import choose_device, load_causal_lm

        self.rough = choose_device(device).type != "cpu" or half.works("bfloat16")  # before the first product
        self.name, self.chosen, self.dtype, self.device = name, chosen, dtype, device
        self.model = load_causal_lm(name, dtype=dtype, device=device)
        chosen.check(_vocabulary(self.model), name)
        self.temperature = settings.temperature if settings.temperature and settings.temperature > 0 else 1.0
        pad = settings.pad_id
        self.pad_id = pad if pad is not None and 0 <= pad < _vocabulary(self.model) else 0
        self.skipped = False
        self._right: Floats | None = None
        self._noise: float | None = None

    def right(self) -> Floats:
        """log π of every token [R, W], at the temperature of sampling."""
        if self._right is None:
            self._right = self._scored(self.model, self.chosen, self.temperature)
        return self._right

    def at(self, temperature: float) -> Floats:
        """The few rows at another temperature."""
        return self._scored(self.model, self.chosen.fewer(), temperature)

    def noise(self) -> float:
        """Mean gap between this pass and the same in bfloat16: what low precision does to this model here.

        0 where this machine cannot compute it; `skipped` says so.
        """
        if not self.rough:
            self.skipped = True
            return 0.0
        if self._noise is None:
            from mingce.models.loading import load_causal_lm

            rough = load_causal_lm(self.name, dtype="bfloat16", device=self.device)
            few = self.chosen.fewer()
            gap = np.abs(self._scored(rough, few, self.temperature) - self.chosen.few(self.right()))
            self._noise = float(gap[few.mask].mean())
        return self._noise

    def without_mask(self) -> Floats | None:
        """Padding before the prompt is attended to."""
        return self._padded(masked=False, read=-1) if any(self.chosen.left_pads) else None

    def without_positions(self) -> Floats | None:
        """The mask is there, but positions count the padding."""
        return self._padded(masked=True, read=-1) if any(self.chosen.left_pads) else None

    def unshifted(self) -> Floats:
        """Token t read from the logits that have seen it."""
        return self._padded(masked=True, read=0, padded=False)

    def _scored(self, model: nn.Module, rows: Rescored, temperature: float) -> Floats:
        import torch

        from mingce.models.log_probs import response_log_probs

        found = np.zeros(rows.tokens.shape)
        with torch.no_grad():
            for at in range(0, len(rows.rows), FEW):
                part = slice(at, at + FEW)
                log_probs, _ = response_log_probs(
                    model,
                    rows.prompts[part],
                    self._tensor(rows.tokens[part]),
                    self._tensor(rows.attended[part]),
                    pad_id=self.pad_id,
                    temperature=temperature,
                )
                found[part] = log_probs.double().cpu().numpy()
        return found

    def _padded(self, *, masked: bool, read: int, padded: bool = True) -> Floats:
        """The few rows one by one, behind their left padding, with positions from 0 on at its beginning."""
        import torch

        few = self.chosen.fewer()
        found = np.zeros(few.tokens.shape)
        keep = "logits_to_keep" in inspect.signature(self.model.forward).parameters
        for row, prompt in enumerate(few.prompts):
            response = few.tokens[row, few.attended[row]]
            pads = few.left_pads[row] if padded else 0
            ids = self._tensor(np.array([[self.pad_id] * pads + prompt + response.tolist()]))
            if ids.shape[1] > _window(self.model):
                continue
            mask = torch.ones_like(ids)
            mask[:, :pads] = 0 if masked else 1
            positions = torch.arange(ids.shape[1], device=ids.device)[None]
            options = {"logits_to_keep": len(response) + 1} if keep else {}
            with torch.no_grad():
                logits = self.model(input_ids=ids, attention_mask=mask, position_ids=positions, **options).logits
            logits = logits[0, -len(response) - 1 :].float() / self.temperature
            logits = logits[:-1] if read < 0 else logits[1:]
            picked = logits.log_softmax(-1).gather(-1, ids[0, -len(response) :, None])[:, 0]
            found[row, : len(response)] = picked.double().cpu().numpy()
        return found

    def _tensor(self, array: Ints | Bools) -> Tensor:
        import torch

        return torch.from_numpy(np.ascontiguousarray(array)).to(next(self.model.parameters()).device)


def rescored_values(name: str | Path, chosen: Rescored, dtype: str, device: str) -> Floats:
    """What a critic of ours says of the rows, [R, W]."""
    import torch

    from mingce.models.loading import model_directory
    from mingce.models.value_head import ValueModel

    if not (model_directory(name) / "value_head.safetensors").exists():
        raise ModelError(f"{name} has no value_head.safetensors; give a critic directory that mingce wrote.")
    model = ValueModel.load(name, dtype=dtype, device=device)
    chosen.check(_vocabulary(model.backbone), name)
    where = model.head.weight.device
    values: Floats = np.zeros(chosen.tokens.shape)
    with torch.no_grad():
        for at in range(0, len(chosen.rows), FEW):
            part = slice(at, at + FEW)
            tokens = torch.from_numpy(chosen.tokens[part]).to(where)
            attended = torch.from_numpy(chosen.attended[part]).to(where)
            read, _ = model.values(chosen.prompts[part], tokens, attended, 0)
            values[part] = read.double().cpu().numpy()
    return values


def _vocabulary(model: nn.Module) -> int:
    embeddings: Any = model.get_input_embeddings()  # type: ignore[operator]
    return int(embeddings.weight.shape[0])


def _window(model: nn.Module) -> int:
    return int(getattr(model.config, "max_position_embeddings", None) or 1 << 30)
