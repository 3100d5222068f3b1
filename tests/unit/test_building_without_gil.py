"""What takes long about a table is done without the GIL: other threads, the event loop among them, run meanwhile."""

import threading
import time
from array import array
from collections.abc import Callable

import pytest

from forwarder import _hashing
from forwarder.hashing import slot_table

SIZE = 16777213  # a prime, and the largest there is
LONG = 0.001  # seconds; a thread that has not run for so long was kept from it
TRIES = 5

SLOTS = array("H", bytes(2 * SIZE))


def share_of_another_thread(call: Callable[[], object]) -> float:
    """How much of the time that `call` takes another thread could run."""
    ended = threading.Event()
    ran = 0.0

    def run() -> None:
        nonlocal ran
        last = time.perf_counter()
        while not ended.is_set():
            now = time.perf_counter()
            ran += now - last if now - last < LONG else 0.0
            last = now

    other = threading.Thread(target=run)
    other.start()
    began = time.perf_counter()
    call()
    took = time.perf_counter() - began
    ended.set()
    other.join()
    return ran / took


@pytest.mark.parametrize(
    "call",
    [
        lambda: _hashing.build([b"web1", b"web2"], [1, 2], SIZE),
        lambda: _hashing.populate([0, 1], [1, 1], [1, 1], SIZE),
        lambda: [_hashing.renumber(SLOTS, array("H", [7])) for _ in range(3)],
        lambda: slot_table._table(("web1",), SIZE, SLOTS),
    ],
    ids=["fill", "fill from permutations", "renumber", "digest"],
)
def test_other_threads_run_meanwhile(call: Callable[[], object]) -> None:
    # Holding the GIL would leave them a switch interval at most; a busy machine may do so once, but not every time.
    assert max(share_of_another_thread(call) for _ in range(TRIES)) > 0.3
