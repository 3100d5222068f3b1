"""Ten changes of a running node's configuration: what the plan says is what then happens to slots and live flows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
import yaml
from needs import LAB
from planning import NODE, Planning, added, all_of, api, backends, maglev, removed, vip
from whole_lab import whole_lab

from lab import nodes
from lab.topology import NODES

Json = dict[str, Any]
Edit = Callable[[Json], None]
FLOWS, MORE = 60, 20  # of each vip at first, and before each change

pytestmark = LAB


@pytest.fixture(scope="module")
def planning() -> Iterator[Planning]:
    with whole_lab(), closing(Planning()) as made:
        made.begin()
        made.open(FLOWS)
        yield made


# Each goes on from the one before it, and from its flows.
CHANGES: dict[str, Edit] = {
    "nothing": lambda config: None,
    "a backend is added": backends("web", "b1", "b2", "b3", "b4"),
    "a weight": backends("web", {"name": "b1", "weight": 300}, "b2", "b3", "b4"),
    "a drain": backends("web", {"name": "b1", "weight": 300}, {"name": "b2", "drain": True}, "b3", "b4"),
    "a backend is removed": backends("web", {"name": "b1", "weight": 300}, {"name": "b2", "drain": True}, "b4"),
    "several at once": backends("web", "b2", "b3", {"name": "b4", "weight": 50}),
    "a pool is swapped": backends("api", "b3", "b4"),
    "a vip is added": added("more", address="192.0.2.3", protocol="tcp", port=80, pools=["api"]),
    "a scheduler": vip("www", scheduler="rendezvous"),
    "a table's size": vip("dns", table_size=251),
    "an affinity": vip("api", affinity="client"),
    "a vip is removed": all_of(removed("api"), backends("web", "b1", "b2", "b3", "b4")),
}


STILL = ("nothing", "a vip is added")


def expected_flows(told: Json, by_client: bool, happened: Json) -> Json:
    """What was counted, where entries can tell it: with affinity of the client they hold no slot's hash."""
    flows = dict(happened.get("flows", {"live": 0, "at_risk": 0, "moved": 0, "lost": 0}))
    if told["change"] == "kept" and by_client:
        flows["at_risk"] = None
    if told["change"] == "kept" and (by_client or "affinity" in told["differs"]):
        flows["moved"] = None
    return flows


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_plan_says_is_what_then_happens(planning: Planning, name: str) -> None:
    planning.open(MORE)
    updates, generation = planning.updates(), nodes.status(NODE)["generation"]
    planned, happened = planning.change(CHANGES[name])
    for of, told in planned.items():
        assert told["flows"] == expected_flows(told, of in planning.by_client(), happened.get(of, {}))
        if told["change"] == "kept" and told["slots"] is not None:
            assert told["slots"] == happened[of]["slots"], of
        assert told["flows"]["live"] >= MORE or told["change"] == "added"
    assert any(told["share"] for told in planned.values()) == (name not in STILL)
    if name == "nothing":
        assert nodes.status(NODE)["generation"] == generation
    assert planning.updates() - updates == (name == "a vip is added")
    planning.forget_ended()


def test_a_reload_that_moves_more_than_it_may_is_refused(planning: Planning) -> None:
    planning.open(MORE)
    before, generation = planning.seen(), nodes.status(NODE)["generation"]
    config = planning.config[NODE.name]
    edited = yaml.safe_load(yaml.safe_dump(config))
    backends("web", "b1", "b2", "b4")(edited)
    planning.write(NODE, edited)
    try:
        refused = maglev("reload", "--max-churn", "10", "--node", NODE.name)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.startswith("vip ")
        assert " of its live flows (" in refused.stderr
        assert refused.stderr.endswith("would move, more than 10 %; nothing was changed\n")
    finally:
        planning.write(NODE, config)
    assert nodes.status(NODE)["generation"] == generation
    assert planning.seen() == before
    for node in NODES:
        assert api(node, "/reload", {"max_churn": 0}) == {
            "applied": True,
            "changes": [],
            "vips": api(node, "/reload", {"dry_run": True})["vips"],
            "flows_unknown": None,
        }
