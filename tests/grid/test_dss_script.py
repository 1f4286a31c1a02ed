"""A stranger's OpenDSS model becomes plain commands, and cannot read, write or run anything outside its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dss import dss

from mycelium.errors import FeederError
from mycelium.grid import dss_script, dss_tokens
from mycelium.grid.dss_script import Script, read_script

CIRCUIT = "New Circuit.c basekv=12.47 bus1=source"
SECRET = "1234567.875\n" * 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The feeder's folder, with a file beside it that is none of its business."""
    (tmp_path / "secret.csv").write_text(SECRET)
    (tmp_path / "secret.dss").write_text("New Line.secret bus1=a bus2=b\n")
    feeder = tmp_path / "feeder"
    feeder.mkdir()
    return feeder


def write(folder: Path, master: str, files: dict[str, str] | None = None) -> Path:
    for name, text in {**(files or {}), "Master.dss": master}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8", newline="")
    return folder / "Master.dss"


def read(folder: Path, body: str, files: dict[str, str] | None = None, root: Path | None = None) -> Script:
    """Reads a master that makes a circuit in line 1 and goes on with `body` in line 2."""
    return read_script(write(folder, f"{CIRCUIT}\n{body}\n", files), root)


def texts(script: Script) -> list[str]:
    return [command.text for command in script.commands[1:]]


def notes(script: Script) -> list[tuple[int, str]]:
    return [(note.line, note.what) for note in script.notes]


def refusal(folder: Path, body: str, files: dict[str, str] | None = None) -> str:
    """The message with which the model is refused; it names file and line."""
    with pytest.raises(FeederError) as caught:
        read(folder, body, files)
    assert ".dss:" in str(caught.value)
    return str(caught.value)


def test_commands_come_in_order_and_know_their_place(folder: Path) -> None:
    script = read(folder, "redirect a.dss\nNew Line.b", {"a.dss": "! comment\nNew Line.a\n~ length=2"})
    places = [(command.file, command.line, command.text) for command in script.commands]
    inside = [("a.dss", 2, "New Line.a"), ("a.dss", 3, "~ length=2")]
    assert places == [("Master.dss", 1, CIRCUIT), *inside, ("Master.dss", 3, "New Line.b")]
    assert script.master == (folder / "Master.dss").resolve()
    assert script.root == folder.resolve()


def test_a_redirect_comes_back_to_the_folder_and_a_compile_does_not(folder: Path) -> None:
    files = {"sub/one.dss": "redirect two.dss", "sub/two.dss": "New Line.sub", "two.dss": "New Line.top"}
    assert texts(read(folder, "redirect sub/one.dss\nredirect two.dss", files)) == ["New Line.sub", "New Line.top"]
    assert texts(read(folder, "compile sub/one.dss\nredirect two.dss", files)) == ["New Line.sub", "New Line.sub"]
    files["outer.dss"] = "compile sub/one.dss"
    assert texts(read(folder, "redirect outer.dss\nredirect two.dss", files)) == ["New Line.sub", "New Line.top"]


@pytest.mark.parametrize("folder_command", ["cd sub", "set datapath=sub", "set datapath=(sub)"])
def test_the_script_may_change_its_folder(folder: Path, folder_command: str) -> None:
    assert texts(read(folder, f"{folder_command}\nredirect b.dss", {"sub/b.dss": "New Line.b"})) == ["New Line.b"]


@pytest.mark.parametrize(
    "asked",
    ["Sub Dir/Lines.DSS", "SUB DIR\\LINES.dss", "./sub dir/../sub dir/Lines", "@file", "../feeder/Sub Dir/Lines.DSS"],
)
def test_paths_of_windows_models_are_found(folder: Path, asked: str) -> None:
    script = read(folder, f'var @file="sub dir/lines.dss"\nredirect "{asked}"', {"Sub Dir/Lines.DSS": "New Line.a"})
    assert texts(script)[-1] == "New Line.a"
    assert script.commands[-1].file == "Sub Dir/Lines.DSS"


