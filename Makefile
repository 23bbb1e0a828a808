# SPDX-License-Identifier: Apache-2.0
#
# Two commands are all that most need: `make up` and `make test`. `make help` lists the others.

GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
SANITIZERS ?= address,undefined thread

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help up setup build native examples test test-native test-sanitizers test-go lint bench-share bench-traces bench-engine gpu chaos test-systemd kube-setup kube-cluster e2e clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: build examples ## set up, build and start Aliquot; says what to try next
	@build/aliquot up --detach
	@printf '\nThe examples are programs to try it with; they run on simulated devices too:\n'
	@printf '  export PATH="%s/build:$$PATH"\n' '$(CURDIR)'
	@printf '  aliquot run --gpu 0.25..0.80 --mem 4Gi..8Gi -- build/examples/trainer --seconds 10\n'

setup: ## install the Debian packages that are missing
	@scripts/setup

build: setup native ## build/aliquot, with the native parts inside
	@echo 'Building aliquot'
	@CGO_ENABLED=1 $(GO) build -trimpath -ldflags '-X main.version=$(VERSION)' -o build/aliquot ./cmd/aliquot

native: setup ## the C parts: shim, arbiter, simulated driver
	@echo 'Building the native parts: shim, arbiter, simulated driver'
	@$(MAKE) --no-print-directory -C native

examples: setup native ## the example programs, into build/examples, and those of the benchmarks
	@echo 'Building the examples'
	@$(MAKE) --no-print-directory -C examples
	@$(MAKE) --no-print-directory -C bench/programs

test: test-native test-sanitizers test-go ## all tests

test-native: native
	@$(MAKE) --no-print-directory -C native test

test-sanitizers: setup
	@for san in $(SANITIZERS); do \
		echo "== native tests with -fsanitize=$$san"; \
		$(MAKE) --no-print-directory -C native SAN=$$san test || exit 1; \
	done

test-go: native examples gpu
	$(GO) test -race -timeout 10m ./...
	@echo '== the rule of leases in Go: its promises under virtual time, held to the rule in C, and both broken on purpose'
	$(GO) test -timeout 20m -v ./divide/lease
	@divide/lease/mutants
	@echo '== the parts for Kubernetes, as far as they need no cluster; `make e2e` runs them on one'
	cd host/kube && $(GO) test -race ./driver ./api/... && $(GO) test -run 'TestInGroup|TestKillEnds|TestStopKeepsItsNote' ./testcluster

lint: native ## go vet, staticcheck, gofumpt, shellcheck; C warnings are errors in every build
	@scripts/lint

bench-share: build examples ## measure shares on simulated devices: a table and build/bench/share.json; ARGS='-only NAME' measures a part, ARGS=-minute each set for a minute
	@$(MAKE) --no-print-directory -C native $(CURDIR)/build/native/shim/test/gate_cost
	$(GO) run ./bench/share $(ARGS)

# With the named points of arbiter and shim in, which what is shipped does not have.
POINTS := $(CURDIR)/build/native-points
POINTED := bin/aliquot-arbiter shim/libcuda.so.1 shim/libnvidia-ml.so.1
EACH ?= 200
FOR ?= 3h
WORLDS ?= 4
SEED ?= $(shell date +%s)
REPLACED ?= 100

chaos: examples ## replace server and arbiter by another version REPLACED=100 times under load; kill everything at each named point EACH=200 times and at any moment, in WORLDS=4 at a time, for at most FOR=3h; POINT=REGEX aims at some
	$(GO) test -count=1 -timeout 0 ./test/e2e -run 'TestReplacedUnderLoad$$' -v -args -replace.rounds=$(REPLACED) -replace.seed=$(SEED)
	@$(MAKE) --no-print-directory -C native OUT=$(POINTS) CFLAGS=-DALQ_POINTS $(POINTED:%=$(POINTS)/%)
	@printf '{"Replace":{%s}}\n' "$$(printf '"$(CURDIR)/native/dist/%s":"$(POINTS)/%s",' \
		$(foreach part,$(POINTED),$(part) $(part)) | sed 's/,$$//')" >$(POINTS)/overlay.json
	$(GO) test -race -count=1 -timeout 0 -overlay $(POINTS)/overlay.json ./host/local -run 'TestChaos$$' -v \
		-parallel $(WORLDS) -args -chaos.each=$(EACH) -chaos.for=$(FOR) -chaos.seed=$(SEED) -chaos.worlds=$(WORLDS) -chaos.points='$(POINT)'

gpu: setup native examples ## build/gpu: all that measures a real GPU on another machine; sh build/gpu/gpu.sh there, or here with --simulate
	@echo 'Building the folder for real GPUs'
	@$(MAKE) --no-print-directory -C gpu/programs
	@CGO_ENABLED=1 $(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o build/gpu/aliquot ./cmd/aliquot
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o build/gpu/measure ./gpu/measure
	@scripts/gpu-folder

bench-traces: ## measure placement and orders on the traces in ALIQUOT_TRACES (else a made one): a table and build/bench/traces.json
	$(GO) run ./bench/traces $(ARGS)

bench-engine: ## measure what decisions cost: a table and build/bench/engine.json; ARGS='-only NAME' measures one thing
	$(GO) run ./bench/engine $(ARGS)

test-systemd: build ## the unit and control groups of version 2 on a Debian booted as a process: needs root, debootstrap, user-mode-linux
	@test/systemd/run

# What the cluster is built of is kept in build/kube: minutes the first time, seconds after that.
export ALIQUOT_KUBE_CACHE ?= $(CURDIR)/build/kube

kube-setup: setup
	@scripts/setup kube

kube-cluster: kube-setup ## a Kubernetes of one node on this machine, built from Go modules, until Ctrl-C: needs root
	@cd host/kube && $(GO) run ./testcluster/run

e2e: kube-setup native examples ## all of host/kube on a real node: needs root; the first time it builds Kubernetes (minutes)
	cd host/kube && $(GO) test -count=1 -timeout 25m -p 1 ./...

clean: ## remove what was built
	rm -rf build
	find native/dist -mindepth 1 ! -name .gitkeep -delete
