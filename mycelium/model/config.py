"""Sizes and parts of the model: saved beside its weights, and enough to build it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from mycelium.errors import FeederError
from mycelium.model.relations import AttentionConfig
from mycelium.window.columns import Communication, WindowOptions

# Everything that the paper's inputs name without calling it optional, and its optional communication and extended
# measurements; the parts that it calls optional and does not mention in its readouts are left out.
_PAPER_WINDOW = WindowOptions(
    full_impedance=False, winding_connections=False, reactor_impedance=False, phase_head=False
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MyceliumConfig:
    """The model.

    Attributes:
        width: Channels of every state.
        heads: Attention heads.
        layers: Spatial layers.
        feedforward: Channels inside a layer's feed-forward part.
        position: Channels of the embedded positional descriptors.
        scorer: Channels inside what scores hours.
        dilations: Of the temporal convolutions of the state readout.
        dropout: Share of channels dropped in training.
        window: Which inputs it takes. Communication and nominal angles are ablated here.
    """

    width: int = 128
    heads: int = 4
    layers: int = 8
    feedforward: int = 256
    position: int = 16
    scorer: int = 64
    dilations: tuple[int, ...] = (1, 2, 4, 8)
    dropout: float = 0.1
    window: WindowOptions = field(default_factory=WindowOptions)

    @staticmethod
    def paper() -> MyceliumConfig:
        """The configuration of the paper."""
        return MyceliumConfig(window=_PAPER_WINDOW)

    @staticmethod
    def tiny() -> MyceliumConfig:
        """All parts at a size for tests: under 50 kB of weights."""
        return MyceliumConfig(width=8, heads=2, layers=1, feedforward=8, position=4, scorer=4, window=_PAPER_WINDOW)

    @property
    def attention(self) -> AttentionConfig:
        """Of the spatial layers."""
        return AttentionConfig(width=self.width, heads=self.heads)

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @staticmethod
    def of_record(record: Mapping[str, Any]) -> MyceliumConfig:
        """From ``record``; refuses unknown and missing names."""
        window = _exactly(WindowOptions, record.get("window", {}))
        window["communication"] = Communication(window["communication"])
        values = _exactly(MyceliumConfig, record)
        values |= {"window": WindowOptions(**window), "dilations": tuple(values["dilations"])}
        return MyceliumConfig(**values)


def _exactly(kind: type, record: Mapping[str, Any]) -> dict[str, Any]:
    known = {field.name for field in fields(kind)}
    if known != set(record):
        missing, unknown = sorted(known - set(record)), sorted(set(record) - known)
        raise FeederError(
            f"{kind.__name__}: missing {missing}, unknown {unknown}; these weights are of another version"
        )
    return dict(record)
