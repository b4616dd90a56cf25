// The editor: TOML with completion, hover help and errors in place.
import { autocompletion, closeBrackets, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { HighlightStyle, StreamLanguage, syntaxHighlighting } from "@codemirror/language";
import { toml } from "@codemirror/legacy-modes/mode/toml";
import { lintGutter, setDiagnostics } from "@codemirror/lint";
import { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
import { EditorState } from "@codemirror/state";
import { EditorView, highlightActiveLine, hoverTooltip, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useRef } from "preact/hooks";
import { at, choices, facts, inlineAt, tableAt } from "./schema.js";

const look = EditorView.theme({
  "&": { color: "var(--ink)", backgroundColor: "var(--ground)", fontSize: "13px", height: "var(--height)" },
  "&.cm-focused": { outline: "2px solid var(--accent)" },
  ".cm-scroller": { fontFamily: 'ui-monospace, "Liberation Mono", monospace', lineHeight: "1.5" },
  ".cm-content": { caretColor: "var(--ink)" },
  ".cm-gutters": { backgroundColor: "var(--panel)", color: "var(--soft)", borderRight: "1px solid var(--rule)" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "color-mix(in srgb, var(--accent) 9%, transparent)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "color-mix(in srgb, var(--accent) 28%, transparent) !important" },
  ".cm-tooltip": { backgroundColor: "var(--panel)", color: "var(--ink)", border: "1px solid var(--rule)" },
  ".cm-tooltip .help": { padding: "6px 10px", maxWidth: "32rem", fontFamily: "system-ui, sans-serif" },
  ".cm-tooltip .help p": { margin: "2px 0" },
  ".cm-tooltip .help small": { display: "block", color: "var(--soft)" },
  ".cm-completionInfo": { whiteSpace: "pre-wrap", maxWidth: "26rem" },
  ".cm-panels": { backgroundColor: "var(--panel)", color: "var(--ink)" },
  ".t-comment": { color: "var(--soft)" },
  ".t-string": { color: "var(--string)" },
  ".t-number": { color: "var(--number)" },
  ".t-key": { color: "var(--accent)" },
});

const colours = HighlightStyle.define([
  { tag: tags.comment, class: "t-comment" },
  { tag: [tags.string, tags.special(tags.string)], class: "t-string" },
  { tag: [tags.number, tags.bool, tags.atom], class: "t-number" },
  { tag: [tags.propertyName, tags.definition(tags.variableName)], class: "t-key" },
]);

const place = (state, pos) => {
  const line = state.doc.lineAt(pos);
  const lines = state.doc.toString().split("\n");
  const table = tableAt(lines, line.number - 1);
  const before = line.text.slice(0, pos - line.from);
  return { line, before, path: table.line === line.number - 1 ? [] : [...table.path, ...inlineAt(before)] };
};

const complete = (schema) => (context) => {
  const { before, path } = place(context.state, context.pos);
  if (!schema.current || before.includes("#")) return null;
  const inTable = before.match(/^\s*\[\[?([\w.-]*)$/);
  const value = before.match(/([\w.-]+)\s*=\s*"?([\w.-]*)$/);
  const word = inTable?.[1] ?? (value ? value[2] : before.match(/[\w.-]*$/)[0]);
  if (!word && !context.explicit && !value && !inTable) return null;
  if (value && !inTable) {
    const node = at(schema.current, [...path, ...value[1].split(".")]);
    const quoted = before.endsWith(`"${word}`);
    const options = choices(node).map((choice) => ({
      label: String(choice.value), info: choice.info, type: "enum",
      apply: typeof choice.value === "string" && !quoted ? `"${choice.value}"` : String(choice.value),
    }));
    return options.length ? { from: context.pos - word.length, options } : null;
  }
  const parts = word.split(".");
  const inner = [...(inTable ? [] : path), ...parts.slice(0, -1)];
  const node = at(schema.current, inner);
  const options = Object.keys(node?.properties ?? {}).map((key) => {
    const below = at(schema.current, [...inner, key]);
    const text = [below?.description, below ? facts(below) : ""].filter(Boolean).join("\n");
    return { label: key, info: text, type: below?.properties ? "namespace" : "property", apply: inTable || below?.properties ? key : `${key} = ` };
  });
  return { from: context.pos - parts.at(-1).length, options, validFor: /^[\w-]*$/ };
};

const hover = (schema) => hoverTooltip((view, pos) => {
  const { line, path } = place(view.state, pos);
  const column = pos - line.from;
  const found = [...line.text.matchAll(/[A-Za-z_][\w.-]*/g)].find((word) => word.index <= column && column <= word.index + word[0].length);
  if (!found || !schema.current) return null;
  const inner = place(view.state, line.from + found.index).path;
  const key = found[0].split(".");
  const node = at(schema.current, [...(inner ?? path), ...key]) ?? at(schema.current, key);
  if (!node?.description) return null;
  return {
    pos: line.from + found.index,
    end: line.from + found.index + found[0].length,
    above: true,
    create: () => {
      const dom = document.createElement("div");
      dom.className = "help";
      for (const [tag, text] of [["b", [...inner, ...key].join(".")], ["p", node.description], ["small", facts(node)], ["small", choices(node).map((c) => c.value).join(" | ")]]) {
        if (text) dom.append(Object.assign(document.createElement(tag), { textContent: text }));
      }
      return { dom };
    },
  };
});

const diagnostics = (state, problems) => problems.filter((problem) => problem.line && problem.line <= state.doc.lines).map((problem) => {
  const line = state.doc.line(problem.line);
  const from = Math.min(line.from + Math.max((problem.column ?? 1) - 1, 0), line.to);
  const word = state.doc.sliceString(from, line.to).match(/^[\w.-]+|^"[^"]*"?|^\S+/)?.[0] ?? "";
  const to = from + word.length || line.to;
  const message = problem.help ? `${problem.message}\n→ ${problem.help}` : problem.message;
  return { from: to === from ? line.from : from, to, severity: "error", message };
});

export const Editor = ({ text, onChange, problems, schema, view: out }) => {
  const holder = useRef();
  const known = useRef();
  known.current = schema;
  const changed = useRef();
  changed.current = onChange;
  // What was typed here comes back as `text`, later: by then more may have been typed, and putting
  // the older text back would be another change, and so on for ever.
  const typed = useRef(new Set());
  useEffect(() => {
    // In a shadow root the editor's styles are sheets of the script, which the policy of the page
    // allows; as elements they would be refused.
    const root = holder.current.attachShadow({ mode: "open" });
    const parent = document.createElement("div");
    root.append(parent);
    const view = new EditorView({
      parent,
      root,
      state: EditorState.create({
        doc: text,
        extensions: [
          look, lineNumbers(), lintGutter(), history(), closeBrackets(), highlightActiveLine(), highlightSelectionMatches(),
          StreamLanguage.define(toml), syntaxHighlighting(colours),
          EditorView.lineWrapping, autocompletion({ override: [complete(known)], icons: false }), hover(known),
          keymap.of([...completionKeymap, ...defaultKeymap, ...historyKeymap, ...searchKeymap, indentWithTab]),
          EditorView.contentAttributes.of({ "aria-label": "scenario as TOML", "aria-describedby": "problems", tabindex: "0" }),
          EditorView.updateListener.of((update) => {
            if (!update.docChanged) return;
            typed.current.add(update.state.doc.toString());
            changed.current(update.state.doc.toString());
          }),
        ],
      }),
    });
    out.current = view;
    return () => view.destroy();
  }, []);
  useEffect(() => {
    const view = out.current;
    if (!view) return;
    const is = view.state.doc.toString();
    if (is === text) typed.current.clear();
    else if (!typed.current.has(text)) {
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } });
      typed.current.clear();
    }
  }, [text]);
  useEffect(() => {
    const view = out.current;
    if (view) view.dispatch(setDiagnostics(view.state, diagnostics(view.state, problems)));
  }, [problems]);
  return <div class="editor" ref={holder} />;
};
