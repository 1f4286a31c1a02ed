"""Window: everything a model is given of one day of one network, or of several at once as a disjoint union.

A model call takes a Window and nothing else. Targets are another type (``supervision``): no field of a Window holds
truth, a target's validity, or which tasks apply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from mycelium.window.columns import OBJECT, Relation, Store, WindowOptions, first, temporal_columns

if TYPE_CHECKING:
    from torch_geometric.data import HeteroData

T = TypeVar("T")


def map_tensors(thing: T, change: Callable[[Tensor], Tensor]) -> T:
    """The same dataclass, mapping or tensor with every tensor changed."""
    if isinstance(thing, Tensor):
        return change(thing)  # type: ignore[return-value]  # T is Tensor here
    if isinstance(thing, Mapping):
        return {key: map_tensors(value, change) for key, value in thing.items()}  # type: ignore[return-value]
    if hasattr(thing, "__dataclass_fields__"):
        changed = {field.name: map_tensors(getattr(thing, field.name), change) for field in fields(thing)}  # type: ignore[arg-type]
        return replace(thing, **changed)  # type: ignore[type-var]
    return thing


class Movable:
    """Moves all tensors of a dataclass."""

    def to(self: T, device: torch.device | str, non_blocking: bool = False) -> T:
        """The same on a device; from pinned memory, ``non_blocking`` does not wait for the copy."""
        return map_tensors(self, lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self: T) -> T:
        """The same in page-locked memory, from which a device can copy while the processor goes on."""
        return map_tensors(self, lambda tensor: tensor.pin_memory())


@dataclass(frozen=True, slots=True)
class Measured:
    """Readings of one store.

    Attributes:
        value: Transformed and normalised readings, 0 where there is none. [hour, entity, column]
        seen: Whether there is one. [hour, entity, column]
    """

    value: Tensor
    seen: Tensor


@dataclass(frozen=True)
class Window(Movable):
    """Inputs. Columns are listed in ``columns``; entities of several networks follow each other.

    Attributes:
        options: Which optional parts there are.
        n_graphs: Number of networks.
        static: Static columns by store, with the customers' metering tiers and the windows' summaries. [entity, column]
        temporal: Readings by store.
        position: Positional descriptors of buses; none if the option is off. [bus, descriptor]
        edges: End points by relation (``columns.ENDS`` says of what), source to target. [2, edge]
        graph: Which network an entity belongs to, by store and of transformer objects. [entity]
        nominal_rad, nominal_valid: Nominal angles, to turn residuals into angles. [bus, phase]
        legs: Buses whose slots 0 and 1 are the legs of a centre tap. [bus]
        base_v: Line-to-neutral voltage base, to turn per unit into volts. [bus]
    """

    options: WindowOptions
    n_graphs: int
    static: Mapping[Store, Tensor]
    temporal: Mapping[Store, Measured]
    position: Tensor
    edges: Mapping[Relation, Tensor]
    graph: Mapping[str, Tensor]
    nominal_rad: Tensor
    nominal_valid: Tensor
    legs: Tensor
    base_v: Tensor

    @property
    def n_buses(self) -> int:
        return len(self.base_v)

    @property
    def consumer_voltage_seen(self) -> Tensor:
        """Whether a customer's voltage was reported. [hour, consumer]"""
        return self.temporal[Store.CONSUMER].seen[..., 0]

    @property
    def line_current_seen(self) -> Tensor:
        """Whether any conductor's current of a line was reported. [hour, line]"""
        place = first(temporal_columns(self.options)[Store.LINE], "current_a")
        return self.temporal[Store.LINE].seen[..., place : place + 4].any(dim=-1)

    @property
    def transformer_edge(self) -> Tensor:
        """Edge that stands for each transformer, from winding 1 to winding 2. [transformer]"""
        owner, edge = self.edges[Relation.OBJECT_EDGE]
        # Edges of a network's transformers come first, in order; later ones of a third winding must not win.
        result = torch.empty(len(self.graph[OBJECT]), dtype=edge.dtype, device=edge.device)
        return result.scatter_reduce(0, owner, edge, "amin", include_self=False)

    @property
    def candidate_graph(self) -> Tensor:
        """Network of every candidate for a fault: all buses, then all lines, then all transformers. [candidate]"""
        return torch.cat([self.graph[Store.BUS], self.graph[Store.LINE], self.graph[OBJECT]])

    def to_hetero_data(self) -> HeteroData:
        """The same as PyTorch Geometric's HeteroData; needs the extra ``pyg``."""
        from mycelium.window.hetero import to_hetero_data  # which imports torch_geometric

        return to_hetero_data(self)


def describe(window: Window) -> dict[str, Any]:
    """Sizes for people: entities by store, edges by relation, share of readings present."""
    return {
        "networks": window.n_graphs,
        "entities": {str(store): len(rows) for store, rows in window.graph.items()},
        "edges": {str(relation): ends.shape[1] for relation, ends in window.edges.items()},
        "readings": {str(store): int(part.seen.sum()) for store, part in window.temporal.items()},
    }
