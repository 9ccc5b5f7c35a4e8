"""The recipe: every section and key, its type and default. Reads from top to bottom like the algorithm."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    field_validator,
    model_validator,
)


def _not_bool(value: Any) -> Any:
    # pydantic would take true for 1; in a recipe it is a slip.
    if isinstance(value, bool):
        raise ValueError("a number is needed, not true or false")
    return value


Int = Annotated[int, BeforeValidator(_not_bool)]
Float = Annotated[float, BeforeValidator(_not_bool)]


class Section(BaseModel):
    """A section of the recipe: unknown keys are errors, and so are NaN and infinity."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, validate_default=True)


class Ref(Section):
    """A component by name, with its options. In a recipe a bare name means ``{name: it}``."""

    name: str = Field(min_length=1)
    options: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _bare_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    def __str__(self) -> str:
        return self.name


class RewardEntry(Ref):
    """One reward: the sum over the entries of weight times reward is what is trained on.

    `columns` renames: ``{solution: answer}`` fills the function's argument ``solution`` from the column
    ``answer``. `as`: completions as ``text`` or ``chat`` messages; null means what the reward declares.
    A value is multiplied by `scale`, held within `clip`, and 0 unless `only_if` (a part or another reward)
    is above 0; `schedule` maps optimizer steps to a factor on the weight, linear in between.
    """

    weight: Float = 1.0
    scale: Float = 1.0
    clip: tuple[Float, Float] | None = None
    schedule: dict[Annotated[Int, Field(ge=0)], Float] = {}
    only_if: str | None = None
    columns: dict[str, str] = {}
    as_: Literal["text", "chat"] | None = Field(default=None, alias="as")

    @field_validator("clip")
    @classmethod
    def _clip_in_order(cls, value: tuple[float, float] | None) -> tuple[float, float] | None:
        if value is not None and value[0] > value[1]:
            raise ValueError("[low, high] with low at most high")
        return value


class ModelSection(Section):
    """The policy. `path`: ``nano`` (embedded), a folder, or a Hub id; `lora`: fields of peft's LoraConfig."""

    path: str = "nano"
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "float32"
    attention: str = "sdpa"
    lora: dict[str, Any] | None = None


