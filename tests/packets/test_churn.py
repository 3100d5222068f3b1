"""What a state would do to the live flows, told before it is applied: the same as what then happens."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest

from forwarder._dataplane import DataplaneError
from forwarder.state_message import StateRefused
from packets.road import Road, wait_until
from packets.world import EMPTY, VIP, backend_address, ether, flow, member, state, udp, vip

FOUR = {"b1": "10.0.3.2", "b2": "10.0.4.2", "b3": "10.0.5.2", "b4": "10.0.7.2"}
NAMES = {address: name for name, address in FOUR.items()}
FLOWS = 120
Json = dict[str, Any]


def service(*members: str | list[Any], **fields: Any) -> Json:
    names = {m if isinstance(m, str) else m[0] for m in members}
    return state({name: FOUR[name] for name in names}, vip("www", VIP, members, **fields))


BEFORE = service("b1", "b2", "b3")


def asked(road: Road, to: Json) -> list[Json]:
    return road.forwarding.churn(road.forwarding.rehearsal()(to)).count()


def www(road: Road, to: Json) -> Json:
    (told,) = asked(road, to)
    service = {"name": "www", "address": VIP, "protocol": "tcp", "port": 80}
    assert {key: told.pop(key) for key in service} == service
    return told


def homes(road: Road, flows: range = range(FLOWS), flags: str = "A") -> dict[int, str | None]:
    """Where a packet of each flow goes now; None: nowhere."""
    out = {i: road.send(flow(i, flags=flags)) for i in flows}
    return {i: NAMES[backend_address(frames[0])] if frames else None for i, frames in out.items()}


def choices(make_road: Callable[..., Road], to: Json) -> dict[int, str | None]:
    """Where a node without any flow would send each one."""
    other = make_road(node="lb2")
    other.apply(to)
    return homes(other)


STATES = {
    "nothing": BEFORE,
    "a backend more": service("b1", "b2", "b3", "b4"),
    "one less": service("b1", "b3"),
    "a weight": service("b1", member("b2", 300), "b3"),
    "a drain": service("b1", member("b2", 100, "drain"), "b3"),
    "one is down": service("b1", member("b2", 100, "down"), "b3"),
    "another pool": service("b4"),
    "a larger table": service("b1", "b2", "b3", table_size=509),
    "nobody is left": service(member("b1", 0), member("b2", 0), member("b3", 100, "drain")),
}


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("name", STATES)
def test_what_is_told_is_what_then_happens(make_road: Callable[..., Road], name: str, workers: int) -> None:
    road = make_road(workers=workers)
    road.apply(BEFORE)
    was = homes(road)
    told = www(road, STATES[name])
    chosen = choices(make_road, STATES[name])
    road.apply(STATES[name])
    now = homes(road)
    away = {i for i in was if chosen[i] != was[i]}
    assert told == {
        "live": FLOWS,
        "at_risk": len(away),
        "moved": len(away),
        "lost": sum(now[i] != was[i] for i in was),
    }


def test_flows_that_are_away_from_their_slot_already_are_at_risk_and_not_moved(road: Road) -> None:
    road.apply(BEFORE)
    homes(road)
    first = www(road, STATES["one less"])
    road.apply(STATES["one less"])
    assert first["lost"] == 0 < first["moved"] == first["at_risk"]
    again = www(road, STATES["one less"])
    assert again == {"live": FLOWS, "at_risk": first["at_risk"], "moved": 0, "lost": 0}
    assert www(road, BEFORE) == {"live": FLOWS, "at_risk": 0, "moved": 0, "lost": 0}, "they are led back"


def test_a_backend_of_the_same_name_and_another_address_is_another_one(road: Road) -> None:
    road.apply(BEFORE)
    on_b2 = list(homes(road).values()).count("b2")
    other = {**BEFORE, "backends": {**BEFORE["backends"], "b2": "10.0.9.9"}}
    assert www(road, other) == {"live": FLOWS, "at_risk": on_b2, "moved": on_b2, "lost": 0}


def test_flows_of_a_backend_that_is_down_are_none(road: Road) -> None:
    road.apply(BEFORE)
    on_b2 = list(homes(road).values()).count("b2")
    road.apply(STATES["one is down"])
    assert www(road, STATES["one is down"])["live"] == FLOWS - on_b2


def test_a_vip_that_goes_loses_all_its_flows_and_a_new_one_is_not_told(road: Road) -> None:
    road.apply(BEFORE)
    homes(road)
    other = state({"b1": FOUR["b1"]}, vip("other", EMPTY, ["b1"]))
    assert www(road, other) == {"live": FLOWS, "at_risk": FLOWS, "moved": FLOWS, "lost": FLOWS}


def test_with_affinity_of_the_client_slots_are_not_known_and_losses_are(road: Road) -> None:
    client = service("b1", "b2", "b3", affinity="client")
    road.apply(client)
    where = list(homes(road).values())
    unknown = {"live": FLOWS, "at_risk": None, "moved": None}
    assert www(road, service("b1", "b3", affinity="client")) == {**unknown, "lost": 0}
    down = service("b1", member("b2", 100, "down"), "b3", affinity="client")
    assert www(road, down) == {**unknown, "lost": where.count("b2")}
    told = www(road, BEFORE)
    assert told["at_risk"] is not None, "the next table goes by the flow"
    assert told["moved"] is None


def test_each_vip_has_its_own_flows(road: Road) -> None:
    both = state(FOUR, vip("www", VIP, FOUR), vip("dns", VIP, ["b1", "b2"], "udp", 53))
    road.apply(both)
    homes(road)
    road.send(*(bytes(ether(udp(sport=port))) for port in range(2000, 2030)))
    live = {told["name"]: told["live"] for told in asked(road, both)}
    assert live == {"www": FLOWS, "dns": 30}
    assert {told["protocol"] for told in asked(road, both)} == {"tcp", "udp"}


def test_asking_changes_nothing(road: Road) -> None:
    road.apply(BEFORE)
    was = homes(road)
    generation, numbers = road.forwarding.applied.generation, road.forwarding.names()
    kept = dict(road.forwarding._tables._kept)
    for to in STATES.values():
        asked(road, to)
    assert (road.forwarding.applied.generation, road.forwarding.names()) == (generation, numbers)
    assert road.forwarding._tables._kept == kept
    assert homes(road) == was


def test_a_state_that_cannot_be_applied_cannot_be_rehearsed(road: Road) -> None:
    with pytest.raises(StateRefused, match="not a prime"):
        asked(road, service("b1", table_size=252))


def test_before_the_first_state_there_is_nothing_to_tell(make_road: Callable[..., Road]) -> None:
    assert asked(make_road(), BEFORE) == []


def test_a_count_under_way_ends_before_the_data_plane_does(layout: str) -> None:
    road = Road(connections=200_000, layout=layout)
    road.apply(BEFORE)
    churn = road.forwarding.churn(road.forwarding.rehearsal()(STATES["one less"]))
    counted, ends = [0], []

    def count_for_ever() -> None:
        try:
            while True:
                churn.count()
                counted[0] += 1
        except DataplaneError as error:
            ends.append(str(error))

    thread = Thread(target=count_for_ever)
    thread.start()
    wait_until(lambda: counted[0] > 3, "flows are counted")
    road.close()
    thread.join()
    assert ends == ["data plane is closed: Bad file descriptor"]
