"""The background loop: everything that happens without a request, stage by stage.

    index_chain       consumes contract events          produces mirrors, chain.* leaves
    seal_versions     consumes mined beacon blocks      produces queued sealVersion calls
    seal_epochs       consumes late beacon blocks       produces queued sealEpoch calls
    expire_leases     consumes chain time               produces task.expired
    sweep_pieces      consumes leases that are over     produces nothing: what came for them in pieces goes
    open_draws        consumes sealed epoch beacons     produces draws for the verifiers
    settle            consumes revealed verdicts        produces accepted, rejected, disputed; earnings
    reaudit           consumes settled work, beacons    produces draws of round 1; challenged; earnings
    close_epoch       consumes the log's new leaves     produces an epoch and its queued commit
    sign_checkpoints  consumes anchored epochs          produces their signed notes
    propose_earnings  consumes the log's payments       produces an earnings root to be attested
    answer_demands    consumes doubted promises         produces queued answers
    send_outbox       consumes queued calls             produces mined ones

Each stage is a function of the coordinator, commits by itself, and does nothing where nothing is due.
A chain that doesn't answer, or a database that is full or locked, stops no other stage: what it held up is tried
again on the next turn.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from sqlalchemy.exc import OperationalError

from coordinator.checkpoints import sign_checkpoints
from coordinator.context import Coordinator
from coordinator.draws import open_draws
from coordinator.earnings import propose_earnings
from coordinator.epochs import close_epoch, seal_epochs
from coordinator.inclusions import answer_demands
from coordinator.indexer import index_chain
from coordinator.partial import sweep_pieces
from coordinator.reaudits import reaudit
from coordinator.sender import send_outbox
from coordinator.settle import settle
from coordinator.tasks import expire_leases
from coordinator.versions import seal_versions
from protocol.errors import Unreachable
from protocol.telemetry import get_logger

Stage = Callable[[Coordinator], None]

STAGES: tuple[Stage, ...] = (
    index_chain,
    seal_versions,
    seal_epochs,
    expire_leases,
    sweep_pieces,
    open_draws,
    settle,
    reaudit,
    close_epoch,
    sign_checkpoints,
    propose_earnings,
    answer_demands,
    send_outbox,
)


class Loop:
    """Runs the stages in order, over and over, until told to stop.

    `failure` is the error that ended it, which only a fault of ours can; `on_failure` is called then.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        stages: Sequence[Stage] = STAGES,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self._coordinator = coordinator
        self._stages = stages
        self._on_failure = on_failure
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.failure: Exception | None = None

    def turn(self) -> None:
        """Each stage once."""
        for stage in self._stages:
            try:
                stage(self._coordinator)
            except (Unreachable, OperationalError) as error:
                get_logger().warning("loop.waiting", stage=stage.__name__, detail=str(error)[:300])

    def run(self) -> None:
        """Turn until `stop`."""
        pause_seconds = self._coordinator.config.loop_seconds
        while not self._coordinator.clock.wait(self._stop, pause_seconds):
            self.turn()

    def start(self) -> None:
        """Run in a thread of its own."""
        self._thread = threading.Thread(target=self._run_or_fail, name="coordinator-loop")
        self._thread.start()

    def stop(self) -> None:
        """Finish the stage at hand and end."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run_or_fail(self) -> None:
        try:
            self.run()
        except Exception as error:
            get_logger().exception("loop.failed")
            self.failure = error
            self._on_failure()
