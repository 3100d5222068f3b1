"""`make compose-test`: what docker-compose.yml promises, with a real engine. The tests build on each other."""

from __future__ import annotations

import json
import time
from collections import Counter

from engine import SOURCE, run, say
from project import VIP, Project, wait_for

LB1, LB2 = "198.18.1.2", "198.18.2.2"
START = 60.0  # seconds until a node that was started is announced
HOLD = 9.0  # seconds after which the router gives up a silent node
FORWARDED = 'sum by (node) (maglev_packets_total{fate=~"conn_hit|hash_new"})'
NEW_FLOWS = 'sum by (node) (maglev_packets_total{fate="hash_new"})'
DROPPED = 'sum by (node) (maglev_packets_total{fate!~"conn_hit|hash_new|hash_untracked|echo_reply|icmp_error|punt"})'
NET_ADMIN, NET_RAW = 1 << 12, 1 << 13  # bits of a process's capabilities


def all_answered(project: Project, requests: int = 1000) -> Counter[str]:
    """Make requests, see all of them answered at the first attempt, tell who answered."""
    results = project.load(requests=requests).completed()
    backends = Counter[str](results["per_backend"])
    say(f"{results['answered']} of {requests} requests answered: {dict(sorted(backends.items()))}")
    assert (results["answered"], results["failed"], results["retries"]) == (requests, 0, [])
    return backends


def test_both_nodes_are_announced_and_the_router_spreads_over_them(project: Project) -> None:
    began = time.monotonic()
    wait_for("both nodes announced", START, lambda: project.next_hops() == {LB1, LB2})
    say(f"both nodes are announced {time.monotonic() - began:.1f} s after the start")


def test_a_thousand_requests_are_all_answered_and_spread_over_three_backends(project: Project) -> None:
    backends = all_answered(project)
    assert sorted(backends) == ["b1", "b2", "b3"]
    # A third of a thousand, give or take five standard deviations.
    assert all(258 <= count <= 409 for count in backends.values()), backends


def test_plain_up_shows_balanced_traffic_by_itself(project: Project) -> None:
    line = wait_for(
        "a line of the client", 30, lambda: [x for x in project.logs("client").splitlines() if "250 of 250" in x]
    )[-1]
    assert all(f"{name} " in line for name in ("b1", "b2", "b3")), line


def test_prometheus_has_the_metrics_of_both_nodes_and_no_packet_was_dropped(project: Project) -> None:
    wait_for("a thousand flows", 20, lambda: sum(project.ask_prometheus(NEW_FLOWS).values()) >= 1000)
    forwarded = project.ask_prometheus(FORWARDED)
    say(f"Prometheus: packets forwarded {forwarded}")
    assert sorted(forwarded) == ["lb1", "lb2"]
    total = sum(forwarded.values())
    assert all(0.35 * total < packets < 0.65 * total for packets in forwarded.values()), forwarded
    assert not any(project.ask_prometheus(DROPPED).values())


def test_a_node_has_two_capabilities_and_no_others(project: Project) -> None:
    for node in ("lb1", "lb2"):
        processes = project.inside(node, "sh", "-c", "cat /proc/[0-9]*/status").splitlines()
        (rights,) = {int(line.split()[1], 16) for line in processes if line.startswith(("CapEff", "CapBnd"))}
        assert rights == NET_ADMIN | NET_RAW


def test_the_end_image_has_no_compiler_and_checks_a_file_without_any_right(project: Project) -> None:
    image = run("docker", "inspect", "--format", "{{.Config.Image}}", project.container("lb1")).strip()
    alone = ["docker", "run", "--rm", "--cap-drop", "ALL", "--network", "none"]
    files = ["-v", f"{SOURCE}/docker/lb1.yaml:/lb1.yaml:ro"]
    assert run("docker", "inspect", "--format", "{{.Config.User}}", image).strip() == "maglev"
    found = run(*alone, "--entrypoint", "sh", image, "-c", "command -v gcc cc as ld pip git || echo none of them")
    assert found.strip() == "none of them"
    assert VIP in run(*alone, *files, image, "check", "/lb1.yaml")
    table = json.loads(run(*alone, *files, image, "table", "/lb1.yaml", "www", "--json"))
    assert sorted(table["backends"]) == ["b1", "b2", "b3"]


def test_a_killed_node_is_withdrawn_and_its_connections_go_on_by_the_other(project: Project) -> None:
    load = project.load(long=60, rate=50)
    try:
        time.sleep(1)
        began = time.monotonic()
        run("docker", "kill", project.container("lb1"))
        wait_for("lb1 withdrawn", HOLD + 3, lambda: project.next_hops() == {LB2})
        say(f"lb1 killed; the router had withdrawn it {time.monotonic() - began:.1f} s after the command")
        all_answered(project)
        results = load.finish()
    finally:
        load.close()
    kept = [connection for connection in results["connections"] if connection["broken"] is None]
    say(
        f"meanwhile {results['answered']} of {results['requests']} other requests answered, "
        f"{len(results['retries'])} at a second attempt; {len(kept)} of 60 long connections kept"
    )
    assert (results["failed"], results["answered"]) == (0, results["requests"])
    assert len(kept) == 60, results["connections"]


def test_prometheus_tells_which_node_is_dead_and_keeps_what_it_counted(project: Project) -> None:
    wait_for("lb1 found dead", 15, lambda: project.ask_prometheus("up") == {"lb1": 0.0, "lb2": 1.0})
    counted = project.ask_prometheus(f"max_over_time({FORWARDED}[5m:1s])")
    assert sorted(counted) == ["lb1", "lb2"]
    say(f"Prometheus: lb1 is down; packets forwarded until now {counted}")


def test_a_killed_node_that_is_started_again_takes_its_share(project: Project) -> None:
    began = time.monotonic()
    run("docker", "start", project.container("lb1"))
    wait_for("lb1 announced again", START, lambda: project.next_hops() == {LB1, LB2})
    say(f"lb1 started again and announced after {time.monotonic() - began:.1f} s")
    all_answered(project)
    wait_for("lb1 scraped", 15, lambda: project.ask_prometheus(FORWARDED).get("lb1"))


def test_a_node_that_is_stopped_drains_and_nobody_notices(project: Project) -> None:
    load = project.load(long=60, rate=100)
    try:
        time.sleep(1)
        run("docker", "stop", "--time", "20", project.container("lb2"))
        assert project.next_hops() == {LB1}
        results = load.finish()
    finally:
        load.close()
    status = run("docker", "inspect", "--format", "{{.State.ExitCode}}", project.container("lb2")).strip()
    say(f"lb2 ended with status {status}; meanwhile {results['answered']} of {results['requests']} requests answered")
    assert (status, results["failed"], results["retries"]) == ("0", 0, [])
    assert [connection for connection in results["connections"] if connection["broken"]] == []
