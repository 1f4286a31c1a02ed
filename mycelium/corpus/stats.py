"""What is in a corpus: counts by split, family and kind, reasons of rejections, and traits of its networks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from mycelium.corpus.catalogue import Split
from mycelium.corpus.fingerprint import Fingerprint, straddling
from mycelium.corpus.manifest import damaged_error, read_labels
from mycelium.corpus.store import Corpus
from mycelium.grid.grid import Grid
from mycelium.grid.topology import depth, loops
from mycelium.schema import FaultPlace, FaultType
from mycelium.sense.policies import POLICIES
from mycelium.simulate.switching import Switching


@dataclass(frozen=True, slots=True)
class CorpusStats:
    """Tables about a corpus.

    Attributes:
        splits: Per split, and in total: networks, cases, rejections, samples, the largest share of one network, size.
        families: Per split and family: networks, cases, rejections.
        kinds: Per split: cases of each kind.
        reasons: Per reason: rejected cases, networks they are of, and one of these.
        labels: Digest of all labels, per split.
        straddling: Networks of different splits that are one feeder; there should be none.
    """

    splits: pd.DataFrame
    families: pd.DataFrame
    kinds: pd.DataFrame
    reasons: pd.DataFrame
    labels: dict[str, str]
    straddling: list[str]


def corpus_stats(corpus: Corpus) -> CorpusStats:
    """Count what is in a corpus."""
    manifest, cases = corpus.manifest, corpus.cases
    order = [split.value for split in Split if (manifest["split"] == split).any()]
    splits = pd.DataFrame({split: _split_row(corpus, split) for split in order}).T
    total = splits.sum()
    total["largest share"] = np.nan
    splits.loc["all"] = total
    families = manifest.groupby(["split", "family"], sort=False)["network"].agg(networks="nunique", cases="size")
    families["rejected"] = (manifest["status"] != "done").groupby([manifest["split"], manifest["family"]]).sum()
    kinds = pd.DataFrame({split: _kinds(cases[cases["split"] == split]) for split in order}).T
    rejected = manifest[manifest["status"] != "done"]
    reason = rejected["reason"].map(general_reason).rename("reason")
    reasons = rejected.groupby(reason)["network"].agg(cases="size", networks="nunique", example="first")
    labels = {split: part["labels_sha256"] for split, part in read_labels(corpus.folder).items()}
    reasons = reasons.sort_values("cases", ascending=False)
    return CorpusStats(splits, families, kinds, reasons, labels, list(straddling_networks(corpus)))


def _split_row(corpus: Corpus, split: str) -> dict[str, float]:
    planned = corpus.manifest[corpus.manifest["split"] == split]
    cases = planned[planned["status"] == "done"]
    return {
        "networks": planned["network"].nunique(),
        "cases": len(cases),
        "rejected": len(planned) - len(cases),
        "faulted": int(cases["fault_type"].notna().sum()),
        "samples": len(cases) * len(POLICIES),
        "largest share": float(cases["network"].value_counts(normalize=True).max()) if len(cases) else np.nan,
        "MB": sum(_size(corpus.folder / name) for name in cases["shard"].unique()) / 1e6,
    }


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise damaged_error(path, error) from error


def _kinds(cases: pd.DataFrame) -> dict[str, int]:
    """Cases of each kind. Only faults exclude each other."""
    kinds = {"sound": int(cases["fault_type"].isna().sum())}
    kinds |= {str(kind): int((cases["fault_type"] == kind).sum()) for kind in FaultType}
    kinds |= {f"at a {place}": int((cases["fault_place"] == place).sum()) for place in FaultPlace}
    kinds |= {
        "phases changed": int((cases["phases_changed"] > 0).sum()),
        "supply kept": int((cases["switching"] == Switching.KEEP).sum()),
        "supply lost": int((cases["switching"] == Switching.LOSE).sum()),
        "on a variant": int((cases["variant"] > 0).sum()),
        "with added ties": int((cases["ties"] > 0).sum()),
    }
    return kinds


def general_reason(reason: str) -> str:
    """A reason without the hour it happened at, so that like ones are counted together."""
    hour, colon, rest = reason.partition(": ")
    return rest if colon and hour.startswith("hour ") else reason


def straddling_networks(corpus: Corpus) -> Iterator[str]:
    """Networks of different splits that are one feeder: what is learned on one is known of the other."""
    split = {
        str(name): Split(part) for name, part in corpus.manifest.groupby("network", sort=False)["split"].first().items()
    }
    fingerprints = {name: Fingerprint.of(corpus.grid(name)) for name in corpus.networks}
    for a, b, similarity in straddling(split, fingerprints):
        both = f"'{a}' ({split[a]}) and '{b}' ({split[b]})"
        yield f"networks {both} are one feeder ({similarity:.0%} alike); put them in one split"


# ---- networks -----------------------------------------------------------------------------------------------------

TRAITS = {
    "buses": "buses",
    "loops": "independent loops",
    "depth": "hops from the substation to the farthest bus",
    "customers_per_km": "customers per km of line",
}


def network_traits(corpus: Corpus) -> pd.DataFrame:
    """Traits of every network as published; columns ``split``, ``family`` and those of ``TRAITS``, by name."""
    networks = corpus.manifest.groupby("network", sort=False)[["split", "family"]].first()
    built = [name for name in networks.index if (corpus.folder / "grids" / name / "0.npz").is_file()]
    traits = pd.DataFrame.from_dict(
        {name: _traits(corpus.grid(name)) for name in built}, orient="index", columns=list(TRAITS), dtype=float
    )
    return networks.join(traits, how="inner")


def _traits(grid: Grid) -> dict[str, float]:
    """Customers per km is NaN where most lines have no length on record."""
    length = grid.line["length_km"].to_numpy()
    known = np.isfinite(length)
    km = float(length[known].sum())
    return {
        "buses": len(grid.bus),
        "loops": loops(grid),
        "depth": depth(grid),
        "customers_per_km": len(grid.consumer) / km if 2 * known.sum() > len(length) and km > 0 else np.nan,
    }
