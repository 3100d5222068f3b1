"""A node that runs on this machine as `maglev run` does: its own counters say what it forwarded."""

from __future__ import annotations

import sys

from controller.api_client import ApiError, ask
from controller.rundir import NoSuchNodeError, find_running

FORWARDED = ("conn_hit", "hash_new", "hash_untracked", "icmp_error", "fragment")


class RunningNode:
    """Asked over its control socket, as `maglev status` asks."""

    def __init__(self, name: str | None) -> None:
        try:
            self._socket = find_running(name).controller_socket
        except NoSuchNodeError as error:
            sys.exit(str(error))
        self.name = name or "the running node"

    def forwarded(self) -> int:
        """Since its forwarder began."""
        try:
            stats = ask(self._socket, "GET", "/status")["stats"]
        except ApiError as error:
            sys.exit(str(error))
        if stats is None:
            sys.exit(f"The forwarder of {self.name} does not answer.")
        return sum(int(stats["fates"][fate]) for fate in FORWARDED)
