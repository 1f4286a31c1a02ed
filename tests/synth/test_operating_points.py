"""Profiles, coincidence, sampled parameters, snapshots and the acceptance predicate."""

from __future__ import annotations

import numpy as np
import pytest

from mycelium.schema import HOURS
from mycelium.synth.accept import accept
from mycelium.synth.diagnosis import HIGH_PU, LOW_PU
from mycelium.synth.model import State
from mycelium.synth.profiles import (
    ProfileFiles,
    ReferenceYear,
    coincidence_factors,
    day_shapes,
    match_buildings,
    reference_year,
)
from tests.synth.bench import AMERICA, EUROPE, model_of, proposal, workshop

YEAR_H = 8760


def year_of(kw: np.ndarray, homes: int) -> ReferenceYear:
    q = np.abs(kw) / np.abs(kw).max(axis=1, keepdims=True)
    return ReferenceYear(kw.astype(np.float32), q.astype(np.float32), kw.max(axis=1).astype(float), homes)


# ---- profiles ------------------------------------------------------------------------------------------------------


def test_coincidence_is_equation_one_over_all_hours() -> None:
    """Two customers peak at the same odd hour of the year, the third elsewhere; only the whole year shows it."""
    kw = np.full((3, YEAR_H), 0.1)
    kw[0, 8759] = kw[1, 8759] = 1.0
    kw[2, 4000] = 1.0
    nominal, area = np.array([2.0, 3.0, 5.0]), np.array([0, 0, 1])
    eta = coincidence_factors(nominal, area, np.array([0, 1, 2]), year_of(kw, 3))
    assert eta == pytest.approx([1.0, 1.0])
    together = coincidence_factors(nominal, np.zeros(3, int), np.array([0, 1, 2]), year_of(kw, 3))
    assert together == pytest.approx([max(2 + 3 + 0.1 * 5, 0.1 * 5 + 5) / 10], rel=1e-6)


def test_coincidence_scales_with_nominal_demand_and_not_with_the_building() -> None:
    year = reference_year(0, ProfileFiles())
    rng = np.random.default_rng(0)
    nominal, area, building = rng.uniform(1, 9, 40), rng.integers(4, size=40), rng.integers(year.homes, size=40)
    eta = coincidence_factors(nominal, area, building, year)
    assert np.all((eta > 0) & (eta <= 1))
    larger = ReferenceYear(7 * year.kw, year.q_pu, 7 * year.peak_kw, year.homes)
    assert coincidence_factors(3 * nominal, area, building, larger) == pytest.approx(eta, rel=1e-5)


def test_homes_go_to_single_phase_and_larger_buildings_to_larger_loads() -> None:
    year = reference_year(1, ProfileFiles())
    rng = np.random.default_rng(1)
    kw, three = rng.uniform(1, 30, 200), rng.random(200) < 0.3
    building = match_buildings(kw, three, year, rng)
    assert np.all(building[~three] < year.homes) and np.all(building[three] >= year.homes)
    for who in (three, ~three):
        order = np.argsort(kw[who])
        assert np.all(np.diff(year.peak_kw[building[who]][order]) >= 0)


def test_the_day_is_the_date_of_the_year_for_all() -> None:
    year = reference_year(2, ProfileFiles())
    building = np.array([3, 3, 410])
    shapes = day_shapes(building, year, 200, 4, 40, ProfileFiles(), np.random.default_rng(0))
    own = year.kw[building, 199 * HOURS : 200 * HOURS] / year.peak_kw[building, None]
    assert shapes.p == pytest.approx(own, abs=1e-5)
    assert np.array_equal(shapes.p[0], shapes.p[1]) and shapes.p.max() <= 1
    assert np.abs(year.q_pu).max(axis=1) == pytest.approx(1.0)
    # One sun for all sites, each a little its own.
    assert shapes.pv.shape == (4, HOURS) and shapes.pv[:, 0].max() == 0
    assert np.corrcoef(shapes.pv)[0, 1:].min() > 0.5 and not np.array_equal(shapes.pv[0], shapes.pv[1])


