# One command a line of `make help`. Needs Python >= 3.11 with venv and pip, and make.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# A process of tests that dies ends the run, with the name of its test: the others would wait for ever.
# Several wait at once: the servers are those of the whole run, so each costs its imports alone.
TOGETHER := --max-worker-restart 0 --dist worksteal --numprocesses 3
PROOFS := prove-tests prove-time prove-account prove-flow prove-kills prove-lines prove-upgrade prove-faults prove-audit prove-mutants prove-shadow
# Tests start hundreds of processes, and each would compile the engine again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install up test test-postgres test-python fuzz test-wheel check format house metrics cli views bench prove $(PROOFS) ci lock wheel clean

help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## Make .venv with everything, from hashed requirements

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "sched-engine needs Python 3.11 or newer; name one with PYTHON=..."; exit 2; }
	@echo "installing into $(VENV), about a minute"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@# The processes that start next would each compile it.
	$(BIN)/python -m compileall -q engine
	@touch $@

up: $(STAMP) ## Run it all: embedded servers, the schedules, one worker
	$(BIN)/sched up $(ARGS)

test: $(STAMP) ## Run the tests of every promise, on real servers
	@TIMEFORMAT='CPU seconds: %U and %S in the system, in %R'; time \
	$(BIN)/pytest $(or $(ARGS),$(TOGETHER))

test-postgres: $(STAMP) ## Run conformance and the race on another PostgreSQL (POSTGRES=16)
	SCHED_TEST_POSTGRES=$(or $(POSTGRES),15) $(BIN)/pytest -m "" $(TOGETHER) $(or $(ARGS),tests/conformance tests/acceptance/test_race.py)

test-python: ## Run units, conformance and the model on other Pythons (OTHERS="python3.13")
	@for other in $(or $(OTHERS),python3.12 python3.13); do \
	  there=.venv-$$(basename $$other); \
	  $(MAKE) install PYTHON=$$other VENV=$$there && \
	  $$there/bin/pytest -m "" $(TOGETHER) tests/unit tests/conformance tests/model || exit 1; \
	done

fuzz: $(STAMP) ## Search for schedule files that break the loader (ARGS="--seconds 60")
	$(BIN)/python -m tests.fuzz $(ARGS)

check: $(STAMP) ## Lint, format check, types, import rules
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	@# Not in an environment of before it was pinned; mypy has found most of it then.
	@if [ -x $(BIN)/pyright ]; then $(BIN)/pyright --pythonpath $(BIN)/python; \
	  else echo "pyright is not in $(VENV): tests/typing is checked by mypy alone ('make install' adds it)"; fi
	$(BIN)/lint-imports

format: $(STAMP) ## Format the code and sort its imports
	$(BIN)/ruff check --fix --select I
	$(BIN)/ruff format

house: $(STAMP) ## Measure engine/: modules, lines, import edges
	$(BIN)/python -m tests.house

cli: $(STAMP) ## Write the commands of docs/cli.md from their code
	$(BIN)/python -m tests.cli_page

views: $(STAMP) ## Write the views of docs/json.md from their code
	$(BIN)/python -m tests.json_page

metrics: $(STAMP) ## Write the table of docs/metrics.md from the instruments
	$(BIN)/python -m tests.metrics_page

bench: $(STAMP) ## Measure, against a rival in the same run
	$(BIN)/python -m benchmarks $(ARGS)

prove: $(STAMP) ## Run every long proof, one after the other: hours
	$(MAKE) --keep-going --no-print-directory ARGS= $(PROOFS) fuzz test-postgres test-python

prove-tests: $(STAMP) ## Run what is too long for `make test`, and each property in full
	SCHED_PROVE_PROPERTIES=1 $(BIN)/pytest $(or $(ARGS),$(TOGETHER) -m "prove or hypothesis")

prove-time: $(STAMP) ## Compare fire times with a brute-force scan (ARGS=SEED)
	$(BIN)/python -m tests.unit.prove_time $(ARGS)

prove-account: $(STAMP) ## Let everything happen in every order (ARGS="500" examples)
	SCHED_PROVE_EXAMPLES=$(or $(ARGS),500) $(BIN)/pytest -m "" tests/model -q -s

prove-flow: $(STAMP) ## Run random workflows, with kills, cancels and resets (ARGS="1000" of them)
	SCHED_PROVE_PROGRAMS=$(or $(ARGS),1000) $(BIN)/pytest -m "" tests/programs -q -s --timeout 14400

prove-kills: $(STAMP) ## Kill the only worker of a saga at each place and moment
	SCHED_PROVE_KILLS=all $(BIN)/pytest -m "" $(TOGETHER) tests/acceptance/test_killed_saga.py

prove-lines: $(STAMP) ## Watch lines of short runs for twenty minutes (ARGS="600" windows, twice)
	SCHED_LINE_WINDOWS=$(or $(ARGS),600) $(BIN)/pytest -m "" tests/integration/test_lines.py -q --timeout 7200

prove-upgrade: $(STAMP) ## Let another commit's workers and these race on one ledger (ARGS=COMMIT)
	$(BIN)/python -m tests.acceptance.prove_upgrade $(ARGS)

prove-faults: $(STAMP) ## Break everything, by a seed, and judge the account (ARGS="--seed 7 --minutes 10")
	$(BIN)/python -m tests.nemesis $(ARGS)

prove-audit: $(STAMP) ## Audit twenty minutes of kills, outages and verbs (ARGS="--seed 7 --minutes 60")
	$(BIN)/python -m tests.acceptance.prove_audit $(ARGS)

prove-mutants: $(STAMP) ## Break the engine in named ways, and see a test notice each (ARGS="NAME")
	$(BIN)/python -m tests.mutants $(ARGS)

prove-shadow: $(STAMP) ## Compare with native Temporal Schedules, and take over (ARGS="--minutes 5")
	$(BIN)/python -m tests.acceptance.prove_shadow $(ARGS)

ci: ## Run what CI runs
	.ci/run

LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate

lock: ## Pin the dependencies again (needs uv)
	$(LOCK) --all-extras pyproject.toml --output-file requirements.lock
	$(LOCK) --extra api --extra calendars --extra otlp --extra webhooks --constraint requirements.lock pyproject.toml --output-file requirements-core.lock
	echo hatchling | $(LOCK) --constraint requirements.lock - --output-file requirements-build.lock

test-wheel: $(STAMP) ## Run the fundamentals against the built wheel, without the source
	$(BIN)/python -m tests.from_the_wheel $(ARGS)

wheel: $(STAMP) ## Build the wheel into dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

clean: ## Remove what can be made again (not .sched)
	rm -rf $(VENV) .venv-* dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
