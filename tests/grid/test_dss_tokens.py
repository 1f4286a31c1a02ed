"""What we read in OpenDSS text is what the engine reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from dss import dss
from hypothesis import given, settings
from hypothesis import strategies as st

from mycelium.errors import FeederError
from mycelium.grid import dss_tokens
from mycelium.grid.dss_tokens import PLAIN_LINE, Folder, Tokens, file_in_array, quoted, vocabulary


@settings(max_examples=500, deadline=None)
@given(st.text(alphabet="ab=,, \t\"'()[]{}!//|.", max_size=20))
def test_tokens_are_the_engines(line: str) -> None:
    parser = dss.Parser
    parser.CmdString = line
    tokens = Tokens(line, {})
    while True:
        name, value = parser.NextParam, parser.StrValue
        parameter = tokens.take()
        assert (parameter.name, parameter.value) == (name.lower(), value)
        if not value:
            break


@pytest.mark.parametrize("token", ["@x", "@X", "@x.1.2", "@x^y.1", "@nested", "a@x", "@other", "'@x'", "@", "@braces"])
def test_variables_are_the_engines(token: str) -> None:
    variables = {"@x": "bus.5", "@nested": "{@x 2}", "@braces": "{a b}"}
    engine = dss.NewContext()
    for command in ("new circuit.c", "var @x=bus.5 @nested='@x 2' @braces='{a b}'", f"new load.a bus1={token}"):
        engine.Text.Command = command
    engine.Text.Command = "? load.a.bus1"
    assert Tokens(token, variables).take().value == engine.Text.Result


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(["a", "file", "=", "=", " ", " ", *"\"'()[]{}!,/@|."]), max_size=16))
def test_lines_taken_as_plain_hide_no_file(parts: list[str]) -> None:
    line = f"~ {''.join(parts)}"
    plain = PLAIN_LINE.match(line)
    if plain and "//" not in line and "@" not in line:
        assert all(file_in_array(parameter.value, {}) is None for parameter in Tokens(line, {}))


def test_quotes_are_chosen_to_hold_a_value() -> None:
    assert quoted("a b") == '"a b"'
    assert quoted('a"b') == "'a\"b'"
    assert quoted("a", avoid="\"'") == "(a)"
    assert quoted("\"')]}") is None


def test_every_property_that_names_a_file_is_known() -> None:
    words = vocabulary()
    assert words.command("calcv") == "calcvoltagebases"
    assert words.command("") == ""
    named = {name for _, name in words.purposes}
    assert {"csvfile", "sngfile", "dblfile", "pqcsvfile", "usermodel", "shaftmodel", "dynadll"} <= named
    assert {"userdata", "shaftdata", "dynadata", "debugtrace", "eventlog", "memorymapping", "action"} <= named
    assert {"line", "load", "transformer", "capacitor", "linecode"} <= words.plain_classes


def test_files_that_are_no_text_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "binary.dss").write_bytes(bytes(range(256)))
    (tmp_path / "wide.dss").write_bytes("New Line.a".encode("utf-16"))
    folder = Folder(tmp_path.resolve())
    for name in ("binary.dss", "wide.dss"):
        with pytest.raises(FeederError, match=f"'{name}' is not a text file; save it as UTF-8"):
            folder.read(folder.root / name)
    monkeypatch.setattr(dss_tokens, "MAX_FILE_BYTES", 100)
    with pytest.raises(FeederError, match="too large"):
        folder.read(folder.root / "binary.dss")
    with pytest.raises(FeederError, match="cannot be read: No such file"):
        folder.read(folder.root / "none.dss")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("New Line.Göteborg\rNew Line.b\r\nc".encode("latin-1"), "New Line.Göteborg\nNew Line.b\nc"),
        ("\ufeffNew Line.Göteborg".encode(), "New Line.Göteborg"),
        (b"x" * 2000 + b"\0\n", "x" * 2000 + "\n"),
        ("a\x0bb\u2028c".encode(), "a\x0bb\u2028c"),
    ],
)
def test_old_and_odd_encodings_are_read(tmp_path: Path, content: bytes, text: str) -> None:
    (tmp_path / "a.dss").write_bytes(content)
    folder = Folder(tmp_path.resolve())
    assert folder.read(folder.root / "a.dss") == text
