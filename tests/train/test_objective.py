"""The objective is the appendix's, written out here once more as loops over windows and targets."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from mycelium.model.estimates import Estimates
from mycelium.schema import TASKS
from mycelium.train.objective import PARTS, Objective, by_task, wrap
from mycelium.window.supervision import Targets
from mycelium.window.window import Window
from tests.train.windows import CASES, SOUND, batch_of, both, random_estimates

FREQUENCY = (0.5, 0.05, 0.1, 0.15, 0.12, 0.08)
OBJECTIVE = Objective(FREQUENCY)


def total(
    objective: Objective, estimates: Estimates, targets: Targets, window: Window
) -> tuple[float, dict[str, float]]:
    coefficients = objective.coefficients(objective.counts(targets, window.graph))
    loss, parts = objective.loss(estimates, targets, window, coefficients)
    return float(loss), by_task(parts)


def rho(x: float) -> float:
    return 0.5 * x * x if abs(x) < 1.0 else abs(x) - 0.5


def log_softmax(values: list[float], place: int) -> float:
    high = max(values)
    return values[place] - high - math.log(sum(math.exp(value - high) for value in values))


def literal(e: Estimates, t: Targets, window: Window, objective: Objective) -> dict[str, float]:
    """The appendix, one target after the other."""
    means: dict[str, list[float]] = {"magnitude": [], "angle": [], "phase": [], "switch": []}
    log_class, weights, log_place = [], [], []
    for g in range(window.n_graphs):
        found: dict[str, list[float]] = {name: [] for name in means}
        for i in (window.graph["bus"] == g).nonzero().ravel().tolist():
            for p in range(3):
                for hour in range(24 if t.valid[i, p] else 0):
                    error = float(e.v_pu[hour, i, p] - t.v_pu[hour, i, p])
                    found["magnitude"].append(rho(objective.magnitude_scale * error))
                    if t.live[i, p]:
                        turn = float(e.angle_rad[hour, i, p] - t.angle_rad[hour, i, p])
                        turn = math.atan2(math.sin(turn), math.cos(turn))
                        found["angle"].append(rho(objective.angle_scale * turn))
        for c in (window.graph["consumer"] == g).nonzero().ravel().tolist():
            if t.phase_observed[c]:
                found["phase"].append(-log_softmax(e.phase[c].tolist(), int(t.phase[c])))
        for line in (window.graph["line"] == g).nonzero().ravel().tolist():
            if t.is_switch[line]:
                p = 1.0 / (1.0 + math.exp(-float(e.switch[line])))
                found["switch"].append(-math.log(p if t.switch_open[line] else 1.0 - p))
        for name, values in found.items():
            if values:
                means[name].append(sum(values) / len(values))
        label = int(t.fault_class[g])
        weights.append(1.0 / FREQUENCY[label])
        log_class.append(log_softmax(e.fault[g].tolist(), label))
        if t.location[g] >= 0:
            mine = (window.candidate_graph == g).nonzero().ravel().tolist()
            scores = [float(e.location[c]) for c in mine]
            log_place.append(log_softmax(scores, mine.index(int(t.location[g]))))
    average = {name: sum(values) / len(values) if values else 0.0 for name, values in means.items()}
    cls = -sum(w * value for w, value in zip(weights, log_class, strict=True)) / sum(weights)
    fault = 0.5 * (cls - sum(log_place) / len(log_place)) if log_place else cls
    state = 0.5 * (average["magnitude"] + average["angle"])
    return {"state": state, "phase": average["phase"], "switch": average["switch"], "fault": fault}


@pytest.mark.parametrize("cases", [CASES, CASES[:1], (SOUND,), CASES[3:]])
def test_loss_is_the_appendix_written_as_loops(cases: tuple[tuple[str, object, str], ...]) -> None:
    window, targets = both(*cases)
    estimates = random_estimates(window)
    expected = literal(estimates, targets, window, OBJECTIVE)
    loss, tasks = total(OBJECTIVE, estimates, targets, window)
    assert tasks == pytest.approx(expected, rel=2e-5)
    assert loss == pytest.approx(sum(expected.values()), rel=2e-5)


def test_cases_reach_every_branch() -> None:
    """Else the test above would say little."""
    window, targets = both()
    counts = OBJECTIVE.counts(targets, window.graph)
    assert (counts > 0).all()
    assert 0 < counts[PARTS.index("location")] < window.n_graphs
    assert 0 < counts[PARTS.index("phase")] < window.n_graphs
    assert not bool(targets.live[targets.valid].all()), "no window is partly dead"
    window, targets = both(SOUND)
    assert OBJECTIVE.counts(targets, window.graph)[PARTS.index("location")] == 0


def test_pieces_of_a_batch_add_up_to_the_batch() -> None:
    window, targets = both()
    estimates = random_estimates(window)
    whole, _ = total(OBJECTIVE, estimates, targets, window)
    pieces = [both(case) for case in CASES]
    counts = sum(OBJECTIVE.counts(t, w.graph) for w, t in pieces)
    torch.testing.assert_close(counts, OBJECTIVE.counts(targets, window.graph), rtol=1e-12, atol=0.0)
    coefficients = OBJECTIVE.coefficients(counts)
    added = 0.0
    n_bus, n_line = len(window.graph["bus"]), len(window.graph["line"])
    for g, (w, t) in enumerate(pieces):
        bus, consumer, line, own = (window.graph[k] == g for k in ("bus", "consumer", "line", "transformer_object"))
        location = estimates.location
        parts = (location[:n_bus][bus], location[n_bus : n_bus + n_line][line], location[n_bus + n_line :][own])
        part = Estimates(
            estimates.v_pu[:, bus], estimates.angle_rad[:, bus], estimates.phase[consumer], estimates.switch[line],
            estimates.fault[g : g + 1], torch.cat(parts),
        )  # fmt: skip
        added += float(OBJECTIVE.loss(part, t, w, coefficients)[0])
    assert added == pytest.approx(whole, rel=1e-5)


def test_what_is_not_supervised_does_not_reach_the_loss_or_its_gradient() -> None:
    window, targets = both()
    estimates = random_estimates(window)
    leaves = {name: value.clone().requires_grad_() for name, value in vars(estimates).items()}
    coefficients = OBJECTIVE.coefficients(OBJECTIVE.counts(targets, window.graph))
    OBJECTIVE.loss(Estimates(**leaves), targets, window, coefficients)[0].backward()
    supervised = {
        "v_pu": targets.valid.expand_as(estimates.v_pu),
        "angle_rad": targets.angle_valid.expand_as(estimates.v_pu),
        "phase": targets.phase_observed[:, None].expand_as(estimates.phase),
        "switch": targets.is_switch,
        "fault": torch.ones_like(estimates.fault, dtype=torch.bool),
        "location": (targets.location >= 0)[window.candidate_graph],
    }
    for name, mask in supervised.items():
        gradient = leaves[name].grad
        assert gradient is not None and torch.isfinite(gradient).all()
        assert torch.equal(gradient != 0, mask), name


@pytest.mark.parametrize("task", TASKS)
def test_one_task_alone_is_its_own_loss_whatever_the_others_say(task: str) -> None:
    window, targets = both()
    estimates = random_estimates(window)
    _, expected = total(OBJECTIVE, estimates, targets, window)
    answers = {
        "state": ("v_pu", "angle_rad"),
        "phase": ("phase",),
        "switch": ("switch",),
        "fault": ("fault", "location"),
    }
    nan = {
        name: torch.full_like(getattr(estimates, name), torch.nan)
        for other, names in answers.items()
        if other != task
        for name in names
    }
    loss, tasks = total(replace(OBJECTIVE, tasks=(task,)), replace(estimates, **nan), targets, window)
    assert loss == pytest.approx(expected[task], rel=1e-6)
    assert {name for name, value in tasks.items() if value} == {task}


def test_a_batch_in_which_nothing_is_supervised_costs_nothing() -> None:
    window, targets = both()
    blank = replace(
        targets, valid=torch.zeros_like(targets.valid), phase_observed=torch.zeros_like(targets.phase_observed),
        is_switch=torch.zeros_like(targets.is_switch), location=torch.full_like(targets.location, -1),
    )  # fmt: skip
    estimates = random_estimates(window)
    loss, tasks = total(OBJECTIVE, estimates, blank, window)
    expected = literal(estimates, blank, window, OBJECTIVE)
    assert tasks == {"state": 0.0, "phase": 0.0, "switch": 0.0, "fault": pytest.approx(expected["fault"], rel=1e-5)}
    assert loss == pytest.approx(expected["fault"], rel=1e-5)


def test_angles_are_compared_around_the_circle() -> None:
    angle = torch.tensor([0.1, -0.1, 3.0, -3.0, 6.2, -6.2])
    assert torch.allclose(wrap(angle), torch.atan2(angle.sin(), angle.cos()), atol=1e-6)


def test_bad_objectives_are_refused() -> None:
    with pytest.raises(ValueError, match="expected one of each"):
        Objective((0.5, 0.5))
    with pytest.raises(ValueError, match="expected some of"):
        Objective(FREQUENCY, tasks=("state", "weather"))


def test_a_batch_counts_the_same_as_its_window() -> None:
    batch = batch_of(*CASES)
    assert torch.equal(
        OBJECTIVE.counts(batch.targets(), batch.graph), OBJECTIVE.counts(batch.targets(), batch.window().graph)
    )
