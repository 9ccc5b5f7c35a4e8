"""Dynamic sampling: rounds until a step has enough useful groups, the same on every process and on resume."""

from __future__ import annotations

import pytest
import torch

from trlmath.builtin.advantages import BatchAdvantage
from trlmath.data.filtering import LedgerEntry, build_filters
from trlmath.recipe.schema import Ref
from trlmath.training.refill import draw, further_rows
from trlmath.types import Grade, Group, Rollout


def group(row, size=2):
    return Group(str(row), (1,), tuple(Rollout("", (1,), (0.0,), "stop") for _ in range(size)))


def rounds_of(useful, rows, max_rounds, further, processes=1):
    """`draw` over groups of which those of the rows `useful` are kept; returns it and the rounds' rows."""
    asked = []

    def roll_out(wanted):
        asked.append(list(wanted))
        matrix = torch.tensor([[float(row)] for row in wanted for _ in range(2)])
        return [group(row) for row in wanted], matrix

    def decide(groups):
        return [
            LedgerEntry("group", "f", "flat", i, g.prompt)
            for i, g in enumerate(groups)
            if int(g.prompt) not in useful
        ]

    return draw(rows, max_rounds, roll_out, decide, iter(further), processes), asked


def test_a_step_that_is_full_asks_for_nothing():
    drawn, asked = rounds_of({0, 1}, [0, 1], 3, [2, 3])
    assert asked == [[0, 1]]
    assert (drawn.rounds, drawn.chosen(2), drawn.dropped) == (0, [0, 1], [])


def test_dropped_groups_are_replaced_until_enough():
    drawn, asked = rounds_of({0, 4}, [0, 1], 9, [2, 3, 4, 5])
    assert asked == [[0, 1], [2], [3], [4]]
    assert drawn.rounds == 3
    assert [drawn.rows[i] for i in drawn.chosen(2)] == [0, 4]
    assert drawn.matrix_of(drawn.chosen(2)).squeeze(1).tolist() == [0, 0, 4, 4]
    assert [entry.index for entry in drawn.dropped] == [1, 2, 3]


def test_rounds_are_bounded_and_a_short_step_keeps_its_shape():
    drawn, asked = rounds_of({0}, [0, 1, 2], 2, range(3, 99))
    assert len(asked) == 3
    assert drawn.rounds == 2
    chosen = drawn.chosen(3)
    assert len(chosen) == 3
    assert [i for i in chosen if i in drawn.useful()] == [0]


def test_every_process_has_an_equal_share_of_a_round():
    drawn, asked = rounds_of({0, 1, 2, 4, 5, 6}, [0, 1, 2, 3], 3, [4, 5, 6], processes=2)
    assert asked == [[0, 1, 2, 3], [4, 5]]
    assert [drawn.rows[i] for i in drawn.chosen(4)] == [0, 1, 2, 4]
    assert len(drawn.useful()) == 5  # one more than needed: told as unused


def test_a_dataset_that_ends_ends_the_rounds():
    drawn, asked = rounds_of(set(), [0, 1], 9, [2])
    assert asked == [[0, 1], [2]]
    assert drawn.rounds == 1
    assert rounds_of(set(), [0, 1], 9, [2], processes=2)[1] == [[0, 1]]


def test_further_rows_depend_on_seed_and_step_alone():
    order = list(further_rows(20, [3, 4], seed=1, step=7))
    assert sorted(order) == [i for i in range(20) if i not in (3, 4)]
    assert order == list(further_rows(20, [3, 4], seed=1, step=7))
    assert order != list(further_rows(20, [3, 4], seed=1, step=8))
    assert order != list(further_rows(20, [3, 4], seed=2, step=7))


class OnlySome:
    """Spread for problems whose answer is at least `least`; the others are all alike."""

    name = "some"

    def __init__(self, least):
        self.least = least

    def __call__(self, *, completions, answer, **columns):
        return [Grade(float(i % 2) if int(a) >= self.least else 0.0) for i, a in enumerate(answer)]


