from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme
from probe_servers import Answer, drip_of_body, probed, says, server, silence

from controller.probes import https
from controller.probes.probe import Outcome, ProbeResult

OK = says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
Server = Callable[..., ssl.SSLContext]


@pytest.fixture
def certified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Contexts of servers whose certificates are by an authority that this machine trusts."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    https._context.cache_clear()

    def context(*names: str, **settings: object) -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(*names, **settings).configure_cert(made)  # type: ignore[arg-type]
        return made

    yield context
    https._context.cache_clear()


async def asked(tls: ssl.SSLContext, answer: Answer = OK, **settings: object) -> ProbeResult:
    async with server(answer, tls=tls) as port:
        return await probed("https", "127.0.0.1", port=port, timeout="1s", **settings)


async def test_a_certificate_for_the_host_passes(certified: Server) -> None:
    result = await asked(certified("www.example.net"), host="www.example.net")
    assert (result.outcome, result.reason) == (Outcome.PASSED, "status 200")


async def test_without_a_host_the_certificate_must_be_for_the_address(certified: Server) -> None:
    assert (await asked(certified("127.0.0.1"))).passed
    result = await asked(certified("www.example.net"))
    assert result.outcome is Outcome.FAILED
    assert result.reason == "certificate: IP address mismatch, certificate is not valid for '127.0.0.1'"


async def test_a_port_in_the_host_is_no_part_of_the_name(certified: Server) -> None:
    assert (await asked(certified("www.example.net"), host="www.example.net:8443")).passed
    assert (await asked(certified("::1"), host="[::1]:8443")).passed


async def test_the_server_is_told_the_name(certified: Server) -> None:
    names: list[str | None] = []
    tls = certified("www.example.net", "127.0.0.1")
    tls.sni_callback = lambda _connection, name, _context: names.append(name)  # type: ignore[assignment,misc]
    assert (await asked(tls, host="www.example.net")).passed
    assert (await asked(tls, host="www.example.net", verify=False)).passed
    assert (await asked(tls)).passed
    assert names == ["www.example.net", "www.example.net", None]  # an address is never sent


async def test_a_certificate_with_another_name_fails_and_says_so(certified: Server) -> None:
    result = await asked(certified("other.example.net"), host="www.example.net")
    assert not result.passed
    assert result.reason == "certificate: Hostname mismatch, certificate is not valid for 'www.example.net'"


async def test_an_expired_certificate_fails_and_says_so(certified: Server) -> None:
    past = datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC)
    result = await asked(certified("127.0.0.1", not_before=past.replace(year=2000), not_after=past))
    assert not result.passed
    assert result.reason == "certificate: certificate has expired"


async def test_a_certificate_that_nobody_vouches_for_fails_unless_it_is_not_verified(certified: Server) -> None:
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(stranger)
    result = await asked(stranger)
    assert not result.passed
    assert result.reason == "certificate: unable to get local issuer certificate"
    assert (await asked(stranger, verify=False)).passed


async def test_a_server_without_tls_fails_and_says_so() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await reader.read()

    async with server(plain) as port:
        result = await probed("https", "127.0.0.1", port=port)
    assert not result.passed
    assert result.reason == "no TLS: wrong version number"


async def test_a_connection_that_ends_within_the_handshake_fails() -> None:
    async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)

    async with server(end) as port:
        result = await probed("https", "127.0.0.1", port=port)
    assert not result.passed
    assert result.reason.removeprefix("no complete answer: ") in ("the connection ended", "Connection reset by peer")


async def test_the_deadline_holds_for_handshake_and_answer(certified: Server) -> None:
    async with server(silence) as port:  # takes the connection and says nothing of TLS
        first = await probed("https", "127.0.0.1", port=port)
    async with server(drip_of_body, tls=certified("127.0.0.1")) as port:
        second = await probed("https", "127.0.0.1", port=port)
    for result in (first, second):
        assert (result.passed, result.reason) == (False, "no complete answer within 0.3 s")
        assert result.seconds < 0.5
