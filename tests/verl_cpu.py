"""A platform without an accelerator, as verl 0.9 lets one be added: VERL_USE_EXTERNAL_MODULES=verl_cpu.

With it, VERL_PLATFORM=cpu and VERL_ENGINE_DEVICE=cuda, under which its FSDP engine is registered, verl's own workers
train on a CPU.
"""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from verl.plugin.platform.platform_cuda import PlatformCUDA
from verl.plugin.platform.platform_manager import PlatformRegistry


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformCUDA):  # type: ignore[misc]
    """What verl asks of a device, where there is none."""

    device_name = "cpu"
    vendor_name = "nobody"
    device_module = SimpleNamespace(
        **{name: lambda *_, **__: 0 for name in ("max_memory_allocated", "max_memory_reserved", "memory_allocated",
           "memory_reserved", "empty_cache", "synchronize", "set_device", "current_device", "reset_peak_memory_stats")},
        is_available=lambda: True, device_count=lambda: 1, mem_get_info=lambda *_: (1 << 30, 1 << 30),
        get_device_name=lambda *_: "cpu", get_rng_state=torch.get_rng_state, set_rng_state=torch.set_rng_state,
        is_initialized=lambda: False,
    )  # fmt: skip

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return True

    def current_device(self) -> Any:
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None: ...

    def manual_seed_all(self, seed: int) -> None: ...

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def communication_backend_name(self) -> str:
        return "gloo"

    def ray_resource_name(self) -> str:
        return "CPU"

    def ray_resource_options(self, num_gpus: float) -> dict[str, Any]:
        return {"num_cpus": 1}

    @contextmanager
    def nvtx_range(self, msg: str) -> Any:
        yield
