import json
from dataclasses import asdict, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from forwarder import table_header
from forwarder.table_header import CRASH_SECONDS, Header, HeaderDamaged, Identity, boot_id, key_fingerprint, parse
from forwarder.table_ids import TableIds

IDENTITY = Identity(
    layout=1,
    boot="7a96e895",
    key="423f6e87",
    seed=7,
    workers=1,
    entries=1024,
    directory="/dev/shm/maglev-lb1-0",
)
IDS = TableIds(
    {(ip_address("192.0.2.1"), 6, 80): (0, 1)},
    {("web1", ip_address("10.0.3.2")): (3, 2)},
    {(ip_address("192.0.2.1"), 6, 80): {("web1", ip_address("10.0.3.2"))}},
)
HEADER = Header(IDENTITY, IDS, (12.5, 99.0), ended=False)


def test_a_header_is_the_same_after_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "tables.json"
    assert table_header.read(path) is None
    for header in (HEADER, Header(IDENTITY)):
        table_header.write(path, header.text())
        assert table_header.read(path) == header
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"layout": 2}, "the layout of connection tables changed from 1 to 2"),
        ({"boot": "other"}, "the machine was booted since"),
        ({"key": "other"}, "the hash key changed"),
        ({"seed": 8}, "flows are spread over the workers in another way"),
        ({"workers": 2}, "the number of workers changed from 1 to 2"),
        ({"entries": 2048}, "the entries per worker changed from 1024 to 2048"),
        ({"directory": "/mnt/x"}, "their memory moved from /dev/shm/maglev-lb1-0 to /mnt/x"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_every_difference_has_its_words(change: dict[str, Any], words: str) -> None:
    assert IDENTITY.difference(replace(IDENTITY, **change)) == words


def test_every_part_of_the_identity_is_compared() -> None:
    assert IDENTITY.difference(replace(IDENTITY)) is None
    for name in asdict(IDENTITY):
        assert IDENTITY.difference(replace(IDENTITY, **{name: "x"})), name


def test_the_key_stands_nowhere() -> None:
    key = bytes(range(16))
    assert key.hex() not in key_fingerprint(key)
    assert key_fingerprint(key) == key_fingerprint(bytes(key)) != key_fingerprint(bytes(16))


def test_the_boot_id_is_the_kernels() -> None:
    assert boot_id() == boot_id()
    assert len(boot_id()) == 36


def test_one_that_nobody_ended_is_a_crash() -> None:
    assert replace(HEADER, crashes=()).found(50.0).crashes == (50.0,)
    assert replace(HEADER, crashes=(), ended=True).found(50.0).crashes == ()
    assert HEADER.found(99.5).crashes == (99.0, 99.5) != HEADER.found(70.0).crashes
    assert HEADER.found(99.5).ended
    assert HEADER.found(99.0 + CRASH_SECONDS).crashes == (99.0 + CRASH_SECONDS,), "older ones are forgotten"


GOOD = json.loads(HEADER.text())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        "7",
        "\x00" * 100,
        "[" * 100000,
        HEADER.text()[:-1],
        HEADER.text()[: len(HEADER.text()) // 2],
        *(json.dumps({k: v for k, v in GOOD.items() if k != key}) for key in GOOD),
        *(json.dumps(GOOD | {key: None}) for key in ("identity", "crashes", "ids")),
        json.dumps(GOOD | {"identity": {"layout": 1}}),
        json.dumps(GOOD | {"crashes": ["yesterday"]}),
    ],
)
def test_what_is_no_header_is_told(tmp_path: Path, text: str) -> None:
    with pytest.raises(HeaderDamaged, match="cannot be read"):
        parse(text)
    path = tmp_path / "tables.json"
    path.write_text(text)
    with pytest.raises(HeaderDamaged, match="cannot be read"):
        table_header.read(path)


def test_bytes_that_are_no_text_and_a_directory_are_told(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "binary", tmp_path):
        with pytest.raises(HeaderDamaged, match="cannot be read"):
            table_header.read(path)


def test_another_version_is_told() -> None:
    with pytest.raises(HeaderDamaged, match="another version"):
        parse(json.dumps(GOOD | {"version": 2}))


def test_a_header_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "tables.json"
    table_header.write(path, HEADER.text())
    (tmp_path / ".tables.json.new").mkdir()
    with pytest.raises(OSError, match="directory"):
        table_header.write(path, Header(IDENTITY).text())
    assert table_header.read(path) == HEADER
