"""How the kernel's route messages are read."""

import socket
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from forwarder.neighbors import _route
from forwarder.next_hops import NO_INTERFACE, Route


class Message(dict[str, Any]):
    """A route message, or one path of it, as pyroute2 gives it."""

    def get_attr(self, name: str) -> Any:
        return self.get("attrs", {}).get(name)


def message(kind: int = 1, length: int = 16, family: int = socket.AF_INET, **attributes: Any) -> Message:
    return Message(type=kind, family=family, dst_len=length, attrs=attributes)


PATHS = [
    Message(oif=7, attrs={"RTA_GATEWAY": "10.0.2.1"}),
    Message(oif=8, attrs={"RTA_GATEWAY": "10.0.2.2"}),
]
NET = ip_network("10.9.0.0/16")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (message(RTA_DST="10.9.0.0", RTA_OIF=3), Route(NET, None, 3)),
        (message(RTA_DST="10.9.0.0", RTA_OIF=3, RTA_PRIORITY=20), Route(NET, None, 3, 20)),
        (
            message(length=0, RTA_OIF=3, RTA_GATEWAY="10.0.2.1"),
            Route(ip_network("0.0.0.0/0"), ip_address("10.0.2.1"), 3),
        ),
        (
            message(length=0, family=socket.AF_INET6, RTA_OIF=3, RTA_GATEWAY="fe80::1"),
            Route(ip_network("::/0"), ip_address("fe80::1"), 3),
        ),
        (
            message(RTA_DST="10.9.0.0", RTA_OIF=3, RTA_VIA={"family": 10, "addr": "fe80::1"}),
            Route(NET, ip_address("fe80::1"), 3),
        ),
        (message(RTA_DST="10.9.0.0", RTA_MULTIPATH=PATHS), Route(NET, ip_address("10.0.2.1"), 7)),
        (message(kind=6, RTA_DST="10.9.0.0"), Route(NET, None, NO_INTERFACE)),
        (message(kind=7, RTA_DST="10.9.0.0", RTA_OIF=1), Route(NET, None, NO_INTERFACE)),
        (message(kind=5, RTA_DST="10.9.0.0", RTA_OIF=3), None),
        (message(RTA_DST="10.9.0.0"), None),
    ],
)
def test_a_route_message_is_read(given: Message, expected: Route | None) -> None:
    assert _route(given) == expected
