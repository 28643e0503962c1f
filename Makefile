# Every step that a person or CI runs is a target here, for all modules of the
# workspace. A fresh Debian or Ubuntu with Go, git and make is enough; a target
# installs or builds the other tools that it needs.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

MODULES  := $(shell sed -n 's|^[[:space:]]*\./||p' go.work)
PACKAGES := $(MODULES:%=./%/...)
# The path of this folder may contain spaces, which targets and commands need escaped.
space    := $(subst ,, )
TOOLS    := $(subst $(space),\ ,$(CURDIR))/.cache/bin
FUZZTIME ?= 10s
BENCH    ?= .
SEEDS    ?= 2000
# Narrow a run: make test PACKAGES=./dataplane/internal/sse TESTFLAGS='-run Split'
TESTFLAGS ?=

# OFFLINE=1 leaves out what needs packages of the npm registry: the linters of the API documents and of the migrations, and
# the tests in JavaScript. It is for a machine without a network; CI does not accept it (.ci/run).
OFFLINE ?=
export OFFLINE

export PATH := $(CURDIR)/.cache/bin:$(PATH)

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z][a-z/]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name text; do printf '  %-14s %s\n' "$$name" "$$text"; done

## run

.PHONY: run
run: ## start the whole product on this machine, in the foreground (Ctrl-C stops it); CATALOG=apply applies an unchanged catalog file again
	@[ -x $(TOOLS)/devstack ] || echo "building the dev stack (the first time this downloads modules)"
	@go build -o $(TOOLS)/devstack ./scripts/cmd/devstack && exec $(TOOLS)/devstack $(if $(filter apply,$(CATALOG)),-apply-catalog)

.PHONY: cabinet
cabinet: ## run the example cabinet backend against the running stack (scripts/cabinet)
	@go run ./scripts/cmd/cabinet

# The stack runs meanwhile. FILL=only sends no requests after the product is filled.
.PHONY: demo
demo: ## fill the running stack with customers, 14 days of usage and live requests until Ctrl-C; STOP=1 ends it (scripts/demo)
	@go run ./scripts/cmd/demo $(if $(STOP),-stop) $(if $(filter only,$(FILL)),-fill)

.PHONY: clean
clean: ## remove the stack's state and data (.dev) and what was built (bin)
	@if [ -e .dev ]; then go run ./scripts/cmd/devstack -clean; fi
	@rm -rf bin

