# SPDX-License-Identifier: MIT
"""A small writer of SVG: measured text, shapes in a palette for light and for dark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from xml.sax.saxutils import escape, quoteattr

# Colours of kernels, for text and lines on a light and on a dark ground.
KERNEL_COLORS = (
    ("#2563eb", "#7aa8ff"),
    ("#c2410c", "#ff9d66"),
    ("#0f766e", "#4fd1bd"),
    ("#8b2fd6", "#c9a0ff"),
    ("#be123c", "#ff8ba3"),
    ("#4d7c0f", "#a9d65b"),
    ("#0e7490", "#5ccdf0"),
    ("#92600a", "#f0c755"),
    ("#4b42d6", "#a9b2ff"),
    ("#a01fae", "#f29bff"),
)
# What is not a kernel: (name, light, dark).
COLORS = (
    ("ground", "#ffffff", "#0d1117"),
    ("panel", "#f6f8fb", "#161b22"),
    ("rule", "#dde3ea", "#2b323b"),
    ("ink", "#111827", "#e6edf3"),
    ("muted", "#5b6676", "#919ba7"),
    ("faint", "#b6bfca", "#4a535e"),
    ("track", "#e6ebf1", "#2a313a"),
)
_SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
_MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"

# Widths in em, of the widest of the fonts above.
_MONO_EM = 0.605
_NARROW, _WIDE = frozenset(" fijlrt.,:;|!'()[]/-·"), frozenset("mwMWGOQ@%→×µ≥")


def text_width(text: str, size: float, mono: bool = True, bold: bool = False) -> float:
    """Return how wide a text is at most, in the units of the drawing."""
    if mono:
        return len(text) * size * _MONO_EM
    em = sum(0.42 if c in _NARROW else 1.0 if c in _WIDE else 0.68 for c in text)
    return em * size * (1.1 if bold else 1.0)


def fit(text: str, width: float, size: float, mono: bool = True, bold: bool = False) -> str:
    """Cut a text so that it is no wider than `width`."""
    if text_width(text, size, mono, bold) <= width:
        return text
    while text and text_width(text + "…", size, mono, bold) > width:
        text = text[:-1]
    return text.rstrip(" ,") + "…" if text else ""


def number(value: float) -> str:
    """Write a coordinate, shortly."""
    return f"{value:.1f}".rstrip("0").rstrip(".") if value % 1 else str(int(value))


def color_of(kernel: int) -> str:
    """Return the class of a kernel's colour."""
    return f"k{kernel % len(KERNEL_COLORS)}"


def _style() -> str:
    names = [(name, light, dark) for name, light, dark in COLORS]
    names += [(f"k{i}", light, dark) for i, (light, dark) in enumerate(KERNEL_COLORS)]

    def rules(which: int) -> str:
        # Plain colours rather than variables: not every viewer knows those.
        return "".join(
            f".hologram .f-{name[0]}{{fill:{name[which]}}}"
            f".hologram .s-{name[0]}{{stroke:{name[which]}}}"
            for name in names
        )

    return (
        f".hologram text{{font-family:{_SANS}}}"
        f".hologram .m{{font-family:{_MONO}}}"
        ".hologram .b{font-weight:600}"
        ".hologram .line{fill:none;stroke-linecap:round}"
        ".hologram .wires{opacity:.4}"
        ".hologram .kernel:hover .wires{opacity:1}"
        ".hologram .idle{opacity:.5}"
        + rules(1)
        + "@media (prefers-color-scheme: dark){"
        + rules(2)
        + "}"
    )


class Canvas:
    """Collects the elements of a drawing of a fixed width."""

    def __init__(self, width: float, title: str, description: str) -> None:
        self.width = width
        self.title = title
        self.description = description
        self._parts: list[str] = []

    def rect(
        self, x: float, y: float, w: float, h: float, fill: str, radius: float = 0, stroke: str = ""
    ) -> None:
        """Draw a filled rectangle, with an outline where `stroke` names one."""
        outline = f" s-{stroke}" if stroke else ""
        rounded = f' rx="{number(radius)}"' if radius else ""
        self._parts.append(
            f'<rect x="{number(x)}" y="{number(y)}" width="{number(w)}" height="{number(h)}"'
            f'{rounded} class="f-{fill}{outline}"/>'
        )

    def dot(self, x: float, y: float, r: float, fill: str, stroke: str = "") -> None:
        """Draw a disc, with a ring around it where `stroke` names one."""
        outline = f' s-{stroke}" stroke-width="1.8' if stroke else ""
        self._parts.append(
            f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(r)}" class="f-{fill}{outline}"/>'
        )

    def path(self, d: str, stroke: str, width: float = 1.5, dash: str = "") -> None:
        """Draw a line."""
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self._parts.append(
            f'<path d="{d}" class="line s-{stroke}" stroke-width="{number(width)}"{dashed}/>'
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float = 12,
        fill: str = "ink",
        mono: bool = True,
        bold: bool = False,
        anchor: str = "start",
    ) -> float:
        """Write a text with its baseline at y; return its width."""
        if not text:
            return 0
        classes = " ".join([f"f-{fill}", *(["m"] if mono else []), *(["b"] if bold else [])])
        placed = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self._parts.append(
            f'<text x="{number(x)}" y="{number(y)}" font-size="{number(size)}"{placed}'
            f' class="{classes}">{escape(text)}</text>'
        )
        return text_width(text, size, mono, bold)

    @contextmanager
    def group(self, classes: str = "", tip: str = "") -> Iterator[None]:
        """Put what is drawn inside into a group, with a text shown where the mouse rests on it."""
        named = f" class={quoteattr(classes)}" if classes else ""
        self._parts.append(f"<g{named}>")
        if tip:
            self._parts.append(f"<title>{escape(tip)}</title>")
        yield
        self._parts.append("</g>")

    def svg(self, height: float) -> str:
        """Return the whole document."""
        w, h = number(self.width), number(height)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="hologram" role="img"'
            f' viewBox="0 0 {w} {h}" width="{w}" height="{h}">'
        )
        return "\n".join(
            [
                head,
                f"<title>{escape(self.title)}</title>",
                f"<desc>{escape(self.description)}</desc>",
                f"<style>{_style()}</style>",
                f'<rect width="{w}" height="{h}" class="f-ground"/>',
                *self._parts,
                "</svg>\n",
            ]
        )
