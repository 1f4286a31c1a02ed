"""The same feeder with another truth: bundled models written again with other phases, switch positions and taps."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mycelium.feeders import feeder_path
from mycelium.grid.grid import Configuration, Grid
from mycelium.grid.read_opendss import read_opendss

Edit = Callable[[str], str]

_ELEMENT = re.compile(r"New (Load|Line|PVSystem|Storage|Generator)\.(\S+)", re.IGNORECASE)
_FIRST_CONDUCTOR = re.compile(r"(bus[12]?=[^\s.]+)\.[123]", re.IGNORECASE)
_OPEN = re.compile(r"open line\.(\S+)", re.IGNORECASE)
_TAPS = re.compile(r"taps=\[1 [^]]*\]", re.IGNORECASE)
_STATES = re.compile(r"states=\[[^]]*\]", re.IGNORECASE)

CLOSED, OPEN_AT_1, OPEN_AT_2, DISABLED = POSITIONS = ("closed", "open at 1", "open at 2", "disabled")


def read_edited(feeder: str, folder: Path, *edits: Edit) -> tuple[Grid, Configuration]:
    """Import a bundled feeder after an edit of every line of its text; the files are written into ``folder``."""
    folder.mkdir(parents=True)
    for file in feeder_path(feeder).parent.iterdir():
        if file.suffix != ".dss":
            (folder / file.name).write_bytes(file.read_bytes())
            continue
        lines = file.read_text().splitlines()
        for edit in edits:
            lines = [edit(line) for line in lines]
        (folder / file.name).write_text("\n".join(lines) + "\n")
    grid, configuration, _ = read_opendss(folder / feeder_path(feeder).name)
    return grid, configuration


def with_phases(grid: Grid, group_phase: npt.NDArray[np.int8]) -> Edit:
    """Move everything in a hidden-phase group to another phase.

    Args:
        grid: The feeder as it is, for the names of what is in a group.
        group_phase: New phase slot. [group]
    """
    of: dict[tuple[str, str], int] = {}
    for kind in ("consumer", "line"):
        table = grid.tables[kind]
        of |= {
            ("load" if kind == "consumer" else "line", name): int(group_phase[group])
            for name, group in zip(table["name"], table["group"], strict=True)
            if group >= 0
        }
    kinds = {"pv": "pvsystem"}
    for kind, name, group in zip(grid.der["kind"], grid.der["name"], grid.der["group"], strict=True):
        if group >= 0:
            of[kinds.get(kind, kind), name] = int(group_phase[group])

    def edit(line: str) -> str:
        found = _ELEMENT.match(line)
        phase = of.get((found.group(1).lower(), found.group(2).lower())) if found else None
        return line if phase is None else _FIRST_CONDUCTOR.sub(rf"\g<1>.{phase + 1}", line)

    return edit


def with_positions(position: Mapping[str, str]) -> Edit:
    """Write every switch in the position given for its name, one of ``POSITIONS``."""

    def edit(line: str) -> str:
        opened, found = _OPEN.match(line), _ELEMENT.match(line)
        if opened and opened.group(1).lower() in position:
            return ""
        name = found.group(2).lower() if found and found.group(1).lower() == "line" else ""
        if name not in position:
            return line
        line = re.sub(r"\s+enabled=no", "", line)
        return {
            CLOSED: line,
            OPEN_AT_1: f"{line}\nOpen Line.{name} 1",
            OPEN_AT_2: f"{line}\nOpen Line.{name} 2",
            DISABLED: f"{line} enabled=no",
        }[position[name]]

    return edit


def with_taps(tap_pu: float) -> Edit:
    """Write another tap of every transformer whose second winding has one."""
    return lambda line: _TAPS.sub(f"taps=[1 {tap_pu}]", line)


def with_steps(states: str) -> Edit:
    """Write other capacitor steps."""
    return lambda line: _STATES.sub(f"states=[{states}]", line)


def with_line(after: str, text: str) -> Edit:
    """Put a line after the one that begins so."""
    return lambda line: f"{line}\n{text}" if line.startswith(after) else line
