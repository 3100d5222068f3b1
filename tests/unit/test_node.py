"""The node as processes: a real controller and a fake forwarder, and every kind of end that either can meet."""

from __future__ import annotations

import getpass
import os
import signal
import time

import pytest
from node_process import BOTH, Backends, Json, NodeProcess, announced, members, started

from controller.api_client import ApiError
from controller.pid_file import holder


def test_a_node_from_start_to_end(node: NodeProcess, backends: Backends) -> None:
    process = node.start()
    status = node.until(announced)
    assert status["state"] == "running"
    assert (status["node"], status["pid"], status["generation"]) == ("lb1", process.pid, 1)
    assert status["forwarder"] == {
        "pid": node.forwarder(),
        "healthy": True,
        "reason": "ok",
        "restarts": 0,
        "canary": "came out right",
        "steering": {"layout": "software", "instead": None},
    }
    assert {h["verdict"] for h in status["health"]} == {"up"}
    assert len(node.states()) == 1  # one state, made once everything was known
    assert [vip["healthy"] for vip in status["vips"]] == [1, 2]
    assert sum(member["slots"] for member in status["vips"][1]["members"]) == 251
    assert node.run_dir.path.stat().st_mode & 0o777 == 0o750
    for path in node.run_dir.path.iterdir():
        if not path.name.startswith("fake") and path != node.run_dir.forwarder_socket:
            assert path.stat().st_mode & 0o007 == 0, path

    backends.down.add("127.0.3.2")
    node.until(lambda s: s["generation"] == 2)
    assert members(node.states()[-1]) == {"api1": "up", "web1": "down", "web2": "up"}
    backends.down.add("127.0.3.3")
    node.until(lambda s: s["announced"] == ["192.0.2.2"])
    backends.down.clear()
    node.until(announced)

    forwarder = node.forwarder()
    process.send_signal(signal.SIGTERM)
    status = node.until(lambda s: s["state"] == "draining")
    assert status["announced"] == []
    assert node.forwarder() == forwarder
    assert process.wait(5) == 0
    assert holder(node.run_dir.forwarder_pid) is None
    assert [path.name for path in node.run_dir.path.iterdir()] == ["fake.states"]


def test_a_second_signal_ends_the_drain(node: NodeProcess) -> None:
    node.config.write_text(node.text.replace("drain_time: 300ms", "drain_time: 60s"))
    process = node.start()
    node.until(announced)
    process.send_signal(signal.SIGINT)
    node.until(lambda s: s["state"] == "draining")
    process.send_signal(signal.SIGTERM)
    assert process.wait(3) == 0


def test_the_same_node_does_not_run_twice(node: NodeProcess) -> None:
    first = node.start()
    node.until(announced)
    second = node.start()
    assert second.wait(5) == 1
    assert f"node lb1 is already running as pid {first.pid}" in node.log.read_text()
    assert node.until(announced)["pid"] == first.pid


def test_a_killed_controller_leaves_a_forwarder_that_the_next_one_adopts(
    node: NodeProcess, backends: Backends
) -> None:
    node.kill(started(node))
    forwarder, states = node.forwarder(), len(node.states())
    backends.down.add("127.0.3.2")  # it fails while nobody looks, and comes back before anybody has a verdict
    node.start()
    status = node.until(lambda s: s["state"] == "warming")
    assert status["announced"] == BOTH
    backends.down.clear()
    status = node.until(lambda s: s["state"] == "running")
    assert status["announced"] == BOTH
    assert (node.forwarder(), status["forwarder"]["restarts"]) == (forwarder, 0)
    assert len(node.states()) == states  # the same state is not pushed again


def test_an_adopted_forwarder_is_corrected_once_verdicts_exist(node: NodeProcess, backends: Backends) -> None:
    node.kill(started(node))
    forwarder, states = node.forwarder(), len(node.states())
    backends.down |= {"127.0.3.2", "127.0.3.3"}
    node.start()
    node.until(lambda s: s["state"] == "running" and s["announced"] == ["192.0.2.2"])
    assert node.forwarder() == forwarder
    assert [members(state) for state in node.states()[states:]] == [{"api1": "up", "web1": "down", "web2": "down"}]


def test_an_adopted_forwarder_with_other_settings_is_replaced(node: NodeProcess) -> None:
    node.kill(started(node))
    forwarder = node.forwarder()
    node.config.write_text(node.text.replace("hugepages: false", "hugepages: false, ring_size: 4096"))
    node.start()
    node.until(lambda s: announced(s) and s["forwarder"]["pid"] != forwarder)


