# Everything here starts from a bare Python >= 3.11 with pip: `make demo`, `make test`.
# Another interpreter: `make test PYTHON=python3.12`; each one gets its own environment.
PYTHON ?= python3
VENV := .venv/$(notdir $(PYTHON))
BIN := $(VENV)/bin
READY := $(VENV)/.ready
OUT ?= demo-results

.PHONY: help demo test test-quick docs benchmark soak graph lint types check package lock clean

help:
	@echo "make demo   set up and run the two-dimensional funnel: table, figure, animation"
	@echo "make test   set up and run the tests; about nine minutes on two cores"
	@echo "make test-quick  the tests for everyday work; about two minutes"
	@echo "make docs   set up and build the site into site/; under ten minutes at first, then seconds"
	@echo "make benchmark  set up and measure: speed beside its limits, time to the first posterior, rivals; about 40 minutes"
	@echo "make soak   set up and measure scaling and faults: devices, large data, kills; about 10 minutes"
	@echo "make graph  which room of the library imports which"
	@echo "make check  lint, types, site and tests, as continuous integration does"
	@echo "make package  build wheel and source archive, and try the wheel in an empty environment"
	@echo "make lock   resolve requirements.lock anew from pyproject.toml"
	@echo "make clean  remove the environments and the demo's results"

demo: $(READY)
	$(BIN)/nvgd demo --out $(OUT)

test: $(READY)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadgroup

# Without what takes long: other processes, real models, experiments, the snippets of the docs.
test-quick: $(READY)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadgroup -m "not slow"

# Tutorials that have not changed are not executed again (.cache/tutorials).
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --site-dir site
	@echo "The site is in site/: open site/index.html."

graph: $(READY)
	$(BIN)/python tools/import_graph.py

# Nothing else should run on the machine meanwhile.
benchmark: $(READY)
	$(BIN)/python -m benchmarks.speed
	MPLBACKEND=agg $(BIN)/python -m benchmarks.startup
	MPLBACKEND=agg $(BIN)/python -m benchmarks.rivals

# Long forms of what the tests try in small: devices, particles, large data, fifty kills.
soak: $(READY)
	$(BIN)/python -m benchmarks.scaling

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/pyright --pythonpath $(BIN)/python

check: lint types docs test

# The wheel has to work with run-time dependencies only.
package: $(READY)
	rm -rf dist
	$(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python
	sh tools/try_wheel.sh "$(PYTHON)" dist/*.whl

# The lock carries versions only, so it installs from whatever package index pip is set up with.
lock: $(READY)
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --fork-strategy requires-python \
		--upgrade --no-header --no-annotate --no-emit-index-url --group dev --group docs --group benchmark \
		--extra numpyro --extra pymc --extra blackjax --extra arviz --extra sklearn \
		pyproject.toml --output-file requirements.lock

clean:
	rm -rf .venv .cache site dist demo-results

$(READY): requirements.lock pyproject.toml
	@sh tools/make_environment.sh "$(PYTHON)" "$(VENV)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
