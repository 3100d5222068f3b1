"""What all kinds of probe have in common: a row, a file, a way to connect, and whom an error is held against."""

from __future__ import annotations

import errno
import os
import re
import socket
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from probe_servers import http, probed, says, server, silence

from controller.config_sections import CHECKS, UnknownCheck
from controller.model import Address, CheckKey
from controller.probes import KINDS, make_probe
from controller.probes.dial import dial
from controller.probes.probe import Outcome, ProbeResult

REFERENCE = Path(__file__).parents[2] / "configs" / "maglev.yaml"
SETTINGS: dict[str, dict[str, Any]] = {
    "http": {"port": 80},
    "https": {"port": 443, "verify": False},
    "tcp": {"port": 80},
    "udp": {"port": 53, "send": "x"},
    "icmp": {},
}


def test_a_kind_is_one_file_and_one_row() -> None:
    for name, kind in KINDS.items():
        modules = {kind.section.__module__, getattr(kind.probe, "__module__", None)}
        assert modules == {f"controller.probes.{name}"}
    assert set(CHECKS) == {kind.section for kind in KINDS.values()} | {UnknownCheck}
    assert KINDS.keys() == SETTINGS.keys()


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_in_the_reference(name: str) -> None:
    assert re.search(rf"^    type: {name}\b", REFERENCE.read_text(), re.MULTILINE)


async def failing(kind: str, number: int) -> ProbeResult:
    """A probe whose way to the backend ends with that error."""

    async def no_way(address: Address, port: int, wanted: int, protocol: int) -> socket.socket:
        raise OSError(number, "as the system says")

    check = KINDS[kind].section.model_validate({"type": kind, **SETTINGS[kind]})
    return await make_probe(CheckKey(ip_address("10.0.0.1"), "c"), check, no_way).probe()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("number", "outcome"),
    [
        (errno.ECONNREFUSED, Outcome.FAILED),
        (errno.EHOSTUNREACH, Outcome.FAILED),
        (errno.ENETUNREACH, Outcome.FAILED),
        (errno.ECONNRESET, Outcome.FAILED),
        (errno.ETIMEDOUT, Outcome.FAILED),
        (errno.EMFILE, Outcome.NOT_PROBED),
        (errno.ENFILE, Outcome.NOT_PROBED),
        (errno.ENOBUFS, Outcome.NOT_PROBED),
        (errno.ENOMEM, Outcome.NOT_PROBED),
        (errno.EADDRNOTAVAIL, Outcome.NOT_PROBED),
        (errno.EAFNOSUPPORT, Outcome.NOT_PROBED),
    ],
    ids=lambda value: errno.errorcode[value] if isinstance(value, int) else "",
)
async def test_an_error_is_held_against_the_backend_only_when_it_is_not_ours(
    kind: str, number: int, outcome: Outcome
) -> None:
    result = await failing(kind, number)
    assert result.outcome is outcome
    assert result.reason.startswith("not probed: " if outcome is Outcome.NOT_PROBED else "no ")
    assert result.reason.endswith(os.strerror(number))


@pytest.mark.parametrize("kind", ["http", "tcp"])
async def test_another_way_to_connect_takes_the_place_of_the_straight_one(kind: str) -> None:
    """Such as one through a tunnel: the probe asks for an address and gets a connected socket."""
    dialed: list[tuple[str, int, int]] = []
    async with server(says("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")) as port:

        async def elsewhere(address: Address, wanted: int, kind: int, protocol: int) -> socket.socket:
            dialed.append((str(address), wanted, kind))
            return await dial(ip_address("127.0.0.1"), port, kind, protocol)

        check = KINDS[kind].section.model_validate({"type": kind, "port": 8080})
        assert (await make_probe(CheckKey(ip_address("10.9.9.9"), "c"), check, elsewhere).probe()).passed
    assert dialed == [("10.9.9.9", 8080, socket.SOCK_STREAM)]


async def test_a_connection_that_does_not_open_and_an_answer_that_does_not_come_are_told_apart() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        held = [socket.socket() for _ in range(3)]
        for connection in held:
            connection.setblocking(False)
            connection.connect_ex(listener.getsockname())
        full = await http(listener.getsockname()[1])
        for connection in held:
            connection.close()
    async with server(silence) as port:
        silent = await http(port)
    assert full.reason == "no connection within 0.3 s"
    assert silent.reason == "no complete answer within 0.3 s"


async def test_every_probe_of_one_target_starts_anew() -> None:
    async with server(silence) as port:
        check = KINDS["http"].section.model_validate({"type": "http", "port": port, "timeout": "50ms"})
        probe = make_probe(CheckKey(ip_address("127.0.0.1"), "c"), check)
        assert (await probe.probe()).reason == "no complete answer within 0.05 s"
    assert (await probe.probe()).reason == "no connection: Connection refused"
    assert (await probed("tcp", "127.0.0.1", port=port)).reason == "no connection: Connection refused"
