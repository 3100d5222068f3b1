"""libFuzzer on the control messages, by atheris. Takes libFuzzer's arguments, like the targets in C."""

import sys

import atheris

with atheris.instrument_imports(include=["forwarder"]):
    import control_messages


def change(data: bytes, limit: int, seed: int) -> bytes:
    """Half of the time by what the messages mean, else by bytes."""
    changed = control_messages.mutate(data, seed) if seed % 2 else None
    if changed is None or len(changed) > limit:
        changed = atheris.Mutate(data, limit)
    return changed


if __name__ == "__main__":
    atheris.Setup(sys.argv, control_messages.run, custom_mutator=change)
    atheris.Fuzz()
