"""Why Beam's `multi_threading` is refused: it loses elements and says nothing. When this fails, Beam has mended it.

In that mode every element passes `TimeBasedBufferingClosableOutputStream`, whose flusher thread takes the buffer,
hands it on and then clears it, while the worker goes on writing into it: what was written in between is gone. A whole
pipeline loses about 1 % of some millions of elements; here the hand-over is slow, so that a short run is enough.
"""

import time

from apache_beam.runners.worker.data_plane import TimeBasedBufferingClosableOutputStream

ELEMENTS = 2_000


def test_multi_threading_loses_what_is_written_while_its_buffer_is_flushed() -> None:
    received: list[bytes] = []

    def hand_over(data: bytes) -> None:
        time.sleep(0.01)
        received.append(data)

    stream = TimeBasedBufferingClosableOutputStream(received.append, hand_over, time_flush_threshold_ms=1)
    for number in range(ELEMENTS):
        stream.write(number.to_bytes(4, "big"))
        stream.maybe_flush()
        time.sleep(0.0001)
    stream.close()
    assert len(b"".join(received)) < 4 * ELEMENTS, (
        "nothing was lost: `pipeline.build.beam.write_shards` may allow multi_threading again"
    )
