# SPDX-License-Identifier: MIT
"""hologram_torch.functional: values, gradients, shared memory, lifetimes, errors."""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from accuracy import Rounding, assert_as_accurate
from torch.testing._internal.common_methods_invocations import op_db

import hologram_torch
from hologram_torch import functional as HF

D = "hologram"
Function = Callable[..., Any]

# Name, PyTorch's function, name in PyTorch's operator database.
TABLE: dict[str, tuple[Function, str]] = {
    "add": (torch.add, "add"),
    "sub": (torch.sub, "sub"),
    "mul": (torch.mul, "mul"),
    "div": (torch.div, "div"),
    "minimum": (torch.minimum, "minimum"),
    "maximum": (torch.maximum, "maximum"),
    "abs": (torch.abs, "abs"),
    "neg": (torch.neg, "neg"),
    "relu": (F.relu, "nn.functional.relu"),
    "clamp": (torch.clamp, "clamp"),
    "sigmoid": (torch.sigmoid, "sigmoid"),
    "tanh": (torch.tanh, "tanh"),
    "gelu": (F.gelu, "nn.functional.gelu"),
    "softmax": (F.softmax, "softmax"),
    "log_softmax": (F.log_softmax, "log_softmax"),
    "linear": (F.linear, "nn.functional.linear"),
    "matmul": (torch.matmul, "matmul"),
    "mse_loss": (F.mse_loss, "nn.functional.mse_loss"),
    "cross_entropy": (F.cross_entropy, "nn.functional.cross_entropy"),
    "binary_cross_entropy": (F.binary_cross_entropy, "nn.functional.binary_cross_entropy"),
}
DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
)
MOST_SAMPLES = 24
UNARY = ("abs", "neg", "relu", "sigmoid", "tanh", "gelu")


@pytest.fixture
def execution(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a test in a mode."""
    with hologram_torch.execution(request.param):
        yield


crosses_in_backward = pytest.mark.skipif(
    torch.__version__.startswith("2.11."),
    reason="PyTorch 2.11 does not tell its autograd kernels: backward is PyTorch's there",
)
in_both_modes = pytest.mark.parametrize("execution", ["deferred", "eager"], indirect=True)


@pytest.fixture
def ex() -> Iterator[hologram_torch.Executor]:
    with hologram_torch.Executor() as executor:
        yield executor


def test_the_table_is_whole() -> None:
    assert sorted(TABLE) == sorted(HF.__all__)


def samples_of(name: str, dtype: torch.dtype, requires_grad: bool) -> list[Any]:
    found = []
    for info in op_db:
        if info.name != TABLE[name][1]:
            continue
        allowed = info.supported_backward_dtypes("cpu") if requires_grad else info.dtypes
        if dtype not in allowed:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found += list(info.sample_inputs("cpu", dtype, requires_grad=requires_grad))
    # Every one of a few, or evenly chosen ones of many.
    return found[:: 1 + len(found) // MOST_SAMPLES]


# A loss near 0 is the log of a sum near 1, whose last place is not the loss's.
BOUNDS = {F.cross_entropy: Rounding(units=32), F.log_softmax: Rounding(units=32)}


class Arguments(NamedTuple):
    """A sample's arguments in another precision."""

    input: Any
    args: Any
    kwargs: Any


def operands_of(sample: Any) -> list[torch.Tensor]:
    values = [sample.input, *sample.args, *sample.kwargs.values()]
    return [x for x in values if isinstance(x, torch.Tensor) and x.requires_grad]


def check_close(
    ours: torch.Tensor, theirs: torch.Tensor, call: Callable | None = None, given: Any = None
) -> None:
    """Compare two results; where it is known, with `call(*given[0], **given[1])` in double, too."""
    assert ours.device == theirs.device
    assert ours.stride() == theirs.stride()
    if call is None:
        torch.testing.assert_close(ours, theirs)
    else:
        bound = BOUNDS.get(call)
        assert_as_accurate(lambda args, kwargs: call(*args, **kwargs), given, ours, theirs, bound)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", TABLE)
def test_values_are_torchs(name: str, dtype: torch.dtype, ex) -> None:
    function = TABLE[name][0]
    if name == "abs" and dtype == torch.bool:  # of which PyTorch's cpu, unlike CUDA, has none
        x = torch.tensor([[True], [False]])
        assert torch.equal(HF.abs(ex, x), x)
        return
    samples = samples_of(name, dtype, requires_grad=False)
    if not samples:  # PyTorch's tests do not say; it does something all the same
        x = torch.ones(2, 2, dtype=dtype)
        args = (x, x) if name not in (*UNARY, "clamp", "softmax", "log_softmax") else (x,)
        kwargs = {"dim": 0} if "softmax" in name else {"min": 0} if name == "clamp" else {}
        try:
            expected = function(*args, **kwargs)
        except (RuntimeError, TypeError) as error:
            with pytest.raises(type(error)):
                getattr(HF, name)(ex, *args, **kwargs)
        else:
            check_close(getattr(HF, name)(ex, *args, **kwargs), expected, function, (args, kwargs))
    for sample in samples:
        args, kwargs = (sample.input, *sample.args), sample.kwargs
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = function(*args, **kwargs)
            result = getattr(HF, name)(ex, *args, **kwargs)
        check_close(result, expected, function, (args, kwargs))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64], ids=str)
