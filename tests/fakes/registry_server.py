"""A small registry of OCI artifacts, whose answers tests change while it runs: see Behaviour.

It keeps everything in memory, and writes a line "METHOD PATH STATUS CREDENTIALS" for each request to the file
`requests`. CREDENTIALS is "none", "basic" or "bearer".
"""

import argparse
import base64
import hashlib
import json
import re
import select
import sys
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit


@dataclass
class Behaviour:
    # "none", "basic" or "bearer".
    auth: str = "none"
    user: str = "wilhelmina"
    password: str = "hunter-2"
    # The address of the server of tokens; empty: this one.
    realm: str = ""
    # What requests without a sufficient token are told to ask for; "NAME" is the repository. A token permits what
    # it was asked for.
    scope: str = "repository:NAME:pull"
    # A token is accepted for so many requests.
    token_uses: int = 1000
    # What the server of tokens sends; empty: a token.
    token_answer: str = ""
    # A byte of each blob is another one.
    wrong_bytes: bool = False
    # This many bytes follow each blob.
    more_bytes: int = 0
    # The first answers with a blob end after so many bytes: how many answers, how many bytes.
    cut: tuple[int, int] = (0, 0)
    # Every second one of them ends after half as many.
    varying_cuts: bool = False
    # Range is ignored.
    whole_blobs: bool = False
    # Requests with Range get status 416.
    no_ranges: bool = False
    # Blobs are at this address; "PORT" is replaced. A path of this server beginning with /elsewhere/ has them.
    redirect: str = ""
    # Answers to POST and PATCH have this Location; "PORT" is replaced.
    location: str = ""
    # PATCH is answered with this status.
    patch_status: int = 202
    # The first PATCH requests store half of their body and close the connection.
    cut_parts: int = 0
    # If it is not 0: of the PATCH requests, this one is answered with status 400.
    refused_part: int = 0
    # The first PUT requests that end an upload with parts are done, but the connection is closed without an answer.
    lost_answers: int = 0
    # With `lost_answers`: the connection stays open until the client closes it.
    silent: bool = False
    # Answers to requests with a body come when the client has waited for so long.
    slow_s: float = 0.0
    # Each answer closes the connection.
    closes: bool = False
    # Sent in place of each manifest.
    manifest: str = ""
    # Sent in place of the manifest of each tag.
    index: str = ""
    # The size in each manifest is this one.
    claimed_size: int = 0
    # Requests whose path has this text get this status, with Retry-After if it is not 0.
    refused: str = ""
    status: int = 500
    retry_after: int = 0
    code: str = ""


@dataclass
class State:
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, bytes] = field(default_factory=dict)
    uploads: dict[str, bytes] = field(default_factory=dict)
    cuts: int = 0
    part_cuts: int = 0
    parts: int = 0
    lost: int = 0
    tokens: dict[str, int] = field(default_factory=dict)
    # What the tokens permit, as in "repository:team/app:pull".
    rights: dict[str, set[str]] = field(default_factory=dict)


