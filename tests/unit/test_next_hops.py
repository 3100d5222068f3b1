from ipaddress import ip_address, ip_network

import pytest

from forwarder import next_hops
from forwarder.next_hops import (
    DELAY,
    NO_INTERFACE,
    NOARP,
    PERMANENT,
    PROBE,
    REACHABLE,
    STALE,
    UNREACHABLE,
    Hop,
    KernelView,
    Neighbor,
    NextHops,
    Route,
)
from forwarder.settings import Address, PortSettings

INCOMPLETE, FAILED = 0x01, 0x20
MAC, OTHER = bytes.fromhex("020000000003"), bytes.fromhex("020000000004")
ETH1, ETH2 = 11, 12


def port(gateways: tuple[str, ...] = (), mac: bytes | None = None, device: str = "eth1") -> PortSettings:
    addresses = [ip_address(gateway) for gateway in gateways]
    return PortSettings(device, "af_packet", 1500, {address.version: address for address in addresses}, mac)


def route(network: str, gateway: str | None, interface: int = ETH1, metric: int = 0) -> Route:
    return Route(ip_network(network), ip_address(gateway) if gateway else None, interface, metric)


def of(address: str) -> Address:
    return ip_address(address)


ROUTES = [
    route("0.0.0.0/0", "10.0.2.1"),
    route("10.0.0.0/8", "10.0.2.9"),
    route("10.0.2.0/24", None),
    route("10.0.3.0/24", "10.0.9.1", ETH2),
    route("10.0.3.7/32", "10.0.2.7"),
    route("::/0", "fe80::1"),
    route("fd00:2::/64", None, ETH2),
]


@pytest.mark.parametrize(
    ("address", "gateway", "interface"),
    [
        ("8.8.8.8", "10.0.2.1", ETH1),
        ("10.255.0.1", "10.0.2.9", ETH1),
        ("10.0.2.33", None, ETH1),
        ("10.0.3.2", "10.0.9.1", ETH2),
        ("10.0.3.7", "10.0.2.7", ETH1),
        ("2001:db8::7", "fe80::1", ETH1),
        ("fd00:2::7", None, ETH2),
    ],
)
def test_the_longest_match_decides(address: str, gateway: str | None, interface: int) -> None:
    found = KernelView(ROUTES).route(of(address))
    assert found is not None
    assert (found.gateway, found.interface) == (of(gateway) if gateway else None, interface)


def test_of_equal_routes_the_smallest_metric_decides_whatever_the_order() -> None:
    routes = [
        route("10.0.0.0/8", "10.0.2.3", metric=300),
        route("10.0.0.0/8", "10.0.2.1", metric=100),
        route("10.0.0.0/8", "10.0.2.2", metric=200),
    ]
    for view in (KernelView(routes), KernelView(routes[::-1])):
        found = view.route(of("10.1.1.1"))
        assert found is not None
        assert found.gateway == of("10.0.2.1")


def test_without_a_matching_route_there_is_none() -> None:
    assert KernelView().route(of("10.0.0.1")) is None
    assert KernelView([route("10.0.0.0/8", None)]).route(of("11.0.0.1")) is None
    assert KernelView([route("0.0.0.0/0", None)]).route(of("::1")) is None


def test_a_backend_is_reached_by_the_port_of_its_route() -> None:
    hops = NextHops([port(), port(device="eth2")], [ETH1, ETH2])
    hops.view = KernelView(ROUTES)
    assert hops.hop(of("10.0.2.33")) == Hop(0, of("10.0.2.33"))
    assert hops.hop(of("10.0.3.2")) == Hop(1, of("10.0.9.1"))
    assert hops.hop(of("2001:db8::7")) == Hop(0, of("fe80::1"))


def test_a_route_by_an_interface_that_is_no_port_reaches_nothing() -> None:
    hops = NextHops([port()], [ETH1])
    hops.view = KernelView(ROUTES)
    assert hops.hop(of("10.0.3.2")) is None
    assert hops.index(of("10.0.3.2")) == UNREACHABLE
    assert NextHops([port()], [None]).index(of("10.0.2.1")) == UNREACHABLE


@pytest.mark.parametrize(
    ("static", "address", "expected"),
    [
        (port(("10.0.2.1",)), "10.0.3.2", Hop(0, of("10.0.2.1"))),
        (port(("10.0.2.1",), MAC), "10.0.3.2", Hop(0, of("10.0.2.1"), MAC)),
        (port((), MAC), "10.0.3.2", Hop(0, of("10.0.3.2"), MAC)),
        (port(("10.0.2.1",)), "fd00:2::7", None),
        (port(("10.0.2.1", "fd00:2::1")), "fd00:9::7", Hop(0, of("fd00:2::1"))),
    ],
)
def test_a_gateway_of_the_configuration_overrides_the_kernel(
    static: PortSettings, address: str, expected: Hop | None
) -> None:
    hops = NextHops([static], [ETH1])
    hops.view = KernelView([route("10.0.0.0/8", "10.0.2.9")])
    assert hops.hop(of(address)) == expected


