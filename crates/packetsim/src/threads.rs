//! One run on several threads: each handles a part of the network, window by window.
//!
//! This is conservative lookahead (Chandy, Misra and Bryant) once more, as in [`crate::batch`] and
//! [`crate::stations`], with the parts of [`crate::parts`] as nodes. All threads know the time of
//! the next event anywhere, and the shortest time after which it can act on another part: the
//! shortest cable that was cut, plus the latency of the switch at its end while no switch at a cut
//! is near a pause. Until then each handles its part by the same code as one thread does. Then they
//! wait for each other and exchange the packets that crossed the cuts ([`crate::exchange`]). All
//! events of a node are handled by one thread, in the order of time and of the node's own tickets.
//! So results are the same bytes at any number of threads. The number of events is not, because it
//! depends on when ports are read.
//!
//! A run is repeated on one thread if it needs the state of the whole network (a pause that lasts,
//! a queue pair that gives up, a limit, a finding), or if packets are in flight when the last
//! operation ends. Repetition ([`crate::repetition`]) is searched for on one thread: if the first
//! snapshots all differ, the run starts again with threads.
//!
//! This is the only file of the core crates that may use threads (decision 20).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use fabric::Fabric;
use fabric::fault::Faults;
use traffic::{OpKind, OpTimes, Outcome, Transfers};
use units::{Id, Room, Time};

use crate::build::build;
use crate::exchange::Mail;
use crate::limits::{AGE, Refusal};
use crate::parts::Division;
use crate::settings::Settings;
use crate::simulation::{CHECK_EVERY, End, PartResult, Progress, Simulation, Watch};

const NEVER: u64 = u64::MAX;

/// Fewer packet-hops in a run are not worth a second thread, nor fewer in a window for each.
const WORTH_IT: f64 = 400_000.0;
const WORTH_A_WINDOW: f64 = 60.0;

/// After so many snapshots without a period, none is expected.
const SNAPSHOTS: u32 = 6;

/// No window is longer than this, in picoseconds.
const LONGEST: u64 = 1_000_000_000;

/// A thread that waits polls so often before it yields the processor, and so often before it
/// sleeps.
const POLLS: [u32; 2] = [1_000, 1_020];

/// A run by its inputs.
#[derive(Clone, Copy)]
struct Order<'a> {
    fabric: &'a Fabric,
    transfers: &'a Transfers,
    settings: &'a Settings,
    faults: &'a Faults,
    room: &'a Room,
}

impl<'a> Order<'a> {
    fn build(self) -> Result<Simulation<'a>, Refusal> {
        let mut built = build(self.fabric, self.transfers, self.settings, self.faults)?;
        built.stay_within(self.room);
        Ok(built)
    }
}

/// Runs on as many threads as the settings or the watch allow.
pub(crate) fn run(
    fabric: &Fabric,
    transfers: &Transfers,
    (settings, faults): (&Settings, &Faults),
    room: &Room,
    watch: &mut Watch<'_>,
) -> Result<Outcome, Refusal> {
    let order = Order { fabric, transfers, settings, faults, room };
    let mut simulation = order.build()?;
    watch.threads = watch.threads.max(1);
    let division = match divide(&simulation, watch.cores) {
        Ok(division) => division,
        Err(why) => {
            watch.why_one_thread = watch.why_one_thread.or(why);
            return Ok(simulation.run(watch));
        }
    };
    if simulation.repetition.is_likely() {
        if let Some(outcome) = simulation.run_if_periodic(SNAPSHOTS, watch) {
            watch.why_one_thread = Some("it repeats itself");
            return Ok(outcome);
        }
        simulation = order.build()?;
    }
    // Each part has a network of its own.
    let needed =
        crate::bound::built_memory(fabric, transfers).saturating_mul(division.parts as u64);
    if room.left() < needed {
        watch.why_one_thread = Some("there is no memory for several parts of it");
        return Ok(simulation.run(watch));
    }
    if let Some(outcome) = run_parts(simulation, order, &division, watch) {
        watch.threads = watch.threads.max(division.parts);
        return Ok(outcome);
    }
    watch.why_one_thread = Some("what happened had to be seen as a whole");
    Ok(order.build()?.run(watch))
}