@pytest.mark.parametrize(
    "asked",
    [
        *("../secret.dss", "..\\secret.dss", "sub/../../secret.dss", "ABSOLUTE", "/etc/passwd", "\\etc\\passwd"),
        *("C:\\models\\a.dss", "c:a.dss", "\\\\server\\share\\a.dss", "//server/share/a.dss", "link.dss"),
        *("linked/secret.dss", "LINK.dss"),
    ],
)
@pytest.mark.parametrize("verb", ["redirect", "compile", "Redir"])
def test_nothing_is_read_outside_the_folder(folder: Path, verb: str, asked: str) -> None:
    (folder / "link.dss").symlink_to("../secret.dss")
    (folder / "linked").symlink_to("..")
    message = refusal(folder, f"{verb} ({asked.replace('ABSOLUTE', str(folder.parent / 'secret.dss'))})")
    assert message.startswith("Master.dss:2: ")
    assert "--root DIR" in message


def test_a_wider_root_lets_files_be_read(folder: Path) -> None:
    commands = read(folder, "redirect ../secret.dss", root=folder.parent).commands
    assert [command.file for command in commands] == ["feeder/Master.dss", "secret.dss"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("redirect none.dss", "'none.dss': no such file, seen from '.'"),
        ("redirect sub", "expected a file, found a folder"),
        ("redirect", "names no file"),
        ("redirect loop.dss", "no such file"),
        ("redirect dangling.dss", "no such file"),
    ],
)
def test_a_file_that_is_not_there_is_an_error(folder: Path, body: str, expected: str) -> None:
    (folder / "sub").mkdir()
    (folder / "loop.dss").symlink_to("loop.dss")
    (folder / "dangling.dss").symlink_to("nothing.dss")
    message = refusal(folder, body)
    assert message.startswith("Master.dss:2: ")
    assert expected in message


def test_redirects_in_a_circle_or_too_deep_are_errors(folder: Path) -> None:
    circle = refusal(folder, "redirect a.dss", {"a.dss": "redirect b.dss", "b.dss": "\nREDIRECT A.dss"})
    assert circle.startswith("b.dss:2: ")
    assert "circle" in circle
    deep = {f"f{i}.dss": f"redirect f{i + 1}.dss" for i in range(dss_script.MAX_DEPTH + 2)}
    assert f"more than {dss_script.MAX_DEPTH} files deep" in refusal(folder, "redirect f0.dss", deep)


def test_redirects_that_multiply_are_stopped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dss_tokens, "MAX_TOTAL_BYTES", 10 * 4096)
    doubling = {f"f{i}.dss": f"redirect f{i + 1}.dss\n" * 2 for i in range(20)}
    assert "too large" in refusal(folder, "redirect f0.dss", {**doubling, "f20.dss": ""})


def test_a_master_that_is_none_is_an_error(folder: Path) -> None:
    with pytest.raises(FeederError, match="no such file; give the path"):
        read_script(folder / "none.dss")
    with pytest.raises(FeederError, match="is a folder; give the path"):
        read_script(folder)
    with pytest.raises(FeederError, match=r"Master.dss: makes no circuit .*give the master file"):
        read_script(write(folder, "! nothing\n"))
    with pytest.raises(FeederError, match="lies outside"):
        read_script(write(folder, CIRCUIT), root=write(folder, CIRCUIT, {"sub/a.dss": ""}).parent / "sub")


def test_comments_are_left_out(folder: Path) -> None:
    body = """! comment
    // comment
New Line.a length=1 ! comment
New Line.b//comment
New Line.c bus1="a!b//c" ! comment
/* New Line.hidden
New Line.hidden */ New Line.hidden
/* one line */
\t New Line.d bus1=a/b\t
"""
    kept = ["New Line.a length=1", "New Line.b", 'New Line.c bus1="a!b//c"', "New Line.d bus1=a/b"]
    assert texts(read(folder, body)) == kept


@pytest.mark.parametrize(
    "line",
    [
        *("New object=Line.x", "new 'Line.a b'", 'New "Line.it\'s (odd) [x]" bus1={a.1}', "EDIT Line.x length = 3"),
        *("~ rmatrix=(1 2 | 3 4)", "more length=2", "m length=2", "batchedit line..* length=2", "calcv"),
        *("makebuslist", "setkvbase bus=a kvll=12", "set voltagebases=[12.47, 0.48]", "var @x=5"),
    ],
)
def test_what_describes_the_network_passes_unchanged(folder: Path, line: str) -> None:
    assert texts(read(folder, f"New Line.x\n{line}"))[-1] == line


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("open Line.x 1 ! comment", "open Line.x 1"),
        ("disab Line.x", "disable Line.x"),
        ("ne Line.y", "ne Line.y"),
        ("Line.x.length=3 units=km", 'edit "line.x" length=3 units=km'),
        ("x.length=3", 'edit "line.x" length=3'),
        ("length=3", "~ length=3"),
        ("Line.x.bus1='a\" length=\"3'", 'edit "line.x" bus1=\'a" length="3\''),
        ("New Line.@name length=@x", 'new "Line.main" length=@x'),
        ("New @element", 'new "Line.side"'),
    ],
)
def test_other_spellings_mean_the_same(folder: Path, line: str, expected: str) -> None:
    body = f"var @name=main @x=2 @element=Line.side\nNew Line.x\n{line}"
    assert texts(read(folder, body))[-1] == expected