def test_backends_behind_one_gateway_share_an_index_and_keep_it() -> None:
    hops = NextHops([port()], [ETH1])
    hops.view = KernelView([route("0.0.0.0/0", "10.0.2.1"), route("10.0.2.0/24", None)])
    assert [hops.index(of(f"10.0.3.{i}")) for i in range(3)] == [1, 1, 1]
    assert hops.index(of("10.0.2.1")) == 1
    assert hops.index(of("10.0.2.2")) == 2
    hops.view = KernelView([route("0.0.0.0/0", "10.0.2.2"), route("10.0.2.0/24", None)])
    assert hops.index(of("10.0.3.0")) == 2
    assert hops.index(of("10.0.2.1")) == 1


@pytest.mark.parametrize(
    ("neighbor", "mac", "asked", "state"),
    [
        (Neighbor(MAC, REACHABLE), MAC, False, "reachable"),
        (Neighbor(MAC, STALE), MAC, True, "stale"),
        (Neighbor(MAC, DELAY), MAC, False, "reachable"),
        (Neighbor(MAC, PROBE), MAC, False, "reachable"),
        (Neighbor(MAC, PERMANENT), MAC, False, "reachable"),
        (Neighbor(MAC, NOARP), MAC, False, "reachable"),
        (Neighbor(MAC, FAILED), None, True, "unresolved"),
        (Neighbor(None, INCOMPLETE), None, True, "unresolved"),
        (Neighbor(None, FAILED), None, True, "unresolved"),
        (None, None, True, "unresolved"),
    ],
)
def test_neighbor_states(neighbor: Neighbor | None, mac: bytes | None, asked: bool, state: str) -> None:
    gateway = of("10.0.2.1")
    hops = NextHops([port()], [ETH1])
    neighbors = {(ETH1, gateway): neighbor} if neighbor else {}
    hops.view = KernelView([route("0.0.0.0/0", "10.0.2.1")], neighbors)
    assert hops.index(of("10.0.3.2")) == 1
    assert hops.resolved() == [(1, Hop(0, gateway), mac)]
    assert hops.to_ask() == ([(ETH1, gateway)] if asked else [])
    text = mac.hex(":") if mac else None
    assert hops.describe() == [{"address": "10.0.2.1", "device": "eth1", "mac": text, "state": state}]


def test_a_neighbor_of_another_interface_does_not_count() -> None:
    hops = NextHops([port()], [ETH1])
    gateway = of("10.0.2.1")
    hops.view = KernelView([route("0.0.0.0/0", "10.0.2.1")], {(ETH2, gateway): Neighbor(MAC, REACHABLE)})
    hops.index(of("10.0.3.2"))
    assert hops.resolved() == [(1, Hop(0, gateway), None)]


def test_a_changed_mac_changes_no_index() -> None:
    hops = NextHops([port()], [ETH1])
    gateway, routes = of("10.0.2.1"), [route("0.0.0.0/0", "10.0.2.1")]
    for mac in (MAC, OTHER):
        hops.view = KernelView(routes, {(ETH1, gateway): Neighbor(mac, REACHABLE)})
        assert hops.index(of("10.0.3.2")) == 1
        assert hops.resolved() == [(1, Hop(0, gateway), mac)]


def test_a_configured_mac_is_neither_asked_for_nor_looked_up() -> None:
    hops = NextHops([port(("10.0.2.1",), MAC)], [ETH1])
    hops.view = KernelView([], {(ETH1, of("10.0.2.1")): Neighbor(OTHER, REACHABLE)})
    hops.index(of("10.0.3.2"))
    assert hops.resolved() == [(1, Hop(0, of("10.0.2.1"), MAC), MAC)]
    assert hops.to_ask() == []
    assert hops.describe()[0]["state"] == "static"


def test_nothing_is_asked_of_a_port_without_a_kernel_side() -> None:
    hops = NextHops([port(("10.0.2.1",))], [None])
    hops.index(of("10.0.3.2"))
    assert hops.to_ask() == []
    assert hops.resolved() == [(1, Hop(0, of("10.0.2.1")), None)]


def test_more_next_hops_than_there_are_numbers_are_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_hops, "MAX_HOPS", 4)
    hops = NextHops([port((), MAC)], [None])
    assert [hops.index(of(f"10.0.3.{i}")) for i in range(5)] == [1, 2, 3, UNREACHABLE, UNREACHABLE]
    assert hops.index(of("10.0.3.1")) == 2


def test_a_route_that_refuses_is_no_way_even_beside_a_default_route() -> None:
    hops = NextHops([port()], [ETH1])
    hops.view = KernelView([route("0.0.0.0/0", "10.0.2.1"), route("10.9.0.0/16", None, NO_INTERFACE)])
    assert hops.index(of("10.9.1.1")) == UNREACHABLE
    assert hops.index(of("10.8.1.1")) != UNREACHABLE


def test_a_hop_that_no_state_uses_is_let_go_and_its_index_used_again() -> None:
    hops = NextHops([port(mac=MAC)], [ETH1])
    kept, gone = hops.index(of("10.0.0.1")), hops.index(of("10.0.0.2"))
    assert hops.release_unless({kept}) == [gone]
    assert [index for index, _, _ in hops.resolved()] == [kept]
    assert hops.index(of("10.0.0.3")) == gone
    assert hops.index(of("10.0.0.1")) == kept
