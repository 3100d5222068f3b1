"""The sockets of one family that this process has open, such as those that a driver of DPDK made."""

import os
import socket

SO_DOMAIN = 39  # asm-generic/socket.h


def own_sockets(family: int) -> set[int]:
    """Their file descriptors."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(family, socket.SOCK_RAW, fileno=os.dup(int(name))) as probe:
                if probe.getsockopt(socket.SOL_SOCKET, SO_DOMAIN) == family:
                    found.add(int(name))
        except OSError:  # closed meanwhile: it was that of the listing
            continue
    return found
