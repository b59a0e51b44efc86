"""Another account for what students wrote, where the grader runs as root.

Course platforms start a grader as root, in a container that holds the results, the hidden tests and
the reference's objects. A program that runs as somebody else can neither write the first nor read
the others, and it cannot end the grader, whatever way it finds around the other checks. Elsewhere
(a student's own machine, an account of Autolab's) there is no second account to be had, and nothing
changes.

Interface: find(name) -> Account, or None where the name is empty; Account.start() (what
subprocess.Popen is told), .give(path); hide(path); NoAccount.
"""

import os
import pwd
import stat
from dataclasses import dataclass


class NoAccount(Exception):
    """There is no such account, or nobody may change to it; the text says which."""


@dataclass(frozen=True)
class Account:
    name: str
    uid: int
    gid: int

    def start(self):
        """Keywords for subprocess.Popen."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def give(self, path):
        """Makes a file or folder the account's own."""
        os.chown(path, self.uid, self.gid, follow_symlinks=False)


def find(name):
    """The account of this name."""
    if not name:
        return None
    if os.geteuid() != 0:
        raise NoAccount("tests can run as %s only where the grader runs as root" % name)
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise NoAccount("there is no account %s on this machine" % name)
    if entry.pw_uid == 0:
        raise NoAccount("%s is root, which can read every file: name another account" % name)
    return Account(name, entry.pw_uid, entry.pw_gid)


def hide(path):
    """Keeps a folder or file from everybody but its owner, where it is there."""
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
        os.chmod(path, mode & 0o700)
    except FileNotFoundError:
        pass
