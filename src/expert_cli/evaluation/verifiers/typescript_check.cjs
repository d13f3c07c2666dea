// Type-checks TypeScript and turns it into JavaScript:
//   node typescript_check.cjs <folder of the typescript package> <modules that may be used> <names tests take from no answer>
// Reads lines of {prefix, answer, tests}, writes "ready" and a line each: {kind: "ok", answer, tests}, the two modules as
// JavaScript, or {kind: "invalid" | "refused", why}. It only reads programs and never runs one. Programs see the compiler's
// own libraries and no other file.
//
// Answer and tests are a module each. The tests import what they use of the answer's names, exported or not.
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const { builtinModules } = require("node:module");
const readline = require("node:readline");
const ts = require(process.argv[2]);
const [allowed, apart] = process.argv.slice(3).map((names) => new Set(names.split(",")));

const LIBRARIES = path.join(process.argv[2], "lib").replaceAll("\\", "/");
const ANSWER = "/answer.ts";
const TESTS = "/tests.ts";
const AMBIENT = "/ambient.d.ts";
const NO_MODULE = 2307;
const OPTIONS = {
  target: ts.ScriptTarget.ES2022,
  module: ts.ModuleKind.Preserve ?? ts.ModuleKind.ESNext,
  moduleDetection: ts.ModuleDetectionKind.Force,
  strict: false,
  lib: ["lib.es2023.d.ts", "lib.dom.d.ts", "lib.dom.iterable.d.ts"],
  types: [],
  skipLibCheck: true,
};
// What node adds to the language's own library. Modules that are refused when they are used have types like the others.
const NODE = [
  ...builtinModules.filter((name) => !name.startsWith("node:")).map((name) => `declare module "${name}";`),
  'declare module "node:*";',
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

// Both are modules, as they are when they run: their names are their own, and they may wait at the top.
function parsed(name, text) {
  const setExternalModuleIndicator = (made) => {
    made.externalModuleIndicator = true;
  };
  return ts.createSourceFile(name, text, { languageVersion: OPTIONS.target, setExternalModuleIndicator }, true);
}

function host(files) {
  const source = (name) => {
    if (files.has(name)) return files.get(name);
    if (!kept.has(name)) {
      if (!library(name)) return undefined;
      kept.set(name, ts.createSourceFile(name, fs.readFileSync(name, "utf8"), OPTIONS.target));
    }
    return kept.get(name);
  };
  const found = { resolvedModule: { resolvedFileName: ANSWER, extension: ts.Extension.Ts } };
  return {
    getSourceFile: source,
    fileExists: (name) => files.has(name) || kept.has(name) || library(name),
    readFile: (name) => source(name)?.text,
    resolveModuleNameLiterals: (literals, from) =>
      literals.map(({ text }) => (text === "./answer" && from === TESTS ? found : { resolvedModule: undefined })),
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

// What a module declares at its top, `var` inside blocks too: names, and whether each stands for a value when it runs.
function declared(file) {
  const names = new Map();
  const add = (name, value) => {
    if (name?.elements !== undefined) for (const one of name.elements) add(one.name, value);
    else if (name !== undefined && ts.isIdentifier(name)) names.set(name.text, value || names.get(name.text) === true);
  };
  const hoisted = (node) => {
    if (ts.isFunctionLike(node) || ts.isClassLike(node)) return;
    if (ts.isVariableDeclarationList(node) && !(node.flags & ts.NodeFlags.BlockScoped)) {
      for (const one of node.declarations) add(one.name, true);
    }
    ts.forEachChild(node, hoisted);
  };
  for (const one of file.statements) {
    const ambient = one.modifiers?.some((modifier) => modifier.kind === ts.SyntaxKind.DeclareKeyword) ?? false;
    const typed = ts.isInterfaceDeclaration(one) || ts.isTypeAliasDeclaration(one);
    if (ts.isImportDeclaration(one)) {
      const { name, namedBindings } = one.importClause ?? {};
      add(name, true);
      add(namedBindings?.name ?? namedBindings, true);
    } else if (ts.isVariableStatement(one)) {
      if (!ambient) for (const { name } of one.declarationList.declarations) add(name, true);
    } else if (ts.isFunctionDeclaration(one)) {
      if (!ambient) add(one.name, true);
    } else if (!ts.isDeclarationStatement(one)) {
      hoisted(one);
    } else if (!(one.flags & ts.NodeFlags.GlobalAugmentation)) {
      add(one.name, !ambient && !typed);
    }
  }
  return names;
}

// `export =` leaves no room for other exports: its value is only computed.
function withoutAssignment(text, file) {
  const found = file.statements.find((one) => ts.isExportAssignment(one) && one.isExportEquals);
  if (found === undefined) return text;
  const [start, end] = [found.getStart(file), found.expression.getStart(file)];
  return `${text.slice(0, start)}${"void".padEnd(end - start)}${text.slice(end)}`;
}

// The two modules as they are checked. Nothing is added before a line of the answer or the tests, so lines stay.
function modules({ prefix, answer, tests }) {
  const [first, second] = [parsed(ANSWER, prefix + answer), parsed(TESTS, tests)];
  const own = declared(second);
  const shared = [...declared(first)].filter(
    ([name]) => second.identifiers.has(name) && !own.has(name) && !apart.has(name),
  );
  const exported = shared.map(([name, value]) => `${value ? "" : "type "}${name} as __answer_${name}`);
  const imported = shared.map(([name]) => `__answer_${name} as ${name}`);
  const file = parsed(ANSWER, `${withoutAssignment(prefix + answer, first)}\nexport { ${exported.join(", ")} };`);
  // What switches the check off is the case's to write and not the answer's.
  const given = (start) => start < prefix.length;
  file.commentDirectives = file.commentDirectives?.filter((one) => given(one.range.pos));
  if (!given(file.checkJsDirective?.pos ?? 0)) file.checkJsDirective = undefined;
  const head = imported.length === 0 ? "" : `import { ${imported.join(", ")} } from "./answer"; `;
  return new Map([[ANSWER, file], [TESTS, parsed(TESTS, head + tests)]]);
}

// Of a module as JavaScript, the modules that are still asked for: the compiler drops imports that nothing uses.
function reached(code) {
  return new Set(ts.preProcessFile(code, true, true).importedFiles.map((file) => file.fileName));
}

function emitted(file) {
  let code = "";
  program.emit(file, (_, text) => {
    code = text;
  });
  return code;
}

// The first error at or behind `from`: what a case gives before the answer is not the answer's fault.
function first(diagnostics, { text }, from, used) {
  const counts = ({ category, code, start, length }) =>
    category === ts.DiagnosticCategory.Error &&
    (start ?? from) >= from &&
    (code !== NO_MODULE || used === undefined || used.has(text.slice(start + 1, start + length - 1)));
  const found = diagnostics.find(counts);
  if (found === undefined) return null;
  const line = text.slice(from, found.start ?? from).split("\n").length;
  return `line ${line}: TS${found.code}: ${ts.flattenDiagnosticMessageText(found.messageText, " ")}`;
}

function check(request) {
  const files = modules(request);
  program = ts.createProgram([AMBIENT, ANSWER, TESTS], OPTIONS, host(files), program);
  const [answer, tests] = [ANSWER, TESTS].map((name) => program.getSourceFile(name));
  const from = request.prefix.length;
  const broken =
    first(program.getSyntacticDiagnostics(answer), answer, from) ??
    testing(first(program.getSyntacticDiagnostics(tests), tests, 0));
  if (broken !== null) return { kind: "invalid", why: broken };
  const code = { answer: emitted(answer), tests: emitted(tests) };
  const used = reached(code.answer);
  const refused = [...used].find((name) => builtinModules.includes(name.replace(/^node:/, "")) && !allowed.has(name));
  if (refused !== undefined) return { kind: "refused", why: `it asks for the module ${refused}` };
  const wrong =
    first(program.getSemanticDiagnostics(answer), answer, from, used) ??
    testing(first(program.getSemanticDiagnostics(tests), tests, 0));
  return wrong === null ? { kind: "ok", ...code } : { kind: "invalid", why: wrong };
}

function testing(fault) {
  return fault === null ? null : `in the tests, ${fault}`;
}

// The first program costs more than all others: the libraries are read.
check({ prefix: "", answer: "export const ready = [1].map(String);", tests: "void ready;" });
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
