"""Versions as patches: published beside or in place of full shards, and fetched in the way that takes least."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.canonical import hex0x, keccak256
from protocol.errors import ConfigError, ProofpoolError, ShardCorrupt, Unreachable, VerificationFailed
from protocol.lock import FolderLock
from protocol.shardcast import document, work
from protocol.shardcast.assembly import Assembly
from protocol.shardcast.client import Fetched, fetch
from protocol.shardcast.folder import is_intact, patches_of, remove_unfinished, remove_version, version_folder
from protocol.shardcast.keeping import keep_newest
from protocol.shardcast.manifest import MAX_CHAIN, Manifest, Shard, read_manifest
from protocol.shardcast.origin import LOCK_FOLDER, Base, publish
from protocol.shardcast.patches import apply_patches, diff
from protocol.shardcast.way import num_rest_bytes
from tests.unit.protocol.shardcast.chain_world import SHARD_BYTES, Run, run_of
from tests.unit.protocol.shardcast.relay_world import files_of, release_of
from tests.unit.protocol.shardcast.stored import Tensors, bf16_tensors, versions, write
from tests.unit.protocol.shardcast.test_shardcast import URL, serving

WEIGHTS = "model.safetensors"


@pytest.fixture(autouse=True, scope="module")
def short_pauses() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (document, work):
            patch.setattr(module, "PAUSE_SECONDS", 0.002)
        yield


class Served:
    """A client of an origin that notes what it was asked for."""

    def __init__(self, root: Path, spoil: Callable[[str, bytes], bytes] = lambda path, data: data) -> None:
        self.paths: list[str] = []

        def note(path: str, data: bytes) -> bytes:
            self.paths.append(path)
            return spoil(path, data)

        self.http = serving(root, note)

    def fetch(self, manifest: Manifest, destination: Path, **options: Any) -> Fetched:
        return fetch(self.http, [URL], release_of(manifest), destination, **options)

    def versions_of(self, kind: str) -> set[int]:
        """Versions of which something of this kind was sent."""
        return {int(path.split("/")[2]) for path in self.paths if path.split("/")[3] == kind}


def check(run: Run, fetched: Fetched, version: int) -> None:
    assert files_of(fetched.folder) == files_of(run.checkpoint(version))
    assert is_intact(fetched.folder, run.manifests[version].manifest_hash)


def test_a_version_comes_as_a_patch_to_the_one_before(tmp_path: Path) -> None:
    run, got = run_of(tmp_path, 2), tmp_path / "got"
    first = Served(run.origin).fetch(run.manifests[0], got)
    assert (first.way, first.base_version, first.patches, first.num_bytes_saved) == ("whole", None, (), 0)
    served = Served(run.origin)
    second = served.fetch(run.manifests[1], got)
    check(run, second, 1)
    assert (second.way, second.base_version) == ("patches", 0)
    assert [(path.parent.name, path.name) for path in second.patches] == [("1", WEIGHTS)]
    assert served.versions_of("patch") == {1}
    patch, record = run.manifests[1].patch, 1  # training.json has one byte, tokenizer and configuration are the same
    assert patch is not None and second.num_bytes_fetched == patch.num_bytes + record
    assert second.num_bytes_saved == run.manifests[1].num_bytes - patch.num_bytes - record
    assert second.num_bytes_fetched < run.manifests[1].num_bytes / 10


def test_the_patches_that_were_applied_are_kept_with_the_version_and_go_with_it(tmp_path: Path) -> None:
    run, got = run_of(tmp_path, 4), tmp_path / "got"
    Served(run.origin).fetch(run.manifests[1], got)
    fetched = Served(run.origin).fetch(run.manifests[3], got)
    assert patches_of(got, 3) == fetched.patches and len(fetched.patches) == 2
    apply_patches(version_folder(got, 1) / WEIGHTS, fetched.patches, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (run.checkpoint(3) / WEIGHTS).read_bytes()
    again = Served(tmp_path / "nothing").fetch(run.manifests[3], got)
    assert (again.way, again.patches) == ("here", fetched.patches)
    remove_unfinished(got, 9)
    assert patches_of(got, 3) == fetched.patches
    remove_version(got, 3)
    assert sorted(path.name for path in got.iterdir()) == ["v1"]


def test_a_newcomer_takes_the_snapshot_and_the_patches_from_it(tmp_path: Path) -> None:
    run, got = run_of(tmp_path, 7, snapshot_every=4), tmp_path / "got"
    assert [one.snapshot_version for one in run.manifests] == [None, 0, 0, 0, None, 4, 4]
    served, told = Served(run.origin), list[tuple[int, int]]()
    fetched = served.fetch(run.manifests[6], got, progress=lambda done, total: told.append((done, total)))
    check(run, fetched, 6)
    assert (fetched.way, fetched.base_version, len(fetched.patches)) == ("snapshot", 4, 2)
    assert served.versions_of("patch") == {5, 6} and served.versions_of("shards") == {4, 6}
    assert told == sorted(told) and told[-1][0] == told[-1][1] == fetched.num_bytes_fetched
    assert sorted(path.name for path in got.iterdir()) == [".v6.patches", "v6"], "the snapshot was for this one only"
    whole = Served(run.origin).fetch(run.manifests[4], tmp_path / "other")
    assert whole.way == "whole"


def test_a_version_in_patches_only_has_no_weights_of_its_own(tmp_path: Path) -> None:
    run = run_of(tmp_path, 2, snapshot_every=4)
    files = [run.manifests[1].shards[int(path.name)].file for path in (run.origin / "versions/1/shards").iterdir()]
    assert sorted(files) == ["config.json", "tokenizer.json", "training.json"]
    assert not list((run.origin / "versions/1").glob("**/.*"))


@settings(max_examples=8)
@given(
    num_versions=st.integers(1, 5),
    snapshot_every=st.sampled_from([1, 2, 3, 100]),
    without_base=st.sets(st.integers(0, 4), max_size=2),
    held=st.sets(st.integers(0, 4), max_size=3),
    damaged=st.sets(st.integers(0, 4), max_size=1),
)
def test_any_mix_of_kept_versions_gives_the_right_bytes(
    num_versions: int, snapshot_every: int, without_base: set[int], held: set[int], damaged: set[int]
) -> None:
    with TemporaryDirectory() as name:
        run, got = Run(Path(name), snapshot_every), Path(name) / "got"
        for version in range(num_versions):
            run.step(with_base=version not in without_base)
        for version in held & set(range(num_versions - 1)):
            shutil.copytree(run.checkpoint(version), version_folder(got, version))
            (version_folder(got, version) / ".manifest.json").write_bytes(run.manifests[version].to_bytes())
            if version in damaged:
                spoil(version_folder(got, version) / WEIGHTS)
        check(run, Served(run.origin).fetch(run.manifests[-1], got), num_versions - 1)


@settings(max_examples=4)
@given(pair=versions(), parts=st.integers(2, 3))
def test_a_model_in_several_files_comes_as_a_patch_for_each(pair: tuple[Tensors, Tensors], parts: int) -> None:
    """Whatever changes in them, tensors that go from one file to another included."""
    with TemporaryDirectory() as name:
        root, manifests = Path(name), list[Manifest]()
        for version, tensors in enumerate(pair):
            folder = root / str(version)
            folder.mkdir()
            for part in range(parts):
                inside = {key: one for place, (key, one) in enumerate(tensors.items()) if place % parts == part}
                write(folder / f"model-{part}.safetensors", inside)
            base = Base(root / "0", manifests[0]) if version else None
            manifests.append(publish(folder, root / "origin", 1, version, SHARD_BYTES, base=base))
        Served(root / "origin").fetch(manifests[0], root / "got")
        fetched = Served(root / "origin").fetch(manifests[1], root / "got")
        assert files_of(fetched.folder) == files_of(root / "1")
        assert len(fetched.patches) == (parts if fetched.way == "patches" else 0)


def spoil(path: Path, place: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_a_damaged_base_is_left_for_full_shards_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run, got = run_of(tmp_path, 2), tmp_path / "got"
    Served(run.origin).fetch(run.manifests[0], got)
    spoil(version_folder(got, 0) / WEIGHTS)
    fetched = Served(run.origin).fetch(run.manifests[1], got)
    check(run, fetched, 1)
    assert (fetched.way, fetched.patches, patches_of(got, 1)) == ("whole", (), ())


def lie_in_patch(run: Run, version: int) -> Manifest:
    """The trainer publishes a patch that makes something else; all hashes of its shards are right."""
    honest = run.manifests[version]
    assert honest.patch is not None
    other = run.root / "other"
    write(other, bf16_tensors(5))
    made = run.root / "lie"
    diff(run.checkpoint(version - 1) / WEIGHTS, other, made, base_version=version - 1, policy_version=version)
    data = made.read_bytes()
    shards = []
    for number, offset in enumerate(range(0, len(data), SHARD_BYTES)):
        piece = data[offset : offset + SHARD_BYTES]
        (run.origin / f"versions/{version}/patch/{number}").write_bytes(piece)
        shards.append(
            {"file": WEIGHTS, "offset": offset, "num_bytes": len(piece), "blake3": hex0x(blake3(piece).digest())}
        )
    fields = honest.model_dump(mode="json")
    fields["patch"]["shards"] = shards
    lying = Manifest.model_validate(fields)
    (run.origin / f"versions/{version}/manifest.json").write_bytes(lying.to_bytes())
    return lying


def test_a_wrong_patch_of_the_trainers_own_is_found_out_and_full_shards_are_taken(tmp_path: Path) -> None:
    run, got = run_of(tmp_path, 2), tmp_path / "got"
    Served(run.origin).fetch(run.manifests[0], got)
    lying = lie_in_patch(run, 1)
    fetched = Served(run.origin).fetch(lying, got)
    assert files_of(fetched.folder) == files_of(run.checkpoint(1))
    assert (fetched.way, fetched.patches) == ("whole", ())


def test_a_wrong_patch_without_full_shards_is_an_error_that_says_so(tmp_path: Path) -> None:
    run, got = run_of(tmp_path, 2, snapshot_every=4), tmp_path / "got"
    Served(run.origin).fetch(run.manifests[0], got)
    lying = lie_in_patch(run, 1)
    with pytest.raises(VerificationFailed, match="don't make version 1") as failure:
        Served(run.origin).fetch(lying, got)
    assert "published a wrong patch" in failure.value.todo and not version_folder(got, 1).exists()


@pytest.mark.parametrize("snapshot_every", [1, 4])
def test_a_patch_that_nobody_has_is_gone_round(tmp_path: Path, snapshot_every: int) -> None:
    run, got = run_of(tmp_path, 2, snapshot_every), tmp_path / "got"
    Served(run.origin).fetch(run.manifests[0], got)
    shutil.rmtree(run.origin / "versions/1/patch")
    if snapshot_every == 1:
        fetched = Served(run.origin).fetch(run.manifests[1], got)
        check(run, fetched, 1)
        assert fetched.way == "whole"
    else:
        with pytest.raises(Unreachable, match="versions/1/patch/0"):
            Served(run.origin).fetch(run.manifests[1], got)


def test_a_relay_that_lies_about_a_patch_is_left(tmp_path: Path) -> None:
    run, got = run_of(tmp_path, 2), tmp_path / "got"
    Served(run.origin).fetch(run.manifests[0], got)
    flipping = Served(run.origin, lambda path, data: data[:-1] + b"!" if "/patch/" in path else data)
    fetched = flipping.fetch(run.manifests[1], got)
    check(run, fetched, 1)
    assert fetched.way == "whole" and {lie.path for lie in fetched.lies} == {"versions/1/patch/0"}


def test_a_chain_whose_middle_is_gone_ends_at_the_snapshot_or_nowhere(tmp_path: Path) -> None:
    run = run_of(tmp_path, 4, snapshot_every=2)
    got = tmp_path / "got"
    Served(run.origin).fetch(run.manifests[0], got)
    (run.origin / "versions/1/manifest.json").unlink()
    fetched = Served(run.origin).fetch(run.manifests[3], got)
    check(run, fetched, 3)
    assert (fetched.way, fetched.base_version) == ("snapshot", 2)
    (run.origin / "versions/2/manifest.json").unlink()
    with pytest.raises(Unreachable, match="its base is gone"):
        Served(run.origin).fetch(run.manifests[3], tmp_path / "newcomer")


@pytest.mark.parametrize("free", [10**9, 0])
def test_where_there_is_one_way_only_it_is_taken_whatever_the_disk_has(
    tmp_path: Path, free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(tmp_path, 2, snapshot_every=4)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    assert Served(run.origin).fetch(run.manifests[1], tmp_path / "got").way == "snapshot"


def test_a_way_that_the_disk_has_no_room_for_comes_after_one_that_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Full shards of which most are here already take less room than a patch to another copy."""
    run, got = run_of(tmp_path, 2), tmp_path / "got"
    Served(run.origin).fetch(run.manifests[0], got)
    staging = got / ".v1.staging"
    shutil.copytree(run.checkpoint(1), staging)
    shards = run.manifests[1].shards[:-2]
    (staging / ".checked").write_text("".join(shard.model_dump_json() + "\n" for shard in shards))
    left = sum(shard.num_bytes for shard in run.manifests[1].shards[-2:])
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=left))
    assert Served(run.origin).fetch(run.manifests[1], got).way == "whole"


