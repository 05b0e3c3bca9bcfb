#!/usr/bin/env -S node --liftoff-only --stack-size=4000
// Looks like the native compiler to forge, and is the pinned npm one: `--version` and `--standard-json` are all that
// forge asks for. Run: forge test, with `solc = "./solc.cjs"` in foundry.toml.
"use strict";
const { existsSync, readFileSync, writeSync } = require("node:fs");
const { join, resolve } = require("node:path");

const modules = join(__dirname, "node_modules");
const options = process.argv.slice(2);

function optionValues(name) {
  return options.flatMap((option, i) => (option === name ? [options[i + 1]] : []));
}

function printVersion() {
  // The package's version without loading the compiler, which takes seconds.
  const { version } = JSON.parse(readFileSync(join(modules, "solc", "package.json"), "utf8"));
  console.log(`solc, the solidity compiler commandline interface\nVersion: ${version}+commit.00000000.Linux.g++`);
}

function compile() {
  const folders = [...optionValues("--base-path"), ...optionValues("--include-path"), __dirname, modules, "/"];
  const readImport = (path) => {
    const file = folders.map((folder) => resolve(folder, path)).find(existsSync);
    return file ? { contents: readFileSync(file, "utf8") } : { error: `no file ${path}` };
  };
  const output = require("solc").compile(readFileSync(0, "utf8"), { import: readImport });
  // One call may write less than everything to a pipe.
  for (let rest = Buffer.from(output); rest.length > 0; ) rest = rest.subarray(writeSync(1, rest));
}

if (options.includes("--version")) printVersion();
else if (options.includes("--standard-json")) compile();
else {
  console.error(`not supported: ${options.join(" ")}`);
  process.exit(2);
}
