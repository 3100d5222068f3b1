"""Schemes that are a table themselves: `maglev`, and `shuffle` beside it."""

from collections.abc import Mapping

from forwarder.hashing.scheme import Keys, Positions, Scheme, by_remainder


class BySlot(Scheme):
    """A table of `size` slots, made by `slots`; a key's slot is its remainder."""

    def __init__(self, weights: Mapping[str, int], size: int = 65537) -> None:
        super().__init__(weights, size=size)
        self._slots = self.slots(size)

    def place(self, keys: Keys) -> Positions:
        """See Scheme."""
        return by_remainder(self._slots, keys)

    @property
    def memory(self) -> int:
        """The table, 16 bits a slot."""
        return len(self._slots) * 2
