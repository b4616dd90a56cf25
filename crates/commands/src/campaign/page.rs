//! What people see of a campaign.

use report::number::{bits_per_second, bytes, grouped, significant};
use report::{Align, Chart, ChartKind, Frame, Sheet, Table, Unit};
use step::campaign::Stretch;
use step::faults::DataParallel;
use units::Span;

use super::{Campaign, word};

/// Stretches of time for which the share that trains is drawn.
const BINS: usize = 60;

/// Operations of the timeline that a page draws; a campaign with more is drawn from its beginning.
const MOST_DRAWN: usize = 2_000;

const DAY: f64 = 86_400.0;

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn span(seconds: f64) -> String {
    format!("{:.1}", Span::from_secs_f64(seconds))
}

/// What charts need besides the result.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Drawn {
    /// The day, and the share that trains, in equal parts of the first campaign.
    bins: Vec<(f64, f64)>,
    /// Goodput of every campaign.
    goodputs: Vec<f64>,
}

impl Drawn {
    pub(super) fn of(days: u32, stretches: &[Stretch], goodputs: Vec<f64>) -> Self {
        let width = f64::from(days) * DAY / BINS as f64;
        let mut trained = [0.0; BINS];
        for stretch in stretches {
            let bin = |seconds: f64| (seconds / width) as usize;
            let (first, last) = (bin(stretch.from_s), bin(stretch.to_s));
            for (at, bin) in trained.iter_mut().enumerate().take(last + 1).skip(first) {
                let (from, to) = (at as f64 * width, (at + 1) as f64 * width);
                let inside = stretch.to_s.min(to) - stretch.from_s.max(from);
                *bin += inside.max(0.0) * stretch.trains;
            }
        }
        let bin = |(at, trained): (usize, &f64)| (at as f64 * width / DAY, trained / width);
        Self { bins: trained.iter().enumerate().map(bin).collect(), goodputs }
    }
}

impl Campaign {
    /// What people see of it, below a heading.
    pub fn show(&self, sheet: Sheet) -> Sheet {
        let Self { days, campaigns, goodput, failures, .. } = self;
        let times = match campaigns {
            1 => "one campaign".to_owned(),
            several => format!("{} campaigns", grouped(u64::from(*several))),
        };
        let copies = match self.data_parallel {
            DataParallel::Fixed => "all copies stop at a failure",
            DataParallel::Elastic => "the other copies go on at a failure",
        };
        let ends = format!("5 to 95 of 100: {} to {}", percent(goodput.p5), percent(goodput.p95));
        let ends = if *campaigns == 1 { "of one campaign" } else { &ends };
        let mut sheet = sheet
            .heading(format!("{days} days by dice: {times}, {copies}"))
            .facts([
                ("goodput", percent(goodput.mean), ends),
                ("closed form", percent(self.closed_form), "failures that all cost the same"),
                ("failures", significant(failures.mean), "of a campaign"),
                ("checkpoints", significant(self.traffic.checkpoints), "of a campaign"),
            ])
            .chart(self.over_time())
            .chart(self.lanes());
        if !self.not_played.is_empty() {
            sheet = sheet.text(format!(
                "! Faults that come or go ({}) are not in these days, nor in the goodput above: \
                 what fails here is drawn by `reliability`. They are in the step alone.",
                self.not_played.join(", ")
            ));
        }
        if 1 < *campaigns {
            sheet = sheet.chart(self.spread());
        }
        sheet = sheet.heading("What the time is lost to").table(self.lost_table());
        sheet = sheet.heading("Failures by cause").table(self.causes_table());
        if 1 < self.steps.len() {
            sheet = sheet.heading("The job with copies missing").table(self.steps_table());
            sheet = sheet.text(
                "Each size was predicted; between them the speed is taken to be linear, and each \
                 copy keeps its sequences, so the batch is smaller.",
            );
        }
        sheet = sheet.heading("Checkpoints and lost state on the network");
        sheet = sheet.table(self.traffic_table());
        sheet = sheet.heading("Goodput of a campaign if it were different");
        sheet = sheet.table(self.variants_table());
        sheet = sheet.text(
            "Copies that go on train in proportion to their number where no prediction is above. \
             Published: more than 90 % of 54 days on 16,384 GPUs (Llama 3, arXiv 2407.21783), 44 % \
             on 100,000 where all stop and 80 % where the others go on (arXiv 2602.00277, another \
             cluster: a reference, not a target).",
        );
        sheet.heading("What the campaign rests on").table(self.inputs_table())
    }

    fn over_time(&self) -> Chart {
        let mut frame = Frame::new(&["day", "trains"]);
        for (day, trains) in &self.drawn.bins {
            frame.push(vec![(*day).into(), (*trains).into()]);
        }
        let each = significant(f64::from(self.days) * 24.0 / BINS as f64);
        let title = format!("Share that trains, each {each} h of the first campaign");
        Chart::new(ChartKind::Area, title, frame)
            .caption("Of the whole job's speed; what is lost later counts where it was trained.")
            .axes("day", "trains")
            .labels("day", "share that trains")
            .units(Unit::Number, Unit::Share)
    }

