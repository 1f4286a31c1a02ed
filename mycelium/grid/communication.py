"""Communication edges: shortcuts for messages from the substation to every customer in three hops.

Uplinks join a substation to each distinct primary bus of a distribution transformer (DT): the substation
fewest branches away, ties to the lower row, none where no substation is joined at all. Downlinks join a
customer to the secondary bus of its serving DT; the step between the two is the transformer itself. A grid
without communication edges, for the ablation, is ``Links.none()``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mycelium.grid.grid import Grid
from mycelium.grid.service import primary_windings, secondary_windings
from mycelium.grid.topology import hop_paths

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Links:
    """Communication edges; each carries messages both ways.

    Attributes:
        uplink_substation, uplink_bus: Substation row and DT primary bus row. [uplink]
        downlink_consumer, downlink_bus: Consumer row and DT secondary bus row. [downlink]
    """

    uplink_substation: Ints
    uplink_bus: Ints
    downlink_consumer: Ints
    downlink_bus: Ints

    @staticmethod
    def none() -> Links:
        """No communication edges."""
        return Links(*(np.zeros(0, dtype=np.int64) for _ in range(4)))


def communication_links(grid: Grid) -> Links:
    """The communication edges of a grid, from its topology and its record of who serves whom."""
    winding_bus = grid.winding["bus1"].to_numpy().astype(np.int64)
    primary = np.unique(winding_bus[primary_windings(grid)])
    substation = hop_paths(grid).seed[primary]
    joined = substation >= 0
    secondary = secondary_windings(grid)
    owner = grid.winding["transformer"].to_numpy()[secondary]
    bank, first = np.unique(grid.transformer["bank"].to_numpy()[owner], return_index=True)
    # One more than transformers: a customer that none serves (row -1) picks the last.
    secondary_bus = np.full(len(grid.transformer) + 1, -1, dtype=np.int64)
    secondary_bus[bank] = winding_bus[secondary[first]]
    bus = secondary_bus[grid.consumer["transformer"].to_numpy()]
    served = np.flatnonzero(bus >= 0)
    return Links(substation[joined], primary[joined], served, bus[served])


def rewire(links: Links, grid: Grid, rng: np.random.Generator) -> Links:
    """As many links of each kind between endpoints of the same types, drawn at random.

    As in the real links, uplinks end at distinct buses and a customer has at most one downlink.
    """
    n_up, n_down, n_bus = len(links.uplink_bus), len(links.downlink_bus), len(grid.bus)
    return Links(
        uplink_substation=rng.integers(len(grid.substation), size=n_up),
        uplink_bus=rng.choice(n_bus, size=n_up, replace=False),
        downlink_consumer=rng.choice(len(grid.consumer), size=n_down, replace=False),
        downlink_bus=rng.integers(n_bus, size=n_down),
    )
