"""No device: kernels are interpreted."""

from triton.backends.driver import DriverBase


class NoDriver(DriverBase):
    """Says that it is there; is asked nothing else."""

    @classmethod
    def is_active(cls):
        return True


NoDriver.__abstractmethods__ = frozenset()
