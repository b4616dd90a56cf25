// The settings as a form: grouped as people think, with meaning, choices and errors in place.
import { useMemo, useState } from "preact/hooks";
import { Faults } from "./faults.jsx";
import { at, choices, facts, finds, leaves, plain as shown, remedies } from "./schema.js";
import { useTyped } from "./typed.js";

const GROUPS = [
  ["Cluster", ["cluster"]], ["Fabric", ["fabric"]], ["Network: transport, routing, congestion", ["network"]],
  ["Communication library", ["library"]], ["Job", ["job"]], ["Traffic", ["traffic"]],
  ["Failures and jitter", ["faults", "reliability", "jitter", "stragglers", "software"]], ["Money", ["prices"]],
];
// What people look for first, set or not.
const FIRST = [
  "seed", "cluster.gpus", "cluster.gpu", "cluster.nic", "fabric.leaf.switch", "fabric.oversubscription", "network.transport", "network.routing.qps",
  "network.routing.policy", "job.gpus", "job.parallel.tp", "job.parallel.pp", "job.parallel.dp",
];
const LEFT_OUT = "left out";
const ANOTHER = "\u0000another";
const groupOf = (key) => {
  const top = key.split(".")[0];
  return GROUPS.find(([, tops]) => tops.includes(top))?.[0] ?? "Scenario";
};

/** What would be right, to click. In the form Tab goes from field to field; the list of problems has the same buttons. */
export const Remedies = ({ problem, set, inForm }) => remedies(problem).map((sets) => (
  <button type="button" class="remedy" tabIndex={inForm ? -1 : undefined} onClick={() => sets.forEach(([key, value]) => set(key, value))}>{sets.map(([key, value]) => `${key.split(".").pop()} = ${value}`).join(", ")}</button>
));

const Setting = ({ value, schema, problems, set, own, aside }) => {
  const node = schema ? at(schema, value.key.split(".")) : undefined;
  const wrong = problems.filter((problem) => problem.key === value.key);
  const is = shown(node, value.value);
  // An emptied field is a setting that is left out.
  const write = (typed) => set(value.key, typed.trim() === "" ? undefined : typed);
  const { text, handlers } = useTyped(value, is, write);
  const [isOther, setOther] = useState(false);
  const options = [...(node ? choices(node) : []), ...own.map((name) => ({ value: name }))];
  const isKnown = options.some((option) => String(option.value) === is) || (is === "" && options.length > 0);
  const id = `set-${value.key}`;
  const isOwn = /^scenario\.toml/.test(value.origin) && !["from", "name"].includes(value.key);
  const choose = (event) => { if (event.target.value === ANOTHER) setOther(true); else handlers.onChange(event); };
  const chosen = options.find((option) => String(option.value) === text);
  return (
    <div class={value.origin === "default" || value.origin === LEFT_OUT ? "setting" : "setting written"}>
      <label for={id}>{(value.key.split(".").slice(1).join(".") || value.key).split(/(?<=[._])/).map((part) => <>{part}<wbr /></>)}</label>
      <span class="value">
        {isKnown && !isOther
          ? <select id={id} data-key={value.key} value={text} title={chosen?.info ? `${text}: ${chosen.info}` : text} onChange={choose} aria-describedby={`${id}-help`}>
            {is === "" || isOwn ? <option value="">{LEFT_OUT}</option> : null}
            {options.map((option) => <option value={String(option.value)}>{String(option.value)}{node?.isOpen && option.info ? `: ${option.info}` : ""}</option>)}
            {node?.isOpen ? <option value={ANOTHER}>another …</option> : null}
          </select>
          : <input id={id} data-key={value.key} value={text} {...handlers} placeholder={value.origin === LEFT_OUT ? LEFT_OUT : node?.["x-ratio"] ? "1:1" : "none"} aria-describedby={`${id}-help`} />}
        {isOwn ? <button type="button" class="out" tabIndex={-1} title={`Leave ${value.key} out: what it is without your text`} aria-label={`leave ${value.key} out`} onClick={() => { setOther(false); write(""); }}>×</button> : null}
      </span>
      <small id={`${id}-help`}>{node?.description} {chosen?.info && !node?.isOpen ? `${text}: ${chosen.info}` : ""} {node ? facts(node) : ""} <em>{value.origin}</em></small>
      {aside ? <small>{aside}</small> : null}
      {wrong.map((problem) => <small class="wrong" role="alert">{problem.message} <Remedies problem={problem} set={set} inForm /></small>)}
    </div>
  );
};

