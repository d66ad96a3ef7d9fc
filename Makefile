# pushfleet: the commands of every day. `make` alone lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
# The CPU profile by which pushworker is compiled (bench/README.md); off builds all in
# seconds. With it the first build compiles every package once more: some minutes.
PGO ?= cmd/pushworker/worker.pgo

# Packages tested at once. Two keep two cores busy; more makes servers slow
# that all of them share.
P ?= 2
# A test binary that takes longer than this hangs: several times what the
# longest takes, as a slow machine is no failure.
TIMEOUT ?= 60m
# How long each fuzz target runs; in make test 3 s.
FUZZTIME ?=
# What to test: make unit PKG=./pipeline/...
PKG ?= ./...
# Servers' cache; see deploy/local/fetch.sh.
export PUSHFLEET_CACHE ?= $(CURDIR)/.cache

.PHONY: help
help: ## this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## pushworker, pushgateway, pushctl, pushsim, pushdemo and pushbench into bin/
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ $$(go list ./cmd/... | grep -v /pushworker$$)
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -pgo='$(PGO)' -o bin/ ./cmd/pushworker

.PHONY: demo
demo: ## the whole way of 100,000 notifications in one process; nothing to install
	@CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/pushdemo
	@bin/pushdemo $(DEMO)

.PHONY: test
test: ## everything: real servers, lint, fuzzing, all tests, with -race but where workers are judged from outside or the SDK of Firebase is linked
	@P='$(P)' TIMEOUT='$(TIMEOUT)' FUZZTIME='$(or $(FUZZTIME),3s)' PKG='$(PKG)' deploy/local/test.sh

.PHONY: unit
unit: ## tests that need no server, with -race but where the SDK of Firebase is linked
	@env -u PUSHFLEET_TEST_SERVERS go test -race -p $(P) -timeout $(TIMEOUT) $(PKG)
	@env -u PUSHFLEET_TEST_SERVERS PKG='$(PKG)' deploy/local/raceless.sh -p $(P) -timeout $(TIMEOUT)

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (10s)
	@FUZZTIME='$(or $(FUZZTIME),10s)' deploy/local/fuzz.sh

.PHONY: bench
bench: build ## one worker measured on real servers, as bench/README.md says; BENCH= has more flags
	@[[ '$(BENCH)' == *--embedded* ]] || deploy/local/fetch.sh
	@bin/pushbench worker --json --apns2 $(BENCH)

.PHONY: benchmarks
benchmarks: ## every Go benchmark of PKG, without tests
	go test -run '^$$' -bench . -benchmem -timeout $(TIMEOUT) $(PKG)

.PHONY: mutants
mutants: ## plant every known bug into the worker; each must be caught
	@go run ./bench/mutants/cmd $(MUTANTS)

.PHONY: mutation
mutation: ## change 60 places of PKG=./package one by one, drawn by SEED=; its tests must notice 85 %
	@beside=(env -u PUSHFLEET_TEST_SERVERS); \
	if [[ '$(SERVERS)' != no && "$$(go list -f '{{.TestImports}}{{.XTestImports}}' $(PKG))" == */deploy/local/localtest[\ \]]* ]]; then \
	  deploy/local/fetch.sh; \
	  go build -o bin/ ./deploy/local/servers; \
	  beside=(bin/servers run --); \
	fi; \
	"$${beside[@]}" go run ./bench/mutation -seed '$(or $(SEED),1)' $(MUTATION) $(PKG)

.PHONY: crashpoints
crashpoints: ## kill a worker TIMES (10) times at each point of the way, in each delivery mode
	@go run ./bench/mutants/cmd -crashes $(or $(TIMES),10) $(MUTANTS)

.PHONY: lint
lint: ## gofmt, go vet, staticcheck, govulncheck
	@deploy/local/lint.sh

# Which scenarios, which seed and how long; see bench/chaos/README.md.
SCENARIO ?=
SEED ?=
MINUTES ?= 0
# The lane's: at_least_once, effectively_once, at_most_once.
MODE ?=
# --short, --json, --plan, --page FILE
CHAOS ?=
# -n 60, -json, -skip TESTS
MUTATION ?=
# --embedded, --notifications 100000; bin/pushbench worker --help
BENCH ?=
# no: without real servers, also where a package's tests use them
SERVERS ?=

.PHONY: chaos
chaos: ## break a fleet on real servers and check every promise: SCENARIO= SEED= MINUTES=
	@deploy/local/fetch.sh
	@go build -o bin/chaos ./bench/chaos/cmd
	@bin/chaos --seed '$(SEED)' --minutes '$(MINUTES)' --mode '$(MODE)' $(CHAOS) $(SCENARIO)

.PHONY: soak
soak: ## the mixed scenario with one random seed after the other, until Ctrl-C or a broken promise
	@deploy/local/fetch.sh
	@go build -o bin/chaos ./bench/chaos/cmd
	@bin/chaos --rounds 0 --seed '$(SEED)' --minutes '$(MINUTES)' --mode '$(MODE)' $(CHAOS) $(or $(SCENARIO),mixed)

.PHONY: servers
servers: ## real Kafka, Redis and Cassandra until Ctrl-C; prints their addresses
	@deploy/local/fetch.sh
	@go build -o bin/ ./deploy/local/servers
	@bin/servers up

.PHONY: clean
clean: ## what was built; rm -rf .cache removes the fetched servers too
	rm -rf bin
