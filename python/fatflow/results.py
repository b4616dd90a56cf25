"""What commands answer, as dataclasses: the attributes are the keys of the JSON.

Made by tools/python-results.py from the structs that become the JSON. Do not edit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional, Union

from ._base import (
    AdviceBase,
    Cases,
    Flows,
    Record,
    Result,
    Rows,
    Run,
    SweepBase,
    TabularRecord,
)
from ._native import Table


@dataclass(eq=False)
class Lever(Record):
    """A change that looks worthwhile."""

    name: str
    """What it is."""

    set: list[str]
    """`PATH=VALUE`, as `--set` takes them."""

    why: str
    """What makes it look worthwhile."""

    most_s: float
    """What it could gain at most: the part of the step that it works on, in seconds."""

    command: str
    """The command that tries it."""


@dataclass(eq=False)
class Verdict(Record):
    """What somebody would tell a colleague."""

    text: str
    """In words."""

    fabric_s: float
    """What the fabric costs: the step less the undisturbed one, in seconds."""

    fabric_usd_per_day: float
    """That share of what the job's machines cost in a day."""

    limit: str
    """What limits the step, besides computation."""

    levers: list[Lever]
    """The changes that look largest; they were not tried."""

    exposed_s: Optional[float] = None
    """Communication that nothing hides of the axes that use the fabric, in seconds; nothing where
    none does.
    """


@dataclass(eq=False)
class Interval(Record):
    """A prediction's least and most, at 80 %, for a time; a rate's are the other way round."""

    low: float
    """The least, as a multiple of the prediction."""

    high: float
    """The most."""

    why: str
    """Where it comes from, in words."""


@dataclass(eq=False)
class FaultRow(Record):
    """A fault that comes or goes."""

    on: str
    """What is hit."""

    kind: str
    """What happens to it."""

    at_s: float
    """When, from the start of the first step."""

    until_s: Optional[float]
    """When it is over; none for never."""

    down_s: Optional[float] = None
    """How long it lasts each time, where it comes and goes."""

    used_s: list[tuple[float, float]] = field(default_factory=list)
    """Of faults that cost nothing: when what is hit carries something in the step in which the first
    of them comes, from, until, on the clock of `at_s`.
    """


@dataclass(eq=False)
class StepRow(Record):
    """A step with faults beside the same without."""

    step: int
    """Its number in the row."""

    start_s: float
    """When it began."""

    undisturbed_s: float
    """How long it takes without them."""

    step_s: float
    """How long with them; of one in which the job ends, until training is where it was."""

    cost_s: float
    """The difference."""


@dataclass(eq=False)
class Restart(Record):
    """A job that ended and was started again."""

    at_s: float
    """When it ended."""

    step: int
    """In which step of the row."""

    why: str
    """Why."""

    lost_s: float
    """What of that step was done."""

    redone_s: float
    """What was trained since the last checkpoint, on average, and is trained again; nothing where the
    other copies go on.
    """

    detection_s: float
    """Until it is known, and the bad node found."""

    restart_s: float
    """Until training goes on."""

    cost_s: float
    """All of it."""


@dataclass(eq=False)
class Instant(Record):
    """What faults would cost at another time."""

    at_s: float
    """When the first of them comes, on the clock of the steps."""

    cost_s: float
    """What all of them cost then."""


@dataclass(eq=False)
class Disturbed(Record):
    """Steps with faults that come or go, beside the same without."""

    faults: list[FaultRow]
    """The faults that come or go."""

    steps: list[StepRow]
    """The steps that were run, in a row."""

    cost_s: float
    """What the faults cost over all these steps."""

    restart: Optional[Restart] = None
    """How the job ended and what that costs, if it did."""

    instants: list[Instant] = field(default_factory=list)
    """What they would cost if the first of them came at other instants of the step in which it does,
    and the others as long after it; nothing where that would take long, or where some never end.
    """


@dataclass(eq=False)
class Met(Record):
    """Two kinds of exchange that were under way at the same time."""

    what: str
    """The other."""

    seconds: float
    """For so long, over all links."""


@dataclass(eq=False)
class Exchanged(Record):
    """Exchanges of one kind and size in a step on one clock."""

    what: str
    """Whose, and what."""

    bytes: int
    """With how many bytes."""

    times: int
    """How often, once for those who meet in it."""

    alone_s: float
    """An undisturbed group, its launch included."""

    mean_s: float
    """The mean, from when all are there."""

    longest_s: float
    """The longest."""

    met: list[Met]
    """What was under way at the same time."""


@dataclass(eq=False)
class RunOnce(Record):
    """Equal exchanges that begin on idle links, each of which was run once."""

    exchanges: int
    """Exchanges of the step on the fabric."""

    met: int
    """Those that met others and were run with the step."""

    different: int
    """Different ones that met nobody, each run by itself, and again behind it."""

    times: int
    """How often each of them was run."""

    not_run: int
    """Those that were not run, because an equal one was."""

    apart: float
    """By how much the step would be longer or shorter at most, as a share, if another of these runs
    stood for them, the first on a network that nothing had used included.
    """


@dataclass(eq=False)
class WholeStep(Record):
    """What is told of a step on one clock."""

    operations: int
    """Operations that the engine ran."""

    events: int
    """Events that it handled for them."""

    looks: int
    """Links and flows that it looked at to keep rates fair; none on packets."""

    actors: int
    """Tensor groups, each one actor with its collectives inside the server as closed forms: exact as
    long as its ranks are alike.
    """

    acts: int
    """Acts of one copy: passes over units, exchanges, messages."""

    folded_acts: int
    """What they are with chains of kernels as one wait."""

    two_level_s: float
    """The step by phases that are run one by one, without what comes and goes."""

    exchanges: list[Exchanged]
    """Exchanges on the fabric, and which of them met."""

    two_level_fabric_s: float
    """What the fabric costs by phases that are run one by one: each as slow as its slowest group,
    every time.
    """

    undisturbed_s: Optional[float] = None
    """The step on one clock without what comes and goes; only where something does."""

    disturbed: Optional[Disturbed] = None
    """The steps that faults hit, those after them, and what that costs; only where some come or go.
    """

    once: Optional[RunOnce] = None
    """What was run once and stands for others; only where that is allowed (`network.packet.forward =
    "bounded"`).
    """


@dataclass(eq=False)
class Packets(Record):
    """Packets of a capture, counted."""

    data: int
    """Packets that carry data."""

    acks: int
    """Acknowledgements."""

    naks: int
    """Negative ones."""

    cnps: int
    """Congestion notifications."""

    pauses: int
    """Frames that pause, those that renew a pause among them."""

    resumes: int
    """Frames that end a pause."""

    marked: int
    """Data packets with the mark "congestion experienced"."""

    retransmitted: int
    """Data packets whose sequence number was there before."""

    lost: int
    """Packets that were lost."""

    bytes: int
    """Payload of data packets."""


@dataclass(eq=False)
class Captured(Record):
    """What of a run stands in a capture."""

    file: str
    """Its file."""

    file_bytes: int
    """Its length."""

    limit_bytes: int
    """The longest length that it might have had."""

    runs: int
    """Runs that are in it, one behind the other."""

    cut: int
    """Packets that are not in it because it was full."""

    under_way: int
    """Data packets that were still under way when the run ended, where nothing was cut."""

    packets: Packets
    """What is in it, by the words of `fatflow observe`."""


@dataclass(eq=False)
class BreakdownSeconds(Record):
    """Exposed times that add up to the step."""

    compute: float
    """Kernels."""

    tp: float
    """Tensor-parallel communication."""

    cp: float
    """Context-parallel communication."""

    ep: float
    """Expert-parallel communication."""

    pp: float
    """Messages between pipeline stages."""

    dp: float
    """Gradients and weights between copies."""

    bubble: float
    """Waiting for another stage's computation."""

    optimizer: float
    """The optimizer's kernels."""

    other: float
    """Jitter, data loading, the loop around the step."""


@dataclass(eq=False)
class CausesSeconds(Record):
    """Seconds of a step by cause; they add up to it."""

    compute: float
    """Kernels, the optimizer's too."""

    latency: float
    """Launches, hand-overs, ways through NICs, cables and switches."""

    line_rate: float
    """Bytes at the rate of the links that an undisturbed group has."""

    boundary: float
    """A tier, zone or site that has less bandwidth than what crosses it."""

    collisions: float
    """Flows that share a link while others like it are free."""

    stalls: float
    """Pauses, and waiting for credits."""

    reordering: float
    """Packets sent again because they came in another order."""

    stragglers: float
    """Ranks and links that are slower than others: jitter, and what the scenario names."""

    pipeline: float
    """Waiting for another stage's computation."""

    faults: float
    """Links and switches that fail."""

    other: float
    """Data loading and the loop around the step."""


@dataclass(eq=False)
class JobLinks(TabularRecord):
    """How the scale-out links were used."""

    max_utilisation: float
    """The busiest link's bytes over what it could have carried in the step."""

    imbalance: float
    """Busiest over mean, in the tier where that is worst."""


@dataclass(eq=False)
class JobWorstLink(Record):
    """A busy link."""

    link: str
    """What people call it."""

    utilisation: float
    """Over the step."""

    why: str
    """Who is on it."""


@dataclass(eq=False)
class PhaseRow(Record):
    """One kind of communication on the whole cluster."""

    axis: str
    """The axis."""

    groups_of: str
    """Whose it is."""

    collective: str
    """What they do."""

    bytes: int
    """Of so many bytes, as the collective counts them."""

    groups: int
    """So many groups at once."""

    on_fabric: bool
    """Whether it leaves the scale-up domain and was run on the fabric."""

    alone_s: float
    """One group, undisturbed."""

    slowest_s: float
    """The slowest of all."""

    slowdown: float
    """Slowest over undisturbed."""

    cost_s: float
    """What the step would be shorter if the groups of this phase alone met nobody."""

    busiest_utilisation: float
    """The busiest link while it lasts, as a share of that link's rate."""

    busiest_bps: float
    """What that link carries."""


@dataclass(eq=False)
class Memory(Record):
    """What a GPU holds."""

    capacity_bytes: int
    """What it has."""

    total_bytes: int
    """What it needs."""

    weights_bytes: int
    """Weights."""

    gradients_bytes: int
    """Gradients."""

    optimizer_bytes: int
    """Optimizer state."""

    activations_bytes: int
    """Activations."""

    logits_bytes: int
    """Logits."""

    framework_bytes: int
    """The framework's own."""

    stage: int
    """The pipeline stage that needs most."""


@dataclass(eq=False)
class Part(Record):
    """A part of the model."""

    part: str
    """What it is called."""

    parameters: int
    """Its parameters."""


@dataclass(eq=False)
class FlopsPerToken(Record):
    """Floating-point operations of a token, forward and backward."""

    causal: int
    """With the attention that a causal mask leaves: what MFU is measured by."""

    full: int
    """With attention between all positions, as Megatron-LM counts."""

    with_recomputation: int
    """What the GPUs really do: causal, and what the backward pass computes again."""


@dataclass(eq=False)
class ModelFigures(Record):
    """The model of a job in figures."""

    parameters: int
    """Parameters, without multi-token prediction."""

    parameters_of: list[Part]
    """The same by part: those that there are."""

    flops_per_token: FlopsPerToken
    """Floating-point operations of a token, forward and backward."""

    stage_layers: list[int]
    """Layers of each stage, or virtual stage, in the order of the model."""


@dataclass(eq=False)
class Goodput(Record):
    """What faults do to a run."""

    mtbf_s: float
    """Mean time between failures of the whole job, in seconds."""

    interval_s: float
    """Time between checkpoints, in seconds."""

    checkpoint_s: float
    """What a checkpoint makes the job wait for, in seconds."""

    checkpoint_bytes: float
    """Bytes of a checkpoint."""

    burst_s: float
    """How long its burst loads the storage network, in seconds."""

    goodput: float
    """Share of the time that trains."""

    lost_to_checkpoints: float
    """Share lost to writing checkpoints."""

    lost_to_replay: float
    """Share lost to work that is done again."""

    lost_to_recovery: float
    """Share lost to detection and restart."""

    young_s: float
    """Young's interval, √(2·C·MTBF), in seconds."""

    daly_s: float
    """Daly's higher-order interval, in seconds."""


