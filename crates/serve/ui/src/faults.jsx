// Faults at given times as a form: what happens, to what, when and for how long.
import { useEffect, useState } from "preact/hooks";
import { at, variants } from "./schema.js";
import { useTyped } from "./typed.js";

// Names that every fabric has, of each kind of thing that a fault may hit.
const EXAMPLES = ["NIC 0", "leaf 0", "spine 0", "leaf 0 - spine 0", "leaf * - spine 0", "GPU 0", "server 0"];
const NEW = { on: "NIC 0", at: "500ms", for: "2s", what: { kind: "flap", period: "500ms", down: "100ms" } };
// How a key of a kind is written, where it must be there.
const FIRST = { period: "500ms", rate: "100Gbps", speed: "0.5", loss: "0.001" };

/** The faults among a scenario's values, as objects of texts: what was written, without defaults. */
export const faultsOf = (values) => {
  const faults = [];
  for (const { key, value, origin } of values) {
    const path = key.split(".");
    if (path[0] !== "faults" || path.length < 3 || origin === "default") continue;
    const fault = (faults[path[1]] ??= { what: {} });
    const plain = String(value).replace(/^"(.*)"$/, "$1");
    if (path[2] === "what") fault.what[path[3]] = plain; else fault[path[2]] = plain;
  }
  return faults.filter(Boolean);
};
const literal = (value) => (/^[+-]?\d[\d_]*(\.\d+)?(e[+-]?\d+)?$/i.test(value) ? value : JSON.stringify(value));
const pairs = (table) => Object.entries(table).filter(([, value]) => value !== "").map(([key, value]) => `${key} = ${literal(value)}`);
/** The same as a list of TOML. */
export const written = (faults) => `[${faults.map(({ what, ...fault }) => `{ ${[...pairs(fault), `what = { ${pairs(what).join(", ")} }`].join(", ")} }`).join(", ")}]`;

const Field = ({ number, name, value, about = "", change, list, wide }) => {
  const { text, handlers } = useTyped(value, value ?? "", (typed) => change(typed.trim()));
  return (
    <label class={wide ? "field wide" : "field"}><span>{name}</span>
      <input data-fault={`${number}.${name}`} list={list} value={text} title={about} placeholder={about.match(/without it, ([^.;]+)/)?.[1]} {...handlers} /></label>
  );
};

// Down once is the simplest; a link that flaps is down at the end of every period.
const FLAP = { on: "NIC 0", from: "500ms", for: "2s", every: "500ms", "down for": "100ms" };
const ONCE = ["from", "for"];
const AGAIN = [...ONCE, "every", "down for"];
const ANOTHER = "another …";

// On a phone it opens below the screen.
const intoView = (form) => form?.scrollIntoView({ block: "nearest" });

