"""Triton kernels over KV that lies in chunks.

Each finds a block by its id through a table of addresses.

A table row is one slab: ``chunks[block // CHUNK_BLOCKS]`` is the address of the chunk that a block lies in. A block is
``[2, STACK, BLOCK_SIZE, DIM]``, K first. Only who launches them imports this: Triton is an extra (``gpu``).
"""

import triton
import triton.language as tl


@triton.jit
def write(
    k,
    v,
    blocks,
    positions,
    chunks,
    k_stride,
    v_stride,
    num_chunks,
    layer,
    STACK: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    CHUNK_BLOCKS: tl.constexpr,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Put one token's K and V of one head, ``[tokens, heads, DIM]``, into its slot.

    Grid: (tokens, KV heads).
    """
    token, head = tl.program_id(0), tl.program_id(1)
    block, position = tl.load(blocks + token), tl.load(positions + token)
    chunk = tl.load(chunks + head * num_chunks + block // CHUNK_BLOCKS).to(k.dtype)
    slot = ((block % CHUNK_BLOCKS) * 2 * STACK + layer) * BLOCK_SIZE + position % BLOCK_SIZE
    value = tl.arange(0, WIDTH)
    here = value < DIM
    key = tl.load(k + token.to(tl.int64) * k_stride + head * DIM + value, mask=here)
    tl.store(chunk + slot * DIM + value, key, mask=here)
    val = tl.load(v + token.to(tl.int64) * v_stride + head * DIM + value, mask=here)
    tl.store(chunk + (slot + STACK * BLOCK_SIZE) * DIM + value, val, mask=here)


@triton.jit
def attend(
    out,
    q,
    tiles,
    tables,
    chunks,
    out_stride,
    q_stride,
    num_chunks,
    layer,
    scale,
    GROUP: tl.constexpr,
    STACK: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    CHUNK_BLOCKS: tl.constexpr,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Causal attention of a tile of queries over the blocks of their sequence. Grid: (tiles, KV heads).

    A tile is (its first row of ``q``, that row's position, tokens, where its sequence's table begins in ``tables``). A
    row here is one token's query of one of the ``GROUP`` heads that share a KV head; the softmax is taken online.
    """
    tile, head = tiles + 4 * tl.program_id(0), tl.program_id(1)
    first, start, count, table = tl.load(tile), tl.load(tile + 1), tl.load(tile + 2), tl.load(tile + 3)
    row, value = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    token, query_head = row // GROUP, head * GROUP + row % GROUP
    valid = (token < count)[:, None] & (value < DIM)[None, :]
    within = query_head[:, None] * DIM + value[None, :]
    query = tl.load(q + (first + token)[:, None] * q_stride + within, mask=valid, other=0.0)
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    answer = tl.zeros([ROWS, WIDTH], tl.float32)
    end = start + count
    for at in range(0, end, COLUMNS):
        position = at + tl.arange(0, COLUMNS)
        there = position < end
        block = tl.load(tables + table + position // BLOCK_SIZE, mask=there, other=0)
        chunk = tl.load(chunks + head * num_chunks + block // CHUNK_BLOCKS, mask=there, other=0).to(q.dtype)
        chunk = tl.multiple_of(
            chunk, 16
        )  # what a table holds has no known alignment: 2 bytes would be loaded at a time
        slot = ((block % CHUNK_BLOCKS) * 2 * STACK + layer) * BLOCK_SIZE + position % BLOCK_SIZE
        keys = chunk[:, None] + slot[:, None] * DIM + value[None, :]
        held = there[:, None] & (value < DIM)[None, :]  # what lies past the end may be NaN
        key = tl.load(keys, mask=held, other=0.0)
        weight = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
        weight = tl.where(position[None, :] <= (start + token)[:, None], weight, float("-inf"))
        weight = tl.where(there[None, :], weight, float("-inf"))
        higher = tl.maximum(top, tl.max(weight, 1))
        weight = tl.exp(weight - higher[:, None])
        fade = tl.exp(top - higher)
        val = tl.load(keys + STACK * BLOCK_SIZE * DIM, mask=held, other=0.0)
        total = total * fade + tl.sum(weight, 1)
        answer = answer * fade[:, None] + tl.dot(weight.to(val.dtype), val, input_precision="ieee")
        top = higher
    places = (first + token)[:, None] * out_stride + within
    tl.store(out + places, (answer / total[:, None]).to(out.dtype.element_ty), mask=valid)


@triton.jit(do_not_specialize=["first_stack", "first_head", "num_heads", "all_heads", "num_chunks"])
def copy(
    target,
    source,
    parts,
    first_stack,
    first_head,
    num_heads,
    all_heads,
    num_chunks,
    STACK: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    CHUNK_BLOCKS: tl.constexpr,
    WORDS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Copy parts of blocks from a peer's chunks to the same blocks of one's own.

    Grid: (parts, slabs of the box).

    A part is (block, first position, the one after its last): of K and V, and of each layer of the stack. ``WORDS`` are
    the int32 values of one token's K.
    """
    part, slab = parts + 3 * tl.program_id(0), tl.program_id(1)
    block, start, stop = tl.load(part), tl.load(part + 1), tl.load(part + 2)
    stack, head = first_stack + slab // num_heads, first_head + slab % num_heads
    entry = (stack * all_heads + head) * num_chunks + block // CHUNK_BLOCKS
    here = tl.load(target + entry).to(tl.pointer_type(tl.int32))
    there = tl.load(source + entry).to(tl.pointer_type(tl.int32))
    here, there = tl.multiple_of(here, 16), tl.multiple_of(there, 16)
    for half in range(2 * STACK):
        row = ((block % CHUNK_BLOCKS) * 2 * STACK + half) * BLOCK_SIZE
        for at in range(start * WORDS, stop * WORDS, TILE):
            word = at + tl.arange(0, TILE)
            values = tl.load(there + row * WORDS + word, mask=word < stop * WORDS)
            tl.store(here + row * WORDS + word, values, mask=word < stop * WORDS)