@dataclass(eq=False)
class Variant(Record):
    """A different world."""

    what: str
    """What is different."""

    goodput: float
    """Goodput then."""


@dataclass(eq=False)
class FreeLink(Record):
    """A step in which one link is free."""

    link: str
    """Which link."""

    utilisation: float
    """Its share of the step at full rate, as things are."""

    step_s: float
    """How long the step would take."""

    gained: float
    """The share of the step that would be gained."""


@dataclass(eq=False)
class Plan(Record):
    """One way to set the circuits over a step."""

    plan: str
    """In words."""

    reconfigurations: int
    """Changes of the circuits in every step."""

    chosen: bool
    """Whether it was chosen."""

    step_s: Optional[float] = None
    """How long the step takes; nothing if some pods cannot reach each other."""


@dataclass(eq=False)
class Lit(Record):
    """Circuits between two pods."""

    phase: str
    """While what is exchanged."""

    pods: list[int]
    """From which pod to which."""

    circuits: int
    """How many, in each network of the fabric."""


@dataclass(eq=False)
class Circuits(Record):
    """How circuits are set over a step."""

    reconfiguration_s: float
    """How long one change of the circuits takes."""

    plans: list[Plan]
    """The ways to set them that were tried, what was chosen marked."""

    lit: list[Lit]
    """The chosen circuits."""


@dataclass(eq=False)
class Scaled(Record):
    """Phases that were run in part, and how far off what they were scaled up to may be."""

    phases: int
    """Phases that were run in part."""

    run_bytes: int
    """With how many bytes."""

    largest_bytes: int
    """The most that one of them moves."""

    step_error: float
    """The step from phases of half as many bytes, over the step, less one."""

    worst_phase_error: float
    """The same of the phase where it is largest in size."""

    worst_phase: str
    """Which phase that is."""

    whole_run_s: float
    """What all bytes of all phases would take to run, in seconds, by the engine's estimate."""


@dataclass(eq=False)
class Figure(Record):
    """A named quantity over seeds."""

    metric: str
    """Which."""

    unit: str
    """Its unit; empty for plain numbers and fractions."""

    mean: float
    """The mean."""

    ci95: float
    """The true mean lies within this of the mean, with 95 % confidence; 0 for one seed."""

    p5: float
    """Five of a hundred seeds are at or below."""

    p50: float
    """Half of the seeds are at or below."""

    p95: float
    """Ninety-five of a hundred are."""

    p99: float
    """Ninety-nine of a hundred are."""


@dataclass(eq=False)
class Seeds(Record):
    """All quantities over seeds."""

    count: int
    """How many seeds answered."""

    first: int
    """The first; the others follow it."""

    figures: list[Figure]
    """What they answered."""


@dataclass(eq=False)
class Spread(Record):
    """A quantity over seeds."""

    mean: float
    """The mean."""

    ci95: float
    """The true mean lies within this of the mean, with 95 % confidence; 0 for one seed."""

    p5: float
    """Five of a hundred seeds are at or below."""

    p50: float
    """Half of the seeds are at or below."""

    p95: float
    """Ninety-five of a hundred are."""

    p99: float
    """Ninety-nine of a hundred are."""


@dataclass(eq=False)
class CampaignLoss(Record):
    """What time is lost to."""

    what: str
    """In words."""

    mean: float
    """The mean."""

    ci95: float
    """The true mean lies within this of the mean, with 95 % confidence; 0 for one seed."""

    p5: float
    """Five of a hundred seeds are at or below."""

    p50: float
    """Half of the seeds are at or below."""

    p95: float
    """Ninety-five of a hundred are."""

    p99: float
    """Ninety-nine of a hundred are."""


@dataclass(eq=False)
class CampaignCause(Record):
    """One cause of failures."""

    cause: str
    """The cause."""

    failures: float
    """Failures of a campaign, on average."""

    lost_share: float
    """The share of the time that they cost, on average; copies that are missing while others train
    are not counted.
    """


@dataclass(eq=False)
class CampaignStep(Record):
    """The job with copies missing."""

    gpus: int
    """GPUs that train."""

    copies: int
    """Copies of the model."""

    step_s: float
    """How long a step takes."""

    tokens_per_s: float
    """Tokens per second."""

    speed: float
    """That over the whole job's."""


@dataclass(eq=False)
class Flood(Record):
    """A flood of state over the network."""

    from_storage_bytes: float
    """Bytes out of storage."""

    between_bytes: float
    """Bytes between servers, over the back-end."""

    takes_s: float
    """How long the job, or the copy, waits for it."""


@dataclass(eq=False)
class CampaignTraffic(Record):
    """What checkpoints and lost state put on the network."""

    network: str
    """Which network carries checkpoints: `front-end` or `back-end`."""

    checkpoint_bytes: float
    """Bytes of a checkpoint."""

    burst_s: float
    """How long its burst lasts."""

    interval_s: float
    """Time between two."""

    checkpoints: float
    """Checkpoints of a campaign, on average."""

    checkpoint_bytes_per_s: float
    """Bytes per second that checkpoints put on that network, on average."""

    flood: Flood
    """One flood of state after a failure."""

    floods: float
    """Floods of a campaign, on average."""

    flood_bytes: float
    """Bytes of floods in a campaign, on average."""


@dataclass(eq=False)
class CampaignInput(Record):
    """Something that a campaign rests on."""

    key: str
    """The setting."""

    value: str
    """What it is."""

    source: str
    """Where that comes from."""


@dataclass(eq=False)
class CampaignStretch(Record):
    """A stretch of the first campaign."""

    from_s: float
    """When it begins."""

    to_s: float
    """When it ends."""

    trains: float
    """The share of it that trains."""

    loss: str
    """What it is lost to, or what loses most while it trains."""

    cause: Optional[str] = None
    """The failure behind it."""


@dataclass(eq=False)
class Campaign(Record):
    """Days of a run."""

    days: int
    """How many."""

    campaigns: int
    """Campaigns that were played, each with its own seed."""

    first_seed: int
    """The first seed; the others follow it."""

    data_parallel: str
    """Whether copies go on when one is lost: `fixed` or `elastic`."""

    goodput: Spread
    """The share of the time that trains."""

    closed_form: float
    """The same by the closed form, in which copies never go on alone."""

    failures: Spread
    """Failures in those days."""

    lost: list[CampaignLoss]
    """What the rest of the time is lost to, as shares of it."""

    causes: list[CampaignCause]
    """By cause."""

    steps: list[CampaignStep]
    """How fast the job trains whole, and with copies missing."""

    traffic: CampaignTraffic
    """What checkpoints and lost state put on the network."""

    goodput_if: list[Variant]
    """Mean goodput if something were different."""

    inputs: list[CampaignInput]
    """What all of this rests on."""

    timeline: list[CampaignStretch]
    """What happened in the first campaign, in the order of time."""

    timeline_until_s: float
    """Until when that is told: its first 20,000 stretches."""

    not_played: list[str] = field(default_factory=list)
    """What is hit by faults that come or go (`[[faults]]`). They are in the step that stands beside
    these days, and not in these days, whose failures are drawn by `reliability`.
    """


@dataclass(eq=False)
class Steps(Record):
    """How steps differ that follow each other."""

    n: int
    """How many there were."""

    p50_s: float
    """Half of them are at or below."""

    p99_s: float
    """Ninety-nine of a hundred are."""

    max_s: float
    """The longest."""

    cv: float
    """The standard deviation over the mean."""

    times_s: list[float]
    """All of them, in their order."""


@dataclass(eq=False)
class Bill(Record):
    """What a step or a run costs."""

    capital_usd: float
    """Capital of the job's machines, in US dollars."""

    capital_low_usd: float
    """With every price at the least that sources say."""

    capital_high_usd: float
    """With every price at the most."""

    network_capital_usd: float
    """Of which the network."""

    network_capital_low_usd: float
    """The network at the lowest prices."""

    network_capital_high_usd: float
    """The network at the highest."""

    power_w: float
    """Mean power with the building's share, in watts."""

    compute_j: float
    """Energy of one step by phase, in joules, machines only: computing GPUs."""

    communicate_j: float
    """Communicating GPUs."""

    idle_j: float
    """Waiting GPUs."""

    host_j: float
    """Hosts."""

    network_j: float
    """Switches, NICs and optics."""

    step_usd: float
    """Cost of one step: capital written off and electricity, in US dollars."""

    step_low_usd: float
    """The same at the lowest prices of hardware, and with the shortest step where one is known."""

    step_high_usd: float
    """The same at the highest."""

    usd_per_million_tokens: float
    """Cost of a million trained tokens, failures included, in US dollars."""

    usd_per_million_tokens_low: float
    """The same at the lowest prices of hardware."""

    usd_per_million_tokens_high: float
    """The same at the highest."""


@dataclass(eq=False)
class TargetRow(Record):
    """One target, and what comes out."""

    name: str
    """Which, with its unit."""

    want: float
    """The most or the least that it should be."""

    got: Optional[float]
    """What it is; nothing where there is no such thing, which misses it."""

    met: bool
    """Whether that is good enough."""


@dataclass(eq=False, repr=False)
class JobRun(Run):
    """A predicted step."""

    verdict: Verdict
    """What somebody would tell a colleague."""

    step_s: float
    """How long a step takes: the sum of `breakdown_s`."""

    step_low_s: float
    """The least of its 80 % interval."""

    step_high_s: float
    """The most."""

    interval: Interval
    """The interval, as multiples of the step, and where it comes from."""

    way: str
    """How it was put together."""

    tokens_per_s: float
    """Tokens per second, over all GPUs."""

    tflops_per_gpu: float
    """Model FLOPs of one GPU per second, causal attention counted once, in 10¹²."""

    mfu: float
    """That over the bf16 peak."""

    breakdown_s: BreakdownSeconds
    """Where the time goes."""

    causes_s: CausesSeconds
    """The same time by cause."""

    links: JobLinks
    """How the scale-out links were used over the step."""

    worst_links: list[JobWorstLink]
    """The busiest of them."""

    goodput: float
    """The share of a long run that trains."""

    gpus: int
    """GPUs of the job."""

    tokens_per_step: float
    """Tokens of one step."""

    exposed_communication: float
    """The share of the step that is communication which nothing hides."""

    constraint: str
    """What constrains the step most, besides computation."""

    critical_path: list[str]
    """The critical path: its longest segments, in the order of time."""

    phases: list[PhaseRow]
    """What the fabric made of each phase of communication."""

    memory: Memory
    """Memory of a GPU of the fullest stage."""

    model: ModelFigures
    """The model in figures."""

    reliability: Goodput
    """Failures, checkpoints and restarts."""

    goodput_if: list[Variant]
    """Goodput if something about faults were different."""

    cost: Bill
    """Capital, power, energy by phase, and the price of a token."""

    findings: list[str]
    """What the engine noticed."""

    cpu_cores: Optional[float]
    """Processor cores that the transport keeps busy in the busiest server, on average over the step;
    none where no engine ran the fabric.
    """

    wall_s: float
    """Seconds that the prediction took on the clock."""

    cpu_s: float
    """Seconds that it took of the processor."""

    peak_rss_bytes: int
    """The most memory that the process has used."""

    whole: Optional[WholeStep] = None
    """What was run on one clock, if it was."""

    capture: Optional[Captured] = None
    """What of its packets was written, if that was asked for."""

    what_if: Optional[FreeLink] = None
    """What the step would be if the busiest link were free; only where an engine ran the fabric.
    """

    circuits: Optional[Circuits] = None
    """How optical circuits between pods are set; only where they follow the job's phases."""

    scaled: Optional[Scaled] = None
    """Phases that were run in part and scaled up; only on packets."""

    seeds: Optional[Seeds] = None
    """The same under other seeds, if that was asked for."""

    campaign: Optional[Campaign] = None
    """Days of the run by dice, if that was asked for."""

    steps: Optional[Steps] = None
    """Steps one after the other, if that was asked for."""

    targets: list[TargetRow] = field(default_factory=list)
    """What the cluster and the step should reach, met or missed."""

    @property
    def series(self) -> Table:
        """What the busiest links carried over the step."""
        return self._table("series")


