"""Names, columns and units: the single source that every other module refers to.

Conductors follow OpenDSS: 1, 2, 3 are phases A, B, C (on a centre-tapped secondary, 1 and 2 are the legs), 4 and
above are neutrals or other wires, 0 is ground. Two more exist only here. ``HIDDEN`` marks the one conductor of a
service whose phase the records do not know; in tables it is written ``?``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

PHASES = ("A", "B", "C")  # conductor slots 0, 1, 2; the two legs of a centre-tapped secondary are slots 0 and 1
GROUND = 0
HIDDEN = -1
HIDDEN_MARK = "?"

HOURS = 24
TASKS = ("state", "phase", "switch", "fault")
TIE_PREFIX = "mycelium_tie_"  # names of ties that record variants add
LOW_VOLTAGE_KV = 1.0  # line-to-line; a distribution transformer steps from above to below it


class ElementKind(StrEnum):
    """Elements with a primitive admittance, in the order of their rows in B."""

    LINE = "line"
    TRANSFORMER = "transformer"
    REACTOR = "reactor"
    CAPACITOR = "capacitor"
    SUBSTATION = "substation"


class NodeType(StrEnum):
    """Node types of the heterogeneous graph."""

    BUS = "bus"
    CONSUMER = "consumer"
    SUBSTATION = "substation"
    CAPACITOR = "capacitor"
    DER = "der"


class Connection(StrEnum):
    WYE = "wye"
    DELTA = "delta"


class DerKind(StrEnum):
    PV = "pv"
    GENERATOR = "generator"
    STORAGE = "storage"


class FaultType(StrEnum):
    LG = "LG"
    LL = "LL"
    LLG = "LLG"
    LLL = "LLL"
    LLLG = "LLLG"


class FaultPlace(StrEnum):
    BUS = "bus"
    LINE = "line"
    TRANSFORMER = "transformer"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a component table: its dtype and what it says, with the unit."""

    dtype: str
    says: str


def _terminal(n: int) -> dict[str, Column]:
    return {
        f"bus{n}": Column("int32", f"row of the bus at terminal {n}"),
        f"conductors{n}": Column("str", f"conductors of terminal {n} in order, as '1.2.3.0'; '?' is hidden"),
    }


_PROTECTION = {
    "fuse": Column("bool", "a fuse watches it"),
    "recloser": Column("bool", "a recloser or relay watches it"),
}

