# What the stub of hologram._hologram says of functions that have no signature of their own.

_hologram\.(rows|reductions|ops|into|testing)$:
    \from typing import Any
    \1: Any

_hologram\.array$:
    \from typing import Any
    def array(x: Any, dtype: Any = None, *, order: str | None = None) -> Tensor:
        \doc

_hologram\.asarray$:
    \from typing import Any
    def asarray(obj: Any = ..., dtype: Any = None, order: str | None = None, *, device: str | None = None, copy: bool | None = None, x: Any = ...) -> Tensor:
        \doc

\.(Buffer|Tensor)\.__dlpack__$:
    \from typing import Any
    def __dlpack__(self, stream: int | None = None, *, max_version: tuple[int, int] | None = None, dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        \doc

\.(Buffer|Tensor)\.__dlpack_device__$:
    def __dlpack_device__(self) -> tuple[int, int]:
        \doc

\.Tensor\.__array_ufunc__$:
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any: ...

\.Tensor\.__(r?divmod)__$:
    def __\1__(self, value: Any, /) -> tuple[Tensor, Tensor]: ...

\.Tensor\.__(r?pow)__$:
    def __\1__(self, value: Any, mod: None = None, /) -> Tensor: ...

\.Tensor\.__(r?(?:add|sub|mul|truediv|floordiv|mod|and|or|xor|lshift|rshift|matmul)|i(?:add|sub|mul|truediv|floordiv|mod|and|or|xor|lshift|rshift|matmul))__$:
    def __\1__(self, value: Any, /) -> Tensor: ...

\.Tensor\.__(eq|ne)__$:
    def __\1__(self, value: object, /) -> Tensor: ...  # type: ignore[override]

\.Tensor\.__(lt|le|gt|ge)__$:
    def __\1__(self, value: Any, /) -> Tensor: ...

\.Tensor\.__(neg|pos|abs|invert)__$:
    def __\1__(self) -> Tensor: ...

\.Tensor\.__(bool|int|float)__$:
    def __\1__(self) -> \1: ...

\.Tensor\.__(index|len)__$:
    def __\1__(self) -> int: ...

\.Tensor\.__getitem__$:
    def __getitem__(self, key: Any, /) -> Tensor: ...

\.Tensor\.__setitem__$:
    def __setitem__(self, key: Any, value: Any, /) -> None: ...

\.Tensor\.__delitem__$:

\.Tensor\.__iter__$:
    \from collections.abc import Iterator
    def __iter__(self) -> Iterator[Tensor]: ...

\.Tensor\.__contains__$:
    def __contains__(self, value: object, /) -> bool: ...

\.Tensor\.__ipow__$:
    def __ipow__(self, value: Any, mod: None = None, /) -> Tensor: ...

\.Tensor\.__hash__$:
    __hash__: None  # type: ignore[assignment]

\.Tensor\.numpy$:
    \from numpy import ndarray as _ndarray
    def numpy(self) -> _ndarray:
        \doc

\.(Buffer|Tensor)\.__array__$:
    \from numpy import ndarray as _ndarray
    def __array__(self, dtype: Any = None, *, copy: bool | None = None) -> _ndarray: ...

\.Buffer\.to_numpy$:
    \from numpy import ndarray as _ndarray
    def to_numpy(self) -> _ndarray:
        \doc

\.Tensor\._as_dtype$:
    def _as_dtype(self, dtype: Any) -> Tensor: ...

\.Tensor\._(as_int16|as_bfloat16)$:
    def _\1(self) -> Tensor: ...

\.Tensor\._peek$:
    def _peek(self) -> memoryview: ...

\.(Buffer|Tensor)\.__suffix__$:
    def __buffer__(self, flags: int, /) -> memoryview: ...