@dataclass(eq=False)
class Percentiles(Record):
    """Percentiles in seconds."""

    min: float
    """The fastest."""

    p50: float
    """Half are faster."""

    p99: float
    """Ninety-nine of a hundred are faster."""

    max: float
    """The slowest."""


@dataclass(eq=False)
class PartReport(Record):
    """What became of one load."""

    name: str
    """What it is called."""

    flows: int
    """Its flows, or groups that run a collective."""

    completed: int
    """Those that finished."""

    start_s: float
    """When it began."""

    finish_s: Optional[float]
    """When the last of those had."""

    fct_s: Optional[Percentiles]
    """Their completion times."""

    busbw_GBps: Optional[float] = None
    """Bus bandwidth of its slowest collective."""

    token_s: Optional[float] = None
    """What the network takes for one decoded token, in its slowest group."""


@dataclass(eq=False)
class SmallMessages(Record):
    """Latencies of small messages, in seconds."""

    count: int
    """How many arrived."""

    p50: float
    """Half were faster."""

    p99: float
    """Ninety-nine of a hundred were faster."""

    p999: float
    """999 of a thousand were faster."""


@dataclass(eq=False)
class Pauses(Record):
    """Pauses of a lossless class, or stalls for want of credits."""

    pauses: int
    """How many began; with several lanes, in each of them."""

    paused_s: float
    """How long they lasted, over all links and their lanes."""

    links: int
    """How many links were paused at all: how far they spread."""


@dataclass(eq=False)
class TrafficLinks(TabularRecord):
    """Load of the scale-out links."""

    max_utilisation: float
    """Of the busiest link, over the makespan."""

    imbalance: float
    """Of the busiest tier between switches that carried anything: its busiest link over its mean.
    """

    idle_share: float
    """The share of its links that carried nothing."""


@dataclass(eq=False)
class Imbalance(Record):
    """How unevenly something is spread."""

    max_over_mean: float
    """The largest over the mean: 1 is perfect. Meta's MMR, if flows are counted."""

    jain: float
    """Jain's fairness index: 1 is perfect, `1/n` is everything on one."""

    idle: float
    """The share that has nothing."""


@dataclass(eq=False)
class OverTime(Record):
    """What links did over time."""

    interval_s: float
    """From one point to the next."""

    utilisation: list[float]
    """The share of their rate that they carried from each point to the next."""


@dataclass(eq=False)
class LinkGroup(Record):
    """Links that stand beside each other, and what they carried."""

    name: str
    """"leaf → spine", "NIC → leaf, rail 3"."""

    between_switches: bool
    """Whether they lie between switches."""

    links: int
    """How many there are at switches or NICs that carried anything."""

    bytes: int
    """Bytes over all of them."""

    max_utilisation: float
    """The share of its time that the busiest was busy."""

    mean_utilisation: float
    """The share of their time that they were busy."""

    by_bytes: Imbalance
    """By bytes, over all of them."""

    by_flows: Imbalance
    """By queue pairs, over all of them."""

    at_switch: Imbalance
    """By bytes, over the links of one switch; the mean over the switches."""

    over_time: Optional[OverTime] = None
    """Over time, their mean; only the flow engine knows."""


@dataclass(eq=False)
class Sharer(Record):
    """A queue pair on a link that it shares."""

    from_: str
    """The sending NIC."""

    to: str
    """The receiving NIC."""

    src_port: int
    """Its UDP source port."""

    dst_qpn: int
    """Its number at the receiver."""


@dataclass(eq=False)
class TrafficWorstLink(Record):
    """A busy link."""

    link: str
    """What people call it."""

    utilisation: float
    """Over the makespan."""

    flows: int
    """Queue pairs that were routed over it."""

    excess: float
    """Its bytes over the mean of the links beside it."""

    lost_s: float
    """What that costs: how much sooner it would be done with the mean of those beside it."""

    peak_queue_bytes: int
    """The deepest its queue has been."""

    paused_s: float
    """How long it was paused."""

    why: str
    """Who is on it."""

    queue_pairs: list[Sharer] = field(default_factory=list)
    """The first queue pairs that share it, where the flow engine gave each one path."""

    over_time: Optional[OverTime] = None
    """Over time, on the flow engine."""


@dataclass(eq=False)
class ByClass(Record):
    """A series for each class of traffic."""

    data: list[int]
    """Data."""

    control: list[int]
    """Acknowledgements, notifications, clear-to-send."""


@dataclass(eq=False)
class LinkSeries(Record):
    """One link over time."""

    link: str
    """What people call it."""

    queued_bytes: ByClass
    """Bytes that waited, by class."""

    sent_bps: list[float]
    """What it sent."""

    paused_share: list[float]
    """The share of the time in which data was paused."""

    marks: list[int]
    """Data packets marked."""

    drops: ByClass
    """Packets dropped, by class."""

    lane: Optional[int] = None
    """Which of its lanes this is, where there are several: on Ethernet, the priority."""


@dataclass(eq=False)
class QueuePairSeries(Record):
    """One queue pair over time."""

    number: int
    """Its number."""

    between: str
    """From where to where."""

    limit_bps: list[float]
    """The rate that its congestion control allows."""

    goodput_bps: list[float]
    """What was acknowledged."""


@dataclass(eq=False)
class Latency(Record):
    """A latency from end to end."""

    of: str
    """Of what."""

    count: int
    """How many there were."""

    p50_s: float
    """Half are shorter."""

    p99_s: float
    """Ninety-nine of a hundred are shorter."""

    p999_s: float
    """All but one of a thousand are shorter."""

    max_s: float
    """The longest."""


@dataclass(eq=False)
class HopWait(Record):
    """Waiting at one kind of hop."""

    hop: str
    """Where the queue is, and where it leads."""

    of: str
    """What waited."""

    count: int
    """How many there were."""

    p50_s: float
    """Half are shorter."""

    p99_s: float
    """Ninety-nine of a hundred are shorter."""

    p999_s: float
    """All but one of a thousand are shorter."""

    max_s: float
    """The longest."""


@dataclass(eq=False)
class Series(TabularRecord):
    """What was measured."""

    interval_s: float
    """Time between samples; longer than asked for if there would have been too many."""

    at_s: list[float]
    """When they were taken. Counts of a link are since the sample before."""

    links: list[LinkSeries]
    """Links."""

    queue_pairs: list[QueuePairSeries]
    """Queue pairs."""

    latency: list[Latency]
    """Latencies from end to end."""

    hop_wait: list[HopWait]
    """How long packets waited for their turn in queues, by kind of hop and of packet."""

    notifications: list[int]
    """Congestion notifications that all receivers sent since the sample before."""


@dataclass(eq=False)
class Accuracy(Record):
    """How exact a run was."""

    precision: float
    """Changes of rates below this share were not passed on."""

    merged_s: float
    """The longest time by which a finish was put forward to be one event with another, in seconds.
    """

    deviation: Optional[float] = None
    """The largest share by which rates missed the max-min allocation, at instants that were looked at
    while the run went on; absent where they are exact to 1e-9.
    """


@dataclass(eq=False, repr=False)
class TrafficRun(Run):
    """What a run on synthetic traffic came to."""

    flows: Flows
    """Flows, or messages of a collective."""

    completed: int
    """Those that finished."""

    bytes: int
    """Payload of all flows."""

    makespan_s: Optional[float]
    """From the start until the last flow that finished had; none if none did."""

    fct_s: Optional[Percentiles]
    """Completion times, from a flow's start until its sender knows, of those that finished."""

    goodput_bps: Optional[float]
    """Payload per second of the makespan, over all flows that finished."""

    parts: list[PartReport]
    """The loads, what is looked at first."""

    drops: int
    """Packets dropped."""

    retransmits: int
    """Packets sent again."""

    trims: int
    """Packets that switches cut to their headers."""

    ecn_marks: int
    """Packets marked for congestion."""

    cnps: int
    """Congestion notifications."""

    pfc: Pauses
    """Pauses."""

    packets: int
    """Data packets sent."""

    packet_hops: int
    """Data packets times links crossed."""

    events: int
    """Events that the engine handled."""

    links: TrafficLinks
    """Load of the links between switches."""

    tiers: list[LinkGroup]
    """By tier and direction: bytes, queue pairs, imbalance, utilisation over time."""

    rails: list[LinkGroup]
    """The NICs' links by rail, likewise."""

    worst_links: list[TrafficWorstLink]
    """The busiest links."""

    findings: list[str]
    """What the user should hear about."""

    digest: str
    """A fold of everything that happened: equal digests, equal runs."""

    cpu_cores: Optional[float]
    """Processor cores that the transport keeps busy in the busiest server, on average over the
    makespan.
    """

    wall_s: float
    """Seconds that the run took on the clock."""

    cpu_s: float
    """Seconds that it took of the processor."""

    peak_rss_bytes: int
    """The most memory that the process has used."""

    small_messages_s: Optional[SmallMessages] = None
    """Small messages between NICs, if there were any."""

    queue_pairs: Optional[int] = None
    """Queue pairs that the flow engine gave a path."""

    seeds: Optional[Seeds] = None
    """The same under other seeds, if that was asked for."""

    series: Optional[Series] = None
    """What was measured over time, if that was asked for."""

    capture: Optional[Captured] = None
    """What of it was written as packets, if that was asked for."""

    accuracy: Optional[Accuracy] = None
    """How exact it was; only the flow engine can be inexact."""


@dataclass(eq=False)
class Iterations(Record):
    """How completion times differ between iterations."""

    count: int
    """How many there were."""

    first_us: float
    """The first, which finds an idle network."""

    p50_us: float
    """Half of them are at or below."""

    p99_us: float
    """Ninety-nine of a hundred are."""

    max_us: float
    """The longest."""

    variation: float
    """The standard deviation over the mean."""

    times_us: list[float]
    """All of them, in their order."""


@dataclass(eq=False)
class CollectiveRow(Record):
    """One size."""

    bytes: int
    """As nccl-tests counts it."""

    time_us: float
    """How long it takes, its launch included; over several iterations the mean."""

    low_us: float
    """The least of its 80 % interval."""

    high_us: float
    """The most."""

    algbw_GBps: float
    """Bytes over time."""

    busbw_GBps: float
    """The same, scaled so that it can be compared with the links' rate."""

    algorithm: str
    """Which algorithm the library chose."""

    protocol: str
    """Which protocol."""

    channels: int
    """How many channels."""

    limiting_link: str
    """The busiest link between switches, and how busy."""

    limiting_utilisation: float
    """Its utilisation over the collective."""

    cpu_cores: Optional[float]
    """Processor cores that the transport keeps busy in the busiest server; none where the engine does
    not know what each NIC carries.
    """

    interval_from: str
    """Where the interval comes from."""

    seeds_us: Optional[Spread] = None
    """The time over several seeds, in microseconds; the figures above are then of its mean."""

    iterations: Optional[Iterations] = None
    """How the iterations differ, if it was run several times in a row; of all seeds together."""


@dataclass(eq=False)
class Measured(Record):
    """One measurement."""

    bytes: int
    """As nccl-tests counts them."""

    busbw_GBps: float
    """Bus bandwidth."""

    source: str
    """Who measured it."""


@dataclass(eq=False, repr=False)
class CollectiveRun(Result):
    """A collective over sizes."""

    collective: str
    """Which collective."""

    gpus: int
    """GPUs that take part."""

    rows: Rows[CollectiveRow]
    """One for each size."""

    findings: list[str]
    """What the engine noticed, and where the library chose otherwise than it was asked to."""

    seeds: Optional[Seeds] = None
    """The same under other seeds, if that was asked for."""

    left_out: Optional[str] = None
    """Why larger sizes, or seeds, were left out, if they were."""

    measured: list[Measured] = field(default_factory=list)
    """What was measured, if anything is known."""

    capture: Optional[Captured] = None
    """What of its packets was written, if that was asked for."""


@dataclass(eq=False)
class PassBurst(Record):
    """The traffic of one part of a step."""

    pass_: str
    """Which part."""

    bytes: float
    """What it moves."""

    peak_bps: float
    """Its highest rate, all NICs together, in bits per second."""

    peak_to_mean: float
    """That over its mean rate over the step."""

    duty_cycle: float
    """The share of the step in which it moves anything."""


