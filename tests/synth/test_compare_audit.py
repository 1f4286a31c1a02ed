"""The audit of accepted feeders: the limits, and that the other engine solves what the files say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.synth_audit import HOURS, Feeder, State, audit
from mycelium.engine import Engine
from mycelium.grid.dss_script import read_script
from tests.synth.tiny import tiny

FINE = State(True, 0.97, 1.03, 0.8, 0.9)
GOOD = Feeder(True, replace(FINE, high_pu=1.2), FINE, (replace(FINE, transformer=1.5),) * HOURS)


def test_a_good_feeder_meets_every_limit() -> None:
    """High voltage is no matter in snapshot A, nor are transformers' ratings in the hours of the day."""
    assert list(GOOD.reasons()) == []


@pytest.mark.parametrize(
    ("feeder", "reason"),
    [
        (replace(GOOD, a=replace(FINE, low_pu=0.9499)), "snapshot A: 0.94990 p.u. is below 0.95"),
        (replace(GOOD, b=replace(FINE, low_pu=0.9499)), "snapshot B: 0.94990 p.u. is below 0.95"),
        (replace(GOOD, b=replace(FINE, high_pu=1.0501)), "snapshot B: 1.05010 p.u. is above 1.05"),
        (replace(GOOD, day=(*GOOD.day[1:], replace(FINE, high_pu=1.0501))), "hour 23: 1.05010 p.u. is above 1.05"),
        (replace(GOOD, day=(replace(FINE, line=1.01), *GOOD.day[1:])), "hour 0: 1.0100 of a rating"),
        (replace(GOOD, a=replace(FINE, transformer=1.01)), "snapshot A: 1.0100 of a rating"),
        (replace(GOOD, a=replace(FINE, converged=False)), "snapshot A does not converge"),
        (replace(GOOD, day=GOOD.day[1:]), "23 of 24 hours"),
    ],
)
def test_each_limit_is_checked(feeder: Feeder, reason: str) -> None:
    assert list(feeder.reasons()) == [reason]


def test_a_collapsed_hour_is_no_fine_hour() -> None:
    collapsed = replace(GOOD, day=(replace(FINE, low_pu=0.0, high_pu=0.0), *GOOD.day[1:]))
    assert "hour 0 has collapsed" in list(collapsed.reasons())


def test_ratings_matter_only_where_they_are_enforced() -> None:
    over = replace(FINE, line=2.0, transformer=2.0)
    lax = Feeder(False, over, over, (over,) * HOURS)
    assert list(lax.reasons()) == [] and list(replace(lax, thermal=True).reasons())


def test_the_other_engine_solves_the_files(tmp_path: Path) -> None:
    """Both snapshots and the day of a feeder with sun and shapes, against our own engine on the same commands."""
    master = tiny(tmp_path)
    mult = np.round(np.linspace(0.2, 1.0, HOURS), 3)
    shape = f"new loadshape.s npts=24 interval=1 mult=({' '.join(map(str, mult))})\n"
    sun = "new pvsystem.pv phases=2 bus1=s5_c.1.2 kv=0.208 kva=9 pmpp=9 irradiance=1 daily=s\n"
    text = (
        master.read_text()
        .replace("vminpu=0.5", "vminpu=0.5 daily=s")
        .replace("set voltagebases", f"{sun}set voltagebases")
    )
    master.write_text(text.replace("new linecode.mv", f"{shape}new linecode.mv"))
    sample = {"thermal": True, "demand_lambda": 0.3, "coincidence": {f"S{k}": 0.6 for k in range(6)}}
    (tmp_path / "sample.json").write_text(json.dumps(sample))
    found = audit([tmp_path])[tmp_path]
    assert isinstance(found, Feeder) and found.thermal and len(found.day) == HOURS
    for state, factor, irradiance, hour in (
        (found.a, 0.6, 0, None),
        (found.b, 0.3, 1, None),
        (found.day[7], 1.0, 1, 7),
    ):
        low, high = _ours(master, factor, irradiance, hour)
        assert (state.low_pu, state.high_pu) == pytest.approx((low, high), abs=1e-5)
    assert found.a.transformer > found.b.transformer > 0 and found.a.line > 0


def _ours(master: Path, factor: float, sun: int, hour: int | None) -> tuple[float, float]:
    engine = Engine(read_script(master))
    for load in engine.alt.Load:
        engine.command(f"edit load.{load.Name} kw={load.kW * factor} kvar={load.kvar * factor}")
    engine.command(f"batchedit pvsystem..* irradiance={sun}")
    engine.set_canonical()
    engine.command(f"set mode={'snapshot' if hour is None else 'daily'} number=1 stepsize=1h")
    for _ in range(1 if hour is None else hour + 1):
        engine.command("solve")
    v_pu = np.asarray(engine.dss.ActiveCircuit.AllBusVmagPu)
    live = v_pu[v_pu > 0.05]
    return float(live.min()), float(live.max())
