from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mycelium.grid.nominal_angle import NominalAngle, nominal_angle, transformer_shift, wrap
from mycelium.grid.topology import branches
from tests.grid.toy import Toy, Winding

NAN = float("nan")
BALANCED = [0.0, -120.0, 120.0]


def degrees(toy: Toy, bus: str) -> list[float]:
    """Nominal angles of a bus, NaN where not valid. [phase]"""
    found = nominal_angle(toy.grid())
    row = toy.bus_row[bus]
    return [float(a) for a in np.where(found.valid[row], np.rad2deg(found.angle_rad[row]), np.nan)]


def same(found: list[float], expected: list[float]) -> bool:
    """Equal angles, modulo whole turns, and the same ones missing."""
    apart = (np.subtract(found, expected) + 180.0) % 360.0 - 180.0
    return bool(np.array_equal(np.isnan(found), np.isnan(expected)) and np.all(np.abs(apart[~np.isnan(apart)]) < 1e-6))


def fed_at(bus: str, base_kv: float, conductors: str = "1.2.3", angle_deg: float = 0.0) -> Toy:
    toy = Toy()
    toy.bus(bus, base_kv)
    toy.source(bus, conductors, angle_deg)
    return toy


def bank(*units: tuple[Winding, ...], n_phases: int = 1) -> Toy:
    """Units from the three-phase bus 's' to the bus 'l'."""
    toy = fed_at("s", 7.2)
    for unit in units:
        toy.transformer(*unit, n_phases=n_phases, bank=0)
    return toy


@given(st.floats(-100, 100))
def test_wrap(x: float) -> None:
    wrapped = float(wrap(np.array(x)))
    assert -np.pi <= wrapped < np.pi
    assert np.exp(1j * wrapped) == pytest.approx(np.exp(1j * x), abs=1e-9)


def test_sources() -> None:
    assert same(degrees(fed_at("s", 1.0, angle_deg=30.0), "s"), [30.0, -90.0, 150.0])
    assert same(degrees(fed_at("s", 1.0, "2", angle_deg=-90.0), "s"), [NAN, -90.0, NAN])
    assert same(degrees(fed_at("s", 1.0, "3.1.2"), "s"), [-120.0, 120.0, 0.0])  # by place, not by number


def test_series_elements_and_switches_keep_phases() -> None:
    toy = fed_at("s", 1.0)
    toy.line("s", "a", "1.2.3.4", switch=True)
    toy.reactor("a", "b")
    toy.capacitor("b", "c", "2.3")
    assert same(degrees(toy, "a"), BALANCED)
    assert same(degrees(toy, "c"), [NAN, -120.0, 120.0])


def test_transposition_maps_by_place() -> None:
    toy = fed_at("s", 1.0)
    toy.line("s", "a", "1.2.3", "2.3.1")
    assert same(degrees(toy, "a"), [120.0, 0.0, -120.0])


def test_circuits_that_share_a_pole() -> None:
    toy = fed_at("s", 7.2)
    toy.line("s", "a", "1.2.3.1.2.3.10", "11.12.13.21.22.23.10")
    toy.line("a", "b", "21.22.23.10", "1.2.3.10")
    toy.transformer(("b", "2.10", 7.2, "wye"), ("c", "1.10", 0.12, "wye"), ("c", "10.2", 0.12, "wye"), n_phases=1)
    assert same(degrees(toy, "a"), [NAN, NAN, NAN])  # no conductor of its three slots
    assert same(degrees(toy, "b"), BALANCED)
    assert same(degrees(toy, "c"), [-120.0, 60.0, NAN])


def test_a_bus_has_only_its_own_phases() -> None:
    toy = fed_at("s", 1.0)
    toy.line("s", "a", "2")
    toy.consumer("a", "2.0")
    toy.consumer("a", "1.0")  # on a conductor that nothing feeds
    assert same(degrees(toy, "a"), [NAN, -120.0, NAN])


def paper_shift(connections: tuple[str, str], kv: tuple[float, float], lead: bool) -> float:
    """The paper's rule from winding 1 to winding 2 of a three-phase transformer, degrees.

    The configured convention is the engine's: by default the low-voltage side lags the high-voltage side.
    """
    if connections[0] == connections[1]:
        return 0.0
    low_minus_high = 30.0 if lead else -30.0
    return low_minus_high if kv[0] >= kv[1] else -low_minus_high


