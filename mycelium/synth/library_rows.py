"""What the component library holds: one typed row per fact, with the network it was read from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Region(StrEnum):
    """How low voltage is built: split-phase behind many small units, or three phases behind few large ones."""

    NORTH_AMERICA = "north_america"
    EUROPE = "europe"


class Level(StrEnum):
    """Voltage class of a conductor."""

    MEDIUM = "medium_voltage"
    LOW = "low_voltage"


class Construction(StrEnum):
    OVERHEAD = "overhead"
    CABLE = "cable"


class Role(StrEnum):
    """What a transformer is for."""

    DISTRIBUTION = "distribution"
    SUBSTATION = "substation"


class CustomerClass(StrEnum):
    """A customer on one phase (or the two legs of a centre tap), or on three."""

    SINGLE_PHASE = "single_phase"
    THREE_PHASE = "three_phase"


FEWEST_CUSTOMERS = 10  # a network with fewer is no example of a feeder

# Planning statistics and their units. A statistic is kept per network as a few quantiles.
STATISTICS: dict[str, str] = {
    "customers_per_single_phase_transformer": "customers of one single-phase or centre-tapped unit",
    "customers_per_three_phase_transformer": "customers of one three-phase unit",
    "three_phase_customer_share": "share of customers on three phases",
    "transformer_utilisation": "nominal customer kVA over transformer rating",
    "kw_per_customer": "nominal demand per customer, kW",
    "mv_span_m": "length of a medium-voltage line section, m",
    "lv_span_m": "length of a low-voltage line section that ends at no customer, m",
    "service_span_m": "length of the line to a customer, m",
    "lv_reach_m": "line length from a distribution transformer to its farthest customer, m",
    "mv_reach_km": "line length from the substation to the farthest distribution transformer, km",
    "mv_single_phase_share": "share of medium-voltage line length on one phase",
    "mv_cable_share": "share of medium-voltage line length in cables",
    "mv_km_per_switch": "medium-voltage line length per switch, km",
    "ties_per_switch": "independent loops with all switches closed, per switch",
    "capacitor_kvar_per_kw": "shunt capacitors per nominal demand, kvar per kW; 0 where there are none",
    "capacitor_distance_km": "line length from the substation to a capacitor, km",
    "regulator_distance_km": "line length from the substation to a regulator out on the feeder, km",
    "line_regulators": "regulators out on the feeder, counted per place",
    "pv_customer_share": "PV systems per customer; 0 where there are none",
    "pv_kw": "rated active power of one PV system, kW",
    "pv_kw_per_kw": "PV rated power per nominal demand, where there is any",
}


@dataclass(frozen=True, slots=True)
class Source:
    """Where a row comes from (first columns of every row).

    Attributes:
        family: Family of the network.
        network: Its name in the catalogue.
    """

    family: str
    network: str


@dataclass(frozen=True, slots=True)
class Conductor(Source):
    """A line type. Zs = (2 Z1 + Z0) / 3 and Zm = (Z0 - Z1) / 3 for two and three phases alike, as in OpenDSS.

    Attributes:
        level: Voltage class.
        construction: Overhead or cable, judged by its capacitance or reactance.
        n_phases: Phase conductors; a triplex service has 2.
        r1_ohm_per_km, x1_ohm_per_km: Positive sequence (the own value of a single conductor).
        r0_ohm_per_km, x0_ohm_per_km: Zero sequence (the same as positive of a single conductor).
        c1_nf_per_km, c0_nf_per_km: Capacitance.
        ampacity_a: Normal rating.
        rated: Whether the source gives the rating; else it follows from the resistance of rated ones.
        length_km: How much of it the network has: its weight.
    """

    level: Level
    construction: Construction
    n_phases: int
    r1_ohm_per_km: float
    x1_ohm_per_km: float
    r0_ohm_per_km: float
    x0_ohm_per_km: float
    c1_nf_per_km: float
    c0_nf_per_km: float
    ampacity_a: float
    rated: bool
    length_km: float


@dataclass(frozen=True, slots=True)
class TransformerType(Source):
    """A transformer type.

    Attributes:
        role: Distribution or substation.
        n_phases: 1 or 3.
        centre_tapped: Two legs of half the secondary voltage, with a neutral between.
        kva: Rating.
        primary_kv, secondary_kv: Line-to-line, for single-phase units across the winding (both legs in series).
        r_pct: Resistance of both windings together, %, the legs carrying equal load.
        x_pct: Reactance, %; of a centre-tapped unit from the primary to one leg (X12 = X13).
        x_legs_pct: Reactance between the legs (X23), %; 0 where there are none.
        no_load_loss_pct, magnetizing_pct: %.
        primary_delta, secondary_delta: Connections.
        count: How many the network has: its weight.
    """

    role: Role
    n_phases: int
    centre_tapped: bool
    kva: float
    primary_kv: float
    secondary_kv: float
    r_pct: float
    x_pct: float
    x_legs_pct: float
    no_load_loss_pct: float
    magnetizing_pct: float
    primary_delta: bool
    secondary_delta: bool
    count: int


@dataclass(frozen=True, slots=True)
class LoadRecord(Source):
    """Nominal demand of a customer.

    Attributes:
        customer_class: Single- or three-phase.
        kw, kvar: Nominal demand.
        count: How many customers it stands for: its weight.
    """

    customer_class: CustomerClass
    kw: float
    kvar: float
    count: int


@dataclass(frozen=True, slots=True)
class RegulatorSetting(Source):
    """Control of a voltage regulator.

    Attributes:
        target_pu: Voltage set-point, per unit of the nominal voltage.
        band_pu: Width of the dead band.
        delay_s: Time delay.
        kva: Rating of one unit; 0 where the source has a placeholder.
        mv_kv: Line-to-line voltage where it stands.
        ct_primary_a: Rating of the current transformer of its line-drop compensation.
        r_v, x_v: Compensation, V; 0 where there is none.
        at_substation: At the feeder head, or out on the feeder.
        count: Number of units with this setting.
    """

    target_pu: float
    band_pu: float
    delay_s: float
    kva: float
    mv_kv: float
    ct_primary_a: float
    r_v: float
    x_v: float
    at_substation: bool
    count: int


@dataclass(frozen=True, slots=True)
class CapacitorSetting(Source):
    """A shunt capacitor and its control.

    Attributes:
        kvar: Rating of the whole bank.
        n_phases: Phases.
        mv_kv: Line-to-line voltage.
        control: none, voltage, kvar, current, time or pf.
        on, off: Settings, in the unit of the control (voltage: per unit of nominal; kvar; A; hours).
        delay_s: Time delay.
        count: Number of banks like it.
    """

    kvar: float
    n_phases: int
    mv_kv: float
    control: str
    on: float
    off: float
    delay_s: float
    count: int


@dataclass(frozen=True, slots=True)
class Convention(Source):
    """How one source network is built.

    Attributes:
        region: North American or European low voltage.
        frequency_hz: Base frequency.
        mv_kv: Medium voltage, line-to-line.
        lv_single_kv: Low voltage across a single-phase customer (0.24: both legs of a centre tap; 0.23: to neutral).
        lv_three_kv: Low voltage of three-phase customers, line-to-line.
        centre_tapped: Single-phase customers are behind single-phase units, with 120/240 V on two legs.
        source_pu: Voltage set-point at the head.
        has_capacitors, has_regulators, has_pv, has_switches: Devices present.
        customers: Number of loads behind distribution transformers.
    """

    region: Region
    frequency_hz: float
    mv_kv: float
    lv_single_kv: float
    lv_three_kv: float
    centre_tapped: bool
    source_pu: float
    has_capacitors: bool
    has_regulators: bool
    has_pv: bool
    has_switches: bool
    customers: int

    @property
    def complete(self) -> bool:
        """Whether a feeder can be planned after it: it has customers, served in the way of its region."""
        return self.customers >= FEWEST_CUSTOMERS and self.centre_tapped == (self.region is Region.NORTH_AMERICA)


@dataclass(frozen=True, slots=True)
class Statistic(Source):
    """A planning statistic of one network.

    Attributes:
        name: One of ``STATISTICS``.
        n: Number of values behind it.
        quantiles: At equal steps from the smallest to the largest value. [quantile]
    """

    name: str
    n: int
    quantiles: tuple[float, ...]
