"""The base model's own tokenizer: one token per word of the prompt template, one per digit.

Spaces belong to the token they surround (" + ", ": ", " the"), so that a prompt of `chain_sum` is
about 18 tokens and every text over this vocabulary comes back from its tokens unchanged. In:
nothing. Out: a `tokenizers.Tokenizer` whose `save` writes `tokenizer.json`.
"""

from __future__ import annotations

from tokenizers import Regex, Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split

PAD, EOS, UNKNOWN = "<pad>", "<eos>", "<unk>"
WORDS = ("State", " the", " final", " answer", " to", " following", " arithmetic", " problem", ": ")
SPACED = (" + ", " - ", " =")
SYMBOLS = (*"0123456789", "+", "-", "=", ";", "#")
PAD_ID, EOS_ID = 0, 1


def make_tokenizer() -> Tokenizer:
    """A word-level tokenizer over 30 tokens; anything else in a text is one <unk> per piece."""
    tokens = (PAD, EOS, UNKNOWN, *WORDS, *SPACED, *SYMBOLS)
    tokenizer = Tokenizer(WordLevel({token: index for index, token in enumerate(tokens)}, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = Split(Regex(r" [+-] | =|: | ?[A-Za-z]+|[\s\S]"), behavior="isolated")
    tokenizer.decoder = Fuse()
    tokenizer.add_special_tokens([PAD, EOS, UNKNOWN])
    return tokenizer
