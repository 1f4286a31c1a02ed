"""Labels of a case: what is drawn, and so has the same bits on any machine; and a digest that says so."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from mycelium.schema import HIDDEN, HIDDEN_MARK, FaultPlace, FaultType
from mycelium.simulate.cases import Case
from mycelium.simulate.day import Day
from mycelium.simulate.fault import Fault

Record = dict[str, Any]


def case_labels(case: Case) -> str:
    """sha256 of the labels of a drawn case."""
    configuration = case.configuration
    identity = (case.network, case.seed, case.number, case.variant, case.profile.day_of_year)
    return _digest(identity, case.fault, configuration.switch_open, configuration.group_phase, case.energised)


def day_labels(day: Day) -> str:
    """sha256 of the labels of a solved day: that of its case."""
    identity = (day.network, day.seed, day.number, day.variant, day.day_of_year)
    return _digest(identity, day.fault, day.switch_open, day.group_phase, day.energised)


def _digest(identity: tuple[object, ...], fault: Fault | None, *arrays: npt.NDArray[Any]) -> str:
    digest = hashlib.sha256(repr((identity, fault_record(fault))).encode())
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def split_digest(cases: Iterable[tuple[str, int, str | None]]) -> str:
    """sha256 of the labels of many cases, in order of network and number.

    Args:
        cases: Network, number and digest of each; None for a case that was never drawn.
    """
    lines = [f"{network} {number} {labels}\n" for network, number, labels in sorted(cases, key=lambda case: case[:2])]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def fault_record(fault: Fault | None) -> Record:
    """A fault as columns of a table."""
    if fault is None:
        return {}
    return {
        "fault_type": fault.type.value,
        "fault_place": fault.place.value,
        "fault_element": fault.element,
        "fault_terminal": fault.terminal,
        "fault_x": fault.x,
        "fault_conductors": ".".join(HIDDEN_MARK if c == HIDDEN else str(c) for c in fault.conductors),
        "fault_resistance_ohm": fault.resistance_ohm,
    }


def fault_of(record: Record) -> Fault | None:
    """The fault of such columns."""
    kind = record.get("fault_type")
    if not isinstance(kind, str):  # a missing text is None or NaN, depending on the table
        return None
    return Fault(
        type=FaultType(kind),
        place=FaultPlace(record["fault_place"]),
        element=int(record["fault_element"]),
        terminal=int(record["fault_terminal"]),
        x=float(record["fault_x"]),
        conductors=tuple(HIDDEN if c == HIDDEN_MARK else int(c) for c in record["fault_conductors"].split(".")),
        resistance_ohm=float(record["fault_resistance_ohm"]),
    )
