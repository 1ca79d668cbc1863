# `make` prints what there is to make.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

GO         ?= go
BUILD      := build
ELASTICDL  := $(BUILD)/elasticdl
# Packages are compiled once for all targets and clones. Releases have no paths of the machine in
# them, either.
export GOFLAGS := $(shell $(GO) env GOFLAGS) -trimpath
LINT       := $(GO) tool -modfile=tools/lint/go.mod
MODULES    := . test/browser tools/lint tools/gen tools/kubernetes tools/kubernetes/kueue tools/kubernetes/karpenter tools/pulumi tools/pulumi/language
# `make test` leaves out packages that link Pulumi, whose SDKs take minutes to compile, and whole
# jobs: test-infra and test-jobs have these.
QUICK       = $$($(GO) list ./... | grep -vE '/elasticdl/(infra|stacks|examples/clusters|test/(graph|local|provider))(/|$$)')
# Tests of memory run without the race detector, which uses memory of its own.
MEMORY      = $$(grep -rl --include='*_test.go' '^//go:build .*!race' cmd trainer test | xargs -n1 dirname | sort -u | sed 's|^|./|')
# Says what a run of tests has skipped, and what took longest.
REPORT     := $(GO) run ./test/report
INFRA      := ./infra/... ./stacks/... ./examples/clusters ./test/graph/... ./test/provider/... ./test/sdk/...
VERSION    := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
FUZZTIME   ?= 10s
SEED       ?= 1
SEEDS      ?= 500
# The whole of MNIST for `make accuracy`, as IDX files; without it the mirrors are asked.
MNIST_SOURCE ?= $(wildcard ../shared/data/mnist)
# The tutorials of `make seeds` as published, one file each, to compare their commands with; without
# them nothing is compared.
TUTORIALS ?= $(wildcard ../shared/seeds)
# Where the test cluster is, and what is in it; its programs, and the Kubernetes that they are.
export ELASTICDL_CLUSTER ?= $(abspath $(BUILD)/cluster)
CLUSTER_FLAGS ?= --nodes=2
CLUSTER    := $(BUILD)/tools/cluster
# Without it, each program with the race detector waits for a second at its end, and tests start
# hundreds.
export GORACE ?= atexit_sleep_ms=0
# A Python that has PyTorch 2.x, by a virtual environment; Debian's has 1.13.
TORCH      := $(BUILD)/tools/torch
TORCHFT    := $(BUILD)/tools/torchft
FRAMEWORKS := $(BUILD)/tools/frameworks
DATA       := $(BUILD)/tools/data
STORAGE    := $(BUILD)/tools/storage
MYPY       := $(BUILD)/tools/mypy
TENSORBOARD := $(BUILD)/tools/tensorboard
PROMETHEUS := $(BUILD)/tools/prometheus
TORCH_TESTS = $$(grep -rl --include='*_test.go' '^//go:build torch' cmd trainer test | xargs -n1 dirname | sort -u | sed 's|^|./|')
KUBERNETES := $(shell awk '$$1 == "k8s.io/kubernetes" {print $$2}' tools/kubernetes/components/go.mod)
KUBE_LDFLAGS := -s -w -X k8s.io/client-go/pkg/version.gitVersion=$(KUBERNETES) \
  $(foreach v,gitVersion=$(KUBERNETES) gitMajor=$(word 1,$(subst ., ,$(KUBERNETES:v%=%))) gitMinor=$(word 2,$(subst ., ,$(KUBERNETES:v%=%))) \
  gitTreeState=clean gitCommit=0000000000000000000000000000000000000000 buildDate=2026-01-01T00:00:00Z,-X k8s.io/component-base/version.$(v))

# Pulumi as its users have it: the command, and what runs a Go program for it.
PULUMI     := $(shell awk '$$1 == "github.com/pulumi/pulumi/pkg/v3" {print $$2}' tools/pulumi/go.mod)
PULUMI_LDFLAGS := -s -w -X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=$(PULUMI)

