"""Tables of a Grid from a compiled circuit, one function per component class.

Values come from the engine's typed properties, in batch, at full precision. Terminals follow the engine's rule for
bus strings: conductors named after the bus name replace the defaults 1, 2, ..., n phases, then ground.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from mycelium.grid.base_frequency import METRES, line_impedances, reactance_ratio
from mycelium.grid.hidden import lot
from mycelium.grid.import_report import ImportReport
from mycelium.grid.primitive import delta_coils, sequence_matrix
from mycelium.schema import LOW_VOLTAGE_KV, TABLES, TIE_PREFIX, Connection, DerKind

Columns = dict[str, Any]
Floats = npt.NDArray[np.float64]

_IDEAL_SOURCE = 1
_SCALED = (
    "its base frequency is not the network's: its reactances are scaled, by rules that may differ from the engine's"
)


@dataclass
class Buses:
    """Bus names in order of first sight, and the row of each."""

    names: list[str] = field(default_factory=list)
    row: dict[str, int] = field(default_factory=dict)

    def find(self, name: str) -> int:
        if name not in self.row:
            self.row[name] = len(self.names)
            self.names.append(name)
        return self.row[name]


def terminal(buses: Buses, text: str, n_phases: int, n_conductors: int) -> tuple[int, str]:
    """Bus row and conductors of a bus string such as 'b.1.2' for an element of this size."""
    name, *given = text.lower().split(".")
    conductors = [str(k + 1) if k < n_phases else "0" for k in range(n_conductors)]
    for place, conductor in enumerate(given[:n_conductors]):
        conductors[place] = str(int(conductor))
    return buses.find(name), ".".join(conductors)


def floats(values: Any) -> Floats:
    """A batch property as an array."""
    return np.asarray(values.to_array() if hasattr(values, "to_array") else values, dtype=np.float64)


def ints(values: Any) -> npt.NDArray[np.int64]:
    return np.asarray(values.to_array() if hasattr(values, "to_array") else values).astype(np.int64)


def flags(values: Any) -> npt.NDArray[np.bool_]:
    return np.asarray([bool(value) for value in values], dtype=bool)


def names(batch: Any) -> list[str]:
    return [str(name).lower() for name in batch.Name]


def in_lot_order(alt: Any, rows: npt.NDArray[np.int64], all_names: list[str]) -> npt.NDArray[np.int64]:
    """These rows of a class in an order that says nothing: that of the file may tell phases and open switches."""
    return rows[lot([all_names[row] for row in rows], names(alt.Load) if len(alt.Load) else [])]


def protection(alt: Any) -> tuple[set[str], set[str]]:
    """Full names of elements watched by a fuse, and by a recloser or relay."""
    fuses = {str(text).lower() for text in _watched(alt.Fuse)}
    reclosers = {str(text).lower() for cls in (alt.Recloser, alt.Relay) for text in _watched(cls)}
    return fuses, reclosers


def _watched(batch: Any) -> list[str]:
    return [element.MonitoredObj_str for element in batch if element.Enabled]


def read_lines(
    alt: Any, buses: Buses, operated: set[str], frequency_hz: float, report: ImportReport
) -> tuple[Columns, dict[str, Floats], npt.NDArray[np.bool_]]:
    """Line columns, packed matrices and the 'out of service' flag of each kept line.

    Args:
        alt: The engine's object model.
        buses: Bus names seen so far.
        operated: Lines that a command or a switch control opens or closes: they are switches whatever their flag says.
        frequency_hz: The network's.
        report: Receives what is not kept.
    """
    batch = alt.Line
    all_names = names(batch) if len(batch) else []
    report.total["line"] = len(all_names)
    if not all_names:
        return _no_lines()
    enabled = flags(batch.Enabled)
    switch = flags(batch.Switch) | np.array([name in operated for name in all_names], bool)
    keep = in_lot_order(alt, np.flatnonzero(enabled | switch), all_names)
    dropped = np.flatnonzero(~(enabled | switch))
    report.ignore("line", [all_names[i] for i in dropped], "disabled and not a switch: out of service")
    report.read["line"] = len(keep)
    n = ints(batch.Phases)
    bus1, bus2 = list(batch.Bus1), list(batch.Bus2)
    ends1 = [terminal(buses, bus1[i], n[i], n[i]) for i in keep]
    ends2 = [terminal(buses, bus2[i], n[i], n[i]) for i in keep]
    length, units = floats(batch.Length), ints(batch.Units)
    (r, x), c = line_impedances(batch, frequency_hz), list(batch.CMatrix)
    matrices = {
        "line_r_ohm": _pack(r, length, keep),
        "line_x_ohm": _pack(x, length, keep),
        "line_c_nf": _pack(c, length, keep),
    }
    metres = np.array([METRES.get(int(unit), np.nan) for unit in units])
    fuses, reclosers = protection(alt)
    full = ["line." + all_names[i] for i in keep]
    columns: Columns = {
        "name": [all_names[i] for i in keep],
        **_ends(ends1, 1),
        **_ends(ends2, 2),
        "n_conductors": n[keep],
        "n_phases": [_phase_count(end[1]) for end in ends1],
        "switch": switch[keep],
        "tie": [all_names[i].startswith(TIE_PREFIX) for i in keep],
        "fuse": [name in fuses for name in full],
        "recloser": [name in reclosers for name in full],
        "length_km": (length * metres / 1000.0)[keep],
        "normal_amps": floats(batch.NormAmps)[keep],
        "emergency_amps": floats(batch.EmergAmps)[keep],
        "group": np.full(len(keep), -1),
    }
    columns |= sequence_values(matrices, n[keep])
    return columns, matrices, ~enabled[keep]


def _no_lines() -> tuple[Columns, dict[str, Floats], npt.NDArray[np.bool_]]:
    empty = {name: np.zeros(0) for name in ("line_r_ohm", "line_x_ohm", "line_c_nf")}
    return {column: [] for column in TABLES["line"]}, empty, np.zeros(0, bool)


def _pack(rows: list[Floats], length: Floats, keep: npt.NDArray[np.int64]) -> Floats:
    parts = [np.asarray(rows[i], dtype=np.float64).ravel() * length[i] for i in keep]
    return np.concatenate(parts) if parts else np.zeros(0)


def _phase_count(conductors: str) -> int:
    return sum(part in ("1", "2", "3") for part in conductors.split("."))


def sequence_values(matrices: dict[str, Floats], n: npt.NDArray[np.int64]) -> Columns:
    """Positive- and zero-sequence values of packed line matrices: own and mutual averages over the first 3 rows."""
    start = np.concatenate([[0], np.cumsum(n * n)])[:-1]
    values: Columns = {}
    for matrix, label in (("line_r_ohm", "r{}_ohm"), ("line_x_ohm", "x{}_ohm"), ("line_c_nf", "c{}_nf")):
        data = matrices[matrix]
        own, mutual = np.zeros(len(n)), np.zeros(len(n))
        for size in np.unique(n):
            rows = np.flatnonzero(n == size)
            blocks = data[start[rows][:, None] + np.arange(size * size)].reshape(-1, size, size)[:, :3, :3]
            k = blocks.shape[1]
            diagonal = np.trace(blocks, axis1=1, axis2=2)
            own[rows] = diagonal / k
            mutual[rows] = (blocks.sum(axis=(1, 2)) - diagonal) / max(k * (k - 1), 1)
        values[label.format(1)] = own - mutual
        values[label.format(0)] = own + np.where(n > 1, np.minimum(n, 3) - 1, 0) * mutual
    return values


def _ends(ends: list[tuple[int, str]], number: int) -> Columns:
    return {f"bus{number}": [bus for bus, _ in ends], f"conductors{number}": [text for _, text in ends]}


def read_sources(alt: Any, buses: Buses, frequency_hz: float, report: ImportReport) -> Columns:
    rows: list[Columns] = []
    report.total["vsource"] = len(alt.Vsource)
    for v in alt.Vsource:
        n = int(v.Phases)
        if not v.Enabled:
            report.ignore("vsource", [v.Name.lower()], "disabled")
            continue
        if abs(v.Frequency - frequency_hz) > 1e-6 and v.Frequency > 0:
            report.approximate("vsource", [v.Name.lower()], "its own frequency differs from the network's")
        sequence, scan = str(v.Sequence_str).lower(), str(v.ScanType_str).lower()
        if n == 3 and not sequence.startswith("pos"):
            report.approximate("vsource", [v.Name.lower()], f"sequence {sequence} (scan {scan}) read as positive")
        ends1, ends2 = terminal(buses, v.Bus1, n, n), terminal(buses, v.Bus2, n, n)
        z1, z0, z2 = complex(v.R1, v.X1), complex(v.R0, v.X0), complex(v.Z2)
        if int(v.Model) == _IDEAL_SOURCE:  # a small impedance on the source's own base stands for none
            z1 = z0 = z2 = complex(v.puZIdeal) * v.BasekV**2 / v.BaseMVA
        ratio = reactance_ratio(v, frequency_hz)
        if ratio != 1.0:
            report.approximate("vsource", [v.Name.lower()], _SCALED)
        rows.append(
            {
                "name": v.Name.lower(),
                **_ends([ends1], 1),
                **_ends([ends2], 2),
                "n_phases": n,
                "base_kv": v.BasekV,
                "setpoint_pu": v.pu,
                "angle_deg": v.Angle,
                "frequency_hz": frequency_hz,
                "r1_ohm": z1.real,
                "x1_ohm": z1.imag * ratio,
                "r0_ohm": z0.real,
                "x0_ohm": z0.imag * ratio,
                "r2_ohm": z2.real,
                "x2_ohm": z2.imag * ratio,
                "mva_sc3": v.MVASC3,
                "mva_sc1": v.MVASC1,
            }
        )
    report.read["vsource"] = len(rows)
    return _stack(rows, "substation")


def _stack(rows: list[Columns], table: str) -> Columns:
    """Columns of a table from one dict per row; one-item lists are unwrapped."""
    return {
        column: [row[column][0] if isinstance(row[column], list) else row[column] for row in rows]
        for column in TABLES[table]
    }


def read_capacitors(alt: Any, buses: Buses, report: ImportReport) -> Columns:
    rows: list[Columns] = []
    report.total["capacitor"] = len(alt.Capacitor)
    controlled = {str(c.Capacitor_str).lower() for c in alt.CapControl if c.Enabled}
    for cap in alt.Capacitor:
        name, n = cap.Name.lower(), int(cap.Phases)
        if not cap.Enabled:
            report.ignore("capacitor", [name], "disabled")
            continue
        step_uf = np.asarray(cap.Cuf, dtype=np.float64)
        if len(cap.CMatrix) or not np.allclose(step_uf, step_uf[0], rtol=1e-12):
            report.ignore("capacitor", [name], "a capacitance matrix or unequal steps are not supported")
            continue
        delta = int(cap.Conn) == 1
        ends1 = terminal(buses, cap.Bus1, n, n + (delta and n < 3))
        ends2 = (ends1[0], "") if delta else terminal(buses, cap.Bus2, n, n)
        states = np.asarray(cap.States)
        rows.append(
            {
                "name": name,
                **_ends([ends1], 1),
                **_ends([ends2], 2),
                "n_phases": n,
                "connection": Connection.DELTA if delta else Connection.WYE,
                "rated_kv": cap.kV,
                "rated_kvar": float(np.sum(np.asarray(cap.kvar)[: int(cap.NumSteps)])),
                "steps": int(cap.NumSteps),
                "step_uf": float(step_uf[0]),
                "filter_r_ohm": float(np.asarray(cap.R)[0]),
                "filter_x_ohm": float(np.asarray(cap.XL)[0]),
                "initial_steps": int(np.sum(states > 0)),
                "controlled": name in controlled,
                "series": not delta and ends1[0] != ends2[0],
            }
        )
    report.read["capacitor"] = len(rows)
    return _stack(rows, "capacitor")


def read_reactors(
    alt: Any, buses: Buses, frequency_hz: float, report: ImportReport
) -> tuple[Columns, dict[str, Floats]]:
    rows: list[Columns] = []
    admittance: list[npt.NDArray[np.complex128]] = []
    report.total["reactor"] = len(alt.Reactor)
    for reactor in alt.Reactor:
        name, n = reactor.Name.lower(), int(reactor.Phases)
        if not reactor.Enabled:
            report.ignore("reactor", [name], "disabled")
            continue
        delta = int(reactor.Conn) == 1
        ends1 = terminal(buses, reactor.Bus1, n, n + (delta and n < 3))
        ends2 = (ends1[0], "") if delta else terminal(buses, reactor.Bus2, n, n)
        if delta and len(reactor.RMatrix):
            report.ignore("reactor", [name], "a delta given by a matrix is not supported")
            continue
        ratio = reactance_ratio(reactor, frequency_hz)
        if ratio != 1.0:
            report.approximate("reactor", [name], _SCALED)
        y, r, x = _reactor_admittance(reactor, n, delta, ratio)
        admittance.append(y.ravel())
        rows.append(
            {
                "name": name,
                **_ends([ends1], 1),
                **_ends([ends2], 2),
                "n_phases": n,
                "connection": Connection.DELTA if delta else Connection.WYE,
                "series": not delta and ends1[0] != ends2[0],
                "normal_amps": reactor.NormAmps,
                "r_ohm": r,
                "x_ohm": x,
            }
        )
    report.read["reactor"] = len(rows)
    flat = np.concatenate(admittance) if admittance else np.zeros(0, np.complex128)
    return _stack(rows, "reactor"), {"reactor_g_siemens": flat.real.copy(), "reactor_b_siemens": flat.imag.copy()}


def _reactor_admittance(
    reactor: Any, n: int, delta: bool, ratio: float
) -> tuple[npt.NDArray[np.complex128], float, float]:
    """Admittance block [phase, phase] of a reactor, and r, x per phase where these exist.

    Args:
        reactor: The engine's object.
        n: Phases.
        delta: Whether its phases are between conductors.
        ratio: Of its reactance to that at its own base frequency.
    """
    if len(reactor.RMatrix) and len(reactor.XMatrix):
        r = np.asarray(reactor.RMatrix).reshape(n, n)
        x = np.asarray(reactor.XMatrix).reshape(n, n) * ratio
        if reactor.Parallel:
            return _complex(np.linalg.inv(r) + np.linalg.inv(1j * x)), float("nan"), float("nan")
        return _complex(np.linalg.inv(r + 1j * x)), float("nan"), float("nan")
    z1, z2, z0 = (complex(z.real, z.imag * ratio) for z in map(complex, (reactor.Z1, reactor.Z2, reactor.Z0)))
    if z1 != 0:
        # The engine's rule: (Z1 + Z2 + Z0) / 3 on the diagonal of two phases, and Z1 / 3 of one.
        z = sequence_matrix(z0, z1, z2) if n == 3 else _complex(np.eye(n) * (z1 if n == 1 else z0 + z1 + z2) / 3)
        return _complex(np.linalg.inv(z)), z1.real, z1.imag
    x_ohm = float(reactor.X) * ratio
    y = 1.0 / complex(reactor.R, x_ohm) + (1.0 / reactor.Rp if reactor.Rp else 0.0)
    block = y * (delta_coils(n) if delta else np.eye(n))
    return _complex(block), float(reactor.R), x_ohm


def _complex(values: npt.NDArray[Any]) -> npt.NDArray[np.complex128]:
    return values.astype(np.complex128, copy=False)


def read_consumers(alt: Any, buses: Buses, report: ImportReport) -> Columns:
    batch = alt.Load
    all_names = names(batch) if len(batch) else []
    report.total["load"] = len(all_names)
    enabled = flags(batch.Enabled) if all_names else np.zeros(0, bool)
    report.ignore("load", [name for name, on in zip(all_names, enabled, strict=True) if not on], "disabled")
    keep = in_lot_order(alt, np.flatnonzero(enabled), all_names)
    report.read["load"] = len(keep)
    if not len(keep):
        return _stack([], "consumer")
    n, conn, bus = ints(batch.Phases), ints(batch.Conn), list(batch.Bus1)
    ends = [terminal(buses, bus[i], n[i], injection_conductors(int(n[i]), conn[i] == 1)) for i in keep]
    return {
        "name": [all_names[i] for i in keep],
        **_ends(ends, 1),
        "n_phases": n[keep],
        "connection": [Connection.DELTA if conn[i] == 1 else Connection.WYE for i in keep],
        "rated_kv": floats(batch.kV)[keep],
        "transformer": np.full(len(keep), -1),
        "eligible": np.zeros(len(keep), bool),
        "group": np.full(len(keep), -1),
    }


def injection_conductors(n_phases: int, delta: bool) -> int:
    """Conductors of a load, generator, PV system or storage, by the engine's rule."""
    return n_phases if delta and n_phases >= 3 else n_phases + 1


