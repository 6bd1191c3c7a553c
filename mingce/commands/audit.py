"""`mingce audit`: any trainer's dumps recomputed by independent code; which bug they have, where, what to change."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.markup import escape
from rich.status import Status

from mingce.audit.audit import audit, token_ids
from mingce.audit.ci_formats import as_junit, as_sarif
from mingce.audit.finding import AREAS, Check, Finding, Report
from mingce.audit.report import Audited, audited_json, audited_markdown, show
from mingce.audit.terminal import print_verdict, show_missing, worst
from mingce.audit.wording import area_words
from mingce.base.errors import DataError, MingceError, RunError, SettingError, UnknownNameError
from mingce.base.places import step_name, steps_in
from mingce.base.reading import parse_yaml
from mingce.base.terminal import make_console, print_note, write
from mingce.base.texts import sentence, sentence_pair
from mingce.base.user_files import last_line
from mingce.importers.aliases import SETTINGS
from mingce.record.dump import Dump

REPLAY = Check("K14 replay", sentence_pair("audit.replay"), (), lambda evidence: ())
PATIENCE = 2.0
"""Seconds after which a terminal shows what is going on."""


@dataclass(frozen=True)
class Output:
    """What is made of an audit besides the exit code."""

    as_json: bool = False
    as_markdown: bool = False
    out: Path | None = None
    junit: Path | None = None
    sarif: Path | None = None
    explain_missing: bool = False

    @property
    def prints_data(self) -> bool:
        """Whether the report itself goes to the standard output, for programs."""
        return (self.as_json or self.as_markdown) and self.out is None


def run(
    console: Console,
    places: Sequence[Path],
    *,
    mapping: Path | None = None,
    settings: dict[str, Any] | None = None,
    steps: Sequence[int] = (),
    model: Path | None = None,
    ref_model: Path | None = None,
    require: Sequence[str] = (),
    output: Output = Output(),  # noqa: B008  (frozen)
    follow: bool = False,
    until_idle: float | None = None,
    lang: str = "zh",
) -> int:
    """Audits every dump at the places, prints or writes what comes of it, and returns the exit code.

    0: no bug. 1: a bug. 2: no bug, but a required area could not be judged. `follow` goes on with what is written
    there until Ctrl-C, or until nothing new has come for so many seconds.
    """
    if ref_model is not None and model is None:
        raise SettingError("--ref-model needs --model too: the reference is compared with the policy.")
    if follow:
        from mingce.commands.audit_follow import follow as audit_follow

        if model is not None:
            raise SettingError(sentence("audit.follow_model", lang))
        beside = make_console(stderr=True) if output.prints_data else console
        audited = audit_follow(
            beside, places, mapping=mapping, settings=settings, steps=steps, idle=until_idle, lang=lang
        )
        return _told(console, audited, output, require, lang)
    if until_idle is not None:
        raise SettingError(sentence("audit.follow_alone", lang))
    with waiting(sentence("audit.reading", lang)) as tell:
        audited = audit_all(dumps_at(places, mapping, settings or {}, steps), lang, tell, model, ref_model)
    return _told(console, audited, output, require, lang)


def _told(console: Console, audited: Audited, output: Output, require: Sequence[str], lang: str) -> int:
    """The exit code of what was audited, once it is printed or written."""
    if not any(report.ran for report in audited.reports):
        raise DataError(f"no check can run on {audited.reports[0].path}: it has none of the columns that they need.")
    _tell(console, audited, output, lang)
    unjudged = audited.unjudged(require)
    if unjudged:
        print_note(sentence("audit.require", lang, areas=", ".join(area_words(area, lang) for area in unjudged)))
    return audited.exit_code or (2 if unjudged else 0)


def _tell(console: Console, audited: Audited, output: Output, lang: str) -> None:
    """Prints the report, and writes it where asked to."""
    for file, made in ((output.junit, as_junit), (output.sarif, as_sarif)):
        if file is not None:
            _write(file, made(audited, lang))
    if output.explain_missing:
        show_missing(console, audited.worst, lang)
        return
    out = output.out
    if output.as_json or (out is not None and out.suffix == ".json" and not output.as_markdown):
        text = json.dumps(audited_json(audited), ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    elif output.as_markdown or out is not None:
        text = audited_markdown(audited, lang)
    else:
        show(console, audited, lang)
        return
    if out is None:
        write(text)
        return
    _write(out, text)
    print_verdict(console, audited.verdict(lang), worst(audited.findings))


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingError(f"{file} cannot be written: {error.strerror}.") from error


def parse_areas(text: str) -> list[str]:
    """`credit,masks` as names of areas; `all` is every one."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if "all" in names:
        return list(AREAS)
    check_areas(names)
    return names


def check_areas(names: Iterable[str]) -> None:
    """Each is an area that a dump is judged on."""
    for name in names:
        if name not in AREAS:
            raise UnknownNameError("area to require", name, (*AREAS, "all"))