def test_files_of_profiles_are_used(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("profiles") / "homes.npz"
    kw = np.random.default_rng(0).uniform(0.1, 3, (5, YEAR_H)).astype(np.float32)
    np.savez(path, names=np.array([f"home {k}" for k in range(5)]), x=kw)
    year = reference_year(0, ProfileFiles(residential=path))
    assert year.homes == 5 and np.allclose(year.kw[:5], kw)
    assert len(year.kw) == 5 + len(reference_year(0, ProfileFiles()).kw) - 400


# ---- sampled parameters --------------------------------------------------------------------------------------------


def test_parameters_are_drawn_as_asked() -> None:
    shop = workshop(20, 10_000)
    drawn = [shop.parameters(number) for number in range(400)]
    shares = [p.demand_lambda for p in drawn]
    assert 0.2 <= min(shares) < 0.21 and 0.39 < max(shares) <= 0.4
    assert np.mean(shares) == pytest.approx(0.3, abs=0.01)
    assert np.mean([p.thermal for p in drawn]) == pytest.approx(0.7, abs=0.07)
    sizes = np.log([p.target_buses for p in drawn])
    assert np.exp(sizes.min()) < 25 and np.exp(sizes.max()) > 8000
    middle = (np.log(20) + np.log(10_000)) / 2
    assert np.mean(sizes < middle) == pytest.approx(0.5, abs=0.08)
    regions = {p.convention.region for p in drawn}
    assert regions == {AMERICA, EUROPE}


def test_climate_sun_and_geography_are_drawn_apart() -> None:
    """Every climate meets every solar region; the pattern of the town follows neither."""
    shop = workshop(20, 10_000)
    drawn = [shop.parameters(number) for number in range(400)]
    pairs = {(p.climate, p.latitude_deg) for p in drawn}
    assert len(pairs) == len({p.climate for p in drawn}) * len({p.latitude_deg for p in drawn})
    place = [int(shop.rng(number, "place").integers(3)) for number in range(400)]
    for values in ([p.climate for p in drawn], [p.latitude_deg for p in drawn]):
        assert abs(np.corrcoef(place, values)[0, 1]) < 0.15


# ---- snapshots -----------------------------------------------------------------------------------------------------


def test_snapshot_inputs_are_equation_two() -> None:
    _, found = proposal(AMERICA, 100, pv=1.0)
    model = model_of(found)
    design, inputs = model.design, found.inputs
    alt = model._engine.alt
    loads = list(design.loads.values())
    assert design.pvs
    assert model.snapshot_a().converged
    eta = [inputs.eta[load.customer] for load in loads]
    assert np.asarray(alt.Load.kW.to_array()) == pytest.approx([e * x.kw for e, x in zip(eta, loads, strict=True)])
    assert np.asarray(alt.Load.kvar.to_array()) == pytest.approx([e * x.kvar for e, x in zip(eta, loads, strict=True)])
    powers = sum(complex(p) for pv in alt.PVSystem for p in pv.Powers())
    assert abs(powers.real) < 0.01 * sum(pv.kw for pv in design.pvs.values())
    assert model.snapshot_b().converged
    assert np.asarray(alt.Load.kW.to_array()) == pytest.approx([inputs.demand_lambda * x.kw for x in loads])
    powers = sum(complex(p) for pv in alt.PVSystem for p in pv.Powers())
    assert -powers.real == pytest.approx(sum(pv.kw for pv in design.pvs.values()), rel=0.02)


def test_one_eta_per_transformer() -> None:
    _, found = proposal(EUROPE, 150)
    by_area: dict[int, set[float]] = {}
    for load in found.design.loads.values():
        by_area.setdefault(load.area, set()).add(float(found.inputs.eta[load.customer]))
    assert all(len(values) == 1 for values in by_area.values())


def test_solving_again_gives_the_same_voltages() -> None:
    """Whatever was solved before: regulators and capacitors begin anew. Volt-var controls remember."""
    number = next(k for k in range(30) if proposal(AMERICA, 200, k)[1].design.regulators)
    _, found = proposal(AMERICA, 200, number)
    model = model_of(found, demand=2.0)
    first = model.snapshot_a(), model.snapshot_b(), *model.day()
    again = model.snapshot_a(), model.snapshot_b(), *model.day()
    assert max(np.abs(x.v_pu - y.v_pu).max() for x, y in zip(first, again, strict=True)) < 1e-7


# ---- acceptance ----------------------------------------------------------------------------------------------------


def state(*v_pu: float, loading: tuple[float, float] = (0.5, 0.5)) -> State:
    return State(True, np.array(v_pu), np.array(loading))


LINE = np.array([True, False])
GOOD = state(0.96, 1.04)
DEAD = State(False, np.zeros(0), np.zeros(0))


def reasons(a: State = GOOD, b: State = GOOD, hour: State = GOOD, thermal: bool = True) -> tuple[str, ...]:
    day = [GOOD] * (HOURS - 1) + [hour]
    return accept(a, b, day, LINE, thermal).reasons


def test_what_is_within_the_limits_is_accepted() -> None:
    edge = state(LOW_PU, HIGH_PU, loading=(1.0, 1.0))
    assert accept(edge, edge, [edge] * HOURS, LINE, True).accepted


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ({"a": state(0.949, 1.0)}, "low voltage: snapshot A"),
        ({"b": state(0.949, 1.0)}, "low voltage: snapshot B"),
        ({"b": state(0.97, 1.051)}, "high voltage: snapshot B"),
        ({"hour": state(0.949, 1.0)}, "low voltage: day"),
        ({"hour": state(0.97, 1.051)}, "high voltage: day"),
        ({"hour": state(0.0, 0.05)}, "collapsed: hour 23"),
        ({"a": DEAD}, "no convergence: snapshot A"),
        ({"hour": DEAD}, "no convergence: hour 23"),
        ({"a": state(0.97, 1.0, loading=(1.01, 0.5))}, "overload: snapshot A"),
        ({"b": state(0.97, 1.0, loading=(0.5, 1.01))}, "overload: snapshot B"),
        ({"hour": state(0.97, 1.0, loading=(1.01, 0.5))}, "overload: day"),
    ],
)
def test_each_limit_rejects(kind: dict[str, State], expected: str) -> None:
    found = reasons(**kind)
    assert len(found) == 1 and found[0].startswith(expected)


def test_what_the_paper_lets_pass() -> None:
    assert not reasons(a=state(0.96, 1.2))  # snapshot A has no upper limit
    assert not reasons(hour=state(0.05, 0.96))  # a floating tie node
    assert not reasons(hour=state(0.97, 1.0, loading=(0.5, 1.5)))  # transformers are rated in the snapshots only
    hot = state(0.97, 1.0, loading=(3.0, 3.0))
    assert not accept(hot, hot, [hot] * HOURS, LINE, thermal=False).reasons


def test_a_day_that_stopped_is_no_day() -> None:
    assert accept(GOOD, GOOD, [GOOD] * 5, LINE, True).reasons == ("no convergence: hour 4",)
