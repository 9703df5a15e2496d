# What a person and the CI run. Every target works on a fresh clone: it makes the environment that it needs first, .venv to
# use Penstock (300 MB) or .venv-dev to work on it (1.6 GB).
# JOBS: how many processes share the tests; twice two cores, since many tests wait for programs. PYTHON: which Python makes
# the environments. CONSTRAINTS= (empty): the newest packages instead of those of constraints/.

JOBS ?= 4
BENCH ?=
BIN := .venv-dev/bin
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

# Real parts that tests drive and pip cannot bring. Where they cannot be had, those tests are skipped.
SYSTEM_PACKAGES := chromium haproxy pgbouncer podman prometheus runc tmux

# A stamp holds while these stay the same.
SOURCES := pyproject.toml constraints/penstock.txt tools/install.sh tools/local-model.txt
BESIDE := pyproject.toml tools/install-beside.sh
USE := .venv/.installed
DEV := .venv-dev/.installed
WITH_BENCH := .venv-dev/.installed-bench
WITH_DOCS := .venv-dev/.installed-docs
RESEARCHER := .venv-researcher/.installed
LITELLM := .venv-litellm-proxy/.installed

.DEFAULT_GOAL := help
.PHONY: help install demo dev dist upgrade postgres test check format bench soak docs clean system-packages
# `make check test` says first what is quick to know, also under -j.
.NOTPARALLEL:

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(USE) ## make .venv with the penstock command

demo: $(USE) ## watch Penstock at work, and a real model answer
	.venv/bin/penstock demo

dev: $(DEV) ## make .venv-dev, to work on Penstock; the targets below use it

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

bench: $(WITH_BENCH) $(LITELLM) ## measure against the peers and the limit (BENCH="--quick drain" chooses)
	$(BIN)/python -m benchmarks $(BENCH)

soak: $(DEV) $(RESEARCHER) system-packages ## many more simulations, and the slow proofs
	PENSTOCK_SOAK=1 $(PYTEST) tests/simulation tests/properties
	PENSTOCK_SOAK=1 $(PYTEST) -m slow --ignore tests/simulation --ignore tests/properties

docs: $(WITH_DOCS) ## write the generated pages and build the site into site/
	$(BIN)/python -m tools.generate_docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

dist: $(DEV) ## build the wheel and the sdist into dist/
	$(BIN)/uv build --quiet --clear --out-dir dist --build-constraints constraints/penstock.txt

upgrade: $(DEV) ## write constraints/ anew: the newest versions that fit pyproject.toml
	tools/upgrade.sh

clean: ## remove the environments, the site and all caches
	rm -rf .venv .venv-dev .venv-researcher .venv-litellm-proxy site dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

system-packages:
	@tools/system-packages.sh $(SYSTEM_PACKAGES) || echo "tests that need them are skipped" >&2

$(USE): $(SOURCES)
	tools/install.sh .venv ui local
	@touch $@
	@echo 'Penstock is installed: .venv/bin/penstock, or `. .venv/bin/activate` and then `penstock`'

$(DEV): $(SOURCES)
	tools/install.sh .venv-dev rag ui local --group dev
	@touch $@

# GPT-Researcher and LiteLLM's proxy have an environment of their own each. Where one cannot be had, what runs it is skipped.
$(RESEARCHER): $(BESIDE) constraints/researcher.txt | $(DEV)
	@tools/install-beside.sh researcher && touch $@ || echo "tests that run GPT-Researcher are skipped" >&2

$(LITELLM): $(BESIDE) constraints/litellm-proxy.txt | $(DEV)
	@tools/install-beside.sh litellm-proxy && touch $@ || echo "benchmarks of LiteLLM's proxy are skipped" >&2

$(WITH_BENCH): $(SOURCES)
	tools/install.sh .venv-dev rag ui local --group dev --group bench
	@touch $(DEV) $@

$(WITH_DOCS): $(SOURCES)
	tools/install.sh .venv-dev rag ui local --group dev --group docs
	@touch $(DEV) $@
