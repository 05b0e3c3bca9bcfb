"""What an origin or a relay keeps: the newest versions, younger ones, and whatever their chains of patches need.

In: a root folder. Out: the same without the versions that nobody can ask for any more. A version in patches only is of
no use without those that its chain leads through, down to a snapshot, so these stay as long as it does.
"""

from __future__ import annotations

import math
import shutil
from pathlib import Path

from pydantic import ValidationError

from protocol.shardcast.manifest import Manifest, version_path


def keep_newest(root: Path, num_versions: int, since: float = math.inf, policy_version: int | None = None) -> list[int]:
    """Drop all but the newest `num_versions`, those published since (Unix seconds), and what their chains need.

    `policy_version` is just complete: it stays whatever is newer, which may be there in part only.

    Returns the dropped ones. Of each the manifest goes first.
    """
    versions = sorted(int(path.name) for path in (root / "versions").iterdir() if path.name.isdigit())
    kept = set(versions[-num_versions:]) | {version for version in versions if _published_at(root, version) >= since}
    if policy_version is not None:
        kept.add(policy_version)
    for version in list(kept):
        kept.update(_chain(root, version))
    dropped = [version for version in versions if version not in kept]
    for version in dropped:
        folder = root / version_path(version)
        (folder / "manifest.json").unlink(missing_ok=True)
        shutil.rmtree(folder)
    return dropped


def _chain(root: Path, policy_version: int) -> list[int]:
    """Versions that lead to this one from its snapshot on; as far as their manifests are here."""
    chain: list[int] = []
    manifest = _manifest(root, policy_version)
    while manifest is not None and manifest.patch is not None and not manifest.is_snapshot:
        chain.append(manifest.patch.base_version)
        manifest = _manifest(root, manifest.patch.base_version)
    return chain


def _manifest(root: Path, policy_version: int) -> Manifest | None:
    try:
        return Manifest.model_validate_json((root / version_path(policy_version) / "manifest.json").read_bytes())
    except (OSError, ValidationError):
        return None


def _published_at(root: Path, policy_version: int) -> float:
    """Unix seconds; what is still being published is as old as its folder."""
    folder = root / version_path(policy_version)
    manifest = folder / "manifest.json"
    return (manifest if manifest.exists() else folder).stat().st_mtime
