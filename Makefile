# Every target makes .venv from requirements.lock if it is missing. `make` alone lists them.
# The newest of python3.13, python3.12, python3.11 that runs; another: make PYTHON=/path/to/python
PYTHON ?= $(firstword $(shell .ci/pythons))
BIN := .venv/bin
# If set, every process would recompile TensorFlow and Beam: 7 s of CPU.
export PYTHONDONTWRITEBYTECODE :=
# Written last, so that an unfinished environment is made again.
READY := .venv/.ready
# A process per core; at most 4, since each takes 2 GB, and 20 s of CPU to import the tests and TensorFlow.
PARALLEL = --numprocesses=$$(getconf _NPROCESSORS_ONLN) --maxprocesses=4 --dist=loadfile --no-loadscope-reorder
SHAPES := demo/data/images
NAME := detection
FRAMEWORKS := bench-data/frameworks
PEERS := bench-data/peers
MIGRATE := bench-data/migrate
FLINK := .runners/flink/job-server.jar
DEPLOY := bench-data/deploy
DOCS := bench-data/docs
RELEASE := bench-data/release
NEWER := bench-data/tensorflow

.DEFAULT_GOAL := help
.PHONY: help demo announce example test test-fast test-nightly test-nights test-frameworks test-migrate flink test-flink test-deploy test-container docs test-docs test-release smoke bench bench-reader lint lock release sbom audit clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z.-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' Makefile

demo: START := $(shell date +%s)
demo: announce $(SHAPES)/metadata.csv  ## Generate pictures, build a dataset of them, show it, train from it
	$(BIN)/recordmill build examples/shapes/dataset.yaml --output demo/shapes || [ $$? -eq 3 ]  # 3: nothing has changed
	$(BIN)/recordmill show demo/shapes
	$(BIN)/python examples/shapes/train.py demo/shapes
	@echo "make demo took $$(($$(date +%s) - $(START))) s"

announce:
	@echo "3,000 images, a build, a trained model: about a minute on two idle cores"

example: $(READY)  ## Generate, build and train one of examples/: make example NAME=captioning
	@set -ex; if [ $(NAME) = nights ]; then exec $(BIN)/python examples/nights/week.py demo/nights; fi; \
	$(BIN)/python examples/$(NAME)/generate.py demo/$(NAME)/data; \
	$(BIN)/recordmill build examples/$(NAME)/dataset.yaml --output demo/$(NAME)/out || [ $$? -eq 3 ]; \
	$(BIN)/python examples/$(NAME)/train.py demo/$(NAME)/out

test: $(READY)  ## Run the first proof of each promise
	$(BIN)/python -m pytest $(PARALLEL) --ignore-glob='*/test_deploy_*' --ignore=tests/test_release.py  # targets of their own

test-nightly: $(READY)  ## Run the others: second stores and runners, moments of death, whole nights, new examples
	$(BIN)/python -m pytest -m hypothesis --hypothesis-profile=new $(PARALLEL)
	$(BIN)/python -m pytest -m "nightly and not flink" $(PARALLEL)
	$(MAKE) test-migrate
	if command -v java >/dev/null && command -v mvn >/dev/null; then \
		$(MAKE) flink && $(BIN)/python -m pytest -m "nightly and flink" tests/test_flink_cluster.py; fi

test-nights: $(READY)  ## Let thirty nights pass for each of three seeds; in a bucket: make test-nights ARGS="--bucket --seeds 7"
	$(BIN)/python -m tests.nights $(ARGS)

test-fast: $(READY)  ## Run the tests that neither build nor train for real
	$(BIN)/python -m pytest -m "not slow and not nightly and not flink and not container"

test-frameworks: $(READY) $(FRAMEWORKS)/.ready  ## Train with PyTorch and JAX where there is no TensorFlow
	RECORDMILL_FRAMEWORKS=$(CURDIR)/$(FRAMEWORKS)/bin/python $(BIN)/python -m pytest -m frameworks tests/test_frameworks.py tests/test_chat_peers.py tests/table