# The targets of continuous integration, on two cores within 40 minutes when everything is compiled,
# and within 60 when nothing is.
CORE       := check test demo losses torch-job test-infra seeds
# All tests. `make everything PARTS="test-jobs e2e"` runs some of them.
PARTS      ?= check test test-jobs test-page test-torch test-frameworks test-data simulation demo accuracy campaign test-infra e2e
# Jobs of each kind in `make campaign`.
JOBS       ?= 20

.PHONY: help build release demo demo-allreduce stacks doctor plan apply core everything test test-jobs losses campaign simulation test-infra check generate \
  bench bench-page bench-peers accuracy churn disturb hang fuzz vulnerabilities clean cc python3 \
  cluster-up cluster-down cluster-tools karpenter pulumi-tools e2e seeds chromium test-page torch torch-debian torchft frameworks data-packages storage test-torch test-frameworks test-data others torch-job mypy tensorboard prometheus

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The tags halve the size: package trainer/runtime/image says how.
BUILD_FLAGS := -tags disable_grpc_modules,grpcnotrace -ldflags '-s -w -X github.com/elasticdl/elasticdl/cmd/elasticdl/command.version=$(VERSION)'
# Two programs: elasticdl holds the other one, which pods of other images get.
with_agent = CGO_ENABLED=0 $(GO) build $(BUILD_FLAGS) -o $(1)/ ./cmd/elasticdl ./cmd/elasticdl-agent && \
  $(GO) run ./tools/agent $(1)/elasticdl $(1)/elasticdl-agent $(2)

build: ## build/elasticdl, a static binary
	$(call with_agent,$(BUILD)/programs,$(ELASTICDL))

# From one commit, by one version of Go, anybody makes the same files, byte by byte.
release: mypy torch ## build/release: binaries for linux/amd64 and linux/arm64, each with its bill of materials (CycloneDX), the wheel of the Python package, and SHA256SUMS
	rm -rf $(BUILD)/release
	mkdir -p $(BUILD)/release
	$(foreach arch,amd64 arm64,GOOS=linux GOARCH=$(arch) $(call with_agent,$(BUILD)/programs/$(arch),$(BUILD)/release/elasticdl-linux-$(arch)) &&) true
	$(GO) run ./tools/release $(BUILD)/release '$(VERSION)'
	python3 tools/release/check.py $(BUILD)/release/elasticdl-*.whl $(TORCH) $(MYPY)

demo: build ## train MNIST here: 2 parameter servers, 4 workers, the digits of examples/mnist/data
	$(ELASTICDL) dataset mnist $(BUILD)/demo/mnist --source examples/mnist/data
	$(ELASTICDL) train --runtime=local \
	  --model_def=mnist.mnist_functional_api.custom_model \
	  --training_data=$(BUILD)/demo/mnist/train --validation_data=$(BUILD)/demo/mnist/test \
	  --num_epochs=5 --minibatch_size=64 --num_minibatches_per_task=16 \
	  --num_ps_pods=2 --num_workers=4 --evaluation_steps=200 --grads_to_wait=1 --log_loss_steps=20 \
	  --job_name=test-mnist --distribution_strategy=ParameterServerStrategy --output=$(BUILD)/demo/model

demo-allreduce: build ## the same without servers: a ring of 4 workers
	$(ELASTICDL) dataset mnist $(BUILD)/demo/mnist --source examples/mnist/data
	$(ELASTICDL) train --runtime=local \
	  --model_def=mnist.mnist_functional_api.custom_model \
	  --training_data=$(BUILD)/demo/mnist/train --validation_data=$(BUILD)/demo/mnist/test \
	  --num_epochs=5 --minibatch_size=64 --num_minibatches_per_task=4 \
	  --num_workers=4 --min_workers=1 --max_workers=8 --evaluation_steps=50 --log_loss_steps=10 \
	  --job_name=test-mnist-allreduce --distribution_strategy=AllreduceStrategy --output=$(BUILD)/demo/model-allreduce

# each runs targets one after the other, and prints how long each took. It ends with the first that
# fails.
define each
@for target in $(1); do echo "=== make $$target"; began=$$SECONDS; $(MAKE) --no-print-directory $$target; \
  took="$${took:-}=== make $$target: $$((SECONDS - began)) s"$$'\n'; echo "=== make $$target: $$((SECONDS - began)) s"; done; \
  echo "$$took=== all of it: $$SECONDS s"
