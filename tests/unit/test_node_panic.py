"""A running node whose pool fails at once: it is kept, the operator is told, and it ends."""

from __future__ import annotations

from node_process import BOTH, Backends, NodeProcess, announced, members, started

FAILING = {"127.0.3.2", "127.0.3.3"}


def test_a_pool_that_fails_at_once_is_kept_and_the_operator_is_told(node: NodeProcess, backends: Backends) -> None:
    node.config.write_text(node.text.replace("checked: {", "checked: {panic_above: 0.5, "))
    started(node)
    backends.down.add("127.0.3.2")
    node.until(lambda s: s["generation"] == 2)
    assert members(node.states()[-1])["web1"] == "down"  # half is not more than half

    backends.down |= FAILING
    status = node.until(lambda s: s["panics"] and members(node.states()[-1])["web1"] == "up")
    assert status["panics"] == {"checked": {"down": 2, "of": 2, "vips": ["www"]}}
    assert status["announced"] == BOTH
    assert [vip["healthy"] for vip in status["vips"]] == [1, 2]
    assert {h["verdict"] for h in status["health"]} == {"down"}
    assert members(node.states()[-1]) == {"api1": "up", "web1": "up", "web2": "up"}
    assert all(members(state)["web2"] == "up" for state in node.states())

    assert node.ask("POST", "/reload", {}) == {"applied": True, "changes": []}
    assert node.status()["panics"]
    backends.down.remove("127.0.3.3")
    node.until(lambda s: not s["panics"] and members(node.states()[-1])["web1"] == "down")
    assert members(node.states()[-1])["web2"] == "up"
    log = node.log.read_text()
    assert log.count("panic: all backends of the pool are kept in service") == 1
    assert log.count("panic is over") == 1


def test_a_reload_ends_a_panic_that_is_not_asked_for_any_more(node: NodeProcess, backends: Backends) -> None:
    node.config.write_text(node.text.replace("checked: {", "checked: {panic_above: 0.5, "))
    started(node)
    backends.down |= FAILING
    node.until(lambda s: s["panics"])
    node.config.write_text(node.text)
    node.ask("POST", "/reload", {})
    status = node.until(lambda s: s["announced"] == ["192.0.2.2"])
    assert status["panics"] == {}
    backends.down.clear()
    node.until(announced)


def test_what_the_node_can_probe_is_in_its_status(node: NodeProcess) -> None:
    started(node)
    probes = node.status()["probes"]
    assert probes.pop("at_once") > 0
    assert probes == {"targets": 2, "too_many": False, "not_probed": 0}
