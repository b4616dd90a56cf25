"""Whole transformer layers, forward and backward, as one rank runs them in training.

The layers are written out kernel by kernel, in the order training frameworks launch them, so that
the sum of their kernels can be set beside the whole. Communication is left out: where a gather
would bring in other ranks' rows, the product reads a buffer of the gathered size instead.
Two to four layers with weights of their own are captured as one graph each for forward and
backward, and replayed for half a second, so that launches are hidden and power has settled.
"""

import statistics
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import triton_kernels as tk

BF16, FP32, FP8 = torch.bfloat16, torch.float32, torch.float8_e4m3fn
aten = torch.ops.aten

COLUMNS = ["model", "precision", "attention", "hidden", "ffn", "heads", "kv_heads", "head_dim",
           "seq", "batch", "tp", "direction", "us", "watts", "mhz"]

# model, precision, attention, hidden, ffn, heads, kv heads, seq, batch, tp
CONFIGS = [
    ("llama", "bf16", "cudnn", 4096, 14336, 32, 8, 8192, 1, 1),
    ("llama", "bf16", "cudnn", 4096, 14336, 32, 8, 4096, 1, 1),
    ("llama", "bf16", "cudnn", 4096, 14336, 32, 8, 8192, 1, 8),
    ("llama", "bf16", "cudnn", 8192, 28672, 64, 8, 8192, 1, 8),
    ("llama", "bf16", "cudnn", 8192, 28672, 64, 8, 4096, 1, 8),
    ("llama", "bf16", "cudnn", 8192, 28672, 64, 8, 4096, 1, 4),
    ("llama", "bf16", "cudnn", 8192, 28672, 64, 8, 4096, 1, 1),
    ("llama", "bf16", "cudnn", 16384, 53248, 128, 8, 8192, 1, 8),
    ("llama", "bf16", "cudnn", 16384, 53248, 128, 8, 4096, 1, 8),
    ("llama", "bf16", "flash2", 8192, 28672, 64, 8, 8192, 1, 8),
    ("llama", "fp8", "cudnn", 8192, 28672, 64, 8, 8192, 1, 8),
    ("llama", "fp8", "cudnn", 16384, 53248, 128, 8, 8192, 1, 8),
    ("llama", "fp8", "cudnn", 4096, 14336, 32, 8, 8192, 1, 1),
    ("gpt", "bf16", "unfused", 6144, 24576, 64, 64, 2048, 4, 8),
    ("gpt", "bf16", "unfused", 12288, 49152, 96, 96, 2048, 1, 8),
    ("gpt", "bf16", "unfused", 4096, 16384, 32, 32, 2048, 4, 4),
    ("gpt", "bf16", "unfused", 2304, 9216, 24, 24, 2048, 4, 1),
    ("gpt", "bf16", "unfused", 20480, 81920, 128, 128, 2048, 1, 8),
    ("gpt", "bf16", "unfused", 8192, 32768, 64, 64, 2048, 2, 8),
    ("gpt", "bf16", "cudnn", 12288, 49152, 96, 96, 2048, 1, 8),
    ("llama", "bf16", "cudnn", 5120, 13824, 40, 40, 4096, 1, 2),
    ("llama", "bf16", "cudnn", 8192, 28672, 64, 8, 8192, 1, 4),
    ("gpt", "bf16", "cudnn", 12288, 49152, 96, 96, 2048, 2, 4),
    ("gpt", "bf16", "flash2", 6144, 24576, 64, 64, 2048, 4, 8),
]

EXPERT_COLUMNS = ["hidden", "ffn", "experts", "local", "top_k", "shared", "tokens", "direction",
                  "us", "watts", "mhz"]

# hidden, expert ffn, experts, experts on the rank, experts per token, shared experts, tokens:
# Mixtral over 8 ranks and on one, DeepSeek-V3 over 64 and 32, DeepSeek-V2 over 8, gpt-oss over 8.
EXPERTS = [
    (4096, 14336, 8, 1, 2, 0, 8192), (4096, 14336, 8, 8, 2, 0, 4096),
    (4096, 14336, 8, 2, 2, 0, 4096),
    (7168, 2048, 256, 4, 8, 1, 4096), (7168, 2048, 256, 8, 8, 1, 4096),
    (5120, 1536, 160, 20, 6, 2, 4096), (2880, 2880, 128, 16, 4, 0, 8192),
]


def empty(*shape, dtype=BF16):
    return torch.empty(*shape, dtype=dtype, device="cuda")


def normal(*shape):
    return torch.randn(*shape, dtype=BF16, device="cuda")


