"""A forwarder without packets, to be run as a program on a run directory: it speaks the real one's protocol.

What the environment variable FAKE_FORWARDER names goes wrong at the start: `refuse` the settings, or `fail`.
While it runs it obeys RUN_DIR/fake.json, read at each request: {"hang": true, "stalled": true, "link": false,
"canary": false, "unresolved": true, "refuse": true}. Every state that it accepts is appended to RUN_DIR/fake.states.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def reason(fate: str, kind: str, packets: int, text: str) -> Json:
    return {"fate": fate, "kind": kind, "packets": packets, "text": text}


class FakeForwarder:
    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.settings = json.loads((run_dir / "forwarder.json").read_text())
        self.state: Json | None = None
        self.generation = 0
        self.digest: str | None = None
        self.turns = 0
        self.connections = 0

    def moods(self) -> Json:
        try:
            moods: Json = json.loads((self.run_dir / "fake.json").read_text())
        except (OSError, ValueError):
            return {}
        return moods

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while header := await reader.read(4):
                request = json.loads(await reader.readexactly(int.from_bytes(header, "big")))
                if self.moods().get("hang"):
                    await asyncio.sleep(3600)
                body = json.dumps(self.answer(request)).encode()
                writer.write(len(body).to_bytes(4, "big") + body)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            await asyncio.sleep(0)
            self.connections -= 1

    def answer(self, request: Json) -> Json:
        operation = request["op"]
        handler = getattr(self, f"do_{operation}", None)
        if handler is None:
            return {"ok": False, "error": f"unknown operation {operation}"}
        answer: Json = handler(request)
        return {"ok": True, **answer}

    def do_ping(self, request: Json) -> Json:
        moods = self.moods()
        self.turns += 0 if moods.get("stalled") else 1
        text = json.dumps(self.settings, sort_keys=True, separators=(",", ":"))
        return {
            "pid": os.getpid(),
            "fingerprint": hashlib.sha256(text.encode()).hexdigest(),
            "generation": self.generation,
            "digest": self.digest,
            "steering": {"layout": "software", "instead": None},
            "lcores": [{"stage": "worker", "index": 0, "cpu": 0, "turns": self.turns}],
            "ports": [{"device": "net_null0", "link": moods.get("link", True)}],
        }

    def do_state(self, request: Json) -> Json:
        from forwarder.hashing.digest import state_digest

        if self.moods().get("refuse"):
            return {"ok": False, "error": "this state is not to my taste"}
        self.state = request["state"]
        self.generation += 1
        self.digest = state_digest(request["state"])
        with (self.run_dir / "fake.states").open("a") as file:
            file.write(json.dumps(self.state) + "\n")
        return {"generation": self.generation, "digest": self.digest}

    def do_churn(self, request: Json) -> Json:
        """Of the 8 flows of each vip 3 are at risk, and where the state is another one, 2 of them by that."""
        if self.moods().get("refuse"):
            return {"ok": False, "error": "this state is not to my taste"}
        moved = 0 if request["state"] == self.state else 2
        flows = {"live": 8, "at_risk": 3, "moved": moved, "lost": 0}
        keys = ("name", "address", "protocol", "port")
        return {"vips": [{key: vip[key] for key in keys} | flows for vip in (self.state or {"vips": []})["vips"]]}

    def do_stats(self, request: Json) -> Json:
        ring = {"received": 1, "processed": 1, "reserved": 64}
        sent = {"ready": 1, "sent": 1, "recycled": None}
        port = {"device": "net_null0", "receive": ring, "transmit": sent, "missed": 0, "mac": "", "mtu": 1500}
        worker = {"entries": 64, "live": 7, "inserted": 8, "evicted": 0, "refused": 0}
        return {
            "received": 4,
            "fates": {"hash_new": 1, "punt": 0, "malformed": 3},
            "reasons": {
                "new_flow": reason("hash_new", "forwarded", 1, "a new flow"),
                "ipv4_checksum": reason("malformed", "dropped", 2, "the IPv4 header checksum is wrong"),
                "ipv6_cut": reason("malformed", "dropped", 1, "the frame ends inside its IPv6 header"),
            },
            "vips": {},
            "backends": {"left1": {"packets": 5, "bytes": 300, "flows": 3}},
            "ports": [port],
            "workers": [worker],
            "pool": {"size": 512, "free": 511, "pieces": {"size": 129, "free": 122}},
            "own": {"canaries": 3, "pieces": 6},
            "load_bounds": {},
            "held": 0,
            "states": {"applied": self.generation, "build_seconds": 0.5, "last_build_seconds": 0.25},
            "path_mtus": [{"backend": "web1", "address": "10.0.3.2", "mtu": 1400, "seconds": 599}],
            "connections": {"kept": 1000, "started_empty": None},
        }

    def do_canary(self, request: Json) -> Json:
        moods = self.moods()
        passed = self.state is not None and moods.get("canary", True)
        reason = "came out right" if passed else "did not come out"
        return {"passed": passed, "reason": reason, "sick": not passed and not moods.get("unresolved")}

    def do_lookup(self, request: Json) -> Json:
        flow = {"vip": "www", "hash": "0x01", "slot": 1, "backend": "web1"}
        return {**flow, "source": "table", "fate": "hash_new"}

    def do_flush(self, request: Json) -> Json:
        return {}


async def main(run_dir: Path) -> None:
    lock = os.open(run_dir / "forwarder.pid", os.O_RDWR | os.O_CREAT, 0o640)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.ftruncate(lock, 0)
    os.write(lock, b"%d\n" % os.getpid())
    path = run_dir / "forwarder.sock"
    path.unlink(missing_ok=True)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    server = await asyncio.start_unix_server(FakeForwarder(run_dir).serve, path, limit=64 << 20)
    await stop.wait()
    server.close()
    path.unlink()
    (run_dir / "forwarder.pid").unlink()


if __name__ == "__main__":
    fault = os.environ.get("FAKE_FORWARDER")
    if fault == "refuse":
        print("no hugepages are free: write 64 to /proc/sys/vm/nr_hugepages", file=sys.stderr)
        sys.exit(2)
    if fault == "fail":
        sys.exit(1)
    asyncio.run(main(Path(sys.argv[1])))
