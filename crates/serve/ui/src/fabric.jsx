// The fabric of a run: from the cluster down to a port, coloured by load, queue or pause, over time.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ask } from "./api.js";

const percent = (share) => `${Number((100 * share).toPrecision(3))} %`;
const bytes = (value) => (value >= 1e6 ? `${(value / 1e6).toPrecision(3)} MB` : value >= 1e3 ? `${(value / 1e3).toPrecision(3)} kB` : `${Math.round(value)} B`);
const seconds = (value) => (value === 0 ? "0 s" : value >= 1 ? `${value.toPrecision(4)} s` : value >= 1e-3 ? `${(1e3 * value).toPrecision(3)} ms` : `${(1e6 * value).toPrecision(3)} µs`);
// What can be looked at: over the whole run, and moment by moment.
const KINDS = {
  load: { title: "load", whole: "load", over: "load", show: percent, now: percent },
  queue: { title: "queue", whole: "peak_queue_bytes", over: "queued_bytes", show: bytes, now: bytes },
  pause: { title: "pause", whole: "paused_s", over: "paused", show: seconds, now: percent },
};

// From what does nothing to what stands out most, on light and on dark ground.
const RAMPS = { light: [[127, 149, 171], [217, 164, 0], [196, 0, 26]], dark: [[92, 110, 130], [214, 170, 40], [255, 112, 96]] };
const STEPS = 24;
const colour = (ramp, share) => {
  const at = Math.max(0, Math.min(1, share)) * 2;
  const [from, to] = at < 1 ? [ramp[0], ramp[1]] : [ramp[1], ramp[2]];
  const mix = from.map((part, of) => Math.round(part + (to[of] - part) * (at % 1 || (at === 2 ? 1 : 0))));
  return `rgb(${mix.join(",")})`;
};
const SHADES = Object.fromEntries(Object.entries(RAMPS).map(([ground, ramp]) => [ground, Array.from({ length: STEPS + 1 }, (_, step) => colour(ramp, step / STEPS))]));
// Whether the machine wants dark pages now: a picture that is drawn does not follow by itself.
const useDark = () => {
  const wanted = matchMedia("(prefers-color-scheme: dark)");
  const [dark, setDark] = useState(wanted.matches);
  useEffect(() => {
    const follow = () => setDark(wanted.matches);
    wanted.addEventListener("change", follow);
    return () => wanted.removeEventListener("change", follow);
  }, []);
  return dark;
};
/** Flows have no queues. Packets have: of traffic over time, of a step over all of it. */
const knowsQueues = (film) => film.isOfPackets || film.over_time.queued_bytes.some((values) => values.length);

/** Places of nodes, cables with both directions, ports of nodes. */
const arrange = (film) => {
  const { nodes, links } = film;
  const count = nodes.name.length;
  const zone = nodes.zone.slice();
  const ports = Array.from({ length: count }, () => []);
  const cables = [];
  const back = new Map();
  for (let link = 0; link < links.from.length; link += 1) {
    const [from, to] = [links.from[link], links.to[link]];
    const other = back.get(`${to} ${from}`)?.pop();
    if (other !== undefined) {
      cables[other].down = link;
      continue;
    }
    const low = nodes.tier[from] <= nodes.tier[to];
    cables.push({ low: low ? from : to, high: low ? to : from, up: link, down: undefined });
    const key = `${from} ${to}`;
    if (!back.has(key)) back.set(key, []);
    back.get(key).push(cables.length - 1);
    ports[from].push(cables.length - 1);
    ports[to].push(cables.length - 1);
  }
  // A NIC stands in the zone of its switch.
  for (let node = 0; node < count; node += 1) {
    if (nodes.tier[node] === 0 && ports[node].length) zone[node] = nodes.zone[cables[ports[node][0]].high];
  }
  const tiers = [...new Set(nodes.tier)].sort((a, b) => a - b);
  const rows = tiers.map((tier) => {
    const members = Array.from({ length: count }, (_, node) => node).filter((node) => nodes.tier[node] === tier);
    const order = (node) => (tier === 0 ? nodes.server[node] ?? 0 : node);
    return members.sort((a, b) => zone[a] - zone[b] || order(a) - order(b) || a - b);
  });
  const zones = [...new Set(rows[0].map((node) => zone[node]))].sort((a, b) => a - b);
  const x = new Float64Array(count);
  const y = new Float64Array(count);
  const gap = new Float64Array(count);
  rows.forEach((members, row) => {
    const inZones = zones.length > 1 && new Set(members.map((node) => zone[node])).size > 1;
    const parts = inZones ? zones.map((which) => members.filter((node) => zone[node] === which)) : [members];
    parts.forEach((part, at) => part.forEach((node, place) => {
      gap[node] = 1 / parts.length / part.length;
      x[node] = (at + (place + 0.5) / part.length) / parts.length;
      y[node] = rows.length === 1 ? 0.5 : 1 - row / (rows.length - 1);
    }));
  });
  return { cables, ports, rows, zone, zones, x, y, gap };
};

