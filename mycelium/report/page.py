"""The report: one HTML file that needs nothing else, not even a network."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from mycelium.corpus.files import write_whole
from mycelium.grid.grid import Grid
from mycelium.report.answers import NOT_ASKED, Answers
from mycelium.report.drawing import Band, feeder_svg, voltages_svg
from mycelium.report.truth import magnitude_error, true_voltage
from mycelium.schema import CHANNELS, HOURS, PHASES
from mycelium.sense.readings import Readings
from mycelium.window.supervision import Targets
from mycelium.window.targets import FAULT_CLASSES

Flags = npt.NDArray[np.bool_]

_SHOWN, _CANDIDATES, _NAMED = 25, 10, 5

_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;color:#222;max-width:940px;margin:2em auto;padding:0 1em}
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}table{border-collapse:collapse;margin:.5em 0}
td,th{padding:.15em .8em .15em 0;text-align:left;border-bottom:1px solid #ddd;font-variant-numeric:tabular-nums}
svg{width:100%;height:auto;background:#fafafa}svg text{font-size:12px;fill:#444}.grid{stroke:#e3e3e3}
.line{stroke:#9a9a9a;fill:none}.transformer{stroke:#333;stroke-width:2.5;fill:none}.bus.seen{stroke:#111;stroke-width:1.6}
.bus.inferred{stroke:none}.source{fill:#333}.switch line,.switch rect{stroke:#d99a00;stroke-width:2}
.switch.open line{stroke-dasharray:3 4}.switch.open rect{fill:#fff}.switch.closed rect{fill:#d99a00}
.candidate circle{fill:none;stroke:#b0003a;stroke-width:2.5}.candidate text{fill:#b0003a;font-weight:bold}
.truth{stroke:#111;stroke-width:3;fill:none}.wrong{color:#b0003a}.note{color:#555}input[type=range]{width:60%}
"""
# Colours by voltage: blue below, grey at 1 p.u., red above; black where next to nothing is left.
_SCRIPT = """
const v=JSON.parse(document.getElementById("v").textContent),buses=document.querySelectorAll("#feeder .bus");
function colour(x){if(x===null)return"#ccc";if(x<0.1)return"#000";const d=Math.max(-1,Math.min(1,(x-1)/0.1));
return d<0?`rgb(${190+d*160},${195+d*90},${200+d*-40})`:`rgb(${190+d*40},${195-d*130},${200-d*150})`;}
function show(h){document.getElementById("hour").textContent=h;
buses.forEach((b,k)=>b.setAttribute("fill",colour(v[h][k])));}
const s=document.getElementById("slider");s.addEventListener("input",()=>show(+s.value));show(+s.value);
"""


def write_report(
    path: Path, grid: Grid, readings: Readings, answers: Answers, truth: Targets | None = None, title: str = ""
) -> None:
    """Write the report of a day.

    Args:
        path: HTML file.
        grid: The records.
        readings: What was reported.
        answers: What was said of it.
        truth: What is true, of a simulated day: shown beside the answers.
        title: What the feeder is called; as in its records if not given.
    """
    write_whole(path, page(grid, readings, answers, truth, title).encode())


def page(grid: Grid, readings: Readings, answers: Answers, truth: Targets | None = None, title: str = "") -> str:
    """The report as text."""
    observed = observed_buses(grid, readings)
    title = escape(title or grid.name or "A feeder")
    sections = [
        f"<h1>{title}</h1>{_summary(grid, readings, answers, observed)}",
        _map(grid, answers, observed, truth),
        _voltages(grid, answers, observed, truth),
        _fault(answers, truth),
        _switches(answers, truth),
        _phases(readings, answers, truth),
        _observed(readings),
    ]
    lowest = _lowest(answers)
    values = json.dumps([[None if np.isnan(x) else round(float(x), 4) for x in row] for row in lowest])
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>{"".join(sections)}'
        f'<script type="application/json" id="v">{values}</script><script>{_SCRIPT}</script></body></html>\n'
    )


def observed_buses(grid: Grid, readings: Readings) -> Flags:
    """Buses with a voltage reading in the window: their own meter's or a customer's. [bus]"""
    seen = np.array(readings.seen["bus.voltage_v"].any(axis=(0, 2)))
    customers = readings.seen["consumer.voltage_v"].any(axis=(0, 2))
    seen[grid.consumer["bus1"].to_numpy()[customers]] = True
    return seen


def _lowest(answers: Answers) -> npt.NDArray[np.float64]:
    """Lowest phase of every bus, NaN where it has none. [hour, bus]"""
    lowest = np.where(np.isnan(answers.v_pu), np.inf, answers.v_pu).min(axis=2)
    return np.where(np.isfinite(lowest), lowest, np.nan)