/// Says why a run that is measured has one thread, if it could have had more.
pub(crate) fn stay_on_one(simulation: &Simulation<'_>, watch: &mut Watch<'_>) {
    watch.threads = watch.threads.max(1);
    let why = divide(simulation, watch.cores).err().flatten();
    watch.why_one_thread = watch.why_one_thread.or(why);
}

/// How a run is divided; or why it is not, if the user may want to know.
fn divide(simulation: &Simulation<'_>, cores: usize) -> Result<Division, Option<&'static str>> {
    let set = simulation.input.settings.packet.threads;
    let count = set.map_or(cores, |threads| threads as usize).min(usize::from(u8::MAX));
    if count < 2 {
        return Err(None);
    }
    if set.is_none() && crate::parts::hops(simulation) < 2.0 * WORTH_IT {
        // It is over in a moment.
        return Err(None);
    }
    if let Some(why) = obstacle(simulation) {
        return Err(Some(why));
    }
    let into = |count: usize| {
        let division = (2..=count).rev().find_map(|count| Division::new(simulation, count));
        division.ok_or(Some("its servers and switches cannot be divided"))
    };
    let most = into(count)?;
    if set.is_some() {
        return Ok(most);
    }
    let worth = (most.hops / WORTH_IT).min(most.hops_in_window / WORTH_A_WINDOW) as usize;
    match worth {
        0 | 1 => Err(Some("its windows are too short for more")),
        fewer if fewer < most.parts => into(fewer),
        _ => Ok(most),
    }
}

/// What keeps a run on one thread.
fn obstacle(simulation: &Simulation<'_>) -> Option<&'static str> {
    let (rules, net) = (&simulation.input.rules, &simulation.net);
    let stations = &simulation.time.stations;
    let keys = net.network.keys.iter();
    let is_server = |node| crate::stations::station_of(simulation.input.fabric, node).is_some();
    let obstacles = [
        (simulation.accounts.recorder.is_some(), "it is measured over time"),
        (stations.is_empty(), "operations or NICs in it act on other servers at once"),
        (net.credits.are_counted(), "its links count credits"),
        (net.schedule.is_on, "its leaves wait for credit"),
        (rules.needs.hops, "its switches write on packets"),
        (rules.light_acks, "its acknowledgements take no links"),
        (rules.reads, "its receivers read"),
        (net.wires.is_tagged(), "its cables are longer than 32 bits of picoseconds tell"),
        (!keys.into_iter().all(|(key, _)| is_server(key.to)), "its switches end queue pairs"),
    ];
    obstacles.into_iter().find(|(holds, _)| *holds).map(|(_, why)| why)
}

/// How a run in parts ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Verdict {
    Done,
    Stopped,
    /// It must be run on one thread.
    Again,
}

/// Runs all parts; nothing if it must be run on one thread.
fn run_parts(
    mut simulation: Simulation<'_>,
    order: Order<'_>,
    division: &Division,
    watch: &mut Watch<'_>,
) -> Option<Outcome> {
    let board = Board::new(division.parts);
    let (verdict, results) = std::thread::scope(|scope| {
        let work = |number: usize| {
            let board = &board;
            move || {
                let _alarm = Alarm(board);
                let mut simulation = order.build().ok()?;
                simulation.keep_part(division, number);
                let verdict = Worker::new(&mut simulation, board, number).work(None);
                (verdict != Verdict::Again).then(|| simulation.finish_part())
            }
        };
        let others: Vec<_> = (1..division.parts).map(|number| scope.spawn(work(number))).collect();
        let _alarm = Alarm(&board);
        simulation.keep_part(division, 0);
        let verdict = Worker::new(&mut simulation, &board, 0).work(Some(watch));
        let own = (verdict != Verdict::Again).then(|| simulation.finish_part());
        let join = |other: std::thread::ScopedJoinHandle<'_, Option<PartResult>>| match other.join()
        {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let others = others.into_iter().map(join);
        let results: Option<Vec<PartResult>> = std::iter::once(own).chain(others).collect();
        (verdict, results)
    });
    let results = results?;
    if verdict == Verdict::Done && !results.iter().all(|result| result.is_quiet) {
        return None;
    }
    let end = if verdict == Verdict::Done { End::Done } else { End::Stopped };
    let whole = merge_results(&simulation, division, &results);
    Some(simulation.finish_run(end, whole))
}

/// Puts the shares of all parts together.
fn merge_results(
    simulation: &Simulation<'_>,
    division: &Division,
    results: &[PartResult],
) -> PartResult {
    let mut whole = results[0].clone();
    for (link, port) in simulation.net.ports.enumerate() {
        let [_, near] = simulation.time.stations.ends_of(link);
        let switch = port.switch.get().map(|switch| division.of_switch[switch]);
        let station = near.get().map(|station| division.of_station[station]);
        if let Some(part) = switch.or(station) {
            whole.links[link] = results[usize::from(part)].links[link];
        }
    }
    for result in &results[1..] {
        whole.add(result);
    }
    let transfers = simulation.input.transfers;
    for op in transfers.ops().ids().filter(|op| simulation.part.is_left_out(*op)) {
        let OpKind::Wait { span } = transfers.ops()[op].kind else { continue };
        let before = transfers.after(op).iter();
        let ends = before.map(|at| whole.ops[*at].map(|_| whole.received_at[at.index()]));
        let begin = ends.reduce(|one, other| Some(one?.max(other?))).flatten();
        whole.ops[op] = begin.map(|begin| {
            let start = Time::from_ps(begin);
            let end = transfers.end_of_wait(op, start, span);
            OpTimes { start, received: end, finish: end }
        });
    }
    let ends = whole.ops.iter().flatten().map(|times| times.finish.as_ps());
    whole.now = ends.fold(whole.now, u64::max);
    whole
}

impl PartResult {
    /// Adds what another part has counted.
    fn add(&mut self, other: &Self) {
        for (own, more) in self.ops.iter_mut().zip(&other.ops) {
            *own = own.or(*more);
        }
        for (own, more) in self.received_at.iter_mut().zip(&other.received_at) {
            *own = (*own).max(*more);
        }
        let (own, more) = (&mut self.counters, &other.counters);
        own.events += more.events;
        own.packets += more.packets;
        own.packet_hops += more.packet_hops;
        own.drops += more.drops;
        own.retransmits += more.retransmits;
        own.ecn_marks += more.ecn_marks;
        own.cnps += more.cnps;
        own.pauses += more.pauses;
        own.paused += more.paused;
        own.trims += more.trims;
        let (own, more) = (&mut self.tally, &other.tally);
        own.delivered_data += more.delivered_data;
        own.duplicate_data += more.duplicate_data;
        own.discarded_data += more.discarded_data;
        own.dropped_data += more.dropped_data;
        own.reordered += more.reordered;
        self.under_way += other.under_way;
        self.now = self.now.max(other.now);
    }
}

/// What a part reports to all others at the end of a window.
#[derive(Clone, Copy, Debug)]
struct Notice {
    /// Its next event.
    next: u64,
    /// How soon that can act on another part.
    window: u64,
    /// Operations that are not finished.
    left: u64,
    /// When the last of those that are finished was.
    last_end: u64,
    events: u64,
    /// Events of this window, of the part that had most.
    busiest: u64,
    hops: u64,
    /// It must be run on one thread.
    again: bool,
    /// Somebody stopped it.
    stops: bool,
}

impl Notice {
    const SILENT: Self = Self {
        next: NEVER,
        window: LONGEST,
        left: 0,
        last_end: 0,
        events: 0,
        busiest: 0,
        hops: 0,
        again: false,
        stops: false,
    };

    fn with(self, other: Self) -> Self {
        Self {
            next: self.next.min(other.next),
            window: self.window.min(other.window),
            left: self.left + other.left,
            last_end: self.last_end.max(other.last_end),
            events: self.events + other.events,
            busiest: self.busiest.max(other.busiest),
            hops: self.hops + other.hops,
            again: self.again || other.again,
            stops: self.stops || other.stops,
        }
    }
}

/// The place of one part on the board, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Place {
    /// Windows that it has finished.
    round: AtomicU64,
    /// Its reports at the end of the last two.
    said: [[AtomicU64; 9]; 2],
}

/// The shared memory of the parts: a barrier with reports, and messages.
#[derive(Debug)]
struct Board {
    places: Vec<Place>,
    /// For even and odd windows, from each to each.
    mail: [Vec<Mutex<Mail>>; 2],
    /// One of them has panicked.
    is_broken: AtomicBool,
    /// How many sleep, and who wakes them.
    asleep: AtomicU64,
    bell: (Mutex<()>, Condvar),
}

/// Releases the other threads if one panics.
struct Alarm<'a>(&'a Board);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.is_broken.store(true, Ordering::Release);
        }
    }
}

