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
BUILT    := $(subst $(space),\ ,$(CURDIR))/.cache/bin
FUZZTIME ?= 10s
BENCH    ?= .
SEEDS    ?= 2000
# Narrow a run: make test PACKAGES=./dataplane/internal/sse TESTFLAGS='-run Split'
TESTFLAGS ?=

# OFFLINE=1 leaves out what needs packages of the npm registry: the linters of the API documents and of the migrations, and
# the tests in JavaScript. It is for a machine without a network; CI does not accept it (.ci/run).
OFFLINE ?=
export OFFLINE

# The paths of source files are not in what Go builds, so that another checkout of this user takes it from Go's build cache.
export GOFLAGS := $(strip $(shell go env GOFLAGS) -trimpath)

# tool is the path of a pinned tool (scripts/tools), which is built once per version for all checkouts of this user.
tool = "$$(scripts/tool.sh $(1))"

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z][a-z/]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name text; do printf '  %-14s %s\n' "$$name" "$$text"; done

## run

.PHONY: run
run: ## start the whole product on this machine, in the foreground (Ctrl-C stops it); CATALOG=apply applies an unchanged catalog file again
	@[ -x $(BUILT)/devstack ] || echo "building the dev stack (the first time this downloads modules)"
	@go build -o $(BUILT)/devstack ./scripts/cmd/devstack && exec $(BUILT)/devstack $(if $(filter apply,$(CATALOG)),-apply-catalog)

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
with_node = $(if $(OFFLINE),,node=$$(scripts/node.sh); export PATH="$${node:+$$node:}$$PATH";)

# with_browser installs Chromium and the rules of accessibility. Where that is not possible, the tests of the console in a
# browser are skipped, or fail in CI.
define with_browser
scripts/need.sh chromium chromium || echo "NOT CHECKED: the console in a browser, without Chromium" >&2; \
$(if $(OFFLINE),,$(with_node) scripts/npmci.sh scripts/tools/axe node_modules/axe-core/axe.min.js)
endef

# Results of tests are not cached (-count=1), because the cache does not see the programs that tests build.
# RESULTS is a folder for the events of the tests as JSON (scripts/repeat.sh).
RESULTS ?=
gotest = $(call tool,gotestsum) --format standard-quiet $(if $(RESULTS),--jsonfile "$$(mktemp "$(RESULTS)/XXXXXX.json")") -- -count=1 -timeout 20m $(TESTFLAGS)

# These packages start no goroutines, so the race detector finds nothing in them and only makes them slow (scripts/importrules
# checks it). What uses them runs with it.
sequential := ./scripts/sim \
	./shared/lease/... ./shared/price ./shared/limit ./shared/event ./shared/wire ./shared/money ./shared/ident ./shared/pulse \
	./dataplane/api ./dataplane/internal/format/... ./dataplane/internal/jsonspan ./dataplane/internal/sse \
	./dataplane/internal/provider/classify ./dataplane/internal/usagereport ./dataplane/internal/httpapi/quote \
	./controlplane/api ./controlplane/internal/gwctl/render ./controlplane/internal/pricelist ./controlplane/internal/settle \
	./controlplane/internal/spreadsheet ./controlplane/internal/validation
# These come first, so that no core is idle at the end; but after what needs no Postgres, which runs beside the stack of test/plain:
# tests that create many databases keep the disk from the stack for seconds.
longest    := ./controlplane/internal/postgres/... ./controlplane/internal/console ./controlplane/internal/httpapi/...
product    := $(filter-out ./scripts/%,$(filter-out ./scripts,$(MODULES:%=./%)))
# Tests of the repository itself and of the tools that the short tier relies on.
repository := ./scripts/docs ./scripts/importrules ./scripts/leasetest ./scripts/providersim ./shared/platform/testkit/wiresample
stack      := ./scripts/e2e ./scripts/e2e/browser

.PHONY: test
test: $(BUILT)/withpostgres ## the short tier: what every change needs (CONTRIBUTING.md has a table)
	@$(BUILT)/withpostgres $(MAKE) --no-print-directory --keep-going --jobs 2 test/race test/plain

# The seeds of all fuzz tests run as tests. One database server serves all packages; each test clones a database of its own.
# Three packages run at once, because tests of servers wait for them.
.PHONY: test/race
test/race: $(BUILT)/withpostgres
	@scripts/need.sh cc gcc libc6-dev
	@packages=$$(go list ./dataplane/... ./shared/... $(longest) $(product:%=%/...) | grep -vxF "$$(go list $(sequential) ./shared/platform/testkit/...)"); GORACE=atexit_sleep_ms=0 $(BUILT)/withpostgres $(gotest) -p 3 -race $$packages

