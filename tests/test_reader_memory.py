"""The memory of batches: aligned, used again only when nobody looks at it, and let go."""

import gc
import os
import threading
import weakref

import numpy as np
import pytest
import tensorflow as tf

from recordmill.transforms.base.buffers import SMALL, SPARE, BatchMemory, pixels_read_soon

SHAPE = (64, 1024)  # of uint8: as much as is not small


def place(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32, np.bool_, tf.bfloat16.as_numpy_dtype])
@pytest.mark.parametrize("shape", [(64, 1024), (3, 50_001), (0, 7), (5,), ()])
def test_an_array_has_its_shape_and_dtype_and_large_ones_a_page(shape: tuple[int, ...], dtype: type) -> None:
    array = BatchMemory().empty(shape, dtype)
    assert (array.shape, array.dtype) == (shape, dtype)
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert array.nbytes < SMALL or place(array) % 4096 == 0
    array[...] = 1


@pytest.mark.parametrize("shape", [(256, 256, 3), (7, 5, 1), (480, 480, 3), (1, 1, 1)])
def test_rows_that_are_read_soon_begin_where_libjpeg_turbo_keeps_them_in_the_cache(shape: tuple[int, ...]) -> None:
    kept = [pixels_read_soon(shape) for _ in range(9)]  # malloc aligns to 16 bytes, every other time to 32
    assert {place(array) % 32 for array in kept} == {8}
    assert {(array.shape, array.dtype.name, array.flags.c_contiguous) for array in kept} == {(shape, "uint8", True)}
    assert all(array.flags.writeable for array in kept)


def test_memory_is_used_again_when_the_last_view_is_gone() -> None:
    memory = BatchMemory()
    first = memory.empty(SHAPE, np.uint8)
    at, view = place(first), first[3:5].T.view(np.int8)
    del first
    second = memory.empty(SHAPE, np.uint8)
    assert place(second) != at
    del view
    assert place(memory.empty(SHAPE, np.int8)) == at


def test_a_smaller_array_takes_memory_of_the_next_power_of_two() -> None:
    memory = BatchMemory()
    at = place(memory.empty((100, 1024), np.uint8))
    assert place(memory.empty((66, 1024), np.uint8)) == at
    assert place(memory.empty((64, 1024), np.uint8)) != at


def test_tensorflow_takes_an_array_without_a_copy() -> None:
    array = BatchMemory().empty(SHAPE, np.uint8)
    array.fill(1)
    tensor = tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    array[0, 0] = 7
    assert tensor.numpy()[0, 0] == 7


@pytest.mark.first(1)
@pytest.mark.parametrize(("mebibytes", "spare"), [(16, SPARE), (1, 32)])
def test_no_more_is_kept_than_a_few_maps_and_none_after_the_end(mebibytes: int, spare: int) -> None:
    memory = BatchMemory()
    many = [memory.empty((mebibytes << 20,), np.uint8) for _ in range(2 * spare)]
    last = many[-1]
    many.clear()
    assert [len(maps) for maps in memory._spare.values()] == [spare]
    memory.close()
    del last
    assert memory._spare == {}
    kept = memory.empty(SHAPE, np.uint8)
    kept.fill(3)
    ended = weakref.ref(memory)
    del memory
    gc.collect()
    assert ended() is None
    assert (kept == 3).all(), "an array outlives its pool"


def test_threads_never_share_an_array() -> None:
    memory, wrong = BatchMemory(), []

    def fill(number: int) -> None:
        for _ in range(200):
            array = memory.empty(SHAPE, np.uint8)
            array.fill(number)
            if not (array == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=fill, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_writes_into_pages_of_its_own() -> None:
    memory = BatchMemory()
    array = memory.empty(SHAPE, np.uint8)
    array.fill(1)
    child = os.fork()
    if not child:
        array.fill(2)
        os._exit(0)
    os.waitpid(child, 0)
    assert (array == 1).all()
