"""A small S3 server, which checks each signature with botocore.

Objects are files of a folder, with the URL-encoded key as their name. Tests change the server's behaviour, while it
runs, with a JSON file: see Behaviour.
"""

import argparse
import hashlib
import json
import ssl
import sys
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from botocore.auth import SIGV4_TIMESTAMP, S3SigV4Auth  # type: ignore[import]
from botocore.awsrequest import AWSRequest  # type: ignore[import]
from botocore.credentials import Credentials  # type: ignore[import]

MAX_SKEW = timedelta(minutes=15)


@dataclass
class Behaviour:
    # Seconds by which the clock of the server is ahead.
    clock: int = 0
    # Whether session tokens have expired.
    expired: bool = False
    # The first requests get this answer, for example 503, with Retry-After if it is not 0.
    busy: int = 0
    busy_status: int = 503
    retry_after: int = 0
    # This many requests to GET an object do not see it after it was PUT.
    late: int = 0
    # Methods that the credentials do not permit.
    denied: list[str] = field(default_factory=list)
    # Keys of a page.
    page: int = 1000
    # A wrong region is answered with a redirect, as regions of AWS do, and not with an error.
    redirects: bool = False
    # A status and a code that all requests are answered with.
    answers: tuple[int, str] = (0, "")
    # Half of each refusal is sent.
    cut: bool = False
    # After the third page, the token of the first one is sent again.
    repeats: bool = False
    # More bytes of a listing.
    padding: int = 0


