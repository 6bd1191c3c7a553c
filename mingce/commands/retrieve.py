"""`mingce retrieve`: a search service on this machine with the requests and answers of Search-R1's retriever.

    POST /retrieve  {"queries": ["…"], "topk": 3, "return_scores": true}
    POST /retrieve  {"query": "…", …}    one at a time, as SkyRL's environments ask

Bounded: the loopback interface alone, so many bytes a request, queries, characters and documents. A browser's page of
elsewhere cannot ask it: the host must be this machine and the body JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from mingce.base.texts import sentence
from mingce.tasks.search.retrievers import LOOPBACK, TOPK, Retriever, find_retriever
from mingce.tasks.search.task import corpus_path

MOST_BYTES, MOST_QUERIES, LONGEST_QUERY, MOST_FOUND = 1_000_000, 1024, 4000, 100


class _Refused(ValueError):
    """What is wrong with a request."""


async def _request(request: Request) -> tuple[list[str], int, bool]:
    """The queries, how many documents for each, and whether with scores."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise _Refused("the body must be application/json")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise _Refused(f"more than {MOST_BYTES} bytes")
    try:
        asked: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _Refused("the body is no JSON") from error
    queries = asked.get("queries", [asked.get("query")]) if isinstance(asked, dict) else None
    if not isinstance(queries, list) or not all(isinstance(one, str) for one in queries):
        raise _Refused('needs {"queries": ["…"], "topk": 3, "return_scores": true}')
    if len(queries) > MOST_QUERIES or any(len(one) > LONGEST_QUERY for one in queries):
        raise _Refused(f"at most {MOST_QUERIES} queries of {LONGEST_QUERY} characters")
    topk = TOPK if asked.get("topk") is None else asked["topk"]
    if not isinstance(topk, int) or not 1 <= topk <= MOST_FOUND:
        raise _Refused(f"topk must be a whole number from 1 to {MOST_FOUND}")
    return queries, topk, bool(asked.get("return_scores", False))


def make_app(retriever: Retriever) -> Starlette:
    """The service over an index."""

    async def retrieve(request: Request) -> JSONResponse:
        try:
            queries, topk, scores = await _request(request)
        except _Refused as refused:
            return JSONResponse({"detail": str(refused)}, status_code=422)
        found = await run_in_threadpool(retriever.search, queries, topk)
        return JSONResponse({"result": [[one.as_json(scores=scores) for one in row] for row in found]})

    app = Starlette(routes=[Route("/retrieve", retrieve, methods=["POST"])])
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=[*LOOPBACK, "[::1]"])
    return app


def run(corpus: Path | None, port: int, lang: str) -> None:
    """Serves until Ctrl-C; without a corpus, the embedded one of the language."""
    import uvicorn

    from mingce.view.serve import MAX_CONNECTIONS, listen

    retriever = find_retriever(corpus_path(lang) if corpus is None else corpus)
    listener, address = listen("127.0.0.1", port)
    config = uvicorn.Config(
        make_app(retriever), log_level="error", access_log=False, server_header=False, lifespan="off", ws="none",
        timeout_graceful_shutdown=1, limit_concurrency=MAX_CONNECTIONS,
    )  # fmt: skip
    print(sentence("commands.retrieving", lang, url=f"{address.url}retrieve"), file=sys.stderr, flush=True)
    try:
        uvicorn.Server(config).run(sockets=[listener])
    except KeyboardInterrupt:
        pass
    finally:
        listener.close()
