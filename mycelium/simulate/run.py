"""Many cases on many cores: each written once, rejections recorded, an interrupted run taken up where it stopped.

The folder holds one file per case (``case-000042.npz``, a Day), one Grid per record variant used
(``grid-variant-0.npz``) and ``cases.jsonl``, one record per case in order: its labels, or the reason it was rejected.
Its bytes do not depend on the number of workers.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mycelium.errors import FeederError
from mycelium.grid.dss_script import read_script
from mycelium.simulate.cases import Case, CaseMix
from mycelium.simulate.circuit import Rejection
from mycelium.simulate.day import Day
from mycelium.simulate.network import Network, NetworkSource

Record = dict[str, Any]

_PER_TASK = 8  # cases handed to a worker at a time: enough to hide the hand-over, few enough to lose little


@dataclass(frozen=True, slots=True)
class Run:
    """A set of cases of one network.

    Attributes:
        source: The network.
        seed: Seed of all cases.
        cases: How many, from number 0.
        out: Folder to write into.
        mix: How often each event is drawn.
    """

    source: NetworkSource
    seed: int
    cases: int
    out: Path
    mix: CaseMix

    def case_path(self, number: int) -> Path:
        return self.out / f"case-{number:06d}.npz"


def simulate_run(run: Run, workers: int, tick: Callable[[int], None]) -> list[Record]:
    """Simulate what is not there yet; the records of all cases.

    Args:
        run: What to simulate.
        workers: Processes; 1 stays in this one.
        tick: Called with the number of cases just done.
    """
    run.out.mkdir(parents=True, exist_ok=True)
    records = _finished(run)
    tick(sum(number < run.cases for number in records))
    missing = [number for number in range(run.cases) if number not in records]
    journal = run.out / "cases.part.jsonl"
    with journal.open("a") as file:
        for done in _work(run, missing, workers):
            for record in done:
                records[record["number"]] = record
                file.write(json.dumps(record) + "\n")
            file.flush()
            tick(len(done))
    ordered = [records[number] for number in sorted(records)]
    part = run.out / "cases.jsonl.part"
    part.write_text("".join(json.dumps(record) + "\n" for record in ordered))
    part.replace(run.out / "cases.jsonl")
    journal.unlink(missing_ok=True)
    for left in run.out.glob("*.npz.*part"):  # half written by processes that were killed
        left.unlink()
    return [record for record in ordered if record["number"] < run.cases]


def _finished(run: Run) -> dict[int, Record]:
    """Records of all cases that earlier runs have done, those beyond the number asked for included."""
    plan = {
        "master": run.source.master.name, "model": _model_digest(run.source), "name": run.source.name,
        "seed": run.seed, "mix": asdict(run.mix),
    }  # fmt: skip
    plan_path = run.out / "plan.json"
    if plan_path.exists():
        if json.loads(plan_path.read_text()) != json.loads(json.dumps(plan)):
            raise FeederError(
                f"{run.out}: holds cases of another network, model, seed or mix ({plan_path.name}); give another --out"
            )
    else:
        plan_path.write_text(json.dumps(plan, indent=1) + "\n")
    found: dict[int, Record] = {}
    for name in ("cases.jsonl", "cases.part.jsonl"):
        path = run.out / name
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue  # the last line of a run that was killed while writing it
            written = record["status"] == "rejected" or run.case_path(record["number"]).exists()
            if written:
                found[record["number"]] = record
    return found


def _model_digest(source: NetworkSource) -> str:
    """Digest of everything the engine is told: a model edited since gives other cases."""
    script = read_script(source.master, source.root)
    text = "\n".join(command.text for command in script.commands)
    return hashlib.sha256(text.replace(str(script.root), "").encode()).hexdigest()  # wherever it lies


def _work(run: Run, numbers: list[int], workers: int) -> Iterator[list[Record]]:
    """Records of cases as they are done, in any order."""
    batches = [numbers[k : k + _PER_TASK] for k in range(0, len(numbers), _PER_TASK)]
    if workers <= 1 or len(batches) <= 1:
        network = Network(run.source, run.mix) if batches else None
        for batch in batches:
            assert network is not None  # there is a batch
            yield [_one(network, run, number) for number in batch]
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(batches)), context, _start_worker, (run,)) as pool:
        waiting: set[Future[list[Record]]] = {pool.submit(_batch, batch) for batch in batches}
        try:
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        except BrokenProcessPool as error:
            raise FeederError(
                f"{run.source.master}: a worker process died (out of memory?); finished cases are kept, run it again"
            ) from error
        finally:
            for future in waiting:
                future.cancel()


_network: Network
_run: Run


def _start_worker(run: Run) -> None:
    global _network, _run
    _run = run
    _network = Network(run.source, run.mix)


def _batch(numbers: list[int]) -> list[Record]:
    return [_one(_network, _run, number) for number in numbers]


def _one(network: Network, run: Run, number: int) -> Record:
    """Simulate and store one case."""
    case = network.draw(run.seed, number)
    circuit = network.circuit(case.variant)
    grid_path = run.out / f"grid-variant-{case.variant}.npz"
    if not grid_path.exists():
        circuit.grid.save(grid_path)
    try:
        day = circuit.solve(case)
    except Rejection as reason:
        return {"number": number, "status": "rejected", "reason": str(reason), "variant": case.variant}
    day.save(run.case_path(number))
    return _record(case, day)


def _record(case: Case, day: Day) -> Record:
    """What a list of cases says of one."""
    return {
        "number": case.number,
        "status": "done",
        "variant": case.variant,
        "solver": day.solver,
        "day_of_year": case.profile.day_of_year,
        "phases_changed": case.phases_changed,
        "switching": str(case.switching),
        "switches_open": int(case.configuration.switch_open.sum()),
        "energised_share": round(float(day.energised.mean()), 6),
        "fault": None if case.fault is None else asdict(case.fault),
    }
