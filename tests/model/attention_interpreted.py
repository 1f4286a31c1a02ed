"""Fused kernels against the index path, in Triton's interpreter. ``test_attention_fused.py`` runs this file."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks import attention as benchmark
from mycelium.model import attention_triton
from mycelium.model.attention import RelationAttention
from mycelium.model.attention_fused import attend, attend_backward, project, project_backward
from mycelium.model.mycelium import Mycelium
from mycelium.model.relation_edges import Projection, RelationEdges
from mycelium.model.relation_tables import CHUNK, LIMIT
from mycelium.model.relations import AttentionConfig
from mycelium.window.batch import Batch
from tests.model.attention_interpreter import watched
from tests.model.graphs import Graph, random_graph
from tests.model.windows import PAPER_INPUTS, SMALL, answers
from tests.sense.networks import FAULTED
from tests.window.render import case_of

__all__ = ["watched"]

CONFIG = AttentionConfig(width=16, heads=4)
NO_NODES = {"bus": 1, "consumer": 0, "substation": 0, "capacitor": 0, "der": 0}
# Nodes, edges and hours. A program of hubs takes 32 edges at a time, any other 8 hours.
GRAPHS = {
    "every relation": (
        {"bus": 6, "consumer": 4, "substation": 1, "capacitor": 1, "der": 2},
        {"line": 12, "transformer": 4, "reactor": 2, "service": 6, "source": 2, "capacitor": 1, "der": 2}
        | {"uplink": 4, "downlink": 5},
        9,
    ),
    "hubs": (
        {"bus": 2, "consumer": 20, "substation": 1, "capacitor": 1, "der": 1},
        {"line": 75, "service": 70, "uplink": 20},
        2,
    ),
    "one edge": (NO_NODES | {"bus": 3}, {"line": 1}, 24),
    "one edge without embedding": (NO_NODES | {"consumer": 2}, {"service": 1}, 1),
    "two edges between the same nodes": (NO_NODES, {"reactor": 2}, 8),
    "no edges": (NO_NODES | {"consumer": 1}, {}, 3),
}


@pytest.fixture(autouse=True)
def nothing_left_unwritten() -> Iterator[None]:
    """New memory holds NaN, so that what no program writes is seen."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def graph_of(name: str) -> tuple[Graph, int]:
    torch.manual_seed(sorted(GRAPHS).index(name))
    counts, edges, steps = GRAPHS[name]
    return random_graph(CONFIG, counts, edges), steps


def run(
    layer: RelationAttention, graph: Graph, states: list[Tensor], slopes: Tensor, half: bool, fused: bool
) -> list[Tensor]:
    """Messages of all nodes, then gradients of states (by kind; branches last) and of parameters."""
    config = layer.config
    leaves = [state.detach().requires_grad_() for state in states]
    edges = RelationEdges.compile(config, graph.counts, graph.edges, fused=fused)
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        out = layer(dict(zip(config.nodes, leaves, strict=False)), leaves[-1], edges)
    packed = torch.cat([out[kind] for kind in config.nodes], dim=1)
    wanted = [*leaves, *layer.parameters()]
    gradients = torch.autograd.grad(packed, wanted, slopes.to(packed.dtype), allow_unused=True)
    made = [
        torch.zeros_like(leaf) if gradient is None else gradient
        for gradient, leaf in zip(gradients, wanted, strict=True)
    ]
    return [packed.detach(), *made]


def error(found: Tensor, exact: Tensor) -> float:
    """Largest, relative to the largest value; infinite for NaN."""
    if not exact.numel():
        return 0.0
    worst = (found.double() - exact).abs().max() / exact.abs().max().clamp(min=1e-30)
    return float(worst.nan_to_num(torch.inf))


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("half", [False, True], ids=["float32", "bfloat16"])
def test_equals_the_index_path(name: str, half: bool) -> None:
    """Outputs and all gradients: as close to those in float64 as the index path is."""
    graph, steps = graph_of(name)
    layer = RelationAttention(CONFIG)
    states = [*graph.states(CONFIG, steps).values(), torch.cat([*graph.branches(CONFIG, steps).values()], dim=1)]
    slopes = torch.randn(steps, sum(graph.counts.values()), CONFIG.width)
    double = [state.double() for state in states]
    exact = run(copy.deepcopy(layer).double(), graph, double, slopes.double(), half=False, fused=False)
    found = run(layer, graph, states, slopes, half, fused=True)
    by_index = run(layer, graph, states, slopes, half, fused=False)
    for mine, other, right in zip(found, by_index, exact, strict=True):
        assert mine.dtype == other.dtype and mine.shape == other.shape
        assert error(mine, right) < (1e-3 + 1.2 * error(other, right) if half else 1e-6)


def test_large_scores_are_safe() -> None:
    """Of 1e6 and more, in a hub and elsewhere: nothing overflows, forward or backward."""
    counts, edges, steps = NO_NODES | {"bus": 2}, {"line": 70, "reactor": 5}, 1
    torch.manual_seed(0)
    graph = random_graph(CONFIG, counts, edges)
    layer = RelationAttention(CONFIG)
    branches = torch.cat([*graph.branches(CONFIG, steps).values()], dim=1)
    states = [*(1e4 * state for state in graph.states(CONFIG, steps).values()), branches]
    slopes = torch.randn(steps, sum(counts.values()), CONFIG.width)
    found, by_index = (run(layer, graph, states, slopes, half=False, fused=fused) for fused in (True, False))
    for mine, other in zip(found, by_index, strict=True):
        assert error(mine, other.double()) < 1e-3


