"""Normalisation constants that a corpus keeps: of its training networks, the same however it came about."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mycelium.corpus import constants
from mycelium.corpus import finish as finishing
from mycelium.corpus.checksums import Checksums
from mycelium.corpus.constants import fit_built, fit_stored
from mycelium.corpus.finish import fit_apart
from mycelium.corpus.layout import CHECKSUMS, NORMALISATION
from mycelium.corpus.plan import Plan
from mycelium.corpus.store import Corpus
from mycelium.errors import FeederError
from mycelium.window.normalise import Normalisation
from tests.corpus.bench import Serial, folder_bytes, plan_of


def test_a_corpus_keeps_the_constants_of_its_training_networks(corpus: Corpus) -> None:
    assert corpus.normalisation == fit_stored(corpus)
    assert corpus.normalisation.networks == ("ieee13",)
    assert NORMALISATION in Checksums.read(corpus.folder).digests


def test_who_computes_them_does_not_show(corpus: Corpus) -> None:
    assert fit_apart(corpus.folder) == corpus.normalisation


def test_other_splits_leave_them_alone(built: Path, serial: Serial, tmp_path: Path) -> None:
    serial(plan_of(tmp_path, {"ieee13": "train"}), tmp_path / "corpus")
    assert (tmp_path / "corpus" / NORMALISATION).read_bytes() == (built / NORMALISATION).read_bytes()


def test_a_corpus_without_training_networks_has_none(serial: Serial, tmp_path: Path) -> None:
    serial(plan_of(tmp_path, {"ieee13": "test"}, 2), tmp_path / "corpus")
    assert not (tmp_path / "corpus" / NORMALISATION).exists()
    with pytest.raises(FeederError, match="no training networks, so no normalisation constants"):
        _ = Corpus.open_folder(tmp_path / "corpus").normalisation


def test_a_corpus_that_grows_gets_new_ones(serial: Serial, tmp_path: Path) -> None:
    out, more = tmp_path / "corpus", {"ieee13": "train", "lv_fourwire": "train"}
    serial(plan_of(tmp_path, {"ieee13": "train"}, 2), out)
    first = (out / NORMALISATION).read_bytes()
    serial(plan_of(tmp_path, more, 2), out)
    serial(plan_of(tmp_path, more, 2), tmp_path / "fresh")
    assert first != (out / NORMALISATION).read_bytes()
    assert folder_bytes(out) == folder_bytes(tmp_path / "fresh")


def test_an_end_in_the_middle_of_them_is_made_good(
    plan: Plan, built: Path, serial: Serial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(self: Normalisation, path: Path) -> None:
        path.write_text("{")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Normalisation, "save", ends)
        with pytest.raises(KeyboardInterrupt):
            serial(plan, tmp_path / "corpus")
    assert not (tmp_path / "corpus" / CHECKSUMS).exists() and not (tmp_path / "corpus" / NORMALISATION).exists()
    serial(plan, tmp_path / "corpus")
    assert folder_bytes(tmp_path / "corpus") == folder_bytes(built)


def test_many_networks_give_fewer_cases_each(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENOUGH_CASES", 2)
    assert fit_built(corpus.folder) == fit_stored(corpus, cases=2) != corpus.normalisation


def test_a_process_that_cannot_says_why(tmp_path: Path) -> None:
    with pytest.raises(FeederError, match=r"no normalisation constants \(.*manifest\.parquet: missing"):
        fit_apart(tmp_path)


def test_a_process_that_dies_is_said(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finishing, "_serve", _die)
    with pytest.raises(FeederError, match="the process died"):
        fit_apart(corpus.folder)


def _die(*_: object) -> None:
    os._exit(9)
