"""A spare driver process that never ends importing; run by test_engine."""

import signal

if __name__ == "__main__":
    signal.pause()
