#!/usr/bin/env python3
"""Draws how a prefill node's computation and its transfers overlap.

    tools/handoff_picture.py TRACE [--send ID ...] [-o picture.svg]

TRACE is what `tandem serve --handoff-trace FILE` wrote. A prompt has a lane per layer: above, when
the layer was computed; below, when its pages were on their way. The last step is drawn once more,
enlarged. Without --send the last prompt is drawn. Prints the share of the transfer time that the
computation hides.
"""

import argparse
import collections
import html
import json
import math
import statistics
import sys

# Pixels.
LEFT, RIGHT, TOP, BOTTOM = 30, 30, 46, 50
WIDTH = 900
LANE = 9
GAP = 26  # between prompts
COMPUTE, HIDDEN, VISIBLE = "#9db7d5", "#3f8f5f", "#c8553d"


def read_trace(lines):
    """The records by send, those of one send in the order of the file."""
    sends = collections.OrderedDict()
    for line in lines:
        line = line.strip()
        if line.startswith("{") and line.endswith("}"):  # the last one may be cut off
            record = json.loads(line)
            sends.setdefault(record["send"], []).append(record)
    return sends


def with_compute_start(records):
    """Records with `start_ns`: when the layer's computation began, as far as the trace shows it.

    The first layer of a step has no layer before it: it is taken to be as long as the others.
    """
    records = sorted(records, key=lambda r: (r["ready_ns"], r["layer"]))
    lengths = [b["ready_ns"] - a["ready_ns"] for a, b in zip(records, records[1:])
               if a["step"] == b["step"] and b["layer"] == a["layer"] + 1]
    usual = statistics.median(lengths) if lengths else 0
    out, before = [], None
    for record in records:
        follows = before and before["step"] == record["step"] and \
            before["layer"] + 1 == record["layer"]
        start = before["ready_ns"] if follows else record["ready_ns"] - usual
        out.append({**record, "start_ns": start if record["step"] else record["ready_ns"]})
        before = record
    return out


def union_ns(spans):
    total, end = 0, None
    for begin, finish in sorted(spans):
        if end is None or begin > end:
            total += finish - begin
            end = finish
        elif finish > end:
            total += finish - end
            end = finish
    return total


def hidden_share(records):
    """Of the time in which pages were on their way: the part in which layers were still to come."""
    spans = [(r["first_post_ns"], r["last_done_ns"]) for r in records if r["last_done_ns"]]
    if not spans:
        return None
    computed = max(r["ready_ns"] for r in records)
    whole = union_ns(spans)
    hidden = union_ns([(b, min(e, computed)) for b, e in spans if b < computed])
    return hidden / whole if whole else None


def bar(x, y, width, height, colour, title):
    return (f'<rect x="{x:.2f}" y="{y:.1f}" width="{max(width, 0.4):.2f}" height="{height}" '
            f'fill="{colour}"><title>{html.escape(title)}</title></rect>')


def tick_step(span_ms):
    step = 10.0 ** -3
    while span_ms / step > 10:
        for factor in (2, 2.5, 2):
            step *= factor
            if span_ms / step <= 10:
                break
    return step


