"""One feeder from one seed: sample, build, repair, judge (Algorithm 1 of the paper)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mycelium.simulate.seeds import generator
from mycelium.synth.accept import Verdict, judge
from mycelium.synth.construct import Builder, Layout, Stock
from mycelium.synth.design import Design
from mycelium.synth.equipment import add_equipment, sound
from mycelium.synth.geography import Geography
from mycelium.synth.layout import draw_layout
from mycelium.synth.library import Library
from mycelium.synth.model import Inputs, Model, Solver, State
from mycelium.synth.parameters import Parameters, SynthConfig, draw_parameters
from mycelium.synth.profiles import (
    ProfileFiles,
    coincidence_factors,
    day_shapes,
    match_buildings,
    reference_year,
)
from mycelium.synth.repair import Repairs
from mycelium.synth.repair_actions import Options
from mycelium.synth.switches import add_switches
from mycelium.synth.territory import NoTerritory

_DIGITS = 6  # of η_c and λ, so that the files hold what was solved


@dataclass(frozen=True)
class Workshop:
    """What all feeders of a run are made with.

    Attributes:
        seed: Seed of the run.
        config: Sizes and chances.
        library: Components and statistics.
        places: Geography; none for invented towns.
        files: Annual profiles; built-in where none is given.
    """

    seed: int
    config: SynthConfig
    library: Library
    places: Sequence[Geography]
    files: ProfileFiles


@dataclass
class Attempt:
    """What became of a seed; as far as it got.

    Attributes:
        verdict: Accepted, or why not.
        seconds: Time that stages took; no part of what is written.
    """

    number: int
    parameters: Parameters | None = None
    place: Geography | None = None
    layout: Layout | None = None
    design: Design | None = None
    inputs: Inputs | None = None
    repairs: list[dict[str, Any]] = field(default_factory=list)
    verdict: Verdict = field(default_factory=lambda: Verdict(("nothing was tried",)))
    a: State | None = None
    b: State | None = None
    day: list[State] = field(default_factory=list)
    node_bus: list[str] = field(default_factory=list)
    branch_is_line: np.typing.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))
    seconds: dict[str, float] = field(default_factory=dict)


class FeederMaker:
    """Makes numbered feeders, one after the other, in one engine."""

    def __init__(self, workshop: Workshop) -> None:
        self._shop = workshop
        self._solver = Solver()
        self.attempt = Attempt(-1)

    def make(self, number: int) -> Attempt:
        """One feeder. What an exception leaves behind is in ``attempt``."""
        attempt = self.attempt = Attempt(number)
        clock = _Clock(attempt.seconds)
        parameters = attempt.parameters = draw_parameters(
            self._shop.config, self._shop.library, self._rng(number, "parameters")
        )
        stock = Stock.draw(self._shop.library, parameters, self._rng(number, "stock"))
        try:
            attempt.place, attempt.layout = draw_layout(
                parameters, self._shop.library, stock, self._shop.places, lambda what: self._rng(number, what)
            )
        except NoTerritory as error:
            attempt.verdict = Verdict((f"no territory: {error}",))
            return attempt
        clock("layout")
        self._build(attempt, parameters, attempt.layout, stock)
        clock("design")
        assert attempt.design is not None and attempt.inputs is not None
        model = Model(self._solver, attempt.design, attempt.inputs)
        clock("compile")
        repairs = Repairs(model, self._options(parameters, stock, number), parameters.thermal, attempt.repairs)
        repairs.snapshots()
        clock("snapshots")
        repairs.day()
        clock("day")
        # The last word is on what is written: the same text, compiled anew.
        final = Model(self._solver, attempt.design, attempt.inputs)
        attempt.verdict, attempt.a, attempt.b, attempt.day = judge(final, parameters.thermal)
        attempt.node_bus, attempt.branch_is_line = getattr(final, "node_bus", []), final.branch_is_line
        clock("judge")
        return attempt

    def _build(self, attempt: Attempt, parameters: Parameters, layout: Layout, stock: Stock) -> None:
        """The design, and the inputs of its operating points."""
        number = attempt.number
        name = f"synth_{self._shop.seed}_{number:06d}"
        design = attempt.design = Builder(layout, parameters, stock).build(name, self._rng(number, "head"))
        add_equipment(design, parameters, self._shop.library, self._rng(number, "equipment"))
        add_switches(design, layout, parameters, stock, self._rng(number, "switches"))
        year = reference_year(parameters.climate, self._shop.files)
        rng = self._rng(number, "profiles")
        building = match_buildings(layout.customers.kw, layout.customers.three_phase, year, rng)
        eta = coincidence_factors(layout.customers.kw, layout.areas.of_customer, building, year)
        shapes = day_shapes(
            building, year, parameters.date.day_of_year, len(design.pvs), parameters.latitude_deg, self._shop.files, rng
        )
        of_customer = np.round(eta, _DIGITS)[layout.areas.of_customer]
        attempt.inputs = Inputs(of_customer, round(parameters.demand_lambda, _DIGITS), shapes)

    def _options(self, parameters: Parameters, stock: Stock, number: int) -> Options:
        convention, library = parameters.convention, self._shop.library
        rng = self._rng(number, "options")
        regulator = sound(library.draw_regulator(rng, convention)) if convention.has_regulators else None
        return Options(stock, regulator, convention.has_capacitors)

    def _rng(self, number: int, purpose: str) -> np.random.Generator:
        return generator("synth", self._shop.seed, number, purpose)


class _Clock:
    """Seconds since the last call, by stage."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds, self._last = seconds, time.monotonic()

    def __call__(self, stage: str) -> None:
        now = time.monotonic()
        self._seconds[stage] = now - self._last
        self._last = now
