"""Relation-typed attention: the same as PyTorch Geometric's operator, and what must hold of any such operator."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mycelium.model.attention import RelationAttention
from mycelium.model.relation_edges import RelationEdges
from mycelium.model.relations import RELATIONS, AttentionConfig
from tests.model.graphs import Graph, literal_gradients, literal_layer, random_graph, run_literal, union

SMALL = AttentionConfig(width=16, heads=2)
BRANCHED = {"line": 40, "transformer": 9, "reactor": 3}
PLAIN = {"service": 25, "source": 2, "capacitor": 3, "der": 5, "uplink": 20, "downlink": 30}
GRAPHS = {
    "dense": ({"bus": 12, "consumer": 8, "substation": 2, "capacitor": 2, "der": 3}, BRANCHED | PLAIN),
    "sparse": ({"bus": 70, "consumer": 30, "substation": 1, "capacitor": 0, "der": 2}, BRANCHED | PLAIN),
    "isolated": ({"bus": 9, "consumer": 4, "substation": 1, "capacitor": 1, "der": 1}, {"line": 1, "service": 1}),
    "one bus": ({"bus": 1, "consumer": 0, "substation": 0, "capacitor": 0, "der": 0}, {"line": 3}),
    "no edges": ({"bus": 3, "consumer": 2, "substation": 1, "capacitor": 0, "der": 0}, {}),
}


def graph_of(name: str, config: AttentionConfig) -> Graph:
    torch.manual_seed(sorted(GRAPHS).index(name))
    return random_graph(config, *GRAPHS[name])


def compiled(graph: Graph, config: AttentionConfig) -> RelationEdges:
    return RelationEdges.compile(config, graph.counts, graph.edges)


def apply(
    layer: RelationAttention, graph: Graph, nodes: dict[str, Tensor], branches: dict[str, Tensor]
) -> dict[str, Tensor]:
    packed = torch.cat([branches[kind] for kind in layer.config.branches], dim=1)
    return layer(nodes, packed, compiled(graph, layer.config))


def assert_close(ours: Tensor, theirs: Tensor, relative: float) -> None:
    scale = float(theirs.detach().abs().max()) if theirs.numel() else 0.0
    torch.testing.assert_close(ours, theirs, rtol=0, atol=relative * max(scale, 1e-30))


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("config", [AttentionConfig(), SMALL], ids=["paper", "small"])
def test_equals_the_literal_operator(name: str, config: AttentionConfig) -> None:
    """Outputs and all gradients, in float32."""
    graph, steps = graph_of(name, config), 3
    layer = RelationAttention(config)
    literal = literal_layer(layer)
    nodes, branches = graph.states(config, steps), graph.branches(config, steps)
    ours = apply(layer, graph, nodes, branches)
    theirs = run_literal(literal, graph, config, nodes, branches)
    leaves = [*nodes.values(), *branches.values()]
    weights = {kind: torch.randn_like(value) for kind, value in ours.items()}

    def loss(out: dict[str, Tensor]) -> Tensor:
        return torch.stack([(out[kind] * weights[kind]).sum() for kind in config.nodes]).sum()

    total = loss(theirs)
    expected = [None] * len(leaves)
    if total.requires_grad:
        expected = torch.autograd.grad(total, leaves, retain_graph=True, allow_unused=True)
        total.backward()
    found = torch.autograd.grad(loss(ours), leaves, retain_graph=True)
    for leaf in leaves:
        leaf.grad = None
    loss(ours).backward()
    for kind in config.nodes:
        assert_close(ours[kind], theirs[kind], 1e-6)
    for mine, other, leaf in zip(found, expected, leaves, strict=True):
        assert_close(mine, torch.zeros_like(leaf) if other is None else other, 2e-6)
    for key, value in literal_gradients(literal, layer).items():
        assert_close(dict(layer.named_parameters())[key].grad, value, 5e-6)


@pytest.mark.parametrize("name", ["dense", "sparse"])
def test_order_of_entities_and_edges_does_not_matter(name: str) -> None:
    config = SMALL
    graph = graph_of(name, config)
    layer = RelationAttention(config).double()
    nodes = graph.states(config, 2, torch.float64)
    branches = graph.branches(config, 2, torch.float64)
    shuffle = {kind: torch.randperm(count) for kind, count in graph.counts.items()}  # new place -> old
    place = {kind: torch.argsort(order) for kind, order in shuffle.items()}
    edges, moved = {}, {}
    for relation in config.relations:
        if relation.reverse:
            continue
        pair = graph.edges[relation.kind].long()
        order = torch.randperm(pair.shape[1])
        pair = torch.stack([place[relation.source][pair[0]], place[relation.target][pair[1]]])
        edges[relation.kind] = pair[:, order]
        if relation.branch:
            moved[relation.kind] = branches[relation.kind][:, order]
    straight = apply(layer, graph, nodes, branches)
    permuted = {kind: state[:, shuffle[kind]] for kind, state in nodes.items()}
    out = apply(layer, Graph(graph.counts, edges), permuted, moved)
    for kind in config.nodes:
        assert_close(out[kind], straight[kind][:, shuffle[kind]], 1e-13)


def test_a_batch_is_its_graphs() -> None:
    """The disjoint union gives what the graphs give alone."""
    config = SMALL
    graphs = [graph_of(name, config) for name in ("dense", "isolated", "one bus", "sparse")]
    layer = RelationAttention(config).double()
    nodes = [graph.states(config, 2, torch.float64) for graph in graphs]
    branches = [graph.branches(config, 2, torch.float64) for graph in graphs]
    joint = apply(
        layer,
        union(graphs, config),
        {kind: torch.cat([part[kind] for part in nodes], dim=1) for kind in config.nodes},
        {kind: torch.cat([part[kind] for part in branches], dim=1) for kind in config.branches},
    )
    alone = [apply(layer, *parts) for parts in zip(graphs, nodes, branches, strict=True)]
    for kind in config.nodes:
        assert_close(joint[kind], torch.cat([part[kind] for part in alone], dim=1), 1e-13)


def test_hours_are_independent() -> None:
    """Each hour alone gives its part."""
    config = SMALL
    graph = graph_of("dense", config)
    layer = RelationAttention(config)
    nodes, branches = graph.states(config, 4), graph.branches(config, 4)
    whole = apply(layer, graph, nodes, branches)
    for hour in range(4):
        now = slice(hour, hour + 1)
        part = apply(layer, graph, {k: v[now] for k, v in nodes.items()}, {k: v[now] for k, v in branches.items()})
        for kind in config.nodes:
            assert_close(part[kind], whole[kind][now], 1e-6)


def test_large_scores_are_safe() -> None:
    """Scores of 1e6 and more: the softmax is one-hot, and nothing overflows, forward or backward."""
    graph = graph_of("dense", SMALL)
    layer = RelationAttention(SMALL)
    nodes = {kind: state.detach().mul(1e4).requires_grad_() for kind, state in graph.states(SMALL, 2).items()}
    out = apply(layer, graph, nodes, graph.branches(SMALL, 2))
    sum(value.square().mean() for value in out.values()).backward()  # type: ignore[union-attr]
    assert all(value.isfinite().all() for value in out.values())
    assert all(state.grad.isfinite().all() for state in nodes.values())
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())


def test_gradients_are_derivatives() -> None:
    config = AttentionConfig(width=4, heads=2, relations=RELATIONS[:2] + RELATIONS[6:8])
    counts = {"bus": 4, "consumer": 2, "substation": 0, "capacitor": 0, "der": 0}
    torch.manual_seed(3)
    graph = random_graph(config, counts, {"line": 6, "service": 3})
    layer = RelationAttention(config).double()
    nodes, branches = graph.states(config, 2, torch.float64), graph.branches(config, 2, torch.float64)
    edges = compiled(graph, config)
    names = [name for name, _ in layer.named_parameters()]

    def function(bus: Tensor, consumer: Tensor, line: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        states = nodes | {"bus": bus, "consumer": consumer}
        weights = dict(zip(names, parameters, strict=True))
        out = torch.func.functional_call(layer, weights, (states, line, edges))
        return out["bus"], out["consumer"]

    inputs = (nodes["bus"], nodes["consumer"], branches["line"], *layer.parameters())
    assert torch.autograd.gradcheck(function, inputs)


def test_autocast_computes_in_half_precision() -> None:
    graph = graph_of("dense", SMALL)
    layer = RelationAttention(SMALL)
    nodes, branches = graph.states(SMALL, 2), graph.branches(SMALL, 2)
    exact = apply(layer, graph, nodes, branches)
    with torch.autocast("cpu", torch.bfloat16):
        rough = apply(layer, graph, nodes, branches)
    sum(value.float().sum() for value in rough.values()).backward()  # type: ignore[union-attr]
    for kind in SMALL.nodes:
        assert rough[kind].dtype == torch.bfloat16
        assert_close(rough[kind].float(), exact[kind], 3e-2)
        assert nodes[kind].grad.dtype == torch.float32


def test_projects_only_what_takes_part() -> None:
    """On a radial feeder, nothing is scored that has no rival."""
    config = AttentionConfig(width=16, heads=2, relations=RELATIONS[:2])
    chain = torch.stack([torch.arange(9), torch.arange(1, 10)])
    counts = {"bus": 12, "consumer": 0, "substation": 0, "capacitor": 0, "der": 0}
    edges = RelationEdges.compile(config, counts, {"line": chain})
    assert edges.nodes.sizes == (0, 0, 0, 0, 9, 9)  # values of nine sources each way, no query, no key
    fork = torch.tensor([[0, 0, 1], [1, 2, 3]])
    edges = RelationEdges.compile(config, counts, {"line": fork})
    assert edges.nodes.sizes == (0, 1, 0, 2, 2, 3)  # against the direction, bus 0 weighs buses 1 and 2


@pytest.mark.parametrize(("width", "heads"), [(12, 2), (16, 3), (16, 32)])
def test_refuses_sizes_that_do_not_fit(width: int, heads: int) -> None:
    with pytest.raises(ValueError, match="powers of two"):
        AttentionConfig(width=width, heads=heads)


def test_refuses_relations_between_unknown_nodes() -> None:
    with pytest.raises(ValueError, match="consumer"):
        AttentionConfig(nodes=("bus", "substation", "capacitor", "der"))
