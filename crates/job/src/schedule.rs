//! The order of forward and backward passes in a pipeline.
//!
//! A [`Pipeline`] knows for each stage the [`Order`] in which it runs its [`Slot`]s. One file per
//! schedule gives the order as a plain list; here it is folded: between its warm-up and its end
//! every schedule repeats one round, so an order of a million microbatches is as long as one of a
//! few. [`evaluate`](mod@evaluate) runs the orders against each other, in time that does not grow
//! with the number of microbatches either, and exactly.
//!
//! A slot waits for the slot before it on its stage, and for its data: a forward pass for the one
//! of the part before, a backward pass for the one of the part behind, a weight gradient for the
//! input gradient of the same part. Those are all the rules there are.

mod dualpipe;
pub mod evaluate;
mod gpipe;
mod interleaved;
mod one_forward_one_backward;
mod paired;
mod zero_bubble;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use evaluate::{Evaluation, PassTimes, evaluate};

/// The order of forward and backward passes in a pipeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Schedule {
    /// All forward passes, then all backward passes.
    #[serde(rename = "gpipe")]
    Gpipe,
    /// One forward, one backward: fewer microbatches in flight.
    #[default]
    #[serde(rename = "1f1b")]
    OneForwardOneBackward,
    /// The same with several virtual stages per GPU: less bubble, more messages.
    #[serde(rename = "interleaved-1f1b")]
    Interleaved,
    /// Weight gradients apart from input gradients, to fill the bubble (ZB-H1).
    #[serde(rename = "zero-bubble")]
    ZeroBubble,
    /// From both ends at once, forward and backward overlapped (DeepSeek-V3).
    #[serde(rename = "dualpipe")]
    DualPipe,
}

impl Schedule {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Gpipe,
        Self::OneForwardOneBackward,
        Self::Interleaved,
        Self::ZeroBubble,
        Self::DualPipe,
    ];

    /// Whether a forward pass can be paired with the backward pass of another microbatch, so that
    /// each one's exchange of tokens runs beside the other's computation.
    pub fn pairs(self) -> bool {
        matches!(self, Self::OneForwardOneBackward | Self::Interleaved | Self::DualPipe)
    }
}

/// What a slot does with a microbatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pass {
    /// Forward.
    Forward,
    /// Backward: gradients of inputs and of weights.
    Backward,
    /// Gradients of inputs alone; those of weights come later.
    Input,
    /// Gradients of weights alone.
    Weight,
}

impl Pass {
    /// Whether it is the first over a part.
    pub fn is_forward(self) -> bool {
        self == Self::Forward
    }

    /// What it is made of: a backward pass is the gradients of inputs, then those of weights.
    pub fn parts(self) -> &'static [Self] {
        match self {
            Self::Forward => &[Self::Forward],
            Self::Backward => &[Self::Input, Self::Weight],
            Self::Input => &[Self::Input],
            Self::Weight => &[Self::Weight],
        }
    }

    /// Whether it is the last over a part.
    pub fn ends(self) -> bool {
        matches!(self, Self::Backward | Self::Weight)
    }
}

/// One pass of one microbatch through one part of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// What is done.
    pub pass: Pass,
    /// The part of the model, counted along the model from 0 (a virtual stage).
    pub part: u64,
    /// The microbatch. With DualPipe odd ones enter at the last stage.
    pub microbatch: u64,
}

/// What a stage does between two decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// One task.
    Alone(Task),
    /// A forward and a backward task that overlap each other.
    Together(Task, Task),
}

impl Slot {
    /// Its tasks.
    pub fn tasks(self) -> impl Iterator<Item = Task> {
        let (first, second) = match self {
            Self::Alone(task) => (task, None),
            Self::Together(forward, backward) => (forward, Some(backward)),
        };
        std::iter::once(first).chain(second)
    }

    /// Whether one of its tasks is such a pass over a part.
    pub fn has(self, part: u64, such: impl Fn(Pass) -> bool) -> bool {
        self.tasks().any(|task| task.part == part && such(task.pass))
    }

    fn later(self, microbatches: u64) -> Self {
        self.renumbered(|microbatch| microbatch + microbatches)
    }

    fn earlier(self, microbatches: u64) -> Self {
        self.renumbered(|microbatch| microbatch - microbatches)
    }

    fn renumbered(self, number: impl Fn(u64) -> u64) -> Self {
        let renumber = |task: Task| Task { microbatch: number(task.microbatch), ..task };
        match self {
            Self::Alone(task) => Self::Alone(renumber(task)),
            Self::Together(forward, backward) => {
                Self::Together(renumber(forward), renumber(backward))
            }
        }
    }
}

/// The slots of one stage in order, folded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// One after the other.
    pub segments: Vec<Segment>,
}

/// Slots that repeat, each time with later microbatches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The slots of the first round.
    pub slots: Vec<Slot>,
    /// How often they run.
    pub rounds: u64,
    /// By how much the microbatch's number grows from round to round.
    pub step: u64,
}

