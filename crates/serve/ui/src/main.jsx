// The page of `fatflow serve`: write, check, run, look, compare. Talks to its own server alone.
import { render } from "preact";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { ask, plainly, save, send } from "./api.js";
import { Editor } from "./editor.jsx";
import { Fabric } from "./fabric.jsx";
import { Flap } from "./faults.jsx";
import { Files } from "./files.jsx";
import { Form, Remedies } from "./form.jsx";
import { Audit, Login } from "./people.jsx";
import { Runs, called, figures, isActive } from "./runs.jsx";
import { withNames } from "./schema.js";
import { Sweep } from "./sweep.jsx";

const COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"];
const START = 'from = "small-16"\nname = "My scenario"\n';
// What the keys of these names take: names of a list.
const NAMED = ["gpu", "nic", "switch", "model"];

// What people come to ask of a scenario: what each button runs. Which paths queue pairs hash onto is chance, hence the seeds.
const QUESTIONS = [
  ["Non-blocking, 2:1 or 4:1?", { command: "compare", vary: "fabric.oversubscription=1:1,2:1,4:1", seeds: 4 }],
  ["How many queue pairs?", { command: "compare", vary: "network.routing.qps=1,2,4,8,16,32", seeds: 4 }],
  ["RoCE, Spectrum-X, InfiniBand or Ultra Ethernet?", { command: "compare", networks: true, seeds: 4 }],
];

// What is wrong in a preset has no line here.
const placed = ({ file, line, ...problem }) => (!file || file === "scenario.toml" ? { ...problem, line } : { ...problem, elsewhere: file });

