"""Measures the kernels of a transformer training step on the GPU at hand.

    python3 tools/kernels/measure.py --out DIR [--seconds 540] [--only FAMILY,FAMILY]

Writes `h200_stream.csv` and `h200_single.csv` (columns of crates/job/data/README.md),
`h200_layers.csv` and `h200_experts.csv` (whole layers), and `device.txt`. Needs PyTorch with CUDA
and Triton. Random inputs, warm-up, medians; operands rotate so that the cache is cold where
training's would be.
"""

import argparse
import random
import sys
import time

import torch
import torch.nn.functional as F

import cublaslt
import layers
import triton_kernels as tk
from harness import Bench, Pool

BF16, FP32, FP8 = torch.bfloat16, torch.float32, torch.float8_e4m3fn

# Rows and columns of the memory-bound kernels: tokens by (hidden or shard of the inner width).
SHAPES = [(1024, 4096), (2048, 4096), (4096, 4096), (8192, 4096), (1024, 8192), (2048, 8192),
          (4096, 8192), (8192, 8192), (1024, 12288), (2048, 12288), (8192, 12288), (1024, 16384),
          (4096, 16384), (8192, 16384), (4096, 1792), (8192, 3584), (8192, 2304), (8192, 6144),
          (8192, 28672), (2048, 24576), (4096, 7168), (16384, 7168), (16384, 2048), (8192, 5120)]

