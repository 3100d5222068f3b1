"""`make hashing` as a whole: its table, its file and its pictures, from figures that are computed once."""

import json
from pathlib import Path

import pytest

from hashlab import figures, report

PICTURES = (
    *("one-node-more", "ring", "points", "provisioning", "failures", "ten-nodes-more", "overview"),
    *("balance", "disruption"),
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few ids and few seeds: how figures are made and drawn, not what they are."""
    monkeypatch.setattr("hashlab.articles.swift.IDS", 100_000)
    monkeypatch.setattr("hashlab.articles.swift.POWER", 12)
    monkeypatch.setattr("hashlab.articles.swift.RING_NODES", 100)
    monkeypatch.setattr("hashlab.articles.game_servers.IDS", 50_000)
    monkeypatch.setattr("hashlab.articles.game_servers.NEW_IDS", 10_000)
    monkeypatch.setattr("hashlab.articles.maglev_paper.SEEDS", 1)
    monkeypatch.setattr(figures, "KEYS_COMPARED", 10_000)
    monkeypatch.setattr(figures, "SHUFFLED_BACKENDS", 6)


@pytest.mark.usefixtures("small")
def test_a_report_has_every_figure_and_every_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["report", "--out", str(tmp_path)])
    assert report.main() == 0
    said = capsys.readouterr().out
    written = json.loads((tmp_path / "figures.json").read_text())
    assert len(written["figures"]) >= 20
    for line in written["figures"]:
        assert line["figure"] in said
    assert {path.name for path in tmp_path.iterdir()} == {
        "figures.json",
        *(f"{name}.{kind}" for name in PICTURES for kind in ("png", "svg")),
    }
