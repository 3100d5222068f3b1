"""The lab's parts that decide something, without namespaces."""

from __future__ import annotations

import asyncio
import struct

import pytest

from lab.backend import Connection, answer, body_length
from lab.counters import Counters
from lab.decap import inner_offset
from lab.load import LongConnection, Results
from lab.report import Step, document

INNER = {0x0800: b"\x45" + bytes(19), 0x86DD: b"\x60" + bytes(39)}


@pytest.mark.parametrize(
    ("flags", "optional", "ethertype", "offset"),
    [
        (0x0000, 0, 0x0800, 4),
        (0x0000, 0, 0x86DD, 4),
        (0x8000, 4, 0x0800, 8),  # checksum
        (0xB000, 12, 0x0800, 16),  # checksum, key and sequence number
        (0x0100, 0, 0x0800, 4),  # recursion control: a fragment's extra hop
        (0x0000, 0, 0x0806, None),  # not IP
        (0x0001, 0, 0x0800, None),  # version 1
        (0x4000, 4, 0x0800, None),  # source route
    ],
)
def test_inner_packet_is_found_behind_the_gre_header(
    flags: int, optional: int, ethertype: int, offset: int | None
) -> None:
    packet = struct.pack("!HH", flags, ethertype) + bytes(optional) + INNER.get(ethertype, bytes(20))
    assert inner_offset(packet, 0, len(packet)) == offset
    shifted = bytes(20) + packet
    assert inner_offset(shifted, 20, len(shifted)) == (None if offset is None else offset + 20)


def test_inner_packet_of_another_version_is_not_opened() -> None:
    packet = struct.pack("!HH", 0, 0x0800) + INNER[0x86DD]
    assert inner_offset(packet, 0, len(packet)) is None


@pytest.mark.parametrize("length", [0, 3, 4, 8])
def test_cut_gre_has_no_inner_packet(length: int) -> None:
    assert inner_offset(struct.pack("!HHI", 0x8000, 0x0800, 0), 0, length) is None


@pytest.mark.parametrize(
    ("head", "status", "keep"),
    [
        (b"GET / HTTP/1.1\r\nHost: x", 200, True),
        (b"GET /healthz HTTP/1.1\r\nConnection: close", 200, False),
        (b"GET / HTTP/1.0", 200, False),
        (b"GET /other HTTP/1.1", 404, True),
        (b"POST / HTTP/1.1", 405, False),
        (b"nonsense", 405, False),
    ],
)
def test_backend_answers(head: bytes, status: int, keep: bool) -> None:
    response, stays = answer(head, "b1")
    fields, _, body = response.partition(b"\r\n\r\n")
    assert int(response.split()[1]) == status
    assert stays is keep
    assert f"Content-Length: {len(body)}".encode() in fields
    assert (body == b"b1\n") == (status == 200)


@pytest.mark.parametrize(
    ("head", "status", "body"),
    [
        (b"GET /download/0 HTTP/1.1", 200, 0),
        (b"GET /download/100000 HTTP/1.1", 200, 100000),
        (b"GET /download/ HTTP/1.1", 404, 9),
        (b"GET /download/-1 HTTP/1.1", 404, 9),
        (b"POST /download/9 HTTP/1.1", 405, 9),
        (b"GET /upload HTTP/1.1", 404, 9),
        (b"POST /upload HTTP/1.1", 200, 3),
    ],
)
def test_backend_gives_downloads_and_takes_uploads(head: bytes, status: int, body: int) -> None:
    response, _ = answer(head, "b1")
    fields, _, came = response.partition(b"\r\n\r\n")
    assert int(response.split()[1]) == status
    assert b"Backend: b1" in fields
    assert f"Content-Length: {len(came)}".encode() in fields
    assert len(came) == body


@pytest.mark.parametrize(
    ("head", "length"),
    [
        (b"POST /upload HTTP/1.1\r\nContent-Length: 5", 5),
        (b"POST /upload HTTP/1.1\r\nHost: x\r\ncontent-length:20971520", 20971520),
        (b"POST /upload HTTP/1.1\r\nContent-Length: five", 0),
        (b"POST /upload HTTP/1.1", 0),
        (b"POST / HTTP/1.1\r\nContent-Length: 5", 0),
        (b"GET / HTTP/1.1\r\nContent-Length: 5", 0),
    ],
)
def test_only_an_upload_has_a_body(head: bytes, length: int) -> None:
    assert body_length(head) == length


class Written(asyncio.Transport):
    """What a connection has answered."""

    def __init__(self) -> None:
        super().__init__()
        self.data = b""
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.data += data

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("size", [1, 2, 7, 50, 1000])
def test_requests_and_bodies_are_told_apart_however_they_arrive(size: int) -> None:
    upload = b"POST /upload HTTP/1.1\r\nContent-Length: 30\r\n\r\n" + b"GET / HTTP/1.1\r\n\r\n" + bytes(12)
    stream = b"GET / HTTP/1.1\r\n\r\n" + upload + b"GET /healthz HTTP/1.0\r\n\r\n" + b"GET / HTTP/1.1\r\n\r\n"
    connection, transport = Connection("b1"), Written()
    connection.connection_made(transport)
    for at in range(0, len(stream), size):
        if not transport.closed:
            connection.data_received(stream[at : at + size])
    assert transport.data.count(b"200 OK") == 3
    assert transport.closed


def test_counters_agree_only_when_all_do() -> None:
    before = Counters(100, 10, 1, 10)
    assert Counters(150, 60, 11, 60).since(before).agree(10)
    assert not Counters(151, 60, 11, 60).since(before).agree(10)  # one segment was lost before the nodes
    assert not Counters(150, 60, 11, 59).since(before).agree(10)  # or behind them
    assert not Counters(150, 60, 12, 60).since(before).agree(10)  # or a connection was decided twice


def test_broken_connections_and_lost_requests_fail_a_step() -> None:
    step = Step("x")
    step.add(Results(requests=3, answered=2, failed=1, per_backend={"b1": 2}))
    step.add(
        Results(
            connections=[
                LongConnection("b1", "198.51.100.7:1024"),
                LongConnection("b2", "c:1", "ConnectionResetError"),
            ]
        )
    )
    step.expect_whole()
    found = document([Step("before"), step])
    assert found["ok"] is False
    assert found["steps"][1]["unmet"] == [
        "2 of 3 requests answered",
        "1 requests failed",
        "1 of 2 connections broken",
    ]
    assert found["steps"][1]["notes"] == ["1 broken: ConnectionResetError (such as c:1 with b2)"]