@dataclass(eq=False)
class Profile(Record):
    """What one primitive of a job does to the network."""

    primitive: str
    """Which."""

    peak_to_mean: float
    """Its highest rate over its mean, along the step."""

    fan_in: int
    """The most NICs that send to one."""

    flows: int
    """Its queue pairs."""

    entropy: float
    """Their entropy over the uplinks of their leaf, over the most there could be."""

    max_link_bytes: float
    """The most bytes of a step that it puts on one link."""


@dataclass(eq=False)
class Elephants(Record):
    """Large transfers."""

    threshold_bytes: int
    """What counts as large."""

    bytes_share: float
    """The share of all bytes that large transfers move."""


@dataclass(eq=False)
class Entropy(Record):
    """How well flows are told apart."""

    flows: int
    """Queue pairs between NICs."""

    distinct_hashes: int
    """Distinct values that the switches' hash takes over them."""

    normalised: float
    """Shannon entropy of the flows over the uplinks of their leaf, over the most there could be: 1 is
    even. Mean over leaves, by flows.
    """

    idle_uplinks: float
    """The share of uplinks, of leaves whose flows go up, that carry no flow."""

    idle_expected: float
    """The share that would be idle by chance, were every flow hashed at random."""

    uplink_imbalance: float
    """The busiest uplink's bytes over the mean of all."""

    most_per_nic: int
    """Queue pairs of the NIC that has most, for either direction."""

    queue_pair_bytes: int
    """Memory of its host for their contexts and queues, in bytes."""

    connect_s: float
    """Seconds that it takes to create and connect them, one after the other."""


@dataclass(eq=False)
class Burst(Record):
    """How uneven traffic is over time."""

    peak_to_mean: float
    """The highest rate over the mean."""

    duty_cycle: float
    """The share of the step in which anything moves."""

    period_s: float
    """From the beginning of one burst to the next, in seconds."""

    bursts: int
    """Bursts in a step: stretches above the mean rate."""

    peak_bps: float
    """The highest rate of the whole fabric, in bits per second."""

    limit_bps: float
    """What the job's NICs could send at most, in bits per second."""


@dataclass(eq=False)
class MeanMax(Record):
    """A mean and a maximum."""

    mean: float
    """Over those that send anything."""

    max: float
    """The most."""


@dataclass(eq=False)
class SizeRow(Record):
    """Transfers of one size."""

    axis: str
    """For which axis."""

    name: str
    """What for."""

    transfer_bytes: float
    """What a rank sends to one peer in one call."""

    bytes: float
    """What all such transfers of a step move."""


@dataclass(eq=False)
class CallRow(Record):
    """One kind of call that ranks make in a step."""

    axis: str
    """For which axis."""

    name: str
    """What for."""

    collective: str
    """What is done."""

    ranks: int
    """Among so many ranks."""

    call_bytes: int
    """The largest call, as nccl-tests counts it."""

    calls_per_gpu: float
    """How often a GPU makes one in a step, on average over all."""

    bytes_per_gpu: float
    """What all its calls of a step come to, on average over all GPUs."""

    leaves: bool
    """Whether any of it leaves a server (or what else the scale-up network joins)."""


@dataclass(eq=False)
class PlacementRow(Record):
    """What a placement does to bytes between zones."""

    placement: str
    """Its name."""

    network_bytes: float
    """Bytes of a step that leave their server (or what else the scale-up network joins): what the
    shares are of. Placements differ in it.
    """

    cross_leaf_share: float
    """The share of bytes that leaves its leaf."""

    cross_leaf_bytes: float
    """Bytes of a step that leave their leaf."""

    cross_zone_share: float
    """The share of bytes that leaves its zone."""

    cross_zone_bytes: float
    """Bytes of a step that leave their zone."""

    chosen: bool
    """Whether it is the scenario's own."""


@dataclass(eq=False)
class Matrix(Record):
    """Who sends to whom, folded into blocks of nodes."""

    blocks: list[str]
    """What the rows and columns are."""

    bytes: list[list[float]]
    """Bytes from each block to each."""


@dataclass(eq=False, repr=False)
class Traffic(Result):
    """What a job puts on the wire."""

    bytes_per_step: float
    """Bytes between NICs in one step, over all GPUs."""

    by_axis: dict[str, float]
    """By axis of parallelism."""

    by_primitive: dict[str, float]
    """By primitive."""

    by_pass: dict[str, float]
    """By part of the step."""

    passes: list[PassBurst]
    """Each part of the step over time."""

    profile: list[Profile]
    """What each primitive does to the network."""

    elephants: Elephants
    """Large transfers."""

    entropy: Entropy
    """How well flows are told apart."""

    burst: Burst
    """Traffic over time."""

    per_tier_bytes: dict[str, float]
    """Bytes that reach each tier's switches from below."""

    per_gpu_bytes: MeanMax
    """Bytes that leave one GPU: the mean, and the most."""

    per_node_bytes: MeanMax
    """Bytes that leave one node."""

    per_rail_bytes: list[float]
    """Bytes that leave the NICs of each rail."""

    sizes: list[SizeRow]
    """By size of the transfers."""

    calls: list[CallRow]
    """What ranks ask their communication library for, inside servers and between them."""

    placements: list[PlacementRow]
    """The share of bytes that leaves its zone, under each placement."""

    matrix: Matrix
    """Who sends to whom."""

    step_s: float
    """Length of a step by the closed form."""

    unreachable: int
    """Connections whose ends no path joins."""

    @property
    def transfers(self) -> Table:
        """Every connection between NICs with its bytes of one step."""
        return self._table("transfers")


@dataclass(eq=False)
class TierSummary(Record):
    """One layer of switches."""

    name: str
    """What its switches are called."""

    model: str
    """The box."""

    switches: int
    """How many there are."""

    links: int
    """Cables to the tier below or the NICs, and between its own switches."""

    rate_bps: float
    """Rate of the fastest of these cables."""

    oversubscription: float
    """Capacity below over capacity above, as it was meant; 1 at the top."""

    oversubscription_built: float
    """The same as it was built, with uplinks rounded to whole cables."""


@dataclass(eq=False)
class ScaleUpSummary(Record):
    """The network inside servers or larger domains."""

    domain_gpus: int
    """GPUs that it joins."""

    switches: int
    """Switches, one for each domain; none in a mesh."""

    links: int
    """Cables or traces."""

    rate_bps: float
    """What one GPU can send into it."""


@dataclass(eq=False)
class NetworkSummary(Record):
    """One of the switched networks."""

    nics: int
    """Network cards on it."""

    switches: int
    """Switches."""

    links: int
    """Cables, those to the NICs among them."""

    tiers: list[TierSummary]
    """The layers of switches, bottom up."""

    bisection_bps: float
    """The least capacity between two halves of its NICs, in one direction."""


@dataclass(eq=False)
class BillLine(Record):
    """One line of the bill."""

    part: str
    """What kind of part it is."""

    model: str
    """Its name in the hardware catalogue."""

    title: str
    """Its name for people."""

    place: str
    """Where it is used: "leaf", "leaf – spine"."""

    count: int
    """How many there are."""

    unit_usd: Optional[float]
    """What one costs; nothing if the catalogue does not say."""

    unit_w: Optional[float]
    """What one draws; nothing if the catalogue does not say."""

    cost_usd: float
    """What all of them cost."""

    cost_low_usd: float
    """The least that they may cost, of what sources say."""

    cost_high_usd: float
    """The most."""

    power_w: float
    """What all of them draw."""

    is_estimate: bool
    """Whether price or power is an estimate."""


@dataclass(eq=False)
class FabricBill(Record):
    """Everything that a fabric is made of."""

    lines: list[BillLine]
    """Line by line."""

    cost_usd: float
    """What all of it costs."""

    cost_low_usd: float
    """The least that it may cost: every price at its lowest."""

    cost_high_usd: float
    """The most: every price at its highest."""

    power_w: float
    """What all of it draws."""

    unpriced: int
    """Parts that the catalogue has no price for; they count as nothing above."""


@dataclass(eq=False)
class Latencies(Record):
    """How long 64 bytes take, NICs included, in microseconds."""

    server: Optional[float]
    """Between two GPUs of a server, by its scale-up network."""

    rack: Optional[float]
    """Between two servers of a leaf."""

    zone: Optional[float]
    """Between two leaves of a zone."""

    across: Optional[float]
    """Between the servers that are farthest from each other."""


@dataclass(eq=False)
class CableRow(Record):
    """Cables of one tier."""

    name: str
    """Between what."""

    length_m: float
    """As long as they are counted, in metres."""

    from_: str
    """Why: `given`, `rows` of racks, or the topology's `usual`."""

    rows_m: float
    """As long as rows of racks would make them."""


@dataclass(eq=False)
class Racks(Record):
    """The racks of a cluster's servers."""

    racks: int
    """How many there are; none if a server draws more than a rack may."""

    servers: int
    """Servers of a full one."""

    gpus: int
    """GPUs of a full one."""

    power_w: float
    """What a full one draws, without switches."""

    limit_w: float
    """What it may draw."""

    per_row: int
    """Racks of a row."""

    rows: int
    """Rows."""

    cables: list[CableRow]
    """The back-end's cables, bottom up."""


@dataclass(eq=False)
class DomainRow(Record):
    """One kind of part."""

    part: str
    """What it is: `cable`, `fibre`, `transceiver`, `NIC`, `switch`, `plane`, `server`, `rack`,
    `software`.
    """

    place: str
    """Where: a kind of cable, a tier."""

    count: int
    """How many there are."""

    gpus_stopped: int
    """The most GPUs that one failure stops."""

    jobs_stopped: int
    """Jobs that it stops: the scenario's, or none."""

    stop_the_job: int
    """How many of the parts stop the job when they fail."""

    bandwidth_left: float
    """What the NIC or switch that is hit worst can still carry, as a share."""

    bisection_left: float
    """Bisection of the back-end over what it was."""

    paths: int
    """Shortest ways from a NIC that is hit to another, before the failure."""

    paths_left: int
    """The same after it."""

    failures_per_year: Optional[float]
    """Failures of all of them in a year; nothing where no rate is published."""

    lost_share: Optional[float]
    """Their share of the time that failures cost the job; nothing where no rate is published."""

    source: str
    """Where the rate comes from."""

    looked_at: int
    """How many unlike parts were looked at; the others were taken to be like them."""


@dataclass(eq=False)
class Domains(Record):
    """The failure domains of a back-end."""

    job_gpus: int
    """GPUs of the job; all of the cluster's where the scenario has none."""

    rack_servers: int
    """Servers that were taken for a rack."""

    rows: list[DomainRow]
    """Every kind of part, from cables to racks, and software."""


@dataclass(eq=False)
class FileRow(Record):
    """One kind of file."""

    name: str
    """Its name."""

    devices: int
    """Devices that have one."""

    settings: int
    """Distinct settings in it."""

    lines: int
    """Lines of one."""


@dataclass(eq=False)
class StatedFact(Record):
    """A fact that is told and not computed."""

    what: str
    """Of what."""

    text: str
    """The fact."""

    source: str
    """Who tells it."""


@dataclass(eq=False)
class Operations(Record):
    """What one network asks."""

    devices: int
    """Switches, servers or managers that must be told anything."""

    settings: int
    """Distinct settings, all files together."""

    lines: int
    """Lines, on all devices together."""

    files: list[FileRow]
    """What they are told."""

    set_keys: list[str]
    """Keys of `[network]` that are not what the transport begins with."""

    told: list[StatedFact]
    """What is told of its kind, with sources."""