# Costs are counted without the race detector, which allocates and drops pooled objects. A change of a setting changes what the
# chart takes and what it has to agree with, so the tests of its values are here.
.PHONY: test/plain
test/plain: $(BUILT)/withpostgres
	@$(with_browser)
	@$(gotest) -run '$(costs)' $$(grep -rlE 'func Test[A-Za-z]*($(costs))' --include='*_test.go' dataplane | xargs -n1 dirname | sort -u | sed 's|^|./|')
	@$(with_node) $(BUILT)/withpostgres $(gotest) $(stack) $(sequential) $(repository)
	@$(gotest) -run 'TestDefaultsAreThoseOfThePrograms|TestInvalidValuesAreRefused' ./scripts/chart

costs := Costs|Allocat|MemoryOfStreams|HoldNoBuffers|NoWriteOfItsOwn|WithOneWrite

# N is the number of rounds.
N ?= 20
.PHONY: test/repeat
test/repeat: ## the short tier N times beside four busy loops, each time with another seed; lists what failed at least once
	@scripts/repeat.sh $(N)

# What is slow, plays faults on the real clock or concerns tools and packages. CONTRIBUTING.md says which change needs what.
.PHONY: test/long
test/long: test/stack test/browser test/bills test/hours test/errors chaos outages test/observe test/delivery test/cluster test/clients sim/long sim/mutations ## the long tier: everything else (hours)

.PHONY: test/stack
test/stack: $(BUILT)/withpostgres ## the public contract and the admin API on a stack, with the tests that the short tier leaves out
	@$(with_node) LONG=1 $(BUILT)/withpostgres $(gotest) ./scripts/e2e ./shared/platform/testkit/... ./scripts/devstack/... ./scripts/providersim/...

.PHONY: test/browser
test/browser: ## the whole console in Chromium: sign-in, policy, accessibility, keyboard, without JavaScript, weight, pictures
	@$(with_browser)
	@LONG=1 $(gotest) -v ./scripts/e2e/browser

.PHONY: test/bills
test/bills: $(BUILT)/withpostgres ## a month of a million requests is compared with the bill of its provider
	@LONG=1 $(BUILT)/withpostgres go test -count=1 -v -run 'OfAMillionRequests' ./controlplane/internal/postgres/billstore

# With a fake clock, and without the race detector, which makes four hours long.
.PHONY: test/hours
test/hours: ## the data plane during outages of four hours
	@LONG=1 go test -count=1 -run 'OutagesOfHours' ./dataplane/internal/app

.PHONY: test/errors
test/errors: ## every word of the rules for provider errors in every place where a provider repeats words of a client
	@LONG=1 go test -count=1 -timeout 40m -run 'WordsOfTheClient' ./dataplane/internal/provider/classify

.PHONY: test/observe
test/observe: ## rules, dashboards and page alerts of the chart with a real Prometheus
	@$(call tool,promtool) --version >/dev/null 2>&1
	@LONG=1 $(gotest) ./scripts/observe ./scripts/e2e/observe

.PHONY: test/delivery
test/delivery: ## images, bills of materials, release, Compose and the chart on the schemas of Kubernetes, benchmarks and audits of the repository
	@scripts/tool.sh helm kubeconform compose-spec gitleaks govulncheck >/dev/null
	@LONG=1 $(gotest) ./scripts/images/... ./scripts/sbom/... ./scripts/cmd/... ./scripts/compose/... ./scripts/chart/... ./scripts/audit/... ./scripts/proxybench/... ./scripts/demo/... ./scripts/picture/... ./scripts/cabinet/...

# Needs a running stack (make run) that make demo has filled.
.PHONY: screenshots
screenshots: ## make the pictures of the console in the documents (docs/images) from the demo
	@scripts/need.sh chromium chromium
	@go run ./scripts/cmd/screenshots

.PHONY: screenshots/parts
screenshots/parts: ## take over how the parts of the console look now, after looking at the pictures in scripts/e2e/browser/testdata
	@scripts/need.sh chromium chromium
	@LONG=1 go test -count=1 -run TestPartsLookAsTheyDid ./scripts/e2e/browser -update

