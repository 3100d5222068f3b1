"""How much memory a forwarder takes, asked of the forwarder's own code in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from functools import cache

from controller.config_sections import Forwarder


@dataclass(frozen=True, slots=True)
class Needs:
    """For DPDK itself, in hugepages; and for the connection table of one worker."""

    dpdk_megabytes: int
    table_bytes: int


class CannotRunError(Exception):
    """No forwarder can be started here; the message is what was in its way."""


def needs(forwarder: Forwarder) -> Needs:
    """What a forwarder with these settings takes. Raises CannotRunError."""
    answer = _asked(forwarder.packet_pool, forwarder.connection_table.entries)
    if isinstance(answer, str):
        raise CannotRunError(answer)
    return answer


@cache
def _asked(packet_pool: int, entries: int) -> Needs | str:
    argv = [sys.executable, "-m", "forwarder.needs", str(packet_pool), str(entries)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return done.stderr.strip().rpartition("\n")[2]
    return Needs(**json.loads(done.stdout))
