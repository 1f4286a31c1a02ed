"""Errors and losses of readings: as large and as frequent as the policy says, each on its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import chi2, kstest, norm

from mycelium.schema import CHANNELS, HOURS, Quantity
from mycelium.sense.measure import DEMAND, SHOWN, Meters
from mycelium.sense.noise import Disturber
from mycelium.sense.policies import NOISE, POLICIES, Noise
from mycelium.sense.readings import Readings
from mycelium.sense.sense import sense
from tests.conftest import ReferenceNetworks
from tests.sense.networks import QUIET, bundled, day_of, meters_of, open_network, shown, total

Floats = npt.NDArray[np.float64]

TEN = [
    "ieee13", "ieee34", "ieee123", "lv_town", "lv_fourwire", "us_suburb",
    "enwl", "four-wire", "smartds", "ieee 8500", "ckt5", "dsuite",
]  # fmt: skip
DEGRADED = [name for name in POLICIES if name != "clean"]
SIGMA = {  # of the appendix
    Quantity.VOLTAGE: 0.002, Quantity.ANGLE: 0.02, Quantity.CURRENT: 0.01, Quantity.ACTIVE: 0.02,
    Quantity.REACTIVE: 0.02,
}  # fmt: skip
RARE = 1e-6  # a right sensor model fails a check this seldom; there are hundreds of checks


def at_places(meters: Meters, readings: Readings, key: str) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Values and arrivals where the channel has instruments. [hour, entry]"""
    value, seen = (x[key].reshape(HOURS, -1)[:, meters.places[key]] for x in (readings.value, readings.seen))
    return value.astype(np.float64), seen


def standard_errors(meters: Meters, exact: Floats, key: str, readings: Readings) -> Floats:
    """Errors of the readings that arrived, over their standard deviation. [reading]"""
    value, seen = at_places(meters, readings, key)
    quantity = CHANNELS[key].quantity
    sigma = SIGMA[quantity]
    if quantity is Quantity.ANGLE:
        return np.asarray((np.mod(value - exact + 180.0, 360.0) - 180.0)[seen] / sigma)
    live = seen & (np.abs(exact) > 1e-6)
    return np.asarray((value[live] / exact[live] - 1.0) / sigma)


