"""The application: routes to the Api, the page's own files, and events while a run trains."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from mingce.base.errors import MingceError
from mingce.record.store import LedgerFileError
from mingce.view import api as answers
from mingce.view.api import Api
from mingce.view.digits import encode
from mingce.view.gate import LOOPBACK, Gate
from mingce.view.posted import QUESTION_BYTES, TEXT_BYTES
from mingce.view.posts import Posts
from mingce.view.step_index import MAX_PAGE, PAGE, Query
from mingce.view.together import Pieces, Together

STATIC = Path(__file__).parent / "static"
POLL = 0.5
HEARTBEAT = 15.0
MAX_SEARCH = 200


class _Whole(IntegerConvertor):
    """A whole number in an address, of no more digits than a step or a row has."""

    regex = "[0-9]{1,9}"


register_url_convertor("whole", _Whole())


class Assets(StaticFiles):
    """Built files have a hash in their names, so a browser may keep them."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["cache-control"] = "public, max-age=31536000, immutable"
        return response


def make_app(
    api: Api,
    *,
    hosts: set[str] | None = None,
    any_address: bool = False,
    token: str | None = None,
    static: Path = STATIC,
    poll: float = POLL,
    lang: str | None = None,
) -> Starlette:
    """The whole application; `hosts` are the names it answers to, `lang` the page's language until a reader chooses."""

    async def index(request: Request) -> Response:
        page = static / "index.html"
        if not page.is_file():
            raise HTTPException(404, "the page is not built; run `make web` and start again")
        text = in_language(page.read_text(encoding="utf-8"), lang)
        return Response(text, media_type="text/html", headers={"cache-control": "no-cache"})

    async def events(request: Request) -> Response:
        source_id = request.path_params["id"]
        try:
            await run_in_threadpool(api.progress, source_id)
        except MingceError as error:  # an unknown run is a 404, not a silent stream
            return JSONResponse({"error": str(error)}, 404)
        return StreamingResponse(progress(api, source_id, poll), media_type="text/event-stream")

    run = "/api/runs/{id}"
    step = f"{run}/steps/{{n:whole}}"
    answer, of_step, slow = (
        _answers(Together(at_once)) for at_once in (4, 3, 1)
    )  # who waits for one holds up no other
    routes = [
        Route("/", index),
        Route("/api/runs", answer(lambda r: api.runs(_whole(r, "offset") or 0))),
        Route(run, answer(lambda r: api.run(r.path_params["id"], _whole(r, "from"), _whole(r, "to")))),
        Route(step, of_step(lambda r: _step(api, r))),
        Route(f"{step}/rollouts", of_step(lambda r: api.table(r.path_params["id"], r.path_params["n"], _query(r)))),
        Route(
            f"{step}/rollouts/{{row:whole}}",
            of_step(lambda r: api.rollout(*_place(r))),
        ),
        Route(f"{step}/rollouts/{{row:whole}}/samples", of_step(lambda r: api.samples(*_place(r)))),
        Route(f"{step}/worst", slow(lambda r: api.worst_of_step(r.path_params["id"], r.path_params["n"], *_by(r)))),
        Route(f"{run}/worst", slow(lambda r: api.worst_of_run(r.path_params["id"], *_by(r)))),
        Route(f"{run}/search", slow(lambda r: _search(api, r))),
        Route(f"{run}/through", slow(lambda r: _through(api, r))),
        Route(f"{run}/audit", slow(lambda r: api.audit(r.path_params["id"], _whole(r, "step")))),
        Route(f"{run}/events", events),
        Route("/api/texts", answer(lambda request: answers.texts())),
        Route("/api/playground", answer(lambda request: answers.playground())),
        Route("/api/ask", Posts(api.ask, QUESTION_BYTES).endpoint, methods=["POST"]),
        Route("/api/check", Posts(api.check, TEXT_BYTES).endpoint, methods=["POST"]),
    ]
    if static.is_dir():
        routes.append(Mount("/static", Assets(directory=static)))  # type: ignore[arg-type]
    gate = Middleware(
        Gate, hosts=set(LOOPBACK) if hosts is None else hosts, any_address=any_address, token=token
    )  # fmt: skip
    return Starlette(
        routes=routes,
        middleware=[gate],
        exception_handlers={HTTPException: _http_error, Exception: _mistake},
    )


