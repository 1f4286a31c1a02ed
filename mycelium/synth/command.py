"""`mycelium synth`: feeders from streets; `report`: their figures; `library`, `facts` and `compare` beside it."""

from __future__ import annotations

import json as json_module
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from mycelium.errors import FeederError
from mycelium.synth.compare_command import compare, facts
from mycelium.synth.library_command import library

if TYPE_CHECKING:
    from mycelium.synth.summary import Summary

app = App(name="synth", help="Synthetic feeders: generate, look at, compare.")
app.command(library)
app.command(facts)
app.command(compare)
_out, _err = Console(soft_wrap=True), Console(stderr=True, soft_wrap=True)

Json = Annotated[bool, Parameter(negative="", help="Print one JSON object instead of tables.")]
Files = Annotated[tuple[Path, ...], Parameter(consume_multiple=True, negative="")]


@app.default
def synth(
    *,
    count: int,
    out: Path,
    seed: int = 0,
    overture: Files = (),
    workers: int | None = None,
    ray: str | None = None,
    library: Path | None = None,
    smallest: int = 20,
    largest: int = 10_000,
    residential: Path | None = None,
    commercial: Path | None = None,
    pv: Files = (),
    json: Json = False,
) -> None:
    """Generate feeders as OpenDSS models; running it again continues what was interrupted.

    Args:
        count: Attempts, numbered from 0; most are accepted, and rejections are kept with their reasons.
        out: Folder for the feeders, the rejections, a summary and pictures.
        seed: Seed of all feeders.
        overture: Street segments and buildings as Overture GeoParquet; invented towns if not given.
        workers: Processes; every core if not given. The result does not depend on it.
        ray: Address of a Ray cluster that does the work instead; `out` and all inputs on a disk its nodes share.
        library: Component library that `mycelium synth library` made; the built-in one if not given.
        smallest: Fewest buses.
        largest: Most buses.
        residential: Annual profiles of homes, kW; built-in if not given.
        commercial: Annual profiles of businesses, kW; built-in if not given.
        pv: Annual profiles of PV sites, per unit; one file per solar region; built-in if not given.
    """
    from mycelium.synth.parameters import SynthConfig
    from mycelium.synth.profiles import ProfileFiles
    from mycelium.synth.run import SynthRun, synth_run

    if count < 1:
        raise FeederError(f"--count {count}: expected at least 1")
    if workers is not None and (workers < 1 or ray is not None):
        raise FeederError(f"--workers {workers}: expected at least 1, and not together with --ray")
    if not 10 <= smallest <= largest:
        raise FeederError(f"--smallest {smallest} --largest {largest}: expected 10 or more, in this order")
    config = SynthConfig(smallest_buses=smallest, largest_buses=largest)
    run = SynthRun(seed, out, config, library, overture, ProfileFiles(residential, commercial, pv))
    accepted = 0
    with _bar(f"feeders in {out}", count) as (progress, task):

        def tick(record: dict[str, Any]) -> None:
            nonlocal accepted
            accepted += record["accepted"]
            progress.update(task, advance=1, description=escape(f"feeders in {out}: {accepted} accepted"))

        synth_run(run, count, workers or os.cpu_count() or 1, ray, tick)
    report(out, json=json)


@app.command
def report(run: Path, *, into: Path | None = None, json: Json = False) -> None:
    """Say how a run went, and draw its feeders: `summary.md`, `feeders.csv` and `pictures.html` in its folder.

    Args:
        run: Folder that `mycelium synth` wrote.
        into: Markdown file with a results section to put the summary into; the figure goes beside it.
    """
    from mycelium.synth.pictures import draw_run
    from mycelium.synth.summary import put_into, summarise, write_summary

    with _bar(f"reading {run}", None):
        found = summarise(run)
    with _bar("drawing", None):
        figure = draw_run(found, run)
    write_summary(found, run)
    if into is not None:
        put_into(found, figure, into)
    if json:
        json_module.dump(found.as_dict(), sys.stdout, indent=1, allow_nan=False)
        sys.stdout.write("\n")
        return
    _print(found, run)


def _print(found: Summary, run: Path) -> None:
    table = Table(title=escape(str(run)), title_justify="left")
    for name in found.classes.columns:
        table.add_column(str(name), justify="left" if name == "buses" else "right")
    for row in found.classes.itertuples(index=False):
        table.add_row(*(f"{value:.3g}" if isinstance(value, float) else str(value) for value in row))
    _out.print(table)
    for reason, number in found.reasons.items():
        _out.print(f"rejected, {reason}: {number}", markup=False, highlight=False)
    _out.print(f"pictures: {run / 'pictures.html'}", markup=False, highlight=False)


@contextmanager
def _bar(title: str, total: int | None) -> Iterator[tuple[Progress, Any]]:
    """A progress bar on stderr."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=_err, transient=True) as progress:
        yield progress, progress.add_task(escape(title), total=total)