def test_what_a_killed_fetch_had_is_not_fetched_again(tmp_path: Path) -> None:
    """Dies at the last shard of the snapshot: patches and the other shards stay."""
    run, got = run_of(tmp_path, 3, snapshot_every=4), tmp_path / "got"
    last = f"/versions/0/shards/{len(run.manifests[0].shards) - 1}"

    def dies(path: str, data: bytes) -> bytes:
        if path == last:
            raise OSError("as if killed")
        return data

    with pytest.raises(OSError, match="as if killed"):
        Served(run.origin, dies).fetch(run.manifests[2], got)
    served = Served(run.origin)
    check(run, served.fetch(run.manifests[2], got), 2)
    sent = [path for path in served.paths if not path.endswith("manifest.json")]
    assert not [path for path in sent if "/patch/" in path] and last in sent
    assert len(sent) < 5 + 10, "what was in flight, and the small files"


def test_publishing_again_changes_nothing_and_goes_on_after_a_kill(tmp_path: Path) -> None:
    run = run_of(tmp_path, 3, snapshot_every=4)
    before = {path: path.read_bytes() for path in run.origin.rglob("*") if path.is_file()}
    assert run.publish(2) == run.manifests[2]
    assert {path: path.read_bytes() for path in run.origin.rglob("*") if path.is_file()} == before
    folder = run.origin / "versions/2"
    (folder / "manifest.json").unlink()
    (folder / "patch/0").write_bytes(b"torn")
    (folder / "patch/7").write_bytes(b"left over")
    (folder / ".patch").mkdir()
    (folder / ".patch/half").write_bytes(b"x")
    (folder / "shards/.0.abc").write_bytes(b"x")
    assert run.publish(2) == run.manifests[2]
    assert {path: path.read_bytes() for path in run.origin.rglob("*") if path.is_file()} == before
    (run.checkpoint(2) / "training.json").write_bytes(b"other")
    with pytest.raises(ProofpoolError, match="twice"):
        run.publish(2)


