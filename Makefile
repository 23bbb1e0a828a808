# SPDX-License-Identifier: Apache-2.0
#
# Two commands are all that most need: `make up` and `make test`. `make help` lists the others.

GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
SANITIZERS ?= address,undefined thread

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help up setup build native examples test test-native test-sanitizers test-go explore explore-kube lint bench-share bench-traces bench-engine gpu chaos test-systemd bench-kube images kubectl-aliquot kube-setup kube-cluster kube-parts e2e e2e-node e2e-placing chaos-kube clean

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

# The three parts' tests go side by side, here and with the sanitizers: much of each is waiting.
test-native: native
	@$(MAKE) --no-print-directory -j3 -O -C native test

test-sanitizers: setup
	@for san in $(SANITIZERS); do \
		echo "== native tests with -fsanitize=$$san"; \
		$(MAKE) --no-print-directory -j3 -O -C native SAN=$$san test || exit 1; \
	done

test-go: native examples gpu
	$(GO) test -race -timeout 40m $$($(GO) list ./... | grep -v '/aliquot/engine' | grep -vxF "$$($(DRAWING))")
	$(GO) test -race -timeout 40m $$($(DRAWING) | grep -v '/aliquot/engine') -rapid.seed=$(DRAWN)
	@echo '== the engine, which has no goroutine: without the detector of races, which would take minutes; `make explore` draws other cases'
	$(GO) test -timeout 40m ./engine/... -rapid.seed=$(DRAWN)
	@echo '== the rule of leases in Go: its promises under virtual time, held to the rule in C, and both broken on purpose'
	$(GO) test -timeout 40m -v ./divide/lease
	@divide/lease/mutants
	@echo '== the parts for Kubernetes, as far as they need no cluster; `make e2e` runs them on one'
	cd host/kube && $(GO) test -race -timeout 40m ./driver ./cover ./api/... ./annotation ./demand ./queues ./webhook ./controller ./reference ./deploy/... ./images ./plugin ./scheduler/... ./cmd/... && $(GO) test -run 'TestInGroup|TestKillEnds|TestLost|TestStopKeepsItsNote|TestLastGivesBack' ./testcluster

# What properties are tried on is drawn from this seed in `make test`, so that a change is not refused for what was wrong before it, and anew each
# time in `make explore`. DRAWING lists the packages that have such tests.
DRAWING = $(GO) list -f '{{range .TestImports}}{{if eq . "pgregory.net/rapid"}}{{$$.ImportPath}}{{"\n"}}{{end}}{{end}}{{range .XTestImports}}{{if eq . "pgregory.net/rapid"}}{{$$.ImportPath}}{{"\n"}}{{end}}{{end}}' ./... | sort -u | grep .
DRAWN ?= 20261122
EXPLORE ?= 600

explore: ## try all properties on other cases than `make test`, for EXPLORE=600 seconds; what fails says how to draw it again
	end=$$(($$(date +%s) + $(EXPLORE))); while [ "$$(date +%s)" -lt "$$end" ]; do $(GO) test -count=1 $$($(DRAWING)) || exit 1; done

explore-kube: ## try the scheduler for Kubernetes on other clusters, pods and faults than `make test`, beside the stock scheduler, for EXPLORE=600 seconds; what fails says from which seed to draw it again
	@end=$$(($$(date +%s) + $(EXPLORE))); cd host/kube && while [ "$$(date +%s)" -lt "$$end" ]; do seed=$$(od -An -N4 -tu4 /dev/urandom | tr -d ' '); echo "-seed=$$seed"; \
		$(GO) test -count=1 ./scheduler/filter ./scheduler -run 'TestSameNodesAsTheStockScheduler|TestSameDevicesAsTheStockScheduler|TestSameNodesWithDevicesAsTheStockScheduler|TestRunsWhereTheStockSchedulerWould|TestMembersOfAClassHaveEqualAnswers|TestFaults' -args -seed=$$seed || exit 1; done

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

