"""Sensor policies: how much is metered, where meters stand, and what their readings suffer. Data, not code.

The seven of the paper are in ``POLICIES``; docs/policies.md tells where one's own can be used.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, fields
from enum import StrEnum

from mycelium.schema import Quantity

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_. -]{0,99}")


def _check_number(what: str, value: object, highest: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= highest:
        limit = f"between 0 and {highest:g}" if highest <= 1.0 else "finite and not negative"
        raise ValueError(f"{what} is {value!r}; it must be a number, {limit}")


class Strategy(StrEnum):
    """Where sensors stand.

    UNIFORM draws within each pool at random. K_CENTER puts voltage and branch sensors as far from each other as they
    can be, counted in hops, and gives customer meters to whole areas of distribution transformers.
    """

    UNIFORM = "uniform"
    K_CENTER = "k_center"


@dataclass(frozen=True, slots=True)
class Noise:
    """Errors of readings and how often one is missing; every reading on its own.

    Attributes:
        voltage: Standard deviation of a voltage magnitude, relative to it.
        angle_deg: Of a voltage angle, added to it, degrees.
        power: Of an active or reactive power, relative to it.
        current: Of a current magnitude, relative to it.
        voltage_missing: Share of voltage magnitudes and angles that do not arrive.
        power_missing, current_missing: Likewise.
    """

    voltage: float = 0.0
    angle_deg: float = 0.0
    power: float = 0.0
    current: float = 0.0
    voltage_missing: float = 0.0
    power_missing: float = 0.0
    current_missing: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            highest = 1.0 if field.name.endswith("_missing") else sys.float_info.max
            _check_number(f"Noise.{field.name}", getattr(self, field.name), highest)

    def sigma(self, quantity: Quantity) -> float:
        """Standard deviation: relative, but of an angle in degrees. A tap is read exactly."""
        return {
            Quantity.VOLTAGE: self.voltage,
            Quantity.ANGLE: self.angle_deg,
            Quantity.CURRENT: self.current,
            Quantity.ACTIVE: self.power,
            Quantity.REACTIVE: self.power,
            Quantity.TAP: 0.0,
        }[quantity]

    def missing(self, quantity: Quantity) -> float:
        """Share of readings that do not arrive. A tap always does."""
        return {
            Quantity.VOLTAGE: self.voltage_missing,
            Quantity.ANGLE: self.voltage_missing,
            Quantity.CURRENT: self.current_missing,
            Quantity.ACTIVE: self.power_missing,
            Quantity.REACTIVE: self.power_missing,
            Quantity.TAP: 0.0,
        }[quantity]


@dataclass(frozen=True, slots=True)
class Policy:
    """One way of seeing a network.

    Source buses and feeder heads are seen under every policy, and so is the position of every regulated tap.

    Attributes:
        name: Placements and draws depend on it, and it names files: letters, digits, '_', '-', '.' and blanks.
        bus_share: Share of plain buses with a voltage sensor.
        dt_share: Share of distribution transformers' secondary buses with a meter of voltage, current and power.
        branch_share: Share of lines and other transformers with a flow sensor.
        customer_share: Share of customers with a smart meter: voltage and active power.
        reactive_share: Share of these that also report reactive power.
        strategy: Where sensors stand.
        noise: What their readings suffer.
    """

    name: str
    bus_share: float
    dt_share: float
    branch_share: float
    customer_share: float
    reactive_share: float
    strategy: Strategy = Strategy.UNIFORM
    noise: Noise = Noise()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ValueError(
                f"a Policy's name has letters, digits, '_', '-', '.' and blanks, 100 at most; not {self.name!r}"
            )
        for field in fields(self):
            if field.name.endswith("_share"):
                _check_number(f"Policy '{self.name}': {field.name}", getattr(self, field.name), 1.0)
        if self.strategy not in list(Strategy):
            raise ValueError(f"Policy '{self.name}': strategy is {self.strategy!r}; expected one of {[*Strategy]}")
        object.__setattr__(self, "strategy", Strategy(self.strategy))  # a text will do
        if not isinstance(self.noise, Noise):
            raise ValueError(f"Policy '{self.name}': noise is {self.noise!r}; expected a Noise")


# What utilities have today, as the paper states it: buses, DT meters, branches, customers.
_TIERS = {"sparse": (0.01, 0.60, 0.005, 0.10), "medium": (0.05, 0.90, 0.02, 0.30), "dense": (0.15, 1.00, 0.05, 0.70)}
_REACTIVE_SHARE = 0.20

NOISE = Noise(
    voltage=0.002, angle_deg=0.02, power=0.02, current=0.01,
    voltage_missing=0.01, power_missing=0.05, current_missing=0.05,
)  # fmt: skip

POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy("clean", 1.0, 1.0, 1.0, 1.0, 1.0),
        *(
            Policy(f"{prefix}_{tier}", *shares, _REACTIVE_SHARE, strategy, NOISE)
            for prefix, strategy in (
                ("noisy_missing", Strategy.UNIFORM),
                ("observability_ami", Strategy.K_CENTER),
            )
            for tier, shares in _TIERS.items()
        ),
    )
}
