# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads a model's commit, files, config.json and weight size from Hugging Face Hub before the download.

Uses only the standard library, because the first run plans before a runtime with huggingface_hub exists. As for the
download, environment variables define the endpoint and the connection (HF_ENDPOINT, HTTPS_PROXY, NO_PROXY,
SSL_CERT_FILE).
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import ssl
import tempfile
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import IO, Any, TypeVar

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json, io_json
from ansible_collections.gb10.cluster.plugins.module_utils.model import names
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import io_model
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import plan as model_store_plan
from ansible_collections.gb10.cluster.plugins.module_utils.model_store.plan import Manifest

ENDPOINT = "https://huggingface.co"
#: Maximum bytes of a response: the file list, and each small file.
LISTING = 16 << 20
FILES = {
    **dict.fromkeys(("config.json", io_model.QUANTIZATION, io_model.MODULES), io_model.MOST_CONFIG),
    "model.safetensors.index.json": io_json.MOST_JSON,
}
#: Status codes after which a download would fail too: Unauthorized, Forbidden, Not Found.
REFUSED = (401, 403, 404)
#: Socket timeout in seconds.
SILENCE = 15
_CHUNK = 1 << 16
_COMMIT = re.compile(r"[0-9a-f]{40}")
_ON = ("1", "on", "true", "yes")
Answer = TypeVar("Answer")


class HubError(Exception):
    """Reading a model from Hugging Face Hub failed; the text is the reason, as part of a sentence.

    ``refused``: the HTTP status 401, 403 or 404 if the Hub has no such model for this user, else 0.
    """

    def __init__(self, reason: str, refused: int = 0) -> None:
        super().__init__(reason)
        self.refused = refused


def describe(
    name: str, revision: str, token: str, exclude: Sequence[str], timeout: float, folder: str | None = None
) -> dict[str, Any]:
    """Return {commit, model, model_bytes, model_reason} of a model, equal to the later result from its files.

    See io_model.model(). ``exclude``: patterns of files that are not downloaded. ``timeout``: seconds in total.
    ``folder``: for temporary files, by default the system's. Raises HubError.
    """
    return _within(timeout, lambda: _describe(_Hub(name, token), revision, exclude, folder))


def listing(name: str, revision: str, token: str, exclude: Sequence[str], timeout: float) -> Manifest:
    """Return the listing of a model. The parameters are those of describe(). Raises HubError."""

    def work() -> Manifest:
        hub = _Hub(name, token)
        found = hub.listing(revision)
        files = model_store_plan.chosen(found.files, exclude)
        if files:
            # The file list of a gated model is public, its files are not: test access with the smallest one.
            smallest = min(files, key=lambda file: file.size).path
            with hub.open(f"{name}/resolve/{found.commit}/{urllib.parse.quote(smallest)}"):
                pass
        return replace(found, files=tuple(files))

    return _within(timeout, work)


def _within(timeout: float, work: Callable[[], Answer]) -> Answer:
    """Return the result of ``work`` within this many seconds. Raises HubError."""
    answers: list[Answer | HubError] = []

    def run() -> None:
        try:
            answers.append(work())
        except HubError as error:
            answers.append(error)
        except OSError as error:
            answers.append(HubError(f"its response cannot be stored: {error}"))

    # A thread limits the total time, also for slow name resolution and a server that sends single bytes.
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout)
    answer = answers[0] if answers else HubError(f"no complete response within {timeout:.0f} s")
    if isinstance(answer, HubError):
        raise answer
    return answer


def _describe(hub: _Hub, revision: str, exclude: Sequence[str], folder: str | None) -> dict[str, Any]:
    found = hub.listing(revision)
    with tempfile.TemporaryDirectory(dir=folder) as here:
        for path, most in FILES.items():
            if any(file.path == path for file in found.files):
                content = hub.get(f"{hub.name}/resolve/{found.commit}/{path}", most)
                with open(f"{here}/{path}", "wb") as file:
                    file.write(content)
        try:
            read = io_model.model(here, model_store_plan.weights(found.files, exclude))
        except ValueError as error:
            raise HubError(str(error).replace(f"{here}/", "its ")) from error
    if read["model"] is None:
        raise HubError("the model has no config.json")
    return {"commit": found.commit, **read}


def _listing(text: bytes, name: str, revision: str) -> Manifest:
    """Return the listing of a model from the untrusted response. Raises HubError."""
    try:
        answer = bounded_json.load(text.decode(), LISTING)
        files, commit = [_file(each) for each in answer["siblings"]], answer["sha"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise HubError("its response is invalid") from error
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise HubError("its response contains no commit")
    if wrong := model_store_plan.files_problem(files, hashed=False):
        raise HubError(f"its response has an invalid file list: {wrong}")
    return Manifest(name, revision, commit, model_store_plan.files_of(files))


def _file(sibling: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file of a listing. The Hub has the SHA-256 of large files, and git's hash of small ones."""
    sha256 = (sibling.get("lfs") or {}).get("sha256") or ""
    git = "" if sha256 else sibling.get("blobId") or ""
    return {"path": sibling["rfilename"], "size": sibling.get("size") or 0, "sha256": sha256, "git": git}


class _Hub:
    """Gets files of one model. Redirects to other hosts do not receive the token."""

    def __init__(self, name: str, token: str) -> None:
        if os.environ.get("HF_HUB_OFFLINE", "").lower() in _ON:
            raise HubError("HF_HUB_OFFLINE is set")
        if not names.is_hub(name):
            raise HubError(f"{name!r} is not OWNER/NAME")
        if token and not re.fullmatch(r"[!-~]+", token):
            raise HubError("the token is not a single ASCII word")
        self.name, self.token = name, token
        self.endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or ENDPOINT
        self.host = urllib.parse.urlsplit(self.endpoint).hostname or self.endpoint
        authorities = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
        try:
            context = ssl.create_default_context(cafile=authorities)
        except OSError as error:
            raise HubError(f"{authorities or 'the certificates of this host'} cannot be read: {error}") from error
        self.opener = urllib.request.build_opener(
            urllib.request.ProxyHandler(_proxies()), urllib.request.HTTPSHandler(context=context), _Redirects()
        )

    def listing(self, revision: str) -> Manifest:
        """Return the listing of the model. Raises HubError."""
        quoted = urllib.parse.quote(revision, safe="")
        return _listing(self.get(f"api/models/{self.name}/revision/{quoted}?blobs=true", LISTING), self.name, revision)

    def get(self, path: str, most: int) -> bytes:
        """Return the content at a path. Raises HubError."""
        with self.open(path) as response:
            content = bytearray()
            while data := response.read1(_CHUNK):
                content += data
                if len(content) > most:
                    raise HubError(f"{path.partition('?')[0]} has more than {most} bytes")
            announced = response.headers.get("Content-Length", "")
            if announced.isdigit() and len(content) < int(announced):
                raise HubError(f"{self.host} closed the connection early")
        return bytes(content)

    @contextlib.contextmanager
    def open(self, path: str) -> Iterator[http.client.HTTPResponse]:
        """Yield the response at a path. Raises HubError, also for an error of the block's connection."""
        headers = {"User-Agent": "gb10.cluster", **({"Authorization": f"Bearer {self.token}"} if self.token else {})}
        request = urllib.request.Request(f"{self.endpoint}/{path}", headers=headers)
        try:
            with self.opener.open(request, timeout=SILENCE) as response:
                yield response
        except urllib.error.HTTPError as error:
            error.close()
            raise HubError(self._refusal(error.code), error.code if error.code in REFUSED else 0) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or str(error) or type(error).__name__
            raise HubError(f"{self.host} does not respond: {reason}") from error

    def _refusal(self, status: int) -> str:
        access = "with the token in model_store_hub_token" if self.token else "without a token"
        if status in REFUSED[:2]:
            return f"{self.host} denied access {access} (HTTP {status}): the model is gated, private or nonexistent"
        if status in REFUSED:
            return f"{self.host} has no such revision of the model (HTTP 404)"
        return f"{self.host} returned HTTP {status}"


def _proxies() -> dict[str, str]:
    """Return the environment's proxies by scheme; ALL_PROXY is the default for schemes without a proxy."""
    found = urllib.request.getproxies_environment()
    everything = found.pop("all", "")
    return {**({"http": everything, "https": everything} if everything else {}), **found}


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects of HTTP: to other hosts without the token, and never from https to another scheme."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """Return the next request."""
        before, after = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        if after.scheme not in ("https", before.scheme):
            raise urllib.error.URLError(f"redirect from {before.scheme} to {after.scheme}://{after.hostname}")
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following is not None and (before.scheme, before.netloc) != (after.scheme, after.netloc):
            following.remove_header("Authorization")
        return following


#: The result for an unknown model.
NOTHING: dict[str, Any] = {"commit": "", "model": None, "model_bytes": None, "model_reason": ""}


def known(name: str, revision: str, record: str, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the model's data from Hugging Face Hub or an earlier run.

    The keys are {name, revision, commit, model, model_bytes, model_reason, trouble, refused}. ``record``: the file with
    the result of an earlier run. If the revision is a commit, the Hub is queried only once. ``trouble``: why the query
    failed, "" if it succeeded or was not needed. ``refused``: as in HubError.
    """
    try:
        kept = io_json.json_file(record) or {}
    except (OSError, ValueError):
        kept = {}
    same = (kept.get("name"), kept.get("revision")) == (name, revision) and NOTHING.keys() <= kept.keys()
    before = {key: kept[key] for key in NOTHING} if same else NOTHING
    found, trouble, refused = before, "", 0
    if before["commit"] != revision:
        try:
            found = ask()
        except HubError as error:
            trouble, refused = str(error), error.refused
    return {"name": name, "revision": revision, **found, "trouble": trouble, "refused": refused}
