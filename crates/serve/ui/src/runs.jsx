// The runs as a table to sort, search, tick and annotate.
import { useEffect, useState } from "preact/hooks";
import { ask, plainly, send } from "./api.js";
import { useTyped } from "./typed.js";

const seconds = (value) => (value === undefined || value === null ? "" : value >= 1 ? `${value.toPrecision(4)} s` : value >= 1e-3 ? `${(1e3 * value).toPrecision(3)} ms` : `${(1e6 * value).toPrecision(3)} us`);
const percent = (value) => (value === undefined || value === null ? "" : `${(100 * value).toFixed(1)} %`);
const dollars = (value) => (value === undefined || value === null ? "" : value >= 1e9 ? `$${(value / 1e9).toPrecision(3)} bn` : value >= 1e6 ? `$${(value / 1e6).toPrecision(3)} M` : `$${Math.round(value).toLocaleString("en")}`);
export const figures = { seconds, percent, dollars };

// The first sentence; a verdict has more of them, which its report shows.
const short = (verdict) => verdict?.match(/^.*?[.;](?=\s|$)/s)?.[0].replace(/;$/, ".") ?? verdict;

const word = (value) => value.replace(/^"(.*)"$/, "$1");
// A setting is its last word; a fault that came or went is one thing.
const inWords = (settings) => {
  const words = new Map();
  for (const [key, old, now] of settings) {
    const fault = key.match(/^faults\.(\d+)\.(.*)/);
    const own = fault ? settings.filter(([other]) => other.startsWith(`faults.${fault[1]}.`)) : [];
    const value = (name) => word(own.find(([other]) => other.endsWith(`.${name}`))?.[2] ?? "");
    const name = fault ? `fault ${Number(fault[1]) + 1} ${fault[2]}` : key.split(".").pop();
    if (fault && own.every((row) => !row[1])) words.set(fault[1], `${value("kind")} on ${value("on")}`);
    else if (fault && own.every((row) => !row[2])) words.set(fault[1], `no fault ${Number(fault[1]) + 1}`);
    else words.set(key, now === "" ? `${name} left out` : old === "" ? `${name} ${word(now)}` : `${name} ${word(old)} → ${word(now)}`);
  }
  return [...words.values()];
};
// What a run's scenario has that the run before of its name had not.
const Changed = ({ changed }) => {
  if (!changed) return null;
  const words = inWords(changed.settings);
  const all = changed.settings.map(([key, old, now]) => `${key}: ${old || "left out"} → ${now || "left out"}`).join("\n");
  return <small class="changed" title={all}>{words.length ? `since run ${changed.since}: ${words.slice(0, 3).join("; ")}${words.length > 3 ? ` and ${words.length - 3} more` : ""}` : `the scenario of run ${changed.since}`}</small>;
};
/** What a run is called beside others: its name, and where they share it what it has changed. */
export const called = (runs, ids, id) => {
  const run = runs.find((run) => run.id === id);
  // What was asked or changed stands behind the name of its scenario.
  const last = run.name.split(": ").pop();
  const short = last.length <= 28 ? last : "";
  const isShared = ids.some((other) => other !== id && runs.find((run) => run.id === other).name === run.name);
  return isShared ? ["run", id, ...inWords(run.changed?.settings ?? []).filter((words) => !words.endsWith("left out")).slice(0, 1).map((words) => words.replace(/\S+ → /, ""))].join(" ") : ["run", id, short].join(" ").trim();
};

const COLUMNS = [
  ["id", "#", (run) => run.id],
  ["name", "scenario", (run) => run.name.toLowerCase()],
  ["command", "command", (run) => `${run.command} ${run.engine}`],
  ["step", "step", (run) => run.figures?.step_s],
  ["mfu", "MFU", (run) => run.figures?.mfu],
  ["cost", "capital", (run) => run.figures?.cost_usd],
  ["verdict", "verdict", (run) => run.figures?.verdict],
  ["status", "state", (run) => run.status],
];
export const isActive = (run) => run.status === "waiting" || run.status === "running";

const Note = ({ run, refresh, isOwn }) => {
  const write = async (note) => { await send(`/api/runs/${run.id}/note`, { note }, "PUT"); refresh(); };
  const { text, handlers } = useTyped(run.note, run.note ?? "", write);
  return <input class="note" disabled={!isOwn} aria-label={`note of run ${run.id}`} placeholder="a note …" value={text} {...handlers} />;
};

// What cannot be undone is asked twice.
const Forget = ({ id, forget }) => {
  const [isSure, setSure] = useState(false);
  useEffect(() => {
    const timer = isSure ? setTimeout(() => setSure(false), 5000) : undefined;
    return () => clearTimeout(timer);
  }, [isSure]);
  return isSure
    ? <button class="wrong" aria-label={`really forget run ${id}`} onClick={forget}>Really forget it?</button>
    : <button aria-label={`forget run ${id}`} onClick={() => setSure(true)}>Forget</button>;
};