impl Order {
    /// The slots one by one.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.segments.iter().flat_map(|segment| {
            (0..segment.rounds).flat_map(move |round| {
                segment.slots.iter().map(move |slot| slot.later(round * segment.step))
            })
        })
    }

    /// How many slots there are.
    pub fn len(&self) -> u64 {
        self.segments.iter().map(|segment| segment.rounds * segment.slots.len() as u64).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most microbatches whose activations are held at once, summed over the stage's parts.
    /// They are held from the forward pass to the end of the weight gradient.
    pub fn in_flight(&self) -> u64 {
        self.peak(|_| 1)
    }

    /// The same with a weight for each part: the bytes that it keeps of a microbatch.
    pub fn peak(&self, weight: impl Fn(u64) -> u64) -> u64 {
        let (mut held, mut most) = (0_i128, 0_i128);
        for segment in &self.segments {
            let (before, mut round) = (held, held);
            for slot in &segment.slots {
                // Of an overlapped pair, the forward pass begins before the backward one ends.
                for task in slot.tasks() {
                    let weight = i128::from(weight(task.part));
                    match task.pass {
                        Pass::Forward => held += weight,
                        Pass::Backward | Pass::Weight => held -= weight,
                        Pass::Input => {}
                    }
                    round = round.max(held);
                }
            }
            // Further rounds go on from where this one ended: a round that gains goes on gaining.
            let gains = (held - before) * i128::from(segment.rounds.saturating_sub(1));
            held += gains;
            most = most.max(round + gains.max(0));
        }
        u64::try_from(most).expect("a backward pass follows its forward pass")
    }
}

/// A pipeline and what it is fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pipeline {
    /// The order of passes.
    pub schedule: Schedule,
    /// Stages: GPUs that work one after the other.
    pub stages: u64,
    /// Parts of the model per stage; more than one only with the interleaved schedule. (With
    /// DualPipe a stage holds two parts too, but the model has as many parts as stages.)
    pub chunks: u64,
    /// Microbatches of one step.
    pub microbatches: u64,
    /// Whether forward passes are paired with backward passes of other microbatches, so that one's
    /// communication runs beside the other's computation. DualPipe always pairs.
    pub paired: bool,
}

impl Pipeline {
    /// Parts of the model.
    pub fn parts(&self) -> u64 {
        self.stages * self.chunks
    }

    /// The parts that a stage holds.
    pub fn parts_of(&self, stage: u64) -> Vec<u64> {
        match self.schedule {
            Schedule::DualPipe if 1 < self.stages => vec![stage, self.stages - 1 - stage],
            _ => (0..self.chunks).map(|chunk| chunk * self.stages + stage).collect(),
        }
    }

    /// The stage that runs a part for a microbatch.
    pub fn stage_of(&self, part: u64, microbatch: u64) -> u64 {
        match self.schedule {
            Schedule::DualPipe if !microbatch.is_multiple_of(2) => self.stages - 1 - part,
            _ => part % self.stages,
        }
    }

    /// The order of one stage.
    pub fn order(&self, stage: u64) -> Order {
        assert!(stage < self.stages, "stage {stage} of {}", self.stages);
        if self.schedule == Schedule::Gpipe && 1 < self.stages {
            return gpipe::folded(self, stage);
        }
        let (step, few) = (self.step(), self.few());
        if self.microbatches <= few + step {
            let slots = self.unfolded(stage);
            return Order { segments: vec![Segment { slots, rounds: 1, step: 0 }] };
        }
        let short = Self { microbatches: few, ..*self }.unfolded(stage);
        let long = Self { microbatches: few + step, ..*self }.unfolded(stage);
        fold(&short, &long, step, (self.microbatches - few) / step)
    }

    /// The order of one stage as a plain list.
    pub fn unfolded(&self, stage: u64) -> Vec<Slot> {
        match self.schedule {
            _ if self.paired && self.schedule != Schedule::DualPipe => paired::order(self, stage),
            _ if self.stages == 1 && self.chunks == 1 => one_forward_one_backward::order(self, 0),
            Schedule::Gpipe => gpipe::order(self, stage),
            Schedule::Interleaved if 1 < self.chunks => interleaved::order(self, stage),
            Schedule::OneForwardOneBackward | Schedule::Interleaved => {
                one_forward_one_backward::order(self, stage)
            }
            Schedule::ZeroBubble => zero_bubble::order(self, stage),
            Schedule::DualPipe => dualpipe::order(self, stage),
        }
    }

    /// The same with no more microbatches than bring every stage to its steady state. (GPipe has
    /// none: it holds all of them.)
    pub fn settled(&self) -> Self {
        match self.schedule {
            Schedule::Gpipe if 1 < self.stages => *self,
            _ => Self { microbatches: self.microbatches.min(self.few()), ..*self },
        }
    }

    /// Enough microbatches for every stage to reach its steady state: more than the longest
    /// warm-up (interleaved: 2(p-1) + (v-1)p passes of parts, which is below (v+1)p and so below
    /// 2p microbatches).
    fn few(&self) -> u64 {
        let step = self.step();
        (2 * self.stages).next_multiple_of(step) + self.microbatches % step
    }

    /// Microbatches by which the schedule repeats itself.
    fn step(&self) -> u64 {
        match self.schedule {
            Schedule::Interleaved if 1 < self.chunks => self.stages,
            Schedule::DualPipe => 2,
            _ => 1,
        }
    }
}

/// Folds an order from two of its lengths. The longer one is the shorter one with one round put
/// in where the shorter one begins to run dry; what lies behind that is the same, only later.
fn fold(short: &[Slot], long: &[Slot], step: u64, extra: u64) -> Order {
    let split = short.iter().zip(long).take_while(|(a, b)| a == b).count();
    let round = long.len() - short.len();
    let (cycle, end) = (&long[split..split + round], &short[split..]);
    let behind = long[split + round..].iter();
    assert!(
        behind.eq(end.iter().map(|slot| slot.later(step)).collect::<Vec<_>>().iter()),
        "a schedule that does not repeat itself cannot be folded"
    );
    let once = |slots: Vec<Slot>| Segment { slots, rounds: 1, step: 0 };
    Order {
        segments: vec![
            once(short[..split].to_vec()),
            Segment { slots: cycle.to_vec(), rounds: extra, step },
            once(end.iter().map(|slot| slot.later(extra * step)).collect()),
        ],
    }
}

#[cfg(test)]
mod tests;
