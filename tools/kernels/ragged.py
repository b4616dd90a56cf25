"""Products of experts with whole tiles of tokens, and with tokens as a router deals them out.

    python3 tools/kernels/ragged.py
"""

import torch

SHAPES = [
    (32, 32768, 4096, 7168), (32, 32768, 7168, 2048), (20, 24576, 3072, 5120),
    (8, 16384, 4096, 7168), (4, 32768, 4096, 7168), (64, 32768, 2816, 2048),
]
KINDS = ["even", "random", "padded to 16"]


def microseconds(call, times=30):
    """The middle of seven runs of so many calls."""
    for _ in range(5):
        call(0)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    taken = []
    for _ in range(7):
        begin.record()
        for index in range(times):
            call(index)
        end.record()
        torch.cuda.synchronize()
        taken.append(begin.elapsed_time(end) / times * 1e3)
    return sorted(taken)[3]


def ends(kind, groups, tokens):
    """Where each expert's tokens end."""
    if kind == "even":
        counts = torch.full((groups,), tokens // groups)
    else:
        counts = torch.bincount(torch.randint(0, groups, (tokens,)), minlength=groups)
    if kind == "padded to 16":
        counts = (counts + 15) // 16 * 16
    return counts.cumsum(0).to(torch.int32).cuda()


def main():
    torch.manual_seed(1)
    for groups, tokens, n, k in SHAPES:
        room = tokens + 256 * groups

        def numbers(*shape):
            return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

        x, w, g = numbers(room, k), numbers(groups, n, k), numbers(room, n)
        for kind in KINDS:
            o = [ends(kind, groups, tokens) for _ in range(10)]
            calls = {
                "forward": lambda i: torch._grouped_mm(x, w.transpose(1, 2), offs=o[i % 10]),
                "input gradient": lambda i: torch._grouped_mm(g, w, offs=o[i % 10]),
            }
            if kind != "random":
                calls["weight gradient"] = lambda i: torch._grouped_mm(g.t(), x, offs=o[i % 10])
            taken = {name: round(microseconds(call), 1) for name, call in calls.items()}
            print((groups, tokens, n, k), kind, taken, flush=True)


main()