class Linear:
    """A linear layer of one rank: forward, input gradient, weight gradient added to fp32."""

    def __init__(self, outputs, inputs, precision):
        self.weight = normal(outputs, inputs) * 0.02
        self.main = torch.zeros(outputs, inputs, dtype=FP32, device="cuda")
        self.fp8 = precision == "fp8"
        if self.fp8:
            self.one = torch.ones(1, device="cuda")
            self.w8, self.wt8 = empty(outputs, inputs, dtype=FP8), empty(inputs, outputs, dtype=FP8)
            tk.fp8_cast_transpose(self.weight, self.w8, self.wt8, self.one)

    def quantise(self, x):
        x8, xt8 = empty(*x.shape, dtype=FP8), empty(x.shape[1], x.shape[0], dtype=FP8)
        tk.fp8_cast_transpose(x, x8, xt8, self.one)
        return x8, xt8

    def forward(self, x):
        if not self.fp8:
            self.x = x
            return torch.mm(x, self.weight.t())
        x8, self.x = self.quantise(x)
        return torch._scaled_mm(x8, self.w8.t(), self.one, self.one, out_dtype=BF16)

    def backward(self, g):
        if not self.fp8:
            dx = torch.mm(g, self.weight)
            aten.addmm.dtype_out(self.main, g.t(), self.x, FP32, out=self.main)
            return dx
        g8, gt8 = self.quantise(g)
        dx = torch._scaled_mm(g8, self.wt8.t(), self.one, self.one, out_dtype=BF16)
        torch._scaled_mm(gt8, self.x.t(), self.one, self.one, out_dtype=FP32, out=self.main)
        return dx


class Layer:
    """What both kinds of layer share: sizes, linears, gathered buffers."""

    def __init__(self, precision, attention, hidden, ffn, heads, kv, seq, batch, tp, gathered):
        self.dim = hidden // heads
        self.heads, self.kv = heads // tp, max(1, kv // tp)
        self.seq, self.batch, self.tokens = seq, batch, seq * batch
        self.rows, self.hidden, self.ffn = self.tokens // tp, hidden, ffn // tp
        self.gathered = gathered
        self.attention = attention
        self.precision = precision
        self.scale = self.dim ** -0.5

    def norm_fwd(self, x):
        """Normalised rows and the inverse norms, in one kernel."""
        y, inverse = torch.empty_like(x), empty(x.shape[0], dtype=FP32)
        tk.norm_fwd(x, self.norm, y, inverse, self.centre)
        return y, inverse

    def norm_bwd(self, g, x, inverse):
        """The input's gradient; the weight's is summed too."""
        dx = torch.empty_like(x)
        partial = empty(tk.norm_programs(x.shape[1]), x.shape[1], dtype=FP32)
        tk.norm_bwd(x, self.norm, g, inverse, dx, partial, self.centre)
        return dx

    def whole(self, x):
        """The rows of all ranks, as a gather would leave them."""
        return x if x.shape[0] == self.tokens else self.gathered

    def fused_attention(self, q, k, v):
        """Remembers its own graph; q, k, v are (batch, heads, sequence, dimension) views."""
        self.qkv = [t.detach().requires_grad_() for t in (q, k, v)]
        backend = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash2": SDPBackend.FLASH_ATTENTION}
        with torch.enable_grad(), sdpa_kernel(backend[self.attention]):
            self.context = F.scaled_dot_product_attention(
                *self.qkv, is_causal=True, enable_gqa=self.heads != self.kv)
        return self.context.detach().transpose(1, 2).reshape(self.tokens, self.heads * self.dim)

    def fused_attention_bwd(self, g):
        g = g.view(self.batch, self.seq, self.heads, self.dim).transpose(1, 2)
        return torch.autograd.grad(self.context, self.qkv, g, retain_graph=True)