test-migrate: export RECORDMILL_MIGRATION_TOOLS := $(CURDIR)/$(MIGRATE)/bin/python
test-migrate: $(READY) $(MIGRATE)/.ready  ## Build from what MosaicML Streaming and img2dataset wrote, as their pages say (6 GB)
	$(BIN)/python -m pytest -m nightly tests/test_site.py tests/test_first_days.py -k "(page_runs and (img2dataset or streaming or torch)) or datasets or grain"

flink: $(FLINK)  ## Prepare Beam's job server and a Flink cluster for this machine (200 MB of Maven's packages)

test-flink: $(READY) $(FLINK)  ## Build on a real Flink cluster, and compare the bytes
	$(BIN)/python -m pytest -m "flink and not nightly" tests/test_flink_cluster.py

test-deploy: export RECORDMILL_DEPLOY_CHECKS := $(CURDIR)/$(DEPLOY)/bin
test-deploy: $(READY) $(DEPLOY)/.ready  ## Lint and validate what lies in deploy/
	$(BIN)/python -m pytest -m "not container" tests/test_deploy_*.py

test-container: export RECORDMILL_DEPLOY_CHECKS := $(CURDIR)/$(DEPLOY)/bin
test-container: $(READY) $(DEPLOY)/.ready  ## In bare Debian roots: the steps of deploy/container/Dockerfile; newer Pythons (root, debootstrap, Go)
	$(BIN)/python -m pytest -m container tests/test_deploy_container.py tests/test_install.py

docs: export NO_MKDOCS_2_WARNING := 1
docs: $(DOCS)/.ready  ## Build the site of docs/ into build/site
	$(DOCS)/bin/python -m mkdocs build --strict

test-docs: export NO_MKDOCS_2_WARNING := 1
test-docs: export RECORDMILL_DOCS_TOOLS := $(CURDIR)/$(DOCS)/bin/python
test-docs: $(READY) $(DOCS)/.ready  ## Build the site, check its links, and read versions with other tools
	$(BIN)/python -m pytest tests/test_site.py tests/test_docs_spec.py tests/test_json_schema.py tests/test_exchange.py

test-release: export RECORDMILL_RELEASE_TOOLS := $(CURDIR)/$(RELEASE)/bin/python
test-release: $(READY) $(RELEASE)/.ready  ## Build the archives from two clones, compare and install them; lint the workflows
	$(BIN)/python -m pytest tests/test_release.py

smoke: export RECORDMILL_TENSORFLOW := $(CURDIR)/$(NEWER)/bin/python
smoke: $(READY) $(NEWER)/.ready  ## Build and read the golden dataset on every other interpreter that is here; read by a newer TensorFlow
	.ci/smoke
	$(BIN)/python -m pytest -q tests/test_install.py

bench: $(READY)  ## Measure against the anchors; one benchmark: make bench ARGS="images --runs 3"
	$(BIN)/python benchmarks/run.py $(ARGS)

bench-reader: $(READY) $(PEERS)/.ready  ## Measure the training input beside its peers: make bench-reader ARGS="images --runs 5"
	$(PEERS)/bin/python benchmarks/reader/run.py $(ARGS)

lint: $(READY)  ## Check style, types, and which room imports which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/mypy
	$(BIN)/mypy --ignore-missing-imports --explicit-package-bases benchmarks examples

# One file each for every interpreter and system, by markers; versions stay as they are unless ARGS=--upgrade.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	--override .ci/overrides.txt

lock: $(READY)  ## Update the files of pinned requirements; newer versions: make lock ARGS=--upgrade
	echo uv | $(COMPILE) - --output-file .ci/uv.lock $(ARGS)
	$(COMPILE) .ci/release.in --output-file .ci/release.lock $(ARGS)
	$(COMPILE) --override .ci/tensorflow.txt pyproject.toml --extra fast --extra tf --output-file .ci/tensorflow.lock $(ARGS)
	$(COMPILE) --override .ci/without_hub.txt pyproject.toml --extra dev --output-file requirements.lock $(ARGS)
	$(COMPILE) pyproject.toml examples/frameworks/requirements.in --extra fast --output-file examples/frameworks/requirements.lock $(ARGS)
	$(COMPILE) --override .ci/without_hub.txt pyproject.toml --extra aws --extra build --extra deep --extra fast --extra gcp --extra heif \
		--extra masks --extra tokens --constraint requirements.lock --output-file deploy/container/requirements.lock $(ARGS)
	$(COMPILE) deploy/checks.in --output-file deploy/checks.lock $(ARGS)
	$(COMPILE) pyproject.toml docs/tools.in --output-file docs/tools.lock $(ARGS)
	$(COMPILE) pyproject.toml docs/migrate/tools.in --output-file docs/migrate/tools.lock $(ARGS)
	$(COMPILE) benchmarks/reader/requirements.in --output-file benchmarks/reader/requirements.lock $(ARGS)

