# Two commands: `make demo` and `make test`. Each installs and builds what it needs, once.
# Debian 12; packages are installed when this runs as root, else the command to run is said.

PYTHON ?= /usr/bin/python3
VENV := .venv
PREFIX ?= /opt/maglev
BIN := $(VENV)/bin
STAMPS := build/stamps
CTESTS := $(patsubst tests/csrc/%.c,%,$(wildcard tests/csrc/test_*.c))
PURE := parse plain checksum vip_table conn_table churn load_bound maglev quotas turns seek place encap icmp fragment \
        path_mtu
PRODUCT := setup.py pyproject.toml $(wildcard csrc/*.[ch] forwarder/*.pyx forwarder/*.pxd forwarder/binding/*.pxi packaging/*/* \
           $(foreach part,forwarder controller lab,$(part)/*.py $(part)/*/*.py))
FUZZ := $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_SECONDS ?= 60
C_FILES := $(wildcard csrc/*.c csrc/*.h tests/csrc/*.c tests/csrc/*.h tests/fuzz/*.c tests/fuzz/*.h) \
           perf/csrc/reference_maglev.h
CHECK_FLAGS := -std=gnu11 -g -ffp-contract=off -Wall -Wextra -Werror -Icsrc -Itests/csrc
SANITIZE := -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
# How a Python process comes to the sanitized extensions; without PYTHONSAFEPATH -m would find those of the tree.
SANITIZED := $(CURDIR)/build/sanitized/lib
SANITIZED_ENV = LD_PRELOAD=$(shell $(CC) -print-file-name=libasan.so) PYTHONSAFEPATH=1 PYTHONPATH=$(SANITIZED) \
                ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1:abort_on_error=1

APT := build-essential gcc-bpf pkg-config libdpdk-dev librte-mempool-ring23 libpcap-dev libcmocka-dev python3-dev \
       python3-venv bird2 iproute2 ethtool procps
FUZZ_APT := clang libclang-rt-dev
DOCS_APT := curl tcpdump
PCI_APT := qemu-system-x86 debootstrap e2fsprogs

.PHONY: help setup build demo install test lint test-c test-unit test-hashing test-packets test-sanitized test-lab \
        test-install test-docs coverage fuzz corpus sanitized debug clean hashing bench bench-instructions bench-node \
        bench-latency bench-zeroloss bench-ports bench-scale bench-tables bench-control bench-health bench-pytest \
        bench-all compose-test test-pci
.DELETE_ON_ERROR:

help: ## what there is to make
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

demo: build ## the whole load balancer in network namespaces: real TCP, failures, figures
	@$(BIN)/maglev lab run

test: lint test-c test-unit test-hashing test-packets test-sanitized test-lab ## everything that can be checked

lint: build ## ruff, mypy --strict, compiler warnings as errors
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test-c: $(STAMPS)/apt ## the pure C files by themselves, plain and with ASan and UBSan, and the fuzz corpus
	@$(MAKE) -s $(CTESTS:%=build/ctest/plain/%) $(CTESTS:%=build/ctest/sanitized/%) \
		$(FUZZ:%=build/ctest/corpus/%)
	@for kind in plain sanitized; do for t in $(CTESTS); do \
		log=build/ctest/$$kind/$$t.log; build/ctest/$$kind/$$t > $$log 2>&1 || { cat $$log; exit 1; }; \
		echo "$$kind $$t: $$(grep -c 'OK ]' $$log) tests passed"; done; done
	@for t in $(FUZZ); do log=build/ctest/corpus/$$t.log; \
		build/ctest/corpus/$$t tests/fuzz/corpus/$$t/* > $$log 2>&1 || { cat $$log; exit 1; }; \
		echo "corpus $$t: $$(tail -n 1 $$log) passed"; done

build/ctest/plain/%: tests/csrc/%.c $(C_FILES)
	@mkdir -p $(@D)
	@$(CC) $(CHECK_FLAGS) -O3 -march=corei7 -o $@ $< $(PURE:%=csrc/%.c) -lcmocka

build/ctest/sanitized/%: tests/csrc/%.c $(C_FILES)
	@mkdir -p $(@D)
	@$(CC) $(CHECK_FLAGS) $(SANITIZE) -o $@ $< $(PURE:%=csrc/%.c) -lcmocka

build/ctest/corpus/%: tests/fuzz/fuzz_%.c $(C_FILES)
	@mkdir -p $(@D)
	@$(CC) $(CHECK_FLAGS) $(SANITIZE) -o $@ $< tests/fuzz/replay.c $(PURE:%=csrc/%.c)

test-unit: build $(STAMPS)/promtool ## Python units, and control messages of the fuzz corpus
	$(BIN)/pytest -q tests/unit tests/fuzz

test-hashing: build ## what articles say of hashing schemes, and the comparison of schemes
	$(BIN)/pytest -q tests/hashing

test-packets: build ## packet tables through the real stages, in memory
	$(BIN)/pytest -q tests/packets

test-sanitized: sanitized ## packet tables, hashes and schemes with ASan and UBSan, buffers poisoned around the packets
	@$(SANITIZED_ENV) MAGLEV_SANITIZE=1 $(BIN)/pytest -q --capture=sys -o pythonpath=$(SANITIZED) tests/packets \
		tests/unit/test_hashing.py tests/unit/test_schemes.py 2> build/sanitized/stderr || { cat build/sanitized/stderr; exit 1; }

test-lab: build $(STAMPS)/promtool ## speaker, forwarder and whole laboratory in network namespaces (root)
	$(BIN)/pytest -q tests/lab

compose-test: $(STAMPS)/docker ## docker-compose.yml with a real Docker engine (root, minutes; not part of `make test`)
	$(BIN)/pytest -q -s tests/compose

# The image is made once; `make clean` takes it away. The product goes into it anew when a file of it has changed.
test-pci: build $(STAMPS)/pci-product build/pci/disk.ext4 ## NICs on PCI, in an emulated machine (root, minutes; not part of `make test`)
	$(BIN)/pytest -q -s -x tests/pci

build/pci/disk.ext4: tests/pci/image.sh | $(STAMPS)/pci
	tests/pci/image.sh $(@D)

$(STAMPS)/pci-product: $(STAMPS)/pci tests/pci/product.sh $(PRODUCT)
	tests/pci/product.sh build/pci/product
	@touch $@

coverage: $(STAMPS)/python ## branches of the pure C files that the C tests and the fuzz corpus take; fails below 90 %
	@$(MAKE) -s $(CTESTS:%=build/coverage/%) $(FUZZ:%=build/coverage/fuzz_%)
	@rm -f build/coverage/*.gcda
	@for t in $(CTESTS); do build/coverage/$$t > build/coverage/$$t.log 2>&1 || exit 1; done
	@for t in $(FUZZ); do \
		build/coverage/fuzz_$$t tests/fuzz/corpus/$$t/* > build/coverage/fuzz_$$t.log 2>&1 || exit 1; done
	@$(BIN)/gcovr --root . --filter csrc/ --csv build/coverage/table.csv build/coverage
	@awk -F, -f tests/csrc/coverage.awk build/coverage/table.csv

build/coverage/fuzz_%: tests/fuzz/fuzz_%.c $(C_FILES)
	@mkdir -p $(@D)
	@$(CC) $(CHECK_FLAGS) -O0 --coverage -o $@ $< tests/fuzz/replay.c $(PURE:%=csrc/%.c)

build/coverage/%: tests/csrc/%.c $(C_FILES)
	@mkdir -p $(@D)
	@$(CC) $(CHECK_FLAGS) -O0 --coverage -o $@ $< $(PURE:%=csrc/%.c) -lcmocka

fuzz: build $(STAMPS)/fuzz ## libFuzzer on packets, tables and control messages, FUZZ_SECONDS (60) each
	@$(MAKE) -s $(FUZZ:%=build/fuzz/bin/%)
	@$(BIN)/python tests/fuzz/run.py $(FUZZ_SECONDS) $(FUZZ) control

build/fuzz/bin/%: tests/fuzz/fuzz_%.c $(C_FILES)
	@mkdir -p $(@D)
	@clang $(CHECK_FLAGS) $(SANITIZE) -fsanitize=fuzzer -o $@ $< $(PURE:%=csrc/%.c)

bench: $(STAMPS)/bench ## nanoseconds per packet of a worker, beside the memory floor; perf/README.md has the others
	@$(BIN)/python -m perf.worker $(BENCH_ARGS)

bench-tables: $(STAMPS)/bench ## milliseconds to build a Maglev table, beside the straightforward loop
	@$(BIN)/python -m perf.tables $(BENCH_ARGS)

bench-instructions: $(STAMPS)/bench ## instructions per packet of a worker, and of a node's stages, by callgrind
	@$(BIN)/python -m perf.worker --instructions $(BENCH_ARGS)
	@$(BIN)/python -m perf.node --instructions $(BENCH_ARGS)

bench-node: $(STAMPS)/bench ## whole nodes beside the same ports with packets only passed through
	@$(BIN)/python -m perf.node $(BENCH_ARGS)

bench-latency: $(STAMPS)/bench ## delay through a node, idle and at 10 to 100 % of its zero-loss rate
	@$(BIN)/python -m perf.latency $(BENCH_ARGS)

bench-zeroloss: $(STAMPS)/bench ## the highest rate without loss, per frame size (RFC 2544)
	@$(BIN)/python -m perf.zeroloss $(BENCH_ARGS)

bench-ports: $(STAMPS)/bench ## a node on a veth under af_packet and under af_xdp, beside each other (root)
	@$(BIN)/python -m perf.ports $(BENCH_ARGS)

bench-scale: $(STAMPS)/bench ## cost of a packet against flows, vips, backends, workers, new flows
	@$(BIN)/python -m perf.scale $(BENCH_ARGS)

bench-control: build ## a thousand vips and ten thousand backends, from the file to the forwarder
	@$(BIN)/python -m perf.control $(BENCH_ARGS)

bench-health: build ## thousands of health checks from one process: on time, CPU, open files
	@$(BIN)/python -m perf.health $(BENCH_ARGS)

bench-pytest: $(STAMPS)/bench ## the worker under pytest-benchmark, with its tables and comparisons
	@mkdir -p build/bench
	@$(BIN)/pytest -q perf/test_worker_benchmark.py --benchmark-json=build/bench/pytest.json $(BENCH_ARGS)

bench-all: bench bench-instructions bench-node bench-latency bench-zeroloss bench-ports bench-scale bench-tables bench-control \
           bench-health bench-pytest ## all of them

$(STAMPS)/bench: $(STAMPS)/build $(wildcard perf/*.pyx perf/*.h perf/csrc/*.c perf/csrc/*.h)
	MAGLEV_PERF=1 $(BIN)/python setup.py -q build_ext --inplace
	@touch $@

install: $(STAMPS)/apt ## into a virtual environment of its own, PREFIX (/opt/maglev), with docs, configs and units
	$(PYTHON) -m venv $(PREFIX)
	$(PREFIX)/bin/pip install -qq --upgrade pip
	$(PREFIX)/bin/pip install -qq .
	@rm -rf $(PREFIX)/share/maglev && mkdir -p $(PREFIX)/share/maglev
	@cp -r configs docs packaging $(PREFIX)/share/maglev/
	@echo "$(PREFIX)/bin/maglev is installed; go on in $(PREFIX)/share/maglev/docs/install.md"

test-install: $(STAMPS)/apt ## `make install` into build/install, used from elsewhere, its unit under a systemd (2 minutes)
	@packaging/test-install

test-docs: build $(STAMPS)/docs ## the commands of docs/install.md and others, typed on network namespaces (root)
	@$(BIN)/python tests/docs/walk.py

hashing: test-hashing ## the hashing laboratory: every figure of docs/hashing.md, tested, computed and drawn
	@$(BIN)/python -m hashlab.report $(HASHING_ARGS)

corpus: build ## what the fuzz targets start from, written anew
	PYTHONPATH=tests:tests/unit $(BIN)/python tests/fuzz/make_corpus.py

debug: sanitized ## the extensions with ASan and UBSan, and how to run with them
	@echo 'With ASan and UBSan, for instance:'
	@echo '$(SANITIZED_ENV) $(CURDIR)/$(BIN)/python -m forwarder.replay IN.pcap OUT.pcap'

sanitized: build # looks at every file itself, and builds what is older
	@MAGLEV_SANITIZE=1 $(BIN)/python setup.py -q build --build-base build/sanitized --build-lib $(SANITIZED)

setup: $(STAMPS)/python ## packages of Debian and of Python, once

build: $(STAMPS)/build ## the extensions, in place

define install-packages
	@mkdir -p $(@D)
	@missing=$$(for p in $(1); do dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || echo $$p; done); \
	if [ -n "$$missing" ]; then \
		if [ "$$(id -u)" != 0 ]; then \
			echo "These Debian packages are missing; as root: apt-get install" $$missing >&2; exit 1; fi; \
		apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $$missing; \
	fi
endef

$(STAMPS)/apt: Makefile
	$(call install-packages,$(APT))
	@touch $@

# Of Prometheus only the program that judges metrics; nothing is installed.
$(STAMPS)/promtool: $(STAMPS)/apt
	@mkdir -p build/promtool
	cd build/promtool && apt-get download -qq prometheus && dpkg-deb --fsys-tarfile prometheus_*.deb | \
		tar -x ./usr/bin/promtool && rm prometheus_*.deb
	@touch $@

$(STAMPS)/docs: $(STAMPS)/apt
	$(call install-packages,$(DOCS_APT))
	@touch $@

# Debian's engine and compose only where there is none; an engine that runs is used, else the test starts one.
$(STAMPS)/docker: $(STAMPS)/python
	$(call install-packages,iproute2 debootstrap \
		$$(docker version >/dev/null 2>&1 || command -v dockerd >/dev/null || echo docker.io iptables) \
		$$(docker compose version >/dev/null 2>&1 || command -v docker-compose >/dev/null || echo docker-compose))
	@touch $@

$(STAMPS)/pci: $(STAMPS)/apt
	$(call install-packages,$(PCI_APT))
	@touch $@

$(STAMPS)/fuzz: $(STAMPS)/python
	$(call install-packages,$(FUZZ_APT))
	$(BIN)/pip install -qq "atheris>=3.0"
	@touch $@

$(STAMPS)/python: $(STAMPS)/apt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -qq --upgrade pip setuptools wheel "cython>=3.0"
	$(BIN)/pip install -qq --no-build-isolation -e ".[test]"
	@touch $@

$(STAMPS)/build: $(STAMPS)/python setup.py $(wildcard csrc/*.c csrc/*.h csrc/xdp/*.c forwarder/*.pyx forwarder/*.pxd forwarder/binding/*.pxi)
	$(BIN)/python setup.py -q build_ext --inplace
	@touch $@

clean: ## what was built, and the virtual environment
	rm -rf build $(VENV) *.egg-info forwarder/*.so forwarder/*.o forwarder/_*.c
