"""`proofpool shardcast`: serve a folder of published policy versions; make and apply patches between their weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from protocol.shardcast import patch_commands

app = typer.Typer(help="Serve policy versions, and make and apply patches.", no_args_is_help=True)


@app.callback()
def shardcast() -> None:
    """Serve policy versions, and make and apply patches."""


@app.command()
def serve(
    root: Annotated[Path, typer.Argument(help="The folder that the origin publishes into.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8500,
) -> None:
    """Serve ROOT over HTTP until interrupted."""
    from protocol.shardcast.file_server import FileServer

    server = FileServer(root, (host, port))
    try:
        server.run()
    finally:
        server.close()


app.command()(patch_commands.diff)
app.command()(patch_commands.apply)
