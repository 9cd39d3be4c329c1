"""Sockets between a process and those that it starts."""

import socket


def waiting_pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets that wait, in whichever process they end up.

    Under a default timeout, which a program may have set and Beam sets when it logs in to GCP, a new socket does not
    wait; a process that inherits it, or is sent it, cannot tell.
    """
    pair = socket.socketpair()
    for end in pair:
        end.setblocking(True)
    return pair
