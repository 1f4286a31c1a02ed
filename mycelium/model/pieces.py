"""Inference on a processor, some hours at a time: what is computed between the layers stays in its cache.

Hours do not mix before the readouts, so this changes no result. Where gradients are wanted everything is kept anyway,
and a GPU is better used all at once.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

States = dict[str, Tensor]

ROWS = 8192  # of states at a time: 4 MiB in the paper's width


def in_pieces(run: Callable[[States, Tensor], States], states: States, branches: Tensor) -> States:
    """``run(states, branches)``, piece by piece.

    Args:
        run: Treats every hour by itself.
        states: By kind. [hour, node, width]
        branches: [hour, branch, width]
    """
    if torch.is_grad_enabled() or branches.is_cuda:
        return run(states, branches)
    hours = max(1, ROWS // max(1, sum(state.shape[1] for state in states.values())))
    parts = [
        run({kind: state[start : start + hours] for kind, state in states.items()}, branches[start : start + hours])
        for start in range(0, len(branches), hours)
    ]
    return {kind: torch.cat([part[kind] for part in parts]) for kind in states}
