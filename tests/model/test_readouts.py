"""Readouts: each equals the formulas of the paper, written out here another way."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from mycelium.grid.nominal_angle import wrap
from mycelium.model.fault import EventReadout, FaultReadout
from mycelium.model.phase import PhaseReadout
from mycelium.model.readout import Context
from mycelium.model.state import CausalConvolution, StateReadout
from mycelium.model.switch import SwitchReadout
from mycelium.schema import HOURS
from mycelium.window.columns import OBJECT, Relation, Store, names, static_columns
from mycelium.window.window import Window
from tests.model.windows import SMALL, double, union

WIDTH = SMALL.width


def context_of(window: Window, seed: int = 0) -> Context:
    """Random states in place of a backbone's."""
    draw = torch.Generator().manual_seed(seed)

    def states(n: int, width: int = WIDTH) -> Tensor:
        return torch.randn(HOURS, n, width, generator=draw, dtype=torch.float64)

    return Context(
        nodes={store: states(len(window.graph[store])) for store in (Store.BUS, Store.CONSUMER)},
        branches={store: states(len(window.graph[store])) for store in (Store.LINE, Store.TRANSFORMER)},
        network=states(window.n_graphs, 3 * WIDTH),
    )


@pytest.fixture(scope="module")
def window() -> Window:
    return double(union()[0])


def prepared(readout: nn.Module) -> nn.Module:
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in readout.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return readout.double().eval()


# ---- state -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dilation", [1, 2, 4, 8])
def test_convolutions_are_causal_dilated_ones_with_zeros_before_the_first_hour(dilation: int) -> None:
    block = prepared(CausalConvolution(SMALL, dilation))
    z = torch.randn(HOURS, 5, WIDTH, dtype=torch.float64)
    kernel = torch.stack([tap.weight for tap in reversed(block.taps)], dim=-1)  # conv1d's last tap is the present
    padded = functional.pad(z.permute(1, 2, 0), (2 * dilation, 0))
    convolved = functional.conv1d(padded, kernel, block.taps[0].bias, dilation=dilation).permute(2, 0, 1)
    torch.testing.assert_close(block(z), block.norm(z + functional.silu(convolved)), rtol=0, atol=1e-12)


def test_four_blocks_see_the_whole_day_before_and_nothing_after(window: Window) -> None:
    readout = prepared(StateReadout(SMALL))
    assert [block.dilation for block in readout.refine] == [1, 2, 4, 8]
    z = torch.randn(HOURS, 1, WIDTH, dtype=torch.float64, requires_grad=True)
    for hour in (0, 11, HOURS - 1):
        (gradient,) = torch.autograd.grad(readout.refine(z)[hour].square().sum(), z)
        reached = gradient.flatten(1).any(dim=1)
        assert reached[: hour + 1].all() and not reached[hour + 1 :].any()


def test_voltages_are_near_one_and_angles_within_a_turn(window: Window) -> None:
    readout = prepared(StateReadout(SMALL))
    context = context_of(window)
    found = readout(window, context)
    raw = readout.output(readout.refine(context.nodes[Store.BUS]))
    torch.testing.assert_close(found["v_pu"], 1.0 + raw[..., :3] / 100.0)
    free = ~window.legs
    torch.testing.assert_close(found["angle_rad"][:, free], (torch.pi * raw[..., 3:].tanh())[:, free])
    assert float(found["angle_rad"].detach().abs().max()) <= torch.pi


@pytest.mark.parametrize("nominal_angle", [True, False])
def test_legs_of_a_centre_tap_are_opposite(nominal_angle: bool) -> None:
    """As phasors with their nominal angles, with the angle reference and without it."""
    window = double(union(replace(SMALL.window, nominal_angle=nominal_angle))[0])
    assert window.legs.sum() > 10
    found = prepared(StateReadout(SMALL))(window, context_of(window))["angle_rad"].detach()
    absolute = found + window.nominal_rad
    apart = wrap((absolute[..., 0] - absolute[..., 1])[:, window.legs].numpy() + math.pi)
    assert abs(apart).max() < 1e-6  # nominal angles are of float32
    assert bool(window.nominal_rad.any()) == nominal_angle


def test_the_first_answer_is_the_nominal_voltage(window: Window) -> None:
    found = StateReadout(SMALL).double()(window, context_of(window))
    assert (found["v_pu"] == 1.0).all()
    assert float(found["angle_rad"].detach().abs().max()) < 1e-6


