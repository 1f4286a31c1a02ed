"""A small corpus, built once; and a way to build others in this process."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mycelium.corpus.plan import Plan
from mycelium.corpus.store import Corpus
from tests.corpus.bench import Serial, plan_of


@pytest.fixture
def serial(monkeypatch: pytest.MonkeyPatch) -> Serial:
    return Serial(monkeypatch)


@pytest.fixture(scope="session")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return plan_of(tmp_path_factory.mktemp("plan"))


@pytest.fixture(scope="session")
def built(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus of ``plan``; look, but do not touch."""
    folder = tmp_path_factory.mktemp("built") / "corpus"
    with pytest.MonkeyPatch.context() as patch:
        Serial(patch)(plan, folder)
    return folder


@pytest.fixture
def copy(built: Path, tmp_path: Path) -> Path:
    """The same, to be touched."""
    return Path(shutil.copytree(built, tmp_path / "corpus"))


@pytest.fixture(scope="session")
def corpus(built: Path) -> Corpus:
    return Corpus.open_folder(built)
