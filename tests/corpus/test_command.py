"""The command line of a corpus: bad arguments are named, and a reader that stops is no error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.corpus.bench import run, write_corpus
from tests.shapes import REPOSITORY


def test_a_file_in_the_place_of_a_folder_is_said_before_anything_is_read(tmp_path: Path, built: Path) -> None:
    (tmp_path / "file").write_text("mine")
    corpus = write_corpus(tmp_path / "plan")
    for out, says in (
        (tmp_path / "file", "file is a file; give a folder"),
        (tmp_path / "file" / "a", "cannot be made"),
    ):
        result = run(["build", str(corpus), "--out", str(out)], tmp_path)
        assert result.code == 1 and f"--out: {out}" in result.err and says in result.err
        assert "Errno" not in result.err and "Traceback" not in result.err
    result = run(["stats", str(built), "--figures", str(tmp_path / "file")], tmp_path)
    assert result.code == 1 and f"--figures: {tmp_path / 'file'} is a file" in result.err
    assert (tmp_path / "file").read_text() == "mine"


def test_a_sample_of_fewer_than_none_is_refused(built: Path, tmp_path: Path) -> None:
    result = run(["validate", str(built), "--sample=-5"], tmp_path)
    assert result.code == 1 and "--sample -5: expected 0 or more" in result.err
    assert run(["validate", str(built), "--sample", "0"], tmp_path).code == 0


def test_a_folder_that_is_none_is_not_made(tmp_path: Path) -> None:
    for command in ("stats", "validate"):
        result = run([command, str(tmp_path / "nowhere")], tmp_path)
        assert result.code == 1 and "no finished corpus" in result.err
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("options", [[], ["--json"]])
@pytest.mark.parametrize("command", ["stats", "validate"])
def test_a_reader_that_stops_is_no_error(command: str, options: list[str], copy: Path) -> None:
    """As `| head` does; the exit code stays what the command has to say."""
    read, write = os.pipe()
    os.close(read)
    try:
        result = subprocess.run(
            [sys.executable, "-m", "mycelium.cli", "corpus", command, str(copy), *options],
            stdout=write, stderr=subprocess.PIPE, text=True, timeout=120,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        )  # fmt: skip
    finally:
        os.close(write)
    assert (result.returncode, result.stderr.strip()) == (0, "")