@dataclass(eq=False, repr=False)
class Topo(Result):
    """A fabric in numbers."""

    gpus: int
    """Accelerators."""

    nodes: int
    """Servers."""

    nics: int
    """Back-end network cards."""

    zones: int
    """Zones, pods, rails or groups of the leaves."""

    zone_word: str
    """What a zone is called: "zone", "pod", "rail", "group"."""

    gpus_per_zone: int
    """GPUs of the largest zone: those whose NIC is on one of its leaves."""

    switches: int
    """Switches."""

    links: int
    """Cables, those to the NICs among them."""

    tiers: list[TierSummary]
    """The layers of switches, bottom up."""

    bisection_bps: float
    """The least capacity between two halves of the NICs, in one direction."""

    bisection_share: float
    """The bisection over half of what the NICs can send: 1 is full bisection."""

    paths_max: int
    """The most shortest ways between two NICs."""

    hops_max: int
    """Most links from NIC to NIC on a shortest way."""

    scale_up: ScaleUpSummary
    """The network inside servers or larger domains."""

    front_end: Optional[NetworkSummary]
    """The network for storage, checkpoints and control."""

    failed_links: int
    """Directed links that are out of service from the start."""

    cost_usd: float
    """What everything costs."""

    cost_low_usd: float
    """The least that it may cost: every price at the least that sources say."""

    cost_high_usd: float
    """The most."""

    power_w: float
    """What everything draws, servers included."""

    bill: FabricBill
    """What it is made of."""

    latency_us: Latencies
    """How long 64 bytes take, NICs included, in microseconds."""

    racks: Racks
    """The racks of its servers."""

    targets: list[TargetRow] = field(default_factory=list)
    """What the fabric should reach, met or missed."""

    domains: Optional[Domains] = None
    """What one failure stops, if that was asked for."""

    operations: Optional[Operations] = None
    """What it asks of operators, if that was asked for."""


@dataclass(eq=False)
class About(Record):
    """What an answer is about. Empty texts do not apply."""

    name: str
    """The scenario's name."""

    cluster: str
    """GPUs and servers."""

    gpus: int
    """GPUs of the cluster."""

    fabric: str
    """The topology and its tiers."""

    oversubscription: str
    """Of each tier with uplinks, from the bottom up, as people write it: `2:1`."""

    nic: str
    """The back-end NIC."""

    switch: str
    """The switches, from the bottom up."""

    transport: str
    """How packets are carried."""

    routing: str
    """How paths are chosen."""

    queue_pairs: int
    """Queue pairs of a connection."""

    congestion_control: str
    """The congestion control; only packets have one."""

    model: str
    """The model."""

    layout: str
    """How it is cut, and its batch."""

    engine: str
    """What computed the network; empty where nothing did."""

    seed: int
    """The seed."""

    version: str
    """The version of fatflow."""

    command: str
    """The command that makes it again; empty where none does."""

    assumed: str = ""
    """What stands in for switches that the scenario does not name; empty where all are named."""

    inherited: str = ""
    """What a file has left to the preset that it starts from, where it sizes its own cluster or job.
    """


@dataclass(eq=False)
class ComparisonVerdict(Record):
    """What somebody would tell a colleague."""

    text: str
    """In words."""

    best: str
    """The column with the shortest step, or the highest MFU where jobs differ; of traffic without a
    job the one with the shortest makespan.
    """

    tie: bool
    """Whether another cannot be told from it."""

    ties: list[str]
    """Those that cannot."""

    recommended: Optional[str] = None
    """The column whose tokens cost the least; nothing where work or sizes differ."""

    also: list[str] = field(default_factory=list)
    """What has to be known beside it: what else than the question differs, what nobody asked for,
    what the answer may turn on.
    """

    levers: list[Lever] = field(default_factory=list)
    """What the answer may turn on: a setting that is the same in all columns and costs each of them
    much.
    """


@dataclass(eq=False)
class StepDifference(Record):
    """How much longer a column's step is than the first's, as a share of that."""

    share: float
    """As predicted."""

    low: float
    """The least of its 80 % interval."""

    high: float
    """The most."""

    cancels: bool
    """Whether both do the same work on the same GPUs: the error of computation is the same in both
    and cancels, and what is left is that of communication and of seeds.
    """


@dataclass(eq=False)
class ComparisonRow(Record):
    """One metric of all columns."""

    metric: str
    """The metric."""

    unit: str
    """The unit of both figures; empty for plain numbers, fractions and words."""

    reported: list[Optional[Union[float, list[float], str]]]
    """What has been published, by column: a figure, the two ends of a range, or words."""

    simulated: list[Optional[Union[float, list[float], str]]]
    """What is simulated, by column."""

    source: list[Optional[str]]
    """Where the published figure stands, by column."""

    theme: str
    """What it belongs to."""

    title: str
    """What people call it."""

    ci95: list[Optional[float]] = field(default_factory=list)
    """How sure the mean over seeds is, by column: half of the 95 % confidence interval. Empty where
    there is one seed.
    """

    low: list[Optional[float]] = field(default_factory=list)
    """The least that it may be, by column; empty where the metric has no interval."""

    high: list[Optional[float]] = field(default_factory=list)
    """The most."""


@dataclass(eq=False)
class Changed(Record):
    """An input that differs."""

    key: str
    """Its dotted path."""

    values: list[str]
    """Its value in each column; empty where it has none."""


@dataclass(eq=False)
class Requirement(Record):
    """One requirement of all columns."""

    name: str
    """Which."""

    figure: str
    """The figure that it rests on."""

    values: list[Optional[float]]
    """What that is in each column; nothing where it has none."""

    best: Optional[str]
    """The better column; nothing where all are alike or fewer than two have the figure."""


@dataclass(eq=False, repr=False)
class Comparison(Result):
    """Scenarios side by side."""

    columns: list[str]
    """What the columns are called."""

    about: list[About]
    """What each column is about."""

    rows: Rows[ComparisonRow]
    """One for each metric."""

    changed: list[Changed]
    """Inputs that differ between the columns; empty for the deployments, which share nothing."""

    operations: list[Operations]
    """What each column asks of its operators."""

    verdict: Optional[ComparisonVerdict] = None
    """Which is best, and whether that is known; nothing where fewer than two have a step."""

    differences: list[Optional[StepDifference]] = field(default_factory=list)
    """How much longer each column's step is than the first's; empty where steps do not compare."""

    requirements: list[Requirement] = field(default_factory=list)
    """The five requirements of the documents, each with the better column."""

    targets: list[TargetRow] = field(default_factory=list)
    """What the columns should reach, met or missed; each name begins with its column's."""

    notes: list[str] = field(default_factory=list)
    """What has to be known of the columns."""

    left_out: list[str] = field(default_factory=list)
    """Columns that an interrupt has left out."""


@dataclass(eq=False)
class Case(Record):
    """One measurement."""

    id: str
    """Its name."""

    measured: float
    """What was measured."""

    predicted: float
    """What is predicted."""

    error: float
    """Predicted over measured, less one."""

    unit: str
    """The unit of both."""

    note: str
    """What was chosen where the source does not say, or how the prediction was made."""

    source: str
    """Where it was published."""

    is_extrapolated: bool
    """Whether no kernel of its GPU was published, or no collective over its scale-up network."""

    is_alone: bool
    """Whether no other cluster has a row of its class."""

    left_out_error: float
    """The error with every constant set again without this cluster."""

    low: float
    """The least of the 80 % interval around the prediction in which this cluster had no part."""

    high: float
    """The most."""

    spread: Optional[tuple[float, float]] = None
    """The least and the most that open inputs allow, in the same unit."""

    cluster: str = ""
    """Whose cluster it was."""

    class_: Optional[str] = None
    """What it is like."""


@dataclass(eq=False)
class ScoreOfPart(Record):
    """The figures of one cluster or class."""

    name: str
    """Its name."""

    rows: int
    """Its rows, those that could not be predicted among them."""

    mean_abs_error: float
    """Mean of the errors' sizes; a row that could not be predicted counts as off by 100 %."""

    median_abs_error: float
    """Their median."""

    mean_over_clusters: float
    """The mean over clusters of each cluster's mean."""

    mean_abs_time_error: float
    """The mean, with rates turned into times."""

    left_out_mean_abs_error: float
    """The mean where every constant was set again without the row's cluster."""

    left_out_median_abs_error: float
    """The median of the same."""

    bias: float
    """Mean of the signed errors."""

    within_12_percent: float
    """The share of cases within 12 %."""

    coverage_80: float
    """The share of measurements inside their 80 % interval."""

    half_width_80: float
    """Mean half-width of those intervals, as a share of the prediction."""


@dataclass(eq=False)
class Unpredicted(Record):
    """A row that could not be predicted."""

    id: str
    """Its name."""

    reason: str
    """Why not."""

    cluster: str = ""
    """Whose cluster it was, where that could be read."""


@dataclass(eq=False)
class Family(Record):
    """Measurements that belong together."""

    name: str
    """Its name."""

    cases: Rows[Case]
    """What was measured and predicted."""

    mean_abs_error: float
    """Mean of the errors' sizes; a row that could not be predicted counts as off by 100 %."""

    median_abs_error: float
    """Their median."""

    mean_over_clusters: float
    """The mean over clusters of each cluster's mean."""

    mean_abs_time_error: float
    """The mean, with rates turned into times."""

    left_out_mean_abs_error: float
    """The mean where every constant was set again without the row's cluster."""

    left_out_median_abs_error: float
    """The median of the same."""

    bias: float
    """Mean of the signed errors."""

    within_12_percent: float
    """The share of cases within 12 %."""

    coverage_80: float
    """The share of measurements inside their 80 % interval."""

    half_width_80: float
    """Mean half-width of those intervals, as a share of the prediction."""

    worst: float
    """The error that is largest in size."""

    worst_id: str
    """Whose it is."""

    rank_correlation: float
    """Spearman's rank correlation of predicted and measured."""

    by_cluster: list[ScoreOfPart]
    """The same for each cluster."""

    by_class: list[ScoreOfPart]
    """The same for each class, and for all collectives of a size whose class another cluster has.
    """

    unpredicted: list[Unpredicted]
    """Rows that could not be predicted."""


@dataclass(eq=False, repr=False)
class Validation(Result):
    """Every family with its errors."""

    families: list[Family]
    """One for each file, or folder of packet runs."""

    threshold: Optional[float]
    """The most that a family's mean error may be, if somebody asked."""

    worse: list[str]
    """Errors that have grown beyond what the ratchet allows, in words."""

    passed: bool
    """Whether every family keeps to both."""

    fabric_rule: Optional[str] = None
    """The rule that gives rows their fabric, if there are any."""


@dataclass(eq=False)
class CrossCheckColumn(Record):
    """One engine."""

    name: str
    """What it is called."""

    cpu_s: float
    """Seconds of the processor that its answer took."""

    refused: Optional[str] = None
    """Why it gave none, or not all, if so."""

    scaled: Optional[str] = None
    """What of it was scaled up, and how far off that may be, if so."""


@dataclass(eq=False)
class CrossCheckRow(Record):
    """One quantity."""

    metric: str
    """Which."""

    unit: str
    """Its unit."""

    values: list[Optional[float]]
    """What each column says."""

    differences: list[Optional[float]]
    """By how much that differs from the last column before it that says something: this over that,
    less one.
    """


@dataclass(eq=False, repr=False)
class CrossCheck(Result):
    """Every engine's answer."""

    columns: list[CrossCheckColumn]
    """Who answered."""

    rows: Rows[CrossCheckRow]
    """What they answered."""


@dataclass(eq=False)
class SlowedBy(Record):
    """What one job does to another."""

    by: str
    """Who slows it."""

    seconds: float
    """By how much its step would be shorter without."""

    links: list[str]
    """The links that both use, those first that both use most."""


@dataclass(eq=False)
class JobRow(Record):
    """One of the jobs."""

    name: str
    """Its name."""

    step_s: float
    """A step beside the others, the mean of those that were run; of traffic, from its start until its
    last flow is over.
    """

    alone_s: float
    """A step with nobody else on the fabric."""

    slowdown: float
    """One over the other."""

    gpus: int
    """Its GPUs."""

    nodes: str
    """Its servers, as Slurm writes them."""

    start_s: float
    """When its first step began."""

    end_s: float
    """When its last one ended."""

    steps: Steps
    """Its steps beside the others."""

    breakdown_s: BreakdownSeconds
    """Where the time of its first step goes."""

    slowed_by: list[SlowedBy]
    """Who slows it."""


@dataclass(eq=False)
class TrafficRow(Record):
    """The traffic beside the jobs."""

    makespan_s: float
    """From its start until its last flow was over, beside the jobs."""

    alone_s: float
    """The same without them."""

    slowdown: float
    """One over the other."""

    slowed_by: list[SlowedBy]
    """Which jobs slow it."""


