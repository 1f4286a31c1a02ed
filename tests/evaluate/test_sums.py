"""Sums of every sample against cases computed by hand: the truth, errors put in on purpose, and nothing to score."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from mycelium.evaluate.metrics import METRICS, PAPER, computed
from mycelium.evaluate.places import bus_steps, zones
from mycelium.evaluate.sums import LEAST_PU, Sums, sums_of
from mycelium.window.columns import Relation, Store
from mycelium.window.window import Window
from tests.train.windows import CASES, SOUND, both, random_estimates, true_estimates


def values(sums: Sums) -> dict[str, float]:
    return {name: float(value) for name, value in computed({k: v.numpy().sum(axis=0) for k, v in sums.items()}).items()}


def test_the_truth_is_right_everywhere() -> None:
    window, targets = both()
    found = values(sums_of(true_estimates(targets, window), targets, window))
    for name in PAPER:
        expected = 0.0 if METRICS[name].lower_is_better else 1.0
        assert found[name] == pytest.approx(expected, abs=1e-9), name
    for name in ("phase_ece", "switch_ece", "fault_ece", "location_nll", "searched"):
        assert found[name] == pytest.approx(0.0, abs=1e-6), name
    assert found["mrr"] == 1.0


def test_errors_of_the_state_are_what_was_put_in() -> None:
    window, targets = both()
    truth = true_estimates(targets, window)
    shifted = replace(truth, v_pu=truth.v_pu + 0.01, angle_rad=truth.angle_rad - torch.deg2rad(torch.tensor(2.5)))
    found = values(sums_of(shifted, targets, window))
    assert found["v_pu"] == pytest.approx(0.01, rel=1e-4)
    assert found["angle_deg"] == pytest.approx(2.5, rel=1e-4)
    assert found["live_v_pu"] == pytest.approx(0.01, rel=1e-4) and found["dead_v_pu"] == pytest.approx(0.01, rel=1e-4)
    volts, shares, live_shares = [], [], []
    for bus, phase in targets.valid.nonzero().tolist():
        for hour in range(24):
            volts.append(0.01 * float(window.base_v[bus]))
            true = float(targets.v_pu[hour, bus, phase])
            if true >= LEAST_PU:
                shares.append(1.0 / true)
                if targets.live[bus, phase]:
                    live_shares.append(1.0 / true)
    assert found["v_volt"] == pytest.approx(np.mean(volts), rel=1e-4)
    assert found["mape_pct"] == pytest.approx(np.mean(shares), rel=1e-3)
    assert found["live_mape_pct"] == pytest.approx(np.mean(live_shares), rel=1e-3)
    assert found["median_ape_pct"] == pytest.approx(np.median(shares), rel=0.04)
    assert found["p90_ape_pct"] == pytest.approx(np.quantile(shares, 0.9), rel=0.04)
    low, medium = found["low_v_volt"], found["medium_v_volt"]
    assert low < 0.01 * 1000 / 3**0.5 <= medium


def test_phases_all_one_too_far_are_all_wrong() -> None:
    window, targets = both()
    wrong = replace(true_estimates(targets, window), phase=true_estimates(targets, window).phase.roll(1, dims=1))
    sums = sums_of(wrong, targets, window)
    found = values(sums)
    assert found["phase"] == 0.0 and found["phase_all"] == 0.0
    assert found["phase_ece"] == pytest.approx(1.0, abs=1e-6), "sure and wrong"
    assert float(sums["phase_n"].sum()) == int(targets.phase_observed.sum())
    assert float(sums["phase_all_n"].sum()) == int(targets.phase_eligible.sum()) > int(targets.phase_observed.sum())


def test_switches_count_open_as_positive_and_leave_out_dead_ones() -> None:
    window, targets = both()
    rows = targets.is_switch.nonzero().ravel()
    opened, dead, tie = (torch.zeros_like(targets.is_switch) for _ in range(3))
    opened[rows[:3]] = True
    dead[rows[3]], tie[rows[4]] = True, True
    targets = replace(targets, switch_open=opened, dead_switch=dead, tie=tie)
    said = torch.full((len(opened),), -1.0)
    said[rows[[0, 1, 3, 4, 5]]] = 1e-6  # two right, one dead, one tie, one false alarm; rows[2] is missed
    said[rows[6]] = 0.0  # a logit of zero does not say open
    sums = sums_of(replace(random_estimates(window), switch=said), targets, window)
    counts = {name: float(sums[name].sum()) for name in ("switch_tp", "switch_fp", "switch_fn", "tie_fp", "tie_n")}
    assert counts == {"switch_tp": 2, "switch_fp": 1, "switch_fn": 1, "tie_fp": 1, "tie_n": 1}
    assert float(sums["switch_n"].sum()) == len(rows) - 2
    found = values(sums)
    assert found["switch_precision"] == pytest.approx(2 / 3) and found["switch_recall"] == pytest.approx(2 / 3)
    assert found["switch_f1"] == pytest.approx(2 / 3)


def test_fault_classes() -> None:
    window, targets = both()
    targets = replace(targets, fault_class=torch.tensor([0, 0, 4, 5, 1]), location=torch.tensor([-1, -1, 0, 1, 2]))
    logits = torch.full((5, 6), -5.0)
    # right; false alarm of LG; LLL called LLLG; LLLG called normal, LG next; LG right
    for row, (best, second) in enumerate([(0, 1), (1, 0), (5, 4), (0, 1), (1, 0)]):
        logits[row, best], logits[row, second] = 5.0, 4.0
    sums = sums_of(replace(random_estimates(window), fault=logits), targets, window)
    found = values(sums)
    assert found["detection_f1"] == pytest.approx(2 * 2 / (2 * 2 + 1 + 1))
    assert found["class5"] == pytest.approx(1 / 3) and found["class4"] == pytest.approx(2 / 3)
    assert found["class6"] == pytest.approx(2 / 5)
    confusion = sums["confusion"].sum(dim=0).view(6, 6)
    assert confusion.nonzero().tolist() == [[0, 0], [0, 1], [1, 1], [4, 5], [5, 0]]


def test_without_faults_switches_or_customers_there_is_no_number() -> None:
    window, targets = both(SOUND)
    blank = replace(
        targets, valid=torch.zeros_like(targets.valid), is_switch=torch.zeros_like(targets.is_switch),
        phase_observed=torch.zeros_like(targets.phase_observed), phase=torch.full_like(targets.phase, -1),
        fault_class=torch.zeros_like(targets.fault_class), location=torch.full_like(targets.location, -1),
    )  # fmt: skip
    sure = replace(true_estimates(blank, window))
    found = values(sums_of(sure, blank, window))
    there = {name for name, value in found.items() if np.isfinite(value)}
    assert there == {"class6", "fault_nll", "fault_ece"}, "what needs no fault, switch, customer or bus"


def test_a_model_of_one_task_is_scored_on_it_alone() -> None:
    window, targets = both()
    sums = sums_of(random_estimates(window), targets, window, ("switch",))
    assert set(computed({k: v.numpy().sum(axis=0) for k, v in sums.items()})) == {
        "switch_precision", "switch_recall", "switch_f1", "tie_f1", "switch_nll", "switch_ece",
    }  # fmt: skip


def test_places_by_probability() -> None:
    """Sizes of sets that hold 90 %, and what the metric of zones gives to chance: two samples by hand."""
    window, targets = both(CASES[0], CASES[2])
    graph = window.candidate_graph
    first, second = ((graph == k).nonzero().ravel() for k in (0, 1))
    score = torch.full((len(graph),), -50.0)
    score[first[[3, 1, 7]]] = torch.tensor([0.6, 0.3, 0.1]).log()  # exactly 90 % with the second
    score[second] = 0.0  # all alike
    targets = replace(targets, location=torch.stack([first[7], second[-1]]))
    sums = sums_of(replace(random_estimates(window), location=score), targets, window, ("fault",))
    assert sums["cover_size"].tolist() == [2, np.ceil(0.9 * len(second))]
    assert sums["cover_right"].tolist() == [0, 0]
    assert sums["reciprocal_rank"].tolist() == pytest.approx([1 / 3, 1.0]) and sums["searched"].tolist() == [2, 0]
    right = replace(targets, location=torch.stack([first[1], second[0]]))
    found = values(sums_of(replace(random_estimates(window), location=score), right, window, ("fault",)))
    assert found["cover90"] == 1.0 and found["cover90_size"] == (2 + np.ceil(0.9 * len(second))) / 2
    zone = zones(window)
    alike = [
        float((zone[own] == zone[place]).double().mean()) for own, place in ((first, first[1]), (second, second[0]))
    ]
    assert found["zone_chance"] == pytest.approx(np.mean(alike))


def test_sums_of_a_union_are_those_of_its_samples() -> None:
    window, targets = both()
    sums = sums_of(true_estimates(targets, window), targets, window)
    for k, case in enumerate(CASES):
        w, t = both(case)
        for name, value in sums_of(true_estimates(t, w), t, w).items():
            torch.testing.assert_close(value[0], sums[name][k], rtol=1e-6, atol=1e-6, msg=f"{name} of {case}")


# ---- places: a feeder drawn by hand -------------------------------------------------------------------------------
#
#   bus 0 -line 0- bus 1 -transformer- bus 2 -line 1- bus 3 -line 2- bus 4 -line 3- bus 5


def line_feeder(reported: list[int], **others: int) -> Window:
    """Buses that report, and of other stores one thing that does: a line, customer (at bus 4), terminal (at bus 2)."""
    sizes = {Store.BUS: 6, Store.LINE: 4, Store.CONSUMER: 1, Store.TERMINAL: 2, Store.SUBSTATION: 1}
    seen = {store: torch.zeros((24, size, 3), dtype=torch.bool) for store, size in sizes.items()}
    seen[Store.BUS][-1, reported, 0] = True
    seen[Store.BUS][:-1] = True  # earlier hours say nothing of a fault
    for store, row in others.items():
        seen[Store(store)][-1, row, 2] = True
    edges = {
        Relation.SERVICE: torch.tensor([[0], [4]]),
        Relation.TERMINAL_BUS: torch.tensor([[0, 1], [1, 2]]),
        Relation.SOURCE: torch.tensor([[0], [0]]),
        Relation.LINE: torch.tensor([[0, 2, 3, 4], [1, 3, 4, 5]]),
        Relation.TRANSFORMER: torch.tensor([[1], [2]]),
        Relation.REACTOR: torch.zeros((2, 0), dtype=torch.long),
        Relation.OBJECT_EDGE: torch.tensor([[0], [0]]),
    }
    graph = {Store.BUS: 6, Store.LINE: 4, "transformer_object": 1}
    fake = SimpleNamespace(
        n_graphs=1,
        edges=edges,
        graph={name: torch.zeros(size, dtype=torch.long) for name, size in graph.items()},
        temporal={store: SimpleNamespace(seen=part) for store, part in seen.items()},
    )
    return cast(Window, cast(Any, fake))


BUS, LINE, TRANSFORMER = 0, 6, 10  # first candidate of each kind


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (BUS + 0, BUS + 0, 0),
        (BUS + 0, BUS + 1, 1),
        (BUS + 0, BUS + 3, 3),
        (BUS + 0, BUS + 4, 4),  # more than three
        (BUS + 1, LINE + 0, 0),  # its end
        (LINE + 0, TRANSFORMER, 0),  # they share bus 1
        (LINE + 0, LINE + 1, 1),
        (TRANSFORMER, BUS + 4, 2),
        (LINE + 0, LINE + 3, 3),
    ],
)
def test_steps_between_equipment(one: int, other: int, expected: int) -> None:
    window = line_feeder([])
    for start, end in ((one, other), (other, one)):
        assert int(bus_steps(window, torch.tensor([start]), torch.tensor([end]), 3)) == expected


def groups_of(window: Window) -> set[tuple[int, ...]]:
    zone = zones(window).tolist()
    return {tuple(k for k, number in enumerate(zone) if number == z) for z in zone}


@pytest.mark.parametrize(
    ("store", "row", "alone", "split"),
    [
        ("consumer", 0, BUS + 4, ((BUS + 5, LINE + 3), (BUS + 3, LINE + 2))),
        ("terminal", 1, BUS + 2, ((BUS + 1, LINE + 0, TRANSFORMER), (BUS + 3, BUS + 4, LINE + 1))),
        ("substation", 0, BUS + 0, ((BUS + 1, BUS + 2, LINE + 0),)),
    ],
)
def test_every_reading_of_the_last_hour_splits_zones(
    store: str, row: int, alone: int, split: tuple[tuple[int, ...], ...]
) -> None:
    """Customers' meters, meters of transformers and the feeder head, too."""
    found = groups_of(line_feeder([], **{store: row}))
    assert (alone,) in found
    of = {place: group for group in found for place in group}
    for members in split:
        assert len({of[place] for place in members}) == 1
    assert len({of[members[0]] for members in split}) == len(split)


def test_a_metered_line_is_cut_at_its_first_end() -> None:
    found = groups_of(line_feeder([], line=2))  # between buses 3 and 4
    assert found == {
        (BUS + 0, BUS + 1, BUS + 2, BUS + 3, LINE + 0, LINE + 1, TRANSFORMER),
        (BUS + 4, BUS + 5, LINE + 2, LINE + 3),
    }
    assert (LINE + 2,) in groups_of(line_feeder([4], line=2))


def test_zones_end_at_buses_that_report() -> None:
    assert groups_of(line_feeder([0, 3])) == {
        (BUS + 0,),
        (BUS + 1, BUS + 2, LINE + 0, LINE + 1, TRANSFORMER),
        (BUS + 3,),
        (BUS + 4, BUS + 5, LINE + 2, LINE + 3),
    }
    everything = zones(line_feeder([0, 1, 2, 3, 4, 5])).tolist()
    assert len(set(everything)) == len(everything)
    assert len(set(zones(line_feeder([])).tolist())) == 1