@pytest.mark.parametrize("name", TABLE)
def test_gradients_are_torchs(name: str, dtype: torch.dtype, ex) -> None:
    for sample in samples_of(name, dtype, requires_grad=True):
        operands = operands_of(sample)
        args, kwargs = (sample.input, *sample.args), sample.kwargs
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = getattr(HF, name)(ex, *args, **kwargs)
            expected = TABLE[name][0](*args, **kwargs)
        assert result.requires_grad == expected.requires_grad
        if not result.requires_grad:
            continue
        seed = torch.randn_like(expected)
        ours = torch.autograd.grad(result, operands, seed, allow_unused=True)
        theirs = torch.autograd.grad(expected, operands, seed, allow_unused=True)
        assert [g is None for g in ours] == [g is None for g in theirs]

        def gradients(args: Any, kwargs: Any, seed: torch.Tensor, name: str = name) -> Any:
            wide = Arguments(*args[:1], args[1:], kwargs)
            exact = TABLE[name][0](*args, **kwargs)
            return torch.autograd.grad(exact, operands_of(wide), seed, allow_unused=True)

        assert_as_accurate(gradients, (args, kwargs, seed), ours, theirs)


def double(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64).requires_grad_()


CHECKS: dict[str, Callable[[Any], tuple[Function, tuple[torch.Tensor, ...]]]] = {
    "add": lambda ex: (lambda a, b: HF.add(ex, a, b, alpha=2), (double(3, 4), double(4))),
    "sub": lambda ex: (lambda a, b: HF.sub(ex, a, b), (double(3, 4), double(3, 1))),
    "mul": lambda ex: (lambda a, b: HF.mul(ex, a, b), (double(3, 4), double(4))),
    "div": lambda ex: (lambda a, b: HF.div(ex, a, b.abs() + 1), (double(3, 4), double(4))),
    "minimum": lambda ex: (lambda a, b: HF.minimum(ex, a, b), (double(5), double(5))),
    "maximum": lambda ex: (lambda a, b: HF.maximum(ex, a, b), (double(5), double(5))),
    "abs": lambda ex: (lambda a: HF.abs(ex, a), (double(5),)),
    "neg": lambda ex: (lambda a: HF.neg(ex, a), (double(5),)),
    "relu": lambda ex: (lambda a: HF.relu(ex, a), (double(5),)),
    "clamp": lambda ex: (lambda a: HF.clamp(ex, a, -0.5, 0.5), (double(5),)),
    "sigmoid": lambda ex: (lambda a: HF.sigmoid(ex, a), (double(5),)),
    "tanh": lambda ex: (lambda a: HF.tanh(ex, a), (double(5),)),
    "gelu": lambda ex: (lambda a: HF.gelu(ex, a, approximate="tanh"), (double(5),)),
    "softmax": lambda ex: (lambda a: HF.softmax(ex, a, 0), (double(3, 2),)),
    "log_softmax": lambda ex: (lambda a: HF.log_softmax(ex, a, 1), (double(3, 2),)),
    "linear": lambda ex: (
        lambda a, w, b: HF.linear(ex, a, w, b),
        (double(2, 3), double(4, 3), double(4)),
    ),
    "matmul": lambda ex: (lambda a, b: HF.matmul(ex, a, b), (double(2, 3, 2), double(2, 3))),
    "mse_loss": lambda ex: (lambda a, b: HF.mse_loss(ex, a, b), (double(4), double(4))),
    "cross_entropy": lambda ex: (
        lambda a: HF.cross_entropy(ex, a, torch.tensor([0, 2, 1]), label_smoothing=0.1),
        (double(3, 3),),
    ),
    "binary_cross_entropy": lambda ex: (
        lambda a: HF.binary_cross_entropy(ex, a.sigmoid(), torch.tensor([0.0, 1.0]).double()),
        (double(2),),
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_gradients_of_every_order(name: str, ex) -> None:
    torch.manual_seed(1)
    function, operands = CHECKS[name](ex)
    whole = name == "linear" and torch.__version__.startswith("2.11.")
    assert torch.autograd.gradcheck(function, operands, check_forward_ad=not whole)
    assert torch.autograd.gradgradcheck(function, operands)


@crosses_in_backward
@in_both_modes
def test_backward_runs_on_the_devices_kernels(ex, execution) -> None:
    # GELU is rounded otherwise than PyTorch's, so bits tell whose kernels ran.
    x = torch.linspace(-4, 4, 4001)
    runs = []
    for function, device in ((F.gelu, "cpu"), (F.gelu, D), (lambda t: HF.gelu(ex, t), "cpu")):
        leaf = x.to(device).detach().clone().requires_grad_()
        y = function(leaf)
        y.backward(torch.ones_like(y))
        runs.append((y.detach().cpu(), leaf.grad.cpu()))
    cpu, device, shared = runs
    for i in range(2):
        assert torch.equal(shared[i], device[i])
        assert not torch.equal(shared[i], cpu[i])
    # And only there: what PyTorch does beside it is PyTorch's.
    assert torch.equal(F.gelu(x), cpu[0])


def test_backward_stays_on_the_calling_thread(ex) -> None:
    x = torch.randn(3, requires_grad=True)
    y = HF.sigmoid(ex, x)
    threads = []
    y.grad_fn.register_prehook(lambda _grads: threads.append(threading.get_ident()))
    y.sum().backward()
    assert threads == [threading.get_ident()]
    assert y.grad_fn.name() == "SigmoidBackward0"


def assert_plain() -> None:
    """Outside of our calls PyTorch's own kernels run."""
    x = torch.linspace(-4, 4, 4001)
    assert not torch.equal(F.gelu(x), F.gelu(x.to(D)).cpu())


def test_an_error_in_backward_leaves_nothing_behind(ex) -> None:
    x = torch.randn(100, requires_grad=True)
    y = HF.gelu(ex, x)

    def fail(_grads: Any) -> None:
        raise ZeroDivisionError

    y.grad_fn.register_prehook(fail)
    with pytest.raises(ZeroDivisionError):
        y.sum().backward()
    assert_plain()
    # A node that is called by hand is not the engine's.
    HF.gelu(ex, x).grad_fn(torch.ones(100))
    assert_plain()
    with pytest.raises(RuntimeError):
        HF.add(ex, x, x[:3])
    assert_plain()


# --- Memory --------------------------------------------------------------------------------------


@in_both_modes
def test_results_are_the_devices_memory(ex, execution) -> None:
    x = torch.randn(1 << 20)
    gc.collect()
    torch.hologram.synchronize()
    before = torch.hologram.memory_allocated()
    y = HF.tanh(ex, x)
    # The result's four MiB, and no copy of the operand.
    assert 4 << 20 <= torch.hologram.memory_allocated() - before < 7 << 20
    kept = y[5:7]
    expected = torch.tanh(x)[5:7]
    del y, x
    ex.close()
    gc.collect()
    torch.testing.assert_close(kept, expected)
    del kept
    assert torch.hologram.memory_allocated() == before


@in_both_modes
def test_relu_in_place_writes_the_callers_memory(ex, execution) -> None:
    x = torch.tensor([[-1.0, 2.0], [3.0, -4.0]])
    array, address, version = x.numpy(), x.data_ptr(), x._version
    y = HF.relu(ex, x, inplace=True)
    assert y is x
    assert x.data_ptr() == address
    assert x._version == version + 1
    assert array.tolist() == [[0.0, 2.0], [3.0, 0.0]]
    z = torch.tensor([-1.0, -2.0, -3.0, -4.0])
    HF.relu(ex, z[::2], inplace=True)
    assert z.tolist() == [0.0, -2.0, 0.0, -4.0]


def test_relu_in_place_has_gradients(ex) -> None:
    grads = []
    for relu in (F.relu, lambda t, inplace: HF.relu(ex, t, inplace)):
        leaf = torch.tensor([-1.0, 2.0, 0.0, 3.0], requires_grad=True)
        x = leaf * 2
        relu(x, True)
        y = leaf * 3
        part = y[1:]
        relu(part, True)
        (x.square() + y.square()).sum().backward()
        grads.append(leaf.grad)
    assert torch.equal(*grads)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        HF.relu(ex, torch.ones(3, requires_grad=True), inplace=True)


@pytest.mark.parametrize("touched", ["operand", "result"])
def test_what_backward_needs_may_not_be_written(touched: str, ex) -> None:
    leaf = torch.randn(4, requires_grad=True)
    x = leaf * 1
    y = HF.sigmoid(ex, x) if touched == "result" else HF.mul(ex, x, x)
    (y if touched == "result" else x).data.add_(0)  # `data` is the way to do so unseen
    y.sum().backward(retain_graph=True)
    (y if touched == "result" else x).detach().add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    assert_plain()


def test_results_are_cpu_tensors_to_everybody(ex, tmp_path) -> None:
    x = torch.randn(6)
    expected = (x + x).tolist()
    y = HF.add(ex, x, x)
    assert y.numpy().tolist() == expected
    assert torch.from_dlpack(y).data_ptr() == y.data_ptr()
    torch.save(y, tmp_path / "y")
    assert torch.load(tmp_path / "y").tolist() == expected
    assert y.clone().share_memory_().tolist() == expected
    assert y.share_memory_().tolist() == expected
    z = HF.add(ex, x, x)
    z.resize_(1000)
    assert z[:6].tolist() == expected
    assert not z.is_pinned()
    assert z.untyped_storage().device.type == "cpu"
    empty = HF.add(ex, x[:0], x[:0])
    assert empty.resize_(3).shape == (3,)
    out = torch.empty(6)
    torch.add(HF.neg(ex, x), 1, out=out)
    assert torch.equal(out, 1 - x)
    back = HF.neg(ex, x).to(D)
    assert torch.equal((back + 1).cpu(), 1 - x)


@in_both_modes
def test_values_are_there_at_once(ex, execution) -> None:
    x = torch.randn(1000)
    y = HF.add(ex, HF.mul(ex, x, x), x)
    x.zero_()
    assert y.numpy().any()
    assert not hologram_torch._C._run(torch.mul, y, x).numpy().any()


@in_both_modes
def test_layouts(ex, execution) -> None:
    base = torch.randn(6, 8)
    for x in (base.t(), base[::2, 1::3], base[:, :1].expand(6, 5), base[2:2], base[0, 0]):
        check_close(HF.sigmoid(ex, x), torch.sigmoid(x))
        check_close(HF.add(ex, x, x), torch.add(x, x))
    channels = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert HF.tanh(ex, channels).is_contiguous(memory_format=torch.channels_last)
    z = torch.randn(5, dtype=torch.complex64)
    assert torch.equal(HF.mul(ex, z.conj(), z), torch.mul(z.conj(), z))
    assert torch.equal(HF.abs(ex, z.conj().imag), torch.abs(z.conj().imag))


# --- Where tensors lie ---------------------------------------------------------------------------


@in_both_modes
def test_tensors_of_the_device_stay_there_and_fuse(ex, execution) -> None:
    x = torch.randn(5000)
    ours = x.to(D)
    torch.hologram.synchronize()
    hologram_torch._C.reset_recorder_stats()
    y = HF.relu(ex, HF.sub(ex, HF.mul(ex, ours, ours), 0.5))
    assert y.device.type == D
    check_close(y.cpu(), torch.relu(x * x - 0.5))
    if hologram_torch.execution.mode() == "deferred":
        assert hologram_torch._C.recorder_stats()["kernels"] == 1


def test_devices_do_not_mix(ex) -> None:
    x, y = torch.ones(3), torch.ones(3, device=D)
    for args in ((x, y), (y, x), (x, torch.tensor(2.0, device=D))):
        with pytest.raises(RuntimeError, match=r"same device.*hologram:0 and cpu.*\.cpu\(\)"):
            HF.add(ex, *args)
    with pytest.raises(RuntimeError, match=r"calling linear\) Move one of them"):
        HF.linear(ex, torch.ones(2, 3), torch.ones(2, 3, device=D))
    with pytest.raises(RuntimeError, match="same device"):
        HF.cross_entropy(ex, torch.ones(2, 3), torch.tensor([0, 1]), torch.ones(3, device=D))
    assert HF.mul(ex, y, torch.tensor(2.0)).cpu().tolist() == [2.0] * 3  # a number


def test_what_is_neither_is_torchs_business(ex) -> None:
    meta = torch.empty(2, 3, device="meta")
    assert HF.linear(ex, meta, torch.empty(5, 3, device="meta")).shape == (2, 5)
    sparse = torch.eye(3).to_sparse()
    assert torch.equal(HF.neg(ex, sparse).to_dense(), -torch.eye(3))

    class Loud(torch.Tensor):
        calls: ClassVar[list[str]] = []

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.calls.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    loud = torch.ones(3).as_subclass(Loud)
    assert type(HF.sigmoid(ex, loud)) is Loud
    assert Loud.calls == ["sigmoid"]
    parameter = torch.nn.Parameter(torch.randn(500))
    assert torch.equal(HF.gelu(ex, parameter), F.gelu(parameter.detach().to(D)).cpu())


def test_numbers_and_promotion(ex) -> None:
    for x in (torch.arange(3), torch.ones(2, dtype=torch.float16), torch.tensor([True, False])):
        for other in (2, 1.5, True, torch.tensor(3), torch.ones(1, dtype=torch.float64)):
            check_close(HF.mul(ex, x, other), torch.mul(x, other))
    assert HF.sub(ex, torch.arange(3), 1, alpha=2).tolist() == [-2, -1, 0]
    for mode in (None, "trunc", "floor"):
        check_close(
            HF.div(ex, torch.arange(-3, 4), 2, rounding_mode=mode),
            torch.div(torch.arange(-3, 4), 2, rounding_mode=mode),
        )


# --- Modes ---------------------------------------------------------------------------------------


def test_modes_of_torch(ex) -> None:
    x = torch.randn(3, 4, requires_grad=True)
    w = torch.randn(5, 4)
    with torch.no_grad():
        assert not HF.sigmoid(ex, x).requires_grad
    with torch.inference_mode():
        assert HF.sigmoid(ex, x).is_inference()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert HF.linear(ex, x, w).dtype == torch.bfloat16
    with torch.device(D):
        assert HF.linear(ex, x, w).is_cpu


def test_transforms(ex) -> None:
    x = torch.randn(3, 4)
    check_close(torch.func.vmap(lambda t: HF.softmax(ex, t, 0))(x), torch.softmax(x, 1))
    grad = torch.func.grad(lambda t: HF.tanh(ex, t).sum())
    check_close(grad(x), 1 - torch.tanh(x) ** 2)
    check_close(torch.func.vmap(grad)(x), 1 - torch.tanh(x) ** 2)
    _, tangent = torch.func.jvp(lambda t: HF.mul(ex, t, t), (x,), (torch.ones_like(x),))
    check_close(tangent, 2 * x)


def test_checkpoints_and_hooks_on_saved_tensors(ex) -> None:
    x = torch.randn(5, requires_grad=True)

    def function(t: torch.Tensor) -> torch.Tensor:
        return HF.tanh(ex, HF.mul(ex, t, t))

    (expected,) = torch.autograd.grad(torch.tanh(x * x).sum(), x)
    for reentrant in (False, True):
        y = torch.utils.checkpoint.checkpoint(function, x, use_reentrant=reentrant)
        check_close(
            torch.autograd.grad(y.sum(), x)[0] if not reentrant else grad_of(y, x), expected
        )
    with torch.autograd.graph.save_on_cpu():
        y = function(x)
    check_close(torch.autograd.grad(y.sum(), x)[0], expected)
    sparse = torch.autograd.grad(HF.neg(ex, x), x, torch.ones(5).to_sparse())[0]
    assert torch.equal(sparse.to_dense(), -torch.ones(5))
    assert_plain()


def grad_of(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return the gradient by backward(), which reentrant checkpoints want."""
    x.grad = None
    y.sum().backward()
    return x.grad


def test_compiled_functions_break_the_graph_and_go_on(ex) -> None:
    compiled = torch.compile(lambda t: HF.relu(ex, t + 1) * 2, backend="eager")
    x = torch.randn(7)
    assert torch.equal(compiled(x), torch.relu(x + 1) * 2)


def test_threads_do_not_disturb_each_other(ex) -> None:
    x = torch.linspace(-4, 4, 4001)
    ours, theirs = HF.gelu(ex, x), F.gelu(x)
    assert not torch.equal(ours, theirs)
    wrong = []

    def work(shared: bool) -> None:
        for _ in range(300):
            y = HF.gelu(ex, x) if shared else F.gelu(x)
            if not torch.equal(y, ours if shared else theirs):
                wrong.append(shared)

    threads = [threading.Thread(target=work, args=(i % 2 == 0,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# --- Errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLE)
def test_an_open_executor_comes_first(name: str, ex) -> None:
    x = torch.ones(2, 2)
    args = (x,) if name in (*UNARY, "clamp", "softmax", "log_softmax") else (x, x)
    function = getattr(HF, name)
    with pytest.raises(TypeError, match=rf"functional\.{name}: the first argument must be a .*int"):
        function(3, *args)
    with pytest.raises(TypeError, match=r"not Tensor; make one .* before the tensors"):
        function(x, *args)
    with pytest.raises(TypeError, match="not NoneType; make one with hologram_torch"):
        function(None, *args)
    ex.close()
    with pytest.raises(RuntimeError, match=rf"functional\.{name}: the Executor is closed"):
        function(ex, *args)


def test_errors_are_torchs(ex) -> None:
    for function, theirs, args in (
        (HF.add, torch.add, (torch.ones(3), torch.ones(4))),
        (HF.matmul, torch.matmul, (torch.ones(2, 3), torch.ones(2, 3))),
        (HF.linear, F.linear, (torch.ones(2, 3), torch.ones(4, 5))),
        (HF.neg, torch.neg, (torch.tensor([True]),)),
        (HF.softmax, F.softmax, (torch.ones(2, 3), 5)),
        (HF.cross_entropy, F.cross_entropy, (torch.ones(2, 3), torch.tensor([0, 7]))),
        (HF.binary_cross_entropy, F.binary_cross_entropy, (torch.tensor([2.0]), torch.ones(1))),
        (HF.mse_loss, F.mse_loss, (torch.ones(2), torch.ones(2), None, None, "most")),
        (HF.add, torch.add, ([1.0], torch.ones(1))),
        (HF.clamp, torch.clamp, (torch.ones(2),)),
    ):
        with pytest.raises((RuntimeError, TypeError, ValueError, IndexError)) as expected:
            theirs(*args)
        with pytest.raises(expected.type) as raised:
            function(ex, *args)
        first = str(raised.value).splitlines()[0]
        assert first == str(expected.value).splitlines()[0]
    with pytest.raises(RuntimeError, match="approximate argument must be either none or tanh"):
        HF.gelu(ex, torch.ones(2), approximate="sideways")


def test_softmax_without_dim_warns_where_it_was_called(ex) -> None:
    with pytest.warns(UserWarning, match="Implicit dimension choice") as caught:
        HF.softmax(ex, torch.ones(2, 3))
    assert caught[0].filename == __file__


@crosses_in_backward
def test_linear_on_the_device_has_tangents() -> None:
    x, w = torch.randn(2, 3), torch.randn(4, 3)
    _, ours = torch.func.jvp(lambda t: F.linear(t, w.to(D)), (x.to(D),), (x.to(D),))
    torch.testing.assert_close(ours.cpu(), F.linear(x, w))
