// A rule for `deno lint`, which loads no module. It reports, as the message of one finding, what deno's parser sees in a program.
const list = (items) => [...(items ?? [])];
const bound = (node) =>
  !node ? [] : node.type === "Identifier" ? [node.name]
  : [...list(node.elements), ...list(node.properties), node.value, node.left, node.argument].flatMap(bound);
const isTop = ({ parent }) => parent.type === "Program" || (/^Export/.test(parent.type) && parent.parent.type === "Program");

function create(context) {
  const names = {}, asks = [];
  const add = (value, ...found) => found.forEach((name) => (names[name] = value || names[name] === true));
  const named = (node) => node.id?.type === "Identifier" && isTop(node) && add(!node.declare, node.id.name);
  const type = (node) => isTop(node) && add(false, node.id.name);
  const imports = (node) => node.source && asks.push(node.source.type === "Literal" ? node.source.value : null);
  return {
    FunctionDeclaration: named, TSDeclareFunction: named, ClassDeclaration: named, TSEnumDeclaration: named,
    TSInterfaceDeclaration: type, TSTypeAliasDeclaration: type,
    ExportNamedDeclaration: imports, ExportAllDeclaration: imports, ImportExpression: imports,
    ImportDeclaration(node) {
      imports(node);
      add(node.importKind !== "type", ...list(node.specifiers).map((one) => one.local.name));
    },
    TSExternalModuleReference: (node) => asks.push(node.expression.value),
    TSImportType: (node) => asks.push(node.argument.literal?.value ?? null),
    CallExpression({ callee, arguments: [first] }) {
      if (callee.type === "Identifier" && callee.name === "require") asks.push(first?.type === "Literal" ? first.value : null);
    },
    TSModuleDeclaration(node) {
      if (node.id.type !== "Identifier" || node.kind === "global") asks.push("a declaration for other programs");
      else named(node);
    },
    VariableDeclaration(node) {
      if (isTop(node)) add(!node.declare, ...list(node.declarations).flatMap((one) => bound(one.id)));
    },
    "Program:exit"(node) {
      const { text } = context.sourceCode;
      const parts = [];
      let last = 0;
      for (const { range: [start, end] } of context.sourceCode.getAllComments()) {
        parts.push(text.slice(last, start), text.slice(start, end).replace(/[^\n\r\u2028\u2029]/g, " "));
        last = end;
      }
      context.report({ node, message: JSON.stringify({ text: parts.join("") + text.slice(last), names, asks }) });
    },
  };
}

export default { name: "judge", rules: { read: { create } } };
