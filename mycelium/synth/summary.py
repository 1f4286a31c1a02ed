"""How a run went: acceptance and its reasons, cost by size, and what kind of feeders there are."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mycelium.errors import FeederError
from mycelium.synth.run import ACCEPTED, PLAN, REJECTED, TIMES
from mycelium.synth.write import SAMPLE, VERDICT

SUMMARY, TABLE = "summary.md", "feeders.csv"
_EDGES = (0, 50, 150, 500, 700, 1400, 3000, 6000, 1_000_000)
_BEGIN, _END = "<!-- results: mycelium synth report -->", "<!-- end of results -->"
_FIT_FROM = 150  # buses; below, what does not depend on size weighs more


@dataclass(frozen=True)
class Summary:
    """A run in figures.

    Attributes:
        feeders: A row per attempt: parameters, traits, time.
        classes: By size: attempts, acceptance, cost.
        reasons: Rejections by the first words of their first reason.
        exponent: p of cost ~ buses^p, and of n log n over the same feeders; NaN with too few feeders.
    """

    feeders: pd.DataFrame
    classes: pd.DataFrame
    reasons: dict[str, int]
    exponent: tuple[float, float]

    @property
    def acceptance(self) -> float:
        return float(self.feeders["accepted"].mean())

    @property
    def thousand_s(self) -> float:
        """Median core seconds of an accepted feeder of about 1,000 buses, rejected ones of this size paid for."""
        near = self.feeders[self.feeders["buses"].between(700, 1400)]
        kept = near[near["accepted"]]
        return float(kept["cpu_s"].median() / near["accepted"].mean()) if len(kept) else float("nan")

    def as_dict(self) -> dict[str, Any]:
        def number(value: float) -> float | None:
            return round(value, 3) if np.isfinite(value) else None

        return {
            "attempts": len(self.feeders),
            "accepted": int(self.feeders["accepted"].sum()),
            "reasons": self.reasons,
            "cpu_s_of_1000_buses": number(self.thousand_s),
            "cost_exponent": number(self.exponent[0]),
            "n_log_n_exponent": number(self.exponent[1]),
        }


def summarise(run: Path) -> Summary:
    """Read a run's folder."""
    if not (run / PLAN).is_file():
        raise FeederError(f"{run}: no {PLAN}; expected a folder that `mycelium synth` wrote")
    times: dict[int, dict[str, Any]] = {}
    path = run / TIMES
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.endswith("}"):
            record = json.loads(line)
            times[record["number"]] = record
    rows = [
        _row(folder, times)
        for status in (ACCEPTED, REJECTED)
        for folder in sorted((run / status).glob("feeder-*"))
        if (folder / VERDICT).is_file() and not folder.name.endswith(".part")
    ]
    if not rows:
        raise FeederError(f"{run}: holds no feeder yet")
    feeders = pd.DataFrame(rows).sort_values("number").reset_index(drop=True)
    reasons = Counter(row["reason"].partition(":")[0] for row in rows if row["reason"])
    ordered = dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0])))
    return Summary(feeders, _classes(feeders), ordered, _exponents(feeders))


def _row(folder: Path, times: dict[int, dict[str, Any]]) -> dict[str, Any]:
    verdict, sample = json.loads((folder / VERDICT).read_text()), json.loads((folder / SAMPLE).read_text())
    number = sample["number"]
    traits = verdict.get("traits", {})
    convention = sample.get("convention", {})
    return {
        "number": number,
        "accepted": verdict["accepted"],
        "reason": verdict["reasons"][0] if verdict["reasons"] else "",
        "folder": f"{folder.parent.name}/{folder.name}",
        "family": convention.get("family", ""),
        "region": convention.get("region", ""),
        "thermal": sample.get("thermal", False),
        "place": sample.get("geography", {}).get("place", ""),
        "target_buses": sample.get("parameters", {}).get("target_buses", 0),
        "buses": traits.get("buses", 0),
        "depth": traits.get("depth", 0),
        "customers": traits.get("customers", 0),
        "transformers": traits.get("transformers", 0),
        "ties": traits.get("ties", 0),
        "photovoltaics": traits.get("photovoltaics", 0),
        "repairs": verdict.get("repairs", 0),
        "lowest_pu": min((hour.get("lowest_pu", np.nan) for hour in verdict["hours"]), default=np.nan),
        "highest_pu": max((hour.get("highest_pu", np.nan) for hour in verdict["hours"]), default=np.nan),
        "cpu_s": times.get(number, {}).get("cpu_s", np.nan),
    }


