"""`proofpool key …`: keys are made, taken over, listed and given out; never overwritten, never shown by mistake."""

from __future__ import annotations

import getpass
import io
import json
import os
import pty
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from eth_account import Account

from protocol import keystore
from protocol.cli import run
from protocol.errors import KeyFailure
from protocol.keyring import find_key, keys_folder
from protocol.keystore import CHEAP_SCRYPT_N, create_keystore, open_keystore
from testnet.chain.process import python_environment
from tests.documents import checked

SECRET = bytes(range(1, 33))
ADDRESS = Account.from_key(SECRET).address.lower()
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The keys' folder; scrypt takes a millisecond."""
    monkeypatch.setattr(keystore, "STRONG_SCRYPT_N", CHEAP_SCRYPT_N)
    monkeypatch.setenv("PROOFPOOL_KEYS", str(tmp_path / "keys"))
    monkeypatch.delenv("PROOFPOOL_PASSWORD", raising=False)
    return tmp_path / "keys"


@pytest.fixture
def password(tmp_path: Path) -> list[str]:
    """Options that name a password file."""
    return ["--password-file", str(private(tmp_path / "password", b"correct horse\n"))]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Command:
    def made(*arguments: str) -> tuple[int, str, str]:
        code = run(["key", *arguments])
        printed = capsys.readouterr()
        assert SECRET.hex() not in printed.err
        return code, checked(["key", *arguments], printed.out), printed.err

    return made


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What somebody at a terminal types next when a password is asked for."""
    answers: list[str] = []
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(getpass, "getpass", lambda prompt: answers.pop(0))
    yield answers
    assert answers == [], "what nobody asked for"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def private(path: Path, content: bytes, mode: int = 0o600) -> Path:
    path.touch(mode=0o600)
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_a_new_key_is_a_strong_keystore_that_only_its_owner_reads(
    tmp_path: Path, password: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROOFPOOL_KEYS", str(tmp_path / "keys"))
    assert run(["key", "new", "node", *password]) == 0
    file = tmp_path / "keys" / "node.json"
    document = json.loads(file.read_text())
    assert (document["version"], document["crypto"]["kdf"]) == (3, "scrypt")
    assert document["crypto"]["kdfparams"]["n"] * document["crypto"]["kdfparams"]["r"] >= 2**21
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent)] == [0o600, 0o700]
    assert [path.name for path in file.parent.iterdir()] == ["node.json"]


def test_what_is_printed_is_the_address_and_a_key_is_never_overwritten(
    folder: Path, password: list[str], call: Command
) -> None:
    code, out, _ = call("new", "provider", *password, "--json")
    found = json.loads(out)
    assert code == 0 and found["file"] == str(folder / "provider.json")
    assert found["address"] == open_keystore(folder / "provider.json", "correct horse").address
    before = (folder / "provider.json").read_bytes()
    assert call("new", "provider", *password)[0] == 4
    assert call("import", "provider", "--from", "-", *password)[0] == 4
    assert (folder / "provider.json").read_bytes() == before


@pytest.mark.parametrize("name", ["", "../node", "a/b", ".hidden", "x" * 65, "na me"])
def test_what_is_no_name_is_refused(folder: Path, password: list[str], call: Command, name: str) -> None:
    assert call("new", name, *password)[0] == 2
    assert not folder.exists() or list(folder.iterdir()) == []


def test_a_password_is_typed_twice_and_the_same(folder: Path, call: Command, typed: list[str]) -> None:
    typed += ["one", "another"]
    code, _, err = call("new", "node")
    assert code == 4 and "differ" in err and list(folder.iterdir()) == []
    typed += [""]
    assert call("new", "node")[0] == 4
    typed += ["one", "one"]
    assert call("new", "node")[0] == 0
    assert open_keystore(folder / "node.json", "one")


def test_without_a_terminal_or_with_json_nobody_is_asked(
    folder: Path, call: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(getpass, "getpass", lambda prompt: pytest.fail("asked"))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert call("new", "node")[0] == 4
    monkeypatch.setattr(sys, "stdin", Terminal())
    code, out, err = call("new", "node", "--json")
    assert (code, out) == (4, "") and "--password-file" in err


@pytest.mark.parametrize("text", [SECRET.hex(), f"0x{SECRET.hex().upper()}\n".replace("0X", "0x")])
def test_a_raw_key_is_taken_from_a_private_file(
    folder: Path, password: list[str], call: Command, tmp_path: Path, text: str
) -> None:
    raw = private(tmp_path / "raw", text.encode(), 0o644)
    code, _, err = call("import", "node", "--from", str(raw), *password)
    assert code == 4 and "chmod 600" in err
    raw.chmod(0o600)
    code, out, _ = call("import", "node", "--from", str(raw), *password)
    assert code == 0 and out.startswith(ADDRESS)
    assert open_keystore(folder / "node.json", "correct horse").address == ADDRESS


def test_a_raw_key_is_taken_from_standard_input(
    folder: Path, password: list[str], call: Command, typed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed += [SECRET.hex()]
    assert call("import", "typed", "--from", "-", *password)[0] == 0
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SECRET.hex().encode())))
    assert call("import", "piped", "--from", "-", *password)[0] == 0
    for name in ("typed", "piped"):
        assert open_keystore(folder / f"{name}.json", "correct horse").address == ADDRESS


@pytest.mark.parametrize(
    "content", [b"", b"00" * 32, b"ff" * 32, SECRET.hex()[:-1].encode(), SECRET, b"{}", b'{"address": 1}', b"{" * 9000]
)
def test_what_is_no_key_is_refused_and_not_repeated(
    folder: Path, password: list[str], call: Command, tmp_path: Path, content: bytes
) -> None:
    source = private(tmp_path / "source", content)
    code, _, err = call("import", "node", "--from", str(source), *password, "--from-password-file", password[1])
    assert code == 4 and list(folder.iterdir()) == []
    assert not content.strip() or content[:20].decode("latin-1") not in err.replace(str(source), "")


def test_another_wallets_keystore_is_taken_over_under_a_new_password(
    folder: Path, password: list[str], call: Command, tmp_path: Path
) -> None:
    theirs = Account.encrypt(SECRET, "their word", kdf="pbkdf2", iterations=1000)
    source = private(tmp_path / "UTC--theirs", json.dumps(theirs).encode())
    word = private(tmp_path / "their-password", b"their word\n")
    code, _, err = call("import", "node", "--from", str(source), *password)
    assert code == 4 and str(source) in err and "give --from-password-file" in err
    command = ("import", "node", "--from", str(source), *password, "--from-password-file")
    assert call(*command, password[1])[0] == 4
    assert call(*command, str(word))[0] == 0
    assert open_keystore(folder / "node.json", "correct horse").address == ADDRESS
    assert json.loads((folder / "node.json").read_text())["crypto"]["kdf"] == "scrypt"


def test_a_keystore_that_names_another_address_is_refused(
    folder: Path, password: list[str], call: Command, tmp_path: Path
) -> None:
    theirs = Account.encrypt(SECRET, "correct horse", kdf="pbkdf2", iterations=1000) | {"address": "5f" * 20}
    source = private(tmp_path / "theirs", json.dumps(theirs).encode())
    code, _, err = call("import", "node", "--from", str(source), *password, "--from-password-file", password[1])
    assert code == 4 and ADDRESS in err and "0x" + "5f" * 20 in err


def test_the_list_says_whose_keys_there_are_and_what_is_wrong_with_them(
    folder: Path, call: Command, tmp_path: Path
) -> None:
    code, out, err = call("list")
    assert (code, out) == (0, "") and "key new" in err
    create_keystore(folder / "good.json", "p", secret=SECRET, scrypt_n=CHEAP_SCRYPT_N)
    create_keystore(folder / "open.json", "p", scrypt_n=CHEAP_SCRYPT_N)
    (folder / "open.json").chmod(0o644)
    private(folder / "other.json", b"[]")
    (folder / "gone.json").symlink_to(tmp_path / "nowhere")
    private(folder / "good.json.transactions.sqlite3", b"")
    found = {key["name"]: key for key in json.loads(call("list", "--json")[1])["keys"]}
    assert sorted(found) == ["gone", "good", "open", "other"]
    assert (found["good"]["address"], found["good"]["problem"]) == (ADDRESS, None)
    assert found["open"]["mode"] == "0644" and "chmod 600" in found["open"]["problem"]
    assert found["other"]["address"] is None and found["other"]["problem"]
    assert found["gone"]["address"] is None and "can't be read" in found["gone"]["problem"]
    printed = call("list")[1]
    assert printed.count("✗") == 3 and ADDRESS in printed
    assert json.loads(call("list", "--folder", str(tmp_path / "none"), "--json")[1])["keys"] == []


def test_a_name_means_the_key_in_the_folder_and_a_path_the_file(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_keystore(folder / "node.json", "p", scrypt_n=CHEAP_SCRYPT_N)
    assert find_key(Path("node")) == find_key(Path("node.json")) == folder / "node.json"
    assert find_key(tmp_path / "elsewhere.json") == tmp_path / "elsewhere.json"
    with pytest.raises(KeyFailure, match="no such key"):
        find_key(Path("provider"))
    (tmp_path / "node").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_key(Path("node")) == folder / "node.json", "a folder is no key"
    monkeypatch.chdir(folder)
    assert find_key(Path("node.json")) == Path("node.json")
    monkeypatch.delenv("PROOFPOOL_KEYS")
    assert keys_folder() == Path.home() / ".proofpool" / "keys"


def test_a_key_is_given_out_to_a_new_private_file_only(
    folder: Path, password: list[str], call: Command, tmp_path: Path
) -> None:
    create_keystore(folder / "node.json", "correct horse", secret=SECRET, scrypt_n=CHEAP_SCRYPT_N)
    out = tmp_path / "raw"
    command = ("export", "node", *password)
    assert call(*command, "--out", str(out))[0] == 2 and not out.exists(), "nobody has confirmed it"
    assert call(*command, "--yes")[0] == 2
    assert call(*command, "--yes", "--show")[0] == 2, "not a terminal"
    code, printed, _ = call(*command, "--yes", "--out", str(out), "--json")
    assert code == 0 and json.loads(printed)["address"] == ADDRESS and SECRET.hex() not in printed
    assert (out.read_text(), stat.S_IMODE(out.stat().st_mode)) == (SECRET.hex() + "\n", 0o600)
    assert call(*command, "--yes", "--out", str(out))[0] == 4, "nothing is overwritten"


def test_a_key_is_shown_on_a_terminal_once_that_is_confirmed(folder: Path) -> None:
    create_keystore(folder / "node.json", "correct horse", secret=SECRET, scrypt_n=CHEAP_SCRYPT_N)
    assert SECRET.hex() not in on_terminal(["key", "export", "node", "--show"], "correct horse\nn\n")
    printed = on_terminal(["key", "export", "node", "--show"], "correct horse\ny\n")
    assert ADDRESS in printed and SECRET.hex() in printed
    assert "correct horse" not in printed, "a password isn't echoed"


def on_terminal(arguments: list[str], answers: str) -> str:
    """All that a terminal shows of a command whose questions are answered one after the other."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "protocol.cli", *arguments]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=python_environment(), start_new_session=True
    ):
        os.close(theirs)
        shown = b""
        for answer in answers.splitlines():
            while not shown.rstrip(b" ").endswith(b":"):
                shown += os.read(ours, 1024)
            os.write(ours, answer.encode() + b"\n")
            shown += b"\n"
        try:
            while piece := os.read(ours, 1024):
                shown += piece
        except OSError:  # the other end of a terminal is gone: Linux says EIO
            pass
    os.close(ours)
    return shown.decode()
