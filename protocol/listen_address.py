"""An address to listen on, such as `127.0.0.1:9464` or `[::1]:9464`: text in a configuration, a socket later."""

from __future__ import annotations

import re
import socket
from typing import Annotated

from pydantic import AfterValidator

from protocol.errors import ConfigError


def host_and_port(address: str) -> tuple[str, int]:
    """Raises ConfigError for what is no HOST:PORT."""
    host, _, port = address.rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
        raise ConfigError("that is no address to listen on", f"metrics_address {address!r}", "such as 127.0.0.1:9464")
    return host.strip("[]"), int(port)


def family_of(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def why_not_free(address: str) -> str:
    """What hinders a server there now, empty where nothing does. Raises ConfigError for what is no HOST:PORT."""
    host, port = host_and_port(address)
    try:
        with socket.create_server((host, port), family=family_of(host)):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def _checked(address: str) -> str:
    try:
        host_and_port(address)
    except ConfigError as error:
        raise ValueError(f"{error.what}, {error.todo}") from error
    return address


ListenAddress = Annotated[str, AfterValidator(_checked)]
"""HOST:PORT, looked at when a configuration is read; whether it is free shows when it is listened on."""