# (outputs, inputs) of the linear layers of one rank: Llama 8B, 70B, 405B; GPT 1.7B, 22B, 175B;
# DeepSeek-V3. Tensor-parallel shards as jobs use them.
LINEARS = [
    (6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (3072, 4096), (4096, 2048),
    (14336, 4096), (4096, 7168), (7168, 4096), (4096, 3584), (768, 4096), (4096, 512),
    (3584, 4096), (4096, 1792), (10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672),
    (2560, 8192), (8192, 2048), (14336, 8192), (8192, 7168), (1280, 8192), (8192, 1024),
    (7168, 8192), (8192, 3584), (2304, 16384), (16384, 2048), (13312, 16384), (16384, 6656),
    (6912, 2304), (2304, 2304), (9216, 2304), (2304, 9216), (2304, 6144), (6144, 768),
    (3072, 6144), (6144, 3072), (4608, 12288), (12288, 1536), (6144, 12288), (12288, 6144),
    (9216, 12288), (12288, 3072), (12288, 12288), (2112, 7168), (24576, 1536), (32768, 512),
    (7168, 16384), (4096, 7168), (7168, 2048), (16032, 8192), (6400, 12288), (128256, 4096),
]

# Batch, sequence, query heads, key/value heads, head dimension of causal attention.
ATTENTION = [
    (1, 1024, 8, 1, 128), (1, 2048, 8, 1, 128), (1, 4096, 8, 1, 128), (1, 8192, 8, 1, 128),
    (1, 16384, 8, 1, 128), (1, 32768, 8, 1, 128), (1, 2048, 16, 1, 128), (1, 4096, 16, 1, 128),
    (1, 8192, 16, 1, 128), (1, 16384, 16, 1, 128), (1, 4096, 4, 1, 128), (1, 8192, 4, 1, 128),
    (1, 2048, 16, 2, 128), (1, 4096, 16, 2, 128), (1, 8192, 16, 2, 128), (1, 16384, 16, 2, 128),
    (1, 2048, 16, 16, 128), (1, 4096, 16, 16, 128), (1, 8192, 16, 16, 128), (1, 1024, 32, 8, 128),
    (1, 2048, 32, 8, 128), (1, 4096, 32, 8, 128), (1, 8192, 32, 8, 128), (1, 16384, 32, 8, 128),
    (1, 2048, 64, 8, 128), (1, 4096, 64, 8, 128), (1, 8192, 64, 8, 128), (1, 2048, 12, 12, 128),
    (1, 4096, 12, 12, 128), (1, 2048, 24, 24, 128), (2, 2048, 24, 24, 128), (4, 1024, 12, 12, 128),
    (2, 2048, 12, 12, 128), (1, 4096, 20, 20, 128), (1, 4096, 40, 40, 128), (2, 4096, 16, 2, 128),
    (2, 4096, 32, 8, 128), (4, 2048, 8, 8, 96), (1, 2048, 24, 24, 96), (4, 2048, 24, 24, 96),
    (2, 2048, 16, 16, 96), (1, 2048, 8, 8, 96), (8, 1024, 16, 16, 64), (1, 4096, 16, 16, 64),
    (1, 8192, 16, 16, 64), (2, 2048, 32, 32, 64), (4, 1024, 32, 32, 64), (1, 2048, 16, 16, 64),
    (1, 4096, 64, 8, 64), (1, 4096, 128, 128, 192), (1, 4096, 16, 16, 192), (1, 8192, 16, 16, 192),
    (1, 2048, 32, 32, 192), (1, 4096, 64, 64, 192),
]


# Experts on the rank, tokens over all of them, outputs, inputs.
GROUPED = [
    (8, 16384, 28672, 4096), (8, 16384, 4096, 14336), (1, 8192, 28672, 4096),
    (2, 8192, 28672, 4096), (4, 8192, 28672, 4096), (2, 8192, 4096, 14336), (4, 32768, 4096, 7168),
    (4, 32768, 7168, 2048), (8, 16384, 4096, 7168), (8, 16384, 7168, 2048),
    (32, 32768, 4096, 7168), (32, 32768, 7168, 2048), (16, 8192, 3072, 5120),
    (16, 8192, 5120, 1536), (20, 24576, 3072, 5120), (20, 24576, 5120, 1536),
    (8, 4096, 4096, 7168), (8, 4096, 7168, 2048), (64, 32768, 2816, 2048), (64, 32768, 2048, 1408),
    (8, 8192, 8192, 4096), (16, 32768, 4096, 4096), (16, 32768, 5760, 2880),
    (16, 32768, 2880, 2880), (20, 16384, 3072, 5120), (2, 32768, 4096, 7168),
    (2, 32768, 7168, 2048), (16, 16384, 4096, 7168), (16, 16384, 7168, 2048),
    (8, 8192, 28672, 4096), (8, 8192, 4096, 14336), (4, 16384, 4096, 14336),
]


def launch(bench, pool):
    """What a launch costs when nothing is computed: in a graph, in a stream, and alone."""
    x = torch.zeros(32, device="cuda")
    bench.kernel("launch", "fp32", (32,), "graph", lambda i: lambda: x.add_(1.0))
    bench.kernel("launch", "fp32", (32,), "eager", lambda i: lambda: x.add_(1.0), graph=False)


def memory(bench, pool):
    """Kernels whose time is the bytes they move."""
    for n in [1 << 18, 1 << 20, 3 << 19, 1 << 21, 1 << 22, 3 << 21, 1 << 23, 3 << 22, 1 << 24,
              3 << 23, 1 << 25, 3 << 24, 1 << 26, 3 << 25, 1 << 27, 3 << 26, 1 << 28]:
        def copy(i):
            x, y = pool.take(n), torch.empty(n, dtype=BF16, device="cuda")
            return lambda: y.copy_(x)

        def add(i):
            x, r, y = pool.take(n), pool.take(n), torch.empty(n, dtype=BF16, device="cuda")
            return lambda: torch.add(x, r, out=y)

        def accumulate(i):
            x, y = pool.take(n), torch.zeros(n, dtype=FP32, device="cuda")
            return lambda: y.add_(x)

        def cast_down(i):
            x, y = pool.take(n).float(), torch.empty(n, dtype=BF16, device="cuda")
            return lambda: y.copy_(x)

        def zero(i):
            y = torch.empty(n, dtype=FP32, device="cuda")
            return lambda: y.zero_()

        def scale(i):
            y = pool.take(n).float()
            return lambda: y.mul_(0.999)

        def norm(i):
            y = pool.take(n).float()
            return lambda: torch.linalg.vector_norm(y)

        bench.kernel("mem", "bf16", (n,), "copy", copy, 0, 4 * n)
        bench.kernel("mem", "bf16", (n,), "add", add, n, 6 * n)
        bench.kernel("mem", "fp32", (n,), "accumulate", accumulate, n, 10 * n)
        bench.kernel("mem", "fp32", (n,), "cast_down", cast_down, 0, 6 * n)
        bench.kernel("mem", "fp32", (n,), "zero", zero, 0, 4 * n)
        bench.kernel("mem", "fp32", (n,), "scale", scale, n, 8 * n)
        bench.kernel("mem", "fp32", (n,), "l2norm", norm, 2 * n, 4 * n)
    for rows, cols in SHAPES:
        rowwise(bench, pool, rows, cols)


def rowwise(bench, pool, rows, cols):
    """The memory-bound kernels of a layer over one shape."""
    n = rows * cols

    def new(*shape, dtype=BF16):
        return torch.empty(*shape, dtype=dtype, device="cuda")

    def rms_fwd(i):
        x, w = pool.take(rows, cols), pool.take(cols)
        return lambda: torch.ops.aten._fused_rms_norm(x, [cols], w, 1e-5)

    def rms_bwd(i):
        x, w, g = pool.take(rows, cols), pool.take(cols), pool.take(rows, cols)
        r = torch.ops.aten._fused_rms_norm(x, [cols], w, 1e-5)[1]
        return lambda: torch.ops.aten._fused_rms_norm_backward(g, x, [cols], r, w, [True, True])

    def ln_fwd(i):
        x, w, b = pool.take(rows, cols), pool.take(cols), pool.take(cols)
        return lambda: torch.ops.aten.native_layer_norm(x, [cols], w, b, 1e-5)

    def ln_bwd(i):
        x, w, b, g = pool.take(rows, cols), pool.take(cols), pool.take(cols), pool.take(rows, cols)
        _, m, r = torch.ops.aten.native_layer_norm(x, [cols], w, b, 1e-5)
        return lambda: torch.ops.aten.native_layer_norm_backward(
            g, x, [cols], m, r, w, b, [True, True, True])

    def fused_norm(centre):
        def fwd(i):
            x, w = pool.take(rows, cols), pool.take(cols)
            y, r = new(rows, cols), new(rows, dtype=FP32)
            return lambda: tk.norm_fwd(x, w, y, r, centre)

        def bwd(i):
            x, w = pool.take(rows, cols), pool.take(cols)
            g, y = pool.take(rows, cols), new(rows, cols)
            r, p = torch.rand(rows, device="cuda"), new(tk.norm_programs(cols), cols, dtype=FP32)
            return lambda: tk.norm_bwd(x, w, g, r, y, p, centre)
        return fwd, bwd

    def gelu_fwd(i):
        x, y = pool.take(rows, cols), new(rows, cols)
        return lambda: torch.ops.aten.gelu.out(x, approximate="tanh", out=y)

    def gelu_bwd(i):
        x, g = pool.take(rows, cols), pool.take(rows, cols)
        return lambda: torch.ops.aten.gelu_backward(g, x, approximate="tanh")

    def swiglu_eager(i):
        x, y = pool.take(rows, cols), pool.take(rows, cols)
        return lambda: F.silu(x) * y

    def swiglu_fwd(i):
        x, y = pool.take(rows, 2 * cols), new(rows, cols)
        return lambda: tk.swiglu_fwd(x, y)

    def swiglu_bwd(i):
        x, g, y = pool.take(rows, 2 * cols), pool.take(rows, cols), new(rows, 2 * cols)
        return lambda: tk.swiglu_bwd(x, g, y)

    def bias_gelu_fwd(i):
        x, b, y = pool.take(rows, cols), pool.take(cols), new(rows, cols)
        return lambda: tk.bias_gelu_fwd(x, b, y)

    def bias_gelu_bwd(i):
        x, b, g, y = pool.take(rows, cols), pool.take(cols), pool.take(rows, cols), new(rows, cols)
        return lambda: tk.bias_gelu_bwd(x, b, g, y)

    def bias_grad(i):
        g = pool.take(rows, cols)
        return lambda: g.sum(0)

    def bias_dropout_add(i):
        x, b, r = pool.take(rows, cols), pool.take(cols), pool.take(rows, cols)
        y, k = new(rows, cols), new(rows, cols, dtype=torch.uint8)
        return lambda: tk.bias_dropout_add(x, b, r, y, k)

    def dropout_fwd(i):
        x, y, k = pool.take(rows, cols), new(rows, cols), new(rows, cols, dtype=torch.uint8)
        return lambda: tk.dropout_fwd(x, y, k)

    def dropout_bwd(i):
        g, y, k = pool.take(rows, cols), new(rows, cols), new(rows, cols, dtype=torch.uint8)
        k.fill_(1)
        return lambda: tk.dropout_bwd(g, k, y)

    def fp8_cast(i):
        x, y, s = pool.take(rows, cols), new(rows, cols, dtype=FP8), torch.ones(1, device="cuda")
        return lambda: tk.fp8_cast(x, y, s)

    def fp8_cast_transpose(i):
        x, y, s = pool.take(rows, cols), new(rows, cols, dtype=FP8), torch.ones(1, device="cuda")
        t = new(cols, rows, dtype=FP8)
        return lambda: tk.fp8_cast_transpose(x, y, t, s)

    def fp8_block(i):
        x, y = pool.take(rows, cols), new(rows, cols, dtype=FP8)
        s = torch.empty(rows * cols // 128, device="cuda")
        return lambda: tk.fp8_block(x, y, s)

    def amax(i):
        x = pool.take(rows, cols)
        return lambda: torch.linalg.vector_norm(x, float("inf"))

    def gather(i):
        x, y = pool.take(rows, cols), new(rows, cols)
        order = torch.randperm(rows, device="cuda")
        return lambda: torch.index_select(x, 0, order, out=y)

    def rope(i):
        x, y = pool.take(rows, cols // 128, 128), new(rows, cols // 128, 128)
        a = torch.randn(rows, 64, device="cuda")
        c, s = a.cos(), a.sin()
        return lambda: tk.rope(x, c, s, y)

    def combine(i):
        x, y = pool.take(rows * 8, cols), new(rows, cols)
        order = torch.randperm(rows * 8, device="cuda").view(rows, 8)
        weight = torch.rand(rows, 8, device="cuda")
        return lambda: tk.combine(x, order, weight, y)

    def permute(i):
        x, y = pool.take(rows, cols // 128, 128), new(cols // 128, rows, 128)
        return lambda: y.copy_(x.transpose(0, 1))

    table = [
        ("rmsnorm_fwd", rms_fwd, 4), ("rmsnorm_bwd", rms_bwd, 6),
        ("layernorm_fwd", ln_fwd, 4), ("layernorm_bwd", ln_bwd, 6),
        ("gelu_fwd", gelu_fwd, 4), ("gelu_bwd", gelu_bwd, 6),
        ("swiglu_fwd_eager", swiglu_eager, 6), ("swiglu_fwd", swiglu_fwd, 6),
        ("swiglu_bwd", swiglu_bwd, 10), ("bias_gelu_fwd", bias_gelu_fwd, 4),
        ("bias_gelu_bwd", bias_gelu_bwd, 6), ("bias_grad", bias_grad, 2),
        ("bias_dropout_add", bias_dropout_add, 7), ("dropout_fwd", dropout_fwd, 5),
        ("dropout_bwd", dropout_bwd, 5), ("fp8_cast", fp8_cast, 3),
        ("fp8_cast_transpose", fp8_cast_transpose, 4), ("fp8_block", fp8_block, 3),
        ("amax", amax, 2), ("gather", gather, 4), ("rope", rope, 4), ("permute", permute, 4),
    ]
    for name, make, width in table:
        bench.kernel("mem", "bf16", (rows, cols), name, make, 0, width * n)
    if cols <= 16384:
        for name, centre in [("rmsnorm", False), ("layernorm", True)]:
            fwd, bwd = fused_norm(centre)
            bench.kernel("mem", "bf16", (rows, cols), f"{name}_fwd_fused", fwd, 0, 4 * n)
            bench.kernel("mem", "bf16", (rows, cols), f"{name}_bwd_fused", bwd, 0, 6 * n)
    if n <= 1 << 26:
        bench.kernel("mem", "bf16", (rows, cols), "moe_combine", combine, 0, 18 * n)


def loss(bench, pool):
    """Cross-entropy over the vocabulary, and the embedding."""
    for rows, cols in [(1024, 128256), (4096, 128256), (8192, 128256), (8192, 16032),
                       (2048, 51200), (8192, 6400), (8192, 51200), (2048, 6400), (8192, 32000),
                       (4096, 16032), (2048, 16032), (4096, 6400), (4096, 51200), (2048, 128256),
                       (4096, 32064), (8192, 64128), (2048, 25600)]:
        n = rows * cols
        target = torch.randint(0, cols, (rows,), device="cuda")

        def fused(i):
            z, out = pool.take(rows, cols).clone(), torch.empty(rows, device="cuda")
            return lambda: tk.cross_entropy(z, target, out)

        def unfused_fwd(i):
            z = pool.take(rows, cols)

            def go():  # as Megatron-LM's vocab_parallel_cross_entropy, one kernel per line
                w = z.float()
                w -= w.max(dim=-1)[0].unsqueeze(-1)
                w.gather(1, target.unsqueeze(1))
                e = w.exp()
                return e.div_(e.sum(dim=-1).unsqueeze(-1))
            return go

        def unfused_bwd(i):
            p = torch.softmax(pool.take(rows, cols).float(), -1)
            w = torch.rand(rows, 1, device="cuda")
            return lambda: p.mul_(w).to(BF16)

        bench.kernel("mem", "bf16", (rows, cols), "cross_entropy_fused", fused, 0, 6 * n)
        bench.kernel("mem", "fp32", (rows, cols), "cross_entropy_fwd", unfused_fwd, 0, 38 * n)
        bench.kernel("mem", "fp32", (rows, cols), "cross_entropy_bwd", unfused_bwd, 0, 14 * n)
    for rows, cols, vocab in [(2048, 12288, 51200), (8192, 4096, 128256), (8192, 8192, 128256),
                              (8192, 16384, 16032), (4096, 7168, 129280), (8192, 6144, 6400),
                              (2048, 12288, 6400), (4096, 4096, 128256), (4096, 8192, 16032),
                              (8192, 2304, 51200), (2048, 4096, 32000), (8192, 8192, 16032),
                              (2048, 20480, 6400), (4096, 5120, 102400), (16384, 4096, 32000)]:
        table = torch.randn(vocab, cols, device="cuda", dtype=BF16)
        token = torch.randint(0, vocab, (rows,), device="cuda")
        grad = pool.take(rows, cols)
        bench.kernel("mem", "bf16", (rows, cols, vocab), "embedding_fwd",
                     lambda i: lambda: F.embedding(token, table), 0, 4 * rows * cols)
        bench.kernel("mem", "bf16", (rows, cols, vocab), "embedding_bwd",
                     lambda i: lambda: torch.ops.aten.embedding_dense_backward(
                         grad, token, vocab, -1, False), 0, 4 * rows * cols + 2 * vocab * cols)
        del table
    for rows, experts, top in [(4096, 256, 8), (8192, 64, 6), (8192, 8, 2), (16384, 256, 8)]:
        score = torch.randn(rows, experts, device="cuda")
        bench.kernel("mem", "fp32", (rows, experts, top), "router_topk",
                     lambda i: lambda: torch.topk(torch.softmax(score, -1), top, dim=-1),
                     0, 4 * rows * experts)


def softmax(bench, pool):
    """The masked, scaled softmax of unfused attention: rows are batch times heads times queries."""
    for heads, seq in [(8, 1024), (32, 1024), (96, 1024), (8, 2048), (12, 2048), (16, 2048),
                       (32, 2048), (64, 2048), (8, 4096), (16, 4096), (4, 8192), (64, 512),
                       (24, 2048),
                       (96, 2048), (6, 2048), (4, 4096), (32, 4096), (16, 1024), (128, 1024)]:
        n = heads * seq * seq

        def fwd(i):
            x = pool.take(heads * seq, seq)
            y = torch.empty(heads * seq, seq, dtype=BF16, device="cuda")
            return lambda: tk.softmax_fwd(x, y, 0.1)

        def bwd(i):
            p = torch.softmax(pool.take(heads * seq, seq), -1)
            g = pool.take(heads * seq, seq).clone()
            return lambda: tk.softmax_bwd(p, g, 0.1)

        bench.kernel("mem", "bf16", (heads * seq, seq), "softmax_fwd", fwd, 0, 3 * n)
        bench.kernel("mem", "bf16", (heads * seq, seq), "softmax_bwd", bwd, 0, 4 * n)


def gemm_calls(pool, m, n, k, layout):
    """The launch of one product: `nn` as the input gradient, `nt` forward, `tn` weight gradient."""
    def make(i):
        a = pool.take(k, m).t() if layout[0] == "t" else pool.take(m, k)
        b = pool.take(n, k).t() if layout[1] == "t" else pool.take(k, n)
        if layout.endswith("_acc"):
            y = torch.zeros(m, n, dtype=FP32, device="cuda")
            return lambda: torch.ops.aten.addmm.dtype_out(y, a, b, FP32, out=y)
        if layout.endswith("_acc16"):
            y = torch.zeros(m, n, dtype=BF16, device="cuda")
            return lambda: torch.addmm(y, a, b, out=y)
        y = torch.empty(m, n, dtype=BF16, device="cuda")
        return lambda: torch.mm(a, b, out=y)
    return make


def gemm_one(bench, pool, m, n, k, layout):
    width = {"tn_acc": 8, "tn_acc16": 4}.get(layout, 2)
    moved = 2 * (m * k + k * n) + width * m * n
    bench.kernel("gemm", "bf16", (m, n, k), layout, gemm_calls(pool, m, n, k, layout),
                 2 * m * n * k, moved)


def gemm(bench, pool):
    """Matrix products of the linear layers, in the three layouts, and of odd shapes."""
    for tokens in [8192, 2048, 4096, 1024, 16384]:
        for n, k in LINEARS:
            if n > 100000 and tokens > 4096 or n * k > 1 << 28 and tokens > 8192:
                continue
            gemm_one(bench, pool, tokens, n, k, "nt")
            gemm_one(bench, pool, tokens, k, n, "nn")
            gemm_one(bench, pool, n, k, tokens, "tn_acc")
            if tokens == 8192:
                gemm_one(bench, pool, n, k, tokens, "tn")
    rng = random.Random(1)
    for _ in range(120):
        m, n, k = (64 * round(2 ** rng.uniform(2, 8)) for _ in range(3))
        gemm_one(bench, pool, m, n, k, rng.choice(["nt", "nn", "tn", "tn_acc"]))
    for size in [256, 512, 1024, 2048, 4096, 8192, 16384]:
        gemm_one(bench, pool, size, size, size, "nn")
        gemm_one(bench, pool, size, size, size, "nt")


def accumulated(bench, pool):
    """Weight gradients that are added to main gradients: to bf16, and from fp8 to bf16 and fp32."""
    for tokens in [2048, 8192, 4096, 1024, 16384]:
        for n, k in LINEARS:
            if n > 100000 or n * k > 1 << 28 and tokens > 8192:
                continue
            gemm_one(bench, pool, n, k, tokens, "tn_acc16")
            if tokens in (1024, 16384):
                continue
            for layout, out in [("tn_acc16", BF16), ("tn_acc", FP32)]:
                def make(i):
                    a, b = pool.take(n, tokens).to(FP8), pool.take(k, tokens).to(FP8)
                    return cublaslt.fp8_accumulate(a, b, torch.zeros(n, k, dtype=out, device="cuda"))
                moved = n * tokens + k * tokens + 2 * (2 if out == BF16 else 4) * n * k
                bench.kernel("gemm", "fp8", (n, k, tokens), layout, make, 2 * n * k * tokens, moved)


def fp8(bench, pool):
    """fp8 products: e4m3 operands, tensorwise scale, bf16 or fp32 result. Forward products may add
    up in the matrix units' own short registers (`fast`), gradients may not."""
    one = torch.ones(1, device="cuda")
    for tokens in [8192, 2048, 4096]:
        for n, k in LINEARS:
            if n > 100000:
                continue
            for m, n2, k2, out, name in [(tokens, n, k, BF16, "nt"),
                                         (tokens, n, k, BF16, "nt_fast"),
                                         (n, k, tokens, FP32, "tn_fp32")]:
                def make(i):
                    a = pool.take(m, k2).to(FP8)
                    b = pool.take(n2, k2).to(FP8).t()
                    fast = name == "nt_fast"
                    return lambda: torch._scaled_mm(a, b, one, one, out_dtype=out,
                                                    use_fast_accum=fast)
                moved = m * k2 + n2 * k2 + (2 if out == BF16 else 4) * m * n2
                bench.kernel("gemm", "fp8", (m, n2, k2), name, make, 2 * m * n2 * k2, moved)


def batched(bench, pool):
    """The products of unfused attention, forward and backward."""
    for batch, seq, dim in [(8, 1024, 128), (32, 1024, 64), (96, 1024, 64), (8, 2048, 128),
                            (12, 2048, 128), (16, 2048, 128), (32, 2048, 96), (24, 2048, 96),
                            (64, 2048, 96), (16, 2048, 160), (32, 2048, 128), (8, 4096, 128),
                            (16, 4096, 128), (4, 8192, 128), (64, 512, 64), (6, 2048, 128),
                            (24, 2048, 128), (16, 2048, 64), (48, 2048, 96), (96, 2048, 96),
                            (8, 2048, 160), (16, 1024, 128), (64, 1024, 128), (4, 4096, 128),
                            (32, 2048, 64), (12, 2048, 96), (4, 2048, 128), (2, 2048, 128),
                            (4, 1024, 128), (8, 512, 128), (16, 512, 64), (4, 2048, 160),
                            (12, 1024, 64), (6, 2048, 96), (2, 4096, 128), (3, 2048, 96)]:
        flop = 2 * batch * seq * seq * dim
        moved = 2 * batch * (seq * seq + 2 * seq * dim)

        def scores(i):
            q, k = pool.take(batch, seq, dim), pool.take(batch, seq, dim)
            y = torch.empty(batch, seq, seq, dtype=BF16, device="cuda")
            return lambda: torch.bmm(q, k.transpose(1, 2), out=y)

        def context(i):
            p, v = pool.take(batch, seq, seq), pool.take(batch, seq, dim)
            y = torch.empty(batch, seq, dim, dtype=BF16, device="cuda")
            return lambda: torch.bmm(p, v, out=y)

        def transposed(i):
            p, v = pool.take(batch, seq, seq), pool.take(batch, seq, dim)
            y = torch.empty(batch, seq, dim, dtype=BF16, device="cuda")
            return lambda: torch.bmm(p.transpose(1, 2), v, out=y)

        bench.kernel("bmm", "bf16", (batch, seq, seq, dim), "nt", scores, flop, moved)
        bench.kernel("bmm", "bf16", (batch, seq, dim, seq), "nn", context, flop, moved)
        bench.kernel("bmm", "bf16", (batch, seq, dim, seq), "tn", transposed, flop, moved)


def grouped(bench, pool):
    """Expert products: groups, tokens over all of them, outputs, inputs."""
    for groups, tokens, n, k in GROUPED:
        each = tokens // groups
        offs = torch.arange(1, groups + 1, device="cuda", dtype=torch.int32) * each
        flop = 2 * tokens * n * k
        moved = 2 * (tokens * k + groups * n * k + tokens * n)

        def fwd(i):
            x, w = pool.take(tokens, k), pool.take(groups, n, k)
            return lambda: torch._grouped_mm(x, w.transpose(1, 2), offs=offs)

        def dgrad(i):
            g, w = pool.take(tokens, n), pool.take(groups, n, k)
            return lambda: torch._grouped_mm(g, w, offs=offs)

        def wgrad(i):
            x, g = pool.take(tokens, k), pool.take(tokens, n)
            return lambda: torch._grouped_mm(g.t(), x, offs=offs)

        def loop(i):
            x, w = pool.take(groups, each, k), pool.take(groups, n, k)
            y = torch.empty(groups, each, n, dtype=BF16, device="cuda")

            def go():
                for e in range(groups):
                    torch.mm(x[e], w[e].t(), out=y[e])
            return go

        def fp8_fwd(i):
            x, w = pool.take(tokens, k).to(FP8), pool.take(groups, n, k).to(FP8)
            sx, sw = torch.ones(tokens, device="cuda"), torch.ones(groups, n, device="cuda")
            return lambda: torch._scaled_grouped_mm(x, w.transpose(1, 2), sx, sw, offs=offs,
                                                    out_dtype=BF16, use_fast_accum=True)

        for name, make in [("fwd", fwd), ("dgrad", dgrad), ("wgrad", wgrad), ("loop", loop)]:
            bench.kernel("grouped", "bf16", (groups, tokens, n, k), name, make, flop, moved)
        moved = tokens * k + groups * n * k + 2 * tokens * n
        bench.kernel("grouped", "fp8", (groups, tokens, n, k), "fwd", fp8_fwd, flop, moved)


def fp8_operand(pool, rows, cols):
    """e4m3 numbers that fill the type's range, as scaled operands do."""
    return (pool.take(rows, cols) * (448 / 5)).clamp_(-448, 448).to(FP8)


def fp8_block(bench, pool):
    """Block-scaled fp8 products: 1 x 128 scales of tokens, 128 x 128 of weights (forward, and the
    gradient of the input), 1 x 128 of both where the gradient of weights is made."""
    def scales(outer, k):
        return torch.rand(k // 128, outer, device="cuda").t()

    for tokens in [8192, 2048, 4096]:
        for n, k in LINEARS:
            if n > 100000 or n % 128 or k % 128:
                continue
            for m, n2, k2, out, name in [(tokens, n, k, BF16, "nt"),
                                         (n, k, tokens, FP32, "tn_fp32")]:
                def make(i):
                    a, b = fp8_operand(pool, m, k2), fp8_operand(pool, n2, k2).t()
                    by_block = torch.rand(n2 // 128, k2 // 128, device="cuda").t()
                    sa, sb = scales(m, k2), by_block if out == BF16 else scales(n2, k2).t()
                    return lambda: torch._scaled_mm(a, b, sa, sb, out_dtype=out)
                moved = m * k2 + n2 * k2 + (2 if out == BF16 else 4) * m * n2
                bench.kernel("gemm", "fp8_block", (m, n2, k2), name, make, 2 * m * n2 * k2, moved)


def fp8_range(bench, pool):
    """fp8 products of operands that fill the type's range, beside those of plain normal numbers,
    and with a scale for each row: how much the data and the recipe change the rate."""
    one = torch.ones(1, device="cuda")
    for m, n, k in [(8192, 4096, 4096), (8192, 28672, 4096), (8192, 4096, 14336),
                    (8192, 10240, 8192), (8192, 8192, 8192), (8192, 14336, 8192),
                    (8192, 8192, 7168), (8192, 13312, 16384), (8192, 16384, 6656),
                    (4096, 28672, 4096), (4096, 14336, 8192), (8192, 6144, 12288),
                    (8192, 12288, 6144), (16384, 16384, 16384)]:
        flop, moved = 2 * m * n * k, m * k + n * k + 2 * m * n

        def plain(i):
            a, b = pool.take(m, k).to(FP8), pool.take(n, k).to(FP8).t()
            return lambda: torch._scaled_mm(a, b, one, one, out_dtype=BF16)

        def full(i):
            a, b = fp8_operand(pool, m, k), fp8_operand(pool, n, k).t()
            return lambda: torch._scaled_mm(a, b, one, one, out_dtype=BF16)

        def slow(i):
            a, b = fp8_operand(pool, m, k), fp8_operand(pool, n, k).t()
            return lambda: torch._scaled_mm(a, b, one, one, out_dtype=BF16, use_fast_accum=False)

        def fast(i):
            a, b = fp8_operand(pool, m, k), fp8_operand(pool, n, k).t()
            return lambda: torch._scaled_mm(a, b, one, one, out_dtype=BF16, use_fast_accum=True)

        def by_row(i):
            a, b = fp8_operand(pool, m, k), fp8_operand(pool, n, k).t()
            sa, sb = torch.rand(m, 1, device="cuda"), torch.rand(1, n, device="cuda")
            return lambda: torch._scaled_mm(a, b, sa, sb, out_dtype=BF16, use_fast_accum=True)

        for name, make in [("nt", plain), ("nt_range", full), ("nt_slow", slow),
                           ("nt_fast", fast), ("nt_rows", by_row)]:
            bench.kernel("range", "fp8", (m, n, k), name, make, flop, moved, busy=0.4)


def casts(bench, pool):
    """Casts to fp8 with block scales in both directions, and the greatest magnitude alone."""
    for rows, cols in SHAPES:
        if rows % 128 or cols % 128:
            continue
        n = rows * cols

        def new(*shape, dtype=FP8):
            return torch.empty(*shape, dtype=dtype, device="cuda")

        def block(i):
            x, y, t = pool.take(rows, cols), new(rows, cols), new(cols, rows)
            s, st = new(cols // 128, rows, dtype=FP32), new(rows // 128, cols, dtype=FP32)
            return lambda: tk.fp8_block_transpose(x, y, t, s, st)

        def amax(i):
            x, a = pool.take(rows, cols), torch.zeros(1, device="cuda")
            return lambda: tk.fp8_amax(x, a)

        bench.kernel("mem", "bf16", (rows, cols), "fp8_block_transpose", block, 0, 4 * n)
        bench.kernel("mem", "bf16", (rows, cols), "fp8_amax", amax, 0, 2 * n)


def grouped_backward(bench, pool):
    """Expert products that `grouped` lacks: weight gradients added to fp32 main gradients by the
    product itself, expert after expert as Transformer Engine's `GroupedLinear` launches them, and
    the fp8 gradients."""
    for groups, tokens, n, k in GROUPED:
        each = tokens // groups // 16 * 16  # fp8 gradients need whole multiples
        tokens = each * groups
        offs = torch.arange(1, groups + 1, device="cuda", dtype=torch.int32) * each
        flop = 2 * tokens * n * k

        def accumulated(i):
            g, x = pool.take(groups, each, n), pool.take(groups, each, k)
            y = torch.zeros(groups, n, k, dtype=FP32, device="cuda")

            def go():
                for e in range(groups):
                    torch.ops.aten.addmm.dtype_out(y[e], g[e].t(), x[e], FP32, out=y[e])
            return go

        def fp8_dgrad(i):
            g, w = pool.take(tokens, n).to(FP8), pool.take(groups, k, n).to(FP8)
            sg, sw = torch.ones(tokens, device="cuda"), torch.ones(groups, k, device="cuda")
            return lambda: torch._scaled_grouped_mm(g, w.transpose(1, 2), sg, sw, offs=offs,
                                                    out_dtype=BF16, use_fast_accum=True)

        def fp8_wgrad(i):
            g, x = pool.take(n, tokens).to(FP8), pool.take(k, tokens).to(FP8).t()
            sg, sx = (torch.ones(groups * size, device="cuda") for size in (n, k))
            return lambda: torch._scaled_grouped_mm(g, x, sg, sx, offs=offs, out_dtype=BF16,
                                                    use_fast_accum=True)

        def fp8_loop(i):
            g = pool.take(groups, n, each).to(FP8)
            x = pool.take(groups, k, each).to(FP8)
            one = torch.ones(1, device="cuda")

            def go():
                for e in range(groups):
                    torch._scaled_mm(g[e], x[e].t(), one, one, out_dtype=FP32)
            return go

        moved = 2 * tokens * (n + k) + 8 * groups * n * k
        bench.kernel("grouped", "bf16", (groups, tokens, n, k), "wgrad_acc", accumulated, flop,
                     moved)
        moved = tokens * n + groups * n * k + 2 * tokens * k
        bench.kernel("grouped", "fp8", (groups, tokens, n, k), "dgrad", fp8_dgrad, flop, moved)
        moved = tokens * (n + k) + 2 * groups * n * k
        bench.kernel("grouped", "fp8", (groups, tokens, n, k), "wgrad", fp8_wgrad, flop, moved)
        moved += 2 * groups * n * k
        bench.kernel("grouped", "fp8", (groups, tokens, n, k), "wgrad_loop", fp8_loop, flop, moved)


def attention(bench, pool):
    """Fused attention: sequence, heads, key/value heads, head dimension (times 1000 plus the
    value's where they differ). cuDNN is what the first table holds; flash2 is the older kernel."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    full = [(1, 4096, 16, 16, 128), (1, 8192, 16, 16, 128), (1, 8192, 32, 8, 128),
            (1, 2048, 16, 16, 128), (4, 2048, 16, 16, 64), (1, 8192, 16, 16, 64),
            (1, 4096, 8, 1, 128), (2, 4096, 16, 2, 128), (1, 4096, 16, 16, 192),
            (1, 16384, 8, 1, 128)]
    chunks = [(1, 4096, 8192, 16, 2, 128), (1, 2048, 8192, 8, 1, 128), (1, 8192, 16384, 8, 1, 128),
              (1, 4096, 16384, 8, 1, 128), (1, 2048, 4096, 16, 16, 128),
              (1, 4096, 32768, 8, 1, 128)]
    for backend, tag in [(SDPBackend.CUDNN_ATTENTION, ""), (SDPBackend.FLASH_ATTENTION, "flash2_")]:
        for batch, seq, heads, kv, dim in ATTENTION:
            attention_one(bench, pool, sdpa_kernel(backend), tag, batch, seq, seq, heads, kv, dim,
                          True)
        for batch, seq, heads, kv, dim in full:
            attention_one(bench, pool, sdpa_kernel(backend), tag, batch, seq, seq, heads, kv, dim,
                          False)
        for batch, seq, keys, heads, kv, dim in chunks:
            attention_one(bench, pool, sdpa_kernel(backend), tag, batch, seq, keys, heads, kv, dim,
                          False)


def attention_one(bench, pool, chosen, tag, batch, seq, keys, heads, kv, dim, causal):
    """One shape, forward and backward. Batch, keys and mask are told in the direction."""
    value = 128 if dim == 192 else dim
    if value != dim and tag:
        return  # only cuDNN takes values narrower than keys
    flop = 2 * batch * heads * seq * keys * (dim + value) // (2 if causal else 1)
    moved = 2 * batch * (seq * heads + keys * kv) * (dim + value)
    mark = ("" if causal else "full_") + (f"b{batch}_" if batch > 1 else "")
    mark += f"kv{keys}_" if keys != seq else ""

    def operands():
        q = pool.take(batch, seq, heads, dim).transpose(1, 2).detach().requires_grad_()
        k = pool.take(batch, keys, kv, dim).transpose(1, 2).detach().requires_grad_()
        v = pool.take(batch, keys, kv, value).transpose(1, 2).detach().requires_grad_()
        return q, k, v

    def run(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=heads != kv)

    def fwd(i):
        q, k, v = operands()

        def go():
            with torch.no_grad():
                run(q, k, v)
        return go

    def bwd(i):
        q, k, v = operands()
        y = run(q, k, v)
        g = pool.take(batch, seq, heads, value).transpose(1, 2)
        return lambda: torch.autograd.grad(y, (q, k, v), g, retain_graph=True)

    shape = (seq, heads, kv, dim if dim == value else dim * 1000 + value)
    with chosen:
        bench.kernel("attn", "bf16", shape, f"{tag}{mark}fwd", fwd, flop, moved)
        bench.kernel("attn", "bf16", shape, f"{tag}{mark}bwd", bwd, flop * 5 // 2, 2 * moved)


def optimizer(bench, pool):
    """AdamW over fp32 masters: 28 bytes per parameter."""
    for n in [1 << 20, 1 << 21, 1 << 22, 3 << 21, 1 << 23, 3 << 22, 1 << 24, 3 << 23, 1 << 25,
              3 << 24, 1 << 26, 3 << 25, 1 << 27, 1 << 28, 5 << 26, 1 << 29]:
        p, m = (torch.randn(n, device="cuda") for _ in range(2))
        g, v = torch.randn(n, device="cuda"), torch.rand(n, device="cuda")
        step = torch.ones((), device="cuda")

        def go():
            torch._fused_adamw_([p], [g], [m], [v], [], [step], lr=1e-4, beta1=0.9, beta2=0.95,
                                weight_decay=0.1, eps=1e-8, amsgrad=False, maximize=False)
        bench.kernel("mem", "fp32", (n,), "adamw_fused", lambda i: go, 0, 28 * n)
        del p, m, g, v
    count, each = 64, 1 << 22
    lists = [[torch.rand(each, device="cuda") for _ in range(count)] for _ in range(4)]
    steps = [torch.ones((), device="cuda") for _ in range(count)]
    bench.kernel("mem", "fp32", (count * each, count), "adamw_fused_list",
                 lambda i: lambda: torch._fused_adamw_(
                     *lists, [], steps, lr=1e-4, beta1=0.9, beta2=0.95, weight_decay=0.1,
                     eps=1e-8, amsgrad=False, maximize=False), 0, 28 * count * each)


FAMILIES = {
    "launch": launch, "layers": layers.measure, "experts": layers.measure_experts,
    "memory": memory, "attention": attention, "softmax": softmax, "batched": batched,
    "grouped": grouped, "gemm": gemm, "accumulated": accumulated, "loss": loss, "optimizer": optimizer, "fp8": fp8,
    "fp8_block": fp8_block, "fp8_range": fp8_range, "casts": casts,
    "grouped_backward": grouped_backward, "profiles": layers.profiles,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--only", default=",".join(FAMILIES))
    arguments = parser.parse_args()
    started = time.monotonic()
    torch.manual_seed(0)
    bench = Bench(arguments.out, started + arguments.seconds)
    pool = Pool(5 << 30)
    chip = torch.cuda.get_device_properties(0)
    with open(f"{arguments.out}/device.txt", "w") as handle:
        print(chip, torch.__version__, torch.version.cuda, time.strftime("%Y-%m-%d"), file=handle)
    print("checks", {name: f"{error:.1e}" for name, error in tk.check().items()}, flush=True)
    torch.set_grad_enabled(True)
    for name in arguments.only.split(","):
        before = time.monotonic()
        try:
            FAMILIES[name](bench, pool)
        except Exception as error:  # the other families are still worth having
            bench.failures.append(f"{name}: {error}"[:500])
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        print(f"{name}: {time.monotonic() - before:.1f} s", flush=True)
    bench.close()
    sys.stdout.flush()


if __name__ == "__main__":
    main()
