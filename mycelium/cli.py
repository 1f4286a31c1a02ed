"""The command line. Results go to stdout (JSON where asked for), progress and errors to stderr."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

from mycelium.interrupts import ending_at_once

with ending_at_once():
    from cyclopts import App, Parameter
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
    from rich.table import Table

    from mycelium.corpus.command import app as corpus
    from mycelium.errors import FeederError
    from mycelium.evaluate.command import app as evaluation
    from mycelium.evaluate.command import table as tables
    from mycelium.sense.command import app as readings
    from mycelium.synth.command import app as synth
    from mycelium.train.command import app as training

app = App(
    name="mycelium",
    help="One learned model for any electrical distribution feeder.",
    version_flags=["--version"],
    suppress_keyboard_interrupt=False,  # `main` says what an interrupt leaves
)
app.command(readings)
app.command(corpus)
app.command(synth)
app.command(training)
app.command(evaluation)
app.command(tables)
_out, _err = Console(soft_wrap=True), Console(stderr=True, soft_wrap=True)

Root = Annotated[Path | None, Parameter(help="Folder that bounds what the model may read; else the master's own.")]
Json = Annotated[bool, Parameter(negative="", help="Print one JSON object instead of tables.")]


def main() -> None:
    """Run a command; errors meant for people are printed without a traceback."""
    try:
        app()
    except (FeederError, OSError) as error:  # an OSError names the file that cannot be read or written
        # Text of a model may look like markup: `buses=[a b]`.
        _err.print(f"[bold red]error:[/] {escape(str(error))}", markup=True, highlight=False)
        sys.exit(1)
    except KeyboardInterrupt:
        _err.print("interrupted; finished work is kept")
        sys.exit(130)


def _progress() -> Progress:
    return Progress(
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        console=_err, transient=True,
    )  # fmt: skip


@app.command
def inspect(master: Path, *, root: Root = None, json: Json = False) -> None:
    """Import an OpenDSS model and say what it holds, what was left out, and whether the physics is right."""
    from mycelium.grid.inspection import inspect_model

    with _progress() as progress:
        progress.add_task(f"importing and checking {master.name}", total=None)
        found = inspect_model(master, root)
    facts = found.as_dict()
    if json:
        _print_json(facts)
    else:
        _print_inspection(facts)
    if not found.check.converged:
        raise FeederError(
            f"{master.name}: the power flow does not converge as shipped, so its voltages and the comparisons made "
            "with them say nothing; lower the demand or correct impedances"
        )


def _print_inspection(facts: dict[str, Any]) -> None:
    report = facts.pop("report")
    _out.print(_two_columns(str(facts["name"]), facts))
    for title, remarks in (("approximated", report["approximated"]), ("left out", report["ignored"])):
        if remarks:
            _out.print(_remarks(title, remarks))


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=1, allow_nan=False, default=str))


def _two_columns(title: str, facts: dict[str, Any]) -> Table:
    table = Table(title=escape(title), show_header=False)
    for key, value in facts.items():
        table.add_row(key.replace("_", " "), f"{value:.3g}" if isinstance(value, float) else escape(str(value)))
    return table


def _remarks(title: str, remarks: list[dict[str, Any]]) -> Table:
    table = Table("what", "how many", "why", "for example", title=title)
    for remark in remarks[:40]:
        texts = remark["kind"], str(remark["count"]), remark["what"], ", ".join(remark["names"][:3])
        table.add_row(*(escape(text) for text in texts))
    return table


@app.command
def simulate(
    master: Path,
    *,
    cases: int,
    out: Path,
    seed: int = 0,
    root: Root = None,
    workers: int | None = None,
    json: Json = False,
) -> None:
    """Simulate days with reconfigurations and faults; running it again continues what was interrupted.

    Args:
        master: The model's main file.
        cases: Number of cases, numbered from 0.
        out: Folder for the days, the records of each variant, and the list of cases.
        seed: Seed of all cases.
        workers: Processes; every core if not given. The result does not depend on it.
    """
    from mycelium.simulate.cases import CaseMix
    from mycelium.simulate.network import NetworkSource
    from mycelium.simulate.run import Run, simulate_run

    if cases < 1:
        raise FeederError(f"--cases {cases}: expected at least 1")
    run = Run(NetworkSource(master, root), seed, cases, out, CaseMix())
    with _progress() as progress:
        task = progress.add_task(f"simulating {master.name}", total=cases)
        records = simulate_run(run, workers or os.cpu_count() or 1, lambda n: progress.advance(task, n))
    summary = _summary(records)
    if json:
        _print_json({"master": str(master), "seed": seed, "out": str(out), **summary})
        return
    _out.print(_two_columns(f"{master}, seed {seed}, in {out}", summary))


def _summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts of cases by kind, and reasons of rejections."""
    done = [record for record in records if record["status"] == "done"]
    faults: dict[str, int] = {}
    reasons: dict[str, int] = {}
    for record in done:
        fault = record["fault"]
        kind = "none" if fault is None else f"{fault['type']} at {fault['place']}"
        faults[kind] = faults.get(kind, 0) + 1
    for record in records:
        if record["status"] == "rejected":
            reason = record["reason"].partition(": ")[2] or record["reason"]
            reasons[reason] = reasons.get(reason, 0) + 1
    return {
        "cases": len(records),
        "done": len(done),
        "rejected": len(records) - len(done),
        "rejection_reasons": reasons,
        "on_record_variants": sum(record["variant"] > 0 for record in done),
        "with_changed_phases": sum(record["phases_changed"] > 0 for record in done),
        "with_switching": sum(record["switching"] != "none" for record in done),
        "with_lost_supply": sum(record["switching"] == "lose" for record in done),
        "faults": dict(sorted(faults.items())),
    }


@app.command
def networks(
    index: Path, *, unpacked: Path, out: Path, workers: int | None = None, also: list[str] | None = None
) -> None:
    """Inspect every network of an index and write one table.

    Args:
        index: JSON list of records with `master`, as in the reference networks.
        unpacked: Folder that the masters are relative to; models may read within it.
        out: Markdown file to write; a JSON file with everything goes beside it.
        workers: Processes; every core if not given.
        also: More masters, relative to `unpacked`.
    """
    from mycelium.networks_table import inspect_index, write_table

    try:
        masters = [str(record["master"]) for record in json.loads(index.read_text())] + (also or [])
    except (ValueError, KeyError, TypeError) as error:
        raise FeederError(f"{index}: expected a JSON list of records with `master` ({error})") from error
    with _progress() as progress:
        task = progress.add_task("inspecting", total=len(masters))
        rows = inspect_index(masters, unpacked, workers or os.cpu_count() or 1, lambda: progress.advance(task))
    write_table(rows, out)
    _out.print(f"{sum(row.error is None for row in rows)} of {len(rows)} networks inspected; {out}")
    if any(row.error for row in rows):
        sys.exit(1)


@app.command
def demo(weights: str | None = None, report: Path | None = None) -> None:
    """Import a bundled feeder, simulate a day with a fault on it, and estimate the day from what its meters report.

    Args:
        weights: Folder or name of weights; those that ship with the package if not given.
        report: HTML file to draw the answers into.
    """
    from mycelium.demo import REPORT, run_demo

    run_demo(_out, weights, report or REPORT)


if __name__ == "__main__":
    main()
