"""Which backend a new flow gets: the one its Maglev table says, never another service's, none when there is none."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from ipaddress import ip_address

import pytest

from forwarder.hashing import slot_table, twin
from packets.road import Road
from packets.world import (
    ANY_PORT,
    CLIENT,
    CLIENT6,
    EMPTY,
    HASH_KEY,
    VIP,
    VIP6,
    backend_address,
    ether,
    flow,
    member,
    state,
    tcp,
    vip,
)

FIVE = {f"b{i}": f"10.0.{i}.2" for i in range(1, 6)}
THREE = {name: FIVE[name] for name in ("b1", "b2", "b3")}
NAMES = {address: name for name, address in FIVE.items()}


def owner(number: int, weights: Mapping[str, int], size: int = 251, affinity: str = "flow", dst: str = VIP) -> str:
    """The backend that the table has for a flow of world.flow(), by the twin of the hash."""
    source, destination = ip_address(CLIENT6 if ":" in dst else CLIENT).packed, ip_address(dst).packed
    if affinity == "client":
        hashed = twin.client_hash(HASH_KEY, source, destination, 6)
    else:
        hashed = twin.flow_hash(HASH_KEY, source, destination, 1024 + number, 80, 6)
    table = slot_table.build(weights, size)
    return table.names[table.slots[(hashed >> 32) % size]]


def backends_of(road: Road, *frames: bytes) -> list[str]:
    """Names of the backends that got these frames, all of which must be forwarded."""
    out = road.send(*frames)
    assert len(out) == len(frames), road.fates()
    return [NAMES[backend_address(frame)] for frame in out]


@pytest.mark.parametrize("size", [2, 3, 7, 251, 65537])
def test_every_new_flow_goes_where_the_table_says(road: Road, size: int) -> None:
    road.apply(state(FIVE, vip("www", VIP, FIVE, table_size=size)))
    weights = dict.fromkeys(FIVE, 100)
    flows = range(300)
    assert backends_of(road, *map(flow, flows)) == [owner(i, weights, size) for i in flows]


def test_weights_are_followed(road: Road) -> None:
    weights = {"b1": 1, "b2": 2, "b3": 7}
    road.apply(state(THREE, vip("www", VIP, [member(n, w) for n, w in weights.items()], table_size=1021)))
    chosen = backends_of(road, *map(flow, range(2000)))
    assert chosen == [owner(i, weights, 1021) for i in range(2000)]
    assert Counter(chosen)["b3"] > Counter(chosen)["b2"] > Counter(chosen)["b1"] > 0


def test_the_order_of_a_state_means_nothing(make_road: Callable[..., Road]) -> None:
    """Members, backends and vips listed and learned in other orders: the same digest, the same choices."""
    shuffle = random.Random(20)
    seen = set()
    road = make_road()
    for _ in range(20):
        backends = list(FIVE.items())
        shuffle.shuffle(backends)
        vips = [vip("www", VIP, shuffle.sample(sorted(FIVE), 5)), vip("api", ANY_PORT, ["b5", "b4"])]
        road.apply(state(dict(backends), *shuffle.sample(vips, 2)))
        road.forwarding.flush("b1")
        chosen = tuple(backends_of(road, *(flow(i, flags="R") for i in range(100))))
        seen.add((road.forwarding.applied.digest, chosen))
    assert len(seen) == 1


NOBODY = {
    "no member": [],
    "all weights 0": [member(name, 0) for name in THREE],
    "all down": [member(name, 100, "down") for name in THREE],
    "all drained": [member(name, 100, "drain") for name in THREE],
    "one of each": [member("b1", 0), member("b2", 100, "down"), member("b3", 100, "drain")],
}


@pytest.mark.parametrize("members", NOBODY.values(), ids=NOBODY)
@pytest.mark.parametrize("dst", [VIP, VIP6])
def test_nobody_takes_new_flows(road: Road, members: list[list[object]], dst: str) -> None:
    """And the service beside it goes on, with its own backends only."""
    others = {"b4": FIVE["b4"], "b5": FIVE["b5"]}
    road.apply(state({**THREE, **others}, vip("www", dst, members), vip("api", EMPTY, others)))
    frames = [flow(i, dst) for i in range(50)] + [flow(i, dst, flags="A") for i in range(50, 100)]
    assert road.fates_of(*frames) == {"no_backend": 100}
    assert set(backends_of(road, *(flow(i, EMPTY) for i in range(50)))) == set(others)


@pytest.mark.parametrize("members", NOBODY.values(), ids=NOBODY)
def test_a_pool_that_was_emptied_and_refilled_is_as_before(road: Road, members: list[list[object]]) -> None:
    full = state(THREE, vip("www", VIP, THREE))
    road.apply(full)
    digest = road.forwarding.applied.digest
    before = backends_of(road, *(flow(i, flags="R") for i in range(100)))  # RST leaves no entry
    road.apply(state(THREE, vip("www", VIP, members)))
    assert road.fates_of(*map(flow, range(100))) == {"no_backend": 100}
    road.apply(full)
    assert backends_of(road, *(flow(i, flags="R") for i in range(100))) == before
    assert road.forwarding.applied.digest == digest


def test_a_pool_without_backends_never_uses_another_services(road: Road) -> None:
    """Not even for flows that it had, however the backends of both are numbered."""
    both = state(FIVE, vip("www", VIP, THREE), vip("api", ANY_PORT, ["b4", "b5"]))
    road.apply(both)
    assert set(backends_of(road, *map(flow, range(200)))) == set(THREE)
    assert set(backends_of(road, *(flow(i, ANY_PORT) for i in range(200)))) == {"b4", "b5"}
    road.apply(state({"b4": FIVE["b4"], "b5": FIVE["b5"]}, vip("www", VIP, []), vip("api", ANY_PORT, ["b4", "b5"])))
    assert road.fates_of(*(flow(i, flags="S") for i in range(300, 400))) == {"no_backend": 100}
    assert set(backends_of(road, *(flow(i, ANY_PORT) for i in range(200)))) == {"b4", "b5"}
    road.apply(both)
    assert set(backends_of(road, *(flow(i) for i in range(600, 800)))) == set(THREE)


def test_services_swap_their_backends_and_no_flow_crosses(road: Road) -> None:
    """Every state names other members for the two services; a packet only ever meets one of its own."""
    shuffle = random.Random(7)
    names = sorted(FIVE)
    for _ in range(30):
        cut = shuffle.randint(1, 4)
        mixed = shuffle.sample(names, 5)
        first, second = mixed[:cut], mixed[cut:]
        down = [member(name, 100, "down") for name in mixed]
        rest = {m[0]: m for m in down}
        road.apply(
            state(
                FIVE,
                vip("www", VIP, [*first, *(rest[n] for n in second)]),
                vip("api", ANY_PORT, [*second, *(rest[n] for n in first)]),
            )
        )
        assert set(backends_of(road, *map(flow, range(100)))) <= set(first)
        assert set(backends_of(road, *(flow(i, ANY_PORT) for i in range(100)))) <= set(second)


def test_weight_0_takes_no_new_flow_drops_nothing_and_keeps_the_old_ones(road: Road) -> None:
    road.apply(state(THREE, vip("www", VIP, THREE)))
    before = backends_of(road, *map(flow, range(300)))
    members = [member("b1"), member("b2", 0), member("b3")]
    road.apply(state(THREE, vip("www", VIP, members)))
    assert backends_of(road, *(flow(i, flags="A") for i in range(300))) == before
    fresh = backends_of(road, *map(flow, range(300, 600)))
    assert set(fresh) == {"b1", "b3"}
    assert fresh == [owner(i, {"b1": 100, "b3": 100}) for i in range(300, 600)]
    assert road.fates() == {"hash_new": 600, "conn_hit": 300}


def test_old_flows_stay_when_a_backend_is_added(road: Road) -> None:
    road.apply(state(FIVE, vip("www", VIP, ["b1", "b2"])))
    before = backends_of(road, *map(flow, range(300)))
    road.apply(state(FIVE, vip("www", VIP, FIVE)))
    assert [owner(i, dict.fromkeys(FIVE, 100)) for i in range(300)] != before
    assert backends_of(road, *(flow(i, flags="A") for i in range(300))) == before
    assert road.fates() == {"hash_new": 300, "conn_hit": 300}


def test_every_worker_has_the_same_table(make_road: Callable[..., Road]) -> None:
    road = make_road(workers=3)
    road.apply(state(FIVE, vip("www", VIP, FIVE)))
    weights = dict.fromkeys(FIVE, 100)
    out = road.send(*(flow(i, flags="R") for i in range(300)))
    assert len(out) == 300
    for frame in out:  # three workers' packets come out in bursts of their own
        number = int.from_bytes(frame[58:60], "big") - 1024
        assert NAMES[backend_address(frame)] == owner(number, weights)


def test_the_lookup_of_a_control_thread_agrees_with_the_road(make_road: Callable[..., Road]) -> None:
    road = make_road(workers=2)
    road.apply(state(FIVE, vip("www", VIP, FIVE)))
    source, destination = ip_address(CLIENT), ip_address(VIP)
    for number in range(50):
        asked = road.forwarding.lookup(6, source, 1024 + number, destination, 80)
        assert (asked.vip, asked.fate, asked.tracked) == ("www", "hash_new", False)
        assert backends_of(road, flow(number)) == [asked.backend]
        again = road.forwarding.lookup(6, source, 1024 + number, destination, 80)
        assert (again.backend, again.fate) == (asked.backend, "conn_hit")
    assert road.forwarding.lookup(6, source, 1, destination, 81).fate == "not_vip"
    road.apply(state(FIVE, vip("www", VIP, [])))
    assert road.forwarding.lookup(6, source, 1, destination, 80).fate == "no_backend"


# -- affinity: client


def test_all_flows_of_a_client_go_to_one_backend(road: Road) -> None:
    road.apply(state(FIVE, vip("www", VIP, FIVE, affinity="client")))
    for client in range(1, 40):
        assert len(set(backends_of(road, *(flow(i, client=client) for i in range(20))))) == 1
    assert road.connections() == 39 * 20, "entries are per 5-tuple"
    chosen = backends_of(road, flow(999))
    assert chosen == [owner(999, dict.fromkeys(FIVE, 100), affinity="client")]


def test_clients_are_spread_over_the_backends(road: Road) -> None:
    road.apply(state(FIVE, vip("www", VIP, FIVE, affinity="client")))
    assert set(backends_of(road, *(flow(0, client=client) for client in range(1, 200)))) == set(FIVE)


def test_a_client_is_another_one_to_another_vip(road: Road) -> None:
    """The vip's address is part of the hash, so that one client does not load the same backend with everything."""
    vips = [vip(f"v{i}", f"192.0.2.{i}", FIVE, affinity="client") for i in range(1, 40)]
    road.apply(state(FIVE, *vips))
    assert set(backends_of(road, *(flow(0, f"192.0.2.{i}") for i in range(1, 40)))) == set(FIVE)