def parts(least, **more):
    flat = build_filters([Ref(name="zero_spread")])
    return {"rewards": [OnlySome(least)], "group_filters": flat, "refill_rounds": 5, **more}


@pytest.mark.parametrize("updates", [1, 2])
def test_a_step_trains_on_useful_groups_only(make_trainer, updates):
    seen, drops = [], []
    trainer = make_trainer(
        parts(
            9,  # four of the eight problems
            on_rollouts=lambda groups, advantages, step: seen.append((groups, advantages)),
            on_drops=lambda entries, step: drops.extend(entries),
        ),
        max_steps=updates,
        per_device_train_batch_size=16 // updates,
        steps_per_generation=updates,
    )
    trainer.train()
    (groups, advantages), *_ = seen
    log = trainer.state.log_history[0]
    assert log["refill/groups"] == len(groups) - 4
    assert log["refill/rounds"] >= 1
    assert len(drops) == sum(int(g.problem.answer) < 9 for g in groups)
    assert log["groups_dropped"] == pytest.approx(len(drops) / len(groups))
    trained = [bool((row != 0).all()) for row in advantages]
    assert sum(trained) == 4
    assert all(int(g.problem.answer) >= 9 for g, t in zip(groups, trained, strict=True) if t)
    assert log["rows_with_advantage"] == 1.0
    assert log["reward"] == pytest.approx(
        sum(0.5 * (int(g.problem.answer) >= 9) for g in groups) / len(groups)
    )
    assert log["rollouts"] == 4 * len(groups)


def test_a_step_that_stays_short_has_the_normaliser_of_what_is_kept(make_trainer, rows):
    trainer = make_trainer(parts(16))  # one problem of eight
    trainer.model.train()
    trainer.state.max_steps = 1
    output = trainer._generate_and_score_completions(rows(trainer, problems=4))
    assert int(output["kept"].sum()) == 4
    assert int((output["completion_mask"].sum(-1) > 0).sum()) == 4
    assert int(output["num_items_in_batch"]) == int(output["completion_mask"].sum())
    assert sum(p.weight for p in trainer._cut(output)) == pytest.approx(1)
    assert trainer._metrics["train"]["refill/groups"] == [4]  # all there are


@pytest.mark.parametrize("refill", [0, 1])
def test_statistics_of_a_batch_are_of_the_groups_that_are_kept(make_trainer, rows, refill):
    """The standard deviation of `batch` advantages: neither dropped groups nor stand-ins are in it."""
    seen = []
    advantage = BatchAdvantage()

    def spy(rewards):
        seen.append(rewards.clone())
        return advantage(rewards)

    trainer = make_trainer(parts(13, advantage=spy, refill_rounds=refill))  # two problems of eight
    trainer.model.train()
    trainer.state.max_steps = 1
    wanted = [dict(trainer.train_dataset[i]) for i in (0, 1, 2, 7) for _ in range(4)]
    output = trainer._generate_and_score_completions(wanted)
    kept = output["kept"].view(-1, 4)[:, 0]
    assert 1 <= int(kept.sum()) < 4
    (rewards,) = seen
    assert rewards.tolist() == [[0.0, 1.0, 0.0, 1.0]] * int(kept.sum())
    shares = output["advantages"].view(-1, 4)
    assert torch.equal(shares[kept], advantage(rewards))
    assert float(shares[~kept].abs().max()) == 0


def test_a_step_of_which_every_group_is_dropped_asks_for_no_advantage(make_trainer, rows):
    def never(rewards):
        raise AssertionError("there is nothing to compare")

    trainer = make_trainer(parts(99, advantage=never))
    trainer.model.train()
    trainer.state.max_steps = 1
    output = trainer._generate_and_score_completions(rows(trainer))
    assert not output["kept"].any()
    assert not output["advantages"].any()