TABLES: dict[str, dict[str, Column]] = {
    "bus": {
        "name": Column("str", "bus name, lower case"),
        "base_kv": Column("float64", "line-to-neutral voltage base, kV"),
        "x": Column("float64", "coordinate as given, NaN where unknown"),
        "y": Column("float64", "coordinate as given, NaN where unknown"),
        "hidden": Column("bool", "fed only through a hidden-phase conductor: one own conductor, phase unknown"),
    },
    "consumer": {
        "name": Column("str", "customer (load) name"),
        **_terminal(1),
        "n_phases": Column("int8", "number of phases"),
        "connection": Column("str", "wye or delta"),
        "rated_kv": Column("float64", "rated voltage as written on the load: line-to-line for 2 and 3 phases, kV"),
        "transformer": Column("int32", "row of the serving distribution transformer (first of a bank), -1 none"),
        "eligible": Column("bool", "its phase is a question"),
        "group": Column("int32", "hidden-phase group, -1 where the phase is on record"),
    },
    "substation": {
        "name": Column("str", "source name"),
        **_terminal(1),
        **_terminal(2),
        "n_phases": Column("int8", "number of phases"),
        "base_kv": Column("float64", "rated voltage, line-to-line (line-to-neutral if single-phase), kV"),
        "setpoint_pu": Column("float64", "voltage set-point, per unit of base_kv"),
        "angle_deg": Column("float64", "angle of phase 1, degrees"),
        "frequency_hz": Column("float64", "frequency, Hz"),
        "r1_ohm": Column("float64", "positive-sequence resistance, ohm"),
        "x1_ohm": Column("float64", "positive-sequence reactance, ohm"),
        "r0_ohm": Column("float64", "zero-sequence resistance, ohm"),
        "x0_ohm": Column("float64", "zero-sequence reactance, ohm"),
        "r2_ohm": Column("float64", "negative-sequence resistance, ohm"),
        "x2_ohm": Column("float64", "negative-sequence reactance, ohm"),
        "mva_sc3": Column("float64", "three-phase short-circuit power, MVA"),
        "mva_sc1": Column("float64", "single-phase short-circuit power, MVA"),
    },
    "capacitor": {
        "name": Column("str", "capacitor name"),
        **_terminal(1),
        **_terminal(2),
        "n_phases": Column("int8", "number of phases"),
        "connection": Column("str", "wye or delta"),
        "rated_kv": Column("float64", "rated voltage, kV"),
        "rated_kvar": Column("float64", "rated reactive power of all steps, kvar"),
        "steps": Column("int16", "number of equal switching steps"),
        "step_uf": Column("float64", "capacitance per phase of one step, microfarad"),
        "filter_r_ohm": Column("float64", "series resistance of one step, ohm"),
        "filter_x_ohm": Column("float64", "series reactance of one step, ohm"),
        "initial_steps": Column("int16", "steps in operation as recorded; what is in operation now is truth"),
        "controlled": Column("bool", "a controller switches it"),
        "series": Column("bool", "in series between two buses"),
    },
    "der": {
        "name": Column("str", "device name"),
        "kind": Column("str", "pv, generator or storage"),
        **_terminal(1),
        "n_phases": Column("int8", "number of phases"),
        "connection": Column("str", "wye or delta"),
        "rated_kv": Column("float64", "rated voltage, kV"),
        "rated_kva": Column("float64", "rated apparent power, kVA"),
        "rated_kw": Column("float64", "rated active power, kW"),
        "group": Column("int32", "hidden-phase group, -1 where the phase is on record"),
    },
    "line": {
        "name": Column("str", "line name"),
        **_terminal(1),
        **_terminal(2),
        "n_conductors": Column("int8", "number of conductors"),
        "n_phases": Column("int8", "number of phase conductors"),
        "switch": Column("bool", "it can be operated: its position is a question"),
        "tie": Column("bool", "added as a documented normally open tie (record variant)"),
        **_PROTECTION,
        "length_km": Column("float64", "length, km; NaN where the model gives no unit"),
        "normal_amps": Column("float64", "normal rating, A"),
        "emergency_amps": Column("float64", "emergency rating, A"),
        "r1_ohm": Column("float64", "positive-sequence resistance (own value if one conductor), ohm"),
        "x1_ohm": Column("float64", "positive-sequence reactance, ohm"),
        "r0_ohm": Column("float64", "zero-sequence resistance, ohm"),
        "x0_ohm": Column("float64", "zero-sequence reactance, ohm"),
        "c1_nf": Column("float64", "positive-sequence capacitance, nF"),
        "c0_nf": Column("float64", "zero-sequence capacitance, nF"),
        "group": Column("int32", "hidden-phase group, -1 where all conductors are on record"),
    },
    "transformer": {
        "name": Column("str", "transformer name"),
        "n_phases": Column("int8", "number of phases"),
        "n_windings": Column("int8", "number of windings"),
        "first_winding": Column("int32", "row of winding 1; the others follow"),
        "x12_pct": Column("float64", "short-circuit reactance of windings 1-2, % on winding 1's rating"),
        "x13_pct": Column("float64", "of windings 1-3; NaN where there are two"),
        "x23_pct": Column("float64", "of windings 2-3; NaN where there are two"),
        "no_load_loss_pct": Column("float64", "no-load loss, % of rating"),
        "magnetizing_pct": Column("float64", "magnetizing current, %"),
        "antifloat_ppm": Column("float64", "admittance to ground that keeps floating windings solvable, ppm"),
        "delta_lead": Column("bool", "delta side leads (European Dyn1 lags: False)"),
        "regulator": Column("bool", "a regulator control moves its tap"),
        "distribution": Column("bool", "steps from above to below 1 kV and is no regulator"),
        "bank": Column("int32", "row of the first unit of its bank of single-phase units on the same buses"),
        **_PROTECTION,
        "normal_amps": Column("float64", "normal rating of winding 1, A"),
    },
    "winding": {
        "transformer": Column("int32", "row of its transformer"),
        "number": Column("int8", "1, 2, ..."),
        **_terminal(1),
        "connection": Column("str", "wye or delta"),
        "rated_kv": Column("float64", "rated voltage: line-to-line for 2 and 3 phases, kV"),
        "rated_kva": Column("float64", "rated apparent power, kVA"),
        "r_pct": Column("float64", "resistance, %"),
        "neutral_r_ohm": Column("float64", "neutral-to-ground resistance, ohm; negative is open"),
        "neutral_x_ohm": Column("float64", "neutral-to-ground reactance, ohm"),
        "tap_pu": Column("float64", "fixed off-load tap, per unit; 1 where a regulator moves it"),
        "regulated": Column("bool", "a regulator moves this winding's tap: its position is truth"),
        "min_tap_pu": Column("float64", "lowest tap, per unit"),
        "max_tap_pu": Column("float64", "highest tap, per unit"),
        "n_taps": Column("int16", "number of tap steps"),
    },
    "reactor": {
        "name": Column("str", "reactor name"),
        **_terminal(1),
        **_terminal(2),
        "n_phases": Column("int8", "number of phases"),
        "connection": Column("str", "wye or delta"),
        "series": Column("bool", "in series between two buses; else shunt to ground or delta"),
        "normal_amps": Column("float64", "normal rating, A"),
        "r_ohm": Column("float64", "series resistance per phase, ohm (NaN where only a matrix is given)"),
        "x_ohm": Column("float64", "reactance per phase, ohm (NaN where only a matrix is given)"),
    },
}

