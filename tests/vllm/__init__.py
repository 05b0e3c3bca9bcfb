"""The vLLM engine against real vLLM, in an environment of its own: `make vllm` makes it, `make test-slow` uses it.

Elsewhere, where vLLM isn't installed, nothing of this is collected. Run:

    .venv-vllm/bin/python -m pytest -m slow tests/vllm
"""
