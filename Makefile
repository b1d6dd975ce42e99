# Every target sets up what it needs. PYTHON chooses the interpreter, TORCH_INDEX the index of
# torch's wheels.
PYTHON ?= python3
VENV := .venv
ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
else
BIN := $(VENV)/bin
endif
# Plain torch brings gigabytes of CUDA on Linux; without an NVIDIA GPU the CPU build does as well.
ifeq ($(shell uname -s 2>/dev/null)$(shell command -v nvidia-smi 2>/dev/null),Linux)
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
endif
TORCH_FROM := $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX) --retries 1 --timeout 15)
DONE := $(VENV)/.done

.PHONY: setup train test test-all browser mutations kills interrupts cluster-faults slopes interop windows check format bench results docs pictures schema lock clean

setup: $(DONE)

$(DONE): requirements.lock pyproject.toml
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and \
		'Touchline needs Python 3.11 or newer: make PYTHON=...')"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet $(TORCH_FROM) $(shell grep '^torch==' requirements.lock)
	$(BIN)/python -m pip install --quiet -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps -e .
	$(BIN)/touchline doctor 3DBall  # compiles what `make train` needs, and tries it
	touch $@

train: setup  ## 3DBall from nothing to its benchmark, then a measurement and a film
	$(BIN)/touchline train 3DBall --run-id 3DBall --force
	$(BIN)/touchline eval 3DBall --policy results/3DBall --deterministic --episodes 100
	$(BIN)/touchline play 3DBall --policy results/3DBall --deterministic \
		--record results/3DBall/3DBall.mp4

test: setup  ## the fast tests, on all cores
	$(BIN)/python -m pytest -n auto --maxprocesses 8 --dist loadfile

test-all: setup  ## the slow ones too
	$(BIN)/python -m pytest -m "slow or not slow"

browser: setup  ## the pages of `touchline view` in a headless Chromium; minutes
	$(BIN)/python -m pytest -m slow tests/viewer

mutations: setup  ## a million mutated messages and 100,000 mutated files; half an hour
	$(BIN)/python -m pytest -m slow -s tests/protocol/test_mutated_messages.py \
		tests/test_mutated_files.py

kills: setup  ## 250 killed runs resume bit for bit; 1,000 killed players cost no optimizer step
	$(BIN)/python -m tests.training.run.kills
	$(BIN)/python -m tests.training.run.killed_players

interrupts: setup  ## 200 runs, each with three Ctrl-C at any moment, end without a traceback and resume
	$(BIN)/python -m tests.training.run.interrupts

cluster-faults: setup  ## 200 kills of collectors, nodes and players cost a run on a cluster nothing
	$(BIN)/python -m tests.training.collect.faults

slopes: setup  ## memory, descriptors and threads of a training and of a session; two hours
	$(BIN)/python -m tests.training.run.slopes

interop: setup  ## official ML-Agents 1.1.0 (needs Python 3.10), SuperSuit and RLlib
	sh tests/interop/make_official.sh client
	sh tests/interop/make_official.sh learn
	$(BIN)/python -m pytest tests/interop -m slow
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target build/interop \
		supersuit tinyscaler dm-tree pandas python-dateutil six pyarrow fsspec tensorboardX lz4 ormsgpack
	PYTHONPATH=build/interop $(BIN)/python -m pytest tests/adapters/test_to_pettingzoo.py \
		-m "slow or not slow" -k "supersuit or rllib"

windows:  ## the fast tests on a Windows Python under Wine, room by room; needs Linux, root, debootstrap, 5 GB
	sh tests/windows/set_up.sh
	$(PYTHON) tests/windows/rooms.py $(ROOMS)

check: setup  ## format, lint, types
	$(BIN)/ruff format --check src tests examples bench
	$(BIN)/ruff check src tests examples bench
	$(BIN)/mypy

format: setup
	$(BIN)/ruff format src tests examples bench
	$(BIN)/ruff check --fix src tests examples bench

bench: setup  ## speed beside peers, in one run
	$(BIN)/touchline bench scenes
	$(BIN)/touchline bench learn
	$(BIN)/touchline bench sac
	$(BIN)/touchline bench wire
	$(BIN)/touchline bench adapters

results: setup  ## train the presets to their ends and write docs/results.md; many hours (CLUSTER=auto)
	$(BIN)/python bench/results.py

docs: setup  ## the site, in build/site
	$(BIN)/python -m mkdocs build --strict

pictures: setup  ## the pictures, the film and the gallery in docs/, as far as they are not there
	$(BIN)/python docs/draw_pictures.py
	$(BIN)/python docs/draw_film.py
	$(BIN)/python docs/draw_gallery.py
	TOUCHLINE_PICTURES=docs/images $(BIN)/python -m pytest -m slow tests/viewer \
		-k "1280 or phone or pauses_and_steps or two_checkpoints_side"

schema: setup  ## JSON Schema of the configuration, for editors
	$(BIN)/python docs/config_schema.py > docs/config.schema.json

lock: setup  ## rewrite requirements.lock with the newest versions that fit
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet --upgrade pip
	build/lock/bin/python -m pip install --quiet $(TORCH_FROM) torch==2.13.0
	build/lock/bin/python -m pip install --quiet -e '.[dev]'
	build/lock/bin/python -m pip freeze --exclude-editable \
		| sed 's/^\(torch==[0-9.]*\)+.*/\1/' > requirements.lock

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