@pytest.mark.parametrize("version", [0, 2, 4])
@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: file.write_bytes(b"{"), spoil])
def test_what_the_disk_has_damaged_is_put_back_when_it_is_published_again(
    tmp_path: Path, version: int, damage: Callable[[Path], object]
) -> None:
    """A base model, a version that is a patch alone, and one that is there in both ways."""
    run = run_of(tmp_path, 5, snapshot_every=4)
    folder = run.origin / "versions" / str(version)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for file in before:
        damage(file)
        assert run.publish(version) == run.manifests[version]
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_patch_that_nothing_can_make_again_is_missed_where_there_is_no_snapshot(tmp_path: Path) -> None:
    run = run_of(tmp_path, 5, snapshot_every=4)
    for version in (2, 4):
        (run.origin / "versions" / str(version) / "patch/0").unlink()
    assert run.publish(4, with_base=False) == run.manifests[4]
    with pytest.raises(ProofpoolError, match="patch of policy version 2 is gone"):
        run.publish(2, with_base=False)


@pytest.mark.parametrize("fault", ["gone", "damaged", "no weights", "other files"])
def test_without_the_base_a_version_is_published_in_full(tmp_path: Path, fault: str) -> None:
    run = run_of(tmp_path, 1, snapshot_every=4)
    weights = run.checkpoint(0) / WEIGHTS
    if fault == "gone":
        shutil.rmtree(run.checkpoint(0))
    elif fault == "damaged":
        spoil(weights)
    elif fault == "no weights":
        weights.unlink()
    else:
        weights.rename(run.checkpoint(0) / "other.safetensors")
    manifest = run.step()
    assert manifest.patch is None and manifest.is_snapshot
    check(run, Served(run.origin).fetch(manifest, tmp_path / "got"), 1)


