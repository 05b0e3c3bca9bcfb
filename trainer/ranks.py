"""The processes of one trainer, as torchrun starts them: who is first, what they share, how one is missed.

In: torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT). Out: `Ranks`. Only the first rank
talks to the coordinator and the chain; what it is about to do, the others hear from it. Alone, nothing is exchanged.

    torchrun --standalone --nproc-per-node 8 -m trainer run --config trainer.toml
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from protocol.errors import ConfigError, RankLost

T = TypeVar("T")

LONGEST_WAIT = timedelta(days=365)
"""For an order of the first rank, which may wait for a batch; a rank that dies closes its connections at once."""
SIGNS_OF_LOSS = ("Connection closed by peer", "Connection reset by peer", "Timed out waiting", "Broken pipe", "gloo/")


class ScaleConfig(BaseModel):
    """How a model that is too large for one place is trained; `torchrun` says on how many ranks."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    device: Literal["cpu", "cuda"] = "cpu"
    """Where the model is computed; each rank of a machine takes the GPU of its local rank."""
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the forward and backward passes. Master weights, optimizer and sums over ranks are float32 either way."""
    recompute_activations: bool = False
    """Keep the inputs of layers alone, and run each layer again backwards: less memory, a third more work."""
    offload: bool = False
    """Keep master weights, gradients and optimizer in the host's memory, and take the optimizer's steps there."""
    map_large_blocks: bool = False
    """Have the C library map each large block by itself, so that no gaps are left between them: a tenth to a half less
    memory, half again to twice the processor time. For computing on a CPU that is short of memory."""
    peak_flops: float | None = Field(default=None, gt=0)
    """Floating-point operations a second that a rank's device can do, which MFU is a share of; measured without it."""
    rank_timeout_seconds: float = Field(default=600.0, gt=0, le=31_536_000)
    """The longest that a rank waits for the others within a step; past it the run ends with an error."""

    @model_validator(mode="after")
    def _offloads_from_somewhere(self) -> ScaleConfig:
        if self.offload and self.device == "cpu":
            raise ValueError('offload moves state off a GPU: with device = "cpu" it is in the host\'s memory already')
        return self


@dataclass(frozen=True)
class Part:
    """What the first rank tells last: the run is over."""


@dataclass(frozen=True)
class Ranks:
    """`size` processes, of which this is number `rank`, computing on `device`.

    `mesh` spans them where parameters are dealt. Two gloo groups of the hosts: `orders` for what the first rank tells,
    `control` for what is exchanged within an order.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = torch.device("cpu")
    mesh: DeviceMesh | None = None
    orders: dist.ProcessGroup | None = field(default=None, repr=False)
    control: dist.ProcessGroup | None = field(default=None, repr=False)

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @property
    def has_group(self) -> bool:
        """Whether parameters are dealt, be it over one rank."""
        return self.mesh is not None

    def tell(self, order: object) -> None:
        """From the first rank to all others, which `hear` it."""
        self._broadcast([order])

    def hear(self) -> Any:
        """What the first rank tells, however long that takes."""
        box: list[object] = [None]
        self._broadcast(box)
        return box[0]

    def _broadcast(self, box: list[object]) -> None:
        if self.size > 1:
            dist.broadcast_object_list(box, src=0, group=self.orders)

    def wait(self) -> None:
        """Until all ranks are here."""
        self.sum(torch.zeros(1))

    def sum(self, values: Tensor) -> Tensor:
        """Sum over ranks, on the CPU, of tensors of one shape."""
        total = values.detach().to("cpu", copy=True)
        if self.size > 1:
            dist.all_reduce(total, group=self.control)
        return total

    def gather(self, values: Tensor) -> Tensor:
        """[N of each rank] to all of them in the ranks' order, on the CPU."""
        own = values.detach().cpu()
        if self.size == 1:
            return own
        lengths = torch.zeros(self.size, dtype=torch.int64)
        lengths[self.rank] = len(own)
        lengths = self.sum(lengths)
        padded = own.new_zeros(int(lengths.max()))
        padded[: len(own)] = own
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(parts, padded, group=self.control)
        return torch.cat([part[:length] for part, length in zip(parts, lengths.tolist(), strict=True)])

    def share(self, items: Sequence[T], costs: Sequence[float], padding: T) -> list[T]:
        """This rank's items: each is one rank's, every rank has as many, and the n-th ones cost about the same.

        Ranks go through their items in step, so a round takes as long as its dearest item: neighbours by cost share
        a round. `padding` fills the last one up. Alone, all items in their own order.
        """
        if self.size == 1:
            return list(items)
        by_cost = sorted(range(len(items)), key=lambda index: -costs[index])
        rounds = range(0, len(items), self.size)
        return [items[by_cost[start + self.rank]] if start + self.rank < len(items) else padding for start in rounds]

    def close(self) -> None:
        """After the last exchange; not where a rank is lost, since the others would be waited for."""
        if self.mesh is not None:
            dist.destroy_process_group()


ALONE = Ranks()


def start_ranks(scale: ScaleConfig, environment: Mapping[str, str] = os.environ) -> Ranks:
    """Meet the others that torchrun started; alone without it, in a group of one where arithmetic or memory asks it.

    Raises ConfigError where the GPU isn't there, RankLost where the others don't come within the deadline.
    """
    size = int(environment.get("WORLD_SIZE", "1"))
    place = _device(scale.device, int(environment.get("LOCAL_RANK", "0")))
    if size == 1 and scale.compute_dtype == "float32" and not scale.offload:
        return Ranks(device=place)
    rank = int(environment.get("RANK", "0"))
    backend = "cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo"
    deadline = timedelta(seconds=scale.rank_timeout_seconds)
    with losing_ranks():
        if size == 1:
            dist.init_process_group(backend, timeout=deadline, store=HashStore(), rank=0, world_size=1)
        else:
            dist.init_process_group(backend, timeout=deadline)
        orders = dist.new_group(backend="gloo", timeout=LONGEST_WAIT)
        control = dist.new_group(backend="gloo", timeout=deadline)
        mesh = init_device_mesh(place.type, (size,))
    return Ranks(rank, size, place, mesh, orders, control)


def _device(kind: str, local_rank: int) -> torch.device:
    if kind == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available() or local_rank >= torch.cuda.device_count():
        raise ConfigError(
            f"there is no GPU for local rank {local_rank}",
            f"torch {torch.__version__} sees {torch.cuda.device_count()}",
            'start as many ranks on a machine as it has GPUs, or set device = "cpu" in [scale]',
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


@contextmanager
def parting(ranks: Ranks) -> Iterator[None]:
    """On the first rank: the others end when the block does. Where it fails they miss it, and end with RankLost."""
    yield
    with losing_ranks():  # one that died while the first waited for a batch, where nothing is exchanged
        ranks.tell(Part())
    ranks.close()


@contextmanager
def losing_ranks() -> Iterator[None]:
    """Turns torch's errors of a lost connection into RankLost: what another rank died of stands in its own log."""
    try:
        yield
    except Exception as error:
        if not _is_loss(error):
            raise
        first = str(error).strip().splitlines()[0].partition(". ")[0]  # gloo goes on with advice
        raise RankLost(
            "another rank of this trainer is gone",
            first,
            "its own output says why it ended; start the trainer again: it goes on from the newest checkpoint, "
            "on as many ranks as there are then",
        ) from error


def _is_loss(error: BaseException) -> bool:
    """torch's distributed errors, and gloo's, which are plain RuntimeErrors with its source file in front."""
    if isinstance(error, dist.DistError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in SIGNS_OF_LOSS)