@pytest.mark.parametrize("biased", [True, False])
def test_projections(biased: bool) -> None:
    """Of several blocks of rows and chunks of units, the last ones not full; of roles and rows without units."""
    steps, n_rows, width, sizes = 5, CHUNK + 15, 16, (0, CHUNK + 3, 2, 0, 40)
    torch.manual_seed(0)
    rows = [torch.randperm(n_rows - 1)[:size].sort().values for size in sizes]
    x, weight, bias = (
        torch.randn(steps, n_rows, width),
        torch.randn(len(sizes), width, width),
        torch.zeros(len(sizes), width),
    )
    if biased:
        bias.normal_()
    inputs = [tensor.requires_grad_() for tensor in (x, weight, bias)[: 2 + biased]]
    projection = Projection.of(torch.cat(rows), sizes, n_rows, fused=True)
    assert projection.tables is not None
    found = project(x, weight, bias if biased else None, projection.row, projection.tables.tensors)
    parts = [
        functional.linear(x[:, row].double(), w.double(), b.double())
        for row, w, b in zip(rows, weight, bias, strict=True)
    ]
    exact = torch.cat(parts, dim=1)
    slopes = torch.randn_like(found)
    gradients = [torch.autograd.grad(out, inputs, slopes.to(out.dtype)) for out in (found, exact)]
    for mine, right in zip((found, *gradients[0]), (exact, *gradients[1]), strict=True):
        assert error(mine.detach(), right.detach()) < 1e-6


def test_operators_are_what_they_say() -> None:
    """Shapes and types without data, what is written, and gradients, as autograd and torch.compile rely on them."""
    graph, steps = graph_of("two edges between the same nodes")
    edges = RelationEdges.compile(CONFIG, graph.counts, graph.edges, fused=True)
    nodes, tables = edges.nodes, edges.tables
    assert nodes.tables is not None and tables is not None
    x = torch.randn(steps, 1, CONFIG.width, requires_grad=True)
    weight = torch.randn(3 * len(CONFIG.relations), CONFIG.width, CONFIG.width, requires_grad=True)
    unit = project(x, weight, None, nodes.row, nodes.tables.tensors).detach()
    branch = torch.randn(steps, len(edges.branches.row), CONFIG.width)
    first_value, n_queries, n_rivals = tables.sizes
    out, lse = attend(unit, branch, tables.tensors, CONFIG.heads, first_value, n_queries, n_rivals)
    leaves = unit.requires_grad_(), branch.requires_grad_()
    checks = {
        project: (x, weight, weight[:, 0].detach().requires_grad_(), nodes.row, nodes.tables.tensors),
        project_backward: (torch.randn_like(unit), x.detach(), weight.detach(), nodes.row, nodes.tables.tensors),
        attend: (*leaves, tables.tensors, CONFIG.heads, first_value, n_queries, n_rivals),
        attend_backward: (out, unit.detach(), branch.detach(), lse, tables.tensors, first_value, n_rivals),
    }
    for operator, arguments in checks.items():
        torch.library.opcheck(operator, arguments)


def test_benchmark_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the benchmark checks before it measures on a GPU: against PyTorch Geometric, in the paper's width."""
    monkeypatch.setattr(benchmark, "HOURS", 3)
    case = benchmark.Case.of(1, LIMIT + 4, torch.device("cpu"))
    assert benchmark.agree(case, {"by index": False, "fused kernels": True})
    assert max(benchmark.worst_difference(case, fused=True)) < 1e-5


@pytest.mark.parametrize("half", [False, True], ids=["float32", "bfloat16"])
def test_model(half: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole model with a day of a real feeder, recomputed as in training: answers and all gradients."""
    window = Batch.of([case_of("lv_fourwire", FAULTED, "noisy_missing_medium").part(PAPER_INPUTS)]).window()
    torch.manual_seed(0)
    model = Mycelium(replace(SMALL, layers=1, dropout=0.0))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    model.backbone.recompute = True
    compile_edges = RelationEdges.compile
    monkeypatch.setattr(attention_triton, "TIMES", 32)  # fewer programs: the interpreter takes as long for each
    results = []
    for fused in (True, False):
        monkeypatch.setattr(RelationEdges, "compile", functools.partial(compile_edges, fused=fused))
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            found = answers(model(window))
        torch.stack([answer[answer.isfinite()].sin().sum() for answer in found.values()]).sum().backward()
        gradients = {name: value.grad for name, value in model.named_parameters() if value.grad is not None}
        results.append({name: value.detach() for name, value in (found | gradients).items()})
    mine, right = results
    assert mine.keys() == right.keys()
    for name, value in right.items():
        # Some gradients are exactly 0, such as of a bias before a softmax: what is there is rounding.
        scale = float(value.nan_to_num().abs().max()) if value.numel() else 0.0
        tolerance = 1e-7 + (2e-2 if half else 2e-6) * scale
        torch.testing.assert_close(mine[name], value, rtol=0, atol=tolerance, equal_nan=True, msg=name)
