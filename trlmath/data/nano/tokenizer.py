"""The nano tokenizer: byte-level BPE of under 512 tokens in which every digit is a token of its own."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

from trlmath.data.nano.corpus import PREAMBLE, documents

if TYPE_CHECKING:
    from transformers import Qwen2Tokenizer

VOCABULARY = 512
EOS = "<|endoftext|>"
PAD = "<|pad|>"
SPLIT = r" ?</?| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]|\s+"
"""Words with the space before them, single digits, single signs; tags open with one token."""


def train_tokenizer(seed: int, count: int = 20_000, size: int = VOCABULARY) -> Qwen2Tokenizer:
    """Learn at most `size` tokens from `count` documents.

    The result is a `Qwen2Tokenizer`, because transformers makes one of every tokenizer beside a Qwen2
    config. Like Qwen's own it normalises text to NFC before it encodes; NFC text round-trips exactly.
    Its splitting is coarser than `SPLIT`, but no merge goes across a border of `SPLIT`.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import Qwen2Tokenizer

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[EOS, PAD],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    texts = (doc.context + doc.target for doc in itertools.islice(documents(seed), count))
    tokenizer.train_from_iterator(itertools.chain([PREAMBLE] * 50, texts), trainer)
    learned = json.loads(tokenizer.to_str())["model"]
    return Qwen2Tokenizer(
        vocab=learned["vocab"],
        merges=[tuple(merge) for merge in learned["merges"]],
        eos_token=EOS,
        unk_token=EOS,
        pad_token=PAD,
        model_max_length=1024,
    )
