"""cuBLAS's products against numpy, for sizes around the edges of the tiles."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from gpuwatch.sim.simulated_machine import SimMachine

Run = Callable[..., str]

HEAD = """
import json, itertools, numpy as np
from ctypes import *
from tests.sim.cuda_client import use, check
use(0)
blas = CDLL("libcublas.so.12")
handle = c_void_p()
check(blas.cublasCreate_v2(byref(handle)))
rng = np.random.default_rng(1)
def p(array): return array.ctypes.data_as(c_void_p)
def matrix(rows, columns, extra, dtype):
    # column-major with a gap below each column, filled with NaN that must never be read
    whole = np.full((rows + extra, columns), np.nan, dtype=dtype, order="F")
    whole[:rows] = rng.standard_normal((rows, columns))
    return whole
def error(got, want, k): return float(np.max(np.abs(got - want)) / (1 + k) ** 0.5) if got.size else 0.0
"""


@pytest.fixture
def ask(machine: SimMachine, run: Run) -> Callable[[str], Any]:
    pytest.importorskip("numpy", reason="numpy is the reference here; it comes with TensorFlow")
    return lambda code: json.loads(run(machine, HEAD + code))


@pytest.mark.parametrize(
    ("letter", "real", "dtype", "tolerance"), [("S", "c_float", "float32", 2e-5), ("D", "c_double", "float64", 1e-13)]
)
def test_all_transposes_sizes_and_factors(
    ask: Callable[[str], Any], letter: str, real: str, dtype: str, tolerance: float
) -> None:
    worst, checked = ask(f"""
worst, checked = 0.0, 0
sizes = [(1, 1, 1), (2, 3, 5), (31, 11, 7), (32, 12, 320), (33, 13, 321), (64, 24, 64), (97, 101, 103),
         (193, 1, 650), (1, 193, 33), (200, 1600, 40), (17, 5, 0)]
for (m, n, k), ta, tb, alpha, beta in itertools.product(sizes, (0, 1, 2), (0, 1), (1.0, -0.5), (0.0, 1.0, 0.25)):
    a = matrix(*((k, m) if ta else (m, k)), 3, "{dtype}"); b = matrix(*((n, k) if tb else (k, n)), 1, "{dtype}")
    c = matrix(m, n, 2, "{dtype}")
    A = a[:k].T if ta else a[:m]; B = b[:n].T if tb else b[:k]
    want = alpha * (A.astype("float64") @ B.astype("float64"))
    if beta: want = want + beta * c[:m]
    else: c[:m] = np.nan  # what is overwritten is not read
    check(blas.cublas{letter}gemm_v2(handle, ta, tb, m, n, k, byref({real}(alpha)), p(a), a.shape[0], p(b), b.shape[0],
          byref({real}(beta)), p(c), c.shape[0]))
    worst = max(worst, error(c[:m], want, k)); checked += 1
    assert np.isnan(c[m:]).all(), "wrote below a column"
    assert not np.isnan(worst), (m, n, k, ta, tb, alpha, beta)
print(json.dumps([worst, checked]))""")
    assert checked == 11 * 36
    assert 0 < worst < tolerance


@pytest.mark.parametrize(
    ("kind", "dtype", "tolerance"), [(0, "float32", 1e-5), (1, "float64", 1e-13), (2, "float16", 3e-3)]
)
def test_batches_and_types(ask: Callable[[str], Any], kind: int, dtype: str, tolerance: float) -> None:
    worst = ask(f"""
m, n, k, count = 37, 19, 45, 5
a = rng.standard_normal((count, m, k)).astype("{dtype}"); b = rng.standard_normal((count, k, n)).astype("{dtype}")
c = np.full((count, m, n), np.nan, "{dtype}")
compute, real = (70, c_double) if {kind} == 1 else (68, c_float)
one, zero = real(1), real(0)
# row-major products are column-major ones with the operands exchanged
check(blas.cublasGemmStridedBatchedEx(handle, 0, 0, n, m, k, byref(one), p(b), {kind}, n, c_longlong(k * n),
      p(a), {kind}, k, c_longlong(m * k), byref(zero), p(c), {kind}, n, c_longlong(m * n), count, compute, -1))
