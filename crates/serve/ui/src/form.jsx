// The settings as a form: grouped as people think, with meaning, choices and errors in place.
import { useState } from "preact/hooks";
import { Faults } from "./faults.jsx";
import { at, choices, facts, plain as shown } from "./schema.js";
import { useTyped } from "./typed.js";

const GROUPS = [
  ["Cluster", ["cluster"]], ["Fabric", ["fabric"]], ["Network: transport, routing, congestion", ["network"]],
  ["Communication library", ["library"]], ["Job", ["job"]], ["Traffic", ["traffic"]],
  ["Failures and jitter", ["faults", "reliability", "jitter", "stragglers", "software"]], ["Money", ["prices"]],
];
// What people look for first, set or not.
const FIRST = ["seed", "cluster.gpus", "fabric.oversubscription", "network.transport", "network.routing.qps", "network.routing.policy"];
const groupOf = (key) => {
  const top = key.split(".")[0];
  return GROUPS.find(([, tops]) => tops.includes(top))?.[0] ?? "Scenario";
};

const Setting = ({ value, schema, problems, set }) => {
  const node = schema ? at(schema, value.key.split(".")) : undefined;
  const own = problems.filter((problem) => problem.key === value.key);
  const options = node ? choices(node) : [];
  // What is wrong stays as it was typed: then there are no newer values.
  const is = shown(node, value.value);
  const { text, handlers } = useTyped(value, is, (typed) => set(value.key, typed));
  const id = `set-${value.key}`;
  const written = value.origin !== "default";
  return (
    <div class={written ? "setting written" : "setting"}>
      <label for={id}>{value.key.split(".").slice(1).join(".") || value.key}</label>
      {options.length && options.some((option) => String(option.value) === is)
        ? <select id={id} data-key={value.key} value={text} onChange={handlers.onChange}>{options.map((option) => <option value={String(option.value)}>{String(option.value)}</option>)}</select>
        : <input id={id} data-key={value.key} value={text} {...handlers} aria-describedby={`${id}-help`} />}
      <small id={`${id}-help`}>{node?.description} {node ? facts(node) : ""} <em>{value.origin}</em></small>
      {own.map((problem) => <small class="wrong" role="alert">{problem.message}</small>)}
    </div>
  );
};

export const Form = ({ values, valid, schema, problems, set }) => {
  const [wanted, setWanted] = useState("");
  const [all, setAll] = useState(false);
  const needle = wanted.toLowerCase();
  const isShown = (value) => {
    if (/^(reported|catalogue)\b|^faults\./.test(value.key)) return false;
    if (!needle) return all || value.origin !== "default" || FIRST.includes(value.key);
    const text = `${value.key} ${schema ? at(schema, value.key.split("."))?.description ?? "" : ""}`;
    return text.toLowerCase().includes(needle);
  };
  const hasFaults = !needle || "faults flap".includes(needle) || needle.includes("fault");
  const groups = new Map();
  for (const value of values.filter(isShown)) {
    const group = groupOf(value.key);
    groups.set(group, [...(groups.get(group) ?? []), value]);
  }
  return (
    <div id="form">
      <div class="row">
        <input type="search" id="filter" placeholder="find a setting by name or meaning …" aria-label="find a setting" value={wanted} onInput={(event) => setWanted(event.target.value)} />
        <label><input type="checkbox" checked={all} onChange={(event) => setAll(event.target.checked)} /> also defaults</label>
      </div>
      {[...groups].map(([group, members]) => (
        <fieldset key={group}><legend>{group}</legend>{members.map((value) => <Setting key={value.key} value={value} schema={schema} problems={problems} set={set} />)}</fieldset>
      ))}
      {hasFaults ? <Faults {...{ values, valid, schema, problems, set }} /> : null}
      {values.length === 0 ? <p>The form has the settings of a scenario that is valid: mend it in the text.</p> : null}
      {values.length && groups.size === 0 && !hasFaults ? <p>No setting is called or means that.</p> : null}
    </div>
  );
};