/** Which of the cables from one node to another each link is, from 1; nothing where there is one. */
const numbers = new WeakMap();
const numberOf = (film, link) => {
  if (!numbers.has(film)) {
    const { from, to } = film.links;
    const ends = (at) => `${from[at]} ${to[at]}`;
    const seen = new Map();
    const nth = from.map((_, at) => { seen.set(ends(at), (seen.get(ends(at)) ?? 0) + 1); return seen.get(ends(at)); });
    numbers.set(film, nth.map((number, at) => (seen.get(ends(at)) > 1 ? number : undefined)));
  }
  return numbers.get(film)[link];
};
const nameOf = (film, link) => {
  const number = numberOf(film, link);
  return `${film.nodes.name[film.links.from[link]]} → ${film.nodes.name[film.links.to[link]]}${number ? ` (${number})` : ""}`;
};

/** Whether a link is meant: by a part of its name, or by both its ends in either order, as "leaf 0 - spine 0". */
const isMeant = (film, link, wanted) => {
  const name = nameOf(film, link).toLowerCase();
  const needle = wanted.trim().toLowerCase();
  if (name.includes(needle)) return true;
  const [from, to] = [film.links.from[link], film.links.to[link]].map((node) => film.nodes.name[node].toLowerCase());
  const ends = needle.split(/\s+(?:-|–|to|<->)\s+|\s*(?:→|->|↔)\s*/).filter(Boolean);
  const fits = (a, b) => a.includes(ends[0]) && b.includes(ends[1]);
  return ends.length === 2 && (fits(from, to) || fits(to, from));
};

/** A link's value now; undefined where nothing is known of this moment. */
const reader = (film, kind, frame) => {
  const { whole, over } = KINDS[kind];
  if (frame < 0) return (link) => film.links[whole][link];
  const values = new Map(film.over_time.link.map((link, at) => [link, film.over_time[over][at]?.[frame]]));
  return (link) => values.get(link);
};

const Spark = ({ values, frame, label, show }) => {
  const most = Math.max(...values, 1e-12);
  const points = values.map((value, at) => `${(at + 0.5) / values.length * 300},${38 - 34 * value / most}`).join(" ");
  return (
    <svg class="spark" viewBox="0 0 300 42" role="img" aria-label={`${label}: at most ${show(most)}`} preserveAspectRatio="none">
      <polyline points={points} fill="none" stroke="var(--accent)" stroke-width="1.5" vector-effect="non-scaling-stroke" />
      {frame >= 0 ? <line x1={(frame + 0.5) / values.length * 300} x2={(frame + 0.5) / values.length * 300} y1="0" y2="42" stroke="var(--bad)" vector-effect="non-scaling-stroke" /> : null}
    </svg>
  );
};

const useWidth = (holder) => {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const watch = new ResizeObserver(() => setWidth(holder.current.clientWidth));
    watch.observe(holder.current);
    return () => watch.disconnect();
  }, []);
  return width;
};

