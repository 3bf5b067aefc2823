# SPDX-License-Identifier: Apache-2.0
"""Line charts as SVG, with no library: on two logarithmic axes, and over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

COLOURS = ("#1f5fbf", "#c2410c", "#15803d", "#7e22ce", "#a16207", "#475569")
WIDTH, HEIGHT = 900, 540
LEFT, RIGHT, TOP, BOTTOM = 80, 190, 50, 60


def human_size(size: float) -> str:
    """65536 -> 64K"""
    for unit in ("", "K", "M", "G"):
        if size < 1024:
            return f"{size:g}{unit}"
        size /= 1024
    return f"{size:g}T"


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

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
           'font-family="sans-serif" font-size="13">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="28" font-size="17">{escape(title)}</text>']
    for power in range(x_low, x_high + 1):
        x, bottom = place(2.0 ** power, 10.0 ** y_low)
        out.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom:.1f}" '
                   'stroke="#e5e7eb"/>')
        if (power - x_low) % 2 == 0:
            out.append(f'<text x="{x:.1f}" y="{bottom + 20:.1f}" text-anchor="middle">'
                       f'{human_size(2 ** power)}</text>')
    for power in range(y_low, y_high + 1):
        left, y = place(2.0 ** x_low, 10.0 ** power)
        out.append(f'<line x1="{left}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" '
                   'stroke="#d1d5db"/>')
        out.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">'
                   f'{10.0 ** power:g}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 15}" text-anchor="middle">'
               'message size in bytes</text>')
    out.append(f'<text transform="translate(20 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">'
               f'{escape(y_label)}</text>')
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


def steps(most: float) -> float:
    """The distance between the lines of a linear axis from 0 to `most`: 1, 2 or 5 times a power of
    ten, for five to ten lines."""
    power = 10.0 ** math.floor(math.log10(most / 5))
    return power * next(times for times in (1, 2, 5, 10) if most / (power * times) <= 10)


def render_time(title: str, y_label: str, line: Sequence[tuple[float, float]],
                spans: Sequence[tuple[float, float]]) -> str:
    """A line over seconds, from 0 on both axes, with grey behind the spans of time."""
    right = max((x for x, _ in line), default=0.0) or 1.0
    top = max((y for _, y in line), default=0.0) * 1.05 or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        return (LEFT + x / right * (WIDTH - LEFT - 30),
                HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM))

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
           'font-family="sans-serif" font-size="13">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="28" font-size="17">{escape(title)}</text>']
    for begin, end in spans:
        (x, y), (beyond, bottom) = place(begin, top), place(min(end, right), 0)
        out.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(beyond - x, 1):.1f}" '
                   f'height="{bottom - y:.1f}" fill="#e5e7eb"/>')
    for number in range(int(right / steps(right)) + 1):
        x, bottom = place(number * steps(right), 0)
        out.append(f'<text x="{x:.1f}" y="{bottom + 20:.1f}" text-anchor="middle">'
                   f'{number * steps(right):g}</text>')
    for number in range(int(top / steps(top)) + 1):
        left, y = place(0, number * steps(top))
        out.append(f'<line x1="{left}" y1="{y:.1f}" x2="{WIDTH - 30}" y2="{y:.1f}" '
                   'stroke="#d1d5db"/>')
        out.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">'
                   f'{number * steps(top):g}</text>')
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in line))
    out += [f'<polyline points="{points}" fill="none" stroke="{COLOURS[0]}" stroke-width="1.5"/>',
            f'<text x="{(LEFT + WIDTH - 30) / 2}" y="{HEIGHT - 15}" text-anchor="middle">'
            'seconds; grey: a move</text>',
            f'<text transform="translate(20 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">'
            f'{escape(y_label)}</text>', "</svg>"]
    return "\n".join(out) + "\n"