def read_ders(alt: Any, buses: Buses, report: ImportReport) -> Columns:
    rows: list[Columns] = []
    for kind, engine_class, batch in (
        (DerKind.PV, "pvsystem", alt.PVSystem),
        (DerKind.GENERATOR, "generator", alt.Generator),
        (DerKind.STORAGE, "storage", alt.Storage),
    ):
        report.total[engine_class] = len(batch)
        devices = list(batch)
        all_names = [str(device.Name).lower() for device in devices]
        for device in (devices[k] for k in in_lot_order(alt, np.arange(len(devices)), all_names)):
            if not device.Enabled:
                report.ignore(engine_class, [device.Name.lower()], "disabled")
                continue
            n, delta = int(device.Phases), int(device.Conn) == 1
            rated_kw = {DerKind.PV: "Pmpp", DerKind.GENERATOR: "kW", DerKind.STORAGE: "kWRated"}[kind]
            rows.append(
                {
                    "name": device.Name.lower(),
                    "kind": kind,
                    **_ends([terminal(buses, device.Bus1, n, injection_conductors(n, delta))], 1),
                    "n_phases": n,
                    "connection": Connection.DELTA if delta else Connection.WYE,
                    "rated_kv": device.kV,
                    "rated_kva": device.kVA,
                    "rated_kw": getattr(device, rated_kw),
                    "group": -1,
                }
            )
        report.read[engine_class] = sum(row["kind"] == kind for row in rows)
    return _stack(rows, "der")