@dataclass(eq=False, repr=False)
class JobsRun(Run):
    """Several jobs on one fabric."""

    way: str
    """How steps were put together."""

    step_s: float
    """The longest of the jobs' steps."""

    all_s: float
    """From 0 until the last of them is over: an iteration, where they come one after the other."""

    jobs: list[JobRow]
    """The jobs, in the order of the file."""

    operations: int
    """Operations that the engine ran, all jobs together."""

    findings: list[str]
    """What the engine noticed."""

    wall_s: float
    """Seconds that all runs took on the clock."""

    cpu_s: float
    """Seconds that they took of the processor."""

    peak_rss_bytes: int
    """The most memory that the process has used."""

    traffic: Optional[TrafficRow] = None
    """The synthetic traffic beside them, if there is any."""

    seeds: Optional[Seeds] = None
    """The same under other seeds, if that was asked for. Servers stay as the first deals them out.
    """


@dataclass(eq=False)
class Piece(Record):
    """One kind and model of part."""

    title: str
    """The model."""

    part: str
    """What kind of part it is."""

    from_: int
    """How many the first fabric has."""

    to: int
    """How many the second has."""

    kept: int
    """Those of the first that the second uses."""

    moved: int
    """Kept ones that stand at another place."""

    bought: int
    """Those that are bought."""

    left_over: int
    """Those of the first that nobody uses any more."""

    kept_usd: float
    """What the kept ones are worth at the second fabric's prices."""

    bought_usd: float
    """What the bought ones cost."""


@dataclass(eq=False, repr=False)
class Growth(Result):
    """From one fabric to another."""

    parts: list[Piece]
    """One for each kind and model of part."""

    kept_usd: float
    """What is kept, at the second fabric's prices."""

    bought_usd: float
    """What is bought."""

    cost_usd: float
    """The second fabric's bill: both together."""

    recabled: int
    """Cables of the first fabric that are kept and lie elsewhere in the second."""


@dataclass(eq=False)
class Baseline(Record):
    """The scenario as it is."""

    step_s: float
    """The step with the scenario's own seed, as `run` tells it."""

    step_low_s: float
    """The model's 80 % interval of it."""

    step_high_s: float
    """Its upper end."""

    cost_usd: float
    """What everything costs to buy."""

    goodput: float
    """The share of a long run that trains."""

    usd_per_million_tokens: float
    """What a million trained tokens cost."""

    mean_step_s: float
    """The mean step over the seeds."""

    seeds: list[int]
    """The seeds that were run."""


@dataclass(eq=False)
class Advised(Record):
    """A change and what it does."""

    name: str
    """What it is."""

    kind: str
    """Who must do it."""

    set: list[str]
    """`PATH=VALUE`, as `--set` takes them."""

    step_s: float
    """The step with the scenario's own seed, as `run` tells it with these settings."""

    gain: float
    """The share of the goal's figure that is gained, on average over the seeds."""

    seeds: int
    """Seeds that it was run with: the scenario's own alone where time left no more."""

    low: float
    """Of ten other seeds, nine gain more."""

    high: float
    """Of ten other seeds, nine gain less."""

    model_error: float
    """How far the model itself may be off between the two, as a share of the step."""

    cost_usd: float
    """What everything costs to buy then."""

    goodput: float
    """The share of a long run that trains then."""

    usd_per_million_tokens: float
    """What a million trained tokens cost then."""

    risk: str
    """What it risks."""

    why: str
    """What made it look worthwhile."""

    files: list[str]
    """The files that `--write` makes of it."""

    engine: str
    """The engine that judged it."""

    command: str
    """The command that gives the same step."""


@dataclass(eq=False)
class Scored(Record):
    """One layout by closed forms."""

    name: str
    """In words."""

    set: list[str]
    """What must be set for it."""

    step_s: float
    """The step by closed forms."""

    memory: float
    """The share of a GPU's memory that it takes."""

    usd_per_million_tokens: float
    """What a million trained tokens cost then, without failures."""

    front: bool
    """Whether no other is better in all three."""


@dataclass(eq=False)
class Layouts(Record):
    """What a search found."""

    mixes: int
    """Mixes of the values that were free."""

    looked_at: int
    """Mixes that were looked at: as many as the budget counts, if there was time."""

    unseen: int
    """Mixes that the budget counts and for which there was no time."""

    legal: int
    """Those that the job's rules allow."""

    fit: int
    """Those that fit memory."""

    predicted: int
    """Those that were predicted by closed forms before time was up."""

    wall_s: float
    """Seconds that this took."""

    by_engine: int
    """Layouts that the engine was asked for after that."""

    left: int
    """Those for which the engine had no time."""

    best: list[Scored]
    """The best of them, and those that no other beats in step, memory and cost."""


@dataclass(eq=False)
class Spares(Record):
    """What spare servers bring: the share of 30 days that trains, by dice."""

    now: int
    """The scenario's own."""

    enough: int
    """The fewest that more would not improve by a tenth of a per cent."""

    goodput: list[tuple[int, float]]
    """Spare servers, and the share of the time that trains with them."""

    command: str
    """The command that tells the same."""


@dataclass(eq=False)
class RefusedChange(Record):
    """A change that cannot be made here."""

    name: str
    """Which."""

    why: str
    """Why."""


@dataclass(eq=False, repr=False)
class Advice(AdviceBase):
    """What to change."""

    verdict: str
    """What somebody would tell a colleague."""

    goal: str
    """What should become better."""

    base: Baseline
    """As it is."""

    changes: Rows[Advised]
    """What gains, the most first."""

    tried: int
    """Changes that were tried."""

    without_gain: list[str]
    """Those that gain nothing that the seeds would confirm."""

    unconfirmed: list[str]
    """Those that gain with the scenario's own seed; others gained more and were asked again."""

    refused: list[RefusedChange]
    """Those that this cluster or job does not take, and why."""

    left: list[str]
    """Those for which there was no time, or that an interrupt left out."""

    runs: int
    """Runs in all."""

    wall_s: float
    """Seconds on the clock."""

    layouts: Optional[Layouts] = None
    """The layouts that were looked at by closed forms."""

    spares: Optional[Spares] = None
    """What spare servers bring."""


@dataclass(eq=False)
class Difference(Record):
    """One value that differs."""

    file: str
    """The file."""

    key: str
    """What it is called there."""

    has: Optional[str]
    """What the file says; nothing if it does not."""

    wants: str
    """What the advice says."""


@dataclass(eq=False, repr=False)
class FilesCheck(Result):
    """What files say beside the advice."""

    name: str
    """The change that they are held against."""

    files: list[tuple[str, str]]
    """Files that were read, and what each was taken for."""

    differences: list[Difference]
    """What differs."""

    agree: int
    """Values that agree."""


@dataclass(eq=False)
class ObservedSource(Record):
    """A file, or a member of an archive."""

    file: str
    """Its path as it was given, and behind `!` the member of an archive."""

    kind: str
    """What it is."""

    read: int
    """How many of its units were understood."""

    skipped: int
    """How many were not: they say nothing that `observe` looks for."""

    unit: str
    """What is counted: lines, packets, events."""

    problems: list[str]
    """What is wrong with it, each with its place."""

    more_problems: int = 0
    """Problems that are not written out because there are too many."""


@dataclass(eq=False)
class NicSummary(Record):
    """A NIC, on all servers that have it under the same number and name."""

    index: int
    """Its number in the library's list."""

    name: str
    """Its name."""

    link: str
    """RoCE, IB, Socket."""

    used: int
    """Lines of connections that go through it."""

    speed_mbps: Optional[int] = None
    """Megabits per second, where the library says."""


@dataclass(eq=False)
class NetLines(Record):
    """Lines of connections over the network."""

    all: int
    """All."""

    gpu_direct: int
    """NIC and GPU meet without the host's memory."""

    proxied: int
    """Through the NIC of another rank of the server (PXN)."""

    in_network: int
    """Through a switch that reduces."""


@dataclass(eq=False)
class ClusterSummary(Record):
    """What the cluster is made of."""

    nodes: Optional[int]
    """Servers of the job; files may hold fewer."""

    hosts: list[str]
    """Servers that wrote something."""

    ranks: Optional[int]
    """Ranks of the largest job."""

    jobs: int
    """Jobs: groups of processes that share communicators."""

    gpus_per_node: Optional[int]
    """The most GPUs that one server uses."""

    gpus: list[str]
    """Kinds of GPU, as the files call them."""

    nics_used: list[str]
    """NICs that connections go through, by name."""

    nics_per_node: Optional[int]
    """The most NICs that connections of one server go through, if any say so."""

    nics: list[NicSummary]
    """All NICs that are listed or used."""

    transport: Optional[str]
    """What connections between servers go through."""

    library: Optional[str]
    """The library."""

    version: Optional[str]
    """Its version."""

    net_lines: NetLines
    """Lines of connections over the network."""

    connections: dict[str, int]
    """Lines of connections of any kind, by what they go through."""

    environment: dict[str, list[str]]
    """Settings of the environment, each with its values."""

    versions: list[str] = field(default_factory=list)
    """All versions, if there are several."""


@dataclass(eq=False)
class CommunicatorSummary(Record):
    """A group of ranks that talk to each other."""

    id: str
    """What the files call it."""

    ranks: int
    """How many ranks it has."""

    seen: int
    """How many of them wrote something."""

    nodes: Optional[int]
    """Servers that it spans, if that is said or seen."""

    channels: int
    """Channels for collectives."""

    rings: list[list[int]]
    """The ranks of each ring in order."""

    members: list[int] = field(default_factory=list)
    """Their numbers in the job, in their order in the group, where files say them."""

    trees: list[list[Optional[int]]] = field(default_factory=list)
    """For each channel the parent of each rank in the tree, -1 at the root."""


@dataclass(eq=False)
class Initialised(Record):
    """Ranks that finished to initialise communicators of a size."""

    ranks: int
    """The size."""

    count: int
    """How many said so."""


@dataclass(eq=False)
class CollectiveSummary(Record):
    """A collective of one size."""

    kind: str
    """What it does."""

    bytes: int
    """As nccl-tests counts them."""

    ranks: Optional[int]
    """Ranks of its group, if they are known."""

    count: int
    """How often it was seen."""

    time_us: Optional[float]
    """The mean time."""

    busbw_GBps: Optional[float]
    """Bus bandwidth: as printed, otherwise from the mean time."""

    from_: str
    """What says so."""

    min_us: Optional[float] = None
    """The shortest time, if it was seen more than once."""

    max_us: Optional[float] = None
    """The longest time, if it was seen more than once."""


@dataclass(eq=False)
class Load(Record):
    """What collectives put on the network."""

    text: str
    """The same in a sentence."""

    bytes_per_rank: dict[str, float]
    """Bytes that a rank sends, by kind: size times the factor of bus bandwidth."""

    all_reduce_share: float
    """The share of all-reduces in them."""

    all_to_all_share: float
    """The share of all-to-alls in them."""

    without_size: int
    """Collectives whose size no file says; they are not in the shares."""


@dataclass(eq=False)
class AxisLoad(Record):
    """What a rank sends in groups of one shape."""

    axis: Optional[str]
    """The axis: `tp`, `dp`, `pp`, `ep`, `cp`; `None` where nothing tells."""

    ranks: Optional[int]
    """Ranks of a group, where known."""

    apart: Optional[int]
    """How far apart its ranks are, if all are equally far from the next: 1 are neighbours."""

    names: list[str]
    """What files call these groups, the first of them."""

    calls_per_rank: float
    """Calls of a rank, on average over the ranks that files show."""

    bytes_per_rank: float
    """Bytes that a rank sends, on average over the ranks that files show: sizes times the factor of
    bus bandwidth.
    """

    share: float
    """The share of that in all groups."""

    by_primitive: dict[str, float]
    """The same by what is done."""


@dataclass(eq=False)
class Choice(Record):
    """What the library chose for a size."""

    kind: str
    """The collective."""

    bytes: int
    """Bytes as the library counts them."""

    choice: str
    """The algorithm, protocol and channels."""

    count: int
    """How many lines say so."""


