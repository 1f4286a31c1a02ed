"""A Window as PyTorch Geometric's HeteroData, for those who want it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mycelium.window.columns import BACKBONE, BRANCHES, ENDS, NODES, OBJECT, Relation, Store

if TYPE_CHECKING:
    from torch_geometric.data import HeteroData

    from mycelium.window.window import Window

_AUXILIARY = (Store.TERMINAL, Store.GRID, Store.POWER_FLOW, Store.SUMMARY)
_HELD_BY_EDGES = Relation.OBJECT_EDGE  # ends at edges, which PyG cannot say: kept as an attribute of the objects


def to_hetero_data(window: Window) -> HeteroData:
    """Nodes, edges both ways (``rev_`` and the relation's name), features with entities first [entity, hour, column].

    Static columns are ``x`` and ``edge_attr``, readings ``value`` and ``seen``, the network ``batch``.
    """
    try:
        from torch_geometric.data import HeteroData
    except ImportError as error:
        raise ImportError("to_hetero_data needs PyTorch Geometric: pip install 'mycelium-grid[pyg]'") from error
    data = HeteroData()
    for store in (*NODES, *_AUXILIARY):
        if store in window.static:
            data[store.value].x = window.static[store]
        data[store.value].num_nodes = len(window.graph[store])
        data[store.value].batch = window.graph[store]
        if store in window.temporal:
            data[store.value].value = window.temporal[store].value.transpose(0, 1)
            data[store.value].seen = window.temporal[store].seen.transpose(0, 1)
    data[Store.BUS.value].position = window.position
    data[Store.BUS.value].nominal_rad = window.nominal_rad
    data[Store.BUS.value].nominal_valid = window.nominal_valid
    data[Store.BUS.value].legs = window.legs
    data[Store.BUS.value].base_v = window.base_v
    data[OBJECT].num_nodes = len(window.graph[OBJECT])
    data[OBJECT].batch = window.graph[OBJECT]
    data[OBJECT].edge = window.edges[_HELD_BY_EDGES]
    for relation, ends in window.edges.items():
        if relation is _HELD_BY_EDGES:
            continue
        source, target = (str(end) for end in ENDS[relation])
        ways = [((source, relation.value, target), ends)]
        if relation in BACKBONE:
            ways.append(((target, f"rev_{relation.value}", source), ends.flip(0)))
        for kind, index in ways:
            data[kind].edge_index = index
            if relation.value in BRANCHES:
                store = Store(relation.value)
                data[kind].edge_attr = window.static[store]
                if store in window.temporal:
                    data[kind].value = window.temporal[store].value.transpose(0, 1)
                    data[kind].seen = window.temporal[store].seen.transpose(0, 1)
    return data