# The newest versions of agents and frameworks are large downloads, so make test has only
# the clients whose packages it needs anyway.
.PHONY: test/clients
test/clients: ## real clients play a task with tools; prints the table of clients
	@if node=$$(scripts/node.sh 22); then export PATH="$${node:+$$node:}$$PATH"; else export WITHOUT_NODE=1; fi; \
	LONG=1 go test -count=1 -v -timeout 40m ./scripts/e2e/clients

.PHONY: clients/update
clients/update: ## pin the newest versions of the clients of make test/clients, and report those that may have ended
	@node=$$(scripts/node.sh 22) && export PATH="$${node:+$$node:}$$PATH"; \
	for folder in scripts/sdk scripts/clients; do \
		cd $(CURDIR)/$$folder && npm install --save-exact --ignore-scripts --no-audit --no-fund --loglevel=error \
			$$(node -p "Object.keys(require('./package.json').dependencies).map((name) => name + '@latest').join(' ')"); \
		node $(CURDIR)/scripts/clients/stale.mjs .; \
	done
	@cd scripts/clients/gosdk && GOWORK=off go get $$(GOWORK=off go list -m -f '{{if not (or .Main .Indirect)}}{{.Path}}@latest{{end}}' all) && GOWORK=off go mod tidy

# PREVIOUS is a tag or commit to upgrade from. Without it, both versions are of this commit. STEPS='rotate|restore' plays only the
# steps with such names. It needs root on Linux, 4 GB of disk for the build of Kubernetes, and half an hour on two cores the
# first time, so it belongs to the long tier.
PREVIOUS ?=
.PHONY: test/cluster
test/cluster: ## operate the chart on a real Kubernetes on this machine, under load: install, upgrade, rollback, drain, rotate, restore
	@PATH="$$(dirname $(call tool,helm)):$$PATH" scripts/cluster/test.sh $(or $(PREVIOUS),HEAD)

# Includes the failure scenarios that take long; make test has only the others.
# Several of them stop and start many processes, so other load on the machine
# disturbs them. A million told costs are compared with their receipts, in half an hour to an hour on two cores, by
# make chaos RECEIPTS=1000000 TESTFLAGS='-run ToldCosts -timeout 3h'.
.PHONY: chaos
chaos: ## failure scenarios on real processes: kills, network cuts, lost data, full disks (minutes)
	@LONG=1 go test -count=1 -timeout 40m -v $(TESTFLAGS) ./scripts/e2e/chaos

# In real time: the outages of 10 s and 1 min one after the other, then those of 30 min at once.
.PHONY: outages
outages: ## play every outage in the tables of docs/operations/outages.md (50 minutes)
	@LONG=1 OUTAGES=all go test -count=1 -timeout 90m -parallel 12 -v -run 'TestOutages|TestCustomersNoticeNothing' $(TESTFLAGS) ./scripts/e2e/chaos

.PHONY: test/db
test/db: $(BUILT)/withpostgres ## the tests that need Postgres, without the race detector
	@$(BUILT)/withpostgres $(gotest) ./shared/platform/testkit/pgcluster/... ./controlplane/...

.PHONY: lint
lint: lint/go lint/api lint/migrations lint/secrets lint/vulnerabilities ## all linters: Go, the API documents, migrations, secrets, vulnerabilities

.PHONY: lint/go
lint/go: ## golangci-lint on every package, formatting included (.golangci.yaml)
	@$(call tool,golangci-lint) run $(PACKAGES)

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
lint/secrets: ## search the files in git for keys, tokens and passwords (.gitleaks.toml)
	@scripts/secrets.sh

.PHONY: lint/vulnerabilities
lint/vulnerabilities: ## report known vulnerabilities in what the code calls, from the database GOVULNDB
	@scripts/vulncheck.sh $(MODULES)

.PHONY: fmt
fmt: ## format all Go files
	@$(call tool,golangci-lint) fmt $(MODULES)

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

# Every directed profile, too.
.PHONY: sim/long
sim/long: ## simulate with 20,000 seeds of the general profile and of each directed one
	@go run ./scripts/cmd/sim -seeds 20000 -all

.PHONY: sim/mutations
sim/mutations: ## put each mutation into the protocol and check that the simulation finds it
	@go run ./scripts/cmd/sim -mutations

.PHONY: bench
bench: $(BUILT)/withpostgres ## run the benchmarks that match BENCH (all)
	@$(BUILT)/withpostgres go test -run='^$$' -bench='$(BENCH)' -benchmem $(PACKAGES)

