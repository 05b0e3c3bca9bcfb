"""Every attack there is, caught or not.

Out: `ATTACKS`, in the order of the published tables, and `CONTROLS`, honest work that must pass.
"""

from __future__ import annotations

from tests.attacks import claims, proofs
from tests.attacks.arena import RIGHT
from tests.attacks.attack import Attack
from tests.attacks.branches import BranchGrinding
from tests.attacks.claims import Bomb, Claimed, OtherVersion, Unleased
from tests.attacks.controls import Honest, HonestProved
from tests.attacks.copies import Copied, CopiedText, OtherProofs, Replayed
from tests.attacks.edits import Edited
from tests.attacks.lengths import ForcedEos, Padded, PaddedAfterEos, Truncated
from tests.attacks.mixtures import Tenth
from tests.attacks.other_draws import BestOf, Drafted, OtherSampling, WrongSeed
from tests.attacks.other_models import OtherModel, OtherModelProved
from tests.attacks.prompts import HiddenPrompt, HiddenPromptProved, OtherPrompt
from tests.attacks.proofs import FORGES, Bent, Forged, Offline, Resized

ROUNDED = "rounding of weights is noise: a precise pool tells it, a bf16 pool's own noise is about as large"
UNUSED = "nobody uses claimed log-probs: the trainer computes its own"
TIES = "numerical noise chooses there too"
NEAR = "one small step moves the model less than kernels differ"

OTHER_MODELS: tuple[Attack, ...] = (
    OtherModel("smaller-model", "four fifths of the layers", model="smaller"),
    OtherModel("other-seed", "another checkpoint of the same size", model="other seed"),
    OtherModel("shaken-1", "every weight off by 1 % of its tensor's spread", ROUNDED, model="shaken 1 %"),
    OtherModel("int8", "weights rounded to 8 bits, a scale a row", ROUNDED, model="int8"),
    OtherModel("int4", "weights rounded to 4 bits, a scale for 32", model="int4"),
    OtherModel("bfloat16", "computed in bfloat16", "honest where the pool computes in bfloat16", model="bfloat16"),
    OtherModel("fine-tuned", "4 optimizer steps away, learning rate 1e-4", model="4 steps, 1e-4"),
    OtherModel("version-1e-4", "1 optimizer step away, learning rate 1e-4", NEAR, model="1 step, 1e-4"),
    OtherModel("version-1e-5", "1 optimizer step away, learning rate 1e-5", NEAR, model="1 step, 1e-5"),
    OtherModel("version-1e-6", "1 optimizer step away, learning rate 1e-6", NEAR, model="1 step, 1e-6"),
    OtherModelProved("small-then-prefill", "the smaller model draws, the right one proves", model="smaller"),
    OtherModelProved("other-then-prefill", "another checkpoint draws, the right one proves", model="other seed"),
    OtherModelProved("int8-then-prefill", "int8 draws, the right model proves", ROUNDED, model="int8"),
    OtherModelProved("int4-then-prefill", "int4 draws, the right model proves", model="int4"),
)

OTHER_DRAWS: tuple[Attack, ...] = (
    OtherSampling("temperature-0.5", "temperature 0.5 instead of 1", changes={"temperature": 0.5}),
    OtherSampling("temperature-0.9", "temperature 0.9 instead of 1", changes={"temperature": 0.9}),
    OtherSampling("temperature-1.1", "temperature 1.1 instead of 1", changes={"temperature": 1.1}),
    OtherSampling("top-p-0.9", "top-p 0.9 instead of 1", changes={"top_p": 0.9}),
    OtherSampling("greedy", "the likeliest token always", changes={"top_k": 1}),
    WrongSeed("wrong-seed", "noise of another seed"),
    BestOf("best-of-4", "the best of 4 tries for each rollout"),
    Drafted("drafted", "a draft's tokens accepted unseen, 3 of 4", draft="smaller"),
    BranchGrinding("branches-0.1", "the best of 4 ways through ties within 0.1 nats", TIES, num_ties=2, within=0.1),
    BranchGrinding("branches-1e-3", "the better of 2 ways at a tie within 0.001 nats", TIES, num_ties=1, within=1e-3),
)

PROMPTS: tuple[Attack, ...] = (
    OtherPrompt("other-prompt", "another question, and the file says so"),
    HiddenPrompt("hidden-prompt", "another question, the right one claimed"),
    HiddenPromptProved("hidden-prompt-proved", "the same, proved after the right prompt"),
    HiddenPrompt("system-prompt", "a text before the prompt", hinted=True),
    HiddenPromptProved("system-prompt-proved", "the same, proved without it", hinted=True),
)

