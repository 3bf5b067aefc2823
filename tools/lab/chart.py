# SPDX-License-Identifier: Apache-2.0
"""Line charts as SVG, with no library: on two logarithmic axes, and over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

COLOURS = ("#1f5fbf", "#c2410c", "#15803d", "#7e22ce", "#a16207", "#475569")
WIDTH, HEIGHT = 900, 540
LEFT, RIGHT, TOP, BOTTOM = 80, 190, 50, 60
END = 30  # in place of RIGHT where no names stand beside the lines


def human_size(size: float) -> str:
    """65536 -> 64K"""
    for unit in ("", "K", "M", "G"):
        if size < 1024:
            return f"{size:g}{unit}"
        size /= 1024
    return f"{size:g}T"


def _begin(title: str) -> list[str]:
    """The paper with its title."""
    return [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="sans-serif" font-size="13">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            f'<text x="{LEFT}" y="28" font-size="17">{escape(title)}</text>']


def _axes(x_label: str, y_label: str, right: int) -> list[str]:
    """What the axes are; that below ends `right` units before the paper."""
    return [f'<text x="{(LEFT + WIDTH - right) / 2}" y="{HEIGHT - 15}" text-anchor="middle">'
            f'{x_label}</text>',
            f'<text transform="translate(20 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">'
            f'{escape(y_label)}</text>']


def _line_across(left: float, y: float, right: int, text: str) -> list[str]:
    """A line of the grid, with what it stands for."""
    return [f'<line x1="{left}" y1="{y:.1f}" x2="{WIDTH - right}" y2="{y:.1f}" '
            'stroke="#d1d5db"/>',
            f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>']


def render(title: str, y_label: str, series: Mapping[str, Mapping[int, float]]) -> str:
    """The chart: for each name its points, message size in bytes -> value."""
    points = [(x, y) for line in series.values() for x, y in line.items() if y > 0]
    if not points:
        points = [(1, 1.0)]
    x_low = math.floor(math.log2(min(x for x, _ in points)))
    x_high = max(math.ceil(math.log2(max(x for x, _ in points))), x_low + 1)
    y_low = math.floor(math.log10(min(y for _, y in points)))
    y_high = max(math.ceil(math.log10(max(y for _, y in points))), y_low + 1)

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log2(x) - x_low) / (x_high - x_low)
        up = (math.log10(y) - y_low) / (y_high - y_low)
        return (LEFT + across * (WIDTH - LEFT - RIGHT),
                HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM))

    out = _begin(title)
    for power in range(x_low, x_high + 1):
        x, bottom = place(2.0 ** power, 10.0 ** y_low)
        out.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom:.1f}" '
                   'stroke="#e5e7eb"/>')
        if (power - x_low) % 2 == 0:
            out.append(f'<text x="{x:.1f}" y="{bottom + 20:.1f}" text-anchor="middle">'
                       f'{human_size(2 ** power)}</text>')
    for power in range(y_low, y_high + 1):
        left, y = place(2.0 ** x_low, 10.0 ** power)
        out += _line_across(left, y, RIGHT, f"{10.0 ** power:g}")
    out += _axes("message size in bytes", y_label, RIGHT)
    for index, (name, line) in enumerate(series.items()):
        colour = COLOURS[index % len(COLOURS)]
        places = [place(x, y) for x, y in sorted(line.items()) if y > 0]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        y = TOP + 14 + 22 * index
        out.append(f'<rect x="{WIDTH - RIGHT + 16}" y="{y - 9}" width="14" height="4" '
                   f'fill="{colour}"/>')
        out.append(f'<text x="{WIDTH - RIGHT + 36}" y="{y}">{escape(name)}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


def marks(most: float) -> list[float]:
    """Where the lines of a linear axis from 0 to `most` are: at each 1, 2 or 5 times a power of
    ten, five to ten of them."""
    power = 10.0 ** math.floor(math.log10(most / 5))
    step = power * next(times for times in (1, 2, 5, 10) if most / (power * times) <= 10)
    return [number * step for number in range(int(most / step) + 1)]


def render_time(title: str, y_label: str, line: Sequence[tuple[float, float]],
                spans: Sequence[tuple[float, float]]) -> str:
    """A line over seconds, from 0 on both axes, with grey behind the spans of time."""
    right = max((x for x, _ in line), default=0.0) or 1.0
    top = max((y for _, y in line), default=0.0) * 1.05 or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        return (LEFT + x / right * (WIDTH - LEFT - END),
                HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM))

    out = _begin(title)
    for begin, end in spans:
        (x, y), (beyond, bottom) = place(begin, top), place(min(end, right), 0)
        out.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(beyond - x, 1):.1f}" '
                   f'height="{bottom - y:.1f}" fill="#e5e7eb"/>')
    for at in marks(right):
        x, bottom = place(at, 0)
        out.append(f'<text x="{x:.1f}" y="{bottom + 20:.1f}" text-anchor="middle">{at:g}</text>')
    for value in marks(top):
        left, y = place(0, value)
        out += _line_across(left, y, END, f"{value:g}")
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in line))
    out += [f'<polyline points="{points}" fill="none" stroke="{COLOURS[0]}" stroke-width="1.5"/>',
            *_axes("seconds; grey: a move", y_label, END), "</svg>"]
    return "\n".join(out) + "\n"
