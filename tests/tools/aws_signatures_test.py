"""Compares the signatures of Kiln with those of botocore for random requests. The argument is the program that prints
Kiln's; exits with 77 if botocore is not installed."""

import hashlib
import json
import random
import subprocess
import sys
from datetime import datetime, timezone
from typing import TypedDict
from urllib.parse import quote

try:
    from botocore.auth import S3SigV4Auth  # type: ignore[import]
    from botocore.awsrequest import AWSRequest  # type: ignore[import]
    from botocore.credentials import Credentials  # type: ignore[import]
except ImportError:
    print("python3-botocore is not installed")
    sys.exit(77)

COUNT = 500
CHARACTERS = "abcXYZ0189-_.~ +/%&=?#:@!$'()*,;\"<>[]{}|\\^`äß€漢😀\u0301"
FIELDS = ("", " ", "  two  spaces ", "a", "a  b   c", "x=y&z", "%41", "+", "tab\there", ",", "text/plain; a=b")


class Request(TypedDict):
    method: str
    host: str
    path: str
    query: list[tuple[str, str]]
    headers: list[tuple[str, str]]
    payload_hash: str
    access_key: str
    secret_key: str
    token: str
    region: str
    time: int


class Signed(TypedDict):
    target: str
    headers: dict[str, str]


def text(random_: random.Random, most: int) -> str:
    return "".join(random_.choice(CHARACTERS) for _ in range(random_.randint(0, most)))


def make_request(random_: random.Random) -> Request:
    path = "/" + "/".join(text(random_, 8) for _ in range(random_.randint(0, 4)))
    query = [(text(random_, 5), text(random_, 8)) for _ in range(random_.randint(0, 5))]
    if query and random_.random() < 0.3:
        query.append((query[0][0], text(random_, 3)))
    headers = [(f"X-Amz-Meta-{random_.choice('abcDEF')}", random_.choice(FIELDS)) for _ in range(random_.randint(0, 4))]
    if random_.random() < 0.5:
        headers.append(("Content-Type", "application/octet-stream"))
    body = random_.randbytes(random_.choice((0, 1, 1000)))
    return Request(
        method=random_.choice(("GET", "PUT", "HEAD", "DELETE")),
        host=random_.choice(("bucket.s3.eu-west-1.amazonaws.com", "127.0.0.1:9000", "[::1]:9000", "s3.example")),
        path=path,
        query=query,
        headers=headers,
        payload_hash=hashlib.sha256(body).hexdigest(),
        access_key=random_.choice(("AKIDEXAMPLE", "ASIA0123456789ABCDEF")),
        secret_key=random_.choice(("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "s", "k" * 100)),
        token=random_.choice(("", "", "FwoGZXIvYXdzEDo//+==", "t" * 500)),
        region=random_.choice(("us-east-1", "eu-central-1", "cn-north-1", "x")),
        time=random_.randint(0, 4_000_000_000),
    )


def target_of(request: Request) -> str:
    query = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in request["query"])
    escaped = quote(request["path"], safe="/-_.~")
    return escaped + ("?" + "&".join(f"{name}={value}" for name, value in query) if query else "")


def signature_of(request: Request) -> str:
    """The header Authorization by botocore."""
    made = AWSRequest(
        method=request["method"],
        url=f"http://{request['host']}{quote(request['path'], safe='/-_.~')}",
        params=request["query"],
    )
    time = datetime.fromtimestamp(request["time"], timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    for name, value in request["headers"]:
        made.headers.add_header(name, value)
    made.headers["Host"] = request["host"]
    made.headers["X-Amz-Content-SHA256"] = request["payload_hash"]
    made.headers["X-Amz-Date"] = time
    if request["token"]:
        made.headers["X-Amz-Security-Token"] = request["token"]
    made.context["timestamp"] = time
    auth = S3SigV4Auth(Credentials(request["access_key"], request["secret_key"]), "s3", request["region"])
    signature = auth.signature(auth.string_to_sign(made, auth.canonical_request(made)), made)
    names = auth.signed_headers(auth.headers_to_sign(made))
    return f"AWS4-HMAC-SHA256 Credential={auth.scope(made)}, SignedHeaders={names}, Signature={signature}"


def main() -> int:
    seed = random.SystemRandom().randrange(2**32)
    random_ = random.Random(seed)
    requests = [make_request(random_) for _ in range(COUNT)]
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    ended = subprocess.run([sys.argv[1]], input=lines.encode(), stdout=subprocess.PIPE, check=True)
    answers: list[Signed] = [json.loads(line) for line in ended.stdout.splitlines()]
    wrong = 0
    for request, answer in zip(requests, answers, strict=True):
        right = (target_of(request), signature_of(request))
        got = (answer["target"], answer["headers"]["authorization"])
        if got != right:
            wrong += 1
            print(f"{json.dumps(request)}\n  is    {got}\n  not   {right}")
    print(f"{COUNT - wrong} of {COUNT} signatures equal those of botocore (seed {seed})")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