.PHONY: build
build: ## build every binary into bin/
	@go build -o bin/ $(wildcard ./controlplane/cmd/* ./dataplane/cmd/* ./scripts/cmd/*)

## check

# with_node puts a suitable Node.js into PATH for the rest of a recipe's line, which fails if there is none.
with_node = $(if $(OFFLINE),,node=$$(scripts/node.sh "$(CURDIR)/.cache/node"); export PATH="$${node:+$$node:}$$PATH";)

# with_browser installs Chromium and the rules of accessibility. Where that is not possible, the tests of the console in a
# browser are skipped, or fail in CI.
define with_browser
scripts/need.sh chromium chromium || echo "NOT CHECKED: the console in a browser, without Chromium" >&2; \
$(if $(OFFLINE),,node=$$(scripts/node.sh "$(CURDIR)/.cache/node"); export PATH="$${node:+$$node:}$$PATH"; scripts/npmci.sh scripts/tools/axe node_modules/axe-core/axe.min.js)
endef

.PHONY: test
test: test/build test/vet test/costs test/hours test/race ## build, vet, cost tests, and all tests with the race detector

.PHONY: test/build
test/build: ## build each module by itself, as its go.mod says, without the workspace
	@for module in $(MODULES); do echo "build $$module without go.work"; GOWORK=off go build -C $$module ./...; done

.PHONY: test/vet
test/vet: ## go vet on every package
	@go vet $(PACKAGES)

# These run without the race detector, which allocates and drops pooled objects.
.PHONY: test/costs
test/costs: ## tests of the allocations, writes and system calls per request and the memory of a waiting stream
	@go test -count=1 -run 'Costs|Allocat|MemoryOfStreams|HoldNoBuffers|NoWriteOfItsOwn|WithOneWrite' ./dataplane/... 2>&1 | { grep -v 'no test' || true; }

# With a fake clock, and without the race detector, which makes four hours long.
.PHONY: test/hours
test/hours: ## the data plane during outages of four hours
	@go test -count=1 -run 'OutagesOfHours' ./dataplane/internal/app

# The seeds of all fuzz tests run as tests. One database server serves all
# packages; each test clones a database of its own. Results are not cached
# (-count=1), because the cache does not see the programs that tests build.
.PHONY: test/race
test/race: $(TOOLS)/gotestsum $(TOOLS)/withpostgres $(TOOLS)/compose-spec $(TOOLS)/helm $(TOOLS)/kubeconform $(TOOLS)/gitleaks $(TOOLS)/promtool ## all tests, with the race detector and a real Postgres
	@scripts/need.sh cc gcc libc6-dev
	@$(with_browser)
	@$(with_node) withpostgres gotestsum --format standard-quiet -- -race -count=1 -timeout 20m $(TESTFLAGS) $(PACKAGES)

.PHONY: test/browser
test/browser: ## the console in Chromium: sign-in, policy, accessibility, keyboard, without JavaScript, weight (in make test too)
	@$(with_browser)
	@go test -count=1 -timeout 20m -v $(TESTFLAGS) ./scripts/e2e/browser

# Needs a running stack (make run) that make demo has filled.
.PHONY: screenshots
screenshots: ## make the pictures of the console in the documents (docs/images) from the demo
	@scripts/need.sh chromium chromium
	@go run ./scripts/cmd/screenshots

.PHONY: screenshots/parts
screenshots/parts: ## take over how the parts of the console look now, after looking at the pictures in scripts/e2e/browser/testdata
	@scripts/need.sh chromium chromium
	@go test -count=1 -run TestPartsLookAsTheyDid ./scripts/e2e/browser -update

# The newest versions of agents and frameworks are large downloads, so make test has only
# the clients whose packages it needs anyway.
.PHONY: test/clients
test/clients: ## real clients play a task with tools; prints the table of clients
	@if node=$$(scripts/node.sh $(CURDIR)/.cache/node); then export PATH="$${node:+$$node:}$$PATH"; else export WITHOUT_NODE=1; fi; \
	CLIENTS=all go test -count=1 -v -timeout 40m ./scripts/e2e/clients

.PHONY: clients/update
clients/update: ## pin the newest versions of the clients of make test/clients
	@node=$$(scripts/node.sh $(CURDIR)/.cache/node) && export PATH="$${node:+$$node:}$$PATH"; \
	for folder in scripts/sdk scripts/clients; do \
		cd $(CURDIR)/$$folder && npm install --save-exact --ignore-scripts --no-audit --no-fund --loglevel=error \
			$$(node -p "Object.keys(require('./package.json').dependencies).map((name) => name + '@latest').join(' ')"); \
	done
	@cd scripts/clients/gosdk && GOWORK=off go get $$(GOWORK=off go list -m -f '{{if not (or .Main .Indirect)}}{{.Path}}@latest{{end}}' all) && GOWORK=off go mod tidy

# PREVIOUS is a tag or commit to upgrade from. Without it, both versions are of this commit. STEPS='rotate|restore' plays only the
# steps with such names. It needs root on Linux, 4 GB of
# disk for the build of Kubernetes, and half an hour on two cores the first time, so CI does not run it.
PREVIOUS ?=
.PHONY: test/cluster
test/cluster: $(TOOLS)/helm ## operate the chart on a real Kubernetes on this machine, under load: install, upgrade, rollback, drain, rotate, restore
	@scripts/cluster/test.sh $(or $(PREVIOUS),HEAD)

# Includes the failure scenarios that take long; make test has only the others.
# Several of them stop and start many processes, so other load on the machine
# disturbs them.
.PHONY: chaos
chaos: ## failure scenarios on real processes: kills, network cuts, lost data, full disks (minutes)
	@CHAOS=all go test -count=1 -timeout 40m -v $(TESTFLAGS) ./scripts/e2e/chaos

# In real time: the outages of 10 s and 1 min one after the other, then those of 30 min at once.
.PHONY: outages
outages: ## play every outage in the tables of docs/operations/outages.md (50 minutes)
	@CHAOS=all OUTAGES=all go test -count=1 -timeout 90m -parallel 12 -v -run 'TestOutages|TestCustomersNoticeNothing' $(TESTFLAGS) ./scripts/e2e/chaos

# PREVIOUS is a tag or commit; the newest tag is the default.
.PHONY: test/upgrade
test/upgrade: ## play an upgrade from PREVIOUS and a rollback, both under load (minutes)
	@CHAOS=all PREVIOUS='$(PREVIOUS)' go test -count=1 -timeout 20m -v -run NeighbouringReleases ./scripts/e2e/chaos

.PHONY: test/db
test/db: $(TOOLS)/gotestsum $(TOOLS)/withpostgres ## the tests that need Postgres, without the race detector
	@withpostgres gotestsum --format standard-quiet -- $(TESTFLAGS) ./scripts/testkit/pgcluster/... ./controlplane/...

.PHONY: lint
lint: lint/go lint/api lint/migrations lint/secrets lint/vulnerabilities ## all linters: Go, the API documents, migrations, secrets, vulnerabilities

.PHONY: lint/go
lint/go: $(TOOLS)/golangci-lint ## golangci-lint on every package, formatting included (.golangci.yaml)
	@golangci-lint run $(PACKAGES)

.PHONY: lint/api
lint/api: ## check the documents of both APIs with redocly
ifneq ($(OFFLINE),)
	@echo "NOT CHECKED: the API documents, because of OFFLINE=$(OFFLINE)" >&2
else
	@$(with_node) scripts/npmci.sh scripts/tools/redocly node_modules/.bin/redocly; \
	scripts/tools/redocly/node_modules/.bin/redocly lint --config scripts/tools/redocly/redocly.yaml controlplane/api/openapi.yaml dataplane/api/openapi.yaml
endif

.PHONY: lint/migrations
lint/migrations: ## check with squawk that migrations do not stop a running product
ifneq ($(OFFLINE),)
	@echo "NOT CHECKED: the migrations, because of OFFLINE=$(OFFLINE)" >&2
else
	@$(with_node) scripts/npmci.sh scripts/tools/squawk 'node_modules/@squawk-cli/*/bin/squawk'; \
	scripts/tools/squawk/lint.sh migrations/*.sql
endif

.PHONY: lint/secrets
lint/secrets: $(TOOLS)/gitleaks ## search the files in git for keys, tokens and passwords (.gitleaks.toml)
	@scripts/secrets.sh

.PHONY: lint/vulnerabilities
lint/vulnerabilities: $(TOOLS)/govulncheck ## report known vulnerabilities in what the code calls, from the database GOVULNDB
	@scripts/vulncheck.sh $(MODULES)

.PHONY: fmt
fmt: $(TOOLS)/golangci-lint ## format all Go files
	@golangci-lint fmt $(MODULES)

.PHONY: fuzz
fuzz: ## run every fuzz test for FUZZTIME (10s)
	@go list -f '{{.ImportPath}} {{.Dir}}' $(PACKAGES) | while read -r package dir; do \
		{ grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$$dir"/*_test.go 2>/dev/null || true; } | cut -d' ' -f2 | while read -r name; do \
			echo "$$package $$name"; \
			go test -run='^$$' -fuzz="^$$name\$$" -fuzztime=$(FUZZTIME) "$$package"; \
		done; \
	done

.PHONY: sim
sim: ## simulate the lease protocol with faults over SEEDS seeds, or repeat one SEED, with TRACE=1
	@go run ./scripts/cmd/sim $(if $(SEED),-seed $(SEED),-seeds $(SEEDS)) $(if $(TRACE),-trace)

.PHONY: sim/mutations
sim/mutations: ## put each mutation into the protocol and check that the simulation finds it
	@go run ./scripts/cmd/sim -mutations

.PHONY: bench
bench: $(TOOLS)/withpostgres ## run the benchmarks that match BENCH (all)
	@withpostgres go test -run='^$$' -bench='$(BENCH)' -benchmem $(PACKAGES)

# EVENTS is the number of usage events in the stream at the start.
EVENTS ?= 1000000
.PHONY: bench/settle
bench/settle: $(TOOLS)/withpostgres ## settle a million queued usage events and check the ledger
	@withpostgres go test -run='^$$' -bench=BenchmarkSettlement -benchtime=$(EVENTS)x ./controlplane/internal/bus

.PHONY: bench/usage
bench/usage: $(TOOLS)/withpostgres ## lists, totals and statements, and all pages of the console, over 5 million usage records, with a limit of 150 ms each
	@MGW_BENCH_ROWS=5000000 withpostgres go test -run='^$$' -bench=UsageReads -benchtime=10x -timeout 60m ./controlplane/internal/postgres
	@MGW_BENCH_ROWS=5000000 withpostgres go test -run='^$$' -bench=Pages -benchtime=1x -timeout 60m ./controlplane/internal/console

.PHONY: bench/proxy
bench/proxy: ## the CPU time and memory of the data plane against a minimal proxy, for JSON, streams and large prompts
	@mkdir -p bin && go build -o bin/proxybench ./scripts/cmd/proxybench && bin/proxybench

# SCALE changes the size: SCALE='-keys 10000 -used 2000 -accounts 100 -models 10 -proxies 4'.
SCALE ?=
.PHONY: bench/scale
bench/scale: ## costs of an installation with 1,000,000 keys, 10,000 accounts, 100 models and 16 proxies, or another SCALE
	@mkdir -p bin && go build -o bin/proxybench ./scripts/cmd/proxybench && bin/proxybench -scale $(SCALE)

.PHONY: bench/traces
bench/traces: ## the CPU time and latency of a data plane that traces every request, against one that traces none
	@mkdir -p bin && go build -o bin/proxybench ./scripts/cmd/proxybench && bin/proxybench -traces

.PHONY: bench/tabs
bench/tabs: ## the CPU time of the control plane while the overview of the console is open in 10 tabs for an hour, or EACH
	@mkdir -p bin && go build -o bin/proxybench ./scripts/cmd/proxybench && bin/proxybench -tabs 10 -each $(or $(EACH),1h)

.PHONY: bench/neighbour
bench/neighbour: ## the latencies of one account alone and beside another's 1,000 connections of large prompts
	@mkdir -p bin && go build -o bin/proxybench ./scripts/cmd/proxybench && bin/proxybench -neighbour -rounds 9

## release

# VERSION is that of the tag, or of the commit. The chart finds the images below REGISTRY, its value image.registry. SOURCE is
# the URL of the repository, for a label of the images. No licence has been chosen yet (README.md).
VERSION  ?= $(shell scripts/version.sh)
REGISTRY ?= localhost
SOURCE   ?=
LICENSES ?= LicenseRef-All-Rights-Reserved
shipped  := ./controlplane/cmd/controlplane ./controlplane/cmd/gwctl ./dataplane/cmd/dataplane
commit_time = $(shell TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ)
release_flags = -version '$(VERSION)' -commit "$$(git rev-parse HEAD)" -time '$(commit_time)' \
	-registry '$(REGISTRY)' -source '$(SOURCE)' -licenses '$(LICENSES)'

# Each output is the same for the same commit and version of Go, on every machine.
.PHONY: images
images: ## build OCI images of the planes and gwctl for amd64 and arm64 into bin/images, without a container engine
	@go run ./scripts/cmd/images -out bin/images $(release_flags) $(shipped)

.PHONY: chart
chart: $(TOOLS)/helm ## package the chart into bin/chart
	@go run ./scripts/cmd/release -out bin/chart $(release_flags) chart

.PHONY: release
release: $(TOOLS)/helm ## write images, chart, gwctl for linux and darwin, bills of materials and checksums into bin/release
	@go run ./scripts/cmd/release -out bin/release $(release_flags) all

# GOOS and GOARCH choose the platform of the programs.
.PHONY: sbom
sbom: ## write the software bill of materials (CycloneDX) of each program of the product into bin/sbom/
	@go run ./scripts/cmd/sbom -out bin/sbom -version '$(VERSION)' -time '$(commit_time)' $(shipped)

## maintain

.PHONY: generate
generate: $(TOOLS)/sqlc $(TOOLS)/oapi-codegen ## write all generated code and reference tables
	@cd controlplane && sqlc generate
	@go generate $(PACKAGES)
	@go test -count=1 ./dataplane/internal/config ./controlplane/internal/config ./scripts/docs ./scripts/observe ./scripts/chart ./scripts/e2e/chaos \
		-run 'ReferenceIsUpToDate|DashboardFiles' -update | { grep -v '^ok' || true; }

# It compares the tree before and after, so that it also works on a tree with changes. Among the files that git does not
# track, it includes only Go and module files.
tree = { git diff; git ls-files --others --exclude-standard '*.go' '*go.mod' '*go.sum'; }

.PHONY: verify
verify: ## regenerate, tidy and format, and fail if that changes a file
	@mkdir -p .cache && $(tree) > .cache/verify.before
	@$(MAKE) --no-print-directory generate tidy fmt
	@$(tree) | diff .cache/verify.before - || { \
		echo "make verify: files were not up to date; commit the changes of make generate, make tidy and make fmt" >&2; exit 1; }

.PHONY: generated
generated: ## print the share of generated lines in all Go
	@git ls-files '*.go' | xargs awk 'FNR == 1 { generated = /^\/\/ Code generated/ } { all++; sum += generated } \
		END { printf "%d of %d lines of Go are generated: %.1f %%\n", sum, all, 100 * sum / all }'

.PHONY: tidy
tidy: ## go mod tidy in every module
	@for module in $(MODULES) $(patsubst %/go.mod,%,$(wildcard scripts/tools/*/go.mod scripts/clients/*/go.mod)); do GOWORK=off go mod -C $$module tidy; done

## tools, pinned in scripts/tools/*/go.mod and built when a pin changes

$(TOOLS)/golangci-lint: PACKAGE := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(TOOLS)/gotestsum: PACKAGE := gotest.tools/gotestsum
$(TOOLS)/golangci-lint $(TOOLS)/gotestsum: MODULE := lint
$(TOOLS)/golangci-lint $(TOOLS)/gotestsum: scripts/tools/lint/go.mod scripts/tools/lint/go.sum

$(TOOLS)/govulncheck: PACKAGE := golang.org/x/vuln/cmd/govulncheck
$(TOOLS)/gitleaks: PACKAGE := github.com/zricethezav/gitleaks/v8
$(TOOLS)/govulncheck $(TOOLS)/gitleaks: MODULE := audit
$(TOOLS)/govulncheck $(TOOLS)/gitleaks: scripts/tools/audit/go.mod scripts/tools/audit/go.sum

$(TOOLS)/sqlc: PACKAGE := github.com/sqlc-dev/sqlc/cmd/sqlc
$(TOOLS)/oapi-codegen: PACKAGE := github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen
$(TOOLS)/sqlc $(TOOLS)/oapi-codegen: MODULE := gen
$(TOOLS)/sqlc $(TOOLS)/oapi-codegen: scripts/tools/gen/go.mod scripts/tools/gen/go.sum

$(TOOLS)/helm: PACKAGE := helm.sh/helm/v3/cmd/helm
$(TOOLS)/kubeconform: PACKAGE := github.com/yannh/kubeconform/cmd/kubeconform
$(TOOLS)/helm $(TOOLS)/kubeconform: MODULE := helm
$(TOOLS)/helm $(TOOLS)/kubeconform: scripts/tools/helm/go.mod scripts/tools/helm/go.sum

$(TOOLS)/compose-spec: PACKAGE := github.com/compose-spec/compose-go/v2/cmd
$(TOOLS)/compose-spec: MODULE := compose
$(TOOLS)/compose-spec: scripts/tools/compose/go.mod scripts/tools/compose/go.sum

$(TOOLS)/golangci-lint $(TOOLS)/gotestsum $(TOOLS)/govulncheck $(TOOLS)/gitleaks $(TOOLS)/sqlc $(TOOLS)/oapi-codegen $(TOOLS)/helm $(TOOLS)/kubeconform $(TOOLS)/compose-spec:
	@echo "building $(PACKAGE) (once per version)"
	@GOWORK=off go build -C scripts/tools/$(MODULE) -o "$@" $(PACKAGE)
	@touch "$@"

$(TOOLS)/promtool:
	@scripts/prometheus.sh "$(CURDIR)/.cache/bin"

.PHONY: $(TOOLS)/withpostgres
$(TOOLS)/withpostgres:
	@go build -o "$@" ./scripts/cmd/withpostgres
