"""`python windows_like.py ARGUMENTS`: import all of filtercov and run `filtercov ARGUMENTS` as if on Windows.

As far as Linux can pretend: the modules, calls, signals and flags that Windows does not have are gone, directories
cannot be opened, only what may be written can be flushed, names have no colons, and the output is cp1252. Third parties
have chosen their system by then: they are imported first. What is not pretended: backslashes, drive letters, files that
cannot be replaced while they are open, and the locks of Windows, which are filelock's affair.
"""

import errno
import importlib
import importlib.abc
import os
import pkgutil
import signal
import sys
from types import ModuleType

THIRD_PARTIES = "filelock matplotlib.figure PIL.Image rich.live safetensors.torch threadpoolctl torch typer".split()
POSIX_MODULES = "crypt fcntl grp nis ossaudiodev pty pwd readline resource spwd syslog termios tty".split()
POSIX_CALLS = (
    "chown fchdir fchmod fchown fork forkpty getegid geteuid getgid getgroups getloadavg getpgid getuid killpg lchown "
    "mkfifo mknod nice posix_fadvise posix_fallocate pread preadv pwrite pwritev sched_getaffinity sched_setaffinity "
    "sched_yield sendfile setsid statvfs sysconf sync tcgetpgrp uname wait3 wait4 O_CLOEXEC O_DIRECTORY O_NOFOLLOW "
    "O_NONBLOCK O_SYNC"
).split()
POSIX_SIGNALS = "SIGALRM SIGCHLD SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2".split()
FORBIDDEN_IN_NAMES = set('<>:"|?*\\')


class NoPosix(importlib.abc.MetaPathFinder):
    """Refuses the modules that Windows does not have."""

    def find_spec(self, name, _path=None, _target=None):
        if name in POSIX_MODULES:
            raise ImportError(f"No module named {name!r}", name=name)


def pretend():
    """Take away what Windows does not have, and make what it has behave as there."""
    for name in POSIX_MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, NoPosix())
    whole_os = ModuleType("os")  # for filelock, which locks this system's files
    vars(whole_os).update(vars(os))
    for name, module in sys.modules.items():
        if name.startswith("filelock.") and getattr(module, "os", None) is os:
            module.os = whole_os
    for name in POSIX_CALLS:
        vars(os).pop(name, None)
    for name in POSIX_SIGNALS:
        vars(signal).pop(name, None)
    os.O_BINARY = 0x8000  # to Linux it means nothing
    os.open, os.fsync = opening(os.open), syncing(os.fsync)
    sys.addaudithook(check_name)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="cp1252")


def opening(real):
    """Return an os.open that opens no directories, and insists on binary."""

    def opened(path, flags, mode=0o777, **more):
        if os.path.isdir(path):  # noqa: PTH112 - this stands below pathlib
            raise PermissionError(errno.EACCES, "Permission denied", path)
        if sys._getframe(1).f_globals.get("__name__", "").startswith("filtercov") and flags & (os.O_WRONLY | os.O_RDWR):
            assert flags & os.O_BINARY or not flags & os.O_CREAT, f"{path} would be written as text"
        return real(path, flags, mode, **more)

    return opened


def syncing(real):
    """Return an os.fsync that needs a handle which may write."""

    def synced(handle):
        os.write(handle, b"")
        real(handle)

    return synced


def check_name(event, arguments):
    """Refuse to make files with names that Windows does not allow."""
    if event in ("open", "os.mkdir", "os.rename") and isinstance(arguments[0], str):
        target = arguments[1] if event == "os.rename" else arguments[0]
        writes = event != "open" or (isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR))
        assert not (writes and FORBIDDEN_IN_NAMES & set(str(target))), f"Windows has no file {target}"


def import_everything():
    """Import all modules of the package that its dependencies suffice for."""
    import filtercov

    frameworks = {f"filtercov.{name}" for name in ("jax", "keras")}  # optional, and slow to import
    for module in pkgutil.walk_packages(filtercov.__path__, "filtercov."):
        if module.name not in frameworks and not module.name.endswith("._native"):
            importlib.import_module(module.name)


if __name__ == "__main__":
    for name in THIRD_PARTIES:
        importlib.import_module(name)
    pretend()
    import_everything()
    from filtercov.cli import main

    main()
