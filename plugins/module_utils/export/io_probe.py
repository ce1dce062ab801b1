# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Request one token, vector or score from the server in this pod: the probe of Kubernetes.

/health returns 200 for minutes after the loss of a rank. The API key is in the environment of the container, so it is
in no argument. The pod has the node's network, so the key is sent only to a port that a process of this pod holds.
Ends with status 1 and the reason, which the events of the pod show.
"""

from __future__ import annotations

import argparse
import glob
import http.client
import os
import re
import ssl
import urllib.parse

#: Maximum bytes of an answer. The metrics of a busy server are about 100 KB.
_MOST = 8 * 1024**2
#: Seconds of a request for the metrics.
_METRICS_SECONDS = 5
_TOKENS = re.compile(r"^vllm:(?:generation|prompt)_tokens_total\{[^}]*\}\s+([\d.e+]+)$", re.MULTILINE)
_LISTENS = "0A"


class _SilentError(Exception):
    """The server did not answer."""


def _request(given: argparse.Namespace, path: str, seconds: float, text: str = "", key: str = "") -> tuple[int, str]:
    """Return status and body of an answer. Raises _SilentError."""
    place = urllib.parse.urlsplit(given.url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=seconds)
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    try:
        connection.connect()
        if place.scheme == "https":
            connection.sock = _context(given.ca).wrap_socket(connection.sock, server_hostname=given.server_name)
        connection.request("POST" if text else "GET", path, text or None, headers)
        answer = connection.getresponse()
        return answer.status, answer.read(_MOST).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        raise _SilentError(str(error) or type(error).__name__) from error
    finally:
        connection.close()


def _context(ca_file: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(ca_file)
    # The API's own certificate may be the only trust anchor.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _ours(port: int) -> bool:
    """Return whether processes of this pod hold every listening socket of a port."""
    inodes = set()
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        if os.path.exists(path):
            with open(path, encoding="ascii") as file:
                rows = [line.split() for line in file.readlines()[1:]]
            inodes |= {row[9] for row in rows if row[3] == _LISTENS and int(row[1].rpartition(":")[2], 16) == port}
    held = set()
    for link in glob.glob("/proc/[0-9]*/fd/*"):
        try:
            held.add(os.readlink(link))
        except OSError:
            continue  # The process or the file has just been closed, or belongs to another user.
    return bool(inodes) and all(f"socket:[{inode}]" in held for inode in inodes)


def _tokens(given: argparse.Namespace) -> float | None:
    """Return the number of tokens that the engine has read and generated, None if it is unknown."""
    try:
        status, text = _request(given, "/metrics", _METRICS_SECONDS)
    except _SilentError:
        return None
    found = _TOKENS.findall(text) if status == 200 else []
    return sum(map(float, found)) if found else None


def trouble(given: argparse.Namespace, key: str) -> str:
    """Return why the server counts as dead, "" if it answers.

    With --progress, an engine with progress in other requests counts as answering.
    """
    if key and not _ours(urllib.parse.urlsplit(given.url).port or 0):
        return "no process of this pod listens on the port of the API, so the key was not sent"
    before = _tokens(given) if given.progress else None
    try:
        status, text = _request(given, given.path, given.seconds, given.body, key)
    except _SilentError as error:
        after = _tokens(given) if given.progress else None
        moved = before is not None and after is not None and after > before
        return "" if moved else f"no answer within {given.seconds:g} s: {error}"
    return "" if status == 200 and f'"{given.answer}"' in text else f"HTTP {status}: {text[:300]}"


def main() -> str:
    """Return the reason of a failure, "" for an answer."""
    parser = argparse.ArgumentParser()
    for name in ("url", "path", "body", "answer"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--progress", action="store_true")
    for name in ("ca", "server-name"):
        parser.add_argument(f"--{name}", default="")
    return trouble(parser.parse_args(), os.environ.get("VLLM_API_KEY", ""))


if __name__ == "__main__":
    raise SystemExit(main() or 0)