# EVENTS is the number of usage events in the stream at the start.
EVENTS ?= 1000000
.PHONY: bench/settle
bench/settle: $(BUILT)/withpostgres ## settle a million queued usage events and check the ledger
	@$(BUILT)/withpostgres go test -run='^$$' -bench=BenchmarkSettlement -benchtime=$(EVENTS)x ./controlplane/internal/bus

.PHONY: bench/usage
bench/usage: $(BUILT)/withpostgres ## lists, totals and statements, and all pages of the console, over 5 million usage records, and the search among 100,000 accounts, with a limit of 150 ms each
	@MGW_BENCH_ROWS=5000000 $(BUILT)/withpostgres go test -run='^$$' -bench=UsageReads -benchtime=10x -timeout 60m ./controlplane/internal/postgres/usagestore
	@MGW_BENCH_ROWS=1000000 $(BUILT)/withpostgres go test -run='^$$' -bench=Search -benchtime=20x -timeout 60m ./controlplane/internal/postgres/accountstore
	@MGW_BENCH_ROWS=5000000 $(BUILT)/withpostgres go test -run='^$$' -bench=Pages -benchtime=1x -timeout 60m ./controlplane/internal/console

.PHONY: bench/proxy
bench/proxy: ## the CPU time and memory of the data plane against a minimal proxy, for JSON, streams and large prompts
	@mkdir -p bin && go build -o bin/proxybench ./scripts/cmd/proxybench && bin/proxybench

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
chart: ## package the chart into bin/chart
	@PATH="$$(dirname $(call tool,helm)):$$PATH" go run ./scripts/cmd/release -out bin/chart $(release_flags) chart

.PHONY: release
release: ## run both tiers, verify and lint, then write the release into bin/release; checks.txt in it says what ran (hours)
	@scripts/release.sh

.PHONY: release/files
release/files: ## write images, chart, gwctl for linux and darwin, bills of materials and checksums into bin/release
	@PATH="$$(dirname $(call tool,helm)):$$PATH" go run ./scripts/cmd/release -out bin/release $(release_flags) all

# GOOS and GOARCH choose the platform of the programs.
.PHONY: sbom
sbom: ## write the software bill of materials (CycloneDX) of each program of the product into bin/sbom/
	@go run ./scripts/cmd/sbom -out bin/sbom -version '$(VERSION)' -time '$(commit_time)' $(shipped)

## maintain

.PHONY: generate
generate: ## write all generated code and reference tables
	@sqlc=$(call tool,sqlc) && cd controlplane && "$$sqlc" generate
	@PATH="$$(dirname $(call tool,oapi-codegen)):$$PATH" go generate $(PACKAGES)
	@go test -count=1 ./dataplane/internal/config ./controlplane/internal/config ./scripts/docs ./scripts/observe ./scripts/chart ./scripts/e2e/chaos \
		-run 'ReferenceIsUpToDate|DashboardFiles' -update | { grep -v '^ok' || true; }

# It compares the tree before and after, so that it also works on a tree with changes. Among the files that git does not
# track, it includes only Go and module files.
tree = { git diff; git ls-files --others --exclude-standard '*.go' '*go.mod' '*go.sum'; }

.PHONY: verify
verify: ## regenerate, tidy and format, and fail if that changes a file, or if a module by itself would be another build
	@mkdir -p .cache && $(tree) > .cache/verify.before
	@$(MAKE) --no-print-directory generate tidy fmt
	@$(tree) | diff .cache/verify.before - || { \
		echo "make verify: files were not up to date; commit the changes of make generate, make tidy and make fmt" >&2; exit 1; }
	@scripts/modules.sh $(MODULES)

.PHONY: generated
generated: ## print the share of generated lines in all Go
	@git ls-files '*.go' | xargs awk 'FNR == 1 { generated = /^\/\/ Code generated/ } { all++; sum += generated } \
		END { printf "%d of %d lines of Go are generated: %.1f %%\n", sum, all, 100 * sum / all }'

.PHONY: tidy
tidy: ## go mod tidy in every module
	@for module in $(MODULES) $(patsubst %/go.mod,%,$(wildcard scripts/tools/*/go.mod scripts/clients/*/go.mod)); do GOWORK=off go mod -C $$module tidy; done

.PHONY: $(BUILT)/withpostgres
$(BUILT)/withpostgres:
	@go build -o "$@" ./scripts/cmd/withpostgres
