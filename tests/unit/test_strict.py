"""`maglev check --strict`: each row is a change of a configuration without warnings, and the warning that it gets."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from controller.cli import maglev

QUIET = """\
node: {name: lb1, tunnel_source: {ipv4: 10.0.2.2}, hash_key: "000102030405060708090a0b0c0d0e0f"}
forwarder: {ports: [{device: eth1}]}
bgp:
  local_as: 65002
  speaker: exabgp
  router_id: 10.0.2.2
  neighbors: [{address: 10.0.2.1, remote_as: 65001}]
  next_hop: {ipv4: 10.0.2.2}
health_checks:
  web: {type: tcp, port: 80, fall: 3}
backend_pools:
  web:
    health_checks: [web]
    backends:
      - {name: web1, address: 10.0.3.2}
      - {name: web2, address: 10.0.4.2}
      - {name: web3, address: 10.0.5.2}
vips:
  - {name: www, address: 192.0.2.1, port: 80, pools: [web], min_healthy: 1, table_size: 65537}
"""


def strict(path: Path, *words: str) -> Result:
    return CliRunner().invoke(maglev, ["check", "--strict", str(path), *words])


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "lb1.yaml"
    path.write_text(QUIET)
    return path


def test_a_configuration_may_have_nothing_to_be_warned_of(config: Path) -> None:
    result = strict(config)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "www tcp 192.0.2.1:80" in result.stdout


ROWS = [
    ("table_size: 65537", "table_size: 251", 19, "vips[0].table_size",
     "makes shares of 3 backends differ by 1 %; write 307 or more"),
    ("min_healthy: 1", "min_healthy: 3", 19, "vips[0].min_healthy", "is all 3 backends there are: when one fails"),
    ("      - {name: web2, address: 10.0.4.2}\n      - {name: web3, address: 10.0.5.2}\n", "", 17, "vips[0].pools",
     "lead to one backend with a weight; add another"),
    ("web3, address: 10.0.5.2}", "web3, address: 10.0.5.2, weight: 0}", None, "", ""),
    ("fall: 3", "fall: 1", 10, "health_checks.web.fall", "one lost packet takes a backend out; write 2 or more"),
    ("    health_checks: [web]\n", "", 12, "backend_pools.web", "has no health check, so that a dead"),
    ("    health_checks: [web]\n", "", 10, "health_checks.web", "no pool has this check"),
    ("speaker: exabgp", "speaker: none", 3, "bgp", "without a speaker nobody announces the vips"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "key", "message"), ROWS, ids=[f"{row[1]} {row[3]}" for row in ROWS])
def test_what_is_seldom_wanted_is_told_with_its_line(
    config: Path, old: str, new: str, line: int | None, key: str, message: str
) -> None:
    assert old in QUIET
    config.write_text(QUIET.replace(old, new))
    result = strict(config)
    assert "www" in result.stdout, "it is valid"
    if line is None:
        assert (result.exit_code, result.stderr) == (0, "")
        return
    assert result.exit_code == 1
    assert f"warning: {config}:{line}: {key}: {message}" in result.stderr
    assert CliRunner().invoke(maglev, ["check", str(config)]).exit_code == 0, "without --strict nobody is warned"


def test_warnings_are_in_the_json(config: Path) -> None:
    config.write_text(QUIET.replace("fall: 3", "fall: 1"))
    result = strict(config, "--json")
    assert result.exit_code == 1
    assert '"key": "health_checks.web.fall"' in result.stdout
    assert result.stderr == ""


BESIDE = [
    ("0e0f", "0e10", "node.hash_key", "is not that of"),
    ("name: lb1", "name: lb1", "node.name", "is that of"),
    ("ipv4: 10.0.2.2}, hash", "ipv4: 10.0.2.2}, hash", "node.tunnel_source.ipv4", "is that of"),
    ("name: www", "name: other", "vips[0]", "www is not in"),
    ("name: www", "name: other", "vips", "other of"),
    ("table_size: 65537", "table_size: 131071", "vips[0]", "www is not as in"),
    ("name: web1", "name: web9", "vips[0]", "www is not as in"),
]


@pytest.mark.parametrize(("old", "new", "key", "message"), BESIDE)
def test_nodes_that_would_not_agree_are_told(config: Path, old: str, new: str, key: str, message: str) -> None:
    other = config.with_name("lb2.yaml")
    text = QUIET.replace(old, new)
    if key not in ("node.name", "node.tunnel_source.ipv4"):
        text = text.replace("name: lb1", "name: lb2").replace("10.0.2.2", "10.0.6.2")
    other.write_text(text)
    result = strict(config, "--beside", str(other))
    assert result.exit_code == 1
    assert any(f": {key}: " in line and message in line for line in result.stderr.splitlines()), result.stderr


def test_nodes_that_agree_are_not_warned_of(config: Path) -> None:
    other = config.with_name("lb2.yaml")
    other.write_text(QUIET.replace("name: lb1", "name: lb2").replace("10.0.2.2", "10.0.6.2"))
    result = strict(config, "--beside", str(other))
    assert (result.exit_code, result.stderr) == (0, "")


def test_another_file_needs_strict_and_must_be_right_too(config: Path) -> None:
    result = CliRunner().invoke(maglev, ["check", str(config), "--beside", str(config)])
    assert (result.exit_code, "--beside goes with --strict" in result.stderr) == (2, True)
    broken = config.with_name("broken.yaml")
    broken.write_text("node: 5\n")
    result = strict(config, "--beside", str(broken))
    assert result.exit_code == 2
    assert str(broken) in result.stderr
