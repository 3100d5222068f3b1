"""`gateway`: an article on game servers puts a fixed number of gateways between clients and nodes. A key's gateway
is its remainder and never changes, so all that must be agreed on is a short list of which gateway belongs to which
node; here rendezvous makes it. It is a Maglev table in the rough: few large slots, hence coarse shares.
"""

from collections.abc import Mapping

import numpy as np

from forwarder.hashing.rendezvous import Rendezvous
from forwarder.hashing.scheme import Keys, Positions, Scheme, by_remainder, even_keys


class Gateway(Scheme):
    """Key -> one of `gateways` -> node."""

    scheme = "gateway"

    def __init__(self, weights: Mapping[str, int], gateways: int = 1024) -> None:
        super().__init__(weights, gateways=gateways)
        self._nodes = Rendezvous(weights).place(even_keys(gateways))

    def place(self, keys: Keys) -> Positions:
        """See Scheme."""
        return by_remainder(self._nodes, keys)

    @property
    def memory(self) -> int:
        """The list."""
        return len(self._nodes) * 2

    def slots(self, size: int) -> Positions:
        """Slots are numbers already."""
        return self._nodes[np.arange(size) % len(self._nodes)]