LENGTHS: tuple[Attack, ...] = (
    Truncated("truncated", "half of each completion, said to be at the limit"),
    ForcedEos("forced-eos", "half of each completion, then EOS, proved"),
    Padded("padded", "no EOS, the last token repeated to the limit, proved"),
    PaddedAfterEos("padded-after-eos", "goes on after EOS to the limit, proved"),
)

EDITS: tuple[Attack, ...] = (
    Edited("edited-1", "1 % of the tokens replaced by the next likeliest, proved", share=0.01),
    Edited("edited-5", "5 % of them", share=0.05),
    Edited("edited-20", "20 % of them", share=0.2),
    Edited("edited-1-stale", "1 % of the tokens, proofs and log-probs of the text before", share=0.01, proved=False),
    Edited("edited-20-stale", "20 % of them", share=0.2, proved=False),
)

COPIES: tuple[Attack, ...] = (
    Replayed("replayed", "its own rows of another task"),
    Copied("copied", "another node's rows"),
    CopiedText("copied-text", "another node's completions, proved after the right prompts"),
    OtherProofs("other-proofs", "proofs of another file"),
)

PROOFS: tuple[Attack, ...] = (
    *(
        Forged(f"proof-{name.split(',')[0]}{'-full' if 'full' in name else ''}", f"{name}", forge=f)
        for name, f in FORGES.items()
    ),
    Resized("proof-truncated", "two bytes missing", cut=2),
    Resized("proof-overlong", "one chunk more", extra=1),
    Offline("proof-offline", "a polynomial through each dimension's mean over other work"),
    Bent("proof-negated", "states with the other sign", bend=proofs.negated),
    Bent("proof-shifted", "each state in the next one's place", bend=proofs.shifted),
    Bent("proof-swapped", "another rollout's states", bend=proofs.swapped),
)

CLAIMS: tuple[Attack, ...] = (
    Claimed("false-reward", "every completion passed", claim=claims.all_pass),
    Claimed("false-logprobs", "log-probs a tenth nearer to 0", UNUSED, claim=claims.surer),
    Claimed("no-logprobs", "log-probs all 0", claim=claims.flat),
    Claimed("false-version", "rows of the next policy version", claim=claims.later),
    OtherVersion("false-version-signed", "the signed claim names the next policy version"),
    Unleased("unleased-counter", "a counter that wasn't leased"),
    Claimed("nan-logprobs", "log-probs that are no numbers", claim=claims.nan_logprob),
    Claimed("infinite-logprobs", "log-probs of -infinity", claim=claims.infinite_logprob),
    Claimed("nan-reward", "a reward that is no number", claim=claims.nan_reward),
    Claimed("infinite-reward", "an infinite reward", claim=claims.infinite_reward),
    Bomb("bomb-rows", "5,000,000 rows in a small file", num_rows=5_000_000),
    Bomb("bomb-tokens", "a row of 20,000,000 tokens", num_tokens=20_000_000),
    Bomb("bomb-dictionary", "1,000,000 rows under one dictionary entry", num_rows=1_000_000, dictionary=True),
)

BY_NAME = {
    attack.name: attack
    for attack in (*OTHER_MODELS, *OTHER_DRAWS, *PROMPTS, *LENGTHS, *EDITS, *COPIES, *PROOFS, *CLAIMS)
}


def _tenth(name: str) -> Tenth:
    attack = BY_NAME[name]
    return Tenth(f"tenth-{name}", f"every tenth rollout: {attack.lie}", attack.close, attack=attack)


MIXED = ("other-seed", "int4", "small-then-prefill", "wrong-seed", "temperature-0.9", "hidden-prompt-proved")
MIXED += ("proof-offline", "proof-constant-full", "edited-5", "forced-eos", "false-logprobs")
MIXTURES: tuple[Attack, ...] = tuple(_tenth(name) for name in MIXED)

ATTACKS: tuple[Attack, ...] = (*BY_NAME.values(), *MIXTURES)

CONTROLS: tuple[Attack, ...] = (
    Honest("honest", "nothing"),
    Honest("honest-batch-7", "nothing; generated 7 at a time", max_batch=7),
    Honest("honest-batch-1", "nothing; generated one by one", max_batch=1),
    Honest("honest-float32", "nothing; computed in float32, whatever the pool's precision", model=RIGHT),
    HonestProved("honest-proved", "nothing; proofs from a prefill instead of decoding"),
)
