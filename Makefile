# Two commands: `make demo` and `make test`. Each installs and builds what it needs, once.
# Debian 12; packages are installed when this runs as root, else the command to run is said.

PYTHON ?= /usr/bin/python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := build/stamps
CTESTS := $(patsubst tests/csrc/%.c,%,$(wildcard tests/csrc/test_*.c))
PURE := parse checksum vip_table conn_table maglev encap icmp fragment path_mtu
C_FILES := $(wildcard csrc/*.c csrc/*.h tests/csrc/*.c tests/csrc/*.h)
CHECK_FLAGS := -std=gnu11 -g -Wall -Wextra -Werror -Icsrc
SANITIZE := -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer

APT := build-essential pkg-config libdpdk-dev librte-mempool-ring23 libpcap-dev libcmocka-dev python3-dev \
       python3-venv bird2 iproute2 ethtool procps

.PHONY: help setup build demo test lint test-c test-unit test-packets test-lab debug clean
.DELETE_ON_ERROR:

help: ## what there is to make
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

demo: build ## the whole load balancer in network namespaces: real TCP, failures, figures
	@$(BIN)/maglev lab run

test: lint test-c test-unit test-packets test-lab ## everything that can be checked

lint: build ## ruff, mypy --strict, compiler warnings as errors
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test-c: $(STAMPS)/apt ## the pure C files by themselves, plain and with ASan and UBSan
	@$(MAKE) --no-print-directory $(CTESTS:%=build/ctest/plain/%) $(CTESTS:%=build/ctest/sanitized/%)
	@for kind in plain sanitized; do for t in $(CTESTS); do \
		log=build/ctest/$$kind/$$t.log; build/ctest/$$kind/$$t > $$log 2>&1 || { cat $$log; exit 1; }; \
		echo "$$kind $$t: $$(grep -c 'OK ]' $$log) tests passed"; done; done

build/ctest/plain/%: tests/csrc/%.c $(C_FILES)
	@mkdir -p $(@D)
	@$(CC) $(CHECK_FLAGS) -O3 -march=corei7 -o $@ $< $(PURE:%=csrc/%.c) -lcmocka

build/ctest/sanitized/%: tests/csrc/%.c $(C_FILES)
	@mkdir -p $(@D)
	@$(CC) $(CHECK_FLAGS) $(SANITIZE) -o $@ $< $(PURE:%=csrc/%.c) -lcmocka

test-unit: build ## Python units
	$(BIN)/pytest -q tests/unit

test-packets: build ## packet tables through the real stages, in memory
	$(BIN)/pytest -q tests/packets

test-lab: build ## speaker, forwarder and whole laboratory in network namespaces (root)
	$(BIN)/pytest -q tests/lab

setup: $(STAMPS)/python ## packages of Debian and of Python, once

build: $(STAMPS)/build ## the extensions, in place

$(STAMPS)/apt: Makefile
	@mkdir -p $(@D)
	@missing=$$(for p in $(APT); do dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || echo $$p; done); \
	if [ -n "$$missing" ]; then \
		if [ "$$(id -u)" != 0 ]; then \
			echo "These Debian packages are missing; as root: apt-get install" $$missing >&2; exit 1; fi; \
		apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $$missing; \
	fi
	@touch $@

$(STAMPS)/python: $(STAMPS)/apt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -qq --upgrade pip setuptools wheel "cython>=3.0"
	$(BIN)/pip install -qq --no-build-isolation -e ".[test]"
	@touch $@

$(STAMPS)/build: $(STAMPS)/python setup.py $(wildcard csrc/*.c csrc/*.h forwarder/*.pyx forwarder/*.pxd)
	$(BIN)/python setup.py -q build_ext --inplace
	@touch $@

clean: ## what was built, and the virtual environment
	rm -rf build $(VENV) *.egg-info forwarder/*.so forwarder/_*.c