@dataclass(eq=False)
class BenchmarkRow(Record):
    """One row of a benchmark's table."""

    bytes: int
    """The size as the benchmark counts it."""

    time_us: float
    """The time out of place; in place where there is no other."""

    busbw_GBps: float
    """Bus bandwidth out of place."""

    in_place_us: Optional[float]
    """The time in place."""

    in_place_busbw_GBps: Optional[float]
    """Bus bandwidth in place."""


@dataclass(eq=False)
class ObservedBenchmark(Record):
    """A table of nccl-tests, rccl-tests or another benchmark of collectives."""

    name: str
    """The program, if it says."""

    kind: Optional[str]
    """What it ran, if that is known."""

    ranks: Optional[int]
    """Its ranks."""

    nodes: Optional[int]
    """Its servers."""

    rows: list[BenchmarkRow]
    """Rows of its table."""

    average_busbw_GBps: Optional[float]
    """The mean bus bandwidth that it prints at the end."""

    wrong: int
    """Results that were wrong, as it counts them."""

    is_complete: bool
    """Whether it came to its end."""

    file: str
    """The file."""

    line: int
    """The line of its first row."""


@dataclass(eq=False)
class FlowsSummary(Record):
    """Flows that tables list."""

    flows: int
    """How many."""

    completed: int
    """Those that have an end."""

    bytes: int
    """Payload of all."""

    makespan_s: Optional[float]
    """From the first start to the last end; none if none ended."""

    goodput_bps: Optional[float]
    """Payload per second of that."""

    mean_s: Optional[float]
    """The mean time of a flow."""

    max_s: Optional[float]
    """The longest."""


@dataclass(eq=False)
class ObservedRun(Record):
    """A run of training, summed up."""

    name: Optional[str]
    """The benchmark or program, if it says."""

    seconds: Optional[float]
    """From its start to its stop."""

    global_batch_size: Optional[int]
    """Samples of a step."""

    samples_per_s: Optional[float]
    """Samples per second: the median of what it printed."""

    last_samples_per_s: Optional[float]
    """The last of these: often the mean of the whole run."""

    throughput_lines: int
    """How often it printed that."""

    file: str
    """The file."""


@dataclass(eq=False)
class StepsSummary(Record):
    """Steps of training."""

    count: int
    """How many."""

    mean_s: float
    """Their mean."""

    median_s: float
    """The middle one."""

    min_s: float
    """The shortest."""

    max_s: float
    """The longest."""

    exposed_share: Optional[float]
    """Communication that nothing hides, as a share, where traces show it."""


@dataclass(eq=False)
class KernelTimes(Record):
    """Time in which kernels of a kind run; two at once count for both."""

    product_s: float
    """Products of matrices."""

    attention_s: float
    """Attention."""

    memory_s: float
    """All others: their time is the bytes that they move."""


@dataclass(eq=False)
class ObservedTrace(Record):
    """What a profiler recorded on one rank."""

    file: str
    """The file."""

    rank: Optional[int]
    """The rank, if the file or its name says."""

    span_s: float
    """From the first event to the end of the last."""

    kernels: int
    """Kernels."""

    collectives: int
    """Of them, those that communicate."""

    calls: int
    """Calls of collectives on the host."""

    compute_s: float
    """Time in which something computes."""

    communication_s: float
    """Time in which something communicates."""

    exposed_s: float
    """Of that, time in which nothing computes."""

    computing: KernelTimes
    """What the time in which something computes is spent on."""


@dataclass(eq=False)
class Straggler(Record):
    """A rank that comes last to collectives."""

    rank: int
    """The rank."""

    last: int
    """How often it came last."""

    of: int
    """Collectives that it was in and that files of at least two ranks show."""

    late_us: float
    """By how much it came after the first, on average."""


@dataclass(eq=False)
class ObservedPackets(Record):
    """Packets, counted."""

    data: int
    """Packets that carry data."""

    acks: int
    """Acknowledgements."""

    naks: int
    """Negative ones."""

    cnps: int
    """Congestion notifications."""

    pauses: int
    """Pause frames, of PFC or of the whole link."""

    marked: int
    """Data packets with the mark "congestion experienced"."""

    retransmitted: int
    """Data packets that were sent again."""

    bytes: int
    """Payload of data packets, what was cut from the capture too."""


@dataclass(eq=False)
class Verb(Record):
    """What a verb did."""

    packets: int
    """Its packets."""

    messages: int
    """Its messages, by their last packets."""

    bytes: int
    """Its payload."""


@dataclass(eq=False)
class ObservedPauses(Record):
    """Pause frames of a class."""

    xoff: int
    """That stop it."""

    xon: int
    """That let it go on."""

    quanta: int
    """The times that they ask for, in units of 512 bit times."""


@dataclass(eq=False)
class Wire(Record):
    """Packets in more detail than [`Packets`]."""

    seconds: float
    """From the first packet to the last."""

    verbs: dict[str, Verb]
    """Packets, messages and bytes by verb."""

    opcodes: dict[str, int]
    """Packets by opcode."""

    truncated: int
    """Packets of which only the beginning is in the file."""

    malformed: int
    """Packets that no transport has."""

    icrc_wrong: int
    """Packets whose check at the end is wrong."""

    tagged: int
    """VLAN tags."""

    mirrored: int
    """Copies that a switch sent in a tunnel."""

    copies: int
    """Copies of the packet before, seen at another hop."""

    out_of_order: int
    """Data packets that came before one that was sent earlier."""

    missing: int
    """Sequence numbers that never came."""

    naks: dict[str, int]
    """Negative acknowledgements by what they say."""

    lldp: int
    """LLDP frames."""

    pauses: dict[str, ObservedPauses]
    """Pause frames by class (`link` for the whole link): those that stop and those that start."""

    pausing: dict[str, int]
    """Pause frames by the station that sent them."""

    unknown_links: dict[str, int]
    """Packets on links whose type is not known, by its number."""

    flows: int
    """5-tuples of data, and the entropy of the bytes over them: 1 where all carry the same."""

    entropy: Optional[float]
    """The entropy of the bytes over 5-tuples, divided by its largest."""

    elephant_share: Optional[float]
    """The share of the bytes in flows of more than 10 MiB."""

    mean_bps: Optional[float]
    """The mean rate of payload."""

    peak_to_mean: Optional[float]
    """The busiest bin over the mean."""

    duty_cycle: Optional[float]
    """The share of bins in which there was payload."""

    bursts: Optional[int]
    """Runs of bins with payload."""

    bin_s: float
    """The width of a bin."""

    is_sampled: bool
    """Whether the packets are samples: order and loss cannot be told then."""

    rate: list[tuple[float, float]] = field(default_factory=list)
    """Payload in bits per second: the beginning of a bin in seconds, and its rate."""


@dataclass(eq=False)
class Neighbour(Record):
    """What is at the other end of a cable, by LLDP."""

    chassis: str
    """The other side: its chassis."""

    port: str
    """Its port."""

    system: str
    """Its name."""

    has_qcn: bool
    """Whether it speaks of quantised congestion notification."""

    frames: int
    """Frames that say so; 0 in tables."""

    local: str = ""
    """The port on this side, if a table says."""

    description: str = ""
    """What it says of the port."""

    pfc: Optional[list[int]] = None
    """Classes that it pauses (DCBX), if it says."""

    bandwidths: list[int] = field(default_factory=list)
    """Percentages of its traffic classes (DCBX), if it says."""

    applications: list[tuple[int, int, int]] = field(default_factory=list)
    """Priority, selector and protocol of applications (DCBX)."""

    is_willing: Optional[bool] = None
    """Whether it takes over what the other side wants (DCBX), if it says."""


@dataclass(eq=False)
class FabricFile(Record):
    """A file that says how the fabric is cabled."""

    file: str
    """Its name."""

    kind: str
    """The tool that wrote it."""

    switches: int
    """Switches."""

    hosts: int
    """Adapters of hosts (InfiniBand), or hosts (Slurm)."""

    cables: int
    """Cables, where they are listed."""


@dataclass(eq=False)
class CounterRow(Record):
    """A counter, with its difference where it came more than once."""

    device: str
    """The NIC, GPU or port."""

    name: str
    """Its name."""

    value: float
    """Its last value."""

    host: str = ""
    """The host, if the file says."""

    difference: Optional[float] = None
    """The last value less the first, where there are several."""

    seconds: Optional[float] = None
    """From the first to the last, where the files say when."""


@dataclass(eq=False)
class Quote(Record):
    """A line that proves something."""

    file: str
    """The file."""

    line: int
    """The line, counted from 1; 0 where lines mean nothing."""

    text: str
    """What stands there, cut if it is long."""


@dataclass(eq=False)
class ObservedFinding(Record):
    """Something that looks wrong, with the lines that show it."""

    severity: str
    """How bad it is."""

    code: str
    """A short name that stays, such as `gdr_off`."""

    text: str
    """What is wrong, what it costs, what to do."""

    lines: list[Quote]
    """The lines that show it, a few of them."""


@dataclass(eq=False)
class Compared(Record):
    """A collective, measured and predicted."""

    kind: str
    """What it does."""

    bytes: int
    """As nccl-tests counts them."""

    ranks: int
    """Ranks of its group."""

    measured_us: float
    """How long it took: the mean of all that was seen."""

    predicted_us: float
    """How long it should take."""

    error: float
    """Predicted over measured, less one."""


@dataclass(eq=False)
class ComparedStep(Record):
    """A step, measured and predicted."""

    measured_s: float
    """The middle one of those that were seen."""

    predicted_s: float
    """How long it should take."""

    error: float
    """Predicted over measured, less one."""


@dataclass(eq=False)
class ComparedCounter(Record):
    """A counter, as it grew and as it should."""

    counter: str
    """Its name, as the files have it."""

    unit: str
    """`a second`, on average over ports; or `in all`, of a capture."""

    measured: float
    """By how much it grew."""

    predicted: float
    """By how much it should."""

    error: Optional[float]
    """Predicted over measured, less one; `None` where nothing was counted."""

    ports: Optional[list[int]] = None
    """Ports that count and have a part in it, and those of the prediction."""


@dataclass(eq=False)
class Uplink(Record):
    """An uplink of a leaf."""

    link: str
    """Its name."""

    flows: int
    """Flows that hash to it."""

    bytes: int
    """Payload of these."""


@dataclass(eq=False)
class Uplinks(Record):
    """What the flows of a capture do to the uplinks of leaves."""

    flows: int
    """Flows: sender, receiver, source port and queue pair."""

    normalised: float
    """Shannon entropy of the flows over the uplinks of their leaf, over the most there could be.
    """

    idle: float
    """The share of uplinks, of leaves whose flows go up, that carry no flow."""

    idle_expected: float
    """The share that would be idle by chance."""

    imbalance: float
    """The busiest uplink's bytes over the mean of all."""

    busiest: list[Uplink]
    """The busiest."""

    own_addresses: bool
    """Whether addresses are the scenario's own; otherwise they stand for its NICs in order."""

    unreachable: int
    """Flows without a path."""


@dataclass(eq=False)
class ComparedAxis(Record):
    """What a rank sends on an axis, in a step."""

    axis: Optional[str]
    """The axis; `None` for groups that the layout does not have."""

    measured_bytes: float
    """Bytes that a rank sent, on average over the ranks that files show."""

    predicted_bytes: float
    """Bytes that a GPU should send, on average over all."""

    error: Optional[float]
    """Predicted over measured, less one; `None` where nothing was seen."""


@dataclass(eq=False)
class SideBySide(Record):
    """What stands beside what."""

    scenario: str
    """The scenario."""

    engine: str
    """The engine."""

    collectives: list[Compared]
    """Every collective that was observed with a time and can be predicted."""

    mean_error: Optional[float]
    """Mean size of the errors of collectives."""

    left_out: list[str]
    """What could not be predicted, and why."""

    step: Optional[ComparedStep] = None
    """The step, if steps were observed and the scenario has a job."""

    counters: list[ComparedCounter] = field(default_factory=list)
    """Counters that grew as files with times say, and as the scenario's traffic makes them grow.
    """

    uplinks: Optional[Uplinks] = None
    """Which uplinks the flows of a capture hash to."""

    by_axis: list[ComparedAxis] = field(default_factory=list)
    """What a rank sends in a step by axis, where files say the ranks of groups."""


