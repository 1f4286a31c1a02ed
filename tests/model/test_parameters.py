"""The parameter count is what falls out of the paper's appendix."""

from __future__ import annotations

import pytest

from mycelium import Mycelium, MyceliumConfig
from mycelium.model.parameters import PAPER, breakdown, main
from tests.shapes import REPOSITORY

D, LAYERS, KINDS, RELATIONS, BRANCH_RELATIONS, FFN = 128, 8, 5, 18, 6, 256


def test_parts_of_the_backbone_are_the_appendix_and_all_parts_are_the_whole() -> None:
    model = Mycelium(MyceliumConfig.paper())
    parts = breakdown(model)
    assert sum(parts.values()) == sum(value.numel() for value in model.parameters())
    assert parts["attention: queries, keys, values"] == LAYERS * RELATIONS * 3 * (D * D + D)
    assert parts["attention: branches"] == LAYERS * BRANCH_RELATIONS * D * D
    assert parts["feed-forward parts"] == LAYERS * KINDS * (D * FFN + FFN + FFN * D + D)
    assert parts["normalisation"] == (2 * LAYERS + 1) * KINDS * 2 * D
    assert parts["readout of the state"] == 4 * (3 * D * D + D + 2 * D) + 6 * D + 6


def test_the_paper_says_12_million() -> None:
    count = sum(value.numel() for value in Mycelium(MyceliumConfig.paper()).parameters())
    assert count == pytest.approx(PAPER, rel=0.06)


def test_the_document_has_the_table_as_it_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    printed = capsys.readouterr().out.strip()
    assert all(f"| {part} |" in printed for part in breakdown(Mycelium(MyceliumConfig.tiny())))
    assert printed in (REPOSITORY / "docs" / "model.md").read_text()
