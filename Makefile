# Every target does its own set-up; `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Empty also where a shell sets it: hundreds of processes would each compile this project again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

.PHONY: setup
setup: $(VENV)/.ready ## Make .venv with everything the other targets need

$(VENV)/.ready: requirements/dev.txt pyproject.toml requirements/check_prerequisites.py
	@$(PYTHON) requirements/check_prerequisites.py
	@echo "setting up $(VENV) (Spark is a download of about 450 MB the first time)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt || { \
	  echo "kafka-discovery: the packages could not be installed (pip says why above): check network, proxy and that 3 GB" \
	    "are free, and run it again; what was downloaded is kept" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
	  --config-settings editable_mode=compat -e .
	@touch $@

.PHONY: lock
lock: setup ## Resolve the requirements again: pinned, hashed, without addresses
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header \
	  --annotation-style line -c requirements/constraints.txt --all-extras pyproject.toml -o requirements/run.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header \
	  --annotation-style line -c requirements/constraints.txt -c requirements/run.txt \
	  --all-extras pyproject.toml requirements/dev.in -o requirements/dev.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header \
	  --annotation-style line -c requirements/run.txt pyproject.toml -o requirements/sidecar.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header \
	  --annotation-style line -c requirements/dev.txt requirements/build.in -o requirements/build.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header \
	  --annotation-style line requirements/docs.in -o requirements/docs.txt

.venv-docs/.ready: requirements/docs.txt
	@$(PYTHON) -m venv .venv-docs
	@.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt
	@touch $@

.PHONY: docs
docs: .venv-docs/.ready ## The documentation as a site in build/site; a broken link or anchor fails (15 seconds)
	.venv-docs/bin/sphinx-build -q -W --keep-going -c docs/site -d build/site-cache -b html . build/site
	@echo "open build/site/index.html"

.PHONY: test-docs
test-docs: setup ## Every snippet of the documentation, those that take long included, and the site (5 minutes)
	MANUAL_LONG=1 $(BIN)/python -m pytest tests/unit/docs/test_manual.py tests/integration/test_manual.py tests/spark/test_manual.py \
	  tests/spark/test_security.py -k 'manual or snippet_of_the_how_to'
	@$(MAKE) --no-print-directory docs

# Whatever runs side by side takes one of make's job slots, one more than there are cores: a suite waits for brokers a
# third of its time. Each line comes at once, with the name of what it is of before it, and again in build/NAME.log; the
# closing lines of all stand at the end.
SLOTS := $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
named = @mkdir -p build; set -o pipefail; \
  { $(1); } 2>&1 | tee build/$@.log | awk '{ print "$(patsubst test-%,%,$@): " $$0; fflush() }'
pytest = $(call named,$(BIN)/python -m pytest $(1))
CLOSING := ^(FAILED|ERROR)|^=+ .* in [0-9.]+s|^[0-9]+ (passed|failed|error).* in
define side-by-side
@mkdir -p build; rm -f $(patsubst %,build/%.log,$(1))
@$(MAKE) --no-print-directory --jobs $(SLOTS) --keep-going $(1); code=$$?; \
  for suite in $(1); do grep -hE '$(CLOSING)' build/$$suite.log | awk -v name="$${suite#test-}" '{ print name ": " $$0 }'; done; exit $$code
endef

CHECKS := check-core check-units check-style check-models

.PHONY: check
check: setup ## Format, lint, types, import layers, unit and property tests, side by side (two minutes)
	$(call side-by-side,$(CHECKS))

# They walk thousands of states, unmeasured: every branch of the core is covered by what tests its parts, and measuring
# doubles the time of a test.
MODELS := $(patsubst %,tests/property/test_%.py,cut_model discovery_machine lanes_model)
CORE := tests/unit/core

.PHONY: $(CHECKS)
check-core: setup
	$(call named,$(BIN)/coverage run -m pytest -q tests/property $(CORE) $(MODELS:%=--ignore=%) && $(BIN)/coverage report)

