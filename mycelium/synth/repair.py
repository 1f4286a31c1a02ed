"""The repair schedules: which repair is tried when, how often, and the record of what was done.

Snapshot repairs aim beyond the acceptance limits, so that the day, which is not known to them, finds some room. After
every edit the operating points are solved again: what helps one can harm another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mycelium.synth import repair_actions as act
from mycelium.synth.design import Element
from mycelium.synth.diagnosis import HIGH_PU, LOW_PU, Diagnosis
from mycelium.synth.equipment import regulator_before
from mycelium.synth.model import Model
from mycelium.synth.repair_actions import Options

# Headroom that snapshot repairs seek beyond the limits.
SNAPSHOT_LOW_PU, SNAPSHOT_HIGH_PU, SNAPSHOT_LOADING = LOW_PU + 0.008, HIGH_PU - 0.006, 0.95
# Daily repairs aim a hair inside the limits: another engine rounds otherwise.
DAY_LOW_PU, DAY_HIGH_PU = LOW_PU + 0.0005, HIGH_PU - 0.0005
REBALANCE_ROUNDS, TAP_ROUNDS, EQUIPMENT_ROUNDS = 1, 3, 2
REINFORCE_ROUNDS, UPGRADE_ROUNDS = 4, 2
HIGH_ROUNDS, OVERLOAD_ROUNDS = 5, 3
DAY_LOW_ROUNDS, DAY_HIGH_ROUNDS = 2, 8
_NOTICEABLE_PU = 1e-4
_NAMED = 20  # elements named in the record of a repair; the others are counted

Action = Callable[[], list[Element]]


@dataclass
class Repairs:
    """Repairs of one model.

    Attributes:
        history: One record per repair, in order.
        found: The last diagnosis.
        with_day: Whether it has the day as well.
    """

    model: Model
    options: Options
    thermal: bool
    history: list[dict[str, Any]] = field(default_factory=list)
    found: Diagnosis = field(init=False)
    with_day: bool = False
    _refused: set[str] = field(default_factory=set)
    _high_rounds: int = 0

    def __post_init__(self) -> None:
        self.solve()

    def solve(self) -> None:
        self.found = Diagnosis.of(self.model, self.with_day)

    # ---- snapshots -------------------------------------------------------------------------------------------------

    def snapshots(self) -> None:
        """The snapshot schedule: low voltage pass by pass, then high voltage, then overload, then what that brought."""
        self._low()
        self._high()
        if self.thermal:
            self._overload()
        self._high()

    def _low(self) -> None:
        limit, high = SNAPSHOT_LOW_PU, SNAPSHOT_HIGH_PU
        design = self.model.design
        passes: Sequence[tuple[str, int, Action]] = (
            ("rebalance customers", REBALANCE_ROUNDS, lambda: act.rebalance_customers(design, self._low_buses(limit))),
            ("rebalance transformers", REBALANCE_ROUNDS, lambda: act.rebalance_units(design, self._low_buses(limit))),
            ("tap up", TAP_ROUNDS, lambda: act.tap_up(design, self.found, self._low_buses(limit), high)),
            ("add capacitor", EQUIPMENT_ROUNDS, lambda: act.add_capacitor(design, self.found, self.options, high)),
            ("add regulator", EQUIPMENT_ROUNDS, lambda: self._new_regulator(limit)),
            ("reinforce", REINFORCE_ROUNDS, lambda: self._reinforced(limit)),
            ("larger transformer", UPGRADE_ROUNDS, lambda: self._larger(limit)),
            ("tap up", 1, lambda: act.tap_up(design, self.found, self._low_buses(limit), high)),
        )
        for operation, rounds, action in passes:
            for number in range(1, rounds + 1):
                if not self.found.converged or not self._low_buses(limit):
                    break
                if not self._apply("low snapshot voltage", operation, number, action()):
                    break

    def _high(self) -> None:
        """Up to five rounds in all; each does the first thing that is left to do."""
        while self.found.converged and self._high_rounds < HIGH_ROUNDS and self._high_buses(SNAPSHOT_HIGH_PU):
            self._high_rounds += 1
            operation, edits = self._first(self._against_high(SNAPSHOT_LOW_PU, SNAPSHOT_HIGH_PU, reinforce=True))
            if not self._apply("high snapshot voltage", operation, self._high_rounds, edits):
                break

    def _overload(self) -> None:
        for number in range(1, OVERLOAD_ROUNDS + 1):
            if not self.found.converged or self.found.worst_loading <= SNAPSHOT_LOADING:
                break
            edits = act.relieve(self.model.design, self.found, SNAPSHOT_LOADING, self.options.stock)
            self._apply("snapshot overload", "relieve", number, edits)

    # ---- day -------------------------------------------------------------------------------------------------------

    def day(self) -> None:
        """The daily schedule. From here on the day is solved with the snapshots."""
        self.with_day = True
        self.solve()
        design = self.model.design
        for number in range(1, DAY_LOW_ROUNDS + 1):
            low = self._low_buses(DAY_LOW_PU)
            if not self.found.converged or not low:
                break
            taps = ("tap up", lambda low=low: act.tap_up(design, self.found, low, DAY_HIGH_PU))
            lines = ("reinforce", lambda: self._reinforced(DAY_LOW_PU))
            operation, edits = self._first((taps, lines))
            if not self._apply("low voltage in the day", operation, number, edits):
                break
        for number in range(1, DAY_HIGH_ROUNDS + 1):
            if not self.found.converged or not self._high_buses(DAY_HIGH_PU):
                break
            operation, edits = self._first(self._against_high(DAY_LOW_PU, DAY_HIGH_PU, reinforce=False))
            if not self._apply("high voltage in the day", operation, number, edits):
                break

    # ---- parts -----------------------------------------------------------------------------------------------------

    def _against_high(self, low_pu: float, high_pu: float, reinforce: bool) -> Sequence[tuple[str, Action]]:
        design, high = self.model.design, self._high_buses(high_pu)
        fourth: tuple[str, Action] = (
            ("reinforce", lambda: act.reinforce(design, self.found, high, rising=True))
            if reinforce and not self._done("high snapshot voltage", "reinforce")
            else ("rebalance customers", lambda: [] if reinforce else act.rebalance_customers(design, high))
        )
        return (
            ("volt-var control", lambda: act.volt_var(design, high)),
            ("tap down", lambda: act.tap_down(design, self.found, high, low_pu)),
            fourth,
            ("curtail", lambda: act.curtail(design, high) if self._curtailing_helps() else []),
        )

    def _curtailing_helps(self) -> bool:
        """Not if the last time it did not: the voltage is high without sun."""
        last = next((record for record in reversed(self.history) if record["operation"] == "curtail"), None)
        if last is None or not last["after"]["converged"] or last["stage"] != ("day" if self.with_day else "snapshot"):
            return True
        return bool(last["after"]["highest_pu"] < last["before"]["highest_pu"] - _NOTICEABLE_PU)

    def _done(self, trigger: str, operation: str) -> bool:
        return any(record["trigger"] == trigger and record["operation"] == operation for record in self.history)

    def _first(self, actions: Sequence[tuple[str, Action]]) -> tuple[str, list[Element]]:
        """The first of these that has something to do."""
        for operation, action in actions:
            edits = action() if operation not in self._refused else []
            if edits:
                return operation, edits
        return "nothing", []

    def _reinforced(self, limit_pu: float) -> list[Element]:
        return act.reinforce(self.model.design, self.found, self._low_buses(limit_pu), rising=False)

    def _larger(self, limit_pu: float) -> list[Element]:
        return act.larger_units(self.model.design, self.found, self._low_buses(limit_pu), self.options.stock)

    def _new_regulator(self, limit_pu: float) -> list[Element]:
        """A regulator, and the line whose upper end moves behind it."""
        if self.options.regulator is None:
            return []
        place = act.regulator_place(self.model.design, self.found, self._low_buses(limit_pu))
        if place is None:
            return []
        design = self.model.design
        bus, bank, line = regulator_before(design, design.lines[place], self.options.regulator)
        design.buses[bus.name] = bus
        return [bank, line]

    def _low_buses(self, limit_pu: float) -> Sequence[str]:
        return act.low_buses(self.found, limit_pu)

    def _high_buses(self, limit_pu: float) -> Sequence[str]:
        return act.high_buses(self.found, limit_pu)

    def _apply(self, trigger: str, operation: str, number: int, edits: list[Element]) -> bool:
        """Edit, solve again and write down; whether anything was done."""
        if not edits or operation in self._refused:
            return False
        before, found = self.found.summary(), self.found
        old = [self.model.design.find(element) for element in edits]
        self.model.edit(edits)
        self.solve()
        after, undone = self.found.summary(), False
        if found.converged and not self.found.converged and None not in old:
            # The engine finds no solution with it, an inverter control that swings for example: leave it be.
            self.model.edit([element for element in old if element is not None])
            self.found, undone = found, True
            self._refused.add(operation)
        names = [element.name for element in edits]
        self.history.append(
            {
                "stage": "day" if self.with_day else "snapshot",
                "trigger": trigger,
                "operation": operation,
                "round": number,
                "elements": names[:_NAMED],
                "count": len(names),
                "before": before,
                "after": after,
                "undone": undone,
            }
        )
        return True
