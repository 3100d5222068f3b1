"""`modulo`: the key's remainder says who. As old as hash tables, even and without memory, and ruinous when n
changes: of 100 backends that become 101, ninety-nine keys in a hundred move.
"""

import numpy as np

from forwarder.hashing.scheme import Keys, Positions, Scheme, by_remainder


class Modulo(Scheme):
    """Key modulo the sum of weights (in smallest terms)."""

    scheme = "modulo"

    def place(self, keys: Keys) -> Positions:
        """See Scheme."""
        return by_remainder(self.tickets(), keys)

    @property
    def memory(self) -> int:
        """Nothing but the owners of the remainders."""
        return len(self.tickets()) * 2

    def slots(self, size: int) -> Positions:
        """Slots are numbers already, and their remainders more even than those of hashes. The last round ends early:
        so that it takes from all alike, each one's tickets are spread over it.
        """
        owners = self.tickets(size)
        count = np.bincount(owners)
        nth = np.arange(len(owners)) - (np.cumsum(count) - count)[owners]  # of its owner's tickets
        middle = ((2 * nth + 1) << 32) // (2 * count[owners])
        return owners[np.argsort(middle, kind="stable")][np.arange(size) % len(owners)]