chaos: examples ## replace server and arbiter by another version REPLACED=100 times under load; kill everything at each named point EACH=200 times and at any moment, in WORLDS=4 at a time, for at most FOR=3h; POINT=REGEX aims at some. `make chaos-kube` does the like on Kubernetes
	$(GO) test -count=1 -timeout 0 ./test/e2e -run 'TestReplacedUnderLoad$$|TestStopped$$' -v -args -judge -replace.rounds=$(REPLACED) -replace.seed=$(SEED)
	@$(MAKE) --no-print-directory -C native OUT=$(POINTS) CFLAGS=-DALQ_POINTS $(POINTED:%=$(POINTS)/%)
	@printf '{"Replace":{%s}}\n' "$$(printf '"$(CURDIR)/native/dist/%s":"$(POINTS)/%s",' \
		$(foreach part,$(POINTED),$(part) $(part)) | sed 's/,$$//')" >$(POINTS)/overlay.json
	$(GO) test -race -count=1 -timeout 0 -overlay $(POINTS)/overlay.json ./host/local -run 'TestChaos$$' -v \
		-parallel $(WORLDS) -args -chaos.each=$(EACH) -chaos.for=$(FOR) -chaos.seed=$(SEED) -chaos.worlds=$(WORLDS) -chaos.points='$(POINT)'

gpu: setup native examples ## build/gpu: all that measures a real GPU on another machine; sh build/gpu/gpu.sh there, or here with --simulate
	@echo 'Building the folder for real GPUs'
	@$(MAKE) --no-print-directory -C gpu/programs
	@$(MAKE) --no-print-directory -C native $(CURDIR)/build/native/shim/test/gate_cost
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

images: native examples ## build/images: container images for Kubernetes, of Aliquot and of the examples, made without Docker; `ctr -n k8s.io images import` takes each
	@cd host/kube && $(GO) run ./images/build --version '$(VERSION)'

kubectl-aliquot: ## build/kubectl-aliquot, which is `kubectl aliquot` once it lies in a folder of PATH
	@echo 'Building kubectl-aliquot'
	@cd host/kube && CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-X main.version=$(VERSION)' -o ../../build/kubectl-aliquot ./cmd/kubectl-aliquot

DEVICES ?= h200x2

kube-cluster: kube-setup images kubectl-aliquot ## a Kubernetes of one node on this machine, built from Go modules, until Ctrl-C, with all to try Aliquot on DEVICES=h200x2, simulated: needs root
	@mkdir -p '$(ALIQUOT_KUBE_CACHE)'
	@cd host/kube && $(GO) build -o '$(ALIQUOT_KUBE_CACHE)/kube-cluster' ./testcluster/run && exec '$(ALIQUOT_KUBE_CACHE)/kube-cluster' -simulate '$(DEVICES)'

# All that clusters are built of, before anything is measured.
kube-parts: kube-setup
	@cd host/kube && $(GO) run ./testcluster/run -build

# The first looks at the whole machine, and is alone. The benchmark has no goals here, and room beside tests that wait.
e2e: kube-parts native examples ## what of host/kube needs a cluster, on real nodes: needs root; the first time it builds Kubernetes (minutes)
	cd host/kube && $(GO) test -count=1 -timeout 60m ./testcluster
	@$(MAKE) --no-print-directory -j2 -O e2e-node e2e-placing

# A slow machine takes several times as long as most, which is no reason to fail.
e2e-node:
	cd host/kube && $(GO) test -count=1 -timeout 60m ./e2e

e2e-placing:
	cd host/kube && nice $(GO) test -count=1 -timeout 60m ./bench

bench-kube: kube-setup native ## measure how fast pods are placed on 5,000 nodes that only seem to be there: a table and build/bench/kube.json; needs root; ARGS='-nodes 1000 -pods 2000' is smaller
	cd host/kube && $(GO) run ./bench $(ARGS)

chaos-kube: EACH = 100
chaos-kube: WORLDS = 3
chaos-kube: kube-parts native examples ## kill agent, scheduler, controller, kubelet, containerd and API server at each step of a pod's life (allocate, prepare, start, stop, unprepare) and each part of ours at each named point, EACH=100 times, in WORLDS=3 clusters at a time: needs root
	cd host/kube && $(GO) test -count=1 -timeout 0 ./e2e -run 'TestKilled$$' -v -args -killed.each=$(EACH) -killed.worlds=$(WORLDS) -clusters=$(WORLDS)

clean: ## remove what was built
	rm -rf build
	find native/dist -mindepth 1 ! -name .gitkeep -delete
