"""Beam's `multi_threading` is refused because it silently loses elements. If this fails, Beam has fixed it.

In that mode every element passes `TimeBasedBufferingClosableOutputStream`: its flusher thread takes the buffer, hands
it on and then clears it, while the worker goes on writing to it, and loses what it writes in between: about 1 % of some
millions of elements of a whole pipeline. Here the hand-over itself writes, as the worker may meanwhile.
"""

from apache_beam.runners.worker.data_plane import TimeBasedBufferingClosableOutputStream

NEVER = 10**9  # milliseconds until the flusher thread takes the buffer


def test_multi_threading_loses_what_is_written_while_its_buffer_is_flushed() -> None:
    received: list[bytes] = []

    def hand_over(data: bytes) -> None:
        received.append(data)
        if len(received) == 1:
            stream.write(b"meanwhile")

    stream = TimeBasedBufferingClosableOutputStream(received.append, hand_over, time_flush_threshold_ms=NEVER)
    stream.write(b"first")
    stream.flush()
    stream.write(b"last")
    stream.close()
    assert b"".join(received) == b"firstlast", (
        "nothing was lost: `pipeline.build.beam.jobs` may allow multi_threading again"
    )