def in_language(page: str, lang: str | None) -> str:
    """The page with a note of its first language; without one the browser's own language decides."""
    return page if lang is None else page.replace("<head>", f'<head><meta name="mingce-lang" content="{lang}">', 1)


def _answers(together: Together[tuple[bytes, int]]) -> Callable[[Callable[[Request], Any]], Callable[[Request], Any]]:
    """Makes endpoints that ask in a thread, so that a slow answer holds nobody up, and tell errors as JSON."""

    def make(ask: Callable[[Request], Any], request: Request) -> tuple[bytes, int]:
        try:
            return encode(ask(request)), 200
        except LedgerFileError as error:
            return encode({"error": str(error)}), 422
        except MingceError as error:
            return encode({"error": str(error)}), 404

    def answer(ask: Callable[[Request], Any]) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            question = f"{request.url.path}?{request.url.query}"
            body, status = await together.answer(question, lambda: make(ask, request))
            return Pieces(body, status, media_type="application/json")

        return endpoint

    return answer


async def progress(api: Api, source_id: str, poll: float) -> AsyncIterator[bytes]:
    """Server-sent events: where the run is at once, then every change; a comment now and then keeps the line open."""
    last: dict[str, Any] = {}
    silent = 0.0
    while True:
        try:
            now = await run_in_threadpool(api.progress, source_id)
        except MingceError:  # the run has been deleted
            return
        changed = {key: value for key, value in now.items() if key not in last or last[key] != value}
        if changed:
            yield b"data: " + encode(changed) + b"\n\n"
            last, silent = now, 0.0
        elif silent >= HEARTBEAT:
            yield b": still here\n\n"
            silent = 0.0
        await asyncio.sleep(poll)
        silent += poll


def _step(api: Api, request: Request) -> Any:
    """A step, at once with its first rollouts or, if asked, looked through as a whole."""
    whole = request.query_params.get("whole") == "1"
    return api.step(request.path_params["id"], request.path_params["n"], _query(request), whole)


def _place(request: Request) -> tuple[str, int, int]:
    """The run, step and row of an address."""
    return request.path_params["id"], request.path_params["n"], request.path_params["row"]


def _by(request: Request) -> tuple[str, bool]:
    """The measure, and whether only one token of each rollout is wanted."""
    return request.query_params.get("by", "")[:MAX_SEARCH], request.query_params.get("each") == "1"


def _search(api: Api, request: Request) -> Any:
    text = request.query_params.get("text", "")[:MAX_SEARCH].strip()
    if not text:
        raise HTTPException(400, "text must be what to look for")
    return api.search(request.path_params["id"], text, _whole(request, "before"))


def _through(api: Api, request: Request) -> Any:
    """One prompt through the steps, or those that recur when none is named."""
    run, prompt = request.path_params["id"], request.query_params.get("prompt")
    step, row = _whole(request, "step"), _whole(request, "row")
    if step is None and prompt is None:
        return api.prompts(run)
    return api.through(run, step or 0, row or 0, prompt)


def _query(request: Request) -> Query:
    """Which rollouts of a step are asked for."""
    asked = request.query_params
    return Query(
        offset=_whole(request, "offset") or 0,
        limit=min(_whole(request, "limit") or PAGE, MAX_PAGE),
        sort=asked.get("sort", "row")[:MAX_SEARCH],
        down=asked.get("down") == "1",
        search=asked.get("search", "")[:MAX_SEARCH],
        finish=asked.get("finish", "")[:MAX_SEARCH],
        data_source=asked.get("data_source", "")[:MAX_SEARCH],
        extreme=asked.get("extreme", "all")[:MAX_SEARCH],
        like=_whole(request, "like"),
    )


def _whole(request: Request, name: str) -> int | None:
    """A query parameter that is a whole number."""
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise HTTPException(400, f"{name} must be a whole number")
    return int(text)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code)


async def _mistake(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": f"mingce made a mistake ({type(error).__name__}); see the terminal"}, 500)
