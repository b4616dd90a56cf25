//! Everything that congestion controls were told and said, and the same again by fresh objects.
//!
//! A rank puts a recorder between its queue pairs and their controls. What it wrote is then fed to
//! fresh objects of the packet engine, step by step: they must say the same.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::rc::Rc;

use packetsim::cc::{self, CcConfig, Circumstances};
use serde::{Deserialize, Serialize};
use units::{Bytes, Time};

/// What a control was told.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlFact {
    /// At the sender: payload left.
    Sent(u64),
    /// At the sender: payload was acknowledged: its size, the sums acknowledged and sent, when the
    /// last of it was sent, and whether a mark was echoed.
    Ack(u64, u64, u64, u64, bool),
    /// At the sender: a notification came.
    Notified,
    /// At the sender: packets were lost; by timeout or not.
    Loss(bool),
    /// At the sender: its deadline came.
    Timer,
    /// At the receiver: payload arrived, with a mark or without.
    Data(u64, bool),
}

/// One step: of which queue pair, when, what, and what followed.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Step {
    /// The queue pair's number in the run.
    pub pair: u32,
    /// When, in picoseconds.
    pub at_ps: u64,
    /// What was told.
    pub told: ControlFact,
    /// At the sender: the rate after it.
    pub rate_bps: Option<u64>,
    /// At the receiver: whether a notification follows.
    pub notify: Option<bool>,
}

/// The steps of a rank.
pub type Log = Rc<RefCell<BufWriter<File>>>;

/// Begins a file.
pub fn create(path: &Path) -> io::Result<Log> {
    Ok(Rc::new(RefCell::new(BufWriter::new(File::create(path)?))))
}

fn write(log: &Log, step: &Step) {
    let text = serde_json::to_string(step).expect("plain data");
    // A file that cannot be written is missed when it is read.
    let _ = writeln!(log.borrow_mut(), "{text}");
}

/// A sender's control that is written down.
#[derive(Debug)]
pub struct Sender {
    pair: u32,
    inner: Box<dyn cc::Sender>,
    log: Log,
}

impl Sender {
    /// Around a control.
    pub fn new(pair: u32, inner: Box<dyn cc::Sender>, log: Log) -> Self {
        Self { pair, inner, log }
    }

    fn note(&self, now: Time, told: ControlFact) {
        let rate_bps = Some(self.inner.limit().rate.as_bps());
        let step = Step { pair: self.pair, at_ps: now.as_ps(), told, rate_bps, notify: None };
        write(&self.log, &step);
    }
}

impl cc::Sender for Sender {
    fn limit(&self) -> cc::Limit {
        self.inner.limit()
    }

    fn on_sent(&mut self, now: Time, size: Bytes) {
        self.inner.on_sent(now, size);
        self.note(now, ControlFact::Sent(size.get()));
    }

    fn on_ack(&mut self, now: Time, ack: &cc::Ack<'_>) {
        self.inner.on_ack(now, ack);
        let sizes = (ack.size.get(), ack.through, ack.sent_through);
        let told = ControlFact::Ack(sizes.0, sizes.1, sizes.2, ack.sent_at.as_ps(), ack.marked);
        self.note(now, told);
    }

    fn on_notified(&mut self, now: Time) {
        self.inner.on_notified(now);
        self.note(now, ControlFact::Notified);
    }

    fn on_loss(&mut self, now: Time, loss: cc::Loss) {
        self.inner.on_loss(now, loss);
        self.note(now, ControlFact::Loss(loss == cc::Loss::Timeout));
    }

    fn on_timer(&mut self, now: Time) {
        self.inner.on_timer(now);
        self.note(now, ControlFact::Timer);
    }

    fn is_resting(&self) -> bool {
        self.inner.is_resting()
    }

    fn deadline(&self) -> Option<Time> {
        self.inner.deadline()
    }
}

/// A receiver's half that is written down.
#[derive(Debug)]
pub struct Receiver {
    pair: u32,
    inner: Box<dyn cc::Receiver>,
    log: Log,
}

impl Receiver {
    /// Around a receiver's half.
    pub fn new(pair: u32, inner: Box<dyn cc::Receiver>, log: Log) -> Self {
        Self { pair, inner, log }
    }
}

impl cc::Receiver for Receiver {
    fn on_data(&mut self, now: Time, data: &cc::Data) -> cc::Feedback {
        let feedback = self.inner.on_data(now, data);
        let told = ControlFact::Data(data.size.get(), data.marked);
        let (at_ps, notify) = (now.as_ps(), Some(feedback.notify));
        write(&self.log, &Step { pair: self.pair, at_ps, told, rate_bps: None, notify });
        feedback
    }
}

/// What came of feeding a record to fresh objects.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Replayed {
    /// Steps of senders and receivers.
    pub steps: u64,
    /// Those after which the rate, or the decision to notify, is the recorded one.
    pub same: u64,
    /// Notifications among them.
    pub cnps: u64,
    /// Steps after which the rate had changed.
    pub rate_changes: u64,
}

/// Feeds a rank's file to fresh objects of the packet engine.
pub fn replay(
    path: &Path,
    config: &CcConfig,
    about: &Circumstances,
    into: &mut Replayed,
) -> Result<(), String> {
    let wrong = |line: usize, reason: String| format!("{}:{line}: {reason}", path.display());
    let file = File::open(path).map_err(|error| wrong(0, error.to_string()))?;
    let mut senders: BTreeMap<u32, (Box<dyn cc::Sender>, u64)> = BTreeMap::new();
    let mut receivers: BTreeMap<u32, Box<dyn cc::Receiver>> = BTreeMap::new();
    for (number, line) in (1..).zip(BufReader::new(file).lines()) {
        let line = line.map_err(|error| wrong(number, error.to_string()))?;
        let step: Step =
            serde_json::from_str(&line).map_err(|error| wrong(number, error.to_string()))?;
        into.steps += 1;
        let now = Time::from_ps(step.at_ps);
        if let ControlFact::Data(size, marked) = step.told {
            let Some(fresh) = config.receiver() else { continue };
            let receiver = receivers.entry(step.pair).or_insert(fresh);
            let said = receiver.on_data(now, &cc::Data { size: Bytes::new(size), marked });
            into.cnps += u64::from(said.notify);
            into.same += u64::from(step.notify == Some(said.notify));
            continue;
        }
        let (sender, before) = senders.entry(step.pair).or_insert_with(|| {
            let sender = config.build(about);
            let rate = sender.limit().rate.as_bps();
            (sender, rate)
        });
        tell(&mut **sender, now, step.told);
        let rate = sender.limit().rate.as_bps();
        into.rate_changes += u64::from(rate != *before);
        *before = rate;
        into.same += u64::from(step.rate_bps == Some(rate));
    }
    Ok(())
}

fn tell(sender: &mut dyn cc::Sender, now: Time, told: ControlFact) {
    match told {
        ControlFact::Sent(size) => sender.on_sent(now, Bytes::new(size)),
        ControlFact::Ack(size, through, sent_through, sent_at, marked) => {
            let (size, sent_at) = (Bytes::new(size), Time::from_ps(sent_at));
            sender
                .on_ack(now, &cc::Ack { size, through, sent_through, sent_at, marked, hops: &[] });
        }
        ControlFact::Notified => sender.on_notified(now),
        ControlFact::Loss(true) => sender.on_loss(now, cc::Loss::Timeout),
        ControlFact::Loss(false) => sender.on_loss(now, cc::Loss::Reported),
        ControlFact::Timer => sender.on_timer(now),
        ControlFact::Data(..) => {}
    }
}