class Registry(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(("", options.port), Handler)
        self.folder: Path = options.folder
        self.port: int = options.port
        self.requests = (self.folder / "requests").open("a", buffering=1)
        self.lock = threading.Lock()
        self.state = State()

    def behaviour(self) -> Behaviour:
        file = self.folder / "behaviour.json"
        return Behaviour(**json.loads(file.read_text())) if file.exists() else Behaviour()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Registry
    wbufsize = 1 << 16

    def log_message(self, format: str, *args: object) -> None:
        pass

    def answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None, cut: int = -1) -> None:
        kind = self.headers.get("Authorization", "none").partition(" ")[0].lower()
        with self.server.lock:
            self.server.requests.write(f"{self.command} {self.path} {status} {kind}\n")
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.behaviour.closes:
            self.close_connection = True
        if self.command != "HEAD":
            self.wfile.write(body if cut < 0 else body[:cut])
        if cut >= 0:
            self.close_connection = True

    def error(self, status: int, code: str, headers: dict[str, str] | None = None) -> None:
        body = json.dumps({"errors": [{"code": code, "message": "\x1b[31mno"}]}) if code else "no"
        self.answer(status, body.encode(), headers)

    def serve(self) -> None:
        self.behaviour = self.server.behaviour()
        self.state = self.server.state
        length = int(self.headers.get("Content-Length", "0"))
        if self.command == "PATCH" and self.state.part_cuts < self.behaviour.cut_parts:
            self.state.part_cuts += 1
            self.state.uploads[urlsplit(self.path).path] += self.rfile.read(length // 2)
            self.close_connection = True
            return
        body = self.rfile.read(length)
        if body and self.behaviour.slow_s and not self.client_waits(self.behaviour.slow_s):
            self.close_connection = True
            return
        path = urlsplit(self.path).path
        if self.behaviour.refused and self.behaviour.refused in path:
            pause = {"Retry-After": str(self.behaviour.retry_after)} if self.behaviour.retry_after else {}
            self.error(self.behaviour.status, self.behaviour.code, pause)
        elif path == "/token":
            self.token(body)
        elif path.startswith("/elsewhere/"):
            self.blob(path.removeprefix("/elsewhere/"))
        elif self.is_permitted():
            self.run(path, body)

    do_GET = do_PUT = do_HEAD = do_POST = do_PATCH = serve

    def client_waits(self, seconds: float | None) -> bool:
        """Whether the client keeps the connection open for so long. None: until it closes it."""
        return not select.select([self.connection], [], [], seconds)[0]

    def needed_right(self) -> tuple[str, str]:
        match = re.match(r"/v2/(.+)/(manifests|blobs)/", self.path)
        name = match[1] if match else ""
        writes = self.command in ("PUT", "POST", "PATCH") or "/uploads/" in self.path
        return name, f"repository:{name}:{'push' if writes else 'pull'}"

    def is_permitted(self) -> bool:
        kind, _, value = self.headers.get("Authorization", "").partition(" ")
        if self.behaviour.auth == "basic":
            known = f"{self.behaviour.user}:{self.behaviour.password}"
            if kind == "Basic" and base64.b64decode(value).decode() == known:
                return True
            self.error(401, "UNAUTHORIZED", {"WWW-Authenticate": 'Basic realm="tests"'})
            return False
        if self.behaviour.auth == "bearer":
            name, right = self.needed_right()
            left = self.state.tokens.get(value, 0)
            self.state.tokens[value] = left - 1
            if kind == "Bearer" and left > 0 and right in self.state.rights[value]:
                return True
            realm = self.behaviour.realm or f"http://127.0.0.1:{self.server.port}/token"
            self.error(
                401,
                "UNAUTHORIZED",
                {
                    "WWW-Authenticate": f'Bearer realm="{realm}",service="tests, \\"quoted\\"",'
                    f'scope="{self.behaviour.scope.replace("NAME", name)}"'
                },
            )
            return False
        return True

    def token(self, body: bytes) -> None:
        form = parse_qs(body.decode()) if self.command == "POST" else parse_qs(urlsplit(self.path).query)
        known = "Basic " + base64.b64encode(f"{self.behaviour.user}:{self.behaviour.password}".encode()).decode()
        is_known = form.get("refresh_token") == ["identity-token-17"] or self.headers.get("Authorization") == known
        if not is_known or form.get("service") != ['tests, "quoted"'] or "scope" not in form:
            self.error(401, "UNAUTHORIZED")
            return
        token = f"bearer-token-{len(self.state.tokens)}"
        self.state.tokens[token] = self.behaviour.token_uses
        self.state.rights[token] = set()
        for scope in " ".join(form["scope"]).split():
            resource, _, actions = scope.rpartition(":")
            self.state.rights[token] |= {f"{resource}:{action}" for action in actions.split(",")}
        text = self.behaviour.token_answer or json.dumps({"token": token})
        self.answer(200, text.encode(), {"Content-Type": "application/json"})

    def blob(self, digest: str) -> None:
        blob = self.state.blobs.get(digest)
        if blob is None:
            self.error(404, "BLOB_UNKNOWN")
            return
        if self.behaviour.wrong_bytes:
            blob = blob[:-1] + bytes([blob[-1] ^ 1])
        blob += b"x" * self.behaviour.more_bytes
        first = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        begin = int(first[1]) if first and not self.behaviour.whole_blobs else 0
        if begin and (begin >= len(blob) or self.behaviour.no_ranges):
            self.error(416, "")
            return
        answers, most = self.behaviour.cut
        cut = -1
        if self.command == "GET" and self.state.cuts < answers:
            self.state.cuts += 1
            cut = most // 2 if self.behaviour.varying_cuts and self.state.cuts % 2 == 0 else most
        ranged = {"Content-Range": f"bytes {begin}-{len(blob) - 1}/{len(blob)}"} if begin else {}
        self.answer(206 if begin else 200, blob[begin:], ranged, cut)

    def location(self, path: str) -> str:
        return self.behaviour.location.replace("PORT", str(self.server.port)) or path

    def run(self, path: str, body: bytes) -> None:
        state = self.state
        match = re.fullmatch(r"/v2/(.+)/(manifests|blobs)/(.*)", path)
        if not match:
            self.error(404, "NAME_UNKNOWN")
            return
        _, kind, name = match.groups()
        query = parse_qs(urlsplit(self.path).query)
        if kind == "manifests" and self.command == "PUT":
            digest = "sha256:" + hashlib.sha256(body).hexdigest()
            state.manifests[name] = state.manifests[digest] = body
            self.answer(201, b"", {"Docker-Content-Digest": digest})
        elif kind == "manifests":
            text = self.behaviour.manifest.encode() or state.manifests.get(name)
            if self.behaviour.index and not name.startswith("sha256:"):
                text = self.behaviour.index.encode()
            if text and self.behaviour.claimed_size:
                manifest = json.loads(text)
                manifest["layers"][0]["size"] = self.behaviour.claimed_size
                text = json.dumps(manifest).encode()
            if text is None:
                self.error(404, "MANIFEST_UNKNOWN")
            else:
                self.answer(200, text, {"Content-Type": "application/vnd.oci.image.manifest.v1+json"})
        elif name == "uploads/":
            upload = f"{path}{len(state.uploads)}"
            state.uploads[upload] = b""
            self.answer(202, b"", {"Location": self.location(upload)})
        elif name.startswith("uploads/"):
            self.upload(path, body, query)
        elif self.behaviour.redirect and self.command == "GET":
            to = self.behaviour.redirect.replace("PORT", str(self.server.port))
            self.answer(307, b"", {"Location": to.replace("DIGEST", name)})
        else:
            self.blob(name)

    def upload(self, path: str, body: bytes, query: dict[str, list[str]]) -> None:
        state = self.state
        if path not in state.uploads:
            self.error(404, "BLOB_UPLOAD_UNKNOWN")
            return
        if self.command == "PATCH" and self.behaviour.patch_status != 202:
            self.error(self.behaviour.patch_status, "")
            return
        if self.command == "PATCH" and not self.headers["Content-Range"].startswith(f"{len(state.uploads[path])}-"):
            self.error(416, "")
            return
        if self.command == "PATCH":
            state.parts += 1
            if state.parts == self.behaviour.refused_part:
                self.error(400, "")
                return
        state.uploads[path] += body
        have = {"Location": self.location(path), "Range": f"0-{max(0, len(state.uploads[path]) - 1)}"}
        if self.command == "PATCH":
            self.answer(202, b"", have)
        elif self.command == "GET":
            self.answer(204, b"", have)
        else:
            blob = state.uploads.pop(path)
            digest = "sha256:" + hashlib.sha256(blob).hexdigest()
            if query["digest"] != [digest]:
                self.error(400, "DIGEST_INVALID")
                return
            state.blobs[digest] = blob
            if state.lost < self.behaviour.lost_answers and not body:
                state.lost += 1
                self.close_connection = True
                if self.behaviour.silent:
                    self.client_waits(None)
                return
            self.answer(201, b"", {"Docker-Content-Digest": digest})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    Registry(parser.parse_args()).serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
