#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small PyTorch training loop for real GPUs: trains a multi-layer perceptron on made-up data and prints its speed.

    aliquot run --gpu 0.25..0.80 --mem 4Gi..8Gi -- python3 examples/train.py --seconds 30
"""

import argparse
import time

import torch


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--seconds", type=float, default=30, help="how long to train")
    options.add_argument("--width", type=int, default=4096, help="width of each layer")
    options.add_argument("--batch", type=int, default=1024, help="samples of one step")
    options.add_argument("--graph", action="store_true", help="replay each step as a CUDA graph")
    options.add_argument("--counts", action="store_true",
                         help="print only lines of two numbers, the monotonic clock in ns and the steps done by then")
    given = options.parse_args()

    device = torch.device("cuda")
    free, total = torch.cuda.mem_get_info()
    if not given.counts:
        print(f"{torch.cuda.get_device_name()}: {free / 2**30:.1f} GiB free of {total / 2**30:.1f}", flush=True)

    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(given.width, given.width), torch.nn.GELU(),
        torch.nn.Linear(given.width, given.width), torch.nn.GELU(),
        torch.nn.Linear(given.width, 1),
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    samples = torch.randn(given.batch, given.width, device=device)
    target = samples.mean(dim=1, keepdim=True)

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=False)
        loss = torch.nn.functional.mse_loss(model(samples), target)
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            loss = step()
    torch.cuda.current_stream().wait_stream(side)
    if given.graph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = step()

    steps, start, shown = 0, time.monotonic(), time.monotonic()
    while time.monotonic() - start < given.seconds:
        if given.graph:
            graph.replay()
        else:
            loss = step()
        steps += 1
        if steps % 20 == 0:
            torch.cuda.synchronize()
            if given.counts and time.monotonic() - shown >= 0.05:
                shown = time.monotonic()
                print(time.monotonic_ns(), steps, flush=True)
        if not given.counts and time.monotonic() - shown >= 5:
            shown = time.monotonic()
            print(f"step {steps}: loss {loss.item():.5f}, {steps / (shown - start):.1f} steps/s", flush=True)
    torch.cuda.synchronize()
    elapsed = time.monotonic() - start
    if not given.counts:
        print(f"{steps} steps in {elapsed:.1f} s: {steps / elapsed:.1f} steps/s, loss {loss.item():.5f}")


if __name__ == "__main__":
    main()
