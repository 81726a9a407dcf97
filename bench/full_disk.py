"""A small file system of one's own, and a file in it that takes the rest of the room away.

Why it exists: a full disk has to be real - fallocate, write and fsync must answer ENOSPC in the kernel's own ways - and nobody else's disk
may suffer. So the tool mounts one under build/, which needs root, and unmounts it whatever happens.
Rule: only the path given here is ever mounted or unmounted; one that a killed run left behind is unmounted first.
"""

import os
import subprocess
import time
from pathlib import Path

from common import Problem, output_of

KINDS = ("tmpfs", "ext4")
BALLAST = "ballast"
STEP = 1 << 20
PATIENCE = 30


def need_root():
    """A Problem for everybody else."""
    if os.geteuid() != 0:
        raise Problem("a file system can only be mounted by root: run this as root, for example in a container of your own.")


class SmallDisk:
    """The mounted file system, from `mount` to `unmount`."""

    def __init__(self, path, kind, size):
        self.path, self.kind, self.size = Path(path).resolve(), kind, size
        self.image = self.path.with_name(self.path.name + ".image")

    def mount(self):
        """An empty file system at the path."""
        need_root()
        self.unmount()
        self.path.mkdir(parents=True, exist_ok=True)
        if self.kind == "tmpfs":
            output_of(["mount", "-t", "tmpfs", "-o", f"size={self.size}", "tmpfs", self.path])
            return
        with open(self.image, "wb") as image:
            image.truncate(self.size)
        output_of(["mkfs.ext4", "-q", "-m", "0", "-F", self.image])
        output_of(["mount", "-o", "loop", self.image, self.path])

    def unmount(self):
        """Gives everything back; does nothing when nothing is mounted."""
        deadline = time.monotonic() + PATIENCE
        while os.path.ismount(self.path):
            done = subprocess.run(["umount", str(self.path)], capture_output=True, text=True, check=False)
            if done.returncode and time.monotonic() > deadline:
                raise Problem(f"{self.path} cannot be unmounted: {done.stderr.strip()}")
            time.sleep(0.05 if done.returncode else 0)  # threads of a process that was killed hold it for a moment
        if self.path.exists():
            self.path.rmdir()
        self.image.unlink(missing_ok=True)

    def copy_to(self, folder):
        """What a failed run leaves for whoever looks into it; the ballast stays behind."""
        subprocess.run(["rm", "-rf", str(folder)], check=True)
        output_of(["cp", "-a", "--sparse=always", self.path, folder])
        (Path(folder) / BALLAST).unlink(missing_ok=True)

    def free(self):
        """Bytes that root may still write."""
        found = os.statvfs(self.path)
        return found.f_bfree * found.f_frsize

    def fill(self, leave):
        """Takes all room but `leave` bytes, while others write too; returns what was left in the end."""
        handle = os.open(self.path / BALLAST, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            taken = os.fstat(handle).st_size
            while True:
                wanted = min(self.free() - leave, 64 * STEP)
                if wanted < 4096:
                    return self.free()
                try:
                    os.posix_fallocate(handle, taken, wanted)
                    taken += wanted
                except OSError:
                    if wanted < 2 * STEP:
                        return self.free()
                    leave += STEP  # somebody else was quicker
        finally:
            os.close(handle)

    def relieve(self):
        """Takes the ballast away."""
        (self.path / BALLAST).unlink(missing_ok=True)
