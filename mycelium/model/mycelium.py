"""Mycelium: encoders, backbone and readouts, from a Window to Estimates."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from mycelium.errors import FeederError
from mycelium.grid.grid import Grid
from mycelium.model.attention import precision
from mycelium.model.backbone import Backbone
from mycelium.model.config import MyceliumConfig
from mycelium.model.estimates import Estimates
from mycelium.model.fault import N_CLASSES, FaultReadout
from mycelium.model.fusion import Encoders
from mycelium.model.phase import PhaseReadout
from mycelium.model.readout import Context
from mycelium.model.relation_edges import RelationEdges
from mycelium.model.state import StateReadout
from mycelium.model.switch import SwitchReadout
from mycelium.model.weights import Weights
from mycelium.schema import HOURS
from mycelium.sense.readings import Readings
from mycelium.window.batch import Batch
from mycelium.window.columns import BACKBONE, NODES, OBJECT, Store
from mycelium.window.normalise import Normalisation
from mycelium.window.sample import Sample, SampleId
from mycelium.window.static import GridFeatures
from mycelium.window.temporal import Observer
from mycelium.window.window import Window

READOUTS = {"state": StateReadout, "phase": PhaseReadout, "switch": SwitchReadout, "fault": FaultReadout}
N_PHASES = 3


class Mycelium(nn.Module):
    """The model.

    Attributes:
        config: Its sizes and parts.
        normalisation: Constants of the windows it is trained on; saved with it, and used by ``estimate``.
        encoders, backbone, readouts: Its parts; training of heads only leaves the first two alone.
    """

    def __init__(self, config: MyceliumConfig, normalisation: Normalisation | None = None) -> None:
        super().__init__()
        self.config = config
        self.normalisation = normalisation or Normalisation.identity()
        self.encoders = Encoders(config)
        self.backbone = Backbone(config)
        self.readouts = nn.ModuleDict({task: READOUTS[task](config) for task in config.tasks})

    def forward(self, window: Window) -> Estimates:
        """Answer all questions of a window, which may hold several networks."""
        if window.options != self.config.window:
            raise FeederError(f"this window was made with {window.options}; the model takes {self.config.window}")
        encoded = self.encoders(window)
        edges = _edges(self.config, window)
        branches = torch.cat([encoded.branches[kind] for kind in self.config.attention.branches], dim=1)
        branches = branches.to(precision(branches))  # once for all layers
        context = Context.of(window, encoded, self.backbone(encoded.nodes, branches, edges))
        answers = _unasked(window)
        for readout in self.readouts.values():
            answers |= readout(window, context)
        return Estimates(**answers)

    @torch.no_grad()
    def estimate(self, grid: Grid, readings: Readings) -> Estimates:
        """Answer all questions of a day of readings on one feeder, by its records.

        Rows of the answers are those of the Grid's tables; candidates for a fault are all buses, then all lines, then
        all transformers. Angles are absolute, not relative to nominal ones as those of a Window; where a bus has no
        such phase there is no voltage (``Estimates.absolute``).
        """
        features = GridFeatures.of(grid, self.config.window, self.normalisation)
        sample = Sample(SampleId(grid.name), Observer.of(features).observe(readings), None)
        batch = Batch.of([(features, sample)]).to(next(self.parameters()).device)
        window, trained = batch.window(), self.training
        try:
            answers: Estimates = self.eval()(window)
        finally:
            self.train(trained)
        return answers.absolute(window)

    def save_pretrained(self, folder: Path | str, dtype: torch.dtype = torch.float32) -> None:
        """Write config, constants and weights into a folder, which ``from_pretrained`` reads; whole or not at all."""
        Weights(self.config, self.normalisation, self.state_dict()).save(Path(folder), dtype)

    @staticmethod
    def from_pretrained(name_or_path: Path | str) -> Mycelium:
        """The model of a folder, or of a name that ships with this package; ready to answer, not to train."""
        weights = Weights.load(name_or_path)
        model = Mycelium(weights.config, weights.normalisation)
        weights.fill(model)
        return model.eval()


def _edges(config: MyceliumConfig, window: Window) -> RelationEdges:
    """The window's edges, compiled once for all layers and hours."""
    counts = {store.value: len(window.graph[store]) for store in NODES}
    return RelationEdges.compile(config.attention, counts, {kind.value: window.edges[kind] for kind in BACKBONE})


def _unasked(window: Window) -> dict[str, Tensor]:
    """Answers of a model without readouts."""
    n_bus, n_consumer, n_line = (len(window.graph[store]) for store in (Store.BUS, Store.CONSUMER, Store.LINE))
    shapes = {
        "v_pu": (HOURS, n_bus, N_PHASES),
        "angle_rad": (HOURS, n_bus, N_PHASES),
        "phase": (n_consumer, N_PHASES),
        "switch": (n_line,),
        "fault": (window.n_graphs, N_CLASSES),
        "location": (n_bus + n_line + len(window.graph[OBJECT]),),
    }
    nothing = window.base_v.new_tensor(torch.nan)
    return {name: nothing.expand(shape) for name, shape in shapes.items()}
