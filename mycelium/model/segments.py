"""Sums, means, maxima and softmax over segments: entities of one network, terminals of one bus."""

from __future__ import annotations

import torch
from torch import Tensor


def segment_mean(values: Tensor, segment: Tensor, n_segments: int) -> Tensor:
    """Mean of the members of each segment, 0 where there are none; in float32 at least.

    Args:
        values: [hour, member, channel]
        segment: Segment of each member. [member]
        n_segments: How many there are.

    Returns:
        [hour, segment, channel]
    """
    exact = widened(values)
    total = exact.new_zeros(exact.shape[0], n_segments, exact.shape[2]).index_add(1, segment, exact)
    count = torch.bincount(segment, minlength=n_segments).clamp(min=1)
    return total / count[None, :, None]


def graph_mean(values: Tensor, graph: Tensor, n_graphs: int) -> Tensor:
    """As ``segment_mean``, where segments are few and large: one matrix product instead of colliding additions."""
    exact = widened(values)
    member = torch.nn.functional.one_hot(graph, n_graphs).T.to(exact.dtype)
    with torch.autocast(values.device.type, enabled=False):  # which would round 1 / members, and every value
        return (member / member.sum(dim=1, keepdim=True).clamp(min=1)) @ exact


def widened(values: Tensor) -> Tensor:
    """In float32 at least: what sums are made in."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def segment_max(values: Tensor, segment: Tensor, n_segments: int) -> Tensor:
    """Largest value of each channel among the members of each segment, 0 where there are none.

    Args:
        values: [member, channel]
        segment: [member]
        n_segments: How many there are.

    Returns:
        [segment, channel]
    """
    places = segment[:, None].expand_as(values)
    return values.new_zeros(n_segments, values.shape[1]).scatter_reduce(0, places, values, "amax", include_self=False)


def segment_log_softmax(score: Tensor, segment: Tensor, n_segments: int) -> Tensor:
    """Log-softmax of scores within each segment. score [member], segment [member] -> [member]"""
    high = score.new_full((n_segments,), -torch.inf).scatter_reduce(0, segment, score.detach(), "amax")
    shifted = score - high.index_select(0, segment)
    total = torch.zeros_like(high).index_add(0, segment, shifted.exp())
    return shifted - total.log().index_select(0, segment)