export const Form = ({ values, valid, schema, problems, set }) => {
  const [wanted, setWanted] = useState("");
  const [all, setAll] = useState(false);
  const needle = wanted.toLowerCase();
  const known = useMemo(() => (schema ? leaves(schema) : new Map()), [schema]);
  // With those that are left out, each in its place.
  const every = useMemo(() => {
    const there = new Set(values.map(({ key }) => key));
    const tops = new Set(values.map(({ key }) => key.split(".")[0]));
    const missing = [...known].filter(([key, isOptional]) => isOptional && !there.has(key) && tops.has(key.split(".")[0]));
    const place = new Map([...known.keys()].map((key, at) => [key, at]));
    let last = -1;
    const placed = values.map((value) => [(last = place.get(value.key) ?? last), value]);
    return [...placed, ...missing.map(([key]) => [place.get(key), { key, value: "", origin: LEFT_OUT }])].sort((a, b) => a[0] - b[0]).map(([, value]) => value);
  }, [values, known]);
  const valueOf = (key) => values.find((value) => value.key === key)?.value;
  const isShown = (value) => {
    if (/^(reported|catalogue)\b|^faults\./.test(value.key)) return false;
    if (!needle) return all || !["default", LEFT_OUT].includes(value.origin) || FIRST.includes(value.key);
    const text = `${value.key} ${schema ? at(schema, value.key.split("."))?.description ?? "" : ""}`;
    return finds(text, needle);
  };
  const hasFaults = !needle || "faults flap".includes(needle) || needle.includes("fault");
  const groups = new Map();
  for (const value of every.filter(isShown)) {
    const group = groupOf(value.key);
    groups.set(group, [...(groups.get(group) ?? []), value]);
  }
  // Hardware that the scenario describes itself.
  const ownOf = (key) => [...new Set(values.map((value) => value.key.split(".")).filter(([top, kind]) => top === "catalogue" && kind === key.split(".").pop()).map((path) => path[2]))];
  const gpus = valueOf("cluster.gpus");
  const asideOf = (key) => (key === "job.gpus" && gpus && valueOf(key) !== gpus
    ? <>The cluster has {gpus}. <button type="button" class="remedy" tabIndex={-1} onClick={() => set(key, String(gpus))}>use all {gpus}</button></> : null);
  return (
    <div id="form">
      <div class="row">
        <input type="search" id="filter" placeholder="find a setting by name or meaning …" aria-label="find a setting" value={wanted} onInput={(event) => setWanted(event.target.value)} />
        <label><input type="checkbox" checked={all} onChange={(event) => setAll(event.target.checked)} /> also defaults</label>
      </div>
      {[...groups].map(([group, members]) => (
        <fieldset key={group}><legend>{group}</legend>{members.map((value) => <Setting key={value.key} {...{ value, schema, problems, set }} own={ownOf(value.key)} aside={asideOf(value.key)} />)}</fieldset>
      ))}
      {hasFaults ? <Faults {...{ values, valid, schema, problems, set }} /> : null}
      {values.length === 0 ? <p>The form has the settings of a scenario that is valid: mend it in the text.</p> : null}
      {values.length && groups.size === 0 && !hasFaults ? <p>No setting is called or means that.</p> : null}
    </div>
  );
};
