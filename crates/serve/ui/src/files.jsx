// Files that people bring: a model's config.json, topologies, logs and traces.
import { useEffect, useState } from "preact/hooks";
import { ask, put, send } from "./api.js";

const size = (bytes) => (bytes >= 1e6 ? `${(bytes / 1e6).toPrecision(3)} MB` : bytes >= 1e3 ? `${(bytes / 1e3).toPrecision(3)} kB` : `${bytes} B`);

export const Files = ({ text, edit, start }) => {
  const [files, setFiles] = useState([]);
  const [ticked, setTicked] = useState(new Set());
  const [beside, setBeside] = useState(false);
  const [trouble, setTrouble] = useState("");
  const guarded = (work) => async (...words) => { setTrouble(""); try { await work(...words); } catch (error) { setTrouble(error.message); } };
  const refresh = guarded(async () => setFiles(await ask("/api/files")));
  useEffect(() => { refresh(); }, []);
  const bring = guarded(async (list) => {
    for (const file of list) await put(`/api/files/${encodeURIComponent(file.name.replaceAll(/[^A-Za-z0-9._-]/g, "_"))}`, file);
    await refresh();
  });
  const use = guarded(async (...sets) => {
    let changed = text;
    for (const [key, value] of sets) changed = (await send("/api/set", { text: changed, key, value })).text;
    edit(changed);
  });
  const observe = () => start({ name: [...ticked].join(", "), command: "observe", files: [...ticked], scenarios: beside ? [text] : [] });
  const tick = (name, on) => setTicked((old) => { const next = new Set(old); if (on) next.add(name); else next.delete(name); return next; });
  return (
    <section id="files" aria-label="files" onDragOver={(event) => event.preventDefault()} onDrop={(event) => { event.preventDefault(); bring(event.dataTransfer.files); }}>
      <div class="row"><h2>Files</h2>
        <label class="file">Bring files <input type="file" id="bring" multiple onChange={(event) => bring(event.target.files)} /></label></div>
      <p>A model's <code>config.json</code>, topologies, logs and traces lie beside your scenario: name them in it, or let them be read. Drop them here.</p>
      {trouble ? <p class="wrong" role="alert">{trouble}</p> : null}
      {files.length ? (
        <>
          <div class="scroll" tabIndex={0} role="region" aria-label="your files"><table><thead><tr><th><span class="hidden">ticked</span></th><th>file</th><th>size</th><th><span class="hidden">what to do</span></th></tr></thead>
            <tbody id="shelf">{files.map(({ name, bytes }) => (
              <tr key={name}>
                <td><input type="checkbox" aria-label={`tick ${name}`} checked={ticked.has(name)} onChange={(event) => tick(name, event.target.checked)} /></td>
                <td><a href={`/api/files/${encodeURIComponent(name)}`} download={name}>{name}</a></td><td class="number">{size(bytes)}</td>
                <td><span class="row">
                  {/\.json$/.test(name) ? <button onClick={() => use(["job.model", name])}>Use as the model</button> : null}
                  {/\.(csv|ya?ml|txt|conf|topo)$/.test(name) ? <button onClick={() => use(["fabric.topology", "file"], ["fabric.file", name])}>Use as the topology</button> : null}
                  <button aria-label={`Take away ${name}`} onClick={guarded(async () => { await ask(`/api/files/${encodeURIComponent(name)}`, { method: "DELETE" }); tick(name, false); await refresh(); })}>Take away</button>
                </span></td>
              </tr>))}</tbody></table></div>
          <div class="row">
            <button id="observe" class="primary" disabled={ticked.size === 0} onClick={observe}>Read the ticked logs and traces</button>
            <label><input type="checkbox" checked={beside} onChange={(event) => setBeside(event.target.checked)} /> beside what the scenario in the editor predicts</label>
          </div>
        </>
      ) : <p>Nothing is here yet.</p>}
    </section>
  );
};