def test_a_patch_that_saves_nothing_is_not_published(tmp_path: Path) -> None:
    run = run_of(tmp_path, 1, snapshot_every=4)
    noise = np.random.default_rng(1)
    run.tensors = {name: one._replace(data=noise.bytes(len(one.data))) for name, one in run.tensors.items()}
    assert run.step().patch is None


def test_pruning_keeps_what_chains_need_and_young_versions(tmp_path: Path) -> None:
    run = run_of(tmp_path, 10, snapshot_every=4)
    assert keep_newest(run.origin, 2) == [0, 1, 2, 3, 4, 5, 6, 7]
    check(run, Served(run.origin).fetch(run.manifests[9], tmp_path / "got"), 9)
    run = run_of(tmp_path / "other", 8, snapshot_every=4)
    assert keep_newest(run.origin, 2) == [0, 1, 2, 3], "5 leads from the snapshot, version 4, to 6 and 7"
    check(run, Served(run.origin).fetch(run.manifests[7], tmp_path / "got7"), 7)
    assert keep_newest(run.origin, 1, since=0.0) == []


# --- manifests --------------------------------------------------------------------------------------------------------


def document_of(run: Run) -> dict[str, Any]:
    return run.manifests[2].model_dump(mode="json")


def test_a_manifest_without_a_patch_has_the_hash_that_it_always_had(tmp_path: Path) -> None:
    manifest = run_of(tmp_path, 1).manifests[0]
    assert b"patch" not in manifest.to_bytes() and b"snapshot" not in manifest.to_bytes()
    assert read_manifest(manifest.to_bytes(), manifest.manifest_hash) == manifest
    explicit = manifest.to_bytes().replace(b'"policy_version"', b'"patch":null,"policy_version"')
    with pytest.raises(ShardCorrupt, match="canonical form"):
        read_manifest(explicit, hex0x(keccak256(explicit)))