@pytest.mark.parametrize("name", TEN)
def test_errors_have_the_size_of_the_appendix(name: str, reference_network: ReferenceNetworks) -> None:
    network = open_network(name, reference_network)
    day = day_of(network, QUIET)
    for policy in ("noisy_missing_dense", "observability_ami_dense"):
        meters = meters_of(network.published.grid, policy, name)
        measured = meters.read(day)
        samples = max(1, 20_000 // max(len(meters.places["bus.voltage_v"]) * HOURS, 1))
        pooled: dict[str, list[Floats]] = {key: [] for key in SHOWN if key != "winding.tap_pu"}
        for sample in range(min(samples, 25)):
            readings = sense(meters, day, sample)
            for key, found in pooled.items():
                found.append(standard_errors(meters, shown(meters, measured, key), key, readings))
        for key, found in pooled.items():
            z = np.concatenate(found)
            if len(z) < 100:
                continue
            assert abs(z.mean()) * np.sqrt(len(z)) < norm.ppf(1 - RARE / 2), key
            low, high = chi2.ppf([RARE / 2, 1 - RARE / 2], len(z)) / len(z)
            assert low < np.mean(z**2) < high, key
            assert kstest(z[:5000], "norm").pvalue > RARE, key


@pytest.mark.parametrize("policy", DEGRADED)
@pytest.mark.parametrize("name", TEN)
def test_losses_are_as_frequent_as_in_the_appendix(
    name: str, policy: str, reference_network: ReferenceNetworks
) -> None:
    network = open_network(name, reference_network)
    day, meters = day_of(network, QUIET), meters_of(network.published.grid, policy, name)
    lost: dict[float, list[npt.NDArray[np.bool_]]] = {0.01: [], 0.05: []}
    of = {Quantity.VOLTAGE: 0.01, Quantity.ANGLE: 0.01}
    for sample in range(5 if len(network.published.grid.bus) < 1000 else 1):
        readings = sense(meters, day, sample)
        for key in SHOWN:
            if key != "winding.tap_pu":
                seen = at_places(meters, readings, key)[1]
                lost[of.get(CHANNELS[key].quantity, 0.05)].append(~seen.ravel())
        taps = at_places(meters, readings, "winding.tap_pu")
        assert taps[1].all() and np.array_equal(taps[0].astype(np.float32), day.tap_pu.astype(np.float32))
    for share, parts in lost.items():
        every = np.concatenate(parts)
        off = abs(every.mean() - share) / np.sqrt(share * (1 - share) / len(every))
        assert off < norm.ppf(1 - RARE / 2), f"{share}: {every.mean()} of {len(every)}"


def test_each_reading_is_lost_on_its_own() -> None:
    network = bundled("us_suburb")
    grid, day = network.published.grid, day_of(network, QUIET)
    noise = replace(NOISE, voltage_missing=0.3, power_missing=0.3, current_missing=0.3)
    meters = meters_of(grid, replace(POLICIES["clean"], name="lossy", noise=noise))
    volts, angles, amps, kw, kvar = (
        ~np.concatenate([at_places(meters, sense(meters, day, k), key)[1] for k in range(20)])
        for key in ("bus.voltage_v", "bus.angle_deg", "line.current_a", "line.active_power_kw",
                    "line.reactive_power_kvar")
    )  # fmt: skip
    phasor = volts[:, meters.phasor]
    pairs = {
        "magnitude and angle": (phasor, angles),
        "current and power": (amps, kw),
        "active and reactive": (kw, kvar),
        "hour and hour before": (volts[1:], volts[:-1]),
        "element and neighbour": (volts[:, 1:], volts[:, :-1]),
    }
    for what, (one, other) in pairs.items():
        both, n = (one & other).mean(), one.size
        expected = one.mean() * other.mean()
        assert abs(both - expected) < 4 * np.sqrt(expected * (1 - expected) / n), what


def test_errors_of_different_readings_are_not_related() -> None:
    network = bundled("us_suburb")
    day = day_of(network, QUIET)
    meters = meters_of(network.published.grid, replace(POLICIES["clean"], name="noisy", noise=replace(
        NOISE, voltage_missing=0.0, power_missing=0.0, current_missing=0.0)))  # fmt: skip
    measured = meters.read(day)
    z = {
        key: standard_errors(meters, shown(meters, measured, key), key, sense(meters, day, 1))
        for key in ("consumer.active_power_kw", "consumer.reactive_power_kvar", "consumer.voltage_v")
    }
    p, q, v = z.values()
    n = min(len(p), len(q), len(v))
    for one, other in ((p, q), (p, v), (p[1:], p[:-1])):
        k = min(n, len(one), len(other))
        assert abs(np.corrcoef(one[:k], other[:k])[0, 1]) < 4 / np.sqrt(k)


def test_the_same_sample_gives_the_same_readings_and_another_gives_others() -> None:
    network = bundled("lv_town")
    day, meters = day_of(network, QUIET), meters_of(network.published.grid, "noisy_missing_dense")
    one, same, other = (sense(meters, day, "evaluation", k) for k in (1, 1, 2))
    for key in CHANNELS:
        assert one.value[key].tobytes() == same.value[key].tobytes()
        assert one.seen[key].tobytes() == same.seen[key].tobytes()
    assert any(not np.array_equal(one.seen[key], other.seen[key]) for key in CHANNELS)
    again = sense(meters_of(network.published.grid, "noisy_missing_dense"), day, "evaluation", 1)
    assert all(again.value[key].tobytes() == one.value[key].tobytes() for key in CHANNELS)


def test_the_size_of_errors_does_not_decide_what_is_lost() -> None:
    entries = {"bus.voltage_v": 50, "consumer.active_power_kw": 20}
    one, other = (Disturber.of(noise, entries).draw(3) for noise in (NOISE, replace(NOISE, voltage=0.1, power=0.5)))
    assert np.array_equal(one.kept, other.kept) and not one.kept.all()
    for part in (slice(0, 50), slice(50, 70)):
        assert not np.array_equal(one.error[part], other.error[part])


def test_without_noise_nothing_is_wrong_or_lost() -> None:
    drawn = Disturber.of(Noise(), {"bus.voltage_v": 7, "line.current_a": 3}).draw(1)
    assert drawn.kept.shape == drawn.error.shape == (10, HOURS)
    assert drawn.kept.all() and not drawn.error.any()


@pytest.mark.parametrize("name", ["ieee123", "lv_fourwire", "us_suburb", "enwl", "smartds"])
def test_clean_readings_are_what_instruments_show(name: str, reference_network: ReferenceNetworks) -> None:
    network = open_network(name, reference_network)
    day, meters = day_of(network, QUIET), meters_of(network.published.grid, "clean")
    readings, measured = sense(meters, day), meters.read(day)
    for key in SHOWN:
        value, seen = at_places(meters, readings, key)
        assert seen.all()
        assert np.array_equal(value.astype(np.float32), shown(meters, measured, key).astype(np.float32)), key
    customers = meters.customers
    for key, demand, share in zip(
        DEMAND, (customers.active_demand, customers.reactive_demand), measured.share, strict=True
    ):
        value, seen = at_places(meters, readings, key)
        assert seen.all() and np.allclose(value, total(demand, share), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["ieee123", "lv_fourwire", "us_suburb", "ckt5"])
def test_the_demand_of_a_bus_is_what_its_customers_meters_report(
    name: str, reference_network: ReferenceNetworks
) -> None:
    network = open_network(name, reference_network)
    grid, day = network.published.grid, day_of(network, QUIET)
    policy = replace(POLICIES["noisy_missing_dense"], name="demand", customer_share=0.8, reactive_share=0.6)
    meters = meters_of(grid, policy)
    readings = sense(meters, day, 4)
    bus, hidden = grid.consumer["bus1"].to_numpy(), grid.bus["hidden"].to_numpy()
    counted = (grid.consumer["group"] < 0).to_numpy() | hidden[bus]
    sensors = meters.placement.on(grid)
    compared = lost = 0
    for quantity, reports in (("active_power_kw", sensors.consumer), ("reactive_power_kvar", sensors.reactive)):
        value, seen = readings.value[f"bus.{quantity}"], readings.seen[f"bus.{quantity}"]
        theirs, arrived = readings.value[f"consumer.{quantity}"], readings.seen[f"consumer.{quantity}"]
        for at in range(len(grid.bus)):
            here = np.flatnonzero((bus == at) & counted)
            if not len(here) or not reports[here].all():
                assert not seen[:, at].any()
                continue
            single = (grid.consumer["n_phases"] == 1).to_numpy()[here].all()
            if len(here) > 1 and not single:
                continue
            every = arrived[:, here, 0].all(axis=1)
            # Customers of one slot each: a slot arrives with its own; all slots together tell of all customers.
            assert np.array_equal(seen[:, at].any(axis=1) & every, every)
            total = value[every, at].astype(np.float64).sum(axis=1)
            expected = theirs[every][:, here, 0].astype(np.float64).sum(axis=1)
            np.testing.assert_allclose(total, expected, rtol=1e-5, atol=1e-5)
            compared += int(every.sum())
            lost += int((~every).sum())
            if len(here) == 1:
                assert not seen[~every, at].any()
    assert compared > 100 and lost > 5
