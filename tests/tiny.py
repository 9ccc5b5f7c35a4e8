"""A random Qwen2 of a few thousand parameters with a byte-level tokenizer, saved as a model directory."""

from __future__ import annotations

from pathlib import Path

# as many real models are: more embedding rows than the tokenizer has tokens, and no pad token
ODD = {"spare_rows": 37, "pad": False}


def save_tiny_model(
    folder: Path, seed: int = 0, context: int = 256, spare_rows: int = 0, pad: bool = True, **changes
) -> Path:
    """Write model and tokenizer to `folder` and return it.

    Args:
        spare_rows: of the embedding, beyond the tokenizer's tokens.
        pad: whether the tokenizer has a pad token.
        changes: of the config, as in ``tie_word_embeddings=False``.
    """
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>", "<|pad|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator(["<answer> 1 </answer> </think> reasoning process"] * 9, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        eos_token="<|endoftext|>",
        pad_token="<|pad|>" if pad else None,
        clean_up_tokenization_spaces=False,
    )
    torch.manual_seed(seed)
    config = Qwen2Config(
        **{
            "vocab_size": len(tokenizer) + spare_rows,
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "max_position_embeddings": context,
            "tie_word_embeddings": True,
            "eos_token_id": tokenizer.eos_token_id,
            "bos_token_id": None,
            "pad_token_id": tokenizer.pad_token_id,
            "initializer_range": 0.2,
            **changes,
        }
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
