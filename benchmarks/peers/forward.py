"""Listens on ports of this machine and passes bytes on: `python -m benchmarks.peers.forward TARGET HOST:PORT…`.

So an address that was a broker's becomes another cluster's, as when an address is given out again.
"""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _forward(target: str, addresses: Sequence[str]) -> None:
    host, _, port = target.rpartition(":")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = await asyncio.open_connection(host, int(port))
        await asyncio.gather(_copy(reader, upstream[1]), _copy(upstream[0], writer))

    for address in addresses:
        taken_host, _, taken_port = address.rpartition(":")
        await asyncio.start_server(serve, taken_host, int(taken_port))
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


@contextlib.contextmanager
def forwarded(addresses: Sequence[str], target: str) -> Iterator[None]:
    """Let these addresses lead to another one until the block ends."""
    command = [sys.executable, "-m", "benchmarks.peers.forward", target, *addresses]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        if process.stdout and process.stdout.readline() != "ready\n":
            raise SystemExit(f"nothing could listen on {', '.join(addresses)}")
        yield
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    asyncio.run(_forward(sys.argv[1], sys.argv[2:]))
