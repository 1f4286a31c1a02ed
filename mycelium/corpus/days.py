"""Where the days that workers render come from: simulated now, or stored in a corpus."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import pandas as pd

from mycelium.corpus.labels import Record
from mycelium.corpus.plan import stratum
from mycelium.corpus.store import Corpus
from mycelium.corpus.unit import stored_day
from mycelium.grid.grid import Grid
from mycelium.sense.placement import Placement, place
from mycelium.sense.policies import Policy
from mycelium.simulate.cases import CaseMix
from mycelium.simulate.day import Day
from mycelium.simulate.network import Network, NetworkSource


class Days(Protocol):
    """Days of one network, simulated or stored."""

    def day(self, case: int) -> Day:
        """A case's day; raises Rejection if it cannot be a sample."""

    def grid(self, variant: int) -> Grid:
        """Records of a variant."""

    def placement(self, policy: str) -> Placement:
        """Which elements carry sensors."""


class SimulatedDays:
    """Days of a network, simulated when they are asked for."""

    def __init__(
        self,
        sources: Mapping[str, NetworkSource],
        seed: int,
        mix: CaseMix | None,
        policies: tuple[Policy, ...],
        name: str,
    ) -> None:
        self._network = Network(sources[name], mix or CaseMix())
        self._seed, self._mix, self._name = seed, mix, name
        self._policies = {policy.name: policy for policy in policies}
        self._placed: dict[str, Placement] = {}

    def day(self, case: int) -> Day:
        mix = self._mix or stratum(self._name, self._seed, case).mix
        return self._network.simulate(self._seed, case, mix)

    def close(self) -> None:
        """Free the compiled circuits."""
        self._network.close()

    def grid(self, variant: int) -> Grid:
        return self._network.circuit(variant).grid

    def placement(self, policy: str) -> Placement:
        if policy not in self._placed:
            self._placed[policy] = place(self._network.published.grid, self._policies[policy], self._name)
        return self._placed[policy]


class StoredDays:
    """Days of a network in a corpus."""

    def __init__(
        self, folder: Path, cases: pd.DataFrame, network: str, own: Mapping[str, Policy] | None = None
    ) -> None:
        """Open.

        Args:
            folder: The corpus.
            cases: Its cases, or some of them.
            network: Whose days.
            own: Policies that the corpus has no placements of.
        """
        self._own = own or {}
        self._corpus, self._network = Corpus.open_folder(folder), network
        chosen = cases[cases["network"] == network]
        records: list[Record] = chosen.to_dict("records")
        self._records = dict(zip(chosen.index.tolist(), records, strict=True))

    def day(self, case: int) -> Day:
        record = self._records[case]
        return stored_day(self._corpus.shard(record["shard"]), self._network, int(record["seed"]), record)

    def grid(self, variant: int) -> Grid:
        return self._corpus.grid(self._network, variant)

    def placement(self, policy: str) -> Placement:
        if policy in self._own:
            return place(self.grid(0), self._own[policy], self._network)
        return self._corpus.placement(self._network, policy)
