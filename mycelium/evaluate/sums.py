"""What every sample adds to every metric: sums and counts per network window, from estimates and targets.

Metrics are ratios of such sums (``metrics``), so that any grouping of samples, and any resampling of electrical cases,
is an addition. What is left out is said here:

* *State.* Entries are the valid targets: bus, phase and hour; the phase exists and has a nominal angle. Angles count
  where the node is energised. Percentages count targets of at least ``LEAST_PU``, since nothing is a share of 0 V.
* *Phase.* Customers in question with at least one voltage reading; all customers in question beside that.
* *Switch.* Switches with both ends de-energised are left out. Ties that a record variant added count apart. Open is the
  positive class, and a logit above zero says open.
* *Fault.* Detection is fault against normal, by the likeliest of the six classes. Type and place count faulted samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from mycelium.evaluate.places import bus_steps, zones
from mycelium.model.estimates import Estimates
from mycelium.model.segments import segment_log_softmax
from mycelium.schema import LOW_VOLTAGE_KV, TASKS, FaultType
from mycelium.train.objective import wrap
from mycelium.window.columns import Store
from mycelium.window.supervision import Targets
from mycelium.window.targets import FAULT_CLASSES
from mycelium.window.window import Window

LEAST_PU = 1e-4
CONFIDENCE_BINS = 10
APE_BINS_PER_DECADE, APE_DECADES = 60, (-7, 5)  # of absolute errors over their targets
APE_BINS = APE_BINS_PER_DECADE * (APE_DECADES[1] - APE_DECADES[0])
HOPS = (1, 2, 3)
COVERED = 0.9  # probability of the set of places whose size is counted
_ROUNDING = 1e-9  # of sums of probabilities

Sums = dict[str, Tensor]


def sums_of(estimates: Estimates, targets: Targets, window: Window, tasks: tuple[str, ...] = TASKS) -> Sums:
    """Sums and counts of every sample, in float64 on the processor. [sample] or [sample, bin]

    Args:
        estimates, targets, window: Of one or more samples.
        tasks: What the model answers; of other tasks there is nothing.
    """
    of_task = {"state": _state, "phase": _phase, "switch": _switch, "fault": _fault}
    found: Sums = {}
    for task in tasks:
        found |= of_task[task](estimates, targets, window)
    return {name: value.to("cpu", torch.float64) for name, value in found.items()}


# ---- state --------------------------------------------------------------------------------------------------------


def _state(estimates: Estimates, targets: Targets, window: Window) -> Sums:
    graph, n = window.graph[Store.BUS], window.n_graphs
    error = (estimates.v_pu.double() - targets.v_pu.double()).abs()
    volts = error * window.base_v.double()[:, None]
    angle = torch.rad2deg(wrap(estimates.angle_rad.double() - targets.angle_rad.double()).abs())
    low = window.base_v.double()[:, None] * 3**0.5 < 1e3 * LOW_VOLTAGE_KV
    live, dead = targets.valid & targets.live, targets.valid & ~targets.live
    share = error / targets.v_pu.double().clamp(min=LEAST_PU)
    counted = targets.v_pu >= LEAST_PU
    found: Sums = {}
    for name, values, mask in (
        ("state", error, targets.valid),
        ("state_live", error, live),
        ("state_dead", error, dead),
        ("volts", volts, targets.valid),
        ("volts_low", volts, live & low),
        ("volts_medium", volts, live & ~low),
        ("angle", angle, targets.angle_valid),
        ("ape", share, targets.valid & counted),
        ("ape_live", share, live & counted),
    ):
        kept = mask.expand_as(values)
        found[name] = _add(torch.where(kept, values, 0.0).sum(dim=(0, 2)), graph, n)
        found[f"{name}_n"] = _add(kept.sum(dim=(0, 2)), graph, n)
    found["ape_bin"] = _histogram(share, (targets.valid & counted), graph, n)
    return found


def _histogram(share: Tensor, mask: Tensor, graph: Tensor, n: int) -> Tensor:
    """How many errors over their targets lie in each bin, evenly spaced in the logarithm. [sample, bin]"""
    place = (share.clamp(min=1e-30).log10() - APE_DECADES[0]) * APE_BINS_PER_DECADE
    place = place.floor().clamp(0, APE_BINS - 1).long() + APE_BINS * graph[None, :, None]
    return torch.bincount(place[mask], minlength=n * APE_BINS).view(n, APE_BINS)


# ---- phase and switch ---------------------------------------------------------------------------------------------


def _phase(estimates: Estimates, targets: Targets, window: Window) -> Sums:
    graph, n = window.graph[Store.CONSUMER], window.n_graphs
    log_p = functional.log_softmax(estimates.phase.double(), dim=-1)
    confidence, said = log_p.exp().max(dim=-1)
    right = said == targets.phase
    observed = targets.phase_observed
    nll = -log_p.gather(1, targets.phase.clamp(min=0)[:, None]).squeeze(1)
    return {
        "phase_right": _add(right & observed, graph, n),
        "phase_n": _add(observed, graph, n),
        "phase_all_right": _add(right & targets.phase_eligible, graph, n),
        "phase_all_n": _add(targets.phase_eligible, graph, n),
        "phase_nll": _add(torch.where(observed, nll, 0.0), graph, n),
        **_reliability("phase", confidence, right, observed, graph, n),
    }


def _switch(estimates: Estimates, targets: Targets, window: Window) -> Sums:
    graph, n = window.graph[Store.LINE], window.n_graphs
    said, truth = estimates.switch > 0, targets.switch_open
    p_open = torch.sigmoid(estimates.switch.double())
    nll = functional.binary_cross_entropy_with_logits(estimates.switch.double(), truth.double(), reduction="none")
    found: Sums = {}
    alive = targets.is_switch & ~targets.dead_switch
    for name, counted in (("switch", alive & ~targets.tie), ("tie", alive & targets.tie)):
        found[f"{name}_tp"] = _add(counted & said & truth, graph, n)
        found[f"{name}_fp"] = _add(counted & said & ~truth, graph, n)
        found[f"{name}_fn"] = _add(counted & ~said & truth, graph, n)
        found[f"{name}_n"] = _add(counted, graph, n)
    counted = alive & ~targets.tie
    found["switch_nll"] = _add(torch.where(counted, nll, 0.0), graph, n)
    confidence = torch.maximum(p_open, 1.0 - p_open)
    return found | _reliability("switch", confidence, said == truth, counted, graph, n)


# ---- fault --------------------------------------------------------------------------------------------------------


def _fault(estimates: Estimates, targets: Targets, window: Window) -> Sums:
    truth = targets.fault_class
    log_p = functional.log_softmax(estimates.fault.double(), dim=-1)
    confidence, said = log_p.exp().max(dim=-1)
    faulted, alarm = truth > 0, said > 0
    kind = log_p[:, 1:].argmax(dim=-1) + 1  # among the five types
    three = torch.tensor([FAULT_CLASSES.index(t) for t in (FaultType.LLL, FaultType.LLLG)], device=truth.device)
    same = (kind == truth) | (torch.isin(kind, three) & torch.isin(truth, three))
    sample = torch.arange(len(truth), device=truth.device)
    ones = torch.ones_like(faulted)
    return {
        "detect_tp": faulted & alarm,
        "detect_fp": ~faulted & alarm,
        "detect_fn": faulted & ~alarm,
        "class6_right": said == truth,
        "class5_right": faulted & (kind == truth),
        "class4_right": faulted & same,
        "fault_n": faulted,
        "sample_n": ones,
        "confusion": functional.one_hot(truth * len(FAULT_CLASSES) + said, len(FAULT_CLASSES) ** 2),
        "fault_nll": -log_p.gather(1, truth[:, None]).squeeze(1),
        **_reliability("fault", confidence, said == truth, ones, sample, len(truth)),
        **_location(estimates, targets, window),
    }


def _location(estimates: Estimates, targets: Targets, window: Window) -> Sums:
    """Of faulted samples whose place is known: exact, near, ranked."""
    graph, n = window.candidate_graph, window.n_graphs
    score = estimates.location.float()
    located = targets.location >= 0
    truth = torch.where(located, targets.location, 0)
    said = _best(score, graph, n)
    exact = located & (said == truth)
    steps, n_bus = bus_steps(window, truth, said, max(HOPS)), len(window.graph[Store.BUS])
    # Steps from equipment to equipment that it touches: a bus and its line are one apart, two lines at a bus two.
    incidence = torch.where(said == truth, 0, 2 * steps + (truth >= n_bus).long() + (said >= n_bus).long())
    ahead = _add((score > score[truth][graph]) & located[graph], graph, n)
    zone = zones(window)
    alike = zone == zone[truth][graph]
    log_p = segment_log_softmax(score.double(), graph, n)
    likely = _covering(log_p, graph)
    n_line = len(window.graph[Store.LINE])
    kind_of = torch.bucketize(torch.stack([truth, said]), truth.new_tensor([n_bus, n_bus + n_line]), right=True)
    return {
        "location_n": located,
        "location_right": exact,
        "equipment_right": located & (kind_of[0] == kind_of[1]),
        **{f"hop{k}": located & (exact | (steps <= k)) for k in HOPS},
        **{f"incidence{k}": located & (incidence <= k) for k in HOPS},
        "zone_right": located & (exact | (zone[truth] == zone[said])),
        "zone_chance": torch.where(located, _add(alike, graph, n) / _add(torch.ones_like(alike), graph, n), 0.0),
        "cover_right": located & likely[truth],
        "cover_size": torch.where(located, _add(likely, graph, n), 0),
        "reciprocal_rank": torch.where(located, 1.0 / (1.0 + ahead.double()), 0.0),
        "searched": torch.where(located, ahead, 0),
        "location_nll": torch.where(located, -log_p[truth], 0.0),
    }


def _covering(log_p: Tensor, graph: Tensor) -> Tensor:
    """The fewest likeliest candidates of each sample that together have ``COVERED``. [candidate]"""
    order = torch.argsort(log_p, descending=True, stable=True)
    order = order[torch.argsort(graph[order], stable=True)]
    p = log_p[order].exp()
    before = p.cumsum(dim=0) - p - graph[order]  # every sample has 1 in all, and they stand one after the other
    return torch.zeros_like(order, dtype=torch.bool).index_put((order,), before < COVERED - _ROUNDING)


def _best(score: Tensor, graph: Tensor, n: int) -> Tensor:
    """The best candidate of every sample, the first among equals. [sample]"""
    high = score.new_full((n,), -torch.inf).scatter_reduce(0, graph, score, "amax")
    place = torch.arange(len(score), device=score.device)
    place = torch.where(score == high[graph], place, len(score))
    return place.new_full((n,), len(score)).scatter_reduce(0, graph, place, "amin").clamp(max=len(score) - 1)


# ---- adding up ----------------------------------------------------------------------------------------------------


def _add(values: Tensor, graph: Tensor, n: int) -> Tensor:
    """Sum of the entities of each sample. values [entity] -> [sample]"""
    values = values if values.is_floating_point() else values.long()
    return values.new_zeros(n).index_add(0, graph, values)


def _reliability(name: str, confidence: Tensor, right: Tensor, counted: Tensor, graph: Tensor, n: int) -> Sums:
    """Answers by how sure they were: number, confidence and correct ones. [sample, bin]"""
    place = (confidence * CONFIDENCE_BINS).long().clamp(max=CONFIDENCE_BINS - 1) + CONFIDENCE_BINS * graph
    size = n * CONFIDENCE_BINS

    def binned(values: Tensor) -> Tensor:
        return values.new_zeros(size).index_add(0, place[counted], values[counted]).view(n, CONFIDENCE_BINS)

    return {
        f"{name}_bin_n": binned(torch.ones_like(confidence)),
        f"{name}_bin_confidence": binned(confidence),
        f"{name}_bin_right": binned(right.to(confidence.dtype)),
    }


def join(parts: Sequence[Mapping[str, Tensor]]) -> Sums:
    """Samples of several batches one after the other."""
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
