"""Impedances written for another base frequency than the network's, as a 50 Hz line code in a 60 Hz circuit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

METRES = {1: 1609.344, 2: 304.8, 3: 1000.0, 4: 1.0, 5: 0.3048, 6: 0.0254, 7: 0.01, 8: 0.001}  # by engine unit code


def reactance_ratio(element: Any, frequency_hz: float) -> float:
    """Reactance at the network's frequency over that at the element's own base frequency."""
    return float(frequency_hz / element.BaseFreq)


def line_impedances(batch: Any, frequency_hz: float) -> tuple[list[Floats], list[Floats]]:
    """Resistance and reactance of every line per unit of its length, flat, at the network's frequency.

    Earth return grows with frequency in its own way, so the engine corrects what it takes to be earth's share of the
    given values. Impedances from a geometry are made for the network's frequency in the first place.
    """
    r, x = ([np.asarray(block, dtype=np.float64).ravel() for block in rows] for rows in (batch.RMatrix, batch.XMatrix))
    base_hz = np.asarray(batch.BaseFreq.to_array(), dtype=np.float64)
    for k in np.flatnonzero(base_hz != frequency_hz):
        line = batch[int(k)]
        if line.Geometry_str or line.Spacing_str:
            continue
        ratio = frequency_hz / base_hz[k]
        earth_r, earth_x = line.Rg * _per_line_unit(line), line.Xg * _per_line_unit(line)
        earth_x = 0.5 * earth_x * np.log(ratio) / np.log(658.5 * np.sqrt(line.rho / base_hz[k]))
        r[k] = r[k] + earth_r * (ratio - 1.0)
        x[k] = (x[k] - earth_x) * ratio
    return r, x


def _per_line_unit(line: Any) -> float:
    """Factor from a value per unit length of the line's code to one per unit length of the line."""
    own, code = METRES.get(int(line.Units)), METRES.get(int(line.LineCode.Units)) if line.LineCode else None
    return own / code if own and code else 1.0
