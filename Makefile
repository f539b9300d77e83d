# Every target makes the environment it needs: Python 3.11, 3.12 or 3.13 is all that must be there.
#
#   make train                              the reference job on a local cluster
#   make train ARGS="--set training.epochs=5"
#   make train ARGS=recommender             the other one, with large embedding tables
#   make test ARGS="tests/unit -k spec"     some of the tests
#   make test ARGS="-n 0"                   in one process, for a debugger
#   make bench NAME=network ARGS=--quick    a benchmark; throughput without NAME
#   make test-all SEED=7                    the property tests with the examples of another run
#   make test-versions ROWS=2.16.2+3.12.4   the tests of a pair of TensorFlow and Keras

ARGS ?=
# Of `make bench`; a variable of the environment that is called NAME means something else.
NAME := throughput
# Of the property tests: always the same examples for `make test`, so that it says the same of the
# same code; `make test-all` looks further, with a seed of its own that it prints.
SEED := $(or $(SEED),$(if $(filter test-all,$(MAKECMDGOALS)),$(shell date +%s),0))
PYTHON ?=
export PYTHON
# Without files of bytecode each of a hundred processes compiles the library anew.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
# A cluster leaves half of two cores idle: other tests run beside it. Of a process that has crashed,
# as at a test's time limit, pytest-xdist would wait for tests that it sends to no other.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadscope --no-loadscope-reorder \
	--max-worker-restart=0 --hypothesis-seed=$(SEED)
# ARGS within a title in single quotes.
SHOWN = $(subst ','\'',$(ARGS))

.DEFAULT_GOAL := help
.PHONY: help train test test-all test-versions lint docs bench lock clean

help: ## Show the targets.
	@echo 'usage: make TARGET [ARGS="..."] [PYTHON=/path/to/python3.12]'
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

train: ## Train the reference job on a local cluster; ARGS=recommender for the one with large tables.
	@.ci/environment none 4
	@.ci/step 4/4 'Train: $(strip tfps train $(SHOWN)) (a few minutes)' \
		$(BIN)/tfps train $(ARGS)

# What `make test` leaves to `make test-all`; tests/conftest.py says why.
QUICK := not (slow or repeats or rare)

test: ## Run the main tests, each behaviour once.
	@.ci/environment test 4
	@.ci/step 4/4 'Test: $(strip pytest -m "$(QUICK)" $(SHOWN)) (10 minutes on 2 cores)' \
		$(PYTEST) -m "$(QUICK)" --quickly --durations=50 $(ARGS)

# What trains on a cluster; the rest of tests/cluster is about processes or names its transport.
TRAINING := $(addprefix tests/cluster/,optimizers recovery strategy training)

# In parts, each in new processes: one grows by what TensorFlow makes of functions, as long as it
# lives: 30 MB for a test with tables, and those of all tests would not fit into 16 GB.
TABLES := tests/unit/numbers/shards
PARTS := '$(TABLES)' 'tests/unit --ignore=$(TABLES)' tests/cluster tests/integration

test-all: ## Run all tests, and those that train on the other transport as well.
	@.ci/environment test 5
	@status=0; \
	echo 'The seed of the property tests is $(SEED); make test-all SEED=$(SEED) repeats them.'; \
	for part in $(if $(ARGS),'',$(PARTS)); do \
		.ci/step 4/5 "Test everything: pytest $$part"$(if $(ARGS),' $(SHOWN)') \
			$(PYTEST) $$part $(ARGS) || status=1; \
	done; \
	.ci/step 5/5 'Test on grpc: $(strip TFPS_TRANSPORT=grpc pytest $(TRAINING) $(SHOWN))' \
		env TFPS_TRANSPORT=grpc $(PYTEST) $(TRAINING) $(ARGS) || status=1; \
	exit $$status

# Of `make test-versions`: all rows without ROWS.
ROWS ?=

test-versions: ## Test pairs of TensorFlow and Keras: ROWS="2.16.2+3.12.4 ..."; needs python3.12.
	@.ci/environment test 4
	@.ci/step 4/4 'Test versions: $(strip .ci/test_versions.py $(ROWS) $(SHOWN)) (10 minutes a row)' \
		$(BIN)/python .ci/test_versions.py $(ROWS) $(ARGS)

lint: ## Check style, types, the layers of the packages and wording.
	@.ci/environment lint 8
	@status=0; \
	.ci/step 4/8 'Style: ruff check (seconds)' $(BIN)/ruff check . || status=1; \
	.ci/step 5/8 'Format: ruff format --check (seconds)' $(BIN)/ruff format --check . || status=1; \
	.ci/step 6/8 'Types: mypy (about a minute)' $(BIN)/mypy || status=1; \
	.ci/step 7/8 'Layers: lint-imports (seconds)' $(BIN)/lint-imports --no-cache --no-logo || status=1; \
	.ci/step 8/8 'Wording: .ci/prose.py (seconds)' $(BIN)/python .ci/prose.py || status=1; \
	exit $$status

docs: ## Build the pages of docs/ as a site in build/docs; dead links and warnings are errors.
	@.ci/environment docs 4
	@.ci/step 4/4 'Build the pages: sphinx-build (half a minute)' \
		$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet -c docs . build/docs $(ARGS)
	@echo 'The first page is build/docs/index.html'

bench: ## Run a benchmark: NAME=throughput, or another of docs/benchmarks; ARGS=--quick for a short one.
	@.ci/environment bench 4
	@.ci/step 4/4 'Measure: $(strip python -m benchmarks $(NAME) $(SHOWN)) (minutes; throughput takes about 20)' \
		$(BIN)/python -m benchmarks $(NAME) $(ARGS)

lock: ## Write constraints.txt anew; needs python3.11, python3.12 and python3.13.
	@python3 .ci/lock.py $(ARGS)

clean: ## Remove the environment, caches and build results; runs and results stay.
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
