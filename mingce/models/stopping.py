"""Texts that end a response, however many tokens they come in.

A row ends with the token that completes such a text, and its ids stay as they were drawn; the text may also begin or
end in the midst of a token.
"""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

MARGIN = 8
"""Tokens beyond a text's bytes that are looked at: a character may begin before it, and some tokens have no text."""


class StopTexts:
    """Follows the tokens of rows, by their numbers, and says which of them have completed a text."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]):
        self._tokenizer, self._texts = tokenizer, tuple(texts)
        self._reach = max((len(text.encode()) for text in texts), default=0) + MARGIN
        self._tails: dict[int, list[int]] = {}
        self.completed: set[int] = set()
        """The rows that ended with one of the texts."""

    def add(self, rows: Sequence[int], tokens: Sequence[int]) -> list[bool]:
        """Whether the text of each row is complete with its new token."""
        tails = [[*self._tails.get(row, []), token][-self._reach :] for row, token in zip(rows, tokens, strict=True)]
        self._tails |= dict(zip(rows, tails, strict=True))
        said = self._tokenizer.batch_decode(tails, clean_up_tokenization_spaces=False)
        ended = [any(text in tail for text in self._texts) for tail in said]
        self.completed.update(row for row, end in zip(rows, ended, strict=True) if end)
        return ended
