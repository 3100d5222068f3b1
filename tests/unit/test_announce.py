from dataclasses import replace
from ipaddress import IPv4Address, ip_address

import pytest

from controller.announce import desired_announcements, healthy_count
from controller.model import Backend, CheckKey, Member, Verdict, Vip

A, B = ip_address("192.0.2.1"), ip_address("192.0.2.2")


def member(number: int, weight: int = 100, drain: bool = False) -> Member:
    return Member(Backend(f"b{number}", ip_address(f"10.0.0.{number}")), weight, drain, ("http",))


def up(*numbers: int) -> dict[CheckKey, Verdict]:
    return {CheckKey(IPv4Address(f"10.0.0.{n}"), "http"): Verdict.UP for n in numbers}


WEB = Vip("web", A, "tcp", 80, (member(1), member(2)), "maglev", 251, "flow", 1)
DNS = Vip("dns", A, "udp", 53, (member(3),), "maglev", 251, "flow", 1)
FAR = Vip("far", B, "tcp", 80, (member(4),), "maglev", 251, "flow", 1)
BOTH = replace(WEB, min_healthy=2)


@pytest.mark.parametrize(
    ("what", "vips", "verdicts", "drained", "announced"),
    [
        ("one healthy backend is enough", [WEB], up(1), (), {A}),
        ("none is not", [WEB], {}, (), set()),
        ("min_healthy of 2 wants two", [BOTH], up(1), (), set()),
        ("and is content with two", [BOTH], up(1, 2), (), {A}),
        ("one served vip of an address announces it", [BOTH, DNS], up(1, 3), (), {A}),
        (
            "the healthy backends of two vips are not added up",
            [BOTH, replace(DNS, min_healthy=2)],
            up(1, 3),
            (),
            set(),
        ),
        ("each address is judged by its own vips", [WEB, FAR], up(4), (), {B}),
        ("both when both can be served", [WEB, FAR], up(1, 4), (), {A, B}),
        ("a drained backend is not healthy", [WEB], up(1), ("b1",), set()),
        (
            "nor is one that drains by the file",
            [replace(WEB, members=(member(1, drain=True),))],
            up(1),
            (),
            set(),
        ),
        ("nor one of weight 0", [replace(WEB, members=(member(1, weight=0),))], up(1), (), set()),
        ("a vip without backends is not announced", [replace(WEB, members=())], up(1), (), set()),
        ("no vips, no addresses", [], up(1), (), set()),
    ],
)
def test_announced_addresses(what, vips, verdicts, drained, announced) -> None:  # type: ignore[no-untyped-def]
    assert desired_announcements(vips, verdicts, drained, True, False) == announced, what


@pytest.mark.parametrize(("serves", "draining"), [(False, False), (True, True), (False, True)])
def test_nothing_is_announced_while_the_forwarder_does_not_serve_or_the_node_drains(
    serves: bool, draining: bool
) -> None:
    assert desired_announcements([WEB], up(1, 2), (), serves, draining) == frozenset()


def test_healthy_backends_are_counted_per_vip() -> None:
    assert [healthy_count(vip.members, up(1, 2, 4), ("b2",)) for vip in (WEB, DNS, FAR)] == [1, 0, 1]
