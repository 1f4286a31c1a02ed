"""Batches: the disjoint union of samples, small enough to travel, spread out into arrays where the model runs.

Most places of a window are empty, so a Batch carries entries; ``Batch.window`` and ``Batch.targets`` make the dense
tensors, on the device to which the batch was moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mycelium.schema import HOURS
from mycelium.simulate.seeds import generator
from mycelium.window.columns import ENDS, OBJECT, TIERS, Relation, Store, WindowOptions, temporal_columns
from mycelium.window.normalise import Normalisation
from mycelium.window.psi import ColumnTable, transform
from mycelium.window.sample import Sample, SampleId
from mycelium.window.static import GridFeatures
from mycelium.window.supervision import Targets
from mycelium.window.targets import CANDIDATES, NONE, CaseTargets
from mycelium.window.window import Measured, Movable, Window

Ints = npt.NDArray[np.int64]

_CANDIDATE_STORES = (Store.BUS, Store.LINE, OBJECT)  # of ``targets.CANDIDATES``


@dataclass(frozen=True)
class PackedTargets(Movable):
    """Targets on their way.

    Attributes:
        state: Voltage on its base, turned back by the nominal angle. [hour, node]
        place: Place of each node in [bus, phase], flat. [node]
        live: [node]
        phase, switch, dead_switch, tie, fault_class, location: As in ``Targets`` and ``CaseTargets``.
        applicable_phase, applicable_switch: Networks with customers in question, with switches. [network]
    """

    state: Tensor
    place: Tensor
    live: Tensor
    phase: Tensor
    switch: Tensor
    dead_switch: Tensor
    tie: Tensor
    fault_class: Tensor
    location: Tensor
    applicable_phase: Tensor
    applicable_switch: Tensor


@dataclass(frozen=True)
class Batch(Movable):
    """Several samples.

    Attributes:
        samples: Which.
        options: Of their windows.
        counts: Entities by store in all, and of transformer objects.
        static, position, edges, graph, nominal_rad, nominal_valid, legs, base_v: As in ``Window``.
        place, value: Readings by store: place in [hour, entity, column], flat, and value as reported. [reading]
        base, columns: How they are transformed, by store.
        truth: Targets; None of real readings.
    """

    samples: tuple[SampleId, ...]
    options: WindowOptions
    counts: Mapping[str, int]
    static: Mapping[Store, Tensor]
    position: Tensor
    edges: Mapping[Relation, Tensor]
    graph: Mapping[str, Tensor]
    nominal_rad: Tensor
    nominal_valid: Tensor
    legs: Tensor
    base_v: Tensor
    place: Mapping[Store, Tensor]
    value: Mapping[Store, Tensor]
    base: Mapping[Store, Tensor]
    columns: Mapping[Store, ColumnTable]
    truth: PackedTargets | None

    @staticmethod
    def of(parts: Sequence[tuple[GridFeatures, Sample]]) -> Batch:
        """The union of samples, each with the features of its grid."""
        features = [grid for grid, _ in parts]
        samples = [sample for _, sample in parts]
        options = features[0].options
        if any((grid.options, grid.normalisation) != (options, features[0].normalisation) for grid in features):
            raise ValueError("a batch needs samples with one and the same WindowOptions and Normalisation")
        offset = {store: _offsets([grid.counts[store] for grid in features]) for store in features[0].counts}
        static = {store: _join([grid.static[store] for grid in features]) for store in features[0].static}
        static[Store.SUMMARY] = torch.from_numpy(np.stack([sample.observed.summary for sample in samples]))
        place, value = {}, {}
        for store, columns in temporal_columns(options).items():
            place[store], value[store] = _entries(samples, store, offset[store], len(columns))
        targets = [sample.targets for sample in samples if sample.targets is not None]
        return Batch(
            tuple(sample.id for sample in samples),
            options,
            {store: int(starts[-1]) for store, starts in offset.items()},
            static,
            _join([grid.position for grid in features]),
            {relation: _edges(features, relation, offset) for relation in features[0].edges},
            {store: _graph(starts) for store, starts in offset.items()},
            _join([grid.nominal_rad for grid in features]),
            _join([grid.nominal_valid for grid in features]),
            _join([grid.legs for grid in features]),
            _join([grid.base_v for grid in features]),
            place,
            value,
            {store: _join([grid.base[store] for grid in features]) for store in place},
            _column_tables(options, features[0].normalisation),
            _truth(targets, offset) if len(targets) == len(samples) else None,
        )

    def window(self) -> Window:
        """The inputs, dense, on the batch's device."""
        temporal = {}
        for store, columns in temporal_columns(self.options).items():
            shape = (HOURS, self.counts[store], len(columns))
            at = self.place[store].long()
            value = torch.zeros(shape, dtype=torch.float32, device=at.device)
            seen = torch.zeros(shape, dtype=torch.bool, device=at.device)
            value.view(-1).scatter_(0, at, transform(at, self.value[store], self.base[store], self.columns[store]))
            seen.view(-1).index_fill_(0, at, True)
            temporal[store] = Measured(value, seen)
        return Window(
            self.options,
            len(self.samples),
            {**self.static, Store.CONSUMER: _tiers(temporal[Store.CONSUMER].seen)},
            temporal,
            self.position,
            {relation: ends.long() for relation, ends in self.edges.items()},
            self.graph,
            self.nominal_rad,
            self.nominal_valid,
            self.legs,
            self.base_v,
        )

    def targets(self) -> Targets:
        """The truth, dense, on the batch's device; raises ValueError for real readings."""
        truth = self.truth
        if truth is None:
            raise ValueError("these samples have no truth: targets exist of simulated days only")
        n_bus = self.counts[Store.BUS]
        at = truth.place.long()
        dense = torch.zeros((HOURS, n_bus * 3), dtype=torch.complex64, device=at.device)
        dense[:, at] = truth.state
        valid, live = (torch.zeros(n_bus * 3, dtype=torch.bool, device=at.device) for _ in range(2))
        valid[at] = True
        live[at] = truth.live
        live = live.view(n_bus, 3)
        phase = truth.phase.long()
        reported = self._reported()
        every = torch.ones_like(truth.applicable_phase)
        return Targets(
            v_pu=dense.abs().view(HOURS, n_bus, 3),
            angle_rad=torch.where(live, dense.angle().view(HOURS, n_bus, 3), 0.0),
            valid=valid.view(n_bus, 3),
            live=live,
            phase=phase,
            phase_observed=(phase >= 0) & reported,
            switch_open=truth.switch == 1,
            is_switch=truth.switch >= 0,
            dead_switch=truth.dead_switch,
            tie=truth.tie,
            fault_class=truth.fault_class,
            location=truth.location,
            applicable=torch.stack([every, truth.applicable_phase, truth.applicable_switch, every], dim=1),
            samples=self.samples,
        )

    def _reported(self) -> Tensor:
        """Customers with at least one voltage reading. [consumer]"""
        width = len(temporal_columns(self.options)[Store.CONSUMER])
        at = self.place[Store.CONSUMER].long()
        n = self.counts[Store.CONSUMER]
        result = torch.zeros(n, dtype=torch.bool, device=at.device)
        result[(at[at % width == 0] // width) % max(n, 1)] = True
        return result


def _tiers(seen: Tensor) -> Tensor:
    """Best kind of reading of each customer in the window, one-hot, from masks [hour, consumer, (V, P, Q)] alone."""
    voltage, active, reactive = seen.any(dim=0).unbind(dim=-1)
    best = torch.where(reactive, 3, torch.where(active, 2, torch.where(voltage, 1, 0)))
    return torch.nn.functional.one_hot(best, len(TIERS)).to(torch.float32)


def _column_tables(options: WindowOptions, normalisation: Normalisation) -> dict[Store, ColumnTable]:
    return {
        store: ColumnTable.of(store, columns, normalisation) for store, columns in temporal_columns(options).items()
    }


# ---- putting together --------------------------------------------------------------------------------------------


def _offsets(counts: Sequence[int]) -> Ints:
    """Where each part starts, and the total. [part + 1]"""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _join(parts: Sequence[npt.NDArray[Any]]) -> Tensor:
    return torch.from_numpy(np.concatenate(parts))


def _graph(starts: Ints) -> Tensor:
    return torch.from_numpy(np.repeat(np.arange(len(starts) - 1), np.diff(starts)))


def _edges(features: Sequence[GridFeatures], relation: Relation, offset: Mapping[str, Ints]) -> Tensor:
    source, target = (offset[end] for end in ENDS[relation])
    shifted = [
        grid.edges[relation] + np.array([[source[k]], [target[k]]], dtype=np.int32) for k, grid in enumerate(features)
    ]
    return torch.from_numpy(np.concatenate(shifted, axis=1))


def _entries(samples: Sequence[Sample], store: Store, starts: Ints, width: int) -> tuple[Tensor, Tensor]:
    """Readings of a store with places in the union: hours are further apart there."""
    total = int(starts[-1])
    if HOURS * total * width > np.iinfo(np.int32).max:
        raise ValueError(f"a batch of {total} rows of '{store}' is too large; lower the node budget")
    places = []
    for k, sample in enumerate(samples):
        place = sample.observed.entries[store].place
        count = int(starts[k + 1] - starts[k])
        hour = place // np.int32(max(count * width, 1))
        places.append(place + hour * np.int32((total - count) * width) + np.int32(starts[k] * width))
    values = [sample.observed.entries[store].value for sample in samples]
    return torch.from_numpy(np.concatenate(places)), torch.from_numpy(np.concatenate(values))


def _truth(targets: Sequence[CaseTargets], offset: Mapping[str, Ints]) -> PackedTargets:
    place = [truth.place + np.int32(3 * offset[Store.BUS][k]) for k, truth in enumerate(targets)]
    location = np.full(len(targets), NONE, dtype=np.int64)
    first = _offsets([int(offset[store][-1]) for store in _CANDIDATE_STORES])
    for k, truth in enumerate(targets):
        if truth.fault_place != NONE:
            store = _CANDIDATE_STORES[truth.fault_place]
            location[k] = first[truth.fault_place] + offset[store][k] + truth.fault_row
    return PackedTargets(
        state=torch.from_numpy(np.concatenate([truth.state for truth in targets], axis=1)),
        place=_join(place),
        live=_join([truth.live for truth in targets]),
        phase=_join([truth.phase for truth in targets]),
        switch=_join([truth.switch for truth in targets]),
        dead_switch=_join([truth.dead_switch for truth in targets]),
        tie=_join([truth.tie for truth in targets]),
        fault_class=torch.tensor([truth.fault_class for truth in targets]),
        location=torch.from_numpy(location),
        applicable_phase=torch.tensor([bool(np.any(truth.phase >= 0)) for truth in targets]),
        applicable_switch=torch.tensor([bool(np.any(truth.switch >= 0)) for truth in targets]),
    )


# ---- which samples go together -------------------------------------------------------------------------------------


def group_by_size(sizes: Sequence[int], budget: int, *seed: str | int) -> list[list[int]]:
    """Split samples into batches of at most ``budget`` buses, similar sizes together, in an order drawn from the seed.

    A sample larger than the budget is a batch of its own. Every sample is in exactly one batch.

    Args:
        sizes: Buses of each sample.
        budget: Most buses of a batch.
        seed: Names and numbers that the order depends on.
    """
    rng = generator("batches", *seed)
    order = rng.permutation(len(sizes))
    octave = np.array([int(sizes[k]).bit_length() for k in order], dtype=np.int64)
    order = order[np.argsort(octave, kind="stable")]
    batches: list[list[int]] = []
    room = -1
    for k in order.tolist():
        if sizes[k] > room:
            batches.append([])
            room = budget
        batches[-1].append(k)
        room -= sizes[k]
    return [batches[k] for k in rng.permutation(len(batches)).tolist()]


assert len(CANDIDATES) == len(_CANDIDATE_STORES)
