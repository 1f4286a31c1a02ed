"""Groups and intervals: sums pool, macro averages networks, intervals resample electrical cases."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from mycelium.evaluate.metrics import METRICS, computed
from mycelium.evaluate.scores import ALL, MACRO, POOLED, Scores
from mycelium.window.sample import SampleId

Floats = npt.NDArray[np.float64]


def scores(right: dict[str, list[int]], of: int = 10, policies: int = 1) -> Scores:
    """Customers right out of ``of``, case by case, by network; the same under every policy."""
    samples = [
        SampleId(network, 0, case, 0, f"policy{policy}")
        for network, cases in right.items()
        for case in range(len(cases))
        for policy in range(policies)
    ]
    hits = [cases[k] for cases in right.values() for k in range(len(cases)) for _ in range(policies)]
    number = np.full(len(hits), float(of))
    others = {"phase_all_right": number, "phase_all_n": number, "phase_nll": number}
    bins = {f"phase_bin_{name}": np.ones((len(hits), 10)) for name in ("n", "confidence", "right")}
    return Scores.of(samples, {"phase_right": np.array(hits, float), "phase_n": number.copy(), **others, **bins})


def row(table: object, network: str, policy: str = ALL, metric: str = "phase") -> dict[str, float]:
    found = table[(table["network"] == network) & (table["policy"] == policy) & (table["metric"] == metric)]  # type: ignore[index]
    assert len(found) == 1
    return dict(found.iloc[0])


def test_pooled_adds_up_and_macro_averages_networks() -> None:
    made = scores({"a": [10, 10, 10], "b": [0]})
    table = made.table(50)
    assert row(table, POOLED)["value"] == pytest.approx(30 / 40)
    assert row(table, MACRO)["value"] == pytest.approx(0.5)
    assert row(table, "a")["value"] == 1.0 and row(table, "b")["value"] == 0.0
    assert row(table, POOLED)["count"] == 40 and row(table, MACRO)["networks"] == 2


def test_networks_without_targets_are_left_out_of_macro() -> None:
    made = scores({"a": [5, 7], "b": [0, 0]})
    made.sums["phase_n"][2:] = 0.0
    macro = row(made.table(50), MACRO)
    assert macro["value"] == pytest.approx(0.6) and macro["networks"] == 1
    assert np.isnan(row(made.table(50), "b")["value"])


def test_no_chance_no_interval_and_chance_an_interval_of_the_right_width() -> None:
    same = row(scores({"a": [4] * 30}).table(200), POOLED)
    assert same["low"] == same["high"] == pytest.approx(0.4)
    rng = np.random.default_rng(0)
    cases = (10 * (rng.random(400) < 0.3)).astype(int).tolist()  # all customers of a case right, or none
    found = row(scores({"a": cases}).table(2000), POOLED)
    p = found["value"]
    expected = 1.96 * np.sqrt(p * (1 - p) / 400)
    assert found["high"] - p == pytest.approx(expected, rel=0.15)
    assert p - found["low"] == pytest.approx(expected, rel=0.15)


def test_policies_of_one_case_are_no_new_cases() -> None:
    """Seeing each case under seven policies must not narrow the interval."""
    rng = np.random.default_rng(1)
    cases = rng.integers(0, 11, 50).tolist()
    once, seven = (row(scores({"a": cases}, policies=n).table(500), POOLED) for n in (1, 7))
    assert seven["value"] == pytest.approx(once["value"])
    assert (seven["low"], seven["high"]) == pytest.approx((once["low"], once["high"]))


def test_networks_keep_their_number_of_cases() -> None:
    """Networks that differ give no interval by themselves, if their cases do not."""
    found = row(scores({"a": [10] * 5, "b": [0] * 20}).table(200), POOLED)
    assert found["low"] == found["high"] == pytest.approx(0.2)


def test_metrics_by_hand() -> None:
    def f(**sums: float | list[float]) -> dict[str, Floats]:
        return computed({name: np.asarray(value, dtype=float) for name, value in sums.items()}, resampled=True)

    switch = {"switch_n": 10.0, "switch_nll": 5.0, "tie_tp": 0.0, "tie_fp": 0.0, "tie_fn": 0.0, "tie_n": 0.0}
    bins = {
        "switch_bin_n": [4.0, 6.0],
        "switch_bin_confidence": [2.4, 5.4],
        "switch_bin_right": [2.0, 6.0],
    }
    found = f(switch_tp=3, switch_fp=1, switch_fn=2, **switch, **bins)
    assert found["switch_precision"] == pytest.approx(0.75) and found["switch_recall"] == pytest.approx(0.6)
    assert found["switch_f1"] == pytest.approx(2 * 0.75 * 0.6 / 1.35)
    assert found["switch_nll"] == pytest.approx(0.5)
    assert found["switch_ece"] == pytest.approx((0.4 + 0.6) / 10)
    assert np.isnan(found["tie_f1"]), "no tie, no number"
    silent = f(switch_tp=0, switch_fp=0, switch_fn=2, **switch, **bins)
    assert silent["switch_f1"] == 0.0 and silent["switch_recall"] == 0.0
    assert np.isnan(silent["switch_precision"]), "nothing was called open"


def test_every_metric_says_what_it_is() -> None:
    assert all(metric.says and metric.count for metric in METRICS.values())
    assert len({metric.says for metric in METRICS.values()}) == len(METRICS)