def read_transformers(alt: Any, buses: Buses, frequency_hz: float, report: ImportReport) -> tuple[Columns, Columns]:
    """Transformer and winding columns."""
    rows: list[Columns] = []
    windings: list[Columns] = []
    report.total["transformer"] = len(alt.Transformer)
    regulated = {
        (str(c.Transformer_str).lower(), int(c.TapWinding) or int(c.Winding)) for c in alt.RegControl if c.Enabled
    }
    fuses, reclosers = protection(alt)
    banks: dict[tuple[object, ...], int] = {}
    for unit in alt.Transformer:
        name = unit.Name.lower()
        if not unit.Enabled:
            report.ignore("transformer", [name], "disabled")
            continue
        row = len(rows)
        ratio = reactance_ratio(unit, frequency_hz)
        parts = _windings(unit, row, buses, regulated, ratio)
        kv_ll = [_line_to_line_kv(part) for part in parts]
        moved = any(part["regulated"] for part in parts)
        steps_down = max(kv_ll) >= LOW_VOLTAGE_KV > min(kv_ll)
        bank_key = (int(unit.Phases), tuple(part["bus1"][0] for part in parts)) if int(unit.Phases) == 1 else (row,)
        x_sc = np.asarray(unit.XSCArray, dtype=np.float64) * ratio
        if len(parts) > 3:
            report.ignore("transformer", [name], "more than three windings are not supported")
            continue
        rows.append(
            {
                "name": name,
                "n_phases": int(unit.Phases),
                "n_windings": len(parts),
                "first_winding": len(windings),
                "x12_pct": x_sc[0],
                "x13_pct": x_sc[1] if len(parts) > 2 else np.nan,
                "x23_pct": x_sc[2] if len(parts) > 2 else np.nan,
                "no_load_loss_pct": unit.pctNoLoadLoss,
                "magnetizing_pct": unit.pctIMag / ratio,
                "antifloat_ppm": unit.ppm_Antifloat,
                "delta_lead": int(unit.LeadLag) == 1,
                "regulator": moved,
                "distribution": steps_down and not moved,
                "bank": banks.setdefault(bank_key, row),
                "fuse": "transformer." + name in fuses,
                "recloser": "transformer." + name in reclosers,
                "normal_amps": unit.NormAmps,
            }
        )
        windings += parts
    report.read["transformer"] = len(rows)
    return _stack(rows, "transformer"), _stack(windings, "winding")


