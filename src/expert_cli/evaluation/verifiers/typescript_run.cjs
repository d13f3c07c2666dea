// Runs an answer and its tests: node -e <this text>, one line {answer, tests: two modules, typescript, secret, and
// names: allowed (modules), language and node (globals)} on stdin.
// Writes "ready", then {secret, kind: "correct" | "wrong" | "invalid" | "refused", why}. It ends well only if the tests were
// evaluated to their end and nothing that was started failed. The program does not see `process`, the secret or this scope,
// so that leaving early or printing something is no success. The system's limits around this process are the real walls.
//
// Answer, tests and this text have the same language objects: they are frozen before the answer begins. What still is the
// program's to change is no part of a verdict; a thrown value, where it is asked for its words, can only make another failure.
"use strict";

(() => {
  const { readFileSync, writeSync } = require("node:fs");
  const { SourceTextModule, SyntheticModule } = require("node:vm");
  const { builtinModules, stripTypeScriptTypes } = require("node:module");
  const { String, Error } = globalThis;
  const { parse, stringify } = JSON;
  const { defineProperty, freeze, fromEntries, getOwnPropertyNames, keys } = Object;
  const { getOwnPropertyDescriptor, getPrototypeOf, ownKeys, preventExtensions } = Reflect;
  const slice = Function.prototype.call.bind(String.prototype.slice);

  const exit = process.reallyExit.bind(process);
  const nextTick = process.nextTick.bind(process);
  const { platform, version, versions, hrtime, memoryUsage, uptime } = process;

  writeSync(1, "ready\n");
  const { answer, tests, typescript, secret, allowed, language, node } = parse(readFileSync(0, "utf8"));
  let finished = false;

  // Both are texts: of an object, stringify would ask for its toJSON.
  function reply(kind, why) {
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
    reply(kind, why);
  }

  // Node tells the process what ends a program.
  function emit(event, reason) {
    if (event === "uncaughtException" || event === "unhandledRejection") fail(reason);
    if (event === "beforeExit" && finished) reply("correct", "");
    if (event === "beforeExit") reply("wrong", "it waits for something that never comes");
    return false;
  }

  const modules = { __proto__: null };
  for (const name of allowed) modules[name] = require(name);

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

  // What no global names, but syntax gives: iterators, generators and their like.
  function unnamed() {
    const made = [[][Symbol.iterator](), new Map().keys(), new Set().keys(), ""[Symbol.iterator](), "".matchAll(/a/g)];
    made.push(function* () {}, async function* () {}, async () => undefined);
    if (globalThis.Intl?.Segmenter !== undefined) {
      const parts = new Intl.Segmenter().segment("");
      made.push(parts, parts[Symbol.iterator]());
    }
    if (globalThis.Iterator?.from !== undefined) {
      const wrapped = Iterator.from({ next: () => ({ done: true }) });
      made.push(wrapped, wrapped.map(() => undefined));
    }
    return made;
  }

  // A property that nobody changes where it stands, while what inherits it may be given its own by an assignment.
  function inherited(owner, key, value, enumerable) {
    function set(own) {
      if (this === owner) throw new TypeError(`${String(key)} is read only`);
      defineProperty(this, key, { value: own, writable: true, enumerable: true, configurable: true });
    }
    defineProperty(owner, key, { get: () => value, set, enumerable, configurable: false });
  }

  // Which inherited properties programs often set. Of the language they are few: a getter costs time with every call.
  const SET_OFTEN = ["toString", "toLocaleString", "valueOf", "toJSON", "name", "message"];
  function assignable(owner, key, ofLanguage) {
    if (key === "constructor") return owner instanceof Error || owner === Error.prototype;
    return !ofLanguage || owner === Object.prototype || SET_OFTEN.includes(key);
  }

  function close(owner, key) {
    const fixed = "value" in getOwnPropertyDescriptor(owner, key) ? { writable: false } : {};
    defineProperty(owner, key, { ...fixed, configurable: false });
  }

  // Freezes all that the roots lead to. Of Node's own, properties stay open that load a part when first asked for, and those
  // of a prototype that its objects set; to its functions Node adds more.
  function freezeFrom(roots, known, ofLanguage) {
    const waiting = [...roots];
    while (waiting.length > 0) {
      const one = waiting.pop();
      if ((typeof one !== "object" && typeof one !== "function") || one === null || known.has(one)) continue;
      known.add(one);
      waiting.push(getPrototypeOf(one));
      const isPrototype = getOwnPropertyDescriptor(one, "constructor")?.value?.prototype === one;
      const isClass = getOwnPropertyDescriptor(one, "prototype")?.writable === false;
      const closed = ownKeys(one).filter((key) => {
        const { value, get, set, configurable, enumerable, writable } = getOwnPropertyDescriptor(one, key);
        waiting.push(value, get, set);
        if (writable && isPrototype && assignable(one, key, ofLanguage)) {
          if (configurable) inherited(one, key, value, enumerable);
          return configurable;
        }
        return ofLanguage || isPrototype || (get === undefined && set === undefined);
      });
      // At once where it can be: changed one by one, V8 no longer takes arrays for the language's own, and walks them slowly.
      if (ofLanguage) freeze(one);
      else for (const key of closed) close(one, key);
      if (isClass || typeof one === "object") preventExtensions(one);
    }
  }

  // Console and process are stand-ins, which tests may set parts of.
  function freezeShared(spared) {
    const known = new Set(spared);
    freezeFrom([...language.map((name) => globalThis[name]), ...unnamed(), getPrototypeOf(globalThis)], known, true);
    freezeFrom([...node.map((name) => globalThis[name]), ...keys(modules).map((name) => modules[name])], known, false);
    for (const name of [...language, ...node, "require"]) {
      if (name in globalThis) defineProperty(globalThis, name, { value: globalThis[name], writable: false, configurable: false });
    }
  }

  // A text given to node with -e sees every built-in module as a global; the program must not.
  function quiet() {
    const silent = () => undefined;
    const names = keys(console).filter((key) => typeof console[key] === "function");
    const seen = [...language, ...node];
    for (const key of getOwnPropertyNames(globalThis)) if (!seen.includes(key)) delete globalThis[key];
    globalThis.console = fromEntries(names.map((key) => [key, silent]));
    const stream = { write: () => true, isTTY: false };
    const leave = () => load("process");
    globalThis.process = {
      env: {}, argv: ["node", "answer"], platform, version, versions, hrtime, memoryUsage, uptime, nextTick,
      exit: leave, abort: leave, kill: leave, cwd: () => "/", on: silent, once: silent, stdout: stream, stderr: stream,
    };
    globalThis.require = load;
    globalThis.module = { exports: {} };
    globalThis.exports = globalThis.module.exports;
  }

  async function main() {
    defineProperty(process, "emit", { value: emit });
    const [first, second] = [answer, tests].map((text) =>
      typescript ? stripTypeScriptTypes(text, { mode: "transform" }) : text,
    );
    // Node sets the global `module` once more when this text has run to its end.
    await new Promise(setImmediate);
    const own = process;
    quiet();
    freezeShared([globalThis, globalThis.process, globalThis.console, globalThis.module, own]);
    const options = (identifier) => ({ identifier, importModuleDynamically: linked });
    const judged = new SourceTextModule(first, options("answer"));
    await judged.link(link);
    await judged.evaluate();
    const judging = new SourceTextModule(second, options("tests"));
    await judging.link((name) => (name === "./answer" ? judged : link(name)));
    await judging.evaluate();
    finished = true;
  }

  main().catch(fail);
})();
