"""What runs inside vLLM's worker: states go to the sampler's desk, draws come out, weights go in.

vLLM mixes `WorkerExtension` into its worker class (`EngineArgs.worker_extension_cls`); `collective_rpc` calls its
methods. The states are read from `execute_model_state`, which the model runner keeps between the forward pass and
sampling: the rows that the logits were computed from, after the final norm. Source: vllm/v1/worker of vLLM 0.32.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from protocol.engines.vllm.desk import Desk, PackedDraws
from protocol.engines.vllm.live import LiveUpdate
from protocol.errors import ProofpoolError
from protocol.shardcast.patches import decode_chain
from protocol.weights import ModelConfig, check_weights, load_weights

NAME = f"{__name__}.WorkerExtension"


class WorkerExtension:
    """Methods of vLLM's worker. Their names begin with `proofpool_`, since they share it with vLLM's own."""

    model_runner: Any
    device: torch.device

    def proofpool_install(self) -> None:
        """Have each step's states handed to the sampler. Raises ProofpoolError where vLLM made no sampler of ours."""
        runner, sampler = self.model_runner, _sampler_of(self.model_runner)
        execute_model = runner.execute_model

        def execute_and_keep(*args: Any, **kwargs: Any) -> Any:
            result = execute_model(*args, **kwargs)
            _hand_over(runner, sampler)
            return result

        runner.execute_model = execute_and_keep
        self._proofpool_desk: Desk = sampler.desk

    def proofpool_take(self, keys: Sequence[str]) -> list[PackedDraws]:
        """What was drawn for these requests, which are forgotten here."""
        return self._proofpool_desk.take(keys)

    def proofpool_load(self, folder: str) -> None:
        """Put a folder's weights into the running model.

        Raises MalformedFile before anything is changed, where they aren't of the folder's configuration.
        """
        weights = load_weights(Path(folder))
        check_weights(ModelConfig.load(Path(folder)), weights)
        self.model_runner.reload_weights(weights_iterator=iter(weights.items()))
        if self.device.type == "cpu":
            _repack_plain_linears(self.model_runner.model)

    def proofpool_decode(self, base: str, patches: Sequence[str]) -> None:
        """Have ready what patches change in the model, which holds the weights of the file `base`.

        Raises MalformedFile or VerificationFailed where they don't fit; nothing is changed yet in any case.
        """
        changes = decode_chain(Path(base), [Path(patch) for patch in patches])
        config, model = ModelConfig.load(Path(base).parent), self.model_runner.get_model()
        self._proofpool_update = LiveUpdate(model, config, Path(base), changes)

    def proofpool_write(self) -> None:
        """Make the changes that are ready."""
        update = self._proofpool_update
        del self._proofpool_update
        update.write()


def _sampler_of(runner: Any) -> Any:
    """The sampler that vLLM made by the name in `EngineArgs`: each runner keeps it elsewhere."""
    if hasattr(runner, "input_batch") and hasattr(runner.input_batch, "logitsprocs"):
        made = runner.input_batch.logitsprocs.non_argmax_invariant
    else:
        made = runner.sampler.logits_processors
    ours = [processor for processor in made if hasattr(processor, "desk")]
    if len(ours) != 1:
        raise ProofpoolError("vLLM has another number of our samplers than one", f"{len(ours)}")
    return ours[0]


def _hand_over(runner: Any, sampler: Any) -> None:
    state = runner.execute_model_state
    if state is None:
        sampler.desk.states = None
        return
    sampler.desk.states = _sampled_states(state)
    if hasattr(sampler, "is_partial"):
        sampler.is_partial = runner.discard_request_mask.np


def _sampled_states(state: Any) -> Tensor:
    """[R, H]: V1 has picked the rows that it samples from; V2 says which they are."""
    if hasattr(state, "sample_hidden_states"):
        states: Tensor = state.sample_hidden_states
        return states
    picked: Tensor = state.hidden_states[state.input_batch.logits_indices]
    return picked


def _repack_plain_linears(model: torch.nn.Module) -> None:
    """Have linear layers that kept their plain weight make their packed copy of it anew.

    vLLM 0.32 packs weights for the processor, and reloading renews the packed copies of what is in the checkpoint. A
    head that is tied to the embedding isn't: it would go on with the old one, and say nothing.
    """
    for module in model.modules():
        weight = getattr(module, "weight", None)
        method: Any = getattr(module, "quant_method", None)
        is_plain = isinstance(weight, Tensor) and weight.ndim == 2 and weight.numel() > 0
        if is_plain and hasattr(module, "cpu_linear") and method is not None:
            method.process_weights_after_loading(module)