def _windings(unit: Any, row: int, buses: Buses, regulated: set[tuple[str, int]], ratio: float) -> list[Columns]:
    n, name = int(unit.Phases), unit.Name.lower()
    values = zip(
        unit.Buses, unit.Conns, unit.kVs, unit.kVAs, unit.pctRs, unit.RNeut, unit.XNeut, unit.Taps, unit.MinTap,
        unit.MaxTap, unit.NumTaps, strict=True,
    )  # fmt: skip
    parts = []
    for number, (bus, connection, kv, kva, r_pct, r_neutral, x_neutral, tap, low, high, taps) in enumerate(values, 1):
        moved = (name, number) in regulated
        parts.append(
            {
                "transformer": row,
                "number": number,
                **_ends([terminal(buses, bus, n, n + 1)], 1),
                "connection": Connection.DELTA if int(connection) == 1 else Connection.WYE,
                "rated_kv": kv,
                "rated_kva": kva,
                "r_pct": r_pct,
                "neutral_r_ohm": r_neutral,
                "neutral_x_ohm": x_neutral * ratio,
                "tap_pu": 1.0 if moved else tap,
                "regulated": moved,
                "min_tap_pu": low,
                "max_tap_pu": high,
                "n_taps": taps,
            }
        )
    return parts


def _line_to_line_kv(winding: Columns) -> float:
    """Line-to-line voltage of a winding: a single-phase unit to ground is rated line to neutral."""
    conductors = winding["conductors1"][0].split(".")
    to_ground = len(conductors) == 2 and "0" in conductors
    return float(winding["rated_kv"]) * (np.sqrt(3.0) if to_ground else 1.0)
