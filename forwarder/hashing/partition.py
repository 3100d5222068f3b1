"""`partition`: the ring of OpenStack Swift, where its article ends. The upper bits of a key are its partition, by a
shift; a table says who holds each partition's replicas, in zones as distinct as there are zones. A rebalance moves
what must move.
"""

from collections.abc import Mapping
from typing import Self

import numpy as np

from forwarder.hashing.quotas import quotas
from forwarder.hashing.rebalance import Owners, kept, rebalance
from forwarder.hashing.scheme import Keys, Positions, Scheme


class Partition(Scheme):
    """2^`power` partitions, `replicas` of each. `zones` maps names to zones; a name without one is a zone of its
    own.

    Raises ValueError when there are fewer backends than replicas, or a power is not 1 .. 32.
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
        if len(self.names) < replicas:
            raise ValueError(f"{replicas} replicas for {len(self.names)} backends; write at most as many")
        self._shift = np.uint32(32 - power)
        self._zone_of = self._zones(zones or {})
        self.owners = self._dealt(replicas, 1 << power)

    def _zones(self, zones: Mapping[str, str]) -> Owners:
        texts = [("zone", zones[name]) if name in zones else ("own", name) for name in self.names]
        numbers = {text: number for number, text in enumerate(sorted(set(texts)))}
        return np.array([numbers[text] for text in texts], dtype=np.int64)

    def _dealt(self, replicas: int, partitions: int) -> Owners:
        """[replica, partition] -> position. Backends stand zone by zone, each as often as its share, and replica r
        of partition p is place r * partitions + p: those of one partition are so far apart that they meet in one
        zone only when it has more than 1/replicas of all weight.
        """
        order = np.argsort(self._zone_of, kind="stable")
        shares = np.array(quotas(self.weights[order].tolist(), replicas * partitions))
        return self._smallest(np.repeat(order, shares).reshape(replicas, partitions))

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
        flat = kept(self.owners.astype(np.int64), self.names, changed.names).reshape(-1)
        by_partition = flat.reshape(replicas, partitions)  # the same memory
        zone_of = changed._zone_of
        # As distinct as there are zones, or at least backends.
        group = zone_of if len(set(zone_of.tolist())) >= replicas else np.arange(len(zone_of))

        def allowed(place: int, owner: int) -> bool:
            replica, partition = divmod(place, partitions)
            others = by_partition[np.arange(replicas) != replica, partition]
            return bool(np.all(group[others[others >= 0]] != group[owner]))

        rebalance(flat, changed.weights, allowed) if replicas > 1 else rebalance(flat, changed.weights)
        changed.owners = changed._smallest(by_partition)
        return changed

    @property
    def memory(self) -> int:
        """The table: 2 bytes for each replica of a partition, 4 with more than 65536 backends."""
        return self.owners.nbytes
