# The verbs of the project, the same locally and in CI. `make help` lists them.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

export CARGO_TERM_COLOR ?= auto

.PHONY: help build test lint fmt demo demo-down crds bench quality e2e nightly sweep bench-api plane-faults conformance uninstall

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## Build every binary, optimized, into target/release
	cargo build --release --workspace --bins

test: ## Everything: unit tests, laws, scenarios, replays, stories on a real control plane
	hack/test

lint: ## Format, clippy, docs, layers, generated files, licences
	hack/lint

fmt: ## Format the code
	cargo fmt --all

crds: ## Write the generated files: CRDs and the table of codes
	hack/check-generated --write

demo: ## A real control plane with Berth on it, telling its story; KEEP=1 leaves it running
	hack/demo up $(if $(KEEP),--keep,)

demo-down: ## End a demo that was kept
	hack/demo down

e2e: ## Only the stories on a real control plane
	hack/test e2e

bench: ## Speed, each figure beside its mark; writes target/bench.json and docs/measurements.md
	hack/bench speed

quality: ## Quality on public traces, each figure beside its mark; writes target/quality.json
	hack/bench quality

sweep: ## Every fault at every call of every stage of a gang's life; writes target/sweep.json
	hack/sweep

bench-api: ## Gangs against a real API server beside bare loops; writes target/bench-api.json
	hack/bench-api

plane-faults: ## Faults on a real control plane: the controller killed at 50 points, leaders stopped, servers restarted
	BERTH_KILLS=$${BERTH_KILLS:-50} cargo test --workspace --test plane_faults

conformance: ## The fake API server beside a real one, request by request
	cargo test --workspace --test conformance -- --nocapture --ignored

nightly: ## The laws at their full counts, and the licence and advisory audit
	hack/nightly
