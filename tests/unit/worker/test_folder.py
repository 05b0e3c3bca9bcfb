"""The data folder belongs to one node in one pool, and to one process at a time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from protocol.errors import ConfigError
from protocol.signing import SigningDomain
from worker.folder import WorkerFolder

NODE = "0x" + "aa" * 20


def open_folder(path: Path, domain: SigningDomain, node: str = NODE, pool_id: int = 1) -> WorkerFolder:
    return WorkerFolder(path / "data", node=node, pool_id=pool_id, domain=domain, give_up_seconds=1)


def test_the_same_node_opens_it_again(tmp_path: Path, domain: SigningDomain) -> None:
    open_folder(tmp_path, domain).close()
    open_folder(tmp_path, domain).close()


def test_two_processes_cant_share_it(tmp_path: Path, domain: SigningDomain) -> None:
    first = open_folder(tmp_path, domain)
    with pytest.raises(ConfigError, match="another worker uses"):
        open_folder(tmp_path, domain)
    first.close()
    open_folder(tmp_path, domain).close()


@pytest.mark.parametrize("change", ["node", "pool", "deployment"])
def test_another_owner_is_refused(tmp_path: Path, domain: SigningDomain, change: str) -> None:
    open_folder(tmp_path, domain).close()
    node = "0x" + "bb" * 20 if change == "node" else NODE
    pool_id = 2 if change == "pool" else 1
    salt = "0x" + "33" * 32 if change == "deployment" else domain.salt
    with pytest.raises(ConfigError, match="belongs to another"):
        open_folder(tmp_path, replace(domain, salt=salt), node, pool_id)


def test_an_owner_that_the_disk_has_damaged_is_refused_too(tmp_path: Path, domain: SigningDomain) -> None:
    open_folder(tmp_path, domain).close()
    next(tmp_path.rglob("owner.json")).write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="belongs to another"):
        open_folder(tmp_path, domain)
