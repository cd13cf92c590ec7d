# Every target makes .venv in this clone when it is missing.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/ready
TRUST  := $(VENV)/ready-trust
FAST   := tests/numerics tests/privacy tests/protocol tests/federation tests/test_seeding.py \
  --ignore=tests/protocol/test_golden.py --ignore=tests/privacy/secure_sum/test_dropouts.py \
  --ignore=tests/protocol/test_growth.py --ignore=tests/privacy/test_accounting_speed.py \
  --ignore=tests/federation/parties/test_restarts.py --ignore=tests/federation/parties/test_remote.py \
  --deselect=tests/privacy/test_values.py::test_what_would_break_the_proof_does_not_type_check
SEED   ?= 1
# Tests start processes: without compiled files each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo test test-fast test-all mutants lint format results people limits federation reproduce reproduce-quick tables trust bench bench-peers browser pictures docs clean

help:          ## what can be made
	@grep -hE '^[a-z-]+: .*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

install: $(READY) ## make .venv with everything the project needs

$(READY): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing CSLR into $(VENV) (a few minutes the first time) ..."
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $(READY)

demo: $(READY) ## learn four clinics in sequence, privately, and show it
	@$(BIN)/cslr run
	@echo "The program is $(BIN)/cslr; 'source $(BIN)/activate' puts cslr on the path."

# Style and types beside the tests, shown after them.
define checked
	@$(MAKE) --no-print-directory lint > $(VENV)/lint.txt 2>&1 & lint=$$!; \
	$(BIN)/python -m pytest -n 2 -m "$(1)"; cases=$$?; \
	wait $$lint; style=$$?; cat $(VENV)/lint.txt; exit $$((cases || style))
endef

test: $(READY) ## everything that runs with every change
	$(call checked,not slow and not trust)

test-fast: $(READY) ## only numerics, privacy, protocol and federation, for the inner loop
	@$(BIN)/ruff check . && $(BIN)/python -m pytest -n 2 -m "not slow and not trust" $(FAST)

test-all: $(READY) ## the slow tests too
	$(call checked,not trust)

mutants: $(READY) ## the share of random small faults that the tests notice; SEED=n
	@$(BIN)/python benchmarks/mutants.py --seed $(SEED)

$(TRUST): $(READY)
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[trust]"
	@touch $(TRUST)

trust: $(TRUST) ## the evidence behind every promise, as a card; at most 15 minutes on two cores
	@$(BIN)/python benchmarks/trust.py

federation: $(READY) ## three nodes over TLS, one killed; the cost of a secure sum; at most 10 minutes
	@$(BIN)/python -m pytest -n 0 -s -m "slow or not slow" tests/federation/parties tests/federation/flower tests/runs/deployment tests/privacy/secure_sum
	@$(BIN)/python benchmarks/secure_sum.py

lint: $(READY) ## style, types, layers
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

results: $(READY) ## measure the figures of docs/results.md; DATA=directory of the data sets
	@test -n "$(DATA)" || { echo "give the directory of the data sets: make results DATA=DIR"; exit 2; }
	@$(BIN)/python benchmarks/results.py --data $(DATA)

people: $(READY) ## measure the README's table: a person hidden, a client hidden; DATA=directory
	@test -n "$(DATA)" || { echo "give the directory of the data sets: make people DATA=DIR"; exit 2; }
	@$(BIN)/python benchmarks/people.py --data $(DATA)

bench: $(READY) ## how fast the parts are, beside their peers (docs/speed.md); at most 20 minutes
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python benchmarks/bench.py

bench-peers: $(READY) ## environments in build/peers for the peers that cannot be installed beside CSLR
	@$(BIN)/python benchmarks/peers.py

limits: $(READY) ## what any reading of the releases could reach (docs/limits.md); DATA=directory
	@test -n "$(DATA)" || { echo "give the directory of the data sets: make limits DATA=DIR"; exit 2; }
	@$(BIN)/python benchmarks/limits.py --data $(DATA)

reproduce: $(READY) ## every experiment about the paper, then the tables; DATA=directory of the data sets
	@test -n "$(DATA)" || { echo "give the directory of the data sets: make reproduce DATA=DIR"; exit 2; }
	@$(BIN)/cslr reproduce --data $(DATA) && $(BIN)/cslr tables

reproduce-quick: $(READY) ## every method on AG-News, two seeds; DATA=directory of the data sets
	@test -n "$(DATA)" || { echo "give the directory of the data sets: make reproduce-quick DATA=DIR"; exit 2; }
	@$(BIN)/cslr reproduce experiments/main.toml --data $(DATA) --streams ag-news --seeds 13,17 --traces runs/quick
	@$(BIN)/cslr tables --traces runs/quick --out runs/quick-tables

tables: $(READY) ## rebuild every table and REPRODUCTION.md from the traces
	@$(BIN)/cslr tables

format: $(READY) ## let ruff arrange the code
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

clean:         ## remove what make installed and built; runs stay
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

browser: $(READY) ## pages in a real browser; needs Debian's chromium, and npm for axe-core
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[browser]"
	@npm install --silent --no-save --prefix $(VENV)/axe axe-core
	@CSLR_AXE=$(VENV)/axe/node_modules/axe-core/axe.min.js $(BIN)/python -m pytest -n 0 tests/report/test_browser.py

pictures: $(READY) ## pictures of README and docs; needs chromium; DATA=directory for the story
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[browser]"
	@$(BIN)/python docs/tools/pictures.py $(if $(DATA),--data $(DATA))

docs: $(READY) ## the docs site in site/, built without network
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	@$(BIN)/python docs/tools/reference.py
	@$(BIN)/mkdocs build --quiet --strict
