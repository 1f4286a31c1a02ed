"""The plan: strata that are complete and tell nothing of each other, sizes, and what may change under a build."""

from __future__ import annotations

import functools
import json
import operator
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mycelium.corpus.catalogue import Split, read_catalogue
from mycelium.corpus.plan import (
    BLOCK,
    CASES_PER_UNIT,
    Stratum,
    planned_cases,
    read_plan,
    stratum,
    what_changed,
)
from mycelium.errors import FeederError
from mycelium.feeders import FEEDERS, feeder_path
from mycelium.schema import FaultPlace, FaultType
from mycelium.sense.policies import POLICIES
from mycelium.simulate.cases import CaseMix
from mycelium.simulate.fault import feasible_types
from mycelium.simulate.network import Network, NetworkSource
from mycelium.simulate.switching import Switching
from tests.corpus.bench import FEEDERS as PLANNED
from tests.corpus.bench import write_corpus
from tests.shapes import REPOSITORY

FULL, SMALL = (REPOSITORY / "experiments" / f"corpus-{size}.toml" for size in ("full", "small"))


def strata(network: str, count: int, seed: int = 0) -> list[Stratum]:
    return [stratum(network, seed, number) for number in range(count)]


# ---- strata ------------------------------------------------------------------------------------------------------


def test_every_block_of_cases_holds_every_kind() -> None:
    for network in ("a", "b", "c"):
        for start in range(0, 10 * BLOCK, BLOCK):
            block = [stratum(network, 5, start + k) for k in range(BLOCK)]
            assert Counter(case.fault for case in block) == {None: 5, **dict.fromkeys(FaultType, 1)}
            assert sum(case.phase_change for case in block) == sum(case.variant for case in block) == BLOCK // 2
            for variant in (False, True):  # switches of a radial network exist on its variants only
                half = Counter(case.switching for case in block if case.variant is variant)
                assert half == {Switching.NONE: 2, Switching.KEEP: 2, Switching.LOSE: 1}


