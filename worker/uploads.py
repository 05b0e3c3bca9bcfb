"""Uploading what lies in the outbox, each entry at its own pace.

In: pending entries. Out: answers, logged. A refusal that may pass postpones one entry only; a
coordinator that doesn't answer stops the round. A long file goes in pieces: cut off, the next attempt goes on where the
coordinator says that it ends.
"""

from __future__ import annotations

from protocol.api import SubmissionEnvelope
from protocol.clock import Clock
from protocol.errors import CoordinatorUnreachable, Rejected, SignatureInvalid
from protocol.reasons import RejectReason
from protocol.telemetry import get_logger
from protocol.wire import Receipt, Signed
from worker.membership import Membership
from worker.outbox import Answer, Entry, Outbox
from worker.patience import Patience

PIECE_BYTES = 1 << 20
"""Of a file that is longer than this: with a line of 20 kB a second a piece is there before its signature expires."""

MOST_EPOCHS_AHEAD = 16
"""Past the chain's open epoch: a coordinator promises the epoch that is open, and this node may see the chain later."""


class Uploads:
    """Example: `uploads.flush()` before and after each task."""

    def __init__(
        self,
        outbox: Outbox,
        membership: Membership,
        clock: Clock,
        patience: Patience,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        self._outbox = outbox
        self._piece_bytes = piece_bytes
        self._membership = membership
        self._clock = clock
        self._patience = patience
        self._postponed: dict[str, tuple[Patience, float]] = {}

    def flush(self) -> list[Answer]:
        """Send every pending entry that is due. Raises Unreachable; what isn't answered stays in the outbox."""
        due = [entry for entry in self._outbox.sendable() if self._is_due(entry)]
        return [answer for entry in due if (answer := self._send(entry)) is not None]

    def submit(self, envelope: SubmissionEnvelope, submission_id: str, file: bytes) -> Signed[Receipt]:
        """Upload once. A receipt counts only if the pool's coordinator is bound by it: it is evidence against it.

        Raises Unreachable, or Rejected: a worthless receipt is a refusal that may pass.
        """
        if len(file) > self._piece_bytes:
            self._send_pieces(envelope, submission_id, file)
            file = b""
        receipt = self._membership.coordinator.submit(envelope, submission_id, file)
        try:
            message = receipt.check(self._membership.chain.record().coordinator, self._membership.domain)
        except SignatureInvalid as error:
            raise Rejected(RejectReason.SIGNATURE_INVALID, f"the coordinator's receipt: {error.why}") from error
        if message.submission_id != submission_id:
            raise Rejected(RejectReason.FILE_MISMATCH, f"the coordinator's receipt is for {message.submission_id}")
        self._check_promise(message)
        return receipt

    def _check_promise(self, message: Receipt) -> None:
        """A promise that can't be broken within anybody's life holds the coordinator to nothing."""
        open_epoch, promised = self._membership.chain.num_epochs(), message.include_by_epoch
        if promised > open_epoch + MOST_EPOCHS_AHEAD:
            why = f"the coordinator's receipt promises epoch {promised}, the open one is {open_epoch}"
            raise Rejected(RejectReason.FILE_MISMATCH, f"{why}: at most {MOST_EPOCHS_AHEAD} more")

    def _send_pieces(self, envelope: SubmissionEnvelope, submission_id: str, file: bytes) -> None:
        """Whatever of the file the coordinator hasn't yet. Raises Unreachable, or Rejected."""
        client = self._membership.coordinator
        done = client.send_piece(envelope, submission_id, 0, b"")
        while done < len(file):
            piece = file[done : done + self._piece_bytes]
            there = client.send_piece(envelope, submission_id, done, piece)
            if there < done + len(piece):  # else a byte an answer would have the file sent without end
                why = f"{submission_id}: {there} bytes after a piece that began at {done}"
                raise CoordinatorUnreachable("the coordinator keeps no piece of the file", why, "it is sent again")
            done = there

    def _send(self, entry: Entry) -> Answer | None:
        try:
            answer = self._outbox.send(entry, self, self._membership.chain.time)
        except Rejected as refusal:
            self._postpone(entry, refusal)
            return None
        except FileNotFoundError as error:  # removed by somebody else, while the worker ran
            self._outbox.set_aside(entry.task_id, f"its file is gone: {error.filename}")
            return None
        self._postponed.pop(entry.submission_id, None)
        self._log(answer)
        return answer

    def _is_due(self, entry: Entry) -> bool:
        return self._clock.now() >= self._postponed.get(entry.submission_id, (None, 0.0))[1]

    def _postpone(self, entry: Entry, refusal: Rejected) -> None:
        patience = self._postponed.get(entry.submission_id, (self._patience.another(), 0.0))[0]
        self._postponed[entry.submission_id] = patience, self._clock.now() + patience.wait_for(refusal)

    def _log(self, answer: Answer) -> None:
        fields = {"submission_id": answer.submission_id, "counter": answer.counter}
        if answer.receipt is None:
            get_logger().error("submission.refused", **fields, reason=answer.refusal, detail=answer.detail)
        else:
            get_logger().info("submission.received", **fields)