impl Board {
    fn new(parts: usize) -> Self {
        let place = |_| Place { round: AtomicU64::new(0), said: Default::default() };
        let mail = || (0..parts * parts).map(|_| Mutex::default()).collect();
        Self {
            places: (0..parts).map(place).collect(),
            mail: [mail(), mail()],
            is_broken: AtomicBool::new(false),
            asleep: AtomicU64::new(0),
            bell: Default::default(),
        }
    }

    fn mail(&self, round: u64, from: usize, to: usize) -> std::sync::MutexGuard<'_, Mail> {
        let place = &self.mail[(round & 1) as usize][from * self.places.len() + to];
        place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until a part has finished a window, or for a moment.
    #[cold]
    fn sleep_until(&self, place: &Place, round: u64) {
        let guard = self.bell.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.asleep.fetch_add(1, Ordering::SeqCst);
        if place.round.load(Ordering::SeqCst) < round {
            drop(self.bell.1.wait_timeout(guard, Duration::from_millis(5)));
        }
        self.asleep.fetch_sub(1, Ordering::SeqCst);
    }

    /// The barrier at the end of a window: reports to all others and merges all reports; none if a
    /// thread has panicked.
    fn meet(&self, part: usize, round: u64, notice: Notice) -> Option<Notice> {
        let Notice { next, window, left, last_end, events, busiest, hops, again, stops } = notice;
        let (again, stops) = (again.into(), stops.into());
        let words = [next, window, left, last_end, events, hops, again, stops, busiest];
        let parity = (round & 1) as usize;
        for (said, word) in self.places[part].said[parity].iter().zip(words) {
            said.store(word, Ordering::Relaxed);
        }
        self.places[part].round.store(round, Ordering::SeqCst);
        if 0 < self.asleep.load(Ordering::SeqCst) {
            drop(self.bell.0.lock());
            self.bell.1.notify_all();
        }
        let mut all = Notice::SILENT;
        for place in &self.places {
            let mut polls = 0;
            while place.round.load(Ordering::SeqCst) < round {
                if self.is_broken.load(Ordering::Relaxed) {
                    return None;
                }
                polls += 1;
                match polls {
                    _ if polls < POLLS[0] => std::hint::spin_loop(),
                    _ if polls < POLLS[1] => std::thread::yield_now(),
                    _ => self.sleep_until(place, round),
                }
            }
            let word = |at: usize| place.said[parity][at].load(Ordering::Relaxed);
            all = all.with(Notice {
                next: word(0),
                window: word(1),
                left: word(2),
                last_end: word(3),
                events: word(4),
                hops: word(5),
                again: word(6) != 0,
                stops: word(7) != 0,
                busiest: word(8),
            });
        }
        Some(all)
    }
}

