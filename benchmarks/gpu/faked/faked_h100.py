"""An H100 as far as vLLM asks before it starts: a platform of its plugins, found by its entry point."""

from vllm.platforms.cuda import NonNvmlCudaPlatform
from vllm.platforms.interface import DeviceCapability


def name() -> str:
    """Where the class is."""
    return "faked_h100.FakedH100"


class FakedH100(NonNvmlCudaPlatform):  # type: ignore[misc]  # vLLM has no types
    """Answers without a driver."""

    @classmethod
    def get_device_capability(cls, device_id: int = 0) -> DeviceCapability:
        """That of Hopper."""
        return DeviceCapability(9, 0)

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        """As its driver says it."""
        return "NVIDIA H100 80GB HBM3"

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        """In bytes."""
        return 80 << 30

    @classmethod
    def is_fully_connected(cls, physical_device_ids: list[int]) -> bool:
        """There is one."""
        return False

    @classmethod
    def device_count(cls) -> int:
        """There is one."""
        return 1
