"""What is noted beside connection tables that outlive the process: whose they are, what their numbers stand for."""

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from forwarder.table_ids import TableIds

VERSION = 1
CRASHES, CRASH_SECONDS = 3, 60.0
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class HeaderDamaged(Exception):
    """What is in the file is no header that can be used; the text says why: it "cannot be read"."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What must be the same for the entries of one process to mean the same in the next one."""

    layout: int
    boot: str
    key: str  # a fingerprint; the key itself stands in no file of ours but the settings
    seed: int
    workers: int
    entries: int
    directory: str

    def difference(self, now: "Identity") -> str | None:
        """The first thing that is not as it was before, in words; None when all is."""
        for one in fields(self):
            before, after = getattr(self, one.name), getattr(now, one.name)
            if before != after:
                return _DIFFERENCES[one.name].format(before, after)
        return None


_DIFFERENCES = {
    "layout": "the layout of connection tables changed from {} to {}",
    "boot": "the machine was booted since",
    "key": "the hash key changed",
    "seed": "flows are spread over the workers in another way",
    "workers": "the number of workers changed from {} to {}",
    "entries": "the entries per worker changed from {} to {}",
    "directory": "their memory moved from {} to {}",
}


def key_fingerprint(hash_key: bytes) -> str:
    """Tells whether two keys are the same, and nothing else about them."""
    return hashlib.sha256(b"maglev connection tables" + hash_key).hexdigest()


def boot_id() -> str:
    """Another one after every boot of the machine."""
    return BOOT_ID.read_text().strip()


@dataclass(frozen=True, slots=True)
class Header:
    """`crashes`: when, on the clock since boot. `ended`: nobody works on the tables, the last one ended in order."""

    identity: Identity
    ids: TableIds = field(default_factory=TableIds)
    crashes: Sequence[float] = ()
    ended: bool = True

    def found(self, now: float) -> "Header":
        """The header as its next owner finds it: one that nobody ended is one crash more."""
        crashes = (*self.crashes, *(() if self.ended else (now,)))
        return replace(self, crashes=tuple(at for at in crashes if now - at < CRASH_SECONDS), ended=True)

    def text(self) -> str:
        """For `parse`; equal headers have equal texts."""
        return json.dumps(
            {
                "version": VERSION,
                "identity": asdict(self.identity),
                "crashes": list(self.crashes),
                "ended": self.ended,
                "ids": self.ids.as_json(),
            }
        )


def parse(text: str | bytes) -> Header:
    """Raises HeaderDamaged."""
    try:
        raw: dict[str, Any] = json.loads(text)
        if raw["version"] != VERSION:
            raise HeaderDamaged("was written by another version of the forwarder")
        identity = raw["identity"]
        return Header(
            Identity(**{one.name: identity[one.name] for one in fields(Identity)}),
            TableIds.from_json(raw["ids"]),
            tuple(float(at) for at in raw["crashes"]),
            bool(raw["ended"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise HeaderDamaged("cannot be read") from error


def read(path: Path) -> Header | None:
    """The header in a file, None when there is no file. Raises HeaderDamaged."""
    try:
        return parse(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HeaderDamaged(f"cannot be read ({error.strerror})") from error


def write(path: Path, text: str) -> None:
    """Replace the file whole: whenever the writer is killed, what can be read is the old one or the new one."""
    temporary = path.with_name(f".{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
