from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from config_text import GOOD
from node_process import NodeProcess, announced, started

from controller.cli import maglev

FLOW = ("tcp", "198.51.100.7", "40000", "192.0.2.1", "80")


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(maglev, [str(argument) for argument in arguments])


def ok(*arguments: str | Path) -> str:
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def as_json(*arguments: str | Path) -> Any:
    return json.loads(ok(*arguments, "--json"))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "lb1.yaml"
    path.write_text(GOOD)
    return path


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    path = tmp_path / "wrong.yaml"
    path.write_text(GOOD.replace("table_size: 65537", "table_size: 65536"))
    return path


def test_help_lists_only_what_exists() -> None:
    text = ok("--help")
    commands = [line.split()[0] for line in text.split("Commands:")[1].splitlines() if line.strip()]
    assert commands == sorted(commands)
    assert set(commands) == {
        *(
            "bench",
            "check",
            "doctor",
            "drain",
            "explain",
            "flush",
            "hashing",
            "lab",
            "lookup",
            "plan",
            "reload",
            "replay",
            "run",
            "status",
            "table",
            "top",
        ),
        "undrain",
    }
    for command in commands:
        if command != "lab":
            ok(command, "--help")


def test_check_prints_what_would_be_served(config: Path) -> None:
    assert as_json("check", config)["announced"] == ["192.0.2.1"]
    text = ok("check", config)
    assert "web1" in text
    assert "192.0.2.1:80" in text


def test_check_prints_the_cluster(config: Path) -> None:
    assert as_json("check", config)["cluster"] == {}
    assert "cluster" not in ok("check", config)
    config.write_text(GOOD + "cluster: {nodes: [{name: lb2, address: 10.0.2.6}]}\n")
    assert as_json("check", config)["cluster"] == {"lb1": "10.0.2.2", "lb2": "10.0.2.6"}
    assert "shares fragments out in the cluster lb1 10.0.2.2, lb2 10.0.2.6" in ok("check", config)


@pytest.mark.parametrize("command", ["check", "run", "table", "lookup"])
def test_a_wrong_configuration_is_told_on_stderr(wrong: Path, command: str) -> None:
    more = {"table": ("www",), "lookup": FLOW}.get(command, ())
    result = invoke(command, wrong, *more)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "wrong.yaml:" in result.stderr
    assert "vips[0].table_size" in result.stderr


def test_a_missing_file_is_wrong_usage(tmp_path: Path) -> None:
    result = invoke("check", tmp_path / "nosuch.yaml")
    assert result.exit_code == 2
    assert "nosuch.yaml" in result.stderr


def test_run_says_what_this_machine_lacks(config: Path) -> None:
    config.write_text(GOOD.replace("device: eth1", "device: nosuch0"))
    result = invoke("run", config)
    assert result.exit_code == 2
    assert "there is no interface nosuch0 here" in result.stderr


def test_table_in_numbers_and_in_full(config: Path) -> None:
    table = as_json("table", config, "www")
    assert table["size"] == 65537
    assert len(table["slots"]) == 65537
    assert sum(table["backends"].values()) == 65537
    text = ok("table", config, "www")
    assert table["digest"] in text
    result = invoke("table", config, "nosuch")
    assert result.exit_code == 2
    assert "there is no vip nosuch" in result.stderr


def test_lookup_in_a_configuration(config: Path) -> None:
    answer = as_json("lookup", config, *FLOW)
    assert answer["vip"] == "www"
    assert answer["backend"] in ("web1", "web3")
    assert answer["backend"] in ok("lookup", config, *FLOW)
    for bad in (FLOW[:4], (*FLOW[:2], "http", *FLOW[3:]), ("sctp", *FLOW[1:]), (*FLOW[:4], "70000")):
        assert invoke("lookup", config, *bad).exit_code == 2


def test_without_a_running_node_it_fails_and_says_so(base: Path) -> None:
    for command in (("status",), ("reload",), ("drain", "web1"), ("lookup", "--live", *FLOW), ("flush", "a")):
        result = invoke(*command)
        assert result.exit_code == 1
        assert f"no node is running (looked in {base})" in result.stderr
    assert "no node lb9 is running" in invoke("status", "--node", "lb9").stderr


