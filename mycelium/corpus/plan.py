"""The plan: which cases a corpus holds, each a function of (network, seed, number) and of its stratum.

A corpus file is a TOML of a few lines:

    catalogue = "reference-networks.toml"   # relative to this file
    seed = 1
    networks = ["enwl.*", "ieee.*"]         # patterns; all of the catalogue if not given

    [cases]                                 # per network, by split; a split that is not named is left out
    train = 12
    test = 20

    [[fewer]]                               # networks whose cases cost too much
    networks = ["epri.ckt24"]
    cases = 6
    because = "1.3 s per case"

Together with the catalogue it re-makes a corpus anywhere, with labels equal bit by bit.

*Strata.* Cases come in blocks of ``BLOCK``. Every block of a network holds five sound days and one of each fault type;
half of it, drawn anew for every block, is on record variants; either half holds two cases that leave the switches
alone, two that keep supply and one that loses it; half of the block changes phases. Which case gets what is shuffled
independently, so that nothing about a case tells anything else about it. A network that does not admit a stratum gives
what it admits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mycelium.corpus.catalogue import Entry, Split, read_catalogue, read_model
from mycelium.corpus.toml_file import read_toml, shown, text_of, texts, whole_number
from mycelium.errors import FeederError
from mycelium.schema import FaultType
from mycelium.simulate.cases import CaseMix
from mycelium.simulate.network import NetworkSource
from mycelium.simulate.seeds import generator
from mycelium.simulate.switching import Switching

FORMAT = 1
BLOCK = 10
MOST_CASES = 1_000_000  # of a network
CASES_PER_UNIT = 10  # simulated and stored together: what a kill can cost, and one shard per variant

_SWITCHING = (Switching.NONE, Switching.NONE, Switching.KEEP, Switching.KEEP, Switching.LOSE)
_KEYS = ("catalogue", "seed", "cases", "networks", "fewer")
_EXAMPLE = 'networks = ["north", "south.*"]'
_SPLITS = ", ".join(Split)


@dataclass(frozen=True, slots=True)
class Stratum:
    """What a case is asked to be.

    Attributes:
        fault: Type of the fault, None for a sound day.
        switching: What the switching shall come to.
        phase_change: Whether customers' phases change.
        variant: Whether it is on a record variant.
    """

    fault: FaultType | None
    switching: Switching
    phase_change: bool
    variant: bool

    @property
    def mix(self) -> CaseMix:
        """The draw that asks for it."""
        return CaseMix(
            variant=float(self.variant),
            phase_change=float(self.phase_change),
            keep_supply=float(self.switching is Switching.KEEP),
            lose_supply=float(self.switching is Switching.LOSE),
            fault=float(self.fault is not None),
            fault_types=tuple(FaultType) if self.fault is None else (self.fault,),
        )

    def __str__(self) -> str:
        asked = [self.fault or "sound", self.switching, *(n for n in ("phase_change", "variant") if getattr(self, n))]
        return " ".join(asked)


def stratum(network: str, seed: int, number: int) -> Stratum:
    """Stratum of a case."""
    return _block(network, seed, number // BLOCK)[number % BLOCK]


@lru_cache(maxsize=4096)
def _block(network: str, seed: int, block: int) -> tuple[Stratum, ...]:
    """Strata of one block of cases."""
    rng = generator(network, "strata", seed, block)
    faults = [None] * (BLOCK - len(FaultType)) + list(FaultType)
    fault, phase, variant = (rng.permutation(BLOCK).tolist() for _ in range(3))
    within = [rng.permutation(BLOCK // 2).tolist() for _ in range(2)]
    half = BLOCK // 2
    return tuple(
        Stratum(
            fault=faults[fault[k]],
            switching=_SWITCHING[within[variant[k] // half][variant[k] % half]],
            phase_change=phase[k] < half,
            variant=variant[k] < half,
        )
        for k in range(BLOCK)
    )


@dataclass(frozen=True, slots=True)
class Unit:
    """Cases of one network that are simulated and stored together.

    Attributes:
        network: Its name in the catalogue.
        source: Where the model is.
        seed: Seed of all cases.
        chunk: Which unit of the network.
        numbers: Its cases.
        cost: A guess at its share of the work, in no unit.
    """

    network: str
    source: NetworkSource
    seed: int
    chunk: int
    numbers: range
    cost: float


@dataclass(frozen=True, slots=True)
class PlannedNetwork:
    """A network and how many cases it has.

    Attributes:
        entry: As catalogued.
        cases: Numbered from 0.
        digest: sha256 of its model.
        size: Number of commands that make it.
    """

    entry: Entry
    cases: int
    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that decides what a corpus holds.

    Attributes:
        seed: Seed of all cases.
        networks: In the order of the catalogue.
    """

    seed: int
    networks: tuple[PlannedNetwork, ...]

    @property
    def n_cases(self) -> int:
        return sum(network.cases for network in self.networks)

    def units(self) -> Iterator[Unit]:
        """All units, network by network."""
        for network in self.networks:
            entry = network.entry
            for start in range(0, network.cases, CASES_PER_UNIT):
                numbers = range(start, min(start + CASES_PER_UNIT, network.cases))
                cost = float(network.size * len(numbers))
                yield Unit(entry.name, entry.network_source, self.seed, start // CASES_PER_UNIT, numbers, cost)

    def record(self) -> dict[str, Any]:
        """What a corpus folder keeps of it: no path of this machine, and enough to tell another plan."""
        return {
            "format": FORMAT,
            "made_with": {name: version(name) for name in ("mycelium-grid", "dss-python")},
            "seed": self.seed,
            "strata": _strata_digest(self.seed),
            "networks": {
                network.entry.name: {
                    "family": network.entry.family,
                    "split": network.entry.split.value,
                    "model": network.digest,
                    "cases": network.cases,
                }
                for network in self.networks
            },
        }


def _strata_digest(seed: int) -> str:
    """Digest of what strata ask for, on a network that stands for all: another way to stratify gives another one."""
    mixes = [asdict(stratum("any", seed, number).mix) for number in range(5 * BLOCK)]
    return hashlib.sha256(json.dumps(mixes).encode()).hexdigest()


def what_changed(old: dict[str, Any], new: dict[str, Any]) -> str:
    """Why finished work of an older plan is of no use to a new one; empty if it is: more cases, more networks."""
    for key in ("format", "made_with", "seed", "strata"):
        if old.get(key) != new[key]:
            return f"{key} was {old.get(key)} and is {new[key]}"
    for name, was in old["networks"].items():
        now = new["networks"].get(name)
        if now is None:
            return f"network '{name}' is no longer planned"
        for key in ("family", "split", "model"):
            if was[key] != now[key]:
                return f"{key} of network '{name}' was {was[key]} and is {now[key]}"
        if was["cases"] > now["cases"]:
            return f"network '{name}' had {was['cases']} cases and has {now['cases']}"
    return ""


# ---- the corpus file ----------------------------------------------------------------------------------------------


def read_plan(path: Path, tick: Callable[[int, int], None] = lambda done, total: None) -> Plan:
    """The plan of a corpus file; reads every model once, to know that it is the right one.

    Args:
        path: The corpus file.
        tick: Called with the number of models read and their total.
    """
    entries = planned_cases(path)
    networks = []
    for entry, cases in entries:
        digest, size = read_model(entry)
        networks.append(PlannedNetwork(entry, cases, digest, size))
        tick(len(networks), len(entries))
    _refuse_same_models(path, networks)
    return Plan(int(_content(path)["seed"]), tuple(networks))


def _refuse_same_models(path: Path, networks: list[PlannedNetwork]) -> None:
    """What is learned on a model is known of its copies: they belong in one split, whatever they are called.

    This sees equal files. Feeders that are nearly one are found by their topology, when the corpus is built.
    """
    first: dict[str, Entry] = {}
    for network in networks:
        entry, same = network.entry, first.setdefault(network.digest, network.entry)
        if entry.split is not same.split:
            raise FeederError(
                f"{path}: networks '{same.name}' ({same.split}) and '{entry.name}' ({entry.split}) are the same model; "
                "in the catalogue, put them in one split or remove one"
            )


def _content(path: Path) -> dict[str, Any]:
    """What a corpus file says, checked."""
    _, content = read_toml(path, "a corpus file")
    for key in content:
        if key not in _KEYS:
            raise FeederError(f"{path}: unknown `{key}`; known are {', '.join(_KEYS)}")
    for key in ("catalogue", "seed", "cases"):
        if key not in content:
            raise FeederError(f"{path}: `{key}` is missing")
    text_of(f"{path}: `catalogue`", content["catalogue"])
    whole_number(f"{path}: `seed`", content["seed"])
    if "networks" in content:
        texts(f"{path}: `networks`", content["networks"], f"{_EXAMPLE}; leave it out for all networks")
    if not isinstance(content["cases"], dict):
        raise FeederError(f"{path}: `cases` is {shown(content['cases'])}; expected a table [cases] with {_SPLITS}")
    for split, cases in content["cases"].items():
        if split not in list(Split):
            raise FeederError(f"{path}: cases: {split} = {shown(cases)}; expected a number for {_SPLITS}")
        whole_number(f"{path}: cases: `{split}`", cases, 1, MOST_CASES)
    fewer = content.get("fewer", [])
    if not isinstance(fewer, list):
        raise FeederError(f"{path}: `fewer` is {shown(fewer)}; expected tables [[fewer]], in double brackets")
    for part in fewer:
        _check_fewer(f"{path}: [[fewer]]", part)
    return content


def _check_fewer(where: str, part: object) -> None:
    if not isinstance(part, dict) or sorted(part) != ["because", "cases", "networks"]:
        raise FeederError(
            f"{where} {shown(part)}; expected `networks`, `cases` (at least 1) and `because`, and no more"
        )
    texts(f"{where}: `networks`", part["networks"], _EXAMPLE)
    whole_number(f"{where}: `cases`", part["cases"], 1, MOST_CASES)
    text_of(f"{where}: `because`", part["because"])


def planned_cases(path: Path) -> list[tuple[Entry, int]]:
    """Networks of a corpus file and their numbers of cases, without a look at their models."""
    content = _content(path)
    catalogue = path.parent / content["catalogue"]
    entries = read_catalogue(catalogue)
    patterns = content.get("networks", ["*"])
    fewer = content.get("fewer", [])
    for pattern in [*patterns, *(pattern for part in fewer for pattern in part["networks"])]:
        if not any(fnmatchcase(entry.name, pattern) for entry in entries):
            raise FeederError(f"{path}: no network of {catalogue} is called like '{pattern}'")
    chosen = []
    for entry in entries:
        cases = content["cases"].get(entry.split.value, 0)
        for part in fewer:
            if any(fnmatchcase(entry.name, pattern) for pattern in part["networks"]):
                cases = min(cases, part["cases"])
        if cases and any(fnmatchcase(entry.name, pattern) for pattern in patterns):
            chosen.append((entry, cases))
    if not chosen:
        raise FeederError(f"{path}: no network is in one of the splits of [cases]")
    return chosen
