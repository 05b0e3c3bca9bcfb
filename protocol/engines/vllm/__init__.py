"""The vLLM engine: vLLM decodes, `protocol/sampling.py` draws each token, and the states that it drew from are kept.

    requests ──engine.py──▶ vLLM: schedules, batches, caches prefixes ──▶ logits and states, a row a request
    rows ──sampler_v1.py (rows.py: whose row is which)──▶ draws.py: tokens, log-probs, states of each request
    finished requests ──extension.py──▶ Completion
    new weights ──extension.py──▶ the running model ──probe.py──▶ accepted, or the engine is closed

Nothing here imports vLLM but for who makes an engine (`library.py`). Install it by `make vllm`; docs/worker.md.
"""
