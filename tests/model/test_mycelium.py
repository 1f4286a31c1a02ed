"""What must hold of the whole model, from a window to answers."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

import mycelium
from mycelium import Mycelium, MyceliumConfig
from mycelium.errors import FeederError
from mycelium.feeders import FEEDERS
from mycelium.grid.grid import Grid
from mycelium.grid.nominal_angle import nominal_angle
from mycelium.model.estimates import Estimates
from mycelium.model.relation_edges import RelationEdges
from mycelium.model.segments import segment_log_softmax
from mycelium.schema import HOURS, TASKS
from mycelium.sense.readings import Readings
from mycelium.simulate.cases import CaseMix
from mycelium.window.columns import (
    BACKBONE,
    NODES,
    OBJECT,
    Communication,
    Relation,
    Store,
    WindowOptions,
    static_columns,
    temporal_columns,
)
from mycelium.window.supervision import Targets
from mycelium.window.window import Measured, Window
from tests.model.windows import (
    PAPER_INPUTS,
    SMALL,
    alone,
    answers,
    assert_same,
    cases,
    double,
    normalised,
    put_back,
    relabelled,
    rows_of,
    union,
)
from tests.sense.networks import FAULTED, MOVED, bundled
from tests.window.render import case_of

ANSWERS = {"state": ("v_pu", "angle_rad"), "phase": ("phase",), "switch": ("switch",), "fault": ("fault", "location")}


def model_of(config: MyceliumConfig = SMALL, seed: int = 1) -> Mycelium:
    """A model in float64 with biases and normalisations that are not at their trivial first values."""
    torch.manual_seed(seed)
    model = Mycelium(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model


def losses(task: str, estimates: Estimates, window: Window, targets: Targets) -> dict[str, Tensor]:
    """Losses of a task, each 0 for the right answers alone."""
    if task == "state":
        return {
            "magnitude": (100.0 * (estimates.v_pu - targets.v_pu)[:, targets.valid]).square().mean(),
            "angle": (30.0 * (estimates.angle_rad - targets.angle_rad)[:, targets.angle_valid]).square().mean(),
        }
    if task == "phase":
        asked = targets.phase >= 0
        return {"phase": functional.cross_entropy(estimates.phase[asked], targets.phase[asked])}
    if task == "switch":
        is_open = targets.switch_open[targets.is_switch].to(estimates.switch.dtype)
        return {"switch": functional.binary_cross_entropy_with_logits(estimates.switch[targets.is_switch], is_open)}
    log_place = segment_log_softmax(estimates.location, window.candidate_graph, window.n_graphs)
    return {
        "class": functional.cross_entropy(estimates.fault, targets.fault_class),
        "location": -log_place[targets.location].mean(),
    }


# A day without a fault for the state: a dead phase asks for an output of -100, which takes long to reach.
@pytest.mark.parametrize(
    ("task", "feeder", "mix", "steps"),
    [("state", "ieee13", MOVED, 260), ("phase", "lv_fourwire", MOVED, 40), ("switch", "us_suburb", MOVED, 40),
     ("fault", "lv_town", FAULTED, 40)],
)  # fmt: skip
def test_fits_one_window_entirely(task: str, feeder: str, mix: CaseMix, steps: int) -> None:
    """A small model learns every answer to one window by heart."""
    window, targets = normalised(case_of(feeder, mix))
    torch.manual_seed(0)
    model = Mycelium(replace(SMALL, tasks=(task,), dropout=0.0))
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    with torch.no_grad():
        first = losses(task, model(window), window, targets)
    for _ in range(steps):
        optimiser.zero_grad()
        torch.stack([*losses(task, model(window), window, targets).values()]).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        last = losses(task, model.eval()(window), window, targets)
    for name, value in last.items():
        assert value < 0.05 and value < 0.2 * first[name], f"{name}: from {first[name]:.3f} to {value:.3f}"


def unread(config: MyceliumConfig) -> set[str]:
    """Parameters that no answer depends on: the paper's last layer updates capacitors and DERs, which none reads."""
    last = config.layers - 1
    parts = ("norm.weight", "norm.bias", "widen.weight", "widen.bias", "narrow.weight", "narrow.bias")
    return {
        name
        for kind in ("capacitor", "der")
        for name in (
            *(f"backbone.layers.{last}.feedforward.{kind}.{part}" for part in parts),
            *(f"backbone.norm.{kind}.{part}" for part in ("weight", "bias")),
        )
    }


