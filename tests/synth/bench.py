"""What tests of the generator share: small feeders of both kinds, made once."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

from mycelium.synth.feeder import Attempt, FeederMaker
from mycelium.synth.library import Library
from mycelium.synth.library_rows import Region
from mycelium.synth.model import Model, Solver
from mycelium.synth.parameters import Parameters, SynthConfig
from mycelium.synth.profiles import ProfileFiles
from mycelium.synth.propose import Proposal, Workshop, propose

SEED = 7
EUROPE, AMERICA = Region.EUROPE, Region.NORTH_AMERICA


def workshop(smallest: int = 60, largest: int = 160, europe_share: float = 0.5, pv: float = 0.5) -> Workshop:
    config = SynthConfig(smallest, largest, europe_share, pv_probability=pv)
    return Workshop(SEED, config, Library.builtin(), (), ProfileFiles())


@cache
def shop_of(region: Region, buses: int, pv: float) -> Workshop:
    return workshop(buses, buses, 1.0 if region is EUROPE else 0.0, pv)


def proposal(region: Region, buses: int = 120, number: int = 0, pv: float = 0.0) -> tuple[Parameters, Proposal]:
    """A fresh network that nobody has solved yet."""
    shop = shop_of(region, buses, pv)
    parameters = shop.parameters(number)
    return parameters, propose(shop, number, parameters)


@cache
def solver() -> Solver:
    return Solver()


def model_of(found: Proposal, demand: float = 1.0, pv_kw: float | None = None) -> Model:
    """Its model, with all demand multiplied, and every PV system of this rating where one is given."""
    design = found.design
    for name, load in design.loads.items():
        design.loads[name] = replace(load, kw=round(load.kw * demand, 3), kvar=round(load.kvar * demand, 3))
    if pv_kw is not None:
        for name, pv in design.pvs.items():
            design.pvs[name] = replace(pv, kw=pv_kw, kva=round(1.1 * pv_kw, 2))
    return Model(solver(), design, found.inputs)


@cache
def made(region: Region, buses: int = 120, number: int = 0, pv: float = 1.0) -> Attempt:
    """A feeder with its verdict. Do not change it."""
    return FeederMaker(shop_of(region, buses, pv)).make(number)


def read(folder: Path, name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / name).read_text())
    return found
