"""Re-solve every accepted feeder of a run from its files with an independent engine, and check the acceptance limits.

    python benchmarks/synth_audit.py RUN [--workers N] [--out FILE.json]

The engine is EPRI's own build (py-dss-interface), in processes of its own. Of each feeder it reads `Master.dss` and, of
`sample.json`, the coincidence factor of each load, lambda and the thermal flag. Then

* snapshot A: demand times its coincidence factor, no sun: every voltage at least 0.95 p.u.;
* snapshot B: demand times lambda, full sun: every voltage within [0.95, 1.05];
* the 24 hours of the model's own shapes, one after the other: every voltage within [0.95, 1.05];
* where the thermal flag is set: lines and transformers within their ratings in both snapshots, lines in every hour.

Voltages at or below 0.05 p.u. are those of floating nodes of open ties; a state with no other voltage has collapsed. A
feeder that misses a limit is named with the reason, and the exit status is 1. The largest differences from what
`verdict.json` recorded are printed as well.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

LOW_PU, HIGH_PU, FLOATING_PU = 0.95, 1.05, 0.05
SLACK_PU, SLACK_LOADING = 1e-5, 1e-4  # two engines' rounding, and the digits of a written report
HOURS = 24
AT_ONCE = 10  # feeders per process: a crash costs no more
SECONDS_PER_FEEDER = 120
_OPTIONS = ("tolerance=1e-9", "maxiterations=200", "maxcontroliter=100", "controlmode=static")
_ANSWER = "AUDIT "


@dataclass(frozen=True)
class State:
    """A solved operating point.

    Attributes:
        converged: Whether it is one.
        low_pu, high_pu: Extremes of voltages that do not float; 0 of none.
        line, transformer: Largest current over normal rating.
    """

    converged: bool
    low_pu: float
    high_pu: float
    line: float
    transformer: float


@dataclass(frozen=True)
class Feeder:
    """A feeder's operating points, and whether its ratings are enforced."""

    thermal: bool
    a: State
    b: State
    day: tuple[State, ...]

    def reasons(self) -> Iterator[str]:
        """What speaks against it."""
        hours = [(f"hour {k}", state) for k, state in enumerate(self.day)]
        for name, state in (("snapshot A", self.a), ("snapshot B", self.b), *hours):
            if not state.converged:
                yield f"{name} does not converge"
                continue
            if not state.high_pu:
                yield f"{name} has collapsed"
            if state.low_pu < LOW_PU - SLACK_PU:
                yield f"{name}: {state.low_pu:.5f} p.u. is below {LOW_PU}"
            if name != "snapshot A" and state.high_pu > HIGH_PU + SLACK_PU:
                yield f"{name}: {state.high_pu:.5f} p.u. is above {HIGH_PU}"
            loading = max(state.line, 0.0 if name.startswith("hour") else state.transformer)
            if self.thermal and loading > 1 + SLACK_LOADING:
                yield f"{name}: {loading:.4f} of a rating"
        if len(self.day) != HOURS:
            yield f"{len(self.day)} of {HOURS} hours"


# ---- in a process of its own ----------------------------------------------------------------------------------------


