"""Customers of a territory: phase class, nominal demand, and who has photovoltaics.

Demand records are drawn from the library within each class, then all are scaled to the sampled demand level, so that
the library gives who is large and who is small, and the level gives how much there is in all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mycelium.synth.design import InverterMode
from mycelium.synth.geography import Flags, Floats
from mycelium.synth.library import Library
from mycelium.synth.library_rows import CustomerClass, Region
from mycelium.synth.parameters import Parameters
from mycelium.synth.territory import Territory

_LARGEST_SINGLE_PHASE_KW = 25.0
_LARGEST_KW = 1500.0
_LEAST_PF = 0.8
_EUROPEAN_PV_KW = 4.6  # 20 A: more is not connected to one phase
MODES = (InverterMode.UNITY, InverterMode.FIXED_PF, InverterMode.VOLT_VAR)


@dataclass(frozen=True)
class Customers:
    """Who is served.

    Attributes:
        xy_m: Position. [customer, 2]
        three_phase: On three phases, else on one (or the two legs of a centre tap). [customer]
        kw, kvar: Nominal demand. [customer]
        pv_kw: Rated power of the PV system, 0 where there is none. [customer]
        pv_kva: Rating of its inverter. [customer]
        pv_mode: Place in ``MODES``. [customer]
        pv_pf: Power factor of those in fixed mode; negative: the inverter takes reactive power. [customer]
    """

    xy_m: Floats
    three_phase: Flags
    kw: Floats
    kvar: Floats
    pv_kw: Floats
    pv_kva: Floats
    pv_mode: np.typing.NDArray[np.int64]
    pv_pf: Floats

    @cached_property
    def kva(self) -> Floats:
        """Nominal apparent power. [customer]"""
        return np.asarray(np.hypot(self.kw, self.kvar), dtype=np.float64)


def draw_customers(
    territory: Territory, parameters: Parameters, library: Library, rng: np.random.Generator
) -> Customers:
    """One customer per building."""
    buildings = territory.buildings
    n = len(buildings.xy_m)
    three_phase = _three_phase(buildings.business, parameters.three_phase_share, rng)
    kw, kvar = np.zeros(n), np.zeros(n)
    for customer_class, who in ((CustomerClass.SINGLE_PHASE, ~three_phase), (CustomerClass.THREE_PHASE, three_phase)):
        if who.any():
            kw[who], kvar[who] = library.draw_loads(rng, customer_class, int(who.sum()))
    scale = parameters.kw_per_customer / kw.mean()
    largest = np.where(three_phase, _LARGEST_KW, _LARGEST_SINGLE_PHASE_KW)
    kw, kvar = kw * scale, kvar * scale
    cut = np.minimum(largest / np.maximum(kw, 1e-9), 1.0)
    kw, kvar = np.maximum(kw * cut, 0.1), kvar * cut
    kvar = np.clip(kvar, 0, kw * np.tan(np.arccos(_LEAST_PF)))
    return Customers(
        buildings.xy_m,
        three_phase,
        np.round(kw, 3),
        np.round(kvar, 3),
        *_photovoltaics(kw, three_phase, parameters, rng),
    )


def _three_phase(business: Flags, share: float, rng: np.random.Generator) -> Flags:
    """Businesses first: each with the same chance, and homes only for what of the share is left."""
    n, n_business = len(business), int(business.sum())
    wanted = share * n
    chance = np.where(business, min(wanted / max(n_business, 1), 0.95), 0.0)
    left = max(wanted - 0.95 * n_business, 0.0)
    chance[~business] = min(left / max(n - n_business, 1), 1.0)
    return np.asarray(rng.random(n) < chance)


def _photovoltaics(
    kw: Floats, three_phase: Flags, parameters: Parameters, rng: np.random.Generator
) -> tuple[Floats, Floats, np.typing.NDArray[np.int64], Floats]:
    """Rated power, inverter rating, mode and power factor. [customer] each"""
    n = len(kw)
    u = rng.random((3, n))
    low, high = parameters.pv_kw
    # Larger customers have larger roofs, but a roof is a roof.
    size = (low + (high - low) * u[1]) * np.sqrt(np.clip(kw / parameters.kw_per_customer, 0.5, 30))
    if parameters.convention.region is Region.EUROPE:
        size = np.where(three_phase, size, np.minimum(size, _EUROPEAN_PV_KW))
    pv_kw = np.where(u[0] < parameters.pv_share, np.round(size, 1), 0.0)
    # A third of the networks has one mode for all, as their utility asks for it; else each system has its own.
    one_mode = rng.random() < 1 / 3
    mode = np.full(n, rng.integers(len(MODES))) if one_mode else rng.integers(len(MODES), size=n)
    pf = np.where(rng.random(n) < 0.5, -0.95, -0.98)
    return pv_kw, np.round(pv_kw * (1.0 + 0.25 * u[2]), 2), mode, pf
