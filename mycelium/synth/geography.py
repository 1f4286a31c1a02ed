"""Streets and buildings on a plane, and how they are read from Overture Maps files (GeoParquet).

A street node is a vertex of a segment; segments that share a vertex meet there, as Overture and OpenStreetMap mean it.
Coordinates are metres east and north of the middle of the place. Which file holds what is seen from its geometry:
lines are segments, polygons are buildings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from mycelium.errors import FeederError

if TYPE_CHECKING:
    import geopandas  # type: ignore[import-untyped]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

ATTRIBUTION = "© OpenStreetMap contributors, Overture Maps Foundation; ODbL 1.0"
OWN_ATTRIBUTION = "an invented town; no attribution is needed"

_METRES_PER_DEGREE = 111_320.0
_DIGITS = 7  # of degrees: a centimetre
SPACING_M = 45.0  # street nodes are at most this far apart: about the span between two poles

# No cable is laid along these.
_NO_CABLE = frozenset({"motorway", "motorway_link", "trunk_link", "steps", "track", "bridleway"})
# Nobody is a customer here.
_NO_CUSTOMER = frozenset(
    {
        *("garage", "garages", "carport", "shed", "hut", "roof", "farm_auxiliary", "greenhouse", "transformer_tower"),
        *("service", "storage_tank", "silo", "bunker", "ruins", "container", "static_caravan", "toilets"),
    }
)
_BUSINESS = frozenset(
    {
        *("commercial", "retail", "office", "industrial", "warehouse", "supermarket", "hotel", "hospital", "school"),
        *("university", "kindergarten", "civic", "public", "government", "church", "train_station", "sports_hall"),
        *("entertainment", "education", "medical", "service", "religious", "kiosk", "manufacture", "college"),
    }
)
_SMALLEST_M2 = 30.0
_BUSINESS_FROM_M2 = 700.0  # a building of unknown use and at least this area is a business
_DEFAULT_FLOORS = 1.5


@dataclass(frozen=True)
class Streets:
    """A street network.

    Attributes:
        xy_m: Position. [node, 2]
        edge: Nodes at both ends. [edge, 2]
    """

    xy_m: Floats
    edge: Ints

    @cached_property
    def length_m(self) -> Floats:
        """Of every edge. [edge]"""
        ends = self.xy_m[self.edge]
        return np.asarray(np.hypot(*(ends[:, 0] - ends[:, 1]).T), dtype=np.float64)

    @cached_property
    def graph(self) -> csr_array:
        """Lengths as a symmetric sparse matrix. [node, node]"""
        n = len(self.xy_m)
        a, b = self.edge.T
        length = np.maximum(self.length_m, 1e-3)  # a zero would be no edge
        return csr_array(
            (np.concatenate([length, length]), (np.concatenate([a, b]), np.concatenate([b, a]))), shape=(n, n)
        )

    def part(self, keep: Flags) -> Streets:
        """The streets between the nodes kept. [node]"""
        number = np.cumsum(keep) - 1
        inside = keep[self.edge].all(axis=1)
        return Streets(self.xy_m[keep], number[self.edge[inside]])


@dataclass(frozen=True)
class Buildings:
    """Where customers may be.

    Attributes:
        xy_m: Centre. [building, 2]
        floor_m2: Floor area, all floors. [building]
        business: Rather a business than a home. [building]
    """

    xy_m: Floats
    floor_m2: Floats
    business: Flags

    def part(self, which: Ints) -> Buildings:
        return Buildings(self.xy_m[which], self.floor_m2[which], self.business[which])


@dataclass(frozen=True)
class Geography:
    """A place: its streets and buildings, and whom to thank for them.

    Attributes:
        origin_deg: Longitude and latitude of (0, 0); None for an invented town.
    """

    name: str
    streets: Streets
    buildings: Buildings
    attribution: str
    origin_deg: tuple[float, float] | None = None


@dataclass(frozen=True)
class OvertureFile:
    """A table of one theme, in degrees."""

    path: Path
    table: geopandas.GeoDataFrame
    is_streets: bool

    @property
    def bounds_deg(self) -> tuple[float, float, float, float]:
        west, south, east, north = self.table.total_bounds
        return float(west), float(south), float(east), float(north)


def read_overture(paths: Sequence[Path]) -> list[Geography]:
    """Places in Overture files, one per file of segments, with the buildings of the files that overlap it.

    A place without buildings has none: ``town.with_buildings`` puts some along its streets.
    """
    files = [_read(path) for path in sorted(paths)]
    streets = [file for file in files if file.is_streets]
    if not streets:
        raise FeederError("--overture: none of the files holds street segments (lines); give one")
    buildings = [file for file in files if not file.is_streets]
    return [_place(file, [b for b in buildings if _overlap(file.bounds_deg, b.bounds_deg)]) for file in streets]


def _read(path: Path) -> OvertureFile:
    import geopandas

    if not path.is_file():
        raise FeederError(f"{path}: no such file; give Overture segments or buildings as GeoParquet")
    try:
        table = geopandas.read_parquet(path)
    except Exception as error:  # pyarrow, pyogrio and shapely each raise their own
        raise FeederError(f"{path}: expected GeoParquet of Overture segments or buildings: {error}") from error
    table = table[table.geometry.notna() & ~table.geometry.is_empty]
    if not len(table):
        raise FeederError(f"{path}: holds no geometry")
    if table.crs is not None and not table.crs.is_geographic:
        table = table.to_crs("OGC:CRS84")
    kinds = set(table.geom_type)
    if kinds <= {"LineString", "MultiLineString"}:
        return OvertureFile(path, table, True)
    if kinds <= {"Polygon", "MultiPolygon"}:
        return OvertureFile(path, table, False)
    raise FeederError(f"{path}: expected lines (segments) or polygons (buildings), found {', '.join(sorted(kinds))}")


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _place(file: OvertureFile, building_files: list[OvertureFile]) -> Geography:
    west, south, east, north = file.bounds_deg
    origin = round((west + east) / 2, 6), round((south + north) / 2, 6)
    streets = _streets(file.table, origin)
    if not len(streets.edge):
        raise FeederError(f"{file.path}: no segment of a class that a cable may follow")
    parts = [_buildings(b.table, origin) for b in building_files]
    buildings = Buildings(
        np.concatenate([np.zeros((0, 2)), *(part.xy_m for part in parts)]),
        np.concatenate([np.zeros(0), *(part.floor_m2 for part in parts)]),
        np.concatenate([np.zeros(0, bool), *(part.business for part in parts)]),
    )
    name = file.path.stem.removesuffix("_segments")
    return Geography(name, streets, buildings, ATTRIBUTION, origin)


def _plane(lon_lat_deg: Floats, origin_deg: tuple[float, float]) -> Floats:
    """Metres east and north of the origin: exact enough for a town (0.1 %). [point, 2]"""
    scale = _METRES_PER_DEGREE * np.array([np.cos(np.radians(origin_deg[1])), 1.0])
    return np.asarray(np.round((lon_lat_deg - np.array(origin_deg)) * scale, 2), dtype=np.float64)


def _streets(table: geopandas.GeoDataFrame, origin_deg: tuple[float, float]) -> Streets:
    import shapely  # type: ignore[import-untyped]

    usable = np.ones(len(table), bool)
    if "subtype" in table:
        usable &= table["subtype"].isin(["road"]).to_numpy() | table["subtype"].isna().to_numpy()
    if "class" in table:
        usable &= ~table["class"].isin(list(_NO_CABLE)).to_numpy()
    lines = shapely.get_parts(table.geometry.to_numpy()[usable])
    points, line = shapely.get_coordinates(lines, return_index=True)
    vertices, node = np.unique(np.round(points, _DIGITS), axis=0, return_inverse=True)
    node = node.reshape(-1)
    same = line[1:] == line[:-1]
    edge = np.stack([node[:-1][same], node[1:][same]], axis=1)
    edge = np.unique(np.sort(edge[edge[:, 0] != edge[:, 1]], axis=1), axis=0)
    return subdivide(Streets(_plane(vertices, origin_deg), edge.astype(np.int64)))


def _buildings(table: geopandas.GeoDataFrame, origin_deg: tuple[float, float]) -> Buildings:
    import shapely

    use = _column(table, "class").where(_column(table, "class").notna(), _column(table, "subtype"))
    shapes = shapely.transform(table.geometry.to_numpy(), lambda xy: _plane(xy, origin_deg))
    area = shapely.area(shapes)
    floors = _column(table, "num_floors").astype(float).fillna(_DEFAULT_FLOORS).clip(1, 12).to_numpy()
    business = use.isin(list(_BUSINESS)).to_numpy() | (use.isna().to_numpy() & (area >= _BUSINESS_FROM_M2))
    served = ~use.isin(list(_NO_CUSTOMER)).to_numpy() & (area >= _SMALLEST_M2)
    centre = shapely.get_coordinates(shapely.centroid(shapes))
    return Buildings(np.round(centre, 2), np.round(area * floors, 1), business).part(np.flatnonzero(served))


def _column(table: geopandas.GeoDataFrame, name: str) -> Any:
    import pandas as pd

    values = table[name] if name in table else pd.Series([None] * len(table), index=table.index)
    return values.astype(object).where(values.notna(), None)


def subdivide(streets: Streets, spacing_m: float = SPACING_M) -> Streets:
    """The same streets with nodes at most this far apart."""
    pieces = np.maximum(np.ceil(streets.length_m / spacing_m), 1).astype(np.int64)
    extra = pieces - 1
    owner = np.repeat(np.arange(len(pieces)), extra)
    rank = np.arange(len(owner)) - np.repeat(np.cumsum(extra) - extra, extra) + 1
    share = (rank / pieces[owner])[:, None]
    a, b = streets.xy_m[streets.edge[owner, 0]], streets.xy_m[streets.edge[owner, 1]]
    inner = np.round(a + (b - a) * share, 2)
    first_inner = len(streets.xy_m) + np.cumsum(extra) - extra
    edge_of = np.repeat(np.arange(len(pieces)), pieces)
    step = np.arange(len(edge_of)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    start = np.where(step == 0, streets.edge[edge_of, 0], first_inner[edge_of] + step - 1)
    end = np.where(step == pieces[edge_of] - 1, streets.edge[edge_of, 1], first_inner[edge_of] + step)
    return Streets(np.concatenate([streets.xy_m, inner]), np.stack([start, end], axis=1))
