"""One feeder from one seed: sample, build, repair, judge (Algorithm 1 of the paper)."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mycelium.synth.accept import Verdict, accept
from mycelium.synth.design import InverterMode
from mycelium.synth.model import Model, Solver, State
from mycelium.synth.parameters import Parameters
from mycelium.synth.propose import Proposal, Workshop, propose
from mycelium.synth.repair import Repairs
from mycelium.synth.territory import NoTerritory


@dataclass(frozen=True)
class Outcome:
    """The final operating points, solved from what is written.

    Attributes:
        a, b: The snapshots.
        day: The hours, fewer than 24 if one did not converge.
        node_bus: Bus of every node. [node]
        branch_is_line: Which branches are lines and switches, the others are transformers. [branch]
    """

    a: State
    b: State
    day: tuple[State, ...]
    node_bus: tuple[str, ...]
    branch_is_line: np.typing.NDArray[np.bool_]


@dataclass
class Attempt:
    """What became of a seed; as far as it got.

    Attributes:
        verdict: Accepted, or why not.
        repairs: A record for each, in order.
        seconds: Time that stages took; no part of what is written.
    """

    number: int
    parameters: Parameters | None = None
    proposal: Proposal | None = None
    outcome: Outcome | None = None
    repairs: list[dict[str, Any]] = field(default_factory=list)
    verdict: Verdict = field(default_factory=lambda: Verdict(("nothing was tried",)))
    seconds: dict[str, float] = field(default_factory=dict)


class FeederMaker:
    """Makes numbered feeders, one after the other, in one engine.

    Attributes:
        attempt: The one under way; what an exception leaves behind is in it.
    """

    def __init__(self, workshop: Workshop) -> None:
        self._shop = workshop
        self._solver = Solver()
        self.attempt = Attempt(-1)

    def make(self, number: int) -> Attempt:
        """One feeder."""
        attempt = self.attempt = Attempt(number)
        clock = _Clock(attempt.seconds)
        parameters = attempt.parameters = self._shop.parameters(number)
        try:
            proposal = attempt.proposal = propose(self._shop, number, parameters)
        except NoTerritory as error:
            attempt.verdict = Verdict((f"no territory: {error}",))
            return attempt
        clock("propose")
        model = Model(self._solver, proposal.design, proposal.inputs)
        repairs = Repairs(model, proposal.options, parameters.thermal, attempt.repairs)
        repairs.snapshots()
        clock("snapshots")
        repairs.day()
        clock("day")
        outcome = attempt.outcome = self._judge(proposal)
        attempt.verdict = accept(outcome.a, outcome.b, outcome.day, outcome.branch_is_line, parameters.thermal)
        clock("judge")
        return attempt

    def _judge(self, proposal: Proposal) -> Outcome:
        """The last word is on what is written: the same text, compiled anew.

        Inverter controls remember what was solved before, and nothing resets them: with them it is compiled for each
        of the three kinds of operating points, as somebody would who reads the files.
        """
        remembers = any(pv.mode is InverterMode.VOLT_VAR for pv in proposal.design.pvs.values())
        model = Model(self._solver, proposal.design, proposal.inputs)
        a = model.snapshot_a()
        model = Model(self._solver, proposal.design, proposal.inputs) if remembers else model
        b = model.snapshot_b()
        model = Model(self._solver, proposal.design, proposal.inputs) if remembers else model
        day = model.day()
        return Outcome(a, b, tuple(day), tuple(model.node_bus), model.branch_is_line)


class _Clock:
    """Seconds since the last call, by stage."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds, self._last = seconds, time.monotonic()

    def __call__(self, stage: str) -> None:
        now = time.monotonic()
        self._seconds[stage] = now - self._last
        self._last = now
