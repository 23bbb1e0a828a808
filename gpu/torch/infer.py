#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An inference server under an open-loop Poisson load; latency counts from when a request was due. Prints one line of JSON."""

import argparse
import json
import random
import time

import torch


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=8, help="how long to serve")
    options.add_argument("--rate", type=float, default=0, help="requests a second; 0: so many that they need --load of the device")
    options.add_argument("--load", type=float, default=0.2, help="part of the device, 0..1, by how long a request takes now")
    options.add_argument("--layers", type=int, default=12)
    options.add_argument("--width", type=int, default=2048)
    options.add_argument("--batch", type=int, default=64, help="samples of one request")
    options.add_argument("--graph", action="store_true", help="serve each request by replaying a CUDA graph")
    given = options.parse_args()

    torch.manual_seed(0)
    layers = [layer for _ in range(given.layers) for layer in (torch.nn.Linear(given.width, given.width), torch.nn.GELU())]
    model = torch.nn.Sequential(*layers).to("cuda").half().eval()
    samples = torch.randn(given.batch, given.width, device="cuda", dtype=torch.float16)

    with torch.inference_mode():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(5):
                model(samples)
        torch.cuda.current_stream().wait_stream(side)
        graph = None
        if given.graph:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                model(samples)

        def serve() -> None:
            if graph is not None:
                graph.replay()
            else:
                model(samples)
            torch.cuda.current_stream().synchronize()

        took = []
        for _ in range(100):
            began = time.monotonic()
            serve()
            took.append(time.monotonic() - began)
        service = sorted(took)[len(took) // 2]
        rate = given.rate or given.load / service

        chance = random.Random(1)
        latencies = []
        start = due = time.monotonic()
        while True:
            due += chance.expovariate(rate)
            if due - start > given.seconds:
                break
            wait = due - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            serve()
            latencies.append((time.monotonic() - due) * 1e3)
        end = time.monotonic()

    latencies.sort()
    at = lambda part: latencies[int((len(latencies) - 1) * part + 0.5)] if latencies else None
    print(json.dumps({
        "requests": len(latencies), "rate_per_s": rate, "service_ms": service * 1e3, "from_s": start, "to_s": end,
        "p50_ms": at(0.5), "p90_ms": at(0.9), "p99_ms": at(0.99), "max_ms": at(1),
    }))


if __name__ == "__main__":
    main()