def test_unknown_commands_are_errors_and_strays_are_noted(folder: Path) -> None:
    message = "Master.dss:2: 'Nwe' is not an OpenDSS command; correct it, or put ! before it if it is a comment."
    assert refusal(folder, "Nwe Line.a") == message
    assert "'rating' is not an OpenDSS command" in refusal(folder, "set loadmult=1\nrating = 5 kW")
    assert "'Lnie.a': OpenDSS has no class" in refusal(folder, "New Lnie.a")
    assert "expected `new Class.name`" in refusal(folder, "New Line")
    assert "none before it" in refusal(folder, "set loadmult=1\n~ length=3")
    script = read(folder, "-----------\n[missing]\n=====")
    assert notes(script) == [(2, "-----------"), (3, "[missing]")]


def test_one_circuit(folder: Path) -> None:
    message = refusal(folder, "\nNew object=circuit.other")
    assert message == "Master.dss:3: a second circuit, 'other'; the first is made at Master.dss:1; keep one."
    assert "Vsource.source" in refusal(folder, "edit circuit.c basekv=1")
    assert "discards the circuit made at Master.dss:1" in refusal(folder, "clear")


@pytest.mark.parametrize(
    "line",
    [
        *("solve", "solve mode=snap", "show voltages LN Nodes", "plot circuit", "export voltages v.csv", "sample"),
        *("save circuit dir=saved", "dump line.x", "visualize what=powers", "reset", "summary", "allocateloads"),
        *("closedi", "cleanup", "interpolate", "buildy", "? Line.x.length", "get mode", "fileedit a.txt", "show"),
        *("formedit Line.x", "cvrtloadshapes type=sng", "set mode=snap", "set nonsense=1"),
    ],
)
def test_what_does_not_describe_the_network_is_left_out(folder: Path, line: str) -> None:
    script = read(folder, line)
    assert texts(script) == []
    assert [(note.line, note.why != "") for note in script.notes] == [(2, True)]


def test_clear_before_the_circuit_is_left_out(folder: Path) -> None:
    script = read_script(write(folder, f"Clear\nset defaultbasefreq=50\nclearall\n{CIRCUIT}\n"))
    assert [command.text for command in script.commands] == ["set defaultbasefrequency=50", CIRCUIT]
    assert notes(script) == [(1, "clear"), (3, "clearall")]


@pytest.mark.parametrize(
    "line",
    [
        *("doscmd rm -rf /", "DOS ls", "connect host 1234", "distribute kw=1", "makeposseq", "reduce", "remove Line.a"),
        *("rephase startline=Line.a", "reconductor line1=a"),
    ],
)
def test_what_runs_programs_or_rebuilds_the_model_is_refused(folder: Path, line: str) -> None:
    message = refusal(folder, line)
    assert message.startswith("Master.dss:2: ")
    assert "remove the line" in message


@pytest.mark.parametrize("path", ["/tmp/x.csv", "../x.csv", "C:\\x.csv", "\\\\server\\x.csv", "..", "a/../../x"])
@pytest.mark.parametrize(
    "command",
    [
        *("export voltages {}", "save circuit dir={}", "dump line.x {}", "show powers {}", "distribute file={}"),
        *("cvrtloadshapes {}", "set datapath={}", 'set editor="{}"', "set casename=({})", "solve casename={}"),
        *("cd {}", "plot profile file={}"),
    ],
)
def test_nothing_may_name_a_path_outside(folder: Path, command: str, path: str) -> None:
    assert refusal(folder, command.format(path)).startswith("Master.dss:2: ")