/// One thread at work.
struct Worker<'a, 'b> {
    simulation: &'a mut Simulation<'b>,
    board: &'a Board,
    number: usize,
    /// Windows that it has finished.
    round: u64,
    /// Where the present one ends.
    end: u64,
    /// All operations are finished; the parts agree when the last was.
    is_ending: bool,
    /// Hops, when they last grew, and events until then.
    moved: (u64, u64, u64),
    old_at: u64,
    /// Events until the last window.
    events: u64,
}

impl<'a, 'b> Worker<'a, 'b> {
    fn new(simulation: &'a mut Simulation<'b>, board: &'a Board, number: usize) -> Self {
        let (round, end, is_ending, moved, old_at) = (0, 0, false, (0, 0, 0), AGE);
        Self { simulation, board, number, round, end, is_ending, moved, old_at, events: 0 }
    }

    /// Handles its part from the first instant to the last.
    fn work(mut self, mut watch: Option<&mut Watch<'_>>) -> Verdict {
        self.simulation.time.window_end = 0;
        self.simulation.start_ready_operations();
        let mut next_check = CHECK_EVERY;
        let mut stops = false;
        loop {
            self.simulation.run_until(self.end);
            self.round += 1;
            let notice = Notice { stops, ..self.finish_window() };
            let Some(all) = self.board.meet(self.number, self.round, notice) else {
                return Verdict::Again;
            };
            let verdict = self.next_window(&all);
            self.read_mail();
            if let Some(verdict) = verdict {
                return verdict;
            }
            let Some(watch) = watch.as_deref_mut() else { continue };
            watch.events_in_turn += all.busiest;
            if next_check <= all.events {
                next_check = all.events + CHECK_EVERY;
                stops = watch.wants_stop(Progress {
                    at: Time::from_ps(all.next.min(self.end)),
                    events: all.events,
                    operations_left: all.left as usize,
                    packets: all.hops,
                    expected_events: 0,
                });
            }
        }
    }

