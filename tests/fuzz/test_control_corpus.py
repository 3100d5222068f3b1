"""The control target over its corpus, and over changes of it that are always the same: no fuzzer is needed."""

from pathlib import Path

import pytest
from control_messages import mutate, run

CORPUS = sorted((Path(__file__).parent / "corpus" / "control").iterdir())
CHANGES = 500


@pytest.mark.parametrize("path", CORPUS, ids=[path.name for path in CORPUS])
def test_whatever_is_changed_in_a_message_it_is_answered_or_refused(path: Path) -> None:
    data = path.read_bytes()
    run(data)
    for seed in range(CHANGES):
        changed = mutate(data, seed)
        if changed is not None:
            run(changed)
