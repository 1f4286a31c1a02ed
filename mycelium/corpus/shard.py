"""Shards: days of one variant of one network in one safetensors file, read through a memory map.

Arrays hold one day per row, as in ``Day``: ``v`` is [day, hour, node, 2], the last axis real and imaginary part. The
inside of faulted lines differs in size: ``v_interior`` holds all of them, ``v_interior_start`` where each begins.
Nothing is read from disk until it is used, and then only the pages it lies in.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from mycelium.errors import FeederError
from mycelium.simulate.day import Day
from mycelium.simulate.fault import Fault

Array = npt.NDArray[Any]

_COMPLEX = ("v", "consumer_current", "der_current", "source_current")
_PLAIN = ("tap_pu", "capacitor_steps", "energised", "switch_open", "group_phase")
_DTYPES = {"F64": np.float64, "I64": np.int64, "I16": np.int16, "I8": np.int8, "BOOL": np.bool_}
_HEADER_BYTES = 8


def shard_bytes(days: Sequence[Day]) -> bytes:
    """Days of one variant of one network as the bytes of a shard; equal days give equal bytes."""
    arrays: dict[str, Array] = {name: _pairs(np.stack([getattr(day, name) for day in days])) for name in _COMPLEX}
    arrays |= {name: np.stack([getattr(day, name) for day in days]) for name in _PLAIN}
    sizes = [len(day.v_interior) for day in days]
    arrays["v_interior"] = _pairs(np.concatenate([day.v_interior for day in days]))
    arrays["v_interior_start"] = np.cumsum([0, *sizes], dtype=np.int64)
    arrays["number"] = np.array([day.number for day in days], dtype=np.int64)
    return save(arrays)


def _pairs(values: npt.NDArray[np.complex128]) -> npt.NDArray[np.float64]:
    """Complex numbers as pairs of reals on a last axis."""
    return np.ascontiguousarray(values).view(np.float64).reshape(*values.shape, 2)


@dataclass(frozen=True)
class Shard:
    """An open shard.

    Attributes:
        path: Its file.
        arrays: Views into the map. [day, ...]
    """

    path: Path
    arrays: dict[str, Array]

    @staticmethod
    def open(path: Path) -> Shard:
        """Map a file; reads its header only."""
        try:
            with path.open("rb") as file:
                size = int.from_bytes(file.read(_HEADER_BYTES), "little")
                header = json.loads(file.read(size))
                whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            arrays = {name: _view(whole, _HEADER_BYTES + size, entry) for name, entry in header.items()}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FeederError(
                f"{path}: not a shard, or damaged ({error}); `mycelium corpus validate` finds what is damaged, and the "
                "next build makes it again"
            ) from error
        return Shard(path, arrays)

    @cached_property
    def numbers(self) -> npt.NDArray[np.int64]:
        """Case number of each day. [day]"""
        return np.array(self.arrays["number"])

    def complex(self, name: str) -> npt.NDArray[np.complex128]:
        """A complex array. [day, ...]"""
        return self.arrays[name].view(np.complex128)[..., 0]

    def interior(self, row: int) -> npt.NDArray[np.complex128]:
        """Voltages inside the faulted line of a day, V. [conductor]"""
        start = self.arrays["v_interior_start"]
        return self.complex("v_interior")[int(start[row]) : int(start[row + 1])]

    def day(self, row: int, fault: Fault | None, **facts: Any) -> Day:
        """A day, its arrays views into the map.

        Args:
            row: Which.
            fault: As its record says.
            facts: ``network``, ``seed``, ``number``, ``variant``, ``day_of_year``, ``solver``.
        """
        arrays = {name: self.complex(name)[row] for name in _COMPLEX}
        arrays |= {name: self.arrays[name][row] for name in _PLAIN}
        return Day(**arrays, v_interior=self.interior(row), fault=fault, **facts)


def _view(whole: mmap.mmap, start: int, entry: dict[str, Any]) -> Array:
    begin, end = entry["data_offsets"]
    if start + end > len(whole):
        raise ValueError("it ends early")
    return np.ndarray(tuple(entry["shape"]), _DTYPES[entry["dtype"]], whole, start + begin)
