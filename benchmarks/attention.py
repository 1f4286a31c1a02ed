"""The attention of one spatial layer against PyTorch Geometric's HeteroConv(TransformerConv), as ratios in one run.

    python -m benchmarks.attention                  # inference on the processor
    python -m benchmarks.attention --device cuda    # forward and backward; needs CUDA, torch, Triton, torch-geometric

Run from the root of the repository; nothing has to be installed there beyond those. Both compute the same: 18 directed
relations, width 128, 4 heads, 24 hours, the same weights. First the run checks that, in IEEE float32, and ends with an
error where outputs or gradients differ by more than 1e-4 of the largest; then it measures in interleaved rounds, the
fastest of each. A batch is some radial feeders with customers, transformers, a few ties.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mycelium.model.attention import RelationAttention
from mycelium.model.pieces import in_pieces
from mycelium.model.relation_edges import RelationEdges
from mycelium.model.relations import AttentionConfig
from mycelium.schema import HOURS
from tests.model.graphs import Graph, edge_index, edge_type, literal_gradients, literal_layer, union

LIMIT = 1e-4  # largest difference, relative to the largest value
CONFIG = AttentionConfig()
PYG = "PyG float32"


# ---- the batch -------------------------------------------------------------------------------------------------------


def feeder(n_buses: int, seed: int) -> Graph:
    """A radial feeder: every 12th branch a transformer, half as many customers as buses, shortcuts, some ties."""
    draw = torch.Generator().manual_seed(seed)

    def pick(below: int, size: int) -> Tensor:
        return torch.randint(below, (size,), generator=draw)

    child = torch.arange(1, n_buses)
    parent = child - 1 - torch.minimum(child - 1, pick(8, n_buses - 1))
    stepped = torch.rand(n_buses - 1, generator=draw) < 1 / 12
    tree = torch.stack([parent, child])
    secondary = torch.zeros(n_buses, dtype=torch.long)  # nearest secondary bus above each bus, the source where none is
    for bus, (above, is_secondary) in enumerate(zip(parent.tolist(), stepped.tolist(), strict=True), start=1):
        secondary[bus] = bus if is_secondary else secondary[above]
    n_consumers, n_ders = n_buses // 2, n_buses // 50
    consumer, at = torch.arange(n_consumers), pick(n_buses, n_consumers)
    primary = tree[0, stepped].unique()
    edges = {
        "line": torch.cat([tree[:, ~stepped], torch.stack([pick(n_buses, 4), pick(n_buses, 4)])], dim=1),
        "transformer": tree[:, stepped],
        "reactor": torch.tensor([[0], [0]]),
        "service": torch.stack([consumer, at]),
        "source": torch.tensor([[0], [0]]),
        "capacitor": torch.stack([torch.arange(3), pick(n_buses, 3)]),
        "der": torch.stack([torch.arange(n_ders), pick(n_buses, n_ders)]),
        "uplink": torch.stack([torch.zeros_like(primary), primary]),
        "downlink": torch.stack([consumer, secondary[at]]),
    }
    counts = {"bus": n_buses, "consumer": n_consumers, "substation": 1, "capacitor": 3, "der": n_ders}
    return Graph(counts, {kind: pair.int() for kind, pair in edges.items()})


@dataclass
class Case:
    """The same batch for both layers.

    Attributes:
        graph: Edges.
        nodes, branches: Inputs, leaves of the graph of gradients. [hour, row, width] each
        slopes: Gradients of the outputs. [hour, node, width] each
        layer, literal: Ours, and PyG's with the same weights.
        device: Where all of this is.
    """

    graph: Graph
    nodes: dict[str, Tensor]
    branches: dict[str, Tensor]
    slopes: dict[str, Tensor]
    layer: RelationAttention
    literal: nn.Module
    device: torch.device

    @staticmethod
    def of(n_feeders: int, n_buses: int, device: torch.device) -> Case:
        torch.manual_seed(0)
        graph = union([feeder(n_buses, seed) for seed in range(n_feeders)], CONFIG)
        layer = RelationAttention(CONFIG)
        literal = literal_layer(layer).to(device)

        def leaves(states: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {kind: state.detach().to(device).requires_grad_() for kind, state in states.items()}

        slopes = {kind: torch.randn(HOURS, size, CONFIG.width, device=device) for kind, size in graph.counts.items()}
        nodes, branches = leaves(graph.states(CONFIG, HOURS)), leaves(graph.branches(CONFIG, HOURS))
        return Case(graph, nodes, branches, slopes, layer.to(device), literal, device)

    @property
    def leaves(self) -> list[Tensor]:
        return [*self.nodes.values(), *self.branches.values()]

    def forget(self) -> None:
        """Drop all gradients."""
        for tensor in (*self.leaves, *self.layer.parameters(), *self.literal.parameters()):
            tensor.grad = None

    def ours(self, fused: bool) -> Callable[[], dict[str, Tensor]]:
        """Our layer as a model runs it, its edges compiled as for all layers."""
        edges = {kind: pair.to(self.device) for kind, pair in self.graph.edges.items()}
        compiled = RelationEdges.compile(CONFIG, self.graph.counts, edges, fused=fused)

        def run() -> dict[str, Tensor]:
            packed = torch.cat([self.branches[kind] for kind in CONFIG.branches], dim=1)
            return in_pieces(lambda nodes, branches: self.layer(nodes, branches, compiled), self.nodes, packed)

        return run

    def theirs(self) -> Callable[[], dict[str, Tensor]]:
        """PyG's layer; hours are disjoint copies of the graph, made before."""
        index = {edge_type(k): edge_index(k, self.graph, HOURS).to(self.device) for k in CONFIG.relations}

        def run() -> dict[str, Tensor]:
            attributes = {edge_type(k): self.branches[k.kind].flatten(0, 1) for k in CONFIG.relations if k.branch}
            flat = {kind: state.flatten(0, 1) for kind, state in self.nodes.items()}
            out = self.literal(flat, index, edge_attr_dict=attributes)
            return {kind: value.view_as(self.nodes[kind]) for kind, value in out.items()}

        return run

    def backward(self, out: dict[str, Tensor]) -> None:
        torch.autograd.backward([out[kind] for kind in out], [self.slopes[kind].to(out[kind].dtype) for kind in out])


