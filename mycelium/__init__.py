"""Mycelium: one learned model for any electrical distribution feeder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mycelium.model.config import MyceliumConfig
    from mycelium.model.mycelium import Mycelium

__all__ = ["Mycelium", "MyceliumConfig"]


def __getattr__(name: str) -> Any:
    """The model when it is asked for: what imports, simulates or senses does without PyTorch."""
    if name == "Mycelium":
        from mycelium.model.mycelium import Mycelium

        return Mycelium
    if name == "MyceliumConfig":
        from mycelium.model.config import MyceliumConfig

        return MyceliumConfig
    raise AttributeError(f"module 'mycelium' has no attribute '{name}'")
