// Runs one program: node -e <this text>, one line {code, typescript, secret, allowed} on stdin.
// Writes "ready", then {secret, kind: "correct" | "wrong" | "invalid" | "refused", why}. It ends well only if the module
// was evaluated to its end and nothing it started failed. The program does not see `process`, the secret or this scope,
// so that leaving early or printing something is no success. The system's limits around this process are the real walls.
//
// The program has the same language objects as this text and may change any of them. From its start on, what this text
// says rests on functions taken before, on texts and on variables of its own; where it does ask the language or a thrown
// value, the reply can only be another failure.
"use strict";

(() => {
  const { readFileSync, writeSync } = require("node:fs");
  const { SourceTextModule, SyntheticModule } = require("node:vm");
  const { builtinModules, stripTypeScriptTypes } = require("node:module");
  const { String, Error } = globalThis;
  const { parse, stringify } = JSON;
  const { defineProperty, freeze, fromEntries, getOwnPropertyNames, keys } = Object;
  const slice = Function.prototype.call.bind(String.prototype.slice);

  const exit = process.reallyExit.bind(process);
  const nextTick = process.nextTick.bind(process);
  const { platform, version, versions, hrtime, memoryUsage, uptime } = process;

  writeSync(1, "ready\n");
  const { code, typescript, secret, allowed } = parse(readFileSync(0, "utf8"));
  let finished = false;

  // Both are texts: of an object, stringify would ask for its toJSON.
  function answer(kind, why) {
    writeSync(1, `{"secret":"${secret}","kind":"${kind}","why":${stringify(slice(why, 0, 400))}}\n`);
    exit(0);
  }

  function fail(error) {
    finished = false;
    let kind = "wrong";
    let why = "it threw something that is no error";
    try {
      why = error instanceof Error ? `${error.name}: ${error.message}` : `it threw ${String(error)}`;
      const text = String(error.code);
      if (text === "EXPERT_REFUSED" || text === "ERR_ACCESS_DENIED" || /Code generation from strings/.test(why)) {
        kind = "refused";
      } else if (text === "EXPERT_UNKNOWN") {
        kind = "invalid";
      } else if (/Array buffer allocation failed|Invalid string length|Failed to allocate memory/.test(why)) {
        kind = "too_large";
      }
    } catch {
      // A trap in the thrown value: the words above stand.
    }
    answer(kind, why);
  }

  // Node tells the process what ends a program. What other emitters inherit is the program's to change.
  function emit(event, reason) {
    if (event === "uncaughtException" || event === "unhandledRejection") fail(reason);
    if (event === "beforeExit" && finished) answer("correct", "");
    if (event === "beforeExit") answer("wrong", "it waits for something that never comes");
    return false;
  }

  // What a wait for a promise asks for: changed, a module that failed would seem to have come to its end.
  function keepPromises() {
    for (const key of ["constructor", "then"]) {
      defineProperty(Promise.prototype, key, { writable: false, configurable: false });
    }
  }

  const modules = { __proto__: null };
  for (const name of allowed) {
    modules[name] = require(name);
    // Tests and answer share these modules: nobody changes what an assertion does.
    for (const part of [modules[name], modules[name].prototype, modules[name].strict]) {
      if (part && /^(node:)?assert/.test(name)) freeze(part);
    }
  }

  function load(name) {
    if (modules[name] !== undefined) return modules[name];
    const own = builtinModules.includes(name.replace(/^node:/, ""));
    const error = new Error(own ? `it asks for the module ${name}` : `there is no module ${name}`);
    error.code = own ? "EXPERT_REFUSED" : "EXPERT_UNKNOWN";
    throw error;
  }

  function link(name) {
    const loaded = load(name);
    const names = keys(loaded).filter((key) => key !== "default");
    return new SyntheticModule(["default", ...names], function () {
      this.setExport("default", loaded);
      for (const key of names) this.setExport(key, loaded[key]);
    });
  }

  // A namespace, since the program could wait for a module by a `then` of its own.
  async function linked(name) {
    const made = link(name);
    await made.link(() => undefined);
    await made.evaluate();
    return made.namespace;
  }

  // What a program sees of Node: nothing that opens a connection or reads a file. All else goes, whatever a version brings.
  const seen = [
    ...["Object", "Function", "Array", "Number", "Boolean", "String", "Symbol", "BigInt", "Date", "Promise", "RegExp"],
    ...["Error", "AggregateError", "EvalError", "RangeError", "ReferenceError", "SuppressedError", "SyntaxError"],
    ...["TypeError", "URIError", "Math", "JSON", "Intl", "Reflect", "Proxy", "Atomics", "Iterator", "globalThis"],
    ...["Map", "Set", "WeakMap", "WeakSet", "WeakRef", "FinalizationRegistry", "DisposableStack", "AsyncDisposableStack"],
    ...["ArrayBuffer", "SharedArrayBuffer", "DataView", "Int8Array", "Uint8Array", "Uint8ClampedArray", "Int16Array"],
    ...["Uint16Array", "Int32Array", "Uint32Array", "BigInt64Array", "BigUint64Array", "Float16Array", "Float32Array"],
    ...["Float64Array", "parseFloat", "parseInt", "isNaN", "isFinite", "decodeURI", "decodeURIComponent", "encodeURI"],
    ...["encodeURIComponent", "escape", "unescape", "eval", "Infinity", "NaN", "undefined", "global"],
    ...["Buffer", "URL", "URLSearchParams", "TextEncoder", "TextDecoder", "AbortController", "AbortSignal", "Event"],
    ...["EventTarget", "DOMException", "atob", "btoa", "crypto", "performance", "structuredClone", "queueMicrotask"],
    ...["setTimeout", "setInterval", "setImmediate", "clearTimeout", "clearInterval", "clearImmediate"],
  ];

  // A text given to node with -e sees every built-in module as a global; the program must not.
  function quiet() {
    const silent = () => undefined;
    const names = keys(console).filter((key) => typeof console[key] === "function");
    for (const key of getOwnPropertyNames(globalThis)) if (!seen.includes(key)) delete globalThis[key];
    globalThis.console = fromEntries(names.map((key) => [key, silent]));
    const stream = { write: () => true, isTTY: false };
    const leave = () => load("process");
    globalThis.process = {
      env: {}, argv: ["node", "answer"], platform, version, versions, hrtime, memoryUsage, uptime, nextTick,
      exit: leave, abort: leave, kill: leave, cwd: () => "/", on: silent, once: silent, stdout: stream, stderr: stream,
    };
    globalThis.require = load;
  }

  async function main() {
    defineProperty(process, "emit", { value: emit });
    const source = typescript ? stripTypeScriptTypes(code, { mode: "transform" }) : code;
    // Node sets the global `module` once more when this text has run to its end.
    await new Promise(setImmediate);
    quiet();
    keepPromises();
    const module = new SourceTextModule(source, { identifier: "answer", importModuleDynamically: linked });
    await module.link(link);
    await module.evaluate();
    finished = true;
  }

  main().catch(fail);
})();
