"""Tables and a chart of results.json: pure, from plain data to Markdown and SVG."""

from html import escape

import judge

ENGINE_TITLES = {"own": "Windlass' worker", "llama.cpp": "llama.cpp", "vllm": "vLLM"}
SHEET_TITLES = {"right": "data sheet right", "low": "data sheet 4 times too low", "high": "data sheet 4 times too high"}
SYSTEM_TITLES = {"one": "one worker", "fleet": "two workers all the time", "keda": "KEDA's rule"}


def title(case):
    return SYSTEM_TITLES.get(case["system"]) or f"Windlass, {SHEET_TITLES[case['sheet']]}"


def percent(value):
    return "" if value is None else f"{value * 100:.1f} %"


def seconds(value):
    return "" if value is None else f"{value * 1e3:.0f} ms" if value < 1 else f"{value:.3g} s"


def recovery(case):
    if case.get("refused"):
        return ""
    return "never" if case["recover_s"] is None else f"{case['recover_s']:.0f} s"


def summary(case):
    """One progress line."""
    if case.get("refused"):
        return f"refused: {case['refused']}"
    back = {"never": "not back at the objective after the step", "0 s": "the step was no trouble"}
    return (f"{percent(case['attainment'])} attained, {case['worker_seconds']:.0f} worker-seconds, "
            f"{back.get(recovery(case)) or 'back at the objective ' + recovery(case) + ' after the step'}")


def phases_text(case):
    low, high = case["phases"][0][0], case["phases"][1][0]
    total = sum(part for _, part in case["phases"])
    objectives = case["objectives"]
    return (f"{ENGINE_TITLES[case['engine']]}: {low:g} to {high:g} requests/s for {total:g} s; TTFT {seconds(objectives['ttft_s'])}, "
            f"TPOT {seconds(objectives['tpot_s'])} for {objectives['share'] * 100:g} %")


def markdown(results, earlier=()):
    cases = results["cases"]
    old = {case["name"]: case for case in earlier}
    fleets = {case["engine"]: case["worker_seconds"] for case in cases if case["system"] == "fleet"}
    lines = [f"{results['machine']}; {results['when']}; load average before the run {results['load_average_before']:.1f}.", ""]
    before_head, before_rule = ("attained before | ", "---:|") if old else ("", "")
    lines.append(f"| engine | workers by | attained | {before_head}worker-seconds | of two workers | recovered from the step | TTFT P95 | TPOT P95 |")
    lines.append(f"|---|---|---:|{before_rule}---:|---:|---:|---:|---:|")
    for case in cases:
        before = f" {percent(old[case['name']]['attainment']) if case['name'] in old else ''} |" if old else ""
        fleet = fleets.get(case["engine"])
        ratio = f"{case['worker_seconds'] / fleet:.2f}" if fleet else ""
        if case.get("refused"):
            lines.append(f"| {ENGINE_TITLES[case['engine']]} | {title(case)} | refused: infeasible |{before} | | | | |")
            continue
        lines.append(f"| {ENGINE_TITLES[case['engine']]} | {title(case)} | {percent(case['attainment'])} |{before} {case['worker_seconds']:.0f} | "
                     f"{ratio} | {recovery(case)} | {seconds(case['ttft_p95_s'])} | {seconds(case['tpot_p95_s'])} |")
    loads = dict.fromkeys(phases_text(case) for case in cases)
    lines += ["", *(f"{load}; seed {results['seed']}." for load in loads)]
    for name, why in results["left_out"].items():
        lines.append(f"{ENGINE_TITLES[name]} is left out: {why}.")
    for name, holds, text in judge.claims(cases):
        lines.append(f"- {'holds' if holds else '**missed**'}: {name}, {text}")
    return "\n".join(lines) + "\n"


COLOURS = {"one": "#990000", "fleet": "#38761d", "keda": "#b45f06", "before": "#6fa8dc", "windlass": "#0b5394"}
LEGEND = {"one": "one worker", "fleet": "two workers all the time", "keda": "KEDA's rule", "before": "Windlass before", "windlass": "Windlass"}
WINDOW_S = 30
WIDTH, HEIGHT, LEFT, PLOT = 400, 330, 58, 322
ATTAINED = (34, 130)  # top, height of each strip
WORKERS = (194, 50)
RATE = (262, 34)


def line(points, colour, width, dash=""):
    path = " ".join(f"{'L' if i else 'M'}{x:.1f} {y:.1f}" for i, (x, y) in enumerate(points))
    return f"<path d='{path}' fill='none' stroke='{colour}' stroke-width='{width}'{dash and f' stroke-dasharray={chr(39)}{dash}{chr(39)}'}/>"


def stairs(points):
    """Values that hold until the next one."""
    out = []
    for i, (x, y) in enumerate(points):
        if i:
            out.append((x, out[-1][1]))
        out.append((x, y))
    return out


def write(x, y, words, anchor="start", size=12, colour="black"):
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' font-size='{size}' fill='{colour}'>{escape(words)}</text>"


