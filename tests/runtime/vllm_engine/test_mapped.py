"""Staging memory that a GPU reaches: registered in steps, as far as it is used, and undone; CUDA's calls are written down."""

import torch

from runtime.vllm_engine import mapped
from runtime.vllm_engine.mapped import MappedSlots

SLOT_BYTES = 4096


class WrittenDown:
    """Registers up to a bound."""

    def __init__(self, bound: int = 1 << 60) -> None:
        self.ranges: dict[int, int] = {}
        self.bound = bound

    def register(self, address, num_bytes):
        if sum(self.ranges.values()) + num_bytes > self.bound:
            return "cudaHostRegister: error 2"
        self.ranges[address] = num_bytes
        return ""

    def unregister(self, address):
        del self.ranges[address]

    def view(self, slots):
        return slots.view(slots.shape)  # another tensor of the same memory


def test_slots_are_registered_in_steps_as_they_are_used_and_each_once(monkeypatch):
    monkeypatch.setattr(mapped, "STEP_BYTES", 4 * SLOT_BYTES)
    slots = torch.zeros(10, SLOT_BYTES, dtype=torch.uint8)
    memory = WrittenDown()
    mapping = MappedSlots(slots, memory)
    first = mapping.reaching(1)
    assert first is not slots
    assert first.data_ptr() == slots.data_ptr()
    assert memory.ranges == {slots.data_ptr(): 4 * SLOT_BYTES}
    assert mapping.reaching(3) is first
    assert len(memory.ranges) == 1
    mapping.reaching(9)
    assert memory.ranges[slots.data_ptr() + 4 * SLOT_BYTES] == 6 * SLOT_BYTES, "never past the end"
    mapping.close()
    mapping.close()
    assert memory.ranges == {}


def test_what_is_not_registered_is_reached_on_the_host_and_not_tried_again(monkeypatch, caplog):
    monkeypatch.setattr(mapped, "STEP_BYTES", 4 * SLOT_BYTES)
    slots = torch.zeros(10, SLOT_BYTES, dtype=torch.uint8)
    mapping = MappedSlots(slots, WrittenDown(bound=4 * SLOT_BYTES))
    assert mapping.reaching(3) is not slots
    assert mapping.reaching(4) is slots
    assert mapping.reaching(9) is slots
    assert mapping.reaching(0) is not slots, "what is registered stays so"
    assert len(caplog.records) == 1
    assert "error 2" in caplog.text


def test_memory_that_torch_does_not_show_is_reached_on_the_host_and_given_back(caplog):
    class Unshown(WrittenDown):
        def view(self, slots):
            raise RuntimeError("The specified pointer resides on host memory")

    slots = torch.zeros(10, SLOT_BYTES, dtype=torch.uint8)
    memory = Unshown()
    mapping = MappedSlots(slots, memory)
    assert mapping.reaching(3) is slots
    assert mapping.reaching(9) is slots
    assert "resides on host memory" in caplog.text
    mapping.close()
    assert memory.ranges == {}
