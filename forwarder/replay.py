"""`maglev replay`: the real stages over a capture instead of a NIC, in one process and deterministic.

The clock is the capture's; every packet gets through; no kernel is asked. The node is 02:00:00:00:00:02 and its next
hop 02:00:00:00:00:01. Settings and state come as JSON on stdin, since the configuration is the controller's business.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from forwarder._capture import CaptureError, CaptureReader, CaptureWriter
from forwarder._dataplane import Dataplane, DataplaneError, PacketPool, Port, initialize, table_bytes
from forwarder.environment import needed_megabytes
from forwarder.forwarding import Forwarding
from forwarder.next_hops import NextHops
from forwarder.settings import PortSettings, Refused, Settings, parse
from forwarder.state_message import StateRefused

GATEWAY_MAC = bytes.fromhex("020000000001")
PACKETS_PER_STAGE = 1024  # caches and bursts
PACKETS_TO_EACH = 64  # on the way from one worker to another, with steering: rss
PACKETS_ON_THE_ROAD = 8192  # so that as many fragments may wait as in a node of the default packet_pool
LONGEST_HOLD = 60  # seconds, more than any stage keeps a packet back
NANOSECONDS = 10**9

Trace = tuple[int, str, int | None, int | None]  # of a packet: number, reason, numbers of vip and backend


def _capture_port(settings: Settings) -> PortSettings:
    """The one port of a replay: the configured MTU and gateway MAC, or the fixed ones."""
    first = settings.ports[0] if settings.ports else None
    return PortSettings(
        device="capture",
        driver="capture",
        mtu=first.mtu if first is not None else 1500,
        gateways={},
        mac=first.mac if first is not None and first.mac is not None else GATEWAY_MAC,
    )


class Replay:
    """A data plane over one memory port, stepped packet by packet; with `trace` it tells what became of each."""

    def __init__(self, settings: Settings, state: dict[str, Any], workers: int, trace: bool = False) -> None:
        rss = settings.steering == "rss"
        packets = PACKETS_ON_THE_ROAD + (PACKETS_PER_STAGE + PACKETS_TO_EACH * workers * rss) * (workers + 3)
        megabytes = needed_megabytes(packets, False, workers * table_bytes(settings.connection_entries))
        initialize(
            ["--no-huge", "--no-shconf", "--no-pci", "--no-telemetry", "-m", str(megabytes)]
            + ["--lcores", f"0@{min(os.sched_getaffinity(0))}", "--log-level", "lib.eal:warning"]
        )
        self._pool = PacketPool("packet_pool", packets)
        self._port = Port.memory("capture", 0, self._pool, workers if rss else 1)
        self._dataplane = Dataplane(
            self._pool,
            [self._port],
            settings.hash_key,
            workers=workers,
            connection_entries=settings.connection_entries,
            connection_seconds=settings.connection_seconds,
            trace=trace,
            layout=settings.steering,
        )
        port = _capture_port(settings)
        self._dataplane.set_port(0, port.mtu, punts=False, unfinished=True)
        self._forwarding = Forwarding(self._dataplane, NextHops([port], [None]), settings.sources, settings.node)
        self._forwarding.apply(self._forwarding.prepare(state))
        self._now = 0
        self._sent = 0
        self._connections = 0

    def steps(self, packets: CaptureReader) -> Iterator[int]:
        """Every packet through all stages, each at its own timestamp, which is yielded when nothing moves any more.

        Behind the last one time goes on until no stage keeps a packet back, and there is one more step; also where
        the capture is broken, before its CaptureError is raised.
        """
        nanoseconds, broken = 0, None
        try:
            for nanoseconds, frame in packets:
                self._now = max(self._now, nanoseconds // NANOSECONDS)
                self._port.give(frame)
                self._settle()
                yield nanoseconds
        except CaptureError as error:
            broken = error
        self._connections = self._dataplane.connections(self._now)
        self._now = (self._now + LONGEST_HOLD) % 2**32  # the data plane's clock goes round
        self._settle()
        yield nanoseconds
        if broken is not None:
            raise broken

    def _settle(self) -> None:
        while self._dataplane.step(self._now):
            pass

    def sent(self) -> Iterator[bytes]:
        """Frames that were sent and not asked for yet."""
        while (frame := self._port.take()) is not None:
            self._sent += 1
            yield frame

    @property
    def received(self) -> int:
        """Packets so far."""
        return self._dataplane.received

    def traces(self) -> list[Trace]:
        """What became of packets since the last call; to be called in every step."""
        return self._dataplane.traces()

    def names(self) -> tuple[dict[int, str], dict[int, str]]:
        """The names of vips and of backends, by the numbers in traces."""
        return self._forwarding.names()

    def result(self) -> dict[str, Any]:
        """What happened, as DESIGN 9 has it."""
        vips, backends = self._forwarding.traffic()
        return {
            "received": self.received,
            "sent": self._sent,
            "fates": self._dataplane.fates(),
            "vips": {name: _packets_and_bytes(counts) for name, counts in vips.items()},
            "backends": {name: _packets_and_bytes(counts) for name, counts in sorted(backends.items())},
            "connections": self._connections,
        }

    def close(self) -> int:
        """Give everything back; returns the packets that are missing from the pool."""
        self._dataplane.close()
        self._port.close()
        missing = self._pool.missing
        self._pool.close()
        return missing


def _packets_and_bytes(counts: dict[str, int]) -> dict[str, int]:
    return {"packets": counts["packets"], "bytes": counts["bytes"]}


def replay(settings: Settings, state: dict[str, Any], source: Path, target: Path, workers: int = 1) -> dict[str, Any]:
    """Run the capture `source` through a data plane with this state and write `target`; returns the counts.

    Raises CaptureError.
    """
    packets = CaptureReader(str(source))
    if target.exists() and target.samefile(source):
        raise CaptureError(f"{target} is the capture to be read: write to another file")
    out = CaptureWriter(str(target))
    run = Replay(settings, state, workers)
    try:
        for nanoseconds in run.steps(packets):
            for frame in run.sent():
                out.write(nanoseconds, frame)
        result = run.result()
    except CaptureError:
        target.unlink(missing_ok=True)  # what is written of a broken capture looks whole and is not
        raise
    finally:
        out.close()
        missing = run.close()
    if missing:
        raise CaptureError(f"{missing} packets did not return to the pool")
    return result


def main() -> int:
    """`python -m forwarder.replay IN.pcap OUT.pcap [--workers N]`; returns the exit status, 1 for a bad capture."""
    parser = argparse.ArgumentParser(prog="maglev replay", description="The packet path over a capture.")
    parser.add_argument("source", type=Path, metavar="IN.pcap")
    parser.add_argument("target", type=Path, metavar="OUT.pcap")
    parser.add_argument("--workers", type=int, default=1, choices=range(1, 33), metavar="N")
    arguments = parser.parse_args()
    asked = json.load(sys.stdin)
    try:
        settings = parse(asked["settings"])
        print(json.dumps(replay(settings, asked["state"], arguments.source, arguments.target, arguments.workers)))
    except (CaptureError, DataplaneError, Refused, StateRefused) as error:
        print(f"maglev replay: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
