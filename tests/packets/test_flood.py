"""A million spoofed packets over 16 k live flows, on a table of 32 k entries: nobody is moved, and memory stays flat.

Most backends change before the flood, so that a live flow stays where it was only by its entry in the table.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from packets.road import AT_ONCE, Road
from packets.world import VIP, backend_address, ether, flow, state, tcp, udp, vip

LIVE, ENTRIES = 16_384, 32_768
# A build that looks at every access is some ten times slower.
FLOOD = 50_000 if "libasan" in os.environ.get("LD_PRELOAD", "") else 1_000_000


def services(backends: range) -> dict[str, object]:
    """A TCP and a UDP vip on the same backends."""
    names = {f"b{i}": f"10.0.9.{i}" for i in backends}
    return state(names, vip("www", VIP, names), vip("dns", VIP, names, "udp", 80))


def spoofed(count: int) -> Iterator[bytes]:
    """SYN, ACK and UDP packets in turn, each of a random client and port."""
    dice = random.Random(7)
    templates = [
        bytes(ether(packet)) for packet in (tcp(src="0.0.0.0"), tcp(src="0.0.0.0", flags="A"), udp(dport=80))
    ]
    sums = [sum(struct.unpack("!6H", frame[14:26])) + sum(struct.unpack("!2H", frame[30:34])) for frame in templates]
    for number in range(count):
        frame = bytearray(templates[number % 3])
        client = dice.getrandbits(48)
        frame[26:30] = (client >> 16).to_bytes(4, "big")
        frame[34:36] = (client & 0xFFFF).to_bytes(2, "big")
        total = sums[number % 3] - int.from_bytes(frame[24:26], "big") + (client >> 32) + (client >> 16 & 0xFFFF)
        total = (total & 0xFFFF) + (total >> 16)
        frame[24:26] = (~(total + (total >> 16)) & 0xFFFF).to_bytes(2, "big")
        yield bytes(frame)


def live_flow(number: int, flags: str) -> bytes:
    return flow(number % 8192, flags=flags, client=10 + number // 8192)


def homes(road: Road, flags: str) -> dict[int, str]:
    """Where the next packet of each live flow goes."""
    found = {}
    for number in range(LIVE):
        (frame,) = road.send(live_flow(number, flags))
        found[number] = backend_address(frame)
    return found


def flood(road: Road) -> None:
    """In bursts, so that the stages work as on a wire."""
    batch: list[bytes] = []
    for frame in spoofed(FLOOD):
        batch.append(frame)
        if len(batch) == AT_ONCE:
            road.send(*batch)
            batch.clear()
            if not road.dataplane.received % (64 * AT_ONCE):
                road.now += 1  # some hundred thousand packets a second
    road.send(*batch)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_flood_of_a_million_spoofed_packets_moves_no_live_flow(make_road: Callable[..., Road]) -> None:
    road = make_road(connections=ENTRIES)
    road.apply(services(range(1, 9)))
    before = homes(road, "S")
    road.now += 1
    homes(road, "A")
    road.apply(services(range(5, 200)))  # the first four drain, and most slots have another owner
    assert homes(road, "A") == before
    memory = resident()
    flood(road)
    assert resident() - memory < 8 << 20
    assert homes(road, "A") == before
    counters = road.dataplane.worker(0)
    assert counters["live"] <= counters["entries"]
    assert counters["evicted"] > 0
    assert road.fates()["hash_untracked"] == counters["refused"] + road.dataplane.reasons()["over_share"]
