"""Builds the extensions: forwarder._hashing (plain C), ._capture (libpcap) and ._dataplane (C on DPDK).

And the program that the kernel runs for a port under af_xdp.
"""

import os
import shlex
import subprocess
import sys

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]
# Cython's own output is not ours to mend: its warnings are not errors.
CYTHON_WARNINGS = ["-Wno-error=unused-function", "-Wno-error=cast-function-type", "-Wno-error=sign-compare"]
SANITIZE = (
    ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
    if os.environ.get("MAGLEV_SANITIZE")
    else []
)
COMMON = ["-std=gnu11", "-O3", "-g", *WARNINGS, *CYTHON_WARNINGS, *SANITIZE]

MAGLEV_SOURCES = ["csrc/maglev.c", "csrc/quotas.c", "csrc/seek.c", "csrc/turns.c"]
DATAPLANE_SOURCES = [
    "answer.c",
    "checksum.c",
    "choose.c",
    "churn.c",
    "classify.c",
    "conn_table.c",
    "counters.c",
    "dataplane.c",
    "decide.c",
    "encap.c",
    "fragment.c",
    "handles.c",
    "icmp.c",
    "kernel_side.c",
    "lane.c",
    "learn.c",
    "load_bound.c",
    "loop.c",
    "match.c",
    "muxing.c",
    "packet_pool.c",
    "parse.c",
    "path_mtu.c",
    "pieces.c",
    "plain.c",
    "port.c",
    "punt.c",
    "road.c",
    "rss.c",
    "state.c",
    "stats.c",
    "steering.c",
    "take_over.c",
    "trace.c",
    "umem.c",
    "vip_table.c",
    "weigh.c",
    "worker.c",
    "wrap.c",
]

BENCH_SOURCES = ["bench.c", "floor.c", "generator.c", "node.c", "rig.c", "source.c"]


XDP_SOURCE, XDP_PROGRAM = "csrc/xdp/ours.bpf.c", "forwarder/xdp_ours.o"
XDP_FLAGS = ["-std=gnu11", "-O2", "-gbtf", "-fno-ident", "-Wall", "-Wextra", "-Werror"]


class BuildWithXdp(build_ext):
    """Compiles the XDP program too, to stand beside the extensions."""

    def run(self) -> None:
        """Build everything."""
        super().run()
        if os.environ.get("MAGLEV_WITHOUT_DPDK"):
            return
        target = XDP_PROGRAM if self.inplace else os.path.join(self.build_lib, XDP_PROGRAM)
        if not os.path.exists(target) or os.path.getmtime(target) < os.path.getmtime(XDP_SOURCE):
            compile_xdp(os.path.join(self.build_temp, "xdp_ours.o"), target)


def compile_xdp(raw: str, target: str) -> None:
    """Exits with the name of the Debian package when there is no compiler for it."""
    for path in (raw, target):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        subprocess.run(["bpf-gcc", *XDP_FLAGS, "-c", XDP_SOURCE, "-o", raw], check=True)
        # Of no use to the kernel, and libbpf would complain of what GCC leaves in them.
        subprocess.run(["bpf-objcopy", "-R", ".data", "-R", ".bss", "-R", ".BTF.ext", raw, target], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"{XDP_SOURCE} could not be compiled ({error}): `apt-get install gcc-bpf` brings the compiler.")


def pkg_config(option: str) -> list[str]:
    """Flags for libdpdk; exits with the name of the Debian package when it is missing."""
    try:
        answer = subprocess.run(["pkg-config", option, "libdpdk"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        sys.exit(
            "libdpdk was not found by pkg-config: install it with `apt-get install libdpdk-dev pkg-config` "
            "(Debian 12 has DPDK 22.11), or build only the hashing part with MAGLEV_WITHOUT_DPDK=1."
        )
    return shlex.split(answer.stdout)


def extensions() -> list[Extension]:
    hashing = Extension(
        "forwarder._hashing",
        ["forwarder/_hashing.pyx", *MAGLEV_SOURCES, "csrc/place.c"],
        include_dirs=["csrc"],
        depends=[f"csrc/{name}.h" for name in ("maglev", "quotas", "seek", "turns", "place", "flow", "siphash")],
        extra_compile_args=[*COMMON, "-ffp-contract=off"],  # all CPUs are to find the same
        extra_link_args=SANITIZE,
    )
    if os.environ.get("MAGLEV_WITHOUT_DPDK"):
        return [hashing]
    capture = Extension(
        "forwarder._capture",
        ["forwarder/_capture.pyx", "csrc/capture.c"],
        include_dirs=["csrc"],
        depends=["csrc/capture.h"],
        libraries=["pcap"],
        extra_compile_args=COMMON,
        extra_link_args=SANITIZE,
    )
    headers = sorted(os.path.join("csrc", name) for name in os.listdir("csrc") if name.endswith(".h"))
    binding = sorted(
        os.path.join("forwarder/binding", name) for name in os.listdir("forwarder/binding") if name.endswith(".pxi")
    )
    dataplane = Extension(
        "forwarder._dataplane",
        ["forwarder/_dataplane.pyx", *(os.path.join("csrc", name) for name in DATAPLANE_SOURCES)],
        include_dirs=["csrc"],
        depends=[*headers, "forwarder/dataplane.pxd", *binding],
        extra_compile_args=[*pkg_config("--cflags"), *COMMON],
        extra_link_args=[*pkg_config("--libs"), *SANITIZE],
    )
    if not os.environ.get("MAGLEV_PERF"):
        return [hashing, capture, dataplane]
    # The packet path once more, in one piece with what drives it.
    bench = Extension(
        "perf._bench",
        [
            "perf/_bench.pyx",
            *(f"perf/csrc/{name}" for name in BENCH_SOURCES),
            *MAGLEV_SOURCES,
            *(f"csrc/{name}" for name in DATAPLANE_SOURCES),
        ],
        include_dirs=["csrc", "perf/csrc"],
        depends=[*headers, *(f"perf/csrc/{name}" for name in os.listdir("perf/csrc") if name.endswith(".h"))],
        extra_compile_args=[*pkg_config("--cflags"), *COMMON],
        extra_link_args=[*pkg_config("--libs"), *SANITIZE],
    )
    reference = Extension(
        "perf._reference",
        ["perf/_reference.pyx", *MAGLEV_SOURCES],
        include_dirs=["csrc", "perf/csrc"],
        depends=[*headers, "perf/csrc/reference_maglev.h"],
        extra_compile_args=COMMON,
        extra_link_args=SANITIZE,
    )
    return [hashing, capture, dataplane, bench, reference]


setup(ext_modules=cythonize(extensions(), language_level=3), cmdclass={"build_ext": BuildWithXdp})
