"""The lease on what ExaBGP announces. ExaBGP runs this file as its child; it needs the standard library only.

    python -I -S lease_helper.py SOCKET LEASE_SECONDS

The controller sends the whole set of wanted routes several times a lease, one JSON line each:

    {"sequence": 7, "beat": 35, "announce": {"192.0.2.1/32": "10.0.2.2"}, "known": ["192.0.2.1/32", "192.0.2.2/32"]}

and gets `{"sequence": 7, "beat": 35, "announced": [...], "errors": 0, "sessions": {"10.0.2.1": "up"}}` back once
ExaBGP has taken all of it, and once more when a session comes or goes, as far as ExaBGP has told this helper.
When the beat, which counts renewals, has gone on by BEATS, ExaBGP is asked for its version, so that one that hangs is
noticed.
The greeting of a new connection is such a line with sequence 0; its `announced` is null while the helper is fresh,
since a predecessor may have announced anything.

Nothing heard for a lease: everything is withdrawn. That a connection ends only lets the lease run out, so a
controller restarted in time changes nothing. End of file on stdin, or a broken pipe: ExaBGP is gone.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from typing import Any

RECONNECT = 0.1
SAY_PATIENCE = 0.2
BEATS = 5
LINE_LIMIT = 16 << 20


class Routes:
    """What ExaBGP was told. Turns a wish into commands; no clock, no I/O."""

    def __init__(self) -> None:
        self.announced: dict[str, str] | None = None

    def follow(self, wanted: dict[str, str], known: list[str]) -> list[str]:
        """The commands that make `wanted` true; a fresh helper also withdraws what is known but unwanted."""
        told = self.announced
        unwanted = sorted(set(known if told is None else told) - wanted.keys())
        told = told or {}
        commands = [withdrawal(prefix, told.get(prefix)) for prefix in unwanted]
        for prefix, next_hop in sorted(wanted.items()):
            if told.get(prefix) != next_hop:
                commands.append(f"announce route {prefix} next-hop {next_hop}")
        self.announced = dict(wanted)
        return commands

    def expire(self) -> list[str]:
        """The commands that withdraw everything; a fresh helper does not know what that is."""
        if self.announced is None:
            self.announced = {}
            return ["clear adj-rib out"]
        return self.follow({}, [])


def withdrawal(prefix: str, next_hop: str | None) -> str:
    """ExaBGP finds the route by its prefix, but wants to read a next hop of that family."""
    return f"withdraw route {prefix} next-hop {next_hop or ('::' if ':' in prefix else '0.0.0.0')}"


class Helper:
    """Moves bytes between the controller's socket and ExaBGP's pipes; never blocks but in poll."""

    def __init__(self, path: str, lease: float) -> None:
        self.path = path
        self.lease = lease
        self.routes = Routes()
        self.heard = time.monotonic()
        self.socket: socket.socket | None = None
        self.tried = 0.0
        self.incoming = b""
        self.outgoing = b""
        self.answers = b""
        self.unanswered = 0
        self.errors = 0
        self.sessions: dict[str, str] = {}
        self.sequence = 0
        self.beat = 0
        self.reported = True

    def run(self) -> None:
        """Serve until ExaBGP is gone."""
        for descriptor in (0, 1):
            os.set_blocking(descriptor, False)
        while True:
            self.connect()
            ready = self.poll()
            if 0 in ready:
                self.read_answers()
            if self.socket and self.socket.fileno() in ready:
                self.read_controller()
            # What has arrived counts before the clock: a helper that was itself stopped blames nobody.
            if time.monotonic() - self.heard >= self.lease:
                self.heard = time.monotonic()
                self.command(self.routes.expire())
            self.write_commands()
            self.report()

    def poll(self) -> set[int]:
        """The descriptors with something to read, after a wait of at most a tick."""
        poller = select.poll()
        poller.register(0, select.POLLIN)
        if self.outgoing:
            poller.register(1, select.POLLOUT)
        if self.socket:
            poller.register(self.socket, select.POLLIN)
        left = self.heard + self.lease - time.monotonic()
        return {fd for fd, _ in poller.poll(1000 * max(0.0, min(left, RECONNECT)))}

    def command(self, commands: list[str]) -> None:
        """Queue commands for ExaBGP; it answers each one with a line."""
        self.outgoing += "".join(f"{line}\n" for line in commands).encode()
        self.unanswered += len(commands)

    def write_commands(self) -> None:
        """Write as much as the pipe takes."""
        try:
            while self.outgoing:
                self.outgoing = self.outgoing[os.write(1, self.outgoing) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            sys.exit(0)

    def read_answers(self) -> None:
        """Count ExaBGP's answers, and hear of sessions; end of file means that it is gone."""
        data = os.read(0, 65536)
        if not data:
            sys.exit(0)
        *lines, self.answers = (self.answers + data).split(b"\n")
        for line in lines:
            if line in (b"done", b"error"):
                self.unanswered = max(0, self.unanswered - 1)
                self.errors += line == b"error"
            elif line.startswith(b"neighbor "):
                self.take_session(line.decode(errors="replace"))

    def take_session(self, line: str) -> None:
        """`neighbor ADDRESS up`, or `connected`, or `down - REASON`."""
        _, address, state = line.split(" ", 2)
        if state != "connected" and self.sessions.get(address) != state:
            self.sessions[address] = state
            self.reported = False

    def connect(self) -> None:
        """Try to reach the controller, not too often."""
        now = time.monotonic()
        if self.socket or now - self.tried < RECONNECT:
            return
        self.tried = now
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            connection.connect(self.path)
        except OSError:
            connection.close()
            return
        self.socket, self.incoming, self.sequence, self.beat = connection, b"", 0, 0
        self.say(0)

    def read_controller(self) -> None:
        """Take every whole line; only the last one matters."""
        assert self.socket
        try:
            data = self.socket.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, self.incoming = (self.incoming + data).split(b"\n")
        if lines:
            self.take(lines[-1])
        if not data or len(self.incoming) > LINE_LIMIT:
            self.disconnect()

    def take(self, line: bytes) -> None:
        """Follow one message; one that cannot be read does not renew the lease."""
        try:
            message: dict[str, Any] = json.loads(line)
            commands = self.routes.follow(dict(message["announce"]), list(message["known"]))
            sequence, beat = int(message["sequence"]), int(message.get("beat", 0))
        except (ValueError, TypeError, KeyError) as error:
            print(f"lease helper: unreadable message: {error!r}", file=sys.stderr, flush=True)
            return
        self.heard = time.monotonic()
        self.command(commands)
        if beat >= self.beat + BEATS:
            self.command(["version"])
        elif sequence == self.sequence:
            return
        else:
            beat = self.beat
        self.sequence, self.beat, self.reported = sequence, beat, False

    def report(self) -> None:
        """Confirm the newest message once ExaBGP has answered every command."""
        if self.socket and not self.reported and not self.unanswered:
            self.reported = True
            self.say(self.sequence)

    def say(self, sequence: int) -> None:
        """Send one report; a controller that does not read is hung up on."""
        announced = None if self.routes.announced is None else sorted(self.routes.announced)
        said: dict[str, Any] = {"sequence": sequence, "beat": self.beat, "announced": announced}
        said |= {"errors": self.errors, "sessions": self.sessions}
        if self.socket:
            try:
                self.socket.settimeout(SAY_PATIENCE)  # thousands of routes do not fit the socket's buffer
                self.socket.sendall(json.dumps(said).encode() + b"\n")
                self.socket.setblocking(False)
            except OSError:
                self.disconnect()

    def disconnect(self) -> None:
        """Drop the connection; the lease runs on from what was heard last."""
        if self.socket:
            self.socket.close()
            self.socket = None


if __name__ == "__main__":
    Helper(sys.argv[1], float(sys.argv[2])).run()
