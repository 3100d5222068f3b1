"""HTTP probe: one GET, no redirect followed, the whole answer within one deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection

import aiohttp
from yarl import URL

from controller.model import Address
from controller.probes.result import ProbeResult, refusal

BODY_LIMIT = 64 << 10
"""A health page longer than this is a failure; it is read in pieces and thrown away."""

_PIECE = 4096


class HttpProbe:
    """Passes when the status is one of those expected and the answer is complete."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        address: Address,
        port: int,
        *,
        path: str,
        host: str | None,
        expect_status: Collection[int],
        timeout: float,
    ) -> None:
        authority = f"[{address}]" if address.version == 6 else str(address)
        self._url = URL(f"http://{authority}:{port}{path}", encoded=True)
        self._headers = {"User-Agent": "maglev-health", "Connection": "close"}
        if host is not None:
            self._headers["Host"] = host
        self._session = session
        self._expect_status = frozenset(expect_status)
        self._timeout = timeout

    async def probe(self) -> ProbeResult:
        """Ask once. Never raises."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout):
                passed, reason = await self._ask()
        except TimeoutError:
            passed, reason = False, f"no complete answer within {self._timeout:g} s"
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError):
            passed, reason = False, "the connection ended within the answer"
        except OSError as error:  # before ClientError: a failed connect is both
            passed, reason = False, refusal(error)
        except (aiohttp.ClientError, ValueError):
            passed, reason = False, "not an HTTP answer"
        return ProbeResult(passed, reason, time.monotonic() - began)

    async def _ask(self) -> tuple[bool, str]:
        async with self._session.get(self._url, headers=self._headers, allow_redirects=False) as response:
            length = 0
            while piece := await response.content.read(_PIECE):
                length += len(piece)
                if length > BODY_LIMIT:
                    return False, f"an answer of more than {BODY_LIMIT} bytes"
            if response.status in self._expect_status:
                return True, f"status {response.status}"
            expected = ", ".join(map(str, sorted(self._expect_status)))
            return False, f"status {response.status}, not {expected}"


def open_session() -> aiohttp.ClientSession:
    """A session for any number of probes: no connection is kept, no cookie, no decompression, no limit."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None),  # each probe has its own deadline
        read_bufsize=_PIECE,
    )
