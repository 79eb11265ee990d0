"""Who may ask the page for what: decided from a request's headers. Pure.

The server listens on loopback, yet every page a browser on this machine shows can send requests to loopback. Three
things keep those out: a name that does not mean loopback is refused (DNS rebinding), nothing may embed or read an
answer from another origin, and an action needs the page's own token, which no other origin can read.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_OWN_SITES = frozenset({"same-origin", "none"})  # "none": typed into the address line

TOKEN_HEADER = "X-Stream-RL-Token"
SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def refusal(method: str, headers: Mapping[str, str], token: str) -> str | None:
    """Why a request is refused; None when it may go on. `token` is the page's own."""
    host = headers.get("Host", "")
    if _name(host) not in _LOOPBACK:
        return f"the page answers to 127.0.0.1 and localhost, not to the host {host!r}"
    if method in ("GET", "HEAD"):
        return None
    origin = headers.get("Origin")
    if origin is not None and origin != f"http://{host}":
        return f"an action must come from the page itself, not from {origin!r}"
    if headers.get("Sec-Fetch-Site", "same-origin") not in _OWN_SITES:
        return "an action must come from the page itself, not from another site"
    if headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
        return "an action is sent as application/json"
    if not hmac.compare_digest(headers.get(TOKEN_HEADER, "").encode(), token.encode()):
        return "the page's token is missing or old: load the page again"
    return None


def _name(host: str) -> str | None:
    try:
        parts = urlsplit(f"//{host}")
        return parts.hostname if parts.netloc == host and "@" not in host else None
    except ValueError:
        return None
