"""The fused memory-bound kernels of a training step, as training frameworks write them.

Each is the plain streaming form: every operand is read once and every result written once, with
16-byte accesses. They stand for the fused kernels of Megatron-LM, Transformer Engine and Liger.
"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def _swiglu_fwd(x, y, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = at < cols
    gate = tl.load(x + row * 2 * cols + at, mask=ok).to(tl.float32)
    up = tl.load(x + row * 2 * cols + cols + at, mask=ok).to(tl.float32)
    tl.store(y + row * cols + at, (gate * tl.sigmoid(gate) * up).to(tl.bfloat16), mask=ok)


@triton.jit
def _swiglu_bwd(x, dy, dx, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = at < cols
    gate = tl.load(x + row * 2 * cols + at, mask=ok).to(tl.float32)
    up = tl.load(x + row * 2 * cols + cols + at, mask=ok).to(tl.float32)
    g = tl.load(dy + row * cols + at, mask=ok).to(tl.float32)
    sig = tl.sigmoid(gate)
    dgate = g * up * sig * (1 + gate * (1 - sig))
    tl.store(dx + row * 2 * cols + at, dgate.to(tl.bfloat16), mask=ok)
    tl.store(dx + row * 2 * cols + cols + at, (g * gate * sig).to(tl.bfloat16), mask=ok)


@triton.jit
def _gelu_value(z):
    return z * tl.sigmoid(1.5957691216 * (z + 0.044715 * z * z * z))


@triton.jit
def _bias_gelu_fwd(x, bias, y, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = at < cols
    z = tl.load(x + row * cols + at, mask=ok).to(tl.float32)
    z += tl.load(bias + at, mask=ok).to(tl.float32)
    tl.store(y + row * cols + at, _gelu_value(z).to(tl.bfloat16), mask=ok)


@triton.jit
def _bias_gelu_bwd(x, bias, dy, dx, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = at < cols
    z = tl.load(x + row * cols + at, mask=ok).to(tl.float32)
    z += tl.load(bias + at, mask=ok).to(tl.float32)
    g = tl.load(dy + row * cols + at, mask=ok).to(tl.float32)
    s = tl.sigmoid(1.5957691216 * (z + 0.044715 * z * z * z))
    slope = s + z * s * (1 - s) * 1.5957691216 * (1 + 3 * 0.044715 * z * z)
    tl.store(dx + row * cols + at, (g * slope).to(tl.bfloat16), mask=ok)


@triton.jit
def _kept(seed, where, BLOCK: tl.constexpr):
    """A tenth is dropped. One Philox call gives four numbers, as in PyTorch's kernels."""
    a, b, c, d = tl.rand4x(seed, where + tl.arange(0, BLOCK // 4))
    return tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), [BLOCK]) > 0.1


