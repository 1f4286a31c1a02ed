"""`mycelium corpus`: build, stats, validate, catalogue."""

from __future__ import annotations

import json as json_module
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from mycelium.errors import FeederError

if TYPE_CHECKING:
    import pandas as pd

    from mycelium.corpus import build as building
    from mycelium.corpus.stats import CorpusStats

app = App(name="corpus", help="Simulated days of many networks: build, look at, check.")


class _Output(Console):
    """Results; whoever reads them may stop, as `head` does: what the command has to say by its exit code stays."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_out, _err = _Output(soft_wrap=True), Console(stderr=True, soft_wrap=True)

Json = Annotated[bool, Parameter(negative="", help="Print one JSON object instead of tables.")]


@app.command
def build(corpus: Path, *, out: Path, workers: int | None = None, ray: str | None = None, json: Json = False) -> None:
    """Simulate and store the cases of a corpus; running it again continues what was interrupted.

    Args:
        corpus: TOML file that says which networks and how many cases.
        out: Folder for the corpus.
        workers: Processes; every core if not given. The result does not depend on it.
        ray: Address of a Ray cluster that does the work instead; `out` and the networks on a disk its nodes share.
    """
    from mycelium.corpus.build import build as run
    from mycelium.corpus.build import make_folder
    from mycelium.corpus.plan import read_plan

    if workers is not None and (workers < 1 or ray is not None):
        raise FeederError(f"--workers {workers}: expected at least 1, and not together with --ray")
    make_folder(out, "--out")
    with _bar(f"reading the models of {corpus.name}") as (progress, task):
        plan = read_plan(corpus, lambda done, total: progress.update(task, completed=done / total))
    start = time.monotonic()
    with _bar(f"building {out}") as (progress, task):

        def watch(state: building.Progress) -> None:
            seconds = max(time.monotonic() - start, 1e-9)
            rate = f"{(state.done - state.found) / seconds:.1f} cases/s"
            text = f"building {escape(str(out))}: {state.done} of {state.planned} cases, {rate}"
            progress.update(task, completed=state.share, description=text)

        state = run(plan, out, workers, ray, watch)
    seconds = time.monotonic() - start
    _err.print(f"{state.done - state.found} cases in {seconds:.0f} s; {state.found} were there", highlight=False)
    straddling = _show_stats(out, None, json)
    if straddling:
        raise FeederError(f"{out}: {straddling[0]}; see `mycelium corpus stats` for all {len(straddling)}")


@app.command
def stats(folder: Path, *, figures: Path | None = None, json: Json = False) -> None:
    """Say what is in a corpus, and draw it.

    Args:
        folder: The corpus.
        figures: Folder for the figures; `figures` in the corpus if not given.
    """
    _show_stats(folder, figures, json)


@app.command
def validate(folder: Path, *, sample: int = 50, json: Json = False) -> None:
    """Check every file of a corpus, its labels, and the physics of some days. The next build repairs what is damaged.

    Args:
        folder: The corpus.
        sample: Days whose currents are summed at every node.
    """
    from dataclasses import asdict

    from mycelium.corpus.validate import validate as check

    if sample < 0:
        raise FeederError(f"--sample {sample}: expected 0 or more")
    with _bar(f"checking {folder}") as (progress, task):
        found = check(folder, sample, lambda done, total: progress.update(task, completed=done / total))
    if json:
        _print_json({**asdict(found), "kirchhoff": found.kirchhoff if found.physics else None})
    else:
        for text in [*(f"damaged: {name}" for name in found.damaged), *found.wrong]:
            _out.print(text, markup=False, highlight=False)
        done = f"{found.files} files, {found.days} days, physics of {found.physics} days"
        worst = f" (imbalance of currents at most {found.kirchhoff:.1e})" if found.physics else ""
        _out.print(f"{done}{worst}: {len(found.damaged)} damaged, {len(found.wrong)} wrong", highlight=False)
    if found.damaged:
        raise FeederError(f"{folder}: {len(found.damaged)} damaged files; build again to make them anew")
    if found.wrong:
        raise FeederError(f"{folder}: {len(found.wrong)} findings, although no file is damaged")


@app.command
def catalogue(*, index: Path, unpacked: Path, out: Path) -> None:
    """Write the catalogue of the reference networks.

    Args:
        index: JSON list of records with `master`, `family`, `split`, `licence`, `source` and `known_defect`.
        unpacked: Folder that the masters are relative to, and that bounds what models may read.
        out: TOML file to write.
    """
    from mycelium.corpus.catalogue import catalogue_of_index

    with _bar(f"reading the models of {index.name}"):
        count = catalogue_of_index(index, unpacked, out)
    _out.print(f"{count} networks in {out}", highlight=False)


def _show_stats(folder: Path, figures: Path | None, json: bool) -> list[str]:
    """Print and draw what is in a corpus; the networks that are one feeder but in different splits."""
    from mycelium.corpus.build import make_folder
    from mycelium.corpus.figures import draw_figures
    from mycelium.corpus.layout import FIGURES
    from mycelium.corpus.stats import corpus_stats, network_traits
    from mycelium.corpus.store import Corpus

    corpus = Corpus.open_folder(folder)
    make_folder(figures or folder / FIGURES, "--figures")
    with _bar("counting and drawing") as _:
        found = corpus_stats(corpus)
        written = draw_figures(found, network_traits(corpus), figures or folder / FIGURES)
    if json:
        _print_json({**_as_json(found), "figures": [str(path) for path in written]})
        return found.straddling
    for title, table in (
        (str(folder), found.splits),
        ("families", found.families),
        ("kinds of cases", found.kinds.T),
        ("rejected", found.reasons),
    ):
        if len(table):
            _out.print(_table(title, table))
    for text in found.straddling or ["no feeder is in two splits"]:
        _out.print(text, markup=False, highlight=False)
    for split, digest in found.labels.items():
        _out.print(f"labels of {split}: {digest}", highlight=False)
    _out.print(f"figures: {', '.join(str(path) for path in written if path.suffix == '.svg')}", highlight=False)
    return found.straddling


@contextmanager
def _bar(title: str) -> Iterator[tuple[Progress, Any]]:
    """A progress bar from 0 to 1 on stderr."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=_err, transient=True) as progress:
        yield progress, progress.add_task(escape(title), total=1.0)


def _print_json(value: object) -> None:
    try:
        sys.stdout.write(f"{json_module.dumps(value, indent=1, allow_nan=False)}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        _out.on_broken_pipe()


def _as_json(found: CorpusStats) -> dict[str, Any]:
    def rows(table: pd.DataFrame) -> list[dict[str, Any]]:
        return list(json_module.loads(table.reset_index().to_json(orient="records")))

    return {
        "splits": rows(found.splits.rename_axis("split")),
        "families": rows(found.families),
        "kinds": rows(found.kinds.rename_axis("split")),
        "reasons": rows(found.reasons),
        "labels_sha256": found.labels,
        "straddling": found.straddling,
    }


def _table(title: str, frame: pd.DataFrame) -> Table:
    table = Table(title=escape(title), title_justify="left")
    flat = frame.reset_index()
    for name in flat.columns:
        is_text = flat[name].dtype.kind not in "iufb"
        table.add_column("" if name == "index" else str(name), justify="left" if is_text else "right")
    for row in flat.itertuples(index=False):
        table.add_row(*(_cell(value) for value in row))
    return table


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.3f}"
    return escape(str(value))