class DataSection(Section):
    """Problems. A dataset is a registered name, a file (.jsonl .json .parquet .csv) or a Hub id owner/name.

    `columns` maps a Problem's fields to the dataset's columns: ``{question: problem, answer: gold}``.
    `train_size`: use only so many of the rows that pass the filters, the smaller sets being part of the
    larger and the same for every seed and order of the file; ``all`` or null: all. `unreadable_golds`: the
    share of training golds that the grader may fail to read before a run is refused; 1 allows all.
    """

    train: Ref = Ref(name="nano")
    eval: Ref | None = Ref(name="nano")
    prompt: Ref = Ref(name="r1_zero")
    train_size: Annotated[Int, Field(ge=1)] | None = None
    columns: dict[str, str] = {}
    unreadable_golds: Float = Field(default=0.02, ge=0, le=1)

    @model_validator(mode="before")
    @classmethod
    def _all_rows(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("train_size") == "all":
            return {**value, "train_size": None}
        return value


class SamplingSection(Section):
    """How completions are drawn, with one meaning for every engine.

    `stop`: strings that end a completion and stay part of it; null means the prompt's own, [] none.
    `top_k`, `min_p`: null means off. `sleep`: free vLLM's memory during the update (GPUs only).
    `freshness`: what happens when the engine is found to generate from old weights: stop, warn (said
    once) or off (do not look). `engine_options`: extra arguments of the engine itself.

    With ``mode: server``: `url`, one or several running servers (`trlmath serve`); null starts one and stops
    it at the end, on `devices` (GPUs, counted among the visible; null: as the environment says).
    `transport`: how weights get there, `files` through `weights_dir` (seen by both sides; null: memory of
    this machine) or `nccl` (GPUs). `start_timeout`, `request_timeout`: seconds.
    """

    engine: Literal["auto", "vllm", "transformers"] = "auto"
    mode: Literal["colocate", "server"] = "colocate"
    url: str | list[str] | None = None
    devices: list[Annotated[Int, Field(ge=0)]] | None = Field(default=None, min_length=1)
    transport: Literal["files", "nccl"] = "files"
    weights_dir: str | None = None
    start_timeout: Float = Field(default=600.0, gt=0)
    request_timeout: Float = Field(default=600.0, gt=0)
    temperature: Float = Field(default=1.0, gt=0)
    top_p: Float = Field(default=1.0, gt=0, le=1)
    top_k: Annotated[Int, Field(ge=1)] | None = None
    min_p: Annotated[Float, Field(ge=0, le=1)] | None = None
    min_tokens: Int = Field(default=0, ge=0)
    max_tokens: Int = Field(default=256, ge=1)
    stop: list[str] | None = None
    sleep: bool = False
    freshness: Literal["stop", "warn", "off"] = "stop"
    engine_options: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _one_stop_string(cls, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(value.get("stop"), str):
            return {**value, "stop": [value["stop"]]}
        return value


class RefillSection(Section):
    """Dynamic sampling (DAPO): after a group filter dropped groups, roll out further prompts, at most
    `max_rounds` times a step, until the step has `rollout.prompts_per_step` useful groups."""

    max_rounds: Int = Field(default=3, ge=1)


class RolloutSection(Section):
    """What a step is. Counts are of all processes together.

    One rollout phase draws `group_size` completions for each of `prompts_per_step` prompts, and the
    update phase takes ``updates_per_rollout x epochs_per_rollout`` optimizer steps on them.
    `microbatch_tokens`: most tokens, padding included, in one forward pass on one process; null: no cut.
    `clip: false` leaves the clipping of the probability ratio out.
    """

    prompts_per_step: Int = Field(default=16, ge=1)
    group_size: Int = Field(default=8, ge=2)
    updates_per_rollout: Int = Field(default=1, ge=1)
    epochs_per_rollout: Int = Field(default=1, ge=1)
    microbatch_tokens: Annotated[Int, Field(ge=1)] | None = 8192
    clip: bool = True
    refill: RefillSection | None = None
    old_logprobs: Literal["recompute", "engine"] = "recompute"


class BatchSection(Section):
    """SFT's optimizer step: `size` traces over all processes, cut into forwards by `microbatch_tokens`.

    `microbatch_tokens`: most tokens, padding included, in one forward on one process; null: no cut.
    `packing`: rows of a forward lie end to end instead of padded. `max_length`: most tokens of prompt and
    response together; null: the model's context. `over_long`: what happens to a longer trace.
    """

    size: Int = Field(default=32, ge=1)
    microbatch_tokens: Annotated[Int, Field(ge=1)] | None = 8192
    packing: bool = False
    max_length: Annotated[Int, Field(ge=2)] | None = None
    over_long: Literal["drop", "cut"] = "drop"


class ExpertIterationSection(Section):
    """Expert iteration: sample `rollout.group_size` rollouts a problem, keep, SFT, repeat.

    `epochs`: of SFT on each iteration's selection. `temperatures`: one an iteration, the last one goes on;
    null: `sampling.temperature`. `optimizer`: fresh each iteration or carried on. `nothing_kept`: raise the
    temperature by `hotter_by` and sample the next questions, or stop.
    """

    iterations: Int = Field(default=5, ge=1)
    problems_per_iteration: Int = Field(default=512, ge=1)
    epochs: Int = Field(default=1, ge=1)
    temperatures: list[Annotated[Float, Field(gt=0)]] | None = Field(default=None, min_length=1)
    optimizer: Literal["fresh", "carried"] = "fresh"
    nothing_kept: Literal["hotter", "stop"] = "hotter"
    hotter_by: Float = Field(default=0.1, gt=0)


class EarlyStopSection(Section):
    """Stop when `metric` has not improved by more than `min_delta` in `patience` evaluations."""

    metric: str = "eval/both"
    mode: Literal["max", "min"] = "max"
    patience: Int = Field(default=3, ge=1)
    min_delta: Float = Field(default=0.0, ge=0)


class AveragingSection(Section):
    """Average the weights that are evaluated and saved: `ema` with `decay`, or the mean of the `last` ones.

    `every`: optimizer steps between two that count.
    """

    kind: Literal["ema", "last"] = "ema"
    decay: Float = Field(default=0.999, gt=0, lt=1)
    last: Int = Field(default=5, ge=2)
    every: Int = Field(default=1, ge=1)


Action = Literal["off", "warn", "stop"]


class ChecksSection(Section):
    """What to do when a run's numbers go wrong: nothing, say so once, or stop; docs/reliability.md.

    `preflight`: try a worst-case step before the first. `window`: steps that a trend is judged by.
    `reward_timeout`: seconds that a reward may take for a batch, and any other plugin for a call; null: no
    limit. `on_reward_error`: what a reward that fails costs, the run or the rollouts it failed on.
    """

    preflight: bool = True
    window: Int = Field(default=20, ge=2)
    nan: Action = "stop"
    exploding_ratio: Action = "stop"
    entropy_collapse: Action = "warn"
    flat_reward: Action = "warn"
    oscillating_loss: Action = "warn"
    falling_validation: Action = "warn"
    length_collapse: Action = "warn"
    all_truncated: Action = "warn"
    reward_timeout: Annotated[Float, Field(gt=0)] | None = 300.0
    on_reward_error: Literal["stop", "unscorable"] = "stop"

    @model_validator(mode="before")
    @classmethod
    def _off(cls, value: Any) -> Any:
        # YAML reads a bare off as false
        if not isinstance(value, dict):
            return value
        value = {key: "off" if item is False and key != "preflight" else item for key, item in value.items()}
        if value.get("reward_timeout") == "off":
            value["reward_timeout"] = None
        return value


class EvaluationSetting(Section):
    """One way to sample at evaluation: `n` completions per problem at `temperature` (0: greedy).

    Training's temperature, `top_p`, `top_k` and `min_p` do not count here; its room and stop strings do.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9_-]+$")  # it becomes part of metric and file names
    temperature: Float = Field(default=1.0, ge=0)
    top_p: Float = Field(default=1.0, gt=0, le=1)
    n: Int = Field(default=1, ge=1)


class EvaluationSection(Section):
    """Evaluation before, after, and every so many steps (`every: 0`: only before and after).

    `by`: dataset fields to break the rates down by. `chunk`: problems generated, graded and saved at once.
    """

    enabled: bool = True
    every: Int = Field(default=0, ge=0)
    limit: Annotated[Int, Field(ge=1)] | None = 256
    settings: list[EvaluationSetting] = [
        EvaluationSetting(name="sampled", temperature=1.0, n=1),
        EvaluationSetting(name="greedy", temperature=0.0, n=1),
    ]
    by: list[str] = []
    chunk: Int = Field(default=64, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _one_field(cls, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(value.get("by"), str):
            return {**value, "by": [value["by"]]}
        return value


class RunSection(Section):
    """Where the run writes (`dir`: null means ``runs/<recipe>-<time>``), its seed, and who is told.

    `report_to`: trackers; null: TensorBoard where it is installed; [] or none: nobody.
    `report`: make ``report.html`` at the end. `keep_rollouts`: most rollout phases kept on disk, evenly
    spread over the run; null: all. `show_every`: steps between two rollouts shown; 0: none.

    `resume`: the same command goes on with the unfinished run in `dir`; auto: without `dir` as well, with the
    newest one of this recipe; false: never. `checkpoint_every`: steps between two checkpoints that a killed
    run goes on from; 0: none. `keep_last`: how many stay. `keep_best`: an evaluation's metric; the checkpoint
    where it was highest stays too.
    """

    dir: str | None = None
    resume: Any = None
    seed: Int = Field(default=0, ge=0, lt=2**32)
    report_to: list[str] | None = None
    report: bool = True
    keep_rollouts: Annotated[Int, Field(ge=2)] | None = 500
    show_every: Int = Field(default=10, ge=0)
    checkpoint_every: Int = Field(default=50, ge=0)
    keep_last: Int = Field(default=2, ge=1)
    keep_best: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_reporter(cls, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(value.get("report_to"), str):
            name = value["report_to"]
            return {**value, "report_to": [] if name == "none" else [name]}
        return value


class Recipe(Section):
    """A whole recipe. `trainer` takes any argument that no other key owns of TRL's GRPOConfig, or of its
    SFTConfig where SFT and expert iteration train."""

    model: ModelSection = ModelSection()
    data: DataSection = DataSection()
    sampling: SamplingSection = SamplingSection()
    rewards: list[RewardEntry] = Field(default=[RewardEntry(name="r1_zero")], min_length=1)
    advantage: Ref = Ref(name="group")
    filters: list[Ref] = []
    rollout: RolloutSection = RolloutSection()
    batch: BatchSection | None = None
    expert_iteration: ExpertIterationSection | None = None
    early_stop: EarlyStopSection | None = None
    averaging: AveragingSection | None = None
    checks: ChecksSection = ChecksSection()
    trainer: dict[str, Any] = {}
    evaluation: EvaluationSection = EvaluationSection()
    run: RunSection = RunSection()

    _source: Path | None = PrivateAttr(default=None)

    @property
    def source(self) -> Path | None:
        """The file it was loaded from."""
        return self._source

    @property
    def name(self) -> str:
        """A short name for run directories: ``nano-grpo`` for ``recipes/nano/grpo.yaml``."""
        if self._source is None:
            return "recipe"
        folder = self._source.parent.name
        return f"{folder}-{self._source.stem}" if folder not in ("", "recipes") else self._source.stem

    def to_dict(self) -> dict[str, Any]:
        """Return plain data with every key, defaults included; a section that is null is left out."""
        plain = {key: _plain(value) for key, value in self.model_dump(by_alias=True).items()}
        return {key: value for key, value in plain.items() if value is not None}

    def to_yaml(self) -> str:
        """Return YAML that loads back as the same recipe."""
        from trlmath.recipe.yamls import dump

        return dump(self.to_dict())


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
