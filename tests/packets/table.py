"""A row of a packet table: what an operator would say, what is sent, its fate, what comes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from scapy.packet import Packet

from forwarder._dataplane import FATE_KINDS
from packets.road import Road

Frame = Packet | bytes
Frames = Frame | Sequence[Frame]

ETHERNET, IPV4, IPV6, GRE = 14, 20, 40, 4
TAGS = (b"\x81\x00", b"\x88\xa8")


def frames(given: Frames | None) -> list[bytes]:
    """One frame, several or none as a list of bytes."""
    if given is None:
        return []
    if isinstance(given, Packet | bytes):
        return [bytes(given)]
    return [bytes(frame) for frame in given]


def inner_bytes(frame: bytes) -> int:
    """Length of the inner packet of a frame that was sent."""
    at = ETHERNET
    while frame[at - 2 : at] in TAGS:
        at += 4
    return len(frame) - at - (IPV4 if frame[at - 2 : at] == b"\x08\x00" else IPV6) - GRE


@dataclass(frozen=True)
class Row:
    """`fate` of each frame of `send`, or of all; `out` are the frames that must leave, byte for byte.

    `reason` is that of all frames, where a row states it.
    `vip` and `backend` are who must be counted for what is forwarded, and nobody else is; answers are nobody's.
    `port` is where the frames arrive, `by` is the port where they leave.
    """

    description: str
    send: Frames
    fate: str | Sequence[str]
    out: Frames | None = None
    vip: str | None = None
    backend: str | None = None
    port: int = 0
    by: int = 0
    reason: str | None = None

    def __str__(self) -> str:
        return self.description

    def expected_fates(self, sent: int) -> Counter[str]:
        return Counter([self.fate] * sent if isinstance(self.fate, str) else self.fate)

    def check(self, road: Road) -> None:
        send, expected = frames(self.send), frames(self.out)
        fates_before, traffic_before = Counter(road.dataplane.fates()), _traffic(road)
        reasons_before = Counter(road.dataplane.reasons())
        out = road.send_by_port(send, self.port)
        road.outwait_fragments()
        assert Counter(road.dataplane.fates()) - fates_before == self.expected_fates(len(send))
        if self.reason is not None:
            assert Counter(road.dataplane.reasons()) - reasons_before == {self.reason: len(send)}
        for port, came in enumerate(out):
            wanted = expected if port == self.by else []
            assert [frame.hex() for frame in came] == [frame.hex() for frame in wanted]
        counted = _traffic(road) - traffic_before
        forwarded = sum(n for fate, n in self.expected_fates(len(send)).items() if FATE_KINDS[fate] == "forwarded")
        assert forwarded in (0, len(expected)), "a row has answers or forwarded packets, not both"
        octets = sum(inner_bytes(frame) for frame in expected) if forwarded else 0
        assert counted == self._expected_traffic(forwarded, octets)

    def _expected_traffic(self, packets: int, octets: int) -> Counter[tuple[str, str | None, str]]:
        names = (("vip", self.vip), ("backend", self.backend))
        sums = (("packets", packets), ("bytes", octets))
        return Counter({(kind, name, what): n for kind, name in names for what, n in sums if n})


def _traffic(road: Road) -> Counter[tuple[str, str | None, str]]:
    vips, backends = road.forwarding.traffic()
    return Counter(
        {
            (kind, name, what): counts[what]
            for kind, table in (("vip", vips), ("backend", backends))
            for name, counts in table.items()
            for what in ("packets", "bytes")
        }
    )
