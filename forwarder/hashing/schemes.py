"""All schemes by name."""

from forwarder.hashing.bounded import Bounded, BoundedMaglev
from forwarder.hashing.gateway import Gateway
from forwarder.hashing.jump import Jump
from forwarder.hashing.ketama import Ketama
from forwarder.hashing.maglev import Maglev
from forwarder.hashing.modulo import Modulo
from forwarder.hashing.partition import Partition
from forwarder.hashing.ranges import Range
from forwarder.hashing.rendezvous import Rendezvous
from forwarder.hashing.ring import Ring
from forwarder.hashing.scheme import Scheme
from forwarder.hashing.shuffle import Shuffle
from forwarder.hashing.sticky import Sticky
from forwarder.hashing.vnode import Vnode

ALL: tuple[type[Scheme], ...] = (
    *(Maglev, Rendezvous, Ring, Ketama, Bounded, BoundedMaglev, Jump, Gateway, Range, Modulo),
    *(Vnode, Partition, Sticky, Shuffle),
)
SCHEMES: dict[str, type[Scheme]] = {scheme.scheme: scheme for scheme in ALL}
