# Every target does its own set-up: Python 3.11 or later, make and a C compiler are all that must be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test setup check lock benchmark clean

demo: setup  ## the main job on a bundled feeder
	$(BIN)/mycelium demo

test: setup check  ## every test
	$(BIN)/python -m pytest -n auto --dist loadgroup

check: setup  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

setup: $(VENV)/.ready  ## a virtual environment with everything, pinned

$(VENV)/.ready: requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

lock:  ## resolve requirements.lock again, for every supported Python
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet uv
	$(VENV)-lock/bin/uv pip compile --universal --python-version 3.11 --group dev pyproject.toml --no-annotate -o requirements.lock
	# What torch needs of CUDA is for its own wheel to say: a CPU build needs none.
	sed -i.bak -E '/^(nvidia-|cuda-)/d' requirements.lock && rm requirements.lock.bak
	rm -rf $(VENV)-lock

benchmark: setup  ## speed, as ratios in one run
	$(BIN)/python benchmarks/simulate.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis build *.egg-info
