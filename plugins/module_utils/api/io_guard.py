# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""vLLM middleware (--middleware) that requires the key for every path except health and metrics.

vLLM itself requires its key only below /v1 and for a few more paths. In every release from 0.13.0 to 0.33.0,
POST /invocations returns a completion for the same body without a key; /pause and /tokenize are open too.
It also counts the requests without a complete response, for the watchdog: the engine reports a request after its first
step, so that the metrics of an engine that hangs before this step are those of an idle one.
The role vllm_serve copies this file to the head. It imports only the standard library.
"""

from __future__ import annotations

import hmac
import os
from typing import Any

#: These reveal nothing about the requests and responses of other clients.
OPEN = frozenset({"/health", "/ping", "/metrics"})
#: A header of the responses from these paths: the number of requests to other paths without a complete response. A
#: server of several processes gives the number of one of them.
OPEN_REQUESTS = "x-gb10-open-requests"


class Guard:
    """ASGI middleware. Raises KeyError when a server without a key starts."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._key = os.environ["VLLM_API_KEY"].encode()
        self._requests = 0

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Forward a request, or respond with 401."""
        kind = scope["type"]
        # Browsers send OPTIONS without a key, to find out whether they may send one.
        if kind == "http" and scope["path"] in OPEN:
            await self._app(scope, receive, self._with_count(send))
        elif kind == "http" and self._allowed(scope):
            await self._counted(scope, receive, send)
        elif kind not in ("http", "websocket") or scope.get("method") == "OPTIONS" or self._allowed(scope):
            await self._app(scope, receive, send)
        elif kind == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b'{"error": "Unauthorized"}'})

    async def _counted(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self._requests += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._requests -= 1

    def _with_count(self, send: Any) -> Any:
        async def forward(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                count = (OPEN_REQUESTS.encode(), str(self._requests).encode())
                message = {**message, "headers": [*message.get("headers", ()), count]}
            await send(message)

        return forward

    def _allowed(self, scope: dict[str, Any]) -> bool:
        values = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _blank, key = (values or [b""])[0].partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(key, self._key)