def _summary(grid: Grid, readings: Readings, answers: Answers, observed: Flags) -> str:
    return (
        f"<p>{escape(_fault_in_words(answers))} {escape(_switches_in_words(answers))} "
        f"{escape(_phases_in_words(answers))}</p>"
        f'<p class="note">{len(grid.bus)} buses; {readings.count:,} readings in {HOURS} hours; the voltage of '
        f"{int(observed.sum())} buses was reported by some meter, that of the others is inferred.</p>"
    )


def _fault_in_words(answers: Answers) -> str:
    if "fault" not in answers.asked:
        return "This model was not asked for faults."
    (kind, sure), first = answers.fault, answers.candidates.iloc[0]
    if kind == "normal":
        return f"No fault ({sure:.0%} sure)."
    place = f"{first['kind']} {first['name']} ({first['p']:.0%})"
    return f"A fault of type {kind} at the last hour ({sure:.0%} sure), likeliest at {place}."


def _switches_in_words(answers: Answers) -> str:
    """Which are likely open, and how sure; never a count as if it were known."""
    if "switch" not in answers.asked:
        return "It was not asked for switches."
    ranked = answers.switches.sort_values("p_open", ascending=False, kind="stable")
    if not len(ranked):
        return "The records have no switches."
    opened = ranked[ranked["open"]]
    named = [f"{row.switch} ({row.p_open:.0%})" for row in (opened if len(opened) else ranked).itertuples()]
    if not len(opened):
        return f"No switch of {len(ranked)} is likely open; the likeliest is {named[0]}."
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return f"Likely open of {len(ranked)} switches: {', '.join(named[:_NAMED])}{more}."


def _phases_in_words(answers: Answers) -> str:
    if "phase" not in answers.asked:
        return "It was not asked for phases."
    if not len(answers.phases):
        return "No customer's phase was in question."
    return (
        f"{len(answers.phases)} customers' phases were in question; it is {answers.phases['confidence'].mean():.0%} "
        "sure of them on average."
    )


def _map(grid: Grid, answers: Answers, observed: Flags, truth: Targets | None) -> str:
    place = None if truth is None or int(truth.location[0]) < 0 else int(truth.location[0])
    return (
        "<h2>The feeder</h2>"
        f'<p><label>Hour <b id="hour">{HOURS - 1}</b> <input id="slider" type="range" min="0" max="{HOURS - 1}" '
        f'value="{HOURS - 1}"></label></p>{feeder_svg(grid, answers, observed, place)}'
        '<p class="note">Colour: lowest voltage of a bus, blue below 1 p.u., red above, black without supply. A dark '
        "ring: its voltage was reported. Square: source, or a switch, hollow if said to be open. Numbered rings: "
        f"likeliest places of the fault{'' if place is None else '; cross: its true place'}.</p>"
    )


def _voltages(grid: Grid, answers: Answers, observed: Flags, truth: Targets | None) -> str:
    title = "<h2>Voltages by hour</h2>"
    if "state" not in answers.asked:
        return f"{title}<p>{NOT_ASKED.capitalize()}.</p>"
    flat = answers.v_pu.reshape(HOURS, -1)
    bands = _bands(flat[:, np.isfinite(flat).all(axis=0)])
    true_bands = [] if truth is None else _bands(truth.v_pu.numpy()[:, truth.valid.numpy()], dashed=True)
    note = "How sure voltages are is not estimated: this model gives one value each."
    if truth is not None:
        mean = magnitude_error(answers, truth)
        note = f"Dashed: the truth. Mean error of magnitudes: {mean:.4f} p.u. {note}"
    lowest = _table(_lowest_rows(grid, answers, observed, truth))
    return f'{title}{voltages_svg([*bands, *true_bands])}<p class="note">{note}</p><p>Lowest:</p>{lowest}'


def _bands(v_pu: npt.NDArray[np.floating], dashed: bool = False) -> list[Band]:
    """Highest, median and lowest voltage. v_pu [hour, place]"""
    if not v_pu.shape[1]:
        return []
    return [
        Band("highest", "#b0003a", v_pu.max(axis=1), dashed),
        Band("median", "#333333", np.median(v_pu, axis=1), dashed),
        Band("lowest", "#3b5ba9", v_pu.min(axis=1), dashed),
    ]


def _lowest_rows(grid: Grid, answers: Answers, observed: Flags, truth: Targets | None) -> pd.DataFrame:
    """Buses with the lowest voltages of the day."""
    lowest = _lowest(answers)
    order = np.argsort(np.where(np.isnan(lowest), np.inf, lowest).min(axis=0), kind="stable")[:_CANDIDATES]
    rows = []
    for bus in order:
        hour = int(np.nanargmin(lowest[:, bus]))
        phase = int(np.nanargmin(answers.v_pu[hour, bus]))
        row = {
            "bus": grid.bus["name"].iat[bus],
            "phase": PHASES[phase],
            "hour": hour,
            "p.u.": f"{lowest[hour, bus]:.3f}",
            "by": "reported nearby" if observed[bus] else "inferred",
        }
        if truth is not None:
            row["true p.u."] = true_voltage(truth, hour, int(bus), phase)
        rows.append(row)
    return pd.DataFrame(rows)