@pytest.mark.parametrize("lead", [False, True])
@pytest.mark.parametrize("kv", [(11.0, 0.4), (0.4, 11.0), (4.16, 4.16), (4.16, 3.0), (3.0, 4.16)])
@pytest.mark.parametrize("connections", list(itertools.product(["wye", "delta"], repeat=2)))
def test_three_phase_rules_of_the_paper_both_ways(
    connections: tuple[str, str], kv: tuple[float, float], lead: bool
) -> None:
    windings = [(bus, "1.2.3.0", v, c) for bus, v, c in zip("hl", kv, connections, strict=True)]
    shift = paper_shift(connections, kv, lead)
    for feed, other, sign in (("h", "l", 1.0), ("l", "h", -1.0)):
        toy = fed_at(feed, 1.0, angle_deg=10.0)
        toy.transformer(*windings, lead=lead)
        expected = [angle + 10.0 + sign * shift for angle in BALANCED]
        assert same(degrees(toy, other), expected), (feed, other)
        grid = toy.grid()
        b = branches(grid)
        assert np.rad2deg(transformer_shift(grid, b, nominal_angle(grid))) == pytest.approx([shift])


@pytest.mark.parametrize("phase", [1, 2, 3])
def test_single_phase_rules_of_the_paper(phase: int) -> None:
    angle = BALANCED[phase - 1]
    high = ("s", f"{phase}.0", 7.2, "wye")
    straight, reversed_, tapped = (
        bank((high, ("l", "1.0", 0.12, "wye"))),
        bank((high, ("l", "0.1", 0.12, "wye"))),
        bank((high, ("l", "1.0", 0.12, "wye"), ("l", "0.2", 0.12, "wye"))),
    )
    assert same(degrees(straight, "l"), [angle, NAN, NAN])
    assert same(degrees(reversed_, "l"), [angle + 180.0, NAN, NAN])
    assert same(degrees(tapped, "l"), [angle, angle + 180.0, NAN])
    shifts = []
    for toy in (straight, reversed_, tapped):
        grid = toy.grid()
        shifts.append(np.rad2deg(transformer_shift(grid, branches(grid), nominal_angle(grid)))[0] % 360.0)
    assert shifts == pytest.approx([0.0, 180.0, 0.0])  # the legs of a centre tap disagree: no scalar shift


def test_centre_tap_backwards_and_onward() -> None:
    toy = fed_at("l", 0.12, "1.2", angle_deg=50.0)  # two conductors of a two-phase source are opposite
    toy.transformer(("s", "3.0", 7.2, "wye"), ("l", "1.0", 0.12, "wye"), ("l", "0.2", 0.12, "wye"), n_phases=1)
    toy.line("l", "c", "1.2")
    assert same(degrees(toy, "s"), [NAN, NAN, 50.0])
    assert same(degrees(toy, "c"), [50.0, -130.0, NAN])


def test_line_to_line_unit_takes_the_angle_of_its_voltage() -> None:
    unit = bank((("s", "1.2", 12.47, "delta"), ("l", "1.0", 0.24, "wye")))
    assert same(degrees(unit, "l"), [30.0, NAN, NAN])
    tapped = bank((("s", "2.3", 12.47, "wye"), ("l", "1.0", 0.12, "wye"), ("l", "0.2", 0.12, "wye")))
    assert same(degrees(tapped, "l"), [-90.0, 90.0, NAN])
    floating = bank((("s", "1.2", 12.47, "delta"), ("l", "1.2", 0.24, "delta")))
    assert same(degrees(floating, "l"), [30.0, -150.0, NAN])


def test_delta_wye_bank_of_single_phase_units() -> None:
    units = [((("s", f"{p}.{q}", 12.47, "delta"), ("l", f"{p}.0", 0.24, "wye"))) for p, q in ("12", "23", "31")]
    assert same(degrees(bank(*units), "l"), [30.0, -90.0, 150.0])


def test_wye_delta_bank_of_single_phase_units() -> None:
    units = [((("s", f"{p}.0", 7.2, "wye"), ("l", f"{p}.{q}", 0.24, "delta"))) for p, q in ("12", "23", "31")]
    assert same(degrees(bank(*units), "l"), [-30.0, -150.0, 90.0])


