"""What the model answers of a Window: the four questions, as tensors, in the order of the window's rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from torch import Tensor

from mycelium.window.window import Movable, Window


@dataclass(frozen=True)
class Estimates(Movable):
    """Answers of one call, in float32.

    NaN is where nothing was asked: everything of a task that the model has no readout for (``MyceliumConfig.tasks``),
    switch states of lines that cannot be operated, and in absolute answers phases that do not exist.

    Attributes:
        v_pu: Voltage magnitudes, per unit of the bus's base. [hour, bus, phase]
        angle_rad: Of a window: angles minus nominal angles (``Window.nominal_rad``), in [-pi, pi], as
            ``Targets.angle_rad``. Of ``Mycelium.estimate``: the angles themselves (``absolute``). [hour, bus, phase]
        phase: Logits of phases A, B, C. [consumer, phase]
        switch: Logit of open. [line]
        fault: Logits of ``targets.FAULT_CLASSES``. [network, class]
        location: Score of every candidate, to be compared within a network (``Window.candidate_graph``). [candidate]
    """

    v_pu: Tensor
    angle_rad: Tensor
    phase: Tensor
    switch: Tensor
    fault: Tensor
    location: Tensor

    def absolute(self, window: Window) -> Estimates:
        """The same with nominal angles added, and no voltage where a bus has no such phase.

        A bus whose phase is in question keeps all three candidates. A phase without a nominal angle has no voltage
        either: it is never a target.

        Args:
            window: What these answer.
        """
        there = window.nominal_valid
        return replace(
            self,
            v_pu=self.v_pu.where(there, math.nan),
            angle_rad=wrap(self.angle_rad + window.nominal_rad).where(there, math.nan),
        )


def wrap(angle_rad: Tensor) -> Tensor:
    """The angle in [-pi, pi) that equals it up to whole turns."""
    return (angle_rad + math.pi).remainder(2.0 * math.pi) - math.pi
