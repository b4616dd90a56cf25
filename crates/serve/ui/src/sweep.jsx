// A sweep by ticking: which settings vary, over which values, from which scenarios.
import { useState } from "preact/hooks";
import { ask } from "./api.js";
import { at, choices, finds, plain as shownAs } from "./schema.js";

/** Values between commas; commas inside brackets and quotes belong to a value. */
export const valuesOf = (text) => {
  const parts = text.match(/\[[^\]]*\]|"[^"]*"|[^,\s][^,]*/g) ?? [];
  return parts.map((part) => part.trim()).filter(Boolean);
};
const literal = (value) => (/^(\[.*\]|".*"|true|false|[+-]?\d[\d_]*(\.\d+)?(e[+-]?\d+)?)$/i.test(value) ? value : JSON.stringify(value));
const grid = (sources, engine, axes) => [
  ...(sources === 1 ? ['from = "scenario.toml"'] : []),
  ...(engine ? [`engine = "${engine}"`] : []),
  "", "[axes]",
  ...(sources > 1 ? [`from = [${Array.from({ length: sources }, (_, at) => `"scenario${at ? `-${at + 1}` : ""}.toml"`).join(", ")}]`] : []),
  ...axes.map(([key, values]) => `"${key}" = [${values.map(literal).join(", ")}]`),
].join("\n") + "\n";

export const Sweep = ({ text, values, schema, runs, ticked, untick, start }) => {
  const [wanted, setWanted] = useState("");
  const [axes, setAxes] = useState(new Map());
  const [engine, setEngine] = useState("");
  const [trouble, setTrouble] = useState("");
  const sources = [...ticked].slice(0, 8);
  const needle = wanted.toLowerCase();
  const meaning = (key) => (schema ? at(schema, key.split("."))?.description ?? "" : "");
  const first = ["network.routing.qps", "network.routing.policy", "network.transport", "network.congestion.control", "fabric.oversubscription", "job.parallel.tp", "seed"];
  const isPlain = (value) => !/^(name|from|reported|catalogue)\b/.test(value.key);
  const shown = values.filter((value) => isPlain(value) && (axes.has(value.key) || (needle ? finds(`${value.key} ${meaning(value.key)}`, needle) : first.includes(value.key)))).slice(0, 60);
  const set = (key, value) => setAxes((old) => { const next = new Map(old); if (value === undefined) next.delete(key); else next.set(key, value); return next; });
  const lists = [...axes].map(([key, value]) => [key, valuesOf(value)]);
  const cases = lists.reduce((count, [, list]) => count * list.length, Math.max(1, sources.length));
  const ready = cases > 1 && lists.every(([, list]) => list.length);
  const go = async () => {
    setTrouble("");
    try {
      const scenarios = sources.length ? await Promise.all(sources.map((id) => ask(`/api/runs/${id}/scenario.toml`))) : [text];
      await start({ name: `sweep of ${lists.map(([key]) => key.split(".").at(-1)).join(", ") || "scenarios"}`, command: "sweep", engine: "", scenarios, grid: grid(scenarios.length, engine, lists) });
      untick();
    } catch (error) { setTrouble(error.message); }
  };
  return (
    <section id="sweep" aria-label="sweep">
      <h2>Sweep</h2>
      <p>From {sources.length ? `the ticked runs: ${sources.map((id) => `${id} ${runs.find((run) => run.id === id)?.name ?? ""}`).join("; ")}` : "the scenario in the editor; tick runs to sweep over theirs"}. Tick what varies, and write values with commas between them.</p>
      <div class="row"><input type="search" aria-label="find a setting to vary" placeholder="find a setting to vary …" value={wanted} onInput={(event) => setWanted(event.target.value)} />
        <select aria-label="engine of the sweep" value={engine} onChange={(event) => setEngine(event.target.value)}><option value="">engine: flow</option><option>analytic</option><option>packet</option></select></div>
      <ul class="axes">{shown.map(({ key, value }) => {
        const plain = shownAs(schema ? at(schema, key.split(".")) : undefined, value);
        const isRatio = schema && at(schema, key.split("."))?.["x-ratio"];
        const options = schema ? choices(at(schema, key.split("."))).map((choice) => choice.value) : [];
        return (
          <li key={key}>
            <label><input type="checkbox" data-vary={key} checked={axes.has(key)} onChange={(event) => set(key, event.target.checked ? (isRatio ? "1:1, 2:1, 4:1" : plain) : undefined)} /> <b>{key}</b></label>
            {axes.has(key) ? <input aria-label={`values of ${key}`} value={axes.get(key)} onInput={(event) => set(key, event.target.value)} /> : <span>{plain}</span>}
            <small>{meaning(key)}{options.length ? ` (${options.join(", ")})` : ""}</small>
          </li>
        );
      })}</ul>
      {trouble ? <p class="wrong" role="alert">{trouble}</p> : null}
      <div class="row"><button id="start-sweep" class="primary" disabled={!ready} onClick={go}>Sweep {ready ? `${cases} cases` : ""}</button><span class="hint">{ready ? "" : "Two cases at least."}</span></div>
    </section>
  );
};
