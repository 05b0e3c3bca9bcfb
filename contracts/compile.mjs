// Compiles the contracts with the pinned compiler and writes artifacts/*.json; with --check, compares instead.
// In: *.sol here and @openzeppelin/contracts. Out: one file a contract: abi, bytecode, hash of the deployed code.
// Run: npm ci && npm run compile. The same sources give the same bytes on any machine.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, mkdirSync, writeFileSync, existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import solc from "solc";

const CONTRACTS = ["Credits", "Registry", "Pools", "Ledger", "Court", "Jury"];
const SETTINGS = {
  evmVersion: "cancun",
  optimizer: { enabled: true, runs: 200 },
  metadata: { bytecodeHash: "none", appendCBOR: false },
  outputSelection: { "*": { "*": ["abi", "evm.bytecode.object", "evm.deployedBytecode"] } },
};
const MAX_CODE_BYTES = 24576; // EIP-170

const here = dirname(fileURLToPath(import.meta.url));

function readImport(path) {
  const file = join(here, "node_modules", path);
  return existsSync(file) ? { contents: readFileSync(file, "utf8") } : { error: `no file ${path}` };
}

// A library's warning about its own reviewed code (transient storage in the reentrancy guard) isn't ours to fix.
function isOurs(message) {
  return message.severity === "error" || !message.sourceLocation?.file.startsWith("@openzeppelin/");
}

const names = readdirSync(here).filter((name) => name.endsWith(".sol")).sort();
const sources = Object.fromEntries(names.map((name) => [name, { content: readFileSync(join(here, name), "utf8") }]));

// Of `name NUL text NUL` of each source in order, so that a test without a compiler notices stale artifacts.
function sourcesHash() {
  const hash = createHash("sha256");
  for (const name of names) hash.update(`${name}\0${sources[name].content}\0`);
  return "0x" + hash.digest("hex");
}

function compile() {
  const input = JSON.stringify({ language: "Solidity", sources, settings: SETTINGS });
  const output = JSON.parse(solc.compile(input, { import: readImport }));
  const messages = (output.errors ?? []).filter(isOurs);
  for (const message of messages) process.stderr.write(message.formattedMessage);
  // Warnings fail too: one that is meant would hide one that isn't.
  if (messages.length > 0) process.exit(1);
  return output;
}

function immutablesOf(contract) {
  const places = Object.values(contract.evm.deployedBytecode.immutableReferences ?? {}).flat();
  return places.map(({ start, length }) => [start, length]).sort((a, b) => a[0] - b[0]);
}

function artifactOf(name, contract) {
  const deployed = contract.evm.deployedBytecode.object;
  const size = deployed.length / 2;
  if (size > MAX_CODE_BYTES) throw new Error(`${name} has ${size} bytes, over the chain's limit of ${MAX_CODE_BYTES}`);
  process.stderr.write(`${name}: ${size} bytes\n`);
  const artifact = {
    contract: name,
    compiler: solc.version(),
    sources_sha256: sourcesHash(),
    abi: contract.abi,
    bytecode: "0x" + contract.evm.bytecode.object,
    // Of the code with zeros where immutables go; `immutables` are these places, [start, length] in bytes.
    deployed_bytecode_sha256: "0x" + createHash("sha256").update(Buffer.from(deployed, "hex")).digest("hex"),
    immutables: immutablesOf(contract),
  };
  return JSON.stringify(artifact, null, 1) + "\n";
}

const output = compile();
const folder = join(here, "artifacts");
mkdirSync(folder, { recursive: true });
let stale = 0;
for (const name of CONTRACTS) {
  const text = artifactOf(name, output.contracts[`${name}.sol`][name]);
  const file = join(folder, `${name}.json`);
  if (!process.argv.includes("--check")) writeFileSync(file, text);
  else if (!existsSync(file) || readFileSync(file, "utf8") !== text) {
    process.stderr.write(`${name}.json doesn't match its source: run npm run compile and commit the result\n`);
    stale = 1;
  }
}
process.exit(stale);