def test_a_manifest_with_a_patch_comes_back(tmp_path: Path) -> None:
    manifest = run_of(tmp_path, 3, snapshot_every=4).manifests[2]
    assert read_manifest(manifest.to_bytes(), manifest.manifest_hash) == manifest


def _gap(document: dict[str, Any]) -> None:
    document["patch"]["shards"][0]["offset"] = 1


def _base_is_later(document: dict[str, Any]) -> None:
    document["patch"]["base_version"] = 2


def _of_another_file(document: dict[str, Any]) -> None:
    document["patch"]["shards"][0]["file"] = "config.json"


def _of_nothing(document: dict[str, Any]) -> None:
    document["patch"]["shards"] = []


def _too_large(document: dict[str, Any]) -> None:
    document["patch"]["shards"][-1]["num_bytes"] = 1 << 30


def _snapshot_without_patch(document: dict[str, Any]) -> None:
    document["patch"] = None


def _snapshot_after_base(document: dict[str, Any]) -> None:
    document["patch"]["base_version"] = 0
    document["snapshot_version"] = 1


def _long_chain(document: dict[str, Any]) -> None:
    document["policy_version"] = MAX_CHAIN + 1
    document["patch"]["base_version"] = MAX_CHAIN


def _in_the_far_future(document: dict[str, Any]) -> None:
    document["snapshot_version"] = 2**50