check-units: setup
	$(call pytest,-q tests/unit $(CORE:%=--ignore=%))

check-style: setup
	$(call named,$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy && $(BIN)/lint-imports)

check-models: setup
	$(call pytest,-q $(MODELS))

# Debian's own binaries, unpacked and not installed; a test that needs one skips with the reason where this fails.
build/tools/.ready:
	@mkdir -p build/tools
	@if command -v promtool >/dev/null; then touch $@; \
	elif command -v apt-get >/dev/null && cd build/tools && (apt-get download -qq prometheus prometheus-alertmanager \
	    || { apt-get update -qq && apt-get download -qq prometheus prometheus-alertmanager; }) >/dev/null 2>&1; then \
	  for package in *.deb; do dpkg-deb -x "$$package" . ; done; touch .ready; \
	else echo "note: no promtool here; its tests will be skipped"; fi

.PHONY: tools
tools: build/tools/.ready ## promtool, Prometheus and Alertmanager from Debian, for the tests of tests/deploy

.PHONY: generate
generate: setup ## Write rules, dashboards and manifests of deploy/ and the pages of docs/reference again from the code
	$(BIN)/python -m deploy.generate
	@for page in configuration client_options source_options sink_options metrics openapi; do $(BIN)/python -m docs.generate.$$page; done

# A suite is one session of pytest: its tests share a cluster and a Spark session, which end with it. The longest
# come first; what is in no list belongs to test-kafka or test-source.
SUITES := test-faults test-kafka test-source test-jobs test-service test-contract test-page
FAULTS := $(patsubst %,tests/spark/test_%.py,chaos_joint cut endpoint faults_addresses faults_brokers faults_topics \
  rescue source_faults standalone)
JOBS := $(patsubst %,tests/integration/test_%.py,demo run_process) \
  $(patsubst %,tests/spark/test_%.py,dau sidecar sink sink_jobs sink_refusals)
SERVICE := $(patsubst %,tests/integration/test_%.py,bootstrap_file doctor_stages endpoint_process localkafka_prerequisites \
  manual removal_service service_chaos service_fuzz service_limits sidecar_clusters sidecar_feed sidecar_process wheel) \
  tests/integration/benchmarks
LISTED := $(FAULTS) $(JOBS) $(SERVICE)
$(foreach path,$(LISTED),$(if $(wildcard $(path)),,$(error $(path) is in a list of suites and does not exist)))

.PHONY: test
test: setup tools ## The check, then real brokers, real Spark, a real browser (about 20 minutes on 2 cores)
	$(call side-by-side,$(CHECKS) $(SUITES))

# A driver's JVM lives for minutes here: the second compiler and the parallel collector cost a fifth of the processor time
# and do not pay; an archive of Spark's classes saves a driver a quarter of its start.
DRIVER := -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
$(SUITES) demo demo-sidecar: export SPARK_SUBMIT_OPTS ?= $(DRIVER) \
  $(shell test -s build/spark.jsa && echo -XX:SharedArchiveFile=$(CURDIR)/build/spark.jsa -Xlog:disable -Xlog:all=error:stderr)

build/spark.jsa: $(VENV)/.ready tests/support/spark/class_archive.py
	@mkdir -p build
	@SPARK_SUBMIT_OPTS='$(DRIVER)' $(BIN)/python -m tests.support.spark.class_archive $@.part > build/class-archive.log 2>&1 \
	  && mv $@.part $@ || echo "note: no archive of Spark's classes (build/class-archive.log); its tests take longer"

build/kafka.ready: $(VENV)/.ready
	@mkdir -p build && $(BIN)/python -m tests.support.prepare && touch $@

.PHONY: $(SUITES)
$(SUITES): setup build/spark.jsa build/kafka.ready
test-source: ## The source, batches and groups in real Spark on real brokers
	$(call pytest,-v --durations 10 tests/spark $(LISTED:%=--ignore=%))

test-faults: ## Spark while brokers die, freeze, move and come back
	$(call pytest,-v --durations 10 $(FAULTS))