const Row = ({ run, ticked, tick, refresh, edit, me, say }) => {
  const isOwn = me.role === "run" && (!run.owner || run.owner === me.name);
  const quietly = (work) => async () => { try { await work(); } catch (error) { say(error.message); } refresh(); };
  return (
    <tr>
      <td><input type="checkbox" aria-label={`tick run ${run.id}`} checked={ticked.has(run.id)} onChange={(event) => tick(run.id, event.target.checked)} /></td>
      <td>{run.id}</td>
      <td><a href={`#/run/${run.id}`}>{run.name}</a><Changed changed={run.changed} /><Note run={run} refresh={refresh} isOwn={isOwn} />{run.owner ? <small class="owner">{run.owner}</small> : null}</td>
      <td>{[run.command, run.engine].filter(Boolean).join(", ")}</td>
      <td class="number" data-of="step">{seconds(run.figures?.step_s)}</td>
      <td class="number" data-of="MFU">{percent(run.figures?.mfu)}</td>
      <td class="number" data-of="capital">{dollars(run.figures?.cost_usd)}</td>
      <td class="verdict"><small title={run.figures?.verdict}>{short(run.figures?.verdict)}</small></td>
      <td class="state">{run.status === "done" ? `done in ${run.took_s.toFixed(1)} s` : run.status}
        {run.message && run.status !== "done" ? <small>{plainly(run.message).join("\n")}</small> : null}</td>
      <td><span class="row">
        {isActive(run) && isOwn ? <button onClick={quietly(() => send(`/api/runs/${run.id}/stop`, {}))}>Stop</button> : null}
        {run.status === "done" && run.command === "run" ? <a class="button" href={`#/fabric/${run.id}`}>Fabric</a> : null}
        {run.status === "done" ? <a href={`/api/runs/${run.id}/result.json`} download>JSON</a> : null}
        {run.status === "done" ? <a href={`/api/runs/${run.id}/report.html`} download={`fatflow-${run.id}.html`}>report</a> : null}
        {["observe", "compare"].includes(run.command) || me.role !== "run" ? null : <button onClick={quietly(async () => edit(await ask(`/api/runs/${run.id}/scenario.toml`)))}>Edit</button>}
        {isActive(run) || !isOwn ? null : <Forget id={run.id} forget={quietly(() => send(`/api/runs/${run.id}`, {}, "DELETE"))} />}
      </span></td>
    </tr>
  );
};

export const Runs = ({ runs, ticked, tick, untick, refresh, edit, compare, me, say }) => {
  const [order, setOrder] = useState(["id", -1]);
  const [wanted, setWanted] = useState("");
  const key = COLUMNS.find(([name]) => name === order[0])[2];
  const text = (run) => [run.id, run.name, run.command, run.engine, run.status, run.note, run.owner, run.figures?.verdict].join(" ").toLowerCase();
  const compareKeys = (a, b) => {
    const [x, y] = [key(a), key(b)];
    if (x === undefined || x === null) return 1;
    if (y === undefined || y === null) return -1;
    return order[1] * (x < y ? -1 : x > y ? 1 : 0);
  };
  const shown = runs.filter((run) => text(run).includes(wanted.toLowerCase())).sort(compareKeys);
  const sort = (name) => setOrder(([old, sign]) => [name, old === name ? -sign : 1]);
  return (
    <section id="results" aria-label="runs">
      <div class="row">
        <h2>Runs</h2>
        <input type="search" placeholder="find a run …" aria-label="find a run" value={wanted} onInput={(event) => setWanted(event.target.value)} />
        <select class="narrow" aria-label="sort by" value={order[0]} onChange={(event) => sort(event.target.value)}>{COLUMNS.map(([name, title]) => <option value={name}>by {title}</option>)}</select>
        {me.role === "run" ? <a class="button" id="to-sweep" href="#/sweep">{ticked.size ? `Sweep the ticked (${ticked.size})` : "Sweep"}</a> : null}
        <button id="compare" disabled={ticked.size < 2 || me.role !== "run"} onClick={compare}>Compare the ticked ({ticked.size})</button>
        <button id="beside" disabled={ticked.size < 2} onClick={() => { location.hash = `#/run/${[...ticked].join("+")}`; }}>Show beside each other ({ticked.size})</button>
        {ticked.size ? <button id="untick" onClick={untick}>Untick all</button> : null}
      </div>
      <div class="scroll" tabIndex={0} role="region" aria-label="table of runs">
        <table>
          <thead><tr><th><span class="hidden">ticked</span></th>
            {COLUMNS.map(([name, title]) => <th aria-sort={order[0] === name ? (order[1] > 0 ? "ascending" : "descending") : "none"}><button class="sort" onClick={() => sort(name)}>{title}{order[0] === name ? (order[1] > 0 ? " ▲" : " ▼") : ""}</button></th>)}
            <th><span class="hidden">what to do</span></th></tr></thead>
          <tbody id="runs">{shown.map((run) => <Row key={run.id} run={run} {...{ ticked, tick, refresh, edit, me, say }} />)}</tbody>
        </table>
      </div>
      {runs.length === 0 ? <p>Nothing has run yet: <a href="#/">write a scenario</a> and press Run.</p> : null}
    </section>
  );
};