@pytest.mark.parametrize("units", [("12", "23"), ("12", "32"), ("23", "31")])
def test_open_delta_bank_keeps_balanced_angles(units: tuple[str, ...]) -> None:
    made = [((("s", ".".join(u), 12.47, "delta"), ("l", ".".join(u), 0.24, "delta"))) for u in units]
    assert same(degrees(bank(*made), "l"), BALANCED)


def test_open_wye_open_delta_bank() -> None:
    units = [((("s", f"{p}.0", 7.2, "wye"), ("l", f"{p}.{q}", 0.24, "delta"))) for p, q in ("12", "23")]
    assert same(degrees(bank(*units), "l"), [-30.0, -150.0, 90.0])


def test_four_wire_delta_with_its_high_leg() -> None:
    # A centre-tapped lighting unit on A and a power unit on B: 1, 2 are the legs, 3 the high leg.
    lighting = (("s", "1.0", 7.2, "wye"), ("l", "1.0", 0.12, "wye"), ("l", "0.2", 0.12, "wye"))
    power = (("s", "2.0", 7.2, "wye"), ("l", "2.3", 0.24, "delta"))
    assert same(degrees(bank(lighting, power), "l"), [0.0, 180.0, 90.0])


def test_open_two_phase_delta_unit() -> None:
    unit = (("s", "1.2.0", 12.47, "wye"), ("l", "1.2.3", 0.24, "delta"))
    assert same(degrees(bank(unit, n_phases=2), "l"), [-30.0, -150.0, 90.0])


def test_jumper_beside_open_delta_regulators() -> None:
    units = [((("s", ".".join(u), 4.8, "delta"), ("l", ".".join(u), 4.8, "delta"))) for u in ("12", "32")]
    toy = bank(*units)
    toy.line("s", "l", "2")
    assert same(degrees(toy, "l"), BALANCED)


def test_one_line_to_line_regulator_beside_a_jumper() -> None:
    toy = bank((("s", "1.2", 12.47, "delta"), ("l", "1.2", 12.47, "delta")))
    toy.line("s", "l", "2.3")
    assert same(degrees(toy, "l"), BALANCED)  # not the floating pair's +30 and -150


def test_voltages_of_different_paths_are_on_one_scale() -> None:
    # l.2 is tied to a wye secondary, l.3 hangs from it by a line-to-line coil: a sum of two phasors in kV.
    toy = fed_at("s", 12.47 / np.sqrt(3.0))
    toy.transformer(("s", "1.2.3.0", 12.47, "delta"), ("q", "1.2.3.0", 0.4, "wye"))
    toy.line("q", "l", "2")
    toy.transformer(("s", "2.3", 12.47, "delta"), ("l", "2.3", 0.4, "delta"), n_phases=1)
    tied = 0.4 / np.sqrt(3.0) * np.exp(1j * np.deg2rad(-150.0))
    hung = tied - 0.4 * np.exp(1j * np.deg2rad(-90.0))
    assert same(degrees(toy, "q"), [-30.0, -150.0, 90.0])
    assert same(degrees(toy, "l"), [NAN, -150.0, float(np.rad2deg(np.angle(hung)))])


def test_phases_missing_on_the_primary_are_omitted() -> None:
    toy = Toy()
    toy.bus("s", 6.35)
    toy.source("s", "1")
    toy.transformer(("s", "1.2.3.0", 11.0, "wye"), ("l", "1.2.3.0", 0.4, "wye"))
    toy.transformer(("s", "1.2.3.0", 11.0, "wye"), ("d", "1.2.3.0", 0.4, "delta"))
    assert same(degrees(toy, "l"), [0.0, NAN, NAN])
    assert same(degrees(toy, "d"), [NAN, NAN, NAN])  # one coil of a floating delta determines nothing


def test_parallel_transformers_of_one_group_agree_and_of_two_groups_cancel() -> None:
    toy = fed_at("s", 6.35)
    toy.transformer(("s", "1.2.3.0", 11.0, "delta"), ("l", "1.2.3.0", 0.4, "wye"))
    toy.transformer(("s", "1.2.3.0", 11.0, "delta"), ("m", "1.2.3.0", 0.4, "wye"))
    toy.line("l", "m")
    toy.transformer(("m", "1.2.3.0", 0.4, "wye"), ("n", "1.2.3.0", 0.2, "wye"))
    assert same(degrees(toy, "l"), [-30.0, -150.0, 90.0])
    assert same(degrees(toy, "n"), [-30.0, -150.0, 90.0])
    toy.transformer(("s", "1.2.3.0", 11.0, "wye"), ("m", "1.2.3.0", 0.4, "wye"))
    assert same(degrees(toy, "s"), BALANCED)
    for bus in ("l", "m", "n"):  # discarded, and not propagated either
        assert same(degrees(toy, bus), [NAN, NAN, NAN])


