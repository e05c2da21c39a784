"""A network with a round trip, for a process of its own: loopback acknowledges at once.

``enter(delay)`` moves this process into a network namespace. What is sent to ``FAR`` arrives after the delay at this
process itself, at ``NEAR``. Linux, as root or with user namespaces.
"""

import ctypes
import fcntl
import os
import select
import socket
import struct
import threading
import time

NEAR = "10.99.0.1"
FAR = "10.99.0.2"
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TUN = 0x0001
IFF_NO_PI = 0x1000
SIOCSIFADDR = 0x8916
SIOCSIFNETMASK = 0x891C
SIOCSIFFLAGS = 0x8914
IFF_UP = 0x1


def enter(delay):
    """Enter the namespace. Raises OSError if the process may not."""
    flags = CLONE_NEWNET if os.geteuid() == 0 else CLONE_NEWNET | CLONE_NEWUSER
    if ctypes.CDLL(None, use_errno=True).unshare(flags):
        raise OSError(ctypes.get_errno(), "no namespace")
    tun = os.open("/dev/net/tun", os.O_RDWR)
    name = b"far".ljust(16, b"\0")
    fcntl.ioctl(tun, TUNSETIFF, name + struct.pack("H22x", IFF_TUN | IFF_NO_PI))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for request, address in ((SIOCSIFADDR, NEAR), (SIOCSIFNETMASK, "255.255.255.0")):
            family = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(address))
            fcntl.ioctl(sock, request, (name + family).ljust(40, b"\0"))
        fcntl.ioctl(sock, SIOCSIFFLAGS, name + struct.pack("H22x", IFF_UP))
    threading.Thread(target=_forward, args=(tun, delay), daemon=True).start()


def _forward(tun, delay):
    """Send each IPv4 packet back after the delay, with its addresses swapped: checksums stay right."""
    queued = []
    while True:
        wait = max(0.0, queued[0][0] - time.monotonic()) if queued else None
        if select.select([tun], [], [], wait)[0]:
            packet = os.read(tun, 65536)
            if packet[0] >> 4 == 4:
                queued.append((time.monotonic() + delay, packet[:12] + packet[16:20] + packet[12:16] + packet[20:]))
        while queued and queued[0][0] <= time.monotonic():
            os.write(tun, queued.pop(0)[1])
