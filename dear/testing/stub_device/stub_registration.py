"""Makes PyTorch know the stub device and its process group by the name "stub"."""

import types

import dear_stub_device as stub
import torch
import torch.distributed as dist


def register() -> None:
    module = types.SimpleNamespace(
        is_available=lambda: True,
        device_count=lambda: stub.DEVICES,
        current_device=lambda: 0,
        is_initialized=lambda: True,
        get_amp_supported_dtype=lambda: [torch.bfloat16, torch.float16],
    )
    torch._register_device_module("stub", module)

    def make(store: dist.Store, rank: int, size: int, timeout: object) -> object:
        carrier = dist.ProcessGroupGloo(dist.PrefixStore("stub", store), rank, size, timeout)
        return stub.StubBackend(carrier)

    dist.Backend.register_backend("stub", make, devices=["stub"])
