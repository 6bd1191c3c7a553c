"""One self-contained file of a run: the page, its script and style, and the answers it would have asked for."""

from __future__ import annotations

import base64
import mimetypes
import re
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from mingce.base.atomic import atomic_write
from mingce.base.errors import RunError, SettingError
from mingce.view.answers import Prompts
from mingce.view.api import Api, playground, texts
from mingce.view.app import STATIC, in_language
from mingce.view.digits import encode

STEPS = 3
PROMPTS = 10
_SCRIPT = re.compile(r'<script\b[^>]*\bsrc="/static/([^"]+)"[^>]*>\s*</script>')
_STYLE = re.compile(r'<link\b[^>]*\brel="stylesheet"[^>]*\bhref="/static/([^"]+)"[^>]*>')
_OTHER = re.compile(r'(href|src)="/static/([^"]+)"')
_URL = re.compile(r"url\(\s*[\"']?(?!data:)(?:/static/)?([^\"')]+)[\"']?\s*\)")
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def write_export(
    api: Api,
    out: Path,
    steps: Sequence[int] | None,
    rollouts: int,
    audit: bool = False,
    static: Path = STATIC,
    lang: str | None = None,
) -> int:
    """Writes the file and returns its size in bytes."""
    if rollouts < 1:
        raise SettingError(f"--rollouts must be at least 1, but is {rollouts}.")
    page = export_page(chosen_answers(api, steps, rollouts, audit), static, lang).encode("utf-8", "replace")
    atomic_write(out, page)
    return len(page)


def chosen_answers(api: Api, steps: Sequence[int] | None, rollouts: int, audit: bool = False) -> dict[str, Any]:
    """Path → answer, for the chosen steps and, of each, so many rollouts from the worst to the best.

    What was not chosen is left out of the lists too, so that the page offers nothing it does not have.
    """
    sources = api.library.sources()
    if len(sources) != 1:
        names = ", ".join(source.name for source in sources[:5]) or "none"
        raise SettingError(f"--export takes one run; name one of those there: {names}.")
    (source,) = sources
    run = api.run(source.id)
    there = run.ledger_steps
    if not there and not run.steps:
        raise RunError(f"nothing of {source.name} can be exported: {run.message or 'it has no step yet'}")
    if steps is None:
        steps = sorted({there[0], there[len(there) // 2], there[-1]})[:STEPS] if there else []
    for step in steps:
        if step not in there:
            hint = f"it has {there[0]} to {there[-1]}" if there else "it has none"
            raise RunError(f"{source.name} has no ledger of step {step}; {hint}")
    base = f"/api/runs/{source.id}"
    data: dict[str, Any] = {
        "/api/export": {"exported": True, "run": source.id, "steps": list(steps), "rollouts": rollouts},
        "/api/texts": texts(),
        "/api/playground": playground(),
        "/api/runs": [replace(line, path=source.name) for line in api.runs()],
        base: replace(run, ledger_steps=list(steps), path=source.name),
    }
    for step in steps:
        data[f"{base}/steps/{step}"], rows = api.spread(source.id, step, rollouts)
        for row in rows:
            data[f"{base}/steps/{step}/rollouts/{row}"] = api.rollout(source.id, step, row)
        if audit:
            data[f"{base}/audit?step={step}"] = api.audit(source.id, step)
    for each in (source, source.validation()):
        data |= {} if each is None else _through(api, each.id)
    return data


def _through(api: Api, source_id: str) -> dict[str, Any]:
    """The prompts that came again, and the answers to them."""
    base = f"/api/runs/{source_id}"
    prompts = [one for one in api.prompts(source_id).prompts if one.steps > 1][:PROMPTS]
    answers = {f"{base}/through?step={p.step}&row={p.row}": api.through(source_id, p.step, p.row) for p in prompts}
    return {f"{base}/through": Prompts(prompts), **answers}


def export_page(data: dict[str, Any], static: Path = STATIC, lang: str | None = None) -> str:
    """index.html with everything in it. A policy by hash lets its own script run and nothing be fetched."""
    index = static / "index.html"
    if not index.is_file():
        raise RunError("the page is not built, so there is nothing to export; run `make web` first")
    page = in_language(index.read_text(encoding="utf-8"), lang)
    scripts: list[str] = []
    styles: list[str] = []

    def script(found: re.Match[str]) -> str:
        scripts.append(_asset(static, found[1]).decode().replace("</script", "<\\/script").replace("<!--", "<\\!--"))
        return f'<script type="module">{scripts[-1]}</script>'

    def style(found: re.Match[str]) -> str:
        sheet = _asset(static, found[1]).decode()
        folder = Path(found[1]).parent
        inlined = _URL.sub(lambda url: f"url({_data_uri(static, _beside(static, folder, url[1]))})", sheet)
        styles.append(inlined.replace("</style", "<\\/style"))
        return f"<style>{styles[-1]}</style>"

    page = _SCRIPT.sub(script, page)
    page = _STYLE.sub(style, page)
    page = _OTHER.sub(lambda found: f'{found[1]}="{_data_uri(static, found[2])}"', page)
    policy = (
        f"default-src 'none'; script-src {_hashes(scripts)}; style-src {_hashes(styles)}; "
        "img-src data:; font-src data:; base-uri 'none'; form-action 'none'"
    )
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    block = f'<script type="application/json" id="data">{safe_json(data)}</script>'
    page = page.replace("<head>", f"<head>{head}", 1)
    assert head in page, "the page has no plain <head>"
    before, end, after = page.rpartition("</body>")
    return f"{before}{block}{end}{after}"


def safe_json(value: Any) -> str:
    """JSON that nothing in an HTML page can mistake for markup, whatever a model said."""
    text = encode(value).decode("utf-8", "replace")
    return re.sub("[<>&\u2028\u2029]", lambda found: _UNSAFE[found[0]], text)


def _asset(static: Path, name: str) -> bytes:
    path = (static / name).resolve()
    if not path.is_relative_to(static.resolve()) or not path.is_file():
        raise RunError(f"the page names {name}, which is not among its files; build it again with `make web`")
    return path.read_bytes()


def _beside(static: Path, folder: Path, name: str) -> str:
    """A file that a style sheet names: beside the sheet, or from the root of the assets."""
    name = name.partition("?")[0].partition("#")[0]
    return str(folder / name) if (static / folder / name).is_file() else name


def _data_uri(static: Path, name: str) -> str:
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return f"data:{kind};base64,{base64.b64encode(_asset(static, name)).decode()}"


def _hashes(parts: Sequence[str]) -> str:
    digests = (base64.b64encode(sha256(part.encode()).digest()).decode() for part in parts)
    return " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
