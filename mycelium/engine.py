"""The OpenDSS engine, as this package uses it: one private context, fed with checked commands only.

The engine never opens a script itself. ``read_script`` flattens master and redirects, refuses what could read, write
or run anything outside the feeder's folder, and keeps file and line of each command, so that an engine error can say
where it comes from.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from altdss import altdss as _prime_context
from dss import DSSException

from mycelium.errors import FeederError
from mycelium.grid.dss_script import Command, Script

Complex = npt.NDArray[np.complex128]

TOLERANCE = 1e-9
MAX_ITERATIONS = 200
MAX_CONTROL_ITERATIONS = 100
_WHOLE_MATRIX = 1  # the engine's code for all of Y


class Engine:
    """A compiled circuit in a private engine context.

    Attributes:
        alt: The altdss object model (batch access).
        dss: The classic interface of the same context.
    """

    def __init__(self, script: Script) -> None:
        folder = Path.cwd()
        self.alt: Any = _prime_context.NewContext()
        os.chdir(folder)  # the engine goes to where the process was when it was imported
        self.dss: Any = self.alt.to_dss_python()
        self.dss.AllowForms = False
        self.dss.AllowEditor = False
        self.dss.AllowChangeDir = False
        self.dss.AllowDOScmd = False
        self.compile(script)

    def compile(self, script: Script) -> None:
        """Build the circuit, in place of any before."""
        # The base frequency outlives `clear`: without this a 60 Hz file after a 50 Hz one would be read at 50 Hz.
        self.command("clear")
        self.command("set defaultbasefrequency=60")
        try:
            self.dss.Text.Commands([command.text for command in script.commands])
        except DSSException:
            self._recompile_to_locate(script)
        if not self.dss.ActiveCircuit.NumCktElements:
            raise FeederError(f"{script.master.name}: no circuit elements were defined")
        try:
            # Until Y is built the engine holds default values for lines and others that it works out late; a model
            # that ends without a solve or `calcvoltagebases`, or goes on after it, would be read with these.
            self.dss.ActiveCircuit.Solution.BuildYMatrix(_WHOLE_MATRIX, 1)
        except DSSException as error:
            reason = " ".join(str(error).split())
            raise FeederError(f"{script.master.name}: OpenDSS cannot build the network: {reason}") from error

    def _recompile_to_locate(self, script: Script) -> None:
        """Feed the commands one by one, to name the file and line of the one that fails."""
        self.command("clear")
        self.command("set defaultbasefrequency=60")
        for command in script.commands:
            try:
                self.command(command.text)
            except DSSException as error:
                raise FeederError(_where(command, error)) from error

    def command(self, text: str) -> None:
        """Run one engine command; raises DSSException on an engine error."""
        self.dss.Text.Command = text

    def close(self) -> None:
        """Free the circuit; the context itself, which altdss never disposes of, is small without one."""
        self.command("clearall")

    def set_canonical(self) -> None:
        """Options under which every solve in this package runs."""
        for option in (
            f"tolerance={TOLERANCE:g}",
            f"maxiterations={MAX_ITERATIONS}",
            f"maxcontroliter={MAX_CONTROL_ITERATIONS}",
            "algorithm=normal",
        ):
            self.command(f"set {option}")

    def node_names(self) -> list[str]:
        """Names 'bus.conductor' in the order of ``voltages``."""
        return [str(name).lower() for name in self.alt.YNodeOrder()]

    def voltages(self) -> Complex:
        """Node voltages, V. [engine node]"""
        return np.array(self.alt.YNodeVarray(), dtype=np.complex128)


def _where(command: Command, error: DSSException) -> str:
    reason = " ".join(str(error).split())
    return f"{command.file}:{command.line}: OpenDSS does not accept '{command.text[:120]}': {reason}"
