"""What this machine gives where the settings leave it open: to JetStream, to slow connections.

Source: nats-server 2.14 reference 2.8: three quarters of memory and of what is free on the disk.
What JetStream holds itself counts as free here, so that a restart leaves the limit as it was.
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

MEMORY_BYTES_GUESS: Final = 256 << 20
DISK_BYTES_GUESS: Final = 1 << 40
RESERVED_DESCRIPTORS_MAX: Final = 1024
BLOCK_BYTES: Final = 512  # of `st_blocks`, on every system
_GROUP_LIMITS: Final = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)
"""Where a container sees its own limit: control groups of version 2, and of version 1."""


def default_store_dir() -> Path:
    """Where JetStream's data is kept when nobody says where: lost with a reboot.

    nats-server uses one place for all users. Here each user has a directory of their own.
    """
    import tempfile  # only who has JetStream pays for it

    return Path(tempfile.gettempdir(), f"natsd-{os.geteuid()}")


def resolved(options: JetStreamOptions) -> JetStreamOptions:
    """The same settings with every size chosen; `store_dir` must be. Asks the file system."""
    memory, disk = options.max_memory_store, options.max_file_store
    return replace(
        options,
        max_memory_store=memory if memory >= 0 else memory_bytes(),
        max_file_store=disk if disk >= 0 else disk_bytes(options.directory),
    )


def memory_bytes() -> int:
    """Three quarters of the machine's memory."""
    total = _physical_bytes()
    return total // 4 * 3 if total > 0 else MEMORY_BYTES_GUESS


def pending_bytes_max(options: Options) -> int:
    """What the pending bytes of all connections may take: an eighth of the memory that this process
    may have, but room for two slow connections, where the settings leave it open."""
    if options.max_pending_total:
        return options.max_pending_total
    total = min(filter(None, (_physical_bytes(), _group_bytes())), default=MEMORY_BYTES_GUESS)
    return max(total // 8, 2 * options.max_pending)


def _physical_bytes() -> int:
    """The machine's memory; 0: it does not tell."""
    try:
        return max(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), 0)
    except (ValueError, OSError):
        return 0


def _group_bytes() -> int:
    """What the control group of this process may have; 0: no limit."""
    for path in _GROUP_LIMITS:
        try:
            text = Path(path).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        return int(text) if text.isdecimal() else 0
    return 0


def disk_bytes(directory: Path) -> int:
    """Three quarters of what is free where the directory is, or will be, and of what it holds."""
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
    """What file streams may take of a disk on which so much is free and JetStream holds so much."""
    return (free + held) // 4 * 3


def held_bytes(directory: Path) -> int:
    """What the files below the directory take of the disk; those that vanish meanwhile, nothing."""
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
    """Raise the soft limit of open files as far as allowed; children inherit it."""
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
    """Descriptors from this number on are not given to clients: the store has them left when it
    opens a file. Systems give out the lowest number that is free."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return sys.maxsize
    return soft - min(soft // 4, RESERVED_DESCRIPTORS_MAX)
