from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mycelium.grid.service import (
    lv_zone,
    primary_windings,
    secondary_windings,
    serving_transformer,
    three_phase_zone,
)
from tests.grid.toy import Toy

PRIMARY = ("p", "1.2.3.0", 11.0, "delta")


def secondary(bus: str) -> tuple[str, str, float, str]:
    return (bus, "1.2.3.0", 0.4, "wye")


def feeder() -> Toy:
    """One source at 's', one medium-voltage line to 'p'."""
    toy = Toy()
    toy.bus("s", 6.35)
    toy.bus("p", 6.35)
    toy.source("s")
    toy.line("s", "p")
    return toy


def test_the_electrically_nearest_transformer_serves() -> None:
    toy = feeder()
    left = toy.transformer(PRIMARY, secondary("l"))
    right = toy.transformer(PRIMARY, secondary("r"))
    toy.line("l", "a", r1_ohm=0.05, x1_ohm=0.0)
    toy.line("a", "b", r1_ohm=0.05, x1_ohm=0.0)
    toy.line("b", "r", r1_ohm=0.02, x1_ohm=0.08, switch=True)  # longer than it looks by resistance
    for bus in ("l", "a", "b", "r"):
        toy.consumer(bus)
    assert serving_transformer(toy.grid()).tolist() == [left, left, right, right]


def test_equal_distances_go_to_the_lower_row() -> None:
    toy = feeder()
    toy.transformer(PRIMARY, secondary("l"))
    toy.transformer(PRIMARY, secondary("r"))
    toy.line("l", "a")
    toy.line("a", "r")
    toy.consumer("a")
    toy.consumer("r")
    assert serving_transformer(toy.grid()).tolist() == [0, 1]
    toy.transformer(PRIMARY, secondary("r"))
    assert serving_transformer(toy.grid()).tolist() == [0, 1]


def test_paths_do_not_pass_through_transformers() -> None:
    toy = feeder()
    toy.transformer(PRIMARY, secondary("l"))
    toy.transformer(("l", "1.2.3.0", 0.4, "delta"), ("i", "1.2.3.0", 0.2, "wye"))
    for bus in ("s", "p", "i"):
        toy.consumer(bus)
    assert serving_transformer(toy.grid()).tolist() == [-1, -1, -1]
    assert lv_zone(toy.grid()).tolist() == [-1, -1, 0, -1]


def test_units_of_a_bank_are_one_transformer() -> None:
    toy = feeder()
    for phase in "123":
        toy.transformer(("p", f"{phase}.0", 6.35, "wye"), ("l", f"{phase}.0", 0.23, "wye"), n_phases=1, bank=0)
    toy.line("l", "a", "3")
    toy.consumer("a", "3.0")
    assert serving_transformer(toy.grid()).tolist() == [0]
    assert three_phase_zone(toy.grid()).tolist() == [False, False, True, True]


def test_zones_and_their_supply() -> None:
    toy = feeder()
    toy.transformer(PRIMARY, secondary("l"))
    tap = (("p", "2.0", 6.35, "wye"), ("c", "1.0", 0.12, "wye"), ("c", "0.2", 0.12, "wye"))
    toy.transformer(*tap, n_phases=1)
    toy.line("c", "d", "1.2")
    toy.transformer(PRIMARY, ("x", "1.2.3.0", 3.3, "wye"))  # steps down, but not to low voltage
    grid = toy.grid()
    names = list(toy.bus_row)
    zone = dict(zip(names, lv_zone(grid).tolist(), strict=True))
    assert zone == {"s": -1, "p": -1, "l": 0, "c": 1, "d": 1, "x": -1}
    three = dict(zip(names, three_phase_zone(grid).tolist(), strict=True))
    assert three == {"s": False, "p": False, "l": True, "c": False, "d": False, "x": False}
    assert secondary_windings(grid).tolist() == [1, 3, 4]
    assert primary_windings(grid).tolist() == [0, 2]


def test_two_separate_single_phase_transformers_are_no_three_phase_supply() -> None:
    toy = feeder()
    for row, phase in enumerate("123"):
        toy.transformer(("p", f"{phase}.0", 6.35, "wye"), ("l", f"{phase}.0", 0.23, "wye"), n_phases=1, bank=row)
    assert not three_phase_zone(toy.grid()).any()


def test_winding_order_does_not_matter() -> None:
    toy = feeder()
    toy.transformer(secondary("l"), PRIMARY)
    toy.consumer("l")
    grid = toy.grid()
    assert serving_transformer(grid).tolist() == [0]
    assert (secondary_windings(grid).tolist(), primary_windings(grid).tolist()) == ([0], [1])


def test_grid_without_distribution_transformers() -> None:
    toy = feeder()
    toy.consumer("p")
    grid = toy.grid()
    assert serving_transformer(grid).tolist() == [-1]
    assert lv_zone(grid).tolist() == [-1, -1]
    assert not three_phase_zone(grid).any()


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_agrees_with_distances_by_hand_on_chains(data: st.DataObject) -> None:
    """Along a chain between two transformers each customer goes to the nearer end."""
    lengths = data.draw(st.lists(st.floats(0.001, 1.0), min_size=2, max_size=12))
    toy = feeder()
    for end in (0, len(lengths)):
        toy.transformer(PRIMARY, secondary(f"c{end}"))
    for i, ohm in enumerate(lengths):
        toy.line(f"c{i}", f"c{i + 1}", r1_ohm=ohm, x1_ohm=0.0)
        toy.consumer(f"c{i}")
    along = np.concatenate([[0.0], np.cumsum(lengths)[:-1]])
    left, right = along, sum(lengths) - along
    found = serving_transformer(toy.grid())
    clear = np.abs(left - right) > 1e-6
    assert np.array_equal(found[clear], np.where(left <= right, 0, 1)[clear])
