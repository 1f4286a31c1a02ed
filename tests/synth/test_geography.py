"""Streets and buildings from Overture files: noding, classes, coordinates, and what is said about wrong files."""

from __future__ import annotations

from pathlib import Path

import geopandas
import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components
from shapely import LineString, Polygon

from mycelium.errors import FeederError
from mycelium.synth.geography import SPACING_M, Streets, read_overture, subdivide
from mycelium.synth.town import Pattern, TownPlan, build_town, with_buildings
from tests.conftest import SHARED, require_shared

DEGREE_M = 111_320.0


def write_segments(path: Path, crs: str = "EPSG:4326") -> Path:
    """A cross whose arms meet in a shared vertex, and a motorway over it that shares none."""
    lines = [
        LineString([(10.0, 0.0), (10.001, 0.0), (10.002, 0.0)]),
        LineString([(10.001, 0.0), (10.001, 0.001)]),
        LineString([(10.0, 0.0005), (10.002, 0.0005)]),
    ]
    frame = geopandas.GeoDataFrame(
        {"subtype": "road", "class": ["residential", "residential", "motorway"]}, geometry=lines, crs="EPSG:4326"
    )
    frame.to_crs(crs).to_parquet(path)
    return path


def write_buildings(path: Path) -> Path:
    """A house, a garage and a supermarket of known sizes."""

    def square(x: float, y: float, side_m: float) -> Polygon:
        d = side_m / DEGREE_M
        return Polygon([(x, y), (x + d, y), (x + d, y + d), (x, y + d)])

    shapes = [square(10.0005, 0.0001, 10), square(10.0006, 0.0001, 6), square(10.0015, 0.0001, 40)]
    geopandas.GeoDataFrame(
        {"class": ["house", "garage", "supermarket"], "subtype": None, "num_floors": [2.0, None, 1.0]},
        geometry=shapes, crs="EPSG:4326",
    ).to_parquet(path)  # fmt: skip
    return path


def test_segments_meet_where_they_share_a_vertex(tmp_path: Path) -> None:
    (place,) = read_overture([write_segments(tmp_path / "x_segments.parquet")])
    n, _ = connected_components(place.streets.graph, directed=False)
    assert n == 1
    degree = np.bincount(place.streets.edge.ravel())
    assert np.sum(degree == 3) == 1 and np.sum(degree == 1) == 3
    # The motorway is not there: two arms of 0.001 degrees and one more.
    assert place.streets.length_m.sum() == pytest.approx(3 * 0.001 * DEGREE_M, rel=1e-3)


def test_projected_files_give_the_same_plane(tmp_path: Path) -> None:
    (degrees,) = read_overture([write_segments(tmp_path / "a.parquet")])
    (metres,) = read_overture([write_segments(tmp_path / "b.parquet", "EPSG:3857")])
    assert np.allclose(degrees.streets.xy_m, metres.streets.xy_m, atol=0.05)


def test_customers_are_no_garages_and_know_their_floors(tmp_path: Path) -> None:
    paths = [write_segments(tmp_path / "x.parquet"), write_buildings(tmp_path / "y.parquet")]
    (place,) = read_overture(paths)
    assert place.buildings.business.tolist() == [False, True]
    assert place.buildings.floor_m2 == pytest.approx([200, 1600], rel=0.01)
    assert "OpenStreetMap" in place.attribution


def test_no_two_nodes_are_too_far_apart() -> None:
    streets = subdivide(Streets(np.array([[0.0, 0.0], [400.0, 0.0], [400.0, 20.0]]), np.array([[0, 1], [1, 2]])))
    assert streets.length_m.max() <= SPACING_M + 0.01
    assert streets.length_m.sum() == pytest.approx(420, abs=0.1)
    assert connected_components(streets.graph, directed=False)[0] == 1


