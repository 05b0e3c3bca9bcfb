"""Whom a TLS connection is believed by: the usual authorities, which take a tenth of a second to load, or nobody.

In: the URL that a client is for. Out: what `httpx.Client(verify=…)` takes.
"""

from __future__ import annotations

import ssl


def trusted_for(url: str) -> ssl.SSLContext | bool:
    """Authorities where the URL is an https one. Any other needs none: TLS that comes in all the same is refused."""
    if url.lower().startswith("https://"):
        return True
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