def test_every_parameter_that_can_matter_gets_a_gradient() -> None:
    window, _ = union()
    model = model_of()
    found = answers(model.train()(double(window)))
    torch.manual_seed(2)
    torch.stack([(torch.randn_like(value) * value).nansum() for value in found.values()]).sum().backward()
    silent = {name for name, value in model.named_parameters() if value.grad is None or not value.grad.any()}
    assert silent == unread(SMALL)


def test_every_slice_of_the_attention_that_can_matter_gets_a_gradient() -> None:
    """Also within the packed weights: values of every relation, queries and keys where destinations have a choice."""
    window, _ = union()
    model = model_of()
    found = answers(model(double(window)))
    torch.manual_seed(2)
    torch.stack([(torch.randn_like(value) * value).nansum() for value in found.values()]).sum().backward()
    counts = {store.value: len(window.graph[store]) for store in NODES}
    edges = RelationEdges.compile(SMALL.attention, counts, {kind.value: window.edges[kind] for kind in BACKBONE})
    relations = SMALL.attention.relations
    used = torch.tensor(edges.nodes.sizes).view(3, len(relations)) > 0
    assert used[2].all() and used[0].sum() > 6
    for number, layer in enumerate(model.backbone.layers):
        read = [number < SMALL.layers - 1 or kind.target not in (Store.CAPACITOR, Store.DER) for kind in relations]
        reached = layer.attention.weight.grad.flatten(2).any(dim=2)
        assert torch.equal(reached, used & torch.tensor(read))
        assert layer.attention.branch_weight.grad.flatten(1).any(dim=1).all()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("options", [PAPER_INPUTS, WindowOptions()], ids=["paper", "default"])
def test_order_of_entities_edges_and_networks_does_not_matter(seed: int, options: WindowOptions) -> None:
    window = double(union(options)[0])
    model = model_of(replace(SMALL, window=options))
    moved, order = relabelled(window, seed)
    with torch.no_grad():
        straight, other = model(window), model(moved)
    assert_same(put_back(other, order), answers(straight), 1e-11)


@pytest.mark.parametrize("options", [PAPER_INPUTS, WindowOptions()], ids=["paper", "default"])
def test_a_network_is_answered_alike_alone_and_in_a_batch(options: WindowOptions) -> None:
    model = model_of(replace(SMALL, window=options))
    window = double(union(options)[0])
    with torch.no_grad():
        joint = answers(model(window))
        for number, single in enumerate(alone(options)):
            expected = answers(model(double(single)))
            for name, value in joint.items():
                graph, dim = rows_of(window, name)
                mine = value.index_select(dim, (graph == number).nonzero().ravel())
                assert_same({name: mine}, {name: expected[name]}, 1e-11)


def test_what_was_not_seen_cannot_matter() -> None:
    """Whatever stands at places of a window where nothing was seen, answers are the same to the last bit."""
    window, _ = union()
    model = Mycelium(SMALL).eval()
    torch.manual_seed(4)
    hidden = {
        store: Measured(torch.where(part.seen, part.value, 1e3 * torch.randn_like(part.value)), part.seen)
        for store, part in window.temporal.items()
    }
    assert sum(int((~part.seen).sum()) for part in hidden.values()) > 1000
    with torch.no_grad():
        straight, other = model(window), model(replace(window, temporal=hidden))
    for name, value in answers(straight).items():
        assert torch.equal(value.nan_to_num(), answers(other)[name].nan_to_num()), name


