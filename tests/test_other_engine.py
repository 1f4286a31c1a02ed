"""An independent code base, EPRI's own C++ engine, solves the bundled feeders to the same voltages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mycelium.engine import Engine
from mycelium.feeders import FEEDERS, feeder_path
from mycelium.grid.check import solve_snapshot
from mycelium.grid.dss_script import read_script

# In a process of its own: on import it changes the folder, and it prints on every solve.
_SOLVE = """
import json, sys
from py_dss_interface import DSS
dss = DSS()
dss.text(f'compile "{sys.argv[1]}"')
for option in ("mode=snapshot", "controlmode=off", "tolerance=1e-10", "maxiterations=200"):
    dss.text("set " + option)
dss.text("solve")
v = dss.circuit.buses_volts
print()
print(json.dumps({"names": dss.circuit.nodes_names, "v": list(v)}))
"""


@pytest.mark.parametrize("name", FEEDERS)
def test_epri_engine_agrees(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SOLVE, str(feeder_path(name))],
        capture_output=True, text=True, cwd=tmp_path, timeout=120, check=True,
    )  # fmt: skip
    theirs = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    engine = Engine(read_script(feeder_path(name)))
    assert solve_snapshot(engine)
    ours = dict(zip(engine.node_names(), engine.voltages(), strict=True))
    v = np.array(theirs["v"][0::2]) + 1j * np.array(theirs["v"][1::2])
    assert {node.lower() for node in theirs["names"]} == set(ours)
    for node, volts in zip(theirs["names"], v, strict=True):
        assert abs(volts - ours[node.lower()]) <= 1e-6 * max(abs(volts), 1.0), node