def test_what_is_asked_of_a_case_tells_nothing_else_about_it() -> None:
    cases = [case for k in range(400) for case in strata(f"network {k}", 2 * BLOCK)]
    n = len(cases)
    facts = {
        **{f"fault {kind}": [case.fault is kind for case in cases] for kind in (None, *FaultType)},
        **{f"switching {kind}": [case.switching is kind for case in cases] for kind in Switching},
        "phases": [case.phase_change for case in cases],
        "variant": [case.variant for case in cases],
        "early": [(k % BLOCK) < BLOCK // 2 for k in range(n)],
        "odd": [k % 2 == 1 for k in range(n)],
    }
    names = list(facts)
    correlation = np.corrcoef(np.array([facts[name] for name in names], dtype=float))
    for i, one in enumerate(names):
        for j, other in enumerate(names[:i]):
            if one.split()[0] != other.split()[0] and {one, other} != {"odd", "early"}:  # kinds exclude each other
                assert abs(correlation[i, j]) < 4.5 / np.sqrt(n), (one, other)


def test_a_stratum_depends_on_network_seed_and_number_alone() -> None:
    assert strata("a", 30) == strata("a", 60)[:30]
    assert strata("a", 30) != strata("b", 30)
    assert strata("a", 30, seed=0) != strata("a", 30, seed=1)
    assert strata("a", BLOCK) != strata("a", 2 * BLOCK)[BLOCK:]


@pytest.mark.parametrize("feeder", FEEDERS)
def test_a_network_gets_all_it_admits_within_three_blocks(feeder: str) -> None:
    network = Network(NetworkSource(feeder_path(feeder), None, feeder), CaseMix())
    cases = [network.draw(11, k, stratum(feeder, 11, k).mix) for k in range(3 * BLOCK)]
    grids = [network.circuit(case.variant).grid for case in cases]
    faults = Counter(case.fault.type for case in cases if case.fault is not None)
    assert faults == dict.fromkeys(FaultType, 3)  # all of these feeders have three phases somewhere
    assert {case.fault.place for case in cases if case.fault is not None} == set(FaultPlace)
    assert sum(case.variant > 0 for case in cases) == (len(cases) // 2 if network.n_variants > 1 else 0)

    switching = Counter(case.switching for case in cases if len(network.circuit(case.variant).grid.switches))
    assert switching[Switching.LOSE] >= 2 and switching[Switching.KEEP] >= 2 and switching[Switching.NONE] >= 2
    free = network.published.space.phase_options.sum(axis=1) > 1
    changed = [case.phases_changed > 0 for case in cases]
    if np.any(free):
        assert 2 <= sum(changed) <= len(cases) // 2  # of few groups often none moves
    else:
        assert not any(changed)
    for case, grid in zip(cases, grids, strict=True):
        if case.fault is not None:
            assert case.fault.type in feasible_types(len(case.fault.conductors))
            assert case.fault.element < len(grid.tables[case.fault.place.value])
    network.close()


# ---- sizes -------------------------------------------------------------------------------------------------------


def test_the_full_corpus_is_as_large_as_it_must_be() -> None:
    cases = planned_cases(FULL)
    assert {entry.name for entry, _ in cases} == {
        entry.name for entry in read_catalogue(REPOSITORY / "experiments" / "reference-networks.toml")
    }
    size = Counter[Split]()
    for entry, count in cases:
        size[entry.split] += count
    margin = 0.9  # for rejections
    assert margin * size[Split.TEST] * len(POLICIES) >= 10_000
    assert margin * size[Split.BENCHMARK] * len(POLICIES) >= 2_000
    assert margin * size[Split.BENCHMARK] * len(FaultType) / BLOCK >= 300
    for entry, count in cases:
        assert count / size[entry.split] <= 0.05, entry.name
        assert count >= 1
    usual = {split: max(count for entry, count in cases if entry.split is split) for split in Split}
    assert all(count >= 2 * BLOCK for count in usual.values())


def test_the_small_corpus_covers_every_split_and_family() -> None:
    cases = planned_cases(SMALL)
    assert sum(count for _, count in cases) >= 2_000 and len(cases) >= 150
    assert {entry.split for entry, _ in cases} == set(Split)
    everywhere = {entry.family for entry in read_catalogue(REPOSITORY / "experiments" / "reference-networks.toml")}
    assert {entry.family for entry, _ in cases} == everywhere


def test_a_plan_fits_in_a_few_kilobytes() -> None:
    assert FULL.stat().st_size + SMALL.stat().st_size < 8_000


# ---- units -------------------------------------------------------------------------------------------------------


def test_units_hold_every_case_once(tmp_path: Path) -> None:
    plan = read_plan(write_corpus(tmp_path, cases=2 * CASES_PER_UNIT + 3))
    found = [(unit.network, number) for unit in plan.units() for number in unit.numbers]
    assert sorted(found) == sorted((name, k) for name in PLANNED for k in range(2 * CASES_PER_UNIT + 3))
    assert plan.n_cases == len(found)
    assert len({(unit.network, unit.chunk) for unit in plan.units()}) == len(list(plan.units()))


def test_more_cases_leave_units_where_they_are(tmp_path: Path) -> None:
    few, many = (read_plan(write_corpus(tmp_path, cases=count)) for count in (CASES_PER_UNIT, 3 * CASES_PER_UNIT))
    assert set(few.units()) < set(many.units())


# ---- what a build may meet in its folder -------------------------------------------------------------------------


def test_the_record_of_a_plan_holds_no_path(tmp_path: Path) -> None:
    record = read_plan(write_corpus(tmp_path)).record()
    assert str(tmp_path) not in json.dumps(record) and "/" not in json.dumps(record)
    assert len(json.dumps(record)) < 2_000


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda r: r | {"seed": 9}, "seed was 3 and is 9"),
        (lambda r: r | {"strata": "x"}, "strata was"),
        (lambda r: r | {"made_with": {}}, "made_with was"),
        (lambda r: r["networks"]["ieee13"].update(model="y") or r, "model of network 'ieee13' was"),
        (
            lambda r: r["networks"]["ieee13"].update(split="test") or r,
            "split of network 'ieee13' was train and is test",
        ),
        (lambda r: r["networks"]["ieee13"].update(cases=11) or r, "'ieee13' had 12 cases and has 11"),
        (lambda r: operator.delitem(r["networks"], "ieee13") or r, "'ieee13' is no longer planned"),
        (lambda r: r["networks"]["ieee13"].update(cases=13) or r, ""),
        (lambda r: r["networks"].update(new={"cases": 3}) or r, ""),
    ],
)
def test_finished_work_is_kept_for_a_larger_plan_only(
    edit: Callable[[dict[str, Any]], dict[str, Any]], says: str, tmp_path: Path
) -> None:
    old = read_plan(write_corpus(tmp_path)).record()
    changed = what_changed(old, edit(json.loads(json.dumps(old))))
    assert (says in changed) if says else not changed


# ---- the corpus file ---------------------------------------------------------------------------------------------


def test_networks_are_chosen_by_split_and_pattern(tmp_path: Path) -> None:
    path = write_corpus(tmp_path)
    content = path.read_text()
    head = content.partition("[cases]")[0]
    path.write_text(head + 'networks = ["ieee*", "lv_*"]\n[cases]\ntrain = 5\ntest = 30\n')
    assert {entry.name: count for entry, count in planned_cases(path)} == {"ieee13": 5, "lv_fourwire": 30}
    fewer = '[[fewer]]\nnetworks = ["lv*"]\ncases = 2\nbecause = "they take long"\n'
    path.write_text(head + "[cases]\ntrain = 5\ntest = 30\nbenchmark = 1\n" + fewer)
    expected = {"ieee13": 5, "lv_fourwire": 2, "us_suburb": 1}
    assert {entry.name: count for entry, count in planned_cases(path)} == expected


def _with_networks(value: str, text: str) -> str:
    return text.replace("[cases]", f"networks = {value}\n[cases]")


