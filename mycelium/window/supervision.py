"""Targets of a Window, as tensors: for losses and metrics only, never for a model."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mycelium.window.sample import SampleId
from mycelium.window.window import Movable


@dataclass(frozen=True)
class Targets(Movable):
    """Truth and which of it counts; rows are those of the Window made with it.

    Attributes:
        v_pu: Voltage magnitudes, per unit of the bus's base; 0 where not valid. [hour, bus, phase]
        angle_rad: Angles minus nominal angles, in [-pi, pi]; 0 where not valid. [hour, bus, phase]
        valid: Magnitudes that count: the phase exists and has a nominal angle. De-energised ones do. [bus, phase]
        live: Energised; angles count where ``angle_valid``, and metrics of live targets take these. [bus, phase]
        phase: Phase slot of customers in question, else -1. [consumer]
        phase_observed: Customers in question with at least one voltage reading: what the loss takes. [consumer]
        switch_open: Open switches. [line]
        is_switch: Lines with a target. [line]
        dead_switch: Both ends de-energised: left out of evaluation. [line]
        tie: Ties that a record variant added: scored separately. [line]
        fault_class: Place in ``targets.FAULT_CLASSES``. [network]
        location: Place of the faulted equipment among all candidates of the window (``Window.candidate_graph``), -1
            without a fault. [network]
        applicable: Whether there is any target for the tasks of ``schema.TASKS``. [network, task]
        samples: Which samples these are.
    """

    v_pu: Tensor
    angle_rad: Tensor
    valid: Tensor
    live: Tensor
    phase: Tensor
    phase_observed: Tensor
    switch_open: Tensor
    is_switch: Tensor
    dead_switch: Tensor
    tie: Tensor
    fault_class: Tensor
    location: Tensor
    applicable: Tensor
    samples: tuple[SampleId, ...]

    @property
    def angle_valid(self) -> Tensor:
        """Angles that count. [bus, phase]"""
        return self.valid & self.live

    @property
    def phase_eligible(self) -> Tensor:
        """Customers in question, observed or not. [consumer]"""
        return self.phase >= 0
