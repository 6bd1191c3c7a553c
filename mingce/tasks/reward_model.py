"""A reward model: a Hugging Face sequence classifier with one output, read as the score of prompt and response."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from mingce.base.errors import ModelError, RewardError, first_line
from mingce.models.loading import usable
from mingce.tasks.base import Example, Score


class RewardModel:
    """Scores texts with the classifier of a directory, under its own tokenizer and chat template.

    A text prompt is joined with its response as it is; a chat goes through the template with the response as the
    assistant's message. A score depends neither on the other rows of its batch nor on their lengths.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        name: str = "reward_model",
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
        batch_tokens: int = 8192,
    ) -> None:
        self.name, self.batch_tokens, self.device = name, batch_tokens, torch.device(device)
        self._path = path
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
            model, info = AutoModelForSequenceClassification.from_pretrained(
                path, dtype=usable(dtype, self.device), trust_remote_code=False, output_loading_info=True
            )
        except (OSError, ValueError, KeyError) as error:
            reason = first_line(error)
            raise ModelError(f"{path} cannot be read as a reward model ({reason}); check the directory.") from error
        if missing := sorted(info["missing_keys"]):
            raise ModelError(f"{path} lacks the weights {missing[0]} of a reward model; train its head first.")
        if model.config.num_labels != 1:
            raise ModelError(f"{path} has {model.config.num_labels} outputs where a reward model has 1; use another.")
        self.model = model.to(self.device).eval()
        config = model.config.get_text_config()
        if config.pad_token_id is None and self.tokenizer.pad_token_id != self.tokenizer.eos_token_id:
            config.pad_token_id = self.tokenizer.pad_token_id
        self.pad_token_id: int | None = config.pad_token_id
        self.longest: int | None = getattr(config, "max_position_embeddings", None)

    def start(self) -> None:
        """Nothing to start: the model is loaded."""

    def close(self) -> None:
        """Nothing to end: the model lives in this process."""

    def score(
        self, examples: Sequence[Example], responses: Sequence[str], seeds: Sequence[int] | None = None
    ) -> list[Score]:
        """One score a response, in order; a model draws nothing, so the seeds are of no use to it."""
        rows = [self._ids(example, response) for example, response in zip(examples, responses, strict=True)]
        scores = [0.0] * len(rows)
        for indices in self._batches(rows):
            for index, value in zip(indices, self._forward([rows[index] for index in indices]), strict=True):
                if not math.isfinite(value):
                    raise RewardError(f"the reward model scored {examples[index].uid} as {value}; check its weights.")
                scores[index] = value
        return [Score(value) for value in scores]

    def _ids(self, example: Example, response: str) -> list[int]:
        if isinstance(example.prompt, str):
            ids = self.tokenizer(example.prompt + response)["input_ids"]
        elif self.tokenizer.chat_template is None:
            raise ModelError(
                f"the prompt of {example.uid} is a chat and {self._path} has no chat template; use text prompts."
            )
        else:
            chat = [*example.prompt, {"role": "assistant", "content": response}]
            text = self.tokenizer.apply_chat_template(chat, tokenize=False)
            ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        if not ids:
            raise RewardError(f"prompt and response of {example.uid} are empty, which a reward model cannot score.")
        if self.longest is not None and len(ids) > self.longest:
            raise RewardError(
                f"{example.uid} has {len(ids)} tokens with its response and the reward model takes {self.longest}; "
                "shorten prompts or responses."
            )
        return list(ids)

    def _batches(self, rows: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """Indices of rows that go together: of like length, within the token budget when padded."""
        batch: list[int] = []
        for index in sorted(range(len(rows)), key=lambda index: len(rows[index])):
            # Without a padding token the classifier cannot find the last token of a padded row: one row at a time.
            if batch and (self.pad_token_id is None or (len(batch) + 1) * len(rows[index]) > self.batch_tokens):
                yield batch
                batch = []
            batch.append(index)
        if batch:
            yield batch

    @torch.inference_mode()
    def _forward(self, rows: Sequence[Sequence[int]]) -> list[float]:
        """The output for each row, padded on the right so that positions count from the row's first token."""
        width = max(len(row) for row in rows)
        padding = 0 if self.pad_token_id is None else self.pad_token_id
        ids = torch.tensor([[*row, *[padding] * (width - len(row))] for row in rows], device=self.device)
        lengths = torch.tensor([len(row) for row in rows], device=self.device)
        mask = torch.arange(width, device=self.device)[None] < lengths[:, None]
        logits = self.model(input_ids=ids, attention_mask=mask.long()).logits
        return [float(value) for value in logits[:, 0].float().tolist()]
