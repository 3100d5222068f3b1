"""Reloads of a running node: what they say before, what they refuse, and that they touch only what they name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result
from node_process import BOTH, NodeProcess, announced, started

from controller.api_client import ApiError
from controller.cli import maglev

Json = dict[str, Any]
WEB2 = ", {name: web2, address: 10.0.3.3}"


def reload(*options: str) -> Result:
    return CliRunner().invoke(maglev, ["reload", *options])


def dry_run(node: NodeProcess) -> Json:
    told = node.ask("POST", "/reload", {"dry_run": True})
    assert not told["applied"]
    return {vip["name"]: vip for vip in told["vips"]} | {"unknown": told["flows_unknown"]}


def told_to_the_speaker(node: NodeProcess) -> tuple[int, int]:
    """Changes whenever the speaker is told anything."""
    noted = node.run_dir.announced.stat()
    return noted.st_ino, noted.st_mtime_ns


def test_a_reload_without_change_pushes_nothing_and_announces_nothing(node: NodeProcess) -> None:
    started(node)
    states, speaker = len(node.states()), told_to_the_speaker(node)
    for body in ({}, {"dry_run": True}, {"max_churn": 0}):
        assert node.ask("POST", "/reload", body)["changes"] == []
    first, second = "{name: web1, address: 10.0.3.2}", "{name: web2, address: 10.0.3.3}"
    assert f"{first}, {second}" in node.text
    node.config.write_text(
        "# the same in another order\n" + node.text.replace(f"{first}, {second}", f"{second}, {first}")
    )
    assert node.ask("POST", "/reload", {})["changes"] == []
    status = node.status()
    assert (status["generation"], status["announced"]) == (1, BOTH)
    assert len(node.states()) == states
    assert told_to_the_speaker(node) == speaker


def test_a_reload_of_members_announces_nothing_and_one_of_vips_pushes_one_state(node: NodeProcess) -> None:
    started(node)
    speaker = told_to_the_speaker(node)
    node.config.write_text(node.text.replace("address: 10.0.3.3}", "address: 10.0.3.3, weight: 7}"))
    node.ask("POST", "/reload", {})
    node.until(lambda s: s["generation"] == 2)
    assert told_to_the_speaker(node) == speaker
    before, after = ({vip["name"]: vip for vip in state["vips"]} for state in node.states()[-2:])
    assert before["api"] == after["api"]
    assert before["www"] != after["www"]
    node.config.write_text(
        node.text + "  - {name: new, address: 192.0.2.3, port: 80, pools: [free], table_size: 251}\n"
    )
    node.ask("POST", "/reload", {})
    node.until(lambda s: s["announced"] == [*BOTH, "192.0.2.3"])
    assert node.status()["generation"] == 3


def test_a_dry_run_tells_slots_and_flows_and_changes_nothing(node: NodeProcess) -> None:
    started(node)
    node.config.write_text(node.text.replace(WEB2, ""))
    told = dry_run(node)
    assert told["unknown"] is None
    assert told["www"]["slots"] == {"moved": 125, "left": 125, "joined": 0, "besides": 0}
    assert told["www"]["share"] == pytest.approx(125 / 251, abs=1e-6)
    assert told["www"]["flows"] == {"live": 8, "at_risk": 3, "moved": 2, "lost": 0}
    assert told["api"]["slots"]["moved"] == 0
    assert len(node.states()) == 1
    assert len(node.status()["vips"][1]["members"]) == 2


def test_a_backend_that_is_not_probed_yet_is_expected_to_be_healthy_and_one_that_is_down_is_not(
    node: NodeProcess, backends: Any
) -> None:
    started(node)
    backends.down.add("127.0.3.3")
    node.until(lambda s: s["generation"] == 2)
    node.config.write_text(node.text.replace(WEB2, WEB2 + ", {name: web3, address: 10.0.3.4}"))
    assert dry_run(node)["www"]["slots"] == {"moved": 125, "left": 0, "joined": 125, "besides": 0}
    node.config.write_text(node.text.replace(WEB2, ""))
    assert dry_run(node)["www"]["slots"]["moved"] == 0


def test_an_operators_drain_counts_on_both_sides(node: NodeProcess) -> None:
    started(node)
    node.ask("POST", "/drain", {"backend": "web2"})
    node.config.write_text(node.text.replace(WEB2, ""))
    assert dry_run(node)["www"]["slots"]["moved"] == 0


def test_a_vip_that_comes_has_no_flows_and_one_that_goes_moves_whole(node: NodeProcess) -> None:
    started(node)
    node.config.write_text(node.text.replace("name: api, address: 192.0.2.2", "name: api, address: 192.0.2.9"))
    told = node.ask("POST", "/reload", {"dry_run": True})["vips"]
    removed, added = (vip for vip in told if vip["name"] == "api")
    assert (removed["address"], removed["change"], removed["share"]) == ("192.0.2.2", "removed", 1.0)
    assert removed["slots"] == {"moved": 251, "left": 251, "joined": 0, "besides": 0}
    assert (added["address"], added["change"], added["share"]) == ("192.0.2.9", "added", 0.0)
    assert added["flows"] == {"live": 0, "at_risk": 0, "moved": 0, "lost": 0}


def test_a_forwarder_that_cannot_count_leaves_the_flows_unknown(node: NodeProcess) -> None:
    started(node)
    node.mood(refuse=True)
    told = dry_run(node)
    assert told["www"]["flows"] is None
    assert told["unknown"] == "this state is not to my taste"
    result = reload("--dry-run")
    assert "the live flows are not known: this state is not to my taste" in result.output
    assert "live flows\n" not in result.output


def test_more_churn_than_is_allowed_is_refused_and_nothing_changes(node: NodeProcess) -> None:
    started(node)
    node.config.write_text(node.text.replace(WEB2, ""))
    for limit in ("0", "25", "49.8"):
        result = reload("--max-churn", limit)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == (
            "vip www: 49.8 % of its slots and 25.0 % of its live flows (2 of 8) would move, "
            f"more than {limit} %; nothing was changed\n"
        )
    assert node.status()["generation"] == 1
    assert len(node.status()["vips"][1]["members"]) == 2
    result = reload("--max-churn", "49.81", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["applied"] is True
    status = node.until(lambda s: s["generation"] == 2)
    assert len(status["vips"][1]["members"]) == 1
    assert announced(status)


def test_churn_of_live_flows_is_refused_where_slots_would_do(node: NodeProcess) -> None:
    started(node)
    node.config.write_text(node.text.replace("address: 10.0.3.3}", "address: 10.0.3.3, weight: 99}"))
    assert dry_run(node)["www"]["share"] < 0.01
    result = reload("--max-churn", "20")
    assert result.exit_code == 1
    assert "25.0 % of its live flows (2 of 8)" in result.stderr


@pytest.mark.parametrize("limit", [-1, 100.5, "5", True, [], float("nan")])
def test_a_limit_that_is_no_percentage_is_a_bad_request(node: NodeProcess, limit: object) -> None:
    node.start()
    node.until(lambda s: s["pid"])
    with pytest.raises(ApiError, match="max_churn must be a percentage from 0 to 100") as refused:
        node.ask("POST", "/reload", {"max_churn": limit})
    assert refused.value.wrong
