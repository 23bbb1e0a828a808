#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does what programs of a framework do, held to what must come out, in a share of 8 GiB; prints one line of JSON.

    aliquot run --gpu 0.05..1 --mem 4Gi..8Gi -- python3 frameworks.py NAME
"""

import argparse
import importlib.util
import json
import os
import time

SHARE = 8 * 2**30
NEEDS = {"jax": "jax", "cupy": "cupy", "nvml": "pynvml"}  # all others need PyTorch alone


def fill(torch, block: int) -> tuple[int, list]:
    """Allocates and writes blocks until none is left; the bytes that it got."""
    got, kept = 0, []
    try:
        while got < 64 * SHARE:
            kept.append(torch.empty(block, dtype=torch.uint8, device="cuda").fill_(1))
            got += block
    except torch.OutOfMemoryError:
        pass
    torch.cuda.synchronize()
    return got, kept


def allocate() -> dict:
    """Takes all it can get, gives it back, and gets the same again."""
    import torch
    free, total = torch.cuda.mem_get_info()
    got, kept = fill(torch, 64 << 20)
    del kept
    torch.cuda.empty_cache()
    again, kept = fill(torch, 64 << 20)
    return {"shown": [free, total], "got": got, "again": again, "ok": total == SHARE and 0 < got <= SHARE and again == got}


def add_one(tensors, sums) -> None:
    import torch
    tensor = tensors.get()
    tensor.add_(1)
    torch.cuda.synchronize()
    sums.put(float(tensor.sum().item()))


def ipc() -> dict:
    """A tensor of this process is changed by another of the share."""
    import torch
    import torch.multiprocessing as processes
    start = processes.get_context("spawn")
    tensors, sums = start.Queue(), start.Queue()
    other = start.Process(target=add_one, args=(tensors, sums))
    other.start()
    tensor = torch.zeros(1 << 20, device="cuda")
    tensors.put(tensor)
    there = sums.get(timeout=50)
    other.join(10)
    here = float(tensor.sum().item())
    return {"there": there, "here": here, "ok": there == here == 1 << 20}


def compiled() -> dict:
    """torch.compile, which writes a kernel with Triton."""
    import torch

    def plain(x):
        return torch.nn.functional.gelu(x * 2 + 1).sum(dim=-1)
    x = torch.randn(4096, 4096, device="cuda")
    worst = (torch.compile(plain)(x) - plain(x)).abs().max().item()
    return {"worst": worst, "ok": worst < 0.1}


def profiled() -> dict:
    """CUPTI beside the shim: every kernel is seen."""
    import torch
    from torch.profiler import ProfilerActivity, profile
    x = torch.randn(4096, 4096, device="cuda")
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
        for _ in range(20):
            x @ x
        torch.cuda.synchronize()
    kernels = sum(event.device_type == torch.autograd.DeviceType.CUDA for event in seen.events())
    return {"kernels": kernels, "ok": kernels >= 20}


def loader() -> dict:
    """A DataLoader forks its workers beside a device that is in use; cuDNN."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    torch.zeros(1, device="cuda")
    rows, total = 4096, 0.0
    for (batch,) in DataLoader(TensorDataset(torch.arange(float(rows))), batch_size=64, num_workers=4, pin_memory=True):
        total += batch.cuda(non_blocking=True).sum().item()
    torch.nn.Conv2d(16, 32, 3).cuda()(torch.randn(8, 16, 64, 64, device="cuda")).mean().backward()
    return {"sum": total, "ok": total == rows * (rows - 1) / 2}


def nvml() -> dict:
    """What a program is shown of its own memory by NVML."""
    import pynvml
    import torch
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    block = torch.zeros(1 << 28, device="cuda")
    shown = pynvml.nvmlDeviceGetMemoryInfo(device)
    own = [process.usedGpuMemory for process in pynvml.nvmlDeviceGetComputeRunningProcesses(device) if process.pid == os.getpid()]
    return {"total": shown.total, "used": shown.used, "own": own, "ok": shown.total == SHARE and len(own) == 1 and shown.used >= block.nbytes}


def jax() -> dict:
    """JAX, which takes three quarters of the memory it is shown at once."""
    import jax
    import jax.numpy as jnp
    ones = jnp.ones((4096, 4096), dtype=jnp.bfloat16)
    total = float(jax.jit(lambda a, b: (a @ b).sum())(ones, ones))
    limit = jax.devices()[0].memory_stats().get("bytes_limit")
    return {"sum": total, "limit": limit, "ok": total == 4096.0**3 and limit is not None and limit <= SHARE}


def cupy() -> dict:
    """CuPy: a product, a kernel of its own, managed memory, a captured stream, a pool in stream order."""
    import cupy
    ones = cupy.ones((4096, 4096), dtype=cupy.float32)
    total = float((ones @ ones).sum())
    kernel = cupy.ElementwiseKernel("float32 x", "float32 y", "y = x * 2 + 1", "twice_and_one")
    threes = float(kernel(ones).sum())
    managed = cupy.cuda.malloc_managed(256 << 20)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        kernel(ones)
        stream.end_capture().launch()
        stream.synchronize()
    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    pooled = cupy.zeros(1 << 28, dtype=cupy.uint8)
    return {"sum": total, "threes": threes, "ok": total == 4096.0**3 and threes == 3 * 4096.0**2 and managed.mem.size == 256 << 20 and not pooled.any()}


CHECKS = {
    "allocate": allocate, "segments": allocate, "async": allocate, "ipc": ipc, "compiled": compiled, "profiled": profiled, "loader": loader,
    "nvml": nvml, "jax": jax, "cupy": cupy,
}
ALLOCATORS = {"segments": "expandable_segments:True", "async": "backend:cudaMallocAsync"}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("name", choices=[*CHECKS, "list"], help="what to do; list: all names that this Python can do")
    name = options.parse_args().name
    if name == "list":
        print(json.dumps({"names": [each for each in CHECKS if importlib.util.find_spec(NEEDS.get(each, "torch"))]}))
        return
    if name in ALLOCATORS:
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = ALLOCATORS[name]
    began = time.monotonic()
    print(json.dumps({**CHECKS[name](), "seconds": time.monotonic() - began}))


if __name__ == "__main__":
    main()
