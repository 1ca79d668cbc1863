# `make` prints what there is to make.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

GO         ?= go
BUILD      := build
ELASTICDL  := $(BUILD)/elasticdl
LINT       := $(GO) tool -modfile=tools/lint/go.mod
MODULES    := . tools/lint tools/gen
VERSION    := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
FUZZTIME   ?= 10s
# The whole of MNIST for `make accuracy`, as IDX files; without it the mirrors are asked.
MNIST_SOURCE ?= $(wildcard ../shared/data/mnist)

.PHONY: help build demo demo-allreduce test check generate bench bench-peers accuracy fuzz clean cc

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build/elasticdl, a static binary
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X github.com/elasticdl/elasticdl/cmd/elasticdl/cli.version=$(VERSION)' -o $(ELASTICDL) ./cmd/elasticdl

demo: build ## train MNIST here: 2 parameter servers, 4 workers, the digits of examples/mnist/data
	$(ELASTICDL) dataset mnist $(BUILD)/demo/mnist --source examples/mnist/data
	$(ELASTICDL) train --runtime=local --model_zoo=model_zoo \
	  --model_def=mnist.mnist_functional_api.custom_model \
	  --training_data=$(BUILD)/demo/mnist/train --validation_data=$(BUILD)/demo/mnist/test \
	  --num_epochs=5 --minibatch_size=64 --num_minibatches_per_task=16 \
	  --num_ps_pods=2 --num_workers=4 --evaluation_steps=200 --grads_to_wait=1 --log_loss_steps=20 \
	  --job_name=test-mnist --distribution_strategy=ParameterServerStrategy --output=$(BUILD)/demo/model

demo-allreduce: build ## the same without servers: a ring of 4 workers
	$(ELASTICDL) dataset mnist $(BUILD)/demo/mnist --source examples/mnist/data
	$(ELASTICDL) train --runtime=local --model_zoo=model_zoo \
	  --model_def=mnist.mnist_functional_api.custom_model \
	  --training_data=$(BUILD)/demo/mnist/train --validation_data=$(BUILD)/demo/mnist/test \
	  --num_epochs=5 --minibatch_size=64 --num_minibatches_per_task=4 \
	  --num_workers=4 --min_workers=1 --max_workers=8 --evaluation_steps=50 --log_loss_steps=10 \
	  --job_name=test-mnist-allreduce --distribution_strategy=AllreduceStrategy --output=$(BUILD)/demo/model-allreduce

test: cc ## every test that needs nothing but Go, with the race detector
	$(GO) test -race -shuffle=on -timeout 20m ./...

check: ## formatting, vet, staticcheck, tidy modules, fresh generated code, the import law
	@unformatted=$$(gofmt -l cmd trainer tools test examples); \
	  if [ -n "$$unformatted" ]; then echo "not formatted (run gofmt -w):"; echo "$$unformatted"; exit 1; fi
	@for m in $(MODULES); do (cd $$m && $(GO) mod tidy -diff) || { echo "run go mod tidy in $$m"; exit 1; }; done
	$(GO) vet ./...
	$(GO) vet -C tools/gen ./...
	@fixes=$$($(GO) fix -diff ./... 2>&1 || true); if [ -n "$$fixes" ]; then echo "run go fix ./...:"; echo "$$fixes"; exit 1; fi
	$(LINT) staticcheck ./...
	$(GO) test -count=1 -skip TestSimulation ./trainer
	@before=$$(git status --porcelain -- trainer | cksum; git diff -- trainer | cksum); $(MAKE) --no-print-directory generate; \
	  after=$$(git status --porcelain -- trainer | cksum; git diff -- trainer | cksum); \
	  if [ "$$before" != "$$after" ]; then echo "generated code was not up to date (make generate):"; git status --short -- trainer; exit 1; fi

generate: ## the code made from .proto files and by the kernel generator
	$(GO) generate ./...

bench: build ## ratios beside peers and physical limits, into build/bench.json; ONLY=regexp chooses
	$(GO) run ./test/bench -only '$(ONLY)' -out $(BUILD)/bench.json

bench-peers: ## install what the bench compares with (PyTorch, from Debian)
	apt-get install -y --no-install-recommends python3-torch python3-numpy libopenblas0-pthread

accuracy: build ## the whole of MNIST: one worker, 2 servers and 4 workers, a ring; and with a worker killed every 5 s
	MNIST_SOURCE="$(abspath $(MNIST_SOURCE))" $(GO) test -count=1 -v -timeout 30m ./test/local -run TestAccuracy -accuracy

fuzz: ## every fuzz target for FUZZTIME (10s)
	@grep -rlE '^func Fuzz' --include='*_test.go' trainer cmd | while read -r f; do \
	  grep -oE '^func Fuzz[A-Za-z0-9_]+' "$$f" | cut -d' ' -f2 | while read -r target; do \
	    echo "$$(dirname $$f) $$target"; $(GO) test ./$$(dirname $$f) -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x; done; done

clean: ## remove build/
	rm -rf $(BUILD)

# The race detector links with the C library.
cc:
	@command -v cc >/dev/null || { echo "installing a C compiler for the race detector"; \
	  apt-get update -q && apt-get install -y -q --no-install-recommends gcc libc6-dev; }
