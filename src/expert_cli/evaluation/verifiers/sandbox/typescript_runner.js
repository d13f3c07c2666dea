// Runs the files answer.ts and tests.ts in its folder. It writes "ready", reads one line {nonce, names, globals} from stdin, and,
// after the tests, writes the nonce with {kind, detail}. A program sees neither the nonce nor this scope, so that it cannot pass by
// ending early or printing something. The globals and modules that it shares with its tests are frozen before it begins.
const { Deno, Error, JSON, Object, Reflect, String, Symbol, Map, Set, Iterator, Intl, ArrayBuffer } = globalThis;
const { getOwnPropertyDescriptor, getPrototypeOf, ownKeys, defineProperty } = Reflect;
const { stdin, stdout, exit } = Deno;
const { stringify } = JSON;
const slice = Function.prototype.call.bind(String.prototype.slice);
const encode = TextEncoder.prototype.encode.bind(new TextEncoder());
const write = (text) => stdout.writeSync(encode(text));

write("ready\n");
const line = new Uint8Array(65536); // read in one call: the line is shorter than the buffer of a pipe
const { nonce, names, globals } = JSON.parse(new TextDecoder().decode(line.subarray(0, stdin.readSync(line))));
const modules = { __proto__: null };
for (const name of names) modules[name] = await import(`node:${name}`);

function fail(error) {
  let kind = "wrong", why = "it threw something that is no error";
  try {
    why = error instanceof Error ? `${error.name}: ${error.message}` : `it threw ${String(error)}`;
    if (error === refused || error.name === "NotCapable" || /Code generation from strings/.test(why)) kind = "refused";
    else if (/Array buffer allocation failed|Invalid string length|Invalid array buffer length|out of memory/.test(why)) kind = "too_large";
  } catch {} // reading the thrown value may throw, too: then the defaults above are used
  write(`${nonce}{"kind":"${kind}","detail":${stringify(slice(why, 0, 400))}}\n`);
  exit(1);
}
for (const event of ["error", "unhandledrejection"]) addEventListener(event, (told) => fail(told.error ?? told.reason));

// Defines a property that cannot be changed on its owner. An assignment to an object that inherits it gives that object its own.
function inherited(owner, key, value, enumerable) {
  function set(own) {
    if (this === owner) throw new TypeError(`${String(key)} is read only`);
    defineProperty(this, key, { value: own, writable: true, enumerable: true, configurable: true });
  }
  defineProperty(owner, key, { get: () => value, set, enumerable, configurable: false });
}
// Methods are not defined in this way, which would slow them down, except those that programs assign.
const ASSIGNED = ["constructor", "toString", "toLocaleString", "valueOf", "toJSON"];
function freezeFrom(roots, known) {
  for (const waiting = [...roots]; waiting.length > 0; ) {
    const one = waiting.pop();
    if ((typeof one !== "object" && typeof one !== "function") || one === null || known.has(one)) continue;
    known.add(one);
    waiting.push(getPrototypeOf(one));
    if (ArrayBuffer.isView(one)) continue; // its elements cannot be frozen
    const isPrototype = getOwnPropertyDescriptor(one, "constructor")?.value?.prototype === one;
    for (const key of ownKeys(one)) {
      try { one[key]; } catch {} // some properties are loaded when they are first read
      const { value, get, set, configurable, enumerable, writable } = getOwnPropertyDescriptor(one, key);
      waiting.push(value, get, set);
      const isAssigned = one === Object.prototype || typeof value !== "function" || ASSIGNED.includes(key);
      if (!isPrototype || !writable || !isAssigned) defineProperty(one, key, { ...(writable && { writable: false }), configurable: false });
      else if (configurable) inherited(one, key, value, enumerable);
    }
    Object.preventExtensions(one);
  }
}
// Objects that no global refers to, but that syntax creates: iterators, generators and the like.
const unnamed = [[][Symbol.iterator](), new Map().keys(), new Set().keys(), ""[Symbol.iterator](), "".matchAll(/a/g)];
unnamed.push(function* () {}, async function* () {}, async () => undefined, new Intl.Segmenter().segment(""));
unnamed.push(new Intl.Segmenter().segment("")[Symbol.iterator](), Iterator.from({ next() {} }), Iterator.from([]).map(String));

const refused = new Error("it asks for what is not there for programs");
const refuse = () => { throw refused; };
const silent = () => undefined;
const stands = {
  console: Object.fromEntries(Object.keys(console).map((name) => [name, silent])),
  require: (name) => modules[name.replace(/^node:/, "")]?.default ?? refuse(),
};
queueMicrotask(silent); // replaces itself when it is first called
const kept = Object.fromEntries(globals.filter((name) => name in globalThis).map((name) => [name, globalThis[name]]));
for (const name of Object.getOwnPropertyNames(globalThis)) if (!(name in kept)) delete globalThis[name];
Object.assign(globalThis, stands);
const known = new Set([globalThis, ...Object.values(stands)]);
const given = Object.values(modules).flatMap((one) => Object.values(one));
freezeFrom([...Object.values(kept), ...unnamed, getPrototypeOf(globalThis), ...given, stands.require], known);
for (const name in kept) defineProperty(globalThis, name, { value: kept[name], writable: false, configurable: false });
defineProperty(globalThis, "require", { writable: false, configurable: false });

// One after the other: deno parses a module that is loaded with another one on the main thread, asks /proc for the stack, and ends.
try {
  await import("./answer.ts");
  await import("./tests.ts");
  write(`${nonce}{"kind":"correct","detail":""}\n`);
} catch (error) {
  fail(error);
}