@pytest.mark.parametrize(
    "spoiled",
    [
        _gap,
        _base_is_later,
        _of_another_file,
        _of_nothing,
        _too_large,
        _snapshot_without_patch,
        _snapshot_after_base,
        _long_chain,
        _in_the_far_future,
    ],
)
def test_manifests_whose_chain_can_not_be_are_refused(
    tmp_path: Path, spoiled: Callable[[dict[str, Any]], None]
) -> None:
    run = run_of(tmp_path, 3, snapshot_every=4)
    document = document_of(run)
    Manifest.model_validate(document)
    spoiled(document)
    with pytest.raises(ValueError, match="Value error|at least 1"):
        Manifest.model_validate(document)


def test_a_chain_longer_than_a_manifest_may_name_begins_with_a_snapshot(tmp_path: Path) -> None:
    run = run_of(tmp_path, 2, snapshot_every=10**6)
    patch = run.manifests[1].patch
    assert patch is not None
    far = run.manifests[1].model_copy(
        update={
            "policy_version": MAX_CHAIN + 1,
            "snapshot_version": 1,
            "patch": patch.model_copy(update={"base_version": 1}),
        }
    )
    run.manifests[1] = far
    base = Base(run.checkpoint(0), far.model_copy(update={"shards": run.manifests[0].shards}))
    made = publish(run.checkpoint(1), run.origin, 1, MAX_CHAIN + 2, SHARD_BYTES, base=base, snapshot_every=10**6)
    assert made.is_snapshot and made.patch is not None


def test_two_do_not_fill_one_folder(tmp_path: Path) -> None:
    """The later one could write into files that the earlier one has finished."""
    run, got = run_of(tmp_path, 1), tmp_path / "got"
    with Assembly(version_folder(got, 0)), pytest.raises(Unreachable, match="another process"):
        Served(run.origin).fetch(run.manifests[0], got)
    check(run, Served(run.origin).fetch(run.manifests[0], got), 0)
    assert not (version_folder(got, 0) / ".checked").exists()


def test_a_list_that_went_with_its_folder_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flock = fcntl.flock

    def finished_meanwhile(descriptor: int, how: int) -> None:
        flock(descriptor, how)
        (tmp_path / ".v0.staging").rename(tmp_path / "v0")

    monkeypatch.setattr(fcntl, "flock", finished_meanwhile)
    with pytest.raises(Unreachable, match="another process"):
        Assembly(tmp_path / "v0")


def test_a_copy_of_a_manifest_has_its_own_hash_and_is_checked(tmp_path: Path) -> None:
    manifest = run_of(tmp_path, 1).manifests[0]
    before = manifest.manifest_hash
    other = manifest.model_copy(update={"policy_version": 3})
    assert other.manifest_hash != before == manifest.model_copy().manifest_hash
    assert read_manifest(other.to_bytes(), other.manifest_hash) == other
    with pytest.raises(ValueError, match="no patch leads here"):
        manifest.model_copy(update={"snapshot_version": 3})


def test_a_version_that_is_complete_outlives_what_is_begun_after_it(tmp_path: Path) -> None:
    run = run_of(tmp_path, 3)
    (run.origin / "versions/2/manifest.json").unlink()
    assert keep_newest(run.origin, 1, policy_version=1) == [0]
    assert keep_newest(run.origin, 1) == [1]


def test_many_shards_of_many_files_are_weighed_at_once(tmp_path: Path) -> None:
    """Twice as many take about twice as long: none is looked for among all others one by one."""
    looked_up = 0

    class Counted(Shard):
        def __hash__(self) -> int:
            nonlocal looked_up
            looked_up += 1
            return hash((self.file, self.offset))

    shards = [Counted(file="t", offset=at, num_bytes=1, blake3="0x" + "11" * 32) for at in range(300)]
    manifest = Manifest.model_construct(shards=tuple(shards), policy_version=1, pool_id=1)
    assert num_rest_bytes(manifest, manifest) == 0
    assert looked_up <= 2 * len(shards)


