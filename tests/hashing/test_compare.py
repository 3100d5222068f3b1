"""`maglev hashing compare`, as a user runs it."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from controller.cli import maglev
from forwarder.hashing.schemes import SCHEMES

NEEDED_AT_MOST = {"vnode", "partition", "sticky", "ring", "ketama", "rendezvous", "gateway"}
"""Schemes under which nothing moves but what must."""


def compare(*words: str) -> Result:
    return CliRunner().invoke(maglev, ["hashing", "compare", *words])


def compared(*words: str) -> dict[str, dict[str, Any]]:
    result = compare("--json", *words)
    assert result.exit_code == 0, result.output
    return {row["scheme"]: row for row in json.loads(result.stdout)["schemes"]}


def test_every_scheme_is_compared_by_default_but_the_slow_one() -> None:
    found = compared("--nodes", "20", "--keys", "20000")
    assert list(found) == [name for name in SCHEMES if name != "shuffle"]
    for row in found.values():
        assert row["balance"]["smallest"] <= 1 <= row["balance"]["largest"]
        assert row["cost"]["memory"] > 0
        assert list(row["disruption"]) == ["add:1", "remove:1", "remove:5"]


def test_disruption_is_told_apart_into_what_must_be_and_what_is_besides() -> None:
    found = compared("--nodes", "50", "--keys", "100000")
    for name, row in found.items():
        removed = row["disruption"]["remove:5"]
        assert removed["needed"] == pytest.approx(0.1, abs=0.07), name
        if name in NEEDED_AT_MOST:
            assert removed["extra"] == 0, name
    assert found["modulo"]["disruption"]["add:1"]["extra"] > 0.9
    assert found["jump"]["disruption"]["add:1"]["extra"] == 0
    assert 0 < found["maglev"]["disruption"]["remove:1"]["extra"] < 0.02


def test_loads_are_told_by_weight() -> None:
    row = compared("maglev", "--nodes", "a,b,c", "--weights", "1,2,5", "--keys", "200000")["maglev"]
    assert row["balance"]["largest"] < 1.02
    assert row["balance"]["smallest"] > 0.98


def test_a_scheme_s_options_and_changes_are_words() -> None:
    found = compared("ring:points=1", "ring:points=500", "--keys", "100000", "--change", "resize:50")
    assert found["ring:points=500"]["balance"]["largest"] < 1.3 < found["ring:points=1"]["balance"]["largest"]
    assert found["ring:points=500"]["disruption"]["resize:50"]["needed"] == pytest.approx(0.5, abs=0.05)


def test_the_same_words_give_the_same_figures() -> None:
    one, other = (compared("maglev", "ketama", "--keys", "10000", "--seed", "3") for _ in range(2))
    for name in one:
        assert one[name]["balance"] == other[name]["balance"]
        assert one[name]["disruption"] == other[name]["disruption"]


def test_a_person_gets_a_table() -> None:
    result = compare("maglev", "modulo", "--nodes", "10", "--keys", "1000", "--change", "add:2")
    assert result.exit_code == 0
    assert "add:2, % + extra" in result.stdout
    assert "1000 keys over 10 nodes" in result.stdout


def test_pictures_are_drawn_as_png_and_svg(tmp_path: Path) -> None:
    result = compare("maglev", "ring", "--keys", "5000", "--pictures", str(tmp_path / "drawn"))
    assert result.exit_code == 0, result.output
    names = sorted(path.name for path in (tmp_path / "drawn").iterdir())
    assert names == ["balance.png", "balance.svg", "disruption.png", "disruption.svg"]
    assert (tmp_path / "drawn" / "balance.png").read_bytes().startswith(b"\x89PNG")
    assert "modulo" not in (tmp_path / "drawn" / "balance.svg").read_text()
    assert "maglev" in (tmp_path / "drawn" / "balance.svg").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["consistent"], "there is no scheme consistent; write one of maglev, rendezvous"),
        (["ring:weight=2"], "ring has no option weight=2; write points=NUMBER"),
        (["jump:size=2"], "jump has no option size=2; it has none"),
        (["ring:points=many"], "points is a number, not many"),
        (["ring:points=0"], "0 points for a backend; write at least 1"),
        (["maglev:size=65536"], "table size 65536 is not a prime"),
        (["bounded:bound=0.9"], "a bound of 0.9 leaves keys without a backend"),
        (["vnode:vnodes=10"], "10 virtual nodes for 100 backends"),
        (["partition:replicas=101"], "101 replicas for 100 backends"),
        (["--nodes", "0"], "write a number from 1 to 65536, or different names"),
        (["--nodes", "a,a"], "write a number from 1 to 65536, or different names"),
        (["--weights", "1,0"], "write numbers from 1 to 999999"),
        (["--weights", ""], "write numbers from 1 to 999999"),
        (["--change", "-1"], "write add:K, remove:K or resize:N"),
        (["--change", "add:0"], "write add:K, remove:K or resize:N"),
        (["--nodes", "3", "--change", "remove:3"], "there are only 3 nodes, and one must stay"),
        (["--keys", "0"], "0 is not in the range"),
        (["--keys", "many"], "is not a valid integer"),
    ],
)
def test_wrong_words_are_refused_and_say_what_to_write(words: list[str], said: str) -> None:
    result = compare("--keys", "1000", *words)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""


def test_one_node_can_be_compared() -> None:
    assert compared("maglev", "--nodes", "1", "--keys", "10")["maglev"]["balance"]["largest"] == 1
