// OpenZeppelin's word on earnings trees: run by Node.js, imports nothing of ours.
// In (JSON on stdin): documents of trees, each with the root and the proofs that are claimed for it.
// Out (JSON on stdout): for each whether OpenZeppelin loads, validates and agrees.
import { readFileSync } from "node:fs";
import { StandardMerkleTree } from "@openzeppelin/merkle-tree";

function agrees({ document, root, proofs }) {
  try {
    const tree = StandardMerkleTree.load(document);
    tree.validate();
    const own = StandardMerkleTree.of(document.values.map(({ value }) => value), document.leafEncoding);
    const isSame = tree.root === root && own.root === root;
    return isSame && [...tree.entries()].every(([row, value]) => {
      const proof = proofs[row];
      const verified = StandardMerkleTree.verify(root, document.leafEncoding, value, proof);
      return verified && JSON.stringify(proof) === JSON.stringify(own.getProof(row));
    });
  } catch {
    return false;
  }
}

process.stdout.write(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(agrees)));
