"""A hub on loopback that keeps the part of the Hugging Face Hub's contract that huggingface_hub uses.

Repositories are dictionaries of files. Weights and films travel as LFS objects, as the real hub's
.gitattributes has it, and everything else within the commit. Source: the requests of
huggingface_hub 2.4 (hf_api.py, _commit_api.py, lfs.py, file_download.py).
"""

import base64
import hashlib
import json
import re
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote, urlsplit

import yaml

TOKEN = "hf_right"
LFS = (".safetensors", ".onnx", ".png", ".mp4")


class Hub(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.repos = {}
        """USER/NAME -> path -> bytes."""
        self.objects = {}
        """SHA-256 -> bytes of an LFS object."""
        self.announced = {}
        """Path -> a size that is announced instead of the true one."""
        self.requests = []
        self.commits = 0
        self.is_broken = False

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def running_hub():
    hub = Hub()
    thread = Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        thread.join()
        hub.server_close()


def revision_of(files):
    parts = [name.encode() + files[name] for name in sorted(files)]
    return hashlib.sha1(b"".join(parts)).hexdigest()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        self._route()

    do_POST = do_PUT = do_HEAD = do_GET  # noqa: N815 - the base class's names

    ROUTES = (
        ("POST", r"/api/repos/create", "create", True),
        ("POST", r"/api/validate-yaml", "validate", False),
        ("GET", r"/api/models/([^/]+/[^/]+)(?:/revision/main)?", "info", False),
        ("POST", r"/api/models/([^/]+/[^/]+)/preupload/main", "preupload", True),
        ("POST", r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch", "batch", True),
        ("PUT", r"/objects/([0-9a-f]{64})", "put", False),
        ("POST", r"/api/models/([^/]+/[^/]+)/commit/main", "commit", True),
        ("HEAD", r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", "resolve", False),
        ("GET", r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", "resolve", False),
    )

    def _route(self):
        path = urlsplit(self.path).path
        body = self._body()
        self.server.requests.append(f"{self.command} {path}")
        if self.server.is_broken:
            return self._send(500, {"error": "Internal Error"})
        for method, pattern, name, needs_token in self.ROUTES:
            match = re.fullmatch(pattern, path)
            if method != self.command or match is None:
                continue
            given = self.headers.get("Authorization")
            if given != f"Bearer {TOKEN}" and (needs_token or given is not None):
                text = "Invalid credentials in Authorization header"
                return self._send(401, {"error": text}, {"X-Error-Message": text})
            return getattr(self, name)(body, *map(unquote, match.groups()))
        return self._send(404, {"error": "no such address"})

    def _body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _send(self, status, content, headers=None):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _files(self, repo):
        files = self.server.repos.get(repo)
        if files is None:
            headers = {"X-Error-Code": "RepoNotFound"}
            self._send(404, {"error": "Repository not found"}, headers)
        return files

    def create(self, body):
        asked = json.loads(body)
        repo = f"{asked['organization']}/{asked['name']}"
        if repo.startswith("others/"):
            return self._send(403, {"error": "You don't have the rights"})
        url = f"{self.server.url}/{repo}"
        if repo in self.server.repos:
            return self._send(409, {"error": "You already created it", "url": url})
        self.server.repos[repo] = {".gitattributes": b"*.onnx filter=lfs\n"}
        return self._send(200, {"url": url})

    def validate(self, body):
        header = json.loads(body)["content"].split("---\n")[1]
        tags = yaml.safe_load(header).get("tags")
        status = 200 if isinstance(tags, list) else 400
        self._send(status, {"warnings": [], "errors": []})

    def info(self, body, repo):
        files = self._files(repo)
        if files is not None:
            sizes = {name: len(content) for name, content in files.items()}
            sizes |= self.server.announced
            siblings = [{"rfilename": n, "size": size} for n, size in sizes.items()]
            sha = revision_of(files)
            self._send(200, {"id": repo, "sha": sha, "siblings": siblings})

    def preupload(self, body, repo):
        if self._files(repo) is None:
            return
        answers = []
        for file in json.loads(body)["files"]:
            mode = "lfs" if file["path"].endswith(LFS) else "regular"
            path = file["path"]
            answers.append({"path": path, "uploadMode": mode, "shouldIgnore": False})
        self._send(200, {"files": answers})

    def batch(self, body, repo):
        answers = []
        for wanted in json.loads(body)["objects"]:
            href = f"{self.server.url}/objects/{wanted['oid']}"
            actions = {"upload": {"href": href}}
            is_new = wanted["oid"] not in self.server.objects
            answers.append({**wanted, **({"actions": actions} if is_new else {})})
        self._send(200, {"transfer": "basic", "objects": answers})

    def put(self, body, oid):
        assert hashlib.sha256(body).hexdigest() == oid
        self.server.objects[oid] = body
        self._send(200, {})

    def commit(self, body, repo):
        files = dict(self._files(repo))
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self.server.objects[value["oid"]]
        self.server.repos[repo] = files
        self.server.commits += 1
        oid = revision_of(files)
        url = f"{self.server.url}/{repo}/commit/{oid}"
        self._send(200, {"commitUrl": url, "commitOid": oid, "success": True})

    def resolve(self, body, repo, revision, path):
        files = self._files(repo)
        if files is None:
            return
        if path not in files or revision not in ("main", revision_of(files)):
            headers = {"X-Error-Code": "EntryNotFound"}
            self._send(404, {"error": "Entry not found"}, headers)
            return
        etag = hashlib.sha256(files[path]).hexdigest()
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": revision_of(files)}
        self._send(200, files[path], headers)
