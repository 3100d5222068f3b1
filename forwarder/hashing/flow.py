"""Flow hash and slot hash of a 5-tuple (DESIGN 5): SipHash-1-3 with the cluster's key."""

from forwarder import _hashing

PROTOCOLS = {"tcp": 6, "udp": 17}


def flow_hash(
    key: bytes, source: bytes, destination: bytes, source_port: int, destination_port: int, protocol: int
) -> int:
    """The 64-bit flow hash; `key` has 16 bytes, addresses are packed (4 or 16 bytes). Raises ValueError."""
    return _hashing.flow_hash(key, source, destination, source_port, destination_port, protocol)


def slot_hash(
    key: bytes,
    source: bytes,
    destination: bytes,
    source_port: int,
    destination_port: int,
    protocol: int,
    affinity: str,
) -> int:
    """The hash that picks the slot, `(hash >> 32) % M`: with affinity "client" it leaves the ports out."""
    if affinity == "client":
        return _hashing.client_hash(key, source, destination, protocol)
    return flow_hash(key, source, destination, source_port, destination_port, protocol)