/** What if a link flaps: which, when and how often, before it is run. */
export const Flap = ({ values, run }) => {
  const [flap, setFlap] = useState(FLAP);
  const [isOther, setOther] = useState(false);
  const [isAlone, setAlone] = useState(false);
  const [isAgain, setAgain] = useState(false);
  const [wrong, setWrong] = useState([]);
  const own = faultsOf(values);
  const tier = (name) => String(values.find(({ key }) => key === `fabric.${name}.name`)?.value ?? name).replaceAll('"', "");
  const links = [["NIC 0", "a server's cable"], [`${tier("leaf")} 0 - ${tier("spine")} 0`, "the cables between two switches"]];
  const change = (name) => (event) => { setWrong([]); setFlap({ ...flap, [name]: event.target.value }); };
  const submit = async (event) => {
    event.preventDefault();
    const what = isAgain ? { kind: "flap", period: flap.every, down: flap["down for"] } : { kind: "link-down" };
    const fault = { on: flap.on, at: flap.from, for: flap.for, what };
    setWrong((await run(isAgain ? `${flap.on} flaps` : `${flap.on} is down once`, written([...(isAlone ? [] : own), fault]))) ?? []);
  };
  return (
    <form class="fault" id="flap" onSubmit={submit} ref={intoView}>
      <label class="field wide"><span>which link</span>
        {isOther ? <input name="on" value={flap.on} placeholder="leaf 5 - spine 1" onInput={change("on")} />
          : <select name="on" value={flap.on} onChange={(event) => { if (event.target.value === ANOTHER) setOther(true); else change("on")(event); }}>
            {links.map(([name, about]) => <option value={name}>{name}: {about}</option>)}<option>{ANOTHER}</option></select>}</label>
      <label class="field"><span>how often</span>
        <select name="often" value={isAgain ? "again" : "once"} onChange={(event) => { setWrong([]); setAgain(event.target.value === "again"); }}>
          <option value="once">once</option><option value="again">again and again</option></select></label>
      {(isAgain ? AGAIN : ONCE).map((name) => <label class="field"><span>{name}</span><input name={name} value={flap[name]} onInput={change(name)} /></label>)}
      {own.length ? <label><input type="checkbox" checked={isAlone} onChange={(event) => setAlone(event.target.checked)} /> in place of the scenario's own {own.length === 1 ? "fault" : `${own.length} faults`}, not on top</label> : null}
      <button class="primary">Run with it</button>
      {wrong.map((words) => <small class="wrong" role="alert">{words}</small>)}
    </form>
  );
};

export const Faults = ({ values, valid, schema, problems, set }) => {
  const kinds = schema ? variants(schema, ["faults", "what"], "kind") : [];
  // What is wrong stays as it was typed: there are no values of it.
  const [typed, setTyped] = useState();
  useEffect(() => setTyped(undefined), [values]);
  const faults = typed ?? faultsOf(values);
  const about = (key) => at(schema, ["faults", key])?.description ?? "";
  const save = (next) => { setTyped(next); set("faults", written(next)); };
  const put = (number, fault) => save(faults.map((old, place) => (place === number ? fault : old)));
  const choose = (number, kind) => {
    const fields = kinds.find(({ word }) => word === kind)?.fields ?? [];
    const what = Object.fromEntries(fields.filter(({ required }) => required).map(({ key }) => [key, faults[number].what[key] ?? FIRST[key] ?? ""]));
    put(number, { ...faults[number], what: { kind, ...what } });
  };
  return (
    <fieldset id="faults" disabled={!valid && !typed}><legend>Faults at given times</legend>
      <datalist id="hit">{EXAMPLES.map((name) => <option value={name} />)}</datalist>
      {faults.map((fault, number) => {
        const kind = kinds.find(({ word }) => word === fault.what.kind);
        return (
          <div class="fault" key={number}>
            <label class="field"><span>what</span>
              <select data-fault={`${number}.kind`} value={fault.what.kind} onChange={(event) => choose(number, event.target.value)}>{kinds.map(({ word }) => <option value={word}>{word}</option>)}</select></label>
            <Field number={number} name="on" value={fault.on} about={about("on")} list="hit" wide change={(on) => put(number, { ...fault, on })} />
            {["at", "for", "until"].filter((key) => key !== "until" || fault.until).map((key) => <Field number={number} name={key} value={fault[key]} about={about(key)} change={(value) => put(number, { ...fault, [key]: value })} />)}
            {kind?.fields.map(({ key, about }) => <Field number={number} name={key} value={fault.what[key]} about={about} change={(value) => put(number, { ...fault, what: { ...fault.what, [key]: value } })} />)}
            <button aria-label={`take away fault ${number + 1}`} onClick={() => save(faults.filter((_, place) => place !== number))}>Take away</button>
            <small>{kind?.about}</small>
            {problems.filter((problem) => problem.key?.startsWith(`faults.${number}`)).map((problem) => <small class="wrong" role="alert">{problem.message}</small>)}
          </div>
        );
      })}
      <div class="row"><button id="add-fault" onClick={() => save([...faults, NEW])}>Add a fault</button>
        <span class="hint">{!valid && !typed ? "Mend the scenario first: what is wrong with it may be a fault that is not seen here." : faults.length ? "Times like 500ms or 2s; without an end it lasts." : "A link that flaps, a NIC that is slow, a server that is lost: what does it cost?"}</span></div>
    </fieldset>
  );
};
