"""``mycelium readings`` as a stranger meets it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from mycelium import cli
from mycelium.feeders import FEEDERS, feeder_path
from mycelium.sense.frame import write_readings
from tests.sense.plausible import bundled_grid, plausible_frame


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """The output without its lines and frames."""
        return " ".join(word for word in self.out.split() if word[0] not in "│┃━┏┡├└")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Run the command line in this process, files being in a folder of its own; an escaped exception fails the test."""
    app = cli.app

    def call(command: str, feeder: str, file: str, *options: str) -> Result:
        arguments = (command, feeder, str(tmp_path / file), *options)  # the engine's first start may leave a folder
        monkeypatch.setenv("COLUMNS", "140")
        monkeypatch.setattr(cli, "app", partial(app, ["readings", *arguments]))
        code = 0
        try:
            cli.main()
        except SystemExit as stopped:
            code = int(stopped.code or 0)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call


@pytest.mark.parametrize("feeder", FEEDERS)
def test_the_template_checks_without_a_finding(feeder: str, run: Callable[..., Result]) -> None:
    written = run("template", feeder, "example.csv")
    assert written.code == 0 and "example.csv" in written.out
    done = run("check", feeder, "example.csv", "--json")
    assert done.code == 0, done.err
    facts = json.loads(done.out)
    assert (done.code, facts["not_used"], facts["findings"], facts["gaps"]["count"]) == (0, 0, [], 0)
    assert facts["hours_seen"] == 24
    assert run("check", str(feeder_path(feeder)), "example.csv", "--json").out == done.out


def test_a_template_overwrites_nothing(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("precious")
    done = run("template", "ieee13", "mine.csv")
    assert done.code == 1 and "mine.csv" in done.err and "Traceback" not in done.err
    assert (tmp_path / "mine.csv").read_text() == "precious"
    done = run("template", "ieee13", "mine.xlsx")
    assert done.code == 1 and ".parquet or .csv" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.csv"]


def test_check_says_what_is_covered_and_what_is_wrong(run: Callable[..., Result], tmp_path: Path) -> None:
    grid = bundled_grid("lv_town")
    frame = plausible_frame(grid)
    customers = [f"consumer.{name}" for name in grid.consumer["name"][:12]]
    frame = frame[frame["element"].isin(customers) & (frame["quantity"] == "voltage_v")].astype({"value": "object"})
    frame.iloc[3, 5] = "[red]no number[/red]"
    frame.iloc[5, 1] = "consumer.nobody"
    write_readings(frame, tmp_path / "day.csv")
    done = run("check", "lv_town", "day.csv")
    assert done.code == 0
    assert f"day.csv: {len(frame) - 2} of {len(frame)} rows used" in done.words
    assert "12 of 49 customers have voltage" in done.words
    assert "row 5: '[red]no number[/red]'" in done.words and "row 7: 'consumer.nobody'" in done.words


def test_nothing_usable_is_exit_code_1_with_a_report(run: Callable[..., Result], tmp_path: Path) -> None:
    frame = plausible_frame(bundled_grid("lv_town"))
    write_readings(frame.assign(quantity="weight"), tmp_path / "day.parquet")
    for options in ((), ("--json",)):
        done = run("check", "lv_town", "day.parquet", *options)
        assert done.code == 1 and "quantity" in done.out and not done.err


def test_json_has_every_row_number(run: Callable[..., Result], tmp_path: Path) -> None:
    frame = plausible_frame(bundled_grid("lv_town"))
    write_readings(frame.assign(quantity=frame["quantity"].replace("current_a", "amperes")), tmp_path / "day.parquet")
    (finding,) = json.loads(run("check", "lv_town", "day.parquet", "--json").out)["findings"]
    rows = (frame["quantity"] == "current_a").to_numpy().nonzero()[0]
    assert finding["rows"] == rows.tolist() and finding["count"] == len(rows) > 1000


def test_a_pipe_does_not_hang(run: Callable[..., Result], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.csv")
    done = run("check", "lv_town", "fifo.csv")
    assert done.code == 1 and "fifo.csv: it is no regular file" in done.err


def test_more_than_a_day_asks_for_a_start(run: Callable[..., Result], tmp_path: Path) -> None:
    frame = plausible_frame(bundled_grid("lv_town"))
    two = [frame, frame.assign(time=frame["time"] + (frame["time"].iloc[-1] - frame["time"].iloc[0]))]
    write_readings(two[0].iloc[:500], tmp_path / "day.csv")
    with (tmp_path / "day.csv").open("a") as file:
        two[1].iloc[-500:].to_csv(file, index=False, header=False)
    done = run("check", "lv_town", "day.csv")
    assert done.code == 1 and not done.out
    assert "--start 2026-01-31" in done.err and "2026-02-01 (1 hour)" in done.err
    done = run("check", "lv_town", "day.csv", "--start", "2026-01-31", "--json")
    assert done.code == 0 and json.loads(done.out)["used"] == 500
    assert run("check", "lv_town", "day.csv", "--start", "soon").code == 1


@pytest.mark.parametrize(
    ("feeder", "readings", "says"),
    [
        ("no_such_feeder", "day.csv", "no_such_feeder"),
        ("ieee13", "none.csv", "none.csv"),
        ("ieee13", "day.csv", "missing columns"),
        ("ieee13", "folder.parquet", "folder.parquet"),
    ],
)
def test_what_cannot_be_read_is_an_error_without_a_traceback(
    feeder: str, readings: str, says: str, run: Callable[..., Result], tmp_path: Path
) -> None:
    (tmp_path / "day.csv").write_text("a,b\n1,2\n")
    (tmp_path / "folder.parquet").mkdir()
    done = run("check", feeder, readings)
    assert done.code == 1 and says in done.err and "Traceback" not in done.err and not done.out
