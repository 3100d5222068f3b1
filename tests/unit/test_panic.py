"""Pools that are kept when too large a part of them fails at once: as a table, and what nodes make of it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from ipaddress import ip_address

import pytest
from config_text import GOOD
from hypothesis import given
from hypothesis import strategies as st

from controller.announce import desired_announcements, healthy_count
from controller.config import Config, loads
from controller.config_sections import Pool
from controller.model import CheckKey, Verdict
from controller.panic import Panic, panics
from controller.reconcile import desired_state, member_status

UP, DOWN, UNKNOWN = Verdict.UP, Verdict.DOWN, Verdict.UNKNOWN
HEAD = GOOD[: GOOD.index("backend_pools:")]
VIPS = GOOD[GOOD.index("vips:") :]


def config(above: str | None = "0.5", more: str = "", drain: int = 0, idle: int = 0) -> Config:
    """A pool of b1 to b4, of which the last `drain` drain and the first `idle` have weight 0."""
    entries = "".join(
        f"      - {{name: b{n}, address: 10.0.3.{n}, drain: {json.dumps(n > 4 - drain)}, weight: {9 * (n > idle)}}}\n"
        for n in range(1, 5)
    )
    panic = "" if above is None else f"    panic_above: {above}\n"
    pools = f"backend_pools:\n  web:\n    health_checks: [web-http]\n{panic}    backends:\n{entries}{more}"
    return loads(HEAD + pools + VIPS)


def verdicts(letters: str, check: str = "web-http") -> dict[CheckKey, Verdict]:
    """Of b1, b2 and so on: U up, D down, ? unknown."""
    known = {"U": UP, "D": DOWN, "?": UNKNOWN}
    return {CheckKey(ip_address(f"10.0.3.{n}"), check): known[letter] for n, letter in enumerate(letters, 1)}


ROWS: list[tuple[str, Config, str, Collection[str], Panic | None]] = [
    ("nothing fails", config(), "UUUU", (), None),
    ("a quarter fails", config(), "DUUU", (), None),
    ("half fails: not more than the share", config(), "DDUU", (), None),
    ("more than half fails", config(), "DDDU", (), Panic(3, 4)),
    ("all fail", config(), "DDDD", (), Panic(4, 4)),
    ("all fail, and nothing was said of panic", config(None), "DDDD", (), None),
    ("a smaller share panics sooner", config("0.2"), "DUUU", (), Panic(1, 4)),
    ("a share of which no whole part is more", config("0.99"), "DDDU", (), None),
    ("but all is more", config("0.99"), "DDDD", (), Panic(4, 4)),
    ("without verdicts nothing has failed", config(), "????", (), None),
    ("of which the unknown are a part", config(), "DD??", (), None),
    ("three fail, one is not known", config(), "DDD?", (), Panic(3, 4)),
    ("what the operator drains does not count", config(), "DDUU", ("b4",), Panic(2, 3)),
    ("nor does it when it fails", config(), "DDUU", ("b1", "b2"), None),
    ("what drains by the file does not count", config(drain=2), "DUDD", (), None),
    ("nor what has weight 0", config(idle=2), "DDDU", (), None),
    ("with half of the rest", config(idle=2), "UUDD", (), Panic(2, 2)),
    ("when all drain there is nothing to keep", config(drain=4), "DDDD", (), None),
]


@pytest.mark.parametrize(("what", "of", "seen", "drained", "panic"), ROWS, ids=lambda value: str(value)[:40])
def test_a_pool_panics_when_more_than_its_share_is_down(
    what: str, of: Config, seen: str, drained: Collection[str], panic: Panic | None
) -> None:
    assert panics(of.backend_pools, verdicts(seen), drained) == ({"web": panic} if panic else {}), what


def served(of: Config, seen: Mapping[CheckKey, Verdict], drained: Collection[str] = ()) -> dict[str, str]:
    """The status of each member of the only vip."""
    (vip,) = of.services_without(panics(of.backend_pools, seen, drained))
    return {member.backend.name: member_status(member, seen, drained) for member in vip.members}


def test_a_pool_in_panic_is_kept_whole_and_one_that_is_not_loses_what_is_down() -> None:
    assert served(config(), verdicts("DDUU")) == {"b1": "down", "b2": "down", "b3": "up", "b4": "up"}
    assert set(served(config(), verdicts("DDDU")).values()) == {"up"}
    assert served(config(), verdicts("DDDD"), ("b4",)) == {"b1": "up", "b2": "up", "b3": "up", "b4": "drain"}


def test_kept_backends_count_for_the_announcement() -> None:
    for above, announced in ((None, 0), ("0.5", 1)):
        of, seen = config(above), verdicts("DDDD")
        vips = of.services_without(panics(of.backend_pools, seen, ()))
        assert len(desired_announcements(vips, seen, (), True, False)) == announced
        assert healthy_count(vips[0].members, seen, ()) == 4 * announced


INNER = "      - {pool: spare}\n  spare:\n    health_checks: [web-http]\n    backends:\n" + "".join(
    f"      - {{name: s{n}, address: 10.0.3.{4 + n}}}\n" for n in (1, 2)
)


def test_a_pool_inside_is_judged_by_itself() -> None:
    of = config(more=INNER)
    assert served(of, verdicts("DDDU" + "DD")) == dict.fromkeys(("b1", "b2", "b3", "b4"), "up") | {
        "s1": "down",
        "s2": "down",
    }
    assert panics(of.backend_pools, verdicts("DDUU" + "DD"), ()) == {}


AGAIN = "      - {pool: strict}\n  strict:\n    health_checks: [tcp-open]\n    backends:\n" + (
    "      - {name: b1, address: 10.0.3.1, weight: 9}\n"
)


def test_a_backend_that_another_pool_holds_to_its_checks_must_pass_those() -> None:
    of = config(more=AGAIN)
    seen = verdicts("DDDU")
    assert served(of, seen | verdicts("D", "tcp-open"))["b1"] == "down"
    assert served(of, seen | verdicts("U", "tcp-open"))["b1"] == "up"


def test_the_vips_of_a_pool_are_those_that_reach_one_of_its_backends() -> None:
    of = config(more=INNER)
    assert [vip.name for vip in of.vips_of("spare")] == ["www"]
    assert of.vips_of("nobody") == []


@given(st.text("UD?", min_size=4, max_size=4), st.permutations(range(4)))
def test_all_nodes_that_see_the_same_do_the_same(seen: str, order: list[int]) -> None:
    of, known = config(), list(verdicts(seen).items())
    shuffled = dict(known[position] for position in order)
    states = [
        desired_state(of.services_without(panics(of.backend_pools, v, ())), v, ()) for v in (dict(known), shuffled)
    ]
    assert states[0] == states[1]
    taking = [status for _, _, status in states[0]["vips"][0]["members"]]
    assert taking.count("up") == (4 if seen.count("D") > 2 else seen.count("U"))


def test_a_check_through_the_tunnel_is_down_when_it_is_for_every_vip() -> None:
    pool = Pool.model_validate(
        {
            "health_checks": ["web"],
            "panic_above": 0.5,
            "backends": [{"name": f"web{n}", "address": f"10.0.3.{n}"} for n in (1, 2)],
        }
    )

    def verdicts(of_other: Verdict) -> dict[CheckKey, Verdict]:
        vips = {ip_address("192.0.2.1"): Verdict.DOWN, ip_address("192.0.2.2"): of_other}
        return {
            CheckKey(ip_address(f"10.0.3.{n}"), "web", vip): verdict for n in (1, 2) for vip, verdict in vips.items()
        }

    assert panics({"web": pool}, verdicts(Verdict.DOWN), ()) == {"web": Panic(2, 2)}
    assert panics({"web": pool}, verdicts(Verdict.UP), ()) == {}
