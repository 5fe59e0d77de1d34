"""Runs the kernel of saxpy.cpp on tensors and streams of PyTorch and CuPy: python3 saxpy.py LIBRARY

Exits with 77 if neither of them is installed with a GPU.
"""
import ctypes
import sys

saxpy = ctypes.CDLL(sys.argv[1]).saxpy
saxpy.argtypes = [ctypes.c_int, ctypes.c_float, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p]
n = 1_000_000
ran = False

try:
    import torch
except ImportError:
    torch = None
if torch and torch.cuda.is_available():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.arange(n, device="cuda", dtype=torch.float32)
        y = torch.ones_like(x)
        # In order with PyTorch's own work on the stream: nothing here waits.
        assert saxpy(n, 2.0, x.data_ptr(), y.data_ptr(), stream.cuda_stream) == 0
        y *= 10
    stream.synchronize()
    assert torch.equal(y.cpu(), 10 + 20 * torch.arange(n, dtype=torch.float32))

    # A launch in a CUDA graph.
    graph = torch.cuda.CUDAGraph()
    y = torch.ones_like(x)
    with torch.cuda.graph(graph):
        y += 1
        assert saxpy(n, 1.0, x.data_ptr(), y.data_ptr(), torch.cuda.current_stream().cuda_stream) == 0
    for _ in range(3):
        graph.replay()
    assert torch.equal(y.cpu(), 4 + 3 * torch.arange(n, dtype=torch.float32))
    print(f"PyTorch {torch.__version__}: tensors, a stream and a graph")
    ran = True

try:
    import cupy
    cupy.cuda.runtime.getDeviceCount()
except Exception:  # CuPy's own type of error is unknown if it cannot be imported.
    cupy = None
if cupy:
    with cupy.cuda.Stream(non_blocking=True) as stream:
        x = cupy.arange(n, dtype=cupy.float32)
        y = cupy.ones_like(x)
        assert saxpy(n, 2.0, x.data.ptr, y.data.ptr, stream.ptr) == 0
        y *= 10
    stream.synchronize()
    assert (y.get() == 10 + 20 * cupy.arange(n, dtype=cupy.float32).get()).all()
    print(f"CuPy {cupy.__version__}: arrays and a stream")
    ran = True

if not ran:
    print("neither PyTorch nor CuPy has a GPU here")
    sys.exit(77)