@pytest.mark.parametrize("command", ["cd link", "set datapath=link"])
def test_links_lead_nowhere_outside(folder: Path, command: str) -> None:
    (folder / "link").symlink_to("..")
    assert "--root DIR" in refusal(folder, command)


def test_only_options_of_the_network_are_set(folder: Path) -> None:
    script = read(folder, "Set mode=daily LoadMult=0.9 number=24 VoltageBases=[12, 4] time=(0, 0) normvmin=0.95")
    assert texts(script) == ["set loadmult=0.9 voltagebases=[12, 4] normvminpu=0.95"]
    assert notes(script) == [(2, "set mode"), (2, "set number"), (2, "set time")]
    assert texts(read(folder, "solve mode=snap loadmult=0.8")) == ["set loadmult=0.8"]


def test_measuring_devices_are_left_out_whole(folder: Path) -> None:
    body = """New EnergyMeter.m element=Line.a
~ option=r
New Line.a
New "Monitor.i" element=Line.a
more mode=1
mode=2
Monitor.i.mode=3
batchedit monitor..* mode=1
disable EnergyMeter.m
new sensor.s
select monitor.i
~ mode=3
New Line.b"""
    script = read(folder, body)
    assert texts(script) == ["New Line.a", "New Line.b"]
    assert [line for line, _ in notes(script)] == [2, 5, 7, 8, 9, 10, 11, 12]
    assert notes(script)[0] == (2, "EnergyMeter.m")


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("New RegControl.r debugtrace=yes band=2", "new RegControl.r band=2"),
        ("New RegControl.r EventLog=yes band=2 ! x", "new RegControl.r band=2"),
        ("New RegControl.r\n~ debugtr=y", "~"),
        ("New Relay.r eventlog=n", "new Relay.r"),
        ("RegControl.r.debugtrace=yes", 'edit "regcontrol.r"'),
        ("batchedit regcontrol..* debug=y", "batchedit regcontrol..*"),
        ("New LoadShape.s npts=2 mult=(1 2) action=dblsave", "new LoadShape.s npts=2 mult=(1 2)"),
        ("New LoadShape.s npts=2 memorymapping=yes mult=(1 2)", "new LoadShape.s npts=2 mult=(1 2)"),
        ("New TShape.s npts=2 temp=(1 2) action=(SngSave)", "new TShape.s npts=2 temp=(1 2)"),
        ("New Relay.r eventlog=y yes", "new Relay.r"),
    ],
)
def test_what_would_write_files_is_taken_out(folder: Path, line: str, kept: str) -> None:
    script = read(folder, line)
    assert texts(script)[-1] == kept
    assert script.notes


def test_values_by_position_keep_their_meaning(folder: Path) -> None:
    # After `debugtrace`, the 17th property of RegControl, comes `maxtapchange`.
    script = read(folder, "New RegControl.r debugtrace=yes 3 band=2 130")
    assert texts(script) == ["new RegControl.r maxtapchange=3 band=2 ptratio=130"]
    assert texts(read(folder, "New LoadShape.s 2 1 (1 2) action=n")) == ["New LoadShape.s 2 1 (1 2) action=n"]


@pytest.mark.parametrize(
    "line",
    [
        *("New Generator.g UserModel=evil.dll", 'New Generator.g userm="evil"', "generator.g.usermodel=x"),
        *("New PVSystem.g UserData=(x)", "New Generator.g shaftmodel=x", "New Generator.g shaftdata=x"),
        *("New Storage.g dynadll=x", "New Storage.g DynaData=x", "New CapControl.g usermodel=x"),
        *("batchedit generator..* usermodel=x", "New Generator.g\n~ user=@x", "New Generator.g model=6 usermodel=./x"),
        "New CapControl.g " + "1 " * 19,
    ],
)
def test_libraries_are_refused(folder: Path, line: str) -> None:
    message = refusal(folder, line)
    assert "loads and runs a library" in message
    assert "remove it from the model" in message


