"""What is said of a corpus: numbers against a count of our own; figures that are pictures."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from matplotlib.image import imread

from mycelium.corpus.figures import draw_figures
from mycelium.corpus.plan import read_plan
from mycelium.corpus.stats import TRAITS, corpus_stats, general_reason, network_traits, straddling_networks
from mycelium.corpus.store import Corpus
from mycelium.feeders import feeder_path
from mycelium.grid.grid import Grid
from mycelium.schema import FaultPlace, FaultType
from tests.corpus.bench import CASES, FEEDERS, Serial, plan_of, run, write_corpus
from tests.simulate.bench import two_bus


def units(folder: Path) -> list[dict[str, object]]:
    """Cases of all units as recorded, with their network."""
    found = []
    for path in sorted(folder.glob("units/*/*.json")):
        content = json.loads(path.read_text())
        found += [{"network": content["network"], **case} for case in content["cases"]]
    return found


def test_counts_are_those_of_the_records(corpus: Corpus) -> None:
    stats, cases = corpus_stats(corpus), units(corpus.folder)
    for name, split in FEEDERS.items():
        done = [case for case in cases if case["network"] == name and case["status"] == "done"]
        row = stats.splits.loc[split]
        assert (row["networks"], row["cases"], row["rejected"]) == (1, len(done), CASES - len(done))
        assert row["faulted"] == sum("fault_type" in case for case in done)
        assert row["samples"] == 7 * len(done) and row["largest share"] == 1.0
        shards = list((corpus.folder / "shards" / name).glob("*"))
        assert row["MB"] == pytest.approx(sum(path.stat().st_size for path in shards) / 1e6)
    total = stats.splits.loc["all"]
    done = [case for case in cases if case["status"] == "done"]
    assert (total["networks"], total["cases"]) == (len(FEEDERS), len(done))
    assert total["rejected"] == len(cases) - len(done) and np.isnan(total["largest share"])
    assert stats.families["cases"].tolist() == [CASES] * len(FEEDERS)
    assert stats.families["rejected"].sum() == len(cases) - len(done)
    assert stats.labels == {split: part["labels_sha256"] for split, part in _labels(corpus).items()}
    assert stats.straddling == []


def _labels(corpus: Corpus) -> dict[str, dict[str, str]]:
    content: dict[str, dict[str, str]] = json.loads((corpus.folder / "labels.json").read_text())
    return content


def test_kinds_are_those_of_the_days(corpus: Corpus) -> None:
    """Counted from what is stored of each day, not from its record."""
    kinds = corpus_stats(corpus).kinds
    for name, split in FEEDERS.items():
        days = [corpus.day(case) for case in corpus.cases.index[corpus.cases["network"] == name]]
        faults = Counter(day.fault.type if day.fault else "sound" for day in days)
        places = Counter(day.fault.place for day in days if day.fault)
        for kind in ("sound", *FaultType):
            assert kinds.loc[split, str(kind)] == faults[kind], kind
        for place in FaultPlace:
            assert kinds.loc[split, f"at a {place}"] == places[place]
        assert kinds.loc[split, "on a variant"] == sum(day.variant > 0 for day in days)


def test_traits_are_those_of_the_graph(corpus: Corpus) -> None:
    traits = network_traits(corpus)
    assert list(traits.columns) == ["split", "family", *TRAITS]
    assert traits["split"].to_dict() == FEEDERS
    for name in FEEDERS:
        grid = corpus.grid(name)
        graph = graph_of(grid)
        row = traits.loc[name]
        assert row["buses"] == len(graph)
        assert row["loops"] == graph.number_of_edges() - len(graph) + nx.number_connected_components(graph)
        start = int(grid.substation["bus1"].iat[0])
        assert row["depth"] == max(nx.single_source_shortest_path_length(graph, start).values())
        assert row["customers_per_km"] == pytest.approx(len(grid.consumer) / grid.line["length_km"].sum())
    assert (traits["loops"] > 0).any() and (traits["loops"] == 0).any()


def graph_of(grid: Grid) -> nx.Graph:
    """Buses, and what joins two of them."""
    graph = nx.Graph()
    graph.add_nodes_from(range(len(grid.bus)))
    graph.add_edges_from(grid.line[["bus1", "bus2"]].to_numpy().tolist())
    for _, windings in grid.winding.groupby("transformer"):
        first, *others = windings["bus1"].tolist()
        graph.add_edges_from((first, other) for other in others if other != first)
    assert not grid.reactor["series"].any()  # of those that are not, both ends are one bus
    return graph


def test_reasons_of_rejections_are_counted_over_hours(serial: Serial, tmp_path: Path) -> None:
    masters = {"heavy": two_bus(tmp_path / "heavy", kw=300_000.0), "light": two_bus(tmp_path / "light", kw=100.0)}
    feeders = {"heavy": "test", "light": "train"}
    serial(read_plan(write_corpus(tmp_path / "plan", feeders, 10, masters)), tmp_path / "corpus")
    corpus = Corpus.open_folder(tmp_path / "corpus")
    stats = corpus_stats(corpus)
    cases = units(corpus.folder)
    rejected = Counter(general_reason(str(case["reason"])) for case in cases if case["status"] == "rejected")
    assert rejected and stats.reasons["cases"].to_dict() == dict(rejected)
    assert np.isnan(stats.splits.loc["test", "largest share"])  # it has no case
    names = {path.name for path in draw_figures(stats, network_traits(corpus), tmp_path / "figures")}
    assert "rejections.svg" in names


def test_figures_are_pictures(corpus: Corpus, tmp_path: Path) -> None:
    stats = corpus_stats(corpus)
    written = draw_figures(stats, network_traits(corpus), tmp_path / "figures")
    expected = {"networks", "kinds"} | ({"rejections"} if len(stats.reasons) else set())
    assert {path.stem for path in written} == expected
    for path in written:
        if path.suffix == ".svg":
            root = ElementTree.parse(path).getroot()
            assert root.tag.endswith("svg") and len(list(root.iter())) > 50
        else:
            picture = imread(path)
            assert picture.shape[0] > 200 and picture.shape[1] > 400
            assert picture[..., :3].std() > 0.01, "nothing is drawn"


def test_a_trait_that_no_network_has_does_not_stop_the_figures(corpus: Corpus, tmp_path: Path) -> None:
    traits = network_traits(corpus).assign(customers_per_km=np.nan)
    assert draw_figures(corpus_stats(corpus), traits, tmp_path)


# ---- one feeder in two splits ------------------------------------------------------------------------------------


def test_one_feeder_in_two_splits_is_named(corpus: Corpus) -> None:
    """As if the same network were another one, in another split."""
    twin = corpus.manifest[corpus.manifest["network"] == "lv_town"].assign(network="twin", split="test")

    class Twins(Corpus):
        def grid(self, network: str, variant: int = 0) -> Grid:
            return super().grid("lv_town" if network == "twin" else network, variant)

    both = Twins(corpus.folder, pd.concat([corpus.manifest, twin], ignore_index=True))
    (found,) = straddling_networks(both)
    assert found.startswith("networks 'lv_town' (validation) and 'twin' (test) are one feeder (100% alike)")


def test_the_commands_say_it(tmp_path: Path) -> None:
    """The copy differs in a comment, so only its topology tells."""
    shutil.copytree(feeder_path("lv_town").parent, tmp_path / "elsewhere")
    master = tmp_path / "elsewhere" / "Master.dss"
    master.write_text(master.read_text() + "! ours\n")
    corpus = write_corpus(tmp_path, {"lv_town": "validation", "other": "test"}, 2, {"other": master})
    out = tmp_path / "corpus"
    built = run(["build", str(corpus), "--out", str(out), "--workers", "1"], tmp_path)
    assert built.code == 1 and "are one feeder" in built.err and "put them in one split" in built.out, built.err
    seen = run(["stats", str(out), "--json"], tmp_path)
    assert seen.code == 0 and "are one feeder" in json.loads(seen.out)["straddling"][0]
    assert "no normalisation" not in built.err and not (out / "normalisation.json").exists()  # no training network
    assert run(["validate", str(out)], tmp_path).code == 1


def test_a_corpus_of_one_split_has_no_others(serial: Serial, tmp_path: Path) -> None:
    serial(plan_of(tmp_path, {"ieee13": "train"}, 3), tmp_path / "corpus")
    stats = corpus_stats(Corpus.open_folder(tmp_path / "corpus"))
    assert list(stats.splits.index) == ["train", "all"] and list(stats.kinds.index) == ["train"]
