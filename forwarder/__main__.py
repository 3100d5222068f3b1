"""`python -m forwarder RUN_DIR`: one forwarder, with the settings and the sockets of that run directory.

Exit status 2: refused its settings, with one sentence on stderr. 1: failed.
"""

import asyncio
import fcntl
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from forwarder.control import ControlServer
from forwarder.settings import Refused, Settings, load
from forwarder.taps import TapGone


class RunsAlready(Exception):
    """Another process is this node's forwarder; nothing is wrong with the settings."""


class PacketsMissing(Exception):
    """A stage or a driver has lost packets: a fault, in ours or in DPDK's code."""


@contextmanager
def locked_pid_file(path: Path) -> Iterator[None]:
    """Hold the lock that says which process is this node's forwarder. Raises RunsAlready when another has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise RunsAlready(f"a forwarder runs already: its pid is in {path}.") from error
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _cause(error: BaseException) -> BaseException:
    """What one of several tasks ended with: its words are the last ones of the log."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def serve(settings: Settings, run_dir: Path) -> None:
    """Run until SIGTERM or SIGINT. Raises Refused."""
    try:
        from forwarder.node import Node
    except ImportError as error:
        raise Refused(
            f"the data plane is not built or libdpdk is missing ({error}): install Debian's libdpdk-dev and run "
            "`make build`."
        ) from error

    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    node = Node(settings, run_dir)
    server = ControlServer(run_dir / "forwarder.sock", node.handlers)
    running = asyncio.create_task(node.run())
    running.add_done_callback(lambda _: stopped.set())
    try:
        await server.start()
        structlog.get_logger().info("forwarder started", node=settings.node, pid=os.getpid())
        await stopped.wait()
    finally:
        await server.stop()
        running.cancel()
        missing = node.stop()
    failure = running.exception() if running.done() and not running.cancelled() else None
    if failure is not None:
        raise _cause(failure)
    if missing:
        raise PacketsMissing(f"{missing} packets did not return to the pool.")


def main() -> int:
    """Entry point; returns the exit status."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    if len(sys.argv) != 2:
        print("usage: python -m forwarder RUN_DIR", file=sys.stderr)
        return 2
    run_dir = Path(sys.argv[1])
    try:
        settings = load(run_dir / "forwarder.json")
        with locked_pid_file(run_dir / "forwarder.pid"):
            asyncio.run(serve(settings, run_dir))
    except Refused as error:
        print(error, file=sys.stderr)
        return 2
    except (RunsAlready, PacketsMissing, TapGone) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