endef

# SHORT=-short leaves out what repeats other tests for most changes.
core: export SHORT := -short
core: ## what .ci/run runs: of each kind of test what a change breaks first
	$(call each,$(CORE))

everything: ## all tests; PARTS="test-jobs e2e" runs some of them
	$(call each,$(PARTS))

test: cc python3 tensorboard prometheus ## the tests of the trainer and the command line, with the race detector; not whole jobs (test-jobs), stacks (test-infra), Kubernetes (e2e)
	{ $(GO) test -json -race -shuffle=on -timeout 30m -skip '^(TestJobStories|TestPagesAreRun)$$' $(QUICK) && \
	  $(GO) test -C tools/kubernetes -json -race -shuffle=on ./...; } | $(REPORT)

test-jobs: cc python3 tensorboard prometheus ## jobs as processes of this machine: trained, scaled, killed in all their parts, resumed; the commands of the pages; memory of a server; jobs in virtual time
	{ $(GO) test -json -race -timeout 15m -run '^(TestJobStories|TestPagesAreRun)$$' ./cmd/elasticdl/cli && \
	  $(GO) test -json -count=1 -timeout 15m ./test/local && $(GO) test -json -run '^TestMemory' $(MEMORY) && \
	  $(GO) test -json -race -timeout 15m -run '^TestSimulation' ./trainer -seed 21 -seeds 80; } | $(REPORT)

# SHOTS=docs writes the screenshots of docs/dashboard.md again.
test-page: build cc chromium ## the page of elasticdl dashboard in Chromium, with a job that loses a worker; SHOTS=docs writes its screenshots
	$(GO) test -c -o $(BUILD)/tools/page.test ./cmd/elasticdl/page
	$(ELASTICDL) dataset mnist $(BUILD)/demo/mnist --source examples/mnist/data
	$(GO) test -C test/browser -json -count=1 -timeout 10m ./... -elasticdl=$(abspath $(ELASTICDL)) \
	  -page=$(abspath $(BUILD))/tools/page.test -data=$(abspath $(BUILD))/demo/mnist \
	  $(if $(SHOTS),-shots=$(abspath $(SHOTS))) | $(REPORT)

# One loss of each kind: a worker, a server, a worker of a ring, all of a ring, a master, and some
# of each in a job that counts its records.
LOSSES := TestKilledWorkerIsReplaced|TestKilledServerComesBack|TestRingLosesAWorker|TestRingLosesAll|TestCampaign
losses: cc python3 ## jobs of this machine that lose a worker, a server, a member of a ring, all of a ring, their master, and some of each
	{ $(GO) test -json -count=1 -timeout 15m -run '^($(LOSSES))$$' ./test/local -campaign=2 && \
	  $(GO) test -json -race -timeout 15m -run '^TestJobStories$$/^master$$' ./cmd/elasticdl/cli; } | $(REPORT)

campaign: torch cc ## JOBS=20 jobs of each kind with a model that counts records: killed, stopped as planned, disks full, directories shared; SEED=first
	$(GO) test -tags torch -count=1 -v -timeout 3h -run '^(TestCampaign|TestTorchCampaign)$$' ./test/local -campaign=$(JOBS) -campaign_seed=$(SEED)

# Tests of the tag torch run real PyTorch; package test/torch finds it, and fails without it.
test-torch: torch torch-debian storage cc ## tests with real PyTorch, 1.13 from Debian and 2.x from PyPI; ONLY=regexp
	$(GO) test -json -tags torch -count=1 -p 1 -timeout 60m -run '$(or $(ONLY),^TestTorch)' $(TORCH_TESTS) | $(REPORT)

test-frameworks: frameworks cc ## Hugging Face's Trainer and Accelerate, and Lightning: processes and workers killed, joined, left, stopped; ONLY=regexp
	$(GO) test -json -tags torch -count=1 -timeout 60m -run '$(or $(ONLY),^TestFrameworks)' ./test/local | $(REPORT)

