# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What vLLM runs before each request (--middleware): without the key, only what tells of the server's health is answered.

vLLM itself asks for its key below /v1 and a few more paths alone: POST /invocations, with the same body, gets a completion from every
release from 0.13.0 to 0.33.0 without a key, and /pause or /tokenize are open too. The role vllm_serve copies this file to the head; it
imports nothing that is not in the standard library.
"""

from __future__ import annotations

import hmac
import os
from typing import Any

#: Nothing of what others ask or are answered is in these.
OPEN = frozenset({"/health", "/ping", "/metrics"})


class Guard:
    """ASGI middleware. Raises KeyError at the start of a server that has no key."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._key = os.environ["VLLM_API_KEY"].encode()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Pass a request on, or answer 401."""
        kind = scope["type"]
        # OPTIONS is how a browser asks whether it may send a key at all.
        if kind not in ("http", "websocket") or scope["path"] in OPEN or scope.get("method") == "OPTIONS" or self._allowed(scope):
            await self._app(scope, receive, send)
        elif kind == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b'{"error": "Unauthorized"}'})

    def _allowed(self, scope: dict[str, Any]) -> bool:
        values = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _blank, key = (values or [b""])[0].partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(key, self._key)
