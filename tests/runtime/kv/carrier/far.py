"""The source of a move, in a namespace of a test: says its address, and the digest of what it was told to stage."""

import asyncio
import sys

from runtime.kv.carrier.carrier import Carrier
from runtime.process.launcher import LocalLauncher
from tests.runtime.kv.carrier.test_carrier import RUNS, SHAPE, TP2_TO_PP2, filled


async def main() -> None:
    stores = [filled(SHAPE, device) for device in (0, 1)]
    handles = {device: store.handle for device, store in enumerate(stores)}
    carrier = await Carrier.start(LocalLauncher("a"), SHAPE, TP2_TO_PP2, handles)
    await carrier.gather(RUNS)
    sys.stdout.write(f"{carrier.address.hex()} {(await carrier.digest(RUNS)).hex()}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    carrier.close()
    await carrier.process.close()


if __name__ == "__main__":
    asyncio.run(main())
