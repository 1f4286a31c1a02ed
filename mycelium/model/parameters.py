"""Parameters of the model by part, as a table:

python -m mycelium.model.parameters
"""

from __future__ import annotations

import re

from mycelium.model.config import MyceliumConfig
from mycelium.model.mycelium import Mycelium

PAPER = 12.2e6  # what it says its model has

# Parts by the names of their parameters; a parameter belongs to the first part that its name matches.
_PARTS = {
    "encoders of nodes": r"encoders\.node\.",
    "encoders of branches": r"encoders\.branch\.",
    "encoders of feeder head and positions": r"encoders\.(head|position)\.",
    "transformer terminals: encoder and fusion": r"encoders\.(terminal|to_bus|to_branch)\.",
    "attention: queries, keys, values": r"backbone\..*attention\.(weight|bias)$",
    "attention: branches": r"backbone\..*attention\.branch_weight$",
    "feed-forward parts": r"backbone\..*\.(widen|narrow)\.",
    "normalisation": r"backbone\..*norm\.",
    "readout of the state": r"readouts\.state\.",
    "readout of phases": r"readouts\.phase\.",
    "readout of switches": r"readouts\.switch\.",
    "readout of faults": r"readouts\.fault\.",
}


def breakdown(model: Mycelium) -> dict[str, int]:
    """Parameters of every part; together all there are."""
    result = dict.fromkeys(_PARTS, 0)
    for name, value in model.named_parameters():
        result[next(part for part, pattern in _PARTS.items() if re.match(pattern, name))] += value.numel()
    return result


def main() -> None:
    """Print the table."""
    configs = {"`paper()`": MyceliumConfig.paper(), "`MyceliumConfig()`": MyceliumConfig()}
    counts = {name: breakdown(Mycelium(config)) for name, config in configs.items()}
    print(f"| part | {' | '.join(counts)} |\n|---|{'---:|' * len(counts)}")
    for part in _PARTS:
        print(f"| {part} | {' | '.join(f'{count[part]:,}' for count in counts.values())} |")
    totals = [sum(count.values()) for count in counts.values()]
    print(f"| **all** | {' | '.join(f'**{total:,}**' for total in totals)} |")
    print(f"\nThe first is {totals[0] / PAPER - 1:+.1%} of the paper's {PAPER / 1e6:.1f} M.")


if __name__ == "__main__":
    main()
