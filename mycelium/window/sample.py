"""One case seen under one policy, as workers hand it over: small, without anything that the network's features hold."""

from __future__ import annotations

from dataclasses import dataclass

from mycelium.window.targets import CaseTargets
from mycelium.window.temporal import Observed


@dataclass(frozen=True, slots=True)
class SampleId:
    """Which sample: enough to make it again.

    Attributes:
        network: Name of the network.
        seed, number: Its case.
        variant: Record variant.
        policy: Name of the sensor policy.
        draw: Which draw of noise and losses.
    """

    network: str
    seed: int = 0
    number: int = 0
    variant: int = 0
    policy: str = ""
    draw: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """What its grid features are filed under."""
        return self.network, self.variant


@dataclass(frozen=True, slots=True)
class Sample:
    """Inputs from readings, and targets where the truth is known.

    Attributes:
        id: Which sample.
        observed: Inputs.
        targets: Truth; None of real readings.
    """

    id: SampleId
    observed: Observed
    targets: CaseTargets | None
