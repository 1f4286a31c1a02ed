"""Windows for tests of the model: days of bundled feeders with every kind of node, edge and question between them."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from mycelium.model.config import MyceliumConfig
from mycelium.model.estimates import Estimates
from mycelium.window.batch import Batch
from mycelium.window.columns import BRANCHES, ENDS, OBJECT, Relation, Store, WindowOptions
from mycelium.window.normalise import Normalisation
from mycelium.window.supervision import Targets
from mycelium.window.temporal import Observer
from mycelium.window.window import Measured, Window, map_tensors
from tests.sense.networks import FAULTED
from tests.window.render import Case, case_of

T = TypeVar("T")

# Reactor and hidden phases; centre taps, switches, capacitor and DER; regulators and a second capacitor.
FEEDERS = ("lv_fourwire", "us_suburb", "ieee13")
PAPER_INPUTS = MyceliumConfig.paper().window
SMALL = MyceliumConfig(width=16, heads=2, layers=2, feedforward=24, position=4, window=PAPER_INPUTS)


def cases(policy: str = "noisy_missing_medium") -> list[Case]:
    return [case_of(feeder, FAULTED, policy) for feeder in FEEDERS]


# As computed from training networks: a voltage moves by hundredths.
SPREADS = Normalisation(
    {}, {store: {"voltage_v": (0.0, 0.03), "angle_deg": (0.0, 0.03)} for store in ("bus", "terminal", "consumer")}
)


def normalised(case: Case, options: WindowOptions = PAPER_INPUTS) -> tuple[Window, Targets]:
    """A window of one day with inputs of the size that training has."""
    _, sample = case.part(options)
    features = case.features(options, SPREADS)
    batch = Batch.of([(features, replace(sample, observed=Observer.of(features).observe(case.readings)))])
    return batch.window(), batch.targets()


@functools.cache
def union(options: WindowOptions = PAPER_INPUTS) -> tuple[Window, Targets]:
    batch = Batch.of([case.part(options) for case in cases()])
    return batch.window(), batch.targets()


def alone(options: WindowOptions = PAPER_INPUTS) -> list[Window]:
    return [Batch.of([case.part(options)]).window() for case in cases()]


def double(thing: T) -> T:
    """The same in float64."""
    return map_tensors(thing, lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)


def answers(estimates: Estimates) -> dict[str, Tensor]:
    return vars(estimates)


def rows_of(window: Window, name: str) -> tuple[Tensor, int]:
    """Network of every row of an answer, and the dimension of its rows."""
    graph = {
        "phase": window.graph[Store.CONSUMER],
        "switch": window.graph[Store.LINE],
        "fault": torch.arange(window.n_graphs),
        "location": window.candidate_graph,
    }
    return graph.get(name, window.graph[Store.BUS]), 1 if name in ("v_pu", "angle_rad") else 0


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name], value, rtol=0, atol=tolerance, equal_nan=True, msg=lambda m, n=name: n + m
        )


# ---- relabelling -----------------------------------------------------------------------------------------------------


def relabelled(window: Window, seed: int) -> tuple[Window, dict[str, Tensor]]:
    """The same window with entities of every kind, edges and networks in another order; and which stood where now."""
    draw = torch.Generator().manual_seed(seed)
    order = {store: torch.randperm(len(graph), generator=draw) for store, graph in window.graph.items()}
    for network in (Store.GRID, Store.POWER_FLOW):  # stores of networks, one row each
        order[network] = order[Store.SUMMARY]
    place = {store: torch.argsort(rows) for store, rows in order.items()}
    edges = {}
    for relation, ends in window.edges.items():
        source, target = ENDS[relation]
        pair = torch.stack([place[source][ends[0]], place[target][ends[1]]])
        is_store = relation.value in BRANCHES  # whose rows are its edges
        edges[relation] = pair[:, order[relation.value] if is_store else torch.randperm(pair.shape[1], generator=draw)]
    assert edges[Relation.OBJECT_EDGE].shape[1] == len(order[OBJECT]), "a transformer with two edges prefers the first"
    moved = replace(
        window,
        static={store: values[order[store]] for store, values in window.static.items()},
        temporal={
            store: Measured(part.value[:, order[store]], part.seen[:, order[store]])
            for store, part in window.temporal.items()
        },
        edges=edges,
        graph={store: place[Store.SUMMARY][graph[order[store]]] for store, graph in window.graph.items()},
        **{name: getattr(window, name)[order[Store.BUS]] for name in _OF_BUSES},
    )
    return moved, order


_OF_BUSES = ("position", "nominal_rad", "nominal_valid", "legs", "base_v")


def put_back(estimates: Estimates, order: dict[str, Tensor]) -> dict[str, Tensor]:
    """Answers of a relabelled window in the order of the first one."""
    candidates, start = [], 0
    for store in (Store.BUS, Store.LINE, OBJECT):
        candidates.append(torch.argsort(order[store]) + start)
        start += len(order[store])
    bus = torch.argsort(order[Store.BUS])
    return {
        "v_pu": estimates.v_pu[:, bus],
        "angle_rad": estimates.angle_rad[:, bus],
        "phase": estimates.phase[torch.argsort(order[Store.CONSUMER])],
        "switch": estimates.switch[torch.argsort(order[Store.LINE])],
        "fault": estimates.fault[torch.argsort(order[Store.SUMMARY])],
        "location": estimates.location[torch.cat(candidates)],
    }
