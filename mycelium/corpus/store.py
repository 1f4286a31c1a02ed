"""A built corpus, read through memory maps: nothing is loaded until it is used."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mycelium.corpus.catalogue import Split
from mycelium.corpus.labels import Record
from mycelium.corpus.layout import CHECKSUMS, MANIFEST, NORMALISATION, grid_name, placement_name
from mycelium.corpus.manifest import read_manifest
from mycelium.corpus.shard import Shard
from mycelium.corpus.unit import stored_day
from mycelium.errors import FeederError
from mycelium.grid.grid import Grid
from mycelium.sense.placement import Placement
from mycelium.simulate.day import Day
from mycelium.window.normalise import Normalisation

if TYPE_CHECKING:
    import xarray as xr

OPEN_SHARDS = 512  # each is a map and an entry in the system's table of them
OPEN_GRIDS = 64


@dataclass
class Corpus:
    """A corpus folder. It can be sent to another process, which maps the files anew.

    Attributes:
        folder: Where it is.
        manifest: All cases, rejected ones included, one per row; columns as in ``manifest.COLUMNS``.
    """

    folder: Path
    manifest: pd.DataFrame
    _shards: OrderedDict[str, Shard] = field(default_factory=OrderedDict, repr=False)
    _grids: OrderedDict[tuple[str, int], Grid] = field(default_factory=OrderedDict, repr=False)

    @staticmethod
    def open_folder(path: Path | str) -> Corpus:
        """Open a corpus; raises FeederError if it is not built to its end."""
        folder = Path(path)
        if not (folder / CHECKSUMS).is_file():  # written last
            raise FeederError(f"{folder}: no finished corpus; `mycelium corpus build` makes it, or goes on with it")
        return Corpus.being_finished(folder)

    @staticmethod
    def being_finished(folder: Path) -> Corpus:
        """A corpus whose build is at its end: all is there but what is made of it as a whole."""
        return Corpus(folder, read_manifest(folder / MANIFEST))

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "manifest": self.manifest, "_shards": OrderedDict(), "_grids": OrderedDict()}

    @cached_property
    def cases(self) -> pd.DataFrame:
        """The cases that are samples, one per row; rows keep their label in ``manifest``."""
        return self.manifest[self.manifest["status"] == "done"]

    @property
    def networks(self) -> list[str]:
        """Names of the networks that have samples, in the order of the catalogue."""
        return [str(name) for name in self.cases["network"].unique()]

    @cached_property
    def normalisation(self) -> Normalisation:
        """Constants of its training networks under all policies; raises FeederError if it has none."""
        path = self.folder / NORMALISATION
        if not path.is_file() and not (self.cases["split"] == Split.TRAIN.value).any():
            raise FeederError(f"{self.folder}: no training networks, so no normalisation constants")
        return Normalisation.load(path)

    def grid(self, network: str, variant: int = 0) -> Grid:
        """Records of a network, as published (0) or of a variant."""
        key = (network, int(variant))
        if key not in self._grids:
            self._grids[key] = Grid.load(self._file(grid_name(*key), network))
            if len(self._grids) > OPEN_GRIDS:
                self._grids.popitem(last=False)
        self._grids.move_to_end(key)
        return self._grids[key]

    def placement(self, network: str, policy: str) -> Placement:
        """Which elements of a network carry sensors under a policy."""
        return Placement.load(self._file(placement_name(network, policy), network))

    def day(self, case: int | pd.Series) -> Day:
        """The day of a case; its arrays are views into the map.

        Args:
            case: A row of ``cases``, or its label.
        """
        record: Record = (self.cases.loc[case] if isinstance(case, (int, np.integer)) else case).to_dict()
        return stored_day(self.shard(record["shard"]), record["network"], int(record["seed"]), record)

    def shard(self, name: str) -> Shard:
        """A file of days."""
        if name not in self._shards:
            self._shards[name] = Shard.open(self.folder / name)
            if len(self._shards) > OPEN_SHARDS:
                self._shards.popitem(last=False)
        self._shards.move_to_end(name)
        return self._shards[name]

    def open(self, network: str, variant: int = 0) -> xr.Dataset:
        """All days of a network, or of one of its variants, as a lazy dataset with named dimensions."""
        from mycelium.corpus.dataset import open_dataset

        cases = self.cases[(self.cases["network"] == network) & (self.cases["variant"] == variant)]
        if not len(cases):
            known = self.cases.loc[self.cases["network"] == network, "variant"]
            found = f"it has variants {sorted(known.unique().tolist())}" if len(known) else "see Corpus.networks"
            raise FeederError(f"{self.folder}: no day of network '{network}', variant {variant}; {found}")
        return open_dataset(self.grid(network, variant), cases, [self.shard(name) for name in cases["shard"]])

    def _file(self, name: str, network: str) -> Path:
        path = self.folder / name
        if not path.is_file():
            raise FeederError(
                f"{self.folder}: there is no {name}; networks with samples: see Corpus.networks ('{network}'?)"
            )
        return path
