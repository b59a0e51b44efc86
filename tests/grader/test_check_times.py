"""make check-times: two traces that differ in one nanosecond, or on one track, are told apart;
numbers of processes and arrows may differ.
"""

import json
import os
import unittest

from helpers import TempFolder

import check_times


def trace(folder, pid=7, arrow=1, ts=1.5, name="stream 1"):
    events = [
        {"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": "rank 0"}},
        {"ph": "M", "pid": pid, "tid": 3, "name": "thread_name", "args": {"name": name}},
        {"ph": "X", "pid": pid, "tid": 3, "ts": ts, "dur": 2.25, "name": "kernel_gelu"},
        {"ph": "s", "pid": pid, "tid": 3, "ts": ts, "id": arrow, "name": "event"},
    ]
    path = os.path.join(folder, "trace.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"traceEvents": events}, file)
    return check_times.times(path)


class Compared(TempFolder):
    def compare(self, **changed):
        check_times.compare("a run", trace(self.folder), trace(self.folder, **changed))

    def test_numbers_of_processes_and_arrows_are_not_compared(self):
        self.compare(pid=8, arrow=5)

    def test_a_nanosecond_is_told(self):
        with self.assertRaisesRegex(check_times.Differs, r"a run: 4 events[\s\S]*1\.501"):
            self.compare(ts=1.501)

    def test_a_track_is_told(self):
        with self.assertRaisesRegex(check_times.Differs, "stream 2"):
            self.compare(name="stream 2")

    def test_an_event_more_is_told(self):
        once = trace(self.folder)
        with self.assertRaisesRegex(check_times.Differs, "1 events"):
            check_times.compare("a run", once, once + type(once)(list(once)[:1]))


if __name__ == "__main__":
    unittest.main()