def _classes(feeders: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for low, high in itertools.pairwise(_EDGES):
        part = feeders[(feeders["buses"] >= low) & (feeders["buses"] < high)]
        if len(part):
            name = f"{low} to {high - 1}" if high < _EDGES[-1] else f"{low} and more"
            kept = part[part["accepted"]]
            rows.append((name, len(part), len(kept), float(kept["cpu_s"].median()), float(kept["repairs"].median())))
    names = ["buses", "attempts", "accepted", "median core s", "median repairs"]
    return pd.DataFrame(rows, columns=names)


def _exponents(feeders: pd.DataFrame) -> tuple[float, float]:
    part = feeders[feeders["accepted"] & (feeders["buses"] >= _FIT_FROM) & (feeders["cpu_s"] > 0)]
    if len(part) < 10:
        return float("nan"), float("nan")
    x = np.log(part["buses"].to_numpy(dtype=float))
    cost = np.log(part["cpu_s"].to_numpy(dtype=float))
    return float(np.polyfit(x, cost, 1)[0]), float(np.polyfit(x, x + np.log(x), 1)[0])


def markdown(found: Summary) -> list[str]:
    """The summary as Markdown lines."""
    feeders = found.feeders
    kept = feeders[feeders["accepted"]]
    places = ", ".join(f"{place} {count}" for place, count in feeders["place"].value_counts().items() if place)
    lines = [
        f"{len(feeders)} attempts, {len(kept)} accepted ({100 * found.acceptance:.1f} %), of {kept['buses'].min()} to "
        f"{kept['buses'].max()} buses and {kept['customers'].sum()} customers in all. Places: {places}.",
        "",
        f"An accepted feeder of 700 to 1,400 buses costs {found.thousand_s:.2f} s of one core in the median, rejected "
        f"ones paid for. Cost grows as buses^{found.exponent[0]:.2f} from {_FIT_FROM} buses on; n·log n would be "
        f"buses^{found.exponent[1]:.2f} over these feeders.",
        "",
        "| " + " | ".join(str(name) for name in found.classes.columns) + " |",
        "|---|" + "---:|" * (len(found.classes.columns) - 1),
    ]
    for row in found.classes.itertuples(index=False):
        cells = [f"{value:.2f}" if isinstance(value, float) else str(value) for value in row]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| rejected because of | feeders |", "|---|---:|"]
    lines += [f"| {reason} | {count} |" for reason, count in found.reasons.items()] or ["| none rejected | 0 |"]
    return lines


def write_summary(found: Summary, run: Path) -> None:
    """`summary.md` and `feeders.csv` in the run's folder."""
    (run / SUMMARY).write_text("\n".join(["# Run", "", *markdown(found)]) + "\n")
    found.feeders.to_csv(run / TABLE, index=False)


def put_into(found: Summary, figure: Path, document: Path) -> None:
    """Put the summary between the marks of a document, and the figure beside it."""
    text = document.read_text(encoding="utf-8") if document.is_file() else ""
    if text.count(_BEGIN) != 1 or text.count(_END) != 1 or text.index(_BEGIN) > text.index(_END):
        raise FeederError(f"{document}: expected one line '{_BEGIN}' and, after it, one '{_END}'")
    before, rest = text.split(_BEGIN)
    _, after = rest.split(_END)
    picture = document.with_suffix(".svg")
    picture.write_bytes(figure.read_bytes())
    title = "Feeders on their streets, voltages, sizes and depths"
    body = "\n".join([*markdown(found), "", f"![{title}]({picture.name})"])
    document.write_text(f"{before}{_BEGIN}\n\n{body}\n\n{_END}{after}", encoding="utf-8")