@pytest.mark.parametrize("content", ["points", "text", "nothing"])
def test_a_wrong_file_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "wrong.parquet"
    if content == "points":
        geopandas.GeoDataFrame(geometry=geopandas.points_from_xy([0.0], [0.0]), crs="EPSG:4326").to_parquet(path)
    elif content == "text":
        path.write_text("no parquet")
    with pytest.raises(FeederError, match=r"wrong\.parquet"):
        read_overture([path])


def test_buildings_alone_are_no_geography(tmp_path: Path) -> None:
    with pytest.raises(FeederError, match="street segments"):
        read_overture([write_buildings(tmp_path / "y.parquet")])


def test_real_extracts(tmp_path: Path) -> None:
    require_shared(SHARED)
    folder = SHARED / "geography"
    names = ("witten_stockum", "fuerweiler")
    paths = [folder / f"{name}_{kind}.parquet" for name in names for kind in ("buildings", "segments")]
    places = {place.name: place for place in read_overture([*paths, folder / "liege_segments.parquet"])}
    assert 1000 < len(places["witten_stockum"].buildings.xy_m) < 2512  # garages and sheds are left out
    assert len(places["fuerweiler"].buildings.xy_m) > 100
    assert not len(places["liege"].buildings.xy_m)
    plan = TownPlan(Pattern.GRID, 100, 20, 0.8, 0.1)
    filled = with_buildings(places["liege"], plan, np.random.default_rng(0))
    assert len(filled.buildings.xy_m) > 5000 and filled.attribution == places["liege"].attribution


# ---- invented towns ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", list(Pattern))
@pytest.mark.parametrize("wanted", [5, 400])
def test_a_town_is_connected_and_large_enough(pattern: Pattern, wanted: int) -> None:
    town = build_town(TownPlan(pattern, 120, 22, 0.8, 0.1), wanted, np.random.default_rng(1))
    assert connected_components(town.streets.graph, directed=False)[0] == 1
    assert len(town.buildings.xy_m) >= 0.6 * wanted
    assert town.streets.length_m.min() > 0


def loops_per_node(pattern: Pattern) -> float:
    town = build_town(TownPlan(pattern, 120, 22, 0.8, 0.1), 800, np.random.default_rng(2))
    degree = np.bincount(town.streets.edge.ravel())
    return (len(town.streets.edge) - len(town.streets.xy_m) + 1) / np.sum(degree != 2)


def test_a_ribbon_has_fewer_loops_than_a_grid() -> None:
    assert loops_per_node(Pattern.RIBBON) < 0.5 * loops_per_node(Pattern.ORGANIC) < loops_per_node(Pattern.GRID)


def test_density_and_mixed_use() -> None:
    def town(density: float, share: float) -> tuple[int, float]:
        buildings = build_town(
            TownPlan(Pattern.GRID, 120, 22, density, share), 600, np.random.default_rng(3)
        ).buildings  # fmt: skip
        return len(buildings.xy_m), float(buildings.business.mean())

    dense = build_town(TownPlan(Pattern.GRID, 120, 22, 0.9, 0.1), 600, np.random.default_rng(3))
    sparse = build_town(TownPlan(Pattern.GRID, 120, 22, 0.45, 0.1), 600, np.random.default_rng(3))
    per_km = [len(t.buildings.xy_m) / t.streets.length_m.sum() for t in (dense, sparse)]
    assert per_km[0] == pytest.approx(2 * per_km[1], rel=0.15)
    assert town(0.8, 0.2)[1] == pytest.approx(4 * town(0.8, 0.05)[1], rel=0.4)


def test_businesses_are_in_the_middle() -> None:
    buildings = build_town(TownPlan(Pattern.ORGANIC, 120, 22, 0.8, 0.15), 800, np.random.default_rng(4)).buildings
    out = np.hypot(*(buildings.xy_m - buildings.xy_m.mean(axis=0)).T)
    assert out[buildings.business].mean() < 0.8 * out[~buildings.business].mean()