const draw = (canvas, film, plan, value, most, view, size, chosen) => {
  const [width, height] = size;
  const scale = devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  const style = getComputedStyle(canvas);
  const shades = SHADES[matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"];
  const [ink, soft, ground] = ["--ink", "--soft", "--ground"].map((name) => style.getPropertyValue(name));
  const left = (node) => (plan.x[node] - view.x) * view.k * width;
  const top = (node) => 46 + plan.y[node] * (height - 92);
  // Cables that fall on the same pixels are one line, of the highest value among them.
  const lines = new Map();
  plan.cables.forEach((cable, at) => {
    const [from, to] = [left(cable.low), left(cable.high)];
    if (Math.max(from, to) < -50 || Math.min(from, to) > width + 50) return;
    const key = `${Math.round(from)} ${Math.round(to)} ${plan.y[cable.low]} ${plan.y[cable.high]}`;
    const [up, down] = [value(cable.up), cable.down === undefined ? undefined : value(cable.down)];
    const now = up === undefined ? down : down === undefined ? up : Math.max(up, down);
    const known = lines.get(key);
    if (!known || (now ?? -1) > (known.now ?? -1)) lines.set(key, { cable, at, now });
  });
  const shade = (now) => (now === undefined || most <= 0 ? -1 : Math.round(STEPS * now / most));
  const byShade = Map.groupBy ? Map.groupBy(lines.values(), ({ now }) => shade(now)) : [...lines.values()].reduce((all, line) => all.set(shade(line.now), [...(all.get(shade(line.now)) ?? []), line]), new Map());
  for (const [step, members] of [...byShade].sort((a, b) => a[0] - b[0])) {
    pen.strokeStyle = step < 0 ? soft : shades[step];
    pen.globalAlpha = step < 0 ? 0.15 : lines.size > 3000 ? 0.35 + 0.65 * step / STEPS : 0.9;
    pen.lineWidth = 1 + 1.6 * Math.max(0, step) / STEPS;
    pen.beginPath();
    for (const { cable } of members) {
      pen.moveTo(left(cable.low), top(cable.low));
      pen.lineTo(left(cable.high), top(cable.high));
    }
    pen.stroke();
  }
  pen.globalAlpha = 1;
  if (chosen.cable !== undefined) {
    const { low, high } = plan.cables[chosen.cable];
    pen.strokeStyle = ink;
    pen.lineWidth = 4;
    pen.beginPath();
    pen.moveTo(left(low), top(low));
    pen.lineTo(left(high), top(high));
    pen.stroke();
  }
  plan.rows.forEach((members, row) => {
    const each = plan.gap[members[0]] * view.k * width;
    const half = Math.max(1, Math.min(9, each * 0.35));
    let drawn = -Infinity;
    let written = -Infinity;
    pen.font = "12px system-ui, sans-serif";
    // Where full names do not fit beside each other, the first has its own and the others their numbers.
    const isTight = members.some((node) => pen.measureText(film.nodes.name[node]).width + 10 > each);
    let isFirst = true;
    for (const node of members) {
      const at = left(node);
      if (at < -60 || at > width + 60 || (at - drawn < 1.5 && node !== chosen.node)) continue;
      drawn = at;
      pen.fillStyle = node === chosen.node ? style.getPropertyValue("--accent") : ink;
      pen.fillRect(at - half, top(node) - half, 2 * half, 2 * half);
      const name = isTight && !isFirst ? film.nodes.name[node].match(/\S*$/)[0] : film.nodes.name[node];
      const wide = pen.measureText(name).width + 10;
      // A name at the edge moves in, so that it is whole.
      const middle = at < 0 || at > width ? at : Math.max(wide / 2, Math.min(width - wide / 2, at));
      if (middle - wide / 2 < written) continue;
      isFirst = false;
      written = middle + wide / 2;
      pen.textAlign = "center";
      pen.strokeStyle = ground;
      pen.lineWidth = 3;
      const below = top(node) + (row === 0 ? 26 : -16);
      pen.strokeText(name, middle, below);
      pen.fillStyle = ink;
      pen.fillText(name, middle, below);
    }
  });
};

const Ports = ({ film, plan, node, value, show, choose }) => (
  <div class="scroll" tabIndex={0} role="region" aria-label="links">
    <table>
      <caption>{film.nodes.name[node]}: {plan.ports[node].length} {plan.ports[node].length === 1 ? "port" : "ports"}</caption>
      <thead><tr><th>port to</th>{["out", "in", "queue pairs out", ...(knowsQueues(film) ? ["deepest queue", "paused"] : [])].map((name) => <th key={name} class="number">{name}</th>)}</tr></thead>
      <tbody>{plan.ports[node].map((at) => {
        const cable = plan.cables[at];
        const out = film.links.from[cable.up] === node ? cable.up : cable.down;
        const into = out === cable.up ? cable.down : cable.up;
        const other = cable.low === node ? cable.high : cable.low;
        const text = (link) => { const now = link === undefined ? undefined : value(link); return now === undefined ? "–" : show(now); };
        const of = out ?? into;
        return <tr key={at}><td><button class="link" onClick={() => choose(at)}>{film.nodes.name[other]}</button></td><td class="number">{text(out)}</td><td class="number">{text(into)}</td><td class="number">{film.links.queue_pairs[of]}</td>{knowsQueues(film) ? <><td class="number">{bytes(film.links.peak_queue_bytes[of])}</td><td class="number">{seconds(film.links.paused_s[of])}</td></> : null}</tr>;
      })}</tbody>
    </table>
  </div>
);

const Cable = ({ film, plan, at, frame, kind }) => (
  <div class="cable">
    {[plan.cables[at].up, plan.cables[at].down].filter((link) => link !== undefined).map((link) => {
      const place = film.over_time.link.indexOf(link);
      const values = place < 0 ? [] : film.over_time[KINDS[kind].over][place] ?? [];
      const { rate_bps: rate, load, bytes: carried, queue_pairs: pairs, peak_queue_bytes: queue, paused_s: paused } = film.links;
      return (
        <article key={link}>
          <h3>{nameOf(film, link)}</h3>
          <p>{rate[link] / 1e9} Gb/s; {percent(load[link])} of it over the run, {bytes(carried[link])} of {pairs[link]} queue pairs{knowsQueues(film) ? `; deepest queue ${bytes(queue[link])}, paused ${seconds(paused[link])}` : ""}.</p>
          {values.length ? <Spark values={values} frame={frame} label={`${KINDS[kind].title} of ${nameOf(film, link)} over time`} show={KINDS[kind].now} /> : <p class="hint">Nothing is known of this {KINDS[kind].title} over time.</p>}
        </article>
      );
    })}
  </div>
);

const Picture = ({ film }) => {
  const plan = useMemo(() => arrange(film), [film]);
  const [kind, setKind] = useState("load");
  const [frame, setFrame] = useState(-1);
  const [playing, setPlaying] = useState(false);
  const [view, setView] = useState({ k: 1, x: 0 });
  const [chosen, setChosen] = useState({});
  const [wanted, setWanted] = useState("");
  const holder = useRef();
  const canvas = useRef();
  const width = useWidth(holder);
  const height = Math.min(460, 150 + 110 * plan.rows.length);
  const frames = film.at_s.length;
  const hasQueues = knowsQueues(film);
  const hasTime = frames > 1 && (film.over_time[KINDS[kind].over] ?? []).some((values) => values.length);
  const at = hasTime ? frame : -1;
  const value = useMemo(() => reader(film, kind, at), [film, kind, at]);
  // One scale for all moments, so that colours can be compared.
  const most = useMemo(() => {
    const of = at < 0 ? film.links[KINDS[kind].whole] : film.over_time[KINDS[kind].over].flat();
    return of.reduce((most, now) => Math.max(most, now), 0);
  }, [film, kind, at < 0]);
  const busiest = useMemo(() => {
    const known = film.links.from.map((_, link) => [link, value(link)]).filter(([, now]) => now > 0);
    return known.sort((a, b) => b[1] - a[1]).slice(0, 10);
  }, [film, value]);
  const overall = useMemo(() => {
    const rows = film.over_time[KINDS[kind].over] ?? [];
    return Array.from({ length: frames }, (_, moment) => rows.reduce((most, row) => Math.max(most, row[moment] ?? 0), 0));
  }, [film, kind]);
  const show = at < 0 ? KINDS[kind].show : KINDS[kind].now;
  const dark = useDark();
  useEffect(() => { if (width) draw(canvas.current, film, plan, value, most, view, [width, height], chosen); }, [film, plan, value, most, view, width, height, chosen, dark]);
  useEffect(() => {
    if (!playing) return undefined;
    const timer = setInterval(() => setFrame((old) => (old + 1) % frames), 250);
    return () => clearInterval(timer);
  }, [playing, frames]);
  const limited = ({ k, x }) => {
    const kept = Math.max(1, Math.min(1e5, k));
    return { k: kept, x: Math.max(0, Math.min(1 - 1 / kept, x)) };
  };
  const zoom = (factor, centre = 0.5) => setView((old) => limited({ k: old.k * factor, x: old.x + centre / old.k - centre / (old.k * factor) }));
  const pan = (share) => setView((old) => limited({ k: old.k, x: old.x + share / old.k }));
  const frameOn = (members) => {
    const places = members.map((node) => plan.x[node]);
    const [low, high] = [places.reduce((a, b) => Math.min(a, b), 1), places.reduce((a, b) => Math.max(a, b), 0)];
    const k = 1 / Math.max(high - low, 6 * plan.gap[members[0]], 1e-5) / 1.3;
    setView(limited({ k, x: (low + high) / 2 - 0.5 / k }));
  };
  const chooseNode = (node) => {
    setChosen({ node, zone: plan.zone[node] });
    const below = plan.ports[node].filter((port) => plan.cables[port].high === node).map((port) => plan.cables[port].low);
    frameOn(below.length && film.nodes.tier[node] === 1 ? [node, ...below] : [node]);
  };
  const chooseCable = (cable, near) => {
    const { low } = plan.cables[cable];
    setChosen((old) => ({ node: near ?? old.node ?? low, zone: plan.zone[low], cable }));
  };
  const find = (cable) => { chooseNode(plan.cables[cable].low); chooseCable(cable, plan.cables[cable].low); };
  const cableOf = useMemo(() => { const of = new Map(); plan.cables.forEach((cable, place) => { of.set(cable.up, place); if (cable.down !== undefined) of.set(cable.down, place); }); return of; }, [plan]);
  const matches = useMemo(() => {
    if (!wanted.trim()) return [];
    const found = [];
    for (let link = 0; link < film.links.from.length && found.length < 500; link += 1) if (isMeant(film, link, wanted)) found.push(link);
    return found.sort((a, b) => (value(b) ?? 0) - (value(a) ?? 0)).slice(0, 12);
  }, [film, wanted, value]);
  useEffect(() => {
    const node = canvas.current;
    const wheel = (event) => { event.preventDefault(); zoom(Math.exp(-event.deltaY / 400), event.offsetX / node.clientWidth); };
    node.addEventListener("wheel", wheel, { passive: false });
    return () => node.removeEventListener("wheel", wheel);
  }, []);
  const drag = useRef();
  const down = (event) => { drag.current = { from: event.clientX, moved: 0, x: view.x }; event.currentTarget.setPointerCapture(event.pointerId); };
  const move = (event) => {
    if (!drag.current) return;
    const by = event.clientX - drag.current.from;
    drag.current.moved = Math.max(drag.current.moved, Math.abs(by));
    setView((old) => limited({ k: old.k, x: drag.current.x - by / width / old.k }));
  };
  const up = (event) => {
    const was = drag.current;
    drag.current = undefined;
    if (!was || was.moved > 4) return;
    const box = canvas.current.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    let [nearest, best] = [undefined, 30];
    for (let node = 0; node < plan.x.length; node += 1) {
      const away = Math.hypot((plan.x[node] - view.x) * view.k * width - px, 46 + plan.y[node] * (height - 92) - py);
      if (away < best) [nearest, best] = [node, away];
    }
    if (nearest !== undefined) chooseNode(nearest);
  };
  const keys = (event) => {
    const does = { "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5), 0: () => setView({ k: 1, x: 0 }), ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15) }[event.key];
    if (does) { event.preventDefault(); does(); }
  };
  const known = new Set(film.over_time.link).size;
  return (
    <div class="fabric">
      <div class="row">
        <fieldset class="kinds"><legend class="hidden">coloured by</legend>
          {Object.entries(KINDS).map(([key, { title }]) => <label key={key}><input type="radio" name="kind" checked={kind === key} disabled={key !== "load" && !hasQueues} onChange={() => setKind(key)} /> {title}</label>)}
        </fieldset>
        {hasQueues ? null : <span class="hint">Flows have no queues: the packet engine shows queue and pause.</span>}
        <span class="ramp" aria-hidden="true">0 <i /> {show(most)}</span>
        <button aria-label="zoom in" onClick={() => zoom(1.6)}>+</button>
        <button aria-label="zoom out" onClick={() => zoom(1 / 1.6)}>−</button>
        <input type="search" class="find" aria-label="find a link" placeholder="find a link, such as leaf 3 or leaf 0 - spine 0 …" value={wanted} onInput={(event) => setWanted(event.target.value)} />
      </div>
      {wanted ? <ul class="found" aria-live="polite">{matches.map((link) => <li key={link}><button class="link" onClick={() => { find(cableOf.get(link)); setWanted(""); }}>{nameOf(film, link)}</button> {value(link) === undefined ? "" : show(value(link))}</li>)}{matches.length ? null : <li>No link is called that.</li>}</ul> : null}
      <nav class="crumbs" aria-label="where the picture is">
        <button class="link" onClick={() => { setView({ k: 1, x: 0 }); setChosen({}); }}>cluster</button>
        {plan.zones.length > 1 ? <> › <select aria-label={`zoom to a ${film.zone_word}`} value={chosen.zone ?? ""} onChange={(event) => { const zone = Number(event.target.value); setChosen({ zone }); frameOn(plan.rows[0].filter((node) => plan.zone[node] === zone)); }}><option value="" disabled>{film.zone_word} …</option>{plan.zones.map((zone) => <option key={zone} value={zone}>{film.zone_word} {zone}</option>)}</select></> : null}
        {chosen.node !== undefined ? <> › <button class="link" onClick={() => chooseNode(chosen.node)}>{film.nodes.name[chosen.node]}</button></> : null}
        {chosen.cable !== undefined ? <> › <span>{nameOf(film, plan.cables[chosen.cable].up)}</span></> : null}
      </nav>
      <div ref={holder} class="canvas">
        <canvas ref={canvas} style={{ width: `${width}px`, height: `${height}px` }} tabindex="0" role="img" data-zoom={view.k.toFixed(2)}
          aria-label={`The fabric by ${KINDS[kind].title}: ${film.links.from.length} links. Plus and minus zoom, arrows move, 0 shows all. The tables below say the same.`}
          onPointerDown={down} onPointerMove={move} onPointerUp={up} onPointerCancel={() => { drag.current = undefined; }} onKeyDown={keys} />
      </div>
      {hasTime ? (
        <div class="time">
          <p class="hint">The highest {KINDS[kind].title} of any link over time, at most {KINDS[kind].now(Math.max(...overall))}:</p>
          <Spark values={overall} frame={at} label={`highest ${KINDS[kind].title} of any link over time`} show={KINDS[kind].now} />
          <div class="row">
            <button onClick={() => setPlaying(!playing)}>{playing ? "Pause" : "Play"}</button>
            <input type="range" id="moment" min="-1" max={frames - 1} value={at} aria-label="moment" aria-valuetext={at < 0 ? "the whole run" : seconds(film.at_s[at])} onInput={(event) => { setPlaying(false); setFrame(Number(event.target.value)); }} />
            <output>{at < 0 ? "the whole run" : `from ${seconds(film.at_s[at])}`}</output>
          </div>
          <p class="hint">{known === film.links.from.length ? "" : `${known} of ${film.links.from.length} links, the busiest of each kind, are known over time; the others are grey. `}Left of the slider is the whole run.</p>
        </div>
      ) : <p class="hint">This run tells {KINDS[kind].title} as a whole, not over time.</p>}
      {chosen.cable !== undefined ? <Cable film={film} plan={plan} at={chosen.cable} frame={at} kind={kind} /> : null}
      {chosen.node !== undefined ? <Ports film={film} plan={plan} node={chosen.node} value={value} show={show} choose={chooseCable} /> : null}
      <div class="scroll" tabIndex={0} role="region" aria-label="links"><table id="busiest"><caption>Highest {KINDS[kind].title}, {at < 0 ? "the whole run" : `from ${seconds(film.at_s[at])}`}</caption>
        <thead><tr><th>link</th><th class="number">{KINDS[kind].title}</th></tr></thead>
        <tbody>{busiest.map(([link, now]) => <tr key={link}><td><button class="link" onClick={() => find(cableOf.get(link))}>{nameOf(film, link)}</button></td><td class="number">{show(now)}</td></tr>)}{busiest.length ? null : <tr><td colspan="2">none</td></tr>}</tbody></table></div>
    </div>
  );
};

export const Fabric = ({ id, run }) => {
  const [film, setFilm] = useState();
  const [trouble, setTrouble] = useState("");
  useEffect(() => { ask(`/api/runs/${id}/fabric.json`).then(setFilm).catch((error) => setTrouble(error.message)); }, [id]);
  const shown = useMemo(() => film && { ...film, isOfPackets: run?.engine === "packet" }, [film, run?.engine]);
  return (
    <section id="fabric" aria-label="fabric">
      <div class="row"><h2>The fabric of {id}{run ? `: ${run.name}` : ""}</h2><a href={`#/run/${id}`}>its report</a></div>
      {trouble ? <p role="alert">{trouble}. A step or traffic on flows or packets has a picture; closed forms, comparisons and several jobs have none.</p> : null}
      {film ? <Picture film={shown} /> : trouble ? null : <p role="status">Loading …</p>}
    </section>
  );
};
