"""The type checker that tests put under array annotations, so that a wrong shape or dtype fails where it arises."""

from __future__ import annotations

from pathlib import Path

from beartype import BeartypeConf, beartype

REPOSITORY = Path(__file__).resolve().parents[1]

# An int where a float is asked for is fine, as PEP 484 has it.
check = beartype(conf=BeartypeConf(is_pep484_tower=True))


def annotated_modules() -> list[str]:
    """Modules of the package with shapes in their annotations.

    The others are left alone: there is nothing to check in them, and the compiled ones could not be wrapped.
    """
    found = []
    for file in sorted((REPOSITORY / "mycelium").rglob("*.py")):
        if "from jaxtyping import" in file.read_text(encoding="utf-8"):
            found.append(".".join(file.relative_to(REPOSITORY).with_suffix("").parts))
    return found
