# The node: `maglev` with all it needs and no compiler. docker/Dockerfile has the hosts around it; docs/docker.md.
# BASE is any image of Debian 12; docker/base-image.sh makes one where no registry can be reached.
ARG BASE=debian:12

FROM ${BASE} AS build
LABEL maglev.stage=build
ENV DEBIAN_FRONTEND=noninteractive \
    PIP_CERT=/etc/ssl/certs/ca-certificates.crt \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore
RUN apt-get update -q \
    && apt-get install -y -q --no-install-recommends \
        build-essential ca-certificates gcc-bpf libdpdk-dev libpcap-dev pkg-config python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
# What we depend on comes first, so that an edit of the source does not fetch it again.
COPY pyproject.toml ./
RUN python3 -m venv /opt/build \
    && python3 -m venv --without-pip /opt/maglev \
    && python3 -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' \
        > /tmp/requirements.txt \
    && /opt/build/bin/pip install -q "setuptools>=77" wheel "cython>=3.0" \
    && /opt/build/bin/pip install -q --upgrade pip \
    && /opt/build/bin/pip --python /opt/maglev/bin/python install -q -r /tmp/requirements.txt
COPY . ./
RUN /opt/build/bin/pip wheel -q --no-deps --no-build-isolation --wheel-dir /tmp/wheels . \
    && /opt/build/bin/pip --python /opt/maglev/bin/python install -q --no-deps /tmp/wheels/*.whl

FROM ${BASE}
ENV DEBIAN_FRONTEND=noninteractive \
    PATH=/opt/maglev/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONUNBUFFERED=1
# The libraries and drivers of DPDK that the forwarder loads; iproute2, ethtool and socat are for docker/node.sh.
RUN apt-get update -q \
    && apt-get install -y -q --no-install-recommends \
        ca-certificates ethtool iproute2 libpcap0.8 \
        librte-eal23 librte-ethdev23 librte-hash23 librte-ip-frag23 librte-mbuf23 librte-mempool23 librte-net23 \
        librte-rcu23 librte-ring23 librte-mempool-ring23 librte-net-af-packet23 librte-net-af-xdp23 \
        librte-net-null23 librte-net-pcap23 python3 socat \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --create-home --home-dir /var/lib/maglev maglev
COPY --from=build /opt/maglev /opt/maglev
COPY docker/node.sh /usr/local/bin/node.sh
# Enough to check, plan, explain and replay. A port on a kernel interface needs root: `run` is started with
# `--user root` and two capabilities, see docker-compose.yml.
USER maglev
WORKDIR /var/lib/maglev
ENTRYPOINT ["node.sh"]
CMD ["--help"]
