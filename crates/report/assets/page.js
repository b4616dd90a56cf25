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
  // Okabe and Ito's colours differ in lightness too, so they survive colour blindness and grey.
  const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c00", "#7f7f7f", "#b2abd2"];

  const si = (value) => {
    if (value === null || value === undefined || Number.isNaN(value)) return "–";
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e4)) {
      const units = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"], [1e-12, "p"]];
      const [factor, name] = units.find(([factor]) => size >= factor) ?? [1e-12, "p"];
      return `${Number((value / factor).toPrecision(4))}${name}`;
    }
    return `${Number(value.toPrecision(4))}`;
  };
  const show = (value) => (typeof value === "number" ? si(value) : value ?? "–");

  const records = (data) => data.rows.map((row) => Object.fromEntries(row.map((cell, at) => [data.columns[at], cell])));
  const csv = (data) => {
    const cell = (value) => {
      const text = value === null || value === undefined ? "" : String(value);
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

  // Long labels get room; the widest decides.
  const labelRoom = (labels) => Math.min(260, 24 + 6.6 * Math.max(0, ...labels.map((label) => String(label).length)));
  const unique = (values) => [...new Set(values)];

  const frame = (chart, width) => {
    const rows = records(chart.data);
    const { x, y, series } = chart;
    const colour = series
      ? { color: { legend: true, domain: unique(rows.map((row) => row[series])), range: PALETTE } }
      : {};
    const axis = (name, scale, extra = {}) => ({
      label: chart[`${name}_label`] ?? chart[name], type: scale, grid: true,
      tickFormat: scale === "band" ? undefined : si, ...extra,
    });
    return { rows, x, y, series, colour, axis, width };
  };

  const KINDS = {
    // Horizontal bars, stacked by series: breakdowns, waterfalls, shares.
    bars(chart, width) {
      const { rows, x, y, series, colour, axis } = frame(chart, width);
      const names = unique(rows.map((row) => row[y]));
      return Plot.plot({
        width, marginLeft: labelRoom(names), height: 70 + 30 * names.length, ...colour,
        x: axis("x", "linear"), y: { label: null, domain: names },
        marks: [
          Plot.barX(rows, { x, y, fill: series ?? PALETTE[0], tip: true, inset: 1, order: series ? unique(rows.map((row) => row[series])) : undefined }),
          Plot.ruleX([0]),
        ],
      });
    },
    // Each step begins where the last one ended: how a step's time adds up.
    waterfall(chart, width) {
      const { rows, x, y } = frame(chart, width);
      let at = 0;
      const steps = rows.map((row) => ({ ...row, from: at, to: (at += row[x]) }));
      const names = rows.map((row) => row[y]);
      return Plot.plot({
        width, marginLeft: labelRoom(names), marginRight: 70, height: 60 + 28 * names.length,
        x: { label: chart.x_label ?? x, grid: true, tickFormat: si }, y: { label: null, domain: names },
        marks: [
          Plot.barX(steps, { x1: "from", x2: "to", y, fill: (row) => PALETTE[names.indexOf(row[y]) % PALETTE.length], tip: true, inset: 1 }),
          Plot.text(steps, { x: "to", y, text: (row) => si(row[x]), textAnchor: "start", dx: 5 }),
          Plot.ruleX([0]),
        ],
      });
    },
    // Lines, with dots where there are few points.
    line(chart, width) {
      const { rows, x, y, series, colour, axis } = frame(chart, width);
      const few = rows.length <= 120;
      return Plot.plot({
        width, height: chart.height ?? 320, marginLeft: 56, ...colour,
        x: axis("x", chart.x_scale ?? "linear"), y: axis("y", chart.y_scale ?? "linear", { zero: chart.y_scale !== "log" }),
        marks: [
          Plot.line(rows, { x, y, stroke: series ?? PALETTE[0], strokeWidth: 1.8, tip: !few }),
          few ? Plot.dot(rows, { x, y, stroke: series ?? PALETTE[0], symbol: series, tip: true }) : null,
          chart.y_scale === "log" ? null : Plot.ruleY([0]),
        ],
      });
    },
    // Steps that hold their value: queues, rates, utilisation over time.
    area(chart, width) {
      const { rows, x, y, series, colour, axis } = frame(chart, width);
      return Plot.plot({
        width, height: chart.height ?? 240, marginLeft: 56, ...colour, x: axis("x", "linear"), y: axis("y", "linear"),
        marks: [
          series ? null : Plot.areaY(rows, { x, y, fill: PALETTE[0], fillOpacity: 0.25, curve: "step-after" }),
          Plot.lineY(rows, { x, y, stroke: series ?? PALETTE[0], curve: "step-after", tip: true }),
          Plot.ruleY([0]),
        ],
      });
    },
    // Measured against predicted: on the diagonal is right.
    scatter(chart, width) {
      const { rows, x, y, series, colour, axis } = frame(chart, width);
      const side = Math.min(width, 560);
      const scale = chart.x_scale ?? "linear";
      const low = Math.min(...rows.flatMap((row) => [row[x], row[y]])), high = Math.max(...rows.flatMap((row) => [row[x], row[y]]));
      return Plot.plot({
        width: side, height: side, marginLeft: 56, ...colour, x: axis("x", scale), y: axis("y", scale),
        marks: [
          chart.diagonal ? Plot.line([[low, low], [high, high]], { stroke: "currentColor", strokeDasharray: "4 3" }) : null,
          chart.low && chart.high ? Plot.ruleX(rows, { x, y1: chart.low, y2: chart.high, stroke: series ?? PALETTE[0] }) : null,
          Plot.dot(rows, { x, y, stroke: series ?? PALETTE[0], symbol: series, tip: true, channels: chart.name ? { name: chart.name } : {} }),
        ],
      });
    },
    // A grid of cells, darker where there is more.
    heat(chart, width) {
      const { rows, x, y } = frame(chart, width);
      const ys = unique(rows.map((row) => row[y])), xs = unique(rows.map((row) => row[x]));
      return Plot.plot({
        width, marginLeft: labelRoom(ys), marginBottom: 40, height: 70 + Math.max(120, Math.min(640, ys.length * 18)),
        x: { label: chart.x_label ?? x, domain: xs, ticks: xs.length > 24 ? xs.filter((_, at) => at % Math.ceil(xs.length / 16) === 0) : xs, tickFormat: typeof xs[0] === "number" ? si : undefined },
        y: { label: chart.y_label ?? null, domain: ys, ticks: ys.length > 40 ? ys.filter((_, at) => at % Math.ceil(ys.length / 32) === 0) : ys },
        color: { scheme: "viridis", legend: true, label: chart.value_label ?? chart.value, tickFormat: si, domain: chart.domain },
        marks: [Plot.cell(rows, { x, y, fill: chart.value, tip: true, inset: 0.3 })],
      });
    },
    // How often each value occurs.
    histogram(chart, width) {
      const { rows, x, axis } = frame(chart, width);
      return Plot.plot({
        width, height: 240, marginLeft: 56, x: axis("x", "linear"), y: { label: chart.y_label ?? "count", grid: true },
        marks: [Plot.rectY(rows, Plot.binX({ y: chart.weight ? "sum" : "count" }, { x, y: chart.weight, fill: PALETTE[0], thresholds: 30, tip: true })), Plot.ruleY([0])],
      });
    },
    // The share of values at or below each value.
    distribution(chart, width) {
      const { rows, x, series, colour, axis } = frame(chart, width);
      const groups = d3.group(rows, (row) => (series ? row[series] : ""));
      const points = [...groups].flatMap(([name, members]) => {
        const sorted = members.map((row) => row[x]).sort(d3.ascending);
        return sorted.map((value, at) => ({ value, share: (at + 1) / sorted.length, name }));
      });
      return Plot.plot({
        width, height: 280, marginLeft: 56, ...(series ? { color: { legend: true, range: PALETTE } } : {}),
        x: axis("x", chart.x_scale ?? "linear"), y: { label: "share at or below", grid: true, domain: [0, 1], percent: false },
        marks: [Plot.line(points, { x: "value", y: "share", stroke: series ? "name" : PALETTE[0], curve: "step-after", tip: true })],
      });
    },
    // Who does what when: one lane for each rank, NIC or link.
    timeline(chart, width) {
      const { rows, series, colour } = frame(chart, width);
      const lanes = unique(rows.map((row) => row[chart.y]));
      return Plot.plot({
        width, marginLeft: labelRoom(lanes), height: 70 + 22 * lanes.length, ...colour,
        x: { label: chart.x_label ?? "time (s)", grid: true, tickFormat: si }, y: { label: null, domain: lanes },
        marks: [Plot.barX(rows, { x1: chart.start, x2: chart.end, y: chart.y, fill: series, tip: true, insetTop: 2, insetBottom: 2, channels: chart.name ? { operation: chart.name } : {} })],
      });
    },
  };

  // The fabric as a tree that folds, with the load of each part beside its name.
  const tree = (chart) => {
    const node = (item) => {
      const load = Math.max(0, Math.min(1, item.load ?? 0));
      const bar = make("i", load > 0.9 ? { class: "hot" } : {});
      bar.style.width = `${(100 * load).toFixed(1)}%`;
      const line = [make("span", {}, item.name), make("span", { class: "load", role: "img", "aria-label": `load ${(100 * load).toFixed(0)} per cent` }, bar), make("span", {}, item.note ?? `${(100 * load).toFixed(0)} %`)];
      if (!item.children?.length) return make("div", { class: "leafnode" }, ...line);
      const details = make("details", item.open ? { class: "node", open: "" } : { class: "node" }, make("summary", {}, ...line));
      const fill = () => { if (details.childElementCount === 1) details.append(...item.children.map(node)); };
      if (item.open) fill();
      details.addEventListener("toggle", fill, { once: true });
      return details;
    };
    return make("div", { class: "tree" }, node(chart.root));
  };

  const figure = (chart, number) => {
    const holder = make("div", { class: "chart", "data-kind": chart.chart });
    const tools = make("div", { class: "tools" });
    if (chart.data) {
      const button = make("button", { type: "button" }, "data as CSV");
      button.addEventListener("click", () => download(`${page.name ?? "fatflow"}-${number}.csv`, csv(chart.data)));
      tools.append(button);
    }
    const box = make("figure", { id: `figure-${number}` }, make("h3", {}, chart.title), holder, make("figcaption", {}, chart.caption ?? ""), tools);
    const draw = () => {
      const width = Math.max(300, Math.min(1120, box.clientWidth - 24));
      const drawn = chart.chart === "tree" ? tree(chart) : KINDS[chart.chart](chart, width);
      drawn.setAttribute?.("aria-label", chart.title);
      holder.replaceChildren(drawn);
    };
    return { box, draw };
  };

  const table = (block) => {
    const numeric = block.columns.map((_, at) => block.rows.every((row) => row[at] === null || typeof row[at] === "number" || /^[-+]?[\d.,]+\s?(%|[a-zA-Zµ/$]+)?$|^–$/.test(String(row[at]))));
    const side = (at) => (numeric[at] && block.rows.length ? { class: "number" } : {});
    const head = make("tr", {}, ...block.columns.map((name, at) => make("th", { scope: "col", ...side(at) }, name)));
    const body = block.rows.map((row) => make("tr", {}, ...row.map((cell, at) => make("td", side(at), String(show(cell))))));
    return make("div", { class: "scroll", tabindex: "0" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
  };

  const facts = (block) => make("dl", { class: "facts" }, ...block.items.map((item) =>
    make("div", {}, make("dt", {}, item.label), make("dd", {}, String(show(item.value)), item.note ? make("small", {}, item.note) : null))));

  const figures = [];
  const main = document.querySelector("main");
  const nav = document.querySelector("nav.page");
  page.sections.forEach((section, at) => {
    const id = `section-${at + 1}`;
    nav.append(make("a", { href: `#${id}` }, section.title));
    const blocks = section.blocks.map((block) => {
      if (block.kind === "facts") return facts(block);
      if (block.kind === "table") return table(block);
      if (block.kind === "verbatim") return make("pre", { class: "scroll", tabindex: "0" }, block.text);
      if (block.kind === "note") return make("p", { class: "note" }, block.text);
      figures.push(figure(block, figures.length + 1));
      return figures.at(-1).box;
    });
    main.append(make("section", { id }, make("h2", {}, section.title), ...(section.text ?? []).map((text) => make("p", {}, text)), ...blocks));
  });
  const theme = make("button", { type: "button", "aria-label": "switch between light and dark" }, "light / dark");
  theme.addEventListener("click", () => {
    const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.dataset.theme = dark ? "light" : "dark";
  });
  nav.append(theme);

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
