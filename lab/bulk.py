"""One large upload or download, as fast as it goes, over one connection.

Run inside the client's namespace as `python -m lab.bulk ADDRESS PORT up|down BYTES`. It prints one line of JSON: who
answered, how many bytes went over, in how many seconds, and what the client's kernel then holds for the path's MTU.
"""

from __future__ import annotations

import argparse
import json
import socket
import time
from dataclasses import asdict, dataclass

IP_MTU_DISCOVER, IP_PMTUDISC_DONT, IP_MTU = 10, 0, 14  # linux/in.h
PATIENCE = 20.0  # seconds without a byte
CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Transfer:
    """What one transfer was."""

    backend: str
    bytes: int
    seconds: float
    mtu: int


def head_of(connection: socket.socket) -> tuple[dict[str, str], bytes]:
    """The fields of the response's head, and what came of its body."""
    received = b""
    while b"\r\n\r\n" not in received:
        part = connection.recv(CHUNK)
        if not part:
            raise ConnectionError("closed by the backend")
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    fields = (line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:])
    return {name.lower(): value.strip() for name, _, value in fields}, body


def upload(connection: socket.socket, size: int) -> tuple[str, int]:
    """Send a body of `size` bytes; returns who took it, and how many bytes."""
    connection.sendall(b"POST /upload HTTP/1.1\r\nHost: lab\r\nContent-Length: %d\r\n\r\n" % size)
    connection.sendall(bytes(size))
    fields, _ = head_of(connection)
    return fields["backend"], size


def download(connection: socket.socket, size: int) -> tuple[str, int]:
    """Ask for `size` bytes; returns who sent them, and how many came."""
    connection.sendall(b"GET /download/%d HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n" % size)
    fields, body = head_of(connection)
    received = len(body)
    while part := connection.recv(CHUNK):
        received += len(part)
    return fields["backend"], received


def main() -> None:
    """Parse the command line, transfer, print the result."""
    parser = argparse.ArgumentParser(prog="python -m lab.bulk", description=__doc__)
    parser.add_argument("address")
    parser.add_argument("port", type=int)
    parser.add_argument("direction", choices=["up", "down"])
    parser.add_argument("bytes", type=int)
    parser.add_argument("--no-df", action="store_true", help="send packets that may be fragmented")
    options = parser.parse_args()
    began = time.monotonic()
    with socket.socket() as connection:
        connection.settimeout(PATIENCE)
        if options.no_df:
            connection.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DONT)
        connection.connect((options.address, options.port))
        backend, size = (upload if options.direction == "up" else download)(connection, options.bytes)
        mtu = connection.getsockopt(socket.IPPROTO_IP, IP_MTU)
    print(json.dumps(asdict(Transfer(backend, size, time.monotonic() - began, mtu))))


if __name__ == "__main__":
    main()