def test_the_shorter_chain_of_transformers_decides() -> None:
    toy = fed_at("s", 6.35)
    toy.transformer(("s", "1.2.3.0", 11.0, "delta"), ("l", "1.2.3.0", 0.4, "wye"))
    toy.transformer(("s", "1.2.3.0", 11.0, "wye"), ("x", "1.2.3.0", 11.0, "wye"))
    toy.transformer(("x", "1.2.3.0", 11.0, "wye"), ("y", "1.2.3.0", 0.4, "wye"))
    toy.line("l", "y", switch=True)
    assert same(degrees(toy, "y"), [-30.0, -150.0, 90.0])


def test_sources_apart_by_an_operating_angle_do_not_contradict() -> None:
    toy = fed_at("s", 1.0)
    toy.bus("t", 1.0)
    toy.source("t", angle_deg=3.0)
    toy.line("s", "t")
    assert same(degrees(toy, "t"), BALANCED)
    other = fed_at("s", 1.0)
    other.source("t", angle_deg=30.0)
    other.line("s", "t")
    assert same(degrees(other, "s"), [NAN, NAN, NAN])


def hidden_service(conductors: str) -> Toy:
    toy = fed_at("s", 6.35)
    toy.transformer(("s", "1.2.3.0", 11.0, "delta"), ("l", "1.2.3.0", 0.4, "wye"))
    toy.line("l", "p", conductors)
    toy.bus("h", 0.23, hidden=True)
    toy.bus("c", 0.23, hidden=True)
    toy.line("p", "h", "?", group=0)
    toy.line("h", "c", "?.4", group=0)
    toy.consumer("c", "?.4")
    return toy


def test_hidden_buses_get_all_three_candidates() -> None:
    toy = hidden_service("1.2.3")
    for bus in ("h", "c"):
        assert same(degrees(toy, bus), [-30.0, -150.0, 90.0])
    assert same(degrees(hidden_service("2.3"), "c"), [NAN, -150.0, 90.0])


def test_hidden_services_do_not_add_phases_to_known_buses() -> None:
    toy = hidden_service("2.3")
    toy.line("l", "h", "?", group=0)
    assert same(degrees(toy, "p"), [NAN, -150.0, 90.0])
    assert same(degrees(toy, "c"), [-30.0, -150.0, 90.0])


def test_long_chains_and_unfed_parts() -> None:
    toy = fed_at("s", 1.0)
    for i in range(300):
        toy.line(f"b{i - 1}" if i else "s", f"b{i}")
    toy.line("x", "y")
    assert same(degrees(toy, "b299"), BALANCED)
    assert same(degrees(toy, "y"), [NAN, NAN, NAN])


@given(st.integers(0, 2), st.floats(-180, 180))
def test_turning_the_source_turns_everything(rotation: int, angle: float) -> None:
    """Relabelling the phases of a whole grid, or turning its source, does the same to every angle."""

    def build(shift: int, angle_deg: float) -> NominalAngle:
        def relabel(conductors: str) -> str:
            return ".".join(str((int(c) - 1 + shift) % 3 + 1) if c in "123" else c for c in conductors.split("."))

        toy = Toy()
        toy.bus("s", 7.2)
        toy.source("s", relabel("1.2.3"), angle_deg)
        toy.transformer(("s", relabel("1.2.3.0"), 12.47, "delta"), ("l", relabel("1.2.3.0"), 0.4, "wye"))
        toy.transformer(("s", relabel("2.0"), 7.2, "wye"), ("m", relabel("2.3"), 0.24, "delta"), n_phases=1)
        toy.line("l", "n", relabel("3.1"))
        return nominal_angle(toy.grid())

    plain, turned = build(0, 0.0), build(rotation, angle)
    assert np.array_equal(np.roll(plain.valid, rotation, axis=1), turned.valid)
    expected = np.roll(plain.angle_rad, rotation, axis=1) + np.deg2rad(angle)
    assert np.exp(1j * turned.angle_rad[turned.valid]) == pytest.approx(np.exp(1j * expected[turned.valid]))
