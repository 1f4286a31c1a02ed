"""Days of demand and generation: physics, determinism, and every way in which a file can be wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

from mycelium.errors import FeederError
from mycelium.simulate.builtin_profiles import ROUND_TRIP_EFFICIENCY, BuiltinProfiles
from mycelium.simulate.builtin_residential import appliance_table
from mycelium.simulate.builtin_solar import AZIMUTHS_DEG, DAY_STEP, LATITUDES_DEG, TILTS_DEG, clear_sky
from mycelium.simulate.profile_files import DemandFiles, FileProfiles
from mycelium.simulate.profile_own import OwnProfiles
from mycelium.simulate.profiles import (
    NO_SHAPE,
    SEASONS,
    CalendarDay,
    CustomerClass,
    DayProfile,
    DayRequest,
)
from tests.conftest import SHARED, require_shared

Array = npt.NDArray[Any]
YEAR_H = 8760
PROFILES = SHARED / "profiles"
WINTER_MONDAY, SUMMER_MONDAY, SUMMER_SUNDAY = CalendarDay(20, 0), CalendarDay(200, 0), CalendarDay(200, 6)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def ask(
    load_class: Sequence[int] | Array,
    own: list[int] | None = None,
    own_pv: list[int] | None = None,
    devices: tuple[int, int, int] = (0, 0, 0),
) -> DayRequest:
    """A request for these loads and numbers of PV sites, storage and generators."""
    classes = np.asarray(load_class, np.int8)
    own_shape = np.full(len(classes), NO_SHAPE, np.int32) if own is None else np.asarray(own, np.int32)
    own_pv_shape = None if own_pv is None else np.asarray(own_pv, np.int32)
    return DayRequest(len(classes), classes, own_shape, *devices, own_pv_shape)


def many(kind: CustomerClass, date: CalendarDay, seeds: int = 40, n: int = 50) -> npt.NDArray[np.float64]:
    """Active multipliers of customers in many weathers, [hour, customer]."""
    days = [BuiltinProfiles().day(ask([kind] * n), generator(s), date).p_mult for s in range(seeds)]
    return np.concatenate(days, axis=1)


def as_bytes(day: DayProfile) -> bytes:
    arrays = (day.p_mult, day.q_mult, day.pv_mult, day.storage_mult, day.generator_mult)
    return repr((day.day_of_year, day.season)).encode() + b"".join(array.tobytes() for array in arrays)


def test_seasons_change_on_the_first_of_march_june_september_and_december() -> None:
    of_day = [CalendarDay(day, 0).season for day in range(1, 366)]
    changes = [day for day in range(2, 366) if of_day[day - 1] != of_day[day - 2]]
    assert changes == [60, 152, 244, 335]
    assert [of_day[day - 1] for day in (1, *changes)] == ["winter", "spring", "summer", "autumn", "winter"]


def test_every_season_and_weekday_is_drawn() -> None:
    rng = generator()
    dates = [CalendarDay.draw(rng) for _ in range(2000)]
    for season in SEASONS:
        assert 0.2 < np.mean([date.season == season for date in dates]) < 0.3
    assert {date.weekday for date in dates} == set(range(7))
    assert {date.day_of_year for date in dates} > {1, 365}


def test_days_outside_the_year_and_lopsided_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="365"):
        CalendarDay(366, 0)
    with pytest.raises(ValueError, match="each of 3 loads"):
        DayRequest(3, np.zeros(3, np.int8), np.zeros(2, np.int32))
    with pytest.raises(ValueError, match="each of 2 PV sites"):
        DayRequest(0, np.zeros(0, np.int8), np.zeros(0, np.int32), 2, own_pv_shape=np.zeros(1, np.int32))
    with pytest.raises(ValueError, match="codes"):
        ask([3])


@pytest.mark.parametrize("counts", [(0, 0, 0, 0), (1, 1, 1, 1), (300, 40, 10, 5)])
def test_builtin_days_have_the_shapes_asked_for_and_stay_in_range(counts: tuple[int, int, int, int]) -> None:
    n, *devices = counts
    request = ask(np.arange(n) % 3, devices=counts[1:])
    for seed in range(20):
        day = BuiltinProfiles().day(request, generator(seed))
        assert day.p_mult.shape == day.q_mult.shape == (24, n)
        found = [array.shape for array in (day.pv_mult, day.storage_mult, day.generator_mult)]
        assert found == [(24, count) for count in devices]
        assert day.season == CalendarDay(day.day_of_year, 0).season
        for array in (day.p_mult, day.q_mult, day.pv_mult, day.generator_mult, day.storage_mult):
            assert array.dtype == np.float64
            assert array.flags.c_contiguous
            assert np.isfinite(array).all()
        assert (np.abs(day.storage_mult) <= 1).all()
        positive = np.concatenate([day.p_mult, day.q_mult, day.pv_mult, day.generator_mult], axis=1)
        assert (positive >= 0).all()
        assert (day.p_mult > 0).all()
        assert max(array.max(initial=0) for array in (day.p_mult, day.pv_mult, day.generator_mult)) <= 1


def test_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    request = ask(np.arange(60) % 3, devices=(5, 3, 2))
    source = BuiltinProfiles()
    first = as_bytes(source.day(request, generator(7)))
    for again in (source, BuiltinProfiles()):
        assert as_bytes(again.day(request, generator(7))) == first
    assert as_bytes(source.day(request, generator(8))) != first


class ExactOnly:
    """A generator without the distributions that go through the C library."""

    def __init__(self, bits: np.random.PCG64) -> None:
        rng = np.random.default_rng(bits)
        self.integers, self.random = rng.integers, rng.random


def test_only_draws_that_are_exact_on_every_machine_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    request = ask(np.arange(30) % 3, devices=(4, 3, 2))
    expected, table = BuiltinProfiles().day(request, generator(3)), appliance_table()
    monkeypatch.setattr(np.random, "Generator", ExactOnly)
    assert as_bytes(BuiltinProfiles().day(request, generator(3))) == as_bytes(expected)
    assert appliance_table.__wrapped__().kw.tobytes() == table.kw.tobytes()


def coincidence(p: npt.NDArray[np.floating], size: int) -> float:
    """Mean over groups of the group's peak over the sum of its members' peaks; `p` is [hour, customer]."""
    groups = [p[:, i : i + size] for i in range(0, p.shape[1] - size + 1, size)]
    return float(np.mean([group.sum(axis=1).max() / group.max(axis=0).sum() for group in groups]))


def test_a_year_of_homes_has_the_load_factor_and_coincidence_of_real_ones() -> None:
    years = [BuiltinProfiles().annual(np.zeros(90, np.int8), generator(seed))[0] for seed in range(3)]
    peaks = np.concatenate([year.max(axis=0) for year in years])
    assert 0.85 < np.median(peaks) <= 1
    assert peaks.min() > 0.55
    load_factor = np.concatenate([year.mean(axis=0) / year.max(axis=0) for year in years])
    assert 0.15 < np.median(load_factor) < 0.30
    assert 0.08 < load_factor.min() < load_factor.max() < 0.45
    of_size = {size: np.mean([coincidence(year, size) for year in years]) for size in (1, 3, 10, 30, 90)}
    assert of_size[1] == pytest.approx(1)
    assert list(of_size.values()) == sorted(of_size.values(), reverse=True)
    assert 0.4 < of_size[30] < 0.6
    assert len(np.unique(years[0][:24], axis=1).T) == 90  # no two homes are alike


def test_homes_peak_in_the_evening_and_rise_in_the_morning() -> None:
    for date in (WINTER_MONDAY, SUMMER_MONDAY):
        mean = many(CustomerClass.RESIDENTIAL, date).mean(axis=1)
        assert 17 <= np.argmax(mean) <= 21
        assert mean[6:9].max() > 1.2 * mean[2:5].mean()


def test_weekends_keep_people_at_home_and_close_businesses() -> None:
    midday = slice(10, 16)
    homes, shops, plants = (
        [many(kind, date)[midday].mean() for date in (SUMMER_MONDAY, SUMMER_SUNDAY)] for kind in CustomerClass
    )
    assert homes[1] > homes[0]
    assert shops[1] < 0.8 * shops[0]
    assert plants[1] < 0.6 * plants[0]


def test_businesses_run_on_plateaus_that_end_at_night() -> None:
    mean = many(CustomerClass.COMMERCIAL, SUMMER_MONDAY).mean(axis=1)
    assert mean[10:17].min() > 0.85 * mean.max()
    assert mean[1:5].max() < 0.6 * mean.max()


def test_weather_moves_homes_heat_by_night_in_winter_and_cool_by_day_in_summer() -> None:
    dates = (WINTER_MONDAY, CalendarDay(120, 0), SUMMER_MONDAY)
    winter, spring, summer = (many(CustomerClass.RESIDENTIAL, date).mean(axis=1) for date in dates)
    assert winter[1:5].mean() > 1.3 * spring[1:5].mean()
    assert summer[13:17].mean() > 1.3 * spring[13:17].mean()


@pytest.mark.parametrize(("code", "nominal", "lowest"), [(0, 0.95, 0.88), (1, 0.92, 0.82), (2, 0.88, 0.75)])
def test_power_factors_are_plausible_and_drift(code: int, nominal: float, lowest: float) -> None:
    tan = np.sqrt(1 / nominal**2 - 1)
    for date in (WINTER_MONDAY, SUMMER_MONDAY):
        day = BuiltinProfiles().day(ask([code] * 300), generator(), date)
        ratio = day.q_mult / day.p_mult
        power_factor = 1 / np.sqrt(1 + (tan * ratio) ** 2)
        assert (power_factor > lowest).all()
        assert abs(np.median(power_factor) - nominal) < 0.03
        by_hour = ratio.mean(axis=1)
        evening_over_night = by_hour[18:21].mean() / by_hour[2:5].mean()
        assert evening_over_night < 0.95 if code == CustomerClass.RESIDENTIAL else evening_over_night > 1.01


def test_clear_sky_is_dark_at_night_and_follows_the_seasons_and_the_azimuth() -> None:
    south, east, west = AZIMUTHS_DEG.index(180), AZIMUTHS_DEG.index(90), AZIMUTHS_DEG.index(270)
    tilt = TILTS_DEG.index(25)
    sky = clear_sky(45)
    june, december = sky[:, :, 171 // DAY_STEP], sky[:, :, 350 // DAY_STEP]
    assert sky.min() == 0
    assert sky.max() <= 1
    assert (june[..., [0, 1, 2, 21, 22, 23]] == 0).all()  # at 45 degrees the longest day runs from 4:15 to 19:45
    assert (december[..., [*range(7), *range(17, 24)]] == 0).all()
    assert (june.sum(axis=-1) > december.sum(axis=-1)).all()
    assert june[tilt, south].sum() > 1.8 * december[tilt, south].sum()
    assert np.argmax(june[tilt, south]) in (11, 12)
    assert np.argmax(june[tilt, east]) < 11 < 12 < np.argmax(june[tilt, west])
    assert 0.75 < june[tilt, south].max() < 0.98


def test_days_are_longer_in_summer_the_farther_north() -> None:
    lit = [int((clear_sky(latitude)[0, 0, 171 // DAY_STEP] > 0).sum()) for latitude in LATITUDES_DEG]
    assert lit[0] < lit[-1]
    assert lit == sorted(lit)


def test_sites_share_the_clouds_of_the_day() -> None:
    source, request = BuiltinProfiles(), ask([], devices=(60, 0, 0))
    energy = np.array([source.day(request, generator(i), SUMMER_MONDAY).pv_mult.sum(axis=0) for i in range(80)])
    daily = energy.mean(axis=1)
    assert daily.min() < 0.4 * daily.max()  # overcast and clear days both come
    within = (energy / daily[:, None]).std()
    assert 0 < within < 0.5 * daily.std() / daily.mean()


def test_storage_charges_by_day_and_gives_back_what_losses_leave() -> None:
    storage = BuiltinProfiles().day(ask([], devices=(0, 500, 0)), generator()).storage_mult
    charged, discharged = -storage.clip(max=0).sum(axis=0), storage.clip(min=0).sum(axis=0)
    np.testing.assert_allclose(discharged, ROUND_TRIP_EFFICIENCY * charged, rtol=1e-12)
    assert charged.min() > 0.5
    assert (storage[8:17] <= 0).all()
    assert (storage[17:] >= 0).all()
    assert len(np.unique(storage.argmin(axis=0))) > 3


def own(p: list[Array], hours: list[float], q: list[Array | None] | None = None) -> OwnProfiles:
    return OwnProfiles(p, [None] * len(p) if q is None else q, hours, BuiltinProfiles())


def own_day(shape: Array, hours: float, day_of_year: int = 1) -> npt.NDArray[np.float64]:
    return own([shape], [hours]).day(ask([0], [0]), generator(), CalendarDay(day_of_year, 0)).p_mult[:, 0]


def test_quarter_hours_are_averaged_to_hours() -> None:
    quarters = np.zeros(96)
    quarters[:8] = [1, 2, 3, 4, 0.5, 0.5, 0.25, 0.75]
    expected = np.zeros(24)
    expected[:2] = 2.5, 0.5
    np.testing.assert_array_equal(own_day(quarters, 0.25), expected)


@pytest.mark.parametrize("per_hour", [1, 4])
@pytest.mark.parametrize(("year", "day_of_year", "row"), [(365, 60, 59), (366, 59, 58), (366, 60, 60), (366, 365, 365)])
def test_a_year_is_read_by_date_without_29_february(per_hour: int, year: int, day_of_year: int, row: int) -> None:
    hours = np.arange(year * 24)
    day = own_day(np.repeat(hours, per_hour), 1 / per_hour, day_of_year)
    np.testing.assert_array_equal(day, row * 24 + np.arange(24))


def test_short_shapes_repeat_and_long_steps_are_held() -> None:
    np.testing.assert_array_equal(own_day(np.array([0.7]), 1), np.full(24, 0.7))
    np.testing.assert_array_equal(own_day(np.arange(10), 1), np.arange(24) % 10)
    np.testing.assert_allclose(own_day(np.arange(12), 2), np.arange(24) // 2, atol=1e-12)
    np.testing.assert_allclose(own_day(np.array([1.0, 2.0]), 0.4)[:3], [1.4, 1.4, 1.6])
    np.testing.assert_array_equal(own_day(np.arange(7 * 24), 1, day_of_year=10), 2 * 24 + np.arange(24))
    np.testing.assert_array_equal(own_day(np.arange(8739), 1, day_of_year=365), np.arange(24))  # 364 whole days
    one_minute = np.repeat(np.arange(24), 60)
    np.testing.assert_allclose(own_day(one_minute, 0.01667), np.arange(24))


def test_own_shapes_of_different_lengths_share_a_date_and_the_rest_falls_back() -> None:
    year, day = np.arange(YEAR_H) / YEAR_H, np.linspace(0, 1, 24)
    source = own([year, day], [1, 1], q=[None, day**2])
    drawn = source.day(ask([0, 1, 2, 0], own=[1, -1, 0, 0], own_pv=[-1, 0], devices=(2, 2, 0)), generator(5))
    of_year = year[(drawn.day_of_year - 1) * 24 :][:24]
    np.testing.assert_array_equal(drawn.p_mult[:, 0], day)
    np.testing.assert_array_equal(drawn.q_mult[:, 0], day**2)
    for column in (drawn.p_mult[:, 2], drawn.p_mult[:, 3], drawn.q_mult[:, 2], drawn.pv_mult[:, 1]):
        np.testing.assert_array_equal(column, of_year)
    assert (drawn.p_mult[:, 1] > 0).all()
    assert drawn.pv_mult[12, 0] > 0
    assert drawn.pv_mult[0, 0] == 0
    assert drawn.storage_mult.shape == (24, 2)
    dates = {source.day(ask([0], [0]), generator(seed)).day_of_year for seed in range(20)}
    assert len(dates) > 10


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: own([np.array([])], [1]), "p shape 0: expected one value per step"),
        (
            lambda: own([np.ones(24), np.array([1, np.nan])], [1, 1]),
            "p shape 1: expected finite.*nan at step 1",
        ),
        (lambda: own([np.ones(24)], [1], q=[np.array([np.inf])]), "q shape 0: expected finite"),
        (lambda: own([np.ones(24)], [0]), "positive number of hours per step, found 0"),
        (lambda: own([np.ones(24)], [1, 1]), "differ in number"),
        (lambda: own([np.ones(24)], [1]).day(ask([0], [1]), generator()), "own shape 1 is asked for"),
    ],
)
def test_unusable_own_shapes_are_refused(make: Callable[[], object], says: str) -> None:
    with pytest.raises(FeederError, match=says):
        make()


def write(path: Path, columns: dict[str, Array]) -> Path:
    if path.suffix == ".npz":
        np.savez(path, names=np.array(list(columns)), x=np.stack(list(columns.values())).astype(np.float32))
    elif path.suffix == ".csv":
        pd.DataFrame(columns).to_csv(path, index=False)
    else:
        pd.DataFrame(columns).to_parquet(path)
    return path


def by_date(profile: int, days: int = 365) -> Array:
    """A year whose values say which profile and date they come from; its peak is in its last hour."""
    return 100_000.0 * profile + np.arange(days * 24) + 1


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])
def test_every_format_gives_the_same_day_at_its_date(tmp_path: Path, suffix: str) -> None:
    rising, falling = by_date(0), by_date(0)[::-1]
    p = write(tmp_path / f"p{suffix}", {"res_kw_7_pu": rising, "res_kw_9_pu": 3 * falling})
    q = write(tmp_path / f"q{suffix}", {"res_kvar_9_pu": falling, "res_kvar_7_pu": 2 * rising})
    files = DemandFiles(p, q)
    day = FileProfiles(BuiltinProfiles(), files).day(ask([0] * 40), generator(), CalendarDay(100, 0))
    first = day.p_mult[0] < day.p_mult[1]
    assert 0 < first.sum() < 40
    for year, columns in ((rising, first), (falling, ~first)):  # paired by number, not by place
        expected = np.tile(year[99 * 24 : 100 * 24, None] / YEAR_H, columns.sum())
        np.testing.assert_allclose(day.p_mult[:, columns], expected, rtol=1e-6)
        np.testing.assert_allclose(day.q_mult[:, columns], expected, rtol=1e-6)


@pytest.mark.parametrize(("days", "row"), [(365, 59), (366, 60)])
@pytest.mark.parametrize("per_hour", [1, 4])
def test_quarter_hours_and_leap_years_are_read(tmp_path: Path, days: int, row: int, per_hour: int) -> None:
    year = np.repeat(by_date(0, days), per_hour)
    source = FileProfiles(BuiltinProfiles(), commercial=DemandFiles(write(tmp_path / "p.npz", {"a": year})))
    day = source.day(ask([1, 2]), generator(), CalendarDay(60, 0))  # 1 March
    expected = (row * 24 + np.arange(24) + 1) / (days * 24)
    np.testing.assert_allclose(day.p_mult, np.stack([expected, expected], axis=1), rtol=1e-6)
    np.testing.assert_array_equal(day.q_mult, day.p_mult)


def test_classes_take_their_own_files_and_the_rest_the_other_source(tmp_path: Path) -> None:
    years = np.where(np.arange(YEAR_H) == 0, 1, np.linspace(0.2, 0.7, 40)[:, None])
    shop = DemandFiles(write(tmp_path / "shop.npz", {str(i): years[i] for i in range(20)}))
    home = DemandFiles(write(tmp_path / "home.npz", {str(i): years[i] for i in range(20, 40)}))
    pv = write(tmp_path / "pv.npz", {"x": np.tile(np.r_[np.zeros(8), np.full(8, 1.1), np.zeros(8)], 365)})
    request = ask(np.arange(300) % 3, devices=(3, 2, 1))
    source, date = FileProfiles(BuiltinProfiles(), home, shop, [pv]), CalendarDay(90, 0)
    day = source.day(request, generator(), date)
    assert as_bytes(day) == as_bytes(source.day(request, generator(), date))
    is_home = np.arange(300) % 3 == 0
    assert (day.p_mult[:, is_home] > 0.45).all()
    assert (day.p_mult[:, ~is_home] < 0.45).all()
    assert len(np.unique(day.p_mult[0, is_home])) == 20
    assert len(np.unique(day.p_mult[0, ~is_home])) == 20
    assert day.pv_mult[12] == pytest.approx(1.1)
    rest = FileProfiles(BuiltinProfiles(), commercial=shop).day(request, generator(), date)
    assert np.ptp(rest.p_mult[:, is_home], axis=0).min() > 0
    assert (rest.p_mult[:, ~is_home] < 0.45).all()
    assert rest.pv_mult.max() <= 1
    assert rest.storage_mult.shape == (24, 2)


def test_a_year_of_file_profiles_peaks_at_one(tmp_path: Path) -> None:
    path = write(tmp_path / "p.npz", {"a": by_date(0), "b": by_date(3)})
    source = FileProfiles(BuiltinProfiles(), residential=DemandFiles(path))
    p, q = source.annual(np.zeros(20, np.int8), generator())
    assert p.shape == q.shape == (YEAR_H, 20)
    np.testing.assert_allclose(p.max(axis=0), 1, rtol=1e-6)
    with pytest.raises(FeederError, match="commercial"):
        source.annual(np.ones(1, np.int8), generator())


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])
@pytest.mark.parametrize(
    ("value", "says"),
    [
        (np.nan, r".*found nan at step 30"),
        (np.inf, r".*found inf at step 30"),
        (-0.1, r"expected active demand of at least 0.*-0.1.* at step 30"),
        (0.0, r"expected an annual peak above 0"),
    ],
)
def test_bad_values_are_refused_with_file_column_and_step(tmp_path: Path, suffix: str, value: float, says: str) -> None:
    year = np.zeros(YEAR_H)
    year[30] = value
    path = write(tmp_path / f"demand{suffix}", {"good": np.ones(YEAR_H), "bad": year})
    with pytest.raises(FeederError, match=rf"demand\{suffix}: column 'bad': {says}"):
        FileProfiles(BuiltinProfiles(), residential=DemandFiles(path))


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])
def test_what_is_no_year_is_refused(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"demand{suffix}", {"a": np.ones(8759)})
    with pytest.raises(FeederError, match=r"demand\..*: expected one year \(8760, 35040.*found 8759 steps"):
        FileProfiles(BuiltinProfiles(), residential=DemandFiles(path))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_text_is_refused_with_its_column(tmp_path: Path, suffix: str) -> None:
    text = np.array(["1.0"] * 30 + ["off"] + ["1.0"] * (YEAR_H - 31))
    path = write(tmp_path / f"demand{suffix}", {"time": text})
    with pytest.raises(FeederError, match=rf"demand\{suffix}: column 'time': .*found 'off' at step 30"):
        FileProfiles(BuiltinProfiles(), residential=DemandFiles(path))


def test_pv_must_be_per_unit_and_never_negative_even_for_a_quarter_hour(tmp_path: Path) -> None:
    quarter = np.full(4 * YEAR_H, 0.5)
    quarter[50] = -0.01
    for year, says in ((quarter, "-0.0.* at step 50"), (np.full(YEAR_H, 3.5), "found 3.5 at step 0")):
        path = write(tmp_path / "pv.npz", {"site": year})
        with pytest.raises(FeederError, match=rf"column 'site': expected output of 0 to 1.5 .*{says}"):
            FileProfiles(BuiltinProfiles(), pv=[path])


def test_active_and_reactive_files_must_hold_the_same_customers(tmp_path: Path) -> None:
    one = np.ones(YEAR_H)
    p = write(tmp_path / "p.npz", {"com_kw_1_pu": one})
    for columns, says in (
        ({"com_kvar_2_pu": one}, "q.npz: expected a column for 'com_kw_1_pu'"),
        ({"com_kvar_1_pu": one, "com_kvar_2_pu": one}, "p.npz: expected a column for 'com_kvar_2_pu'"),
        ({"com_kvar_1_pu": one, "com_kw_1_pu": one}, "q.npz: expected one column for each customer"),
    ):
        q = write(tmp_path / "q.npz", columns)
        with pytest.raises(FeederError, match=says):
            FileProfiles(BuiltinProfiles(), commercial=DemandFiles(p, q))


def test_broken_files_are_refused(tmp_path: Path) -> None:
    one = np.ones((2, YEAR_H), np.float16)
    np.savez(tmp_path / "pickled.npz", names=np.array(["a", "b"], object), x=one)
    np.savez(tmp_path / "nameless.npz", x=one)
    np.savez(tmp_path / "uneven.npz", names=np.array(["a"]), x=one)
    np.savez(tmp_path / "integers.npz", names=np.array(["a", "b"]), x=one.astype(int))
    np.savez(tmp_path / "twice.npz", names=np.array(["a", "a"]), x=one)
    np.savez(tmp_path / "none.npz", names=np.array([], "U1"), x=one[:0])
    for name in ("text.npz", "text.parquet", "profiles.xlsx"):
        (tmp_path / name).write_text("no table")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "twice.csv").write_text("a,a\n" + "1,2\n" * YEAR_H)
    (tmp_path / "uneven.csv").write_text("a,b\n" + "1\n" * YEAR_H)
    for name, says in {
        "pickled.npz": "array 'names': expected plain text",
        "nameless.npz": "expected an array 'names'",
        "uneven.npz": "array 'x': expected .* of 1 profiles",
        "integers.npz": "array 'x': expected floating-point",
        "twice.npz": "column 'a': expected one column",
        "none.npz": "at least one profile",
        "text.npz": "expected an .npz archive",
        "text.parquet": "expected a Parquet table",
        "profiles.xlsx": "expected a profile file ending in",
        "missing.csv": "no such profile file",
        "empty.csv": "expected a table",
        "twice.csv": "column 'a': expected one column of that name, found 2",
        "uneven.csv": "expected 2 columns as in the header, found 1",
    }.items():
        with pytest.raises(FeederError, match=says) as refusal:
            FileProfiles(BuiltinProfiles(), residential=DemandFiles(tmp_path / name))
        assert name in str(refusal.value)


def test_smartds_files_are_read_as_they_are() -> None:
    require_shared(SHARED)
    files = {kind: DemandFiles(*(PROFILES / f"smartds_{kind}_{unit}_hourly_f16.npz" for unit in ("kw", "kvar")))
             for kind in ("res", "com")}  # fmt: skip
    pv = [PROFILES / f"smartds_pv_{region}_hourly_f16.npz" for region in ("GSO", "SFO")]
    source = FileProfiles(BuiltinProfiles(), files["res"], files["com"], pv)
    day = source.day(ask(np.arange(600) % 3, devices=(50, 0, 0)), generator())
    assert 0 < day.p_mult.min() <= day.p_mult.max() <= 1
    assert 0 <= day.q_mult.min() <= day.q_mult.max() <= 1
    assert (day.pv_mult[[0, 1, 2, 23]] == 0).all()
    p, _ = source.annual(np.zeros(120, np.int8), generator())
    np.testing.assert_allclose(p.max(axis=0), 1, rtol=1e-6)
    assert 0.4 < coincidence(p, 30) < 0.6