const useRoute = () => {
  const [route, setRoute] = useState(location.hash);
  useEffect(() => {
    const follow = () => setRoute(location.hash);
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return route;
};

const Problems = ({ state, goTo, set }) => (
  <ul id="problems" aria-live="polite">
    {state.trouble ? <li>{state.trouble}</li> : null}
    {state.valid === true ? <li class="good">This scenario is valid.{state.inherited ? ` Inherited from ${state.inherited}.` : ""}</li> : null}
    {[...state.problems, ...(state.warnings ?? [])].map((problem) => (
      <li class={problem.isWarning ? "warning" : undefined}>{problem.elsewhere ? <>{problem.elsewhere}: </> : null}{problem.line ? <button type="button" onClick={() => goTo(problem.line)}>line {problem.line}</button> : null} {problem.isWarning ? "Warning: " : ""}{problem.message}{problem.help ? <div>→ {problem.help} <Remedies problem={problem} set={set} /></div> : null}</li>
    ))}
  </ul>
);

const Scenario = ({ opened, text, change, replace, pick, preset, before, bringBack, state, schema, presets, start, set, settled, setTrouble, hidden }) => {
  const [tab, setTab] = useState("text");
  const [command, setCommand] = useState("run");
  const [collective, setCollective] = useState(COLLECTIVES[0]);
  const [engine, setEngine] = useState("");
  const [flaps, setFlaps] = useState(false);
  const view = useRef();
  const goTo = (line) => {
    setTab("text");
    const at = view.current.state.doc.line(line);
    view.current.dispatch({ selection: { anchor: at.from, head: at.to }, scrollIntoView: true });
    setTimeout(() => view.current.focus());
  };
  const nameOf = ({ values }) => (values.find((value) => value.key === "name")?.value ?? "scenario").replaceAll('"', "");
  // What was typed last may still be on its way: what is run is the scenario with it.
  const ready = async (body) => {
    const now = await settled();
    if (!now) return;
    try { await start({ engine, ...await body(nameOf(now), now.text) }); } catch (error) { setTrouble(error.message); }
  };
  const run = () => ready((name, text) => ({ name, command, collective: command === "collective" ? collective : "", scenarios: [text] }));
  const advise = () => ready((name, text) => ({ name, command: "advise", scenarios: [text] }));
  const answer = (question, body) => ready((name, text) => ({ name: `${name}: ${question}`, scenarios: [text], ...body }));
  // What is wrong with a fault stands at its form, before anything runs.
  const flap = async (what, faults) => {
    const now = await settled();
    if (!now) return [];
    try {
      const { text } = await send("/api/set", { text: now.text, key: "faults", value: faults });
      const { valid, problems } = (await send("/api/check", { text })).result;
      if (!valid) return problems.map(({ message, help }) => [message, help].filter(Boolean).join(" → "));
      await start({ engine, name: `${nameOf(now)}: ${what}`, command: "run", scenarios: [text] });
      return [];
    } catch (error) { return plainly(error.message); }
  };
  const isOut = state.valid === false || state.isLoading;
  const tabs = [["text", "Text"], ["form", "Form"]];
  return (
    <section id="editor" aria-label="scenario" hidden={hidden}>
      <div class="row">
        <label>Start from <select id="presets" value={preset} onChange={(event) => { if (event.target.value) pick(event.target.value); }}>
          <option value="">a preset …</option><option value="own">My own cluster: what it needs, to fill in</option>{presets.map((preset) => <option value={preset.name}>{preset.name}: {preset.title}</option>)}</select></label>
        <label class="file">or open a file <input type="file" id="open" accept=".toml" onChange={async (event) => { const [file] = event.target.files; if (file) replace(await file.text()); }} /></label>
        <button id="download" onClick={() => save("scenario.toml", text, "application/toml")}>Download scenario</button>
        {before === undefined ? null : <button id="back" onClick={bringBack}>Bring back what you had</button>}
      </div>
      {opened ? <p id="opened" role="status">{opened}</p> : null}
      <div class="tabs" role="tablist">
        {tabs.map(([key, title]) => <button role="tab" id={`tab-${key}`} aria-selected={tab === key} aria-controls={`pane-${key}`} onClick={() => setTab(key)}>{title}</button>)}
      </div>
      <div id="pane-text" role="tabpanel" aria-labelledby="tab-text" hidden={tab !== "text"}>
        <Editor text={text} onChange={change} problems={state.problems} schema={schema} view={view} />
        <p class="hint">Ctrl-Space completes keys and values; pointing at a key explains it. Tab indents; Esc, then Tab, leaves the editor.</p>
      </div>
      <div id="pane-form" role="tabpanel" aria-labelledby="tab-form" hidden={tab !== "form"}>
        {tab === "form" ? <Form values={state.values} valid={state.valid !== false} schema={schema} problems={state.problems} set={set} /> : null}
      </div>
      <div class="foot">
        <Problems state={state} goTo={goTo} set={set} />
        <div class="row run">
          <select id="command" aria-label="command" value={command} onChange={(event) => setCommand(event.target.value)}>{["run", "traffic", "topo", "collective"].map((word) => <option>{word}</option>)}</select>
          {command === "collective" ? <select id="collective" aria-label="collective" value={collective} onChange={(event) => setCollective(event.target.value)}>{COLLECTIVES.map((word) => <option>{word}</option>)}</select> : null}
          <select id="engine" aria-label="engine" value={engine} onChange={(event) => setEngine(event.target.value)}><option value="">engine: as the command likes</option>{["analytic", "flow", "packet"].map((word) => <option>{word}</option>)}</select>
          <button id="start" class="primary" disabled={isOut} onClick={run}>Run</button>
          <button id="advise" title="Tries changes by simulation and ranks what they gain" disabled={isOut} onClick={advise}>What should I change?</button>
        </div>
      </div>
      <div class="row" id="questions">
        <span>Or ask of it{engine ? <>, on the <b>{engine}</b> engine chosen above</> : null}:</span>
        {QUESTIONS.map(([question, body]) => <button disabled={isOut} onClick={() => answer(question, body)}>{question}</button>)}
        <button id="ask-flap" disabled={isOut} aria-expanded={flaps} onClick={() => setFlaps(!flaps)}>What if a link flaps?</button>
      </div>
      {flaps && !isOut ? <Flap values={state.values} run={flap} /> : null}
    </section>
  );
};

// What a running command says of itself: `31 %, 4 s: tried 12 of 40 changes`.
const Progress = ({ run, stop }) => {
  const share = run.message?.match(/^(\d+) %/)?.[1];
  return (
    <div class="row">
      {isActive(run) ? <progress max="100" value={share} aria-label={`progress of run ${run.id}`} /> : null}
      <div role="status">{isActive(run) ? <p>{run.status}{run.message ? `: ${run.message}` : ""}</p> : [run.status, ...plainly(run.message)].map((line) => <p>{line}</p>)}</div>
      {isActive(run) && stop ? <button class="stop" onClick={stop}>Stop</button> : null}
    </div>
  );
};

const CopyLink = ({ id }) => {
  const [said, setSaid] = useState("");
  const link = `${location.origin}/#/run/${id}`;
  const copy = async () => {
    // Only pages of this machine, or over TLS, may write what is pasted.
    try { await navigator.clipboard.writeText(link); setSaid("Copied."); } catch { setSaid(`Copy it yourself: ${link}`); }
    setTimeout(() => setSaid(""), 6000);
  };
  return <><button onClick={copy}>Copy the link</button>{said ? <span role="status" class="copied">{said}</span> : null}</>;
};

// What gained when it was tried opens as the changed scenario; what only looks worthwhile is tried.
const Levers = ({ run, attempt, openChanged }) => {
  const levers = run.figures?.levers ?? [];
  if (!levers.length) return null;
  // A question is asked again of a changed scenario; advice has tried its changes.
  const isAdvice = run.command === "advise" || run.command === "compare";
  const gain = (lever) => (typeof lever.gain === "number" ? ` (${figures.percent(lever.gain)} less)` : "");
  const button = (lever) => <button title={lever.set.join("\n")} onClick={() => (isAdvice ? openChanged : attempt)(run, lever)}>{lever.name}{gain(lever)}</button>;
  // The best of an advice is a long line by itself.
  const first = isAdvice ? 1 : 3;
  const more = levers.slice(first);
  return (
    <div class="row levers" id={isAdvice ? "advised" : undefined}>
      <span>{isAdvice ? "Open the scenario changed:" : "Run it changed:"}</span>
      {levers.slice(0, first).map(button)}
      {more.length ? <details><summary>{more.length} more</summary><div class="row">{more.map(button)}</div></details> : null}
    </div>
  );
};

const Shown = ({ ids, runs, me, parents, compare, refresh, say, edit, attempt, openChanged }) => {
  const mayRun = me.role === "run";
  const stop = (run) => async () => { try { await send(`/api/runs/${run.id}/stop`, {}); } catch (error) { say(error.message); } refresh(); };
  const isOwn = (run) => mayRun && (!run.owner || run.owner === me.name);
  return (
  <section id="view" class="view" aria-label="results">
    {ids.map((id) => {
      const run = runs.find((known) => known.id === id);
      if (!run) return <p>There is no run {id} here.</p>;
      const parts = [run.command, run.engine, figures.seconds(run.figures?.step_s), run.figures?.mfu ? `MFU ${figures.percent(run.figures.mfu)}` : ""];
      return (
        <article key={id}>
          <div class="row">
            <h2>{run.id}: {run.name}</h2><span>{parts.filter(Boolean).join(" · ")}</span>
            {run.command === "run" && run.status === "done" ? <a class="button" href={`#/fabric/${id}`}>Fabric</a> : null}
            {run.status === "done" ? <a href={`/api/runs/${id}/result.json`} download>JSON</a> : null}
            {run.status === "done" ? <a href={`/api/runs/${id}/report.html`} download={`fatflow-${id}.html`}>Download the report</a> : null}
            <button onClick={async () => edit(await ask(`/api/runs/${id}/scenario.toml`))}>Edit its scenario</button>
            <CopyLink id={id} />
            {parents.has(id) && mayRun ? <button class="with-parent" disabled={isActive(run)} onClick={() => compare([parents.get(id), id])}>Compare with run {parents.get(id)}</button> : null}
          </div>
          {run.note ? <p>{run.note}</p> : null}
          <Levers run={run} attempt={attempt} openChanged={openChanged} />
          {run.status === "done"
            ? <iframe src={`/api/runs/${id}/report.html`} title={`report of run ${id}`} sandbox="allow-scripts allow-downloads" />
            : <Progress run={run} stop={isOwn(run) ? stop(run) : undefined} />}
        </article>
      );
    })}
  </section>
  );
};

const App = ({ me }) => {
  const route = useRoute();
  const mayRun = me.user.role === "run";
  const [text, setText] = useState(localStorage.getItem("fatflow") ?? START);
  const [state, setState] = useState({ problems: [], values: [] });
  const [presets, setPresets] = useState([]);
  const [schema, setSchema] = useState();
  const [runs, setRuns] = useState([]);
  const [ticked, setTicked] = useState(new Set());
  const latest = useRef(0);
  const setTrouble = (trouble) => setState((old) => ({ ...old, trouble }));
  // Each change is checked, also one to the text that is there.
  const [changes, setChanges] = useState(0);
  const newest = useRef(text);
  // The answer about the newest text, once it is there, and who waits for it.
  const known = useRef();
  const waiting = useRef([]);
  const settle = (answer) => {
    known.current = answer;
    for (const resolve of waiting.current.splice(0)) resolve(answer.valid ? answer : undefined);
  };
  const settled = () => new Promise((resolve) => { waiting.current.push(resolve); if (known.current) settle(known.current); });
  // What is answered about the text as it was says nothing of the text as it will be.
  const unsettle = (more) => {
    latest.current += 1;
    known.current = undefined;
    setState((old) => ({ ...old, valid: undefined, ...more }));
  };
  const change = (content) => {
    newest.current = content;
    setText(content);
    setChanges((count) => count + 1);
    localStorage.setItem("fatflow", content);
    unsettle({ trouble: undefined, isLoading: false });
  };
  // Settings are written one after another, each into what the one before has left.
  const writing = useRef(Promise.resolve());
  const set = (key, value) => {
    unsettle();
    writing.current = writing.current.then(async () => {
      try {
        for (;;) {
          const before = newest.current;
          const { text: after } = await send("/api/set", { text: before, key, value });
          if (newest.current === before) { change(after); return; }
        }
      } catch (error) { setTrouble(error.message); setChanges((count) => count + 1); }
    });
  };
  // Nothing can be run until the preset is there: the text is still another's.
  const [preset, setPreset] = useState("");
  // What somebody wrote and something else has taken the place of.
  const [before, setBefore] = useState();
  const brought = useRef(START);
  const replace = (content, from = "") => {
    if (![brought.current, content].includes(newest.current)) setBefore(newest.current);
    brought.current = content;
    setPreset(from);
    setOpened(undefined);
    change(content);
  };
  // Whose scenario the text is, and what has been changed in it.
  const [opened, setOpened] = useState();
  const bringBack = () => { change(before); setBefore(undefined); setPreset(""); setOpened(undefined); };
  const pick = async (name) => {
    setPreset(name);
    unsettle({ isLoading: true });
    try { replace(await ask(`/api/presets/${name}`), name); } catch (error) { change(newest.current); setPreset(""); setTrouble(error.message); }
  };
  const refresh = useCallback(async () => {
    try { setRuns(await ask("/api/runs")); } catch (error) { setTrouble(error.message); }
  }, []);
  const edit = (content) => { replace(content); location.hash = "#/"; };
  const start = async (body) => {
    try {
      const run = await send("/api/runs", body);
      await refresh();
      location.hash = `#/run/${run.id}`;
      return run;
    } catch (error) { setTrouble(error.message); location.hash = "#/"; return undefined; }
  };
  const untick = () => setTicked(new Set());
  // Which run another was tried from.
  const [parents, setParents] = useState(new Map());
  const compare = async (ids) => {
    const scenarios = await Promise.all(ids.map((id) => ask(`/api/runs/${id}/scenario.toml`)));
    const names = ids.map((id) => called(runs, ids, id));
    start({ name: `runs ${ids.join(" and ")}`, command: "compare", engine: "", scenarios, names });
    untick();
  };
  // A run's scenario with a change written into it.
  const changedBy = async (run, lever) => {
    let changed = await ask(`/api/runs/${run.id}/scenario.toml`);
    for (const set of lever.set) {
      const at = set.indexOf("=");
      changed = (await send("/api/set", { text: changed, key: set.slice(0, at).trim(), value: set.slice(at + 1).trim() })).text;
    }
    return changed;
  };
  const openChanged = async (run, lever) => {
    try {
      edit(await changedBy(run, lever));
      setOpened(`The scenario of run ${run.id} with ${lever.name}: ${lever.set.join("; ")}.`);
    } catch (error) { setTrouble(error.message); location.hash = "#/"; }
  };
  // The same scenario with what a run made look worthwhile; its page offers to compare both.
  const attempt = async (run, lever) => {
    try {
      const changed = await changedBy(run, lever);
      const child = await start({ name: `${run.name}: ${lever.name}`, command: run.command, engine: run.engine, scenarios: [changed] });
      if (child) setParents((old) => new Map([...old, [child.id, run.id]]));
    } catch (error) { setTrouble(error.message); location.hash = "#/"; }
  };
  useEffect(() => {
    if (!mayRun) { refresh(); return; }
    ask("/api/presets").then((answer) => setPresets(answer.result.entries)).catch((error) => setTrouble(error.message));
    // Names come beside the schema; without them it is what it is.
    const namesOf = (kind) => ask(`/api/names/${kind}`).then((answer) => [kind, answer.result.entries]).catch(() => [kind, undefined]);
    Promise.all([ask("/api/schema"), ...NAMED.map(namesOf)]).then(([schema, ...names]) => setSchema(withNames(schema, Object.fromEntries(names)))).catch(() => {});
    refresh();
  }, []);
  useEffect(() => {
    if (!mayRun) return undefined;
    const turn = ++latest.current;
    const timer = setTimeout(async () => {
      try {
        const { valid, problems, warnings = [], values, inherited } = (await send("/api/check", { text })).result;
        if (turn !== latest.current) return;
        const unwise = warnings.map((warning) => ({ ...placed(warning), isWarning: true }));
        setState((old) => ({ ...old, valid, problems: problems.map(placed), warnings: unwise, inherited, values: values ?? old.values }));
        settle({ valid, text, values });
      } catch (error) {
        if (turn !== latest.current) return;
        setState((old) => ({ ...old, valid: false, trouble: error.message }));
        settle({ valid: false });
      }
    }, 350);
    return () => clearTimeout(timer);
  }, [text, changes]);
  const active = runs.some(isActive);
  useEffect(() => {
    if (!active) return undefined;
    const timer = setInterval(refresh, 700);
    return () => clearInterval(timer);
  }, [active]);
  const shown = route.match(/^#\/run\/([\d+]+)$/)?.[1].split("+").map(Number);
  const fabric = Number(route.match(/^#\/fabric\/(\d+)$/)?.[1]);
  const named = { "#/runs": "runs", "#/sweep": "sweep", "#/files": "files", "#/audit": "audit" }[route];
  const where = shown ? "run" : fabric ? "fabric" : named ?? (mayRun ? "scenario" : "runs");
  const pages = [["#/", "scenario", "Scenario"], ["#/runs", "runs", `Runs (${runs.length})`], ["#/sweep", "sweep", "Sweep"], ["#/files", "files", "Files"], ["#/audit", "audit", "Who did what"]];
  const titles = { fabric: `The fabric of ${fabric}`, run: shown?.map((id) => `${id}: ${runs.find((run) => run.id === id)?.name ?? ""}`).join(" beside ") };
  const title = titles[where] ?? pages.find(([, key]) => key === where)[2];
  useEffect(() => { document.title = `${title} · fatflow`; }, [title]);
  const open = pages.filter(([, key]) => mayRun || ["runs", "audit"].includes(key));
  const tick = (id, on) => setTicked((old) => { const next = new Set(old); if (on) next.add(id); else next.delete(id); return next; });
  const here = new Set([...ticked].filter((id) => runs.some((run) => run.id === id)));
  return (
    <>
      <header>
        <h1>fatflow</h1>
        <nav aria-label="pages">
          {open.map(([hash, key, title]) => <a key={key} href={hash} aria-current={where === key ? "page" : undefined}>{title}</a>)}
        </nav>
        {me.has_token ? <span class="who">{me.user.name} <button onClick={async () => { await send("/api/logout", {}); location.reload(); }}>Log out</button></span> : null}
      </header>
      <main class={where === "run" ? "fill" : undefined}>
        {mayRun ? <Scenario {...{ opened, text, change, replace, pick, preset, before, bringBack, state, schema, presets, start, set, settled, setTrouble }} hidden={where !== "scenario"} /> : null}
        {where === "runs" ? <Runs {...{ runs, tick, untick, refresh, edit, me: me.user, say: setTrouble }} compare={() => compare([...here])} ticked={here} /> : null}
        {where === "fabric" ? <Fabric key={fabric} id={fabric} run={runs.find((run) => run.id === fabric)} /> : null}
        {where === "sweep" ? <Sweep {...{ text, values: state.values, schema, runs, start, untick }} ticked={here} /> : null}
        {where === "files" ? <Files {...{ text, edit, start }} /> : null}
        {where === "audit" ? <Audit /> : null}
        {where === "run" ? <Shown ids={shown} me={me.user} say={setTrouble} {...{ runs, parents, compare, refresh, edit, attempt, openChanged }} /> : null}
      </main>
    </>
  );
};

// A token in the address becomes a cookie at the first answer; it should not stay in the history.
const begin = async () => {
  const root = document.getElementById("app");
  try {
    const me = await ask(`/api/me${location.search}`);
    if (location.search) history.replaceState(null, "", `/${location.hash}`);
    render(<App me={me} />, root);
  } catch (error) {
    render(<Login trouble={error.status === 401 && !location.search ? "" : error.message} />, root);
  }
};
begin();