@triton.jit
def _bias_dropout_add(x, bias, residual, y, kept, cols, seed, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = at < cols
    where = row * cols + at
    z = tl.load(x + where, mask=ok).to(tl.float32) + tl.load(bias + at, mask=ok).to(tl.float32)
    keep = _kept(seed, (row * tl.num_programs(1) + tl.program_id(1)).to(tl.int32) * BLOCK, BLOCK)
    z = tl.where(keep, z * (1 / 0.9), 0.0) + tl.load(residual + where, mask=ok).to(tl.float32)
    tl.store(y + where, z.to(tl.bfloat16), mask=ok)
    tl.store(kept + where, keep.to(tl.uint8), mask=ok)


@triton.jit
def _dropout_fwd(x, y, kept, n, seed, BLOCK: tl.constexpr):
    where = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = where < n
    keep = _kept(seed, tl.program_id(0) * BLOCK, BLOCK)
    z = tl.load(x + where, mask=ok).to(tl.float32)
    tl.store(y + where, tl.where(keep, z * (1 / 0.9), 0.0).to(tl.bfloat16), mask=ok)
    tl.store(kept + where, keep.to(tl.uint8), mask=ok)


@triton.jit
def _dropout_bwd(dy, kept, dx, n, BLOCK: tl.constexpr):
    where = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = where < n
    g = tl.load(dy + where, mask=ok).to(tl.float32)
    keep = tl.load(kept + where, mask=ok)
    tl.store(dx + where, tl.where(keep != 0, g * (1 / 0.9), 0.0).to(tl.bfloat16), mask=ok)


@triton.jit
def _softmax_fwd(x, y, cols, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    seen = at <= row % cols
    z = tl.load(x + row * cols + at, mask=seen, other=-float("inf")).to(tl.float32) * scale
    e = tl.exp(z - tl.max(z, 0))
    tl.store(y + row * cols + at, (e / tl.sum(e, 0)).to(tl.bfloat16), mask=at < cols)


@triton.jit
def _softmax_bwd(y, dy, cols, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    seen = at <= row % cols
    p = tl.load(y + row * cols + at, mask=seen, other=0.0).to(tl.float32)
    g = tl.load(dy + row * cols + at, mask=seen, other=0.0).to(tl.float32)
    d = (g - tl.sum(p * g, 0)) * p * scale
    tl.store(dy + row * cols + at, d.to(tl.bfloat16), mask=at < cols)


@triton.jit
def _norm_fwd(x, weight, y, inverse, cols, CENTRE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    ok = at < cols
    z = tl.load(x + row * cols + at, mask=ok, other=0.0).to(tl.float32)
    if CENTRE:
        z = tl.where(ok, z - tl.sum(z, 0) / cols, 0.0)
    r = 1 / tl.sqrt(tl.sum(z * z, 0) / cols + 1e-5)
    tl.store(inverse + row, r)
    w = tl.load(weight + at, mask=ok, other=0.0).to(tl.float32)
    tl.store(y + row * cols + at, (z * r * w).to(tl.bfloat16), mask=ok)


@triton.jit
def _norm_bwd(x, weight, dy, inverse, dx, partial, rows, cols, CENTRE: tl.constexpr,
              BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    ok = at < cols
    w = tl.load(weight + at, mask=ok, other=0.0).to(tl.float32)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        where = row.to(tl.int64) * cols + at
        z = tl.load(x + where, mask=ok, other=0.0).to(tl.float32)
        g = tl.load(dy + where, mask=ok, other=0.0).to(tl.float32)
        if CENTRE:
            z = tl.where(ok, z - tl.sum(z, 0) / cols, 0.0)
        r = tl.load(inverse + row)
        z *= r
        total += g * z
        g *= w
        d = g - z * (tl.sum(g * z, 0) / cols)
        if CENTRE:
            d -= tl.sum(g, 0) / cols
        tl.store(dx + where, (d * r).to(tl.bfloat16), mask=ok)
    tl.store(partial + tl.program_id(0) * cols + at, total, mask=ok)


@triton.jit
def _rope(x, cosine, sine, y, heads, x_row, y_row, HEADS: tl.constexpr, HALF: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, HEADS)[:, None]
    at = tl.arange(0, HALF)[None, :]
    where = head * 2 * HALF + at
    x += token * x_row
    y += token * y_row
    ok = (head < heads) & (at < HALF)
    c = tl.load(cosine + token * HALF + at)
    s = tl.load(sine + token * HALF + at)
    a = tl.load(x + where, mask=ok).to(tl.float32)
    b = tl.load(x + where + HALF, mask=ok).to(tl.float32)
    tl.store(y + where, (a * c - b * s).to(tl.bfloat16), mask=ok)
    tl.store(y + where + HALF, (b * c + a * s).to(tl.bfloat16), mask=ok)


@triton.jit
def _cross_entropy(logits, target, loss, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    logits += row * cols
    top = -float("inf")
    total = 0.0
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        z = tl.load(logits + at, mask=at < cols, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(z, 0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(z - higher), 0)
        top = higher
    truth = tl.load(target + row)
    tl.store(loss + row, tl.log(total) + top - tl.load(logits + truth).to(tl.float32))
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        z = tl.load(logits + at, mask=at < cols, other=-float("inf")).to(tl.float32)
        g = tl.exp(z - top) / total - tl.where(at == truth, 1.0, 0.0)
        tl.store(logits + at, g.to(tl.bfloat16), mask=at < cols)


@triton.jit
def _fp8_cast(x, y, scale, n, BLOCK: tl.constexpr):
    where = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = where < n
    z = tl.load(x + where, mask=ok).to(tl.float32) * tl.load(scale)
    tl.store(y + where, tl.clamp(z, -448.0, 448.0).to(tl.float8e4nv), mask=ok)


@triton.jit
def _fp8_cast_transpose(x, y, yt, scale, rows, cols, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.program_id(1) * C + tl.arange(0, C)
    where = r[:, None].to(tl.int64) * cols + c[None, :]
    ok = (r[:, None] < rows) & (c[None, :] < cols)
    z = tl.load(x + where, mask=ok).to(tl.float32) * tl.load(scale)
    q = tl.clamp(z, -448.0, 448.0).to(tl.float8e4nv)
    tl.store(y + where, q, mask=ok)
    there = c[:, None].to(tl.int64) * rows + r[None, :]
    tl.store(yt + there, tl.trans(q), mask=(c[:, None] < cols) & (r[None, :] < rows))


@triton.jit
def _fp8_block(x, y, scales, n, GROUPS: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * GROUPS
    where = (first + tl.arange(0, GROUPS))[:, None] * 128 + tl.arange(0, 128)[None, :]
    z = tl.load(x + where, mask=where < n, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(z), 1), 1e-12) / 448.0
    tl.store(y + where, (z / scale[:, None]).to(tl.float8e4nv), mask=where < n)
    at = first + tl.arange(0, GROUPS)
    tl.store(scales + at, scale, mask=at * 128 < n)


@triton.jit
def _fp8_block_transpose(x, y, yt, scales, scales_t, rows, cols):
    r = tl.program_id(0) * 128 + tl.arange(0, 128)
    c = tl.program_id(1) * 128 + tl.arange(0, 128)
    where = r[:, None].to(tl.int64) * cols + c[None, :]
    ok = (r[:, None] < rows) & (c[None, :] < cols)
    z = tl.load(x + where, mask=ok, other=0.0).to(tl.float32)
    across = tl.maximum(tl.max(tl.abs(z), 1), 1e-12) / 448.0
    tl.store(y + where, (z / across[:, None]).to(tl.float8e4nv), mask=ok)
    tl.store(scales + tl.program_id(1) * rows + r, across, mask=r < rows)
    down = tl.maximum(tl.max(tl.abs(z), 0), 1e-12) / 448.0
    there = c[:, None].to(tl.int64) * rows + r[None, :]
    q = tl.trans((z / down[None, :]).to(tl.float8e4nv))
    tl.store(yt + there, q, mask=(c[:, None] < cols) & (r[None, :] < rows))
    tl.store(scales_t + tl.program_id(0) * cols + c, down, mask=c < cols)


@triton.jit
def _fp8_amax(x, greatest, n, BLOCK: tl.constexpr):
    where = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(x + where, mask=where < n, other=0.0).to(tl.float32)
    tl.atomic_max(greatest, tl.max(tl.abs(z), 0))


@triton.jit
def _combine(x, order, weight, y, cols, TOP: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = at < cols
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for k in range(TOP):
        row = tl.load(order + token * TOP + k).to(tl.int64)
        w = tl.load(weight + token * TOP + k)
        total += w * tl.load(x + row * cols + at, mask=ok).to(tl.float32)
    tl.store(y + token * cols + at, total.to(tl.bfloat16), mask=ok)


def _grid(rows, cols):
    return (rows, triton.cdiv(cols, BLOCK))


def swiglu_fwd(x, y):
    _swiglu_fwd[_grid(*y.shape)](x, y, y.shape[1], BLOCK=BLOCK)


def swiglu_bwd(x, dy, dx):
    _swiglu_bwd[_grid(*dy.shape)](x, dy, dx, dy.shape[1], BLOCK=BLOCK)


def bias_gelu_fwd(x, bias, y):
    _bias_gelu_fwd[_grid(*y.shape)](x, bias, y, y.shape[1], BLOCK=BLOCK)


def bias_gelu_bwd(x, bias, dy, dx):
    _bias_gelu_bwd[_grid(*dy.shape)](x, bias, dy, dx, dy.shape[1], BLOCK=BLOCK)


def bias_dropout_add(x, bias, residual, y, kept):
    _bias_dropout_add[_grid(*y.shape)](x, bias, residual, y, kept, y.shape[1], 7, BLOCK=BLOCK)


def dropout_fwd(x, y, kept):
    n = x.numel()
    _dropout_fwd[(triton.cdiv(n, BLOCK),)](x, y, kept, n, 7, BLOCK=BLOCK)


def dropout_bwd(dy, kept, dx):
    n = dy.numel()
    _dropout_bwd[(triton.cdiv(n, BLOCK),)](dy, kept, dx, n, BLOCK=BLOCK)


def softmax_fwd(x, y, scale):
    cols = x.shape[-1]
    block = triton.next_power_of_2(cols)
    _softmax_fwd[(x.numel() // cols,)](x, y, cols, scale, BLOCK=block,
                                       num_warps=4 if block <= 2048 else 8)


def softmax_bwd(y, dy, scale):
    cols = y.shape[-1]
    block = triton.next_power_of_2(cols)
    _softmax_bwd[(y.numel() // cols,)](y, dy, cols, scale, BLOCK=block,
                                       num_warps=4 if block <= 2048 else 8)


def _warps(block):
    return max(4, min(32, block // 512))


def norm_fwd(x, weight, y, inverse, centre):
    block = triton.next_power_of_2(x.shape[1])
    _norm_fwd[(x.shape[0],)](x, weight, y, inverse, x.shape[1], CENTRE=centre, BLOCK=block,
                             num_warps=_warps(block))


def norm_bwd(x, weight, dy, inverse, dx, partial, centre):
    """`partial` has a row for each program: the weight's gradient is its column sum."""
    block = triton.next_power_of_2(x.shape[1])
    _norm_bwd[(partial.shape[0],)](x, weight, dy, inverse, dx, partial, *x.shape, CENTRE=centre,
                                   BLOCK=block, num_warps=_warps(block))
    return partial.sum(0)


def norm_programs(cols):
    """As many as stay resident: narrow rows leave room for several to an SM."""
    return 132 * max(1, min(4, 8192 // triton.next_power_of_2(cols)))


def rope(x, cosine, sine, y):
    tokens, heads, dim = x.shape
    assert x.stride(1) == dim and y.stride(1) == dim
    _rope[(tokens,)](x, cosine, sine, y, heads, x.stride(0), y.stride(0),
                     HEADS=triton.next_power_of_2(heads), HALF=dim // 2)


def cross_entropy(logits, target, loss):
    _cross_entropy[(logits.shape[0],)](logits, target, loss, logits.shape[1], BLOCK=8192,
                                       num_warps=16)


def fp8_cast(x, y, scale):
    n = x.numel()
    _fp8_cast[(triton.cdiv(n, 4096),)](x, y, scale, n, BLOCK=4096)


def fp8_cast_transpose(x, y, yt, scale):
    rows, cols = x.shape
    _fp8_cast_transpose[(triton.cdiv(rows, 64), triton.cdiv(cols, 128))](
        x, y, yt, scale, rows, cols, R=64, C=128)


def fp8_block(x, y, scales):
    n = x.numel()
    _fp8_block[(triton.cdiv(n, 128 * 32),)](x, y, scales, n, GROUPS=32)


def fp8_block_transpose(x, y, yt, scales, scales_t):
    """A scale for each 128 channels of a token, and for each 128 tokens of a channel."""
    rows, cols = x.shape
    _fp8_block_transpose[(triton.cdiv(rows, 128), triton.cdiv(cols, 128))](
        x, y, yt, scales, scales_t, rows, cols, num_warps=8)


def fp8_amax(x, greatest):
    n = x.numel()
    _fp8_amax[(triton.cdiv(n, 16384),)](x, greatest, n, BLOCK=16384, num_warps=8)


def combine(x, order, weight, y):
    _combine[_grid(*y.shape)](x, order, weight, y, y.shape[1], TOP=order.shape[1], BLOCK=BLOCK)


def check():
    """Each kernel against the plain definition in float32, once, before anything is timed."""
    dev = "cuda"
    worst = {}

    def note(name, got, want):
        got, want = got.detach(), want.detach()
        error = (got.float() - want.float()).norm() / want.float().norm()
        worst[name] = float(error)

    x = torch.randn(64, 2 * 1536, device=dev, dtype=torch.bfloat16)
    dy = torch.randn(64, 1536, device=dev, dtype=torch.bfloat16)
    xf = x.float().requires_grad_()
    want = torch.nn.functional.silu(xf[:, :1536]) * xf[:, 1536:]
    want.backward(dy.float())
    y, dx = torch.full_like(dy, float("nan")), torch.full_like(x, float("nan"))
    swiglu_fwd(x, y)
    swiglu_bwd(x, dy, dx)
    note("swiglu_fwd", y, want)
    note("swiglu_bwd", dx, xf.grad)
    bias = torch.randn(1536, device=dev, dtype=torch.bfloat16)
    z = (dy.float() + bias.float()).requires_grad_()
    want = torch.nn.functional.gelu(z, approximate="tanh")
    want.sum().backward()
    got = torch.full_like(dy, float("nan"))
    bias_gelu_fwd(dy, bias, got)
    note("bias_gelu_fwd", got, want)
    bias_gelu_bwd(dy, bias, torch.ones_like(dy), got)
    note("bias_gelu_bwd", got, z.grad)
    s = torch.randn(2 * 512, 512, device=dev, dtype=torch.bfloat16)
    mask = torch.ones(512, 512, device=dev).tril().bool().repeat(2, 1)
    sf = s.float().requires_grad_()
    want = torch.softmax((sf * 0.5).masked_fill(~mask, -float("inf")), -1)
    g = torch.randn_like(s)
    want.backward(g.float())
    p = torch.full_like(s, float("nan"))
    softmax_fwd(s, p, 0.5)
    note("softmax_fwd", p, want)
    softmax_bwd(p, g, 0.5)
    note("softmax_bwd", g, sf.grad)
    for name, centre in [("rmsnorm_fused", False), ("layernorm_fused", True)]:
        x = torch.randn(300, 1536, device=dev, dtype=torch.bfloat16)
        g, w = torch.randn_like(x), torch.randn(1536, device=dev, dtype=torch.bfloat16)
        xf, wf = x.float().requires_grad_(), w.float().requires_grad_()
        z = xf - xf.mean(1, keepdim=True) if centre else xf
        want = z * torch.rsqrt((z * z).mean(1, keepdim=True) + 1e-5) * wf
        want.backward(g.float())
        y, dx = torch.full_like(x, float("nan")), torch.full_like(x, float("nan"))
        r, partial = torch.empty(300, device=dev), torch.empty(132, 1536, device=dev)
        norm_fwd(x, w, y, r, centre)
        dw = norm_bwd(x, w, g, r, dx, partial, centre)
        note(name + "_fwd", y, want)
        note(name + "_bwd", dx, xf.grad)
        note(name + "_weight", dw, wf.grad)
    logits = torch.randn(16, 50000, device=dev, dtype=torch.bfloat16)
    target = torch.randint(0, 50000, (16,), device=dev)
    lf = logits.float().requires_grad_()
    torch.nn.functional.cross_entropy(lf, target, reduction="sum").backward()
    cross_entropy(logits, target, torch.empty(16, device=dev))
    note("cross_entropy", logits, lf.grad)
    q = torch.randn(32, 10, 128, device=dev, dtype=torch.bfloat16)
    angle = torch.randn(32, 64, device=dev)
    got = torch.full_like(q, float("nan"))
    rope(q, angle.cos(), angle.sin(), got)
    a, b = q.float()[..., :64], q.float()[..., 64:]
    c, sn = angle.cos()[:, None], angle.sin()[:, None]
    note("rope", got, torch.cat([a * c - b * sn, b * c + a * sn], -1))
    one = torch.ones(1, device=dev)
    m = torch.randn(256, 384, device=dev, dtype=torch.bfloat16)
    m8 = torch.empty(256, 384, device=dev, dtype=torch.float8_e4m3fn)
    mt = torch.empty(384, 256, device=dev, dtype=torch.float8_e4m3fn)
    fp8_cast_transpose(m, m8, mt, one)
    note("fp8_cast_transpose", mt, m.to(torch.float8_e4m3fn).float().t())
    order = torch.randperm(64 * 2, device=dev).view(64, 2)
    weight = torch.rand(64, 2, device=dev)
    rows = torch.randn(128, 1536, device=dev, dtype=torch.bfloat16)
    got = torch.full_like(dy, float("nan"))
    combine(rows, order, weight, got)
    note("combine", got, (rows.float()[order] * weight[..., None]).sum(1))
    return worst
