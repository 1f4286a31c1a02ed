"""An invented town: streets in a grid, grown organically or along a road, with buildings on both sides.

It needs no data and is as large as the number of buildings asked for. Only uniform numbers and integers are drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.spatial import Delaunay, cKDTree

from mycelium.synth.geography import OWN_ATTRIBUTION, Buildings, Floats, Geography, Streets, subdivide


class Pattern(StrEnum):
    """How the streets of a town lie."""

    GRID = "grid"
    ORGANIC = "organic"
    RIBBON = "ribbon"


@dataclass(frozen=True, slots=True)
class TownPlan:
    """What a town is like.

    Attributes:
        pattern: How its streets lie.
        block_m: Distance between parallel streets (of a ribbon: between side streets).
        frontage_m: Street length that a plot takes, on one side.
        density: Share of plots with a building.
        business_share: Share of buildings that are businesses, in the middle of town and along main streets more.
    """

    pattern: Pattern
    block_m: float
    frontage_m: float
    density: float
    business_share: float

    @staticmethod
    def draw(rng: np.random.Generator) -> TownPlan:
        pattern = list(Pattern)[rng.integers(len(Pattern))]
        u = rng.random(4)
        frontage_m = 14 + 22 * u[1] ** 2 if pattern is not Pattern.RIBBON else 18 + 45 * u[1]
        return TownPlan(
            pattern,
            block_m=round(90 + 120 * u[0], 1),
            frontage_m=round(frontage_m, 1),
            density=round(0.55 + 0.43 * u[2], 3),
            business_share=round(0.03 + 0.17 * u[3] ** 2, 3),
        )


_SPARE = 1.5  # more plots than buildings, so that a feeder does not have to take every one
_SETBACK_M = (7.0, 16.0)
_PLOTS_FROM_CORNER_M = 1.5


def build_town(plan: TownPlan, n_buildings: int, rng: np.random.Generator) -> Geography:
    """A town with about that many buildings, or some more."""
    street_m = max(_SPARE * n_buildings * plan.frontage_m / (2 * plan.density), 3 * plan.block_m)
    layout = {Pattern.GRID: _grid, Pattern.ORGANIC: _organic, Pattern.RIBBON: _ribbon}[plan.pattern]
    streets = subdivide(_connected(layout(plan, street_m, rng)))
    return Geography(f"town-{plan.pattern}", streets, buildings_along(streets, plan, rng), OWN_ATTRIBUTION)


def with_buildings(place: Geography, plan: TownPlan, rng: np.random.Generator) -> Geography:
    """A place of which only the streets are known, with buildings put along them."""
    buildings = buildings_along(place.streets, plan, rng)
    return Geography(place.name, place.streets, buildings, place.attribution, place.origin_deg)


def buildings_along(streets: Streets, plan: TownPlan, rng: np.random.Generator) -> Buildings:
    """Buildings on both sides of every street."""
    room = np.maximum(streets.length_m - 2 * _PLOTS_FROM_CORNER_M, 0)
    whole, rest = np.divmod(room / plan.frontage_m, 1)
    plots = 2 * (whole + (rng.random(len(room)) < rest)).astype(np.int64)
    owner = np.repeat(np.arange(len(plots)), plots)
    rank = np.arange(len(owner)) - np.repeat(np.cumsum(plots) - plots, plots)
    side, place = np.where(rank % 2 == 0, 1.0, -1.0), rank // 2
    built = rng.random(len(owner)) < plan.density
    owner, side, place = owner[built], side[built], place[built]
    u = rng.random((5, len(owner)))
    start, end = streets.xy_m[streets.edge[owner, 0]], streets.xy_m[streets.edge[owner, 1]]
    along = (end - start) / np.maximum(streets.length_m[owner], 1e-9)[:, None]
    across = np.stack([-along[:, 1], along[:, 0]], axis=1) * side[:, None]
    forward_m = _PLOTS_FROM_CORNER_M + (place + 0.3 + 0.4 * u[0]) * plan.frontage_m
    back_m = _SETBACK_M[0] + (_SETBACK_M[1] - _SETBACK_M[0]) * u[1]
    xy = start + along * np.minimum(forward_m, streets.length_m[owner])[:, None] + across * back_m[:, None]
    business = u[2] < _business_chance(xy, plan)
    floor_m2 = np.where(business, 120 * 2 ** (5 * u[3]), 70 * 2 ** (2 * u[4]))
    return Buildings(np.round(xy, 2), np.round(floor_m2, 1), business)


def _business_chance(xy: Floats, plan: TownPlan) -> Floats:
    """Twice the share in the middle half of the town, none of it at its edge. [building]"""
    if not len(xy):
        return np.zeros(0)
    out = np.hypot(*(xy - xy.mean(axis=0)).T)
    rank = np.argsort(np.argsort(out, kind="stable"), kind="stable") / len(xy)
    return np.asarray(np.clip(2 * plan.business_share * (1.25 - 1.5 * rank), 0, 1), dtype=np.float64)


# ---- street patterns ---------------------------------------------------------------------------------------------


def _grid(plan: TownPlan, street_m: float, rng: np.random.Generator) -> Streets:
    """Blocks that are longer one way, some streets missing, the whole turned."""
    aspect = 1 + rng.random()
    block = np.array([plan.block_m, plan.block_m * aspect])
    # A cell has one edge of each direction.
    cells = max(street_m / block.sum() / 0.92, 1.0)
    n_x = max(round(np.sqrt(cells * (0.6 + 0.8 * rng.random()))), 1) + 1
    n_y = max(round(cells / n_x), 1) + 1
    i, j = np.meshgrid(np.arange(n_x), np.arange(n_y), indexing="ij")
    number = i * n_y + j
    xy = np.stack([i.ravel(), j.ravel()], axis=1) * block
    xy += 0.08 * plan.block_m * (rng.random(xy.shape) - 0.5)
    edge = np.concatenate(
        [
            np.stack([number[:-1].ravel(), number[1:].ravel()], axis=1),
            np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()], axis=1),
        ]
    )
    edge = edge[rng.random(len(edge)) < 0.92]
    return Streets(_turned(xy, rng), edge)


def _organic(plan: TownPlan, street_m: float, rng: np.random.Generator) -> Streets:
    """Crossings scattered over a disc, joined where no other crossing lies between (Gabriel graph), thinned."""
    # A Gabriel graph has about two edges a node, each about 0.8 of the mean distance; a third is left out again.
    n = max(round(street_m / (1.5 * 0.9 * plan.block_m)), 6)
    radius = plan.block_m * np.sqrt(n / np.pi)
    u = rng.random((2, n))
    angle, out = 2 * np.pi * u[0], radius * np.sqrt(u[1])
    xy = _apart(np.stack([out * np.cos(angle), out * np.sin(angle)], axis=1), 0.35 * plan.block_m)
    simplex = Delaunay(xy).simplices
    edge = np.unique(
        np.sort(np.concatenate([simplex[:, [0, 1]], simplex[:, [1, 2]], simplex[:, [0, 2]]]), axis=1), axis=0
    )
    middle = xy[edge].mean(axis=1)
    half = np.hypot(*(xy[edge[:, 0]] - xy[edge[:, 1]]).T) / 2
    nearest = cKDTree(xy).query(middle)[0]
    edge = edge[nearest >= half * (1 - 1e-9)]
    length = np.hypot(*(xy[edge[:, 0]] - xy[edge[:, 1]]).T)
    tree = minimum_spanning_tree(csr_array((length, (edge[:, 0], edge[:, 1])), shape=(len(xy), len(xy)))).tocoo()
    in_tree = set(zip(tree.row.tolist(), tree.col.tolist(), strict=True))
    keep = np.array([(a, b) in in_tree for a, b in edge.tolist()]) | (rng.random(len(edge)) < 0.55)
    return Streets(np.round(xy, 2), edge[keep].astype(np.int64))


def _ribbon(plan: TownPlan, street_m: float, rng: np.random.Generator) -> Streets:
    """A winding road with side streets of different lengths, some of them joined at their ends."""
    side_m = plan.block_m * (0.8 + 1.6 * rng.random())
    count = max(round(street_m / (plan.block_m + side_m)), 2)
    turn = 0.5 * (rng.random(count) - 0.5)
    heading = 2 * np.pi * rng.random() + np.cumsum(turn)
    step = plan.block_m * (0.6 + 0.8 * rng.random(count))
    road = np.concatenate(
        [np.zeros((1, 2)), np.cumsum(np.stack([np.cos(heading), np.sin(heading)], 1) * step[:, None], 0)]
    )
    side = np.where(rng.random(count) < 0.5, 1.0, -1.0)
    out = side_m * (0.3 + 1.4 * rng.random(count)) * side
    tip = road[1:] + np.stack([-np.sin(heading), np.cos(heading)], axis=1) * out[:, None]
    road_nodes, tips = np.arange(count + 1), count + 1 + np.arange(count)
    near = (side[1:] == side[:-1]) & (rng.random(count - 1) < 0.35)
    edge = np.concatenate(
        [
            np.stack([road_nodes[:-1], road_nodes[1:]], axis=1),
            np.stack([road_nodes[1:], tips], axis=1),
            np.stack([tips[:-1][near], tips[1:][near]], axis=1),
        ]
    )
    return Streets(np.round(np.concatenate([road, tip]), 2), edge)


def _apart(xy: Floats, least_m: float) -> Floats:
    """Points without those closer than this to an earlier one. [point, 2]"""
    drop = np.zeros(len(xy), bool)
    for a, b in sorted(cKDTree(xy).query_pairs(least_m)):
        if not drop[a]:
            drop[b] = True
    return xy[~drop]


def _turned(xy: Floats, rng: np.random.Generator) -> Floats:
    angle = np.pi * rng.random()
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return np.asarray(np.round((xy - xy.mean(axis=0)) @ turn.T, 2), dtype=np.float64)


def _connected(streets: Streets) -> Streets:
    """The largest connected part."""
    _, label = connected_components(streets.graph, directed=False)
    keep: npt.NDArray[np.bool_] = label == np.bincount(label).argmax()
    return streets.part(keep)