# ---- phase -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("linked", [False, True])
def test_phases_are_of_projected_values_weighed_over_all_hours(linked: bool) -> None:
    config = replace(SMALL, window=replace(SMALL.window, phase_head=linked))
    window = double(union(config.window)[0])
    readout = prepared(PhaseReadout(config))
    context = context_of(window)
    bus, network = context.nodes[Store.BUS], readout.network(context.network)
    seen = window.consumer_voltage_seen
    assert 0 < int(seen.sum()) < seen.numel()
    found = readout(window, context)["phase"]
    served = dict(zip(*window.edges[Relation.PHASE_HEAD].tolist(), strict=True))
    for consumer, at in window.edges[Relation.SERVICE].T.tolist():
        parts = [context.nodes[Store.CONSUMER][:, consumer], bus[:, at]]
        parts.append(network[:, window.graph[Store.CONSUMER][consumer]])
        if linked:
            parts.append(bus[:, served[consumer]] if consumer in served else torch.zeros_like(bus[:, at]))
        x = torch.cat(parts, dim=-1)
        score = readout.score(torch.cat([x, seen[:, consumer, None].double()], dim=-1))
        pooled = (torch.softmax(score, dim=0) * readout.project(x)).sum(dim=0)
        torch.testing.assert_close(found[consumer], readout.head(pooled), rtol=0, atol=1e-12)
    assert bool(served) == linked


# ---- switch ----------------------------------------------------------------------------------------------------------


def test_switches_fuse_three_summaries_and_other_lines_are_not_asked(window: Window) -> None:
    readout = prepared(SwitchReadout(SMALL))
    context = context_of(window)
    found = readout(window, context)["switch"]
    flag = names(static_columns(SMALL.window)[Store.LINE]).index("switch")
    is_switch = window.static[Store.LINE][:, flag] == 1.0
    assert torch.equal(found.isnan(), ~is_switch)
    assert torch.equal(is_switch, union()[1].is_switch)
    bus = context.nodes[Store.BUS]
    for line in is_switch.nonzero().ravel().tolist():
        first, second = window.edges[Relation.LINE][:, line]
        x = torch.cat([bus[:, first], bus[:, second], context.branches[Store.LINE][:, line]], dim=-1)
        seen = window.line_current_seen[:, line, None].double()
        weight = torch.softmax(readout.score(torch.cat([x, seen], dim=-1)), dim=0)
        summary = torch.cat([(weight * x).sum(dim=0), x.mean(dim=0), x.max(dim=0).values])
        torch.testing.assert_close(found[line], readout.head(readout.fuse(summary))[0], rtol=0, atol=1e-12)


# ---- fault -----------------------------------------------------------------------------------------------------------


def test_an_event_is_the_last_hour_against_an_attended_history() -> None:
    readout = prepared(EventReadout(SMALL))
    x = torch.randn(HOURS, 7, WIDTH, dtype=torch.float64)
    weight = torch.stack([readout.score(x[t] + readout.position[t]) for t in range(HOURS - 1)]).softmax(dim=0)
    before = sum(weight[t] * x[t] for t in range(HOURS - 1))
    last = x[-1]
    expected = readout.event(torch.cat([last, before, last - before, (last - before).abs()], dim=-1))
    torch.testing.assert_close(readout(x), expected, rtol=0, atol=1e-12)


def test_candidates_are_buses_lines_and_transformers_scored_alike(window: Window) -> None:
    readout = prepared(FaultReadout(SMALL))
    context = context_of(window)
    found = readout(window, context)
    bus = context.nodes[Store.BUS]
    sequences = [bus[:, k] for k in range(window.n_buses)]
    for store, rows in (
        (Store.LINE, range(len(window.graph[Store.LINE]))),
        (Store.TRANSFORMER, window.transformer_edge),
    ):
        for k in rows:
            first, second = window.edges[Relation(store.value)][:, k]
            x = torch.cat([bus[:, first], bus[:, second], context.branches[store][:, k]], dim=-1)
            sequences.append(readout.edge(x))
    candidate = readout.candidate(torch.stack(sequences, dim=1))
    network = readout.graph(readout.network(context.network, window.static[Store.SUMMARY]))
    graph = window.candidate_graph
    assert len(graph) == len(candidate) == window.n_buses + len(window.graph[Store.LINE]) + len(window.graph[OBJECT])
    for k in range(len(candidate)):
        score = readout.locate(torch.cat([candidate[k], network[graph[k]]]))[0]
        torch.testing.assert_close(found["location"][k], score, rtol=0, atol=1e-12)
    for k in range(window.n_graphs):
        evidence = candidate[graph == k].max(dim=0).values
        logits = readout.classify(torch.cat([network[k], evidence]))
        torch.testing.assert_close(found["fault"][k], logits, rtol=0, atol=1e-12)


def test_summaries_of_the_whole_day_enter_at_the_last_hour_only(window: Window) -> None:
    readout = prepared(FaultReadout(SMALL)).network
    network = context_of(window).network
    summary = window.static[Store.SUMMARY]
    assert any(name.startswith("tap") for name in names(static_columns(SMALL.window)[Store.SUMMARY]))
    straight, other = readout(network, summary), readout(network, summary + 1.0)
    assert torch.equal(straight[:-1], other[:-1])
    assert (straight[-1] != other[-1]).any(dim=1).all()
