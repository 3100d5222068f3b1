from __future__ import annotations

import configparser
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest
from config_text import GOOD

from controller.config import loads
from controller.config_sections import Bgp
from controller.rundir import RunDir
from controller.speakers.exabgp import render_configuration, render_environment


def bgp(*edits: tuple[str, str]) -> Bgp:
    text = GOOD
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return loads(text).bgp


NEIGHBOR = "    - {address: 10.0.2.1, remote_as: 65001, hold_time: 9s, password: null}\n"
IPV6 = "    - {address: \"fd00:2::1\", remote_as: 65002, password: 'a#b&c!'}\n"


@pytest.mark.parametrize(
    "edits",
    [
        [],
        [(NEIGHBOR, NEIGHBOR + IPV6), ("next_hop: {ipv4: 10.0.2.2", 'next_hop: {ipv6: "fd00:2::2", ipv4: 10.0.2.2')],
        [("remote_as: 65001", "remote_as: 4200000000")],
    ],
)
def test_exabgp_finds_its_configuration_valid(run_dir: RunDir, edits: list[tuple[str, str]]) -> None:
    run_dir.exabgp_configuration.write_text(render_configuration(bgp(*edits), run_dir))
    run_dir.exabgp_environment.write_text(render_environment())
    command = (sys.executable, "-m", "exabgp", "--env-file", str(run_dir.exabgp_environment), "validate")
    done = subprocess.run((*command, str(run_dir.exabgp_configuration)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_a_neighbor_is_told(run_dir: RunDir) -> None:
    text = render_configuration(bgp((NEIGHBOR, NEIGHBOR + IPV6)), run_dir)
    first, second = text.split("neighbor ")[1:]
    for line in ("router-id 10.0.2.2;", "local-as 65002;", "peer-as 65001;", "hold-time 9;"):
        assert line in first
    assert "family { ipv4 unicast; }" in first
    assert "graceful-restart disable;" in first
    assert "md5" not in first
    assert second.startswith("fd00:2::1 {")
    assert "a#b&c!" not in text
    assert 'md5-password "YSNiJmMh";\n    md5-base64 true;' in second


def test_the_helper_is_given_socket_and_lease(run_dir: RunDir) -> None:
    text = render_configuration(bgp(("lease: 3s", "lease: 1500ms")), run_dir)
    assert f'lease_helper.py" "{run_dir.lease_socket}" 1.5;' in text


def test_exabgp_writes_nothing_and_stays_who_it_is() -> None:
    settings = configparser.ConfigParser()
    settings.read_string(render_environment())
    assert settings["exabgp.daemon"]["daemonize"] == "false"
    assert settings["exabgp.daemon"]["pid"] == "''"
    assert settings["exabgp.daemon"]["user"] == f"'{pwd.getpwuid(os.geteuid()).pw_name}'"
    assert settings["exabgp.api"]["cli"] == "false"
    assert settings["exabgp.log"]["destination"] == "'stderr'"
    assert settings["exabgp.tcp"]["bind"] == "''"


def test_the_helper_is_a_file_of_ours() -> None:
    text = render_configuration(bgp(), RunDir("lb1", Path("/run/maglev")))
    helper = text.split('"')[3]
    assert Path(helper).name == "lease_helper.py"
    assert Path(helper).exists()
