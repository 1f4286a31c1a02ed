"""Topology fingerprints: the same feeder distributed twice is recognised, however it is named, ordered or wired.

What is compared is a network's *skeleton*: buses with customers, and the junctions between them. Dead ends without
customers are cut off and buses that only pass through are bridged, so that the twin that has a longer head, finer
segments, a neutral, other phases or other impedances has the same skeleton. Every bus of it gets a colour, refined by
its neighbours' colours three times (Weisfeiler and Lehman); the fingerprint counts colours. Two networks are as similar
as they share colours.

Small skeletons are alike by chance: two customers on one street are two customers on one street. Below
``FEWEST_BUSES`` the total length of lines must agree too.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from mycelium.corpus.catalogue import Split
from mycelium.grid.grid import Grid
from mycelium.grid.topology import branches, bus_pairs

ROUNDS = 3
FEWEST_BUSES = 12
ALIKE = 0.7  # unrelated feeders of one utility reach 0.57
SAME_LENGTH = 0.05


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What is left of a network when names, order, phases and impedances are forgotten.

    Attributes:
        colours: Number of skeleton buses of each colour.
        length_km: Total length of lines, where it is on record.
    """

    colours: Counter[int]
    length_km: float

    @staticmethod
    def of(grid: Grid) -> Fingerprint:
        # How many customers a bus has is not looked at: a model may give each phase a load of its own, or not.
        has_customers = np.zeros(len(grid.bus), dtype=bool)
        has_customers[grid.consumer["bus1"].to_numpy().astype(np.int64)] = True
        neighbours = _skeleton(grid, has_customers)
        colour = {bus: _hash(int(has_customers[bus])) for bus in neighbours}
        for _ in range(ROUNDS):
            colour = {bus: _hash(colour[bus], *sorted(colour[b] for b in near)) for bus, near in neighbours.items()}
        return Fingerprint(Counter(colour.values()), float(np.nansum(grid.line["length_km"].to_numpy())))

    def similarity(self, other: Fingerprint) -> float:
        """Colours shared over colours of either, 0 to 1."""
        few, many = sorted((self.colours, other.colours), key=len)
        shared = sum(min(count, many[colour]) for colour, count in few.items())
        either = few.total() + many.total() - shared
        return shared / either if either else 1.0

    def is_near(self, other: Fingerprint) -> bool:
        """Whether both are one feeder, as far as topology tells."""
        few, many = sorted((self.colours.total(), other.colours.total()))
        if few < ALIKE * many or self.similarity(other) < ALIKE:  # the first is cheap, and implies the second
            return False
        longer = max(self.length_km, other.length_km)
        return few >= FEWEST_BUSES or abs(self.length_km - other.length_km) <= SAME_LENGTH * longer


def _skeleton(grid: Grid, has_customers: npt.NDArray[np.bool_]) -> dict[int, set[int]]:
    """Neighbours of every bus that has customers or joins those that do."""
    neighbours: dict[int, set[int]] = {bus: set() for bus in range(len(grid.bus))}
    for a, b in bus_pairs(branches(grid))[0].tolist():
        neighbours[a].add(b)
        neighbours[b].add(a)
    todo = [bus for bus in neighbours if not has_customers[bus]]
    while todo:
        bus = todo.pop()
        near = neighbours.get(bus)
        if near is None or len(near) > 2:
            continue
        ends = sorted(near)
        if len(ends) == 2 and ends[1] in neighbours[ends[0]]:
            continue  # bridging it would hide a loop
        del neighbours[bus]
        for end in ends:
            neighbours[end].discard(bus)
            neighbours[end].update(other for other in ends if other != end)
            if len(ends) == 1 and not has_customers[end]:
                todo.append(end)
    return neighbours


def _hash(*values: int) -> int:
    return int.from_bytes(hashlib.blake2b(repr(values).encode(), digest_size=8).digest(), "little")


def straddling(split: Mapping[str, Split], fingerprints: Mapping[str, Fingerprint]) -> Iterator[tuple[str, str, float]]:
    """Near-duplicates that are not in the same split, and how similar they are.

    Args:
        split: By network.
        fingerprints: By network.
    """
    for a, b in combinations(fingerprints, 2):
        if split[a] is not split[b] and fingerprints[a].is_near(fingerprints[b]):
            yield a, b, fingerprints[a].similarity(fingerprints[b])
