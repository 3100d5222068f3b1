from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest
from probe_servers import TIMEOUT, probed

from controller.model import Address, CheckKey
from controller.probes import make_probe
from controller.probes.dial import Dial, dial
from controller.probes.icmp import IcmpCheck
from controller.probes.probe import Outcome, ProbeResult

PING_GROUPS = Path("/proc/sys/net/ipv4/ping_group_range")
WAYS = {"ping socket": socket.SOCK_DGRAM, "raw socket": socket.SOCK_RAW}


@pytest.fixture(params=WAYS)
def only(request: pytest.FixtureRequest) -> Iterator[Dial]:
    """A way to connect that has one kind of socket only; ping sockets are allowed to this group meanwhile."""
    kind = WAYS[request.param]
    before = PING_GROUPS.read_text()
    if os.geteuid() != 0:
        pytest.skip("raw sockets and ping_group_range are root's")
    PING_GROUPS.write_text(f"{os.getegid()} {os.getegid()}")

    async def one_kind(address: Address, port: int, wanted: int, protocol: int) -> socket.socket:
        if wanted != kind:
            raise PermissionError(13, "not here")
        return await dial(address, port, wanted, protocol)

    yield one_kind
    PING_GROUPS.write_text(before)


async def pinged(address: str, way: Dial) -> ProbeResult:
    check = IcmpCheck.model_validate({"type": "icmp", "timeout": "300ms"})
    return await make_probe(CheckKey(ip_address(address), "c"), check, way).probe()


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.8.7", "::1"])
async def test_an_echo_is_answered(address: str, only: Dial) -> None:
    result = await pinged(address, only)
    assert (result.outcome, result.reason) == (Outcome.PASSED, "answered")
    assert result.seconds < TIMEOUT


async def test_many_targets_at_once_get_their_own_answers(only: Dial) -> None:
    results = await asyncio.gather(*(pinged(f"127.0.1.{n}", only) for n in range(1, 201)))
    assert all(result.passed for result in results)


async def test_an_answer_that_is_not_to_our_request_does_not_pass(only: Dial) -> None:
    """A peer that answers with other tokens: what comes is passed over until the deadline."""
    ours, peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.setblocking(False)

    async def to_peer(address: Address, port: int, kind: int, protocol: int) -> socket.socket:
        return ours

    for wrong in (b"", b"\0" * 7, b"\0" * 24, b"\0\0\0\0" + b"\1" * 20):
        peer.send(wrong)
    result = await pinged("127.0.0.1", to_peer)
    request = peer.recv(100)
    peer.close()
    assert (request[0], len(request)) == (8, 24)
    assert (result.passed, result.reason) == (False, "no answer within 0.3 s")


async def test_an_address_that_cannot_be_reached_fails(only: Dial) -> None:
    result = await pinged("240.0.0.1", only)
    assert result.outcome is Outcome.FAILED
    assert result.reason.startswith("no answer")


async def test_without_the_right_to_ping_nothing_is_held_against_the_backend() -> None:
    async def forbidden(address: Address, port: int, kind: int, protocol: int) -> socket.socket:
        raise PermissionError(13, "Permission denied")

    result = await pinged("127.0.0.1", forbidden)
    assert result.outcome is Outcome.NOT_PROBED
    assert "net.ipv4.ping_group_range" in result.reason


async def test_as_root_or_in_the_group_it_works_as_it_is() -> None:
    if os.geteuid() != 0:
        pytest.skip("raw sockets are root's")
    assert (await probed("icmp", "127.0.0.1")).passed
    assert (await probed("icmp", "::1")).passed
