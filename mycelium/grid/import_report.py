"""What an import did with every element of every class: read, approximated (how), or ignored (why)."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Remark:
    """Something approximated or ignored.

    Attributes:
        kind: Class or command it concerns, lower case.
        names: Elements, or file:line places.
        what: What was done, and why.
    """

    kind: str
    names: tuple[str, ...]
    what: str


@dataclass
class ImportReport:
    """Counts and remarks of one import.

    Attributes:
        total: Elements per engine class.
        read: Elements per class that the Grid holds.
        approximated: Elements held, but not exactly as modelled.
        ignored: Elements and commands that the Grid does not hold.
    """

    total: dict[str, int] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    approximated: list[Remark] = field(default_factory=list)
    ignored: list[Remark] = field(default_factory=list)

    def approximate(self, kind: str, names: list[str], what: str) -> None:
        if names:
            self.approximated.append(Remark(kind, tuple(names), what))

    def ignore(self, kind: str, names: list[str], why: str) -> None:
        if names:
            self.ignored.append(Remark(kind, tuple(names), why))

    def unaccounted(self) -> dict[str, int]:
        """Elements per class that are neither read nor ignored: must be empty."""
        lost = {}
        for kind, total in self.total.items():
            ignored = sum(len(remark.names) for remark in self.ignored if remark.kind == kind)
            rest = total - self.read.get(kind, 0) - ignored
            if rest:
                lost[kind] = rest
        return lost

    def as_dict(self) -> dict[str, object]:
        """For JSON; long name lists are counted and shortened."""
        return {
            "total": self.total,
            "read": self.read,
            "approximated": [_shorten(remark) for remark in self.approximated],
            "ignored": [_shorten(remark) for remark in self.ignored],
        }


def _shorten(remark: Remark) -> dict[str, object]:
    return {"kind": remark.kind, "count": len(remark.names), "what": remark.what, "names": list(remark.names[:20])}