# .ci/archives says on what their bytes depend.
release: $(RELEASE)/.ready  ## Build wheel, source distribution and SBOM of the commit into dist/, the same bytes in every clone
	rm -rf dist
	$(RELEASE)/bin/python .ci/archives dist
	$(RELEASE)/bin/twine check --strict dist/*
	$(MAKE) --no-print-directory sbom SBOM=dist/sbom.cdx.json

SBOM := sbom.cdx.json
sbom: $(RELEASE)/.ready  ## Write sbom.cdx.json (CycloneDX): every package of requirements.lock, with its version and hashes
	$(RELEASE)/bin/cyclonedx-py requirements requirements.lock --output-reproducible --output-file $(SBOM)

audit: $(READY)  ## Ask a service of known vulnerabilities about every package of the locks; writes .ci/audit.json (needs the network)
	scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && $(PYTHON) -m venv "$$scratch" && \
	"$$scratch/bin/pip" install --quiet --disable-pip-version-check pip-audit && \
	PATH="$$scratch/bin:$$PATH" $(BIN)/python .ci/audit $(ARGS)

clean:  ## Remove what was built and cached; .venv and bench-data stay
	rm -rf demo build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

# The folder of an environment is that of its target: .venv; for `make smoke` .venv-3.12 and its like.
define environment
.ci/environment "$(PYTHON)" $(@D) $<
$(@D)/bin/uv pip install --quiet --python $(@D) --no-deps --no-build-isolation --editable .
@touch $@
endef

$(READY): requirements.lock .ci/uv.lock pyproject.toml
	@echo 'The first run makes .venv: 3 GB, half a minute and what the download takes'
	$(environment)

.venv-%/.ready: requirements.lock .ci/uv.lock pyproject.toml
	$(environment)

$(FRAMEWORKS)/.ready: examples/frameworks/requirements.lock .ci/uv.lock
$(PEERS)/.ready: benchmarks/reader/requirements.lock .ci/uv.lock
$(MIGRATE)/.ready: docs/migrate/tools.lock .ci/uv.lock
$(DOCS)/.ready: docs/tools.lock .ci/uv.lock | $(READY)
$(DEPLOY)/.ready: deploy/checks.lock .ci/uv.lock | $(READY)
$(RELEASE)/.ready: .ci/release.lock .ci/uv.lock
$(NEWER)/.ready: .ci/tensorflow.lock .ci/uv.lock
$(NEWER)/.ready $(RELEASE)/.ready:
	.ci/environment "$(PYTHON)" $(@D) $<
	@touch $@

$(DEPLOY)/.ready $(DOCS)/.ready:
	.ci/environment $(BIN)/python $(@D) $<
	@touch $@

$(FRAMEWORKS)/.ready $(PEERS)/.ready $(MIGRATE)/.ready: | $(READY)
	@echo 'Making $(@D): 6 to 9 GB, since the wheels of PyTorch bring CUDA'
	.ci/environment $(BIN)/python $(@D) $<
	@touch $@

$(FLINK): $(addprefix deploy/flink/local/,pom.xml maven.lock prepare.py merge_jars.py) | $(READY)
	$(BIN)/python deploy/flink/local/prepare.py $(@D)

# The generator writes metadata.csv last, so that its presence means the whole folder.
$(SHAPES)/metadata.csv: examples/shapes/generate.py | $(READY)
	rm -rf $(SHAPES)
	$(BIN)/python examples/shapes/generate.py $(SHAPES)
