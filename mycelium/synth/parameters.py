"""What is sampled for a feeder as a whole, before anything of it is built."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mycelium.simulate.builtin_common import CLIMATES
from mycelium.simulate.builtin_solar import LATITUDES_DEG
from mycelium.simulate.profiles import CalendarDay
from mycelium.synth.library import Library
from mycelium.synth.library_rows import Construction, Convention, Region
from mycelium.synth.profiles import date_of


@dataclass(frozen=True, slots=True)
class SynthConfig:
    """What a run may be told.

    Attributes:
        smallest_buses, largest_buses: Sizes are drawn between these, octave by octave evenly.
        europe_share: Share of feeders of European build; the others are North American.
        thermal_probability: How often ratings are enforced.
        lowest_lambda, highest_lambda: Demand of snapshot B, per unit of nominal.
        pv_probability: How often a feeder has PV beyond what the training networks have, most of which have none.
        time_limit_s: A feeder that takes longer is rejected.
    """

    smallest_buses: int = 20
    largest_buses: int = 10_000
    europe_share: float = 0.4
    thermal_probability: float = 0.7
    lowest_lambda: float = 0.2
    highest_lambda: float = 0.4
    pv_probability: float = 0.5
    time_limit_s: int = 600


@dataclass(frozen=True, slots=True)
class Parameters:
    """Sampled parameters of one feeder.

    Attributes:
        target_buses: Size aimed at.
        convention: How the source network is built that this one follows.
        kw_per_customer: Sampled network demand level.
        demand_lambda: Demand of snapshot B (the paper's λ).
        thermal: Whether ratings are enforced (b).
        climate, latitude_deg: Of the load profiles and of the sun; drawn apart from each other and from the place.
        date: The common date.
        Other: planning statistics, see ``library_rows.STATISTICS``.
    """

    target_buses: int
    convention: Convention
    kw_per_customer: float
    demand_lambda: float
    thermal: bool
    climate: int
    latitude_deg: int
    date: CalendarDay
    customers_per_transformer: float
    customers_per_three_phase: float
    utilisation: float
    three_phase_share: float
    lv_reach_m: float
    lv_span_m: float
    mv_span_m: float
    construction: Construction
    lv_construction: Construction
    line_utilisation: float
    lateral_kva: float
    own_transformers: bool
    imbalance: float
    mv_km_per_switch: float
    ties_per_switch: float
    capacitor_kvar_per_kw: float
    line_regulators: int
    pv_share: float
    pv_kw: tuple[float, float]
    source_pu: float


# Where statistics of single networks leave what can be built, they are cut to these.
_LIMITS = {
    "kw_per_customer": (1.2, 12.0),
    "customers_per_single_phase_transformer": (1.0, 30.0),
    "customers_per_three_phase_transformer": (1.0, 400.0),
    "transformer_utilisation": (0.2, 1.2),
    "three_phase_customer_share": (0.01, 0.5),
    "lv_span_m": (8.0, 80.0),
    "mv_span_m": (30.0, 400.0),
    "mv_km_per_switch": (0.1, 5.0),
    "ties_per_switch": (0.0, 1.0),
    "capacitor_kvar_per_kw": (0.0, 0.3),
    "line_regulators": (0.0, 4.0),
    "pv_customer_share": (0.0, 0.6),
    "pv_kw": (1.0, 12.0),
}

# Customers that one three-phase transformer serves at least: European ones are few and large.
_FEWEST_THREE = {Region.NORTH_AMERICA: 1.0, Region.EUROPE: 20.0}
_REACH_M = {Region.NORTH_AMERICA: (30.0, 120.0), Region.EUROPE: (600.0, 900.0)}
_LV_CABLE_SHARE = 0.4  # of North American networks; European ones have cables at low voltage
_MANY, _LONG_REACH = 64, 0.9


def draw_parameters(config: SynthConfig, library: Library, rng: np.random.Generator) -> Parameters:
    """Draw everything; each quantity on its own but for the convention, whose family the statistics follow."""
    ratio = config.largest_buses / config.smallest_buses
    target = round(config.smallest_buses * ratio ** rng.random())
    region = Region.EUROPE if rng.random() < config.europe_share else Region.NORTH_AMERICA
    convention = library.draw_convention(rng, region)
    lambda_range = config.highest_lambda - config.lowest_lambda
    demand_lambda = config.lowest_lambda + lambda_range * rng.random()
    thermal = bool(rng.random() < config.thermal_probability)

    def statistic(name: str) -> float:
        low, high = _LIMITS[name]
        return float(np.clip(library.draw_statistic(rng, convention, name), low, high))

    def typical(name: str) -> float:
        """The mean of many values of one network, as what a whole network is planned with."""
        low, high = _LIMITS[name]
        return float(np.clip(library.draw_statistic(rng, convention, name, _MANY).mean(), low, high))

    europe = region is Region.EUROPE
    u = rng.random(8)
    reach_m = float(np.quantile(library.draw_statistic(rng, convention, "lv_reach_m", _MANY), _LONG_REACH))
    pv_kw = sorted(statistic("pv_kw") for _ in range(2))
    cable_share = float(library.draw_statistic(rng, convention, "mv_cable_share"))
    return Parameters(
        target_buses=target,
        convention=convention,
        kw_per_customer=statistic("kw_per_customer"),
        demand_lambda=demand_lambda,
        thermal=thermal,
        climate=int(rng.integers(len(CLIMATES))),
        latitude_deg=int(LATITUDES_DEG[rng.integers(len(LATITUDES_DEG))]),
        date=date_of(CalendarDay.draw(rng).day_of_year),
        customers_per_transformer=typical("customers_per_single_phase_transformer"),
        customers_per_three_phase=max(typical("customers_per_three_phase_transformer"), _FEWEST_THREE[region]),
        utilisation=typical("transformer_utilisation"),
        three_phase_share=statistic("three_phase_customer_share"),
        lv_reach_m=float(np.clip(reach_m, *_REACH_M[region])),
        lv_span_m=typical("lv_span_m"),
        mv_span_m=typical("mv_span_m"),
        construction=Construction.CABLE if u[0] < cable_share else Construction.OVERHEAD,
        lv_construction=Construction.CABLE if europe or u[1] < _LV_CABLE_SHARE else Construction.OVERHEAD,
        line_utilisation=0.5 + 0.45 * u[2],
        lateral_kva=200 + 600 * u[3],
        own_transformers=bool(u[4] < 0.7),
        imbalance=0.6 * u[7],
        mv_km_per_switch=statistic("mv_km_per_switch"),
        ties_per_switch=statistic("ties_per_switch"),
        capacitor_kvar_per_kw=statistic("capacitor_kvar_per_kw") if convention.has_capacitors else 0.0,
        line_regulators=round(statistic("line_regulators")) if convention.has_regulators else 0,
        pv_share=max(statistic("pv_customer_share"), 0.5 * u[5] if u[6] < config.pv_probability else 0.0),
        pv_kw=(pv_kw[0], pv_kw[1]),
        source_pu=float(np.clip(convention.source_pu, 1.0, 1.035)),
    )