# ---- agreement -------------------------------------------------------------------------------------------------------


def difference(found: Tensor, expected: Tensor) -> float:
    """Largest, relative to the largest value."""
    if not expected.numel():
        return 0.0
    return float((found - expected).detach().abs().max() / expected.detach().abs().max().clamp(min=1e-30))


def worst_difference(case: Case, fused: bool) -> tuple[float, float]:
    """Of outputs and of gradients, of inputs and weights, relative to the largest."""
    case.forget()
    expected = case.theirs()()
    case.backward(expected)
    weights = literal_gradients(case.literal, case.layer)
    theirs = [_gradient(leaf) for leaf in case.leaves] + [weights[name] for name, _ in case.layer.named_parameters()]
    case.forget()
    found = case.ours(fused)()
    case.backward(found)
    pairs = zip((_gradient(leaf) for leaf in (*case.leaves, *case.layer.parameters())), theirs, strict=True)
    outputs = max(difference(found[kind], expected[kind]) for kind in found)
    return outputs, max(difference(mine, other) for mine, other in pairs)


def _gradient(leaf: Tensor) -> Tensor:
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad


def agree(case: Case, paths: Mapping[str, bool]) -> bool:
    """Print differences; whether all are small."""
    print("| float32 against PyG | outputs | gradients |\n|---|---:|---:|")
    good = True
    for name, fused in paths.items():
        outputs, gradients = worst_difference(case, fused)
        print(f"| {name} | {outputs:.1e} | {gradients:.1e} |", flush=True)
        good = good and max(outputs, gradients) <= LIMIT
    case.forget()
    return good


# ---- speed -----------------------------------------------------------------------------------------------------------


@dataclass
class Contender:
    """Something to time.

    Attributes:
        forward: The layer.
        half: In bfloat16 by autocast.
        best_ms: Fastest so far.
        peak_mib: Device memory above what was there before.
    """

    forward: Callable[[], dict[str, Tensor]]
    half: bool = False
    best_ms: float = float("inf")
    peak_mib: float = 0.0

    def once(self, case: Case) -> None:
        """Inference on the processor, forward and backward on a GPU."""
        training = case.device.type == "cuda"
        case.forget()
        if training:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated() if training else 0
        start = time.perf_counter()
        with torch.set_grad_enabled(training):
            with torch.autocast(case.device.type, torch.bfloat16, enabled=self.half):
                out = self.forward()
            if training:
                case.backward(out)
                torch.cuda.synchronize()
        self.best_ms = min(self.best_ms, 1e3 * (time.perf_counter() - start))
        if training:
            self.peak_mib = max(self.peak_mib, (torch.cuda.max_memory_allocated() - before) / 2**20)


def measure(case: Case, contenders: Mapping[str, Contender], rounds: int) -> None:
    """Print times, and memory where it is a device's, as ratios to PyG in float32."""
    for warm in (True, False):
        for _ in range(3 if warm else rounds):
            for contender in contenders.values():
                contender.once(case)
        if warm:
            for contender in contenders.values():
                contender.best_ms, contender.peak_mib = float("inf"), 0.0
    training = case.device.type == "cuda"
    memory = (" peak MiB | of PyG float32 |", "---:|---:|") if training else ("", "")
    print(f"\n| {'forward and backward' if training else 'inference'} | ms | PyG float32 takes |{memory[0]}")
    print(f"|---|---:|---:|{memory[1]}")
    base = contenders[PYG]
    for name, one in contenders.items():
        peak = f" {one.peak_mib:.0f} | {one.peak_mib / base.peak_mib:.2f} |" if training else ""
        print(f"| {name} | {one.best_ms:.1f} | {base.best_ms / one.best_ms:.2f}× |{peak}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--feeders", type=int, help="in a batch; by default 1 on the processor, 16 on a GPU")
    parser.add_argument("--buses", type=int, default=1000, help="of a feeder")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, help="of the processor; by default all cores")
    return parser.parse_args()


def main() -> None:
    """Check, then measure."""
    arguments = parse()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        sys.exit("--device cuda needs a GPU and a torch with CUDA; without it, this runs on the processor")
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    on_gpu = arguments.device == "cuda"
    case = Case.of(arguments.feeders or (16 if on_gpu else 1), arguments.buses, torch.device(arguments.device))
    place = torch.cuda.get_device_name() if on_gpu else f"the processor, {torch.get_num_threads()} threads"
    sizes = ", ".join(f"{size} {kind}" for kind, size in case.graph.counts.items())
    print(f"On {place}; torch {torch.__version__}; {HOURS} hours of {sizes}.\n")
    if not agree(case, {"by index": False} | ({"fused kernels": True} if on_gpu else {})):
        sys.exit(f"outputs or gradients differ by more than {LIMIT:.0e}")
    ours, theirs = case.ours(fused=on_gpu), case.theirs()
    contenders = {
        PYG: Contender(theirs),
        "PyG bfloat16": Contender(theirs, half=True),
        "ours float32": Contender(ours),
        "ours bfloat16": Contender(ours, half=True),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyG's own scatter in half precision
        measure(case, contenders, arguments.rounds)


if __name__ == "__main__":
    main()