test-data: data-packages cc ## the parts of docs/data.md, with datasets, torchdata, WebDataset, LitData and Parquet, each with a process killed; ONLY=regexp
	$(GO) test -json -tags torch -count=1 -timeout 60m -run '^TestDataLibraries$$/$(ONLY)' ./test/local | $(REPORT)

# Nothing is fetched: the checkouts and a Python with what the programs import are there before.
others: build cc ## programs that others wrote, under torchrun, then disturbed: SOURCES=directory of checkouts, PYTHON=with what they import; ONLY=regexp
	$(GO) test -tags torch -count=1 -v -timeout 3h ./test/others -run 'TestOthers/$(ONLY)' \
	  -sources='$(SOURCES)' -python='$(or $(PYTHON),python3)' -elasticdl='$(abspath $(ELASTICDL))'

torch-job: ## a PyTorch script, with both PyTorch, that loses processes and an agent, is joined and left
	$(MAKE) --no-print-directory test-torch ONLY='^TestTorchRun$$$$'

# A minute the first time.
chromium:
	@command -v chromium >/dev/null || { echo "installing Chromium for the tests of the page"; \
	  apt-get update -q && apt-get install -y -q -o Acquire::Retries=3 --no-install-recommends chromium; }

# Half a minute the first time.
torch-debian:
	@dpkg -s python3-torch >/dev/null 2>&1 || { apt-get update -q && $(MAKE) --no-print-directory bench-peers; }

# A virtual environment; Debian has what makes one in a package of its own.
venv = { python3 -m venv $(1) 2>/dev/null || { apt-get update -q && apt-get install -y -q --no-install-recommends python3-venv && python3 -m venv $(1); }; }

# 570 MB to fetch and 1.5 GB on disk; a minute the first time.
torch: cc ## PyTorch 2.x for CPUs, from PyPI into build/tools/torch
	@cmp -s tools/torch/requirements.txt $(TORCH)/requirements.txt || { rm -rf $(TORCH); \
	  $(call venv,$(TORCH)); \
	  $(TORCH)/bin/pip install -q --no-deps --require-hashes -r tools/torch/requirements.txt; \
	  $(TORCH)/bin/python tools/torch/nocuda.py; \
	  $(TORCH)/bin/python -c 'import torch, torch.distributed; print("PyTorch", torch.__version__)'; \
	  cp tools/torch/requirements.txt $(TORCH)/; }

# 30 MB to fetch, some seconds. It takes PyTorch from where `make torch` puts it.
storage: torch ## s3fs and gcsfs, and servers of their stores, from PyPI into build/tools/storage, for tests of checkpoints in buckets
	@cmp -s tools/storage/requirements.txt $(STORAGE)/requirements.txt || { rm -rf $(STORAGE); $(call venv,$(STORAGE)); \
	  for site in $(abspath $(TORCH))/lib/python3*/site-packages; do echo $$site > $$(echo $(STORAGE)/lib/python3*/site-packages)/torch.pth; done; \
	  $(STORAGE)/bin/pip install -q --no-deps --require-hashes -r tools/storage/requirements.txt; \
	  $(STORAGE)/bin/python -c 'import s3fs, gcsfs, moto.server, gcp_storage_emulator'; cp tools/storage/requirements.txt $(STORAGE)/; }

simulation: ## 500 whole jobs of each strategy in virtual time, with all kinds of faults, servers alone, and jobs in one queue; SEED=first, SEEDS=how many
	$(GO) test -count=1 -timeout 30m -run '^TestSchedules$$' ./trainer/train/ps -schedules 120
	$(GO) test -count=1 -timeout 30m -run '^TestContest$$' ./trainer/elastic/admission -seeds 10000
	$(GO) test -c -o $(BUILD)/trainer.test ./trainer
	@cd trainer; running=; for strategy in TestSimulation TestSimulationRing TestSimulationProgram; do \
	  ../$(BUILD)/trainer.test -test.run "^$$strategy$$" -test.timeout 0 -seed $(SEED) -seeds $(SEEDS) & running="$$running $$!"; \
	done; failed=0; for process in $$running; do wait $$process || failed=1; done; exit $$failed