want = a.astype("float64") @ b.astype("float64")
worst = [error(c.astype("float64"), want, k)]
c[:] = np.nan
def pointers(x): return (c_void_p * count)(*(x[i].ctypes.data for i in range(count)))
check(blas.cublasGemmBatchedEx(handle, 0, 0, n, m, k, byref(one), pointers(b), {kind}, n, pointers(a), {kind}, k,
      byref(zero), pointers(c), {kind}, n, count, compute, -1))
worst.append(error(c.astype("float64"), want, k))
c[:] = np.nan
check(blas.cublasGemmEx(handle, 0, 0, n, m, k, byref(one), p(b), {kind}, n, p(a), {kind}, k, byref(zero),
      p(c), {kind}, n, compute, -1))
worst.append(error(c[0].astype("float64"), want[0], k))
print(json.dumps(worst))""")
    assert len(worst) == 3
    assert all(value < tolerance for value in worst)


def test_half_and_bfloat_round_as_they_should(ask: Callable[[str], Any]) -> None:
    """Multiplying by the identity is a round trip through the conversions."""
    assert ask("""
every = np.arange(65536, dtype=np.uint16)
finite = every[(every & 0x7c00) != 0x7c00]
one, zero = c_float(1), c_float(0)
def through(values, kind):
    # x * 1 in single precision, then narrowed
    unit = np.array([{2: 0x3c00, 14: 0x3f80}[kind]], np.uint16)
    out = np.zeros_like(values)
    check(blas.cublasGemmEx(handle, 0, 0, len(values), 1, 1, byref(one), p(values), kind, len(values), p(unit), kind, 1,
          byref(zero), p(out), kind, len(values), 68, -1))
    return out
half = through(finite, 2)
same = (half == finite) | ((finite & 0x7fff) == 0)
brain = every[(every & 0x7f80) != 0x7f80]
kept = (through(brain, 14) == brain) | ((brain & 0x7fff) == 0)
# narrowing: 3 * x rounds to the nearest half, as numpy does it
three = c_float(3)
out = np.zeros_like(finite); unit = np.array([0x3c00], np.uint16)
check(blas.cublasGemmEx(handle, 0, 0, len(finite), 1, 1, byref(three), p(finite), 2, len(finite), p(unit), 2, 1,
      byref(zero), p(out), 2, len(finite), 68, -1))
with np.errstate(over="ignore"):
    want = (finite.view(np.float16).astype(np.float32) * np.float32(3)).astype(np.float16)
near = (out.view(np.float16) == want)
print(json.dumps([bool(same.all()), bool(kept.all()), bool(near.all())]))""") == [True, True, True]


def test_wrong_calls_are_refused(ask: Callable[[str], Any]) -> None:
    assert ask("""
a = np.zeros(16, "float32"); one, zero = c_float(1), c_float(0)
def gemm(h, m, lda, kind=0):
    return blas.cublasGemmEx(h, 0, 0, m, 2, 2, byref(one), p(a), kind, lda, p(a), kind, 2, byref(zero),
                             p(a), kind, 4, 68, -1)
calls = ((handle, 2, 2), (None, 2, 2), (handle, -1, 2), (handle, 4, 2), (handle, 2, 2, 3))
print(json.dumps([gemm(*call) for call in calls]))
""") == [0, 1, 7, 7, 15]


def test_it_is_fast_enough_to_stand_for_a_device(ask: Callable[[str], Any]) -> None:
    """Not a benchmark: far above the 1 to 2 GFLOP/s of a plain triple loop, even on a busy machine."""
    rate = ask("""
import time
n = 512; a = rng.standard_normal((n, n)).astype("float32"); c = np.empty_like(a); one, zero = c_float(1), c_float(0)
best = 1e9
for _ in range(20):
    began = time.perf_counter()
    check(blas.cublasSgemm_v2(handle, 0, 0, n, n, n, byref(one), p(a), n, p(a), n, byref(zero), p(c), n))
    best = min(best, time.perf_counter() - began)
print(2 * n**3 / best / 1e9)""")
    assert rate > 5
