"""Runs tests that use passwords and tokens, and searches all that they print for these secrets.

The arguments are test programs. Logs of Kiln go to standard error, which is searched as well.
"""

import subprocess
import sys
from pathlib import Path

SECRETS = (
    "open-sesame-4711",
    "correct-horse",
    "battery-staple",
    "wrong-password-5520",
    "secret-word",
    "Signature=",
    "first-token",
    "second-token",
)
FILTER = "Sharing*:Places/*:Servers/*:S3Store*:*Password*:*Credential*:*Token*:*Secret*:CliConfig*:CliSharing*:*Key*"


def main() -> int:
    for program in sys.argv[1:]:
        ended = subprocess.run(
            [program, f"--gtest_filter={FILTER}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
        output = ended.stdout.decode(errors="replace")
        name = Path(program).name
        tests = output.count("[       OK ]")
        if ended.returncode != 0 or tests == 0:
            print(f"{output}\n{name} failed, or ran no test")
            return 1
        for secret in SECRETS:
            if secret in output:
                line = next(line for line in output.splitlines() if secret in line)
                print(f"{name} printed the secret {secret}: {line}")
                return 1
        print(f"{name}: {tests} tests print none of {len(SECRETS)} secrets")
    return 0


if __name__ == "__main__":
    sys.exit(main())
