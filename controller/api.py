"""The control API of a node: HTTP over a unix socket in its run directory."""

from __future__ import annotations

import json
import os
import pwd
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from functools import partial

import structlog
from aiohttp import web

from controller.app import Node, ReloadRefusedError, TooMuchChurnError
from controller.config import ConfigError
from controller.forwarder_client import ForwarderError, ForwarderRefusedError, Json
from controller.metrics_listener import answer
from controller.overrides import OverrideNotKeptError, Word
from controller.probe_tunnel import ProbeTunnelError
from controller.status import status

log = structlog.get_logger(__name__)

LONGEST_WHY = 500
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _BadRequestError(Exception):
    """The request cannot be understood or names something that is not there."""


class Api:
    """Serves one node. Errors are JSON too: `{"error": sentence}` or `{"problems": [...]}`."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._path = node.run_dir.controller_socket
        application = web.Application(middlewares=[_errors])
        application.router.add_get("/status", self._status)
        application.router.add_get("/metrics", self._metrics)
        for name, handler in {
            "reload": self._reload,
            "drain": self._drain,
            "undrain": self._undrain,
            "flush": self._flush,
            "drain-self": self._drain_self,
            "lookup": self._lookup,
        }.items():
            application.router.add_post(f"/{name}", handler)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)

    async def start(self) -> None:
        """Listen."""
        self._path.unlink(missing_ok=True)
        await self._runner.setup()
        await web.UnixSite(self._runner, str(self._path)).start()
        os.chmod(self._path, 0o660)

    async def stop(self) -> None:
        """Answer no more."""
        await self._runner.cleanup()

    async def _status(self, request: web.Request) -> web.Response:
        return web.json_response(await status(self._node))

    async def _metrics(self, request: web.Request) -> web.Response:
        return await answer(self._node)

    async def _reload(self, request: web.Request) -> web.Response:
        body = await _body(request)
        limit = body.get("max_churn")
        if not (limit is None or (type(limit) in (int, float) and 0 <= limit <= 100)):
            raise _BadRequestError("max_churn must be a percentage from 0 to 100")
        return web.json_response(await self._node.reload(dry_run=bool(body.get("dry_run", False)), max_churn=limit))

    async def _drain(self, request: web.Request) -> web.Response:
        body = await _body(request)
        backend, word = self._backend(body), _word(request, body)
        log.info("drain", backend=backend, by=word.by, why=word.why)
        return self._override(partial(self._node.overrides.drain, backend, word))

    async def _undrain(self, request: web.Request) -> web.Response:
        body = await _body(request)
        if body.get("backend") not in self._node.overrides.drained:
            self._backend(body)
        word = _word(request, body)
        log.info("undrain", backend=body["backend"], by=word.by, why=word.why)
        return self._override(partial(self._node.overrides.undrain, body["backend"]))

    async def _drain_self(self, request: web.Request) -> web.Response:
        body = await _body(request)
        word, overrides = _word(request, body), self._node.overrides
        drain = bool(body.get("drain", True))
        log.info("drain node" if drain else "undrain node", by=word.by, why=word.why)
        return self._override(partial(overrides.drain_node, word) if drain else overrides.undrain_node)

    async def _flush(self, request: web.Request) -> web.Response:
        body = await _body(request)
        name, everything = body.get("backend"), body.get("all") is True
        if everything == isinstance(name, str):
            raise _BadRequestError('backend must be a name, or "all" true')
        word = _word(request, body)
        log.info("flush", backend=name, all=everything, by=word.by, why=word.why)
        await self._node.forwarder.client.flush(name)  # one that left the configuration may have flows yet
        return web.json_response({"flushed": name})

    async def _lookup(self, request: web.Request) -> web.Response:
        body = await _body(request)
        try:
            flow = str(body["protocol"]), str(body["source"]), int(body["source_port"])
            target = str(body["destination"]), int(body["destination_port"])
        except (KeyError, TypeError, ValueError) as error:
            raise _BadRequestError(f"a lookup needs all of the flow: {error}") from error
        return web.json_response(await self._node.forwarder.client.lookup(*flow, *target))

    def _backend(self, body: Json) -> str:
        names = {member.backend.name for vip in self._node.vips for member in vip.members}
        name = body.get("backend")
        if name not in names:
            raise _BadRequestError(f"there is no backend {name} (there are: {', '.join(sorted(names))})")
        return str(name)

    def _override(self, change: Callable[[], None]) -> web.Response:
        try:
            change()
        finally:  # it is in force even when it could not be written down
            self._node.wake()
        overrides = self._node.overrides
        told = {"drained": sorted(overrides.drained), "drain_self": overrides.drain_self}
        return web.json_response(told | {"overrides": overrides.as_json()})


def _word(request: web.Request, body: Json) -> Word:
    """Who asks, by what the kernel knows of the socket's other end; root may tell for whom (sudo)."""
    why = body.get("why")
    if why is not None and (not isinstance(why, str) or len(why) > LONGEST_WHY or not why.isprintable()):
        raise _BadRequestError(f"why must be one line of at most {LONGEST_WHY} characters")
    peer = request.transport.get_extra_info("socket") if request.transport else None
    uid = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1] if peer else -1
    user = _user(uid)
    behind = body.get("for")
    return Word(f"{behind} ({user})" if uid == 0 and isinstance(behind, str) else user, time.time(), why or None)


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


async def _body(request: web.Request) -> Json:
    text = await request.text()
    try:
        body = json.loads(text) if text else {}
    except ValueError as error:
        raise _BadRequestError(f"the request is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise _BadRequestError("the request is not a JSON object")
    return body


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ConfigError as error:
        problems = [{"file": p.file, "line": p.line, "key": p.key, "message": p.message} for p in error.problems]
        return web.json_response({"problems": problems}, status=400)
    except _BadRequestError as error:
        return web.json_response({"error": str(error)}, status=400)
    except OverrideNotKeptError as error:
        return web.json_response({"error": str(error)}, status=500)
    except (ReloadRefusedError, ProbeTunnelError) as error:
        return web.json_response({"error": str(error)}, status=409)
    except TooMuchChurnError as error:
        return web.json_response({"error": str(error)}, status=412)
    except ForwarderRefusedError as error:
        return web.json_response({"error": str(error)}, status=400)
    except ForwarderError as error:
        return web.json_response({"error": str(error)}, status=502)
