# What a person and the CI run. Every target works on a fresh clone: it makes .venv first.
# JOBS: how many processes share the tests; twice two cores, since many tests wait for programs. PYTHON: which Python makes .venv.

JOBS ?= 4
BENCH ?=
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

# Real parts that tests drive and pip cannot bring. Where they cannot be had, those tests are skipped.
SYSTEM_PACKAGES := chromium haproxy pgbouncer podman prometheus runc tmux

# A stamp holds while these stay the same.
SOURCES := pyproject.toml tools/install.sh tools/local-model.txt
DEV := .venv/.installed-dev
WITH_BENCH := .venv/.installed-bench
WITH_DOCS := .venv/.installed-docs
RESEARCHER := .venv-researcher/.installed

.DEFAULT_GOAL := help
.PHONY: help install demo postgres test check format bench soak docs clean system-packages
# `make check test` says first what is quick to know, also under -j.
.NOTPARALLEL:

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(DEV) ## make .venv with the penstock command

demo: $(DEV) ## watch Penstock at work, and a real model answer
	$(BIN)/penstock demo

postgres: $(DEV) ## a PostgreSQL to try a store in, until Ctrl-C
	@$(BIN)/python -m tools.postgres_server

test: $(DEV) $(RESEARCHER) system-packages ## run the tests
	@$(BIN)/python -m compileall -q -j 0 src # or each process of the tests would compile all of it
	$(PYTEST)

check: $(DEV) ## format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(DEV) ## put the code into its form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(WITH_BENCH) ## measure against the peers and the limit (BENCH="--quick drain" chooses)
	$(BIN)/python -m benchmarks $(BENCH)

soak: $(DEV) $(RESEARCHER) system-packages ## many more simulations, and the slow proofs
	PENSTOCK_SOAK=1 $(PYTEST) tests/simulation tests/properties
	PENSTOCK_SOAK=1 $(PYTEST) -m slow --ignore tests/simulation --ignore tests/properties

docs: $(WITH_DOCS) ## write the generated pages and build the site into site/
	$(BIN)/python -m tools.generate_docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean: ## remove .venv, the site and all caches
	rm -rf .venv .venv-researcher site dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

system-packages:
	@tools/system-packages.sh $(SYSTEM_PACKAGES) || echo "tests that need them are skipped" >&2

$(DEV): $(SOURCES)
	tools/install.sh dev
	@touch $@

# GPT-Researcher has an environment of its own. Where it cannot be had, its tests are skipped.
$(RESEARCHER): tools/install-researcher.sh | $(DEV)
	@tools/install-researcher.sh && touch $@ || echo "tests that run GPT-Researcher are skipped" >&2

$(WITH_BENCH): $(SOURCES)
	tools/install.sh dev bench
	@touch $(DEV) $@

$(WITH_DOCS): $(SOURCES)
	tools/install.sh dev docs
	@touch $(DEV) $@
