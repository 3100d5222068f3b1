"""The control socket: what the controller asks of a running forwarder.

A frame is a length (4 bytes, big-endian) and that many bytes of JSON, both ways. A message is acted on only when it
is complete, so that a controller that dies in the middle of one changes nothing.
"""

import asyncio
import json
import os
import struct
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import structlog

from forwarder.hashing.flow import PROTOCOLS
from forwarder.state_message import StateRefused

MAX_MESSAGE = 64 << 20
Request = dict[str, Any]
Handler = Callable[[Request], Awaitable[dict[str, Any]]]

log = structlog.get_logger()


class RequestRefused(Exception):
    """The request cannot be answered; the text goes to the asker."""


async def _read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """One message, None at the end of the stream (also in the middle of a message)."""
    try:
        (length,) = struct.unpack("!I", await reader.readexactly(4))
        if length > MAX_MESSAGE:
            raise RequestRefused(f"a message of {length} bytes is larger than {MAX_MESSAGE}")
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def _frame(answer: dict[str, Any]) -> bytes:
    body = json.dumps(answer).encode()
    return struct.pack("!I", len(body)) + body


class ControlServer:
    """Answers requests on a unix socket by a table of handlers, one per `op`."""

    def __init__(self, path: Path, handlers: dict[str, Handler]) -> None:
        self._path = path
        self._handlers = handlers
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen. A socket file left by a dead forwarder is replaced: the pid file's lock says that it is dead."""
        self._path.unlink(missing_ok=True)
        previous = os.umask(0o117)
        try:
            self._server = await asyncio.start_unix_server(self._serve, self._path)
        finally:
            os.umask(previous)

    async def stop(self) -> None:
        """Stop listening and remove the socket."""
        if self._server is not None:
            self._server.close()
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (body := await _read_frame(reader)) is not None:
                writer.write(_frame(await self._answer(body)))
                await writer.drain()
        except RequestRefused as error:
            writer.write(_frame({"ok": False, "error": str(error)}))
        except ConnectionError:
            pass  # the asker went away before its answer
        finally:
            writer.close()

    async def _answer(self, body: bytes) -> dict[str, Any]:
        try:
            request = json.loads(body)
            handler = self._handlers[request["op"]]
        except (ValueError, TypeError, KeyError, RecursionError):
            known = ", ".join(sorted(self._handlers))
            return {"ok": False, "error": f"not a request: a JSON object with an op of {known} is expected"}
        try:
            return {"ok": True, **await handler(request)}
        except (StateRefused, RequestRefused) as error:
            return {"ok": False, "error": str(error)}
        except Exception as error:  # the forwarder goes on forwarding whatever a request brings
            log.exception("request failed", op=request["op"])
            return {"ok": False, "error": f"{request['op']} failed: {error!r}"}


def flow_of(request: Request) -> tuple[int, Any, int, Any, int]:
    """The 5-tuple of a lookup request. Raises RequestRefused."""
    try:
        source, destination = ip_address(request["source"]), ip_address(request["destination"])
        ports = int(request["source_port"]), int(request["destination_port"])
        protocol = PROTOCOLS[request["protocol"]]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RequestRefused(f"not a flow: {error!r}") from error
    if source.version != destination.version or not all(0 <= port <= 65535 for port in ports):
        raise RequestRefused("not a flow: two address families, or a port out of range")
    return protocol, source, ports[0], destination, ports[1]