# Its SDKs are large: the first time the compiler takes 2.5 minutes on two cores, and up to 2 GB.
# pulumi does the same without output.
stacks: ## compile the program of the stacks, which the first pulumi preview would do in silence
	@echo "compiling the program of the stacks: the first time about 2.5 minutes on two cores, and up to 2 GB of memory"
	$(GO) build -v -o /dev/null ./stacks

doctor: ## what a stack still lacks before its first pulumi up: programs, settings, credentials, permissions, quotas; STACK=gke
	$(GO) run ./stacks/doctor -stack=$(or $(STACK),existing)

plan: ## what an update of a stack would do, with a digest: STACK=gke, PLAN=the file to write; REFRESH=1 asks the clouds for every resource first
	@$(GO) run ./stacks/plan -stack=$(STACK) $(if $(REFRESH),-refresh) $(if $(PLAN),>$(PLAN))

apply: ## make that update, unless it would do something else by now: STACK=gke, PLAN=the file
	@$(GO) run ./stacks/plan -stack=$(STACK) -apply=$(or $(PLAN),plan.txt)

test-infra: cc pulumi-tools stacks ## the stacks: recorded with mocks, then with the real Pulumi engine and simulated clouds
	$(GO) test -json -race -p 1 -shuffle=on -timeout 40m $(SHORT) $(INFRA) | $(REPORT)

# The first build takes 4 minutes of a CPU.
pulumi-tools:
	CGO_ENABLED=0 $(GO) build -C tools/pulumi -ldflags '$(PULUMI_LDFLAGS)' -o $(abspath $(BUILD))/tools/pulumi github.com/pulumi/pulumi/pkg/v3/cmd/pulumi
	CGO_ENABLED=0 $(GO) build -C tools/pulumi/language -ldflags '-s -w' -o $(abspath $(BUILD))/tools/pulumi-language-go github.com/pulumi/pulumi/sdk/v3/go/pulumi-language-go

check: mypy ## formatting, vet, staticcheck, tidy modules, fresh generated code, the import law, types of the Python packages
	@unformatted=$$(gofmt -l cmd trainer infra stacks tools test examples); \
	  if [ -n "$$unformatted" ]; then echo "not formatted (run gofmt -w):"; echo "$$unformatted"; exit 1; fi
	@for m in $(MODULES); do (cd $$m && $(GO) mod tidy -diff) || { echo "run go mod tidy in $$m"; exit 1; }; done
	$(GO) vet ./...
	$(GO) vet -tags e2e ./test/e2e/... ./stacks
	$(GO) vet -tags torch $(TORCH_TESTS)
	$(GO) vet -C tools/gen ./...
	$(GO) vet -C tools/kubernetes ./...
	@fixes=$$($(GO) fix -diff ./... 2>&1 || true); if [ -n "$$fixes" ]; then echo "run go fix ./...:"; echo "$$fixes"; exit 1; fi
	$(LINT) staticcheck ./...
	$(LINT) staticcheck -tags e2e ./test/e2e/... ./stacks
	$(LINT) staticcheck -tags torch $(TORCH_TESTS)
	$(GO) test -count=1 -skip TestSimulation ./trainer
	@before=$$(git status --porcelain -- trainer | cksum; git diff -- trainer | cksum); $(MAKE) --no-print-directory generate; \
	  after=$$(git status --porcelain -- trainer | cksum; git diff -- trainer | cksum); \
	  if [ "$$before" != "$$after" ]; then echo "generated code was not up to date (make generate):"; git status --short -- trainer; exit 1; fi

# 15 MB to fetch, some seconds the first time.
mypy: python3
	@cmp -s tools/mypy/requirements.txt $(MYPY)/requirements.txt || { rm -rf $(MYPY); $(call venv,$(MYPY)); \
	  $(MYPY)/bin/pip install -q --no-deps --require-hashes -r tools/mypy/requirements.txt; \
	  cp tools/mypy/requirements.txt $(MYPY)/; }
	cd trainer/run/python && $(abspath $(MYPY))/bin/mypy --config-file=$(abspath tools/mypy/mypy.ini) --cache-dir=$(abspath $(MYPY))/cache elasticdl elasticai_api

