"""Alerts: incidents are looked for again and again, kept in DATA/process/alerts.json, and posted to a webhook.

In: `look`, the webhook's URL. Out: a POST of an `AlertMessage` once when an incident opens and once when it is over,
repeated until somebody answers with 2xx. The URL may hold a token: it comes from a file or the environment, and is
neither logged nor kept.
"""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx
from pydantic import ValidationError

from protocol.clock import Clock
from protocol.errors import ConfigError, ProofpoolError
from protocol.files import write_atomically
from protocol.keystore import check_private
from protocol.telemetry import get_logger
from worker.config import WorkerConfig
from worker.incidents import AlertMessage, Limits, Memory, advance
from worker.state_file import FOLDER
from worker.status import NodeStatus

ALERTS_FILE = "alerts.json"
WEBHOOK_VARIABLE = "PROOFPOOL_ALERT_WEBHOOK"
TIMEOUT_SECONDS = 10.0
MOST_PAUSE_SECONDS = 3600.0


def webhook_of(config: WorkerConfig, environment: Mapping[str, str]) -> str | None:
    """The URL; None where no alerts are wanted. Raises ConfigError, KeyFailure for a file that others can read."""
    url = environment.get(WEBHOOK_VARIABLE)
    if config.alert_webhook_file is not None:
        check_private(config.alert_webhook_file)
        try:
            lines = config.alert_webhook_file.read_text("utf-8").splitlines()
        except ValueError as error:
            todo = "put its URL on the first line, as UTF-8"
            raise ConfigError("the webhook's file isn't text", str(config.alert_webhook_file), todo) from error
        url = lines[0].strip() if lines else ""
    if url is not None and not url.startswith(("https://", "http://")):
        where = config.alert_webhook_file or WEBHOOK_VARIABLE
        raise ConfigError("that is no webhook", f"{where} doesn't begin with https://", "put its URL on the first line")
    return url


class Lookout:
    """A thread that looks every `look_seconds`. `status` and `num_open` are for the metrics."""

    def __init__(
        self,
        config: WorkerConfig,
        look: Callable[[], NodeStatus],
        http: httpx.Client,
        webhook: str | None,
        clock: Clock,
        pace: Clock,
    ) -> None:
        """`clock` dates the messages; `pace` measures what goes by, whoever sets this machine's clock."""
        self._config = config
        self._look = look
        self._http = http
        self._webhook = webhook
        self._clock = clock
        self._pace = pace
        self._shift = clock.now() - pace.now()
        self._file = config.data_dir / FOLDER / ALERTS_FILE
        self._limits = Limits(minutes=config.alert_minutes, disk_bytes=config.alert_disk_bytes, pool_id=config.pool_id)
        self._memory = _recalled(self._file, clock.now())
        self._pause_seconds = self._quiet_until = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lookout", daemon=True)
        self.status: NodeStatus | None = None

    def num_open(self) -> Counter[str]:
        return self._memory.num_open

    def __enter__(self) -> Lookout:
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._stop.set()
        self._thread.join(TIMEOUT_SECONDS)

    def turn(self) -> None:
        """Look once, keep what is new, and send what isn't sent."""
        self.status = self._look()
        free_bytes = shutil.disk_usage(self._config.data_dir).free
        self._memory = self._in_step()
        after = advance(self._memory, self.status, free_bytes, self._limits, self._clock.now())
        for message in after.unsent[len(self._memory.unsent) :]:
            get_logger().warning(f"alert.{message.event}", kind=message.kind, summary=message.summary)
        self._keep(after if self._webhook else after.model_copy(update={"unsent": ()}))
        self._send()

    def _in_step(self) -> Memory:
        """What is remembered, its date moved along where somebody has set this machine's clock."""
        shift = self._clock.now() - self._pace.now()
        jumped, self._shift = shift - self._shift, shift
        return self._memory.model_copy(update={"accepted_time": self._memory.accepted_time + jumped})

    def _run(self) -> None:
        """No error of a look or a webhook ends the work; a bug ends the lookout, and is told."""
        while True:
            try:
                self.turn()
            except (ProofpoolError, OSError) as error:
                get_logger().warning("lookout.failed", why=str(error))
            except Exception as error:
                self.status = None  # metrics tell nothing rather than what was
                why, todo = f"{type(error).__name__}: {error}", "report it; alerts go on after a restart"
                get_logger().error("lookout.ended", why=why, todo=todo)
                raise
            if self._clock.wait(self._stop, self._config.look_seconds):
                return

    def _send(self) -> None:
        """In order; what isn't taken is sent at the next look, and stays across restarts."""
        while self._webhook and self._memory.unsent and self._pace.now() >= self._quiet_until:
            message, *left = self._memory.unsent
            if fault := _post(self._http, self._webhook, message):
                return self._postpone(message, fault)
            self._pause_seconds = 0.0
            self._keep(self._memory.model_copy(update={"unsent": tuple(left)}))
        return None

    def _postpone(self, message: AlertMessage, fault: str) -> None:
        """Twice as long each time, up to an hour."""
        self._pause_seconds = min(MOST_PAUSE_SECONDS, 2 * self._pause_seconds or self._config.look_seconds)
        self._quiet_until = self._pace.now() + self._pause_seconds
        num_unsent = len(self._memory.unsent)
        get_logger().warning("alert.unsent", kind=message.kind, why=fault, num_unsent=num_unsent)

    def _keep(self, memory: Memory) -> None:
        self._memory = memory
        write_atomically(self._file, memory.model_dump_json().encode(), mode=0o600)


def _post(http: httpx.Client, url: str, message: AlertMessage) -> str:
    """Why it wasn't taken; empty where it was. Nothing of the URL is in it; the answer's body isn't read."""
    headers = {"Content-Type": "application/json", "Idempotency-Key": f"{message.incident_id}-{message.event}"}
    try:
        content = message.model_dump_json()
        with http.stream("POST", url, content=content, headers=headers, timeout=TIMEOUT_SECONDS) as answer:
            return "" if answer.is_success else f"HTTP {answer.status_code}"
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return type(error).__name__


def _recalled(file: Path, now: float) -> Memory:
    """What was kept. Minutes without an accepted submission count from this start on, unless they were told already."""
    try:
        found = Memory.model_validate_json(file.read_bytes())
    except (FileNotFoundError, ValidationError):  # none yet, or of another version
        return Memory(accepted_time=now)
    return found if found.num_open["nothing_accepted"] else found.model_copy(update={"accepted_time": now})
