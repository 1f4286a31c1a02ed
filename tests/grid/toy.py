"""Small Grids built by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from mycelium.grid.grid import Grid, make_table
from mycelium.schema import LOW_VOLTAGE_KV, TABLES

_DEFAULT = {"str": "", "bool": False, "float64": 0.0, "int8": 0, "int16": 0, "int32": 0}

Winding = tuple[str, str, float, str]  # bus, conductors, rated kV, connection


class Toy:
    """Collects elements and makes a Grid of them; buses appear as they are named."""

    def __init__(self, frequency_hz: float = 50.0) -> None:
        self.frequency_hz = frequency_hz
        self.rows: dict[str, list[dict[str, Any]]] = {table: [] for table in TABLES}
        self.bus_row: dict[str, int] = {}
        self.reactor_siemens: list[np.ndarray] = []

    def bus(self, name: str, base_kv: float = 1.0, hidden: bool = False) -> int:
        """Row of a bus; made with this line-to-neutral base where new."""
        if name not in self.bus_row:
            self.bus_row[name] = self._add("bus", name=name, base_kv=base_kv, x=np.nan, y=np.nan, hidden=hidden)
        return self.bus_row[name]

    def _add(self, table: str, **values: Any) -> int:
        defaults = {column: _DEFAULT[spec.dtype] for column, spec in TABLES[table].items()}
        self.rows[table].append(defaults | {"name": f"{table}{len(self.rows[table])}"} | values)
        return len(self.rows[table]) - 1

    def source(self, bus: str, conductors: str = "1.2.3", angle_deg: float = 0.0) -> int:
        n = len(conductors.split("."))
        at = self.bus(bus)
        return self._add(
            "substation",
            bus1=at,
            conductors1=conductors,
            bus2=at,
            conductors2=".".join("0" * n),
            n_phases=n,
            base_kv=self.rows["bus"][at]["base_kv"],
            setpoint_pu=1.0,
            angle_deg=angle_deg,
        )

    def line(
        self,
        bus1: str,
        bus2: str,
        conductors1: str = "1.2.3",
        conductors2: str | None = None,
        r1_ohm: float = 0.1,
        x1_ohm: float = 0.1,
        switch: bool = False,
        group: int = -1,
    ) -> int:
        n = len(conductors1.split("."))
        return self._add(
            "line",
            bus1=self.bus(bus1),
            conductors1=conductors1,
            bus2=self.bus(bus2),
            conductors2=conductors2 or conductors1,
            n_conductors=n,
            n_phases=n,
            r1_ohm=r1_ohm,
            x1_ohm=x1_ohm,
            switch=switch,
            group=group,
        )

    def transformer(
        self,
        *windings: Winding,
        n_phases: int = 3,
        kva: float = 100.0,
        r_pct: float = 0.5,
        x_pct: tuple[float, float, float] = (4.0, 4.0, 4.0),
        lead: bool = False,
        bank: int | None = None,
    ) -> int:
        row = len(self.rows["transformer"])
        kv = [winding[2] for winding in windings]
        self._add(
            "transformer",
            n_phases=n_phases,
            n_windings=len(windings),
            first_winding=len(self.rows["winding"]),
            x12_pct=x_pct[0],
            x13_pct=x_pct[1] if len(windings) > 2 else np.nan,
            x23_pct=x_pct[2] if len(windings) > 2 else np.nan,
            delta_lead=lead,
            distribution=max(kv) >= LOW_VOLTAGE_KV > min(kv),
            bank=row if bank is None else bank,
        )
        for number, (bus, conductors, rated_kv, connection) in enumerate(windings, 1):
            self.rows["winding"].append(
                {column: _DEFAULT[spec.dtype] for column, spec in TABLES["winding"].items()}
                | {
                    "transformer": row,
                    "number": number,
                    "bus1": self.bus(bus),
                    "conductors1": conductors,
                    "connection": connection,
                    "rated_kv": rated_kv,
                    "rated_kva": kva,
                    "r_pct": r_pct,
                    "tap_pu": 1.0,
                }
            )
        return row

    def consumer(self, bus: str, conductors: str = "1.0") -> int:
        return self._add(
            "consumer",
            bus1=self.bus(bus),
            conductors1=conductors,
            n_phases=1,
            connection="wye",
            rated_kv=0.23,
            transformer=-1,
            group=-1,
        )

    def reactor(
        self,
        bus1: str,
        bus2: str,
        conductors: str = "1.2.3",
        r_ohm: float = 0.1,
        x_ohm: float = 1.0,
        y: complex = 0j,
    ) -> int:
        """A series reactor; with ``y`` siemens, one of which only the matrix is given."""
        n = len(conductors.split("."))
        given = y == 0
        self.reactor_siemens.append(np.eye(n) * (1.0 / complex(r_ohm, x_ohm) if given else y))
        return self._add(
            "reactor",
            bus1=self.bus(bus1),
            conductors1=conductors,
            bus2=self.bus(bus2),
            conductors2=conductors,
            n_phases=n,
            connection="wye",
            series=True,
            r_ohm=r_ohm if given else np.nan,
            x_ohm=x_ohm if given else np.nan,
        )

    def capacitor(self, bus1: str, bus2: str, conductors: str = "1.2.3", step_uf: float = 100.0, steps: int = 1) -> int:
        """A series capacitor."""
        return self._add(
            "capacitor",
            bus1=self.bus(bus1),
            conductors1=conductors,
            bus2=self.bus(bus2),
            conductors2=conductors,
            n_phases=len(conductors.split(".")),
            connection="wye",
            steps=steps,
            step_uf=step_uf,
            series=True,
        )

    def grid(self) -> Grid:
        tables = {
            table: make_table(table, {column: [row[column] for row in rows] for column in TABLES[table]})
            for table, rows in self.rows.items()
        }
        lines = self.rows["line"]
        blocks = {
            "line_r_ohm": [np.eye(row["n_conductors"]) * row["r1_ohm"] for row in lines],
            "line_x_ohm": [np.eye(row["n_conductors"]) * row["x1_ohm"] for row in lines],
            "line_c_nf": [np.zeros((row["n_conductors"],) * 2) for row in lines],
            "reactor_g_siemens": [block.real for block in self.reactor_siemens],
            "reactor_b_siemens": [block.imag for block in self.reactor_siemens],
        }
        matrices = {
            name: np.concatenate([block.ravel() for block in parts]) if parts else np.zeros(0)
            for name, parts in blocks.items()
        }
        return Grid("toy", self.frequency_hz, tables, matrices)