test-kafka: ## Real brokers: the loop, the sink's writer, the tools
	$(call pytest,-v --durations 10 tests/integration $(LISTED:%=--ignore=%))

test-contract: ## What every adapter promises, on the fake, on librdkafka's mock and on real brokers
	$(call pytest,-v --durations 10 tests/contract)

test-jobs: ## Whole jobs and the demo
	$(call pytest,-v --durations 10 $(JOBS))

test-service: tools ## The service, the wheel, the pages, what is deployed
	$(call pytest,-v --durations 10 tests/deploy $(SERVICE))

test-page: build/axe/.ready ## The status page in a real Chromium, axe-core included (needs chromium and npm)
	$(call pytest,-v tests/page) # apart: Playwright leaves an event loop running

build/axe/.ready:
	@mkdir -p build/axe
	@if command -v npm >/dev/null && npm install --silent --no-save --prefix build/axe axe-core@4; then touch $@; \
	else echo "note: no npm here, or no registry; the test of the page by axe-core is skipped"; fi

.PHONY: pictures
pictures: setup ## Take the pictures of the status page again: real brokers, a real Chromium (2 minutes)
	$(BIN)/python -m tests.page.pictures

.PHONY: fuzz
fuzz: setup ## Every route of the API with hundreds of requests made from its description (10 minutes)
	FUZZ_EXAMPLES=300 $(BIN)/python -m pytest --timeout 3600 tests/integration/test_service_fuzz.py

# A target, for make chooses a recipe's environment before its first line.
.PHONY: prepared
prepared: setup
	@$(MAKE) --no-print-directory --silent --jobs 2 build/spark.jsa build/kafka.ready

.PHONY: demo
demo: prepared ## Twelve brokers, a Spark job, the whole incident; the report lands in build/demo (4 minutes)
	@$(BIN)/kafka-discovery demo

.PHONY: demo-sidecar
demo-sidecar: prepared ## The same incident with jobs that follow a service (4 minutes)
	@$(BIN)/kafka-discovery demo --sidecar --output-dir build/demo-sidecar

.PHONY: chaos-predict
chaos-predict: setup ## What doctor and removal gate predict, beside what brokers and clients 2.6, 3.9, 4.1 then do (an hour)
	$(BIN)/python -m tests.chaos.prediction

.PHONY: test-matrix
test-matrix: export SPARK_SUBMIT_OPTS ?= $(DRIVER)
test-matrix: setup ## Other versions of Spark, brokers and Java; cells are kept one by one: CELLS=Brokers/3.7 (an hour; root for Java 21)
	$(BIN)/python -m tests.matrix $(if $(CELLS),'$(CELLS)')

.PHONY: test-long
test-long: setup ## Property tests and the state machine with thousands of examples, and every test marked as long (over an hour)
	HYPOTHESIS_PROFILE=exhaustive $(BIN)/python -m pytest -m '' --timeout 7200 tests/property
	$(BIN)/python -m pytest -m '' tests/long
	$(BIN)/python -m pytest -m long tests/contract tests/deploy tests/integration tests/spark

.PHONY: bench-core
bench-core: setup ## The figures of the README, Spark's own source beside ours (20 minutes)
	$(BIN)/python -m benchmarks.core

.PHONY: bench-sidecar
bench-sidecar: setup ## Memory, CPU, ten thousand watchers, a hundred kills of the service (8 minutes)
	$(BIN)/python -m benchmarks.sidecar

.PHONY: bench-source
bench-source: setup ## Rows a second of a worker, Spark's own source beside ours (20 minutes)
	$(BIN)/python -m benchmarks.throughput

.PHONY: bench-planning
bench-planning: setup ## What planning costs at 1 000, 10 000 and 50 000 partitions, beside Spark's own source (5 minutes)
	$(BIN)/python -m benchmarks.planning

.PHONY: bench-parallel
bench-parallel: setup ## How many tasks a batch becomes, and what that costs or saves, beside Spark's own source (6 minutes)
	$(BIN)/python -m benchmarks.parallel

