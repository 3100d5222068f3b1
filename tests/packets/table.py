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

ETHERNET, IPV4, IPV6, FRAGMENT, GRE = 14, 20, 40, 8, 4
TAGS = (b"\x81\x00", b"\x88\xa8")


def frames(given: Frames | None) -> list[bytes]:
    """One frame, several or none as a list of bytes."""
    if given is None:
        return []
    if isinstance(given, Packet | bytes):
        return [bytes(given)]
    return [bytes(frame) for frame in given]


def l3_of(frame: bytes) -> int:
    """Where the outer IP header of a frame begins."""
    at = ETHERNET
    while frame[at - 2 : at] in TAGS:
        at += 4
    return at


def is_ipv4(frame: bytes) -> bool:
    at = l3_of(frame)
    return frame[at - 2 : at] == b"\x08\x00"


def is_later_piece(frame: bytes) -> bool:
    """Whether a frame that was sent is a fragment of an outer packet, and not the first one."""
    at = l3_of(frame)
    if is_ipv4(frame):
        return int.from_bytes(frame[at + 6 : at + 8], "big") & 0x1FFF != 0
    return frame[at + 6] == 44 and int.from_bytes(frame[at + 42 : at + 44], "big") & 0xFFF8 != 0


def inner_bytes(frame: bytes) -> int:
    """How many bytes of the inner packet are in a frame that was sent."""
    at = l3_of(frame)
    headers = IPV4 if is_ipv4(frame) else IPV6 + (FRAGMENT if frame[at + 6] == 44 else 0)
    return len(frame) - at - headers - (0 if is_later_piece(frame) else GRE)


@dataclass(frozen=True)
class Row:
    """`fate` of each frame of `send`, or of all; `out` are the frames that must leave, byte for byte.

    `reason` is that of all frames, where a row states it.
    A packet that is cut leaves in several frames.
    `vip` and `backend` are who must be counted for what is forwarded, and nobody else is; answers are nobody's, and
    so is what another node of the cluster gets.
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
        pieces_before = road.dataplane.pieces
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
        pieces = sum(map(is_later_piece, expected))
        assert forwarded in (0, len(expected) - pieces), "a row has answers or forwarded packets, not both"
        assert road.dataplane.pieces - pieces_before == pieces
        octets = sum(inner_bytes(frame) for frame in expected) if forwarded else 0
        assert counted == self._expected_traffic(forwarded, octets)

    def _expected_traffic(self, packets: int, octets: int) -> Counter[tuple[str, str | None, str]]:
        names = (("vip", self.vip), ("backend", self.backend))
        sums = (("packets", packets), ("bytes", octets))
        return Counter({(kind, name, what): n for kind, name in names if name for what, n in sums if n})


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
