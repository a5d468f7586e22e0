"""What a bug in the driver does: it ends it, with a reason, instead of leaving streams to stand."""

import asyncio
from types import SimpleNamespace

from runtime.torch_engine.driver.loop import TorchDriver


class Panic(BaseException):
    """As llguidance raises: no ``Exception``."""


async def test_a_panic_in_a_callback_ends_the_driver():
    broke = list[BaseException]()
    driver, loop = SimpleNamespace(_broke=broke.append), asyncio.get_running_loop()
    loop.set_exception_handler(lambda *heard: TorchDriver.heard_of(driver, *heard))

    def callback():
        raise Panic

    loop.call_soon(callback)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [type(error) for error in broke] == [Panic]
