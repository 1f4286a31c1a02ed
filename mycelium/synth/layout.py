"""From a place to a layout of the size aimed at: territory, customers, service areas, mains, feeder, phases."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mycelium.synth.cluster import Rules, cluster_customers
from mycelium.synth.construct import Layout, Stock, bus_count
from mycelium.synth.customers import draw_customers
from mycelium.synth.geography import Geography, subdivide
from mycelium.synth.library import Library
from mycelium.synth.library_rows import Region
from mycelium.synth.parameters import Parameters
from mycelium.synth.phases import assign_phases
from mycelium.synth.sizing import coincidence
from mycelium.synth.steiner import steiner_tree
from mycelium.synth.territory import FEWEST, sample_territory
from mycelium.synth.three_phase_area import route_mains
from mycelium.synth.town import TownPlan, build_town, with_buildings

_TRIES = 5
_NEAR_ENOUGH = 0.1  # of the number of buses aimed at
_BUSES_PER_CUSTOMER = {Region.NORTH_AMERICA: 2.0, Region.EUROPE: 2.2}
_MOST_SINGLE_KVA, _MOST_THREE_KVA = 167.0, 1000.0
_MOST_LV_DROP_PU = 0.04

Draw = Callable[[str], np.random.Generator]


def draw_layout(
    parameters: Parameters, library: Library, stock: Stock, places: Sequence[Geography], rng_for: Draw
) -> tuple[Geography, Layout]:
    """A layout with about the number of buses aimed at.

    How many buses a customer takes is only known afterwards, so that the number of customers is corrected and the
    layout drawn again, with the same chances, until it fits or the place has no more buildings.

    Args:
        places: Places to choose from; an invented town if there are none.
        rng_for: A generator for each purpose; the same one whenever it is asked for.
    """
    wanted = parameters.target_buses
    n = max(round(wanted / _BUSES_PER_CUSTOMER[parameters.convention.region]), FEWEST)
    best: tuple[float, Geography, Layout] | None = None
    for _ in range(_TRIES):
        place, layout = _layout(parameters, library, stock, places, n, rng_for)
        buses, served = bus_count(layout), len(layout.customers.kw)
        off = abs(buses / wanted - 1)
        if best is None or off < best[0]:
            best = off, place, layout
        corrected = max(round(n * wanted / buses), FEWEST)
        no_more = bool(places) and served < n and buses < wanted
        if off <= _NEAR_ENOUGH or no_more or corrected == n:
            break
        n = corrected
    assert best is not None
    return best[1], best[2]


def _layout(
    parameters: Parameters, library: Library, stock: Stock, places: Sequence[Geography], n: int, rng_for: Draw
) -> tuple[Geography, Layout]:
    place = _place(places, n, rng_for("place"))
    if parameters.convention.region is Region.EUROPE:
        # Mains lie in the street and have a joint for every house, not a pole every 45 m.
        joints = subdivide(place.streets, parameters.lv_span_m)
        place = Geography(place.name, joints, place.buildings, place.attribution, place.origin_deg)
    territory = sample_territory(place, n, rng_for("territory"))
    customers = draw_customers(territory, parameters, library, rng_for("customers"))
    areas = cluster_customers(territory, customers, rules(parameters, stock), rng_for("clusters"))
    mains = route_mains(territory, areas, parameters.lv_span_m)
    feeder = steiner_tree(territory.streets, territory.head, areas.site, parameters.mv_span_m)
    phases = assign_phases(feeder, areas, customers, parameters.lateral_kva, parameters.imbalance, rng_for("phases"))
    return place, Layout(territory, customers, areas, mains, feeder, phases)


def _place(places: Sequence[Geography], n: int, rng: np.random.Generator) -> Geography:
    plan = TownPlan.draw(rng)
    if not places:
        return build_town(plan, n, rng)
    place = places[int(rng.integers(len(places)))]
    return place if len(place.buildings.xy_m) else with_buildings(place, plan, rng)


def rules(parameters: Parameters, stock: Stock) -> Rules:
    """What the sampled convention and stock ask of a service area."""
    convention = parameters.convention
    drop = stock.lv[2][-1].r1_ohm_per_km if convention.centre_tapped else 0.0
    street = stock.lv[3][-1].r1_ohm_per_km
    single_kva = min(stock.single[-1].kva, _MOST_SINGLE_KVA) if convention.centre_tapped else 0.0
    three_kva = min(stock.three[-1].kva, _MOST_THREE_KVA)

    def together(count: float) -> float:
        return float(coincidence(np.array(count)))

    return Rules(
        centre_tapped=convention.centre_tapped,
        customers_per_transformer=parameters.customers_per_transformer,
        customers_per_three_phase=parameters.customers_per_three_phase,
        own_transformers=parameters.own_transformers,
        largest_single_kva=parameters.utilisation * single_kva / together(parameters.customers_per_transformer),
        largest_three_kva=parameters.utilisation * three_kva / together(parameters.customers_per_three_phase),
        drop_reach_m=parameters.lv_reach_m,
        street_reach_m=max(parameters.lv_reach_m, 150.0),
        # There and back along both legs; the ohms are per km, the volts and kW in thousands.
        drop_pu_per_kw_m=2 * drop / (1e3 * convention.lv_single_kv) ** 2,
        street_pu_per_kw_m=street / (1e3 * convention.lv_three_kv) ** 2,
        most_drop_pu=_MOST_LV_DROP_PU,
        coincidence=0.6,
    )