# 55 MB to fetch and 180 MB on disk, half a minute the first time.
tensorboard: python3 ## TensorBoard from PyPI into build/tools/tensorboard, for tests that read event files by it
	@cmp -s tools/tensorboard/requirements.txt $(TENSORBOARD)/requirements.txt || { rm -rf $(TENSORBOARD); \
	  $(call venv,$(TENSORBOARD)); \
	  $(TENSORBOARD)/bin/pip install -q --no-deps --require-hashes -r tools/tensorboard/requirements.txt; \
	  cp tools/tensorboard/requirements.txt $(TENSORBOARD)/; }

# 19 MB to fetch and 190 MB on disk. The package is unpacked, not installed: nothing is started.
prometheus: ## Prometheus and promtool from Debian into build/tools/prometheus, for tests that scrape by them
	@[ -x $(PROMETHEUS)/prometheus ] || { set -e; d=$$(mktemp -d); chmod 755 $$d; cd $$d; \
	  apt-get -q download prometheus >/dev/null || { apt-get -q update >/dev/null; apt-get -q download prometheus >/dev/null; }; \
	  dpkg-deb -x prometheus_*.deb .; mkdir -p $(abspath $(PROMETHEUS)); \
	  mv usr/bin/promtool usr/bin/prometheus $(abspath $(PROMETHEUS))/; cd /; rm -rf $$d; }

generate: ## the code made from .proto files and by the kernel generator
	$(GO) generate ./...

bench: build ## ratios to peers and physical limits, into build/bench.json; ONLY=regexp, BENCH_FLAGS=; `make bench-peers torch torchft` first
	$(GO) run ./test/bench -only '$(ONLY)' -out $(BUILD)/bench.json $(BENCH_FLAGS)

bench-page: ## the tables of docs/benchmarks.md, from build/bench*.json
	$(GO) run ./test/bench -page docs/benchmarks.md $(wildcard $(BUILD)/bench*.json)

bench-peers: ## install what the bench compares with (PyTorch, from Debian)
	apt-get install -y --no-install-recommends python3-torch python3-numpy libopenblas0-openmp

# with_torch makes a virtual environment in $(1) that takes PyTorch from where `make torch` puts it,
# with the packages of $(2).
with_torch = rm -rf $(1); $(call venv,$(1)); \
  for site in $(abspath $(TORCH))/lib/python3*/site-packages; do echo $$site > $$(echo $(1)/lib/python3*/site-packages)/torch.pth; done; \
  $(1)/bin/pip install -q --no-deps --require-hashes -r $(2)

torchft: torch ## torchft from PyPI into build/tools/torchft, for the bench
	@cmp -s tools/torch/torchft.txt $(TORCHFT)/torchft.txt || { $(call with_torch,$(TORCHFT),tools/torch/torchft.txt); \
	  $(TORCHFT)/bin/python -c 'import torchft'; cp tools/torch/torchft.txt $(TORCHFT)/; }

# 160 MB to fetch and 525 MB on disk, a minute the first time.
frameworks: torch ## Hugging Face's packages and Lightning from PyPI into build/tools/frameworks, for tests
	@cmp -s tools/frameworks/requirements.txt $(FRAMEWORKS)/requirements.txt || { \
	  $(call with_torch,$(FRAMEWORKS),tools/frameworks/requirements.txt); \
	  $(FRAMEWORKS)/bin/python -c 'import accelerate, datasets, lightning, transformers; print("transformers", transformers.__version__)'; \
	  cp tools/frameworks/requirements.txt $(FRAMEWORKS)/; }

# 130 MB to fetch and 450 MB on disk, a minute the first time.
data-packages: torch ## Hugging Face datasets, torchdata, WebDataset, LitData and pyarrow from PyPI into build/tools/data, for tests
	@cmp -s tools/data/requirements.txt $(DATA)/requirements.txt || { $(call with_torch,$(DATA),tools/data/requirements.txt); \
	  $(DATA)/bin/python -c 'import datasets, litdata, pyarrow, torchdata, webdataset'; cp tools/data/requirements.txt $(DATA)/; }

accuracy: build ## the whole of MNIST: one worker, 2 servers and 4 workers, a ring; with a worker killed every 5 s; with 100 processes of all kinds killed
	MNIST_SOURCE="$(abspath $(MNIST_SOURCE))" $(GO) test -count=1 -v -timeout 30m ./test/local -run TestAccuracy -accuracy

