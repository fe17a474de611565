"""Records some decode steps of an LLM server with torch.profiler, without a change of its source.

    PYTHONPATH=FOLDER_OF_THIS_FILE STEPTALLY_HOOK_DIR=/some/folder python -m sglang.launch_server ...

When the module of a model runner is imported, its forward method is wrapped. While nothing is asked for, a step costs one
comparison of the clock, and the file STEPTALLY_HOOK_DIR/arm.json is looked for at most every 50 ms. When it is there, the wrapper
skips `skip` decode steps, records `record`, writes `ID-TP-RANK.trace.json.gz` and `ID-TP-RANK.key_averages.txt` to `out`, and
takes itself away again (unless `keep` is true). When the file goes before that, recording ends and what was recorded is thrown away.

arm.json: {"id": "1700000000", "skip": 20, "record": 30, "ranks": [0] or null for all, "out": "/folder", "activities": ["CPU", "GPU"],
           "record_shapes": true, "with_stack": false, "keep": false, "expires": seconds since the epoch}

It fails open: whatever goes wrong in the hook is written to STEPTALLY_HOOK_DIR/error-PID.txt, the wrapper takes itself away, and the
server's own call is made exactly once and returns what it returns.
"""

import functools
import importlib.abc
import importlib.machinery
import json
import os
import sys
import time
import traceback

# Module, class, method, and how to see whether a call is a decode step and of which batch size.
TARGETS = {
    "sglang.srt.model_executor.model_runner": ("ModelRunner", "forward", "_sglang_batch"),
    "vllm.v1.worker.gpu_model_runner": ("GPUModelRunner", "execute_model", "_vllm_batch"),
}
LOOK_EVERY_S = 0.05


def _sglang_batch(args, kwargs):
    """Batch size of a decode step; None for any other."""
    batch = args[0] if args else kwargs["forward_batch"]
    return batch.batch_size if batch.forward_mode.is_decode() else None


def _vllm_batch(args, kwargs):
    """One scheduled token per request is a decode step."""
    output = args[0] if args else kwargs["scheduler_output"]
    requests = len(output.num_scheduled_tokens)
    return requests if requests and output.total_num_scheduled_tokens == requests else None