def test_a_dead_forwarder_is_withdrawn_at_once_and_comes_back(node: NodeProcess) -> None:
    started(node)
    forwarder = node.forwarder()
    os.kill(forwarder, signal.SIGKILL)
    killed = time.monotonic()
    node.until(lambda s: s["announced"] == [])
    assert time.monotonic() - killed < 1.0
    status = node.until(announced)
    assert status["forwarder"]["restarts"] == 1
    assert status["forwarder"]["pid"] != forwarder
    assert node.states()[0] == node.states()[1]


@pytest.mark.parametrize(
    ("mood", "reason"),
    [
        ({"hang": True}, "no answer to ping"),
        ({"stalled": True}, "no progress on worker 0"),
        ({"canary": False}, "canary: did not come out"),
    ],
)
def test_a_sick_forwarder_is_withdrawn_killed_and_started_again(node: NodeProcess, mood: Json, reason: str) -> None:
    started(node)
    forwarder = node.forwarder()
    node.mood(**mood)
    node.until(lambda s: s["announced"] == [])
    node.until(lambda s: s["forwarder"]["restarts"])
    node.mood()
    node.until(lambda s: announced(s) and s["forwarder"]["pid"] != forwarder)
    assert reason in node.log.read_text()


def test_a_link_that_is_down_withdraws_without_a_restart(node: NodeProcess) -> None:
    started(node)
    node.mood(link=False)
    status = node.until(lambda s: s["announced"] == [])
    assert status["forwarder"]["reason"] == "link down: net_null0"
    node.mood()
    assert node.until(announced)["forwarder"]["restarts"] == 0


def test_an_unresolved_next_hop_withdraws_without_a_restart(node: NodeProcess) -> None:
    started(node)
    node.mood(canary=False, unresolved=True)
    status = node.until(lambda s: s["announced"] == [])
    assert status["forwarder"]["reason"] == "canary: did not come out"
    time.sleep(1.5)
    node.mood()
    assert node.until(announced)["forwarder"]["restarts"] == 0


def test_a_refused_state_leaves_the_old_one_announced(node: NodeProcess, backends: Backends) -> None:
    started(node)
    node.mood(refuse=True)
    backends.down.add("127.0.3.2")
    status = node.until(lambda s: s["trouble"])
    assert status["trouble"] == "this state is not to my taste"
    assert announced(status)
    node.mood()
    node.until(lambda s: s["trouble"] is None and s["generation"] == 2)


def test_a_forwarder_that_refuses_its_settings_ends_the_start(node: NodeProcess) -> None:
    process = node.start(FAKE_FORWARDER="refuse")
    assert process.wait(5) == 2
    assert "no hugepages are free" in node.log.read_text()
    assert not node.run_dir.path.exists()


def test_a_forwarder_that_fails_is_tried_again(node: NodeProcess) -> None:
    process = node.start(FAKE_FORWARDER="fail")
    status = node.until(lambda s: s["forwarder"]["restarts"] >= 2 and s["forwarder"]["reason"] == "exit status 1")
    assert status["announced"] == []
    process.send_signal(signal.SIGTERM)
    assert process.wait(5) == 0


def test_reloads(node: NodeProcess, backends: Backends) -> None:
    process = started(node)
    assert node.ask("POST", "/reload", {}) == {"applied": True, "changes": []}
    assert node.status()["generation"] == 1

    node.config.write_text(node.text + "  - {name: www, address: 192.0.2.9}\n")
    with pytest.raises(ApiError, match=r"lb1\.yaml:") as refused:
        node.ask("POST", "/reload", {})
    assert refused.value.wrong
    process.send_signal(signal.SIGHUP)

    node.config.write_text(node.text.replace("hugepages: false", "hugepages: false, ring_size: 4096"))
    with pytest.raises(ApiError, match=r"forwarder\.ring_size cannot change while the node runs"):
        node.ask("POST", "/reload", {"dry_run": True})

    backends.down.add("127.0.3.2")
    node.until(lambda s: s["generation"] == 2)
    text = node.text.replace("{name: web1, address: 10.0.3.2}", "{name: web1, address: 10.0.3.2, weight: 7}")
    text += "  - {name: new, address: 192.0.2.3, port: 80, pools: [free], table_size: 251}\n"
    node.config.write_text(text)
    changes = node.ask("POST", "/reload", {"dry_run": True})
    assert not changes["applied"]
    assert "vip new is added" in changes["changes"]
    assert announced(node.status())
    process.send_signal(signal.SIGHUP)
    node.until(lambda s: s["announced"] == [*BOTH, "192.0.2.3"])
    web1 = next(m for vip in node.states()[-1]["vips"] for m in vip["members"] if m[0] == "web1")
    assert web1 == ["web1", 7, "down"]  # still down, with its new weight
    backends.down.clear()
    node.until(lambda s: members(node.states()[-1])["web1"] == "up")

    node.config.write_text(node.text)
    node.ask("POST", "/reload", {})
    node.until(announced)
    assert len(node.states()[-1]["vips"]) == 2