class OtherEngine:
    """EPRI's engine on one feeder's files."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        from py_dss_interface import DSS

        self._dss = DSS()
        self._folder, self._report = folder, scratch / "capacity.csv"

    def feeder(self) -> Feeder:
        sample = json.loads((self._folder / "sample.json").read_text())
        coincidence = {str(name).lower(): float(value) for name, value in sample["coincidence"].items()}
        share = dict.fromkeys(coincidence, float(sample["demand_lambda"]))
        a, b = self._snapshot(coincidence, 0), self._snapshot(share, 1)
        return Feeder(bool(sample["thermal"]), a, b, tuple(self._day()))

    def _compile(self) -> None:
        self._dss.text("clearall")
        self._dss.text(f'compile "{self._folder / "Master.dss"}"')

    def _set(self, mode: str) -> None:
        self._dss.text(f"set mode={mode} number=1 stepsize=1h")
        for option in _OPTIONS:  # after the mode, which resets some
            self._dss.text(f"set {option}")

    def _snapshot(self, factor: dict[str, float], sun: int) -> State:
        self._compile()
        names = [str(name).lower() for name in self._dss.loads.names]
        if set(names) != set(factor):
            raise ValueError(f"{self._folder}: loads of the model are not those of sample.json")
        for name in names:
            kw, kvar = (float(self._dss.text(f"? load.{name}.{power}")) for power in ("kw", "kvar"))
            self._dss.text(f"edit load.{name} kw={kw * factor[name]:.10g} kvar={kvar * factor[name]:.10g}")
        if self._dss.pvsystems.count:
            self._dss.text(f"batchedit pvsystem..* irradiance={sun}")
        self._set("snapshot")
        return self._solve()

    def _day(self) -> Iterator[State]:
        self._compile()
        self._set("daily")
        for _ in range(HOURS):
            yield self._solve()

    def _solve(self) -> State:
        self._dss.text("solve")
        if not self._dss.solution.converged:
            return State(False, 0.0, 0.0, 0.0, 0.0)
        live = [float(value) for value in self._dss.circuit.buses_vmag_pu if value > FLOATING_PU]
        loading = self._loading()
        return State(True, min(live, default=0.0), max(live, default=0.0), loading["line"], loading["transformer"])

    def _loading(self) -> dict[str, float]:
        """Largest share of the normal rating among the elements of a class."""
        self._dss.text(f'export capacity "{self._report}"')
        largest = {"line": 0.0, "transformer": 0.0}
        for row in self._report.read_text().splitlines()[1:]:
            name, _, percent, *_ = row.split(",")
            kind = name.strip().strip('"').partition(".")[0].lower()
            if kind in largest:
                largest[kind] = max(largest[kind], float(percent) / 100.0)
        return largest


def solve(folders: Sequence[Path]) -> None:
    """Print one line per feeder; the engine prints others."""
    with tempfile.TemporaryDirectory() as scratch:
        for folder in folders:
            try:
                answer: Any = asdict(OtherEngine(folder, Path(scratch)).feeder())
            except (OSError, ValueError, KeyError) as error:
                answer = repr(error)
            print(f"\n{_ANSWER}{json.dumps([str(folder), answer])}", flush=True)


# ---- the parent's side -----------------------------------------------------------------------------------------------


def audit(folders: Sequence[Path]) -> dict[Path, Feeder | str]:
    """Solve some feeders in one process."""
    found: dict[Path, Feeder | str] = dict.fromkeys(folders, "the engine ended without an answer")
    command = [sys.executable, str(Path(__file__).resolve()), "--solve", *map(str, folders)]
    limit_s = SECONDS_PER_FEEDER * len(folders)
    with tempfile.TemporaryDirectory() as elsewhere:  # the engine writes where it runs
        try:
            done = subprocess.run(command, capture_output=True, text=True, cwd=elsewhere, timeout=limit_s)
        except subprocess.TimeoutExpired:
            return dict.fromkeys(folders, f"no answer in {limit_s} s")
    for line in done.stdout.splitlines():
        if line.startswith(_ANSWER):
            name, answer = json.loads(line.removeprefix(_ANSWER))
            found[Path(name)] = answer if isinstance(answer, str) else _feeder(answer)
    return found


def _feeder(record: dict[str, Any]) -> Feeder:
    day = tuple(State(**state) for state in record["day"])
    return Feeder(record["thermal"], State(**record["a"]), State(**record["b"]), day)


def difference(folder: Path, feeder: Feeder) -> float:
    """Largest difference of an extreme voltage from the recorded one, p.u."""
    verdict = json.loads((folder / "verdict.json").read_text())
    recorded = [verdict["snapshot_a"], verdict["snapshot_b"], *verdict["hours"]]
    pairs = zip((feeder.a, feeder.b, *feeder.day), recorded, strict=True)
    ends = [(s.low_pu - r["lowest_pu"], s.high_pu - r["highest_pu"]) for s, r in pairs]
    return float(max(abs(end) for pair in ends for end in pair))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write every state as JSON")
    parser.add_argument("--solve", type=Path, nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.solve:
        solve(arguments.solve)
        return
    if arguments.run is None:
        parser.error("the folder of a run is needed")
    from mycelium.synth.compare_facts import accepted_feeders

    folders = [folder.resolve() for folder in accepted_feeders(arguments.run)]
    parts = [folders[k : k + AT_ONCE] for k in range(0, len(folders), AT_ONCE)]
    found: dict[Path, Feeder | str] = {}
    with ThreadPoolExecutor(arguments.workers) as pool:
        done = pool.map(audit, parts)
        for part in track(done, "auditing", len(parts), console=Console(stderr=True), transient=True):
            found |= part
    sys.exit(report(found, arguments.out))


def report(found: dict[Path, Feeder | str], out: Path | None) -> int:
    """Print what was found; the exit status."""
    bad = {f.name: [answer] if isinstance(answer, str) else list(answer.reasons()) for f, answer in found.items()}
    bad = {name: reasons for name, reasons in bad.items() if reasons}
    for name, reasons in bad.items():
        print(f"{name}: {'; '.join(reasons[:4])}" + (f"; and {len(reasons) - 4} more" if len(reasons) > 4 else ""))
    solved = {folder: answer for folder, answer in found.items() if isinstance(answer, Feeder)}
    rated = sum(feeder.thermal for feeder in solved.values())
    print(f"{len(found)} accepted feeders, {rated} with ratings enforced; {len(bad)} miss a limit")
    apart = sorted((difference(folder, feeder), folder.name) for folder, feeder in solved.items())
    if apart:
        middle, (most, where) = apart[len(apart) // 2][0], apart[-1]
        print(f"extreme voltages differ from the recorded ones by {middle:.1e} p.u. (median), {most:.1e} ({where})")
    if out is not None:
        records = {folder.name: asdict(feeder) for folder, feeder in solved.items()}
        out.write_text(json.dumps(records, indent=1) + "\n")
    return int(bool(bad))


if __name__ == "__main__":
    main()
