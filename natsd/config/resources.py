"""Default sizes that depend on the machine: of JetStream's stores and of pending bytes.

Source: nats-server's `dynJetStreamConfig` (server/jetstream.go) and `diskAvailable`: three quarters
of the memory and of the free disk space. In addition, natsd counts JetStream's own files as free,
so that a restart does not change the limit.
"""

import contextlib
import os
import resource
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from natsd.config.jetstream_options import JetStreamOptions
from natsd.config.options import Options

MEMORY_BYTES_GUESS: Final = 256 << 20  # if the system does not tell
DISK_BYTES_GUESS: Final = 1 << 40  # if the system does not tell
RESERVED_DESCRIPTORS_MAX: Final = 1024
BLOCK_BYTES: Final = 512  # unit of `st_blocks`, the same on every system
_GROUP_LIMITS: Final = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)
"""Files with a container's memory limit: control groups of version 2, and of version 1."""


def default_store_dir() -> Path:
    """Return JetStream's directory if none is configured; its content is lost with a reboot.

    nats-server uses one directory for all users; natsd uses one per user.
    """
    import tempfile  # here, since it loads OpenSSL: a fifteenth of a start

    return Path(tempfile.gettempdir(), _default_name())


def with_store_dir(options: Options) -> Options:
    """Return the options with a default `store_dir`, if JetStream is enabled without one."""
    jetstream = options.jetstream
    if not jetstream.enabled or options.store_dir or jetstream.store_dir:
        return options
    return replace(options, store_dir=default_store_dir())


def is_default_store_dir(directory: Path | None) -> bool:
    """Return whether the directory is that of `default_store_dir`."""
    is_named_so = directory is not None and directory.name == _default_name()
    return is_named_so and directory == default_store_dir()


def _default_name() -> str:
    return f"natsd-{os.geteuid()}"


def resolved(options: JetStreamOptions) -> JetStreamOptions:
    """Return the settings with -1 sizes replaced by this machine's; `store_dir` must not be None.

    Blocks on the disk.
    """
    memory, disk = options.max_memory_store, options.max_file_store
    return replace(
        options,
        max_memory_store=memory if memory >= 0 else memory_bytes(),
        max_file_store=disk if disk >= 0 else disk_bytes(options.directory),
    )


def memory_bytes() -> int:
    """Return three quarters of the machine's memory, in bytes."""
    total = _physical_bytes()
    return total // 4 * 3 if total > 0 else MEMORY_BYTES_GUESS


def pending_bytes_max(options: Options) -> int:
    """Return the limit on the memory that the pending bytes of all connections take.

    Without `max_pending_total` it is an eighth of the memory that this process may use, but at
    least twice `max_pending`.
    """
    if options.max_pending_total:
        return options.max_pending_total
    total = min(filter(None, (_physical_bytes(), _group_bytes())), default=MEMORY_BYTES_GUESS)
    return max(total // 8, 2 * options.max_pending)


def _physical_bytes() -> int:
    """Return the machine's memory in bytes; 0: unknown."""
    try:
        return max(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), 0)
    except (ValueError, OSError):
        return 0


def _group_bytes() -> int:
    """Return the memory limit of this process's control group in bytes; 0: no limit."""
    for path in _GROUP_LIMITS:
        try:
            text = Path(path).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        return int(text) if text.isdecimal() else 0
    return 0


def disk_bytes(directory: Path) -> int:
    """Return three quarters of the bytes that are free on the directory's disk or held by it.

    The directory need not exist yet. Blocks on the disk.
    """
    for place in (directory, *directory.absolute().parents):
        try:
            system = os.statvfs(place)
        except FileNotFoundError:
            continue
        except OSError:
            break
        return three_quarters(system.f_bavail * system.f_frsize, held_bytes(directory))
    return DISK_BYTES_GUESS


def three_quarters(free: int, held: int) -> int:
    """Return the limit of file streams: three quarters of the free bytes and JetStream's own."""
    return (free + held) // 4 * 3


def held_bytes(directory: Path) -> int:
    """Return the disk bytes of all files below a directory; vanished files count as 0."""
    total = 0
    directories = [str(directory)]
    while directories:
        with contextlib.suppress(OSError), os.scandir(directories.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    directories.append(entry.path)
                else:
                    with contextlib.suppress(OSError):
                        total += entry.stat(follow_symlinks=False).st_blocks * BLOCK_BYTES
    return total


def raise_open_files_limit() -> int:
    """Raise the soft limit of open files as far as allowed, and return it.

    Child processes inherit the limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 1 << 20 if hard == resource.RLIM_INFINITY else hard
    for limit in (wanted, 65_536, 10_240):
        if soft == resource.RLIM_INFINITY or limit <= soft:
            break
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        except (ValueError, OSError):
            continue
        return limit
    return soft


def descriptors_for_clients() -> int:
    """Return the lowest descriptor number that clients do not get.

    The descriptors from that number on are left for the store's files, since systems assign the
    lowest free number.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return sys.maxsize
    return soft - min(soft // 4, RESERVED_DESCRIPTORS_MAX)


def connections_possible() -> int:
    """Return how many more descriptors clients can get, with those that are open now."""
    return max(descriptors_for_clients() - _lowest_free_descriptor(), 0)


def open_files_for(connections: int) -> int:
    """Return the limit of open files with which so many connections more than now are possible."""
    clients = connections + _lowest_free_descriptor()
    return clients + min(clients // 3 + 1, RESERVED_DESCRIPTORS_MAX)


def _lowest_free_descriptor() -> int:
    """Return the number that the next open file gets; the limit if none can be opened."""
    try:
        descriptor = os.open(os.devnull, os.O_RDONLY)
    except OSError:
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    os.close(descriptor)
    return descriptor
