# SPDX-License-Identifier: MIT
"""The bit generator of hologram.random: where its stream begins for a seed, and its state."""

from __future__ import annotations

import hashlib
import operator
import secrets
import struct
from collections.abc import Iterable
from typing import Any

from hologram._hologram import PhiloxStream

__all__ = ["Philox"]

_WORD = 2**64
_JUMP = 2**48  # blocks


def _words_of(number: int) -> list[int]:
    """Return an int as words of 32 bits, the lowest first, at least one."""
    if number < 0:
        raise ValueError(f"a seed is not negative, and {number} is: expected non-negative integer")
    words = [number & 0xFFFFFFFF]
    while number := number >> 32:
        words.append(number & 0xFFFFFFFF)
    return words


def _int_of(value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError as error:
        raise TypeError(f"seed must be integer, not {type(value).__name__}") from error


def _entropy_of(seed: Any) -> list[int]:
    """Return the words of a seed in any form that is taken."""
    if seed is None:
        return _words_of(secrets.randbits(128))
    if hasattr(seed, "generate_state"):  # a SeedSequence of NumPy's
        return [int(word) for word in seed.generate_state(8)]
    if isinstance(seed, (str, bytes, dict, set, frozenset, float, complex)) or (
        not hasattr(seed, "__index__") and not isinstance(seed, Iterable)
    ):
        raise TypeError(
            "a seed is None, an int, a sequence of ints, a SeedSequence or a bit generator of "
            f"hologram's, not {seed!r}"
        )
    if getattr(seed, "ndim", 0) == 0 and hasattr(seed, "__index__"):
        return _words_of(_int_of(seed))
    if hasattr(seed, "tolist"):
        seed = seed.tolist()
    words = []
    for part in seed:
        words += _entropy_of(part) if isinstance(part, (list, tuple)) else _words_of(_int_of(part))
    return words


def _place(entropy: Iterable[int], spawn_key: Iterable[int]) -> tuple[int, int]:
    """Return the key and the first counter of a stream: 128 bits of BLAKE2b of its seed's words."""
    parts = [struct.pack("<I", word) for word in entropy]
    text = struct.pack("<Q", len(parts)) + b"".join(parts)
    text += b"".join(struct.pack("<Q", child) for child in spawn_key)
    found = hashlib.blake2b(text, digest_size=16, person=b"hologram.random").digest()
    return int.from_bytes(found[:8], "little"), int.from_bytes(found[8:], "little")


class Philox:
    """The bit generator Philox 4x32-10: random bits as a function of a key and a counter.

    Its stream is a ring of 2^64 blocks of 128 bits: block b is Philox of the key, 64 bits, and the
    counter, of whose 128 bits the lower 64 are `counter` + b and the upper ones 0. A draw takes the
    next blocks, in whole groups: for n elements of 32 bits 16 * ceil(n / 64), for n of 64 bits
    8 * ceil(n / 16), so that two draws of n are not one draw of 2 n. Which word of a block an
    element takes is written in ``hologram/random.h``.

    Key and first counter are 128 bits of BLAKE2b of the seed's words of 32 bits. So an int and the
    sequence of its words are one seed, and the streams of other seeds and of children overlap with
    a probability of about 2^-64 times the part of a ring that they use.

    Source: J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3",
    SC 2011.
    """

    __slots__ = ("_entropy", "_spawn_key", "_spawned", "_stream")

    def __init__(self, seed: Any = None) -> None:
        """Begin the stream of a seed.

        `seed` is None for bits of the operating system, an int of any size that is not negative, a
        sequence of those, or a SeedSequence of NumPy's.

        Raises:
            TypeError: another kind of seed.
            ValueError: a negative int.
        """
        self._begin(tuple(_entropy_of(seed)), ())

    def _begin(self, entropy: tuple[int, ...], spawn_key: tuple[int, ...]) -> None:
        self._entropy, self._spawn_key, self._spawned = entropy, spawn_key, 0
        self._stream = PhiloxStream(*_place(entropy, spawn_key))

    @property
    def state(self) -> dict[str, Any]:
        """The place in the stream, as a dict that can be assigned to any Philox.

        ``{'bit_generator': 'Philox', 'state': {'key': int, 'counter': int}}``; both are below 2^64.
        ValueError for another dict, TypeError for another object.
        """
        place = {"key": self._stream.key, "counter": self._stream.counter}
        return {"bit_generator": "Philox", "state": place}

    @state.setter
    def state(self, value: Any) -> None:
        if not isinstance(value, dict):
            raise TypeError(f"state must be a dict as Philox.state gives it, not {value!r}")
        try:
            name, place = value["bit_generator"], value["state"]
            key, counter = operator.index(place["key"]), operator.index(place["counter"])
        except (TypeError, KeyError) as error:
            raise ValueError(
                "state must be a dict as Philox.state gives it, with ints under key and counter"
            ) from error
        if name != "Philox" or not (0 <= key < _WORD and 0 <= counter < _WORD):
            raise ValueError(
                "state must be a dict of a hologram Philox, whose key and counter are below 2**64, "
                f"not {value!r}"
            )
        self._stream.set(key, counter)

    def advance(self, delta: int) -> Philox:
        """Go on by `delta` blocks of 128 bits, or back where it is negative; return itself."""
        counter = self._stream.counter + operator.index(delta)
        self._stream.set(self._stream.key, counter % _WORD)
        return self

    def jumped(self, jumps: int = 1) -> Philox:
        """Return a generator that is jumps * 2^48 blocks further on in the same stream.

        Each of up to 65,535 jumps leads to a part that no other touches, as long as less than 2^48
        blocks are drawn of each: 2^49 numbers of float64. Its children are not those of this one.

        Raises:
            ValueError: `jumps` is negative or more, since the ring would be at its begin again.
        """
        count = operator.index(jumps)
        if not 0 <= count < _WORD // _JUMP:
            raise ValueError(f"jumps are at least 0 and below {_WORD // _JUMP}, not {count}")
        found = Philox.__new__(Philox)
        found._begin(self._entropy, (*self._spawn_key, _WORD - 1, count))
        found._stream.set(self._stream.key, (self._stream.counter + count * _JUMP) % _WORD)
        return found

    def spawn(self, n_children: int) -> list[Philox]:
        """Return `n_children` generators with streams of their own, others at each call.

        Raises:
            ValueError: a negative number.
        """
        count = operator.index(n_children)
        if count < 0:
            raise ValueError(f"spawn: the number of children is at least 0, not {count}")
        children = []
        for _ in range(count):
            child = Philox.__new__(Philox)
            child._begin(self._entropy, (*self._spawn_key, self._spawned))
            self._spawned += 1
            children.append(child)
        return children

    def __getstate__(self) -> tuple[Any, ...]:
        place = self._stream.key, self._stream.counter
        return self._entropy, self._spawn_key, self._spawned, place

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._entropy, self._spawn_key, self._spawned, place = state
        self._stream = PhiloxStream(*place)

    def __repr__(self) -> str:
        return f"hologram.random.Philox(key={self._stream.key}, counter={self._stream.counter})"
