"""What must stay exact when matrix products are in bfloat16: means, and sums of what several products gave."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mycelium import MyceliumConfig
from mycelium.model.segments import graph_mean
from mycelium.model.state import CausalConvolution

STEP = 2.0**-8  # of bfloat16, relative


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_means_over_networks_are_not_rounded_by_autocast(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    graph = torch.arange(300).remainder(3)
    values = torch.randn(4, 300, 8).add(5.0).to(dtype)
    expected = torch.stack([values.double()[:, graph == k].mean(dim=1) for k in range(3)], dim=1)
    with torch.autocast("cpu", torch.bfloat16):
        found = graph_mean(values, graph, 3)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0)
    assert graph_mean(values.double(), graph, 3).dtype == torch.float64


class Constant(nn.Module):
    """A tap whose product is known, as autocast gives it."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = torch.tensor(value, dtype=torch.bfloat16)

    def forward(self, z: Tensor) -> Tensor:
        return self.value.expand(z.shape)


def test_taps_of_a_convolution_are_added_in_float32() -> None:
    """1 and two halves of a step of bfloat16 are one step more than 1; added in bfloat16 they are 1."""
    block = CausalConvolution(MyceliumConfig.tiny(), 1)
    block.taps = nn.ModuleList([Constant(1.0), Constant(STEP / 2), Constant(STEP / 2)])
    seen: list[Tensor] = []
    block.dropout.register_forward_hook(lambda module, given, found: seen.append(given[0]))
    with torch.autocast("cpu", torch.bfloat16):
        block(torch.zeros(24, 2, 4))
    expected = [1.0, 1.0 + STEP / 2, *[1.0 + STEP] * 22]  # the first hours have no hours before them
    wanted = nn.functional.silu(torch.tensor(expected))[:, None, None].expand(24, 2, 4)
    assert seen[0].dtype == torch.float32
    torch.testing.assert_close(seen[0], wanted, rtol=1e-6, atol=0)


def test_a_convolution_in_bfloat16_is_near_the_exact_one() -> None:
    torch.manual_seed(0)
    block, z = CausalConvolution(MyceliumConfig(width=32, heads=2), 2), torch.randn(24, 5, 32)
    block.eval()
    with torch.no_grad():
        exact = block(z)
        with torch.autocast("cpu", torch.bfloat16):
            rough = block(z)
    assert float((rough - exact).abs().max()) < 2 * STEP * float(exact.abs().max())
