"""The proposed network (G, c) of a seed and the inputs of its operating points, before anything of it is solved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mycelium.simulate.seeds import generator
from mycelium.synth.construct import Builder, Layout, Stock
from mycelium.synth.design import Design
from mycelium.synth.equipment import add_equipment, sound
from mycelium.synth.geography import Geography
from mycelium.synth.layout import draw_layout
from mycelium.synth.library import Library
from mycelium.synth.model import Inputs
from mycelium.synth.parameters import Parameters, SynthConfig, draw_parameters
from mycelium.synth.profiles import ProfileFiles, coincidence_factors, day_shapes, match_buildings, reference_year
from mycelium.synth.repair_actions import Options
from mycelium.synth.switches import add_switches

_DIGITS = 6  # of η_c and λ, so that the files hold what was solved


@dataclass(frozen=True)
class Workshop:
    """What all feeders of a run are made with.

    Attributes:
        seed: Seed of the run.
        config: Sizes and chances.
        library: Components and statistics.
        places: Geography; none for invented towns.
        files: Annual profiles; built-in where none is given.
    """

    seed: int
    config: SynthConfig
    library: Library
    places: Sequence[Geography]
    files: ProfileFiles

    def rng(self, number: int, purpose: str) -> np.random.Generator:
        """A generator for one purpose of one feeder, so that a change in one stage leaves the others as they were."""
        return generator("synth", self.seed, number, purpose)

    def parameters(self, number: int) -> Parameters:
        """What is sampled for a feeder as a whole."""
        return draw_parameters(self.config, self.library, self.rng(number, "parameters"))

    def name(self, number: int) -> str:
        return f"synth_{self.seed}_{number:06d}"


@dataclass(frozen=True)
class Proposal:
    """A network that nobody has solved yet.

    Attributes:
        place, layout: Where it is.
        design: Its elements; repairs change it.
        inputs: η_c, λ and the day.
        options: What it may be repaired with.
    """

    place: Geography
    layout: Layout
    design: Design
    inputs: Inputs
    options: Options


def propose(shop: Workshop, number: int, parameters: Parameters) -> Proposal:
    """Build the network of a seed; raises NoTerritory where the place has no room for one."""
    stock = Stock.draw(shop.library, parameters, shop.rng(number, "stock"))
    place, layout = draw_layout(parameters, shop.library, stock, shop.places, lambda what: shop.rng(number, what))
    design = Builder(layout, parameters, stock).build(shop.name(number), shop.rng(number, "head"))
    add_equipment(design, parameters, shop.library, shop.rng(number, "equipment"))
    add_switches(design, layout, parameters, stock, shop.rng(number, "switches"))
    inputs = _inputs(shop, number, parameters, layout, len(design.pvs))
    return Proposal(place, layout, design, inputs, _options(shop, number, parameters, stock))


def _inputs(shop: Workshop, number: int, parameters: Parameters, layout: Layout, n_pv: int) -> Inputs:
    year = reference_year(parameters.climate, shop.files)
    rng = shop.rng(number, "profiles")
    customers, area = layout.customers, layout.areas.of_customer
    building = match_buildings(customers.kw, customers.three_phase, year, rng)
    eta = coincidence_factors(customers.kw, area, building, year)
    shapes = day_shapes(
        building, year, parameters.date.day_of_year, n_pv, parameters.latitude_deg, shop.files, rng
    )  # fmt: skip
    return Inputs(np.round(eta, _DIGITS)[area], round(parameters.demand_lambda, _DIGITS), shapes)


def _options(shop: Workshop, number: int, parameters: Parameters, stock: Stock) -> Options:
    convention = parameters.convention
    setting = sound(shop.library.draw_regulator(shop.rng(number, "options"), convention))
    return Options(stock, setting if convention.has_regulators else None, convention.has_capacitors)
