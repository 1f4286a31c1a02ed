"""`mycelium synth library`: make a component library from the training networks of a catalogue."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from mycelium.errors import FeederError

_out, _err = Console(soft_wrap=True), Console(stderr=True, soft_wrap=True)


def library(
    *,
    source: Annotated[Path, Parameter(name="--from")],
    out: Path,
    workers: int | None = None,
) -> None:
    """Make a component library from the training networks of a catalogue; no other network contributes.

    Args:
        source: Catalogue of networks (TOML, as `mycelium corpus catalogue` writes it).
        out: Parquet file to write.
        workers: Processes; every core if not given. The result does not depend on it.
    """
    from mycelium.synth.library_build import build_library, provenance

    with bar(f"measuring the networks of {source.name}") as progress:
        found, remarks = build_library(source, worker_count(workers), progress)
    if not found.conventions:
        raise FeederError(
            f"{source}: none of its training networks can be read: {remarks[0].network}: {remarks[0].why}"
        )
    found.write(out)
    table = Table("family", "networks", title=f"{escape(str(out))}: {len(found.rows)} rows", title_justify="left")
    for family, count in provenance(found).items():
        table.add_row(escape(family), str(count))
    _out.print(table)
    counted = Counter((remark.network.partition(".")[0], remark.what, remark.why) for remark in remarks)
    left_out = Table("networks", "count", "what", "why it is left out", title="left out", title_justify="left")
    for (family, what, why), count in sorted(counted.items()):
        left_out.add_row(*map(escape, (family, str(count), what, why)))
    _out.print(left_out)


def worker_count(workers: int | None) -> int:
    """Every core if no number is given."""
    if workers is not None and workers < 1:
        raise FeederError(f"--workers {workers}: expected at least 1")
    return workers or os.cpu_count() or 1


@contextmanager
def bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr, and the function that moves it."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=_err, transient=True) as progress:
        task = progress.add_task(escape(title), total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