@dataclass(eq=False)
class ReplayedCall(Record):
    """A collective, or messages, of one size."""

    kind: str
    """What it does."""

    bytes: int
    """As nccl-tests counts them."""

    ranks: int
    """Ranks of its group."""

    count: int
    """How often."""

    time_us: float
    """How long one takes here, on average, once all are there."""

    recorded_us: Optional[float] = None
    """How long one took where it was recorded, if the traces say."""


@dataclass(eq=False)
class Replayed(Record):
    """What the traces come to on a scenario's fabric."""

    scenario: str
    """The scenario."""

    engine: str
    """The engine."""

    ranks: int
    """Ranks of the job."""

    nodes: int
    """Nodes that were run."""

    makespan_s: float
    """From the start to the end of the last node."""

    compute_s: float
    """Computation of the GPU that computes most."""

    exposed_s: float
    """What is not computation on that GPU: communication that nothing hides, and waiting."""

    last_rank: int
    """The rank that ends last."""

    calls: list[ReplayedCall]
    """Collectives and messages by kind and size."""

    assumptions: list[str]
    """What was assumed where the traces do not say."""


@dataclass(eq=False)
class Setting(Record):
    """One setting."""

    key: str
    """Its key."""

    value: str
    """Its value, as a scenario writes it."""

    from_: str
    """What says so."""


@dataclass(eq=False)
class Constant(Record):
    """A constant."""

    key: str
    """Its setting."""

    value: float
    """Its value."""

    low: float
    """The least of its 95 % interval."""

    high: float
    """The most."""

    unit: str
    """The unit of the three."""

    what: str
    """What it is."""


@dataclass(eq=False)
class Refused(Record):
    """A constant that the observations do not determine."""

    key: str
    """Its setting."""

    why: str
    """Why."""


@dataclass(eq=False)
class Residual(Record):
    """What is left at one size."""

    kind: str
    """The collective."""

    bytes: int
    """Its size."""

    ranks: int
    """Its ranks."""

    error: float
    """Predicted over measured, less one."""


@dataclass(eq=False)
class Calibration(Record):
    """What was fitted."""

    settings: list[Setting]
    """Settings that the files say outright."""

    constants: list[Constant]
    """The constants that the observations determine."""

    refused: list[Refused]
    """Those that they do not."""

    held_back_error: Optional[float]
    """Mean size of the errors at sizes that were held back, predicted from the others; none where
    there were too few to hold any back.
    """

    held_back: int
    """How many sizes were held back."""

    error_before: float
    """Mean size of the errors before."""

    error_after: float
    """And with the constants."""

    residuals: list[Residual]
    """What is left, by size."""

    file: str
    """The scenario that was written."""

    remarks: list[str] = field(default_factory=list)
    """What a constant was told by besides."""


@dataclass(eq=False)
class Made(Record):
    """A scenario that was made."""

    file: str
    """The file."""

    settings: list[Setting]
    """What was set, and by which files."""

    not_said: list[str]
    """What no file says: the defaults hold."""


@dataclass(eq=False, repr=False)
class Observation(Result):
    """What was observed."""

    sources: list[ObservedSource]
    """The files."""

    cluster: ClusterSummary
    """What the cluster is made of."""

    communicators: list[CommunicatorSummary]
    """Groups of ranks that talk to each other."""

    queue_pairs: int
    """Queue pairs that files name, each end counted once."""

    collectives: Rows[CollectiveSummary]
    """Collectives by kind and size."""

    packets: ObservedPackets
    """Packets, counted."""

    findings: list[ObservedFinding]
    """What looks wrong, the worst first."""

    initialised: list[Initialised] = field(default_factory=list)
    """How many ranks finished to initialise communicators of a size."""

    mtu_bytes: Optional[int] = None
    """The payload of a full packet on those queue pairs, if all have the same."""

    load: Optional[Load] = None
    """What they put on the network, by kind."""

    by_axis: list[AxisLoad] = field(default_factory=list)
    """The same by axis: what ranks sent in groups that files name, the most first."""

    choices: list[Choice] = field(default_factory=list)
    """What the library chose."""

    benchmarks: list[ObservedBenchmark] = field(default_factory=list)
    """Tables of benchmarks."""

    flows: Optional[FlowsSummary] = None
    """Flows of `fatflow run` and `fatflow live`, if a table lists them."""

    runs: list[ObservedRun] = field(default_factory=list)
    """Runs of training."""

    steps: Optional[StepsSummary] = None
    """Steps of training."""

    traces: list[ObservedTrace] = field(default_factory=list)
    """Traces of profilers, one for each rank."""

    stragglers: list[Straggler] = field(default_factory=list)
    """Ranks that come last to collectives, where files of several ranks tell."""

    capture: Optional[Wire] = None
    """Packets in detail, where there are captures."""

    neighbours: list[Neighbour] = field(default_factory=list)
    """The other ends of cables, by LLDP."""

    fabrics: list[FabricFile] = field(default_factory=list)
    """Files that say how the fabric is cabled."""

    counters: Rows[CounterRow] = field(default_factory=Rows[CounterRow])
    """Counters, with differences where they came more than once."""

    predicted: Optional[SideBySide] = None
    """What a scenario predicts beside it, if there is one."""

    replayed: Optional[Replayed] = None
    """What execution traces come to on its fabric, if there are any."""

    calibration: Optional[Calibration] = None
    """Constants that were fitted to it, if that was asked for."""

    made: Optional[Made] = None
    """The scenario that was made of the files, if that was asked for."""


@dataclass(eq=False)
class Damaged(Record):
    """A file that cannot be trusted."""

    file: str
    """Relative to the folder."""

    why: str
    """What is wrong with it."""


@dataclass(eq=False)
class SweepRow(Record):
    """One case with its measures, and how many others have the same."""

    case: int
    """Its number."""

    cases: int
    """Cases with the same measures, this one among them."""

    axes: dict[str, Union[bool, float, str]]
    """Its value of each axis."""

    differ: list[str]
    """The axes in which cases with the same measures differ."""

    set: list[str]
    """What it sets, as `--set` takes it."""

    engine: str
    """Its engine."""


@dataclass(eq=False)
class Sensitivity(Record):
    """How much an axis matters."""

    key: str
    """The axis."""

    share: Optional[float]
    """The variance of the means over its values, over the whole variance, less what chance would
    explain; none where there are too few cases to say.
    """


@dataclass(eq=False)
class Scaling(Record):
    """How throughput grows with the cluster, over all cases that differ in nothing else."""

    kind: str
    """Whether the work stays (strong), or grows with the GPUs (weak), or neither."""

    gpus: int
    """GPUs."""

    smallest: int
    """GPUs of the smallest case, against which it is counted."""

    cases: int
    """Cases that were averaged."""

    speedup: float
    """Tokens per second over the smallest case's: the acceleration ratio."""

    efficiency: float
    """That over the ratio of GPUs."""

    efficiency_min: float
    """The least efficiency of one of the cases."""

    efficiency_max: float
    """The most."""


@dataclass(eq=False)
class FailureReason(Record):
    """Why cases failed."""

    error: str
    """In words."""

    cases: int
    """How many cases."""

    first: int
    """The first of them."""


@dataclass(eq=False, repr=False)
class Sweep(SweepBase):
    """What a sweep says."""

    cases: Cases
    """Cases of the plan."""

    done: int
    """Those that have a result."""

    failed: int
    """Those that failed, each with its reason."""

    missing: int
    """Those that are still to be executed."""

    duplicates: int
    """Executions of cases that had been executed already."""

    others: int
    """Results of other versions of fatflow, or of another grid: kept, and not counted."""

    damaged: list[Damaged]
    """Files that cannot be trusted; their cases count as missing."""

    best: list[SweepRow]
    """The best cases by the first goal, the best first; those that are alike once."""

    sensitivity: list[Sensitivity]
    """How much of the first goal's variance each axis explains by itself."""

    pareto: list[SweepRow]
    """The cases that no other betters in all goals, where there are several; those that are alike
    once.
    """

    scaling: list[Scaling]
    """How throughput grows with the GPUs, where an axis changes their number."""

    failures: list[FailureReason]
    """Why cases failed, and how often."""

    remarks: list[str]
    """What must be known before the order of the best is believed."""

    unseen: list[str] = field(default_factory=list)
    """Measures that no result has."""

    @property
    def machine(self) -> Table:
        """What each case cost the machine that executed it."""
        return self._table("machine")


__all__ = [
    "About",
    "Accuracy",
    "Advice",
    "Advised",
    "AxisLoad",
    "Baseline",
    "BenchmarkRow",
    "Bill",
    "BillLine",
    "BreakdownSeconds",
    "Burst",
    "ByClass",
    "CableRow",
    "Calibration",
    "CallRow",
    "Campaign",
    "CampaignCause",
    "CampaignInput",
    "CampaignLoss",
    "CampaignStep",
    "CampaignStretch",
    "CampaignTraffic",
    "Captured",
    "Case",
    "CausesSeconds",
    "Changed",
    "Choice",
    "Circuits",
    "ClusterSummary",
    "CollectiveRow",
    "CollectiveRun",
    "CollectiveSummary",
    "CommunicatorSummary",
    "Compared",
    "ComparedAxis",
    "ComparedCounter",
    "ComparedStep",
    "Comparison",
    "ComparisonRow",
    "ComparisonVerdict",
    "Constant",
    "CounterRow",
    "CrossCheck",
    "CrossCheckColumn",
    "CrossCheckRow",
    "Damaged",
    "Difference",
    "Disturbed",
    "DomainRow",
    "Domains",
    "Elephants",
    "Entropy",
    "Exchanged",
    "FabricBill",
    "FabricFile",
    "FailureReason",
    "Family",
    "FaultRow",
    "Figure",
    "FileRow",
    "FilesCheck",
    "Flood",
    "FlopsPerToken",
    "FlowsSummary",
    "FreeLink",
    "Goodput",
    "Growth",
    "HopWait",
    "Imbalance",
    "Initialised",
    "Instant",
    "Interval",
    "Iterations",
    "JobLinks",
    "JobRow",
    "JobRun",
    "JobWorstLink",
    "JobsRun",
    "KernelTimes",
    "Latencies",
    "Latency",
    "Layouts",
    "Lever",
    "LinkGroup",
    "LinkSeries",
    "Lit",
    "Load",
    "Made",
    "Matrix",
    "MeanMax",
    "Measured",
    "Memory",
    "Met",
    "ModelFigures",
    "Neighbour",
    "NetLines",
    "NetworkSummary",
    "NicSummary",
    "Observation",
    "ObservedBenchmark",
    "ObservedFinding",
    "ObservedPackets",
    "ObservedPauses",
    "ObservedRun",
    "ObservedSource",
    "ObservedTrace",
    "Operations",
    "OverTime",
    "Packets",
    "Part",
    "PartReport",
    "PassBurst",
    "Pauses",
    "Percentiles",
    "PhaseRow",
    "Piece",
    "PlacementRow",
    "Plan",
    "Profile",
    "QueuePairSeries",
    "Quote",
    "Racks",
    "Refused",
    "RefusedChange",
    "Replayed",
    "ReplayedCall",
    "Requirement",
    "Residual",
    "Restart",
    "RunOnce",
    "ScaleUpSummary",
    "Scaled",
    "Scaling",
    "ScoreOfPart",
    "Scored",
    "Seeds",
    "Sensitivity",
    "Series",
    "Setting",
    "Sharer",
    "SideBySide",
    "SizeRow",
    "SlowedBy",
    "SmallMessages",
    "Spares",
    "Spread",
    "StatedFact",
    "StepDifference",
    "StepRow",
    "Steps",
    "StepsSummary",
    "Straggler",
    "Sweep",
    "SweepRow",
    "TargetRow",
    "TierSummary",
    "Topo",
    "Traffic",
    "TrafficLinks",
    "TrafficRow",
    "TrafficRun",
    "TrafficWorstLink",
    "Unpredicted",
    "Uplink",
    "Uplinks",
    "Validation",
    "Variant",
    "Verb",
    "Verdict",
    "WholeStep",
    "Wire",
]
