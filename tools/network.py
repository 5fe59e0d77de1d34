"""Network namespaces for measurements: a server and nodes, joined by a bridge. Needs root and `ip`."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Network:
    """A server at SERVER and `nodes` nodes, which end with the context."""

    SERVER = "10.213.77.1"
    # Packets of the nodes to this address are sent, and nobody receives them.
    LOST = "10.213.77.250"

    def __init__(self, nodes: int) -> None:
        prefix = f"kiln{os.getpid()}"
        self.server = f"{prefix}s"
        self.nodes = [f"{prefix}n{i}" for i in range(nodes)]

    def __enter__(self) -> "Network":
        # So that a command that is ended leaves nothing behind.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        for name in [self.server, *self.nodes]:
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", self.server, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", self.server, "addr", "add", f"{self.SERVER}/24", "dev", "br0")
        run("ip", "-n", self.server, "link", "set", "br0", "up")
        for i, node in enumerate(self.nodes):
            link = ["type", "veth", "peer", "name", "eth0", "netns", node]
            run("ip", "-n", self.server, "link", "add", f"n{i}", *link)
            run("ip", "-n", self.server, "link", "set", f"n{i}", "master", "br0", "up")
            run("ip", "-n", node, "addr", "add", f"10.213.77.{10 + i}/24", "dev", "eth0")
            run("ip", "-n", node, "link", "set", "eth0", "up")
            run("ip", "-n", node, "neigh", "add", self.LOST, "lladdr", "02:00:00:00:00:99", "dev", "eth0")
        return self

    def __exit__(self, *_: object) -> None:
        for name in [self.server, *self.nodes]:
            subprocess.run(["ip", "netns", "del", name], check=False)

    def command(self, node: int | None, *command: str) -> list[str]:
        """The command that runs in the namespace of a node, or of the server."""
        return ["ip", "netns", "exec", self.server if node is None else self.nodes[node], *command]

    def silence(self, lost: bool) -> str:
        """The command that drops all packets of the first node, or no longer does."""
        return f"ip -n {self.server} link set n0 {'down' if lost else 'up'}"


class Servers:
    """Redis and nginx in the namespace of the server."""

    PASSWORD = "sharing-figures-4711"

    def __init__(self, network: Network, folder: Path) -> None:
        (folder / "data").mkdir()
        configuration = folder / "nginx.conf"
        configuration.write_text(
            f"user root; daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;\n"
            "events { worker_connections 1024; }\n"
            f"http {{ access_log off; client_body_temp_path {folder}/body; client_max_body_size 1g;\n"
            f"  server {{ listen {Network.SERVER}:8080; root {folder}/data;\n"
            "    location / { dav_methods PUT DELETE; create_full_put_path on; dav_access user:rw; } } }\n"
        )
        redis = ["redis-server", "--port", "6379", "--bind", Network.SERVER, "--requirepass", self.PASSWORD, "--save", ""]
        self.redis = subprocess.Popen(
            network.command(None, *redis, "--dir", str(folder)), stdout=subprocess.DEVNULL
        )
        self.nginx = subprocess.Popen(network.command(None, "nginx", "-c", str(configuration)))
        self.urls = {
            "redis": f"redis://default:{self.PASSWORD}@{Network.SERVER}:6379/0",
            "nginx": f"http://{Network.SERVER}:8080/kiln",
        }

    def end(self) -> None:
        for process in (self.redis, self.nginx):
            process.terminate()
            process.wait()


def has_tools() -> bool:
    """Whether all programs are installed. Adds the folder of servers to the path."""
    os.environ["PATH"] = os.environ.get("PATH", "") + ":/usr/sbin"
    for tool in ("ip", "redis-server", "nginx"):
        if shutil.which(tool) is None:
            print(f"{tool} is not installed", file=sys.stderr)
            return False
    return True
