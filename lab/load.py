"""The client: requests on a new connection each, beside long connections that exchange one now and then.

Run inside the client's namespace as `python -m lab.load ADDRESS PORT ...`. It prints one line of JSON when
the long connections are open, `{"ready": n}`, and another with the results: after the last request, or,
without `--requests` or with `--connections`, once its stdin is closed. Times are of CLOCK_MONOTONIC, which
all processes of the machine share.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import sys
import time
from dataclasses import asdict, dataclass, field

PATIENCE = 5.0  # seconds one exchange may take, connecting included
ATTEMPTS = 8  # of one request, each on a new connection
PAUSE = 0.2  # between two attempts
PERIOD = 0.5  # of the exchanges on a long connection


@dataclass(slots=True)
class Retry:
    """An attempt that brought no answer, after which the request was tried again."""

    began: float
    reason: str


@dataclass(slots=True)
class LongConnection:
    """One long connection: who answers it, and why it counts as broken if it does."""

    backend: str | None = None
    client: str | None = None  # its end of the connection, so that a broken one can be looked up
    broken: str | None = None


@dataclass(slots=True)
class Results:
    """What the client saw."""

    requests: int = 0
    answered: int = 0
    failed: int = 0
    opened: int = 0  # connections for requests, retries included
    slowest_ms: float = 0.0
    per_backend: dict[str, int] = field(default_factory=dict)
    retries: list[Retry] = field(default_factory=list)
    connections: list[LongConnection] = field(default_factory=list)


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, keep: bool) -> str:
    """One request and its answer: the name of the backend."""
    wish = b"keep-alive" if keep else b"close"
    writer.write(b"GET / HTTP/1.1\r\nHost: lab\r\nConnection: %s\r\n\r\n" % wish)
    status, *fields = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    lengths = [line.partition(":")[2] for line in fields if line.lower().startswith("content-length:")]
    body = await reader.readexactly(int(lengths[0]))
    if status.split(" ")[1] != "200":
        raise ConnectionError(f"answered {status!r}")
    return body.decode().strip()


def why(error: BaseException) -> str:
    """A reason that can be counted: what happened, without addresses."""
    if isinstance(error, TimeoutError):
        return f"no answer in {PATIENCE:g} s"
    if isinstance(error, asyncio.IncompleteReadError):
        return "closed by the backend"
    return str(error) if type(error) is ConnectionError else type(error).__name__


FAILURES = (OSError, EOFError, TimeoutError, ValueError, IndexError)


class Client:
    """The load of one run against one vip."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.address, self.port = options.address, options.port
        self.sources = itertools.cycle(options.source or [None])
        self.rate = options.rate
        self.period = options.period
        self.left = options.requests  # None: until stopped
        self.stop = asyncio.Event()
        self.results = Results()

    async def requests(self, concurrency: int) -> None:
        """Make requests, at most `concurrency` at a time and `rate` a second in all."""
        interval = concurrency / self.rate if self.rate else 0.0
        await asyncio.gather(*(self._request_loop(interval) for _ in range(concurrency)))

    async def _request_loop(self, interval: float) -> None:
        if interval:  # so that the loops do not beat together
            await asyncio.sleep(random.uniform(0, interval))
        while not self.stop.is_set() and self.left != 0:
            if self.left is not None:
                self.left -= 1
            began = time.monotonic()
            await self._request()
            await asyncio.sleep(max(0.0, began + interval - time.monotonic()))

    async def _request(self) -> None:
        results = self.results
        results.requests += 1
        for attempt in range(ATTEMPTS):
            began = time.monotonic()
            try:
                name = await self._attempt()
            except FAILURES as error:
                results.retries.append(Retry(began, why(error)))
                await asyncio.sleep(PAUSE if attempt + 1 < ATTEMPTS else 0)
                continue
            results.answered += 1
            results.per_backend[name] = results.per_backend.get(name, 0) + 1
            results.slowest_ms = max(results.slowest_ms, (time.monotonic() - began) * 1000)
            return
        results.failed += 1

    async def _attempt(self) -> str:
        async with asyncio.timeout(PATIENCE):
            self.results.opened += 1
            reader, writer = await self._connect()
            try:
                return await exchange(reader, writer, keep=False)
            finally:
                writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        source = next(self.sources)
        local = (source, 0) if source else None
        return await asyncio.open_connection(self.address, self.port, local_addr=local)

    async def open_long(self, count: int, concurrency: int) -> list[asyncio.Task[None]]:
        """Open the long connections and make the first exchange on each; returns what keeps them busy."""
        gate = asyncio.Semaphore(concurrency)

        async def open_one() -> asyncio.Task[None] | None:
            connection = LongConnection()
            self.results.connections.append(connection)
            async with gate:
                try:
                    async with asyncio.timeout(PATIENCE):
                        reader, writer = await self._connect()
                        connection.client = "{}:{}".format(*writer.get_extra_info("sockname"))
                        connection.backend = await exchange(reader, writer, keep=True)
                except FAILURES as error:
                    connection.broken = f"never opened: {why(error)}"
                    return None
            return asyncio.create_task(self._keep_busy(connection, reader, writer))

        return [task for task in await asyncio.gather(*(open_one() for _ in range(count))) if task]

    async def _keep_busy(
        self, connection: LongConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Exchange a request every period and once more at the end; trouble breaks the connection."""
        last = False
        while connection.broken is None and not last:
            pause = asyncio.create_task(self.stop.wait())
            await asyncio.wait([pause], timeout=self.period * random.uniform(0.5, 1.5))
            pause.cancel()
            last = self.stop.is_set()
            try:
                async with asyncio.timeout(PATIENCE):
                    name = await exchange(reader, writer, keep=True)
            except FAILURES as error:
                connection.broken = why(error)
                break
            if name != connection.backend:
                connection.broken = f"answered by {name} instead of {connection.backend}"
        writer.close()


async def run(options: argparse.Namespace) -> Results:
    """The whole load: long connections first, then requests, until all are made or stdin is closed."""
    client = Client(options)
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), client.stop.set)
    busy = await client.open_long(options.connections, options.concurrency)
    print(json.dumps({"ready": len(busy)}), flush=True)
    await client.requests(options.concurrency)
    await asyncio.gather(*busy)
    return client.results


def main() -> None:
    """Parse the command line, run, print the results."""
    parser = argparse.ArgumentParser(prog="python -m lab.load", description=__doc__)
    parser.add_argument("address")
    parser.add_argument("port", type=int)
    parser.add_argument("--source", action="append", help="local address; several are used in turn")
    parser.add_argument("--requests", type=int, default=None, help="how many; default: until stdin is closed")
    parser.add_argument("--connections", type=int, default=0, help="long connections")
    parser.add_argument("--period", type=float, default=PERIOD, help="seconds between exchanges on one of them")
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--rate", type=float, default=None, help="requests a second; default: no limit")
    print(json.dumps(asdict(asyncio.run(run(parser.parse_args())))), flush=True)


if __name__ == "__main__":
    main()
