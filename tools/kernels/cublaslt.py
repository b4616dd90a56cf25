"""fp8 products that are added to a buffer, which PyTorch has no call for: cuBLASLt by its C names."""

import ctypes
import functools

import torch

COMPUTE_32F, FP8_E4M3 = 68, 28
TYPES = {torch.float32: 0, torch.bfloat16: 14}
TRANSPOSE_A, SCALE_A, SCALE_B = 3, 17, 18  # attributes of a product
WORKSPACE = 64 << 20


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [("algorithm", ctypes.c_uint64 * 8), ("workspace", ctypes.c_size_t),
                ("state", ctypes.c_int), ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4)]


@functools.cache
def library():
    """The library that PyTorch has loaded, a handle and room to work in."""
    torch.zeros(16, 16, device="cuda") @ torch.zeros(16, 16, device="cuda")
    with open("/proc/self/maps") as maps:
        path = next(line.split()[-1] for line in maps if "libcublasLt.so" in line)
    lib = ctypes.CDLL(path)
    handle = ctypes.c_void_p()
    check(lib.cublasLtCreate(ctypes.byref(handle)))
    return lib, handle, torch.empty(WORKSPACE, dtype=torch.uint8, device="cuda")


def check(status):
    """Raises what a call answers other than success."""
    if status != 0:
        raise RuntimeError(f"cublasLt: status {status}")


def fp8_accumulate(a, b, c):
    """A launch of c += a @ b.T: a is m x k, b is n x k, both e4m3, c is bf16 or fp32."""
    lib, handle, room = library()
    (m, k), n = a.shape, b.shape[0]
    one = torch.ones(1, device="cuda")
    product = ctypes.c_void_p()
    check(lib.cublasLtMatmulDescCreate(ctypes.byref(product), COMPUTE_32F, TYPES[torch.float32]))
    for attribute, value in [(TRANSPOSE_A, ctypes.c_int(1)),
                             (SCALE_A, ctypes.c_void_p(one.data_ptr())),
                             (SCALE_B, ctypes.c_void_p(one.data_ptr()))]:
        size = ctypes.c_size_t(ctypes.sizeof(value))
        check(lib.cublasLtMatmulDescSetAttribute(product, attribute, ctypes.byref(value), size))

    def layout(kind, rows, columns):
        made = ctypes.c_void_p()
        sizes = [ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows)]
        check(lib.cublasLtMatrixLayoutCreate(ctypes.byref(made), kind, *sizes))
        return made

    # Columns first: the result is n x m, its first operand b.
    left, right = layout(FP8_E4M3, k, n), layout(FP8_E4M3, k, m)
    result = layout(TYPES[c.dtype], n, m)
    preference, limit = ctypes.c_void_p(), ctypes.c_size_t(WORKSPACE)
    check(lib.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)))
    check(lib.cublasLtMatmulPreferenceSetAttribute(preference, 1, ctypes.byref(limit),
                                                   ctypes.c_size_t(8)))
    best, found = Heuristic(), ctypes.c_int()
    check(lib.cublasLtMatmulAlgoGetHeuristic(handle, product, left, right, result, result,
                                             preference, 1, ctypes.byref(best),
                                             ctypes.byref(found)))
    alpha = ctypes.c_float(1.0)
    pointers = [ctypes.c_void_p(x.data_ptr()) for x in (a, b, c)]

    def call():
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        check(lib.cublasLtMatmul(
            handle, product, ctypes.byref(alpha), pointers[1], left, pointers[0], right,
            ctypes.byref(alpha), pointers[2], result, pointers[2], result,
            ctypes.byref(best.algorithm), ctypes.c_void_p(room.data_ptr()),
            ctypes.c_size_t(WORKSPACE), stream))

    call.keep = (a, b, c, one)  # as long as the launch may be repeated
    return call


def verify():
    """The largest difference from PyTorch's own product, as a share of the largest result."""
    a, b = (torch.randn(size, 512, device="cuda").to(torch.float8_e4m3fn) for size in (256, 384))
    c = torch.ones(256, 384, device="cuda")
    fp8_accumulate(a, b, c)()
    expected = 1.0 + a.float() @ b.float().t()
    return ((c - expected).abs().max() / expected.abs().max()).item()
