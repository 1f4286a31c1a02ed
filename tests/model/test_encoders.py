"""Encoders and fusion: inputs side by side, parameters shared, terminals averaged into buses and transformers."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from mycelium.model.encoders import Encoder, PositionEncoder
from mycelium.model.fusion import Encoders
from mycelium.model.segments import graph_mean, segment_log_softmax, segment_max, segment_mean
from mycelium.schema import HOURS
from mycelium.window.columns import BRANCHES, NODES, OBJECT, Relation, Store
from mycelium.window.window import Measured
from tests.model.windows import SMALL, double, union


@pytest.mark.parametrize(("n_static", "n_temporal"), [(3, 0), (3, 2), (0, 2)])
def test_an_encoder_takes_static_columns_readings_and_masks_side_by_side(n_static: int, n_temporal: int) -> None:
    torch.manual_seed(0)
    encoder = Encoder(n_static, n_temporal, 8).double()
    static = torch.randn(5, n_static, dtype=torch.float64)
    value = torch.randn(HOURS, 5, n_temporal, dtype=torch.float64)
    seen = torch.rand(HOURS, 5, n_temporal) < 0.5
    columns = torch.cat([static.expand(HOURS, -1, -1), value * seen, seen.double()], dim=-1)
    expected = encoder.norm(encoder.second(functional.silu(encoder.first(columns))))
    readings = [Measured(value, seen)] if n_temporal else []
    torch.testing.assert_close(encoder(static, readings), expected, rtol=0, atol=1e-12)


def test_readings_of_several_stores_follow_each_other() -> None:
    torch.manual_seed(0)
    encoder = Encoder(0, 5, 8)
    parts = [Measured(torch.randn(HOURS, 3, n), torch.rand(HOURS, 3, n) < 0.5) for n in (2, 3)]
    columns = [side for part in parts for side in (part.value * part.seen, part.seen.float())]
    expected = encoder.norm(encoder.second(functional.silu(encoder.first(torch.cat(columns, dim=-1)))))
    torch.testing.assert_close(encoder(torch.zeros(3, 0), parts), expected)


def test_positions_are_sixteen_normalised_channels() -> None:
    embedded = PositionEncoder(9, 16)(torch.randn(4, 9))
    assert embedded.shape == (4, 16)
    torch.testing.assert_close(embedded.mean(dim=1), torch.zeros(4), rtol=0, atol=1e-6)


def test_terminals_are_averaged_into_their_bus_and_into_all_edges_of_their_transformer() -> None:
    window = double(union()[0])
    torch.manual_seed(0)
    encoders = Encoders(SMALL).double()
    found = encoders(window)
    terminal = encoders.terminal(window.static[Store.TERMINAL], [window.temporal[Store.TERMINAL]])
    bus_input = torch.cat([window.static[Store.BUS], encoders.position(window.position)], dim=-1)
    bus = encoders.node[Store.BUS](bus_input, [window.temporal[Store.BUS]])
    at = window.edges[Relation.TERMINAL_BUS][1]
    for k in range(window.n_buses):
        here = (at == k).nonzero().ravel()
        added = encoders.to_bus(terminal[:, here].mean(dim=1)) if len(here) else 0.0
        torch.testing.assert_close(found.nodes[Store.BUS][:, k], bus[:, k] + added, rtol=0, atol=1e-12)
    branch = encoders.branch[Store.TRANSFORMER](window.static[Store.TRANSFORMER], []).expand(HOURS, -1, -1)
    owner = window.edges[Relation.TERMINAL_OBJECT][1]
    for unit, edge in window.edges[Relation.OBJECT_EDGE].T.tolist():
        added = encoders.to_branch(terminal[:, owner == unit].mean(dim=1))
        torch.testing.assert_close(
            found.branches[Store.TRANSFORMER][:, edge], branch[:, edge] + added, rtol=0, atol=1e-12
        )
    assert len(window.graph[OBJECT]) > 1


def test_every_kind_has_a_state_for_every_hour() -> None:
    window, _ = union()
    found = Encoders(SMALL)(window)
    for store in NODES:
        assert found.nodes[store].shape == (HOURS, len(window.graph[store]), SMALL.width)
    for store in BRANCHES:
        assert found.branches[store].shape == (HOURS, len(window.graph[store]), SMALL.width)
    assert found.head.shape == (HOURS, window.n_graphs, SMALL.width)


SEGMENT = torch.tensor([2, 0, 2, 2, 4])


def test_segments_without_members_are_zero() -> None:
    values = torch.arange(10.0).view(1, 5, 2)
    mean = segment_mean(values, SEGMENT, 6)[0]
    assert mean[[1, 3, 5]].abs().sum() == 0
    assert torch.equal(mean[2], values[0, [0, 2, 3]].mean(dim=0)) and torch.equal(mean[0], values[0, 1])
    highest = segment_max(-values[0] - 1.0, SEGMENT, 6)
    assert torch.equal(highest[2], -values[0, 0] - 1.0) and highest[[1, 3, 5]].abs().sum() == 0


def test_means_of_networks_are_means_of_segments() -> None:
    values = torch.randn(3, 5, 2)
    torch.testing.assert_close(graph_mean(values, SEGMENT, 6), segment_mean(values, SEGMENT, 6))


def test_softmax_within_segments_sums_to_one_and_is_safe() -> None:
    score = torch.tensor([1e6, 3.0, 1e6, 1e6 - 1.0, -1e6])
    chance = segment_log_softmax(score, SEGMENT, 5).exp()
    torch.testing.assert_close(chance[[1, 4]], torch.ones(2))
    torch.testing.assert_close(chance[[0, 2, 3]], torch.softmax(torch.tensor([1.0, 1.0, 0.0]), dim=0))