def audit_all(
    dumps: Iterable[Dump],
    lang: str,
    tell: Callable[[str], None] = lambda _: None,
    model: Path | None = None,
    ref_model: Path | None = None,
) -> Audited:
    """Audits dumps as they come and then, where they are of several steps, those beside each other."""
    from mingce.audit.steps import audit_steps

    reports: list[Report] = []

    def each() -> Iterator[Dump]:
        for dump in dumps:
            if reports and model is not None:
                raise SettingError(
                    "--model is the weights of one step, but there are several dumps; choose with --step."
                )
            reports.append(judged(dump, lang, tell, model, ref_model))
            if dump.step is not None:
                yield dump

    across: list[Finding] = list(audit_steps(each()))
    steps = {report.step for report in reports if report.step is not None}
    return Audited(reports, across if len(steps) > 1 else [])


def judged(
    dump: Dump,
    lang: str,
    tell: Callable[[str], None] = lambda _: None,
    model: Path | None = None,
    ref_model: Path | None = None,
) -> Report:
    """The report about one dump; a check that falls over is an error that names it."""
    name = dump.path if dump.step is None else sentence("audit.step", lang, step=dump.step)
    current = [""]

    def watch(check: str) -> None:
        current[0] = check
        tell(f"{name}  {check}")

    try:
        report = audit(dump, watch)
        if model is not None:
            watch(REPLAY.name)
            _replay(dump, report, model, ref_model)
        return report
    except MingceError:
        raise
    except Exception as error:  # a check that falls over is our mistake, but the answer is still "could not run"
        raise DataError(
            f"the check {current[0]} failed on {dump.path or 'this dump'} ({last_line(error)}); "
            "run it with `mingce --debug audit …` and report what it prints."
        ) from error


def _replay(dump: Dump, report: Report, model: Path, ref_model: Path | None) -> None:
    """Scores the tokens again with the models, and says the places' tokens in words."""
    from mingce.audit.replay import replay
    from mingce.models.loading import load_tokenizer
    from mingce.progress.tokens import visible

    report.add(REPLAY, replay(dump, model, reference=ref_model))
    decode = load_tokenizer(model).decode
    report.labels = {
        place: visible(str(decode([int(label)]))) for place, label in token_ids(dump, report.findings).items()
    }


def dumps_at(
    places: Sequence[Path], mapping: Path | None, settings: dict[str, Any], steps: Sequence[int] = ()
) -> Iterator[Dump]:
    """The dumps at the places, of the given steps or of all, read one after another."""
    from mingce.importers.opening import open_dump

    found = False
    for part in (part for place in places for part in _parts(place, steps)):
        try:
            dumps = open_dump(part, mapping, settings, steps or None)
        except MingceError:
            raise
        except Exception as error:  # what confuses a reader cannot be read
            raise DataError(f"{part} cannot be read ({last_line(error)}).") from error
        while dumps:  # each is let go of once it is judged
            dump = dumps.pop(0)
            if not steps or dump.step in steps:
                found = True
                yield dump
    if not found:
        raise DataError(f"there is no dump of step {', '.join(map(str, steps))} in {', '.join(map(str, places))}.")


def _parts(place: Path, steps: Sequence[int]) -> list[Path]:
    """The files of a run of ours, so that it is read a step at a time; any other place as it is."""
    ledgers = place / "ledger"
    if not (place / "config.yaml").is_file() or not ledgers.is_dir():
        return [place]
    written = steps_in(ledgers, ".parquet")
    wanted = [step for step in written if not steps or step in steps]
    if not wanted:
        there = f"there are: {', '.join(map(str, written))}" if written else "keep.ledger_every=1 writes them"
        raise RunError(f"{place} has no ledger{' of that step' if steps else ''}; {there}.")
    return [ledgers / f"{step_name(step)}.parquet" for step in wanted]


@contextmanager
def waiting(sentence: str) -> Iterator[Callable[[str], None]]:
    """A line on stderr for someone at a terminal who has waited for a while; the yielded function changes it."""
    console = make_console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    status = Status(f"{escape(sentence)} …", console=console)
    timer = threading.Timer(PATIENCE, status.start)
    timer.start()
    try:
        yield lambda sentence: status.update(f"{escape(sentence)} …")
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def parse_settings(pairs: Sequence[str], **named: float | None) -> dict[str, Any]:
    """`--set key=value` and the settings that have an option of their own, as the checks read them."""
    settings: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise SettingError(f"--set takes key=value, such as --set eos_id=2, not '{pair}'.")
        settings[key] = _value(key, text)
    return check_settings(settings)


def check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings under our names; one that no check reads, or a γ or λ beyond 1, is a mistake."""
    for key in settings:
        if key not in SETTINGS:
            raise UnknownNameError("setting of an audit", key, SETTINGS)
    checked = {SETTINGS[key]: value for key, value in settings.items()}
    for name in ("gamma", "lam"):
        if name in checked and not (isinstance(checked[name], int | float) and 0 <= checked[name] <= 1):
            raise SettingError(f"--{name} must lie between 0 and 1, but is {checked[name]}.")
    return checked


def _value(key: str, text: str) -> Any:
    """A number, a list or a word; YAML, but 1e-3 is a number."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    try:
        return parse_yaml(text)
    except yaml.YAMLError:
        raise SettingError(
            f"--set {key}: '{text}' is neither a number, nor a list such as [1, 2], nor a word."
        ) from None
