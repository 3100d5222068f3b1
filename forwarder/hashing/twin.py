"""Pure-Python twins of the C hashes and of the Maglev table: slow, plain, and what the C is tested against."""

from collections.abc import Iterator, Mapping

from forwarder.hashing.quotas import quotas

MASK = (1 << 64) - 1
OFFSET_KEY = 0xDEADBABE
SKIP_KEY = 0xDEADBEEF


def _rotl(x: int, bits: int) -> int:
    return ((x << bits) | (x >> (64 - bits))) & MASK


def _rounds(v: list[int], count: int) -> None:
    for _ in range(count):
        v[0] = (v[0] + v[1]) & MASK
        v[2] = (v[2] + v[3]) & MASK
        v[1] = _rotl(v[1], 13) ^ v[0]
        v[3] = _rotl(v[3], 16) ^ v[2]
        v[0] = _rotl(v[0], 32)
        v[2] = (v[2] + v[1]) & MASK
        v[0] = (v[0] + v[3]) & MASK
        v[1] = _rotl(v[1], 17) ^ v[2]
        v[3] = _rotl(v[3], 21) ^ v[0]
        v[2] = _rotl(v[2], 32)


def siphash(c: int, d: int, key: bytes, data: bytes) -> int:
    """SipHash-c-d with a 16-byte key, 64-bit output (Aumasson and Bernstein, 2012)."""
    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    whole = len(data) // 8 * 8
    words = [int.from_bytes(data[i : i + 8], "little") for i in range(0, whole, 8)]
    words.append(int.from_bytes(data[whole:], "little") | (len(data) & 0xFF) << 56)
    for word in words:
        v[3] ^= word
        _rounds(v, c)
        v[0] ^= word
    v[2] ^= 0xFF
    _rounds(v, d)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def flow_hash(
    key: bytes, source: bytes, destination: bytes, source_port: int, destination_port: int, protocol: int
) -> int:
    """Twin of `forwarder.hashing.flow.flow_hash`."""
    ports = source_port.to_bytes(2, "big") + destination_port.to_bytes(2, "big")
    return siphash(1, 3, key, source + destination + ports + bytes([protocol]))


def client_hash(key: bytes, source: bytes, destination: bytes, protocol: int) -> int:
    """Twin of the hash behind `affinity: client`."""
    return siphash(1, 3, key, source + destination + bytes([protocol]))


def permutation(name: str, size: int) -> tuple[int, int]:
    """(offset, skip) of a name in a table of `size` slots."""
    encoded = name.encode()
    offset = siphash(2, 4, OFFSET_KEY.to_bytes(16, "little"), encoded) % size
    skip = siphash(2, 4, SKIP_KEY.to_bytes(16, "little"), encoded) % (size - 1) + 1
    return offset, skip


def preferences(offset: int, skip: int, size: int) -> Iterator[int]:
    """The slots in the order of a permutation."""
    return ((offset + step * skip) % size for step in range(size))


def populate(weights: Mapping[str, int], preferred: Mapping[str, Iterator[int]], size: int) -> list[str]:
    """Owner of each slot, by rounds in order of name; a turn costs the largest weight of credit.

    `preferred[name]` yields the slots in that name's order of preference.
    """
    names = sorted((name for name in weights if weights[name] > 0), key=str.encode)
    left = dict(zip(names, quotas([weights[name] for name in names], size), strict=True))
    largest = max(weights[name] for name in names)
    credit = dict.fromkeys(names, 0)
    owner: list[str | None] = [None] * size
    while any(left.values()):
        for name in names:
            credit[name] += weights[name]
            while credit[name] >= largest and left[name] > 0:
                credit[name] -= largest
                owner[next(slot for slot in preferred[name] if owner[slot] is None)] = name
                left[name] -= 1
    return [name for name in owner if name is not None]


def table(weights: Mapping[str, int], size: int) -> list[str]:
    """Twin of the table that `forwarder.hashing.slot_table` builds for `maglev`: the owner's name per slot."""
    return populate(weights, {name: preferences(*permutation(name, size), size) for name in weights}, size)
