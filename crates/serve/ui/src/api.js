// Questions to the server, and files for the user.
export const ask = async (path, options = {}) => {
  const response = await fetch(path, options);
  const kind = response.headers.get("content-type") ?? "";
  const body = kind.includes("json") ? await response.json() : await response.text();
  if (!response.ok) throw Object.assign(new Error(body.error ?? String(body)), { status: response.status });
  return body;
};

export const send = (path, data, method = "POST") =>
  ask(path, { method, headers: { "content-type": "application/json" }, body: JSON.stringify(data) });

export const put = (path, file) => ask(path, { method: "PUT", headers: { "content-type": "application/octet-stream" }, body: file });

export const save = (file, content, kind) => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type: kind }));
  link.download = file;
  document.body.append(link);
  link.click();
  setTimeout(() => { URL.revokeObjectURL(link.href); link.remove(); }, 1000);
};

/** What a command says in a terminal, without the drawing around the place that it means: a text for each line. */
export const plainly = (message) => {
  const lines = [];
  let isPicture = false;
  for (const line of (message ?? "").split("\n")) {
    const place = line.match(/[╭,]─+\[(.+?)(?::(\d+))?(?::\d+)?\]/);
    if (place) {
      isPicture = true;
      lines.push(`in ${place[1]}${place[2] ? `, line ${place[2]}` : ""}`);
    } else if (isPicture) {
      isPicture = !/^\s*╰─/.test(line);
    } else {
      lines.push(line.replace(/^[\s×⚠│├╰─▶]+/, "").replace(/^help: /, "→ "));
    }
  }
  return lines.filter((line) => line.trim());
};
