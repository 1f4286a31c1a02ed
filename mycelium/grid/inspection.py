"""What an engineer wants to know of a model before using it: counts, questions, and whether the import is right."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from mycelium.engine import Engine
from mycelium.grid.check import PhysicsCheck, check_physics
from mycelium.grid.dss_script import read_script
from mycelium.grid.grid import Configuration, Grid
from mycelium.grid.import_report import ImportReport
from mycelium.grid.read_opendss import read_circuit
from mycelium.grid.topology import depth, fed, loops


@dataclass(frozen=True)
class Inspection:
    """An imported model and what was found.

    Attributes:
        master: Its main file.
        grid, configuration, report: As imported.
        check: The import against the engine's own solution.
    """

    master: Path
    grid: Grid
    configuration: Configuration
    report: ImportReport
    check: PhysicsCheck

    def as_dict(self) -> dict[str, object]:
        """Everything, ready for JSON."""
        grid, configuration = self.grid, self.configuration
        conductor = grid.wiring.conductor
        return {
            "name": grid.name,
            "master": str(self.master),
            "frequency_hz": grid.frequency_hz,
            "buses": len(grid.bus),
            "nodes": grid.wiring.n_nodes,
            "phase_nodes": {name: int(np.sum(conductor == k + 1)) for k, name in enumerate("ABC")},
            "hidden_phase_nodes": int(np.sum(conductor < 0)),
            "neutral_nodes": int(np.sum(conductor > 3)),
            "lines": len(grid.line),
            "transformers": len(grid.transformer),
            "distribution_transformers": int(grid.transformer["distribution"].sum()),
            "regulators": int(grid.transformer["regulator"].sum()),
            "reactors": len(grid.reactor),
            "capacitors": len(grid.capacitor),
            "substations": len(grid.substation),
            "ders": len(grid.der),
            "consumers": len(grid.consumer),
            "consumers_by_phases": {
                str(n): int(count) for n, count in grid.consumer["n_phases"].value_counts().sort_index().items()
            },
            "eligible_consumers": int(grid.consumer["eligible"].sum()),
            "hidden_phase_groups": grid.n_groups,
            "switches": len(grid.switches),
            "switches_open": int(configuration.switch_open.sum()),
            "loops": loops(grid),
            "depth": depth(grid),
            "unfed_buses": int(np.sum(~fed(grid))),
            **asdict(self.check),
            "report": self.report.as_dict(),
        }


def inspect_model(master: Path, root: Path | None = None) -> Inspection:
    """Import a model and check the import; raises FeederError with advice where it cannot be read."""
    script = read_script(master, root)
    engine = Engine(script)
    grid, configuration, report = read_circuit(script, engine)
    return Inspection(master, grid, configuration, report, check_physics(engine, grid, configuration))