def test_what_was_seen_and_that_it_was_seen_matter() -> None:
    """One reading's value, and one reading's presence, reach every kind of answer."""
    window = double(union()[0])
    model = model_of()
    part = window.temporal[Store.BUS]
    hour, bus, column = part.seen.nonzero()[0].tolist()
    value, seen = part.value.clone(), part.seen.clone()
    value[hour, bus, column] += 1.0
    seen[hour, bus, column] = False
    with torch.no_grad():
        straight = answers(model(window))
        for other in (Measured(value, part.seen), Measured(part.value, seen)):
            changed = answers(model(replace(window, temporal={**window.temporal, Store.BUS: other})))
            for name in straight:
                assert not torch.equal(changed[name].nan_to_num(), straight[name].nan_to_num()), name


def test_voltages_of_an_hour_know_nothing_of_later_readings() -> None:
    """The backbone treats hours apart and the state readout looks back only. (A customer's tier, and so the encoder,
    knows which readings there are all day: causality is of values, as the paper says of its refiner.)"""
    window = double(union()[0])
    model = model_of()
    hour = 13
    later = {}
    torch.manual_seed(5)
    for store, part in window.temporal.items():
        value = part.value.clone()
        value[hour:] += part.seen[hour:] * torch.randn_like(value[hour:])
        later[store] = Measured(value, part.seen)
    with torch.no_grad():
        straight, other = model(window), model(replace(window, temporal=later))
    for name in ("v_pu", "angle_rad"):
        assert torch.equal(answers(straight)[name][:hour], answers(other)[name][:hour])
        assert not torch.equal(answers(straight)[name][hour:], answers(other)[name][hour:])
    assert not torch.equal(straight.phase, other.phase)


ABLATIONS = {
    "no communication": replace(SMALL, window=replace(PAPER_INPUTS, communication=Communication.NONE)),
    "random communication": replace(SMALL, window=replace(PAPER_INPUTS, communication=Communication.RANDOM)),
    "no angle reference": replace(SMALL, window=replace(PAPER_INPUTS, nominal_angle=False)),
    "no positions": replace(SMALL, window=replace(PAPER_INPUTS, position=False)),
    "no feeder head, not extended": replace(SMALL, window=replace(PAPER_INPUTS, feeder_head=False, extended=False)),
    "everything": replace(SMALL, window=WindowOptions.everything()),
    **{f"only {task}": replace(SMALL, tasks=(task,)) for task in TASKS},
}


@pytest.mark.parametrize("name", ABLATIONS)
def test_every_ablation_answers_what_it_is_asked(name: str) -> None:
    config = ABLATIONS[name]
    window = double(union(config.window)[0])
    model = model_of(config)
    found = answers(model(window))
    asked = {answer for task in config.tasks for answer in ANSWERS[task]}
    for answer, value in found.items():
        if answer not in asked:
            assert value.isnan().all(), f"{answer} of a model without its readout"
        elif answer != "switch":
            assert value.isfinite().all(), answer
    assert found["v_pu"].shape == found["angle_rad"].shape == (HOURS, window.n_buses, 3)
    torch.stack([found[answer].nansum() for answer in asked]).sum().backward()
    assert model.backbone.layers[0].attention.weight.grad.any()
    assert MyceliumConfig.of_record(config.record()) == config


def test_without_communication_there_are_no_weights_for_it() -> None:
    without = Mycelium(ABLATIONS["no communication"])
    kinds = {relation.kind for relation in without.config.attention.relations}
    assert not kinds & {Relation.UPLINK, Relation.DOWNLINK}
    assert len(SMALL.attention.relations) - len(without.config.attention.relations) == 4


def test_messages_cross_a_network_by_shortcuts_alone() -> None:
    """With one layer, a customer's reading reaches its transformer's bus if and only if there are downlinks."""
    reached = {}
    for name in ("links", "none"):
        options = replace(PAPER_INPUTS, communication=Communication(name))
        config = replace(SMALL, layers=1, window=options, tasks=("state",))
        window = double(union(options)[0])
        model = model_of(config)
        consumer, bus = union()[0].edges[Relation.DOWNLINK]
        service = dict(zip(*window.edges[Relation.SERVICE].tolist(), strict=True))
        far = [k for k in range(len(bus)) if service[int(consumer[k])] != int(bus[k])]
        at, target = int(consumer[far[0]]), int(bus[far[0]])
        part = window.temporal[Store.CONSUMER]
        value, seen = part.value.clone(), part.seen.clone()
        value[:, at], seen[:, at] = 1.0, True
        other = replace(window, temporal={**window.temporal, Store.CONSUMER: Measured(value, seen)})
        with torch.no_grad():
            reached[name] = not torch.equal(model(window).v_pu[:, target], model(other).v_pu[:, target])
    assert reached == {"links": True, "none": False}