    /// Sends packets and messages to the others.
    fn finish_window(&mut self) -> Notice {
        let next = self.simulation.write_mail(self.end);
        self.simulation.advance_to(self.end);
        for to in 0..self.board.places.len() {
            if to != self.number {
                let mut place = self.board.mail(self.round, self.number, to);
                let empty = std::mem::take(&mut *place);
                *place = self.simulation.part.take_mail(to, empty);
            }
        }
        if self.old_at <= self.end {
            self.old_at = self.end + AGE / 2;
            self.simulation.report_old_packets();
        }
        let counters = &self.simulation.accounts.counters;
        let busiest = counters.events - std::mem::replace(&mut self.events, counters.events);
        Notice {
            next,
            window: self.simulation.window(),
            left: self.simulation.part.left as u64,
            last_end: if self.is_ending { self.simulation.last_end() } else { 0 },
            events: counters.events,
            busiest,
            hops: counters.packet_hops,
            again: self.simulation.part.is_blind,
            stops: false,
        }
    }

    fn read_mail(&mut self) {
        for from in 0..self.board.places.len() {
            if from != self.number {
                let mut mail = self.board.mail(self.round, from, self.number);
                self.simulation.read_mail(&mail);
                mail.clear();
            }
        }
    }

    /// Sets the next window, or says how the run has ended: the same in all threads.
    fn next_window(&mut self, all: &Notice) -> Option<Verdict> {
        let settings = self.simulation.input.settings;
        let limits = &settings.limits;
        if all.again || limits.events <= all.events + all.events / 4 {
            return Some(Verdict::Again);
        }
        if all.stops {
            return Some(Verdict::Stopped);
        }
        if all.left == 0 && self.is_ending {
            if all.last_end < all.next {
                self.simulation.time.end_at = all.last_end;
                return Some(Verdict::Done);
            }
            self.end = all.next.saturating_add(all.window).min(all.last_end + 1);
        } else if all.left == 0 {
            // No event is handled until all know when the last operation ended.
            self.is_ending = true;
        } else if limits.time.as_ps() < all.next || self.is_stuck(all) {
            return Some(Verdict::Again);
        } else {
            self.end = all.next.saturating_add(all.window);
        }
        self.simulation.time.window_end = self.end;
        None
    }

    /// Whether nothing can move any more, or nothing has for suspiciously long.
    fn is_stuck(&mut self, all: &Notice) -> bool {
        if self.moved.0 != all.hops {
            self.moved = (all.hops, all.next, all.events);
        }
        let (_, since, events) = self.moved;
        let timeout = self.simulation.input.rules.timeout;
        let is_busy = events + 16 * CHECK_EVERY < all.events;
        all.next == NEVER || (is_busy && since.saturating_add(timeout) < all.next)
    }
}
