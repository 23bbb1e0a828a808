#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says which libraries of CUDA a PyTorch program has loaded once it has used the device, and what it is shown: one line of JSON."""

import json
import re

import torch

x = torch.randn(1024, 1024, device="cuda")
(x @ x).sum().item()
free, total = torch.cuda.mem_get_info()
with open("/proc/self/maps", encoding="utf-8") as maps:
    files = {line.split(maxsplit=5)[5].strip() for line in maps if len(line.split(maxsplit=5)) == 6}
of_cuda = sorted(f for f in files if re.search(r"/lib(cuda|nvidia|cudart|cublas|nccl|nvrtc|cupti)[^/]*\.so", f))
print(json.dumps({
    "torch": torch.__version__, "cuda": torch.version.cuda, "device": torch.cuda.get_device_name(), "capability": list(torch.cuda.get_device_capability()),
    "free_bytes": free, "total_bytes": total, "properties_bytes": torch.cuda.get_device_properties(0).total_memory, "loaded": of_cuda,
}))
