"""What is drawn for a case: the same bits on any machine, within the documented ranges, on supplied equipment."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from mycelium.schema import HIDDEN, HOURS, LOW_VOLTAGE_KV, FaultPlace, FaultType
from mycelium.simulate import cases, seeds
from mycelium.simulate.cases import Case, CaseMix, CaseSpace, draw_configuration, draw_fault, draw_variant
from mycelium.simulate.fault import (
    LOWEST_R_OHM,
    N_PHASES,
    OCTAVES_LV,
    OCTAVES_MV,
    X_RANGE,
    Fault,
    faulted_bus,
    place_conductors,
)
from mycelium.simulate.network import Network
from mycelium.simulate.switching import Switching
from tests.simulate.bench import EVERYTHING, network

SEED = 2026

# sha256 of the labels of 50 draws. They change only when what is drawn is changed on purpose, and then every corpus
# must be built again: a difference between two machines is a defect.
LABELS = {
    "lv_town": "d1a99fdfbf8598f28a5b84c532a6f4ab4239f79ddb3f22a1e4e4fb6ba3eda11b",
    "us_suburb": "8990b893ecec9cba285ef9ee2eb257c9ac0d58f2470bd39f539a68d20c27d352",
}


def labels(case: Case) -> bytes:
    """Everything about a case that a loss or a metric may compare, bit by bit."""
    fault = case.fault
    parts: list[object] = [
        case.variant,
        case.profile.day_of_year,
        str(case.switching),
        case.phases_changed,
        np.packbits(case.configuration.switch_open).tobytes().hex(),
        case.configuration.group_phase.astype(np.int8).tobytes().hex(),
    ]
    if fault is not None:
        parts += [str(fault.type), str(fault.place), fault.element, fault.terminal, fault.conductors]
        parts += [float(fault.x).hex(), float(fault.resistance_ohm).hex()]
    return repr(parts).encode()


@pytest.mark.parametrize("feeder", sorted(LABELS))
def test_labels_have_the_same_bits_on_any_machine(feeder: str) -> None:
    source = network(feeder)
    drawn = [source.draw(SEED, number) for number in range(50)]
    assert hashlib.sha256(b"\n".join(labels(case) for case in drawn)).hexdigest() == LABELS[feeder]
    assert {case.fault.type for case in drawn if case.fault} == set(FaultType)
    assert {case.fault.place for case in drawn if case.fault} == set(FaultPlace)
    assert {case.switching for case in drawn} == set(Switching)
    assert {case.variant for case in drawn} == set(range(source.n_variants))
    assert any(case.phases_changed for case in drawn)


_ROUNDED_BY_THE_LIBRARY = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "arcsin", "arccos", "arctan",
    "arctan2", "sinh", "cosh", "tanh", "power", "float_power", "cbrt", "hypot", "angle", "logaddexp",
)  # fmt: skip
_EXACT_DRAWS = {"random", "integers", "permutation", "shuffle"}


class _ExactGenerator:
    """A generator that has only the draws without floating-point functions behind them."""

    def __init__(self, *parts: str | int) -> None:
        self._rng = seeds.generator(*parts)

    def __getattr__(self, name: str) -> Any:
        assert name in _EXACT_DRAWS, f"a label is drawn with '{name}', which may differ between machines"
        return getattr(self._rng, name)


@contextmanager
def _no_floating_functions(patch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a label went through a floating-point function")

    with patch.context() as inner:
        for name in _ROUNDED_BY_THE_LIBRARY:
            inner.setattr(np, name, refuse)
        inner.setattr(cases, "generator", _ExactGenerator)
        yield


@pytest.mark.parametrize("feeder", ["ieee123", "lv_town", "us_suburb"])
def test_drawing_goes_through_no_floating_function(feeder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = network(feeder)
    space = CaseSpace.of(source.published.grid, source.published.recorded)
    assert space.switch_graph.closable.any()  # compares angles with a wide margin: made before, once
    with _no_floating_functions(monkeypatch):
        for number in range(30):
            draw_variant(source.name, SEED, number, source.n_variants, EVERYTHING)
            configuration, _, _ = draw_configuration(space, source.name, SEED, number, EVERYTHING)
            live = space.connectivity.energised(configuration)
            draw_fault(space, configuration, live, source.name, SEED, number, EVERYTHING)
    with _no_floating_functions(monkeypatch), pytest.raises(AssertionError, match="floating-point"):
        np.exp(0.0)


# ---- ranges ------------------------------------------------------------------------------------------------------


def test_the_shares_of_events_are_those_of_the_mix() -> None:
    source = network("lv_town")
    space, n = source.published.space, 600
    mix = CaseMix(variant=0.3, phase_change=0.4, keep_supply=0.35, lose_supply=0.25, fault=0.6)
    variants = [draw_variant("x", SEED, k, 5, mix) for k in range(n)]
    drawn = [draw_configuration(space, "x", SEED, k, mix) for k in range(n)]
    live = space.connectivity.energised(source.published.recorded)
    faults = [draw_fault(space, space.recorded, live, "x", SEED, k, mix) for k in range(n)]
    _assert_share(sum(v > 0 for v in variants), n, 0.3)
    _assert_share(sum(changed > 0 for _, changed, _ in drawn), n, 0.4)
    _assert_share(sum(s is Switching.LOSE for _, _, s in drawn), n, 0.25)
    _assert_share(sum(s is Switching.KEEP for _, _, s in drawn), n, 0.35)
    _assert_share(sum(fault is not None for fault in faults), n, 0.6)
    counts = Counter(v for v in variants if v)
    assert set(counts) == {1, 2, 3, 4} and min(counts.values()) > 0.6 * max(counts.values())


def _assert_share(count: int, n: int, share: float) -> None:
    """Within four standard deviations; the draws are fixed, so this never fails by chance."""
    assert abs(count - share * n) < 4 * np.sqrt(n * share * (1 - share)), f"{count} of {n}, expected {share:.0%}"


def test_events_are_independent_of_each_other() -> None:
    # One event decided by another's random numbers would let a model read one label off another.
    space = network("lv_town").published.space
    mix = CaseMix(variant=0.5, phase_change=0.5, keep_supply=0.5, lose_supply=0.0, fault=0.5)
    live = space.connectivity.energised(space.recorded)
    rows = []
    for k in range(600):
        _, changed, switching = draw_configuration(space, "x", SEED, k, mix)
        fault = draw_fault(space, space.recorded, live, "x", SEED, k, mix)
        rows.append(
            (draw_variant("x", SEED, k, 5, mix) > 0, changed > 0, switching is Switching.KEEP, fault is not None)
        )
    correlation = np.corrcoef(np.array(rows, float).T) - np.eye(4)
    assert np.abs(correlation).max() < 4 / np.sqrt(600)


@pytest.mark.parametrize("feeder", ["ieee13", "ieee123", "lv_town", "lv_fourwire", "us_suburb"])
def test_drawn_faults_are_within_their_documented_ranges(feeder: str) -> None:
    source = network(feeder)
    space, mix = source.published.space, CaseMix(fault=1.0)
    live = space.connectivity.energised(source.published.recorded)
    drawn = [draw_fault(space, space.recorded, live, source.name, SEED, k, mix) for k in range(150)]
    kinds: Counter[tuple[FaultType, FaultPlace]] = Counter()
    for fault in drawn:
        assert fault is not None
        kinds[fault.type, fault.place] += 1
        _assert_in_range(source, fault)
    assert len(kinds) == len(FaultType) * len(FaultPlace)
    by_place = Counter(place for _, place in kinds.elements())
    assert min(by_place.values()) > 150 / 3 * 0.6


def _assert_in_range(source: Network, fault: Fault) -> None:
    grid = source.published.grid
    base_kv = float(grid.bus["base_kv"].iat[faulted_bus(grid, fault)])
    octaves = OCTAVES_LV if base_kv * np.sqrt(3.0) < LOW_VOLTAGE_KV else OCTAVES_MV
    assert LOWEST_R_OHM <= fault.resistance_ohm < LOWEST_R_OHM * 2**octaves
    if fault.place is FaultPlace.LINE:
        assert X_RANGE[0] < fault.x < X_RANGE[1]
        assert not grid.line["switch"].iat[fault.element]
    else:
        assert fault.x == 0.0
    there = place_conductors(grid, fault.place, fault.element, fault.terminal)
    assert len(set(fault.conductors)) == len(fault.conductors) == N_PHASES[fault.type]
    assert set(fault.conductors) <= set(there)
    assert all(c == HIDDEN or 1 <= c <= 3 for c in fault.conductors)


@pytest.mark.parametrize("feeder", ["ieee123", "lv_town", "us_suburb"])
def test_faults_are_on_energised_conductors_only(feeder: str) -> None:
    source = network(feeder)
    space = source.published.space
    mix = CaseMix(variant=0.0, phase_change=0.3, keep_supply=0.5, lose_supply=0.5, fault=1.0)
    some_dead = 0
    for k in range(150):
        configuration, _, _ = draw_configuration(space, source.name, SEED, k, mix)
        live = space.connectivity.energised(configuration)
        fault = draw_fault(space, configuration, live, source.name, SEED, k, mix)
        some_dead += int(not live.all())
        if fault is None:
            continue
        grid, bus = space.grid, faulted_bus(space.grid, fault)
        slots = np.array([_conductor_there(source, configuration.group_phase, fault, c) for c in fault.conductors])
        node = grid.wiring.find(np.full(len(slots), bus), slots)
        assert np.all(node >= 0) and np.all(live[node]), f"case {k}: {fault} is on something dead"
    assert some_dead > 20


def _conductor_there(source: Network, group_phase: np.ndarray, fault: Fault, conductor: int) -> int:
    """Conductor of the bus at terminal 1 that a faulted conductor is tied to."""
    grid = source.published.grid
    if conductor != HIDDEN or grid.wiring.hidden_bus[faulted_bus(grid, fault)]:
        return conductor
    return int(group_phase[int(grid.line["group"].iat[fault.element])]) + 1


@pytest.mark.parametrize("feeder", ["lv_town", "lv_fourwire", "us_suburb", "ieee13"])
def test_a_changed_phase_is_one_the_customer_could_have(feeder: str) -> None:
    source = network(feeder)
    space = source.published.space
    mix = CaseMix(phase_change=1.0, keep_supply=0.0, lose_supply=0.0)
    recorded, moved = source.published.recorded, 0
    for k in range(60):
        configuration, changed, switching = draw_configuration(space, source.name, SEED, k, mix)
        assert switching is Switching.NONE and np.array_equal(configuration.switch_open, recorded.switch_open)
        different = configuration.group_phase != recorded.group_phase
        assert changed == different.sum()
        moved += int(changed > 0)
        for table in ("line", "consumer", "der"):  # raises where a conductor is not there
            assert np.all(source.published.grid.wiring.nodes_of(table, configuration.group_phase) >= -1)
        configuration.check(source.published.grid)
        if len(different) >= 10:
            assert np.mean(different) < 0.6  # some services change, never most of them
    assert moved > 10


def test_a_case_depends_on_network_seed_and_number_alone() -> None:
    source = network("lv_town")
    one = source.draw(SEED, 3)
    source.draw(SEED, 4)
    assert labels(source.draw(SEED, 3)) == labels(one)
    assert np.array_equal(source.draw(SEED, 3).profile.p_mult, one.profile.p_mult)
    others = [source.draw(SEED + 1, 3), source.draw(SEED, 4)]
    assert all(not np.array_equal(other.profile.p_mult, one.profile.p_mult) for other in others)
    assert one.profile.p_mult.shape == (HOURS, len(source.published.grid.consumer))
