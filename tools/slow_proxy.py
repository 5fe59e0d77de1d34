"""A TCP proxy on loopback whose answers, and connections, arrive later.

Usage: slow_proxy.py PORT MILLISECONDS HOST PORT. Prints a line once it listens.
"""

import asyncio
import sys


async def main(port: int, latency: float, host: str, target: int) -> None:
    async def serve(client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        # Connecting takes a round trip, too.
        await asyncio.sleep(latency)
        server, to_server = await asyncio.open_connection(host, target)

        async def forward() -> None:
            while data := await client.read(1 << 16):
                to_server.write(data)
            to_server.close()

        async def answer() -> None:
            loop = asyncio.get_running_loop()
            while data := await server.read(1 << 16):
                loop.call_later(latency, to_client.write, data)
            loop.call_later(2 * latency, to_client.close)

        await asyncio.gather(forward(), answer(), return_exceptions=True)

    async with await asyncio.start_server(serve, "127.0.0.1", port) as listener:
        print("ready", flush=True)
        await listener.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]) / 1000, sys.argv[3], int(sys.argv[4])))
