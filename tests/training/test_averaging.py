"""Weight averaging: against the formula, in float32, and put aside and back."""

from __future__ import annotations

import pytest
import torch

from trlmath.recipe.schema import AveragingSection
from trlmath.training.averaging import WeightAverage


def model_of(*values, dtype=torch.float32):
    model = torch.nn.Linear(len(values), 1, bias=True).to(dtype)
    model.bias.requires_grad_(False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([values]))
        model.bias.fill_(7)
    return model


def through(average, model, path):
    for value in path:
        with torch.no_grad():
            model.weight.fill_(value)
        average.update(model)


def test_ema_is_the_weighted_mean_of_the_weights_seen():
    decay, path = 0.9, [1.0, 5.0, -2.0, 4.0]
    average, model = WeightAverage(AveragingSection(kind="ema", decay=decay)), model_of(0.0, 0.0)
    through(average, model, path)
    weights = [decay ** (len(path) - 1 - i) for i in range(len(path))]
    expected = sum(w * v for w, v in zip(weights, path, strict=True)) / sum(weights)
    average.keep(model)
    assert model.weight[0].tolist() == pytest.approx([expected, expected], rel=1e-6)
    assert model.bias.item() == 7  # not trained, not averaged


def test_last_is_the_mean_of_the_last_few():
    average, model = WeightAverage(AveragingSection(kind="last", last=3)), model_of(0.0)
    through(average, model, [100.0, 1.0, 2.0, 6.0])
    average.keep(model)
    assert model.weight.item() == pytest.approx(3.0)


@pytest.mark.parametrize("kind", ["ema", "last"])
def test_applied_gives_the_weights_back(kind):
    average, model = WeightAverage(AveragingSection(kind=kind, decay=0.5)), model_of(0.0)
    with average.applied(model):  # nothing was averaged yet
        assert model.weight.item() == 0
    through(average, model, [2.0, 4.0])
    with average.applied(model):
        assert 2 < model.weight.item() < 4
    assert model.weight.item() == 4
    with pytest.raises(RuntimeError), average.applied(model):
        raise RuntimeError
    assert model.weight.item() == 4


def test_a_bfloat16_model_is_averaged_in_float32():
    average = WeightAverage(AveragingSection(kind="ema", decay=0.999))
    model = model_of(1.0, dtype=torch.bfloat16)
    through(average, model, [1.0] + [1.5] * 400)
    found = average._values()[0]
    assert found.dtype == torch.float32
    weights = torch.tensor([0.999 ** (400 - i) for i in range(401)], dtype=torch.float64)
    values = torch.tensor([1.0] + [1.5] * 400, dtype=torch.float64)
    assert found.item() == pytest.approx(float((weights * values).sum() / weights.sum()), rel=1e-4)


def test_only_every_so_many_steps_count():
    average, model = WeightAverage(AveragingSection(kind="last", last=2, every=3)), model_of(0.0)
    for step in range(1, 8):
        assert average.empty == (step <= 3)
        with torch.no_grad():
            model.weight.fill_(step)
        average.on_step_end(None, type("State", (), {"global_step": step}), None, model=model)
    average.keep(model)
    assert model.weight.item() == pytest.approx((3 + 6) / 2)


@pytest.mark.parametrize("kind", ["ema", "last"])
def test_it_goes_on_from_its_state(kind, tmp_path):
    section, model = AveragingSection(kind=kind, decay=0.8, last=3), model_of(0.0)
    whole, first, second = (WeightAverage(section) for _ in range(3))
    through(whole, model, [1.0, 7.0, 3.0, 4.0, 9.0])
    through(first, model, [1.0, 7.0, 3.0])
    torch.save(first.state_dict(), tmp_path / "state.pt")
    second.load_state_dict(torch.load(tmp_path / "state.pt"), model)
    through(second, model, [4.0, 9.0])
    assert second._values()[0].item() == whole._values()[0].item()
