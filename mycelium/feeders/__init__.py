"""The feeders that come with the package: OpenDSS models, small enough to read; README.md tells of each."""

from importlib.resources import files
from pathlib import Path

FEEDERS: tuple[str, ...] = ("ieee13", "ieee34", "ieee37", "ieee123", "lv_town", "lv_fourwire", "us_suburb")


def feeder_path(name: str) -> Path:
    """The master file of a bundled feeder; everything it refers to lies in the same folder.

    Args:
        name: one of ``FEEDERS``.

    Raises:
        ValueError: there is no feeder of that name.
    """
    if name not in FEEDERS:
        raise ValueError(f"no bundled feeder {name!r}; there are {', '.join(FEEDERS)}")
    return Path(str(files(__name__))) / name / "Master.dss"
