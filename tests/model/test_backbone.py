"""The backbone: the paper's residual updates around PyTorch Geometric's operator, on a real batch."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from mycelium.model import pieces
from mycelium.model.backbone import Backbone
from mycelium.model.config import MyceliumConfig
from mycelium.model.relation_edges import RelationEdges
from mycelium.schema import HOURS
from mycelium.window.columns import BACKBONE, NODES
from tests.model.graphs import Graph, literal_layer, run_literal
from tests.model.windows import SMALL, union


def graph_of() -> Graph:
    window, _ = union()
    counts = {store.value: len(window.graph[store]) for store in NODES}
    return Graph(counts, {kind.value: window.edges[kind].int() for kind in BACKBONE})


def inputs(config: MyceliumConfig, dtype: torch.dtype) -> tuple[dict[str, Tensor], dict[str, Tensor], RelationEdges]:
    torch.manual_seed(0)
    graph = graph_of()
    states, branches = graph.states(config.attention, HOURS, dtype), graph.branches(config.attention, HOURS, dtype)
    return states, branches, RelationEdges.compile(config.attention, graph.counts, graph.edges)


def pack(config: MyceliumConfig, branches: dict[str, Tensor]) -> Tensor:
    return torch.cat([branches[kind] for kind in config.attention.branches], dim=1)


def test_layers_are_the_papers_updates_around_the_literal_operator() -> None:
    """h + m(LN h), then u + W2 GELU(W1 LN u + b1) + b2 by kind; a last LN: outputs and gradients of inputs."""
    config = replace(SMALL, dropout=0.0)
    backbone = Backbone(config).double()
    states, branches, edges = inputs(config, torch.float64)
    found = backbone(states, pack(config, branches), edges)
    expected: dict[str, Tensor] = states
    for layer in backbone.layers:
        normed = {kind: layer.norm[kind](state) for kind, state in expected.items()}
        messages = run_literal(literal_layer(layer.attention), graph_of(), config.attention, normed, branches)
        updated = {kind: state + messages[kind] for kind, state in expected.items()}
        expected = {}
        for kind, u in updated.items():
            part = layer.feedforward[kind]
            inner = functional.gelu(functional.linear(part.norm(u), part.widen.weight, part.widen.bias))
            expected[kind] = u + functional.linear(inner, part.narrow.weight, part.narrow.bias)
    expected = {kind: backbone.norm[kind](state) for kind, state in expected.items()}
    leaves = [*states.values(), *branches.values()]
    slopes = {kind: torch.randn_like(value) for kind, value in found.items()}
    gradients = [
        torch.autograd.grad(torch.stack([(out[kind] * slopes[kind]).sum() for kind in found]).sum(), leaves)
        for out in (found, expected)
    ]
    for kind, value in expected.items():
        torch.testing.assert_close(found[kind], value, rtol=0, atol=1e-11)
    for mine, other in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-9)


def test_recomputing_changes_neither_outputs_nor_gradients() -> None:
    """With dropout: the same channels are dropped again."""
    config = replace(SMALL, dropout=0.5)
    torch.manual_seed(1)
    backbone = Backbone(config).double().train()
    states, branches, edges = inputs(config, torch.float64)
    results = []
    for recompute in (False, True):
        backbone.recompute = recompute
        backbone.zero_grad()
        torch.manual_seed(2)
        out = backbone(states, pack(config, branches), edges)
        torch.stack([value.sin().sum() for value in out.values()]).sum().backward()
        gradients = {name: value.grad.clone() for name, value in backbone.named_parameters()}
        results.append(({kind: value.detach() for kind, value in out.items()}, gradients))
    for (kind, first), second in zip(results[0][0].items(), results[1][0].values(), strict=True):
        assert torch.equal(first, second), kind
    for name, first in results[0][1].items():
        torch.testing.assert_close(results[1][1][name], first, rtol=0, atol=1e-12, msg=name)


def test_dropout_is_of_training_only() -> None:
    backbone = Backbone(replace(SMALL, dropout=0.5))
    states, branches, edges = inputs(SMALL, torch.float32)
    packed = pack(SMALL, branches)
    one, other = (backbone.eval()(states, packed, edges)["bus"] for _ in range(2))
    assert torch.equal(one, other)
    assert not torch.equal(backbone.train()(states, packed, edges)["bus"], one)


@pytest.mark.parametrize("rows", [1, 1000, 10**6])
def test_inference_in_pieces_equals_training(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One hour at a time, some hours at a time with a shorter last piece, all at once."""
    monkeypatch.setattr(pieces, "ROWS", rows)
    backbone = Backbone(SMALL).eval()
    states, branches, edges = inputs(SMALL, torch.float32)
    packed = pack(SMALL, branches)
    expected = backbone(states, packed, edges)
    with torch.no_grad():
        found = backbone(states, packed, edges)
    for kind, value in expected.items():
        torch.testing.assert_close(found[kind], value.detach(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("hour", [0, 12, HOURS - 1])
def test_hours_do_not_mix(hour: int) -> None:
    backbone = Backbone(SMALL).double().eval()
    states, branches, edges = inputs(SMALL, torch.float64)
    out = backbone(states, pack(SMALL, branches), edges)
    total = torch.stack([value[hour].sin().sum() for value in out.values()]).sum()
    for gradient in torch.autograd.grad(total, [*states.values(), *branches.values()]):
        reached = gradient.flatten(1).any(dim=1)
        assert not reached[:hour].any() and not reached[hour + 1 :].any()
        assert reached[hour] or not gradient.numel()
