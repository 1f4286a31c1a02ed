"""What the model answers of a Window: the four questions, as tensors, in the order of the window's rows."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mycelium.window.window import Movable


@dataclass(frozen=True)
class Estimates(Movable):
    """Answers of one call, in float32.

    NaN is where nothing was asked: everything of a task that the model has no readout for (``MyceliumConfig.tasks``),
    and switch states of lines that cannot be operated.

    Attributes:
        v_pu: Voltage magnitudes, per unit of the bus's base. [hour, bus, phase]
        angle_rad: Angles minus nominal angles (``Window.nominal_rad``), in [-pi, pi], as ``Targets.angle_rad``.
            [hour, bus, phase]
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
