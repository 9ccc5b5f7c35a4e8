"""The nano tokenizer: byte-level BPE of 512 tokens in which every digit is a token of its own."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from trlmath.data.nano.corpus import PREAMBLE, documents

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

VOCABULARY = 512
EOS = "<|endoftext|>"
PAD = "<|pad|>"
SPLIT = r" ?</?| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]|\s+"
"""Words with the space before them, single digits, single signs; tags open with one token."""


def train_tokenizer(seed: int, count: int = 20_000, size: int = VOCABULARY) -> PreTrainedTokenizerFast:
    """Learn the merges from `count` documents and return a tokenizer that round-trips any text."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

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
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=EOS,
        pad_token=PAD,
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )
