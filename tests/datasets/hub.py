"""A stand-in for Hugging Face's hub on this machine: an HTTP server with the endpoints that ``huggingface_hub`` and
``datasets`` use of datasets. Repositories are dictionaries of files; a commit gives a new revision, and Parquet goes by LFS."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import posixpath
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

REPOSITORY = r"(?P<name>[^/]+/[^/]+)"
REVISION = r"(?P<revision>[^/]+)"


class Hub(ThreadingHTTPServer):
    """``files``: repository -> path -> bytes; ``private``: of each; ``commits``: paths of each commit; ``objects``: of LFS;
    ``read``: paths of the files read."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}
        self.commits: list[list[str]] = []
        self.objects: dict[str, bytes] = {}
        self.read: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def head(self) -> str:
        return hashlib.sha1(str(len(self.commits)).encode()).hexdigest()


@contextlib.contextmanager
def running_hub() -> Iterator[Hub]:
    hub = Hub()
    threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Hub  # type: ignore[assignment]
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if found := re.fullmatch(rf"/api/datasets/{REPOSITORY}(/revision/{REVISION})?", path):
            self._info(found["name"])
        elif found := re.fullmatch(rf"/api/datasets/{REPOSITORY}/tree/{REVISION}/?(?P<folder>.*)", path):
            self._tree(found["name"], found["folder"])
        elif found := re.fullmatch(rf"/datasets/{REPOSITORY}/resolve/{REVISION}/(?P<file>.*)", path):
            self._resolve(found["name"], found["file"])
        else:
            self._missing("EntryNotFound")

    do_HEAD = do_GET

    def do_PUT(self) -> None:
        data = self._body()
        self.server.objects[hashlib.sha256(data).hexdigest()] = data
        self._answer(b"")

    def do_POST(self) -> None:
        path, body = unquote(urlsplit(self.path).path), self._body()
        if path == "/api/repos/create":
            told = json.loads(body)
            name = f"{told.get('organization') or 'me'}/{told['name']}"
            self.server.files[name] = {}
            self.server.private[name] = told.get("visibility") == "private" or told.get("private") is True
            self._json({"url": f"{self.server.url}/datasets/{name}", "name": name})
        elif path == "/api/validate-yaml":
            self._json({"errors": [], "warnings": []})
        elif found := re.fullmatch(rf"/api/datasets/{REPOSITORY}/paths-info/{REVISION}", path):
            entries = self._entries(found["name"])
            self._json([entries[each] for each in json.loads(body)["paths"] if each in entries])
        elif re.fullmatch(rf"/api/datasets/{REPOSITORY}/preupload/{REVISION}", path):
            self._json({"files": [self._mode(each["path"]) for each in json.loads(body)["files"]]})
        elif re.fullmatch(rf"/datasets/{REPOSITORY}\.git/info/lfs/objects/batch", path):
            objects = [self._upload(each) for each in json.loads(body)["objects"]]
            self._json({"transfer": "basic", "objects": objects})
        elif found := re.fullmatch(rf"/api/datasets/{REPOSITORY}/commit/{REVISION}", path):
            self._commit(found["name"], [json.loads(line) for line in body.splitlines()])
        else:
            self._missing("EntryNotFound")

    # ------------------------------------------------------------------------------------------------------- answers

    def _info(self, name: str) -> None:
        if name not in self.server.files:
            self._missing("RepoNotFound")
            return
        siblings = [{"rfilename": file} for file in self.server.files[name]]
        self._json({"id": name, "sha": self.server.head, "private": self.server.private[name], "siblings": siblings})

    def _tree(self, name: str, folder: str) -> None:
        everything = "recursive=" in self.path and "recursive=false" not in self.path.lower()
        entries = self._entries(name)
        if folder and folder not in entries:
            self._missing("EntryNotFound")
            return
        below = [each for path, each in entries.items() if path.startswith(f"{folder}/" if folder else "")]
        self._json([each for each in below if everything or posixpath.dirname(each["path"]) == folder])

    def _entries(self, name: str) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for path, data in sorted(self.server.files[name].items()):
            if parent := posixpath.dirname(path):
                found[parent] = {"type": "directory", "path": parent, "size": 0, "oid": self.server.head}
            found[path] = {"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
            if self._mode(path)["uploadMode"] == "lfs":
                found[path]["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
        return found

    def _resolve(self, name: str, file: str) -> None:
        if file not in self.server.files.get(name, {}):
            self._missing("EntryNotFound")
            return
        self.server.read.append(file)
        data = self.server.files[name][file]
        headers = {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Repo-Commit": self.server.head}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted:
            begin, end = int(wanted[1]), min(int(wanted[2] or len(data)), len(data) - 1)
            headers["Content-Range"] = f"bytes {begin}-{end}/{len(data)}"
            data = data[begin : end + 1]
        self._answer(data, 206 if wanted else 200, headers)

    def _mode(self, path: str) -> dict[str, Any]:
        return {"path": path, "uploadMode": "lfs" if path.endswith(".parquet") else "regular", "shouldIgnore": False}

    def _upload(self, told: dict[str, Any]) -> dict[str, Any]:
        if told["oid"] in self.server.objects:
            return told
        return told | {"actions": {"upload": {"href": f"{self.server.url}/lfs/{told['oid']}"}}}

    def _commit(self, name: str, lines: list[dict[str, Any]]) -> None:
        files, paths = self.server.files[name], list[str]()
        for line in lines[1:]:
            value = line["value"]
            paths.append(value["path"])
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server.objects[value["oid"]]
            else:
                del files[value["path"]]
        self.server.commits.append(paths)
        url = f"{self.server.url}/datasets/{name}/commit/{self.server.head}"
        self._json({"success": True, "commitUrl": url, "commitOid": self.server.head})

    # ---------------------------------------------------------------------------------------------------------- HTTP

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts: list[bytes] = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _json(self, value: Any) -> None:
        self._answer(json.dumps(value).encode(), headers={"Content-Type": "application/json"})

    def _missing(self, code: str) -> None:
        self._answer(b"{}", 404, {"X-Error-Code": code, "X-Error-Message": "not found"})

    def _answer(self, data: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
