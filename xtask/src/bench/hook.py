"""Cost of the torch hook while nothing is asked of it: nanoseconds a call with and without it, a round per line."""

import sys
import tempfile
import time

sys.path.insert(0, sys.argv[1])
import steptally_hook

ROUNDS, CALLS = int(sys.argv[2]), 300_000


class Runner:
    def forward(self, batch):
        return batch


def call_ns(runner):
    start = time.perf_counter_ns()
    for _ in range(CALLS):
        runner.forward(None)
    return (time.perf_counter_ns() - start) / CALLS


with tempfile.TemporaryDirectory() as folder:
    plain = Runner.forward
    for _ in range(ROUNDS):
        runner = Runner()
        without = call_ns(runner)
        steptally_hook.Hook(folder, Runner, "forward", lambda args, kwargs: None).wrap()
        assert Runner.forward is not plain
        print(call_ns(runner), without)
        Runner.forward = plain
