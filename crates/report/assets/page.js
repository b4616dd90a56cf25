// Draws a report from the data that the page carries. No request ever leaves the page.
"use strict";
(() => {
  const page = JSON.parse(document.getElementById("data").textContent);
  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children.filter((child) => child != null));
    return element;
  };
  const unique = (values) => [...new Set(values)];

  // Numbers, as people read them.
  const LARGE = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  const SMALL = [[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"], [1e-12, "p"]];
  const BINARY = [[2 ** 40, "Ti"], [2 ** 30, "Gi"], [2 ** 20, "Mi"], [2 ** 10, "Ki"], [1, ""]];
  const digits = (value, places = 3) => String(Number(value.toPrecision(places)));
  const scaled = (value, steps, unit, places) => {
    if (value === 0) return `0 ${unit}`.trim();
    const [factor, prefix] = steps.find(([factor]) => Math.abs(value) >= factor * 0.99999) ?? steps.at(-1);
    return `${digits(value / factor, places)} ${prefix}${unit}`.trim();
  };
  const plain = (value) => {
    if (Math.abs(value) >= 1e4) return scaled(value, LARGE, "").replace(" ", "");
    return Math.abs(value) >= 1e3 ? String(Math.round(value)) : digits(value);
  };
  const FORMATS = {
    number: plain,
    share: (value) => `${digits(100 * value)} %`,
    seconds: (value, places) => scaled(value, [...LARGE.slice(3), ...SMALL], "s", places),
    bytes: (value) => scaled(value, [...LARGE, ...SMALL], "B"),
    "message-bytes": (value) => scaled(value, BINARY, "B"),
    "bits-per-second": (value) => scaled(value, [...LARGE, ...SMALL], "b/s"),
    dollars: (value) => `$${scaled(value, [...LARGE, ...SMALL.slice(0, 1)], "")}`,
    watts: (value) => scaled(value, [...LARGE, ...SMALL], "W"),
  };
  const form = (unit, places) => (value) => (typeof value === "number" ? (FORMATS[unit] ?? plain)(value, places) : String(value ?? "–"));

  const records = (data) => data.rows.map((row) => Object.fromEntries(row.map((cell, at) => [data.columns[at], cell])));
  const csv = (data) => {
    const cell = (value) => {
      // Words that a spreadsheet would compute get an apostrophe; numbers stay numbers.
      const computes = typeof value === "string" && /^[=+@\t\r-]/.test(value) && Number.isNaN(Number(value));
      const text = value === null || value === undefined ? "" : computes ? `'${value}` : String(value);
      return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    return [data.columns, ...data.rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
  };
  const download = (name, text) => {
    const link = make("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: name });
    document.body.append(link);
    link.click();
    setTimeout(() => { URL.revokeObjectURL(link.href); link.remove(); }, 1000);
  };

  // Okabe and Ito's colours differ in lightness too; a texture on each tells them apart in grey.
  const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c00", "#7f7f7f", "#b2abd2"];
  const DASHES = ["none", "7 3", "2 3", "9 3 2 3", "12 4", "4 2", "1 4", "9 3 2 3 2 3", "6 6"];
  const STROKES = ["", "M0 8L8 0", "M2 2h2v2h-2zM6 6h2v2h-2z", "M0 0L8 8M8 0L0 8", "M0 4H8", "M4 0V8", "M0 0L8 8", "M0 4H8M4 0V8", "M3 3h2v2h-2z"];
  const svgNode = (tag, attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };
  const textures = svgNode("svg", { width: 0, height: 0, "aria-hidden": "true", class: "textures" });
  PALETTE.forEach((colour, at) => {
    const pattern = svgNode("pattern", { id: `texture-${at}`, width: 8, height: 8, patternUnits: "userSpaceOnUse" });
    pattern.append(svgNode("rect", { width: 8, height: 8, fill: colour }), svgNode("path", { d: STROKES[at], stroke: "#fff", "stroke-opacity": 0.75, "stroke-width": 1.2, fill: "none" }));
    textures.append(pattern);
  });
  document.body.prepend(textures);
  const TEXTURES = PALETTE.map((_, at) => `url(#texture-${at})`);
  const nth = (list, at) => list[at % list.length];
  // Lines that come to the same colour again get another dash.
  const dash = (at) => nth(DASHES, at + Math.floor(at / PALETTE.length));

  // A browser writes each texture into a PDF as a picture and each dash as a line of its own: paper gets plain colours and longer dashes.
  const replaced = [];
  const replace = (element, name, value) => { replaced.push([element, name, element.getAttribute(name)]); element.setAttribute(name, value); };
  addEventListener("beforeprint", () => {
    for (const element of document.querySelectorAll("[fill^='url(#texture-']")) replace(element, "fill", PALETTE[Number(element.getAttribute("fill").match(/\d+/)[0])]);
    for (const element of document.querySelectorAll("[stroke-dasharray]")) {
      const dashes = element.getAttribute("stroke-dasharray");
      if (/\d/.test(dashes)) replace(element, "stroke-dasharray", dashes.replace(/[\d.]+/g, (length) => 4 * Number(length)));
    }
  });
  addEventListener("afterprint", () => { for (const [element, name, value] of replaced.splice(0)) element.setAttribute(name, value); });

  // Labels get the room that they need, and no more than a third of a narrow screen; two lines where their lanes have room.
  const pen = document.createElement("canvas").getContext("2d");
  const labels = (names, width, lane) => {
    pen.font = `${width < 520 ? 11 : 12}px system-ui, sans-serif`;
    const wide = (text) => pen.measureText(text).width;
    const room = Math.min(width < 520 ? 0.38 * width : 290, 20 + Math.max(0, ...names.map((name) => wide(String(name)))));
    const fits = (text) => wide(text) <= room - 16;
    const shorten = (text) => {
      if (fits(text)) return text;
      let kept = text;
      while (kept && !fits(`${kept}…`)) kept = kept.slice(0, -1);
      return `${kept}…`;
    };
    const broken = (text) => {
      if (fits(text) || !(lane >= 24)) return shorten(text);
      const at = [...text.matchAll(/ /g)].map((blank) => blank.index).filter((blank) => fits(text.slice(0, blank))).at(-1);
      return at ? `${text.slice(0, at)}\n${shorten(text.slice(at + 1))}` : shorten(text);
    };
    return { room, tickFormat: (name) => broken(String(name)) };
  };

  // What all charts of columns share.
  const frame = (chart, width) => {
    const rows = records(chart.data);
    const { x, y, series } = chart;
    const names = series ? unique(rows.map((row) => row[series])) : [];
    const [showX, showY, showValue] = [form(chart.x_unit), form(chart.y_unit), form(chart.value_unit)];
    const about = (row) => {
      const lines = chart.name && row[chart.name] ? [row[chart.name]] : [];
      const add = (label, text) => lines.push(label ? `${label}: ${text}` : text);
      if (series && row[series] !== row[chart.name]) lines.push(row[series]);
      if (chart.start) add(chart.x_label ?? "", `${showX(row[chart.start])} to ${showX(row[chart.end])}`);
      if (x && !chart.start) add(chart.x_label || x, showX(row[x]));
      if (y && row[y] !== undefined && row[y] !== row[chart.name]) add(chart.y_label || (typeof row[y] === "number" ? y : ""), showY(row[y]));
      if (chart.value) add(chart.value_label ?? chart.value, showValue(row[chart.value]));
      if (chart.low && row[chart.low] != null) add("range", `${showX(row[chart.low])} to ${showX(row[chart.high])}`);
      return lines.join("\n");
    };
    const legend = names.length > 1 || (chart.chart === "timeline" && names.length > 0);
    const fills = { color: { legend, domain: names, range: names.map((_, at) => nth(TEXTURES, at)) } };
    const strokes = { color: { legend, domain: names, range: names.map((_, at) => nth(PALETTE, at)) } };
    const symbols = { color: { ...strokes.color, legend: false }, symbol: { legend: names.length > 1, domain: names } };
    const axis = (which, scale) => ({
      label: chart[`${which}_label`] || null, type: scale ?? "linear", grid: true, labelOffset: which === "x" ? 38 : undefined, labelAnchor: which === "y" ? "top" : "right",
      ...(which === "x" && chart.zoom ? { domain: chart.zoom } : {}),
      tickFormat: form(chart[`${which}_unit`]), ticks: which === "x" ? Math.max(3, Math.min(9, Math.floor(width / 90))) : 6,
    });
    const base = { width, clip: chart.zoom ? true : undefined, marginRight: 28, marginBottom: 44, style: { fontSize: width < 520 ? "11px" : "12px" } };
    const rule = chart.rule
      ? [Plot.ruleX([chart.rule.at], { strokeDasharray: "5 3", strokeWidth: 1.5 }), Plot.text([chart.rule.at], { x: (d) => d, text: () => chart.rule.label, frameAnchor: "top", dy: -5, lineAnchor: "bottom" })]
      : [];
    // What is written at a bar has a digit more than a tick.
    const writeX = form(chart.x_unit, 4);
    return { rows, x, y, series, names, about, fills, strokes, symbols, axis, base, rule, showX, showY, writeX, showValue };
  };
  const marginTop = (chart) => (chart.rule ? 34 : 22);
  const tip = { tip: { fontSize: 12, lineWidth: 26 } };
  // Ticks of a log axis: as many of its powers, or of 1, 2 and 5 times these, as there is room for.
  const logTicks = (values, width, base) => {
    const [least, most] = [Math.min(...values) * 0.9999, Math.max(...values) * 1.0001];
    const powers = d3.range(Math.floor(Math.log(least) / Math.log(base)), Math.ceil(Math.log(most) / Math.log(base)) + 1).map((power) => base ** power);
    const inside = (ticks) => ticks.filter((tick) => least <= tick && tick <= most);
    const room = Math.max(2, Math.floor(width / 84));
    if (base === 10 && most / least < 8) return d3.ticks(least, most, Math.min(6, room));
    const fine = inside(powers.flatMap((power) => (base === 10 ? [power, 2 * power, 5 * power] : [power])));
    const ticks = fine.length <= room ? fine : inside(powers);
    return ticks.length <= room ? ticks : ticks.filter((_, at) => at % Math.ceil(ticks.length / room) === 0);
  };
  // Log axes write their own labels: Plot leaves out some of those that it is asked for.
  const log = (which, chart, axis, values, width, base = 10) => {
    const options = axis(which, "log");
    const ticks = logTicks(values.filter((value) => value > 0), width, base);
    const [grid, labels] = which === "x" ? [Plot.gridX, Plot.axisX] : [Plot.gridY, Plot.axisY];
    const { label, labelOffset, labelAnchor, tickFormat } = options;
    return { scale: { type: "log", label, axis: null }, marks: [grid(ticks), labels(ticks, { label, labelOffset, labelAnchor, text: ticks.map(tickFormat) })] };
  };
  const xAxis = (chart, axis, values, width) => (chart.x_scale === "log"
    ? log("x", chart, axis, values, width, chart.x_unit === "message-bytes" ? 2 : 10)
    : { scale: axis("x"), marks: [] });

  const isDark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";

  // Rows that are chosen in one chart stand out in all that are linked; none chosen is all.
  const chosen = new Set();
  const isChosen = (chart) => (row) => chosen.size === 0 || chosen.has(row[chart.link]);
  // Others first, so that the chosen lie above them.
  const chosenLast = (chart, rows) => (chart.link && chosen.size ? [...rows].sort((a, b) => isChosen(chart)(a) - isChosen(chart)(b)) : rows);

  const KINDS = {
    // A line for each row across all columns. Words are evenly spread, numbers by size.
    parallel(chart, width) {
      const { rows, base, showValue } = frame(chart, width);
      const names = chart.data.columns.filter((name) => name !== chart.link);
      const scales = new Map(names.map((name) => {
        const values = rows.map((row) => row[name]).filter((value) => value != null);
        if (values.every((value) => typeof value === "number") && values.length) {
          const [low, high] = d3.extent(values);
          const levels = unique(values).sort(d3.ascending);
          const at = (value) => (high > low ? (value - low) / (high - low) : 0.5);
          return [name, { at, ticks: (levels.length <= 6 ? levels : [low, (low + high) / 2, high]).map((value) => [at(value), plain(value)]) }];
        }
        const levels = unique(values.map(String));
        const at = (value) => (levels.length > 1 ? levels.indexOf(String(value)) / (levels.length - 1) : 0.5);
        return [name, { at, ticks: levels.slice(0, 40).map((level) => [at(level), level]) }];
      }));
      const colour = scales.get(chart.value);
      const inside = isChosen(chart);
      const faint = Math.max(0.12, Math.min(0.8, 60 / rows.length));
      const points = chosenLast(chart, rows).flatMap((row) => names.filter((name) => row[name] != null).map((name) => ({ name, at: scales.get(name).at(row[name]), row, key: row[chart.link] })));
      const ticks = names.flatMap((name) => scales.get(name).ticks.map(([at, text]) => ({ name, at, text })));
      const short = (text, room) => (text.length * 6.2 > room ? `${text.slice(0, Math.max(3, Math.floor(room / 6.2) - 1))}…` : text);
      const apart = (width - 140) / Math.max(1, names.length - 1);
      // Where axes would stand too close to read, they lie below each other.
      const lying = apart < 64;
      const [along, across] = lying ? ["y", "x"] : ["x", "y"];
      const room = lying ? 76 : apart;
      const slanted = !lying && names.some((name) => name.length * 6.6 > apart);
      // The last name leans out to the right.
      const leaning = Math.max(70, Math.min(200, 12 + 6.4 * (names.at(-1) ?? "").length));
      const shape = lying
        ? { height: 60 + 50 * names.length, marginLeft: 34, marginRight: 34, marginTop: 30, marginBottom: 24 }
        : { height: 380, marginLeft: 70, marginRight: slanted ? leaning : 70, marginTop: slanted ? 84 : 46, marginBottom: 16 };
      const heading = lying
        ? { x: 0, y: (name) => name, text: (name) => name, textAnchor: "start", lineAnchor: "bottom", dx: -30, dy: -5, fill: "currentColor", stroke: "var(--ground)", strokeWidth: 4 }
        : { x: (name) => name, y: 1, text: (name) => short(name, slanted ? 180 : room), lineAnchor: "bottom", dy: -12, ...(slanted ? { rotate: -20, textAnchor: "start", dx: -4 } : {}) };
      const plot = Plot.plot({
        ...base, ...shape,
        [along]: { type: "point", domain: names, axis: null, padding: 0 }, [across]: { domain: [0, 1], axis: null },
        color: { scheme: "viridis", range: isDark() ? [0.3, 1] : [0, 0.92], domain: d3.extent(rows, (row) => row[chart.value]), legend: true, label: chart.value_label ?? chart.value, tickFormat: showValue, ticks: 4 },
        marks: [
          Plot.line(points, { [along]: "name", [across]: "at", z: "key", stroke: (point) => point.row[chart.value], strokeOpacity: (point) => (inside(point.row) ? (chosen.size ? 0.9 : faint) : 0.04), strokeWidth: 1.2 }),
          (lying ? Plot.ruleY : Plot.ruleX)(names, { stroke: "currentColor", strokeOpacity: 0.6 }),
          Plot.text(ticks, { [along]: "name", [across]: "at", text: (tick) => short(tick.text, room), ...(lying ? { dy: 9 } : { dx: 4, textAnchor: "start" }), stroke: "var(--ground)", strokeWidth: 4, fill: "currentColor" }),
          Plot.text(names, { ...heading, fontWeight: 600 }),
        ],
      });
      plot.within = ([left, top], [right, bottom]) => {
        const [name, value] = [plot.scale(along), plot.scale(across)];
        const [from, to, low, high] = lying ? [top, bottom, left, right] : [left, right, top, bottom];
        const crossed = names.filter((axis) => from - 12 <= name.apply(axis) && name.apply(axis) <= to + 12);
        const isInside = (row) => (axis) => row[axis] != null && low <= value.apply(scales.get(axis).at(row[axis])) && value.apply(scales.get(axis).at(row[axis])) <= high;
        return rows.filter((row) => crossed.length && crossed.every(isInside(row)));
      };
      return plot;
    },
    // Horizontal bars, stacked by series: breakdowns, shares.
    bars(chart, width) {
      const { rows, x, y, series, names, about, fills, axis, base, rule, writeX } = frame(chart, width);
      const lanes = unique(rows.map((row) => row[y]));
      const { room, tickFormat } = labels(lanes, width, 30);
      const sums = d3.rollup(rows, (members) => d3.sum(members, (row) => row[x]), (row) => row[y]);
      const most = d3.max(sums.values()) || 1;
      const written = (row) => (row[x] / most > (width < 520 ? 0.18 : 0.07) ? writeX(row[x]) : "");
      const stack = { x, y, order: series ? names : undefined, z: series };
      return Plot.plot({
        ...base, marginLeft: room, marginTop: marginTop(chart), marginRight: series ? 28 : 74, height: 74 + 30 * lanes.length, ...fills,
        x: axis("x"), y: { label: null, domain: lanes, tickFormat },
        marks: [
          Plot.barX(rows.filter((row) => row[x] !== 0), { ...stack, fill: series ?? TEXTURES[0], title: about, ...tip, insetTop: 1, insetBottom: 1 }),
          series
            ? Plot.textX(rows, Plot.stackX({ ...stack, text: written, fill: "#000", stroke: "#fff", strokeWidth: 4 }))
            : Plot.text(rows, { x: (row) => Math.max(0, row[x]), y, text: (row) => writeX(row[x]), textAnchor: "start", dx: 5 }),
          Plot.ruleX([0]), ...rule,
        ],
      });
    },
    // Each step begins where the last one ended: how a step's time adds up.
    waterfall(chart, width) {
      const { rows, x, y, about, axis, base, rule, writeX } = frame(chart, width);
      let at = 0;
      const steps = rows.map((row) => ({ ...row, from: at, to: (at += row[x]) }));
      const names = rows.map((row) => row[y]);
      const { room, tickFormat } = labels(names, width, 28);
      return Plot.plot({
        ...base, marginLeft: room, marginTop: marginTop(chart), marginRight: 78, height: 76 + 28 * names.length,
        x: axis("x"), y: { label: null, domain: names, tickFormat },
        marks: [
          Plot.ruleX([at], { strokeOpacity: 0.5 }),
          Plot.barX(steps, { x1: "from", x2: "to", y, fill: (row) => nth(TEXTURES, names.indexOf(row[y])), stroke: (row) => nth(PALETTE, names.indexOf(row[y])), title: about, ...tip, insetTop: 1, insetBottom: 1 }),
          Plot.text(steps, { x: "to", y, text: (row) => writeX(row[x]), textAnchor: "start", dx: 5, fill: "currentColor", stroke: "var(--ground)", strokeWidth: 5 }),
          Plot.ruleX([0]), ...rule,
        ],
      });
    },
    // Lines, with dots where there are few points; some series are points alone.
    line(chart, width) {
      const { rows, x, y, series, names, about, strokes, axis, base, rule } = frame(chart, width);
      const groups = series ? names.map((name) => rows.filter((row) => row[series] === name)) : [rows];
      const loose = new Set(chart.points ?? []);
      const few = rows.length <= 160;
      const lines = groups.map((members, at) => (loose.has(names[at]) ? null : Plot.line(members, { x, y, stroke: nth(PALETTE, at), strokeWidth: 1.8, strokeDasharray: dash(at) })));
      const dots = groups.map((members, at) => (few || loose.has(names[at])
        ? Plot.dot(members, { x, y, stroke: nth(PALETTE, at), fill: loose.has(names[at]) ? nth(PALETTE, at) : "var(--ground)", symbol: nth(["circle", "square", "triangle", "diamond", "cross", "star", "wye"], at), r: 4 }) : null));
      const across = xAxis(chart, axis, rows.map((row) => row[x]), width);
      return Plot.plot({
        ...base, height: 330, marginLeft: 64, marginTop: marginTop(chart), ...strokes, x: across.scale, y: { ...axis("y", chart.y_scale), zero: chart.y_scale !== "log" },
        marks: [...across.marks, ...lines, ...dots, Plot.tip(rows, Plot.pointer({ x, y, title: about, fontSize: 12 })), chart.y_scale === "log" ? null : Plot.ruleY([0]), ...rule],
      });
    },
    // Steps that hold their value: queues, rates, pauses over time.
    area(chart, width) {
      const { rows, x, y, series, names, about, strokes, axis, base } = frame(chart, width);
      const groups = series ? names.map((name) => rows.filter((row) => row[series] === name)) : [rows];
      return Plot.plot({
        ...base, height: 230, marginLeft: 64, ...strokes, x: axis("x"), y: axis("y"),
        marks: [
          groups.length === 1 ? Plot.areaY(rows, { x, y, fill: PALETTE[0], fillOpacity: 0.25, curve: "step-after" }) : null,
          ...groups.map((members, at) => Plot.lineY(members, { x, y, stroke: nth(PALETTE, at), strokeDasharray: dash(at), curve: "step-after" })),
          Plot.tip(rows, Plot.pointerX({ x, y, title: about, fontSize: 12 })),
          Plot.ruleY([0]),
        ],
      });
    },
    // Measured against predicted: on the diagonal is right.
    scatter(chart, width) {
      const { rows: all, x, y, series, about, symbols, axis, base } = frame(chart, width);
      const rows = chosenLast(chart, all);
      // Two axes of one kind make a square.
      const side = chart.diagonal ? Math.min(width, 480) : width;
      const look = chart.link ? { strokeOpacity: (row) => (isChosen(chart)(row) ? 1 : 0.08), fill: (row) => (chosen.size && isChosen(chart)(row) ? "#d55e00" : PALETTE[0]), fillOpacity: (row) => (isChosen(chart)(row) ? 0.5 : 0.04) } : {};
      const ends = rows.flatMap((row) => [row[x], row[y], row[chart.low], row[chart.high]]).filter((value) => value > 0);
      const [low, high] = [Math.min(...ends), Math.max(...ends)];
      const stroke = series ?? PALETTE[0];
      const along = { x: rows.map((row) => row[x]), y: rows.flatMap((row) => [row[y], row[chart.low] ?? row[y], row[chart.high] ?? row[y]]) };
      const [across, up] = ["x", "y"].map((which) => (chart[`${which}_scale`] === "log" ? log(which, chart, axis, chart.diagonal ? ends : along[which], side) : { scale: axis(which), marks: [] }));
      const plot = Plot.plot({
        ...base, width: side, height: Math.min(side, 480), marginLeft: 64, ...symbols, x: across.scale, y: up.scale,
        marks: [
          ...across.marks, ...up.marks,
          chart.diagonal ? Plot.line([[low, low], [high, high]], { stroke: "currentColor", strokeDasharray: "4 3" }) : null,
          chart.low ? Plot.ruleX(rows.filter((row) => row[chart.low] != null), { x, y1: chart.low, y2: chart.high, stroke, strokeOpacity: 0.7 }) : null,
          Plot.dot(rows, { x, y, stroke, symbol: series, title: about, ...look, ...tip }),
        ],
      });
      plot.within = ([left, top], [right, bottom]) => rows.filter((row) => {
        const [px, py] = [plot.scale("x").apply(row[x]), plot.scale("y").apply(row[y])];
        return left <= px && px <= right && top <= py && py <= bottom;
      });
      return plot;
    },
    // One dot for each value, a lane for each name, with error bars where there are ends.
    dots(chart, width) {
      const { rows, x, y, series, about, symbols, base, axis, rule } = frame(chart, width);
      const lanes = unique(rows.map((row) => row[y]));
      const { room, tickFormat } = labels(lanes, width, 26);
      const stroke = series ?? PALETTE[0];
      const across = xAxis(chart, axis, rows.flatMap((row) => [row[x], row[chart.low] ?? row[x], row[chart.high] ?? row[x]]), width);
      return Plot.plot({
        ...base, marginLeft: room, marginTop: marginTop(chart), height: 80 + 26 * lanes.length, ...symbols,
        x: across.scale, y: { label: null, domain: lanes, tickFormat, grid: true },
        marks: [
          ...across.marks, ...rule,
          chart.low ? Plot.ruleY(rows.filter((row) => row[chart.low] != null), { y, x1: chart.low, x2: chart.high, stroke, strokeWidth: 1.5 }) : null,
          Plot.dot(rows, { x, y, stroke, symbol: series, r: 4, title: about, ...tip }),
        ],
      });
    },
    // A grid of cells, brighter where there is more; cells with nothing stay empty.
    heat(chart, width) {
      const { rows, x, y, about, axis, base, showValue } = frame(chart, width);
      const ys = unique(rows.map((row) => row[y])), xs = unique(rows.map((row) => row[x]));
      const eachRow = width < 520 && ys.length < 25 ? 26 : ys.length < 12 ? 30 : 20;
      const { room, tickFormat } = labels(ys, width, eachRow);
      const some = rows.filter((row) => row[chart.value] > 0);
      const shared = { y, fill: chart.value, title: about, ...tip };
      // Along numbers a cell reaches to the next; the last is as wide as the first.
      const numeric = typeof xs[0] === "number" && xs.length > 1;
      const each = xs[1] - xs[0];
      const across = numeric
        ? { ...axis("x"), grid: false, domain: chart.zoom ?? [xs[0], xs.at(-1) + each] }
        : { label: chart.x_label || null, labelOffset: 38, domain: xs, ticks: xs.length * 44 > width ? [] : xs };
      return Plot.plot({
        ...base, marginLeft: room, height: 70 + Math.max(80, Math.min(640, ys.length * eachRow)),
        x: across, y: { label: null, domain: ys, padding: 0.06, tickFormat, ticks: ys.length > 40 ? ys.filter((_, at) => at % Math.ceil(ys.length / 32) === 0) : ys },
        color: { scheme: "viridis", legend: true, zero: true, label: chart.value_label ?? chart.value, tickFormat: showValue, ticks: 4 },
        marks: [
          Plot.frame({ fill: "var(--panel)", stroke: "none" }),
          numeric ? Plot.barX(some, { ...shared, x1: x, x2: (row) => row[x] + each, shapeRendering: "crispEdges" }) : Plot.cell(some, { ...shared, x, inset: 0.5 }),
        ],
      });
    },
    // How often values fall into each range.
    histogram(chart, width) {
      const { rows, y, series, about, fills, axis, base } = frame(chart, width);
      return Plot.plot({
        ...base, height: 250, marginLeft: 64, ...fills, x: { ...axis("x"), domain: d3.extent(rows.flatMap((row) => [row[chart.start], row[chart.end]])) }, y: axis("y"),
        marks: [
          Plot.rectY(rows.filter((row) => row[y] > 0), Plot.stackY({ x1: chart.start, x2: chart.end, y, fill: series ?? TEXTURES[0], z: series, title: about, ...tip, insetLeft: 0.5, insetRight: 0.5 })),
          Plot.ruleY([0]),
        ],
      });
    },
    // The share of values at or below each value.
    distribution(chart, width) {
      const { rows, x, y, series, names, about, strokes, axis, base, rule } = frame(chart, width);
      const groups = series ? names.map((name) => rows.filter((row) => row[series] === name)) : [rows];
      const across = xAxis(chart, axis, rows.map((row) => row[x]), width);
      return Plot.plot({
        ...base, height: 300, marginLeft: 64, marginTop: marginTop(chart), ...strokes, x: across.scale, y: { ...axis("y"), domain: [0, 1] },
        marks: [
          ...across.marks,
          ...groups.map((members, at) => Plot.line(members, { x, y, stroke: nth(PALETTE, at), strokeWidth: 1.8, strokeDasharray: nth(DASHES, at), curve: "step-after" })),
          Plot.tip(rows, Plot.pointer({ x, y, title: about, fontSize: 12 })), Plot.ruleY([0]), ...rule,
        ],
      });
    },
    // Who does what when: one lane for each rank, NIC or link.
    timeline(chart, width) {
      const { rows, y, series, about, fills, axis, base } = frame(chart, width);
      const lanes = unique(rows.map((row) => row[y]));
      const { room, tickFormat } = labels(lanes, width, 24);
      return Plot.plot({
        ...base, marginLeft: room, height: 76 + 24 * lanes.length, ...fills, x: axis("x"), y: { label: null, domain: lanes, tickFormat },
        marks: [Plot.barX(rows, { x1: chart.start, x2: chart.end, y, fill: series ?? TEXTURES[0], title: about, ...tip, insetTop: 2, insetBottom: 2 })],
      });
    },
  };

  // The fabric as a tree that unfolds, busiest parts first. Widths tell cables, colours load.
  const SHOWN = 12;
  const tree = (chart, width) => {
    const holder = make("div", { class: "tree" });
    const wrap = (item) => ({ item, open: Boolean(item.open), shown: SHOWN });
    const childrenOf = (state) => {
      if (!state.item.children?.length) return null;
      state.all ??= state.item.children.map(wrap).sort((a, b) => (b.item.load ?? 0) - (a.item.load ?? 0));
      if (!state.open) return null;
      const left = state.all.length - state.shown;
      return left > 0 ? [...state.all.slice(0, state.shown), { more: state, left, item: { name: `${left} more` } }] : state.all;
    };
    const root = chart.fold ??= wrap(chart.root);
    // Readable on light and dark ground; the busiest part of all is the far end.
    const most = (item) => Math.max(item.load ?? 0, ...(item.children ?? []).map(most));
    const peak = most(chart.root) || 1;
    const ramp = d3.interpolateRgbBasis(["#7f95ab", "#d9a400", "#c4001a"]);
    const name = ({ item }, node) => {
      if (item.load != null) return `${item.name}: ${digits(100 * item.load)} %`;
      return item.note && node.depth && !node.children ? `${item.name}: ${item.note}` : item.name;
    };
    const draw = (focus) => {
      const top = d3.hierarchy(root, childrenOf);
      const reach = Math.max(1, d3.max(top.descendants(), (node) => node.depth));
      const row = 22, narrow = width < 520;
      const each = narrow ? 6 : 7;
      const text = Math.min(width * 0.62, 26 + each * d3.max(top.leaves(), (node) => name(node.data, node).length));
      const column = Math.max(26, Math.min(230, (width - text - 24) / reach));
      d3.tree().nodeSize([row, column]).separation((a, b) => (a.parent === b.parent ? 1 : 1.6))(top);
      const [low, high] = d3.extent(top.descendants(), (node) => node.x);
      const svg = d3.create("svg").attr("width", width).attr("height", high - low + 60).attr("viewBox", [-14, low - 30, width, high - low + 60])
        .attr("role", "tree").attr("aria-label", chart.title).style("font-size", narrow ? "11px" : "12px");
      svg.selectAll("path").data(top.links()).join("path").attr("fill", "none")
        .attr("d", d3.linkHorizontal().x((node) => node.y).y((node) => node.x))
        .attr("stroke", ({ target }) => (target.data.item.load == null ? "var(--soft)" : ramp(target.data.item.load / peak)))
        .attr("stroke-width", ({ target }) => Math.min(7, 1 + 0.8 * Math.log2(1 + (target.data.item.cables ?? 0))))
        .attr("stroke-dasharray", ({ target }) => (target.data.item.cables ? null : "2 3"))
        .append("title").text(({ target }) => `${target.data.item.name}: ${target.data.item.cables ?? 0} cables; ${target.data.item.note ?? ""}`);
      const nodes = svg.selectAll("g").data(top.descendants()).join("g").attr("transform", (node) => `translate(${node.y},${node.x})`);
      const folds = (node) => node.data.more || node.data.item.children?.length;
      const toggle = (node) => {
        if (node.data.more) node.data.more.shown = Infinity;
        else node.data.open = !node.data.open;
        draw(node.data.more ?? node.data);
      };
      nodes.attr("role", "treeitem").attr("aria-label", (node) => `${name(node.data, node)} ${node.data.item.note ?? ""}`)
        .attr("aria-level", (node) => node.depth + 1)
        .filter(folds).attr("tabindex", 0).attr("class", "folds").attr("aria-expanded", (node) => String(Boolean(node.data.open)))
        .on("click", (_, node) => toggle(node))
        .on("keydown", (event, node) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(node); } });
      nodes.append("circle").attr("r", (node) => (folds(node) ? 6 : 3)).attr("fill", (node) => (folds(node) ? "var(--ground)" : "var(--soft)")).attr("stroke", "var(--ink)");
      nodes.filter(folds).append("path").attr("d", (node) => (node.data.open ? "M-3 0H3" : "M-3 0H3M0 -3V3")).attr("stroke", "var(--ink)");
      nodes.append("text").text((node) => name(node.data, node)).attr("fill", "currentColor").attr("stroke", "var(--ground)").attr("stroke-width", 4).attr("paint-order", "stroke")
        .attr("x", (node) => (node.children ? -6 : 10)).attr("y", (node) => (node.children ? -11 : 4));
      nodes.append("title").text((node) => [name(node.data, node), node.data.item.note].filter(Boolean).join("\n"));
      holder.replaceChildren(svg.node());
      if (focus) nodes.filter((node) => node.data === focus).node()?.focus();
    };
    draw();
    return holder;
  };

  // The arrow keys move a pointer over a chart; what it says is also read aloud.
  const heard = make("p", { class: "heard", "aria-live": "polite" });
  const keys = (svg) => {
    let at = [0.5, 0.5];
    const step = { ArrowLeft: [-0.02, 0], ArrowRight: [0.02, 0], ArrowUp: [0, -0.04], ArrowDown: [0, 0.04] };
    svg.setAttribute("tabindex", "0");
    svg.addEventListener("keydown", (event) => {
      const move = step[event.key];
      if (!move) return;
      event.preventDefault();
      at = at.map((value, axis) => Math.max(0, Math.min(0.999, value + move[axis])));
      const box = svg.getBoundingClientRect();
      svg.dispatchEvent(new PointerEvent("pointermove", { bubbles: true, pointerType: "mouse", clientX: box.left + at[0] * box.width, clientY: box.top + at[1] * box.height }));
      setTimeout(() => { heard.textContent = svg.querySelector("[aria-label=tip]")?.textContent ?? ""; }, 60);
    });
  };

  let regions = 0;
  const table = (columns, rows, sides) => {
    const side = (at) => (sides[at] === "right" ? { class: "number" } : {});
    // Where there is no room, figures with words beside them are broken.
    const look = (cell, at) => (sides[at] === "right" && String(cell).length > 14 ? { class: "number long" } : side(at));
    // Long names may be broken behind their joints.
    const words = (text, long = 20) => (text.length > long && /[_/]/.test(text) ? text.split(/(?<=[_/])/).flatMap((part) => [part, make("wbr")]) : [text]);
    const head = make("tr", {}, ...columns.map((name, at) => make("th", { scope: "col", ...side(at) }, ...words(String(name), 12))));
    // Figures are broken before what is beside them, and nowhere else.
    const figure = (text) => text.replace(/ +/g, " ").split(/ (?=[+\-=×±≈(]|to )|(?<=,) /).map((part) => part.replaceAll(" ", "\u00a0")).join(" ");
    const written = (cell, at) => (typeof cell === "number" ? [plain(cell)] : sides[at] === "right" ? [figure(String(cell ?? "–"))] : words(String(cell ?? "–")));
    // A row that begins with blanks says more of the row above it.
    let parent = "";
    const first = (cell) => {
      const name = String(cell ?? "–").trim();
      if (/^ /.test(String(cell))) return { class: "below", children: [make("span", { class: "parent" }, `${parent}: `), name] };
      parent = name || parent;
      return { children: words(name) };
    };
    const cells = (cell, at) => {
      if (at > 0 || sides[0] === "right" || typeof cell === "number") return make("td", { ...look(cell, at), "data-name": columns[at] }, ...written(cell, at));
      const { children, ...more } = first(cell);
      return make("td", { ...more, "data-name": columns[at] }, ...children);
    };
    const body = rows.map((row) => make("tr", {}, ...row.map(cells)));
    const named = columns.some((name) => name !== "");
    regions += 1;
    return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `table ${regions}` }, make("table", columns.length > 3 ? { class: columns.length > 10 ? "wide many" : "wide" } : {}, named ? make("thead", {}, head) : null, make("tbody", {}, ...body)));
  };
  // Long tables show their beginning; the rest unfolds, and is there on paper.
  const LONG = 24, BEGINNING = 8, MOST_ROWS = 500;
  let tables = 0;
  const foldedTable = ({ columns, rows, sides }) => {
    const whole = table(columns, rows, sides);
    tables += 1;
    const file = `${page.name ?? "fatflow"}-table-${tables}.csv`;
    const save = make("button", { type: "button" }, "table as CSV");
    save.addEventListener("click", () => download(file, csv({ columns, rows })));
    if (rows.length <= LONG) return rows.length < 2 ? whole : make("div", {}, whole, make("div", { class: "tools" }, save));
    const button = make("button", { type: "button", "aria-expanded": "false" }, `show all ${rows.length} rows`);
    whole.classList.add("folded");
    [...whole.querySelectorAll("tbody tr")].slice(BEGINNING).forEach((row) => row.classList.add("rest"));
    button.addEventListener("click", () => {
      const folded = whole.classList.toggle("folded");
      button.setAttribute("aria-expanded", String(!folded));
      button.textContent = folded ? `show all ${rows.length} rows` : "show fewer rows";
    });
    return make("div", {}, whole, make("div", { class: "tools" }, button, save));
  };
  // Text to copy or to keep: the scenario, commands to try.
  const verbatim = (text) => {
    const copy = make("button", { type: "button" }, "copy");
    copy.addEventListener("click", async () => {
      const range = document.createRange();
      range.selectNodeContents(shown);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      try { await navigator.clipboard.writeText(text); } catch { document.execCommand("copy"); }
      copy.textContent = "copied";
    });
    const save = make("button", { type: "button" }, "download");
    save.addEventListener("click", () => download(`${page.name ?? "fatflow"}.toml`, text));
    const isScenario = /^\[[\w.]+\]$/m.test(text);
    // Lines are broken between the words of a command, not after a flag's first dash.
    const parts = text.split(/(--[a-z-]+)/).map((part, at) => (at % 2 ? make("span", { class: "flag" }, part) : part));
    const shown = make("pre", { class: "scroll", tabindex: "0" }, ...parts);
    return make("div", {}, shown, make("div", { class: "tools" }, copy, isScenario ? save : null));
  };

  const figure = (chart, number) => {
    const holder = make("div", { class: "chart", "data-kind": chart.chart });
    const data = chart.data;
    const button = make("button", { type: "button" }, "data as CSV");
    button.addEventListener("click", () => download(`${page.name ?? "fatflow"}-${number}.csv`, csv(data)));
    const shown = make("details", {}, make("summary", {}, "data as a table"));
    shown.addEventListener("toggle", () => {
      const sides = data.columns.map((_, at) => (data.rows.every((row) => typeof row[at] !== "string") ? "right" : "left"));
      const cut = data.rows.length > MOST_ROWS ? make("p", {}, `The first ${MOST_ROWS} of ${data.rows.length} rows; the CSV has all.`) : null;
      shown.append(...[cut, table(data.columns, data.rows.slice(0, MOST_ROWS), sides)].filter(Boolean));
    }, { once: true });
    const words = make("p", { class: "chosen" });
    const box = make("figure", { id: `figure-${number}` }, make("h3", {}, chart.title), holder, chart.link ? words : null, make("figcaption", {}, chart.caption ?? ""), make("div", { class: "tools" }, button, shown));
    const draw = () => {
      const width = Math.max(280, Math.min(1120, holder.clientWidth || box.clientWidth - 24));
      const drawn = chart.chart === "tree" ? tree(chart, width) : KINDS[chart.chart](chart, width);
      holder.replaceChildren(drawn);
      // Only what has a role may have a name.
      for (const part of drawn.querySelectorAll("[aria-label]:not([role])")) part.setAttribute("role", "group");
      if (chart.chart !== "tree") {
        const svg = drawn.tagName === "svg" ? drawn : [...drawn.querySelectorAll("svg")].at(-1);
        svg.setAttribute("role", "img");
        svg.setAttribute("aria-label", `${chart.title}. ${chart.caption ?? ""}`);
        keys(svg);
        if (isZoomed(chart)) zoomable(chart, drawn, svg, draw);
        if (chart.link) {
          brushed(chart, drawn, svg);
          words.textContent = chosenWords(chart);
        }
      }
    };
    if (isZoomed(chart)) box.querySelector(".tools").prepend(...zoomTools(chart, draw));
    return { box, draw, chart };
  };

  // Pictures over time zoom: by dragging over a stretch, by buttons, or by + - and 0.
  const isZoomed = (chart) => chart.x_unit === "seconds" && !chart.link && chart.x_scale !== "log" && ["timeline", "area", "line", "heat"].includes(chart.chart);
  const extentOf = (chart) => {
    const names = [chart.start, chart.end, chart.chart === "timeline" ? undefined : chart.x].filter(Boolean);
    const places = names.map((name) => chart.data.columns.indexOf(name));
    return d3.extent(chart.data.rows.flatMap((row) => places.map((place) => row[place])).filter((value) => typeof value === "number"));
  };
  const zoomBy = (chart, factor) => {
    const [low, high] = extentOf(chart);
    const [from, to] = chart.zoom ?? [Math.min(0, low), high];
    const [middle, half] = [(from + to) / 2, (to - from) / 2 * factor];
    chart.zoom = half >= (high - low) / 2 ? undefined : [Math.max(low, middle - half), Math.min(high, middle + half)];
  };
  const zoomTools = (chart, draw) => [["+", "zoom in", 0.5], ["−", "zoom out", 2], ["whole", "whole time", Infinity]].map(([sign, label, factor]) => {
    const button = make("button", { type: "button", "aria-label": `${label}: ${chart.title}` }, sign);
    button.addEventListener("click", () => { zoomBy(chart, factor); draw(); });
    return button;
  });
  const zoomable = (chart, plot, svg, draw) => {
    const height = Number(svg.getAttribute("height"));
    const scale = plot.scale("x");
    const brush = d3.brushX().extent([[Math.min(...scale.range), 0], [Math.max(...scale.range), height]]).filter((event) => !event.button && event.pointerType !== "touch").on("end", (event) => {
      if (!event.sourceEvent || !event.selection) return;
      const [from, to] = event.selection.map(scale.invert);
      if (to > from) { chart.zoom = [from, to]; draw(); }
    });
    const layer = svgNode("g", { class: "brush" });
    svg.append(layer);
    d3.select(layer).call(brush);
    svg.addEventListener("keydown", (event) => {
      const factor = { "+": 0.5, "=": 0.5, "-": 2, 0: Infinity }[event.key];
      if (!factor) return;
      event.preventDefault();
      zoomBy(chart, factor);
      const holder = svg.closest(".chart");
      draw();
      [...holder.querySelectorAll("svg")].at(-1)?.focus();
    });
  };

  // Dragging over a linked chart chooses the rows below; a click frees them again.
  const brushed = (chart, plot, svg) => {
    const [width, height] = [Number(svg.getAttribute("width")), Number(svg.getAttribute("height"))];
    // A straight line along an axis has no area, which the brush takes for a click.
    let line = null;
    const isLine = () => line && Math.hypot(line[1][0] - line[0][0], line[1][1] - line[0][1]) > 3;
    const brush = d3.brush().extent([[0, 0], [width, height]]).on("start", () => { line = null; }).on("brush", (event) => { line = event.selection; }).on("end", (event) => {
      if (!event.sourceEvent) return;
      const selection = event.selection ?? (isLine() ? line : null);
      const keys = selection ? plot.within(...selection).map((row) => row[chart.link]) : [];
      chosen.clear();
      keys.forEach((key) => chosen.add(key));
      figures.filter((figure) => figure.chart.link).forEach(({ draw }) => draw());
      const total = chart.data.rows.length;
      heard.textContent = chosen.size ? `${chosen.size} of ${total} are chosen` : "all are shown";
      document.documentElement.dataset.chosen = String(chosen.size);
    });
    const layer = svgNode("g", { class: "brush" });
    svg.append(layer);
    d3.select(layer).call(brush);
  };
  const chosenWords = (chart) => (chosen.size ? `Chosen: ${chosen.size} of ${chart.data.rows.length}; the first are ${chart.link} ${[...chosen].slice(0, 12).join(", ")}.` : "");

  const facts = (block) => make("dl", { class: block.items.length % 5 === 0 ? "facts five" : "facts" }, ...block.items.map((item) =>
    make("div", {}, make("dt", {}, item.label), make("dd", {}, item.value, item.note ? make("small", {}, item.note) : null))));

  const figures = [];
  const main = document.querySelector("main");
  const nav = document.querySelector("nav.page");
  page.sections.forEach((section, at) => {
    const id = `section-${at + 1}`;
    if (section.title) nav.append(make("a", { href: `#${id}` }, section.title));
    const blocks = section.blocks.map((block) => {
      if (block.kind === "facts") return facts(block);
      if (block.kind === "table") return foldedTable(block);
      if (block.kind === "verbatim") return verbatim(block.text);
      if (block.kind === "note") return make("p", { class: "note" }, block.text);
      if (block.kind === "text") return make("p", {}, block.text);
      figures.push(figure(block, figures.length + 1));
      return figures.at(-1).box;
    });
    main.append(make("section", { id }, section.title ? make("h2", {}, section.title) : null, ...blocks));
  });
  const theme = make("button", { type: "button", title: "switch between light and dark" }, "light / dark");
  theme.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    drawAll();
  });
  nav.append(theme);
  document.body.append(heard);

  const drawAll = () => figures.forEach(({ draw }) => draw());
  drawAll();
  let pending;
  let last = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === last) return;
    last = innerWidth;
    clearTimeout(pending);
    pending = setTimeout(drawAll, 150);
  });
  document.documentElement.dataset.drawn = String(figures.length);
})();
