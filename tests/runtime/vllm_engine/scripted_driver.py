"""A driver process without vLLM: it obeys the options of its orders, answers every call with nothing, and ends with the service.

``python -m tests.runtime.vllm_engine.scripted_driver FD FOLDER``, in place of ``runtime.vllm_engine.driver.boot``.
"""

import os
import signal
import socket
import sys

from runtime.capabilities import Batching
from runtime.errors import Reason
from runtime.process.channel import BlockingChannel
from runtime.process.messages import Fatal, Prepared, Reply, Trouble
from runtime.vllm_engine.messages import ToDriver, VllmStarted


def main() -> None:
    channel = BlockingChannel(socket.socket(fileno=int(sys.argv[1])), ToDriver)
    messages = channel.messages()
    environment = next(messages).environment
    if "NEVER_PREPARED" in environment:
        signal.pause()
    if "CANNOT_IMPORT" in environment:
        sys.stderr.write("ImportError: no vllm here\n")
        channel.send(Fatal(Reason.LOAD_FAILED, "no vllm here", Trouble("EngineStartError", "no vllm here")))
        sys.exit(1)
    channel.send(Prepared())
    options = next(messages).options
    if options.get("is_refused"):
        channel.send(Fatal(Reason.LOAD_FAILED, "no such option", Trouble("EngineStartError", "no such option")))
        sys.exit(1)
    if os.getpid() in options.get("ended", ()):
        os.kill(os.getpid(), signal.SIGKILL)
    filled = Batching(options["max_num_seqs"], options["max_num_batched_tokens"])
    channel.send(VllmStarted("not told", 8, 32, 256, (os.getpid(),), (), 1e3, "scripted", filled))
    for message in messages:
        channel.send(Reply(message.call_id))


main()