.PHONY: bench-idle
bench-idle: setup ## Start of a query, cost of a trigger, requests of idle queries, beside Spark's own source (20 minutes)
	$(BIN)/python -m benchmarks.idle

.PHONY: bench-endpoint
bench-endpoint: setup ## First byte, added latency, a thousand clients and throughput of the bootstrap endpoint (2 minutes)
	$(BIN)/python -m benchmarks.endpoint

.PHONY: bench-rescue
bench-rescue: setup ## Jobs that do not change on a dead list, and in the incident: with `run`, the endpoint, and without (15 minutes)
	$(BIN)/python -m benchmarks.rescue

.PHONY: bench-peers
bench-peers: setup ## Ours beside Spark's own source and Flink's two, 15 cases by 6 systems; cells are kept one by one (2-3 hours; a JDK; root)
	$(BIN)/python -m benchmarks.peers
	$(BIN)/python -m benchmarks.report

.PHONY: soak
soak: setup ## The service for an hour under faults drawn from a seed; fails where something grows for certain; no JVM (MINUTES=60 SEED=1)
	$(BIN)/python -m tests.chaos.service.soak $(or $(MINUTES),60) $(or $(SEED),1)

.PHONY: soak-joint
soak-joint: setup ## Source, service and sink for an hour under faults of brokers; fails where something grows for certain (MINUTES=60 SEED=1)
	$(BIN)/python -m tests.chaos.joint.soak $(or $(MINUTES),60) $(or $(SEED),1)

.PHONY: chaos-service
chaos-service: setup ## The service under faults of brokers and its own, 200 seeds; one again: FIRST=7 COUNT=1; no JVM (20 minutes)
	$(BIN)/python -m tests.chaos.service.rounds $(or $(FIRST),1) $(or $(COUNT),200)

.PHONY: chaos-source
chaos-source: setup ## Twenty rounds: two of six brokers and a worker, an executor or the driver die; every row once (15 minutes)
	$(BIN)/python -m tests.chaos.cut_rounds

.PHONY: bench-stall
bench-stall: setup ## How long a query stands still when two of six brokers are killed, 20 rounds (40 minutes)
	$(BIN)/python -m benchmarks.stall

.PHONY: bench-outage
bench-outage: setup ## How soon each partition is read again after an outage of all brokers, 20 rounds (40 minutes)
	$(BIN)/python -m benchmarks.outage

.PHONY: test-compose
test-compose: setup tools ## The compose stack comes up for real in an engine of its own (root, docker.io, mmdebstrap; 7 minutes)
	$(BIN)/python -m pytest -s -ra tests/stack/test_compose.py

.PHONY: test-alerts
test-alerts: setup tools ## Every alert fires and resolves for real, every runbook is walked through (root, prometheus; 3 minutes)
	$(BIN)/python -m pytest -s -ra tests/stack/test_alerts.py tests/stack/test_source_alerts.py

.PHONY: test-runbooks
test-runbooks: setup ## The unit under a real systemd, and every command of the runbooks there (root, systemd; 3 minutes)
	$(BIN)/python -m pytest -ra tests/stack/test_runbooks.py

KUBE_FLAGS := -s -w $(foreach word,gitVersion=v1.33.0 gitMajor=1 gitMinor=33,-X k8s.io/component-base/version.$(word))
build/tools/usr/bin/kube-node: tests/stack/kube/main.go tests/stack/kube/go.mod tests/stack/kube/go.sum
	@mkdir -p build/tools/usr/bin
	cd build/tools && apt-get download -qq etcd-server containernetworking-plugins \
	  && for package in etcd-server_*.deb containernetworking-plugins_*.deb; do dpkg-deb -x "$$package" . ; done
	cd tests/stack/kube && go build -ldflags '$(KUBE_FLAGS)' -o $(CURDIR)/$@ .

build/tools/usr/bin/helm:
	@mkdir -p $(@D)
	GOBIN=$(CURDIR)/$(@D) go install helm.sh/helm/v3/cmd/helm@v3.18.4

