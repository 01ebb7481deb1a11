"""The person who runs this process, as the operating system knows them."""

import os
import pwd
from pathlib import Path

NO_SIGN_IN = (1 << 32) - 1
"""The kernel's audit id of a process that no sign-in has begun (proc(5))."""


def os_user() -> str:
    """Name of the user of this process; if that user became another one, as with sudo, also who had signed in."""
    user_id, signed_in_id = os.getuid(), _signed_in_id()
    name = _name(user_id)
    if signed_in_id is None or signed_in_id == user_id:
        return name
    return f"{name}, signed in as {_name(signed_in_id)}"


def _signed_in_id() -> int | None:
    try:
        user_id = int(Path("/proc/self/loginuid").read_text())
    except (OSError, ValueError):  # no Linux, or a kernel without audit
        return None
    return None if user_id == NO_SIGN_IN else user_id


def _name(user_id: int) -> str:
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:  # a container may have no such user
        return f"uid {user_id}"
