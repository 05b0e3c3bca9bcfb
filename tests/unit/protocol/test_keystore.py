"""Keystores: interchangeable with other clients, closed to others, and silent about the key."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from eth_account import Account
from eth_keyfile import keyfile

from protocol.errors import KeyFailure
from protocol.keyring import stated_address
from protocol.keystore import (
    CHEAP_SCRYPT_N,
    create_keystore,
    load_signer,
    open_keystore,
    read_password,
    signer_from_environment,
)

SECRET = b"\x2a" * 32
PASSWORD = "correct horse"


def make_keystore(folder: Path) -> Path:
    path = folder / "node.json"
    create_keystore(path, PASSWORD, secret=SECRET, scrypt_n=CHEAP_SCRYPT_N)
    return path


def make_password_file(folder: Path, text: str = PASSWORD + "\n", mode: int = 0o600) -> Path:
    path = folder / "password"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_key_comes_back_with_its_password(tmp_path: Path) -> None:
    path = make_keystore(tmp_path)
    assert open_keystore(path, PASSWORD).address == Account.from_key(SECRET).address.lower()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["node.json"]


def test_files_are_interchangeable_with_eth_account(tmp_path: Path) -> None:
    assert Account.decrypt(make_keystore(tmp_path).read_text(), PASSWORD) == SECRET
    theirs = tmp_path / "theirs.json"
    theirs.write_text(json.dumps(Account.encrypt(SECRET, PASSWORD, kdf="scrypt", iterations=CHEAP_SCRYPT_N)))
    theirs.chmod(0o600)
    assert open_keystore(theirs, PASSWORD).address == Account.from_key(SECRET).address.lower()


def test_new_keys_differ(tmp_path: Path) -> None:
    signers = [create_keystore(tmp_path / f"{i}.json", "p", scrypt_n=CHEAP_SCRYPT_N) for i in range(2)]
    assert signers[0].address != signers[1].address


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    path = make_keystore(tmp_path)
    with pytest.raises(KeyFailure, match="already there"):
        create_keystore(path, PASSWORD, scrypt_n=CHEAP_SCRYPT_N)
    assert open_keystore(path, PASSWORD)


def test_a_wrong_password_says_so_and_no_more(tmp_path: Path) -> None:
    with pytest.raises(KeyFailure, match="MAC mismatch") as caught:
        open_keystore(make_keystore(tmp_path), "wrong")
    assert caught.value.exit_code == 4
    assert caught.value.__cause__ is None
    assert SECRET.hex() not in str(caught.value)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = make_keystore(tmp_path)
    path.chmod(mode)
    with pytest.raises(KeyFailure, match="chmod 600"):
        open_keystore(path, PASSWORD)


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", "null", '{"crypto": {}, "version": 3}', '{"crypto": {"kdfparams": 1}}']
)
def test_a_damaged_file_is_a_key_failure(tmp_path: Path, content: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(KeyFailure, match=r"no keystore|doesn't open") as failure:
        open_keystore(path, PASSWORD)
    assert not failure.value.why.endswith("KeyError")


def test_a_keystore_that_isnt_there_is_told_before_a_password_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(KeyFailure, match=r"can't be opened.*none\.json"):
        load_signer(1, tmp_path / "none.json", None, {})
    with pytest.raises(KeyFailure, match=r"no password.*--password-file"):
        load_signer(1, make_keystore(tmp_path), None, {})


def test_a_missing_file_is_a_key_failure(tmp_path: Path) -> None:
    with pytest.raises(KeyFailure, match="can't be opened"):
        open_keystore(tmp_path / "none.json", PASSWORD)


@pytest.mark.parametrize(
    "change", [{"n": 2**30}, {"r": 2**20}, {"p": 2**30}, {"n": 10**400}, {"c": 2**31}, {"dklen": 2**31}]
)
def test_a_file_that_asks_for_endless_work_is_refused(tmp_path: Path, change: dict[str, int]) -> None:
    path = make_keystore(tmp_path)
    document = json.loads(path.read_text())
    document["crypto"]["kdfparams"] |= change
    path.write_text(json.dumps(document))
    with pytest.raises(KeyFailure, match="too much work"):
        open_keystore(path, PASSWORD)


def test_passwords_come_from_a_private_file_or_the_environment(tmp_path: Path) -> None:
    assert read_password(make_password_file(tmp_path), {}) == PASSWORD
    assert read_password(None, {"PROOFPOOL_PASSWORD": "p"}) == "p"
    with pytest.raises(KeyFailure, match="no password"):
        read_password(None, {})
    with pytest.raises(KeyFailure, match="empty"):
        read_password(make_password_file(tmp_path, ""), {})
    with pytest.raises(KeyFailure, match="others can read"):
        read_password(make_password_file(tmp_path, mode=0o644), {})


@pytest.mark.parametrize("content", ["\ufeff" + PASSWORD, PASSWORD + "\n", PASSWORD + "\r\nsecond line"])
def test_a_password_is_what_somebody_typed_on_the_first_line(tmp_path: Path, content: str) -> None:
    assert read_password(make_password_file(tmp_path, content), {}) == PASSWORD


@pytest.mark.parametrize("content", ["\n" + PASSWORD, "\ufeff", "\ufeff\n" + PASSWORD])
def test_an_empty_first_line_is_no_password(tmp_path: Path, content: str) -> None:
    with pytest.raises(KeyFailure, match="empty"):
        read_password(make_password_file(tmp_path, content), {})


@pytest.mark.parametrize("chain_id", [1337, 31337])
def test_a_raw_key_is_taken_on_local_chains(chain_id: int) -> None:
    environment = {"PROOFPOOL_PRIVATE_KEY": "0x" + SECRET.hex()}
    assert signer_from_environment(chain_id, environment).address == Account.from_key(SECRET).address.lower()


def test_a_raw_key_is_refused_on_any_other_chain() -> None:
    with pytest.raises(KeyFailure, match="local chains only"):
        signer_from_environment(1, {"PROOFPOOL_PRIVATE_KEY": SECRET.hex()})


@pytest.mark.parametrize("text", ["", "zz", "00" * 32, "ff" * 32, "2a" * 31])
def test_what_is_no_key_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(KeyFailure) as caught:
        signer_from_environment(31337, {"PROOFPOOL_PRIVATE_KEY": text})
    assert caught.value.__cause__ is None
    assert not text or text not in str(caught.value)


def test_a_process_signs_with_its_keystore_before_anything_else(tmp_path: Path) -> None:
    environment = {"PROOFPOOL_PRIVATE_KEY": "11" * 32}
    signer = load_signer(31337, make_keystore(tmp_path), make_password_file(tmp_path), environment)
    assert signer.address == Account.from_key(SECRET).address.lower()
    assert load_signer(31337, None, None, environment).address != signer.address
    with pytest.raises(KeyFailure, match="no key to sign with"):
        load_signer(31337, None, None, {})


def test_nested_json_is_an_error_after_a_key_was_opened(tmp_path: Path) -> None:
    """In a process of its own: a stack that overflows would end this one."""
    path, password_file = make_keystore(tmp_path), make_password_file(tmp_path)
    code = (
        "import json, pathlib, sys\n"
        "from protocol.keystore import open_keystore, read_password\n"
        "open_keystore(pathlib.Path(sys.argv[1]), read_password(pathlib.Path(sys.argv[2])))\n"
        "try:\n    json.loads('[' * 100_000)\nexcept RecursionError:\n    print('refused')\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(path), str(password_file)], capture_output=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, b"refused\n")


def test_a_password_file_that_isnt_text_is_refused(tmp_path: Path) -> None:
    path = make_password_file(tmp_path)
    path.write_bytes(b"\xff\xfe\x00\n")
    with pytest.raises(KeyFailure, match="isn't text"):
        read_password(path)


def with_decoy(document: dict[str, Any], name: str) -> dict[str, Any]:
    """What asks for endless work under a key that libraries read as if it were another one."""
    costly = {**document["crypto"]["kdfparams"], "n": 2**22}
    if name == "Crypto":
        return {**document, "Crypto": {**document["crypto"], "kdfparams": costly}}
    if name == "KDFParams":
        return {**document, "crypto": {**document["crypto"], "KDFParams": costly}}
    kdf = {"function": "scrypt", "params": {**costly, "dklen": 32}, "message": ""}
    return {"version": 4, "crypto": {**document["crypto"], "kdf": kdf}}


@pytest.mark.parametrize("name", ["Crypto", "KDFParams", "version 4"])
def test_work_is_bounded_by_what_is_read_in_the_end(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with two parts of one name but for their case, or of a version that keeps its numbers elsewhere."""
    path = make_keystore(tmp_path)
    path.write_text(json.dumps(with_decoy(json.loads(path.read_text()), name)))

    def derived(*arguments: Any, **options: Any) -> bytes:
        raise AssertionError("a key is derived")

    monkeypatch.setattr(keyfile, "_scrypt_hash", derived)
    with pytest.raises(KeyFailure, match=r"too much work|no keystore"):
        open_keystore(path, PASSWORD)


