"""Fused kernels, compiled for Hopper without one. ``test_attention_fused.py`` runs this file; ``-s`` shows a table.

Everything goes as on a GPU up to the launch, which is left out: the same operators choose the same kernels, types and
options, and Triton compiles what it would launch. What comes out of the operators is not looked at.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from mycelium.model.attention import RelationAttention
from mycelium.model.relation_edges import RelationEdges
from mycelium.model.relation_tables import LIMIT
from mycelium.model.relations import AttentionConfig
from tests.model.graphs import random_graph

SHARED_MEMORY = 227 * 1024  # that one program may use on Hopper
CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


class Hopper:
    """All that Triton asks a driver before a launch."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


@dataclass(frozen=True)
class Built:
    """One compiled kernel.

    Attributes:
        name, dtype: Kernel, and type of its first argument.
        wide: Whether it is for hubs, if it is of attention.
        registers: Of a thread.
        spilled: Bytes of a thread's stack and local memory.
        shared: Bytes of shared memory.
        assembly: PTX.
    """

    name: str
    dtype: str
    wide: bool | None
    registers: int
    spilled: int
    shared: int
    assembly: str

    @staticmethod
    def of(function: JITFunction, kernel: Any, first: torch.Tensor, wide: bool | None, folder: Path) -> Built:
        file = folder / "kernel.cubin"
        file.write_bytes(kernel.asm["cubin"])
        command = [str(CUOBJDUMP), "--dump-resource-usage", str(file)]
        usage = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", usage)
        assert found, usage
        registers, stack, local = map(int, found.groups())
        dtype = str(first.dtype).removeprefix("torch.")
        return Built(
            function.fn.__name__, dtype, wide, registers, stack + local, kernel.metadata.shared, kernel.asm["ptx"]
        )


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Built]:
    """What would have been launched so far."""
    found: dict[str, Built] = {}
    run = JITFunction.run

    def compile_only(self: JITFunction, *args: Any, grid: tuple[int, ...], warmup: bool, **options: Any) -> None:
        assert min(grid) > 0 and max(grid[1:], default=1) < 2**16, f"CUDA has no such grid: {grid}"
        kernel = run(self, *args, grid=grid, warmup=True, **options)
        if kernel.hash not in found:
            found[kernel.hash] = Built.of(self, kernel, args[0], options.get("WIDE"), tmp_path)

    monkeypatch.setattr(JITFunction, "run", compile_only)
    monkeypatch.setattr(driver, "_active", Hopper())
    return found


def test_compiles_for_hopper(kernels: dict[str, Built]) -> None:
    """In the paper's width: within registers and shared memory, products on the matrix unit, hubs or not."""
    config = AttentionConfig()
    counts = {"bus": 2 * LIMIT, "consumer": 2 * LIMIT, "substation": 1, "capacitor": 1, "der": 1}
    graph = random_graph(config, counts, {"line": 6, "service": 6, "uplink": 4 * LIMIT})
    layer = RelationAttention(config)
    edges = RelationEdges.compile(config, graph.counts, graph.edges, fused=True)
    for half in (False, True):
        branches = torch.cat([*graph.branches(config, 3).values()], dim=1)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            out = layer(graph.states(config, 3), branches, edges)
        torch.autograd.backward([*out.values()], [torch.ones_like(value) for value in out.values()])
    print("\n| kernel | of | hubs | registers | spilled, bytes | shared memory, KiB |\n|---|---|---|---:|---:|---:|")
    for one in kernels.values():
        print(f"| {one.name} | {one.dtype} | {one.wide} | {one.registers} | {one.spilled} | {one.shared / 1024:.1f} |")
    attention = {f"attend_{name}" for name in ("forward", "backward_targets", "backward_sources")}
    expected = {
        (name, dtype, wide) for name in attention for dtype in ("float32", "bfloat16") for wide in (False, True)
    }
    products = {f"project_{name}" for name in ("forward", "backward_rows", "backward_weights")}
    expected |= {(name, "bfloat16", None) for name in products} | {("add_chunks", "float32", None)}
    assert {(one.name, one.dtype, one.wide) for one in kernels.values()} == expected
    for one in kernels.values():
        assert one.spilled == 0 and one.shared <= SHARED_MEMORY, one.name
        assert ("wgmma" in one.assembly) == (one.name in products), one.name
