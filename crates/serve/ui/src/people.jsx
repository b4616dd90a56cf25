// Logging in with a token, and who did what.
import { useEffect, useState } from "preact/hooks";
import { ask } from "./api.js";

export const Login = ({ trouble }) => {
  const [token, setToken] = useState("");
  const [wrong, setWrong] = useState(trouble);
  const submit = async (event) => {
    event.preventDefault();
    try {
      await ask("/api/login", { method: "POST", headers: { "content-type": "application/json", authorization: `Bearer ${token.trim()}` }, body: "{}" });
      location.reload();
    } catch (error) { setWrong(error.message); }
  };
  return (
    <main class="login">
      <h1>fatflow</h1>
      <form onSubmit={submit}>
        <label for="token">Your token</label>
        <input id="token" type="password" autocomplete="current-password" value={token} onInput={(event) => setToken(event.target.value)} />
        <button class="primary" type="submit" disabled={!token.trim()}>Log in</button>
      </form>
      {wrong ? <p class="wrong" role="alert">{wrong}</p> : null}
      <p class="hint">Whoever runs this server gives tokens out.</p>
    </main>
  );
};

// What a request did, in words; what is not of the page stays as it was asked.
const DID = [
  [/^POST \/api\/runs$/, "start a run"], [/^POST \/api\/runs\/(\d+)\/stop$/, "stop run $1"], [/^DELETE \/api\/runs\/(\d+)$/, "forget run $1"],
  [/^PUT \/api\/runs\/(\d+)\/note$/, "write a note on run $1"], [/^PUT \/api\/files\/(.+)$/, "bring the file $1"],
  [/^DELETE \/api\/files\/(.+)$/, "take away the file $1"], [/^POST \/api\/login$/, "log in"], [/^POST \/api\/logout$/, "log out"],
];
const inWords = (asked) => { const [found, words] = DID.find(([known]) => known.test(asked)) ?? []; return found ? asked.replace(found, words) : asked; };
const outcome = (status) => (status < 400 ? "done" : status < 500 ? "refused" : "failed");

export const Audit = () => {
  const [entries, setEntries] = useState([]);
  const [trouble, setTrouble] = useState("");
  useEffect(() => { ask("/api/audit").then(setEntries).catch((error) => setTrouble(error.message)); }, []);
  return (
    <section id="audit" aria-label="who did what">
      <h2>Who did what</h2>
      {trouble ? <p class="wrong" role="alert">{trouble}</p> : null}
      <div class="scroll" tabIndex={0} role="region" aria-label="what was asked"><table><thead><tr><th>when</th><th>who</th><th>what</th><th>answer</th><th>from</th></tr></thead>
        <tbody>{entries.map((entry) => <tr><td class="when">{new Date(1000 * entry.at).toISOString().replace("T", " ").slice(0, 19)}</td><td>{entry.user || "–"}</td><td title={entry.asked}>{inWords(entry.asked)}</td><td class="when">{outcome(entry.status)} ({entry.status})</td><td>{entry.from}</td></tr>)}</tbody></table></div>
      {entries.length ? null : <p>Nothing yet.</p>}
    </section>
  );
};