class Hook:
    """The wrapper of one method, and what it is doing."""

    def __init__(self, folder, owner, method, batch_of):
        self.folder, self.owner, self.method, self.batch_of = folder, owner, method, batch_of
        self.original = getattr(owner, method)
        self.control = os.path.join(folder, "arm.json")
        self.next_look = 0.0
        self.order = None  # What is asked for, while it is.
        self.last_id = None  # The order that was carried out last.
        self.skip = self.left = 0
        self.profiler = None
        self.range = None
        self.removed = False

    def wrap(self):
        original = self.original

        @functools.wraps(original)
        def forward(runner, *args, **kwargs):
            if self.removed or (self.order is None and time.monotonic() < self.next_look):
                return original(runner, *args, **kwargs)
            recording = self.guarded(self.before, runner, args, kwargs)
            try:
                return original(runner, *args, **kwargs)
            finally:
                if recording:
                    self.guarded(self.after, runner)

        setattr(self.owner, self.method, forward)
        write_json(os.path.join(self.folder, "hook-%d.json" % os.getpid()), {
            "pid": os.getpid(), "target": "%s.%s.%s" % (self.owner.__module__, self.owner.__name__, self.method),
        })

    def guarded(self, what, *args):
        """What `what` returns; after an error None, and the wrapper is gone."""
        try:
            return what(*args)
        except Exception:
            self.remove()
            report(self.folder)
            return None

    def before(self, runner, args, kwargs):
        """Whether this call is recorded."""
        self.look()
        if self.order is None:
            return False
        batch = self.batch_of(args, kwargs)
        if batch is None:
            return False
        if self.order["ranks"] is not None and rank_of(runner) not in self.order["ranks"]:
            self.finish()
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        import torch

        if self.profiler is None:
            known = {"CPU": torch.profiler.ProfilerActivity.CPU, "GPU": torch.profiler.ProfilerActivity.CUDA}
            profiler = torch.profiler.profile(
                activities=[known[name] for name in self.order["activities"]],
                record_shapes=self.order["record_shapes"],
                with_stack=self.order["with_stack"],
            )
            profiler.start()
            self.profiler = profiler
        self.range = torch.profiler.record_function("step[DECODE bs=%d]" % batch)
        self.range.__enter__()
        return True

    def after(self, runner):
        self.range.__exit__(None, None, None)
        self.left -= 1
        if self.left > 0:
            return
        profiler, order = self.profiler, self.order
        synchronize()
        profiler.stop()
        self.profiler = None
        stem = os.path.join(order["out"], "%s-TP-%d" % (order["id"], rank_of(runner)))
        partial = os.path.join(order["out"], ".%s-TP-%d.partial.json.gz" % (order["id"], rank_of(runner)))
        profiler.export_chrome_trace(partial)
        try:
            table = profiler.key_averages().table(sort_by="self_cuda_time_total", row_limit=100)
            with open(stem + ".key_averages.txt", "w") as file:
                file.write(table + "\n")
        except Exception:
            report(self.folder)  # The trace matters more than the table.
        os.replace(partial, stem + ".trace.json.gz")
        self.finish()

    def look(self):
        """Takes up an order, or drops the one whose file is gone."""
        now = time.monotonic()
        if now < self.next_look:
            return
        self.next_look = now + LOOK_EVERY_S
        if not os.path.exists(self.control):
            if self.order is not None:
                self.order = None
                self.discard()
            return
        if self.order is not None:
            return
        with open(self.control) as file:
            order = json.load(file)
        if order["id"] == self.last_id or order.get("expires", now + time.time()) < time.time():
            return
        self.last_id = order["id"]
        self.skip, self.left = int(order["skip"]), int(order["record"])
        if self.left > 0:
            self.order = order

    def discard(self):
        profiler, self.profiler = self.profiler, None
        if profiler is not None:
            synchronize()
            profiler.stop()

    def finish(self):
        keep = self.order.get("keep", False)
        self.order = None
        if not keep:
            self.remove()

    def remove(self):
        """Puts the original method back. A call that is under way still ends in the wrapper."""
        self.removed = True
        self.order = None
        profiler, self.profiler = self.profiler, None
        try:
            if profiler is not None:
                profiler.stop()
        except Exception:
            pass
        if getattr(getattr(self.owner, self.method), "__wrapped__", None) is self.original:
            setattr(self.owner, self.method, self.original)


def synchronize():
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def rank_of(runner):
    """The rank of tensor parallelism, as far as anything says it."""
    for name in ("tp_rank", "rank"):
        value = getattr(runner, name, None)
        if isinstance(value, int):
            return value
    import torch

    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    return int(os.environ.get("RANK", "0"))


def write_json(path, value):
    partial = "%s.%d.partial" % (path, os.getpid())
    with open(partial, "w") as file:
        json.dump(value, file)
    os.replace(partial, path)


def report(folder):
    try:
        with open(os.path.join(folder, "error-%d.txt" % os.getpid()), "a") as file:
            file.write(traceback.format_exc() + "\n")
    except Exception:
        pass


class Loader(importlib.abc.Loader):
    """Loads a module as its own loader does, then wraps."""

    def __init__(self, loader, folder):
        self.loader, self.folder = loader, folder

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        try:
            owner, method, batch_of = TARGETS[module.__name__]
            Hook(self.folder, getattr(module, owner), method, globals()[batch_of]).wrap()
        except Exception:
            report(self.folder)

    def __getattr__(self, name):
        return getattr(self.loader, name)


class Finder(importlib.abc.MetaPathFinder):
    """Finds nothing but the targets, through the path as usual."""

    def __init__(self, folder):
        self.folder = folder

    def find_spec(self, name, path=None, target=None):
        if name not in TARGETS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = Loader(spec.loader, self.folder)
        return spec


def install():
    """Once per process: waits for the module of a model runner to be imported."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder(os.environ["STEPTALLY_HOOK_DIR"]))
