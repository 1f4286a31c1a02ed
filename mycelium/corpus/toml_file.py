"""Reading TOML files that people write: what is wrong is said in the words of the file, and what to put instead."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from mycelium.errors import FeederError

_MOST = 2**63 - 1  # what tables hold
_SHOWN = 80


def read_toml(path: Path, kind: str) -> tuple[str, dict[str, Any]]:
    """Text and content of a file.

    Args:
        path: The file; a byte order mark, which some editors write, is no part of it.
        kind: What it should be, as in "a catalogue".
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        return text, tomllib.loads(text)
    except OSError as error:
        raise FeederError(f"{path}: not {kind}: it cannot be read ({error.strerror or error})") from error
    except ValueError as error:
        raise FeederError(f"{path}: not {kind} ({error}); correct it: it must be TOML, in UTF-8") from error


def whole_number(where: str, value: object, least: int = -_MOST - 1, most: int = _MOST) -> int:
    """A whole number.

    Args:
        where: File and key, for the message.
        value: As it is in the file.
        least, most: What is allowed.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        bounds = f"of at least {least}" if most == _MOST and least > -most else f"from {least} to {most}"
        raise FeederError(f"{where} is {shown(value)}; expected a whole number {bounds}")
    return value


def text_of(where: str, value: object) -> str:
    """A text."""
    if not isinstance(value, str):
        raise FeederError(f"{where} is {shown(value)}; expected a text in quotes")
    return value


def texts(where: str, value: object, example: str) -> list[str]:
    """A list of texts, at least one.

    Args:
        where: File and key, for the message.
        value: As it is in the file.
        example: Such a list, for the message.
    """
    if not isinstance(value, list) or not value or not all(isinstance(part, str) for part in value):
        raise FeederError(f"{where} is {shown(value)}; expected a list of texts, at least one, as in {example}")
    return value


def shown(value: object) -> str:
    """A value as it stands in a TOML file, or nearly; cut where it is long."""
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
