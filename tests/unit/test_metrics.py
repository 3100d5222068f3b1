"""The metrics of a node, with a fake forwarder: what is there, what it is called, and where it is found."""

from __future__ import annotations

import http.client
import re
import socket
import subprocess
import time
from pathlib import Path

import pytest
from metrics_text import Samples, of_socket, read, samples, value
from node_process import NodeProcess, started

PROMTOOL = Path(__file__).parents[2] / "build" / "promtool" / "usr" / "bin" / "promtool"


@pytest.fixture
def port() -> int:
    """One that is free, and taken by nobody else meanwhile in all likelihood."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        number: int = listener.getsockname()[1]
        return number


def scrape(node: NodeProcess) -> Samples:
    return samples(of_socket(node.run_dir.controller_socket))


def over_tcp(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port, timeout=2)


def test_the_control_socket_has_every_kind_of_metric(node: NodeProcess) -> None:
    started(node)
    found = scrape(node)
    assert value(found, "maglev_build_info", node="lb1", version="0.1.0") == 1
    assert [value(found, "maglev_node_state", state=state) for state in ("warming", "running", "draining")] == [
        0,
        1,
        0,
    ]
    assert value(found, "maglev_node_in_line") == 1
    assert value(found, "maglev_vip_announced", vip="www", address="192.0.2.1") == 1
    assert value(found, "maglev_vip_backends", vip="www", status="up") == 2
    assert value(found, "maglev_vip_backends", vip="www", status="down") == 0
    assert value(found, "maglev_vip_min_healthy", vip="api") == 1
    assert value(found, "maglev_addresses_announced") == 2
    assert value(found, "maglev_check_targets", check="web", verdict="up") == 2
    assert value(found, "maglev_check_transitions_total", check="web") == 2
    assert value(found, "maglev_check_probes_total", check="web", outcome="passed") >= 4
    assert value(found, "maglev_check_probe_seconds_total", check="web") > 0
    assert value(found, "maglev_checks_not_probed") == 0
    assert value(found, "maglev_announcements_total") == 2
    assert value(found, "maglev_withdrawals_total") == 0
    assert value(found, "maglev_state_generation") >= 1
    assert value(found, "maglev_forwarder_fit") == 1
    assert value(found, "maglev_forwarder_restarts_total") == 0
    assert value(found, "maglev_port_link_up", port="net_null0") == 1
    assert value(found, "maglev_packets_received_total") == 4
    assert value(found, "maglev_packets_total", fate="malformed") == 3
    assert value(found, "maglev_reasons_total", fate="malformed", reason="ipv4_checksum") == 2
    assert value(found, "maglev_backend_packets_total", backend="left1") == 5
    assert value(found, "maglev_backend_bytes_total", backend="left1") == 300
    assert value(found, "maglev_backend_flows", backend="left1") == 3
    assert value(found, "maglev_connections_live", worker="0") == 7
    assert value(found, "maglev_connections_inserted_total", worker="0") == 8
    assert value(found, "maglev_pool_packets_free") == 511
    assert value(found, "maglev_states_applied_total") >= 1
    assert value(found, "maglev_state_last_build_seconds") == 0.25
    pointers = {labels for name, labels in found if name == "maglev_ring_pointer_total"}
    assert len(pointers) == 5, "six, but one that this port cannot know"


def test_metrics_follow_what_happens(node: NodeProcess) -> None:
    started(node)
    node.ask("POST", "/drain", {"backend": "web1"})
    node.until(lambda s: s["generation"] == 2)
    (node.run_dir.path / "fake.json").write_text('{"link": false}')
    node.until(lambda s: s["announced"] == [])
    found = scrape(node)
    assert value(found, "maglev_backends_drained_by_operator") == 1
    assert value(found, "maglev_vip_backends", vip="www", status="drain") == 1
    assert value(found, "maglev_forwarder_fit") == 0
    assert value(found, "maglev_withdrawals_total") == 2
    assert value(found, "maglev_vip_announced", vip="www", address="192.0.2.1") == 0


def test_without_a_forwarder_the_node_s_own_metrics_are_there(node: NodeProcess) -> None:
    started(node)
    (node.run_dir.path / "fake.json").write_text('{"hang": true}')
    found = scrape(node)
    assert ("maglev_node_in_line", ()) in found
    assert ("maglev_packets_received_total", ()) not in found


def test_names_and_labels_are_as_prometheus_wants_them_and_tell_of_no_client(node: NodeProcess) -> None:
    started(node)
    text = of_socket(node.run_dir.controller_socket)
    names = {name for name, _ in samples(text)}
    assert all(re.fullmatch(r"maglev_[a-z_]+", name) for name in names)
    labels = {label for _, pairs in samples(text) for label, _ in pairs}
    assert labels <= {
        *("state", "node", "version", "vip", "address", "status", "neighbor", "port", "ring", "pointer"),
        *("fate", "reason", "backend", "worker", "check", "verdict", "outcome", "pool"),
    }
    for line in text.splitlines():
        if line.startswith("# HELP"):
            assert line.endswith("."), "a sentence"


@pytest.mark.skipif(not PROMTOOL.exists(), reason="promtool is not there: make build/stamps/promtool")
def test_promtool_is_content(node: NodeProcess) -> None:
    started(node)
    text = of_socket(node.run_dir.controller_socket)
    checked = subprocess.run([PROMTOOL, "check", "metrics"], input=text, text=True, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_a_port_of_loopback_is_opened_moved_and_closed_by_reloads(node: NodeProcess, port: int) -> None:
    node.text = node.text.replace("health_checks:", f"metrics: {{listen: '127.0.0.1:{port}'}}\nhealth_checks:", 1)
    node.config.write_text(node.text)
    started(node)
    status, kind, text = read(over_tcp(port))
    assert (status, kind.partition(";")[0]) == (200, "text/plain")
    assert value(samples(text), "maglev_node_in_line") == 1
    assert read(over_tcp(port), "/status")[0] == 404, "the control API is not for everybody"
    node.config.write_text(node.text.replace(f"'127.0.0.1:{port}'", "null"))
    assert node.ask("POST", "/reload", {})["changes"] == ["metrics.listen changes"]
    refused(port)


def test_a_port_that_is_taken_is_told_and_tried_again(node: NodeProcess, port: int) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        node.text = node.text.replace("health_checks:", f"metrics: {{listen: '127.0.0.1:{port}'}}\nhealth_checks:", 1)
        node.config.write_text(node.text)
        started(node)
        told = "cannot listen for metrics"
        assert told in node.log.read_text()
    deadline = time.monotonic() + 5
    while True:
        try:
            assert read(over_tcp(port))[0] == 200
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert node.log.read_text().count(told) == 1


def refused(port: int) -> None:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            read(over_tcp(port))
        except ConnectionRefusedError:
            return
        time.sleep(0.1)
    raise AssertionError(f"port {port} still answers")


def test_every_metric_is_told_of_and_none_that_is_not_there(node: NodeProcess) -> None:
    started(node)
    there = {name for name, _ in scrape(node)}
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    told = set(re.findall(r"`(maglev_[a-z_]+)[`{]", page))
    # A fake forwarder has no vips' traffic and no bounds; these families have no sample without some.
    unseen = {
        name for name in told if name.startswith(("maglev_vip_packets", "maglev_vip_bytes", "maglev_vip_flows"))
    }
    unseen |= {"maglev_vip_backends_over_bound", "maglev_bgp_session_up", "maglev_pool_in_panic"}
    assert told - unseen == there
