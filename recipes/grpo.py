"""GRPO: `accelerate launch recipes/grpo.py [--config FILE.yaml] [--dry-run] [dotted.key=value ...]`.

Without --config it trains the embedded nano model (recipes/nano/grpo.yaml). What happens, in order:
evaluate, then for every step sample, grade, turn rewards into advantages and update, then evaluate again.
The road itself is in trlmath/training/grpo_run.py; what a recipe can say is in docs/recipes.md.
"""

from trlmath.training.grpo_run import main

if __name__ == "__main__":
    main()
