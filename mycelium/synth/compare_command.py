"""`mycelium synth facts` and `mycelium synth compare`: synthetic against reference feeders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from mycelium.errors import FeederError
from mycelium.synth.library_command import bar, worker_count

_out, _err = Console(soft_wrap=True), Console(stderr=True, soft_wrap=True)


def facts(*, source: Annotated[Path, Parameter(name="--from")], out: Path, workers: int | None = None) -> None:
    """Measure the training networks of a catalogue: the references that `compare` compares with.

    Args:
        source: Catalogue of networks (TOML, as `mycelium corpus catalogue` writes it).
        out: CSV file to write.
        workers: Processes; every core if not given. The result does not depend on it.
    """
    from mycelium.synth.compare_facts import reference_facts, write_facts

    with bar(f"measuring the networks of {source.name}") as progress:
        found = reference_facts(source, worker_count(workers), progress)
    if not len(found.table):
        first = next(iter(found.failed.values()), "none is left")
        raise FeederError(f"{source}: none of its training networks can be measured: {first}")
    write_facts(found.table, out)
    _say_failed(found.failed)
    _out.print(f"{len(found.table)} networks in {out}", highlight=False)


def compare(run: Path, *, out: Path, reference: Path | None = None, workers: int | None = None) -> None:
    """Compare the accepted feeders of a run with training references: statistics, a figure, a discriminator.

    Args:
        run: Folder that `mycelium synth` wrote.
        out: Folder for `comparison.md`, `comparison.svg` and `facts.csv`.
        reference: Facts of the references; those that ship with the package if not given.
        workers: Processes; every core if not given. The result does not depend on it.
    """
    from mycelium.synth.compare import compare as compare_facts
    from mycelium.synth.compare import markdown
    from mycelium.synth.compare_facts import read_facts, synthetic_facts, write_facts
    from mycelium.synth.compare_figure import draw_comparison

    theirs = read_facts(reference)
    with bar(f"measuring the feeders of {run}") as progress:
        found = synthetic_facts(run, worker_count(workers), progress)
    _say_failed(found.failed)
    if not len(found.table):
        raise FeederError(f"{run}: none of its feeders can be measured")
    out.mkdir(parents=True, exist_ok=True)
    write_facts(found.table, out / "facts.csv")
    draw_comparison(found.table, theirs, out / "comparison.svg")
    text = markdown(compare_facts(found.table, theirs), "comparison.svg")
    (out / "comparison.md").write_text(text, encoding="utf-8")
    _out.print(text, markup=False, highlight=False)


def _say_failed(failed: dict[str, str]) -> None:
    for name, why in failed.items():
        text = why if why.startswith(name) else f"{name}: {why}"
        _err.print(f"not measured: {text}", markup=False, highlight=False)