DATA_FORMS = {
    "LoadShape": "mult=(file={}) ; mult=[file={}, column=2, header=yes] ; mult='sngfile={}' ; mult=(d={}) ; csvfile={}",
    "Loadshape": "PMult=(dblfile={}) ; sng=({}) ; pqcsvfile={} ; mean=1 1 {} ; (csvfile)={} ; 'mult'=(file={})",
    "loadshape": "dblfile={} ; hour=(file={}) ; qmult=(file={}) ; qmult=(s={})",
    "TShape": "temp=(sngfile={}) ; csvfile={}",
    "PriceShape": "csvfile={} ; price=(file={})",
    "GrowthShape": "csvfile={} ; year=(file={})",
    "Spectrum": "csvfile={} ; %mag=(file={})",
    "XYcurve": "csvfile={} ; yarray=(file={})",
    "Transformer": "kvs=[file={}]",
}
CASES = [(class_name, form) for class_name, forms in DATA_FORMS.items() for form in forms.split(" ; ")]


@pytest.mark.parametrize(("class_name", "form"), CASES)
@pytest.mark.parametrize("way", ["new", "continued", "property", "variable"])
def test_data_files_get_their_full_path(folder: Path, class_name: str, form: str, way: str) -> None:
    given = form.format("@file" if way == "variable" else "data/A.csv")
    break_ = {"continued": "\n~ ", "property": f"\n{class_name}.s."}.get(way, " ")
    body = f"var @file=data/A.csv\nNew {class_name}.s npts=4{break_}{given}"
    script = read(folder, body, {"data/a.CSV": SECRET})
    assert f'"{(folder / "data/a.CSV").resolve()}"' in texts(script)[-1]
    assert "data/A" not in texts(script)[-1]
    assert not script.notes


def test_options_of_data_files_stay(folder: Path) -> None:
    script = read(folder, "New LoadShape.s mult=(file='a b.csv', column=2) npts=3", {"a b.csv": ""})
    assert texts(script) == [f"new LoadShape.s mult='file=\"{(folder / 'a b.csv').resolve()}\" column=2' npts=3"]


@pytest.mark.parametrize("asked", ["../secret.csv", "link.csv", "C:\\x.csv", "none.csv", "%result%", "@undefined"])
@pytest.mark.parametrize(("class_name", "form"), CASES)
def test_data_files_outside_or_missing_are_not_read(folder: Path, class_name: str, form: str, asked: str) -> None:
    (folder / "link.csv").symlink_to("../secret.csv")
    line = f"New {class_name}.s npts=4 {form.format(asked)}"
    outside = asked in ("../secret.csv", "link.csv", "C:\\x.csv")
    reason = "outside the feeder's folder; give --root DIR" if outside else "does not exist"
    if class_name in ("XYcurve", "Transformer"):
        assert reason in refusal(folder, line)
        return
    script = read(folder, line)
    (note,) = script.notes
    assert note.what.startswith(f"{class_name}.s.")
    assert f"'{asked}' {'lies ' * outside}{reason}" in note.why
    assert asked not in texts(script)[-1]
    assert ("npts=1 " in texts(script)[-1]) == (class_name != "Spectrum" and "qmult" not in form)


def test_data_files_may_be_allowed_by_a_wider_root(folder: Path) -> None:
    script = read(folder, "New LoadShape.s npts=4 csvfile=../secret.csv", root=folder.parent)
    assert texts(script) == [f'new LoadShape.s npts=4 csvfile="{(folder.parent / "secret.csv").resolve()}"']


@pytest.mark.parametrize(
    "body",
    [
        "@verb LoadShape.t",
        "var @data='file=../secret.csv'",
        "var @data=(sng=../secret.csv)",
        # The engine would go on with the shape, whatever the command in between names.
        "New LoadShape.s npts=4\ndisable Line.*\n~ csvfile=../secret.csv",
        "New LoadShape.s npts=4\ndisable LineCode.none\ncsvfile=../secret.csv",
        "New LoadShape.s npts=4\nset class=line\n~ csvfile=../secret.csv",
        "New LoadShape.s npts=4\ncalcv\nmore csvfile=../secret.csv",
    ],
)
def test_ways_around_the_checks_are_refused(folder: Path, body: str) -> None:
    assert refusal(folder, f"var @verb=new\n{body}").startswith("Master.dss:")


def test_bus_coordinates(folder: Path) -> None:
    files = {"xy.csv": 'Bus, X, Y\n\nA 1,2\n"b"\t3 4 5\nc, 1\nd, nan, 1\n! comment', "ll.csv": "e, 10, 20"}
    body = "BusCoords xy.csv\nLatLongCoords (ll.csv)\nSetBusXY bus=F x=7 y=8\nSetBusXY g 9 10 ! x\nSetBusXY h"
    script = read(folder, body, files)
    assert script.bus_coordinates == {"a": (1, 2), "b": (3, 4), "e": (20, 10), "f": (7, 8), "g": (9, 10)}
    assert texts(script) == []
    assert notes(script) == [(2, "buscoords"), (6, "setbusxy")]
    assert "3 rows are not `bus, x, y`, the first in line 1" in script.notes[0].why