# Packed matrices: one square matrix per row of a table, concatenated row by row ([element, n, n] flattened).
MATRICES: dict[str, tuple[str, str]] = {
    "line_r_ohm": ("line", "series resistance of the whole line, ohm"),
    "line_x_ohm": ("line", "series reactance of the whole line, ohm"),
    "line_c_nf": ("line", "shunt capacitance of the whole line, nF"),
    "reactor_g_siemens": ("reactor", "conductance between its terminals (to ground or across phases), S"),
    "reactor_b_siemens": ("reactor", "susceptance between its terminals (to ground or across phases), S"),
}

OWN = 3  # slot of the own conductor of a hidden-phase bus or line: a scalar, never a phase


class Quantity(StrEnum):
    """What a reading is; the name carries its unit."""

    VOLTAGE = "voltage_v"  # of a bus to ground, as the state is; of a customer across its terminals
    ANGLE = "angle_deg"
    CURRENT = "current_a"
    ACTIVE = "active_power_kw"
    REACTIVE = "reactive_power_kvar"
    TAP = "tap_pu"


@dataclass(frozen=True, slots=True)
class Channel:
    """One kind of reading of one kind of element.

    Attributes:
        table: Component table whose rows it belongs to.
        quantity: What it is, with its unit.
        slots: 3 phases; 4 with an own conductor; 1 for a scalar.
        says: Sign and place.
    """

    table: str
    quantity: Quantity
    slots: int
    says: str

    @property
    def key(self) -> str:
        return f"{self.table}.{self.quantity.value}"


CHANNELS: dict[str, Channel] = {
    channel.key: channel
    for channel in (
        Channel("bus", Quantity.VOLTAGE, 4, "voltage magnitude of a conductor to ground"),
        Channel("bus", Quantity.ANGLE, 3, "voltage angle of a phase; never of an own conductor"),
        Channel("bus", Quantity.ACTIVE, 4, "demand of the bus's customers, without those in question on a phase slot"),
        Channel("bus", Quantity.REACTIVE, 4, "likewise"),
        Channel("line", Quantity.CURRENT, 4, "magnitude at terminal 1"),
        Channel("line", Quantity.ACTIVE, 4, "into terminal 1"),
        Channel("line", Quantity.REACTIVE, 4, "into terminal 1"),
        Channel("winding", Quantity.CURRENT, 3, "magnitude at the winding's terminal"),
        Channel("winding", Quantity.ACTIVE, 3, "into the winding"),
        Channel("winding", Quantity.REACTIVE, 3, "into the winding"),
        Channel("consumer", Quantity.VOLTAGE, 1, "mean magnitude across the customer's own terminals"),
        Channel("consumer", Quantity.ACTIVE, 1, "demand, all phases"),
        Channel("consumer", Quantity.REACTIVE, 1, "demand, all phases"),
        Channel("substation", Quantity.CURRENT, 3, "magnitude at the feeder head"),
        Channel("substation", Quantity.ACTIVE, 3, "from the source into the network"),
        Channel("substation", Quantity.REACTIVE, 3, "from the source into the network"),
        Channel("winding", Quantity.TAP, 1, "readback of a regulated winding's tap"),
    )
}
