"""Where Prometheus comes to: a TCP port of loopback, beside the control socket, which has the metrics too."""

from __future__ import annotations

import asyncio

import structlog
from aiohttp import web

from controller import metrics
from controller.app import Node
from controller.config_values import Endpoint
from controller.forwarder_client import ForwarderError
from controller.tasks import background, end

log = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0
"""Between looks whether the configuration wants another port, and tries to get one that somebody else has."""


async def answer(node: Node) -> web.Response:
    """All metrics of a node; without the packet path's while the forwarder cannot be reached."""
    try:
        stats = await node.forwarder.client.stats()
    except ForwarderError:
        stats = None
    return web.Response(body=metrics.exposition(node, stats), headers={"Content-Type": metrics.CONTENT_TYPE})


class MetricsListener:
    """Listens where `metrics.listen` says, now and after each reload."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._listens: Endpoint | None = None
        self._refused: Endpoint | None = None
        self._task: asyncio.Task[None] | None = None
        application = web.Application()
        application.router.add_get("/metrics", lambda _: answer(node))
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)

    async def start(self) -> None:
        """Begin to listen; that a port is taken does not keep the node from its work."""
        await self._runner.setup()
        self._task = background(self._follow_for_ever(), "metrics")

    async def stop(self) -> None:
        """Listen no more."""
        await end(self._task)
        await self._runner.cleanup()

    async def _follow_for_ever(self) -> None:
        while True:
            wanted = self._node.config.metrics.listen
            if wanted != self._listens:
                await self._listen(wanted)
            await asyncio.sleep(LOOK_SECONDS)

    async def _listen(self, wanted: Endpoint | None) -> None:
        for site in self._runner.sites:
            await site.stop()
        self._listens = None
        if wanted is None:
            return
        try:
            await web.TCPSite(self._runner, str(wanted.address), wanted.port).start()
        except OSError as error:
            if wanted != self._refused:  # once, not at every try
                log.error("cannot listen for metrics", listen=str(wanted), reason=error.strerror)
            self._refused = wanted
            return
        log.info("metrics", listen=f"http://{wanted}/metrics")
        self._listens, self._refused = wanted, None