@pytest.mark.parametrize("asked", ["none.csv", "../secret.csv", "C:\\xy.csv", "binary.csv", "."])
def test_missing_coordinates_are_noted(folder: Path, asked: str) -> None:
    (folder / "binary.csv").write_bytes(bytes(range(256)))
    script = read(folder, f"BusCoords {asked}")
    assert (script.bus_coordinates, notes(script)) == ({}, [(2, "buscoords")])


NETWORK = """Clear
Set DefaultBaseFrequency=50
New Circuit.net bus1=source basekv=11 pu=1.02 phases=3
Redirect "Parts of it\\lines.dss"
New Monitor.m element=Line.first mode=1
~ ppolar=no
New EnergyMeter.e Line.first
Set voltagebases=[11 0.4]
CalcV
Solve
Export voltages
Show voltages"""
LINES = """New LineCode.lc nphases=3 r1=0.4 x1=0.3 units=km
New Line.first bus1=source bus2=mid linecode=lc length=2 units=km
New Transformer.t buses=(mid, end) conns=(delta wye) kvs=(11 0.4) kvas=[500 500] xhl=5
New RegControl.r transformer=t winding=2 vreg=230 ptratio=1 band=2 debugtrace=yes eventlog=yes
New LoadShape.own npts=24 interval=1 mult=(file='own shape.csv')
New LoadShape.quoted npts=24 interval=1 csvfile='own shape.csv'
New LoadShape.other npts=24 interval=1 mult=(file=../../secret.csv)
New Load.a bus1=end.1 phases=1 kv=0.23 kw=60 pf=0.9 daily=quoted
New Load.b bus1=end.2 phases=1 kv=0.23 kw=30 pf=0.9 daily=other
Load.a.kw=50"""


def context() -> Any:
    engine = dss.NewContext()
    engine.AllowForms = False
    engine.AllowEditor = False
    engine.AllowChangeDir = False
    return engine


def test_the_engine_takes_the_commands_and_no_file_appears(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    shape = "".join(f"{0.5 + hour / 24:.6f}\n" for hour in range(24))
    master = write(folder, NETWORK, {"Parts of it/lines.dss": LINES, "Parts of it/own shape.csv": shape})
    before = sorted(tmp_path.rglob("*"))
    engine = context()
    engine.Text.Commands([command.text for command in read_script(master).commands])

    shapes = engine.ActiveCircuit.LoadShapes
    shapes.Name = "own"
    np.testing.assert_allclose(shapes.Pmult, [0.5 + hour / 24 for hour in range(24)], atol=1e-6)
    shapes.Name = "other"
    np.testing.assert_array_equal(shapes.Pmult, [1.0])
    assert engine.ActiveCircuit.Monitors.Count == engine.ActiveCircuit.Meters.Count == 0
    engine.Text.Command = "set mode=daily number=24"
    engine.ActiveCircuit.Solution.Solve()
    assert engine.ActiveCircuit.Solution.Converged
    assert sorted(tmp_path.rglob("*")) == before


def test_the_commands_make_the_circuit_that_the_engine_compiles(folder: Path) -> None:
    lines = [line.partition(" daily")[0] for line in LINES.splitlines() if "LoadShape" not in line]
    files = {"Parts of it/lines.dss": "\n".join(lines)}
    master = write(folder, NETWORK.replace("Solve\nExport voltages\nShow voltages", ""), files)
    solved: list[dict[str, float]] = []
    for commands in ([f'compile "{master}"'], [command.text for command in read_script(master).commands]):
        engine = context()
        for command in (*commands, "set controlmode=off tolerance=1e-10", "solve"):
            engine.Text.Command = command
        circuit = engine.ActiveCircuit
        solved.append(dict(zip(circuit.AllNodeNames, np.asarray(circuit.AllBusVmagPu), strict=True)))
    assert solved[0].keys() == solved[1].keys()
    np.testing.assert_allclose(list(solved[0].values()), list(solved[1].values()), rtol=1e-9)
    assert min(solved[0].values()) > 0.8