.PHONY: test-kubernetes
test-kubernetes: setup build/tools/usr/bin/kube-node build/tools/usr/bin/helm ## A Kubernetes node (built once, 16 minutes), our manifests and chart on it (root; 4 minutes)
	$(BIN)/python -m pytest -ra tests/stack/test_kubernetes.py

.PHONY: test-helm
test-helm: setup build/tools/usr/bin/helm ## Build helm (6 minutes), then lint the chart and compare what it makes with the manifests
	$(BIN)/python -m pytest -ra tests/deploy/test_kubernetes.py

.PHONY: test-yarn
test-yarn: setup build/kafka.ready ## Jobs in a packed environment on a YARN and an HDFS of our own, killed there (a JDK; 10 minutes)
	$(BIN)/python -m pytest -ra -m long tests/stack/test_yarn.py

build/tools/usr/bin/versitygw: tests/stack/s3/go.mod tests/stack/s3/go.sum
	@mkdir -p $(@D)
	cd tests/stack/s3 && go build -o $(CURDIR)/$@ github.com/versity/versitygw/cmd/versitygw

.PHONY: test-object-store
test-object-store: export SPARK_SUBMIT_OPTS ?= $(DRIVER)
test-object-store: setup build/kafka.ready build/tools/usr/bin/versitygw ## Jobs with checkpoint and output on an S3 of our own, drivers killed there (Go; 5 minutes)
	$(BIN)/python -m pytest -ra -m long tests/stack/test_object_store.py

.PHONY: compose-scale-in
compose-scale-in: ## Remove two of the five brokers of the running compose stack
	@compose="docker compose"; docker compose version >/dev/null 2>&1 || compose=docker-compose; \
	  $$compose rm --stop --force broker-4 broker-5

.PHONY: dist
dist: setup ## Wheel and sdist in dist/: the same commit gives the same bytes
	$(BIN)/python -m deploy.package dist

.PHONY: sbom
sbom: setup ## What is in the packages, as CycloneDX, and the licences of all dependencies, in dist/
	@mkdir -p dist
	$(BIN)/uv tool run --quiet --from cyclonedx-bom==7.5.0 cyclonedx-py requirements requirements/run.txt \
	  --pyproject pyproject.toml --output-reproducible --output-format JSON --output-file dist/kafka-discovery.cdx.json
	$(BIN)/python -m deploy.licences requirements/run.txt dist/THIRD-PARTY.md

.PHONY: chaos
chaos: setup ## Source, service and sink together under 200 seeds of faults; one again: FIRST=7 COUNT=1 (an hour)
	$(BIN)/python -m tests.chaos.joint.rounds $(or $(FIRST),1) $(or $(COUNT),200)

.PHONY: chaos-sink
chaos-sink: setup ## Kill, stop and cut off whatever the exactly-once sink has, by seed; a table of seeds and faults (40 minutes)
	@mkdir -p build && rm -f build/chaos-sink.jsonl
	$(BIN)/python -m tests.chaos.sink.chaos --seeds 104 --brokers $(if $(MUTANT),--mutant '$(MUTANT)') --keep build/chaos-sink.jsonl
	$(BIN)/python -m tests.chaos.sink.chaos --seeds 20 --spark local --keep build/chaos-sink.jsonl
	$(BIN)/python -m tests.chaos.sink.chaos --seeds 20 --spark executors --keep build/chaos-sink.jsonl

.PHONY: kill-job
kill-job: setup ## Each job killed around its commit, and drivers killed while they write a local checkpoint (5 minutes)
	$(BIN)/python -m pytest tests/chaos/sink/kill_job.py tests/chaos/kill_checkpoint.py

.PHONY: bench-sink
bench-sink: setup ## Throughput, batches and visibility of the exactly-once sink beside Spark's own (20 minutes)
	$(BIN)/python -m benchmarks.sink
	$(BIN)/python -m tests.chaos.sink.recovery
