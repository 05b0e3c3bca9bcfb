"""`proofpool key …`: new, import, list, export. Nothing heavy is imported until one of them runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from pydantic import BaseModel, ConfigDict

from protocol.errors import KeyFailure, UsageError
from protocol.keyring import KeyEntry, find_key, key_file, keys_folder, list_keys, make_folder
from protocol.passwords import choose_password, get_password, is_terminal
from protocol.wire import Address

if TYPE_CHECKING:
    from protocol.signing import Signer

app = typer.Typer(no_args_is_help=True, help="Make, import, list and export keys.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="What to call it, such as `provider` or `node`.")]
Folder = Annotated[
    Path | None, typer.Option("--folder", help="Where keys lie; else PROOFPOOL_KEYS, else ~/.proofpool/keys.")
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file", help="Its first line is the keystore's password; else PROOFPOOL_PASSWORD, or asked."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout; nothing is asked.")]


class KeyFile(BaseModel):
    """A keystore that was written; the document of `key new` and `key import`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[1] = 1
    name: str
    file: str
    address: Address


class KeyList(BaseModel):
    """The document of `key list`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[1] = 1
    folder: str
    keys: tuple[KeyEntry, ...]


class KeyExport(BaseModel):
    """The document of `key export`: where the unencrypted key lies now."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[1] = 1
    file: str
    address: Address


@app.command()
def new(name: Name, folder: Folder = None, password_file: PasswordFile = None, as_json: Json = False) -> None:
    """Make a key: a keystore (scrypt, mode 0600) that any Ethereum client opens with the password."""
    file = _new_file(name, folder)
    password = choose_password(str(file), password_file, may_ask=not as_json)
    _tell(name, file, _written(file, password, None), as_json)


@app.command("import")
def import_key(
    name: Name,
    source: Annotated[
        str, typer.Option("--from", metavar="FILE", help="A keystore, or 64 hex digits, mode 0600; `-` reads stdin.")
    ],
    source_password_file: Annotated[
        Path | None, typer.Option("--from-password-file", help="Opens the keystore that is imported; else it is asked.")
    ] = None,
    folder: Folder = None,
    password_file: PasswordFile = None,
    as_json: Json = False,
) -> None:
    """Take over a key of another wallet, encrypted anew. A keystore's address must be its key's."""
    from protocol.key_import import read_foreign_secret

    file = _new_file(name, folder)
    secret = read_foreign_secret(source, lambda: _source_password(source, source_password_file, may_ask=not as_json))
    password = choose_password(str(file), password_file, may_ask=not as_json)
    _tell(name, file, _written(file, password, secret), as_json)


@app.command("list")
def list_command(folder: Folder = None, as_json: Json = False) -> None:
    """Show the keys of a folder, and which files are open to others. Needs no password, so addresses aren't proved."""
    where = folder or keys_folder()
    found = KeyList(folder=str(where), keys=tuple(list_keys(where)))
    if as_json:
        typer.echo(found.model_dump_json())
        return
    for key in found.keys:
        typer.echo(f"{key.name:<16} {key.address or 'no address':<42}  {key.file}")
        if key.problem:
            typer.echo(f"  ✗ {key.problem}")
    if not found.keys:
        typer.echo(f"no keys in {where}: `proofpool key new NAME` makes one", err=True)


@app.command()
def export(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A key of the folder, or a keystore file.")],
    out: Annotated[Path | None, typer.Option("--out", help="A new file, mode 0600, for the unencrypted key.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Print it on this terminal instead.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask whether that is meant.")] = False,
    folder: Folder = None,
    password_file: PasswordFile = None,
    as_json: Json = False,
) -> None:
    """Write the unencrypted private key: whoever reads it owns all that it owns. A backup is a copy of the keystore."""
    from protocol.keystore import read_secret
    from protocol.signing import Signer

    _check_target(out, show=show, as_json=as_json)
    _check_meant(yes=yes, may_ask=not as_json)
    file = key_file(name, folder) if folder is not None else find_key(Path(name))
    secret = read_secret(file, get_password(str(file), password_file, may_ask=not as_json))
    address = Signer(secret).address
    if not yes:
        typer.confirm(f"Put the private key of {address} {f'into {out}' if out else 'on this terminal'}?", abort=True)
    if out is None:
        typer.echo(secret.hex())
        return
    _write_raw(out, secret)
    exported = KeyExport(file=str(out), address=address)
    typer.echo(exported.model_dump_json() if as_json else f"{address} is in {out}, unencrypted: delete it after use")


def _check_target(out: Path | None, *, show: bool, as_json: bool) -> None:
    if (out is None) is not show:
        raise UsageError("where should the key go?", "one of --out and --show", "--out FILE, or --show on a terminal")
    if show and (as_json or not sys.stdout.isatty()):
        why = "stdout is no terminal, and would keep it in a file or a log" if not as_json else "--json is for scripts"
        raise UsageError("a key is shown on a terminal only", why, "give --out FILE")


def _check_meant(*, yes: bool, may_ask: bool) -> None:
    if not yes and not (may_ask and is_terminal()):
        raise UsageError("this must be confirmed", "nobody can be asked here", "give --yes if it is meant")


def _write_raw(out: Path, secret: bytes) -> None:
    from protocol.files import write_new

    try:
        write_new(out, secret.hex().encode() + b"\n", mode=0o600)
    except FileExistsError:
        failure = KeyFailure("there is a file already", str(out), "choose another name: nothing is overwritten")
        raise failure from None


def _new_file(name: str, folder: Path | None) -> Path:
    """Where the key will lie. Raises KeyFailure where one lies there already, before anything is asked."""
    where = folder or keys_folder()
    make_folder(where)
    file = key_file(name, where)
    if file.exists():
        raise KeyFailure("a keystore is already there", str(file), "choose another name: keys are never overwritten")
    return file


def _source_password(source: str, file: Path | None, *, may_ask: bool) -> str:
    """Raises KeyFailure, which names the option that is about the source: --password-file is the new keystore's."""
    try:
        return get_password(source, file, may_ask=may_ask)
    except KeyFailure as error:
        if file is not None:
            raise
        todo = "give --from-password-file, which opens the keystore that is imported"
        raise KeyFailure(error.what, f"{source}: {error.why}", todo) from error


def _written(file: Path, password: str, secret: bytes | None) -> Signer:
    from protocol import keystore

    return keystore.create_keystore(file, password, secret=secret, scrypt_n=keystore.STRONG_SCRYPT_N)


def _tell(name: str, file: Path, signer: Signer, as_json: bool) -> None:
    if as_json:
        typer.echo(KeyFile(name=name, file=str(file), address=signer.address).model_dump_json())
        return
    typer.echo(f"{signer.address}  {file}")
    typer.echo("keep a copy of the file and the password: nobody else can restore them", err=True)