    fn lanes(&self) -> Chart {
        let mut frame = Frame::new(&["start", "end", "lane", "what", "name"]);
        let told = &self.timeline[..self.timeline.len().min(MOST_DRAWN)];
        for stretch in told {
            let is_training = 0.0 < stretch.trains;
            let lane = if is_training { "trains" } else { "stands still" };
            let what =
                if is_training && 0.9 < stretch.trains { "training" } else { stretch.loss.words() };
            let cause = stretch.cause.map_or_else(String::new, |cause| word(&cause));
            let (start, end) = (stretch.from_s / DAY, stretch.to_s / DAY);
            frame.push(vec![start.into(), end.into(), lane.into(), what.into(), cause.into()]);
        }
        let left = match (told.last(), told.len() < self.timeline.len()) {
            (Some(last), true) => {
                format!(" The first {} days are drawn.", significant(last.to_s / DAY))
            }
            _ => String::new(),
        };
        Chart::new(ChartKind::Timeline, "The first campaign", frame)
            .caption(format!(
                "When the job trains and what it stands still for; the label is the cause.{left}"
            ))
            .axes("start", "lane")
            .spans("start", "end")
            .by("what")
            .named_by("name")
            .labels("day", "")
    }

    fn spread(&self) -> Chart {
        const RANGES: usize = 24;
        let least = self.drawn.goodputs.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.drawn.goodputs.iter().copied().fold(0.0, f64::max);
        let width = ((most - least) / RANGES as f64).max(1e-6);
        let mut counts = [0_u64; RANGES];
        for goodput in &self.drawn.goodputs {
            counts[(((goodput - least) / width) as usize).min(RANGES - 1)] += 1;
        }
        let mut frame = Frame::new(&["from", "to", "campaigns", "of"]);
        for (at, count) in counts.into_iter().enumerate() {
            let from = least + at as f64 * width;
            let to = from + width;
            frame.push(vec![from.into(), to.into(), count.into(), "campaigns".into()]);
        }
        Chart::new(ChartKind::Histogram, "Goodput of all campaigns", frame)
            .caption("How many campaigns ended with a goodput between two values.")
            .axes("from", "campaigns")
            .spans("from", "to")
            .by("of")
            .labels("goodput", "campaigns")
            .units(Unit::Share, Unit::Number)
    }

    fn lost_table(&self) -> Table {
        let columns = ["mean", "p5", "median", "p95"].map(|name| (name, Align::Right));
        let mut table = Table::new(std::iter::once(("", Align::Left)).chain(columns));
        let goodput = ("trains", self.goodput);
        let lost = self.lost.iter().map(|loss| (loss.what, loss.share));
        for (what, share) in std::iter::once(goodput).chain(lost) {
            let shares = [share.mean, share.p5, share.p50, share.p95];
            let shares = shares.map(|share| format!("{:.2} %", 100.0 * share));
            table.row(std::iter::once(what.to_owned()).chain(shares));
        }
        table
    }

    fn causes_table(&self) -> Table {
        let mut table = Table::new([
            ("cause", Align::Left),
            ("failures", Align::Right),
            ("of the time", Align::Right),
        ]);
        for cause in &self.causes {
            let lost = format!("{:.2} %", 100.0 * cause.lost_share);
            table.row([word(&cause.cause), significant(cause.failures), lost]);
        }
        table
    }

    fn steps_table(&self) -> Table {
        let mut table = Table::new([
            ("copies", Align::Right),
            ("GPUs", Align::Right),
            ("step", Align::Right),
            ("tokens", Align::Right),
            ("speed", Align::Right),
        ]);
        for step in &self.steps {
            table.row([
                grouped(step.copies),
                grouped(step.gpus),
                format!("{:.3}", Span::from_secs_f64(step.step_s)),
                format!("{}/s", grouped(step.tokens_per_s as u64)),
                format!("{:.2} %", 100.0 * step.speed),
            ]);
        }
        table
    }

    fn traffic_table(&self) -> Table {
        let traffic = &self.traffic;
        let mut table = Table::new([("", Align::Left), ("", Align::Right)]);
        let flood = &traffic.flood;
        let rows = [
            ("checkpoints over", traffic.network.to_owned()),
            ("bytes of one", bytes(traffic.checkpoint_bytes)),
            ("its burst", span(traffic.burst_s)),
            ("time between two", span(traffic.interval_s)),
            ("all of them, on average", bits_per_second(8.0 * traffic.checkpoint_bytes_per_s)),
            ("state after a failure, from storage", bytes(flood.from_storage_bytes)),
            ("state after a failure, between servers", bytes(flood.between_bytes)),
            ("until it is there", span(flood.takes_s)),
            ("such floods", significant(traffic.floods)),
        ];
        for (what, value) in rows {
            table.row([what.to_owned(), value]);
        }
        table
    }

    fn variants_table(&self) -> Table {
        let mut table = Table::new([("if", Align::Left), ("goodput", Align::Right)]);
        table.row(["as it is".to_owned(), percent(self.goodput.mean)]);
        for variant in &self.goodput_if {
            table.row([variant.what.to_owned(), percent(variant.goodput)]);
        }
        table
    }

    fn inputs_table(&self) -> Table {
        let mut table = Table::new([
            ("reliability", Align::Left),
            ("value", Align::Right),
            ("source", Align::Left),
        ]);
        for input in &self.inputs {
            table.row([input.key.to_owned(), input.value.clone(), input.source.clone()]);
        }
        table
    }
}
