"""A batch is the disjoint union of its samples, whatever is in it and wherever it goes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mycelium.window.batch import Batch, group_by_size
from mycelium.window.columns import ENDS, OBJECT, Relation, Store, WindowOptions
from mycelium.window.window import Window, describe, map_tensors
from tests.sense.networks import DEAD, FAULTED, MOVED, QUIET
from tests.window.render import Case, case_of

MIXED = (("us_suburb", FAULTED, "clean"), ("lv_town", MOVED, "noisy_missing_medium"), ("ieee13", FAULTED, "clean"),
         ("ieee123", DEAD, "observability_ami_sparse"), ("ieee13", QUIET, "noisy_missing_dense"))  # fmt: skip


def cases() -> list[Case]:
    return [case_of(*case) for case in MIXED]


def only(window: Window, number: int) -> dict[str, torch.Tensor]:
    """Everything of one network of a window, its edges counted from its own first entity."""
    rows = {store: (graph == number).nonzero().ravel() for store, graph in window.graph.items()}
    first = {store: int(at[0]) if len(at) else 0 for store, at in rows.items()}
    found = {}
    for store, values in window.static.items():
        found[f"static {store}"] = values[rows[store]]
    for store, part in window.temporal.items():
        found[f"value {store}"], found[f"seen {store}"] = part.value[:, rows[store]], part.seen[:, rows[store]]
    for relation, ends in window.edges.items():
        source, target = ENDS[relation]
        mine = torch.isin(ends[0], rows[source])
        assert torch.equal(mine, torch.isin(ends[1], rows[target])), "an edge joins two networks"
        found[f"edges {relation}"] = ends[:, mine] - torch.tensor([[first[source]], [first[target]]])
    for name in ("position", "nominal_rad", "nominal_valid", "legs", "base_v"):
        found[name] = getattr(window, name)[rows[Store.BUS]]
    found["transformer_edge"] = window.transformer_edge[rows[OBJECT]] - first[Store.TRANSFORMER]
    return found


@pytest.mark.parametrize("options", [WindowOptions(), WindowOptions(extended=False, feeder_head=False)])
def test_every_part_of_a_union_is_the_sample_alone(options: WindowOptions) -> None:
    parts = [case.part(options) for case in cases()]
    union = Batch.of(parts).window()
    assert union.n_graphs == len(parts)
    assert union.n_buses == sum(len(case.grid.bus) for case in cases())
    for number, part in enumerate(parts):
        alone, inside = only(Batch.of([part]).window(), 0), only(union, number)
        assert alone.keys() == inside.keys()
        for name, expected in alone.items():
            assert torch.equal(inside[name], expected), f"{name} of sample {number}"


def test_targets_of_a_union_are_those_of_the_samples_and_locations_count_all_candidates() -> None:
    parts = [case.part() for case in cases()]
    batch = Batch.of(parts)
    window, union = batch.window(), batch.targets()
    for number, part in enumerate(parts):
        single = Batch.of([part])
        alone, grid = single.targets(), cases()[number].grid
        for rows, fields in (
            (Store.BUS, ("v_pu", "angle_rad", "valid", "live")),
            (Store.CONSUMER, ("phase", "phase_observed")),
            (Store.LINE, ("switch_open", "is_switch", "dead_switch", "tie")),
        ):
            mine = window.graph[rows] == number
            for name in fields:
                whole, own = getattr(union, name), getattr(alone, name)
                inside = whole[:, mine] if whole.dim() == 3 else whole[mine]
                assert torch.equal(inside, own), name
        assert union.fault_class[number] == alone.fault_class[0]
        assert torch.equal(union.applicable[number], alone.applicable[0])
        place = int(union.location[number])
        if place < 0:
            assert int(alone.location[0]) < 0
            continue
        assert int(window.candidate_graph[place]) == number
        of_sample = (window.candidate_graph == number).nonzero().ravel().tolist()
        assert of_sample.index(place) == int(alone.location[0])
        assert len(of_sample) == len(grid.bus) + len(grid.line) + len(grid.transformer)
    assert union.samples == tuple(sample.id for _, sample in parts)


def test_order_within_a_batch_changes_nothing_but_the_order() -> None:
    parts = [case.part() for case in cases()]
    forward, back = Batch.of(parts).window(), Batch.of(parts[::-1]).window()
    for number in range(len(parts)):
        one, other = only(forward, number), only(back, len(parts) - 1 - number)
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_samples_with_other_columns_do_not_mix() -> None:
    case = cases()[0]
    with pytest.raises(ValueError, match="WindowOptions"):
        Batch.of([case.part(), case.part(WindowOptions(extended=False))])


def test_moving_moves_every_tensor_and_changes_nothing() -> None:
    batch = Batch.of([case.part() for case in cases()])
    moved = batch.to("meta")
    kinds: set[str] = set()
    for thing in (moved, batch.window().to("meta"), batch.targets().to("meta")):
        map_tensors(thing, lambda tensor: kinds.add(tensor.device.type) or tensor)  # type: ignore[func-returns-value]
    assert kinds == {"meta"}
    again = batch.to("cpu", non_blocking=True)
    assert torch.equal(again.window().temporal[Store.BUS].value, batch.window().temporal[Store.BUS].value)
    assert again.samples == batch.samples and again.options == batch.options


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # importing PyG calls what torch deprecates
@pytest.mark.filterwarnings("ignore:The node types")  # what belongs to the network as a whole has no edges
def test_hetero_data_has_every_node_relation_and_reading() -> None:
    window = Batch.of([case.part() for case in cases()]).window()
    data = window.to_hetero_data()
    data.validate(raise_on_error=True)
    backbone = [kind for kind in data.edge_types if not kind[1].startswith(("phase", "terminal"))]
    assert len(backbone) == 18
    line, back = data["bus", "line", "bus"], data["bus", "rev_line", "bus"]
    assert torch.equal(line.edge_index, window.edges[Relation.LINE])
    assert torch.equal(back.edge_index, line.edge_index.flip(0))
    assert line.edge_attr.shape[0] == line.edge_index.shape[1] == line.value.shape[0]
    assert torch.equal(data["bus"].seen.transpose(0, 1), window.temporal[Store.BUS].seen)
    assert sum(node.num_nodes for node in data.node_stores) >= sum(
        describe(window)["entities"][s] for s in ("bus", "consumer")
    )


def test_a_description_counts_what_is_there() -> None:
    case = case_of("ieee13", QUIET)
    found = describe(case.batch().window())
    assert found["networks"] == 1 and found["entities"]["bus"] == len(case.grid.bus)
    assert found["readings"]["consumer"] == sum(
        int(seen.sum()) for key, seen in case.readings.seen.items() if key.startswith("consumer.")
    )


sizes = st.lists(st.integers(1, 5000), min_size=1, max_size=60)


@settings(max_examples=60, deadline=None)
@given(sizes=sizes, budget=st.integers(100, 6000), seed=st.integers(0, 100))
def test_grouping_keeps_everything_once_within_the_budget(sizes: list[int], budget: int, seed: int) -> None:
    groups = group_by_size(sizes, budget, "a test", seed)
    assert sorted(k for group in groups for k in group) == list(range(len(sizes)))
    for group in groups:
        assert len(group) == 1 or sum(sizes[k] for k in group) <= budget
    assert groups == group_by_size(sizes, budget, "a test", seed)


def test_grouping_puts_similar_sizes_together_and_shuffles() -> None:
    rng = np.random.default_rng(0)
    sizes = rng.choice([20, 900, 5000], size=300).tolist()
    one, other = group_by_size(sizes, 20_000, 1), group_by_size(sizes, 20_000, 2)
    mixed = [group for group in one if len({sizes[k] for k in group}) > 1]
    assert len(mixed) <= 2, "only where one size ends and the next begins"
    assert one != other
    assert [sizes[group[0]] for group in one] != sorted(sizes[group[0]] for group in one)
