"""Makes sockets between a process and its children."""

import socket


def waiting_pair() -> tuple[socket.socket, socket.socket]:
    """Makes two connected blocking sockets.

    Under a default timeout, which a program may have set and Beam sets when it logs in to GCP, a new socket does not
    block, which a process that inherits or receives it cannot see.
    """
    pair = socket.socketpair()
    for end in pair:
        end.setblocking(True)
    return pair
