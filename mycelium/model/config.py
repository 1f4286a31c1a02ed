"""Sizes and parts of the model: saved beside its weights, and enough to build it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from mycelium.errors import FeederError
from mycelium.model.relations import RELATIONS, AttentionConfig
from mycelium.schema import TASKS
from mycelium.window.columns import Communication, Relation, WindowOptions

# Everything that the paper's inputs name without calling it optional, and its optional communication and extended
# measurements; the parts that it calls optional and does not mention in its readouts are left out.
_PAPER_WINDOW = WindowOptions(
    full_impedance=False, winding_connections=False, reactor_impedance=False, phase_head=False
)
_SHORTCUTS = (Relation.UPLINK, Relation.DOWNLINK)


@dataclass(frozen=True, slots=True, kw_only=True)
class MyceliumConfig:
    """The model.

    Attributes:
        width: Channels of every state.
        heads: Attention heads.
        layers: Spatial layers.
        feedforward: Channels inside a layer's feed-forward part.
        position: Channels of the embedded positional descriptors.
        dilations: Of the temporal convolutions of the state readout.
        dropout: Share of channels dropped in training.
        tasks: Which readouts there are; one alone is the paper's single-task model.
        window: Which inputs it takes. Communication and nominal angles are ablated here.
    """

    width: int = 128
    heads: int = 4
    layers: int = 8
    feedforward: int = 256
    position: int = 16
    dilations: tuple[int, ...] = (1, 2, 4, 8)
    dropout: float = 0.1
    tasks: tuple[str, ...] = TASKS
    window: WindowOptions = field(default_factory=WindowOptions)

    def __post_init__(self) -> None:
        for name in ("width", "heads", "layers", "feedforward", "position"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)!r}: expected a whole number, at least 1")
        if not all(isinstance(dilation, int) and dilation > 0 for dilation in self.dilations):
            raise ValueError(f"dilations {self.dilations}: expected whole numbers, at least 1")
        if not isinstance(self.dropout, float) or not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout {self.dropout!r}: expected a number from 0 to less than 1")
        if not self.tasks or not set(self.tasks) <= set(TASKS):
            raise ValueError(f"tasks {self.tasks}: expected one or more of {', '.join(TASKS)}")

    @staticmethod
    def paper() -> MyceliumConfig:
        """The configuration of the paper."""
        return MyceliumConfig(window=_PAPER_WINDOW)

    @staticmethod
    def tiny() -> MyceliumConfig:
        """All parts at a size for tests: under 50 kB when saved."""
        return MyceliumConfig(width=4, heads=2, layers=1, feedforward=4, position=2, window=_PAPER_WINDOW)

    @property
    def attention(self) -> AttentionConfig:
        """Of the spatial layers; without communication there are no weights for it."""
        linked = self.window.communication is not Communication.NONE
        relations = tuple(relation for relation in RELATIONS if linked or relation.kind not in _SHORTCUTS)
        return AttentionConfig(width=self.width, heads=self.heads, relations=relations)

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @staticmethod
    def of_record(record: Mapping[str, Any]) -> MyceliumConfig:
        """From ``record``; refuses unknown and missing names, and sizes that do not fit."""
        values = _exactly(MyceliumConfig, record)
        window = _exactly(WindowOptions, record["window"])
        try:
            window["communication"] = Communication(window["communication"])
            values |= {name: tuple(values[name]) for name in ("dilations", "tasks")}
            config = MyceliumConfig(**values | {"window": WindowOptions(**window)})
            _ = config.attention  # whose sizes have rules of their own
        except (TypeError, ValueError) as error:
            raise FeederError(f"MyceliumConfig: {error}; expected what save_pretrained writes") from error
        return config


def _exactly(kind: type, record: Any) -> dict[str, Any]:
    """A copy of a mapping that has the names of a dataclass, no more and no fewer."""
    if not isinstance(record, Mapping):
        raise FeederError(f"{kind.__name__}: expected names and values, found {record!r}")
    known = {field.name for field in fields(kind)}
    if known != set(record):
        missing, unknown = sorted(known - set(record)), sorted(set(record) - known)
        raise FeederError(
            f"{kind.__name__}: missing {missing}, unknown {unknown}; these weights are of another version of mycelium"
        )
    return dict(record)
