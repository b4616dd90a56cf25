// Draws queue-pairs.svg: bandwidth over the number of queue pairs, on flows and on packets.
//
//   cargo build -p cli && node docs/pictures/queue-pairs.mjs
//
// Every point is one run: fatflow run scenarios/queue-pairs.toml --engine ENGINE --set network.routing.qps=N
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const place = (path) => fileURLToPath(new URL(path, import.meta.url));
const fatflow = process.env.FATFLOW ?? place("../../target/debug/fatflow");
const scenario = place("../../scenarios/queue-pairs.toml");
const counts = Array.from({ length: 13 }, (_, power) => 2 ** power);
const lines = [
  { name: "flows, split", engine: "flow", split: "split", colour: "#1f6feb" },
  { name: "packets, split", engine: "packet", split: "split", colour: "#d9480f" },
  { name: "flows, whole messages in turn", engine: "flow", split: "round-robin", colour: "#1f6feb", dash: "5 4" },
  { name: "packets, whole messages in turn", engine: "packet", split: "round-robin", colour: "#d9480f", dash: "5 4" },
];

/// Gigabits per second that each server sends, until the last one has all.
const bandwidth = ({ engine, split }, count) => {
  const words = ["run", scenario, "--engine", engine, "--json", "--set", `network.routing.qps=${count}`];
  const answer = execFileSync(fatflow, [...words, "--set", `network.routing.split=${split}`], { stdio: ["ignore", "pipe", "ignore"], maxBuffer: 1 << 28 });
  const { bytes, flows, makespan_s: seconds } = JSON.parse(answer).result;
  return (8 * bytes) / flows / seconds / 1e9;
};

const [width, height, left, bottom, top] = [760, 400, 60, 52, 20];
const x = (count) => left + (Math.log2(count) / 12) * (width - left - 20);
const y = (gbps) => height - bottom - (gbps / 400) * (height - bottom - top);
const out = [`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="13">`];
out.push(`<rect width="${width}" height="${height}" fill="white"/>`);
for (const gbps of [0, 100, 200, 300, 400]) {
  out.push(`<path d="M${left} ${y(gbps)}H${width - 20}" stroke="#ddd"/>`);
  out.push(`<text x="${left - 8}" y="${y(gbps) + 4}" text-anchor="end">${gbps}</text>`);
}
for (const count of counts) out.push(`<text x="${x(count)}" y="${height - bottom + 18}" text-anchor="middle">${count.toLocaleString("en")}</text>`);
out.push(`<text x="${(left + width) / 2}" y="${height - 10}" text-anchor="middle">queue pairs of a connection</text>`);
out.push(`<text x="14" y="${height / 2}" text-anchor="middle" transform="rotate(-90 14 ${height / 2})">Gb/s of each server</text>`);
lines.forEach((line, at) => {
  const points = counts.map((count) => [count, bandwidth(line, count)]);
  console.log(line.name, points.map(([count, gbps]) => `${count}: ${gbps.toFixed(0)}`).join(", "));
  const path = points.map(([count, gbps]) => `${x(count).toFixed(1)} ${y(gbps).toFixed(1)}`).join("L");
  out.push(`<path d="M${path}" fill="none" stroke="${line.colour}" stroke-width="2" stroke-dasharray="${line.dash ?? "none"}"/>`);
  const row = top + 14 + 18 * at;
  out.push(`<path d="M${left + 16} ${row}h26" stroke="${line.colour}" stroke-width="2" stroke-dasharray="${line.dash ?? "none"}"/>`);
  out.push(`<text x="${left + 50}" y="${row + 4}">${line.name}</text>`);
});
out.push("</svg>");
writeFileSync(place("queue-pairs.svg"), `${out.join("\n")}\n`);
