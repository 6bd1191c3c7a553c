"""Token ids as texts, in time that grows with their number: by a tokenizer at hand, or by a model's tokenizer.json.

A byte-level tokenizer spreads one character over several tokens. `added_texts` puts it on the last of them, where the
text grows by it; `TokenTexts`, which needs no torch, no transformers and no hub, gives them one glyph number and puts
the text on the first:

    ids of "等于数！"  →  等于 · "" · 数 · ！  or  等于 · 数 · "" · ！
"""

from __future__ import annotations

import json
from codecs import getincrementaldecoder
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from mingce.base.paths import expanded
from mingce.base.places import EMBEDDED_MODELS
from mingce.base.reading import read_regular
from mingce.base.user_cache import cache_directory

MAX_FILE = 64 << 20  # the largest there are have half of it
MAX_PIECE = 1024  # bytes of one token
SMOLLM2 = "smollm2-135m-instruct"
"""The directory of the converted model in the user's cache."""
BROKEN = "\ufffd"
_ONLY_DECODES = dict.fromkeys(("normalizer", "pre_tokenizer", "post_processor", "truncation", "padding"))
LONGEST_CHARACTER = 16  # tokens; four bytes make a character, so what adds nothing for longer never will
_BYTE_FALLBACK = 6  # length of <0xE4>


def added_texts(decode: Callable[[list[int]], object], ids: Sequence[int]) -> list[str]:
    """What each token adds to the decoded text: nothing while a character's bytes are not all there.

    Each token is decoded behind the last one that added something, for at the beginning of a text some tokenizers write
    it otherwise.
    """
    texts = [""] * len(ids)
    start, done, known = 0, 0, ""
    for end in range(1, len(ids) + 1):
        text = str(decode([*ids[start:done], *ids[max(done, end - LONGEST_CHARACTER) : end]]))
        if not text.endswith(BROKEN) and len(text) > len(known):
            texts[end - 1] = text[len(known) :]
            start, done = done, end
            known = str(decode(list(ids[start:done])))
    return texts


@dataclass(frozen=True, slots=True)
class Token:
    """One token as people read it; the pieces of one character have the same glyph."""

    id: int
    text: str
    glyph: int
    special: bool = field(default=False, metadata={"brief": True})


class TokenTexts:
    """The texts of ids; without a tokenizer an id reads ⟨17⟩."""

    def __init__(self, file: Path | None):
        self.known = False
        self._pieces: dict[int, bytes] = {}
        self._special: set[int] = set()
        self.special_texts: frozenset[str] = frozenset()
        self._kind = "plain"
        if file is None:
            return
        try:
            from tokenizers import Tokenizer

            layout = json.loads(read_regular(file, MAX_FILE)) | _ONLY_DECODES
            if not _is_short(layout.get("decoder")):
                layout["decoder"] = None
            self._tokenizer = Tokenizer.from_str(json.dumps(layout))
        except Exception:  # whatever is wrong with the file, ids can still be shown
            return
        self._special = {token["id"] for token in layout.get("added_tokens") or [] if token.get("special")}
        self.special_texts = frozenset(str(self._tokenizer.id_to_token(i) or "") for i in self._special)
        self._added = {token["id"] for token in layout.get("added_tokens") or []}
        decoders = json.dumps(layout.get("decoder") or {})
        self._kind = "bytes" if "ByteLevel" in decoders else "pieces" if "ByteFallback" in decoders else "plain"
        self.known = True

    def tokens(self, ids: Sequence[int]) -> list[Token]:
        """The ids with their texts."""
        if not self.known:
            return [Token(i, f"⟨{i}⟩", t) for t, i in enumerate(ids)]
        for i in ids:
            if i not in self._pieces:
                piece = self._piece(i)
                self._pieces[i] = piece if len(piece) <= MAX_PIECE else f"⟨{i}⟩".encode()
        pieces = [self._pieces[i] for i in ids]
        found: list[Token] = []
        t = glyph = 0
        while t < len(ids):
            end = _whole(pieces, t)
            text = b"".join(pieces[t:end]).decode("utf-8", "replace")
            for k in range(t, end):
                found.append(Token(ids[k], text if k == t else "", glyph, ids[k] in self._special))
            t, glyph = end, glyph + 1
        return found

    def _piece(self, token_id: int) -> bytes:
        """The bytes that one token stands for."""
        token = self._tokenizer.id_to_token(token_id)
        if token is None:
            return f"⟨{token_id}⟩".encode()
        if token_id in self._added:
            return str(token).encode()
        if self._kind == "bytes":
            table = _byte_alphabet()
            if all(character in table for character in token):
                return bytes(table[character] for character in token)
        if self._kind == "pieces":
            if len(token) == _BYTE_FALLBACK and token.startswith("<0x") and token.endswith(">"):
                return bytes([int(token[3:5], 16)])
            return str(token).replace("▁", " ").encode()
        if self._kind == "plain":
            decoded = self._tokenizer.decode([token_id], skip_special_tokens=False)
            return str(decoded or token).encode()
        return str(token).encode()


def _is_short(decoder: Any) -> bool:
    """Whether no step of a decoder makes texts longer: a few that each do make gigabytes of one letter."""
    if not isinstance(decoder, dict):
        return decoder is None
    if decoder.get("type") == "Sequence":
        return all(map(_is_short, decoder["decoders"]))
    pattern = decoder.get("pattern")
    if decoder.get("type") != "Replace":
        return pattern is None
    return len(decoder["content"]) <= len(pattern.get("String", "")) if isinstance(pattern, dict) else False


def _whole(pieces: Sequence[bytes], start: int) -> int:
    """One past the last token of the characters that begin at `start`: as far as a character is left open."""
    if pieces[start].isascii():
        return start + 1
    decoder = getincrementaldecoder("utf-8")("strict")
    for t in range(start, len(pieces)):
        try:
            decoder.decode(pieces[t])
        except UnicodeDecodeError:
            return max(t, start + 1)  # what was open stays broken, and the next token begins anew
        if not decoder.getstate()[0]:
            return t + 1
    return len(pieces)


@cache
def _byte_alphabet() -> dict[str, int]:
    """How byte-level tokenizers write bytes: printable Latin-1 as itself, the rest from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + k): byte for k, byte in enumerate(others)}


def tokenizer_file(model: str) -> Path | None:
    """The tokenizer.json of a model by name or directory, if it is on this machine already."""
    directory = (EMBEDDED_MODELS | {"smollm2": cache_directory() / SMOLLM2}).get(model) or expanded(model)
    if directory.is_file() and directory.name.endswith(".json"):
        return directory
    if (directory / "tokenizer.json").is_file():
        return directory / "tokenizer.json"
    if directory.exists() or model.count("/") != 1:
        return None
    try:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(model, "tokenizer.json")
    except Exception:  # an odd name, or no hub library: then ids are shown
        return None
    return Path(found) if isinstance(found, str) else None
