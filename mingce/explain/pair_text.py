"""Which characters of a prompt and a response a tokenizer has no token for; for the embedded one without torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mingce.record.tokens import tokenizer_file

EMBEDDED = "tiny"
"""The model that scores a pair when no other is named."""


def unknown_characters(text: str, encode: Callable[[str], Sequence[int]], unknown: int | None) -> list[str]:
    """Each of the text's characters that becomes the unknown token, once; none where a tokenizer has no such token."""
    if unknown is None:
        return []
    return [character for character in dict.fromkeys(text) if unknown in encode(character)]


def embedded_lacks(text: str) -> list[str]:
    """The characters that the embedded model's tokenizer lacks."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_file(EMBEDDED)))

    def encode(character: str) -> list[int]:
        ids: list[int] = tokenizer.encode(character, add_special_tokens=False).ids
        return ids

    return unknown_characters(text, encode, tokenizer.token_to_id(tokenizer.model.unk_token))
