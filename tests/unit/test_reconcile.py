from dataclasses import replace
from ipaddress import ip_address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.model import Backend, CheckKey, Member, Verdict, Vip, check_keys
from controller.reconcile import desired_state, member_status, serving_addresses
from forwarder.hashing.digest import state_digest


def member(number: int, weight: int = 100, drain: bool = False, checks: tuple[str, ...] = ("http",)) -> Member:
    return Member(Backend(f"b{number}", ip_address(f"10.0.0.{number}")), weight, drain, checks)


def vip(name: str, *members: Member, port: int = 80, address: str = "192.0.2.1") -> Vip:
    ordered = tuple(sorted(members, key=lambda m: m.backend.name))
    return Vip(name, ip_address(address), "tcp", port, ordered, "maglev", 251, "flow", 1)


def verdict(number: int, value: Verdict, check: str = "http") -> dict[CheckKey, Verdict]:
    return {CheckKey(ip_address(f"10.0.0.{number}"), check): value}


UP, DOWN, UNKNOWN = (verdict(1, value) for value in (Verdict.UP, Verdict.DOWN, Verdict.UNKNOWN))


@pytest.mark.parametrize(
    ("what", "who", "verdicts", "drained", "status"),
    [
        ("a backend whose check passes is up", member(1), UP, (), "up"),
        ("one whose check fails is down", member(1), DOWN, (), "down"),
        ("one that is not known yet counts as down", member(1), UNKNOWN, (), "down"),
        ("one that was never probed counts as down", member(1), {}, (), "down"),
        ("one without checks is up", member(1, checks=()), {}, (), "up"),
        ("all checks must pass", member(1, checks=("http", "tcp")), UP, (), "down"),
        ("the verdict of another check does not count", member(1, checks=("tcp",)), UP, (), "down"),
        ("drain in the file drains", member(1, drain=True), UP, (), "drain"),
        ("the operator's drain drains", member(1), UP, ("b1",), "drain"),
        ("another's drain does not", member(1), UP, ("b2",), "up"),
        ("a dead backend is down even while it drains", member(1, drain=True), DOWN, ("b1",), "down"),
        ("weight 0 is up: its old flows are kept", member(1, weight=0), UP, (), "up"),
    ],
)
def test_status_of_a_member(
    what: str, who: Member, verdicts: dict[CheckKey, Verdict], drained: tuple[str, ...], status: str
) -> None:
    assert member_status(who, verdicts, drained) == status, what


def test_the_state_is_what_the_forwarder_expects() -> None:
    vips = [vip("www", member(2, 50), member(1)), vip("any", member(3, checks=()), port=0)]
    assert desired_state(vips, UP | verdict(2, Verdict.DOWN), ("b3",)) == {
        "version": 1,
        "backends": {"b1": "10.0.0.1", "b2": "10.0.0.2", "b3": "10.0.0.3"},
        "vips": [
            {
                "name": "any",
                "address": "192.0.2.1",
                "protocol": "tcp",
                "port": 0,
                "scheduler": "maglev",
                "table_size": 251,
                "affinity": "flow",
                "members": [["b3", 100, "drain"]],
            },
            {
                "name": "www",
                "address": "192.0.2.1",
                "protocol": "tcp",
                "port": 80,
                "scheduler": "maglev",
                "table_size": 251,
                "affinity": "flow",
                "members": [["b1", 100, "up"], ["b2", 50, "down"]],
            },
        ],
    }


def test_a_load_bound_is_in_the_state_of_a_vip_that_has_one() -> None:
    plain, bounded = vip("plain", member(1)), replace(vip("bounded", member(1), port=81), load_bound=1.25)
    told = {v["name"]: v for v in desired_state([plain, bounded], UP, ())["vips"]}
    assert told["bounded"]["load_bound"] == 1.25
    assert "load_bound" not in told["plain"]


def test_a_backend_of_many_vips_is_probed_once_and_seen_alike_by_all() -> None:
    vips = [vip(f"v{i:02}", member(1), address=f"192.0.2.{i}") for i in range(1, 51)]
    assert check_keys(vips) == UP.keys()
    state = desired_state(vips, DOWN, ())
    assert {tuple(v["members"][0]) for v in state["vips"]} == {("b1", 100, "down")}


def test_no_vips_is_a_state_too() -> None:
    assert desired_state([], {}, ("b1",)) == {"version": 1, "backends": {}, "vips": []}


MEMBERS = st.builds(
    member,
    st.integers(1, 9),
    st.integers(0, 3),
    st.booleans(),
    st.sampled_from([(), ("http",), ("http", "tcp")]),
)
FLEETS = st.lists(MEMBERS, max_size=9, unique_by=lambda m: m.backend.name)
VERDICTS = st.dictionaries(
    st.builds(CheckKey, st.integers(1, 9).map(lambda n: ip_address(f"10.0.0.{n}")), st.sampled_from(["http", "tcp"])),
    st.sampled_from(Verdict),
)
DRAINED = st.frozensets(st.integers(1, 9).map(lambda n: f"b{n}"))


@settings(deadline=None)
@given(FLEETS, VERDICTS, DRAINED, st.randoms(use_true_random=False))
def test_the_state_does_not_depend_on_any_order(fleet, verdicts, drained, random) -> None:  # type: ignore[no-untyped-def]
    vips = [vip(f"v{i}", *fleet[i:], port=i + 1) for i in range(len(fleet))]
    one = desired_state(vips, verdicts, drained)
    random.shuffle(vips)
    shuffled = dict(random.sample(list(verdicts.items()), len(verdicts)))
    other = desired_state(vips, shuffled, sorted(drained, reverse=True))
    assert one == other
    assert list(one["backends"]) == sorted(one["backends"])
    assert state_digest(one) == state_digest(other)


@settings(deadline=None)
@given(FLEETS, VERDICTS, DRAINED)
def test_a_backend_takes_new_flows_only_when_all_its_checks_pass(fleet, verdicts, drained) -> None:  # type: ignore[no-untyped-def]
    for who in fleet:
        passes = all(verdicts.get(key) is Verdict.UP for key in who.probes())
        wanted = not who.drain and who.backend.name not in drained
        assert (member_status(who, verdicts, drained) == "up") == (passes and wanted)


def test_an_address_serves_when_no_vip_holds_it_for_down() -> None:
    one, two, three, free = member(1), member(2, drain=True), member(3), member(4, checks=())
    vips = [vip("a", one, two, free), vip("b", three, port=81), vip("c", member(1, checks=("tcp",)), port=82)]
    verdicts = UP | verdict(2, Verdict.UP) | verdict(3, Verdict.DOWN)
    serving = {str(address) for address in serving_addresses(vips[:2], verdicts)}
    assert serving == {"10.0.0.1", "10.0.0.2", "10.0.0.4"}
    assert ip_address("10.0.0.1") not in serving_addresses(vips, verdicts)
