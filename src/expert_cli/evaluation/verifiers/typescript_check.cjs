// Type-checks TypeScript and turns it into JavaScript: node typescript_check.cjs <folder of the typescript package>
// Reads lines of {prefix, answer, tests}, writes "ready" and a line each: {kind: "ok", code} or {kind: "invalid" | "refused", why}.
// It only reads programs and never runs one. Programs see the compiler's own libraries and no other file.
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const { builtinModules } = require("node:module");
const readline = require("node:readline");
const ts = require(process.argv[2]);
const allowed = new Set(process.argv[3].split(","));

const LIBRARIES = path.join(process.argv[2], "lib").replaceAll("\\", "/");
const PROGRAM = "/answer.ts";
const AMBIENT = "/ambient.d.ts";
const OPTIONS = {
  target: ts.ScriptTarget.ES2022,
  module: ts.ModuleKind.Preserve ?? ts.ModuleKind.ESNext,
  moduleDetection: ts.ModuleDetectionKind.Force,
  strict: false,
  lib: ["lib.es2023.d.ts", "lib.dom.d.ts", "lib.dom.iterable.d.ts"],
  types: [],
  skipLibCheck: true,
};
// What node adds to the language's own library, only as far as an answer may use it.
const NODE = [
  ...[...allowed].map((name) => `declare module "${name}";`),
  "declare const require: (name: string) => any;",
  "declare const module: any;",
  "declare const exports: any;",
  "declare const process: any;",
  "declare const global: any;",
  "declare const Buffer: any;",
  "declare type Buffer = any;",
  "declare function setImmediate(run: (...items: any[]) => void, ...items: any[]): any;",
  "declare function clearImmediate(id: any): void;",
  "declare namespace NodeJS { type Timeout = ReturnType<typeof setTimeout>; }",
].join("\n");

const kept = new Map([[AMBIENT, ts.createSourceFile(AMBIENT, NODE, OPTIONS.target)]]);
let program;

function library(name) {
  return name.startsWith(`${LIBRARIES}/lib.`) && !name.includes("..") && fs.existsSync(name);
}

function host(text) {
  // Every program is a module, as it is when it runs: its names are its own, and it may wait at the top.
  const setExternalModuleIndicator = (made) => {
    made.externalModuleIndicator = true;
  };
  const file = ts.createSourceFile(PROGRAM, text, { languageVersion: OPTIONS.target, setExternalModuleIndicator }, true);
  const source = (name) => {
    if (name === PROGRAM) return file;
    if (!kept.has(name)) {
      if (!library(name)) return undefined;
      kept.set(name, ts.createSourceFile(name, fs.readFileSync(name, "utf8"), OPTIONS.target));
    }
    return kept.get(name);
  };
  return {
    getSourceFile: source,
    fileExists: (name) => name === PROGRAM || kept.has(name) || library(name),
    readFile: (name) => source(name)?.text,
    directoryExists: () => false,
    getDirectories: () => [],
    getDefaultLibFileName: () => `${LIBRARIES}/lib.d.ts`,
    getDefaultLibLocation: () => LIBRARIES,
    getCurrentDirectory: () => "/",
    getCanonicalFileName: (name) => name,
    useCaseSensitiveFileNames: () => true,
    getNewLine: () => "\n",
    writeFile: () => undefined,
  };
}

function reached(text) {
  const names = ts.preProcessFile(text, true, true).importedFiles.map((file) => file.fileName);
  return names.find((name) => builtinModules.includes(name.replace(/^node:/, "")) && !allowed.has(name));
}

// The first error at or behind `from`: what a case gives before the answer is not the answer's fault.
function first(diagnostics, text, from) {
  const found = diagnostics.find((one) => one.category === ts.DiagnosticCategory.Error && (one.start ?? from) >= from);
  if (found === undefined) return null;
  const line = text.slice(from, found.start ?? from).split("\n").length;
  return { line, why: `TS${found.code}: ${ts.flattenDiagnosticMessageText(found.messageText, " ")}` };
}

function complaint(text, from) {
  program = ts.createProgram([AMBIENT, PROGRAM], OPTIONS, host(text), program);
  const file = program.getSourceFile(PROGRAM);
  return first(program.getSyntacticDiagnostics(file), text, from) ?? first(program.getSemanticDiagnostics(file), text, from);
}

// Whether the text stands by itself: the tests must not close what the answer leaves open.
function broken(text, from) {
  const made = ts.transpileModule(text, { compilerOptions: OPTIONS, fileName: PROGRAM, reportDiagnostics: true });
  return first(made.diagnostics, text, from);
}

function check({ prefix, answer, tests }) {
  const module = reached(prefix + answer);
  if (module !== undefined) return { kind: "refused", why: `it asks for the module ${module}` };
  const text = `${prefix}${answer}\n${tests}`;
  const from = prefix.length;
  const found = broken(prefix + answer, from) ?? complaint(text, from);
  if (found !== null) {
    const lines = answer.split("\n").length;
    const place = found.line > lines ? "in the tests" : `line ${found.line}`;
    return { kind: "invalid", why: `${place}: ${found.why}` };
  }
  const made = ts.transpileModule(text, { compilerOptions: OPTIONS, fileName: PROGRAM });
  return { kind: "ok", code: made.outputText };
}

process.stdout.write("ready\n");
readline.createInterface({ input: process.stdin }).on("line", (line) => {
  let reply;
  try {
    reply = check(JSON.parse(line));
  } catch (error) {
    // The compiler itself gave up, for example on brackets nested too deeply.
    program = undefined;
    reply = { kind: "invalid", why: `the compiler gave up: ${error.message}` };
  }
  process.stdout.write(`${JSON.stringify(reply)}\n`);
});
