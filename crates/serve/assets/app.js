// The page of `fatflow serve`: edit, check, run, look, compare. Talks to its own server alone.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
      else if (value !== false) element.setAttribute(key, value === true ? "" : value);
    }
    element.append(...children.filter((child) => child != null));
    return element;
  };
  const ask = async (path, options = {}) => {
    const response = await fetch(path, options);
    const kind = response.headers.get("content-type") ?? "";
    const body = kind.includes("json") ? await response.json() : await response.text();
    if (!response.ok) throw new Error(body.error ?? String(body));
    return body;
  };
  const send = (path, data, method = "POST") =>
    ask(path, { method, headers: { "content-type": "application/json" }, body: JSON.stringify(data) });

  const text = $("text");
  let values = [];
  let marked = new Set();
  let name = "scenario";
  const ticked = new Set();

  const gutter = () => {
    const lines = text.value.split("\n").length;
    $("gutter").replaceChildren(...Array.from({ length: lines }, (_, at) => {
      const number = String(at + 1);
      return marked.has(at + 1) ? make("b", {}, number + "\n") : document.createTextNode(number + "\n");
    }));
    $("gutter").scrollTop = text.scrollTop;
  };
  text.addEventListener("scroll", () => { $("gutter").scrollTop = text.scrollTop; });

  const goTo = (line) => {
    const lines = text.value.split("\n");
    const start = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    showTab("text");
    text.focus();
    text.setSelectionRange(start, start + (lines[line - 1] ?? "").length);
    text.scrollTop = (line - 4) * 19;
  };

  let latest = 0;
  const check = async () => {
    const turn = ++latest;
    try {
      const answer = await send("/api/check", { text: text.value });
      if (turn !== latest) return;
      const { valid, problems, values: resolved } = answer.result;
      marked = new Set(problems.map((problem) => problem.line).filter(Boolean));
      $("problems").replaceChildren(...(valid
        ? [make("li", { class: "good" }, "This scenario is valid.")]
        : problems.map((problem) => make("li", {},
          problem.line ? make("button", { type: "button", onclick: () => goTo(problem.line) }, `line ${problem.line}`) : null,
          ` ${problem.message}`, problem.help ? make("div", {}, `→ ${problem.help}`) : null))));
      $("start").disabled = !valid;
      values = resolved ?? values;
      name = (values.find((value) => value.key === "name")?.value ?? "scenario").replaceAll('"', "");
      if (valid) drawForm();
    } catch (error) {
      if (turn === latest) $("problems").replaceChildren(make("li", {}, error.message));
    }
    gutter();
  };
  let pending;
  const changed = () => { gutter(); clearTimeout(pending); pending = setTimeout(check, 350); localStorage.setItem("fatflow", text.value); };
  text.addEventListener("input", changed);
  const load = (content) => { text.value = content; changed(); };

  const drawForm = () => {
    const wanted = $("filter").value.toLowerCase();
    const groups = new Map();
    for (const value of values) {
      if (value.key.startsWith("reported") || value.key.startsWith("catalogue")) continue;
      if (wanted && !value.key.toLowerCase().includes(wanted)) continue;
      const group = value.key.includes(".") ? value.key.split(".")[0] : "scenario";
      if (!groups.has(group)) groups.set(group, []);
      groups.get(group).push(value);
    }
    const setting = (value) => make("label", { class: "setting" },
      make("span", {}, value.key.includes(".") ? value.key.split(".").slice(1).join(".") : value.key),
      make("input", { value: String(value.value), "data-key": value.key, onchange: async (event) => {
        try {
          const answer = await send("/api/set", { text: text.value, key: value.key, value: event.target.value });
          load(answer.text);
        } catch (error) {
          $("problems").replaceChildren(make("li", {}, error.message));
        }
      } }),
      make("small", {}, value.origin));
    $("form").replaceChildren(...[...groups].map(([group, members]) => make("fieldset", {}, make("legend", {}, group), ...members.map(setting))));
  };
  $("filter").addEventListener("input", drawForm);

  const showTab = (which) => {
    for (const tab of ["text", "form"]) {
      $(`tab-${tab}`).setAttribute("aria-selected", String(tab === which));
      $(`pane-${tab}`).hidden = tab !== which;
    }
  };
  for (const tab of ["text", "form"]) $(`tab-${tab}`).addEventListener("click", () => showTab(tab));

  $("presets").addEventListener("change", async (event) => { if (event.target.value) load(await ask(`/api/presets/${event.target.value}`)); });
  $("open").addEventListener("change", async (event) => { const [file] = event.target.files; if (file) load(await file.text()); });
  $("command").addEventListener("change", () => { $("collective").hidden = $("command").value !== "collective"; });

  const save = (file, content, kind) => {
    const link = make("a", { href: URL.createObjectURL(new Blob([content], { type: kind })), download: file });
    document.body.append(link);
    link.click();
    setTimeout(() => { URL.revokeObjectURL(link.href); link.remove(); }, 1000);
  };
  $("download").addEventListener("click", () => save("scenario.toml", text.value, "application/toml"));

  const start = async (body) => {
    try {
      const run = await send("/api/runs", body);
      await list();
      wait(run.id);
    } catch (error) {
      $("problems").replaceChildren(make("li", {}, error.message));
    }
  };
  $("start").addEventListener("click", () => start({ name, command: $("command").value, engine: $("engine").value, collective: $("command").value === "collective" ? $("collective").value : "", scenarios: [text.value] }));
  $("compare").addEventListener("click", async () => {
    const ids = [...ticked];
    const scenarios = await Promise.all(ids.map((id) => ask(`/api/runs/${id}/scenario.toml`)));
    start({ name: `runs ${ids.join(" and ")}`, command: "compare", engine: $("engine").value, scenarios });
  });
  $("beside").addEventListener("click", () => show(...ticked));

  const show = (...ids) => $("view").replaceChildren(...ids.map((id) => make("iframe", { src: `/api/runs/${id}/report.html`, title: `report of run ${id}`, sandbox: "allow-scripts allow-downloads" })));

  const wait = async (id) => {
    const run = await ask(`/api/runs/${id}`);
    if (run.status === "waiting" || run.status === "running") setTimeout(() => wait(id), 500);
    else if (run.status === "done") show(id);
    await list();
  };

  const list = async () => {
    const runs = await ask("/api/runs");
    for (const id of ticked) if (!runs.some((run) => run.id === id)) ticked.delete(id);
    const row = (run) => {
      const active = run.status === "waiting" || run.status === "running";
      const state = run.status === "done" ? `done in ${run.took_s.toFixed(1)} s` : run.status;
      return make("tr", {},
        make("td", {}, make("input", { type: "checkbox", "aria-label": `tick run ${run.id}`, checked: ticked.has(run.id), onchange: (event) => { event.target.checked ? ticked.add(run.id) : ticked.delete(run.id); buttons(); } })),
        make("td", {}, String(run.id)),
        make("td", {}, run.name),
        make("td", {}, [run.command, run.engine].filter(Boolean).join(", ")),
        make("td", { class: "state" }, state, run.message && run.status !== "done" ? make("small", {}, run.message) : null),
        make("td", {}, make("span", { class: "row" },
          active ? make("button", { onclick: async () => { await send(`/api/runs/${run.id}/stop`, {}); list(); } }, "Stop") : null,
          run.status === "done" ? make("button", { onclick: () => show(run.id) }, "Show") : null,
          run.status === "done" ? make("a", { href: `/api/runs/${run.id}/result.json`, download: true }, "JSON") : null,
          run.status === "done" ? make("a", { href: `/api/runs/${run.id}/report.html`, download: `fatflow-${run.id}.html` }, "report") : null,
          make("button", { onclick: async () => load(await ask(`/api/runs/${run.id}/scenario.toml`)) }, "Edit"),
          active ? null : make("button", { "aria-label": `forget run ${run.id}`, onclick: async () => { await send(`/api/runs/${run.id}`, {}, "DELETE"); list(); } }, "Forget"))));
    };
    $("runs").replaceChildren(...runs.map(row));
    buttons();
  };
  const buttons = () => { $("compare").disabled = $("beside").disabled = ticked.size < 2; };

  (async () => {
    const answer = await ask("/api/presets");
    for (const preset of answer.result.entries) $("presets").append(make("option", { value: preset.name }, `${preset.name}: ${preset.title ?? ""}`));
    await list();
    load(localStorage.getItem("fatflow") ?? 'from = "small-16"\nname = "My scenario"\n');
  })();
})();