def panel(heading, runs):
    """One engine with one data sheet. runs: [(key of COLOURS, case)], drawn in this order, the last on top."""
    phases, objective = runs[-1][1]["phases"], runs[-1][1]["objectives"]["share"]
    end_s = sum(part for _, part in phases)
    most = max([2.0] + [seen["workers"] for _, case in runs for seen in case["samples"]])
    top_rate = max(rate for rate, _ in phases)
    at = lambda t: LEFT + PLOT * min(t, end_s) / end_s
    out = [write(LEFT, 20, heading, size=14)]
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = ATTAINED[0] + ATTAINED[1] * (1 - share)
        out += [line([(LEFT, y), (LEFT + PLOT, y)], "#e3e3e3", 1), write(LEFT - 6, y + 4, f"{share * 100:.0f} %", "end", 11)]
    y = ATTAINED[0] + ATTAINED[1] * (1 - objective)
    out.append(line([(LEFT, y), (LEFT + PLOT, y)], "#555555", 1, "4 3"))
    height_of = lambda workers: WORKERS[0] + WORKERS[1] * (1 - workers / most)
    for count in range(int(most) + 1):
        out += [line([(LEFT, height_of(count)), (LEFT + PLOT, height_of(count))], "#e3e3e3", 1),
                write(LEFT - 6, height_of(count) + 4, str(count), "end", 11)]
    t, corners = 0.0, [(LEFT, RATE[0] + RATE[1])]
    for rate, part in phases:
        y = RATE[0] + RATE[1] * (1 - rate / top_rate)
        corners += [(at(t), y), (at(t + part), y)]
        t += part
    corners.append((at(end_s), RATE[0] + RATE[1]))
    out.append(f"<polygon points='{' '.join(f'{x:.1f},{y:.1f}' for x, y in corners)}' fill='#cccccc'/>")
    out.append(write(LEFT - 6, RATE[0] + 10, f"{top_rate:.2g}/s", "end", 11))
    for i in range(6):
        out.append(write(at(end_s * i / 5), RATE[0] + RATE[1] + 15, f"{end_s * i / 5:.0f}{' s' if i == 5 else ''}", "middle", 11))
    for i, (key, case) in enumerate(runs):
        width = 2.4 if key == "windlass" else 1.4
        shift = 2 * (i - len(runs) + 1)  # so that equal numbers of workers do not hide each other
        if case["course"]:
            out.append(line([(at(t), ATTAINED[0] + ATTAINED[1] * (1 - share)) for t, share in case["course"]], COLOURS[key], width))
        if case["samples"]:
            steps = [(at(seen["t"]), height_of(seen["workers"]) + shift) for seen in case["samples"] if seen["t"] <= end_s]
            out.append(line(stairs([*steps, (at(end_s), steps[-1][1])]), COLOURS[key], width))
        if case.get("refused"):
            out.append(write(LEFT + PLOT / 2, ATTAINED[0] + 70, f"{LEGEND[key]}: refused, infeasible", "middle", 12, COLOURS[key]))
    out += [write(LEFT + PLOT, ATTAINED[0] - 4, f"attained, of the last {WINDOW_S} s", "end", 10, "#555555"),
            write(LEFT + PLOT, WORKERS[0] - 12, "workers, starting and ending ones too", "end", 10, "#555555"),
            write(LEFT + PLOT, RATE[0] - 4, "load", "end", 10, "#555555")]
    return out


def chart(results, earlier=()):
    """A row per engine, a column per data sheet of Windlass; an engine without a case of Windlass has one panel."""
    cases = {case["name"]: case for case in results["cases"]}
    old = {case["name"]: case for case in earlier}
    rows = []
    for engine in dict.fromkeys(case["engine"] for case in results["cases"]):
        bases = [(system, cases[f"{engine}-{system}"]) for system in SYSTEM_TITLES if f"{engine}-{system}" in cases]
        row = []
        for sheet, words in SHEET_TITLES.items():
            name = f"{engine}-{sheet}"
            if name in cases:
                before = [("before", old[name])] if name in old else []
                row.append((f"{ENGINE_TITLES[engine]}, {words}", [*bases, *before, ("windlass", cases[name])]))
        rows.append(row or [(ENGINE_TITLES[engine], bases)])
    used = dict.fromkeys(key for row in rows for _, runs in row for key, _ in runs)
    columns = max(2, max(len(row) for row in rows))
    width, height = WIDTH * columns, HEIGHT * len(rows) + 30
    out = [f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}' font-family='sans-serif'>",
           f"<rect width='{width}' height='{height}' fill='white'/>"]
    x = LEFT
    for key in [key for key in LEGEND if key in used]:
        out += [line([(x, 16), (x + 24, 16)], COLOURS[key], 2.4 if key == "windlass" else 1.4), write(x + 30, 20, LEGEND[key])]
        x += 60 + 7 * len(LEGEND[key])
    for j, row in enumerate(rows):
        for i, (heading, runs) in enumerate(row):
            out += [f"<g transform='translate({i * WIDTH} {30 + j * HEIGHT})'>", *panel(heading, runs), "</g>"]
    return "\n".join([*out, "</svg>"]) + "\n"
