"""Along which relations messages pass, and the sizes of attention over them."""

from __future__ import annotations

from dataclasses import dataclass

from mycelium.window.columns import BACKBONE, BRANCHES, ENDS, NODES


@dataclass(frozen=True, slots=True)
class DirectedRelation:
    """One direction of one kind of edge.

    Attributes:
        kind: Name of the kind of edge in a window.
        source, target: Kinds of nodes that messages come from and go to.
        reverse: Against the direction in which a window lists the edges.
        branch: Whether embeddings of the edges enter scores and messages.
    """

    kind: str
    source: str
    target: str
    reverse: bool = False
    branch: bool = False


def _directed() -> tuple[DirectedRelation, ...]:
    result = []
    for kind in BACKBONE:
        source, target = (str(end) for end in ENDS[kind])
        for reverse in (False, True):
            ends = (target, source) if reverse else (source, target)
            result.append(DirectedRelation(kind.value, *ends, reverse=reverse, branch=kind.value in BRANCHES))
    return tuple(result)


RELATIONS = _directed()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionConfig:
    """Relation-typed attention.

    Attributes:
        width: Channels of node states and of branch embeddings.
        heads: Attention heads; the width of one and their number are powers of two.
        nodes: Kinds of nodes, in packed order.
        relations: Directed relations.
    """

    width: int = 128
    heads: int = 4
    nodes: tuple[str, ...] = tuple(node.value for node in NODES)
    relations: tuple[DirectedRelation, ...] = RELATIONS

    def __post_init__(self) -> None:
        head = self.width // max(self.heads, 1)
        if self.heads * head != self.width or self.heads & (self.heads - 1) or head & (head - 1):
            raise ValueError(
                f"width {self.width}, heads {self.heads}: heads and the width of each must be powers of two"
            )
        strangers = {end for relation in self.relations for end in (relation.source, relation.target)} - {*self.nodes}
        if strangers:
            raise ValueError(f"relations end at kinds of nodes that are not listed: {', '.join(sorted(strangers))}")

    @property
    def branches(self) -> tuple[str, ...]:
        """Kinds of edges with embeddings, in packed order."""
        return tuple(dict.fromkeys(relation.kind for relation in self.relations if relation.branch))

    @property
    def branch_relations(self) -> tuple[int, ...]:
        """Relations that project embeddings of branches."""
        return tuple(k for k, relation in enumerate(self.relations) if relation.branch)