@pytest.mark.parametrize("fault", ["flipped", "cut", "gone", "none"])
def test_a_damaged_base_of_patches_only_is_fetched_anew(tmp_path: Path, fault: str) -> None:
    """There are no full shards to fall back to, but those of the base are published."""
    run, got = run_of(tmp_path, 3, snapshot_every=4), tmp_path / "got"
    Served(run.origin).fetch(run.manifests[0], got)
    file = version_folder(got, 0) / WEIGHTS
    if fault == "flipped":
        spoil(file)
    elif fault == "cut":
        file.write_bytes(file.read_bytes()[:100])
    elif fault == "gone":
        file.unlink()
    fetched = Served(run.origin).fetch(run.manifests[2], got)
    check(run, fetched, 2)
    assert (fetched.way, fetched.base_version) == ("patches" if fault == "none" else "snapshot", 0)


def test_a_damaged_base_is_passed_over_for_an_earlier_one(tmp_path: Path) -> None:
    run, got = run_of(tmp_path, 4, snapshot_every=100), tmp_path / "got"
    for version in (0, 2):
        Served(run.origin).fetch(run.manifests[version], got)
    spoil(version_folder(got, 2) / WEIGHTS)
    fetched = Served(run.origin).fetch(run.manifests[3], got)
    check(run, fetched, 3)
    assert (fetched.way, fetched.base_version) == ("patches", 0)


def test_a_link_to_a_damaged_version_makes_room_for_a_right_one(tmp_path: Path) -> None:
    run, got, elsewhere = run_of(tmp_path, 1), tmp_path / "got", tmp_path / "elsewhere"
    Served(run.origin).fetch(run.manifests[0], got)
    version_folder(got, 0).rename(elsewhere)
    version_folder(got, 0).symlink_to(elsewhere)
    assert Served(run.origin).fetch(run.manifests[0], got).way == "here"
    spoil(elsewhere / WEIGHTS)
    check(run, Served(run.origin).fetch(run.manifests[0], got), 0)
    assert not version_folder(got, 0).is_symlink() and elsewhere.exists()


def test_nothing_is_written_through_a_link_that_somebody_has_left(tmp_path: Path) -> None:
    run, got, precious = run_of(tmp_path, 1), tmp_path / "got", tmp_path / "precious"
    precious.write_bytes(b"precious")
    link = got / ".v0.staging" / WEIGHTS
    link.parent.mkdir(parents=True)
    link.symlink_to(precious)
    with pytest.raises(OSError, match="symbolic links"):
        Served(run.origin).fetch(run.manifests[0], got)
    assert precious.read_bytes() == b"precious"
    link.unlink()
    check(run, Served(run.origin).fetch(run.manifests[0], got), 0)


def test_what_a_fetch_left_that_was_killed_while_it_applied_patches_is_no_obstacle(tmp_path: Path) -> None:
    run, got = run_of(tmp_path, 2), tmp_path / "got"
    Served(run.origin).fetch(run.manifests[0], got)
    half = got / ".v1.staging" / f".{WEIGHTS}.abc"
    (half / "deeper").mkdir(parents=True)
    (half / "half").write_bytes(b"half a file")
    fetched = Served(run.origin).fetch(run.manifests[1], got)
    check(run, fetched, 1)
    assert fetched.way == "patches" and not (fetched.folder / half.name).exists()


def test_two_do_not_publish_into_one_folder(tmp_path: Path) -> None:
    """Their shards would lie beside each other's manifest."""
    run = run_of(tmp_path, 1)
    with FolderLock(run.origin / LOCK_FOLDER, "origin"), pytest.raises(ConfigError, match="another origin"):
        run.step()
    assert run.publish(0) == run.manifests[0]


def test_a_full_disk_is_told_with_the_file_that_did_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, got = run_of(tmp_path, 1), tmp_path / "got"
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match=r"No space left on device: '.*v0.staging/") as failure:
            Served(run.origin).fetch(run.manifests[0], got)
    assert failure.value.errno == errno.ENOSPC
    check(run, Served(run.origin).fetch(run.manifests[0], got), 0)


def full(descriptor: int, data: memoryview, position: int) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
