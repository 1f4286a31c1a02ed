"""A network as the simulator sees it: its variants, compiled as needed, and its cases."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mycelium.grid.dss_script import Script, read_script
from mycelium.simulate.builtin_profiles import BuiltinProfiles
from mycelium.simulate.cases import Case, CaseMix, draw_configuration, draw_fault, draw_variant
from mycelium.simulate.circuit import Circuit
from mycelium.simulate.day import Day
from mycelium.simulate.profile_own import OwnProfiles
from mycelium.simulate.profiles import ProfileSource
from mycelium.simulate.seeds import generator
from mycelium.simulate.shapes import day_request
from mycelium.simulate.variant import Variant, make_variant, n_variants


@dataclass(frozen=True, slots=True)
class NetworkSource:
    """Where a network comes from; small enough to be sent to a worker.

    Attributes:
        master: Main OpenDSS file.
        root: Folder that bounds what may be read; the master's own if not given.
        name: Cases are drawn from it; the circuit's own name if not given.
    """

    master: Path
    root: Path | None = None
    name: str | None = None


class Network:
    """Compiles the published network once, its variants on demand, and simulates numbered cases."""

    def __init__(self, source: NetworkSource, mix: CaseMix, profiles: ProfileSource | None = None) -> None:
        """Compile the published network.

        Args:
            source: Where it comes from.
            mix: How often each event is drawn.
            profiles: Demand where the network has no shapes of its own; built-in if not given.
        """
        self.source, self.mix = source, mix
        self._fallback = profiles if profiles is not None else BuiltinProfiles()
        self._script: Script = read_script(source.master, source.root)
        self.published = Circuit(self._script)
        self._own_profiles = self._with_own_shapes(self.published)
        self.name = source.name or self.published.grid.name
        self.n_variants = n_variants(self.published.grid)
        self._compiled: dict[int, Circuit] = {0: self.published}

    def variant(self, number: int) -> Variant:
        """A record variant."""
        return make_variant(self.published.grid, self.published.space.nominal, number)

    def circuit(self, number: int) -> Circuit:
        """The compiled circuit of a variant. All stay compiled: there are few, and the engine does not free them."""
        if number not in self._compiled:
            self._compiled[number] = Circuit(self._script, self.variant(number))
        return self._compiled[number]

    def close(self) -> None:
        """Free the engine's circuits."""
        for circuit in self._compiled.values():
            circuit.engine.close()
        self._compiled.clear()

    def draw(self, seed: int, number: int, mix: CaseMix | None = None) -> Case:
        """Case ``number`` of ``seed``: a function of the network's name, these two and the mix alone.

        Args:
            seed, number: Which case.
            mix: In place of the network's own; shares of 0 and 1 ask for a kind of case.
        """
        name, mix = self.name, mix or self.mix
        variant = draw_variant(name, seed, number, self.n_variants, mix)
        circuit = self.circuit(variant)
        configuration, changed, switching = draw_configuration(circuit.space, name, seed, number, mix)
        request = day_request(circuit.grid, circuit.demand, circuit.own_shapes)
        profile = self._own_profiles.day(request, generator(name, "case profile", seed, number))
        live = circuit.space.connectivity.energised(configuration)
        fault = draw_fault(circuit.space, configuration, live, name, seed, number, mix)
        return Case(name, seed, number, variant, configuration, changed, switching, live, profile, fault)

    def _with_own_shapes(self, circuit: Circuit) -> ProfileSource:
        own = circuit.own_shapes  # a variant has the same customers in the same order
        return OwnProfiles(own.p, own.q, own.hours_per_step, self._fallback) if own.p else self._fallback

    def simulate(self, seed: int, number: int, mix: CaseMix | None = None) -> Day:
        """Draw and solve a case; raises Rejection with the reason if it cannot be a sample."""
        case = self.draw(seed, number, mix)
        return self.circuit(case.variant).solve(case)