def test_answers_of_readings_are_those_of_their_window() -> None:
    """``estimate`` is a function of records and readings; it leaves the model in the mode it was in."""
    case = cases()[1]
    torch.manual_seed(0)
    model = Mycelium(SMALL).train()
    found = model.estimate(case.grid, case.readings)
    assert model.training
    with torch.no_grad():
        window = alone()[1]
        expected = model.eval()(window)
    assert_same(answers(found), answers(expected.absolute(window)), 0.0)
    assert len(found.location) == len(case.grid.bus) + len(case.grid.line) + len(case.grid.transformer)
    switches = np.flatnonzero(found.switch.isfinite().numpy())
    assert switches.tolist() == case.grid.switches.tolist()


@pytest.mark.parametrize("feeder", FEEDERS)
def test_every_feeder_is_answered_even_without_a_single_reading(feeder: str) -> None:
    """Feeders without switches, reactors, DERs or capacitors among them."""
    grid = bundled(feeder).published.grid
    torch.manual_seed(0)
    found = Mycelium(SMALL).estimate(grid, Readings.none(grid))
    for name, value in answers(found).items():
        if name in ("v_pu", "angle_rad"):
            there = np.broadcast_to(nominal_angle(grid).valid, value.shape)
            assert np.array_equal(value.isfinite().numpy(), there), f"{name} of phases there are not, or none of some"
        else:
            assert value.isfinite().all() or name == "switch", name
    assert int(found.switch.isfinite().sum()) == len(grid.switches)


def degrees(found: Estimates, grid: Grid, bus: str) -> list[float]:
    """Angles of a bus at some hour, NaN where there is none."""
    row = grid.bus["name"].tolist().index(bus)
    return torch.rad2deg(found.angle_rad[5, row]).tolist()


@pytest.mark.parametrize("nominal", [True, False])
def test_angles_are_absolute(nominal: bool) -> None:
    """First answers are nominal everywhere. The transformers of this feeder are Dyn11: their secondaries lead by 30."""
    grid = bundled("lv_town").published.grid
    config = replace(SMALL, window=replace(PAPER_INPUTS, nominal_angle=nominal))
    found = Mycelium(config).estimate(grid, Readings.none(grid))
    above, below = ([0.0, -120.0, 120.0], [30.0, -90.0, 150.0]) if nominal else ([0.0] * 3, [0.0] * 3)
    assert degrees(found, grid, "ring_a") == pytest.approx(above, abs=1e-4)
    assert degrees(found, grid, "sub_a") == pytest.approx(below, abs=1e-4)
    assert (found.v_pu == 1.0).all()


def test_phases_that_do_not_exist_have_no_voltage() -> None:
    grid = bundled("ieee13").published.grid
    found = Mycelium(SMALL).estimate(grid, Readings.none(grid))
    for bus, expected in (("611", [np.nan, np.nan, 120.0]), ("652", [0.0, np.nan, np.nan])):
        assert degrees(found, grid, bus) == pytest.approx(expected, abs=1e-4, nan_ok=True)
        assert np.array_equal(found.v_pu[5, grid.bus["name"].tolist().index(bus)].isnan(), np.isnan(expected))


