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
