"""A cable between two interfaces of a namespace: what comes in by the one goes out by the other, and the other way.

Run as `python cable.py DEVICE DEVICE`. A bridge would not do beside a tap of DPDK's: there the interface has the very
address that frames are sent to, which a bridge takes for its own.
"""

from __future__ import annotations

import selectors
import socket
import sys
from contextlib import suppress

ALL_FRAMES = 3
SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23


def plug(device: str) -> socket.socket:
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_FRAMES))
    end.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    end.bind((device, ALL_FRAMES))
    end.setblocking(False)
    return end


def main() -> None:
    one, other = map(plug, sys.argv[1:])
    ready = selectors.DefaultSelector()
    ready.register(one, selectors.EVENT_READ, other)
    ready.register(other, selectors.EVENT_READ, one)
    print("plugged in", flush=True)
    while True:
        for key, _ in ready.select():
            with suppress(OSError):  # an interface is down, or has no room: a cable knows neither
                while True:
                    key.data.send(key.fileobj.recv(65536))  # type: ignore[union-attr]


if __name__ == "__main__":
    main()
