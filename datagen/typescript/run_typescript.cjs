// Type-checks and runs TypeScript rows: node run_typescript.cjs <folder of the typescript package> < rows.json
// Reads [{output, test}], writes one entry a row: null, or why the row failed. One process serves all rows.
"use strict";

const fs = require("node:fs");
const vm = require("node:vm");
const ts = require(process.argv[2]);

const LIMIT_MS = 2000;
const AMBIENT = `
declare module "node:assert" {
  export function deepStrictEqual(actual: unknown, expected: unknown): void;
  export function throws(run: () => unknown, error: new () => Error): void;
  export function rejects(run: Promise<unknown>, error: object): Promise<void>;
}
declare function setTimeout(run: () => void, ms?: number): unknown;
declare const console: { log(...items: unknown[]): void };
`;
const OPTIONS = {
  target: ts.ScriptTarget.ES2022,
  module: ts.ModuleKind.ES2022,
  lib: ["lib.es2022.d.ts"],
  strict: true,
  types: [],
};

function program(sources) {
  const host = ts.createCompilerHost(OPTIONS);
  const readFile = host.getSourceFile;
  host.getSourceFile = (name, ...rest) =>
    sources.has(name) ? ts.createSourceFile(name, sources.get(name), OPTIONS.target) : readFile(name, ...rest);
  host.fileExists = (name) => sources.has(name) || ts.sys.fileExists(name);
  return ts.createProgram([...sources.keys()], OPTIONS, host);
}

function complaint(checked, name) {
  const file = checked.getSourceFile(name);
  const found = [...checked.getSyntacticDiagnostics(file), ...checked.getSemanticDiagnostics(file)];
  return found.length === 0 ? null : `type check: ${ts.flattenDiagnosticMessageText(found[0].messageText, " ")}`;
}

// What a row leaves behind and nobody waits for is the fault of the row that runs.
let unhandled = () => undefined;
process.on("unhandledRejection", (error) => unhandled(error));

async function run(source) {
  const code = ts.transpileModule(source, { compilerOptions: { ...OPTIONS, module: ts.ModuleKind.CommonJS } }).outputText;
  const wrapped = vm.runInThisContext(`(async function (require, exports) {${code}\n})`, { timeout: LIMIT_MS });
  globalThis.__row = () => wrapped(require, {});
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error("time limit")), LIMIT_MS);
    unhandled = reject;
  });
  try {
    await Promise.race([vm.runInThisContext("__row()", { timeout: LIMIT_MS }), late]);
  } finally {
    clearTimeout(timer);
  }
}

async function main() {
  const rows = JSON.parse(fs.readFileSync(0, "utf8"));
  const sources = new Map([["/ambient.d.ts", AMBIENT]]);
  rows.forEach((row, i) => sources.set(`/row${i}.ts`, `${row.output}\n${row.test}\nexport {};`));
  const checked = program(sources);
  const reasons = [];
  for (let i = 0; i < rows.length; i++) {
    const name = `/row${i}.ts`;
    let reason = complaint(checked, name);
    if (reason === null) {
      try {
        await run(sources.get(name));
      } catch (error) {
        reason = `test: ${String(error?.message ?? error).split("\n")[0]}`;
      }
    }
    reasons.push(reason);
  }
  process.stdout.write(JSON.stringify(reasons));
}

main();