hang: torch-debian ## twenty programs that work, LENGTH=10m each, and four that hang: no false alarm, each hang found
	$(GO) test -tags torch -count=1 -v -timeout 3h -parallel $(or $(PARALLEL),8) ./test/hang -length=$(or $(LENGTH),10m)

disturb: torch torch-debian frameworks cc ## PyTorch jobs with KILLS=200 kills, stops, joins and leaves each; SEED=number repeats them; ONLY=1.13, 2.x, stream or trainer
	$(GO) test -tags torch -count=1 -v -timeout 3h ./test/local -run '^Test(TorchRun|Frameworks)Disturbed$$/$(ONLY)' -kills=$(or $(KILLS),200) $(if $(filter command,$(firstword $(origin SEED))),-seed=$(SEED))

cluster-up: cluster-tools ## a real Kubernetes on this machine, as root: 2 nodes, DNS, a registry; CLUSTER_FLAGS="--nodes=0 --kwok=200" needs no root
	$(CLUSTER) up $(CLUSTER_FLAGS)

cluster-down: ## end that cluster, and undo what it changed on this machine
	@if [ -x $(CLUSTER) ]; then $(CLUSTER) down; else echo "no cluster was made here"; fi

# Uses the cluster of cluster-up if it runs, which then stays. Otherwise a temporary one is used and
# deleted, also after a failure or Ctrl-C, unless KEEP=1.
on_cluster = if $(CLUSTER) status >/dev/null 2>&1; then echo "on the cluster that runs: $(ELASTICDL_CLUSTER)"; else \
  [ "$(KEEP)" = 1 ] || { trap 'status=$$?; trap "" INT TERM; $(CLUSTER) down; exit $$status' EXIT; trap 'exit 130' INT TERM HUP; }; \
  $(CLUSTER) down; $(CLUSTER) up --nodes=8; fi
E2E_FLAGS   = -cluster=$(ELASTICDL_CLUSTER) $(if $(filter 1,$(KEEP)),-keep) $(if $(filter command,$(firstword $(origin SEED))),-seed=$(SEED))

# The tests of scale make a cluster of fake nodes for themselves.
e2e: build cluster-tools karpenter pulumi-tools torch-debian ## the tutorials, faults of jobs, and the stacks on that cluster; elastic scheduling on fake nodes, and nodes that Karpenter makes; ONLY=regexp, KEEP=1, SEED=of the kills
	@$(on_cluster); \
	$(GO) test -tags e2e -count=1 -v -timeout 60m $(if $(ONLY),-run '$(ONLY)') ./test/e2e -args $(E2E_FLAGS); \
	$(GO) test -tags e2e -count=1 -v -timeout 40m -run '$(or $(ONLY),TestRealCluster)' ./stacks -args -cluster=$(ELASTICDL_CLUSTER)
	$(if $(ONLY),,$(GO) test -tags e2e -count=1 -v -timeout 40m -skip '^TestQueueChurn$$' ./test/e2e/scale)

churn: build cluster-tools ## two jobs of 100 workers in queues while other teams take quota, worker by worker and evicted whole, as root; CHURN=length, 10m; SEED=of the schedule
	$(GO) test -tags e2e -count=1 -v -timeout 2h -run '^TestQueueChurn$$' ./test/e2e/scale -args -churn=$(or $(CHURN),10m) $(if $(filter command,$(firstword $(origin SEED))),-seed=$(SEED))

seeds: build cluster-tools torch-debian ## every command of five published tutorials, as it stands, on that cluster; KEEP=1
	$(if $(TUTORIALS),$(GO) test ./test/seeds -args -source=$(abspath $(TUTORIALS)))
	@$(on_cluster); \
	$(GO) test -tags e2e -count=1 -v -timeout 30m -run '^TestSeeds$$' ./test/e2e -args $(E2E_FLAGS)