def test_absolute_angles_are_wrapped_and_legs_opposite() -> None:
    """On what a window answers: residuals, added up with nominal angles and brought back into half a turn."""
    window, _ = union()
    torch.manual_seed(0)
    model = Mycelium(SMALL).eval()
    with torch.no_grad():
        model.readouts["state"].output.bias.fill_(0.5)  # 83 degrees on top of nominal: beyond 180 for some
        residual = model(window)
    found = residual.absolute(window)
    there = window.nominal_valid
    assert float(residual.angle_rad[:, there & ~window.legs[:, None]].std()) < 1e-6
    expected = torch.polar(torch.ones(()), residual.angle_rad + window.nominal_rad)[:, there]
    torch.testing.assert_close(torch.polar(torch.ones(()), found.angle_rad[:, there]), expected)
    assert float(found.angle_rad[:, there].abs().max()) <= np.pi + 1e-6
    assert window.legs.any()
    turn = found.angle_rad[:, window.legs, 0] - found.angle_rad[:, window.legs, 1]
    torch.testing.assert_close(turn.abs(), torch.full_like(turn, np.pi))
    torch.testing.assert_close(found.v_pu[:, there], residual.v_pu[:, there])


def test_a_network_without_customers_lines_and_transformers_is_answered() -> None:
    """A source, a bus, and nothing else: all that is empty stays empty."""
    options = PAPER_INPUTS
    temporal, static = temporal_columns(options), static_columns(options)
    size = {store: 1 if store in (Store.BUS, Store.SUBSTATION, Store.GRID, Store.POWER_FLOW, Store.SUMMARY) else 0
            for store in Store}  # fmt: skip

    def every(*shape: int) -> Measured:
        return Measured(torch.ones(shape), torch.ones(shape) > 0)

    window = Window(
        options,
        1,
        {store: torch.ones(size[store], len(columns)) for store, columns in static.items()},
        {
            store: Measured(
                torch.ones(HOURS, size[store], len(columns)), torch.ones(HOURS, size[store], len(columns)) > 0
            )
            for store, columns in temporal.items()
        },
        torch.ones(1, 9),
        {kind: torch.zeros(2, int(kind is Relation.SOURCE), dtype=torch.long) for kind in Relation},
        {store.value: torch.zeros(size[store], dtype=torch.long) for store in Store} | {OBJECT: torch.zeros(0).long()},
        torch.zeros(1, 3),
        torch.ones(1, 3) > 0,
        torch.zeros(1) > 0,
        torch.ones(1),
    )
    model = Mycelium(SMALL)
    found = answers(model(window))
    assert {name: value.shape for name, value in found.items()} == {
        "v_pu": (HOURS, 1, 3), "angle_rad": (HOURS, 1, 3), "phase": (0, 3), "switch": (0,), "fault": (1, 6),
        "location": (1,),
    }  # fmt: skip
    torch.stack([value.sum() for value in found.values()]).sum().backward()
    assert all(value.isfinite().all() for value in found.values())
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)


def test_refuses_windows_of_other_columns() -> None:
    window, _ = union(WindowOptions())
    with pytest.raises(FeederError, match="the model takes"):
        Mycelium(MyceliumConfig.tiny())(window)


def test_autocast_leaves_voltages_exact() -> None:
    """In bf16, answers are float32 and near the exact ones: steps of bf16 would be 0.4 % of a voltage."""
    window, _ = union()
    torch.manual_seed(0)
    model = Mycelium(SMALL).eval()
    with torch.no_grad():
        exact = answers(model(window))
        with torch.autocast("cpu", torch.bfloat16):
            rough = answers(model(window))
    for name, value in rough.items():
        assert value.dtype == torch.float32
        assert_same({name: value}, {name: exact[name]}, 0.1 * float(exact[name].nan_to_num().abs().max()))
    assert float((rough["v_pu"] - exact["v_pu"]).abs().max()) < 5e-4
    assert len(rough["v_pu"].unique()) > 0.5 * len(exact["v_pu"].unique())


def test_the_package_comes_without_torch_until_the_model_is_asked_for() -> None:
    code = "import sys, mycelium as m; assert 'torch' not in sys.modules; m.Mycelium; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'Mycelia'"):
        mycelium.Mycelia  # noqa: B018


def test_every_kind_of_node_has_an_encoder() -> None:
    assert set(NODES) == set(Mycelium(MyceliumConfig.tiny()).encoders.node)
