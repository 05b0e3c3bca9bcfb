"""A version on its way out while the next step is taken.

In: what publishes it. Out: whether it is out, or what went wrong, as soon as the loop asks. One thread for one version;
there is never a second one, since a version is saved only once the one before is out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from protocol.clock import Clock


class Publishing:
    """Example: `publishing = Publishing(publish, clock)`, and before the next save `publishing.wait()`."""

    def __init__(self, publish: Callable[[], bool], clock: Clock) -> None:
        self._publish = publish
        self._clock = clock
        self._end_time: float | None = None
        self._is_out = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="publishing")
        self._thread.start()

    def is_out(self) -> bool:
        """Without waiting. Raises what went wrong."""
        if self._thread.is_alive():
            return False
        return self.wait()

    def wait(self) -> bool:
        """Until it is out, or False where it was stopped before. Raises what went wrong."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._is_out

    def seconds_since(self, time: float) -> float:
        """Of the time since `time`, how long it wasn't out."""
        end_time = self._end_time
        return max(0.0, (self._clock.now() if end_time is None else end_time) - time)

    def join(self) -> None:
        """Until the thread has ended, however it did."""
        self._thread.join()

    def _run(self) -> None:
        try:
            self._is_out = self._publish()
        except BaseException as error:  # it travels: `wait` raises it in the loop's thread
            self._error = error
        finally:
            self._end_time = self._clock.now()
