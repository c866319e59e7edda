# Apportion: what a developer and a newcomer run. "make help" lists it.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# go-nvml binds some calls that NVML's header marks as deprecated.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations
# NVML is loaded while a program runs, and its symbols are undefined until then: some
# compilers bind all of them at start (-z now) unless they are told not to.
export CGO_LDFLAGS ?= -O2 -g -Wl,-z,lazy

BIN := bin
# demo: "local" builds and starts a cluster without Docker, "kind" uses kind.
DEMO_CLUSTER ?= local

.PHONY: help
help: ## List the targets.
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: fake-library ## Build the programs and the fake libnvidia-ml into bin/.
	go build -o $(BIN)/ ./cmd/...

# Go's linker takes no name for a shared library, so the C linker is told.
FAKE_LIBRARY := $(BIN)/libnvidia-ml.so
.PHONY: fake-library
fake-library: ## Build NVML for fake GPUs, as bin/libnvidia-ml.so.
	go build -buildmode=c-shared -ldflags '-extldflags "-Wl,-soname,libnvidia-ml.so.1"' -o $(FAKE_LIBRARY) ./pkg/fake/libnvidia-ml
	rm -f $(FAKE_LIBRARY:.so=.h)

.PHONY: image
image: ## Build the driver's image without Docker, as bin/apportion.tar.
	cd e2e && go run ./cmd/buildimage -o ../$(BIN)/apportion.tar

.PHONY: test
test: ## Run all unit and integration tests with the race detector. Needs no root.
	@echo "Testing the driver. On a new machine the libraries are compiled first, which takes minutes."
	@# Twice as many packages as processors, since some wait. "make lint" does the vetting.
	go test -race -vet=off -p $$(($$(nproc) * 2)) ./...

.PHONY: test-fast
test-fast: ## Test one tree without the race detector: make test-fast PKG=./pkg/gpu/...
	go test -vet=off $(or $(PKG),$(error name the packages, such as make test-fast PKG=./pkg/gpu/...))

.PHONY: test-scheduler
test-scheduler: ## Compare the allocator with kube-scheduler's in 200,000 generated cases.
	go test -count=1 -v -run '^TestAgainstKubeScheduler$$' ./pkg/plan/allocator/internal/solver

.PHONY: test-karpenter
test-karpenter: ## Test what the catalog gives to Karpenter, with Karpenter itself.
	cd pkg/plan/catalog/karpenter && go test -race ./...
	cd bench/allocator && go test ./...

.PHONY: lint
lint: ## Check formatting, go.mod files, and run vet, staticcheck and logcheck.
	hack/lint

.PHONY: e2e
e2e: ## Test the chart, the images and everything on a local cluster. Needs root.
	cd e2e && go test -count=1 ./chart/... ./image/... ./cluster/... ./validation/... ./promtest/...
	cd e2e && go test -count=1 -p 1 -timeout 60m -v ./suite/...

.PHONY: generate
generate: ## Generate the config API's files, the ownership service and the fake libnvidia-ml.
	hack/generate

.PHONY: bench
bench: fake-library ## Measure prepare and unprepare of the real plugin, ownership and scrapes.
	go build -ldflags "-s -w" -o $(BIN)/ ./cmd/apportion-kubelet-plugin ./cmd/apportion-exporter ./cmd/apportion-mps
	cd e2e && go run ./cmd/bench --plugin ../$(BIN)/apportion-kubelet-plugin
	@echo "Joining 100,000 claims with their pods, an event's way to a client, and a scrape of 8 GPUs x 26 fields x 16 owners of each:"
	go test -run '^$$' -bench '^Benchmark(Join|Held|WatchEvent|Scrape|Change)$$' -benchmem ./pkg/ownership ./pkg/ownership/client ./pkg/metrics/exporter
	go test -count=1 -v -run '^TestAScrapeCopiesNothing$$' ./pkg/metrics/exporter

.PHONY: bench-allocator
bench-allocator: ## Measure the allocator beside kube-scheduler's and Karpenter's.
	cd bench/allocator && go run .

.PHONY: demo
demo: ## Start a local cluster with fake GPUs and show pods that use them. Needs root.
	cd e2e && go run ./cmd/demo up --cluster $(DEMO_CLUSTER)

.PHONY: demo-down
demo-down: ## Stop the demo's cluster and remove all it made.
	cd e2e && go run ./cmd/demo down --cluster $(DEMO_CLUSTER)

.PHONY: clean
clean: ## Remove what was built.
	rm -rf $(BIN) e2e/.bin
