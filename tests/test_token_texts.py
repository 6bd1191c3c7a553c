"""Token ids become texts in one place: what each token adds to the decoded text, in linear time."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from mingce.record.tokens import BROKEN, added_texts

TEXTS = ("a数 b", "等于，🙂！x", "  two  spaces ", "é", "", "line\nbreak\ttab")


def byte_level() -> Tokenizer:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<eos>"])
    return tokenizer


def words() -> Tokenizer:
    """Spaces belong to words, but not to the first word of a text."""
    pieces = ("▁a", "▁two", "▁words", "s", "▁")
    tokenizer = Tokenizer(models.WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token="▁"))
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<eos>"])
    return tokenizer


def by_prefixes(decode: Callable[[list[int]], str], ids: list[int]) -> list[str]:
    """The same from the definition: every prefix decoded whole."""
    texts, before = [], ""
    for end in range(1, len(ids) + 1):
        text = decode(ids[:end])
        texts.append("" if text.endswith(BROKEN) else text[len(before) :])
        before = before if text.endswith(BROKEN) else text
    return texts


@pytest.mark.parametrize("tokenizer", [byte_level(), words()], ids=["bytes", "words"])
def test_each_token_has_what_it_adds(tokenizer: Tokenizer) -> None:
    chance, size = random.Random(3), tokenizer.get_vocab_size()
    rows = [tokenizer.encode(text).ids for text in TEXTS] if size > 200 else []
    rows += [[chance.randrange(size if size < 200 else 128) for _ in range(chance.randint(1, 30))] for _ in range(50)]
    for ids in rows:
        assert added_texts(tokenizer.decode, ids) == by_prefixes(tokenizer.decode, ids), ids


def test_a_long_text_is_decoded_in_small_pieces() -> None:
    tokenizer, decoded = byte_level(), 0

    def decode(ids: list[int]) -> str:
        nonlocal decoded
        decoded += len(ids)
        return str(tokenizer.decode(ids))

    ids = tokenizer.encode("数🙂ab" * 500).ids
    assert "".join(added_texts(decode, ids)) == "数🙂ab" * 500
    assert decoded < 12 * len(ids)
