"""`mycelium evaluate` and `mycelium table`."""

from __future__ import annotations

import hashlib
import os
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from mycelium.corpus.catalogue import Split
from mycelium.corpus.files import write_whole
from mycelium.errors import FeederError

if TYPE_CHECKING:
    from mycelium import Mycelium
    from mycelium.evaluate.evaluation import Results

app = App(name="evaluate", help="Every metric of a model on one split.")
table = App(name="table", help="The paper's tables with our rows beside the paper's.")
_out, _err = Console(soft_wrap=True), Console(stderr=True, soft_wrap=True)

# All of it fits 80 columns.
_NARROW: dict[str, Any] = {"box": SIMPLE_HEAD, "padding": 0, "pad_edge": False, "show_edge": False}
# As the paper's tables have them.
_SHORT = {
    f"{long}_{tier}": f"{short}_{tier}"
    for long, short in (("noisy_missing", "nm"), ("observability_ami", "ami"))
    for tier in ("dense", "medium", "sparse")
}


@app.default
def evaluate(
    *,
    weights: str,
    catalogue: Path,
    split: Split,
    json: Path | None = None,
    label: str | None = None,
    cases: int | None = None,
    seed: int = 20261119,
    workers: int = 0,
    device: str = "auto",
    half: Annotated[bool, Parameter(negative="")] = False,
    buses_per_batch: int = 20_000,
) -> None:
    """Evaluate a model by policy and by network, with intervals.

    Args:
        weights: Folder of weights, or a name that ships with the package.
        catalogue: Catalogue, corpus file, or folder of a built corpus.
        split: Which of its networks.
        json: File for all results; `mycelium table` reads it.
        label: What the model is called in tables; if not given, its run or the name of its weights.
        cases: Of each network; all that a corpus has, or 14 of a catalogue, if not given.
        seed: Of the cases of a catalogue.
        workers: Processes that simulate and render; 0 works in this one.
        device: cuda, cpu, or auto.
        half: Matrix products in bfloat16.
        buses_per_batch: Most buses at once.
    """
    from mycelium import Mycelium
    from mycelium.evaluate.evaluation import Results
    from mycelium.evaluate.evaluation import evaluate as run
    from mycelium.evaluate.frozen import FrozenConfig, open_split
    from mycelium.evaluate.kept import Kept
    from mycelium.evaluate.metrics import METRICS
    from mycelium.train.processes import joined

    if json is not None:
        _check_target(json)
    model = Mycelium.from_pretrained(weights)
    config = FrozenConfig(buses_per_batch=buses_per_batch, options=model.config.window, workers=workers)
    about = _about(model, label or _name_of(weights)) | {"split": split.value, "place": catalogue.name, "seed": seed}
    with joined(device) as processes, open_split(catalogue, split, cases, seed, config, model.normalisation) as samples:
        of = (about, len(samples), str(catalogue.absolute()), half, version("mycelium-grid"), list(METRICS))
        kept = Kept(json, repr(of))
        with _bar() as bar:
            task = bar.add_task(f"evaluating on {split}", total=len(samples))
            scores = run(model, samples, processes.device, half, lambda n: bar.advance(task, n), kept)
            bar.update(task, description="intervals")
            results = Results.of(scores, {**about, "missing": len(samples) - len(scores.samples)})
    _print(results)
    if json is not None:
        results.save(json)
        kept.remove()


def _check_target(file: Path) -> None:
    """A file can be written there: said before the work, not after it."""
    if file.is_dir():
        raise FeederError(f"{file}: is a folder; name a file, such as {file / 'results.json'}")
    folder = next(parent for parent in file.absolute().parents if parent.exists())  # the rest will be made
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise FeederError(f"{file}: cannot be written; {folder} is not a folder that can be written to")


def _name_of(weights: str) -> str:
    """What to call a model: a training run writes ``best``, ``last``, ``best-bf16`` into a folder of its own name."""
    place = Path(weights).absolute()
    return place.parent.name if place.name.partition("-")[0] in ("best", "last") else place.name


def _about(model: Mycelium, label: str) -> dict[str, Any]:
    """What ``Results.about`` says of a model."""
    return {"label": label, "weights": _digest(model), "trained_on": model.normalisation.networks}


def _bar() -> Progress:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=_err, transient=True)


def _digest(model: Mycelium) -> str:
    """Hash of all weights."""
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        digest.update(name.encode() + value.numpy().tobytes())
    return digest.hexdigest()


def _print(results: Results) -> None:
    """Pooled and macro values with intervals, then pooled values by policy."""
    from mycelium.evaluate.metrics import METRICS, PAPER
    from mycelium.evaluate.scores import ALL, MACRO, POOLED

    frame, about = results.table, results.about
    _out.print(
        escape(f"{about['label']}, split {about['split']}: {about['networks']} networks, {about['cases']} cases, ")
        + f"{about['samples']} samples",
        highlight=False,
    )
    both = Table("", "pooled", "95 %", "macro", "95 %", "of", **_NARROW)
    pooled, macro = (
        frame[(frame["network"] == name) & (frame["policy"] == ALL)].set_index("metric") for name in (POOLED, MACRO)
    )
    for name in pooled.index:
        cells = [text for rows in (pooled, macro) for text in _with_interval(rows.loc[name])]
        both.add_row(METRICS[name].says, *cells, f"{pooled.loc[name, 'count']:,}")
    _out.print(both)
    policies = [name for name in frame["policy"].unique() if name != ALL]
    by_policy = Table(title="pooled, by policy", **_NARROW)
    for title in ("", *(_SHORT.get(name, name) for name in policies)):
        by_policy.add_column(title.replace("_", " "), no_wrap=not title)
    cells_of = frame[frame["network"] == POOLED].set_index(["metric", "policy"])["value"]
    for name in (name for name in PAPER if name in pooled.index):
        by_policy.add_row(name, *(_number(cells_of[name, policy]) for policy in policies))
    _out.print(by_policy)


def _with_interval(row: Any) -> tuple[str, str]:
    low, high = (_number(round(row[name], 4)) for name in ("low", "high"))
    return _number(row["value"]), f"{low}–{high}" if low else ""


def _number(value: float) -> str:
    return "" if value != value else f"{value:.3g}"


@table.default
def print_tables(
    results: list[Path] | None = None,
    *,
    only: list[str] | None = None,
    form: Annotated[str, Parameter(name="--format")] = "markdown",
    intervals: Annotated[bool, Parameter(negative="")] = False,
    out: Path | None = None,
) -> None:
    """Print the paper's tables, ours beside them.

    Args:
        results: Files of `mycelium evaluate --json`.
        only: Names of tables; all if not given.
        form: markdown, latex or csv.
        intervals: Print 95 % intervals with ours.
        out: File to write to instead.
    """
    from mycelium.evaluate.evaluation import Results
    from mycelium.evaluate.paper_tables import TITLES
    from mycelium.evaluate.tables import Format, lines_of, render

    if form not in list(Format):
        raise FeederError(f"--format {form}: expected {', '.join(Format)}")
    if out is not None:
        _check_target(out)
    found = [Results.load(path) for path in results or []]
    text = render({name: lines_of(name, found, intervals) for name in only or TITLES}, found, Format(form))
    if out is None:
        print(text, end="")
    else:
        write_whole(out, text.encode())