def test_a_reload_changes_the_cluster_of_a_running_node(node: NodeProcess) -> None:
    started(node)
    forwarder = node.forwarder()
    assert "cluster" not in node.states()[-1]
    for nodes, expected in (
        ("{name: lb2, address: 10.0.2.6}", {"lb1": "10.0.2.2", "lb2": "10.0.2.6"}),
        ("{name: lb3, address: 10.0.2.7}", {"lb1": "10.0.2.2", "lb3": "10.0.2.7"}),
    ):
        generation = node.status()["generation"]
        node.config.write_text(f"{node.text}cluster: {{nodes: [{nodes}]}}\n")
        assert node.ask("POST", "/reload", {})["applied"]
        node.until(lambda s, before=generation: s["generation"] == before + 1)
        assert node.states()[-1]["cluster"] == expected
    node.config.write_text(node.text)
    assert node.ask("POST", "/reload", {})["changes"] == [
        "cluster node lb1 is removed",
        "cluster node lb3 is removed",
    ]
    status = node.until(lambda s: "cluster" not in node.states()[-1])
    assert announced(status)
    assert node.forwarder() == forwarder


def test_overrides_survive_reloads_and_a_killed_controller(node: NodeProcess) -> None:
    process = started(node)
    with pytest.raises(ApiError, match="there is no backend nobody"):
        node.ask("POST", "/drain", {"backend": "nobody"})
    assert node.ask("POST", "/drain", {"backend": "web1"})["drained"] == ["web1"]
    node.until(lambda s: s["generation"] == 2)
    assert members(node.states()[-1])["web1"] == "drain"
    node.ask("POST", "/reload", {})
    node.kill(process)
    node.start()
    status = node.until(lambda s: s["state"] == "running" and announced(s))
    assert status["drained"] == ["web1"]
    assert members(node.states()[-1])["web1"] == "drain"
    node.ask("POST", "/undrain", {"backend": "web1"})
    node.until(lambda s: members(node.states()[-1])["web1"] == "up")
    assert node.ask("POST", "/flush", {"backend": "web1"}) == {"flushed": "web1"}

    assert node.ask("POST", "/flush", {"all": True}) == {"flushed": None}

    assert node.ask("POST", "/drain-self", {})["drain_self"]
    status = node.until(lambda s: s["announced"] == [])
    assert status["state"] == "draining"
    node.ask("POST", "/drain-self", {"drain": False})
    node.until(announced)


def test_overrides_survive_a_stop_and_tell_who_when_and_why(node: NodeProcess) -> None:
    process = started(node)
    before = time.time()
    asked = node.ask("POST", "/drain", {"backend": "web1", "why": "new disk", "for": "alice"})
    word = asked["overrides"]["backends"]["web1"]
    user = getpass.getuser()
    assert word["by"] == (f"alice ({user})" if os.geteuid() == 0 else user)
    assert before <= word["at"] <= time.time()
    assert word["why"] == "new disk"
    node.ask("POST", "/drain-self", {"why": "the whole rack"})
    process.terminate()
    assert process.wait(10) == 0
    again = node.start()
    status = node.until(lambda s: s["state"] == "draining" and s["generation"] > 0)
    assert status["overrides"]["backends"] == {"web1": word}
    assert status["overrides"]["node"]["why"] == "the whole rack"
    assert status["announced"] == []
    log = node.log.read_text()
    assert "new disk" in log
    assert "the whole rack" in log
    node.ask("POST", "/undrain", {"backend": "web1"})
    node.ask("POST", "/drain-self", {"drain": False})
    again.terminate()
    assert again.wait(10) == 0
    assert not node.run_dir.overrides.exists()


@pytest.mark.parametrize("why", ["two\nlines", "x" * 501, 5, ["a"]])
def test_a_reason_is_one_line(node: NodeProcess, why: object) -> None:
    started(node)
    with pytest.raises(ApiError, match="why must be one line of at most 500 characters"):
        node.ask("POST", "/drain", {"backend": "web1", "why": why})
    assert node.ask("GET", "/status")["drained"] == []


def test_bad_requests_are_answered_with_a_sentence(node: NodeProcess) -> None:
    started(node)
    for body in ({}, {"backend": 3}, {"backend": None}, {"backend": "web1", "all": True}, {"all": 1}):
        with pytest.raises(ApiError) as refused:
            node.ask("POST", "/flush", body)
        assert refused.value.wrong
    with pytest.raises(ApiError, match="a lookup needs all of the flow"):
        node.ask("POST", "/lookup", {"protocol": "tcp"})
    flow = {"protocol": "tcp", "source": "198.51.100.7", "source_port": 1}
    flow |= {"destination": "192.0.2.1", "destination_port": 80}
    assert node.ask("POST", "/lookup", flow)["backend"] == "web1"
