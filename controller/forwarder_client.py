"""Talks to the forwarder over its control socket: frames of a length and a JSON object.

Each request has a connection of its own. A unix connect costs next to nothing, and so neither a timeout nor a
restarted forwarder can leave a conversation out of step, and a ping never waits behind a state.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Protocol

FRAME_LIMIT = 64 << 20
PING_TIMEOUT = 1.0
REQUEST_TIMEOUT = 5.0
STATE_TIMEOUT = 30.0
"""A state may need many big tables to be built."""

Json = dict[str, Any]


class ForwarderError(Exception):
    """The forwarder did not do what was asked; the message is one sentence."""


class ForwarderUnreachableError(ForwarderError):
    """No whole answer came: no socket, a cut connection, a timeout, garbage."""


class ForwarderRefusedError(ForwarderError):
    """The forwarder answered, and said no; nothing has changed."""


class Forwarder(Protocol):
    """What the controller wants of a forwarder. Every method raises ForwarderError."""

    async def ping(self) -> Json:
        """Pid, fingerprint, generation, digest, lcores, ports."""

    async def push(self, state: Json) -> Json:
        """Apply a state whole; returns generation and digest."""

    async def churn(self, state: Json) -> list[Json]:
        """Per vip in force, the live flows that applying this state would move; changes nothing."""

    async def stats(self) -> Json:
        """All counters."""

    async def canary(self) -> tuple[bool, str, bool]:
        """Send a canary through the stages: whether it passed, what happened, whether the forwarder is to blame."""

    async def lookup(
        self, protocol: str, source: str, source_port: int, destination: str, destination_port: int
    ) -> Json:
        """Where a packet of this flow would go now."""

    async def flush(self, backend: str | None) -> None:
        """End the flows of a backend, or of all."""


class ForwarderClient:
    """The forwarder behind a control socket."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def ping(self) -> Json:
        """Ask whether it lives; short timeout."""
        return await self._request({"op": "ping"}, PING_TIMEOUT)

    async def push(self, state: Json) -> Json:
        """Apply a state whole; returns generation and digest."""
        return await self._request({"op": "state", "state": state}, STATE_TIMEOUT)

    async def churn(self, state: Json) -> list[Json]:
        """Per vip in force, the live flows that applying this state would move; changes nothing."""
        answer = await self._request({"op": "churn", "state": state}, STATE_TIMEOUT)
        return list(answer["vips"])

    async def stats(self) -> Json:
        """All counters."""
        return await self._request({"op": "stats"}, REQUEST_TIMEOUT)

    async def canary(self) -> tuple[bool, str, bool]:
        """Send a canary through the stages: whether it passed, what happened, whether the forwarder is to blame."""
        answer = await self._request({"op": "canary"}, REQUEST_TIMEOUT)
        return bool(answer.get("passed")), str(answer.get("reason", "")), bool(answer.get("sick", True))

    async def lookup(
        self, protocol: str, source: str, source_port: int, destination: str, destination_port: int
    ) -> Json:
        """Where a packet of this flow would go now."""
        flow: Json = {"protocol": protocol, "source": source, "source_port": source_port}
        flow |= {"destination": destination, "destination_port": destination_port}
        answer = await self._request({"op": "lookup", **flow}, REQUEST_TIMEOUT)
        return {key: value for key, value in answer.items() if key != "ok"}

    async def flush(self, backend: str | None) -> None:
        """End the flows of a backend, or of all."""
        await self._request({"op": "flush", "backend": backend}, REQUEST_TIMEOUT)

    async def _request(self, request: Json, seconds: float) -> Json:
        what = request["op"]
        try:
            async with asyncio.timeout(seconds):
                answer = await self._exchange(json.dumps(request).encode())
        except TimeoutError as error:
            raise ForwarderUnreachableError(f"no answer to {what} within {seconds:g} s") from error
        except asyncio.IncompleteReadError as error:
            raise ForwarderUnreachableError(f"the forwarder cut the connection during {what}") from error
        except OSError as error:
            raise ForwarderUnreachableError(f"the forwarder cannot be reached: {error.strerror}") from error
        except ValueError as error:
            raise ForwarderUnreachableError(f"the forwarder answered {what} with garbage: {error}") from error
        if not answer.get("ok"):
            raise ForwarderRefusedError(str(answer.get("error", f"the forwarder refused {what}")))
        return answer

    async def _exchange(self, body: bytes) -> Json:
        if len(body) > FRAME_LIMIT:
            raise ForwarderRefusedError(f"the request has {len(body)} bytes, a frame may have {FRAME_LIMIT}")
        reader, writer = await asyncio.open_unix_connection(self.path)
        try:
            writer.write(len(body).to_bytes(4, "big") + body)
            await writer.drain()
            length = int.from_bytes(await reader.readexactly(4), "big")
            if length > FRAME_LIMIT:
                raise ValueError(f"a frame of {length} bytes")
            answer = json.loads(await reader.readexactly(length))
        finally:
            writer.transport.abort()
        if not isinstance(answer, dict):
            raise ValueError("not an object")
        return answer
