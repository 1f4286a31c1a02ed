"""Placement: which elements carry sensors. A function of (network, policy, published Grid) only; kept by name.

Drawn once per network and policy. Names keep it valid for record variants and later imports, whose rows may be ordered
otherwise; what a placement does not name carries no sensor, but for ties that a variant adds. Wherever one of several
must come first, a lot decides: a hash of the name, the network and the policy. A name may tell a phase ("house_12_b"),
so its alphabetical place must not count.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from jaxtyping import Bool, Int64

from mycelium.errors import FeederError
from mycelium.grid.grid import Grid
from mycelium.grid.hidden import lot
from mycelium.grid.service import secondary_windings
from mycelium.grid.topology import branches, sources
from mycelium.sense.k_center import farthest_first
from mycelium.sense.policies import Noise, Policy, Strategy
from mycelium.simulate.seeds import generator

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

FORMAT = 1
_NAMED = {  # parts of a placement, and the tables whose rows they name
    "dt_meters": "bus", "buses": "bus", "lines": "line", "transformers": "transformer", "consumers": "consumer",
    "reactive": "consumer",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlacedSensors:
    """A placement on one (variant of a) grid.

    Attributes:
        bus: Voltage and angle are read: plain sensors, DT meters and source buses. [bus]
        line: Current and powers are read at terminal 1. [line]
        winding: Current and powers are read: all low-voltage windings at a DT meter's bus, and winding 1 of the other
            transformers with a sensor. [winding]
        consumer: Voltage and active power are read. [consumer]
        reactive: Reactive power too. [consumer]
    """

    bus: Bool[Flags, " bus"]
    line: Bool[Flags, " line"]
    winding: Bool[Flags, " winding"]
    consumer: Bool[Flags, " consumer"]
    reactive: Bool[Flags, " consumer"]


@dataclass(frozen=True, slots=True)
class Placement:
    """Names of the elements that carry sensors, each part in alphabetical order.

    Attributes:
        network: Placements and draws depend on this name.
        policy: The policy it was drawn for.
        dt_meters: Secondary buses of distribution transformers with a meter.
        buses: Plain buses with a voltage sensor.
        lines, transformers: Branches with a flow sensor.
        consumers: Customers with a smart meter.
        reactive: Those of them that report reactive power.
    """

    network: str
    policy: Policy
    dt_meters: tuple[str, ...]
    buses: tuple[str, ...]
    lines: tuple[str, ...]
    transformers: tuple[str, ...]
    consumers: tuple[str, ...]
    reactive: tuple[str, ...]

    def on(self, grid: Grid) -> PlacedSensors:
        """The sensors as rows of a grid, published or variant; raises FeederError if the grid lacks one of them."""
        placed = {part: self._rows(grid, part) for part in _NAMED}
        bus = placed["buses"] | placed["dt_meters"]
        bus[sources(grid)] = True
        owner, at = (grid.winding[name].to_numpy() for name in ("transformer", "bus1"))
        winding = placed["transformers"][owner] & (grid.winding["number"] == 1).to_numpy()
        secondary = secondary_windings(grid)
        winding[secondary] |= placed["dt_meters"][at[secondary]]
        line = placed["lines"] | self._on_ties(grid)
        return PlacedSensors(bus, line, winding, placed["consumers"], placed["reactive"])

    def _on_ties(self, grid: Grid) -> Flags:
        """Ties that a record variant added and that have a flow sensor. [line]

        They carry one as often as any line does: were they never metered, silence would say that a switch is open.
        """
        tie = grid.line["tie"].to_numpy().astype(bool)
        bus = grid.bus["name"].to_numpy()
        for row in np.flatnonzero(tie):
            ends = (str(bus[grid.line[end].iat[row]]) for end in ("bus1", "bus2"))
            lot = generator("tie sensor", self.network, self.policy.name, str(grid.line["name"].iat[row]), *ends)
            tie[row] = lot.random() < self.policy.branch_share
        return np.asarray(tie)

    def _rows(self, grid: Grid, part: str) -> Flags:
        table, names = _NAMED[part], getattr(self, part)
        rows = pd.Index(grid.tables[table]["name"]).get_indexer(pd.Index(names, dtype="str"))
        if np.any(rows < 0):
            lost = names[int(np.argmin(rows))]
            raise FeederError(
                f"the placement of '{self.policy.name}' on '{self.network}' has a sensor on {table} '{lost}', which "
                f"'{grid.name}' does not have; place the policy anew on this network"
            )
        flags = np.zeros(len(grid.tables[table]), dtype=bool)
        flags[rows] = True
        return flags

    def save(self, path: Path) -> None:
        """Write into one file; equal placements give equal bytes."""
        path = Path(path)
        part = path.with_name(path.name + ".part")
        part.write_text(json.dumps({"format": FORMAT, **asdict(self)}, indent=0) + "\n", encoding="utf-8")
        part.replace(path)

    @staticmethod
    def load(path: Path) -> Placement:
        """Read a file written by ``save``; refuses anything else by name."""
        try:
            record = json.loads(Path(path).read_text(encoding="utf-8"))
            if record.pop("format") != FORMAT:
                raise FeederError(f"{path}: not a placement of format {FORMAT}; place again with this version")
            policy = record.pop("policy")
            noise, strategy = Noise(**policy.pop("noise")), Strategy(policy.pop("strategy"))
            names = {part: tuple(record.pop(part)) for part in _NAMED}
            return Placement(record.pop("network"), Policy(**policy, strategy=strategy, noise=noise), **names)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise FeederError(f"{path}: not a placement file ({error})") from error


def place(grid: Grid, policy: Policy, network: str) -> Placement:
    """Draw a policy's sensors on a network.

    Args:
        grid: The network as published.
        policy: What to place.
        network: Name the draw depends on; a corpus has one per network.
    """
    dt_meters, buses = _place_voltage(grid, policy, network)
    lines, transformers = _place_flow(grid, policy, network)
    consumers = _place_customers(grid, policy, network)
    ordered = consumers[_order(_names(grid, "consumer", consumers), network, policy, "reactive")]
    reactive = ordered[: _count(policy.reactive_share, len(consumers))]
    return Placement(
        network,
        policy,
        dt_meters=_sorted(grid, "bus", dt_meters),
        buses=_sorted(grid, "bus", buses),
        lines=_sorted(grid, "line", lines),
        transformers=_sorted(grid, "transformer", transformers),
        consumers=_sorted(grid, "consumer", consumers),
        reactive=_sorted(grid, "consumer", reactive),
    )


def dt_buses(grid: Grid) -> Int64[Ints, " pool"]:
    """The pool of DT meters: secondary buses of distribution transformers. Units of a bank share one. [pool]"""
    return np.unique(grid.winding["bus1"].to_numpy().astype(np.int64)[secondary_windings(grid)])


def plain_buses(grid: Grid) -> Int64[Ints, " pool"]:
    """The pool of voltage sensors: neither a DT meter's place nor a source's. [pool]"""
    return np.setdiff1d(np.arange(len(grid.bus)), np.concatenate([dt_buses(grid), sources(grid)]))


def other_transformers(grid: Grid) -> Int64[Ints, " pool"]:
    """Transformers in the pool of flow sensors, which all lines are in: regulators and substation units. [pool]"""
    return np.flatnonzero(~grid.transformer["distribution"].to_numpy())


def _place_voltage(grid: Grid, policy: Policy, network: str) -> tuple[Ints, Ints]:
    """Buses of DT meters and of plain sensors."""
    pools = {"dt": (dt_buses(grid), policy.dt_share), "bus": (plain_buses(grid), policy.bus_share)}
    chosen, seeds = [], sources(grid)
    for pool, (rows, share) in pools.items():
        ordered = rows[_order(_names(grid, "bus", rows), network, policy, pool)]
        picked = ordered[_choose(grid, policy, seeds, ordered, _count(share, len(rows)))]
        chosen.append(picked)
        seeds = np.concatenate([seeds, picked])
    return chosen[0], chosen[1]


def _place_flow(grid: Grid, policy: Policy, network: str) -> tuple[Ints, Ints]:
    """Lines and transformers with a flow sensor. The feeder head is metered already: seeds are the sources."""
    unit = other_transformers(grid)
    first = grid.transformer["first_winding"].to_numpy()[unit]
    bus = np.concatenate([grid.line["bus1"].to_numpy(), grid.winding["bus1"].to_numpy()[first]]).astype(np.int64)
    names = [f"line.{name}" for name in grid.line["name"]]
    names += [f"transformer.{name}" for name in grid.transformer["name"].iloc[unit]]
    order = _order(names, network, policy, "branch")
    picked = order[_choose(grid, policy, sources(grid), bus[order], _count(policy.branch_share, len(bus)))]
    n_line = len(grid.line)
    return picked[picked < n_line], unit[picked[picked >= n_line] - n_line]


def _choose(grid: Grid, policy: Policy, seeds: Ints, ordered: Ints, count: int) -> Ints:
    """Places in a pool, given as buses in the order of the lot, that get a sensor."""
    if policy.strategy == Strategy.UNIFORM:
        return np.arange(count)
    return farthest_first(branches(grid), seeds, ordered, count)


def _place_customers(grid: Grid, policy: Policy, network: str) -> Ints:
    """Customers with a smart meter: at random one by one, or whole areas of serving transformers.

    A customer that no distribution transformer serves is an area of its own. The last area may be served in part.
    """
    consumers = np.arange(len(grid.consumer))
    order = _order(_names(grid, "consumer", consumers), network, policy, "consumer")
    if policy.strategy == Strategy.K_CENTER:
        serving = grid.consumer["transformer"].to_numpy()
        transformer = [f"transformer.{name}" for name in grid.transformer["name"]]
        area = [
            transformer[row] if row >= 0 else f"consumer.{name}"
            for row, name in zip(serving, grid.consumer["name"], strict=True)
        ]
        code, distinct = pd.factorize(pd.Series(area, dtype="str"))
        rank = np.empty(len(distinct), dtype=np.int64)
        rank[_order(list(distinct), network, policy, "area")] = np.arange(len(distinct))
        order = order[np.argsort(rank[code][order], kind="stable")]
    return order[: _count(policy.customer_share, len(consumers))]


def _count(share: float, pool: int) -> int:
    """Sensors in a pool: at least one, where the policy has any there."""
    return min(max(round(share * pool), 1), pool) if share > 0.0 else 0


def _order(names: Sequence[str], network: str, policy: Policy, pool: str) -> Ints:
    """Places of the names that come first, second, ... by lot."""
    return lot(names, [f"network {network}", f"policy {policy.name}", f"pool {pool}"])


def _names(grid: Grid, table: str, rows: Ints) -> list[str]:
    return [str(name) for name in grid.tables[table]["name"].iloc[rows]]


def _sorted(grid: Grid, table: str, rows: Ints) -> tuple[str, ...]:
    return tuple(sorted(_names(grid, table, rows)))