class Refused(Exception):
    def __init__(self, status: int, code: str, more: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(code)
        self.status, self.code, self.more, self.headers = status, code, more, headers or {}


class S3Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(("127.0.0.1", options.port), Handler)
        self.options = options
        self.objects: Path = options.folder / "objects"
        self.objects.mkdir(exist_ok=True)
        self.requests = (options.folder / "requests").open("a", buffering=1)
        self.lock = threading.Lock()
        self.behaviour_text = ""
        self.behaviour = Behaviour()
        self.busy = 0
        self.unseen: dict[str, int] = {}

    def current(self) -> Behaviour:
        """The behaviour that the file asks for now."""
        file: Path = self.options.folder / "behaviour.json"
        text = file.read_text() if file.exists() else "{}"
        with self.lock:
            if text != self.behaviour_text:
                self.behaviour_text, self.behaviour = text, Behaviour(**json.loads(text))
                self.busy = self.behaviour.busy
            return self.behaviour

    def is_busy(self) -> bool:
        with self.lock:
            self.busy -= 1
            return self.busy >= 0

    def is_late(self, key: str) -> bool:
        with self.lock:
            left = self.unseen.get(key, 0)
            self.unseen[key] = max(0, left - 1)
            return left > 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: S3Server
    # Otherwise the kernel delays the second part of an answer.
    wbufsize = 1 << 16

    def version_string(self) -> str:
        return "tests"

    def date_time_string(self, timestamp: float | None = None) -> str:
        return format_datetime(self.now(), usegmt=True)

    def log_message(self, format: str, *args: object) -> None:
        if self.server.options.verbose:
            super().log_message(format, *args)

    def now(self) -> datetime:
        return datetime.now(timezone.utc) + timedelta(seconds=self.behaviour.clock)

    def answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        with self.server.lock:
            self.server.requests.write(f"{self.command} {self.path} {status}\n")
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            if self.behaviour.cut and status >= 400:
                self.wfile.write(body[: len(body) // 2])
                self.wfile.flush()
                time.sleep(60)
            else:
                self.wfile.write(body)

    def serve(self) -> None:
        self.behaviour = self.server.current()
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        try:
            if self.server.is_busy():
                pause = {"Retry-After": str(self.behaviour.retry_after)} if self.behaviour.retry_after else {}
                raise Refused(self.behaviour.busy_status, "SlowDown", headers=pause)
            if self.behaviour.answers[0]:
                raise Refused(*self.behaviour.answers)
            self.check_signature(body)
            self.run(body)
        except Refused as refused:
            # As S3 does for wrong signatures, repeat what the client must not print.
            text = (
                f"<?xml version='1.0' encoding='UTF-8'?>\n<Error><Code>{refused.code}</Code><Message>no &amp; no</Message>"
                f"{refused.more}<CanonicalRequest>{escape(str(self.headers))}</CanonicalRequest></Error>"
            )
            self.answer(refused.status, text.encode(), {"Content-Type": "application/xml", **refused.headers})

    do_GET = do_PUT = do_HEAD = do_DELETE = serve

    def check_signature(self, body: bytes) -> None:
        options = self.server.options
        authorization = self.headers.get("Authorization")
        if authorization is None:
            raise Refused(403, "AccessDenied")
        algorithm, _, parts = authorization.partition(" ")
        fields = dict(part.strip().split("=", 1) for part in parts.split(","))
        access_key, day, region, service, end = fields["Credential"].split("/")
        if (algorithm, service, end) != ("AWS4-HMAC-SHA256", "s3", "aws4_request"):
            raise Refused(400, "AuthorizationHeaderMalformed")
        if access_key != options.access_key:
            raise Refused(403, "InvalidAccessKeyId")
        if region != options.region:
            known = {"x-amz-bucket-region": options.region}
            if self.behaviour.redirects:
                raise Refused(301, "PermanentRedirect", headers={**known, "Location": "http://127.0.0.1:1/"})
            raise Refused(400, "AuthorizationHeaderMalformed", f"<Region>{options.region}</Region>")
        signed = set(fields["SignedHeaders"].split(";"))
        needed = {name.lower() for name in self.headers if name.lower().startswith("x-amz-")}
        if not (needed | {"host", "x-amz-content-sha256", "x-amz-date"}) <= signed:
            raise Refused(403, "AccessDenied")

        url = urlsplit(self.path)
        request = AWSRequest(
            method=self.command,
            # S3 signs what it understood, so wrong escapes make a wrong signature.
            url=f"http://{self.headers['Host']}{quote(unquote(url.path), safe='/~')}",
            params=dict(parse_qsl(url.query, keep_blank_values=True)),
        )
        for name in signed:
            for value in self.headers.get_all(name) or []:
                request.headers.add_header(name, value)
        stamp = self.headers["x-amz-date"]
        request.context["timestamp"] = stamp
        auth = S3SigV4Auth(Credentials(options.access_key, options.secret_key), "s3", options.region)
        right = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
        if fields["Signature"] != right or day != stamp[:8]:
            raise Refused(403, "SignatureDoesNotMatch")
        sent = datetime.strptime(stamp, SIGV4_TIMESTAMP).replace(tzinfo=timezone.utc)
        if abs(self.now() - sent) > MAX_SKEW:
            raise Refused(403, "RequestTimeTooSkewed")
        if self.headers["x-amz-content-sha256"] != hashlib.sha256(body).hexdigest():
            raise Refused(400, "XAmzContentSHA256Mismatch")
        token = self.headers.get("x-amz-security-token", "")
        if token and self.behaviour.expired:
            raise Refused(400, "ExpiredToken")
        if token != options.token:
            raise Refused(400, "InvalidToken")

    def run(self, body: bytes) -> None:
        options = self.server.options
        url = urlsplit(self.path)
        host = self.headers["Host"].partition(":")[0]
        bucket, slash, key = unquote(url.path)[1:].partition("/")
        if host.endswith(".localhost"):
            bucket, key = host.removesuffix(".localhost"), unquote(url.path)[1:]
        if bucket != options.bucket:
            raise Refused(404, "NoSuchBucket")
        if self.command in self.behaviour.denied:
            raise Refused(403, "AccessDenied")
        if not key:
            self.answer(200, self.listing(dict(parse_qsl(url.query))), {"Content-Type": "application/xml"})
            return
        file = self.server.objects / quote(key, safe="")
        if self.command == "PUT":
            temporary = file.with_name(f".{threading.get_ident()}")
            temporary.write_bytes(body)
            temporary.rename(file)
            self.server.unseen[key] = self.behaviour.late
            self.answer(200)
        elif self.command == "DELETE":
            file.unlink(missing_ok=True)
            self.answer(204)
        elif self.server.is_late(key) or not file.exists():
            raise Refused(404, "NoSuchKey")
        elif "Range" in self.headers:
            content = file.read_bytes()[:1]
            if not content:
                raise Refused(416, "InvalidRange")
            self.answer(206, content)
        else:
            self.answer(200, file.read_bytes())

    def listing(self, query: dict[str, str]) -> bytes:
        if query.get("list-type") != "2":
            raise Refused(501, "NotImplemented")
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        names = set()
        for file in self.server.objects.iterdir():
            key = unquote(file.name)
            if file.name.startswith(".") or not key.startswith(prefix):
                continue
            end = key.find(delimiter, len(prefix)) if delimiter else -1
            names.add(key if end < 0 else key[: end + 1])
        after = bytes.fromhex(query.get("continuation-token", "")).decode()
        left = sorted(name for name in names if name > after)
        page = left[: self.behaviour.page]
        parts = [
            f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
            if delimiter and name.endswith(delimiter)
            else f"<Contents><Key>{escape(name)}</Key><Size>1</Size></Contents>"
            for name in page
        ]
        more = len(left) > len(page)
        if more:
            token = min(names) if self.behaviour.repeats and len(left) < len(names) - 1 else page[-1]
            parts.append(f"<NextContinuationToken>{token.encode().hex()}</NextContinuationToken>")
        parts.append(" " * self.behaviour.padding)
        return (
            '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Prefix>{escape(prefix)}</Prefix><IsTruncated>{str(more).lower()}</IsTruncated>{''.join(parts)}"
            "</ListBucketResult>"
        ).encode()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--bucket", required=True)
    parser.add_argument("--region", required=True)
    parser.add_argument("--access-key", required=True)
    parser.add_argument("--secret-key", required=True)
    parser.add_argument("--token", default="")
    parser.add_argument("--certificate", help="TLS: the file of the certificate")
    parser.add_argument("--private-key")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    server = S3Server(options)
    if options.certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options.certificate, options.private_key)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
