"""`partition`: the ring of OpenStack Swift, where its article ends. The upper bits of a key are its partition, by a
shift; a table says who holds each partition's replicas, all in different zones. A rebalance moves what must move.
"""

from collections.abc import Mapping
from typing import Self

import numpy as np

from forwarder.hashing.rebalance import NOBODY, Owners, kept, rebalance, settled
from forwarder.hashing.scheme import Keys, Positions, Scheme


class Partition(Scheme):
    """2^`power` partitions, `replicas` of each. `zones` maps names to zones; a name without one is a zone of its
    own. With fewer zones than replicas these are in different backends at least. Both go before weights: a zone, or
    then a backend, has one replica of each partition at most, however heavy it is.

    Raises ValueError when there are fewer backends than replicas, none of these, or a power is not 1 .. 32.
    """

    scheme = "partition"
    has_history = True

    def __init__(
        self,
        weights: Mapping[str, int],
        power: int = 16,
        replicas: int = 1,
        zones: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(weights, power=power, replicas=replicas, zones=zones)
        if not 1 <= power <= 32:
            raise ValueError(f"power {power} is not 1 to 32")
        if not 1 <= replicas <= len(self.names):
            raise ValueError(f"{replicas} replicas for {len(self.names)} backends; write 1 to {len(self.names)}")
        self._shift = np.uint32(32 - power)
        self._group = self._groups(zones or {}, replicas)
        self.owners = self._dealt(replicas, 1 << power)

    def _groups(self, zones: Mapping[str, str], replicas: int) -> Owners:
        """By position a number of what a partition's replicas are in different ones of: its zone, or itself."""
        texts = [("zone", zones[name]) if name in zones else ("own", name) for name in self.names]
        numbers = {text: number for number, text in enumerate(sorted(set(texts)))}
        if replicas == 1 or len(numbers) < replicas:
            return np.arange(len(self.names))
        return np.array([numbers[text] for text in texts], dtype=np.int64)

    def _dealt(self, replicas: int, partitions: int) -> Owners:
        """[replica, partition] -> position. Backends stand group by group, each as often as its share, and replica r
        of partition p is place r * partitions + p: since no group has more than `partitions` places, the replicas of
        a partition are too far apart to meet in one.
        """
        order = np.argsort(self._group, kind="stable")
        owners = np.repeat(order, self._shares(replicas, partitions)[order])
        return self._smallest(owners.reshape(replicas, partitions))

    def _shares(self, replicas: int, partitions: int) -> Owners:
        """Places by position: by weight, but what a group would have beyond `partitions` goes to the others."""
        order = np.argsort(self._group, kind="stable")
        members = np.split(order, np.flatnonzero(np.diff(self._group[order])) + 1)
        weights = np.array([self.weights[positions].sum() for positions in members])
        places: dict[int, int] = {}
        heavy: set[int] = set()
        while not places or max(places.values()) > partitions:
            heavy |= {group for group, share in places.items() if share > partitions}
            light = [group for group in range(len(members)) if group not in heavy]
            shares = settled(weights[light], (replicas - len(heavy)) * partitions).tolist()
            places = dict.fromkeys(heavy, partitions) | dict(zip(light, shares, strict=True))
        by_position = np.empty(len(self.names), dtype=np.int64)
        for group, share in places.items():
            by_position[members[group]] = settled(self.weights[members[group]], share)
        return by_position

    def _smallest(self, owners: Owners) -> Owners:
        """As the article keeps them: in 16 bits when these suffice."""
        return owners.astype(np.uint16 if len(self.names) <= 1 << 16 else np.uint32)

    def place(self, keys: Keys) -> Positions:
        """The first replica's owner; see Scheme."""
        owners: Positions = self.owners[0, keys >> self._shift].astype(np.uint32)
        return owners

    def after(self, weights: Mapping[str, int]) -> Self:
        """The same partitions, as few as possible elsewhere."""
        changed = super().after(weights)
        replicas, partitions = self.owners.shape
        by_partition = kept(self.owners.astype(np.int64), self.names, changed.names)
        flat = by_partition.reshape(-1)  # the same memory
        if replicas == 1:
            rebalance(flat, changed.weights)
        else:
            group = changed._group
            _part(by_partition, group)

            def allowed(place: int, owner: int) -> bool:
                replica, partition = divmod(place, partitions)
                others = by_partition[np.arange(replicas) != replica, partition]
                return bool(np.all(group[others[others != NOBODY]] != group[owner]))

            shares = changed._shares(replicas, partitions)
            moving = True
            while moving:  # a place whose takers were all refused may have one once others have moved
                before = flat.copy()
                rebalance(flat, np.maximum(2 * shares, 1), allowed)  # a share of none is as good as a half
                moving = not np.array_equal(before, flat)
        changed.owners = changed._smallest(by_partition)
        return changed

    @property
    def memory(self) -> int:
        """The table: 2 bytes for each replica of a partition, 4 with more than 65536 backends."""
        return self.owners.nbytes


def _part(owners: Owners, group: Owners) -> None:
    """Where replicas meet in one group, as they may once zones have come, all but the first are nobody's again."""
    for later in range(1, len(owners)):
        for earlier in range(later):
            both = (owners[earlier] != NOBODY) & (owners[later] != NOBODY)
            owners[later, both & (group[owners[earlier]] == group[owners[later]])] = NOBODY