def _with_fewer(value: str, text: str, cases: str = "1", because: str = '"slow"') -> str:
    return text + f"[[fewer]]\nnetworks = {value}\ncases = {cases}\nbecause = {because}\n"


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda t: t.replace("seed = 3", ""), "`seed` is missing"),
        (lambda t: t.replace("seed = 3", 'seed = "3"'), "`seed` is '3'; expected a whole number from"),
        (lambda t: t.replace("seed", "sed"), "unknown `sed`; known are"),
        (lambda t: t.replace("train = 12", "train = 0"), "cases: `train` is 0; expected a whole number from 1"),
        (lambda t: t.replace("train = 12", "training = 12"), "training = 12"),
        (lambda t: t.replace("train = 12", "train = true"), "`train` is true; expected a whole number"),
        (lambda t: t.replace("[cases]", 'networks = ["enwl.*"]\n[cases]'), r"no network of .* called like 'enwl\.\*'"),
        (lambda t: t + '[[fewer]]\nnetworks = ["ieee13"]\ncases = 1\n', "`because`"),
        (lambda t: t.partition("[cases]")[0] + "[cases]\n", "no network is in one of the splits"),
        (lambda t: t + "=", "not a corpus file"),
        (lambda t: t.replace("seed = 3", f"seed = {10**23}"), "`seed` is 1000.*; expected a whole number from -922"),
        (lambda t: t.replace("seed = 3", "seed = true"), "`seed` is true; expected a whole number"),
        (lambda t: t.replace("seed = 3", "seed = 3.0"), "`seed` is 3.0; expected a whole number"),
        (lambda t: t.replace("train = 12", "train = 10000000"), "`train` is 10000000; .* from 1 to 1000000"),
        (lambda t: t.replace('"catalogue.toml"', '["catalogue.toml"]'), "`catalogue` is .*; expected a text in quotes"),
        (lambda t: t.partition("[cases]")[0] + "cases = 3\n", r"`cases` is 3; expected a table \[cases\] with train"),
        *(
            (functools.partial(_with_networks, value), f"`networks` is .*; expected a list of texts.*{hint}")
            for value, hint in (("[]", "leave it out"), ("[1, 2]", ""), ("[{a = 1}]", ""), ('"north"', ""), ("3", ""))
        ),
        *(
            (functools.partial(_with_fewer, value), r"\[\[fewer\]\]: `networks` is .*; expected a list of texts")
            for value in ("[1]", '"north"', "[]", "{a = 1}")
        ),
        (functools.partial(_with_fewer, '["ieee13"]', because="3"), "`because` is 3; expected a text in quotes"),
        (functools.partial(_with_fewer, '["ieee13"]', cases="true"), "`cases` is true; expected a whole number"),
        (lambda t: "fewer = 3\n" + t, r"`fewer` is 3; expected tables \[\[fewer\]\]"),
        (lambda t: "fewer = [3]\n" + t, r"\[\[fewer\]\] 3; expected `networks`"),
    ],
)
def test_what_is_wrong_with_a_corpus_file_is_said(edit: Callable[[str], str], says: str, tmp_path: Path) -> None:
    path = write_corpus(tmp_path)
    path.write_text(edit(path.read_text()))
    with pytest.raises(FeederError, match=rf"corpus\.toml: .*{says}"):
        planned_cases(path)


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path) -> None:
    path = write_corpus(tmp_path)
    before = planned_cases(path)
    for file in (path, path.with_name("catalogue.toml")):
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert planned_cases(path) == before


@pytest.mark.parametrize(("split", "refused"), [("test", True), ("train", False)])
def test_one_model_is_not_in_two_splits(split: str, refused: bool, tmp_path: Path) -> None:
    """Under another name, in another folder."""
    shutil.copytree(feeder_path("ieee13").parent, tmp_path / "elsewhere")
    masters = {"twin": tmp_path / "elsewhere" / "Master.dss"}
    path = write_corpus(tmp_path, {"ieee13": "train", "lv_town": "train", "twin": split}, masters=masters)
    if not refused:
        assert len(read_plan(path).networks) == 3
        return
    with pytest.raises(FeederError, match=r"'ieee13' \(train\) and 'twin' \(test\) are the same model; .*one split"):
        read_plan(path)


def test_a_model_that_is_not_the_one_catalogued_is_refused(tmp_path: Path) -> None:
    path = write_corpus(tmp_path)
    catalogue = tmp_path / "catalogue.toml"
    catalogue.write_text(catalogue.read_text().replace("family", f'sha256 = "{64 * "0"}"\nfamily', 1))
    with pytest.raises(FeederError, match=r"network 'ieee13'.* expected 0000"):
        read_plan(path)


def test_the_digest_of_strata_sees_another_way_to_stratify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_corpus(tmp_path)
    before = read_plan(path).record()
    other = functools.partial(_without_faults, stratum)
    monkeypatch.setattr("mycelium.corpus.plan.stratum", other)
    assert "strata" in what_changed(before, read_plan(path).record())


def _without_faults(original: Callable[[str, int, int], Stratum], network: str, seed: int, number: int) -> Stratum:
    return replace(original(network, seed, number), fault=None)
