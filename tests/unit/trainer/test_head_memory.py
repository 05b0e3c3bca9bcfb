"""What the head holds at once: slices of the logits, never all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from trainer.head import LOGITS_BYTES, token_logprobs

VOCABULARY, WIDTH = 151_936, 8
Compute = Callable[[Tensor, Tensor, Tensor], Tensor]


class Largest(TorchDispatchMode):
    """The most bytes that one tensor had, of all that any operation gave, backward passes included."""

    num_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor):
                self.num_bytes = max(self.num_bytes, tensor.untyped_storage().nbytes())
        return result


def in_slices(hidden: Tensor, weight: Tensor, tokens: Tensor) -> Tensor:
    logprobs, entropy = token_logprobs(hidden, weight, tokens, 0.9)
    return (logprobs + entropy).sum()


def at_once(hidden: Tensor, weight: Tensor, tokens: Tensor) -> Tensor:
    return torch.log_softmax(hidden @ weight.T / 0.9, -1).gather(1, tokens[:, None]).sum()


def there_and_back(compute: Compute, num_tokens: int) -> None:
    hidden = torch.randn(num_tokens, WIDTH).requires_grad_()
    weight = torch.randn(VOCABULARY, WIDTH).requires_grad_()
    compute(hidden, weight, torch.arange(num_tokens)).backward()


@pytest.mark.parametrize(("compute", "is_bounded"), [(in_slices, True), (at_once, False)])
def test_no_tensor_is_larger_than_a_slice(compute: Compute, is_bounded: bool) -> None:
    with Largest() as largest:
        there_and_back(compute, 250)
    assert largest.num_bytes > LOGITS_BYTES / 2
    assert (largest.num_bytes <= LOGITS_BYTES) == is_bounded
