"""The products of the GPU probe with matrices in plain Python: right kernels pass, and one wrong element does not."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.runtime import io_gpu_probe
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.io_gpu_probe import (
    BOUND,
    MemoryShortageError,
    Runtime,
    StuckClockError,
    UnsupportedError,
    WrongResultError,
)

Rows = list[list[float]]


class Matrix:
    """What the probe uses of a tensor. A vector is a matrix of one row."""

    def __init__(self, rows: Rows) -> None:
        self.rows, self.shape = rows, (len(rows), len(rows[0]))

    def __getattr__(self, name: str) -> Any:
        if name in ("cuda", "cpu", "float", "double", "bfloat16", "to", "view", "flatten"):
            return lambda *_kind: self
        raise AttributeError(name)

    def __len__(self) -> int:
        return len(self.rows)

    def __float__(self) -> float:
        ((value,),) = self.rows
        return value

    def each(self, other: Any, change: Callable[[float, float], float]) -> Matrix:
        """Combine with a number or a matrix, whose single row or column counts for all."""
        right = other.rows if isinstance(other, Matrix) else [[other]]
        rows, columns = max(len(self.rows), len(right)), max(len(self.rows[0]), len(right[0]))

        def at(given: Rows, row: int, column: int) -> float:
            assert len(given) in (1, rows) and len(given[0]) in (1, columns), "other sizes"
            return given[row % len(given)][column % len(given[0])]

        return Matrix([[change(at(self.rows, r, c), at(right, r, c)) for c in range(columns)] for r in range(rows)])

    def __mul__(self, other: Any) -> Matrix:
        return self.each(other, lambda one, two: one * two)

    __rmul__ = __mul__

    def __add__(self, other: Any) -> Matrix:
        return self.each(other, lambda one, two: one + two)

    def __sub__(self, other: Any) -> Matrix:
        return self.each(other, lambda one, two: one - two)

    def __truediv__(self, other: Any) -> Matrix:
        return self.each(other, lambda one, two: one / two)

    def __rtruediv__(self, other: float) -> Matrix:
        return self.each(other, lambda one, two: two / one)

    def __matmul__(self, other: Matrix) -> Matrix:
        columns = other.t().rows
        assert len(self.rows[0]) == len(other)
        return Matrix([[sum(map(float.__mul__, row, column)) for column in columns] for row in self.rows])

    def t(self) -> Matrix:
        return Matrix([list(column) for column in zip(*self.rows, strict=True)])

    def abs(self) -> Matrix:
        return Matrix([[abs(value) for value in row] for row in self.rows])

    def max(self) -> Matrix:
        values = self.tolist()
        return Matrix([[math.nan if any(map(math.isnan, values)) else max(values)]])

    def tolist(self) -> list[float]:
        return [value for row in self.rows for value in row]

    def reshape(self, *size: Any) -> Matrix:
        rows, columns = size[0] if isinstance(size[0], tuple) else size
        values = self.tolist()
        width = columns if columns > 0 else len(values) // rows
        return Matrix([values[begin : begin + width] for begin in range(0, len(values), width)])


class Torch:
    """A PyTorch of matrices, whose random numbers are those of their seed and size."""

    bfloat16 = float8_e4m3fn = uint8 = float64 = ""
    __version__ = "2.14"

    def __init__(self) -> None:
        self.cuda = SimpleNamespace(
            init=lambda: None,
            get_device_properties=lambda _number: SimpleNamespace(name="GB10", is_integrated=True),
            mem_get_info=lambda: (0, 0),
            get_device_capability=lambda _number: (12, 1),
        )
        self.version = SimpleNamespace(cuda="13.0")

    def randn(self, rows: int, columns: int, generator: int) -> Matrix:
        return Matrix([[math.sin(generator + 3 * r + 7 * c) + 0.01 for c in range(columns)] for r in range(rows)])

    Generator = staticmethod(lambda: SimpleNamespace(manual_seed=lambda seed: seed))

    def tensor(self, value: Any, **_kind: Any) -> Matrix:
        return Matrix([value] if isinstance(value, list) else [[value]])

    def linspace(self, low: float, high: float, count: int, device: str) -> Matrix:
        assert device == "cuda"
        return Matrix([[low + (high - low) * index / max(1, count - 1) for index in range(count)]])

    def _scaled_mm(self, given: Matrix, weights: Matrix, scale_a: Matrix, scale_b: Matrix, out_dtype: str) -> Matrix:
        assert out_dtype == self.bfloat16
        return (given @ weights) * scale_a * scale_b


def quantized(values: Matrix, scale: Matrix) -> tuple[Matrix, Matrix]:
    """Return a matrix as NVFP4: two values in a byte, and the scales of the blocks in the order of the kernels."""
    rows, columns = values.shape
    scales, packed = [0] * (512 * -(-rows // 128) * -(-columns // 64)), []
    for r, row in enumerate((values * scale).rows):
        codes = []
        for begin in range(0, columns, 16):
            block = row[begin : begin + 16]
            byte = next(byte for byte in range(127) if io_gpu_probe.e4m3(byte) * 6 >= max(map(abs, block)) * 0.99)
            column = begin // 16
            scales[
                (r // 128 * -(-columns // 64) + column // 4) * 512 + r % 32 * 16 + r % 128 // 32 * 4 + column % 4
            ] = byte
            for value in block:
                size = abs(value) / (io_gpu_probe.e4m3(byte) or 1)
                code = min(range(8), key=lambda code, size=size: abs(io_gpu_probe._E2M1[code] - size))  # type: ignore[misc]
                codes.append(code | 8 * (value < 0))
        packed += [low | high << 4 for low, high in zip(codes[::2], codes[1::2], strict=True)]
    return Matrix([packed]), Matrix([scales])  # type: ignore[list-item]


class Ops:
    """vLLM's kernels, with a change of each result."""

    def __init__(self, change: Callable[[Matrix], Matrix] = lambda found: found) -> None:
        self.change, self.asked = change, list[int]()
        self.of_packed: dict[int, Matrix] = {}

    def cutlass_scaled_mm_supports_fp8(self, number: int) -> bool:
        self.asked.append(number)
        return True

    cutlass_scaled_mm_supports_fp4 = cutlass_scaled_mm_supports_fp8

    def cutlass_scaled_mm(
        self, given: Matrix, weights: Matrix, of_rows: Matrix, of_columns: Matrix, _kind: str
    ) -> Matrix:
        assert (of_rows.shape, of_columns.shape) == ((len(given), 1), (1, weights.shape[1])), (
            "scales of rows and columns"
        )
        return self.change((given @ weights) * of_rows * of_columns)

    def scaled_fp4_quant(self, values: Matrix, scale: Matrix) -> tuple[Matrix, Matrix]:
        assert float((values * scale).abs().max()) == pytest.approx(6 * 448), "the range of the type is used"
        packed, scales = quantized(values, scale)
        codes, factors = (list(map(int, each.tolist())) for each in (packed, scales))
        self.of_packed[id(packed)] = Matrix([io_gpu_probe.fp4_values(codes, factors, *values.shape)]).reshape(
            values.shape
        )
        self.kept = [*getattr(self, "kept", []), packed]
        return packed, scales

    def cutlass_scaled_fp4_mm(
        self, given: Matrix, weights: Matrix, _scales: Matrix, _of_weights: Matrix, factor: Matrix, _kind: str
    ) -> Matrix:
        return self.change((self.of_packed[id(given)] @ self.of_packed[id(weights)].t()) * factor)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Products of other sizes than on a GPU, each size another one."""
    monkeypatch.setattr(io_gpu_probe, "_ROWS", (1, 3))
    monkeypatch.setattr(io_gpu_probe, "_COLUMNS", 4)
    monkeypatch.setattr(io_gpu_probe, "_INNER", 32)
    yield


def wrong_element(found: Matrix) -> Matrix:
    """Change the largest element by a tenth, where there are three rows."""
    value = float(found.abs().max())
    rows = [[each * 1.1 if abs(each) == value and len(found) == 3 else each for each in row] for row in found.rows]
    return Matrix(rows)


def nothing(found: Matrix) -> Matrix:
    return found * (math.nan if len(found) == 1 else 1.0)


PRODUCTS = ("fp8_vllm", "fp4_vllm")


@pytest.mark.parametrize("name", ["bf16", "fp8_torch", *PRODUCTS])
def test_a_right_product_has_no_deviation(name: str) -> None:
    ops = Ops()
    error, message = io_gpu_probe.CHECKS[name](Runtime(Torch(), ops, (12, 1)))
    assert error < 1e-9 and message.startswith("largest deviation with ")
    assert ops.asked == [121] * (name in PRODUCTS)


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_wrong_element_or_none_is_found_with_its_rows(name: str) -> None:
    error, message = io_gpu_probe.CHECKS[name](Runtime(Torch(), Ops(wrong_element), (12, 1)))
    assert (round(error, 6), message) == (0.1, "largest deviation with 3 rows") and error > BOUND
    error, message = io_gpu_probe.CHECKS[name](Runtime(Torch(), Ops(nothing), (12, 1)))
    assert math.isnan(error) and message == "largest deviation with 1 rows"


def test_another_quantization_is_a_wrong_result(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(Ops):
        def scaled_fp4_quant(self, values: Matrix, scale: Matrix) -> tuple[Matrix, Matrix]:
            packed, scales = super().scaled_fp4_quant(values, scale)
            return Matrix([[byte ^ 0x88 for byte in map(int, packed.tolist())]]), scales

    with pytest.raises(WrongResultError, match="the quantization of 4 rows returned other values"):
        io_gpu_probe.CHECKS["fp4_vllm"](Runtime(Torch(), Wrong(), (12, 1)))
    monkeypatch.setattr(io_gpu_probe, "fp4_values", lambda *_given: [math.nan] * 128)
    with pytest.raises(WrongResultError):
        io_gpu_probe.CHECKS["fp4_vllm"](Runtime(Torch(), Ops(), (12, 1)))


@pytest.mark.parametrize(
    ("capability", "supported"), [((8, 9), True), ((8, 8), False), ((9, 0), True), ((7, 9), False)]
)
def test_pytorch_multiplies_fp8_from_8_9_on(capability: tuple[int, int], supported: bool) -> None:
    runtime = Runtime(Torch(), None, capability)
    if supported:
        assert io_gpu_probe.CHECKS["fp8_torch"](runtime)[0] < 1e-9
    else:
        with pytest.raises(UnsupportedError, match=r"from compute capability 8\.9 on"):
            io_gpu_probe.CHECKS["fp8_torch"](runtime)


@pytest.mark.parametrize(
    ("free", "integrated", "of_gpu", "problem"),
    [
        (2 << 30, True, 0, ""),
        (None, True, 0, ""),
        ((2 << 30) - 1, True, 0, "2047 MiB of memory are available, 2048 MiB are needed"),
        (2 << 30, False, 256 << 20, ""),
        (2 << 30, False, (256 << 20) - 1, "255 MiB of GPU memory are free, 256 MiB are needed"),
    ],
)
def test_the_memory_of_the_host_and_of_a_separate_gpu_is_compared(
    monkeypatch: pytest.MonkeyPatch, free: int | None, integrated: bool, of_gpu: int, problem: str
) -> None:
    torch, runtime = Torch(), Runtime()
    torch.cuda.get_device_properties = lambda _number: SimpleNamespace(name="GB10", is_integrated=integrated)
    torch.cuda.mem_get_info = lambda: (of_gpu, 1 << 40)
    monkeypatch.setattr(io_gpu_probe, "_available", lambda: free)
    monkeypatch.setattr(io_gpu_probe, "_random", lambda torch, *_size: torch.randn(2, 3, 1))
    monkeypatch.setattr(io_gpu_probe.importlib, "import_module", {"torch": torch}.__getitem__)
    if problem:
        with pytest.raises(MemoryShortageError, match=problem):
            io_gpu_probe.CHECKS["cuda"](runtime)
        return
    assert io_gpu_probe.CHECKS["cuda"](runtime) == (0.0, "GB10 (12.1), PyTorch 2.14")
    assert (runtime.torch, runtime.capability, runtime.number) == (torch, (12, 1), 121)
    torch.version.cuda = None
    with pytest.raises(ImportError, match=r"PyTorch 2\.14 was built without CUDA"):
        io_gpu_probe.CHECKS["cuda"](runtime)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("MemTotal: 9 kB\nMemAvailable:    3 kB\n", 3 << 10),
        ("MemTotal: 9 kB\n", None),
        ("MemAvailable: x kB\n", None),
        ("\xff", None),
    ],
)
def test_the_available_memory_may_be_unknown(monkeypatch: pytest.MonkeyPatch, text: str, expected: int | None) -> None:
    def opened(_path: str, encoding: str) -> Any:
        return io.TextIOWrapper(io.BytesIO(text.encode("latin-1")), encoding)

    monkeypatch.setattr(io_gpu_probe, "open", opened, raising=False)
    assert io_gpu_probe._available() == expected


@pytest.mark.parametrize(
    "there", [{"vllm._C"}, {"vllm._C_stable_libtorch"}, {"vllm._C", "vllm._C_stable_libtorch"}, set()]
)
def test_each_extension_of_vllm_that_exists_is_loaded(monkeypatch: pytest.MonkeyPatch, there: set[str]) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(io_gpu_probe.importlib.util, "find_spec", lambda name: name in there or None)
    monkeypatch.setattr(
        io_gpu_probe.importlib,
        "import_module",
        lambda name: loaded.append(name) or SimpleNamespace(__version__="0.33.0"),
    )
    runtime = Runtime()
    if there:
        assert io_gpu_probe.CHECKS["vllm"](runtime) == (0.0, "vLLM 0.33.0") and runtime.ops is not None
        assert {*loaded} == there | {"vllm._custom_ops", "vllm"}
    else:
        with pytest.raises(ImportError, match=r"^vLLM has neither vllm\._C_stable_libtorch nor vllm\._C$"):
            io_gpu_probe.CHECKS["vllm"](runtime)


@pytest.mark.parametrize(("clock", "stuck"), [(999, True), (1000, False)])
def test_the_highest_clock_of_a_second_of_load_counts(monkeypatch: pytest.MonkeyPatch, clock: int, stuck: bool) -> None:
    now, read, products = [5.0], iter([300, clock, 500]), list[int]()
    torch = Torch()
    torch.cuda.get_device_properties = lambda _number: SimpleNamespace(uuid="GPU-7")
    torch.cuda.synchronize = lambda: now.__setitem__(0, now[0] + 0.4)
    torch.mm = lambda one, two: products.append(len(one) + len(two))  # type: ignore[attr-defined]
    uuids: list[str] = []
    monkeypatch.setattr(io_gpu_probe, "_LOAD_SIZE", 2)
    monkeypatch.setattr(io_gpu_probe, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(io_gpu_probe, "_clock_reader", lambda uuid: uuids.append(uuid) or (lambda: next(read)))
    if stuck:
        with pytest.raises(StuckClockError, match="at most 999 MHz in a second of load"):
            io_gpu_probe.CHECKS["clock"](Runtime(torch))
    else:
        assert io_gpu_probe.CHECKS["clock"](Runtime(torch)) == (0.0, "up to 1000 MHz")
    assert (uuids, next(read, None), products[0]) == (["GPU-7"], None, 4)


@pytest.mark.parametrize("wrong", [None, "nvmlInit_v2", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetClockInfo"])
def test_nvml_reads_the_clock_of_the_sms_of_this_gpu(monkeypatch: pytest.MonkeyPatch, wrong: str | None) -> None:
    given: list[Any] = []

    class Nvml:
        def __getattr__(self, name: str) -> Callable[..., int]:
            def call(*arguments: Any) -> int:
                given.append((name, *(each for each in arguments if isinstance(each, bytes | int))))
                if name == "nvmlDeviceGetClockInfo":
                    arguments[2]._obj.value = 2400
                return 6 * (name == wrong)

            return call

    monkeypatch.setattr(io_gpu_probe.ctypes, "CDLL", lambda _name: Nvml())
    if wrong:
        with pytest.raises(UnsupportedError, match="NVML does not report the clock of the GPU GPU-7: error 6"):
            io_gpu_probe._clock_reader("GPU-7")()
        return
    assert io_gpu_probe._clock_reader("GPU-7")() == 2400
    assert given == [("nvmlInit_v2",), ("nvmlDeviceGetHandleByUUID", b"GPU-7"), ("nvmlDeviceGetClockInfo", 1)]

    def absent(_name: str) -> None:
        raise OSError("no such library")

    monkeypatch.setattr(io_gpu_probe.ctypes, "CDLL", absent)
    with pytest.raises(UnsupportedError, match="no such library"):
        io_gpu_probe._clock_reader("7")


def test_a_result_has_its_seconds_and_the_begin_of_its_message(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([1.0, 1.256])
    monkeypatch.setattr(io_gpu_probe, "time", SimpleNamespace(monotonic=lambda: next(now)))
    (found,) = io_gpu_probe.results(Runtime(), {"bf16": lambda _runtime: (0.01, "x" * 400)})
    assert (found["seconds"], found["message"], found["error"], found["bound"]) == (0.26, "x" * 300, 0.01, BOUND)