def test_a_client_keeps_its_old_flows_when_new_ones_go_elsewhere(road: Road) -> None:
    road.apply(state(FIVE, vip("www", VIP, FIVE, affinity="client")))
    (home,) = backends_of(road, flow(0))
    drained = [member(n, 100, "drain" if n == home else "up") for n in FIVE]
    road.apply(state(FIVE, vip("www", VIP, drained, affinity="client")))
    assert backends_of(road, flow(0, flags="A")) == [home]
    assert len(set(backends_of(road, *map(flow, range(1, 50)))) - {home}) == 1


def test_affinity_by_client_over_ipv6(road: Road) -> None:
    road.apply(state(FIVE, vip("www", VIP6, FIVE, affinity="client")))
    expected = owner(0, dict.fromkeys(FIVE, 100), affinity="client", dst=VIP6)
    assert set(backends_of(road, *(flow(i, VIP6) for i in range(50)))) == {expected}


def test_a_packet_that_is_refused_leaves_the_table_alone(road: Road) -> None:
    road.apply(state(FIVE, vip("www", VIP, FIVE)))
    before = road.dataplane.worker(0)
    road.send(bytes(ether(tcp(dport=81))), bytes(ether(tcp(ttl=0))), bytes(ether(tcp()))[:50])
    assert road.dataplane.worker(0) == before
