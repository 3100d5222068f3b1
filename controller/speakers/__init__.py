"""BGP speakers: what announces and withdraws addresses, behind one small interface."""

from __future__ import annotations

from controller.config_sections import Bgp
from controller.process import adopt
from controller.rundir import RunDir
from controller.speakers import bird, exabgp
from controller.speakers.bird import BirdSpeaker
from controller.speakers.exabgp import ExabgpSpeaker
from controller.speakers.none import NoSpeaker
from controller.speakers.speaker import Speaker


def make_speaker(bgp: Bgp, run_dir: RunDir) -> Speaker:
    """The speaker that the configuration asks for."""
    if bgp.speaker == "bird":
        return BirdSpeaker(bgp, run_dir)
    return NoSpeaker() if bgp.speaker == "none" else ExabgpSpeaker(bgp, run_dir)


async def end_others(kind: str, run_dir: RunDir) -> None:
    """End what an earlier controller, with another speaker in its configuration, has left."""
    unused = {"none": (exabgp.program, bird.program), "exabgp": (bird.program,)}.get(kind, ())
    for program in unused:
        if left := adopt(program(run_dir)):
            await left.stop(exabgp.STOP_GRACE)
