#!/usr/bin/env python3
"""Runs a program and passes on what it prints as text alone: nothing in it commands the terminal.

The compiler's and the linker's messages hold lines, strings and names of the files that they are
about, and those may be anybody's. What the grader prints passes layout.safe(); `make build`, which
lets make print by itself, passes this.

Interface: plain.py COMMAND …; the exit status is the command's.
"""

import subprocess
import sys
import threading

from layout import safe

LONGEST = 1 << 16 # bytes of a line that are kept together


def relay(source, target):
    """Passes on the lines of a pipe until its end; a target that is closed takes no more."""
    with source:
        for line in iter(lambda: source.readline(LONGEST), b""):
            try:
                target.write(safe(line.decode("utf-8", "replace"), target.encoding))
                target.flush()
            except BrokenPipeError:
                return


def main(command):
    if not command:
        print("plain.py COMMAND …", file=sys.stderr)
        return 2
    try:
        # make's jobserver is in descriptors that the command inherits.
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   close_fds=False)
    except OSError as problem:
        print("%s cannot be started: %s" % (safe(command[0]), problem.strerror), file=sys.stderr)
        return 127
    readers = [threading.Thread(target=relay, args=pipes, daemon=True)
               for pipes in ((process.stdout, sys.stdout), (process.stderr, sys.stderr))]
    for reader in readers:
        reader.start()
    while True:
        try:
            status = process.wait()
            break
        except KeyboardInterrupt: # the command has it, too, and ends
            continue
    for reader in readers:
        reader.join()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