def test_the_names_of_its_parts_may_be_written_in_capitals(tmp_path: Path) -> None:
    """As old clients write them."""
    path = make_keystore(tmp_path)
    path.write_text(path.read_text().replace('"crypto"', '"Crypto"').replace('"kdfparams"', '"KDFParams"'))
    assert open_keystore(path, PASSWORD).address == Account.from_key(SECRET).address.lower()


def test_what_isnt_a_file_is_no_keystore_and_holds_nobody_up(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe, 0o600)
    for path in (pipe, tmp_path):
        path.chmod(0o700 if path.is_dir() else 0o600)
        with pytest.raises(KeyFailure, match="no keystore"):
            open_keystore(path, PASSWORD)
        assert stated_address(path) is None
    link = tmp_path / "link.json"
    link.symlink_to(make_keystore(tmp_path))
    assert stated_address(link) == Account.from_key(SECRET).address.lower()
    assert open_keystore(link, PASSWORD).address == Account.from_key(SECRET).address.lower()


def test_a_keystore_of_a_gigabyte_is_not_read(tmp_path: Path) -> None:
    path = make_keystore(tmp_path)
    with path.open("ab") as file:
        file.truncate(1 << 30)
    with pytest.raises(KeyFailure, match="no keystore"):
        open_keystore(path, PASSWORD)
