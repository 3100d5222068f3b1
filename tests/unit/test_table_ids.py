import json
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forwarder.stable_ids import MAX_GENERATION
from forwarder.table_ids import MAX_BACKENDS, MAX_VIPS, BackendKey, TableIds, VipKey

WWW: VipKey = (ip_address("192.0.2.1"), 6, 80)
DNS: VipKey = (ip_address("2001:db8::1"), 17, 0)
WEB1: BackendKey = ("web1", ip_address("10.0.3.2"))
WEB2: BackendKey = ("web2", ip_address("fd00:3::2"))
IDS = TableIds(
    vips={WWW: (0, 1), DNS: (7, 3)},
    backends={WEB1: (5, 4095), WEB2: (0, 1)},
    usable={WWW: {WEB1, WEB2}, DNS: set()},
)


def test_ids_are_the_same_after_they_were_written_down() -> None:
    assert TableIds.from_json(json.loads(json.dumps(IDS.as_json()))) == IDS
    assert TableIds.from_json(TableIds().as_json()) == TableIds()


def test_equal_ids_give_equal_json() -> None:
    again = TableIds(IDS.vips, IDS.backends, {DNS: set(), WWW: {WEB2, WEB1}})
    assert json.dumps(again.as_json()) == json.dumps(IDS.as_json())


addresses = st.ip_addresses()
held = st.tuples(st.integers(0, 50), st.integers(1, MAX_GENERATION))


def distinct(keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[Any, tuple[int, int]]]:
    pairs = st.lists(st.tuples(keys, held), unique_by=(lambda pair: pair[0], lambda pair: pair[1][0]))
    return pairs.map(dict)


@given(
    distinct(st.tuples(addresses, st.sampled_from([6, 17]), st.integers(0, 65535))),
    distinct(st.tuples(st.text(), addresses)),
    st.data(),
)
def test_whatever_they_are(vips: dict[Any, Any], backends: dict[Any, Any], data: st.DataObject) -> None:
    some = st.frozensets(st.sampled_from(sorted(backends, key=str))) if backends else st.just(frozenset())
    ids = TableIds(vips, backends, {vip: data.draw(some) for vip in vips})
    assert TableIds.from_json(json.loads(json.dumps(ids.as_json()))) == ids


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        {},
        {"vips": [["192.0.2.1", 6, 80, 0, 1]]},
        {"vips": [["192.0.2", 6, 80, 0, 1]]},
        {"vips": [["192.0.2.1", 6, 80, 0]]},
        {"vips": [["192.0.2.1", 6, 80, MAX_VIPS, 1]]},
        {"vips": [["192.0.2.1", 6, 80, -1, 1]]},
        {"vips": [["192.0.2.1", 6, 80, 0, 0]]},
        {"vips": [["192.0.2.1", 6, 80, 0, 1], ["192.0.2.2", 6, 80, 0, 1]]},
        {"backends": [["web1", "10.0.3.2", MAX_BACKENDS, 1]]},
        {"backends": [["web1", "10.0.3.2", 0, MAX_GENERATION + 1]]},
        {"backends": [["web1", "10.0.3.2", 0, 1], ["web1", "10.0.3.3", 0, 2]]},
        {"backends": [["web1", None, 0, 1]]},
        {"usable": [[1, []]]},
        {"usable": [[0, [9]]]},
        {"usable": 3},
    ],
)
def test_anything_else_is_refused(wrong: Any) -> None:
    good = TableIds({WWW: (0, 1)}, {WEB1: (3, 1)}, {WWW: {WEB1}}).as_json()
    document = good | wrong if isinstance(wrong, dict) and wrong else wrong
    if wrong == {"vips": [["192.0.2.1", 6, 80, 0, 1]]}:
        assert TableIds.from_json(document).vips == {WWW: (0, 1)}  # the rows below differ from this in one thing each
        return
    with pytest.raises((ValueError, TypeError, KeyError)):
        TableIds.from_json(document)
