"""The seven policies are the paper's, and a policy of one's own is data like them."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from mycelium.schema import Quantity
from mycelium.sense.policies import NOISE, POLICIES, Noise, Policy, Strategy

# The table of the appendix "Sensor Policies": bus voltage, DT meter, branch flow, customer P, of which Q; percent.
TABLE = {
    "sparse": (1.0, 60.0, 0.5, 10.0, 20.0),
    "medium": (5.0, 90.0, 2.0, 30.0, 20.0),
    "dense": (15.0, 100.0, 5.0, 70.0, 20.0),
}


def _percent(policy: Policy) -> tuple[float, ...]:
    shares = (
        policy.bus_share, policy.dt_share, policy.branch_share, policy.customer_share, policy.reactive_share
    )  # fmt: skip
    return tuple(100.0 * share for share in shares)


def test_there_are_seven_policies_under_their_own_names() -> None:
    tiers = [f"{kind}_{tier}" for kind in ("noisy_missing", "observability_ami") for tier in TABLE]
    assert list(POLICIES) == ["clean", *tiers]
    assert all(policy.name == name for name, policy in POLICIES.items())


@pytest.mark.parametrize("tier", TABLE)
def test_coverage_is_that_of_the_tier_under_both_strategies(tier: str) -> None:
    for kind, strategy in (("noisy_missing", Strategy.UNIFORM), ("observability_ami", Strategy.K_CENTER)):
        policy = POLICIES[f"{kind}_{tier}"]
        assert _percent(policy) == pytest.approx(TABLE[tier])
        assert policy.strategy is strategy and policy.noise == NOISE


def test_clean_sees_everything_and_nothing_is_wrong_or_lost() -> None:
    assert _percent(POLICIES["clean"]) == (100.0,) * 5
    assert all(POLICIES["clean"].noise.sigma(q) == POLICIES["clean"].noise.missing(q) == 0.0 for q in Quantity)


def test_noise_and_missingness_are_those_of_the_appendix() -> None:
    sigma = {quantity: NOISE.sigma(quantity) for quantity in Quantity}
    assert sigma == {
        Quantity.VOLTAGE: 0.002, Quantity.ANGLE: 0.02, Quantity.CURRENT: 0.01, Quantity.ACTIVE: 0.02,
        Quantity.REACTIVE: 0.02, Quantity.TAP: 0.0,
    }  # fmt: skip
    missing = {quantity: NOISE.missing(quantity) for quantity in Quantity}
    assert missing == {
        Quantity.VOLTAGE: 0.01, Quantity.ANGLE: 0.01, Quantity.CURRENT: 0.05, Quantity.ACTIVE: 0.05,
        Quantity.REACTIVE: 0.05, Quantity.TAP: 0.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"bus_share": 1.1}, "bus_share"),
        ({"customer_share": -0.1}, "customer_share"),
        ({"reactive_share": float("nan")}, "reactive_share"),
        ({"name": ""}, "name"),
    ],
)
def test_an_impossible_policy_is_refused_by_the_name_of_what_is_wrong(change: dict[str, object], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        replace(POLICIES["clean"], **change)


@pytest.mark.parametrize("change", [{"voltage": -0.1}, {"power_missing": 1.5}, {"current": float("inf")}])
def test_impossible_noise_is_refused_by_the_name_of_what_is_wrong(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        Noise(**change)


def test_a_policy_cannot_be_changed_in_place() -> None:
    with pytest.raises(FrozenInstanceError):
        POLICIES["clean"].bus_share = 0.5  # type: ignore[misc]