class Panel:
    """One stretch of time: a lane per layer, and an axis in ms since `zero`."""

    def __init__(self, records, computed, zero, top):
        self.computed = computed
        self.begin = min(r["start_ns"] for r in records)
        self.end = max(max(r["last_done_ns"], r["ready_ns"]) for r in records)
        self.scale = WIDTH / max(1, self.end - self.begin)
        self.top = top
        self.bottom = top + (max(r["layer"] for r in records) + 1) * LANE
        self.shapes = []
        self.axis(zero)
        for record in records:
            self.layer(record)

    def x(self, ns):
        return LEFT + (ns - self.begin) * self.scale

    def bar(self, begin, end, y, colour, title):
        self.shapes.append(bar(self.x(begin), y, (end - begin) * self.scale, LANE / 2 - 0.5, colour,
                               title))

    def axis(self, zero):
        step = tick_step((self.end - self.begin) / 1e6)
        tick = math.ceil((self.begin - zero) / 1e6 / step) * step
        while tick <= (self.end - zero) / 1e6:
            x = self.x(zero + tick * 1e6)
            self.shapes.append(f'<line x1="{x:.1f}" y1="{self.top}" x2="{x:.1f}" '
                               f'y2="{self.bottom + 3}" stroke="#ddd" stroke-width="0.5"/>')
            self.shapes.append(f'<text x="{x:.1f}" y="{self.bottom + 14}" '
                               f'text-anchor="middle">{round(tick, 6):g} ms</text>')
            tick += step

    def layer(self, record):
        y = self.top + record["layer"] * LANE
        name = f'layer {record["layer"]} of step {record["step"]}'
        if record["step"]:
            length = (record["ready_ns"] - record["start_ns"]) / 1e6
            self.bar(record["start_ns"], record["ready_ns"], y, COMPUTE,
                     f"{name}: computed in {length:.2f} ms")
        if not record["last_done_ns"]:
            return
        first, last = record["first_post_ns"], record["last_done_ns"]
        title = f'{name}: {record["pages"]} pages in {(last - first) / 1e6:.2f} ms'
        if first < self.computed:
            self.bar(first, min(last, self.computed), y + LANE / 2, HIDDEN, title)
        if last > self.computed:
            self.bar(max(first, self.computed), last, y + LANE / 2, VISIBLE, title)


def draw_send(send, records, top):
    """The shapes of one prompt, whole and its last step enlarged, and where they end."""
    records = with_compute_start(records)
    computed = max(r["ready_ns"] for r in records)
    steps = sorted({r["step"] for r in records if r["step"]})
    megabytes = sum(r["bytes"] for r in records) / 1e6
    share = 100 * (hidden_share(records) or 0)
    shapes = [f'<text x="{LEFT}" y="{top - 5}">prompt {send}: {len(steps)} steps, '
              f'{megabytes:.1f} MB, {share:.0f} % of the transfer time hidden</text>']
    whole = Panel(records, computed, min(r["start_ns"] for r in records), top)
    shapes += whole.shapes
    bottom = whole.bottom
    if len(steps) > 1:
        last = [r for r in records if r["step"] == steps[-1]]
        shapes.append(f'<text x="{LEFT}" y="{bottom + GAP + 15}">its last step</text>')
        panel = Panel(last, computed, whole.begin, bottom + GAP + 20)
        shapes += panel.shapes
        bottom = panel.bottom
    return shapes, bottom


def picture(sends):
    shapes, bottom = [], TOP - GAP - 20
    for send, one in sends.items():
        more, bottom = draw_send(send, one, bottom + GAP + 20)
        shapes += more
    legend = ((COMPUTE, "computed"), (HIDDEN, "on its way, hidden by computation"),
              (VISIBLE, "on its way, waited for"))
    for i, (colour, text) in enumerate(legend):
        shapes.append(bar(LEFT + 230 * i, bottom + 28, 12, 9, colour, text))
        shapes.append(f'<text x="{LEFT + 230 * i + 17}" y="{bottom + 36}">{text}</text>')
    height = bottom + BOTTOM
    width = LEFT + WIDTH + RIGHT
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">\n'
            '<rect width="100%" height="100%" fill="white"/>\n'
            f'<text x="{LEFT}" y="18" font-size="14">Prefill node: one lane per layer; above, when '
            'it was computed, below, when its pages were on their way</text>\n'
            + "\n".join(shapes) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace")
    parser.add_argument("--send", type=int, action="append")
    parser.add_argument("-o", "--output", default="handoff.svg")
    args = parser.parse_args()
    with open(args.trace) as file:
        sends = read_trace(file)
    chosen = args.send or list(sends)[-1:]
    sends = collections.OrderedDict((s, sends[s]) for s in chosen if s in sends)
    if not sends:
        print(f"{args.trace}: no layer of these prompts is in it", file=sys.stderr)
        return 1
    for send, records in sends.items():
        share = hidden_share(records)
        print(f"prompt {send}: {100 * (share or 0):.1f} % of the transfer time is hidden")
    with open(args.output, "w") as file:
        file.write(picture(sends))
    print(f"picture: {args.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
