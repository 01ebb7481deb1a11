# Each target works alone on a fresh clone: it sets up what it needs first, and a second run reuses it.
PYTHON := .venv/bin/python

# Without compiled modules each run of the tests, and each command they start, would compile all of ours anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-fast lint setup lock boards-pictures

help:  ## these lines
	@sed -nE 's/^([a-z%-]+):.*  ## (.*)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

demo: setup  ## three brokers on this machine: skewed, detected, planned, moved, measured
	$(PYTHON) -m streaming demo $(ARGS)

test: setup-tests  ## the tests, and the checks of `make lint`
	$(call beside_checks,$(PYTHON) -m pytest $(ARGS))

# The pure part: no JVM, no broker; without what takes longest, as hundreds of simulated stories, and with a fourth of
# the examples of property tests: see `make test`.
test-fast: setup  ## the tests that need no JVM, in a minute or two
	$(call beside_checks,$(PYTHON) -m pytest -m "not spark and not kafka and not java and not prometheus and not e2e and not long" --few-examples $(ARGS))

lint: setup  ## formatting, linting, types
	$(CHECKS)

LAYOUT := .venv/bin/oxfmt -c .oxfmtrc.json streaming/serve/page
CHECKS := .venv/bin/ruff format --check . && $(LAYOUT) --check && .venv/bin/ruff check . && .venv/bin/mypy

# Tests and checks at the same time: tests start at once, and while they are collected a core is idle. A failure of
# either fails the target. Checks that pass print nothing: the summary of the tests comes last.
define beside_checks
@checks=$$(mktemp); trap 'rm -f "$$checks"' EXIT; \
{ { $(CHECKS); } >"$$checks" 2>&1 || { cat "$$checks"; exit 1; }; } & \
$(1); tests=$$?; \
wait $$! || { echo "error: ruff, oxfmt or mypy failed, see above" >&2; tests=1; }; \
exit $$tests
endef

setup:  ## the virtual environment, Java and jars
	@deploy/bootstrap.sh

.PHONY: setup-tests
setup-tests:
	@deploy/bootstrap.sh tests

# What extras share with requirements.lock, which has the versions.
LOCKED := python-dateutil six certifi click idna jinja2 markupsafe pyyaml cffi cryptography pycparser

# After a change of the dependencies in pyproject.toml.
lock: setup
	$(PYTHON) -m pip install --quiet uv
	.venv/bin/uv pip compile --quiet --extra build --extra dev --universal --generate-hashes --no-header --no-annotate pyproject.toml -o requirements.lock
	@for extra in msk s3-tests browser-tests kerberos-build kerberos image-build; do .venv/bin/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate \
		--python-version 3.11 $(addprefix --no-emit-package ,$(LOCKED)) deploy/extras/$$extra.in -o deploy/extras/$$extra.lock; done
	@for extra in docs api-tests; do .venv/bin/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate \
		--python-version 3.11 --constraint requirements.lock deploy/extras/$$extra.in -o deploy/extras/$$extra.lock; done
	@.venv/bin/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --constraint requirements.lock pyproject.toml -o deploy/extras/image.lock
	@.venv/bin/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --python-version 3.11 deploy/extras/audit.in -o deploy/extras/audit.lock

# The documentation as a site that needs no server and no network: build/site/index.html.
.PHONY: docs
docs:  ## all pages as a site: build/site/index.html
	@deploy/bootstrap.sh docs
	@$(PYTHON) deploy/site/build_site.py $(ARGS)

# A benchmark of tests/benchmarks by its name, such as `make bench-planner ARGS="--help"`.
bench-%: setup  ## a benchmark: assignors, clusters, control, fleet, lag, month, pipeline, planner, reads, serve, throttle, trigger, what-if
	$(PYTHON) -m tests.benchmarks.bench_$(subst -,_,$*) $(ARGS)

bench-fortnight: setup
	$(PYTHON) -m tests.benchmarks.fortnight $(ARGS)

# The demo, watched by a real Prometheus, and its boards drawn into docs/images.
boards-pictures: setup-tests
	$(PYTHON) -m tests.prometheus.pictures $(ARGS)

# Each page of serve over a small simulated cluster, in Chromium, drawn into docs/pictures.
.PHONY: page-pictures
page-pictures: setup-tests
	$(PYTHON) -m tests.serve.page_pictures $(ARGS)

# Executions on real brokers under live producers, each hit by a fault at a random instant.
.PHONY: chaos
chaos: setup-tests
	$(PYTHON) -m tests.chaos.harness $(ARGS)

# Control over simulated clusters on logical time, with faults from seeds; no JVM.
.PHONY: simulate-faults
simulate-faults: setup
	$(PYTHON) -m tests.simulation.run $(ARGS)

# Small changes of the core's modules that no pure test notices. ARGS names modules; takes no JVM.
.PHONY: mutants
mutants: setup
	$(PYTHON) -m tests.mutants $(ARGS)

# Schema of the chart's values, users of Strimzi, and golden files; needs helm (`deploy/bootstrap.sh helm` builds it).
.PHONY: chart
chart: setup
	$(PYTHON) deploy/helm/chart.py
	$(PYTHON) deploy/helm/render.py tests/deploy/golden

# Plain manifests for those who apply them without Helm; needs helm on the path.
NAMESPACE := default
.PHONY: manifests
manifests:
	@helm template rebalancer deploy/helm/rebalancer --namespace $(NAMESPACE) $(if $(VALUES),--values $(VALUES))

# Wheel and sdist of the commit that is checked out, into dist.
.PHONY: dist
dist: setup
	$(PYTHON) deploy/release/dist.py $(ARGS)

# The steps of the image in a clean root, for machines without a container engine; as root, with mmdebstrap.
.PHONY: image-steps
image-steps: setup
	$(PYTHON) -m tests.deploy.image_steps

# Holds the base image of the Dockerfile by the digest that it has now; asks its registry, through the container engine.
.PHONY: image-pin image
image-pin: setup
	$(PYTHON) deploy/release/image.py pin

# The image, on a base that is held by its digest.
TAG := kafka-load-rebalancer
image: setup
	$(PYTHON) deploy/release/image.py build $(TAG)

# Licences of what the product runs with, into docs/licences.md.
.PHONY: licences
licences: setup
	$(PYTHON) deploy/release/licences.py

# Known weaknesses of the locked packages, by pip-audit in an environment of its own; asks its default service.
.PHONY: audit
audit: setup
	$(PYTHON) -m venv build/audit
	build/audit/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r deploy/extras/audit.lock
	$(PYTHON) deploy/release/audit.py build/audit/bin/pip-audit

# Runs with tables and checkpoints on an S3 server on loopback, by hand: ARGS="--help" lists them.
.PHONY: on-s3
on-s3: setup-tests
	@deploy/bootstrap.sh s3
	$(PYTHON) -m tests.on_s3 $(ARGS)
