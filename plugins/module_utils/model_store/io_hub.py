# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a model on the Hugging Face hub is, read before it is downloaded: its commit, its config.json and the size of its weights.

With the standard library alone, because the first run plans before there is a runtime with huggingface_hub. The environment of the process says where
the hub is and how it is reached (HF_ENDPOINT, HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE), as it does for the download.
"""

from __future__ import annotations

import http.client
import os
import re
import ssl
import tempfile
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from typing import IO, Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json, io_json
from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog_checks as catalogue_checks
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import io_model
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import plan as model_store

ENDPOINT = "https://huggingface.co"
#: The most bytes of an answer: what a model consists of, and each of its small files.
LISTING, FILES = 16 << 20, {"config.json": io_model.MOST_CONFIG, "model.safetensors.index.json": io_json.MOST_JSON}
#: Seconds without a byte after which the hub counts as silent.
SILENCE = 15
_CHUNK = 1 << 16
_COMMIT = re.compile(r"[0-9a-f]{40}")
_ON = ("1", "on", "true", "yes")


class HubError(Exception):
    """Why the hub did not tell what a model is, as a part of a sentence."""


def describe(name: str, revision: str, token: str, exclude: Sequence[str], timeout: float, folder: str | None = None) -> dict[str, Any]:
    """Return {commit, model, model_bytes, model_reason} of a model as its files will say on the nodes; see io_model.model().

    ``exclude``: patterns of files that are not downloaded. ``timeout``: seconds for all of it. ``folder``: for what comes meanwhile, by default
    the system's for temporary files. Raises HubError.
    """
    answers: list[dict[str, Any] | HubError] = []

    def work() -> None:
        try:
            answers.append(_describe(_Hub(name, token), name, revision, exclude, folder))
        except HubError as error:
            answers.append(error)
        except OSError as error:
            answers.append(HubError(f"what it told cannot be kept here: {error}"))

    # Neither a name server nor a hub that sends a byte now and then holds up a run.
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(timeout)
    answer = answers[0] if answers else HubError(f"it did not tell all within {timeout:.0f} s")
    if isinstance(answer, HubError):
        raise answer
    return answer


def _describe(hub: _Hub, name: str, revision: str, exclude: Sequence[str], folder: str | None) -> dict[str, Any]:
    listing = _listing(hub.get(f"api/models/{name}/revision/{urllib.parse.quote(revision, safe='')}?blobs=true", LISTING))
    files, commit = listing["files"], listing["commit"]
    with tempfile.TemporaryDirectory(dir=folder) as here:
        for path, most in FILES.items():
            if any(file["path"] == path for file in files):
                content = hub.get(f"{name}/resolve/{commit}/{path}", most)
                with open(f"{here}/{path}", "wb") as file:
                    file.write(content)
        try:
            found = io_model.model(here, model_store.weights(files, exclude))
        except ValueError as error:
            raise HubError(str(error).replace(f"{here}/", "its ")) from error
    if found["model"] is None:
        raise HubError("the model has no config.json")
    return {"commit": commit, **found}


def _listing(text: bytes) -> dict[str, Any]:
    """Return {commit, files} of the hub's answer, which is anybody's. Raises HubError."""
    try:
        answer = bounded_json.load(text.decode(), LISTING)
        siblings = answer["siblings"]
        files = [{"path": each["rfilename"], "size": each.get("size") or 0, "sha256": ""} for each in siblings]
        commit = answer["sha"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise HubError("its answer is not that of a hub") from error
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise HubError("its answer names no commit")
    if wrong := model_store.files_problem(files, hashed=False):
        raise HubError(f"in its answer {wrong}")
    return {"commit": commit, "files": files}


class _Hub:
    """Gets files of one model. A token is shown to the hub alone, wherever that sends us."""

    def __init__(self, name: str, token: str) -> None:
        if os.environ.get("HF_HUB_OFFLINE", "").lower() in _ON:
            raise HubError("HF_HUB_OFFLINE is set")
        if not catalogue_checks.is_hub(name):
            raise HubError(f"{name!r} is not OWNER/NAME")
        if token and not re.fullmatch(r"[!-~]+", token):
            raise HubError("its token is not one word of ASCII")
        self.endpoint, self.token = os.environ.get("HF_ENDPOINT", "").rstrip("/") or ENDPOINT, token
        self.opener = urllib.request.OpenerDirector()
        authorities = next((found for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE") if (found := os.environ.get(name))), None)
        try:
            context = ssl.create_default_context(cafile=authorities)
        except (OSError, ssl.SSLError) as error:
            raise HubError(f"{authorities or 'the certificates of this host'} cannot be read: {error}") from error
        # No handler of files and FTP: the hub might name one.
        for handler in (
            urllib.request.ProxyHandler(_proxies()),
            urllib.request.UnknownHandler(),
            urllib.request.HTTPHandler(),
            urllib.request.HTTPSHandler(context=context),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
            _Redirects(),
        ):
            self.opener.add_handler(handler)

    def get(self, path: str, most: int) -> bytes:
        """Return what the hub has there. Raises HubError."""
        headers = {"User-Agent": "gb10.cluster", **({"Authorization": f"Bearer {self.token}"} if self.token else {})}
        host = urllib.parse.urlsplit(self.endpoint).hostname or self.endpoint
        try:
            with self.opener.open(urllib.request.Request(f"{self.endpoint}/{path}", headers=headers), timeout=SILENCE) as response:
                content = bytearray()
                while data := response.read1(_CHUNK):
                    content += data
                    if len(content) > most:
                        raise HubError(f"{path.partition('?')[0]} has more than {most} bytes")
                announced = response.headers.get("Content-Length", "")
        except urllib.error.HTTPError as error:
            error.close()
            raise HubError(self._refusal(host, error.code)) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or str(error) or type(error).__name__
            raise HubError(f"{host} does not answer: {reason}") from error
        if announced.isdigit() and len(content) < int(announced):
            raise HubError(f"{host} ended its answer early")
        return bytes(content)

    def _refusal(self, host: str, status: int) -> str:
        own = "the token in model_store_hub_token" if self.token else "no token"
        if status in (401, 403):
            return f"{host} does not give it to who has {own} (HTTP {status}): it is gated or private, or there is none of that name"
        return f"{host} has no such revision of it (HTTP 404)" if status == http.client.NOT_FOUND else f"{host} answers with HTTP {status}"


def _proxies() -> dict[str, str]:
    """Return the proxies of the environment by scheme; ALL_PROXY stands for what has none of its own."""
    found = urllib.request.getproxies_environment()
    everything = found.pop("all", "")
    return {**({"http": everything, "https": everything} if everything else {}), **found}


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows the hub to where its files are, without the token and never from https to http."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        """Return the next request."""
        before, after = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        if (before.scheme, after.scheme) == ("https", "http"):
            raise urllib.error.URLError(f"it leads from https to http://{after.hostname}")
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following is not None and (before.scheme, before.netloc) != (after.scheme, after.netloc):
            following.remove_header("Authorization")
        return following


#: What there is of a model of which nothing is known.
NOTHING: dict[str, Any] = {"commit": "", "model": None, "model_bytes": None, "model_reason": ""}


def known(name: str, revision: str, record: str, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return {name, revision, commit, model, model_bytes, model_reason, trouble}: what the hub says, or said in an earlier run that kept it.

    ``record``: the file with that. A commit is asked for once. ``trouble``: why the hub did not tell now, "" if it did or need not.
    """
    try:
        kept = io_json.json_file(record) or {}
    except (OSError, ValueError):
        kept = {}
    same = (kept.get("name"), kept.get("revision")) == (name, revision) and NOTHING.keys() <= kept.keys()
    before = {key: kept[key] for key in NOTHING} if same else NOTHING
    found, trouble = before, ""
    if before["commit"] != revision:
        try:
            found = ask()
        except HubError as error:
            trouble = str(error)
    return {"name": name, "revision": revision, **found, "trouble": trouble}
