"""Every input column of the model, and nothing else: the paper's table of inputs as data.

A *store* is a kind of thing with columns: a node type, a relation, or an auxiliary store. Static columns are computed
from the Grid (``static``), temporal ones from Readings (``temporal``); the readings of every temporal column come with
a mask. Whatever is not a flag is transformed (``Psi``) and then normalised with constants of the training networks
(``normalise``). Columns of phases A, B and C share one constant, so that no phase is special.

Readings of the own conductor of a hidden-phase service have columns of their own ("own"), never a phase's.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mycelium.schema import DerKind

SLOT_NAMES = ("a", "b", "c", "own")
BASE_CURRENT_A = 400.0  # where the records give no rating; what OpenDSS assumes
BASE_POWER_KW = 1.0
MOST_WINDINGS = 3


class Psi(StrEnum):
    """Transformation of a column."""

    FLAG = "flag"  # as it is, and never normalised: 0 or 1, or a share between them
    PLAIN = "plain"
    ASINH = "asinh(x / base)"  # linear near zero, logarithmic where values span decades, with sign
    DEVIATION = "x / base - 1"
    RESIDUAL = "wrap(x - nominal angle)"


class Store(StrEnum):
    """Kinds of things with columns."""

    BUS = "bus"
    CONSUMER = "consumer"
    SUBSTATION = "substation"
    CAPACITOR = "capacitor"
    DER = "der"
    LINE = "line"
    TRANSFORMER = "transformer"
    REACTOR = "reactor"
    TERMINAL = "terminal"  # of a transformer: one per winding
    GRID = "grid"  # feeder head and network, hour by hour
    POWER_FLOW = "power_flow"  # feeder-head current
    SUMMARY = "summary"  # of a network's whole window


NODES = (Store.BUS, Store.CONSUMER, Store.SUBSTATION, Store.CAPACITOR, Store.DER)
BRANCHES = (Store.LINE, Store.TRANSFORMER, Store.REACTOR)


class Relation(StrEnum):
    """Kinds of edges; messages pass both ways."""

    LINE = "line"
    TRANSFORMER = "transformer"
    REACTOR = "reactor"
    SERVICE = "service"
    SOURCE = "source"
    CAPACITOR = "capacitor"
    DER = "der"
    UPLINK = "uplink"
    DOWNLINK = "downlink"
    PHASE_HEAD = "phase_head"
    TERMINAL_BUS = "terminal_bus"
    TERMINAL_OBJECT = "terminal_object"
    OBJECT_EDGE = "object_edge"


OBJECT = "transformer_object"  # has no columns: it gathers its terminals

# From which kind of thing to which an edge runs. OBJECT_EDGE ends at edges of the transformer relation.
ENDS: dict[Relation, tuple[str, str]] = {
    Relation.LINE: (Store.BUS, Store.BUS),
    Relation.TRANSFORMER: (Store.BUS, Store.BUS),
    Relation.REACTOR: (Store.BUS, Store.BUS),
    Relation.SERVICE: (Store.CONSUMER, Store.BUS),
    Relation.SOURCE: (Store.SUBSTATION, Store.BUS),
    Relation.CAPACITOR: (Store.CAPACITOR, Store.BUS),
    Relation.DER: (Store.DER, Store.BUS),
    Relation.UPLINK: (Store.SUBSTATION, Store.BUS),
    Relation.DOWNLINK: (Store.CONSUMER, Store.BUS),
    Relation.PHASE_HEAD: (Store.CONSUMER, Store.BUS),
    Relation.TERMINAL_BUS: (Store.TERMINAL, Store.BUS),
    Relation.TERMINAL_OBJECT: (Store.TERMINAL, OBJECT),
    Relation.OBJECT_EDGE: (OBJECT, Store.TRANSFORMER),
}
# The backbone passes messages along these, each way: 18 directed relations.
BACKBONE = (
    Relation.LINE, Relation.TRANSFORMER, Relation.REACTOR, Relation.SERVICE, Relation.SOURCE, Relation.CAPACITOR,
    Relation.DER, Relation.UPLINK, Relation.DOWNLINK,
)  # fmt: skip


class Communication(StrEnum):
    """Shortcut relations between substation, transformers and customers."""

    NONE = "none"
    LINKS = "links"
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """Optional parts of the inputs.

    Attributes:
        full_impedance: Full phase impedance matrices of lines.
        winding_connections: Winding connections and phases present of transformers.
        reactor_impedance: Resistance and reactance of reactors.
        extended: Power flows of lines, everything measured at transformer terminals, feeder-head currents.
        feeder_head: Voltage and power at the feeder head as inputs of the substation.
        communication: Up- and downlinks.
        phase_head: Links of customers to their transformer's secondary bus for the phase readout.
        nominal_angle: Angles relative to their nominal values; without it, relative to zero.
        position: The nine positional descriptors of every bus.
    """

    full_impedance: bool = False
    winding_connections: bool = False
    reactor_impedance: bool = True
    extended: bool = True
    feeder_head: bool = True
    communication: Communication = Communication.LINKS
    phase_head: bool = True
    nominal_angle: bool = True
    position: bool = True

    @staticmethod
    def everything() -> WindowOptions:
        """All columns there are."""
        return WindowOptions(full_impedance=True, winding_connections=True)


@dataclass(frozen=True, slots=True)
class Column:
    """One input column.

    Attributes:
        name: Unique within its store, with the unit of what goes in where it has one.
        psi: Its transformation.
        says: What it is.
        base: Base of the transformation; rows have their own where the text says so.
        shared: Name under which it is normalised: columns of several phases share one. Its own name if empty.
    """

    name: str
    psi: Psi
    says: str
    base: float = 1.0
    shared: str = ""

    @property
    def constant(self) -> str:
        """Name of its normalisation constants; empty for a flag."""
        return "" if self.psi is Psi.FLAG else self.shared or self.name


Columns = tuple[Column, ...]


def _flags(**says: str) -> Columns:
    return tuple(Column(name, Psi.FLAG, text) for name, text in says.items())


def _plain(**says: str) -> Columns:
    return tuple(Column(name, Psi.PLAIN, text) for name, text in says.items())


def _decades(base: float, **says: str) -> Columns:
    return tuple(Column(name, Psi.ASINH, text, base) for name, text in says.items())


def _phases(quantity: str, psi: Psi, says: str, slots: int = 3, base: float = 1.0) -> Columns:
    """A column per phase, and one of the own conductor where there are four slots."""
    return tuple(Column(f"{quantity}_{slot}", psi, says, base, shared=quantity) for slot in SLOT_NAMES[:slots])


_PROTECTION = _flags(fuse="a fuse watches it", recloser="a recloser or relay watches it")
_SWITCH = _flags(switch="it can be operated")

_LINE = (
    *_SWITCH,
    *_PROTECTION,
    *_decades(1e-3, length_km="length; 0 where not on record"),
    *_flags(no_length="its length is not on record"),
    *_decades(1.0, normal_a="normal rating", emergency_a="emergency rating"),
    *_decades(1.0, c1_nf="positive-sequence capacitance", c0_nf="zero-sequence capacitance"),
    *_decades(1e-3, r1_ohm="positive-sequence resistance", x1_ohm="positive-sequence reactance"),
    *_decades(1e-3, r0_ohm="zero-sequence resistance", x0_ohm="zero-sequence reactance"),
    *_plain(n_phases="phase conductors"),
)
_ENTRIES = ("aa", "bb", "cc", "ab", "bc", "ca")
# A hidden conductor's own impedance stands at all three places of the diagonal: it has no place of its own.
_LINE_MATRIX = tuple(
    Column(
        f"{part}_{ij}_ohm",
        Psi.ASINH,
        "phase impedance matrix, symmetric",
        1e-3,
        f"{part}_{'self' if ij[0] == ij[1] else 'mutual'}_ohm",
    )
    for part in ("r", "x")
    for ij in _ENTRIES
)
_TRANSFORMER = (
    *_flags(regulator="a regulator control moves its tap"),
    *_PROTECTION,
    *_decades(1.0, rated_kva="rating of winding 1"),
    *_decades(1.0, turns_ratio="rated voltage of winding 1 over that of the edge's other winding"),
    *_plain(n_windings="windings"),
    *_decades(0.1, no_load_loss_pct="no-load loss", magnetizing_pct="magnetizing current"),
    *_plain(x12_pct="reactance of windings 1-2", x13_pct="1-3; 0 where there are two", x23_pct="2-3; likewise"),
    *_plain(n_phases_1="phase conductors of winding 1", n_phases_2="of the edge's other winding"),
)
_TRANSFORMER_WINDINGS = (
    *_flags(delta_1="winding 1 is in delta", delta_2="the edge's other winding is in delta"),
    *(
        Column(f"phase_{slot}_{k}", Psi.FLAG, f"winding {k} (2: the edge's other) is on this phase")
        for k in (1, 2)
        for slot in SLOT_NAMES[:3]
    ),
)
_REACTOR = (*_SWITCH, *_PROTECTION, *_plain(n_phases="phase conductors"))
_REACTOR_IMPEDANCE = (
    *_decades(1e-3, r_ohm="resistance; 0 where only a matrix is given", x_ohm="reactance; likewise"),
    *_flags(no_impedance="only a matrix is given"),
)
TIERS = ("none", "voltage", "active", "reactive")
_STATIC: dict[Store, Columns] = {
    Store.BUS: (
        *_decades(0.1, base_kv="line-to-neutral voltage base"),
        *_flags(source="a source is here"),
        *_plain(x="coordinate from the middle of the network, over half its extent", y="likewise"),
        *_flags(located="has coordinates"),
    ),
    # Which readings a customer's meter gave in this window: a function of the masks, not of a register.
    Store.CONSUMER: tuple(Column(f"tier_{tier}", Psi.FLAG, f"best reading: {tier}") for tier in TIERS),
    Store.SUBSTATION: (
        *_decades(1e-2, r1_ohm="positive-sequence source resistance", x1_ohm="positive-sequence source reactance"),
        *_decades(1e-2, r0_ohm="zero-sequence source resistance", x0_ohm="zero-sequence source reactance"),
        *_decades(1.0, mva_sc3="three-phase short-circuit power", mva_sc1="single-phase short-circuit power"),
        *_decades(0.1, base_kv="rated voltage"),
        Column("setpoint_pu", Psi.DEVIATION, "voltage set-point"),
        *_plain(angle_rad="angle of phase 1", frequency_hz="frequency"),
    ),
    Store.CAPACITOR: (
        *_decades(0.1, rated_kv="rated voltage"),
        *_decades(1.0, rated_kvar="rated reactive power of all steps"),
        *_plain(steps="switching steps"),
        *_flags(delta="connected in delta", controlled="a controller switches it"),
        *_flags(active_share="share of steps in operation as recorded"),
    ),
    Store.DER: (
        *(Column(kind.value, Psi.FLAG, f"its kind is {kind.value}") for kind in DerKind),
        *_decades(BASE_POWER_KW, rated_kw="rated active power", rated_kvar="what its kVA leave for it"),
        *_flags(delta="connected in delta"),
    ),
    Store.TERMINAL: tuple(Column(f"winding_{k + 1}", Psi.FLAG, f"it is winding {k + 1}") for k in range(MOST_WINDINGS)),
}  # fmt: skip

_VOLTAGE = (Psi.DEVIATION, "voltage to ground, on the bus's base")
_ANGLE = (Psi.RESIDUAL, "voltage angle")
_POWER = (Psi.ASINH, "power, on 1 kW")
_CURRENT = (Psi.ASINH, "current, on its rating")
_HEAD = (
    *_phases("voltage_v", *_VOLTAGE),
    *_phases("active_kw", *_POWER, base=BASE_POWER_KW),
    *_phases("reactive_kvar", *_POWER, base=BASE_POWER_KW),
)
_BUS_TEMPORAL = (
    *_phases("voltage_v", *_VOLTAGE, slots=4),
    *_phases("angle_deg", *_ANGLE),
    *_phases("active_kw", *_POWER, slots=4, base=BASE_POWER_KW),
    *_phases("reactive_kvar", *_POWER, slots=4, base=BASE_POWER_KW),
)
_CONSUMER_TEMPORAL = (
    Column("voltage_v", Psi.DEVIATION, "voltage across its terminals, on its rating"),
    Column("active_kw", Psi.ASINH, "demand", BASE_POWER_KW),
    Column("reactive_kvar", Psi.ASINH, "demand", BASE_POWER_KW),
)
_LINE_CURRENT = _phases("current_a", *_CURRENT, slots=4)
_LINE_FLOW = (
    *_phases("active_kw", *_POWER, slots=4, base=BASE_POWER_KW),
    *_phases("reactive_kvar", *_POWER, slots=4, base=BASE_POWER_KW),
)
_TERMINAL_TEMPORAL = (
    *_phases("voltage_v", *_VOLTAGE),
    *_phases("angle_deg", *_ANGLE),
    *_phases("current_a", *_CURRENT),
    *_phases("active_kw", *_POWER, base=BASE_POWER_KW),
    *_phases("reactive_kvar", *_POWER, base=BASE_POWER_KW),
)

# What cadence is told of: families of readings that come and go together.
FAMILIES = ("bus_voltage", "bus_power", "consumer_voltage", "consumer_power", "current", "flow", "head")
_CADENCE = tuple(
    Column(f"{name}_{family}", psi, says, shared=name if psi is not Psi.FLAG else "")
    for family in FAMILIES
    for name, psi, says in (
        ("present", Psi.FLAG, "share of its readings that could exist that were reported"),
        ("age_h", Psi.PLAIN, "mean hours since the last reading, over what has reported so far"),
    )
)
TAP_COLUMNS = tuple(
    Column(f"tap_{name}", Psi.DEVIATION, f"{name} of the regulator taps read back, per unit", shared="tap")
    for name in ("mean", "low", "high")
)
_GRID = (*_HEAD, *TAP_COLUMNS, *_CADENCE)

STATISTICS = ("mean", "deviation", "low", "high", "last")
_SUMMARY = (
    *(
        Column(f"{quantity}_{name}", Psi.PLAIN, f"{name} of the feeder head's {quantity} over hours and phases")
        for quantity in ("voltage", "active", "reactive")
        for name in STATISTICS
    ),
    *(Column(f"tap_{name}", Psi.PLAIN, f"{name} of all taps read back") for name in STATISTICS),
    *_plain(tap_moves="changes from hour to hour per tap read back", tap_range="mean range of a tap, per unit"),
    *_flags(taps_seen="any tap was read back"),
    *(Column(f"present_{family}", Psi.FLAG, "share of the readings that could exist") for family in FAMILIES),
)


def static_columns(options: WindowOptions) -> dict[Store, Columns]:
    """Static columns of every store that has some."""
    line = _LINE + (_LINE_MATRIX if options.full_impedance else ())
    transformer = _TRANSFORMER + (_TRANSFORMER_WINDINGS if options.winding_connections else ())
    reactor = _REACTOR + (_REACTOR_IMPEDANCE if options.reactor_impedance else ())
    return {
        **_STATIC,
        Store.LINE: line,
        Store.TRANSFORMER: transformer,
        Store.REACTOR: reactor,
        Store.SUMMARY: _SUMMARY,
    }


def temporal_columns(options: WindowOptions) -> dict[Store, Columns]:
    """Temporal columns of every store that has some."""
    result = {
        Store.BUS: _BUS_TEMPORAL,
        Store.CONSUMER: _CONSUMER_TEMPORAL,
        Store.LINE: _LINE_CURRENT + (_LINE_FLOW if options.extended else ()),
        Store.GRID: _GRID,
    }
    if options.feeder_head:
        result[Store.SUBSTATION] = _HEAD
    if options.extended:
        result[Store.TERMINAL] = _TERMINAL_TEMPORAL
        result[Store.POWER_FLOW] = _phases("current_a", *_CURRENT)
    return result


def names(columns: Columns) -> tuple[str, ...]:
    return tuple(column.name for column in columns)


def first(columns: Columns, shared: str) -> int:
    """Place of the first column normalised under a name; those of its phases follow."""
    return next(k for k, column in enumerate(columns) if column.constant == shared)
