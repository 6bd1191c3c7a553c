"""The value model: a backbone with one number on top of every hidden state."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel

from mingce.ledger import Batcher
from mingce.models import cpu
from mingce.models.batching import joined_rows, places
from mingce.models.forward import hidden_states
from mingce.models.library_errors import library_errors
from mingce.models.loading import backbone, choose_device, load_causal_lm, model_directory, read_weights
from mingce.models.lora import has_adapters, merged, twin, without_adapters
from mingce.models.micro_batches import batcher

_HEAD_FILE = "value_head.safetensors"


class ValueModel(nn.Module):
    """V(s) read from a backbone's hidden states by a linear head in float32.

    The head starts at zero: before it has learned anything the value of every state is 0, not noise.
    """

    def __init__(self, trunk: PreTrainedModel):
        super().__init__()
        self.backbone = trunk
        self.head = nn.Linear(trunk.config.get_text_config().hidden_size, 1, device=trunk.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    @classmethod
    def from_causal_lm(cls, model: nn.Module) -> ValueModel:
        """Starts from a copy of the language model's backbone, with adapters merged, and learns all of it."""
        trunk = copy.deepcopy(backbone(merged(model)))
        return cls(cast(PreTrainedModel, trunk)).requires_grad_(True)

    @classmethod
    def with_adapters(cls, model: nn.Module, *, share: bool = True) -> ValueModel:
        """Starts from the backbone of a language model with adapters, and learns adapters of its own and the head.

        With `share` both have the same frozen weights in memory.
        """
        return cls(cast(PreTrainedModel, backbone(twin(model, share=share))))

    @classmethod
    def load(cls, name_or_dir: str | Path, *, dtype: str = "auto", device: str = "auto") -> ValueModel:
        """From a directory that `save` wrote, or from any causal language model with a new head."""
        directory = model_directory(name_or_dir)
        if not (directory / _HEAD_FILE).exists():
            return cls(cast(PreTrainedModel, backbone(load_causal_lm(name_or_dir, dtype=dtype, device=device))))
        model = cls(read_weights(AutoModel, directory, str(name_or_dir), dtype, choose_device(device)))
        with library_errors(f"the value head in {name_or_dir} cannot be read", "check that its files are whole"):
            model.head.load_state_dict(load_file(directory / _HEAD_FILE))
        return model

    def save(self, directory: Path) -> None:
        """Write the backbone as a plain Hugging Face directory, adapters merged, and the head beside it."""
        with library_errors(f"the value model cannot be saved to {directory}", "choose a place that can be written to"):
            cast(Any, without_adapters(self.backbone)).save_pretrained(directory)
            head = {name: tensor.detach().contiguous() for name, tensor in self.head.state_dict().items()}
            save_file(head, directory / _HEAD_FILE)

    def forward(
        self,
        prompt_ids: Sequence[Sequence[int]],
        token_ids: Tensor,
        attention_mask: Tensor,
        pad_id: int,
        final: bool = True,
    ) -> tuple[Tensor, Tensor]:
        """Values `[B, T]` and final values `[B]`, float32.

        Slot t is V(s_t), read at the token before y_t, and 0 outside `attention_mask`. The final value is V of the
        state after the row's last token, the value to bootstrap from if the response was cut there. Without `final`
        it is left out, and what stands for it means nothing; the passes on the CPU then need not compute that state.
        """
        mask = attention_mask.bool()
        if not len(prompt_ids):
            return torch.zeros(mask.shape, device=mask.device), torch.zeros(0, device=mask.device)
        joined = joined_rows(prompt_ids, token_ids, mask, pad_id)
        lengths = mask.sum(1, keepdim=True)
        last = lengths if final else (lengths - 1).clamp(min=0)
        rows, slots = (torch.arange(mask.shape[1] + 1, device=mask.device) <= last).nonzero(as_tuple=True)
        wanted = places(joined.input_ids, rows, joined.columns[rows, slots])
        flat = self.head(hidden_states(self.backbone, joined.input_ids, wanted).float())[:, 0]
        read = flat.new_zeros(mask.shape[0], mask.shape[1] + 1).index_put((rows, slots), flat)
        after = read.gather(1, lengths)[:, 0]
        return read[:, :-1].masked_fill(~mask, 0.0), after

    def batcher(self, max_tokens: int) -> Batcher:
        """Which rows are computed together."""
        return batcher(max_tokens, packed=cpu.supports(self.backbone), small=has_adapters(self.backbone))

    def values(self, *rows: Any, final: bool = True) -> tuple[Tensor, Tensor]:
        """`forward` through the module's call, so that its hooks (sharding among them) run."""
        return cast(tuple[Tensor, Tensor], self(*rows, final=final))