def test_drain_wants_a_backend_or_the_node() -> None:
    for arguments in ((), ("web1", "--self")):
        for command in ("drain", "undrain"):
            assert invoke(command, *arguments).exit_code == 2


OVER_A_CAPTURE = {"replay": ("in.pcap", "out.pcap"), "explain": ("in.pcap",)}


@pytest.mark.parametrize(("command", "files"), OVER_A_CAPTURE.items())
def test_a_bad_capture_is_passed_on_as_a_failure(
    config: Path, tmp_path: Path, command: str, files: tuple[str, ...]
) -> None:
    (tmp_path / "in.pcap").write_text("no capture")
    assert invoke(command, config, *(tmp_path / name for name in files)).exit_code == 1


@pytest.mark.parametrize(("command", "files"), OVER_A_CAPTURE.items())
def test_a_bad_configuration_is_refused_before_anything_runs(
    tmp_path: Path, command: str, files: tuple[str, ...]
) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("nodes: {}")
    result = invoke(command, wrong, *files)
    assert result.exit_code == 2
    assert "wrong.yaml:1: nodes" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [(), ("in.pcap", "more"), ("in.pcap", "--workers", "0"), ("in.pcap", "--workers", "many"), ("--nosuch",)],
    ids=["no capture", "two captures", "no worker", "no number", "no option"],
)
def test_explain_wrongly_asked_says_its_usage(config: Path, arguments: tuple[str, ...]) -> None:
    result = invoke("explain", config, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Usage: maglev explain [OPTIONS] CONFIG IN.pcap")


def test_a_running_node_is_told_and_shown(node: NodeProcess) -> None:
    started(node)
    assert as_json("status")["announced"] == ["192.0.2.1", "192.0.2.2"]
    text = ok("status", "--node", "lb1")
    assert "www tcp 192.0.2.1:80" in text
    assert "announced: 192.0.2.1, 192.0.2.2" in text
    assert "came out right" in text
    assert "left1" in text
    assert "packet pool: 511 of 512 free" in text
    why = r"malformed +3 *\n  the IPv4 header checksum is wrong +2 *\n  the frame ends inside its IPv6 header +1 *\n"
    assert re.search(why, text)
    assert "a new flow" not in text, "only drops are explained"
    assert as_json("status")["stats"]["reasons"]["ipv6_cut"]["packets"] == 1
    assert "pieces of cut packets: 122 of 129 free, 6 sent beyond one a packet" in text
    assert "10.0.3.2  1400  599 s" in text
    assert "connections: 1000 kept from the forwarder before" in text

    drained = as_json("drain", "web1", "--why", "new disk")
    assert (drained["drained"], drained["drain_self"]) == (["web1"], False)
    assert re.search(r"drained by \S.* at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d: new disk: web1\n", ok("drain", "web1"))
    assert "new disk: web1" in ok("status")
    result = invoke("drain", "nobody")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "there is no backend nobody (there are: api1, web1, web2)" in result.stderr
    assert "no backend is drained" in ok("undrain", "web1")
    assert "flushed web1" in ok("flush", "web1")
    assert "flushed the flows of all backends" in ok("flush", "--self")
    assert as_json("lookup", "--live", *FLOW)["backend"] == "web1"

    assert "announces nothing" in ok("drain", "--self")
    node.until(lambda s: s["announced"] == [])
    assert "this node" in ok("status")
    ok("undrain", "--self")
    node.until(announced)

    assert "nothing changes" in ok("reload")
    node.config.write_text(node.text.replace("table_size: 251}\n  - {name: api", "table_size: 509}\n  - {name: api"))
    assert "vip www changes\n(dry run" in ok("reload", "--dry-run")
    assert as_json("reload") == {"applied": True, "changes": ["vip www changes"]}
    node.config.write_text("node: {}\n")
    result = invoke("reload")
    assert result.exit_code == 2
    assert "lb1.yaml:1: node" in result.stderr
