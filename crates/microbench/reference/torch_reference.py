#!/usr/bin/env python3
"""What PyTorch reaches on the same machine, for `steptally bench --compare`.

    python3 torch_reference.py [--shapes measured.json] [--ranks 2] [--only copy,gemm,all-reduce] > torch.json

Measured as `steptally bench` does: CUDA events around a CUDA graph of equal operations whose buffers
rotate beyond the L2 cache, 3 samples for warm-up, 25 samples, the median. --shapes takes the BF16
products from the file that `steptally bench -o` wrote. The all-reduces run in one process per GPU,
through torch.distributed in a CUDA graph (`time_ns`), and by NCCL's own function in PyTorch's stream, one
by one (`nccl_time_ns`) and in a graph (`nccl_graph_time_ns`).
"""

import argparse
import ctypes
import json
import math
import os
import statistics
import sys
import tempfile

import torch

SAMPLES = 25
SAMPLE_NS = 1e6
MOST_OPERATIONS = 200
SIZES = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20]


def elapsed_ns(work):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e6


def operations_for(one_ns):
    return min(max(math.ceil(SAMPLE_NS / max(one_ns, 1.0)), 1), MOST_OPERATIONS)


def record(launch, operations):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for i in range(operations):
            launch(i)
    return graph


def median_ns(launch):
    """Median time of one `launch(i)`."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for i in range(3):
            launch(i)
        torch.cuda.synchronize()
        one_ns = elapsed_ns(lambda: [launch(i) for i in range(3)]) / 3
    torch.cuda.synchronize()
    operations = operations_for(one_ns)
    graph = record(launch, operations)
    samples = [elapsed_ns(graph.replay) / operations for _ in range(SAMPLES + 3)][3:]
    return statistics.median(samples)


def copy_bytes_per_s():
    best = 0.0
    for size in (256 << 20, 1 << 30):
        source = torch.randint(0, 256, (size,), dtype=torch.uint8, device="cuda")
        target = torch.empty_like(source)
        best = max(best, 2 * size / median_ns(lambda i: target.copy_(source)) * 1e9)
    return best


def data(*shape):
    """The distribution of `fill.cu`: -128..127 by 128."""
    return (torch.randint(-128, 128, shape, dtype=torch.int16, device="cuda") / 128).to(torch.bfloat16)


def gemm(m, n, k):
    beyond_cache = max(4 * torch.cuda.get_device_properties(0).L2_cache_size, 256 << 20)
    room = min(8 << 30, torch.cuda.get_device_properties(0).total_memory // 4)
    copies = min(math.ceil(beyond_cache / (2 * n * k)) + 1, MOST_OPERATIONS, max(room // (2 * n * k), 1))
    x, out = data(m, k), torch.empty(m, n, dtype=torch.bfloat16, device="cuda")
    weights = [data(n, k).t() for _ in range(copies)]
    torch.mm(x, weights[0], out=out)
    expected = x[0].double() @ weights[0][:, 0].double()
    assert abs(out[0, 0].double() - expected) <= abs(expected) / 128 + 0.1, "wrong result"
    return median_ns(lambda i: torch.mm(x, weights[i % copies], out=out))


def products(path):
    shapes = [(8192, 8192, 8192)]
    if path:
        with open(path, encoding="utf-8") as file:
            measured = json.load(file)["measurements"]
        for row in measured:
            if row["group"] == "gemm" and row["name"].endswith(" bf16"):
                fields = dict(part.split("=") for part in row["shape"].split())
                shapes.append((int(fields["m"]), int(fields["n"]), int(fields["k"])))
    return list(dict.fromkeys(shapes))


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_byte * 128)]


class DirectNccl:
    """NCCL as PyTorch loaded it, without torch.distributed around it."""

    def __init__(self, rank, ranks):
        import torch.distributed as dist

        self.nccl = ctypes.CDLL("libnccl.so.2")
        unique = UniqueId()
        if rank == 0:
            self.check(self.nccl.ncclGetUniqueId(ctypes.byref(unique)))
        shared = [bytes(unique)]
        dist.broadcast_object_list(shared, src=0)
        unique = UniqueId.from_buffer_copy(shared[0])
        self.communicator = ctypes.c_void_p()
        self.check(self.nccl.ncclCommInitRank(ctypes.byref(self.communicator), ranks, unique, rank))

    @staticmethod
    def check(status):
        assert status == 0, f"NCCL: status {status}"

    def all_reduce(self, tensor):
        address = ctypes.c_void_p(tensor.data_ptr())
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        bf16, total = 9, 0
        self.check(self.nccl.ncclAllReduce(
            address, address, ctypes.c_size_t(tensor.numel()), bf16, total, self.communicator, stream))

    def close(self):
        self.check(self.nccl.ncclCommDestroy(self.communicator))


def slowest_median_ns(reduce, size, graph):
    """The median over samples of the slowest rank's time of one `reduce()`: in a CUDA graph, or launched
    one by one behind a kernel that holds the stream until all are launched, so that the host is no bound."""
    import torch.distributed as dist

    for _ in range(5):
        reduce()
    torch.cuda.synchronize()
    operations = operations_for(5000 + size / 100)
    if graph:
        replay = record(lambda i: reduce(), operations).replay
    else:
        replay = lambda: [reduce() for _ in range(operations)]
    samples = []
    for _ in range(SAMPLES + 3):
        torch.cuda.synchronize()
        dist.barrier()
        if not graph:
            torch.cuda._sleep(40_000 * operations)
        reduce()
        samples.append(elapsed_ns(replay) / operations)
    slowest = torch.tensor(samples[3:], dtype=torch.float64, device="cuda")
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    torch.cuda.synchronize()
    return slowest.median().item()


def all_reduce_rank(rank, ranks, path, sizes):
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    store = os.path.join(path, "store")
    dist.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=ranks,
                            device_id=torch.device("cuda", rank))
    check = torch.full((8,), rank + 0.5, dtype=torch.bfloat16, device="cuda")
    dist.all_reduce(check)
    assert check[0].item() == sum(r + 0.5 for r in range(ranks)), "wrong result"
    nccl = DirectNccl(rank, ranks)
    check = torch.full((8,), rank + 0.5, dtype=torch.bfloat16, device="cuda")
    nccl.all_reduce(check)
    assert check[0].item() == sum(r + 0.5 for r in range(ranks)), "wrong result of NCCL"
    results = []
    for size in sizes:
        tensor = torch.zeros(size // 2, dtype=torch.bfloat16, device="cuda")
        results.append({
            "ranks": ranks,
            "message_bytes": size,
            "time_ns": slowest_median_ns(lambda: dist.all_reduce(tensor), size, True),
            "nccl_time_ns": slowest_median_ns(lambda: nccl.all_reduce(tensor), size, False),
            "nccl_graph_time_ns": slowest_median_ns(lambda: nccl.all_reduce(tensor), size, True),
        })
    if rank == 0:
        with open(os.path.join(path, "result.json"), "w", encoding="utf-8") as file:
            json.dump(results, file)
    torch.cuda.synchronize()
    nccl.close()
    dist.destroy_process_group()


def all_reduce(ranks, own_size):
    sizes = sorted(set(SIZES + ([own_size] if own_size else [])))
    with tempfile.TemporaryDirectory() as path:
        torch.multiprocessing.spawn(all_reduce_rank, args=(ranks, path, sizes), nprocs=ranks)
        with open(os.path.join(path, "result.json"), encoding="utf-8") as file:
            return json.load(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--shapes", help="file written by `steptally bench -o`")
    parser.add_argument("--ranks", type=int, help="GPUs for the all-reduce [default: all]")
    parser.add_argument("--only", default="copy,gemm,all-reduce")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("error: PyTorch sees no GPU")
    only = args.only.split(",")
    result = {"torch": torch.__version__, "device": torch.cuda.get_device_name(0),
              "copy_bytes_per_s": None, "gemm": [], "all_reduce": []}
    if "copy" in only:
        result["copy_bytes_per_s"] = copy_bytes_per_s()
    if "gemm" in only:
        for m, n, k in products(args.shapes):
            result["gemm"].append({"m": m, "n": n, "k": k, "time_ns": gemm(m, n, k)})
            torch.cuda.empty_cache()
    ranks = args.ranks or torch.cuda.device_count()
    if "all-reduce" in only and ranks > 1:
        own = None
        if args.shapes:
            with open(args.shapes, encoding="utf-8") as file:
                listed = [row["message_bytes"] for row in json.load(file)["all_reduce"]]
            own = next((size for size in listed if size not in SIZES), None)
        result["all_reduce"] = all_reduce(ranks, own)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