class Llama(Layer):
    """RMSNorm, rotary attention with grouped keys, SwiGLU."""

    centre = False

    def __init__(self, *sizes):
        super().__init__(*sizes)
        p, h, d = self.precision, self.hidden, self.dim
        self.wqkv = Linear((self.heads + 2 * self.kv) * d, h, p)
        self.wo = Linear(h, self.heads * d, p)
        self.wgu = Linear(2 * self.ffn, h, p)
        self.wd = Linear(h, self.ffn, p)
        self.norm = normal(h)
        angle = torch.randn(self.tokens, d // 2, device="cuda")
        self.cos, self.sin = angle.cos(), angle.sin()

    def forward(self, x):
        self.x = x
        n, self.r1 = self.norm_fwd(x)
        qkv = self.wqkv.forward(self.whole(n)).view(self.tokens, -1, self.dim)
        turned = empty(self.tokens, self.heads + self.kv, self.dim)
        tk.rope(qkv[:, :self.heads + self.kv], self.cos, self.sin, turned)
        q = turned[:, :self.heads].unflatten(0, (self.batch, self.seq)).transpose(1, 2)
        k = turned[:, self.heads:].unflatten(0, (self.batch, self.seq)).transpose(1, 2)
        v = qkv[:, self.heads + self.kv:].unflatten(0, (self.batch, self.seq)).transpose(1, 2)
        o = self.wo.forward(self.fused_attention(q, k, v))
        self.x2 = x + o[:self.rows]
        n, self.r2 = self.norm_fwd(self.x2)
        self.gu = self.wgu.forward(self.whole(n))
        act = empty(self.tokens, self.ffn)
        tk.swiglu_fwd(self.gu, act)
        return self.x2 + self.wd.forward(act)[:self.rows]

    def backward(self, g):
        act = self.wd.backward(self.whole(g))
        dgu = torch.empty_like(self.gu)
        tk.swiglu_bwd(self.gu, act, dgu)
        dn = self.wgu.backward(dgu)[:self.rows]
        g2 = self.norm_bwd(dn, self.x2, self.r2) + g
        dq, dk, dv = self.fused_attention_bwd(self.wo.backward(self.whole(g2)))
        dqkv = empty(self.tokens, self.heads + 2 * self.kv, self.dim)
        flat = [t.transpose(1, 2).reshape(self.tokens, -1, self.dim) for t in (dq, dk, dv)]
        tk.rope(flat[0], self.cos, self.sin, dqkv[:, :self.heads])
        tk.rope(flat[1], self.cos, self.sin, dqkv[:, self.heads:self.heads + self.kv])
        dqkv[:, self.heads + self.kv:].copy_(flat[2])
        dn = self.wqkv.backward(dqkv.view(self.tokens, -1))[:self.rows]
        return self.norm_bwd(dn, self.x, self.r1) + g2


class Gpt(Layer):
    """LayerNorm, biases, dropout, GELU; attention fused or in single products as before 2023."""

    centre = True

    def __init__(self, *sizes):
        super().__init__(*sizes)
        p, h = self.precision, self.hidden
        self.width = self.heads * self.dim
        self.wqkv, self.wo = Linear(3 * self.width, h, p), Linear(h, self.width, p)
        self.w1, self.w2 = Linear(self.ffn, h, p), Linear(h, self.ffn, p)
        self.norm = normal(h)
        self.b1, self.b2 = normal(self.ffn), normal(h)

    def drop_add(self, x, residual):
        y, kept = torch.empty_like(residual), empty(*residual.shape, dtype=torch.uint8)
        tk.bias_dropout_add(x, self.b2, residual, y, kept)
        return y, kept

    def drop_bwd(self, g, kept):
        dx = torch.empty_like(g)
        tk.dropout_bwd(g, kept, dx)
        dx.sum(0)
        return dx

    def split(self, qkv):
        """(batch · heads, sequence, dimension) views; the tokens are sequence-major."""
        shape = (self.seq, self.batch * self.heads, 3, self.dim)
        return [t.squeeze(2).transpose(0, 1) for t in qkv.view(shape).split(1, 2)]

    def attend(self, qkv):
        q, k, v = self.split(qkv)
        if self.attention != "unfused":
            parts = [t.unflatten(0, (self.batch, self.heads)) for t in (q, k, v)]
            return self.fused_attention(*parts)
        self.q, self.k, self.v = q, k, v
        scores = torch.bmm(q, k.transpose(1, 2))
        self.p, self.dropped = torch.empty_like(scores), torch.empty_like(scores)
        tk.softmax_fwd(scores, self.p, self.scale)
        self.kept = empty(*scores.shape, dtype=torch.uint8)
        tk.dropout_fwd(self.p, self.dropped, self.kept)
        context = torch.bmm(self.dropped, v)
        return context.transpose(0, 1).reshape(self.tokens, self.width)

    def attend_bwd(self, g):
        if self.attention != "unfused":
            parts = [t.flatten(0, 1) for t in self.fused_attention_bwd(g)]
        else:
            g = g.view(self.seq, -1, self.dim).transpose(0, 1)
            dp = torch.bmm(g, self.v.transpose(1, 2))
            dv = torch.bmm(self.dropped.transpose(1, 2), g)
            ds = torch.empty_like(dp)
            tk.dropout_bwd(dp, self.kept, ds)
            tk.softmax_bwd(self.p, ds, self.scale)
            parts = [torch.bmm(ds, self.k), torch.bmm(ds.transpose(1, 2), self.q), dv]
        dqkv = empty(self.tokens, 3 * self.width)
        for into, part in zip(self.split(dqkv), parts):
            into.copy_(part)
        return dqkv

    def forward(self, x):
        self.x = x
        n, self.r1 = self.norm_fwd(x)
        o = self.wo.forward(self.attend(self.wqkv.forward(self.whole(n))))
        self.x2, self.kept1 = self.drop_add(o[:self.rows], x)
        n, self.r2 = self.norm_fwd(self.x2)
        self.z = self.w1.forward(self.whole(n))
        act = torch.empty_like(self.z)
        tk.bias_gelu_fwd(self.z, self.b1, act)
        y, self.kept2 = self.drop_add(self.w2.forward(act)[:self.rows], self.x2)
        return y

    def backward(self, g):
        act = self.w2.backward(self.whole(self.drop_bwd(g, self.kept2)))
        dz = torch.empty_like(self.z)
        tk.bias_gelu_bwd(self.z, self.b1, act, dz)
        dz.sum(0)
        dn = self.w1.backward(dz)[:self.rows]
        g2 = self.norm_bwd(dn, self.x2, self.r2) + g
        dqkv = self.attend_bwd(self.wo.backward(self.whole(self.drop_bwd(g2, self.kept1))))
        dqkv.sum(0)
        dn = self.wqkv.backward(dqkv)[:self.rows]
        return self.norm_bwd(dn, self.x, self.r1) + g2


class Experts:
    """The feed-forward part of a mixture of experts on one rank of an expert group: norm, router,
    rows in the experts' order, two grouped products, the weighted sum, shared experts, residual.
    Each rank receives as many rows as it sends, and has `local` of the experts."""

    centre = False

    def __init__(self, hidden, ffn, experts, local, top, shared, tokens, received):
        self.hidden, self.ffn, self.local, self.top = hidden, ffn, local, top
        self.tokens, self.routed, self.received = tokens, tokens * top, received
        self.norm = normal(hidden)
        self.router = Linear(experts, hidden, "bf16")
        self.w1, self.w2 = normal(local, 2 * ffn, hidden) * 0.02, normal(local, hidden, ffn) * 0.02
        self.main1 = torch.zeros(self.w1.shape, dtype=FP32, device="cuda")
        self.main2 = torch.zeros(self.w2.shape, dtype=FP32, device="cuda")
        self.offs = torch.arange(1, local + 1, device="cuda", dtype=torch.int32) * (
            self.routed // local)
        self.order = torch.randperm(self.routed, device="cuda")
        self.source = self.order // top
        self.back = torch.argsort(self.order).view(tokens, top)
        self.weight = torch.rand(tokens, top, device="cuda")
        self.dlogits = normal(tokens, experts)
        if shared:
            self.up = Linear(2 * shared * ffn, hidden, "bf16")
            self.down = Linear(hidden, shared * ffn, "bf16")
        self.shared = shared

    norm_fwd, norm_bwd = Layer.norm_fwd, Layer.norm_bwd

    def forward(self, x):
        self.x = x
        n, self.r = self.norm_fwd(x)
        torch.topk(torch.softmax(self.router.forward(n).float(), -1), self.top, dim=-1)
        self.rows = torch.index_select(n, 0, self.source)
        self.rows = self.received  # what the other ranks sent instead
        self.gu = torch._grouped_mm(self.rows, self.w1.transpose(1, 2), offs=self.offs)
        self.act = empty(self.routed, self.ffn)
        tk.swiglu_fwd(self.gu, self.act)
        out = torch._grouped_mm(self.act, self.w2.transpose(1, 2), offs=self.offs)
        y = empty(self.tokens, self.hidden)
        tk.combine(out, self.back, self.weight, y)
        if self.shared:
            self.sgu = self.up.forward(n)
            act = empty(self.tokens, self.shared * self.ffn)
            tk.swiglu_fwd(self.sgu, act)
            y = y + self.down.forward(act)
        return x + y

    def grouped_bwd(self, g, x, weight, main):
        dx = torch._grouped_mm(g, weight, offs=self.offs)
        main.add_(torch._grouped_mm(g.t(), x, offs=self.offs))
        return dx

    def backward(self, g):
        torch.index_select(g, 0, self.source)
        dact = self.grouped_bwd(self.received, self.act, self.w2, self.main2)
        dgu = torch.empty_like(self.gu)
        tk.swiglu_bwd(self.gu, dact, dgu)
        drows = self.grouped_bwd(dgu, self.rows, self.w1, self.main1)
        dn = empty(self.tokens, self.hidden)
        tk.combine(drows, self.back, self.weight, dn)
        if self.shared:
            dact = self.down.backward(g)
            dgu = torch.empty_like(self.sgu)
            tk.swiglu_bwd(self.sgu, dact, dgu)
            dn = dn + self.up.backward(dgu)
        self.router.backward(self.dlogits)
        return self.norm_bwd(dn, self.x, self.r) + g


def captured(stream, body, pool=None):
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin(pool=pool) if pool else graph.capture_begin()
    try:
        result = body()
    finally:
        graph.capture_end()
    return graph, result


def profile(bench, label, step):
    """The kernels of one eager forward and backward, with their times, beside the tables."""
    from torch.profiler import ProfilerActivity, profile as record
    with record(activities=[ProfilerActivity.CUDA]) as seen:
        step()
        torch.cuda.synchronize()
    with open(f"{bench.out}/profile.txt", "a") as handle:
        print(f"## {label}", file=handle)
        for event in sorted(seen.events(), key=lambda e: e.time_range.start):
            if event.device_type == torch.autograd.DeviceType.CUDA:
                print(f"{event.time_range.elapsed_us():9.2f}  {event.name[:110]}", file=handle)


def layer_stack(config):
    """Two to four layers with weights of their own, and the shape of what goes through them."""
    model, precision, attention, hidden, ffn, heads, kv, seq, batch, tp = config
    tokens = seq * batch
    gathered = normal(tokens, hidden)
    kind = {"llama": Llama, "gpt": Gpt}[model]
    weights = hidden * hidden * 4 + 3 * hidden * ffn
    count = 4 if weights / tp < 4e8 else 2
    stack = [kind(precision, attention, hidden, ffn, heads, kv, seq, batch, tp, gathered)
             for _ in range(count)]
    return stack, (tokens // tp, hidden)


def experts_stack(config):
    hidden, ffn, experts, local, top, shared, tokens = config
    received = normal(tokens * top, hidden)
    stack = [Experts(hidden, ffn, experts, local, top, shared, tokens, received)
             for _ in range(2)]
    return stack, (tokens, hidden)


def measure_one(bench, name, config, seconds):
    """Times a stack; returns microseconds per layer forward and backward, power and clock."""
    stack, shape = (experts_stack if name == "experts" else layer_stack)(config)
    x, g = normal(*shape), normal(*shape)

    def forward():
        y = x
        for layer in stack:
            y = layer.forward(y)
        return y

    def backward():
        y = g
        for layer in reversed(stack):
            y = layer.backward(y)
        return y

    def step():
        forward()
        backward()

    for _ in range(2):
        step()
    bench.stream.synchronize()
    if seconds == 0:
        profile(bench, " ".join(map(str, config)), step)
        return
    ahead, _ = captured(bench.stream, forward)
    back, _ = captured(bench.stream, backward, ahead.pool())
    started, times = time.monotonic(), []
    while len(times) < 5 or time.monotonic() - started < seconds:
        mark = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
        mark[0].record(bench.stream)
        ahead.replay()
        mark[1].record(bench.stream)
        back.replay()
        mark[2].record(bench.stream)
        if len(times) % 4 == 3:
            mark[2].synchronize()
        times.append(mark)
    bench.stream.synchronize()
    watts, clock = bench.power.between(started + 0.4 * seconds, time.monotonic())
    late = times[len(times) // 3:]
    for i, direction in enumerate(["fwd", "bwd"]):
        us = statistics.median(m[i].elapsed_time(m[i + 1]) for m in late) * 1e3 / len(stack)
        result = [direction, round(us, 2), watts, clock]
        if name == "experts":
            bench.row("h200_experts.csv", EXPERT_COLUMNS, [*config, *result])
        else:
            *sizes, seq, batch, tp = config
            dim = config[3] // config[5]
            bench.row("h200_layers.csv", COLUMNS, [*sizes, dim, seq, batch, tp, *result])
    back.reset()
    ahead.reset()


def measure(bench, pool, work=None, seconds=0.5):
    """The layers; a configuration that fails is reported and skipped."""
    for name, config in work or [("layer", config) for config in CONFIGS]:
        if bench.late():
            return
        try:
            with torch.cuda.stream(bench.stream), torch.no_grad():
                measure_one(bench, name, config, seconds)
        except Exception as error:
            bench.failures.append(f"{name} {config}: {error}"[:400])
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def measure_experts(bench, pool):
    """The experts, for longer: their grouped products take the clock down more slowly."""
    measure(bench, pool, [("experts", config) for config in EXPERTS], seconds=2.5)


def profiles(bench, pool):
    """The kernels inside the layers, by name: to explain a sum that is off."""
    measure(bench, pool, seconds=0)