def _fault(answers: Answers, truth: Targets | None) -> str:
    if "fault" not in answers.asked:
        true = "" if truth is None else f" True: {FAULT_CLASSES[int(truth.fault_class[0])]}."
        return f"<h2>Fault</h2><p>{NOT_ASKED.capitalize()}.{true}</p>"
    ranked = answers.candidates.head(_CANDIDATES)[["rank", "kind", "name", "p"]]
    places = _table(ranked.assign(p=ranked["p"].map("{:.1%}".format)))
    classes = _table(answers.faults.assign(p=answers.faults["p"].map("{:.1%}".format)))
    note = "" if truth is None else f"<p>True: {escape(_true_fault(answers, truth))}.</p>"
    if answers.fault[0] == "normal":
        note += '<p class="note">No fault is likeliest; the places are for the case that there is one.</p>'
    return f"<h2>Fault</h2>{note}{classes}{places}"


def _true_fault(answers: Answers, truth: Targets) -> str:
    kind, place = FAULT_CLASSES[int(truth.fault_class[0])], int(truth.location[0])
    if place < 0:
        return kind
    true = answers.candidates.loc[place]
    return f"{kind} at {true['kind']} {true['name']}, ranked {true['rank']} of {len(answers.candidates)}"


def _switches(answers: Answers, truth: Targets | None) -> str:
    found = answers.switches
    if "switch" not in answers.asked:
        return f"<h2>Switches</h2><p>{NOT_ASKED.capitalize()}.</p>"
    if not len(found):
        return "<h2>Switches</h2><p>The records have none.</p>"
    shown = pd.DataFrame(
        {
            "switch": found["switch"],
            "from": found["from"],
            "to": found["to"],
            "said to be": np.where(found["open"], "open", "closed"),
            "probability open": found["p_open"].map("{:.0%}".format),
        }
    )
    if truth is not None:
        shown["true"] = np.where(truth.switch_open.numpy()[found.index], "open", "closed")
    return f"<h2>Switches</h2>{_folded(shown, found['confidence'])}"


def _phases(readings: Readings, answers: Answers, truth: Targets | None) -> str:
    found = answers.phases
    if "phase" not in answers.asked:
        return f"<h2>Phases</h2><p>{NOT_ASKED.capitalize()}.</p>"
    if not len(found):
        return "<h2>Phases</h2><p>No customer's phase is in question.</p>"
    reported = np.asarray(readings.seen["consumer.voltage_v"].any(axis=(0, 2)))[found.index.to_numpy()]
    shown = pd.DataFrame(
        {
            "customer": found["customer"],
            "bus": found["bus"],
            "phase": found["phase"],
            "sure": found["confidence"].map("{:.0%}".format),
            "voltage": np.where(reported, "reported", "none"),
        }
    )
    if truth is not None:
        shown["true"] = np.array(PHASES)[truth.phase.numpy()[found.index]]
    return f"<h2>Phases</h2>{_folded(shown, found['confidence'])}"


def _observed(readings: Readings) -> str:
    rows = []
    for key, channel in CHANNELS.items():
        seen = readings.seen[key]
        elements = int(seen.any(axis=(0, 2)).sum())
        if seen.shape[1]:
            rows.append(
                {
                    "of": channel.table,
                    "what": channel.quantity.value,
                    "elements": f"{elements} of {seen.shape[1]}",
                    "readings": f"{int(seen.sum()):,}",
                    "remark": channel.says,
                }
            )
    return f"<h2>What was observed</h2>{_table(pd.DataFrame(rows))}"


def _folded(rows: pd.DataFrame, confidence: pd.Series) -> str:
    """The least sure first, most of them folded away."""
    rows = rows.loc[confidence.sort_values(kind="stable").index]
    head = _table(rows.head(_SHOWN))
    rest = rows.iloc[_SHOWN:]
    return (
        head if not len(rest) else f"{head}<details><summary>{len(rest)} more, surer</summary>{_table(rest)}</details>"
    )


def _table(rows: pd.DataFrame) -> str:
    head = "".join(f"<th>{escape(str(name))}</th>" for name in rows.columns)
    body = []
    for row in rows.to_dict("records"):
        said = row.get("said to be", row.get("phase"))
        wrong = ' class="wrong"' if "true" in row and row["true"] != said else ""
        cells = "".join(f"<td>{escape(str(value))}</td>" for value in row.values())
        body.append(f"<tr{wrong}>{cells}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