# The first build of Kubernetes takes 7 minutes of a CPU and 2.4 GB, that of Kueue 10 minutes. Kueue
# has a module of its own, because it requires older libraries of Kubernetes; its resource
# definitions, roles and webhooks are those that its module ships.
cluster-tools:
	CGO_ENABLED=0 $(GO) build -C tools/kubernetes -ldflags '-s -w' -o $(abspath $(BUILD))/tools/ ./cmd/cluster
	CGO_ENABLED=0 $(GO) build -C tools/kubernetes/components -ldflags '-s -w' -o $(abspath $(BUILD))/tools/ ./coredns ./pause sigs.k8s.io/kwok/cmd/kwok
	CGO_ENABLED=0 $(GO) build -C tools/kubernetes/components -ldflags '$(KUBE_LDFLAGS)' -o $(abspath $(BUILD))/tools/ ./kube
	CGO_ENABLED=0 $(GO) build -C tools/kubernetes/kueue -ldflags '-s -w' -o $(abspath $(BUILD))/tools/ sigs.k8s.io/kueue/cmd/kueue
	$(BUILD)/tools/kube kubectl kustomize $$($(GO) list -C tools/kubernetes/kueue -m -f '{{.Dir}}' sigs.k8s.io/kueue)/config/default >$(BUILD)/tools/kueue.yaml

# The first build takes 2.5 minutes of a CPU. The resource definitions are those that the module
# ships.
# The version that the stacks install: a test compares.
KARPENTER_AWS := github.com/aws/karpenter-provider-aws@v1.14.1
karpenter:
	CGO_ENABLED=0 $(GO) build -C tools/kubernetes/karpenter -ldflags '-s -w' -o $(abspath $(BUILD))/tools/karpenter .
	cd $$($(GO) list -C tools/kubernetes/karpenter -m -f '{{.Dir}}' sigs.k8s.io/karpenter) && \
	  cat pkg/apis/crds/*.yaml kwok/apis/crds/*.yaml >$(abspath $(BUILD))/tools/karpenter.yaml
	cat $$($(GO) mod download -json $(KARPENTER_AWS) | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')/pkg/apis/crds/karpenter.k8s.aws_ec2nodeclasses.yaml \
	  >>$(BUILD)/tools/karpenter.yaml

fuzz: ## every fuzz target for FUZZTIME (10s)
	@failed=; for f in $$(grep -rlE '^func Fuzz' --include='*_test.go' trainer cmd infra test); do \
	  for target in $$(grep -oE '^func Fuzz[A-Za-z0-9_]+' "$$f" | cut -d' ' -f2); do \
	    echo "$$(dirname $$f) $$target"; \
	    $(GO) test ./$$(dirname $$f) -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x || failed="$$failed $$f:$$target"; done; done; \
	  [ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

vulnerabilities: ## known vulnerabilities in what each module calls, as vuln.go.dev knows them
	@failed=; look() { echo "$$@"; $(GO) run golang.org/x/vuln/cmd/govulncheck@v1.1.4 -C "$$@" || failed="$$failed $$1"; }; \
	  look . ./...; look tools/gen ./...; look tools/kubernetes ./...; look tools/lint honnef.co/go/tools/cmd/staticcheck; \
	  look tools/kubernetes/components ./coredns ./pause ./kube sigs.k8s.io/kwok/cmd/kwok; \
	  look tools/kubernetes/kueue sigs.k8s.io/kueue/cmd/kueue; look tools/kubernetes/karpenter .; \
	  look tools/pulumi github.com/pulumi/pulumi/pkg/v3/cmd/pulumi; look tools/pulumi/language github.com/pulumi/pulumi/sdk/v3/go/pulumi-language-go; \
	  [ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

clean: cluster-down ## remove build/, and the cluster that may run in it
	rm -rf $(BUILD)

# The race detector links with the C library.
cc:
	@command -v cc >/dev/null || { echo "installing a C compiler for the race detector"; \
	  apt-get update -q && apt-get install -y -q -o Acquire::Retries=3 --no-install-recommends gcc libc6-dev; }

# Tests of users' programs run scripts that need no package.
python3:
	@command -v python3 >/dev/null || { echo "installing Python for the tests of users' programs"; \
	  apt-get update -q && apt-get install -y -q -o Acquire::Retries=3 --no-install-recommends python3; }
