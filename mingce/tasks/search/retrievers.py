"""Where a search finds its documents: a BM25 index in this process, or a service that answers as Search-R1's does.

    POST /retrieve  {"queries": ["…"], "topk": 3, "return_scores": true}
    →               {"result": [[{"document": {"id": "…", "contents": "\\"Title\\"\\ntext"}, "score": 4.2}, …]]}

A corpus is a JSONL file with `contents` in every line. Words are runs of letters and digits; of Chinese, which has no
blanks, single characters.
"""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from mingce.base.errors import DataError, EnvironmentFault, SettingError
from mingce.base.user_files import last_line

LOOPBACK = ("localhost", "127.0.0.1", "::1")
TOPK = 3
MOST_BYTES, MOST_DOCUMENTS = 4_000_000, 1_000_000
SECONDS = 20.0
_WORD = re.compile(r"[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+")


@dataclass(frozen=True)
class Found:
    """A document that a query found."""

    contents: str
    score: float
    id: str = ""

    def as_json(self, *, scores: bool) -> dict[str, Any]:
        """As Search-R1's server has it."""
        document = {"id": self.id, "contents": self.contents}
        return {"document": document, "score": self.score} if scores else document


class Retriever(Protocol):
    """Whoever finds documents."""

    def search(self, queries: Sequence[str], topk: int) -> list[list[Found]]:
        """For every query the best documents, best first; none that has nothing of the query."""
        ...


def words(text: str) -> list[str]:
    """What the index counts."""
    return _WORD.findall(text.lower())


class Index:
    """BM25 over the documents of a corpus."""

    def __init__(self, documents: Sequence[Mapping[str, Any]]):
        try:
            import bm25s
        except ImportError as error:
            raise DataError(
                f"searching needs bm25s ({error}); install it with pip install 'mingce[search]'."
            ) from error
        self.documents = documents
        self.bm25 = bm25s.BM25()
        self.bm25.index([words(str(one["contents"])) for one in documents], show_progress=False)

    def search(self, queries: Sequence[str], topk: int) -> list[list[Found]]:
        return [self._found(words(query), topk) for query in queries]

    def _found(self, query: list[str], topk: int) -> list[Found]:
        known = [word for word in query if word in self.bm25.vocab_dict]
        if not known:
            return []
        scores = self.bm25.get_scores(known)
        best = (-scores).argsort(kind="stable")[:topk]  # of equals the first in the corpus: the same in every run
        return [
            Found(str(self.documents[i]["contents"]), float(scores[i]), str(self.documents[i].get("id", i)))
            for i in best.tolist()
            if scores[i] > 0
        ]


class Service:
    """A server on this machine that answers as Search-R1's does."""

    def __init__(self, url: str):
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port, parts = None, None, urlsplit("")
        if parts.scheme != "http" or host not in LOOPBACK:
            raise SettingError(f"{url} is no retriever; only servers on this machine are asked (http://127.0.0.1:…).")
        self.url, self.host, self.port, self.path = url, str(host), port, parts.path or "/retrieve"

    def search(self, queries: Sequence[str], topk: int) -> list[list[Found]]:
        reply = self._exchange({"queries": list(queries), "topk": topk, "return_scores": True})
        try:
            found = [[_as_found(one) for one in row] for row in reply["result"]]
        except (TypeError, KeyError, ValueError) as error:
            raise EnvironmentFault(f"{self.url} answers otherwise than Search-R1's retriever ({error!r}).") from error
        if len(found) != len(queries):
            raise EnvironmentFault(f"{self.url} gave {len(found)} results for {len(queries)} queries.")
        return found

    def _exchange(self, request: Mapping[str, Any]) -> Any:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=SECONDS)
        try:
            body = json.dumps(request, ensure_ascii=False).encode("utf-8", "replace")
            connection.request("POST", self.path, body, {"content-type": "application/json"})
            answer = connection.getresponse()
            content = answer.read(MOST_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            raise EnvironmentFault(f"the retriever {self.url} does not answer ({last_line(error)}).") from error
        finally:
            connection.close()
        if answer.status != 200 or len(content) > MOST_BYTES:
            raise EnvironmentFault(f"the retriever {self.url} answered {answer.status} with {len(content)} bytes.")
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise EnvironmentFault(f"the retriever {self.url} answered what is no JSON.") from error


def _as_found(one: Mapping[str, Any]) -> Found:
    document = one["document"]
    return Found(str(document["contents"]), float(one.get("score", 0.0)), str(document.get("id", "")))


def read_corpus(path: Path) -> list[dict[str, Any]]:
    """The documents of a JSONL file."""
    documents: list[dict[str, Any]] = []
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                one = json.loads(line)
                if not isinstance(one, dict) or not isinstance(one.get("contents"), str):
                    raise DataError(f'{path} has no contents in line {number}; each line is {{"contents": "…"}}.')
                documents.append(one)
                if len(documents) > MOST_DOCUMENTS:
                    raise DataError(
                        f"{path} has over {MOST_DOCUMENTS:,} documents; serve them by a retriever's own server."
                    )
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read as a corpus ({last_line(error)}); give a JSONL file.") from error
    if not documents:
        raise DataError(f'{path} has no documents; each line is {{"contents": "…"}}.')
    return documents


@lru_cache(maxsize=4)
def _index(path: Path, changed: float) -> Index:
    return Index(read_corpus(path))


def find_retriever(where: str | Path) -> Retriever:
    """The service at an address, or an index of the corpus in a file, made once."""
    if isinstance(where, str) and where.startswith(("http:", "https:")):
        return Service(where)
    path = Path(where)
    return _index(path, path.stat().st_mtime if path.exists() else 0.0)


def passages(found: Sequence[Found]) -> str:
    """What a search tells the policy, as Search-R1 words it; an empty text where nothing was found."""
    lines = []
    for number, one in enumerate(found, start=1):
        title, _, text = one.contents.partition("\n")
        lines.append(f"Doc {number}(Title: {title}) {text}")
    return "\n".join(lines)
