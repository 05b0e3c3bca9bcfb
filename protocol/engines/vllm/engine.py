"""The vLLM engine in one process: requests in, vLLM's steps, completions out.

In: a model folder, requests. Out: completions, with the states that vLLM computed their tokens from. vLLM batches,
caches prefixes and preempts as it likes; tokens are drawn by `protocol/sampling.py` (`sampler_v1.py`). New weights go
into the running model (`extension.py`), and a probe must agree before anything is generated (`probe.py`).

Example::

    engine = VllmEngine(max_batch=64)
    engine.load(folder)
    for completion in generate(engine, requests): ...
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch

from protocol.engines.base import Completion, Request, require_idle
from protocol.engines.names import Dtype
from protocol.engines.places import LOAD, require_same_model
from protocol.engines.vllm import extension, probe
from protocol.engines.vllm.desk import PackedDraws
from protocol.engines.vllm.draws import Asked
from protocol.engines.vllm.library import out_of_sight, quiet, require_library
from protocol.engines.vllm.options import ModelRunner, VllmOptions
from protocol.errors import ConfigError, ProofpoolError, RolloutTooLong
from protocol.rules import SamplingRules
from protocol.weights import ModelConfig
from protocol.weights_parts import WEIGHTS_FILE

GIB = 1 << 30
CPU_CACHE_GIB = 1.0
SAMPLERS: dict[ModelRunner, str] = {
    "v1": "protocol.engines.vllm.sampler_v1:SeededSampler",
    "v2": "protocol.engines.vllm.sampler_v2:SeededSlots",
}


class VllmEngine:
    """A `LiveEngine` (`protocol/engines/base.py`). Raises ConfigError at once where vLLM can't be used here."""

    def __init__(self, max_batch: int = 64, dtype: Dtype = "float32", options: VllmOptions | None = None) -> None:
        self._max_batch = max_batch
        self._dtype = dtype
        self._options = options or VllmOptions()
        self._vllm = require_library(self._options.model_runner)
        self._llm: Any = None
        self._config: ModelConfig | None = None
        self._folder: Path | None = None
        self._pending: dict[str, Request] = {}
        self._keys = count()

    def load(self, folder: Path) -> None:
        """The first weights of an architecture take seconds to start with; further ones go into the running model.

        Raises ConfigError where vLLM refuses the model or its options.
        """
        require_idle(self)
        config = ModelConfig.load(folder)
        if config != self._config:
            self.close()
            self._start(folder, config)
        try:
            self._call("proofpool_load", str(folder))
            self._llm.reset_prefix_cache()  # keys and values of the old weights
            self._probe(folder, config)
        except BaseException:
            self.close()  # half of a model must not be generated with
            raise
        self._folder = folder

    def apply(self, patches: Sequence[Path], folder: Path) -> None:
        """On a processor vLLM's packed matrices are made anew where a value of theirs changes (`live.py`)."""
        require_idle(self)
        if self._folder is None:
            raise ProofpoolError("the engine has no weights that a patch could be for", "apply() before load()", LOAD)
        require_same_model(self._folder, folder)
        self._call("proofpool_decode", str(self._folder / WEIGHTS_FILE), [str(patch) for patch in patches])
        try:
            self._call("proofpool_write")
            self._llm.reset_prefix_cache()  # keys and values of the old weights
            self._probe(folder, ModelConfig.load(folder))
        except BaseException:
            self.close()
            raise
        self._folder = folder

    def add(self, requests: Sequence[Request]) -> None:
        if self._llm is None:
            raise ProofpoolError("the engine has no weights", "requests before load()")
        self._require_room(requests)
        for request in requests:
            self._add(request)

    def step(self) -> list[Completion]:
        if not self.has_work:
            return []
        finished = [output for output in self._llm.step() if output.finished]
        if not finished:
            return []
        drawn = self._take([output.request_id for output in finished])
        return [
            self._completion(self._pending.pop(output.request_id), output.outputs[0].token_ids, draws)
            for output, draws in zip(finished, drawn, strict=True)
        ]

    @property
    def has_work(self) -> bool:
        return bool(self._pending)

    @property
    def num_waiting(self) -> int:
        if not self._pending:
            return 0
        _, num_waiting = self._llm.engine_core.engine_core.scheduler.get_request_counts()
        return int(num_waiting)

    def abort(self) -> None:
        if self._pending:
            self._llm.abort_request(list(self._pending))
            self._take(list(self._pending))
            self._pending.clear()

    def close(self) -> None:
        """vLLM's threads and memory are given back, its process-wide state is taken down."""
        self._pending.clear()
        if self._llm is None:
            return
        self._llm.engine_core.shutdown()
        self._llm = self._config = self._folder = None
        from vllm.distributed import cleanup_dist_env_and_memory

        with quiet():
            cleanup_dist_env_and_memory()
        gc.collect()

    def _start(self, folder: Path, config: ModelConfig) -> None:
        """vLLM with a model of this shape, its weights still to come: vLLM would read every file of the folder."""
        options, set_num_threads = self._options, torch.set_num_threads
        is_cpu = not torch.cuda.is_available()
        cache_gib = CPU_CACHE_GIB if options.cache_gib is None and is_cpu else options.cache_gib
        arguments = self._vllm.EngineArgs(
            model=str(folder),
            load_format="dummy",
            dtype=self._dtype,
            max_num_seqs=self._max_batch,
            max_model_len=options.max_length or config.max_position_embeddings,
            max_num_batched_tokens=options.max_step_tokens,
            kv_cache_memory_bytes=None if cache_gib is None else int(cache_gib * GIB),
            enforce_eager=is_cpu,
            async_scheduling=False,  # positions are counted by tokens that are there
            skip_tokenizer_init=True,
            generation_config="vllm",  # nothing of the folder's changes how tokens are drawn
            disable_log_stats=True,
            seed=0,
            logits_processors=[SAMPLERS[options.model_runner]],
            worker_extension_cls=extension.NAME,
        )
        try:
            with quiet(), out_of_sight():
                self._llm = self._vllm.LLMEngine.from_engine_args(arguments)
        except (ValueError, RuntimeError) as error:
            why = str(error).splitlines()[0]
            raise ConfigError(
                "vLLM can't run this model here", why, "see the engine's options in docs/worker.md"
            ) from error
        finally:
            torch.set_num_threads = set_num_threads  # vLLM puts a function there that does nothing
        self._config = config
        self._call("proofpool_install")

    def _probe(self, folder: Path, config: ModelConfig) -> None:
        tokens = probe.probe_tokens(config).numpy().astype(np.int32)
        request = Request(bytes(32), 0, tokens, SamplingRules(max_new_tokens=1), frozenset())
        key = self._add(request, keeps_logits=True)
        while self._llm.has_unfinished_requests():
            self._llm.step()
        self._pending.pop(key)
        logits = torch.frombuffer(bytearray(self._take([key])[0]["logits"]), dtype=torch.float32)
        probe.check_loaded(folder, self._dtype, logits)

    def _add(self, request: Request, *, keeps_logits: bool = False) -> str:
        key = str(next(self._keys))
        params = self._vllm.SamplingParams(
            temperature=0.0,  # vLLM takes the largest logit, which is the drawn token's
            max_tokens=request.sampling.max_new_tokens,
            stop_token_ids=sorted(request.eos_ids),
            ignore_eos=True,  # what ends a rollout is said by the request alone
            detokenize=False,
            output_kind=self._final_only,
            extra_args=Asked.to_extra_args(key, request, keeps_logits=keeps_logits),
        )
        self._llm.add_request(key, {"prompt_token_ids": request.input_tokens.tolist()}, params)
        self._pending[key] = request
        return key

    @property
    def _final_only(self) -> Any:
        from vllm.sampling_params import RequestOutputKind

        return RequestOutputKind.FINAL_ONLY

    def _require_room(self, requests: Sequence[Request]) -> None:
        most = self._llm.model_config.max_model_len
        for request in requests:
            length = len(request.input_tokens) + request.sampling.max_new_tokens
            if length > most:
                raise RolloutTooLong(
                    "a rollout is longer than the engine has room for",
                    f"{length} tokens, at most {most}",
                    "raise `vllm_max_length`, or choose a pool with shorter rollouts",
                )

    def _completion(self, request: Request, sampled: Sequence[int], draws: PackedDraws) -> Completion:
        tokens = np.frombuffer(draws["tokens"], dtype="<i8")
        if tokens.tolist() != list(sampled):
            raise ProofpoolError(
                "vLLM sampled other tokens than were drawn", f"{len(sampled)} tokens, {len(tokens)} drawn"
            )
        rows = torch.frombuffer(bytearray(draws["rows"]), dtype=torch.bfloat16).unflatten(0, (len(tokens), -1))
        return Completion(
            request=request,
            output_tokens=tokens.astype(np.int32),
            output_logprobs=np.frombuffer(draws["logprobs"], dtype="<f4").astype(np.float32),
            hidden_rows=rows,
            finish_reason=_finish_reason(request, tokens.tolist()),
        )

    def _take(self, keys: list[str]) -> list[PackedDraws]:
        taken: list[PackedDraws] = self._call("proofpool_take", keys)
        return taken

    def _call(self, method: str, *arguments: Any) -> Any:
        """A method of `extension.WorkerExtension`; the first worker's answer."""
        return self._llm.collective_rpc(method, args=arguments)[0]


def _finish_reason(request: Request, tokens: Sequence[int]) -> str:
    """Raises ProofpoolError where vLLM ended a rollout that the rules don't end."""
    if tokens[-1] in request.eos_ids:
        return "stop"
    if len(tokens) != request.sampling.max_new_tokens:
        raise ProofpoolError("vLLM ended a rollout early", f"{len(tokens)} of {request.sampling.max_new_tokens} tokens")
    return "length"
