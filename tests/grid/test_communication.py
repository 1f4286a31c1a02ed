from __future__ import annotations

import numpy as np
import pytest

from mycelium.grid.communication import Links, communication_links, rewire
from mycelium.grid.grid import Grid
from mycelium.grid.service import serving_transformer
from tests.grid.toy import Toy


def with_service(toy: Toy) -> Grid:
    grid = toy.grid()
    return grid.replace_tables(consumer=grid.consumer.assign(transformer=serving_transformer(grid)))


def two_substations() -> Toy:
    """s - p - q - t with substations at both ends; transformers at p (two), q and on an unfed bus."""
    toy = Toy()
    for bus in ("s", "p", "q", "t"):
        toy.bus(bus, 6.35)
    toy.source("s")
    toy.source("t")
    for a, b in (("s", "p"), ("p", "q"), ("q", "t")):
        toy.line(a, b)
    for primary, secondary in (("p", "a"), ("p", "b"), ("q", "c"), ("x", "d")):
        toy.transformer((primary, "1.2.3.0", 11.0, "delta"), (secondary, "1.2.3.0", 0.4, "wye"))
    toy.line("a", "e")
    for bus in ("e", "b", "c", "q", "d"):
        toy.consumer(bus)
    return toy


def test_links_by_hand() -> None:
    toy = two_substations()
    links = communication_links(with_service(toy))
    row = toy.bus_row
    # 'p' is the primary of two transformers and has one uplink; nothing feeds 'x'.
    assert list(zip(links.uplink_substation, links.uplink_bus, strict=True)) == [(0, row["p"]), (1, row["q"])]
    assert list(zip(links.downlink_consumer, links.downlink_bus, strict=True)) == [
        (0, row["a"]), (1, row["b"]), (2, row["c"]), (4, row["d"]),
    ]  # fmt: skip


def test_a_bank_has_one_uplink_and_one_secondary_bus() -> None:
    toy = Toy()
    toy.source("s")
    for phase in "123":
        legs = [("l", f"{phase}.0", 0.12, "wye"), ("l", f"0.{phase}", 0.12, "wye")]
        toy.transformer(("s", f"{phase}.0", 7.2, "wye"), *legs, n_phases=1, bank=0)
    toy.consumer("l")
    links = communication_links(with_service(toy))
    assert links.uplink_bus.tolist() == [toy.bus_row["s"]]
    assert links.downlink_bus.tolist() == [toy.bus_row["l"]]


def test_every_customer_is_three_hops_from_its_substation() -> None:
    toy = two_substations()
    grid = with_service(toy)
    links = communication_links(grid)
    winding = grid.winding
    for consumer, secondary in zip(links.downlink_consumer, links.downlink_bus, strict=True):
        unit = winding[winding["transformer"] == grid.consumer["transformer"].iloc[consumer]]
        assert secondary in unit["bus1"].to_numpy()
        assert np.isin(unit["bus1"], [*links.uplink_bus, toy.bus_row["x"]]).any()


@pytest.mark.parametrize("seed", range(5))
def test_rewiring_keeps_counts_and_types(seed: int) -> None:
    grid = with_service(two_substations())
    links = communication_links(grid)
    random = rewire(links, grid, np.random.default_rng(seed))
    assert len(random.uplink_bus) == len(random.uplink_substation) == len(links.uplink_bus)
    assert len(random.downlink_bus) == len(random.downlink_consumer) == len(links.downlink_bus)
    assert len(np.unique(random.uplink_bus)) == len(random.uplink_bus)
    assert len(np.unique(random.downlink_consumer)) == len(random.downlink_consumer)
    for rows, table in (
        (random.uplink_substation, grid.substation),
        (random.uplink_bus, grid.bus),
        (random.downlink_consumer, grid.consumer),
        (random.downlink_bus, grid.bus),
    ):
        assert np.all((rows >= 0) & (rows < len(table)))


def test_rewiring_is_reproducible_and_reaches_all_buses() -> None:
    grid = with_service(two_substations())
    links = communication_links(grid)
    first, again = (rewire(links, grid, np.random.default_rng(7)) for _ in range(2))
    assert np.array_equal(first.downlink_bus, again.downlink_bus)
    assert np.array_equal(first.uplink_bus, again.uplink_bus)
    drawn = [rewire(links, grid, np.random.default_rng(seed)) for seed in range(60)]
    assert set(np.concatenate([d.uplink_bus for d in drawn])) == set(range(len(grid.bus)))
    assert set(np.concatenate([d.downlink_bus for d in drawn])) == set(range(len(grid.bus)))


def test_no_links() -> None:
    toy = Toy()
    toy.source("s")
    for links in (Links.none(), communication_links(toy.grid())):
        assert all(len(getattr(links, name)) == 0 for name in Links.__slots__)
    assert len(rewire(Links.none(), toy.grid(), np.random.default_rng(0)).uplink_bus) == 0
