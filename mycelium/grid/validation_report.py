"""What a validation found: which component, which field, which elements, and what was expected instead."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

_IDS_SHOWN = 20
_IDS_TOLD = 3


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a Grid that is wrong (error) or hard to believe (warning).

    Attributes:
        severity: Errors make results meaningless or impossible.
        component: Table it is in; 'grid' for what belongs to none.
        field: Column or packed matrix.
        ids: Names of the elements; empty where it concerns the whole field.
        expected: What should be there.
        found: What is there, the first few values.
    """

    severity: Severity
    component: str
    field: str
    ids: tuple[str, ...]
    expected: str
    found: str

    def __str__(self) -> str:
        told = ", ".join(repr(name) for name in self.ids[:_IDS_TOLD])
        more = f" and {len(self.ids) - _IDS_TOLD} more" if len(self.ids) > _IDS_TOLD else ""
        of = f" of {told}{more}" if self.ids else ""
        return f"{self.severity}: {self.component}.{self.field}{of}: expected {self.expected}, found {self.found}"

    def as_dict(self) -> dict[str, object]:
        """For JSON; a long list of elements is counted and shortened."""
        return {
            "severity": str(self.severity),
            "component": self.component,
            "field": self.field,
            "count": len(self.ids),
            "ids": list(self.ids[:_IDS_SHOWN]),
            "expected": self.expected,
            "found": self.found,
        }


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """Result of ``validate``.

    Attributes:
        network: Name of the Grid.
        findings: Errors first, then warnings.
        not_checked: Checks that the errors made impossible.
    """

    network: str
    findings: tuple[Finding, ...]
    not_checked: tuple[str, ...] = ()

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity is Severity.WARNING)

    @property
    def ok(self) -> bool:
        """No errors; there may be warnings."""
        return not self.errors

    def __str__(self) -> str:
        lines = [f"{self.network}: {_count(self.errors, 'error')}, {_count(self.warnings, 'warning')}"]
        lines += [f"  {finding}" for finding in self.findings]
        if self.not_checked:
            lines.append(f"  not checked until the errors are mended: {', '.join(self.not_checked)}")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "network": self.network,
            "ok": self.ok,
            "errors": len(self.errors),
            "warnings": len(self.warnings),
            "findings": [finding.as_dict() for finding in self.findings],
            "not_checked": list(self.not_checked),
        }


def _count(findings: tuple[Finding, ...], what: str) -> str:
    return f"{len(findings)} {what}{'' if len(findings) == 1 else 's'}"
