// The pictures of README and book can be made again: their commands run, their figures are there.
import test from "node:test";
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { join } from "node:path";
import { figure, pictures } from "../../docs/pictures/make.mjs";

const root = fileURLToPath(new URL("../..", import.meta.url));

for (const [file, words, title, prepare] of pictures) {
  test(`${file} can be made again`, async () => {
    const { browser, found, complaints } = await figure(words, title);
    assert.equal(await found.count(), 1, String(title));
    if (prepare) await prepare(found);
    assert.deepEqual(complaints, []);
    assert.ok(existsSync(join(root, "docs/pictures", file)), "it is committed");
    await browser.close();
  });
}

test("pictures are small, and all of them are shown somewhere", () => {
  const files = readdirSync(join(root, "docs/pictures")).filter((file) => file.endsWith(".png"));
  const size = files.reduce((sum, file) => sum + statSync(join(root, "docs/pictures", file)).size, 0);
  assert.ok(size < 400_000, `${size} bytes`);
  const books = ["README.md", ...readdirSync(join(root, "docs")).filter((file) => file.endsWith(".md")).map((file) => `docs/${file}`)];
  const text = books.map((file) => readFileSync(join(root, file), "utf8")).join("");
  assert.deepEqual(files.filter((file) => !text.includes(`pictures/${file}`)), [], "unused pictures");
  assert.deepEqual(files.sort(), pictures.map(([file]) => file).sort());
});
