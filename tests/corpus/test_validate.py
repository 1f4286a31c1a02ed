"""Checking a corpus: what is damaged is named and made again, what contradicts itself is found."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mycelium.corpus.layout import CHECKSUMS, LABELS, MANIFEST, NORMALISATION, PLAN
from mycelium.corpus.plan import Plan
from mycelium.corpus.store import Corpus
from mycelium.corpus.validate import imbalance, validate
from tests.corpus.bench import Serial, folder_bytes, run


def flip(path: Path, at: float = 0.7) -> None:
    """Turn over one bit of a file."""
    content = bytearray(path.read_bytes())
    content[int(at * len(content))] ^= 0x10
    path.write_bytes(bytes(content))


def test_a_sound_corpus_passes(built: Path) -> None:
    found = validate(built, sample=12)
    assert (found.damaged, found.wrong) == ([], [])
    assert found.days == len(Corpus.open_folder(built).cases) > 30
    assert found.physics == 12 and found.kirchhoff < 1e-6


SHARDS, GRIDS, UNITS, PLACED = "shards/*/*.safetensors", "grids/*/*.npz", "units/*/*.json", "placements/*/*.json"
KINDS = [SHARDS, GRIDS, UNITS, PLACED, MANIFEST, LABELS, NORMALISATION, PLAN, CHECKSUMS]


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_is_found_and_made_again(kind: str, plan: Plan, built: Path, copy: Path, serial: Serial) -> None:
    victim = sorted(copy.glob(kind))[-1]
    name = victim.relative_to(copy).as_posix()
    flip(victim)
    found = validate(copy)
    assert found.damaged == [name]
    serial(plan, copy)
    assert folder_bytes(copy) == folder_bytes(built)
    assert validate(copy, sample=1).damaged == []


def test_a_missing_file_is_damage_too(copy: Path) -> None:
    victim = next(copy.glob("shards/lv_town/*"))
    victim.unlink()
    assert validate(copy).damaged == [victim.relative_to(copy).as_posix()]


def test_the_command_names_what_is_damaged(copy: Path) -> None:
    flip(next(copy.glob("shards/ieee13/*")))
    result = run(["validate", str(copy)], copy.parent)
    assert result.code == 1
    assert "damaged: shards/ieee13/" in result.out and "build again" in result.err
    assert "Traceback" not in result.err


def test_the_command_says_it_in_json_too(copy: Path) -> None:
    (copy / LABELS).unlink()
    result = run(["validate", str(copy), "--json"], copy.parent)
    assert result.code == 1 and "Traceback" not in result.err
    found = json.loads(result.out)
    assert found["damaged"] == [LABELS] and found["kirchhoff"] is None


def test_a_corpus_that_is_not_finished_is_said_to_be(copy: Path) -> None:
    (copy / CHECKSUMS).unlink()
    result = run(["validate", str(copy)], copy.parent)
    assert result.code == 1 and "no finished corpus" in result.err


def test_labels_that_contradict_the_manifest_are_found(copy: Path) -> None:
    """Forged, checksums and all."""
    from mycelium.corpus.files import Written

    content = json.loads((copy / LABELS).read_text())
    content["train"]["cases"] += 1
    (copy / LABELS).write_text(json.dumps(content))
    lines = (copy / CHECKSUMS).read_text().splitlines()
    digest = Written.of(copy / LABELS).sha256
    lines = [f"{digest}  {LABELS}" if line.endswith(f"  {LABELS}") else line for line in lines]
    (copy / CHECKSUMS).write_text("\n".join(lines) + "\n")
    found = validate(copy, sample=0)
    assert not found.damaged
    assert any(LABELS in finding and "train" in finding for finding in found.wrong)


def test_the_balance_of_currents_sees_a_wrong_voltage(corpus: Corpus) -> None:
    """One bus off by a hundredth of a per cent."""
    case = corpus.cases[corpus.cases["network"] == "lv_town"].index[0]
    day = corpus.day(case)
    grid = corpus.grid(day.network, day.variant)
    assert imbalance(grid, day) < 1e-6
    v = np.array(day.v)
    node = len(grid.wiring.bus) // 2
    v[5, node] *= 1.0001
    assert imbalance(grid, replace(day, v=v)) > 1e-4
