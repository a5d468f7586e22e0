"""A program of a test's agent: says back what it is told, and ends, floods or starts others when told so."""

import os
import socket
import subprocess
import sys

from runtime.process.channel import BlockingChannel
from runtime.process.messages import Beat, Fatal

channel = BlockingChannel(socket.socket(fileno=int(sys.argv[1])), Beat | Fatal)
for message in channel.messages():
    match message:
        case Beat(0.0):
            sys.stderr.write("Error: asked to end\n")
            sys.stderr.flush()
            os._exit(3)
        case Beat(1.0):
            channel.send(Beat(float(subprocess.Popen(["sleep", "600"]).pid)))
        case Beat(2.0):
            for number in range(200):
                channel.send(Fatal(reason="engine_lost", detail=f"{number} {'x' * 100_000}"))  # type: ignore[arg-type]
        case _:
            channel.send(message)
