"""Switch states: three summaries over the day of a switch's ends and its own embedding."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mycelium.model.config import MyceliumConfig
from mycelium.model.readout import Context, attended, head, perceptron
from mycelium.window.columns import Relation, Store, names, static_columns
from mycelium.window.window import Window


class SwitchReadout(nn.Module):
    """Logit of open of every line that can be operated by the records; nothing is asked of others."""

    def __init__(self, config: MyceliumConfig) -> None:
        super().__init__()
        self.flag = names(static_columns(config.window)[Store.LINE]).index("switch")
        n_context = 3 * config.width
        self.score = perceptron(config, n_context + 1, 1)
        self.fuse = perceptron(config, 3 * n_context, config.width)
        self.head = head(config, config.width, 1)

    def forward(self, window: Window, context: Context) -> dict[str, Tensor]:
        """``switch`` of ``Estimates``."""
        flag = window.static[Store.LINE][:, self.flag]
        switch = torch.nonzero(flag > 0.0)[:, 0]
        ends = window.edges[Relation.LINE].index_select(1, switch)
        bus, line = context.nodes[Store.BUS], context.branches[Store.LINE]
        x = torch.cat(
            [bus.index_select(1, ends[0]), bus.index_select(1, ends[1]), line.index_select(1, switch)], dim=-1
        )
        seen = window.line_current_seen[:, switch].to(x.dtype).unsqueeze(-1)
        weighed = attended(self.score(torch.cat([x, seen], dim=-1)), x)
        logit = self.head(self.fuse(torch.cat([weighed, x.mean(dim=0), x.amax(dim=0)], dim=-1)))[:, 0]
        return {"switch": logit.new_full(flag.shape, torch.nan).index_copy(0, switch, logit)}
